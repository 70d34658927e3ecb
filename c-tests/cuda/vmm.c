/* Virtual memory management: addresses and memory apart. A program reserves addresses, creates memory, maps the
 * one to the other and says which devices may access it. Memory goes to other processes as a file descriptor. */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory that has a handle. Mapped memory whose handle was released has none, until it is asked for. */
struct physical {
    CUmemGenericAllocationHandle handle;
    struct memory *memory;
    unsigned held;
    struct physical *next;
};
struct reservation {
    CUdeviceptr base;
    size_t size;
    bool wished;
    struct reservation *next;
};
static struct physical *physicals;
static struct reservation *reservations;

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    return handle_object(HANDLE_MEMORY, (uintptr_t)handle);
}

static CUmemGenericAllocationHandle hold(struct memory *memory)
{
    struct physical *physical = physicals;
    while (physical != NULL && physical->memory != memory) physical = physical->next;
    if (physical == NULL) {
        physical = calloc(1, sizeof *physical);
        if (physical == NULL) abort();
        *physical = (struct physical){.memory = memory, .next = physicals};
        physical->handle = handle_make(HANDLE_MEMORY, physical);
        physicals = physical;
        memory->references++;
    }
    physical->held++;
    ledger_add(PHYSICAL_MEMORY);
    return physical->handle;
}

/* The visible device on which memory lies, or -1. */
static CUdevice device_of(const struct memory *memory)
{
    for (CUdevice device = 0; device < device_count; device++)
        if (device_physical(device) == memory->header->device) return device;
    return -1;
}

static bool valid(const CUmemAllocationProp *properties)
{
    return properties != NULL && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
        properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && device_valid(properties->location.id) &&
        (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties, int option)
{
    ENTER(NEEDS_INIT);
    if (granularity == NULL || !valid(properties) || option < 0 || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

/* Addresses that the program wishes are given to it if nothing is mapped there. */
static bool take_wish(CUdeviceptr wish, size_t size, size_t alignment)
{
    if (wish == 0 || wish % alignment != 0) return false;
    void *at = mmap((void *)(uintptr_t)wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || (uintptr_t)at == wish) return at != MAP_FAILED;
    munmap(at, size);
    return false;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish,
    unsigned long long flags)
{
    ENTER(NEEDS_INIT);
    if (address == NULL || size == 0 || size % GRANULARITY != 0 || flags != 0 || (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < GRANULARITY) alignment = GRANULARITY;
    bool wished = take_wish(wish, size, alignment);
    CUdeviceptr base = wished ? wish : arena_take(size, alignment);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *reservation = malloc(sizeof *reservation);
    if (reservation == NULL) abort();
    *reservation = (struct reservation){base, size, wished, reservations};
    reservations = reservation;
    ledger_add(RESERVATIONS);
    *address = base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    ENTER(NEEDS_INIT);
    for (struct reservation **at = &reservations; *at != NULL; at = &(*at)->next) {
        struct reservation *reservation = *at;
        if (reservation->base != address) continue;
        if (reservation->size != size || range_over(address, size) != NULL) return CUDA_ERROR_INVALID_VALUE;
        *at = reservation->next;
        if (reservation->wished) munmap((void *)(uintptr_t)address, size);
        else arena_give(address, size);
        free(reservation);
        ledger_remove(RESERVATIONS);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
    unsigned long long flags)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL || size == 0 || size % GRANULARITY != 0 || !valid(properties) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult error;
    struct memory *memory = memory_make(size, properties->location.id, properties->requestedHandleTypes, true, &error);
    if (memory == NULL) return error;
    *handle = hold(memory);
    memory_release(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER(NEEDS_INIT);
    struct physical *physical = physical_of(handle);
    if (physical == NULL) return CUDA_ERROR_INVALID_VALUE;
    ledger_remove(PHYSICAL_MEMORY);
    if (--physical->held > 0) return CUDA_SUCCESS;
    for (struct physical **at = &physicals; *at != NULL; at = &(*at)->next)
        if (*at == physical) {
            *at = physical->next;
            break;
        }
    handle_drop((uintptr_t)handle);
    memory_release(physical->memory);
    free(physical);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    ENTER(NEEDS_INIT);
    struct physical *physical = physical_of(handle);
    if (physical == NULL || offset != 0 || flags != 0 || size == 0 || size % GRANULARITY != 0 ||
        size > physical->memory->size)
        return CUDA_ERROR_INVALID_VALUE;
    struct reservation *reservation = reservations;
    while (reservation != NULL && (address < reservation->base || address - reservation->base >= reservation->size))
        reservation = reservation->next;
    if (reservation == NULL || (address - reservation->base) % GRANULARITY != 0 ||
        size > reservation->size - (address - reservation->base))
        return CUDA_ERROR_INVALID_VALUE;
    if (range_over(address, size) != NULL) return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = device_of(physical->memory);
    struct range *range = range_add(address, size, RANGE_MAPPED, NULL, device < 0 ? 0 : device);
    range->memory = physical->memory;
    range->memory->references++;
    range->bytes = range->memory->bytes;
    ledger_add(MAPPINGS);
    return CUDA_SUCCESS;
}

/* Whether `size` bytes from here are whole mappings. */
static bool whole(CUdeviceptr address, size_t size)
{
    for (size_t done = 0; done < size;) {
        struct range *range = range_at(address + done);
        if (range == NULL || range->kind != RANGE_MAPPED || range->base != address + done) return false;
        done += range->size;
        if (done > size) return false;
    }
    return size > 0;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    ENTER(NEEDS_INIT);
    if (!whole(address, size)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t done = 0; done < size;) {
        struct range *range = range_at(address + done);
        if (range == NULL) break; /* gone while another was waited for */
        done += range->size;
        range_free(range);
    }
    return CUDA_SUCCESS;
}

void vmm_unmap(struct range *range)
{
    memory_release(range->memory);
    ledger_remove(MAPPINGS);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *accesses, size_t count)
{
    ENTER(NEEDS_INIT);
    if (accesses == NULL || count == 0 || !whole(address, size)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (accesses[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
        if (!device_valid(accesses[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
        if (accesses[i].flags != 0 && accesses[i].flags != 1 && accesses[i].flags != 3) return CUDA_ERROR_INVALID_VALUE;
        for (size_t done = 0; done < size;) {
            struct range *range = range_at(address + done);
            if (!device_reaches(device_physical(accesses[i].location.id), range->memory->header->device))
                return CUDA_ERROR_INVALID_DEVICE;
            done += range->size;
        }
    }
    for (size_t done = 0; done < size;) {
        struct range *range = range_at(address + done);
        for (size_t i = 0; i < count; i++) range->access[accesses[i].location.id] = (unsigned char)accesses[i].flags;
        done += range->size;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    ENTER(NEEDS_INIT);
    struct range *range = range_at(address);
    if (flags == NULL || location == NULL || range == NULL || range->kind != RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(location->id)) return CUDA_ERROR_INVALID_VALUE;
    *flags = range->access[location->id];
    return CUDA_SUCCESS;
}

/* What a device may do there: 1 read, 3 read and write. */
int vmm_access(const struct range *range, CUdevice device) { return range->access[device]; }

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type,
    unsigned long long flags)
{
    ENTER(NEEDS_INIT);
    struct physical *physical = physical_of(handle);
    if (shareable == NULL || physical == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if ((physical->memory->header->handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
    int fd = fcntl(physical->memory->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(shareable, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
    ENTER(NEEDS_INIT);
    if (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    int fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0); /* the program's stays its own */
    struct memory *memory = fd < 0 ? NULL : memory_open(fd);
    if (memory == NULL || memory->header->pool != 0 || (memory->header->handle_types & type) == 0) {
        if (memory != NULL) memory_release(memory);
        else if (fd >= 0) close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = hold(memory);
    memory_release(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    ENTER(NEEDS_INIT);
    struct range *range = range_at((uintptr_t)address);
    if (handle == NULL || range == NULL || range->kind != RANGE_MAPPED) return CUDA_ERROR_INVALID_VALUE;
    *handle = hold(range->memory);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    ENTER(NEEDS_INIT);
    struct physical *physical = physical_of(handle);
    if (properties == NULL || physical == NULL) return CUDA_ERROR_INVALID_VALUE;
    *properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = physical->memory->header->handle_types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device_of(physical->memory)}};
    return CUDA_SUCCESS;
}
