/* Memory and events of other processes. A handle says whose file it is, and which allocation: it is opened
 * through /proc/PID/fd/N. It is refused when the process or the allocation is gone, when it is this process's
 * own, when it was not made by the driver, when the devices cannot reach each other, on an instance of a shared
 * device, and between numbers of HAWSER_CUDA_NAMESPACE, which imitate containers (`rank`: each rank is alone). */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define MEMORY_MAGIC 0x6861777365726970ULL
#define EVENT_MAGIC 0x6861777365726576ULL

struct wire {
    uint64_t magic;
    int32_t pid, fd;
    uint64_t started, base, size, generation;
    int32_t device, space;
    uint64_t check;
};
_Static_assert(sizeof(struct wire) == sizeof(CUipcMemHandle), "a handle is filled");

static uint64_t check_of(const struct wire *wire)
{
    uint64_t sum = 0xcbf29ce484222325ULL;
    const unsigned char *bytes = (const unsigned char *)wire;
    for (size_t i = 0; i < offsetof(struct wire, check); i++) sum = (sum ^ bytes[i]) * 0x100000001b3ULL;
    return sum;
}

/* When a process started, in clock ticks; 0 when there is none. */
static uint64_t started(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (size <= 0) return 0;
    text[size] = 0;
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static int space(void)
{
    const char *text = getenv("HAWSER_CUDA_NAMESPACE");
    return text != NULL && strcmp(text, "rank") == 0 ? job_rank() + 1 : (int)setting("HAWSER_CUDA_NAMESPACE", 0);
}

static void write_handle(void *handle, uint64_t magic, int fd, CUdeviceptr base, size_t size, uint64_t generation,
    int device)
{
    struct wire wire = {.magic = magic, .pid = getpid(), .fd = fd, .started = started(getpid()), .base = base,
        .size = size, .generation = generation, .device = device, .space = space()};
    wire.check = check_of(&wire);
    memcpy(handle, &wire, sizeof wire);
}

/* What a handle says; whether it may be opened here. */
static CUresult read_handle(struct wire *wire, const void *handle, uint64_t magic, struct context *context)
{
    memcpy(wire, handle, sizeof *wire);
    if (device_mig()) return CUDA_ERROR_NOT_SUPPORTED;
    if (wire->magic != magic || wire->check != check_of(wire)) return CUDA_ERROR_INVALID_VALUE;
    if (wire->space != space()) return CUDA_ERROR_INVALID_VALUE;
    if (wire->pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    if (!device_reaches(device_physical(context->device), wire->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return CUDA_SUCCESS;
}

static int open_file(const struct wire *wire)
{
    char path[64];
    if (started(wire->pid) != wire->started) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", wire->pid, wire->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    ENTER(NEEDS_CONTEXT);
    struct range *range = range_at(address);
    if (device_mig()) return CUDA_ERROR_NOT_SUPPORTED;
    if (handle == NULL || range == NULL || range->kind != RANGE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    range->memory->shared = true;
    write_handle(handle, MEMORY_MAGIC, range->memory->fd, range->base, range->size, range->memory->header->generation,
        range->memory->header->device);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    if (address == NULL || flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    struct wire wire;
    CUresult error = read_handle(&wire, &handle, MEMORY_MAGIC, context);
    if (error != CUDA_SUCCESS) return error;
    for (size_t i = 0; i < range_count(); i++) {
        struct range *range = range_number(i);
        if (range->kind != RANGE_OPENED || range->generation != wire.generation || range->device != context->device)
            continue;
        /* One context of a process has it; and some drivers refuse to open it again even there. */
        if (range->context != context) return CUDA_ERROR_INVALID_HANDLE;
        if (setting("HAWSER_CUDA_ALREADY_MAPPED", 0) != 0) return CUDA_ERROR_ALREADY_MAPPED;
        range->opened++;
        ledger_add(MEMORY_OPENED);
        *address = range->base;
        return CUDA_SUCCESS;
    }
    int fd = open_file(&wire);
    struct memory *memory = fd < 0 ? NULL : memory_open(fd);
    if (memory == NULL) {
        if (fd >= 0) close(fd);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const struct header *header = memory->header;
    bool same = header->generation == wire.generation && header->size == wire.size && atomic_load(&header->alive) == 1;
    CUdeviceptr base = same ? arena_take(wire.size, PAGE) : 0;
    if (base == 0) {
        memory_release(memory);
        return same ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_INVALID_HANDLE;
    }
    struct range *range = range_add(base, wire.size, RANGE_OPENED, context, context->device);
    range->memory = memory;
    range->bytes = memory->bytes;
    range->generation = wire.generation;
    range->opened = 1;
    ledger_add(MEMORY_OPENED);
    *address = base;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    ENTER(NEEDS_CONTEXT);
    struct range *range = range_at(address);
    if (range == NULL || range->kind != RANGE_OPENED || range->base != address) return CUDA_ERROR_INVALID_VALUE;
    if (range->opened == 1) {
        queue_drain(range->device); /* meanwhile another thread may close it, or open it again */
        range = range_at(address);
        if (range == NULL || range->kind != RANGE_OPENED || range->base != address) return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->opened > 1) {
        range->opened--;
        ledger_remove(MEMORY_OPENED);
    } else range_free_now(range);
    return CUDA_SUCCESS;
}

void ipc_close(struct range *range)
{
    for (; range->opened > 0; range->opened--) ledger_remove(MEMORY_OPENED);
    memory_release(range->memory);
    arena_give(range->base, range->size);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    ENTER(NEEDS_INIT);
    int fd = event_file(event);
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (fd < 0) return CUDA_ERROR_INVALID_HANDLE;
    if (device_mig()) return CUDA_ERROR_NOT_SUPPORTED;
    write_handle(handle, EVENT_MAGIC, fd, 0, 0, event_signal(event)->progress->generation, event_device(event));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    ENTER(NEEDS_CONTEXT);
    if (event == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct wire wire;
    CUresult error = read_handle(&wire, &handle, EVENT_MAGIC, context);
    if (error != CUDA_SUCCESS) return error;
    int fd = open_file(&wire);
    struct signal *signal = fd < 0 ? NULL : signal_open(fd);
    if (signal == NULL) {
        if (fd >= 0) close(fd);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (signal->progress->generation != wire.generation) {
        signal_release(signal);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *event = event_make(context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, signal, true);
    return CUDA_SUCCESS;
}
