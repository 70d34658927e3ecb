/* cuGetProcAddress: from the name in the documentation to the function which that version of it means. */
#include "standin.h"

#define N(name) {#name, (void (*)(void))name}
static const struct {
    const char *name;
    void (*function)(void);
} names[] = {
    N(cuInit), N(cuDriverGetVersion), N(cuGetErrorName), N(cuGetErrorString), N(cuGetProcAddress),
    N(cuGetProcAddress_v2), N(cuDeviceGet), N(cuDeviceGetCount), N(cuDeviceGetName), N(cuDeviceGetUuid),
    N(cuDeviceGetUuid_v2), N(cuDeviceTotalMem_v2), N(cuDeviceGetAttribute), N(cuDeviceGetPCIBusId),
    N(cuDeviceGetByPCIBusId), N(cuDeviceCanAccessPeer), N(cuDeviceGetP2PAttribute), N(cuDevicePrimaryCtxRetain),
    N(cuDevicePrimaryCtxRelease_v2), N(cuDevicePrimaryCtxReset_v2), N(cuDevicePrimaryCtxSetFlags_v2),
    N(cuDevicePrimaryCtxGetState), N(cuCtxCreate_v2), N(cuCtxCreate_v3), N(cuCtxCreate_v4), N(cuCtxDestroy_v2),
    N(cuCtxPushCurrent_v2), N(cuCtxPopCurrent_v2), N(cuCtxSetCurrent), N(cuCtxGetCurrent), N(cuCtxGetDevice),
    N(cuCtxGetId), N(cuCtxGetFlags), N(cuCtxSetFlags), N(cuCtxGetApiVersion), N(cuCtxGetStreamPriorityRange),
    N(cuCtxSynchronize),
    N(cuCtxEnablePeerAccess), N(cuCtxDisablePeerAccess), N(cuMemGetInfo_v2), N(cuMemAlloc_v2), N(cuMemFree_v2),
    N(cuMemAllocManaged), N(cuMemGetAddressRange_v2), N(cuMemAllocHost_v2), N(cuMemHostAlloc), N(cuMemFreeHost),
    N(cuMemHostRegister_v2), N(cuMemHostUnregister), N(cuMemHostGetDevicePointer_v2), N(cuMemHostGetFlags),
    N(cuMemcpy), N(cuMemcpyAsync), N(cuMemcpyHtoD_v2), N(cuMemcpyDtoH_v2), N(cuMemcpyDtoD_v2),
    N(cuMemcpyHtoDAsync_v2), N(cuMemcpyDtoHAsync_v2), N(cuMemcpyDtoDAsync_v2), N(cuMemcpyPeer), N(cuMemcpyPeerAsync),
    N(cuMemsetD8_v2), N(cuMemsetD8Async), N(cuMemsetD32_v2), N(cuMemsetD32Async), N(cuPointerGetAttribute),
    N(cuPointerGetAttributes), N(cuPointerSetAttribute), N(cuStreamCreate), N(cuStreamCreateWithPriority),
    N(cuStreamDestroy_v2), N(cuStreamQuery), N(cuStreamSynchronize), N(cuStreamWaitEvent), N(cuStreamGetFlags),
    N(cuStreamWaitValue32_v2), N(cuStreamWriteValue32_v2),
    N(cuStreamGetPriority), N(cuStreamGetCtx), N(cuLaunchHostFunc), N(cuEventCreate), N(cuEventDestroy_v2),
    N(cuEventRecord), N(cuEventQuery), N(cuEventSynchronize), N(cuEventElapsedTime), N(cuIpcGetMemHandle),
    N(cuIpcOpenMemHandle_v2), N(cuIpcCloseMemHandle), N(cuIpcGetEventHandle), N(cuIpcOpenEventHandle),
    N(cuMemAddressReserve), N(cuMemAddressFree), N(cuMemGetAllocationGranularity), N(cuMemCreate), N(cuMemRelease),
    N(cuMemMap), N(cuMemUnmap), N(cuMemSetAccess), N(cuMemGetAccess), N(cuMemExportToShareableHandle),
    N(cuMemImportFromShareableHandle), N(cuMemRetainAllocationHandle), N(cuMemGetAllocationPropertiesFromHandle),
    N(cuDeviceGetDefaultMemPool), N(cuDeviceGetMemPool), N(cuDeviceSetMemPool), N(cuMemPoolCreate),
    N(cuMemPoolDestroy), N(cuMemPoolSetAccess), N(cuMemPoolGetAccess), N(cuMemPoolExportToShareableHandle),
    N(cuMemPoolImportFromShareableHandle), N(cuMemPoolExportPointer), N(cuMemPoolImportPointer), N(cuMemAllocAsync),
    N(cuMemAllocFromPoolAsync), N(cuMemFreeAsync),
};

/* The number behind `_v` in an exported name that is `symbol` with or without such a suffix; 0 for another. */
static int suffix(const char *exported, const char *symbol)
{
    size_t length = strlen(symbol);
    if (strncmp(exported, symbol, length) != 0) return 0;
    if (exported[length] == 0) return 1;
    return strncmp(exported + length, "_v", 2) == 0 && exported[length + 3] == 0 ? exported[length + 2] - '0' : 0;
}

/* Since which version of CUDA a name with its suffix exists. */
static int since(const char *name)
{
    static const struct { const char *name; int version; } late[] = {
        {"cuCtxCreate_v3", 11040}, {"cuCtxCreate_v4", 12050}, {"cuCtxSetFlags", 12010}, {"cuDeviceGetUuid_v2", 11040},
        {"cuGetProcAddress_v2", 12000}, {"cuMemAllocAsync", 11020}, {"cuMemFreeAsync", 11020},
        {"cuMemAllocFromPoolAsync", 11020}, {"cuMemPoolCreate", 11020}, {"cuMemCreate", 10020}, {"cuMemMap", 10020},
        {"cuMemAddressReserve", 10020}, {"cuMemRetainAllocationHandle", 11000},
        {"cuIpcOpenMemHandle_v2", 11000},
    };
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (strcmp(late[i].name, name) == 0) return late[i].version;
    return 0;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    if (symbol == NULL || function == NULL || flags > 2) return CUDA_ERROR_INVALID_VALUE;
    int best = 0;
    bool later = false;
    *function = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int number = suffix(names[i].name, symbol);
        if (number <= best) continue;
        if (since(names[i].name) > version) {
            later = true;
            continue;
        }
        best = number;
        memcpy(function, &names[i].function, sizeof *function);
    }
    int found = best > 0 ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (best == 0 && later) found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (status != NULL) *status = found;
    return best > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
