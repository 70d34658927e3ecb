/* What streams run, and when. One thread, the device, runs the work of all streams of a process, late: a piece
 * begins when all that it comes after is done, and ends HAWSER_CUDA_DELAY microseconds (0) and its size at
 * HAWSER_CUDA_BANDWIDTH MB/s (0: no time) later. Its data move only then. */
#define _GNU_SOURCE
#include "standin.h"

#include <signal.h>
#include <time.h>

#define POLL_NS 50000u

static struct stream *streams;
static pthread_cond_t begun, done;
static pthread_t device;
static bool running, stopping;
static _Thread_local bool inside;
static uint64_t delay, bandwidth;

void queue_read(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&begun, &monotonic);
    pthread_cond_init(&done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    delay = setting("HAWSER_CUDA_DELAY", 0) * 1000;
    bandwidth = setting("HAWSER_CUDA_BANDWIDTH", 0);
}

static void sleep_until(pthread_cond_t *condition, uint64_t time)
{
    struct timespec until = {(time_t)(time / 1000000000), (long)(time % 1000000000)};
    pthread_cond_timedwait(condition, &lock, &until);
}

bool queue_idle(struct stream *stream) { return stream->completed == stream->submitted; }

static bool blocking(const struct stream *stream) { return (stream->flags & CU_STREAM_NON_BLOCKING) == 0; }

/* Whether what is asked of `stream` comes after `other`, too: the legacy stream and the blocking ones of its
 * context wait for each other. */
static bool bound(const struct stream *stream, const struct stream *other)
{
    if (stream == other) return true;
    if (stream->context != other->context || !blocking(stream) || !blocking(other)) return false;
    return stream->legacy || other->legacy;
}

/* --- the thread */

static bool ready(struct work *work, uint64_t *again, uint64_t time)
{
    for (unsigned i = 0; i < work->after_count; i++)
        if (work->after[i].stream->completed < work->after[i].number) return false;
    if (work->kind == WORK_VALUE) {
        uint32_t there = __atomic_load_n((uint32_t *)(void *)work->to, __ATOMIC_ACQUIRE);
        if (work->width == 1 ? there == work->value : (int32_t)(there - work->value) >= 0) return true;
        if (*again > time + POLL_NS) *again = time + POLL_NS;
        return false;
    }
    if (work->kind != WORK_WAIT || atomic_load(&work->signal->progress->completed) >= work->target) return true;
    /* Nobody wakes us for another process. */
    if (signal_foreign(work->signal) && *again > time + POLL_NS) *again = time + POLL_NS;
    return false;
}

static void reap(struct stream *stream)
{
    if (!stream->closing || stream->head != NULL || stream->references > 0) return;
    for (struct stream **at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            free(stream);
            return;
        }
}

static void perform(struct stream *stream, struct work *work)
{
    static struct call call = {.name = "work"};
    ledger_call(&call);
    CUresult fault = fault_for(&call);
    if (fault != CUDA_SUCCESS) stream->context->error = fault;
    /* A context in which something failed does nothing any more; what waits for it ends nevertheless. */
    bool well = stream->context->error == CUDA_SUCCESS;
    switch (work->kind) {
    case WORK_COPY:
    case WORK_SET:
    case WORK_CALL:
        if (!well) break;
        pthread_mutex_unlock(&lock);
        if (work->kind == WORK_COPY) memmove(work->to, work->from, work->size);
        else if (work->kind == WORK_CALL) work->function(work->data);
        else if (work->width == 1) memset(work->to, (int)work->value, work->size);
        else
            for (size_t at = 0; at < work->size; at += 4) memcpy(work->to + at, &work->value, 4);
        pthread_mutex_lock(&lock);
        break;
    case WORK_RECORD:
        atomic_store(&work->signal->progress->when, now());
        /* The last record of an event may overtake an earlier one in another stream. */
        if (atomic_load(&work->signal->progress->completed) < work->target)
            atomic_store(&work->signal->progress->completed, work->target);
        break;
    case WORK_WAIT:
    case WORK_VALUE: break;
    case WORK_FREE:
        pool_free(work->range);
        free(work->range);
        break;
    }
}

static void finish(struct stream *stream, struct work *work)
{
    stream->head = work->next;
    if (stream->head == NULL) stream->tail = NULL;
    stream->completed++;
    for (unsigned i = 0; i < work->after_count; i++) {
        work->after[i].stream->references--;
        if (work->after[i].stream != stream) reap(work->after[i].stream);
    }
    if (work->signal != NULL) signal_release(work->signal);
    free(work->after);
    free(work->staged);
    free(work);
    reap(stream);
    pthread_cond_broadcast(&done);
}

static void *serve(void *nothing)
{
    inside = true;
    pthread_mutex_lock(&lock);
    while (!stopping) {
        uint64_t time = now(), again = UINT64_MAX;
        struct stream *next = NULL;
        /* What is due first comes first. */
        for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
            struct work *work = stream->head;
            if (work == NULL || !ready(work, &again, time)) continue;
            if (!work->started) {
                work->started = true;
                bool takes = work->kind == WORK_COPY || work->kind == WORK_SET || work->kind == WORK_CALL;
                work->due = time;
                if (takes && !work->prompt) work->due += delay;
                if (takes && bandwidth > 0) work->due += work->size * 1000 / bandwidth;
            }
            if (work->due <= time && (next == NULL || work->due < next->head->due)) next = stream;
            else if (work->due > time && work->due < again) again = work->due;
        }
        if (next != NULL) {
            struct work *work = next->head;
            perform(next, work);
            finish(next, work);
        } else if (again == UINT64_MAX) pthread_cond_wait(&begun, &lock);
        else sleep_until(&begun, again);
    }
    pthread_mutex_unlock(&lock);
    return nothing;
}

bool queue_inside(void) { return inside; }

void queue_stop(void)
{
    pthread_mutex_lock(&lock);
    bool was = running && !inside;
    stopping = true;
    pthread_cond_broadcast(&begun);
    pthread_mutex_unlock(&lock);
    if (was) pthread_join(device, NULL);
}

/* --- its clients */

void queue_submit(struct stream *stream, const struct work *given)
{
    struct work *work = malloc(sizeof *work);
    if (work == NULL) abort();
    *work = *given;
    unsigned count = 0;
    for (struct stream *other = streams; other != NULL; other = other->next)
        if (other != stream && bound(stream, other) && !queue_idle(other)) count++;
    if (count > 0) {
        work->after = calloc(count, sizeof *work->after);
        if (work->after == NULL) abort();
        for (struct stream *other = streams; other != NULL; other = other->next) {
            if (other == stream || !bound(stream, other) || queue_idle(other)) continue;
            work->after[work->after_count++] = (struct position){other, other->submitted};
            other->references++;
        }
    }
    if (work->signal != NULL) work->signal->references++;
    if (stream->tail == NULL) stream->head = work;
    else stream->tail->next = work;
    stream->tail = work;
    stream->submitted++;
    if (!running) {
        running = true;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (pthread_create(&device, NULL, serve, NULL) != 0) abort();
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_cond_signal(&begun);
}

void queue_sleep(bool polling)
{
    if (polling) sleep_until(&done, now() + POLL_NS);
    else pthread_cond_wait(&done, &lock);
}

/* Whether all that was submitted to a stream is done: to the legacy one, also what was to the streams that it waits for. */
bool queue_done(struct stream *stream)
{
    for (struct stream *other = streams; other != NULL; other = other->next)
        if ((other == stream || (stream->legacy && bound(stream, other))) && !queue_idle(other)) return false;
    return true;
}

/* What was submitted to a stream, or with `whole` to all of its context. */
static CUresult wait_for(struct stream *stream, bool whole)
{
    struct context *context = stream->context;
    CUcontext handle = context->handle;
    size_t count = 0;
    for (struct stream *other = streams; other != NULL; other = other->next) count++;
    struct position *after = calloc(count, sizeof *after);
    if (after == NULL) abort();
    count = 0;
    for (struct stream *other = streams; other != NULL; other = other->next) {
        if (other != stream && !(stream->legacy && bound(stream, other)) && !(whole && other->context == context)) continue;
        after[count++] = (struct position){other, other->submitted};
        other->references++;
    }
    for (size_t i = 0; i < count; i++) {
        while (after[i].stream->completed < after[i].number && !stopping) queue_sleep(false);
        after[i].stream->references--;
        reap(after[i].stream);
    }
    free(after);
    context = context_of(handle);
    return context == NULL ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->error;
}

CUresult queue_wait(struct stream *stream) { return wait_for(stream, false); }
CUresult queue_wait_all(struct context *context) { return wait_for(context->legacy, true); }

void queue_drain(CUdevice wanted)
{
    for (struct stream *stream = streams; stream != NULL;) {
        /* One that only waits to be forgotten may have outlived its context. */
        if (!queue_idle(stream) && stream->context->device == wanted && !stopping) {
            queue_sleep(false);
            stream = streams; /* the list may be another one now */
        } else stream = stream->next;
    }
}

/* --- streams */

struct stream *stream_make(struct context *context, unsigned flags)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) abort();
    *stream = (struct stream){.context = context, .flags = flags, .next = streams};
    return streams = stream;
}

void stream_close(struct stream *stream)
{
    if (stream->handle != NULL) {
        handle_drop((uintptr_t)stream->handle);
        ledger_remove(STREAMS);
    }
    stream->closing = true;
    reap(stream);
}

void stream_close_all(struct context *context)
{
    for (struct stream *stream = streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        if (stream->context == context && !stream->closing) stream_close(stream);
    }
}

static unsigned long this_thread(void)
{
    static unsigned long threads;
    static _Thread_local unsigned long own;
    if (own == 0) own = ++threads;
    return own;
}

/* The stream that a handle names, in this context. */
struct stream *stream_of(struct context *context, CUstream handle, CUresult *error)
{
    *error = CUDA_SUCCESS;
    if (handle == NULL || handle == CU_STREAM_LEGACY) return context->legacy;
    if (handle == CU_STREAM_PER_THREAD) {
        unsigned long thread = this_thread();
        for (struct stream *stream = streams; stream != NULL; stream = stream->next)
            if (stream->context == context && stream->thread == thread) return stream;
        struct stream *stream = stream_make(context, 0);
        stream->thread = thread;
        return stream;
    }
    struct stream *stream = handle_object(HANDLE_STREAM, (uintptr_t)handle);
    if (stream == NULL) *error = CUDA_ERROR_INVALID_HANDLE;
    return stream;
}
