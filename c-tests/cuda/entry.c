/* How the driver begins and ends in a process, what each call begins with, and the table of its names. */
#define _GNU_SOURCE
#include "standin.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int state;
enum { FRESH, READY, ENDED, FORKED };

/* --- small things that all files need */

unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    if (text == NULL || *text == 0) return otherwise;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != 0) {
        fprintf(stderr, "%s: `%s` is not a number\n", name, text);
        abort();
    }
    return value;
}

uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* As the real driver does with what is not there any more: it follows it. */
void crash(const char *what)
{
    fprintf(stderr, "the driver crashes: %s\n", what);
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

int job_rank(void) { return (int)setting("OMPI_COMM_WORLD_RANK", 0); }
size_t round_up(size_t size, size_t to) { return (size + to - 1) / to * to; }

/* --- calls */

struct entry enter(struct call *call, enum needs needs)
{
    struct entry entry = {.refusal = CUDA_SUCCESS};
    int as = atomic_load(&state);
    /* A forked child must not even take the lock: who held it is not there. */
    if (as == FORKED || as == FRESH) entry.refusal = CUDA_ERROR_NOT_INITIALIZED;
    if (as == ENDED) entry.refusal = CUDA_ERROR_DEINITIALIZED;
    if (entry.refusal != CUDA_SUCCESS) return entry;
    if (queue_inside()) { /* a host function must not call the driver */
        entry.refusal = CUDA_ERROR_NOT_PERMITTED;
        return entry;
    }
    pthread_mutex_lock(&lock);
    entry.locked = true;
    ledger_call(call);
    entry.refusal = fault_for(call);
    if (entry.refusal == CUDA_SUCCESS && needs == NEEDS_CONTEXT) entry.context = context_current(&entry.refusal);
    return entry;
}

void leave(struct entry *entry)
{
    if (entry->locked) pthread_mutex_unlock(&lock);
}

static void at_exit(void)
{
    if (atomic_load(&state) != READY) return;
    atomic_store(&state, ENDED);
    queue_stop();
    pthread_mutex_lock(&lock);
    ledger_write();
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    if (atomic_load(&state) != FRESH) atomic_store(&state, FORKED);
}

CUresult cuInit(unsigned flags)
{
    static struct call call = {.name = "cuInit"};
    int as = atomic_load(&state);
    if (as == FORKED) return CUDA_ERROR_NOT_INITIALIZED;
    if (as == ENDED) return CUDA_ERROR_DEINITIALIZED;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    ledger_call(&call);
    CUresult error = fault_for(&call);
    if (error == CUDA_SUCCESS && atomic_load(&state) == FRESH) {
        device_read();
        if (device_count == 0) error = CUDA_ERROR_NO_DEVICE;
        else {
            queue_read();
            pthread_atfork(NULL, NULL, in_child);
            atexit(at_exit);
            atomic_store(&state, READY);
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = (int)setting("HAWSER_CUDA_VERSION", 12040);
    return CUDA_SUCCESS;
}

/* --- errors */

static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_UNMAP_FAILED, "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed"},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {CUDA_ERROR_NOT_MAPPED, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        "peer access is not supported between these two devices"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        "peer access is already enabled"},
    {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult error, const char **name, const char **text)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].error != error) continue;
        if (name != NULL) *name = errors[i].name;
        if (text != NULL) *text = errors[i].text;
        return CUDA_SUCCESS;
    }
    if (name != NULL) *name = NULL;
    if (text != NULL) *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    return name == NULL ? CUDA_ERROR_INVALID_VALUE : describe(error, name, NULL);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    return text == NULL ? CUDA_ERROR_INVALID_VALUE : describe(error, NULL, text);
}
