/* What the files of the stand-in share. One lock guards all of it: `enter` takes it, `leave` gives it back, and
 * the thread of progress.c holds it while it works. No object is freed before the process ends, only what hangs
 * on it: a stale pointer is recognized, not followed. */
#ifndef HAWSER_VERBS_STANDIN_H
#define HAWSER_VERBS_STANDIN_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#define MILLISECOND UINT64_C(1000000)

/* --- entry.c: how a call begins and ends */

/* One entry point or kind of event: how often it came, for faults and the ledger. */
struct call {
    const char *name;
    unsigned long count;
    bool listed;
    struct call *next;
};

/* Takes the lock; the errno with which the call shall fail, or 0. */
int enter(struct call *call);
void leave(const bool *entered);

/* First in each entry point: what it returns when it fails by order. */
#define ENTER_(act)                                                    \
    static struct call call_ = {.name = __func__};                     \
    const int fault_ = enter(&call_);                                  \
    __attribute__((cleanup(leave))) const bool entered_ = true;        \
    (void)entered_;                                                    \
    if (fault_ != 0) act
#define ENTER_CODE ENTER_(return fault_)
#define ENTER_NULL ENTER_({ errno = fault_; return NULL; })
#define ENTER_MINUS ENTER_({ errno = fault_; return -1; })
#define ENTER_PLAIN ENTER_({})

extern pthread_mutex_t lock;
extern pthread_cond_t changed; /* something that a call may wait for has happened */
/* Of the environment, read with the first call: times in milliseconds, `delay` in microseconds, of sends of `delay_from` bytes. `strict`: whether the process
 * ends too where the real libraries clean up after it, and places in send queues are those of adapters. */
extern struct settings {
    unsigned long cm_delay, cm_timeout, timewait, delay, delay_from, rank;
    bool marks, strict;
    const char *control; /* the folder, if there is one */
} settings;
void settings_read(void);
uint64_t now(void);
void *make(size_t size); /* zeroed, or the process ends */
/* Ends the process: the program has broken a rule whose breach the real libraries do not survive. */
void violation(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Waits for `changed`, without the lock; says what it waits for when that takes long. */
void wait_for_change(uint64_t *since, const char *what);
int refuse(int error); /* -1, and errno */
void *refuse_null(int error);

/* --- fault.c, ledger.c */

const char *fault_for(struct call *call); /* the third part of the rule, or NULL */

enum thing {
    DEVICE_LISTS, CONTEXTS, PDS, MRS, CQS, SRQS, QPS, COMPLETION_CHANNELS, EVENT_CHANNELS, IDS, CM_EVENTS, ASYNC_EVENTS,
    COMPLETION_EVENTS, THINGS
};
enum tally {
    RNR_NAKS, RESENT, DROPPED, NAKS, TERMINATED, CQ_OVERRUNS, SPOKE_FIRST, FLUSHED, PATIENT, SLOW, UNTOLD, TALLIES
};
void ledger_add(enum thing thing);
void ledger_remove(enum thing thing);
void ledger_call(struct call *call);
void ledger_tally(enum tally tally);
void ledger_write(void);

/* --- objects: each has a tag, by which one is known that has ended */

enum kind {
    KIND_PD = 0x70640001,
    KIND_MR,
    KIND_CQ,
    KIND_SRQ,
    KIND_QP,
    KIND_COMPLETION_CHANNEL,
    KIND_EVENT_CHANNEL,
    KIND_ID,
    KIND_EVENT
};
struct tag { uint32_t kind; bool alive; void *next; };
/* Ends the process if it is not such an object, or one that has ended. */
void must_live(const struct tag *tag, enum kind kind, const char *call, const char *what);
#define LIVE(object, kind, what) must_live(&(object)->tag, (kind), __func__, (what))

/* Keeps what has ended, so that a stale pointer to it is recognized. Of memory regions the last ones are kept. */
void bury(void *object, struct tag *tag);
#define BURY(object) bury(object, &(object)->tag)

/* What makes a descriptor readable while something is there. */
struct bell { int fd; bool ringing; };
int bell_make(struct bell *bell);
void bell_set(struct bell *bell, bool ringing);
/* Waits without the lock until it may ring; EAGAIN where the program has made the descriptor non-blocking. */
int bell_wait(const struct bell *bell);

/* --- device.c */

struct limits {
    int max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_srq, max_srq_wr, rd_atom;
    uint32_t inline_data, message;
};
enum { PORTS = 2 };
struct port {
    struct device *device;
    uint8_t number; /* from 1 */
    struct in6_addr address; /* IPv4 as ::ffff:a.b.c.d */
    uint8_t mac[6];
    bool says_down;
    bool down; /* nothing goes in or out */
};
struct device {
    struct ibv_device public;
    struct port ports[PORTS];
    uint8_t port_count;
    bool iwarp, removed, failed, queues_failed, shared_failed;
    const struct limits *limits;
    struct context *of_cm; /* which the connection manager opened */
};
extern struct device *devices;
extern size_t device_count;
void devices_read(void);
struct port *port_at(const struct sockaddr *address);
struct in6_addr address_of(const struct sockaddr *address);
socklen_t address_size(const struct sockaddr *address); /* 0 of other families */
bool is_any(const struct sockaddr *address);
struct context *device_open(struct device *device);

struct context {
    struct device *device;
    bool of_cm, closed;
    unsigned users;
    struct bell async;
    struct async_event *events, *last;
    struct context *next;
    struct verbs_context public;
};
extern struct context *contexts;
static inline struct context *context_of(struct ibv_context *context)
{
    struct context *found = (struct context *)((char *)context - offsetof(struct context, public.context));
    if (found->closed) violation("a device's context is used after its end");
    return found;
}
/* A code of a post call, with the sign that the device gives it. */
int post_error(const struct device *device, int error);

/* --- async.c */

struct counts { uint64_t reported, acknowledged; };
void async_post(struct context *context, enum ibv_event_type type, void *element);
void async_post_port(struct context *context, enum ibv_event_type type, uint8_t number);
void async_forget(struct context *context, const void *element);

/* --- memory.c */

struct pd { struct ibv_pd public; struct tag tag; unsigned users; };
struct mr { struct ibv_mr public; struct tag tag; int access; bool marked; };
/* Where these bytes lie, or NULL if the key, its domain, rights or bounds say no. */
char *memory_local(const struct pd *pd, uint32_t lkey, uint64_t address, uint64_t length, int access);
char *memory_remote(const struct pd *pd, uint32_t rkey, uint64_t address, uint64_t length, int access);

/* --- completion.c */

struct entry { struct ibv_wc wc; struct qp *qp; struct srq *srq; uint32_t number, life; bool send; };
struct cq {
    struct ibv_cq public;
    struct tag tag;
    struct entry *ring;
    unsigned first;
    _Atomic unsigned count;
    int armed; /* 0, 1 for solicited ones, 2 for all */
    bool broken;
    unsigned users;
    struct counts completion, async;
};
struct completion { struct ibv_wc wc; struct qp *qp; struct srq *srq; uint32_t number; bool send, solicited; };
void cq_push(struct cq *cq, const struct completion *completion);
void cq_end_all(const struct device *device);

/* --- receive.c: receive queues, private and shared */

struct receive { uint64_t wr_id; int sges; struct ibv_sge sge[32]; };
struct receive_queue { struct receive *ring; uint32_t capacity, max_sge, first, count, used; };
void receive_queue_make(struct receive_queue *queue, uint32_t capacity, uint32_t max_sge);
int receive_queue_post(struct receive_queue *queue, const struct device *device, const struct ibv_recv_wr *wr);
bool receive_queue_take(struct receive_queue *queue, struct receive *receive);
struct srq {
    struct ibv_srq public;
    struct tag tag;
    struct receive_queue queue;
    uint32_t limit;
    bool broken;
    unsigned users;
    struct counts async;
};
bool srq_take(struct srq *srq, struct receive *receive);
void srq_end_all(const struct device *device);

/* --- qp.c */

enum packet_kind {
    PACKET_REQUEST = 1, PACKET_REPLY, PACKET_REJECT, PACKET_READY, PACKET_DISCONNECT, /* connections */
    PACKET_SEND, PACKET_WRITE, PACKET_READ, PACKET_ATOMIC,                            /* requests */
    PACKET_ACK, PACKET_NAK, PACKET_RNR, PACKET_DATA, PACKET_VALUE, PACKET_SILENT      /* answers */
};
enum { PACKET_IMMEDIATE = 1, PACKET_SOLICITED = 2, PACKET_LAST = 4, PACKET_SWAP = 8, PACKET_IWARP = 16 };
enum { CHUNK = 32768 };
struct packet {
    uint32_t magic;
    uint8_t kind, flags;
    uint16_t code;
    uint32_t number; /* of the message on its queue pair */
    uint32_t length; /* of what follows */
    uint64_t offset, total;
    uint64_t address;
    uint32_t rkey, immediate;
    uint64_t first, second;
};
#define PACKET_MAGIC 0x68777672u

struct send {
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    unsigned flags;
    uint32_t immediate, rkey;
    uint64_t address, first, second;
    int sges;
    struct ibv_sge sge[32];
    char *inlined;
    uint64_t length, due;
    bool done;
    bool judged, told, taken; /* its end has been decided, is in the completion queue, has been taken from there */
    enum ibv_wc_status status;
    uint64_t answered; /* of a read: so many bytes have come */
};
struct response {
    uint8_t kind;
    uint16_t code;
    uint32_t number, rkey;
    uint64_t address, total, offset, value;
    struct response *next;
};
struct qp {
    struct ibv_qp public;
    struct tag tag;
    struct device *device;
    struct ibv_qp_cap cap;
    bool signal_all;
    struct ibv_qp_attr attr;
    struct wire *wire;
    struct id *id;
    struct counts async;
    uint32_t life; /* how often it has been reset: what completed before stands for no place any more */
    /* sends: numbers of work requests grow; released <= oldest <= next <= posted */
    struct send *sends;
    uint32_t released, oldest, next, posted;
    uint32_t taken; /* before this one completions have been taken */
    uint64_t offset; /* of `next` */
    unsigned reads;  /* that are under way */
    bool stopped;    /* nothing more is sent: `next` ends in an error once it is the oldest */
    bool silent;     /* the peer does not answer any more */
    unsigned rnr_left;
    uint64_t rnr_until, heard;
    uint32_t written; /* iWARP: sends before this one are on their way */
    /* receives */
    struct receive_queue receives;
    struct receive receive; /* the one that is being filled */
    bool receiving, has_heard;
    uint32_t expected;
    uint64_t received;
    struct response *responses, *last_response;
    unsigned reads_asked;
    struct qp *following;
};
extern struct qp *qps;
void qp_error(struct qp *qp);
void qp_reset_numbers(struct qp *qp);
void qp_complete_send(struct qp *qp, enum ibv_wc_status status);
void qp_complete_receive(struct qp *qp, const struct ibv_wc *wc, bool solicited);
void qp_retire(struct qp *qp);
/* A completion of a send has been taken. */
void qp_taken(struct qp *qp, uint32_t number);
/* The peer answers it. */
bool is_read(const struct send *send);
bool qp_outstanding(const struct qp *qp);

/* --- wire.c: a connection to a peer's process, of one queue pair */

struct wire {
    int fd;
    bool connecting, passive, listening, closing, eof, ended;
    struct port *port; /* none of who listens at all of them */
    struct id *id, *listener; /* of the connection manager */
    struct qp *qp;
    char *in, *out;
    size_t in_size, out_size, out_sent, out_room;
    bool held; /* what has come waits until the queue pair can take it */
    bool said_silent;
    bool is_shut;
    unsigned watched;
    struct wire *next;
};
extern struct wire *wires;
struct wire *wire_make(int fd, struct port *port);
void wire_put(struct wire *wire, const struct packet *packet, const void *payload);
void wire_pump(struct wire *wire);
void wire_ready(struct wire *wire, unsigned events);
void wire_close(struct wire *wire);  /* once all is out */
void wire_end(struct wire *wire);    /* at once */
void wire_release(struct wire *wire); /* what was held goes on */
void wire_watch(struct wire *wire);
void wire_reap(void); /* frees those that have ended; only the thread may, between two looks at descriptors */

/* --- requester.c, responder.c: the two halves of a queue pair on a wire */

/* Puts one packet on the wire, if there is one to send. */
bool requester_produce(struct qp *qp);
bool responder_produce(struct qp *qp);
void requester_written(struct qp *qp); /* all that was put is out */
void requester_packet(struct qp *qp, const struct packet *packet, const char *payload);
void responder_packet(struct qp *qp, const struct packet *packet, const char *payload);
void requester_tick(struct qp *qp, uint64_t time);
uint64_t rnr_delay(unsigned code); /* in nanoseconds */
void respond(struct qp *qp, const struct response *response);
void terminate(struct qp *qp); /* iWARP: an error that ends the connection for both */

/* --- progress.c */

void progress_start(void);
bool progress_started(void);
void progress_wake(void);
bool progress_inside(void);
int progress_poll(void); /* its epoll descriptor */
void timer_set(uint64_t due, void (*act)(void *), void *object);
void timer_drop(const void *object);
void control_tick(void);

/* --- channel.c: events of the connection manager */

struct channel {
    struct rdma_event_channel public;
    struct tag tag;
    struct bell bell;
    struct event *first, *last;
    unsigned ids;
};
struct event {
    struct rdma_cm_event public;
    struct tag tag;
    struct id *id, *counted;
    struct channel *channel;
    uint8_t data[256];
    struct event *next;
};
/* What an event carries: private data, which RoCE fills up with zeros, and what the peer asks for. */
struct event_data { const void *data; size_t length, filled; struct rdma_conn_param param; struct id *request; };
void event_post(struct id *id, enum rdma_cm_event_type type, int status, const struct event_data *data);
void event_forget(struct id *id);

/* --- cm.c, connect.c */

enum id_state {
    ID_IDLE, ID_BOUND, ID_LISTENING, ID_ADDRESS_QUERY, ID_ADDRESS, ID_ROUTE_QUERY, ID_ROUTE, ID_CONNECTING, ID_ANSWERED,
    ID_REQUESTED, ID_ACCEPTED, ID_CONNECTED, ID_DISCONNECTED, ID_ENDED
};
struct id {
    struct rdma_cm_id public;
    struct tag tag;
    enum id_state state;
    struct port *port;
    struct wire *wire;
    int fd; /* bound, and not connected yet */
    struct counts events;
    uint8_t ack_timeout;
    bool has_ack_timeout, disconnecting, told; /* told: its DISCONNECTED has been posted */
    struct rdma_conn_param param; /* own, or the peer's request */
    uint8_t data[256];
    struct id *next;
};
extern struct id *ids;
struct id *id_make(struct channel *channel, void *context);
void id_use(struct id *id, struct port *port);
void id_names(struct id *id, int fd, bool with_peer);
void id_disconnected(struct id *id);
void id_abandon(struct id *id);
void id_told(struct id *id, struct rdma_cm_event *event); /* the program gets this event now */
void cm_packet(struct wire *wire, const struct packet *packet, const char *payload);
void cm_connected(struct wire *wire, int error); /* the wire is there, or not */
void cm_incoming(struct wire *listener);
void cm_lost(struct wire *wire); /* the peer has closed it */
void cm_answered(struct id *id, struct rdma_cm_event *event); /* the program sees the peer's reply now */
void cm_removed(const struct device *device);
void connection_drop(struct id *id);
void listener_drop(struct id *id);

#endif
