/* The entry points of streams. One that the program has made carries its context with it; the default ones
 * are those of the current context. */
#include "standin.h"

/* The stream of a handle, and the context which the call is in. */
static struct stream *find(CUstream handle, CUresult *error)
{
    if ((uintptr_t)handle > 2) {
        struct stream *stream = stream_of(NULL, handle, error);
        if (stream != NULL) *error = stream->context->error;
        return *error == CUDA_SUCCESS ? stream : NULL;
    }
    struct context *context = context_current(error);
    return context == NULL ? NULL : stream_of(context, handle, error);
}

static CUresult create(struct context *context, CUstream *handle, unsigned flags, int priority)
{
    if (handle == NULL || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    struct stream *stream = stream_make(context, flags);
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->handle = (CUstream)handle_make(HANDLE_STREAM, stream);
    ledger_add(STREAMS);
    *handle = stream->handle;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    return create(context, handle, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority)
{
    ENTER(NEEDS_CONTEXT);
    return create(context, handle, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    ENTER(NEEDS_INIT);
    struct stream *stream = (uintptr_t)handle > 2 ? handle_object(HANDLE_STREAM, (uintptr_t)handle) : NULL;
    if (stream == NULL) return CUDA_ERROR_INVALID_HANDLE;
    stream_close(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    return queue_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    return stream == NULL ? error : queue_wait(stream);
}

CUresult cuCtxSynchronize(void)
{
    ENTER(NEEDS_CONTEXT);
    return queue_wait_all(context);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    struct signal *signal = event_signal(event);
    if (signal == NULL) return CUDA_ERROR_INVALID_HANDLE;
    queue_submit(stream, &(struct work){.kind = WORK_WAIT, .signal = signal,
        .target = atomic_load(&signal->progress->recorded)});
    return CUDA_SUCCESS;
}

/* A word of memory that the driver knows, for streams to wait for and to write. */
static char *word_at(CUdeviceptr address)
{
    struct range *range = range_at(address);
    if (range == NULL || address % 4 != 0 || range->size - (address - range->base) < 4) return NULL;
    return range->bytes + (address - range->base);
}

CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr address, uint32_t value, unsigned flags)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    char *word = word_at(address);
    if (word == NULL || flags > CU_STREAM_WAIT_VALUE_EQ) return CUDA_ERROR_INVALID_VALUE;
    queue_submit(stream, &(struct work){.kind = WORK_VALUE, .to = word, .size = 4, .value = value, .width = flags});
    return CUDA_SUCCESS;
}

CUresult cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr address, uint32_t value, unsigned flags)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    char *word = word_at(address);
    if (word == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    queue_submit(stream, &(struct work){.kind = WORK_SET, .to = word, .size = 4, .value = value, .width = 4});
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    if (priority == NULL) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *result)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    if (result == NULL) return CUDA_ERROR_INVALID_VALUE;
    *result = stream->context->handle;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
    ENTER(NEEDS_INIT);
    CUresult error;
    struct stream *stream = find(handle, &error);
    if (stream == NULL) return error;
    if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
    queue_submit(stream, &(struct work){.kind = WORK_CALL, .function = function, .data = data});
    return CUDA_SUCCESS;
}
