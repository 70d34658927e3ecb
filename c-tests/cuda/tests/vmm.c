/* Virtual memory management and pools, in one process and between two. */
#define _GNU_SOURCE
#include "family.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CHUNK = 2 << 20, SIZE = 10000 };

static void read_byte(void *address) { *(volatile char *)address; }

static CUmemAllocationProp properties_of(CUdevice device, int types)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static void allow(CUdeviceptr address, size_t size, CUdevice device, int flags)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    OK(cuMemSetAccess(address, size, &access, 1));
}

static void memory_is_mapped(void)
{
    CUdeviceptr address, start;
    CUmemGenericAllocationHandle first, second, again;
    CUmemAllocationProp properties = properties_of(0, CU_MEM_HANDLE_TYPE_NONE), told;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUipcMemHandle handle;
    CUcontext context;
    unsigned long long flags;
    size_t granularity, size;
    uint64_t types;
    int fd;
    int capable = true;
    CUcontext first_context = begin(0);
    OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    IS(granularity, CHUNK);
    IS(cuMemAddressReserve(&address, CHUNK + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressReserve(&address, 4 * (size_t)CHUNK, 0, 0, 0));
    IS(address % CHUNK, 0);
    /* A wish is followed where nothing is mapped, and is no more than that. */
    OK(cuMemAddressReserve(&start, CHUNK, 0, address, 0));
    IS(start == address || start % CHUNK != 0, false);
    OK(cuMemAddressFree(start, CHUNK));
    char *room = mmap(NULL, 2 * CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr wish = ((uintptr_t)room + CHUNK - 1) / CHUNK * CHUNK;
    IS(room == MAP_FAILED || munmap(room, 2 * CHUNK) != 0, false);
    OK(cuMemAddressReserve(&start, CHUNK, 0, wish, 0));
    IS(start == wish, true);
    IS(signal_of(read_byte, (void *)start), SIGSEGV);
    OK(cuMemAddressFree(start, CHUNK));
    IS(cuMemAddressFree(start, CHUNK), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemCreate(&first, CHUNK - 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&first, CHUNK, &properties, 0));
    OK(cuMemCreate(&second, 2 * CHUNK, &properties, 0));
    IS(cuMemMap(address + 4096, CHUNK, 0, first, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(address + 4 * (size_t)CHUNK, CHUNK, 0, first, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address, CHUNK, 0, first, 0));
    OK(cuMemMap(address + CHUNK, 2 * CHUNK, 0, second, 0));
    IS(cuMemMap(address, CHUNK, 0, second, 0), CUDA_ERROR_INVALID_VALUE); /* something is there */
    IS(cuMemAddressFree(address, 4 * (size_t)CHUNK), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemsetD8_v2(address, 1, 10), CUDA_ERROR_INVALID_VALUE); /* nobody may access it yet */
    allow(address, 3 * CHUNK, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemGetAccess(&flags, &here, address + 5));
    IS(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemGetAccess(&flags, &there, address));
    IS(flags, 0);
    device_fill(address + CHUNK - 100, SIZE, 1); /* over both */
    IS(device_wrong(address + CHUNK - 100, SIZE, 1), 0);
    IS(cuMemsetD8_v2(address + 3 * CHUNK - 10, 1, 11), CUDA_ERROR_INVALID_VALUE);
    IS(signal_of(read_byte, (void *)address), SIGSEGV);
    /* The device that does the work must have access. */
    begin(1);
    IS(cuMemsetD8_v2(address, 1, 10), CUDA_ERROR_INVALID_VALUE);
    end(1);
    OK(cuCtxSetCurrent(first_context));
    OK(cuMemGetAddressRange_v2(&start, &size, address + CHUNK + 5));
    IS(start == address + CHUNK && size == 2 * CHUNK, 1);
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    IS(capable, false);
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    IS(types, 0);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    IS(context == NULL, 1);
    int on = 1;
    IS(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_ERROR_NOT_SUPPORTED);
    IS(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    allow(address, CHUNK, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    IS(cuMemsetD8_v2(address, 1, 10), CUDA_ERROR_INVALID_VALUE);
    /* The memory outlives its handle, and gets another one. */
    OK(cuMemRelease(first));
    IS(cuMemRelease(first), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRetainAllocationHandle(&first, (void *)address));
    OK(cuMemRetainAllocationHandle(&again, (void *)(address + CHUNK)));
    IS(again, second);
    OK(cuMemGetAllocationPropertiesFromHandle(&told, first));
    IS(told.type == properties.type && told.location.id == 0 && told.requestedHandleTypes == 0, 1);
    OK(cuMemRelease(again));
    IS(cuMemUnmap(address, 2 * CHUNK), CUDA_ERROR_INVALID_VALUE); /* half of one */
    OK(cuMemUnmap(address, 3 * CHUNK));
    IS(cuMemsetD8_v2(address, 1, 10), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(first));
    IS(cuMemAddressFree(address, CHUNK), CUDA_ERROR_INVALID_VALUE);
    /* Mapped memory needs no context. */
    OK(cuMemMap(address, 2 * CHUNK, 0, second, 0));
    end(0);
    unsigned type = 7;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = &type;
    OK(cuPointerGetAttributes(1, &attribute, &data, address));
    IS(type, CU_MEMORYTYPE_DEVICE);
    begin(0);
    OK(cuPointerGetAttributes(1, &attribute, &data, address));
    IS(type, CU_MEMORYTYPE_DEVICE);
    OK(cuMemUnmap(address, 2 * CHUNK));
    OK(cuMemRelease(second));
    OK(cuMemAddressFree(address, 4 * (size_t)CHUNK));
    IS(cuMemAddressFree(address, 4 * (size_t)CHUNK), CUDA_ERROR_INVALID_VALUE);
    end(0);
}

/* --- file descriptors */

static void send_file(int socket, int fd)
{
    char byte = 1, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    IS(sendmsg(socket, &message, 0), 1);
}

static int receive_file(int socket)
{
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = sizeof control};
    IS(recvmsg(socket, &message, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static int sockets[2];

static void imports_memory(void)
{
    CUmemGenericAllocationHandle handle, none;
    CUmemAllocationProp told;
    CUdeviceptr address;
    begin(0);
    int fd = receive_file(sockets[1]);
    /* Not such a file. */
    IS(cuMemImportFromShareableHandle(&none, (void *)(intptr_t)from_parent, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemImportFromShareableHandle(&none, (void *)(intptr_t)-1, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemImportFromShareableHandle(&none, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_FABRIC),
        CUDA_ERROR_INVALID_VALUE);
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    IS(close(fd), 0); /* it is the program's */
    OK(cuMemGetAllocationPropertiesFromHandle(&told, handle));
    IS(told.location.id, 1);
    OK(cuMemAddressReserve(&address, CHUNK, 0, 0, 0));
    OK(cuMemMap(address, CHUNK, 0, handle, 0));
    OK(cuMemRelease(handle));
    allow(address, CHUNK, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    IS(device_wrong(address, SIZE, 1), 0);
    device_fill(address, SIZE, 2);
    tell(to_parent);
    await(from_parent); /* the owner has given it up */
    IS(device_wrong(address, SIZE, 2), 0);
    OK(cuMemUnmap(address, CHUNK));
    OK(cuMemAddressFree(address, CHUNK));
    end(0);
}

static void memory_is_exported(void)
{
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    struct child child = family(imports_memory);
    CUmemAllocationProp properties = properties_of(1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    uint64_t types;
    int fd = -1, device = -1;
    begin(1);
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    OK(cuMemAddressReserve(&address, CHUNK, 0, 0, 0));
    OK(cuMemMap(address, CHUNK, 0, handle, 0));
    allow(address, CHUNK, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    IS(types, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    IS(device, 1);
    device_fill(address, SIZE, 1);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_file(sockets[0], fd);
    close(fd);
    await(child.from);
    IS(device_wrong(address, SIZE, 2), 0);
    OK(cuMemUnmap(address, CHUNK));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(address, CHUNK));
    tell(child.to);
    join(child);
    end(1);
}

/* HAWSER_CUDA_PEERS=none */
static void access_needs_a_way(void)
{
    CUmemAllocationProp properties = properties_of(1, CU_MEM_HANDLE_TYPE_NONE);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    begin(0);
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    OK(cuMemAddressReserve(&address, CHUNK, 0, 0, 0));
    OK(cuMemMap(address, CHUNK, 0, handle, 0));
    IS(cuMemSetAccess(address, CHUNK, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemUnmap(address, CHUNK));
    OK(cuMemAddressFree(address, CHUNK));
    OK(cuMemRelease(handle));
    end(0);
}

/* --- pools */

static CUmemoryPool pool_new(int types, size_t most)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .maxSize = most};
    CUmemoryPool pool = NULL;
    OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static void memory_in_order_of_a_stream(void)
{
    begin(0);
    volatile uint32_t *gate = gate_make();
    CUstream stream;
    CUdeviceptr a, b;
    CUmemoryPool standard, of, pool;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUmemAccessDesc access = {there, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemPoolPtrExportData data;
    CUipcMemHandle handle;
    int capable = true;
    int flags, fd;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&a, SIZE, stream));
    device_fill(a, SIZE, 1);
    IS(device_wrong(a, SIZE, 1), 0);
    OK(cuDeviceGetDefaultMemPool(&standard, 0));
    OK(cuDeviceGetMemPool(&of, 0));
    IS(of == standard, 1);
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    IS(of == standard, 1);
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
    IS(capable, false);
    IS(cuIpcGetMemHandle(&handle, a), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolExportToShareableHandle(&fd, standard, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolExportPointer(&data, a), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolGetAccess(&flags, standard, &here));
    IS(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemPoolGetAccess(&flags, standard, &there));
    IS(flags, 0);
    CUcontext first_context, second_context;
    OK(cuCtxGetCurrent(&first_context));
    OK(cuDevicePrimaryCtxRetain(&second_context, 1));
    OK(cuCtxSetCurrent(second_context));
    IS(cuMemsetD8_v2(a, 1, 10), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolSetAccess(standard, &access, 1));
    OK(cuMemPoolGetAccess(&flags, standard, &there));
    IS(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemsetD8_v2(a, 1, 10));
    end(1);
    OK(cuCtxSetCurrent(first_context));
    /* Freed in the order of the stream: the work before it still has its memory; nobody else has it. */
    gate_close(gate, stream);
    OK(cuMemsetD8Async(a, 1, SIZE, stream));
    OK(cuMemFreeAsync(a, stream));
    IS(cuMemFreeAsync(a, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemsetD8Async(a, 1, SIZE, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocAsync(&b, SIZE, stream));
    IS(b != a, 1);
    gate_open(gate);
    OK(cuMemFree_v2(b)); /* this waits */
    OK(cuMemAllocAsync(&b, SIZE, stream));
    IS(b, a);
    OK(cuMemFreeAsync(b, stream));
    pool = pool_new(CU_MEM_HANDLE_TYPE_NONE, 1 << 20);
    IS(cuMemAllocFromPoolAsync(&a, 2 << 20, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuMemAllocAsync(&a, SIZE, stream));
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    IS(of == pool, 1);
    OK(cuMemAllocFromPoolAsync(&b, SIZE, pool, NULL));
    OK(cuMemPoolDestroy(pool));
    device_fill(a, SIZE, 2); /* lives on */
    IS(device_wrong(a, SIZE, 2), 0);
    IS(cuMemAllocFromPoolAsync(&b, SIZE, pool, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemFreeAsync(b, NULL));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFreeHost((void *)gate));
    end(0);
}

static void imports_a_pool(void)
{
    CUmemoryPool pool;
    CUmemPoolPtrExportData data, mangled;
    CUdeviceptr address, unused;
    begin(0);
    int fd = receive_file(sockets[1]);
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle none;
    IS(cuMemImportFromShareableHandle(&none, (void *)(intptr_t)fd, 1), CUDA_ERROR_INVALID_VALUE); /* this is a pool */
    close(fd);
    IS(cuMemAllocFromPoolAsync(&unused, 10, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0), CUDA_ERROR_INVALID_VALUE);
    take(from_parent, &data, sizeof data);
    for (size_t i = 0; i < 40; i++) {
        mangled = data;
        mangled.reserved[i] ^= 0x40;
        IS(cuMemPoolImportPointer(&unused, pool, &mangled), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemPoolImportPointer(&address, pool, &data));
    IS(device_wrong(address, SIZE, 1), 0);
    device_fill(address, SIZE, 2);
    OK(cuMemFreeAsync(address, NULL));
    OK(cuStreamSynchronize(NULL));
    tell(to_parent);
    await(from_parent);
    IS(cuMemPoolImportPointer(&address, pool, &data), CUDA_ERROR_INVALID_VALUE); /* freed */
    OK(cuMemPoolDestroy(pool));
    end(0);
}

static void pools_are_exported(void)
{
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    struct child child = family(imports_a_pool);
    CUmemPoolPtrExportData data;
    CUdeviceptr before, address;
    uint64_t types;
    int fd = -1;
    begin(0);
    CUmemoryPool pool = pool_new(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemAllocFromPoolAsync(&before, 5, pool, NULL));
    OK(cuMemAllocFromPoolAsync(&address, SIZE, pool, NULL));
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    IS(types, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    device_fill(address, SIZE, 1);
    OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_file(sockets[0], fd);
    close(fd);
    OK(cuMemPoolExportPointer(&data, address));
    put(child.to, &data, sizeof data);
    await(child.from);
    IS(device_wrong(address, SIZE, 2), 0);
    OK(cuMemFree_v2(address));
    OK(cuMemFree_v2(before));
    tell(child.to);
    join(child);
    OK(cuMemPoolDestroy(pool));
    end(0);
}

/* Leaves one of each: the ledger must say so. */
static void leaves_everything(void)
{
    CUdeviceptr address;
    CUevent event;
    CUstream stream;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = properties_of(0, 0);
    static char own[4096];
    void *pinned;
    begin(0);
    OK(cuMemAlloc_v2(&address, 10));
    OK(cuMemAllocManaged(&address, 10, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocHost_v2(&pinned, 10));
    OK(cuMemHostRegister_v2(own, sizeof own, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    OK(cuMemAddressReserve(&address, CHUNK, 0, 0, 0));
    OK(cuMemMap(address, CHUNK, 0, handle, 0));
    OK(cuMemAllocAsync(&address, 10, NULL));
    pool_new(0, 0);
    CUcontext context;
    OK(cuCtxCreate_v4(&context, NULL, 0, 1));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"memory-is-mapped", memory_is_mapped},
        {"memory-is-exported", memory_is_exported},
        {"access-needs-a-way", access_needs_a_way},
        {"memory-in-order-of-a-stream", memory_in_order_of_a_stream},
        {"pools-are-exported", pools_are_exported},
        {"leaves-everything", leaves_everything},
    };
    RUN(tests);
}
