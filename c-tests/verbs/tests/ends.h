/* Two ends of a connection: the parent listens, the child connects. */
#ifndef HAWSER_VERBS_ENDS_H
#define HAWSER_VERBS_ENDS_H

#include "check.h"

enum { SIZE = 1 << 20, SLOT = 4096 };

struct options {
    int sends, receives, entries, posted, shared, silent; /* silent: sends are signalled one by one only when asked */
    uint32_t inlined;
    uint8_t rnr, depth, timeout, retry;
    bool few; /* rights: local ones only */
};
static const struct options usual = {
    .sends = 16, .receives = 16, .entries = 64, .posted = 4, .depth = 4, .rnr = 7, .retry = 7};

struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *id;
    struct ibv_pd *pd;
    struct ibv_cq *sends, *receives;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    unsigned char *memory;
    struct rdma_conn_param param;
};

static inline struct sockaddr *address_of(uint16_t port)
{
    static struct sockaddr_in address;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
    return (struct sockaddr *)&address;
}

static inline struct sockaddr *at(const char *address, uint16_t port)
{
    static struct sockaddr_in two[2]; /* a call takes two */
    static unsigned turn;
    struct sockaddr_in *in = &two[turn++ % 2];
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
    inet_pton(AF_INET, address, &in->sin_addr);
    return (struct sockaddr *)in;
}

/* The next event; acknowledged at once. Its private data go to `data`. */
static inline struct rdma_cm_event event_with(struct rdma_event_channel *channel, void *data)
{
    struct rdma_cm_event *event, copy;
    if (rdma_get_cm_event(channel, &event) != 0) abort();
    copy = *event;
    if (data != NULL && event->param.conn.private_data_len != 0)
        memcpy(data, event->param.conn.private_data, event->param.conn.private_data_len);
    rdma_ack_cm_event(event);
    return copy;
}
static inline struct rdma_cm_event event(struct rdma_event_channel *channel) { return event_with(channel, NULL); }
static inline int event_kind(struct rdma_event_channel *channel) { return (int)event(channel).event; }

static inline void listens_at(struct end *end, const char *address, int to)
{
    end->channel = rdma_create_event_channel();
    OK(rdma_create_id(end->channel, &end->listener, end, RDMA_PS_TCP));
    OK(rdma_bind_addr(end->listener, at(address, 0)));
    OK(rdma_listen(end->listener, 8));
    uint16_t port = rdma_get_src_port(end->listener);
    put(to, &port, sizeof port);
}
static inline void listens(struct end *end, int to) { listens_at(end, "127.0.0.1", to); }

/* From an address to the same. */
static inline void resolves_at(struct end *end, const char *address, int from)
{
    uint16_t port;
    take(from, &port, sizeof port);
    if (end->channel == NULL) end->channel = rdma_create_event_channel();
    OK(rdma_create_id(end->channel, &end->id, end, RDMA_PS_TCP));
    OK(rdma_resolve_addr(end->id, at(address, 0), at(address, port), 2000));
    IS(event_kind(end->channel), RDMA_CM_EVENT_ADDR_RESOLVED);
    OK(rdma_resolve_route(end->id, 2000));
    IS(event_kind(end->channel), RDMA_CM_EVENT_ROUTE_RESOLVED);
}
static inline void resolves(struct end *end, int from) { resolves_at(end, "127.0.0.1", from); }

static inline int rights(struct options options)
{
    if (options.few) return IBV_ACCESS_LOCAL_WRITE;
    return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static inline int post(struct end *end, uint64_t number, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)end->memory + number * SLOT, length, end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;
    return end->srq != NULL ? ibv_post_srq_recv(end->srq, &wr, &bad) : ibv_post_recv(end->id->qp, &wr, &bad);
}

/* Receives lie in the first half of the memory, what is sent in the second. */
static inline void builds(struct end *end, struct options options)
{
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = (uint32_t)options.receives, .max_sge = 1}};
    end->memory = aligned_alloc(4096, SIZE);
    memset(end->memory, 0, SIZE);
    end->pd = ibv_alloc_pd(end->id->verbs);
    end->sends = ibv_create_cq(end->id->verbs, options.entries, NULL, NULL, 0);
    end->receives = ibv_create_cq(end->id->verbs, options.entries, NULL, NULL, 0);
    if (options.shared) end->srq = ibv_create_srq(end->pd, &shared);
    end->mr = ibv_reg_mr(end->pd, end->memory, SIZE, rights(options));
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
        .send_cq = end->sends,
        .recv_cq = end->receives,
        .srq = end->srq,
        .cap = {.max_send_wr = (uint32_t)options.sends,
            .max_recv_wr = (uint32_t)options.receives,
            .max_send_sge = 2,
            .max_recv_sge = 2,
            .max_inline_data = options.inlined}};
    OK(rdma_create_qp(end->id, end->pd, &init));
    for (int i = 0; i < options.posted; i++) OK(post(end, (uint64_t)i, SLOT));
    end->param = (struct rdma_conn_param){.responder_resources = options.depth,
        .initiator_depth = options.depth,
        .retry_count = options.retry,
        .rnr_retry_count = options.rnr};
    if (options.timeout != 0) OK(rdma_set_option(end->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &options.timeout, 1));
}

/* The parent's end, connected. */
static inline struct end accepts(struct child child, struct options options)
{
    struct end end = {0};
    listens(&end, child.to);
    struct rdma_cm_event request = event(end.channel);
    IS(request.event, RDMA_CM_EVENT_CONNECT_REQUEST);
    IS(request.listen_id == end.listener, true);
    end.id = request.id;
    builds(&end, options);
    OK(rdma_accept(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    return end;
}

/* The child's. */
static inline struct end connects(struct options options)
{
    struct end end = {0};
    resolves(&end, from_parent);
    builds(&end, options);
    OK(rdma_connect(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    return end;
}

static inline void leaves(struct end *end)
{
    if (end->id->qp != NULL) rdma_destroy_qp(end->id);
    OK(rdma_destroy_id(end->id));
    if (end->mr != NULL) OK(ibv_dereg_mr(end->mr));
    if (end->srq != NULL) OK(ibv_destroy_srq(end->srq));
    OK(ibv_destroy_cq(end->sends));
    OK(ibv_destroy_cq(end->receives));
    OK(ibv_dealloc_pd(end->pd));
    if (end->listener != NULL) OK(rdma_destroy_id(end->listener));
    rdma_destroy_event_channel(end->channel);
    free(end->memory);
}

/* A send work request of the second half of the memory. */
static inline struct ibv_send_wr work(struct end *end, struct ibv_sge *sge, enum ibv_wr_opcode opcode, uint32_t length)
{
    *sge = (struct ibv_sge){(uintptr_t)end->memory + SIZE / 2, length, end->mr->lkey};
    return (struct ibv_send_wr){.wr_id = 7, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
}
static inline int posts(struct end *end, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad = NULL;
    return ibv_post_send(end->id->qp, wr, &bad);
}
static inline int sends(struct end *end, uint32_t length, unsigned flags)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = work(end, &sge, IBV_WR_SEND, length);
    wr.send_flags = flags;
    return posts(end, &wr);
}

/* The next completion there; waits for it. */
static inline struct ibv_wc completion(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) sched_yield();
    IS(count, 1);
    return wc;
}
static inline int status_of(struct ibv_cq *cq) { return (int)completion(cq).status; }

/* Keys of memory that the other end may use. */
struct remote { uint64_t address; uint64_t key; };
static inline struct remote shows(struct end *end, int to)
{
    struct remote remote = {(uintptr_t)end->memory, end->mr->rkey};
    put(to, &remote, sizeof remote);
    return remote;
}

static inline void expect_disconnected(struct end *end)
{
    int kind = event_kind(end->channel);
    while (kind == RDMA_CM_EVENT_TIMEWAIT_EXIT) kind = event_kind(end->channel);
    IS(kind, RDMA_CM_EVENT_DISCONNECTED);
}

/* Both ends part: the child first. */
static inline void parts_first(struct end *end)
{
    OK(rdma_disconnect(end->id));
    expect_disconnected(end);
    leaves(end);
}
static inline void parts_then(struct end *end)
{
    expect_disconnected(end);
    OK(rdma_disconnect(end->id));
    leaves(end);
}

#endif
