/* Events between processes, and what several threads or the end of one make of what is open. */
#define _GNU_SOURCE
#include "family.h"

#include <pthread.h>

enum { SIZE = 3 << 20 };

/* --- one thread opens what another is closing */

static CUcontext common_context;
static CUdeviceptr common;
static void *closes(void *nothing)
{
    OK(cuCtxSetCurrent(common_context));
    OK(cuIpcCloseMemHandle(common)); /* waits for the gate */
    return nothing;
}
static void opens_in_threads(void)
{
    pthread_t thread;
    CUipcMemHandle handle;
    CUstream stream;
    common_context = begin(0);
    volatile uint32_t *gate = gate_make();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    take(from_parent, &handle, sizeof handle);
    common = opened(handle);
    gate_close(gate, stream);
    pthread_create(&thread, NULL, closes, NULL);
    usleep(20000); /* it waits by now, or has not begun: both end well */
    CUdeviceptr again = opened(handle);
    IS(again, common);
    gate_open(gate);
    pthread_join(thread, NULL);
    IS(device_wrong(again, SIZE, 1), 0);
    OK(cuIpcCloseMemHandle(again));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFreeHost((void *)gate));
    end(0);
}
static void threads_share_what_is_open(void)
{
    struct child child = family(opens_in_threads);
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

/* --- what a child leaves open: its ledger must say so */

static void leaves_open(void)
{
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    CUevent event;
    begin(0);
    take(from_parent, &handle, sizeof handle);
    take(from_parent, &event_handle, sizeof event_handle);
    opened(handle);
    OK(cuIpcOpenEventHandle(&event, event_handle));
}
static void a_child_leaves_it_open(void)
{
    struct child child = family(leaves_open);
    CUdeviceptr address;
    CUevent event;
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    begin(0);
    OK(cuMemAlloc_v2(&address, SIZE));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetMemHandle(&handle, address));
    OK(cuIpcGetEventHandle(&event_handle, event));
    put(child.to, &handle, sizeof handle);
    put(child.to, &event_handle, sizeof event_handle);
    join(child);
    OK(cuEventDestroy_v2(event));
    OK(cuMemFree_v2(address));
    end(0);
}

/* --- events, and three processes */

static void waits_for_the_event(void)
{
    CUipcEventHandle event_handle;
    CUipcMemHandle handle;
    CUevent event;
    CUstream stream;
    CUdeviceptr copy;
    float elapsed;
    begin(0);
    take(from_parent, &event_handle, sizeof event_handle);
    take(from_parent, &handle, sizeof handle);
    CUdeviceptr address = opened(handle);
    OK(cuIpcOpenEventHandle(&event, event_handle));
    IS(cuEventElapsedTime(&elapsed, event, event), CUDA_ERROR_INVALID_HANDLE);
    IS(cuIpcGetEventHandle(&event_handle, event), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CUevent gone;
    take(from_parent, &event_handle, sizeof event_handle); /* of an event whose file number has come again */
    IS(cuIpcOpenEventHandle(&gone, event_handle), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&copy, SIZE));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuMemcpyDtoDAsync_v2(copy, address, SIZE, stream));
    IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    tell(to_parent);
    OK(cuStreamSynchronize(stream));
    OK(cuEventSynchronize(event));
    IS(device_wrong(copy, SIZE, 3), 0);
    OK(cuMemFree_v2(copy));
    OK(cuStreamDestroy_v2(stream));
    OK(cuEventDestroy_v2(event));
    OK(cuIpcCloseMemHandle(address));
    end(0);
}

static void events_cross_processes(void)
{
    struct child children[2] = {family(waits_for_the_event), family(waits_for_the_event)};
    begin(0);
    volatile uint32_t *gate = gate_make();
    CUipcEventHandle event_handle, unused;
    CUipcMemHandle handle;
    CUevent event, own;
    CUstream stream;
    CUdeviceptr address, source;
    OK(cuMemAlloc_v2(&address, SIZE));
    OK(cuMemAlloc_v2(&source, SIZE));
    device_fill(source, SIZE, 3);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
    IS(cuIpcGetEventHandle(&unused, own), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy_v2(own));
    OK(cuIpcGetEventHandle(&event_handle, event));
    IS(cuIpcOpenEventHandle(&own, event_handle), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuIpcGetMemHandle(&handle, address));
    CUipcEventHandle stale;
    CUevent another;
    OK(cuEventCreate(&own, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&stale, own));
    OK(cuEventDestroy_v2(own));
    OK(cuEventCreate(&another, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    gate_close(gate, stream);
    OK(cuMemcpyDtoDAsync_v2(address, source, SIZE, stream));
    OK(cuEventRecord(event, stream));
    for (int i = 0; i < 2; i++) {
        put(children[i].to, &event_handle, sizeof event_handle);
        put(children[i].to, &handle, sizeof handle);
        put(children[i].to, &stale, sizeof stale);
    }
    for (int i = 0; i < 2; i++) await(children[i].from);
    gate_open(gate);
    for (int i = 0; i < 2; i++) join(children[i]);
    OK(cuEventQuery(event));
    OK(cuEventDestroy_v2(event));
    OK(cuEventDestroy_v2(another));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(address));
    OK(cuMemFree_v2(source));
    OK(cuMemFreeHost((void *)gate));
    end(0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"threads-share-what-is-open", threads_share_what_is_open},
        {"a-child-leaves-it-open", a_child_leaves_it_open},
        {"events-cross-processes", events_cross_processes},
    };
    RUN(tests);
}
