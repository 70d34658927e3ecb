/* Copies. Each side must lie inside one live allocation, or in several adjoining mappings of reserved addresses,
 * or in memory that the CPU can read; else INVALID_VALUE, and nothing is moved. When a call returns before its
 * work is done is as documented ("API synchronization behavior"): notably, a copy from device to device does
 * not wait, even without `Async` in its name, unless one side has SYNC_MEMOPS, or the context; nor does one of up
 * to 64 KiB from ordinary host memory, once it has that elsewhere. The device of the stream does the
 * work: to mapped memory and that of pools it must have access; the driver finds its way to any other by itself. */
#include "standin.h"

/* What an entry point demands of a side. */
enum side { ANY, HOST, DEVICE };

struct span {
    char *bytes;
    size_t size;
    struct range *range; /* none for ordinary host memory */
};

static bool on_host(const struct range *range)
{
    return range == NULL || range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED;
}

/* What lies at `address`, up to `size` bytes of it. */
static bool span_at(CUdeviceptr address, size_t size, bool write, CUdevice device, struct span *span)
{
    struct range *range = range_at(address);
    if (range == NULL) {
        *span = (struct span){(char *)(uintptr_t)address, size, NULL};
        return address != 0 && readable(span->bytes, size);
    }
    size_t offset = address - range->base, left = range->size - offset;
    *span = (struct span){range->bytes + offset, size < left ? size : left, range};
    int wanted = write ? 2 : 1;
    if (range->kind == RANGE_MAPPED) return (vmm_access(range, device) & wanted) != 0;
    if (range->kind == RANGE_POOLED && (pool_access(range->pool, device) & wanted) == 0) return false;
    /* Registered memory may go on beyond its registration, and the copy with it. */
    if (range->kind == RANGE_REGISTERED && left < size) return readable(span->bytes, span->size = size);
    if (write && range->kind == RANGE_REGISTERED && (range->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0) return false;
    return left >= size;
}

static bool check(CUdeviceptr address, size_t size, bool write, enum side side, CUdevice device, struct span *first)
{
    struct span span;
    if (address + size < address) return false;
    for (size_t done = 0; done < size; done += span.size) {
        if (!span_at(address + done, size - done, write, device, &span)) return false;
        if (done == 0) *first = span;
        else if (span.range == NULL || span.range->kind != RANGE_MAPPED || first->range->kind != RANGE_MAPPED)
            return false;
    }
    if (side == HOST) return on_host(first->range) || first->range->kind == RANGE_MANAGED;
    if (side == DEVICE) return first->range != NULL;
    return true;
}

static bool pageable(const struct span *span) { return span->range == NULL; }

/* Whether calls that are not asynchronous by their names always wait. */
static bool always_waits(const struct stream *stream, const struct range *range)
{
    return (stream->context->flags & CU_CTX_SYNC_MEMOPS) != 0 || (range != NULL && range->sync_memops);
}

static CUresult copy(struct context *context, CUstream handle, bool async, CUdeviceptr to, CUdeviceptr from,
    size_t size, enum side to_side, enum side from_side)
{
    CUresult error;
    struct stream *stream = stream_of(context, handle, &error);
    if (stream == NULL) return error;
    if (size == 0) return CUDA_SUCCESS;
    struct span target, source;
    CUdevice device = stream->context->device;
    if (!check(to, size, true, to_side, device, &target) || !check(from, size, false, from_side, device, &source))
        return CUDA_ERROR_INVALID_VALUE;
    bool to_host = on_host(target.range), from_host = on_host(source.range), wait;
    char *staged = NULL;
    if (to_host && from_host) wait = true;
    else if (to_host) wait = !async || pageable(&target);
    else if (from_host) {
        wait = !async && (!pageable(&source) || size > 65536 || always_waits(stream, target.range));
        if (pageable(&source) && !wait) { /* the program may use it again as soon as the call returns */
            staged = malloc(size);
            if (staged == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
            memcpy(staged, source.bytes, size);
        }
    } else wait = !async && (always_waits(stream, target.range) || always_waits(stream, source.range));
    for (size_t done = 0; done < size;) {
        span_at(to + done, size - done, true, device, &target);
        if (staged != NULL) source = (struct span){staged + done, size - done, NULL};
        else span_at(from + done, size - done, false, device, &source);
        size_t piece = target.size < source.size ? target.size : source.size;
        queue_submit(stream, &(struct work){.kind = WORK_COPY, .to = target.bytes, .from = source.bytes, .size = piece,
            .prompt = done > 0, .staged = done + piece == size ? staged : NULL});
        done += piece;
    }
    return wait ? queue_wait(stream) : CUDA_SUCCESS;
}

static CUresult set(struct context *context, CUstream handle, bool async, CUdeviceptr to, unsigned value,
    unsigned width, size_t count)
{
    CUresult error;
    struct stream *stream = stream_of(context, handle, &error);
    if (stream == NULL) return error;
    if (count == 0) return CUDA_SUCCESS;
    struct span target;
    CUdevice device = stream->context->device;
    if (count > SIZE_MAX / width || to % width != 0 || !check(to, count * width, true, DEVICE, device, &target))
        return CUDA_ERROR_INVALID_VALUE;
    bool wait = !async && (on_host(target.range) || always_waits(stream, target.range));
    for (size_t done = 0, size = count * width; done < size; done += target.size) {
        span_at(to + done, size - done, true, device, &target);
        queue_submit(stream, &(struct work){.kind = WORK_SET, .to = target.bytes, .size = target.size, .value = value,
            .width = width, .prompt = done > 0});
    }
    return wait ? queue_wait(stream) : CUDA_SUCCESS;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, NULL, false, to, from, size, ANY, ANY);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, stream, true, to, from, size, ANY, ANY);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, NULL, false, to, (uintptr_t)from, size, DEVICE, HOST);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, NULL, false, (uintptr_t)to, from, size, HOST, DEVICE);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, NULL, false, to, from, size, DEVICE, DEVICE);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, stream, true, to, (uintptr_t)from, size, DEVICE, HOST);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, stream, true, (uintptr_t)to, from, size, HOST, DEVICE);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    return copy(context, stream, true, to, from, size, DEVICE, DEVICE);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size)
{
    ENTER(NEEDS_CONTEXT);
    if (context_of(to_context) == NULL || context_of(from_context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    return copy(context, NULL, false, to, from, size, DEVICE, DEVICE);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
    size_t size, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    if (context_of(to_context) == NULL || context_of(from_context) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    return copy(context, stream, true, to, from, size, DEVICE, DEVICE);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    ENTER(NEEDS_CONTEXT);
    return set(context, NULL, false, to, value, 1, count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    return set(context, stream, true, to, value, 1, count);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    ENTER(NEEDS_CONTEXT);
    return set(context, NULL, false, to, value, 4, count);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    return set(context, stream, true, to, value, 4, count);
}
