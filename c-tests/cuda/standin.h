/* What the files of the stand-in share. One lock guards all of it: `enter` takes it, `leave` gives it back. */
#ifndef HAWSER_CUDA_STANDIN_H
#define HAWSER_CUDA_STANDIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define MAX_DEVICES 16
#define PAGE ((size_t)4096)
#define GRANULARITY ((size_t)2 << 20)

/* --- entry.c: how a call begins and ends */

enum needs { NEEDS_INIT, NEEDS_CONTEXT };

/* One entry point: how often it was called, for faults and the ledger. */
struct call {
    const char *name;
    unsigned long count;
    bool listed;
    struct call *next;
};

struct entry {
    CUresult refusal;
    struct context *context; /* the thread's, where the entry needs one */
    bool locked;
};

struct entry enter(struct call *call, enum needs needs);
void leave(struct entry *entry);

/* First in each entry point: `context` is the current one, where one is needed. */
#define ENTER(needs)                                                           \
    static struct call call_ = {.name = __func__};                             \
    __attribute__((cleanup(leave))) struct entry entry_ = enter(&call_, (needs)); \
    struct context *const context = entry_.context;                            \
    (void)context;                                                             \
    if (entry_.refusal != CUDA_SUCCESS) return entry_.refusal

extern pthread_mutex_t lock;
unsigned long setting(const char *name, unsigned long otherwise);
uint64_t now(void);
int job_rank(void);
void crash(const char *what);
size_t round_up(size_t size, size_t to);

/* --- fault.c, ledger.c */

CUresult fault_for(struct call *call);

enum thing {
    CONTEXTS, PRIMARY_CONTEXTS, STREAMS, EVENTS, EVENTS_OPENED, DEVICE_MEMORY, MANAGED_MEMORY, HOST_MEMORY,
    REGISTRATIONS, MEMORY_OPENED, PHYSICAL_MEMORY, RESERVATIONS, MAPPINGS, POOLS, POOL_MEMORY, THINGS
};
void ledger_add(enum thing thing);
void ledger_remove(enum thing thing);
void ledger_call(struct call *call);
void ledger_write(void);

/* --- handle.c: what the program holds is a number, so that a stale one is refused and not followed */

enum handle_kind { HANDLE_CONTEXT = 1, HANDLE_STREAM, HANDLE_EVENT, HANDLE_MEMORY, HANDLE_POOL };
uintptr_t handle_make(enum handle_kind kind, void *object);
void *handle_object(enum handle_kind kind, uintptr_t handle);
void handle_drop(uintptr_t handle);

/* --- device.c */

extern int device_count; /* visible ones; 0 before cuInit */
void device_read(void);
int device_physical(CUdevice device);
bool device_valid(CUdevice device);
bool device_mig(void);
/* These two are numbers of physical devices. */
bool device_reaches(int from, int to);
size_t device_total(void);

/* --- context.c */

struct context {
    CUcontext handle;
    CUdevice device;
    unsigned flags;
    bool primary, alive;
    unsigned retained;
    unsigned long long id;
    CUresult error; /* of work that failed: every later call has it */
    struct stream *legacy;
    struct context *peers[MAX_DEVICES];
    unsigned peer_count;
    struct context *next;
};
struct context *context_current(CUresult *error);
struct context *context_of(CUcontext handle);
bool context_reaches(const struct context *context, const struct context *owner);

/* --- memory.c: physical memory, addresses, ranges */

#define HEADER_MAGIC 0x6861777365722d6dULL

/* The first page of each file of device memory. Other processes map it. */
struct header {
    uint64_t magic;
    uint64_t generation;
    uint64_t size;
    int32_t device; /* physical */
    int32_t handle_types;
    _Atomic uint32_t alive;
    uint32_t pool; /* whether this is one */
};

struct memory {
    int fd;
    size_t size;
    struct header *header;
    char *bytes; /* where the stand-in itself reaches it */
    bool shared;
    unsigned references;
    CUdevice device; /* whose memory is used up by it */
    size_t counted;
};
/* `counted`: it uses up memory of its device. */
struct memory *memory_make(size_t size, CUdevice device, int handle_types, bool counted, CUresult *error);
struct memory *memory_open(int fd);
void memory_release(struct memory *memory);
void memory_poison(struct memory *memory);
uint64_t memory_generation(void);
void memory_used(CUdevice device, long long bytes);
bool memory_fits(CUdevice device, size_t size);

CUdeviceptr arena_take(size_t size, size_t alignment);
void arena_give(CUdeviceptr address, size_t size);

enum range_kind { RANGE_DEVICE, RANGE_MANAGED, RANGE_HOST, RANGE_REGISTERED, RANGE_OPENED, RANGE_MAPPED, RANGE_POOLED };
struct range {
    CUdeviceptr base;
    size_t size;
    enum range_kind kind;
    struct context *context; /* none for mapped and pooled memory */
    CUdevice device;
    char *bytes; /* where the stand-in reaches it */
    struct memory *memory;
    unsigned long long id;
    bool sync_memops;
    unsigned flags;
    unsigned opened;                   /* RANGE_OPENED: how often */
    uint64_t generation;               /* RANGE_OPENED: of the owner's allocation */
    unsigned char access[MAX_DEVICES]; /* RANGE_MAPPED: of each visible device */
    struct pool *pool;
};
struct range *range_add(CUdeviceptr base, size_t size, enum range_kind kind, struct context *context, CUdevice device);
struct range *range_at(CUdeviceptr address);
struct range *range_over(CUdeviceptr base, size_t size);
struct range *range_number(size_t index);
void range_detach(struct range *range);
/* Frees what lies there: waits for the device first. */
void range_free(struct range *range);
void range_free_now(struct range *range);
void range_free_all(struct context *context);
bool readable(const void *address, size_t size);
size_t range_count(void);

/* --- stream.c, queue.c, event.c */

/* How far an event has come; that of an interprocess event lies in a page which processes share. */
struct progress {
    _Atomic uint64_t recorded, completed, when;
    uint64_t generation;
};
struct signal {
    unsigned references;
    int fd; /* -1 in one process */
    struct progress *progress;
    struct progress own;
};
struct signal *signal_make(bool shared);
struct signal *signal_open(int fd);
void signal_release(struct signal *signal);
bool signal_foreign(const struct signal *signal);

enum work_kind { WORK_COPY, WORK_SET, WORK_RECORD, WORK_WAIT, WORK_VALUE, WORK_CALL, WORK_FREE };
struct work {
    enum work_kind kind;
    char *to;
    const char *from;
    size_t size;
    unsigned value, width; /* WORK_VALUE: width 1 wants just this value, 0 at least it */
    char *staged; /* freed afterwards */
    struct signal *signal;
    uint64_t target;
    CUhostFn function;
    void *data;
    struct range *range;
    bool prompt; /* a further piece of one operation: no delay of its own */
    bool started;
    uint64_t due;
    struct position { struct stream *stream; uint64_t number; } *after;
    unsigned after_count;
    struct work *next;
};
struct stream {
    struct context *context;
    CUstream handle;
    unsigned flags;
    int priority;
    bool legacy, closing;
    unsigned long thread; /* of a thread's default stream, or 0 */
    uint64_t submitted, completed;
    struct work *head, *tail;
    unsigned references;
    struct stream *next;
};
struct stream *stream_make(struct context *context, unsigned flags);
struct stream *stream_of(struct context *context, CUstream handle, CUresult *error);
void stream_close(struct stream *stream);
void stream_close_all(struct context *context);
void queue_submit(struct stream *stream, const struct work *work);
void queue_read(void);
void queue_stop(void);
/* Whether this is the thread that runs the work. */
bool queue_inside(void);
bool queue_idle(struct stream *stream);
bool queue_done(struct stream *stream);
/* These let go of the lock while they wait. */
CUresult queue_wait(struct stream *stream);
CUresult queue_wait_all(struct context *context);
void queue_drain(CUdevice device);
void queue_sleep(bool polling);
void event_close_all(struct context *context);
struct signal *event_signal(CUevent handle);
/* The file of an interprocess event that this process has made, or -1. */
int event_file(CUevent handle);
int event_device(CUevent handle);
CUevent event_make(struct context *context, unsigned flags, struct signal *signal, bool opened);

/* --- ipc.c, vmm.c, pool.c */

void ipc_close(struct range *range);
void vmm_unmap(struct range *range);
int vmm_access(const struct range *range, CUdevice device);
void pool_free(struct range *range);
CUmemoryPool pool_handle(const struct pool *pool);
int pool_handle_types(const struct pool *pool);
int pool_access(const struct pool *pool, CUdevice device);

#endif
