/* Device memory. Each allocation is a file in memory, mapped where only the stand-in knows; at the address that
 * the program gets, nothing may be read or written, so that a stray access of the CPU faults at once. The
 * addresses come from one range, lowest first: a freed one soon comes again, with another buffer id. */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define ARENA ((size_t)64 << 30)
#define FILLED ((size_t)1 << 20)

static struct extent {
    CUdeviceptr base;
    size_t size;
    struct extent *next;
} *extents;
static struct range **ranges;
static size_t count, capacity;
static unsigned long long ids;
static uint64_t generations;
static long long used[MAX_DEVICES];

/* --- files */

uint64_t memory_generation(void) { return (uint64_t)getpid() << 32 | ++generations; }
void memory_used(CUdevice device, long long bytes) { used[device] += bytes; }
bool memory_fits(CUdevice device, size_t size) { return size <= device_total() && (long long)(device_total() - size) >= used[device]; }

static struct memory *map_file(int fd, size_t size)
{
    char *at = mmap(NULL, PAGE + round_up(size, PAGE), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    struct memory *memory = at == MAP_FAILED ? NULL : calloc(1, sizeof *memory);
    if (memory == NULL) return NULL;
    *memory = (struct memory){.fd = fd, .size = size, .header = (struct header *)(void *)at, .bytes = at + PAGE, .references = 1};
    return memory;
}

struct memory *memory_make(size_t size, CUdevice device, int handle_types, bool counted, CUresult *error)
{
    *error = CUDA_ERROR_OUT_OF_MEMORY;
    if (counted && !memory_fits(device, size)) return NULL;
    int fd = memfd_create("hawser-cuda", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    struct memory *memory = ftruncate(fd, (off_t)(PAGE + round_up(size, PAGE))) == 0 ? map_file(fd, size) : NULL;
    if (memory == NULL) {
        close(fd);
        return NULL;
    }
    memory->device = device;
    memory->counted = counted ? size : 0;
    memory_used(device, (long long)memory->counted);
    memory->header->magic = HEADER_MAGIC;
    memory->header->generation = memory_generation();
    memory->header->size = size;
    memory->header->device = device_physical(device);
    memory->header->handle_types = handle_types;
    atomic_store(&memory->header->alive, 1);
    if (size <= FILLED) memset(memory->bytes, 0xa5, size); /* nobody may rely on zeros */
    *error = CUDA_SUCCESS;
    return memory;
}

/* Maps a file that another process, or this one, has made; owns `fd` if it succeeds. */
struct memory *memory_open(int fd)
{
    struct stat status;
    struct header header;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || pread(fd, &header, sizeof header, 0) != sizeof header) return NULL;
    if (header.magic != HEADER_MAGIC || header.size == 0 || header.size > (size_t)status.st_size ||
        PAGE + round_up(header.size, PAGE) != (size_t)status.st_size) return NULL;
    return map_file(fd, header.size);
}

/* What others still see of freed memory is of no use to them. */
void memory_poison(struct memory *memory)
{
    atomic_store(&memory->header->alive, 0);
    if (memory->shared) memset(memory->bytes, 0xdb, memory->size);
}

void memory_release(struct memory *memory)
{
    if (--memory->references > 0) return;
    memory_used(memory->device, -(long long)memory->counted);
    munmap(memory->header, PAGE + round_up(memory->size, PAGE));
    close(memory->fd);
    free(memory);
}

/* --- addresses */

static void arena_make(void)
{
    for (size_t size = ARENA; size >= GRANULARITY; size /= 2) {
        char *at = mmap(NULL, size + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) continue;
        extents = malloc(sizeof *extents);
        if (extents == NULL) abort();
        *extents = (struct extent){.base = round_up((uintptr_t)at, GRANULARITY), .size = size};
        return;
    }
}

static void extent_insert(CUdeviceptr base, size_t size)
{
    struct extent **at = &extents;
    struct extent *before = NULL;
    while (*at != NULL && (*at)->base < base) {
        before = *at;
        at = &(*at)->next;
    }
    struct extent *after = *at;
    if (before != NULL && before->base + before->size == base) {
        before->size += size;
    } else {
        struct extent *extent = malloc(sizeof *extent);
        if (extent == NULL) abort();
        *extent = (struct extent){.base = base, .size = size, .next = after};
        *at = before = extent;
    }
    if (after != NULL && before->base + before->size == after->base) {
        before->size += after->size;
        before->next = after->next;
        free(after);
    }
}

/* 0 when there is no room. */
CUdeviceptr arena_take(size_t size, size_t alignment)
{
    static bool made;
    if (!made) arena_make();
    made = true;
    size = round_up(size, PAGE);
    for (struct extent **at = &extents; *at != NULL; at = &(*at)->next) {
        struct extent *extent = *at;
        CUdeviceptr base = round_up(extent->base, alignment);
        size_t skipped = base - extent->base;
        if (skipped > extent->size || extent->size - skipped < size) continue;
        CUdeviceptr end = extent->base + extent->size, start = extent->base;
        *at = extent->next;
        free(extent);
        if (base > start) extent_insert(start, skipped);
        if (end > base + size) extent_insert(base + size, end - base - size);
        return base;
    }
    return 0;
}

void arena_give(CUdeviceptr address, size_t size) { extent_insert(address, round_up(size, PAGE)); }

/* --- ranges, sorted by address */

static size_t first_after(CUdeviceptr address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle]->base <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

size_t range_count(void) { return count; }
struct range *range_number(size_t index) { return ranges[index]; }

struct range *range_at(CUdeviceptr address)
{
    size_t index = first_after(address);
    if (index == 0) return NULL;
    struct range *range = ranges[index - 1];
    return address - range->base < range->size ? range : NULL;
}

/* Any range that overlaps this one. */
struct range *range_over(CUdeviceptr base, size_t size)
{
    struct range *range = range_at(base);
    if (range != NULL) return range;
    size_t index = first_after(base);
    return index < count && ranges[index]->base - base < size ? ranges[index] : NULL;
}

struct range *range_add(CUdeviceptr base, size_t size, enum range_kind kind, struct context *context, CUdevice device)
{
    struct range *range = calloc(1, sizeof *range);
    if (count == capacity) {
        capacity = capacity == 0 ? 64 : 2 * capacity;
        ranges = realloc(ranges, capacity * sizeof *ranges);
    }
    if (range == NULL || ranges == NULL) abort();
    *range = (struct range){.base = base, .size = size, .kind = kind, .context = context, .device = device, .id = ++ids};
    size_t index = first_after(base);
    memmove(ranges + index + 1, ranges + index, (count - index) * sizeof *ranges);
    ranges[index] = range;
    count++;
    return range;
}

void range_detach(struct range *range)
{
    size_t index = first_after(range->base) - 1;
    count--;
    memmove(ranges + index, ranges + index + 1, (count - index) * sizeof *ranges);
}

void range_free_now(struct range *range)
{
    switch (range->kind) {
    case RANGE_DEVICE:
        memory_poison(range->memory);
        memory_release(range->memory);
        arena_give(range->base, range->size);
        ledger_remove(DEVICE_MEMORY);
        break;
    case RANGE_MANAGED:
        if (mmap(range->bytes, round_up(range->size, PAGE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) abort();
        memory_used(range->device, -(long long)range->size);
        arena_give(range->base, range->size);
        ledger_remove(MANAGED_MEMORY);
        break;
    case RANGE_HOST:
        munmap(range->bytes, round_up(range->size, PAGE));
        ledger_remove(HOST_MEMORY);
        break;
    case RANGE_REGISTERED: ledger_remove(REGISTRATIONS); break;
    case RANGE_OPENED: ipc_close(range); break;
    case RANGE_MAPPED: vmm_unmap(range); break;
    case RANGE_POOLED: pool_free(range); break;
    }
    range_detach(range);
    free(range);
}

/* As the driver: work that may still use the memory comes first. */
void range_free(struct range *range)
{
    CUdeviceptr base = range->base;
    unsigned long long id = range->id;
    queue_drain(range->device);
    range = range_at(base); /* another thread may have freed it meanwhile */
    if (range != NULL && range->id == id) range_free_now(range);
}

void range_free_all(struct context *context)
{
    for (size_t i = count; i-- > 0;)
        if (ranges[i]->context == context) range_free_now(ranges[i]);
}

/* Whether each page of this can be read, asked without a fault. */
bool readable(const void *address, size_t size)
{
    enum { AT_ONCE = 512 };
    struct iovec there[AT_ONCE];
    char bytes[AT_ONCE];
    uintptr_t at = (uintptr_t)address, last = at + size - 1;
    if (last < at) return false;
    while (at <= last) {
        unsigned long pages = 0;
        for (; pages < AT_ONCE && at <= last; pages++) {
            there[pages] = (struct iovec){(void *)at, 1};
            at = (at / PAGE + 1) * PAGE;
        }
        struct iovec here = {bytes, pages};
        if (process_vm_readv(getpid(), &here, 1, there, pages, 0) != (ssize_t)pages) return false;
    }
    return true;
}

/* --- entry points */

CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    ENTER(NEEDS_CONTEXT);
    if (left == NULL || total == NULL) return CUDA_ERROR_INVALID_VALUE;
    *total = device_total();
    *left = *total - (size_t)used[context->device];
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    ENTER(NEEDS_CONTEXT);
    if (address == NULL || size == 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult error;
    struct memory *memory = memory_make(size, context->device, 0, true, &error);
    if (memory == NULL) return error;
    CUdeviceptr base = arena_take(size, PAGE);
    if (base == 0) {
        memory_release(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct range *range = range_add(base, size, RANGE_DEVICE, context, context->device);
    range->memory = memory;
    range->bytes = memory->bytes;
    ledger_add(DEVICE_MEMORY);
    *address = base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    if (address == NULL || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
    if (!memory_fits(context->device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr base = arena_take(size, PAGE);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    void *bytes = mmap((void *)(uintptr_t)base, round_up(size, PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (bytes == MAP_FAILED) {
        arena_give(base, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct range *range = range_add(base, size, RANGE_MANAGED, context, context->device);
    range->bytes = bytes;
    memory_used(context->device, (long long)size);
    ledger_add(MANAGED_MEMORY);
    *address = base;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(NEEDS_CONTEXT);
    if (address == 0) return CUDA_SUCCESS;
    struct range *range = range_at(address);
    if (range == NULL || range->base != address) return CUDA_ERROR_INVALID_VALUE;
    if (range->kind != RANGE_DEVICE && range->kind != RANGE_MANAGED && range->kind != RANGE_POOLED) return CUDA_ERROR_INVALID_VALUE;
    range_free(range);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    ENTER(NEEDS_CONTEXT);
    struct range *range = range_at(address);
    if (range == NULL) return CUDA_ERROR_NOT_FOUND;
    if (base != NULL) *base = range->base;
    if (size != NULL) *size = range->size;
    return CUDA_SUCCESS;
}
