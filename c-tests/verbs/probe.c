/* What a device really does, asked over rdma_cm between two nodes.
 *
 *   probe server ADDRESS PORT        probe client ADDRESS PORT
 *
 * One RC queue pair per question group; a TCP socket on PORT+1 keeps the two ends in step.
 * Prints one line per fact: "fact: value". Exits 1 if an operation that must work does not. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int server, wire, failures;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct sockaddr_in address;
static char *memory;
enum { SIZE = 1 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void fact(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fact(const char *name, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("%s %-44s ", server ? "server" : "client", name);
    vprintf(format, list);
    putchar('\n');
    fflush(stdout);
    va_end(list);
}

#define NEED(c, what) \
    do { \
        if (!(c)) { \
            printf("%s FAILED %s: %s\n", server ? "server" : "client", what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)
/* Both ends meet. */
static void step(void)
{
    char c = 1;
    NEED(write(wire, &c, 1) == 1 && read(wire, &c, 1) == 1, "meeting");
}

static uint64_t swap(uint64_t mine)
{
    uint64_t theirs;
    NEED(write(wire, &mine, 8) == 8 && recv(wire, &theirs, 8, MSG_WAITALL) == 8, "exchange");
    return theirs;
}

struct end {
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *sends, *receives;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    uint32_t inline_data;
    double began;
};
enum { WITH_SRQ = 1 };

static struct rdma_cm_event wait_event(int *kind)
{
    struct rdma_cm_event *e, copy;
    struct pollfd p = {channel->fd, POLLIN, 0};
    memset(&copy, 0, sizeof copy);
    if (poll(&p, 1, 20000) != 1) {
        *kind = -1;
        return copy;
    }
    NEED(!rdma_get_cm_event(channel, &e), "event");
    copy = *e;
    *kind = e->event;
    rdma_ack_cm_event(e);
    return copy;
}

static int post(struct end *e, uint64_t offset, uint32_t length, int sges, uint64_t id)
{
    struct ibv_sge s = {(uintptr_t)memory + offset, length, e->mr->lkey};
    struct ibv_recv_wr w = {.wr_id = id, .sg_list = sges ? &s : NULL, .num_sge = sges}, *bad;
    return e->srq ? ibv_post_srq_recv(e->srq, &w, &bad) : ibv_post_recv(e->id->qp, &w, &bad);
}

static int post_send(struct end *e, enum ibv_wr_opcode op, uint64_t offset, uint32_t length, int flags, uint64_t raddr,
    uint32_t rkey, uint64_t a, uint64_t b)
{
    struct ibv_sge s = {(uintptr_t)memory + offset, length, e->mr->lkey};
    struct ibv_send_wr w = {.wr_id = 7,
                           .sg_list = &s,
                           .num_sge = length ? 1 : 0,
                           .opcode = op,
                           .send_flags = IBV_SEND_SIGNALED | flags},
                       *bad;
    w.imm_data = htonl(0x1234);
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
        w.wr.atomic.remote_addr = raddr;
        w.wr.atomic.rkey = rkey;
        w.wr.atomic.compare_add = a;
        w.wr.atomic.swap = b;
    } else {
        w.wr.rdma.remote_addr = raddr;
        w.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(e->id->qp, &w, &bad);
}

static struct ibv_wc wait_wc(struct ibv_cq *cq, double ms, int *got)
{
    struct ibv_wc w;
    double end = now() + ms;
    memset(&w, 0, sizeof w);
    while (!(*got = ibv_poll_cq(cq, 1, &w)) && now() < end) usleep(50);
    return w;
}

static void build(struct end *e, int flags)
{
    struct ibv_srq_init_attr sa = {.attr = {.max_wr = 64, .max_sge = 1}};
    e->pd = ibv_alloc_pd(e->id->verbs);
    e->sends = ibv_create_cq(e->id->verbs, 256, NULL, NULL, 0);
    e->receives = ibv_create_cq(e->id->verbs, 256, NULL, NULL, 0);
    NEED(e->pd && e->sends && e->receives, "PD and CQ");
    e->srq = NULL;
    if (flags & WITH_SRQ) NEED(e->srq = ibv_create_srq(e->pd, &sa), "ibv_create_srq");
    e->mr = ibv_reg_mr(e->pd, memory, SIZE,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    if (!e->mr)
        e->mr = ibv_reg_mr(e->pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    NEED(e->mr, "ibv_reg_mr");
    for (uint32_t size = 1024;; size /= 2) {
        struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
            .send_cq = e->sends,
            .recv_cq = e->receives,
            .srq = e->srq,
            .cap = {.max_send_wr = 64,
                .max_recv_wr = e->srq ? 0 : 64,
                .max_send_sge = 1,
                .max_recv_sge = e->srq ? 0 : 1,
                .max_inline_data = size}};
        if (!rdma_create_qp(e->id, e->pd, &a)) {
            e->inline_data = size ? a.cap.max_inline_data : 0;
            break;
        }
        NEED(size, "rdma_create_qp");
    }
}
/* Connects one queue pair; `before` posts this many receives of kind `sges` before the connection is there. */
static void join(struct end *e, int flags, int rnr, int before, int sges, uint32_t length)
{
    struct rdma_conn_param p = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = rnr};
    uint8_t data[56] = "hawser";
    int kind;
    memset(e, 0, sizeof *e);
    p.private_data = data;
    p.private_data_len = sizeof data;
    e->began = now();
    if (!server) {
        usleep(100000);
        NEED(!rdma_create_id(channel, &e->id, NULL, RDMA_PS_TCP) && !rdma_resolve_addr(e->id, NULL, (void *)&address, 2000),
            "rdma_resolve_addr");
        wait_event(&kind);
        NEED(kind == RDMA_CM_EVENT_ADDR_RESOLVED && !rdma_resolve_route(e->id, 2000), "address");
        wait_event(&kind);
        NEED(kind == RDMA_CM_EVENT_ROUTE_RESOLVED, "route");
    } else {
        struct rdma_cm_event ev = wait_event(&kind);
        NEED(kind == RDMA_CM_EVENT_CONNECT_REQUEST, "request");
        e->id = ev.id;
    }
    build(e, flags);
    for (int i = 0; i < before; i++) {
        int r = post(e, 4096 * i, length, sges, 100 + i);
        if (i == 0)
            fact(
                sges ? "post 1-SGE receive before connect" : "post 0-SGE receive before connect", "%d (%s)", r, strerror(r));
    }
    if (server) NEED(!rdma_accept(e->id, &p), "accept");
    else NEED(!rdma_connect(e->id, &p), "connect");
    do wait_event(&kind);
    while (kind == RDMA_CM_EVENT_TIMEWAIT_EXIT || kind == RDMA_CM_EVENT_DISCONNECTED);
    NEED(kind == RDMA_CM_EVENT_ESTABLISHED, "established");
    step();
}

static void leave(struct end *e)
{
    int kind;
    step();
    if (!server) rdma_disconnect(e->id);
    do wait_event(&kind);
    while (kind != RDMA_CM_EVENT_DISCONNECTED && kind != -1);
    if (server) rdma_disconnect(e->id);
    rdma_destroy_qp(e->id);
    ibv_dereg_mr(e->mr);
    ibv_destroy_cq(e->sends);
    ibv_destroy_cq(e->receives);
    if (e->srq) ibv_destroy_srq(e->srq);
    ibv_dealloc_pd(e->pd);
    rdma_destroy_id(e->id);
    step();
}

static struct ibv_context *watched;
static double limit_seen;
static void *watch(void *unused)
{
    struct ibv_async_event e;
    while (!ibv_get_async_event(watched, &e)) {
        if (e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) limit_seen = now();
        fact("async event", "%s", ibv_event_type_str(e.event_type));
        ibv_ack_async_event(&e);
    }
    return unused;
}

static const char *status(struct ibv_wc w, int got) { return got == 1 ? ibv_wc_status_str(w.status) : "nothing"; }

static void limits(struct end *e)
{
    struct ibv_device_attr a;
    struct ibv_qp_attr q;
    struct ibv_qp_init_attr qi;
    ibv_query_device(e->id->verbs, &a);
    fact("device, transport", "%s %d", ibv_get_device_name(e->id->verbs->device), e->id->verbs->device->transport_type);
    fact("max qp/cq/mr/srq, qp_wr, sge", "%d %d %d %d, %d, %d", a.max_qp, a.max_cq, a.max_mr, a.max_srq, a.max_qp_wr,
        a.max_sge);
    fact("srq_wr, rd_atom, atomic_cap", "%d %d %d", a.max_srq_wr, a.max_qp_rd_atom, a.atomic_cap);
    fact("inline data accepted (asked 1024)", "%u", e->inline_data);
    fact("connect time", "%.1f ms", now() - e->began);
    if (!ibv_query_qp(e->id->qp, &q,
            IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_PATH_MTU,
            &qi))
        fact("QP after rdma_cm", "state %d, min_rnr_timer %d, rnr_retry %d, timeout %d, retry %d, mtu %d", q.qp_state,
            q.min_rnr_timer, q.rnr_retry, q.timeout, q.retry_cnt, q.path_mtu);
}

static void zero(int sges, const char *name)
{
    struct end e;
    int got;
    join(&e, 0, 0, 1, sges, 0);
    if (sges == 0) limits(&e);
    if (!server) {
        int r = post_send(&e, IBV_WR_SEND, 0, 0, 0, 0, 0, 0, 0);
        struct ibv_wc w = wait_wc(e.sends, 3000, &got);
        fact(name, "post %d, send completion: %s", r, status(w, got));
    } else {
        struct ibv_wc w = wait_wc(e.receives, 3000, &got);
        fact(name, "receive completion: %s, %u bytes", status(w, got), w.byte_len);
    }
    leave(&e);
}

static void rdma(void)
{
    struct end e;
    int got;
    uint64_t raddr;
    uint32_t rkey;
    join(&e, 0, 7, 4, 1, 4096);
    raddr = swap((uintptr_t)memory);
    rkey = (uint32_t)swap(e.mr->rkey);
    memset(memory, server ? 0 : 0x5a, SIZE);
    step();
    if (!server) {
        struct ibv_wc w;
        int r = post_send(&e, IBV_WR_SEND, 0, 5, IBV_SEND_INLINE, 0, 0, 0, 0);
        w = wait_wc(e.sends, 3000, &got);
        fact("inline send of 5 bytes", "post %d, %s", r, status(w, got));
        r = post_send(&e, IBV_WR_SEND_WITH_IMM, 0, 64, 0, 0, 0, 0, 0);
        if (!r) w = wait_wc(e.sends, 3000, &got);
        fact("send with immediate", "post %d, %s", r, r ? "refused" : status(w, got));
        r = post_send(&e, IBV_WR_RDMA_WRITE, 0, 256 << 10, 0, raddr, rkey, 0, 0);
        w = wait_wc(e.sends, 5000, &got);
        fact("RDMA write 256 KiB", "post %d, %s", r, status(w, got));
        memset(memory, 0, 256 << 10);
        r = post_send(&e, IBV_WR_RDMA_READ, 0, 256 << 10, 0, raddr, rkey, 0, 0);
        w = wait_wc(e.sends, 5000, &got);
        fact(
            "RDMA read 256 KiB", "post %d, %s, last byte 0x%02x", r, status(w, got), (unsigned char)memory[(256 << 10) - 1]);
        step();
        r = post_send(&e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 64, 0, raddr, rkey, 0, 0);
        if (!r) w = wait_wc(e.sends, 3000, &got);
        fact("RDMA write with immediate", "post %d, %s", r, r ? "refused" : status(w, got));
        r = post_send(&e, IBV_WR_ATOMIC_FETCH_AND_ADD, 4096, 8, 0, raddr + (512 << 10), rkey, 5, 0);
        if (!r) w = wait_wc(e.sends, 3000, &got);
        fact("fetch and add", "post %d, %s, old value %lld", r, r ? "refused" : status(w, got),
            (long long)*(uint64_t *)(memory + 4096));
        if (!r && got == 1 && !w.status) {
            r = post_send(&e, IBV_WR_ATOMIC_CMP_AND_SWP, 4096, 8, 0, raddr + (512 << 10), rkey, 5, 99);
            w = wait_wc(e.sends, 3000, &got);
            fact("compare and swap", "post %d, %s, old value %lld", r, status(w, got),
                (long long)*(uint64_t *)(memory + 4096));
        }
        step();
        w = wait_wc(e.sends, 0, &got);
        r = post_send(&e, IBV_WR_RDMA_WRITE, 0, 64, 0, raddr, rkey ^ 0x55, 0, 0);
        w = wait_wc(e.sends, 3000, &got);
        fact("RDMA write with a wrong key", "post %d, %s", r, status(w, got));
    } else {
        struct ibv_wc w = wait_wc(e.receives, 5000, &got);
        fact("inline send received", "%s, %u bytes", status(w, got), w.byte_len);
        step();
        fact("after RDMA write", "last byte 0x%02x", (unsigned char)memory[(256 << 10) - 1]);
        step();
        fact("atomic word", "%lld", (long long)*(uint64_t *)(memory + (512 << 10)));
        while ((w = wait_wc(e.receives, 100, &got)), got == 1)
            fact("receive completion", "opcode %d, %s, flags 0x%x, imm 0x%x, %u bytes", w.opcode, status(w, got), w.wc_flags,
                ntohl(w.imm_data), w.byte_len);
    }
    leave(&e);
}

static void private_queue_without_buffer(int rnr)
{
    struct end e;
    int got;
    double began;
    join(&e, 0, rnr, 0, 1, 0);
    began = now();
    if (!server) {
        post_send(&e, IBV_WR_SEND, 0, 64, 0, 0, 0, 0, 0);
        struct ibv_wc w = wait_wc(e.sends, 8000, &got);
        fact("private queue, no buffer", "rnr_retry %d: %s after %.1f ms", rnr, status(w, got), now() - began);
    } else {
        int r;
        usleep(300000);
        r = post(&e, 0, 4096, 1, 1);
        struct ibv_wc w = wait_wc(e.receives, 4000, &got);
        fact("private queue, buffer 300 ms late", "post %d, %s", r, status(w, got));
    }
    leave(&e);
}

static void shared_queue(int timer)
{
    struct end e;
    int got;
    join(&e, WITH_SRQ, 7, 0, 1, 0);
    if (server) {
        struct ibv_srq_attr limit = {.srq_limit = 4};
        struct ibv_qp_attr a = {.min_rnr_timer = timer};
        static pthread_t thread;
        if (timer >= 0) {
            int r = ibv_modify_qp(e.id->qp, &a, IBV_QP_MIN_RNR_TIMER);
            fact("min_rnr_timer after connect", "code %d: %d (%s)", timer, r, strerror(r));
        }
        if (!watched) {
            watched = e.id->verbs;
            pthread_create(&thread, NULL, watch, NULL);
        }
        for (int i = 0; i < 8; i++) NEED(!post(&e, 4096 * i, 4096, 1, i), "post SRQ");
        int r = ibv_modify_srq(e.srq, &limit, IBV_SRQ_LIMIT);
        fact("arm SRQ limit 4 of 8", "%d (%s)", r, strerror(r));
        step();
        for (int i = 0; i < 8; i++) {
            wait_wc(e.receives, 3000, &got);
            NEED(got == 1, "SRQ receive");
        }
        usleep(100000);
        fact("SRQ limit event", "%s", limit_seen ? "came" : "did not come");
        limit_seen = 0;
        step();
        usleep(100000);
        for (int i = 0; i < 8; i++) post(&e, 4096 * i, 4096, 1, i);
        struct ibv_wc w = wait_wc(e.receives, 5000, &got);
        fact("SRQ refilled 100 ms late", "%s", status(w, got));
    } else {
        step();
        for (int i = 0; i < 8; i++) post_send(&e, IBV_WR_SEND, 0, 1024, 0, 0, 0, 0, 0);
        for (int i = 0; i < 8; i++) wait_wc(e.sends, 3000, &got);
        step();
        double began = now();
        post_send(&e, IBV_WR_SEND, 0, 1024, 0, 0, 0, 0, 0);
        struct ibv_wc w = wait_wc(e.sends, 8000, &got);
        fact("send to an empty SRQ", "timer code %d: %s after %.1f ms", timer, status(w, got), now() - began);
    }
    leave(&e);
}

static void refusals(void)
{
    struct rdma_cm_id *id;
    int kind;
    struct sockaddr_in nobody = address;
    struct rdma_conn_param p = {.responder_resources = 1, .initiator_depth = 1};
    if (!server) {
        nobody.sin_port = htons(ntohs(address.sin_port) + 77);
        for (int round = 0; round < 2; round++) {
            struct end e;
            memset(&e, 0, sizeof e);
            rdma_create_id(channel, &e.id, NULL, RDMA_PS_TCP);
            id = e.id;
            rdma_resolve_addr(id, NULL, (void *)(round ? &address : &nobody), 2000);
            wait_event(&kind);
            rdma_resolve_route(id, 2000);
            wait_event(&kind);
            build(&e, 0);
            if (round) step();
            double began = now();
            int r = rdma_connect(id, &p);
            struct rdma_cm_event ev = wait_event(&kind);
            fact(round ? "rejected with 6 bytes" : "nobody listens", "connect %d, %s status %d, private %d bytes, %.1f ms",
                r, kind < 0 ? "nothing" : rdma_event_str(kind), ev.status, ev.param.conn.private_data_len, now() - began);
            rdma_destroy_qp(id);
            rdma_destroy_id(id);
        }
    } else {
        step();
        struct rdma_cm_event ev = wait_event(&kind);
        NEED(kind == RDMA_CM_EVENT_CONNECT_REQUEST, "request to reject");
        int r = rdma_reject(ev.id, "wrong", 6);
        fact("rdma_reject", "%d", r);
        rdma_destroy_id(ev.id);
    }
    step();
}

int main(int count, char **arguments)
{
    int on = 1, l;
    if (count != 4) return 2;
    server = arguments[1][0] == 's';
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(arguments[3]))};
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    memory = aligned_alloc(4096, SIZE);
    struct sockaddr_in tcp = address;
    tcp.sin_port = htons(atoi(arguments[3]) + 1);
    NEED(channel = rdma_create_event_channel(), "event channel");
    if (server) {
        l = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        NEED(!bind(l, (void *)&tcp, sizeof tcp) && !listen(l, 1), "TCP listen");
        NEED(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) && !rdma_bind_addr(listener, (void *)&address) &&
                !rdma_listen(listener, 8),
            "rdma_listen");
        wire = accept(l, NULL, NULL);
    } else {
        for (int i = 0; i < 100; i++) {
            wire = socket(AF_INET, SOCK_STREAM, 0);
            if (!connect(wire, (void *)&tcp, sizeof tcp)) break;
            close(wire);
            usleep(50000);
        }
    }
    setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    zero(0, "zero-byte send into a 0-SGE receive");
    zero(1, "zero-byte send into a 1-SGE receive of 0");
    rdma();
    refusals();
    shared_queue(-1);
    shared_queue(12);
    private_queue_without_buffer(7);
    private_queue_without_buffer(0);
    return failures;
}
