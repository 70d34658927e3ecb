/* Devices and contexts; how the driver begins and ends in a process. */
#define _GNU_SOURCE
#include "family.h"

#include <dlfcn.h>
#include <pthread.h>

static void nothing_before_the_beginning(void)
{
    int count;
    CUcontext context;
    const char *name;
    IS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    IS(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    IS(cuPointerGetAttribute(&count, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&count));
    IS(count, 12040);
    OK(cuGetErrorName(CUDA_ERROR_NOT_READY, &name));
    IS(strcmp(name, "CUDA_ERROR_NOT_READY"), 0);
    IS(cuGetErrorString((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
    IS(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    OK(cuInit(0));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    IS(count, 2);
}

static void no_device(void) { IS(cuInit(0), CUDA_ERROR_NO_DEVICE); }

static void devices_have_names(void)
{
    char name[64], bus[16];
    CUuuid first, second, instance;
    CUdevice device;
    int value;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 1));
    IS(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetName(name, sizeof name, 1));
    IS(strcmp(name, "hawser software device 1"), 0);
    OK(cuDeviceGetUuid(&first, 0));
    OK(cuDeviceGetUuid(&second, 1));
    IS(memcmp(&first, &second, 16) != 0, 1);
    OK(cuDeviceGetUuid_v2(&instance, 0));
    IS(memcmp(&first, &instance, 16), 0);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
    IS(strcmp(bus, "0000:11:00.0"), 0);
    OK(cuDeviceGetByPCIBusId(&device, bus));
    IS(device, 1);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
    IS(value, 1);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1));
    IS(value, 0x11);
    IS(cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 2), CUDA_ERROR_INVALID_DEVICE);
}

/* CUDA_VISIBLE_DEVICES=3,GPU-…01 of four. */
static void visible_devices(void)
{
    char name[64];
    int count;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    IS(count, 2);
    OK(cuDeviceGetName(name, sizeof name, 0));
    IS(strcmp(name, "hawser software device 3"), 0);
    OK(cuDeviceGetName(name, sizeof name, 1));
    IS(strcmp(name, "hawser software device 1"), 0);
}

/* HAWSER_CUDA_PEERS=0-1,1>2 of three. */
static void peers(void)
{
    int can;
    CUcontext contexts[3];
    OK(cuInit(0));
    static const int table[3][3] = {{0, 1, 0}, {1, 0, 1}, {0, 0, 0}};
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            OK(cuDeviceCanAccessPeer(&can, from, to));
            IS(can, table[from][to]);
            if (from == to) continue;
            OK(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, from, to));
            IS(can, table[from][to]);
        }
    IS(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0), CUDA_ERROR_INVALID_DEVICE);
    for (int i = 0; i < 3; i++) OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuCtxEnablePeerAccess(contexts[2], 0));
    IS(cuCtxEnablePeerAccess(contexts[2], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    IS(cuCtxEnablePeerAccess(contexts[0], 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxDisablePeerAccess(contexts[2]));
    IS(cuCtxDisablePeerAccess(contexts[2]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxSetCurrent(contexts[2]));
    IS(cuCtxEnablePeerAccess(contexts[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    OK(cuCtxSetCurrent(NULL));
    for (int i = 0; i < 3; i++) OK(cuDevicePrimaryCtxRelease_v2(i));
}

static void contexts_are_stacked(void)
{
    CUcontext first, second, now;
    CUdevice device;
    CUdeviceptr memory;
    OK(cuInit(0));
    OK(cuCtxGetCurrent(&now));
    IS(now == NULL, 1);
    IS(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
    IS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    IS(cuCtxPopCurrent_v2(&now), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxCreate_v2(&first, 0, 0));
    OK(cuCtxCreate_v3(&second, NULL, 0, 0, 1));
    OK(cuCtxGetDevice(&device));
    IS(device, 1);
    OK(cuCtxPopCurrent_v2(&now));
    IS(now == second, 1);
    OK(cuCtxGetDevice(&device));
    IS(device, 0);
    OK(cuCtxPushCurrent_v2(second));
    OK(cuMemAlloc_v2(&memory, 100));
    OK(cuCtxSetCurrent(first));
    OK(cuCtxDestroy_v2(second)); /* its memory goes with it */
    IS(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
    IS(cuCtxDestroy_v2(second), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxDestroy_v2(first));
    IS(cuCtxGetDevice(&device), CUDA_ERROR_CONTEXT_IS_DESTROYED); /* it lay twice on the stack */
    OK(cuCtxSetCurrent(NULL));
    IS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
}

static void primary_contexts(void)
{
    CUcontext first, again;
    CUdeviceptr memory;
    unsigned flags;
    int active;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    IS(active, 0);
    IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&first, 0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    IS(first == again, 1);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    IS(active, 1);
    IS(cuCtxDestroy_v2(first), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(first));
    OK(cuMemAlloc_v2(&memory, 100));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemsetD8_v2(memory, 0, 100));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    IS(cuMemsetD8_v2(memory, 0, 100), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&first, 0));
    OK(cuCtxSetCurrent(first));
    IS(cuMemsetD8_v2(memory, 0, 100), CUDA_ERROR_INVALID_VALUE); /* a new life without the old memory */
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    IS(active, 0);
}

static void pushes_what_has_gone(void)
{
    CUcontext own;
    unsigned long long id;
    CUdevice device;
    begin(0);
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuCtxGetId(own, &id));
    OK(cuCtxDestroy_v2(own));
    IS(cuCtxGetId(own, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxPushCurrent_v2(own));
    IS(cuCtxGetDevice(&device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    exit(cuCtxPopCurrent_v2(NULL)); /* does not return */
}
static void a_context_that_has_gone_is_pushed(void)
{
    struct child child = family(pushes_what_has_gone);
    int status = -1;
    waitpid(child.pid, &status, 0);
    IS(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, 1);
    begin(0);
    end(0);
}

static void *other_thread(void *context)
{
    CUdevice device;
    IS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxPushCurrent_v2(context));
    OK(cuCtxGetDevice(&device));
    return NULL;
}

static void threads_have_their_own(void)
{
    pthread_t thread;
    CUcontext context = begin(0), now;
    pthread_create(&thread, NULL, other_thread, context);
    pthread_join(thread, NULL);
    OK(cuCtxGetCurrent(&now));
    IS(now == context, 1);
    end(0);
}

static void a_child_has_none(void)
{
    CUdeviceptr memory;
    int status;
    begin(0);
    OK(cuMemAlloc_v2(&memory, 100));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        CUcontext context;
        IS(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
        IS(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
        IS(cuMemFree_v2(memory), CUDA_ERROR_NOT_INITIALIZED);
        exit(failures); /* and writes no ledger */
    }
    waitpid(child, &status, 0);
    IS(status, 0);
    OK(cuMemFree_v2(memory));
    end(0);
}

static CUdeviceptr late_memory;
static void late(void)
{
    if (cuMemFree_v2(late_memory) != CUDA_ERROR_DEINITIALIZED || cuInit(0) != CUDA_ERROR_DEINITIALIZED) _exit(3);
}
static void in_time(void)
{
    if (cuMemFree_v2(late_memory) != CUDA_SUCCESS) _exit(4);
    if (cuCtxSetCurrent(NULL) != CUDA_SUCCESS || cuDevicePrimaryCtxRelease_v2(0) != CUDA_SUCCESS) _exit(5);
}
static void the_driver_ends_with_the_process(void)
{
    atexit(late); /* runs after the driver's own */
    begin(0);
    atexit(in_time);
    OK(cuMemAlloc_v2(&late_memory, 10));
}

static void names_lead_to_functions(void)
{
    void *found = NULL, *exported = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    int status;
    OK(cuGetProcAddress("cuMemAlloc", &found, 12000, 0));
    IS(found != NULL && found == exported, 1);
    IS(dlsym(RTLD_DEFAULT, "cuMemAlloc") == NULL, 1); /* of the real one, a function with other types */
    OK(cuGetProcAddress_v2("cuCtxCreate", &found, 11000, 0, &status));
    IS(found == dlsym(RTLD_DEFAULT, "cuCtxCreate_v2"), 1);
    OK(cuGetProcAddress_v2("cuCtxCreate", &found, 12000, 0, &status));
    IS(found == dlsym(RTLD_DEFAULT, "cuCtxCreate_v3"), 1);
    OK(cuGetProcAddress_v2("cuInit", &found, 12000, 0, &status));
    IS(found == dlsym(RTLD_DEFAULT, "cuInit"), 1);
    IS(cuGetProcAddress_v2("cuMemAllocAsync", &found, 10000, 0, &status), CUDA_ERROR_NOT_FOUND);
    IS(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    IS(cuGetProcAddress_v2("cuNonsuch", &found, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
    IS(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && found == NULL, 1);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"nothing-before-the-beginning", nothing_before_the_beginning},
        {"no-device", no_device},
        {"devices-have-names", devices_have_names},
        {"visible-devices", visible_devices},
        {"peers", peers},
        {"contexts-are-stacked", contexts_are_stacked},
        {"primary-contexts", primary_contexts},
        {"a-context-that-has-gone-is-pushed", a_context_that_has_gone_is_pushed},
        {"threads-have-their-own", threads_have_their_own},
        {"a-child-has-none", a_child_has_none},
        {"the-driver-ends-with-the-process", the_driver_ends_with_the_process},
        {"names-lead-to-functions", names_lead_to_functions},
    };
    RUN(tests);
}
