/* Memory between processes. The parent owns; children open. */
#define _GNU_SOURCE
#include "family.h"

enum { SIZE = 3 << 20 };

static void read_byte(void *address) { *(volatile char *)address; }

/* --- a whole life */

static void opens_and_writes(void)
{
    CUcontext context = begin(0), of;
    CUipcMemHandle handle;
    CUdeviceptr base;
    size_t size;
    unsigned type;
    int capable;
    take(from_parent, &handle, sizeof handle);
    CUdeviceptr address = opened(handle), again = opened(handle);
    IS(again, address);
    IS(signal_of(read_byte, (void *)address), SIGSEGV);
    IS(device_wrong(address, SIZE, 1), 0);
    OK(cuMemGetAddressRange_v2(&base, &size, address + 5));
    IS(base == address && size == SIZE, 1);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    IS(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    IS(of == context, 1);
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    IS(capable, false);
    IS(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_VALUE); /* what is another's is not handed on */
    IS(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    IS(cuIpcCloseMemHandle(address + 1), CUDA_ERROR_INVALID_VALUE);
    device_fill(address, SIZE, 2);
    OK(cuIpcCloseMemHandle(address));
    IS(device_wrong(address, SIZE, 2), 0);
    OK(cuIpcCloseMemHandle(address));
    IS(cuIpcCloseMemHandle(address), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemsetD8_v2(address, 0, 1), CUDA_ERROR_INVALID_VALUE);
    tell(to_parent);
    end(0);
}

static void memory_is_shared(void)
{
    struct child child = family(opens_and_writes);
    CUdeviceptr address;
    CUipcMemHandle handle, inner;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    device_fill(address, SIZE, 1);
    OK(cuIpcGetMemHandle(&handle, address));
    OK(cuIpcGetMemHandle(&inner, address + 1000));
    IS(memcmp(&handle, &inner, sizeof handle), 0); /* it names the whole allocation */
    put(child.to, &handle, sizeof handle);
    await(child.from);
    IS(device_wrong(address, SIZE, 2), 0);
    join(child);
    OK(cuMemFree_v2(address));
    end(0);
}

/* --- refusals */

static void is_refused(void)
{
    CUipcMemHandle handle, mangled;
    CUdeviceptr address;
    begin(0);
    take(from_parent, &handle, sizeof handle);
    for (size_t i = 0; i < sizeof handle; i++) {
        mangled = handle;
        mangled.reserved[i] ^= 1;
        IS(cuIpcOpenMemHandle_v2(&address, mangled, 1), CUDA_ERROR_INVALID_VALUE);
    }
    IS(cuIpcOpenMemHandle_v2(&address, handle, 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxPopCurrent_v2(NULL));
    IS(cuIpcOpenMemHandle_v2(&address, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    tell(to_parent);
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    take(from_parent, &handle, sizeof handle); /* that of freed memory, whose file number has come again */
    IS(cuIpcOpenMemHandle_v2(&address, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    tell(to_parent);
    end(0);
}

static void wrong_handles_are_refused(void)
{
    struct child child = family(is_refused);
    CUdeviceptr address, managed, again;
    CUipcMemHandle handle, unused;
    void *pinned;
    int local;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    OK(cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocHost_v2(&pinned, SIZE));
    OK(cuIpcGetMemHandle(&handle, address));
    IS(cuIpcOpenMemHandle_v2(&again, handle, 1), CUDA_ERROR_INVALID_CONTEXT); /* its own */
    IS(cuIpcGetMemHandle(&unused, managed), CUDA_ERROR_INVALID_VALUE);
    IS(cuIpcGetMemHandle(&unused, (uintptr_t)pinned), CUDA_ERROR_INVALID_VALUE);
    IS(cuIpcGetMemHandle(&unused, (uintptr_t)&local), CUDA_ERROR_INVALID_VALUE);
    put(child.to, &handle, sizeof handle);
    await(child.from);
    OK(cuMemFree_v2(address));
    IS(cuIpcGetMemHandle(&unused, address), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc_v2(&again, SIZE));
    put(child.to, &handle, sizeof handle);
    await(child.from);
    join(child);
    OK(cuMemFree_v2(again));
    OK(cuMemFree_v2(managed));
    OK(cuMemFreeHost(pinned));
    end(0);
}

/* --- what lies under an address after it was freed and came again */

static void keeps_it_open(void)
{
    CUipcMemHandle first, second;
    unsigned char bytes[100];
    begin(0);
    take(from_parent, &first, sizeof first);
    CUdeviceptr old = opened(first);
    IS(device_wrong(old, SIZE, 1), 0);
    tell(to_parent);
    take(from_parent, &second, sizeof second);
    IS(memcmp(&first, &second, sizeof first) != 0, 1);
    OK(cuMemcpyDtoH_v2(bytes, old, sizeof bytes)); /* nothing fails, and nothing is right */
    IS(bytes[0] == 0xdb && bytes[99] == 0xdb, 1);
    CUdeviceptr new = opened(second);
    IS(new != old, 1);
    IS(device_wrong(new, SIZE, 2), 0);
    OK(cuIpcCloseMemHandle(old));
    OK(cuIpcCloseMemHandle(new));
    end(0);
}

static void stale_memory_is_wrong(void)
{
    struct child child = family(keeps_it_open);
    CUdeviceptr address, again;
    CUipcMemHandle handle;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    device_fill(address, SIZE, 1);
    OK(cuIpcGetMemHandle(&handle, address));
    put(child.to, &handle, sizeof handle);
    await(child.from);
    OK(cuMemFree_v2(address));
    OK(cuMemAlloc_v2(&again, SIZE));
    IS(again, address);
    device_fill(again, SIZE, 2);
    OK(cuIpcGetMemHandle(&handle, again));
    put(child.to, &handle, sizeof handle);
    join(child);
    OK(cuMemFree_v2(again));
    end(0);
}

/* --- an owner that dies */

static void owns_and_is_killed(void)
{
    CUdeviceptr address;
    CUipcMemHandle handle;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    device_fill(address, SIZE, 1);
    OK(cuIpcGetMemHandle(&handle, address));
    put(to_parent, &handle, sizeof handle);
    await(from_parent); /* never comes */
}

static void a_dead_owner(void)
{
    struct child child = family(owns_and_is_killed);
    CUipcMemHandle handle;
    CUdeviceptr unused;
    begin(0);
    take(child.from, &handle, sizeof handle);
    CUdeviceptr address = opened(handle);
    kill(child.pid, SIGKILL);
    waitpid(child.pid, NULL, 0);
    IS(device_wrong(address, SIZE, 1), 0);
    OK(cuIpcCloseMemHandle(address));
    IS(cuIpcOpenMemHandle_v2(&unused, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    close(child.to);
    close(child.from);
    end(0);
}

/* --- devices */

/* A child that opens on device 0 and on device 1, and expects these answers. */
static CUresult expected[2];
static void opens_on_both(void)
{
    CUipcMemHandle handle;
    int count;
    take(from_parent, &handle, sizeof handle);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    for (int device = 0; device < count; device++) {
        CUdeviceptr address;
        begin(device);
        IS(cuIpcOpenMemHandle_v2(&address, handle, 1), expected[device]);
        if (expected[device] == CUDA_SUCCESS) {
            IS(device_wrong(address, SIZE, 1), 0);
            CUdevice ordinal;
            OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
            IS(ordinal, device);
            OK(cuIpcCloseMemHandle(address));
        }
        end(device);
    }
}

static void share_on(CUdevice device)
{
    struct child child = family(opens_on_both);
    CUdeviceptr address;
    CUipcMemHandle handle;
    begin(device);
    OK(cuMemAlloc_v2(&address, SIZE));
    device_fill(address, SIZE, 1);
    OK(cuIpcGetMemHandle(&handle, address));
    put(child.to, &handle, sizeof handle);
    join(child);
    OK(cuMemFree_v2(address));
    end(device);
}

static void peers_may(void) { share_on(1); }

/* HAWSER_CUDA_PEERS=none */
static void others_may_not(void)
{
    expected[0] = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    share_on(1);
}

static void sees_the_other(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    opens_on_both();
}

/* The parent sees device 0 only, the child device 1 only: both call theirs 0. */
static void hidden_devices(void)
{
    struct child child = family(sees_the_other);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    CUdeviceptr address;
    CUipcMemHandle handle;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    device_fill(address, SIZE, 1);
    OK(cuIpcGetMemHandle(&handle, address));
    put(child.to, &handle, sizeof handle);
    join(child);
    OK(cuMemFree_v2(address));
    end(0);
}

/* HAWSER_CUDA_MIG=1 */
static void instances_have_none(void)
{
    CUdeviceptr address;
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    CUevent event;
    CUuuid whole, part, other;
    int capable = true;
    int can;
    begin(0);
    OK(cuMemAlloc_v2(&address, 10));
    IS(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_NOT_SUPPORTED);
    memset(&handle, 0, sizeof handle);
    CUdeviceptr unused;
    IS(cuIpcOpenMemHandle_v2(&unused, handle, 1), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    IS(cuIpcGetEventHandle(&event_handle, event), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    IS(capable, false);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    IS(can, 0);
    OK(cuDeviceGetUuid(&whole, 1));
    OK(cuDeviceGetUuid_v2(&part, 1));
    OK(cuDeviceGetUuid_v2(&other, 0));
    IS(memcmp(&whole, &part, 16) != 0 && memcmp(&other, &part, 16) != 0, 1);
    OK(cuEventDestroy_v2(event));
    OK(cuMemFree_v2(address));
    end(0);
}

static void is_elsewhere(void)
{
    setenv("HAWSER_CUDA_NAMESPACE", "1", 1);
    opens_on_both();
}
static void other_containers(void)
{
    expected[0] = expected[1] = CUDA_ERROR_INVALID_VALUE;
    struct child child = family(is_elsewhere);
    CUdeviceptr address;
    CUipcMemHandle handle;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    OK(cuIpcGetMemHandle(&handle, address));
    put(child.to, &handle, sizeof handle);
    join(child);
    OK(cuMemFree_v2(address));
    end(0);
}

/* --- once for a context */

static void opens_twice(void)
{
    CUipcMemHandle handle;
    CUdeviceptr again;
    CUcontext other;
    begin(0);
    take(from_parent, &handle, sizeof handle);
    CUdeviceptr address = opened(handle);
    OK(cuCtxCreate_v2(&other, 0, 0));
    IS(cuIpcOpenMemHandle_v2(&again, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxDestroy_v2(other));
    setenv("HAWSER_CUDA_ALREADY_MAPPED", "1", 1);
    IS(cuIpcOpenMemHandle_v2(&again, handle, 1), CUDA_ERROR_ALREADY_MAPPED);
    OK(cuIpcCloseMemHandle(address));
    address = opened(handle);
    OK(cuIpcCloseMemHandle(address));
    end(0);
}
static void already_mapped(void)
{
    struct child child = family(opens_twice);
    CUdeviceptr address;
    CUipcMemHandle handle;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    OK(cuIpcGetMemHandle(&handle, address));
    put(child.to, &handle, sizeof handle);
    join(child);
    OK(cuMemFree_v2(address));
    end(0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"memory-is-shared", memory_is_shared},
        {"wrong-handles-are-refused", wrong_handles_are_refused},
        {"stale-memory-is-wrong", stale_memory_is_wrong},
        {"a-dead-owner", a_dead_owner},
        {"peers-may", peers_may},
        {"others-may-not", others_may_not},
        {"hidden-devices", hidden_devices},
        {"instances-have-none", instances_have_none},
        {"other-containers", other_containers},
        {"already-mapped", already_mapped},
    };
    RUN(tests);
}
