/* Device memory, host memory, copies, attributes of addresses. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/mman.h>
#include <sys/uio.h>

enum { SIZE = 10000 };

static void read_byte(void *address) { *(volatile char *)address; }
static void write_byte(void *address) { *(volatile char *)address = 1; }

static void stray_access_faults(void)
{
    CUdeviceptr device;
    begin(0);
    OK(cuMemAlloc_v2(&device, SIZE));
    IS(signal_of(read_byte, (void *)device), SIGSEGV);
    IS(signal_of(write_byte, (void *)device), SIGSEGV);
    IS(signal_of(read_byte, (void *)(device + SIZE - 1)), SIGSEGV);
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)device, 1};
    IS(process_vm_readv(getpid(), &here, 1, &there, 1, 0), -1);
    OK(cuMemFree_v2(device));
    IS(signal_of(read_byte, (void *)device), SIGSEGV);
    end(0);
}

static void copies_arrive(void)
{
    unsigned char out[SIZE] = {0}, in[SIZE];
    CUdeviceptr a, b, other;
    CUcontext second;
    begin(0);
    OK(cuMemAlloc_v2(&a, SIZE));
    OK(cuMemAlloc_v2(&b, SIZE));
    fill(in, SIZE, 1);
    OK(cuMemcpyHtoD_v2(a, in, SIZE));
    OK(cuMemcpyDtoD_v2(b, a, SIZE));
    OK(cuMemcpyDtoH_v2(out, b, SIZE));
    IS(wrong(out, SIZE, 1), 0);
    OK(cuMemsetD8_v2(a + 1, 7, 3));
    OK(cuMemcpy((uintptr_t)out, a, 5));
    IS(out[1] == 7 && out[3] == 7 && out[0] == in[0] && out[4] == in[4], 1);
    OK(cuMemsetD32_v2(a, 0x01020304, 2));
    OK(cuMemcpy((uintptr_t)out, a, 8));
    IS(out[0] == 4 && out[7] == 1, 1);
    IS(cuMemsetD32_v2(a + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
    /* To the other device, which has its own context. */
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent_v2(second));
    OK(cuMemAlloc_v2(&other, SIZE));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuMemcpy(other, b, SIZE));
    OK(cuStreamSynchronize(NULL));
    IS(device_wrong(other, SIZE, 1), 0);
    CUdevice ordinal = -1;
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, other));
    IS(ordinal, 1);
    /* A copy finds its way; a kernel would need the peers to be enabled. */
    CUdeviceptr seen;
    IS(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, other), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxEnablePeerAccess(second, 0));
    OK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, other));
    IS(seen, other);
    CUcontext first;
    OK(cuCtxPopCurrent_v2(&first));
    IS(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, other), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, other));
    OK(cuCtxPushCurrent_v2(first));
    OK(cuMemFree_v2(other));
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    end(0);
}

static void wrong_ranges_are_refused(void)
{
    unsigned char bytes[SIZE] = {0};
    CUdeviceptr a;
    begin(0);
    OK(cuMemAlloc_v2(&a, 100));
    IS(cuMemcpyHtoD_v2(a, bytes, 101), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoD_v2(a + 100, bytes, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoD_v2((uintptr_t)bytes, bytes, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyDtoH_v2(bytes, (uintptr_t)bytes, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoD_v2(a, (void *)a, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpy(a, 0, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpy(a, (CUdeviceptr)-50, 100), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpy(a, (uintptr_t)bytes, 0));
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    IS(mprotect(pages + 4096, 4096, PROT_NONE), 0);
    OK(cuMemcpyHtoD_v2(a, pages + 4000, 96));
    IS(cuMemcpyHtoD_v2(a, pages + 4000, 97), CUDA_ERROR_INVALID_VALUE);
    munmap(pages, 8192);
    IS(cuMemFree_v2(a + 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemFree_v2((uintptr_t)bytes), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
    OK(cuMemFree_v2(a));
    IS(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoD_v2(a, bytes, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
    end(0);
}

static void addresses_come_again(void)
{
    CUdeviceptr first, second, base;
    unsigned long long before, after;
    size_t size;
    begin(0);
    OK(cuMemAlloc_v2(&first, SIZE));
    OK(cuPointerGetAttribute(&before, CU_POINTER_ATTRIBUTE_BUFFER_ID, first));
    OK(cuMemFree_v2(first));
    OK(cuMemAlloc_v2(&second, SIZE));
    OK(cuPointerGetAttribute(&after, CU_POINTER_ATTRIBUTE_BUFFER_ID, second));
    IS(second, first);
    IS(before != after, 1);
    OK(cuMemGetAddressRange_v2(&base, &size, second + 77));
    IS(base, second);
    IS(size, SIZE);
    OK(cuMemGetAddressRange_v2(NULL, NULL, second));
    IS(cuMemGetAddressRange_v2(&base, &size, second + SIZE), CUDA_ERROR_NOT_FOUND);
    OK(cuMemFree_v2(second));
    end(0);
}

static void memory_ends(void)
{
    size_t left, total, then;
    CUdeviceptr a, b;
    begin(0);
    OK(cuMemGetInfo_v2(&left, &total));
    IS(left, total);
    IS(total, 64 << 20);
    OK(cuMemAlloc_v2(&a, 40 << 20));
    IS(cuMemAlloc_v2(&b, 40 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    IS(cuMemAllocManaged(&b, 40 << 20, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemGetInfo_v2(&then, &total));
    IS(left - then, 40 << 20);
    OK(cuMemFree_v2(a));
    OK(cuMemAlloc_v2(&b, 40 << 20));
    OK(cuMemFree_v2(b));
    end(0);
}

static void managed_memory_is_everywhere(void)
{
    CUdeviceptr managed, device;
    int is = false;
    unsigned type = 0;
    begin(0);
    OK(cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAlloc_v2(&device, SIZE));
    fill((unsigned char *)managed, SIZE, 3);
    OK(cuMemcpy(device, managed, SIZE));
    OK(cuStreamSynchronize(NULL));
    IS(device_wrong(device, SIZE, 3), 0);
    OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    IS(is, true);
    OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, managed));
    IS(is, false);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, managed));
    IS(type, CU_MEMORYTYPE_DEVICE);
    OK(cuMemFree_v2(managed));
    IS(signal_of(read_byte, (void *)managed), SIGSEGV);
    OK(cuMemFree_v2(device));
    end(0);
}

static void host_memory_is_registered(void)
{
    static unsigned char own[3 * 4096];
    void *pinned;
    CUdeviceptr seen;
    unsigned type = 0, flags = 0;
    begin(0);
    OK(cuMemHostAlloc(&pinned, SIZE, CU_MEMHOSTALLOC_PORTABLE));
    memset(pinned, 1, SIZE);
    OK(cuMemHostGetFlags(&flags, pinned));
    IS(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    OK(cuMemHostGetDevicePointer_v2(&seen, pinned, 0));
    IS(seen, (uintptr_t)pinned);
    IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)own), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister_v2(own, sizeof own, 0));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)own + 100));
    IS(type, CU_MEMORYTYPE_HOST);
    IS(cuMemHostRegister_v2(own, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    IS(cuMemHostRegister_v2(own + 8192, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    IS(cuMemHostUnregister(own + 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemFreeHost(own), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostUnregister(own));
    IS(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    IS(cuMemHostRegister_v2((void *)4096, 10, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemHostUnregister(pinned), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeHost(pinned));
    end(0);
}

static void attributes_of_addresses(void)
{
    int local;
    CUdeviceptr device, start;
    CUcontext context = begin(0), of;
    uint64_t size, types;
    unsigned type;
    int mapped, sync;
    OK(cuMemAlloc_v2(&device, SIZE));
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
    void *data[] = {&of, &type, &start, &size, &mapped, &types, &sync};
    memset(&types, 0xff, sizeof types);
    OK(cuPointerGetAttributes(7, attributes, data, device + 5));
    IS(of == context && type == CU_MEMORYTYPE_DEVICE && start == device && size == SIZE, 1);
    IS(mapped && types == 0 && !sync, 1);
    int on = 1;
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    IS(sync, true);
    IS(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)&local), CUDA_ERROR_INVALID_VALUE);
    IS(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_HOST_POINTER, device), CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, device));
    IS(of == NULL, 1);
    IS(cuPointerGetAttribute(&of, (CUpointer_attribute)99, device), CUDA_ERROR_INVALID_VALUE);
    /* A boolean is four bytes. */
    unsigned char bytes[8];
    memset(bytes, 0xaa, sizeof bytes);
    OK(cuPointerGetAttribute(bytes, CU_POINTER_ATTRIBUTE_IS_MANAGED, device));
    IS(bytes[0] == 0 && bytes[3] == 0 && bytes[4] == 0xaa, 1);
    /* Of what the driver does not know: zeros, and no error. */
    OK(cuPointerGetAttributes(7, attributes, data, (uintptr_t)&local));
    IS(of == NULL && type == 0 && start == 0 && size == 0 && !mapped && types == 0 && !sync, 1);
    IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&local), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(device));
    IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device), CUDA_ERROR_INVALID_VALUE);
    end(0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"stray-access-faults", stray_access_faults},
        {"copies-arrive", copies_arrive},
        {"wrong-ranges-are-refused", wrong_ranges_are_refused},
        {"addresses-come-again", addresses_come_again},
        {"memory-ends", memory_ends},
        {"managed-memory-is-everywhere", managed_memory_is_everywhere},
        {"host-memory-is-registered", host_memory_is_registered},
        {"attributes-of-addresses", attributes_of_addresses},
    };
    RUN(tests);
}
