/* Streams and events. Work waits behind gates, so that "not yet" needs no luck. */
#define _GNU_SOURCE
#include "family.h"

#include <pthread.h>
#include <time.h>

enum { SIZE = 10000 };

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static CUstream stream_new(unsigned flags)
{
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, flags));
    return stream;
}

static CUdeviceptr memory_new(size_t size)
{
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, size));
    return address;
}

static void work_is_late(void)
{
    begin(0);
    volatile uint32_t *gate = gate_make();
    CUstream stream = stream_new(0), other = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = memory_new(SIZE), b = memory_new(SIZE);
    CUevent event;
    void *pinned;
    OK(cuMemAllocHost_v2(&pinned, SIZE));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(event)); /* never recorded */
    device_fill(a, SIZE, 1);
    memset(pinned, 0, SIZE);
    gate_close(gate, stream);
    OK(cuMemcpyDtoHAsync_v2(pinned, a, SIZE, stream));
    OK(cuEventRecord(event, stream));
    IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuMemcpyDtoDAsync_v2(b, a, SIZE, other));
    OK(cuStreamSynchronize(other));
    IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    IS(*(unsigned char *)pinned, 0);
    gate_open(gate);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    IS(wrong(pinned, SIZE, 1), 0);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    IS(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    CUstream next = stream_new(0);
    IS(next != stream, 1);
    IS(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE); /* still */
    IS(cuStreamQuery((CUstream)(uintptr_t)event), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy_v2(next));
    IS(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
    IS(cuMemcpyDtoDAsync_v2(b, a, SIZE, stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy_v2(other));
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFreeHost((void *)gate));
    end(0);
}

static void asks_an_event_that_has_gone(void)
{
    CUevent event;
    begin(0);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventDestroy_v2(event));
    exit(cuEventQuery(event)); /* does not return */
}
static void an_event_that_has_gone(void)
{
    struct child child = family(asks_an_event_that_has_gone);
    int status = -1;
    waitpid(child.pid, &status, 0);
    IS(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, 1);
    begin(0);
    end(0);
}

/* The legacy stream waits for blocking streams, and they for it; a non-blocking one goes its way. */
static void the_legacy_stream(void)
{
    begin(0);
    volatile uint32_t *gate = gate_make();
    CUstream before = stream_new(0), after = stream_new(0), apart = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = memory_new(SIZE), b = memory_new(SIZE), c = memory_new(SIZE);
    device_fill(a, SIZE, 1);
    device_fill(c, SIZE, 2);
    gate_close(gate, before);
    OK(cuMemcpyDtoDAsync_v2(a, c, SIZE, before));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY); /* though nothing was asked of it */
    OK(cuMemcpyDtoD_v2(b, a, SIZE)); /* does not wait, although it is not async by name */
    OK(cuMemsetD8Async(c, 0, SIZE, after));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    IS(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    IS(cuStreamQuery(after), CUDA_ERROR_NOT_READY);
    IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    OK(cuMemsetD8Async(a, 9, 0, apart));
    OK(cuStreamSynchronize(apart));
    gate_open(gate);
    OK(cuStreamSynchronize(NULL));
    IS(device_wrong(b, SIZE, 2), 0);
    OK(cuCtxSynchronize());
    OK(cuStreamQuery(after));
    gate_close(gate, before);
    OK(cuMemsetD8Async(a, 1, SIZE, CU_STREAM_PER_THREAD));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemsetD8Async(a, 1, SIZE, NULL));
    OK(cuMemsetD8Async(a, 1, SIZE, CU_STREAM_PER_THREAD));
    IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    gate_open(gate);
    OK(cuStreamDestroy_v2(before)); /* its work is done nevertheless */
    OK(cuStreamDestroy_v2(after));
    OK(cuStreamDestroy_v2(apart));
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    OK(cuMemFree_v2(c));
    OK(cuMemFreeHost((void *)gate));
    end(0);
}

static volatile uint32_t *late_gate;
static volatile int is_open;
static void *opens_late(void *nothing)
{
    usleep(20000);
    is_open = 1;
    gate_open(late_gate);
    return nothing;
}

/* A context waits for all its streams, and for no other's. */
static void a_context_waits_for_its_own(void)
{
    pthread_t thread;
    CUcontext first = begin(0), second;
    volatile uint32_t *gate = gate_make();
    late_gate = gate_make();
    CUstream here = stream_new(CU_STREAM_NON_BLOCKING), there;
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    there = stream_new(CU_STREAM_NON_BLOCKING);
    OK(cuCtxSetCurrent(first));
    gate_close(gate, there);
    gate_close(late_gate, here);
    pthread_create(&thread, NULL, opens_late, NULL);
    OK(cuCtxSynchronize());
    IS(is_open, 1);
    pthread_join(thread, NULL);
    IS(cuStreamQuery(there), CUDA_ERROR_NOT_READY);
    OK(cuStreamQuery(here));
    gate_open(gate);
    OK(cuStreamDestroy_v2(here));
    OK(cuStreamDestroy_v2(there));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    OK(cuMemFreeHost((void *)gate));
    OK(cuMemFreeHost((void *)late_gate));
    end(0);
}

static void events_order_streams(void)
{
    CUcontext first = begin(0), second;
    volatile uint32_t *gate = gate_make();
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING), there;
    CUdeviceptr a = memory_new(SIZE), b;
    CUevent event, other, timed;
    float elapsed;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&timed, 0));
    IS(cuEventCreate(&other, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent_v2(second));
    there = stream_new(CU_STREAM_NON_BLOCKING);
    b = memory_new(SIZE);
    OK(cuEventCreate(&other, 0));
    IS(cuEventRecord(event, there), CUDA_ERROR_INVALID_HANDLE); /* of another context */
    IS(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(other, NULL));
    OK(cuEventRecord(timed, stream));
    OK(cuEventSynchronize(other));
    OK(cuEventSynchronize(timed));
    IS(cuEventElapsedTime(&elapsed, timed, other), CUDA_ERROR_INVALID_HANDLE); /* of two devices */
    gate_close(gate, stream);
    OK(cuMemsetD8Async(a, 5, SIZE, stream));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(there, event, 0));
    OK(cuMemcpyPeerAsync(b, second, a, first, SIZE, there));
    IS(cuStreamQuery(there), CUDA_ERROR_NOT_READY);
    gate_open(gate);
    OK(cuStreamSynchronize(there));
    unsigned char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, b + SIZE - 1, 1));
    IS(byte, 5);
    /* A wait is for what was recorded when it was asked for. */
    gate_close(gate, stream);
    OK(cuStreamWaitEvent(there, event, 0));
    OK(cuEventRecord(event, stream));
    OK(cuStreamSynchronize(there));
    OK(cuEventDestroy_v2(event)); /* while it is pending */
    gate_open(gate);
    OK(cuStreamSynchronize(stream));
    OK(cuEventDestroy_v2(other));
    OK(cuMemFree_v2(b));
    OK(cuStreamDestroy_v2(there));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuEventCreate(&other, 0));
    IS(cuEventElapsedTime(&elapsed, timed, other), CUDA_ERROR_INVALID_HANDLE); /* never recorded */
    gate_close(gate, stream);
    OK(cuEventRecord(timed, NULL));
    OK(cuEventRecord(other, stream));
    IS(cuEventElapsedTime(&elapsed, timed, other), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(timed));
    gate_open(gate);
    OK(cuEventSynchronize(other));
    OK(cuEventElapsedTime(&elapsed, timed, other));
    IS(elapsed >= 0, 1);
    OK(cuEventDestroy_v2(other));
    OK(cuEventDestroy_v2(timed));
    OK(cuMemFree_v2(a));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFreeHost((void *)gate));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    end(0);
}

/* What a call has taken when it returns, and what it reads and writes only later. */
static void when_calls_return(void)
{
    static unsigned char pageable[SIZE];
    begin(0);
    volatile uint32_t *gate = gate_make();
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = memory_new(SIZE);
    unsigned char *pinned;
    OK(cuMemAllocHost_v2((void **)&pinned, SIZE));
    gate_close(gate, stream);
    fill(pageable, SIZE, 1);
    OK(cuMemcpyHtoDAsync_v2(a, pageable, SIZE, stream));
    fill(pageable, SIZE, 2);
    gate_open(gate);
    OK(cuStreamSynchronize(stream));
    IS(device_wrong(a, SIZE, 1), 0); /* it was staged */
    gate_close(gate, stream);
    fill(pinned, SIZE, 3);
    OK(cuMemcpyHtoDAsync_v2(a, pinned, SIZE, stream));
    fill(pinned, SIZE, 4);
    gate_open(gate);
    OK(cuStreamSynchronize(stream));
    IS(device_wrong(a, SIZE, 4), 0); /* the program has overwritten what was on its way */
    OK(cuMemcpyDtoHAsync_v2(pageable, a, SIZE, stream));
    IS(wrong(pageable, SIZE, 4), 0); /* to pageable memory it waits */
    OK(cuMemcpy((uintptr_t)pinned, (uintptr_t)pageable, SIZE));
    OK(cuMemcpyAsync((uintptr_t)pinned, (uintptr_t)pageable, SIZE, stream));
    IS(wrong(pinned, SIZE, 4), 0);
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(a));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFreeHost((void *)gate));
    end(0);
}

/* HAWSER_CUDA_DELAY=30000, HAWSER_CUDA_BANDWIDTH=50. */
static void work_takes_time(void)
{
    enum { MEGABYTE = 1000000 };
    begin(0);
    CUdeviceptr a = memory_new(MEGABYTE), b = memory_new(MEGABYTE);
    double before = seconds();
    OK(cuMemcpyDtoD_v2(a, b, 1));
    OK(cuStreamSynchronize(NULL));
    IS(seconds() - before >= 0.03, 1);
    before = seconds();
    OK(cuMemcpyDtoD_v2(a, b, MEGABYTE));
    OK(cuStreamSynchronize(NULL));
    IS(seconds() - before >= 0.05, 1);
    int on = 1;
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b));
    before = seconds();
    OK(cuMemcpyDtoD_v2(a, b, 1));
    OK(cuStreamQuery(NULL)); /* now it has waited */
    IS(seconds() - before >= 0.03, 1);
    /* From ordinary memory only then. */
    char byte = 1;
    OK(cuMemcpyHtoD_v2(b, &byte, 1));
    OK(cuStreamQuery(NULL));
    OK(cuMemcpyHtoD_v2(a, &byte, 1));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(NULL));
    unsigned flags;
    OK(cuCtxGetFlags(&flags));
    IS(cuCtxSetFlags(0x100), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS));
    OK(cuMemcpyHtoD_v2(a, &byte, 1));
    OK(cuStreamQuery(NULL));
    OK(cuMemsetD8_v2(a, 2, 1));
    OK(cuStreamQuery(NULL));
    OK(cuCtxSetFlags(flags));
    OK(cuMemsetD8_v2(a, 2, 1));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(NULL));
    before = seconds();
    OK(cuMemsetD8Async(a, 0, 1, NULL));
    OK(cuMemFree_v2(a)); /* waits, too */
    IS(seconds() - before >= 0.03, 1);
    OK(cuMemFree_v2(b));
    end(0);
}

static int called;
static void host_function(void *data)
{
    CUdeviceptr address;
    called += data == &called;
    IS(cuMemAlloc_v2(&address, 1), CUDA_ERROR_NOT_PERMITTED);
}
static void host_functions(void)
{
    begin(0);
    CUstream stream = stream_new(0);
    OK(cuLaunchHostFunc(stream, host_function, &called));
    OK(cuStreamSynchronize(stream));
    IS(called, 1);
    OK(cuStreamDestroy_v2(stream));
    end(0);
}

static void *loop(void *context)
{
    CUstream stream = NULL;
    CUevent event = NULL;
    unsigned char *in = NULL, *out = NULL;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuMemAllocHost_v2((void **)&in, SIZE));
    OK(cuMemAllocHost_v2((void **)&out, SIZE));
    for (unsigned i = 0; i < 100; i++) {
        CUdeviceptr a = memory_new(SIZE), b = memory_new(SIZE);
        fill(in, SIZE, i);
        OK(cuMemcpyHtoDAsync_v2(a, in, SIZE, stream));
        OK(cuMemcpyDtoDAsync_v2(b, a, SIZE, stream));
        OK(cuMemcpyDtoHAsync_v2(out, b, SIZE, stream));
        OK(cuEventRecord(event, stream));
        if (i % 2 == 0) OK(cuEventSynchronize(event));
        else
            while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) sched_yield();
        IS(wrong(out, SIZE, i), 0);
        OK(cuMemFree_v2(a));
        OK(cuMemFree_v2(b));
    }
    OK(cuMemFreeHost(in));
    OK(cuMemFreeHost(out));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}
static void several_threads(void)
{
    pthread_t threads[4];
    CUcontext context = begin(0);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, loop, context);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    end(0);
}

/* HAWSER_CUDA_FAULTS=work:2:700,cuMemAlloc:3:2,cuEventCreate:2+:999,cuStreamCreate:*:2@1. */
static void faults(void)
{
    CUdeviceptr a, b, c;
    CUevent event, other;
    CUcontext context = begin(0);
    CUstream stream = stream_new(0); /* this is rank 0 */
    a = memory_new(10);
    b = memory_new(10);
    IS(cuMemAlloc_v2(&c, 10), CUDA_ERROR_OUT_OF_MEMORY);
    c = memory_new(10);
    OK(cuEventCreate(&event, 0));
    IS(cuEventCreate(&other, 0), CUDA_ERROR_UNKNOWN);
    IS(cuEventCreate(&other, 0), CUDA_ERROR_UNKNOWN);
    OK(cuMemsetD8Async(a, 1, 10, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemsetD8Async(b, 1, 10, stream)); /* fails while it runs */
    IS(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuMemFree_v2(c), CUDA_ERROR_ILLEGAL_ADDRESS); /* and everything after it in this context */
    IS(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuEventRecord(event, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxSetCurrent(context));
    end(0); /* takes all with it */
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"work-is-late", work_is_late},
        {"an-event-that-has-gone", an_event_that_has_gone},
        {"the-legacy-stream", the_legacy_stream},
        {"a-context-waits-for-its-own", a_context_waits_for_its_own},
        {"events-order-streams", events_order_streams},
        {"when-calls-return", when_calls_return},
        {"work-takes-time", work_takes_time},
        {"host-functions", host_functions},
        {"several-threads", several_threads},
        {"faults", faults},
    };
    RUN(tests);
}
