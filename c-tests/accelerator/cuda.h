/* Memory of CUDA devices for the test programs, by the driver API alone: its functions are looked up in
 * libcuda.so.1, as a program does that is not linked with it. */
#ifndef ACCELERATOR_CUDA_H
#define ACCELERATOR_CUDA_H

#include <dlfcn.h>

#include "../mpi/check.h"

/* Open MPI 4.1 knows no accelerators: there the host's copies are looked at. */
#define HAS_ACCELERATORS (OMPI_MAJOR_VERSION >= 5)

typedef unsigned long long address;

static int (*cu_init)(unsigned);
static int (*cu_device_count)(int *);
static int (*cu_primary_retain)(void **, int);
static int (*cu_primary_release)(int);
static int (*cu_push)(void *);
static int (*cu_pop)(void **);
static int (*cu_current)(void **);
static int (*cu_create)(void **, unsigned, int);
static int (*cu_destroy)(void *);
static int (*cu_reset)(int);
static int (*cu_alloc)(address *, size_t);
static int (*cu_alloc_managed)(address *, size_t, unsigned);
static int (*cu_free)(address);
static int (*cu_alloc_host)(void **, size_t);
static int (*cu_free_host)(void *);
static int (*cu_copy)(address, address, size_t);
static int (*cu_alloc_async)(address *, size_t, void *);
static int (*cu_free_async)(address, void *);
static int (*cu_synchronize)(void);

#define CUDA(call) CHECK_EQ(call, 0)

static inline void *cuda_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(3);
    }
    return symbol;
}

/* Where the machine has one device alone, the second of them is a context of the program's own on it. */
enum { CUDA_DEVICES = 2 };
static void *cuda_context[CUDA_DEVICES];
static int cuda_count;

/* Which device that is. */
static inline int cuda_device(int number) { return number < cuda_count ? number : 0; }

static inline void cuda_context_new(int number)
{
    void *context;
    if (number < cuda_count) {
        CUDA(cu_primary_retain(&cuda_context[number], number));
    } else {
        CUDA(cu_create(&cuda_context[number], 0, 0));
        CUDA(cu_pop(&context));
    }
}

static inline void cuda_context_end(int number)
{
    if (number < cuda_count)
        CUDA(cu_primary_release(number));
    else
        CUDA(cu_destroy(cuda_context[number]));
}

/* Loads the driver, and makes the primary context of device 0 current. */
static inline void cuda_begin(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
#define LOOK_UP(function, name) *(void **)&function = cuda_symbol(library, name)
    LOOK_UP(cu_init, "cuInit");
    LOOK_UP(cu_device_count, "cuDeviceGetCount");
    LOOK_UP(cu_primary_retain, "cuDevicePrimaryCtxRetain");
    LOOK_UP(cu_primary_release, "cuDevicePrimaryCtxRelease_v2");
    LOOK_UP(cu_push, "cuCtxPushCurrent_v2");
    LOOK_UP(cu_pop, "cuCtxPopCurrent_v2");
    LOOK_UP(cu_current, "cuCtxGetCurrent");
    LOOK_UP(cu_create, "cuCtxCreate_v2");
    LOOK_UP(cu_destroy, "cuCtxDestroy_v2");
    LOOK_UP(cu_reset, "cuDevicePrimaryCtxReset_v2");
    LOOK_UP(cu_alloc, "cuMemAlloc_v2");
    LOOK_UP(cu_alloc_managed, "cuMemAllocManaged");
    LOOK_UP(cu_free, "cuMemFree_v2");
    LOOK_UP(cu_alloc_host, "cuMemAllocHost_v2");
    LOOK_UP(cu_free_host, "cuMemFreeHost");
    LOOK_UP(cu_copy, "cuMemcpy");
    LOOK_UP(cu_alloc_async, "cuMemAllocAsync");
    LOOK_UP(cu_free_async, "cuMemFreeAsync");
    LOOK_UP(cu_synchronize, "cuCtxSynchronize");
#undef LOOK_UP
    CUDA(cu_init(0));
    CUDA(cu_device_count(&cuda_count));
    if (cuda_count < 1) {
        fprintf(stderr, "no device\n");
        exit(3);
    }
    for (int number = 0; number < CUDA_DEVICES; number++) cuda_context_new(number);
    CUDA(cu_push(cuda_context[0]));
}

/* The context that the program uses is still the one it made current; then all is given back. */
static inline void cuda_end(void)
{
    void *context = NULL;
    CUDA(cu_current(&context));
    CHECK(context == cuda_context[0]);
    CUDA(cu_pop(&context));
    CUDA(cu_current(&context));
    CHECK(context == NULL);
    for (int number = 0; number < CUDA_DEVICES; number++) cuda_context_end(number);
}

/* Ends the contexts, with all that is in them, as cudaDeviceReset does, which many a program calls before it ends. */
static inline void cuda_reset(void)
{
    void *gone = NULL;
    CUDA(cu_pop(&gone));
    for (int number = CUDA_DEVICES - 1; number >= 0; number--)
        CUDA(number < cuda_count ? cu_reset(number) : cu_destroy(cuda_context[number]));
}

/* And begins anew. */
static inline void cuda_again(void)
{
    for (int number = 0; number < CUDA_DEVICES; number++) cuda_context_new(number);
    CUDA(cu_push(cuda_context[0]));
}

/* Where a buffer lies. */
enum kind { HEAP, MAPPED, PINNED, FIRST, SECOND, MANAGED, POOL, KINDS };
static const char *const kind_names[KINDS] = {"heap", "mapped", "pinned", "device", "other device", "managed", "pool"};

static inline bool on_device(enum kind kind) { return kind >= FIRST; }

/* A buffer of any kind, with room around what is used. */
struct buffer {
    enum kind kind;
    size_t len;
    char *start;
};

static inline struct buffer buffer_new(enum kind kind, size_t len)
{
    struct buffer buffer = {kind, len, NULL};
    address start = 0;
    void *context = NULL;
    switch (kind) {
    case HEAP: buffer.start = malloc(len); break;
    case MAPPED: {
        size_t whole = (len + 4095) / 4096 * 4096;
        buffer.start = aligned_alloc(4096, whole < (1 << 20) ? (1 << 20) : whole);
        break;
    }
    case PINNED: CUDA(cu_alloc_host((void **)&buffer.start, len)); break;
    case FIRST: CUDA(cu_alloc(&start, len)); break;
    case SECOND:
        CUDA(cu_push(cuda_context[1]));
        CUDA(cu_alloc(&start, len));
        CUDA(cu_pop(&context));
        break;
    case MANAGED: CUDA(cu_alloc_managed(&start, len, 1)); break;
    case POOL:
        CUDA(cu_alloc_async(&start, len, NULL));
        CUDA(cu_synchronize());
        break;
    default: abort();
    }
    if (on_device(kind)) buffer.start = (char *)(uintptr_t)start;
    if (buffer.start == NULL) {
        fprintf(stderr, "no %s memory\n", kind_names[kind]);
        exit(3);
    }
    return buffer;
}

static inline void buffer_free(struct buffer *buffer)
{
    address start = (address)(uintptr_t)buffer->start;
    void *context = NULL;
    switch (buffer->kind) {
    case HEAP:
    case MAPPED: free(buffer->start); break;
    case PINNED: CUDA(cu_free_host(buffer->start)); break;
    case SECOND:
        CUDA(cu_push(cuda_context[1]));
        CUDA(cu_free(start));
        CUDA(cu_pop(&context));
        break;
    case POOL:
        CUDA(cu_free_async(start, NULL));
        CUDA(cu_synchronize());
        break;
    default: CUDA(cu_free(start));
    }
    buffer->start = NULL;
}

/* Copies between a buffer and plain memory. */
static inline void buffer_write(struct buffer *buffer, size_t at, const void *from, size_t len)
{
    if (!on_device(buffer->kind)) {
        memcpy(buffer->start + at, from, len);
        return;
    }
    CUDA(cu_copy((address)(uintptr_t)(buffer->start + at), (address)(uintptr_t)from, len));
    /* Such a copy may still be on its way when it returns. MPI is given what is there. */
    CUDA(cu_synchronize());
}

static inline void buffer_read(const struct buffer *buffer, size_t at, void *to, size_t len)
{
    if (on_device(buffer->kind))
        CUDA(cu_copy((address)(uintptr_t)to, (address)(uintptr_t)(buffer->start + at), len));
    else
        memcpy(to, buffer->start + at, len);
}

/* Plain memory that all copies go through. */
static inline unsigned char *plain(size_t len)
{
    static unsigned char *memory;
    static size_t room;
    if (len > room) {
        free(memory);
        memory = malloc(len);
        room = len;
    }
    return memory;
}

static inline void buffer_fill(struct buffer *buffer, size_t at, size_t len, unsigned seed)
{
    unsigned char *memory = plain(len);
    fill(memory, len, seed);
    buffer_write(buffer, at, memory, len);
}

/* Whether what lies there is so much of a pattern. */
static inline bool buffer_holds(const struct buffer *buffer, size_t at, size_t len, unsigned seed)
{
    unsigned char *memory = plain(len);
    buffer_read(buffer, at, memory, len);
    for (size_t index = 0; index < len; index++) {
        if (memory[index] != pattern(seed, index))
            return check_report(__FILE__, __LINE__, kind_names[buffer->kind], (long long)index, (long long)len);
    }
    return true;
}

#endif
