/* Host memory that devices reach: allocated by the driver, or the program's own, registered. */
#define _GNU_SOURCE
#include "standin.h"

#include <sys/mman.h>

static CUresult allocate(struct context *context, void **address, size_t size, unsigned flags)
{
    if (address == NULL || size == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
    void *bytes = mmap(NULL, round_up(size, PAGE), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    struct range *range = range_add((uintptr_t)bytes, size, RANGE_HOST, context, context->device);
    range->bytes = bytes;
    range->flags = flags;
    ledger_add(HOST_MEMORY);
    *address = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **address, size_t size)
{
    ENTER(NEEDS_CONTEXT);
    return allocate(context, address, size, 0);
}

CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    return allocate(context, address, size, flags);
}

CUresult cuMemFreeHost(void *address)
{
    ENTER(NEEDS_CONTEXT);
    if (address == NULL) return CUDA_SUCCESS;
    struct range *range = range_at((uintptr_t)address);
    if (range == NULL || range->kind != RANGE_HOST || range->bytes != address) return CUDA_ERROR_INVALID_VALUE;
    range_free(range);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    if (address == NULL || size == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    struct range *other = range_over((uintptr_t)address, size);
    if (other != NULL && (other->kind == RANGE_REGISTERED || other->kind == RANGE_HOST))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (other != NULL || !readable(address, size)) return CUDA_ERROR_INVALID_VALUE;
    struct range *range = range_add((uintptr_t)address, size, RANGE_REGISTERED, context, context->device);
    range->bytes = address;
    range->flags = flags;
    ledger_add(REGISTRATIONS);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *address)
{
    ENTER(NEEDS_CONTEXT);
    struct range *range = range_at((uintptr_t)address);
    if (range == NULL) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (range->kind != RANGE_REGISTERED || range->bytes != address) return CUDA_ERROR_INVALID_VALUE;
    range_free(range);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    struct range *range = range_at((uintptr_t)host);
    if (address == NULL || flags != 0 || range == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (range->kind != RANGE_HOST && range->kind != RANGE_REGISTERED) return CUDA_ERROR_INVALID_VALUE;
    *address = (uintptr_t)host; /* one address space for all */
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *host)
{
    ENTER(NEEDS_CONTEXT);
    struct range *range = range_at((uintptr_t)host);
    if (flags == NULL || range == NULL || range->kind != RANGE_HOST) return CUDA_ERROR_INVALID_VALUE;
    *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP; /* in one address space all of it is */
    return CUDA_SUCCESS;
}
