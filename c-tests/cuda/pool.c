/* Pools, and allocation in the order of a stream. A pool is one file, as large as it may become; a block of it is
 * a page that says what it is, and its bytes. Another process that has the pool's file imports single blocks.
 * A device's default pool cannot be exported. */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <unistd.h>

#define POOL_SIZE ((size_t)1 << 30)
#define POINTER_MAGIC 0x6861777365727074ULL

struct block {
    size_t offset, size; /* with its page */
    struct block *next;
};
struct pool {
    CUmemoryPool handle;
    struct memory *memory;
    CUdevice device;
    bool imported, standard, destroyed;
    unsigned live;
    unsigned char access[MAX_DEVICES];
    struct block *blocks; /* sorted */
};
struct pointer {
    uint64_t magic, pool, generation, offset, size;
};
_Static_assert(sizeof(struct pointer) <= sizeof(CUmemPoolPtrExportData), "it fits");

static struct pool *standard[MAX_DEVICES], *chosen[MAX_DEVICES];

static struct pool *pool_of(CUmemoryPool handle) { return handle_object(HANDLE_POOL, (uintptr_t)handle); }
CUmemoryPool pool_handle(const struct pool *pool) { return pool->handle; }
int pool_access(const struct pool *pool, CUdevice device) { return pool->access[device]; }
int pool_handle_types(const struct pool *pool) { return pool->memory->header->handle_types; }

static struct pool *make(struct memory *memory, CUdevice device)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) abort();
    *pool = (struct pool){.memory = memory, .device = device};
    pool->handle = (CUmemoryPool)handle_make(HANDLE_POOL, pool);
    pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return pool;
}

static struct pool *create(CUdevice device, int handle_types, size_t size, CUresult *error)
{
    struct memory *memory = memory_make(size, device, handle_types, false, error);
    if (memory == NULL) return NULL;
    memory->header->pool = 1;
    return make(memory, device);
}

static struct pool *default_of(CUdevice device, CUresult *error)
{
    *error = CUDA_SUCCESS;
    if (standard[device] == NULL) {
        standard[device] = create(device, CU_MEM_HANDLE_TYPE_NONE, POOL_SIZE, error);
        if (standard[device] != NULL) standard[device]->standard = true;
    }
    return standard[device];
}

static void reap(struct pool *pool)
{
    if (!pool->destroyed || pool->live > 0) return;
    memory_release(pool->memory);
    free(pool);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *handle, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    CUresult error;
    struct pool *pool = default_of(device, &error);
    if (pool != NULL) *handle = pool->handle;
    return error;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *handle, CUdevice device)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    CUresult error = CUDA_SUCCESS;
    struct pool *pool = chosen[device] != NULL ? chosen[device] : default_of(device, &error);
    if (pool != NULL) *handle = pool->handle;
    return error;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
    ENTER(NEEDS_INIT);
    struct pool *pool = pool_of(handle);
    if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (pool == NULL || pool->imported || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
    chosen[device] = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL || properties == NULL || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(properties->location.id) ||
        (properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult error;
    struct pool *pool = create(properties->location.id, properties->handleTypes, properties->maxSize > 0 ? properties->maxSize : POOL_SIZE, &error);
    if (pool == NULL) return error;
    ledger_add(POOLS);
    *handle = pool->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    ENTER(NEEDS_INIT);
    struct pool *pool = pool_of(handle);
    if (pool == NULL || pool->standard) return CUDA_ERROR_INVALID_VALUE;
    if (chosen[pool->device] == pool) chosen[pool->device] = NULL;
    handle_drop((uintptr_t)handle);
    ledger_remove(POOLS);
    pool->destroyed = true; /* its blocks live on until they are freed */
    reap(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *accesses, size_t count)
{
    ENTER(NEEDS_INIT);
    struct pool *pool = pool_of(handle);
    if (pool == NULL || accesses == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        int device = accesses[i].location.id, flags = accesses[i].flags;
        if (accesses[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
        if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
        if (device == pool->device && flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_DEVICE; /* its own cannot lose it */
        if (!device_reaches(device_physical(device), pool->memory->header->device)) return CUDA_ERROR_INVALID_DEVICE;
    }
    for (size_t i = 0; i < count; i++) pool->access[accesses[i].location.id] = (unsigned char)accesses[i].flags;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, CUmemLocation *location)
{
    ENTER(NEEDS_INIT);
    struct pool *pool = pool_of(handle);
    if (flags == NULL || pool == NULL || location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(location->id)) return CUDA_ERROR_INVALID_VALUE;
    *flags = pool->access[location->id];
    return CUDA_SUCCESS;
}

/* --- blocks */

static struct header *header_of(const struct pool *pool, size_t offset) { return (struct header *)(void *)(pool->memory->bytes + offset); }

static struct range *map(struct pool *pool, size_t offset, size_t size)
{
    CUdeviceptr base = arena_take(size, PAGE);
    if (base == 0) return NULL;
    struct range *range = range_add(base, size, RANGE_POOLED, NULL, pool->device);
    range->pool = pool;
    range->bytes = pool->memory->bytes + offset + PAGE;
    pool->live++;
    ledger_add(POOL_MEMORY);
    return range;
}

static CUresult allocate(struct context *context, CUdeviceptr *address, size_t size, struct pool *pool, CUstream handle)
{
    CUresult error;
    if (stream_of(context, handle, &error) == NULL) return error;
    if (address == NULL || size == 0 || pool == NULL || pool->imported) return CUDA_ERROR_INVALID_VALUE;
    size_t whole = PAGE + round_up(size, PAGE), offset = 0;
    struct block **at = &pool->blocks;
    while (*at != NULL && (*at)->offset - offset < whole) {
        offset = (*at)->offset + (*at)->size;
        at = &(*at)->next;
    }
    if (size > pool->memory->size || offset + whole > pool->memory->size || !memory_fits(pool->device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    struct range *range = map(pool, offset, size);
    struct block *block = malloc(sizeof *block);
    if (range == NULL || block == NULL) abort();
    *block = (struct block){offset, whole, *at};
    *at = block;
    struct header *header = header_of(pool, offset);
    *header = (struct header){.magic = HEADER_MAGIC, .generation = memory_generation(), .size = size, .alive = 1};
    memory_used(pool->device, (long long)size);
    *address = range->base;
    return CUDA_SUCCESS;
}

/* Gives back what a range of a pool holds; the range itself is its holder's. */
void pool_free(struct range *range)
{
    struct pool *pool = range->pool;
    size_t offset = (size_t)(range->bytes - PAGE - pool->memory->bytes);
    for (struct block **at = &pool->blocks; *at != NULL; at = &(*at)->next) {
        struct block *block = *at;
        if (block->offset != offset) continue;
        atomic_store(&header_of(pool, offset)->alive, 0);
        *at = block->next;
        free(block);
        memory_used(pool->device, -(long long)range->size);
        break;
    }
    arena_give(range->base, range->size);
    ledger_remove(POOL_MEMORY);
    pool->live--;
    reap(pool);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    CUresult error = CUDA_SUCCESS;
    struct pool *pool = chosen[context->device] != NULL ? chosen[context->device] : default_of(context->device, &error);
    return pool == NULL ? error : allocate(context, address, size, pool, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
    ENTER(NEEDS_CONTEXT);
    return allocate(context, address, size, pool_of(pool), stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    ENTER(NEEDS_CONTEXT);
    CUresult error;
    struct stream *stream = stream_of(context, handle, &error);
    if (stream == NULL) return error;
    struct range *range = range_at(address);
    if (range == NULL || range->base != address || range->kind != RANGE_POOLED) return CUDA_ERROR_INVALID_VALUE;
    range_detach(range); /* whoever uses it from now on is wrong */
    queue_submit(stream, &(struct work){.kind = WORK_FREE, .range = range});
    return CUDA_SUCCESS;
}

/* --- other processes */

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle, int type, unsigned long long flags)
{
    ENTER(NEEDS_INIT);
    struct pool *pool = pool_of(handle);
    if (shareable == NULL || pool == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    if (pool->imported || (pool_handle_types(pool) & type) == 0) return CUDA_ERROR_INVALID_VALUE;
    int fd = fcntl(pool->memory->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(shareable, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *handle, void *shareable, int type, unsigned long long flags)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    int fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0);
    struct memory *memory = fd < 0 ? NULL : memory_open(fd);
    CUdevice device = 0;
    if (memory != NULL)
        while (device < device_count && !device_reaches(device_physical(device), memory->header->device)) device++;
    if (memory == NULL || memory->header->pool != 1 || device == device_count) {
        if (memory != NULL) memory_release(memory);
        else if (fd >= 0) close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUdevice own = 0; own < device_count; own++)
        if (device_physical(own) == memory->header->device) device = own;
    struct pool *pool = make(memory, device);
    pool->imported = true;
    ledger_add(POOLS);
    *handle = pool->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    ENTER(NEEDS_INIT);
    struct range *range = range_at(address);
    if (data == NULL || range == NULL || range->kind != RANGE_POOLED || range->pool->imported) return CUDA_ERROR_INVALID_VALUE;
    if ((pool_handle_types(range->pool) & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) return CUDA_ERROR_INVALID_VALUE;
    size_t offset = (size_t)(range->bytes - PAGE - range->pool->memory->bytes);
    struct pointer pointer = {POINTER_MAGIC, range->pool->memory->header->generation, header_of(range->pool, offset)->generation, offset, range->size};
    memset(data, 0, sizeof *data);
    memcpy(data, &pointer, sizeof pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool handle, CUmemPoolPtrExportData *data)
{
    ENTER(NEEDS_INIT);
    struct pool *pool = pool_of(handle);
    if (address == NULL || data == NULL || pool == NULL || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
    struct pointer pointer;
    memcpy(&pointer, data, sizeof pointer);
    size_t size = pool->memory->size;
    if (pointer.magic != POINTER_MAGIC || pointer.pool != pool->memory->header->generation || pointer.offset % PAGE != 0 ||
        pointer.offset > size || size - pointer.offset < PAGE || pointer.size == 0 || pointer.size > size - pointer.offset - PAGE) return CUDA_ERROR_INVALID_VALUE;
    const struct header *header = header_of(pool, pointer.offset);
    if (header->generation != pointer.generation || header->size != pointer.size || atomic_load(&header->alive) != 1) return CUDA_ERROR_INVALID_VALUE;
    struct range *range = map(pool, pointer.offset, pointer.size);
    if (range == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = range->base;
    return CUDA_SUCCESS;
}
