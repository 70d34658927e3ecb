/* What goes wrong, and who hears of it. */
#define _GNU_SOURCE
#include "ends.h"

#include <sys/mman.h>
#include <sys/stat.h>

/* --- a message without a receive */

static void sends_too_early(void)
{
    struct end end = connects(usual);
    OK(sends(&end, 8, IBV_SEND_SIGNALED));
    OK(sends(&end, 16, IBV_SEND_SIGNALED));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    if (!iwarp()) IS(status_of(end.sends), IBV_WC_SUCCESS); /* both are there, in order */
    tell(to_parent);
    await(from_parent);
    if (!iwarp()) {
        parts_first(&end);
    } else { /* it was told that its message went, and the connection ended */
        expect_disconnected(&end);
        IS(end.id->qp->state, IBV_QPS_ERR);
        leaves(&end);
    }
}
static void a_late_receive(void)
{
    struct child child = family(sends_too_early);
    struct options options = usual;
    options.posted = 0;
    struct end end = accepts(child, options);
    if (iwarp()) {
        expect_disconnected(&end);
        await(child.from);
        tell(child.to);
        leaves(&end);
    } else {
        struct ibv_qp_attr attr = {.min_rnr_timer = 12};
        OK(ibv_modify_qp(end.id->qp, &attr, IBV_QP_MIN_RNR_TIMER));
        usleep(50000);
        OK(post(&end, 0, SLOT));
        OK(post(&end, 1, SLOT));
        IS(completion(end.receives).byte_len, 8);
        IS(completion(end.receives).byte_len, 16);
        await(child.from);
        tell(child.to);
        parts_then(&end);
    }
    join(child);
}

static void gives_up(void)
{
    struct end end = connects(usual);
    await(from_parent);
    OK(sends(&end, 8, 0));
    OK(sends(&end, 8, IBV_SEND_SIGNALED));
    if (iwarp()) {
        expect_disconnected(&end);
    } else {
        IS(status_of(end.sends), IBV_WC_RNR_RETRY_EXC_ERR); /* though it is not signalled */
        IS(status_of(end.sends), IBV_WC_WR_FLUSH_ERR);
    }
    tell(to_parent);
    leaves(&end);
}
static void no_receive_and_no_patience(void)
{
    struct child child = family(gives_up);
    struct options options = usual;
    options.posted = 0;
    options.rnr = 0; /* the peer's patience is what this end says */
    struct end end = accepts(child, options);
    tell(child.to);
    await(child.from);
    parts_then(&end);
    join(child);
}

/* --- a request that may not be */

enum mischief { WRONG_KEY, TOO_FAR, NO_RIGHT, GONE, TOO_LONG, OTHER_DOMAIN, MISCHIEFS };
static int mischief;

static void does_mischief(void)
{
    struct end end = connects(usual);
    struct remote remote;
    struct ibv_sge sge;
    take(from_parent, &remote, sizeof remote);
    struct ibv_send_wr wr = work(&end, &sge, IBV_WR_RDMA_WRITE, 64);
    wr.wr.rdma.remote_addr = remote.address;
    wr.wr.rdma.rkey = (uint32_t)remote.key;
    if (mischief == WRONG_KEY) wr.wr.rdma.rkey ^= 0x55;
    if (mischief == TOO_FAR) wr.wr.rdma.remote_addr += SIZE - 63;
    if (mischief == TOO_LONG) {
        wr.opcode = IBV_WR_SEND;
        sge.length = SLOT + 1;
    }
    OK(posts(&end, &wr));
    int wanted = mischief == TOO_LONG ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR;
    IS(status_of(end.sends), iwarp() ? IBV_WC_SUCCESS : wanted);
    for (int i = 0; i < 4; i++) IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    if (iwarp()) expect_disconnected(&end);
    tell(to_parent);
    leaves(&end);
}
static void a_request_may_not(int what)
{
    mischief = what;
    struct child child = family(does_mischief);
    struct options options = usual;
    options.few = what == NO_RIGHT;
    struct end end = accepts(child, options);
    struct remote remote = {(uintptr_t)end.memory, end.mr->rkey};
    struct ibv_pd *pd = ibv_alloc_pd(end.id->verbs);
    struct ibv_mr *gone = ibv_reg_mr(end.pd, end.memory, SLOT, rights(usual)),
                  *other = ibv_reg_mr(pd, end.memory, SLOT, rights(usual));
    if (what == GONE) remote.key = gone->rkey;
    if (what == OTHER_DOMAIN) remote.key = other->rkey;
    OK(ibv_dereg_mr(gone));
    memset(end.memory, 0x11, SIZE);
    put(child.to, &remote, sizeof remote);
    if (what == TOO_LONG) IS(status_of(end.receives), IBV_WC_LOC_LEN_ERR);
    for (int i = what == TOO_LONG; i < 4; i++) IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    for (int i = 0; i < SIZE; i++) failures += end.memory[i] != 0x11;
    IS(failures, 0);
    await(child.from);
    expect_disconnected(&end);
    OK(ibv_dereg_mr(other));
    OK(ibv_dealloc_pd(pd));
    leaves(&end);
    join(child);
}
static void a_wrong_key(void) { a_request_may_not(WRONG_KEY); }
static void too_far(void) { a_request_may_not(TOO_FAR); }
static void no_right(void) { a_request_may_not(NO_RIGHT); }
static void a_region_that_has_ended(void) { a_request_may_not(GONE); }
static void too_long(void) { a_request_may_not(TOO_LONG); }
static void another_domain(void) { a_request_may_not(OTHER_DOMAIN); }

/* --- its own memory */

static void sends_what_it_may_not(void)
{
    struct end end = connects(usual);
    struct ibv_sge sge;
    struct ibv_send_wr wr = work(&end, &sge, IBV_WR_SEND, 64);
    sge.lkey ^= 0x80; /* that is the other key */
    OK(posts(&end, &wr));
    IS(status_of(end.sends), IBV_WC_LOC_PROT_ERR);
    OK(sends(&end, 8, 0));
    IS(status_of(end.sends), IBV_WC_WR_FLUSH_ERR);
    tell(to_parent);
    leaves(&end);
}
static void a_wrong_local_key(void)
{
    struct child child = family(sends_what_it_may_not);
    struct end end = accepts(child, usual);
    await(child.from);
    parts_then(&end);
    join(child);
}

/* Memory that was unmapped is not the region's any more, though the addresses are there again: who uses it ends. */
static void sends_from_new_memory(void)
{
    struct end end = connects(usual);
    char *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = ibv_reg_mr(end.pd, bytes, SIZE, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge sge = {(uintptr_t)bytes + 100, 64, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    OK(posts(&end, &wr));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    if (munmap(bytes, SIZE) != 0 ||
        mmap(bytes, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != bytes)
        abort();
    /* A new region there is one again, and does not hide the old one's end. */
    struct ibv_mr *again = ibv_reg_mr(end.pd, bytes + SIZE / 2, SIZE / 2, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge fresh = {(uintptr_t)bytes + SIZE / 2, 64, again->lkey};
    wr.sg_list = &fresh;
    OK(posts(&end, &wr));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    tell(to_parent);
    signal(SIGABRT, SIG_DFL);
    wr.sg_list = &sge;
    posts(&end, &wr);
    completion(end.sends);
}
static void stale_memory(void)
{
    struct child child = family(sends_from_new_memory);
    struct end end = accepts(child, usual);
    int status;
    await(child.from);
    expect_disconnected(&end);
    waitpid(child.pid, &status, 0);
    IS(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGABRT);
    leaves(&end);
}

/* --- a peer that does not answer */

static void ends_its_queue_pair(void)
{
    struct end end = connects(usual);
    rdma_destroy_qp(end.id);
    tell(to_parent);
    await(from_parent);
    leaves(&end);
}
static void a_silent_peer(void)
{
    struct child child = family(ends_its_queue_pair);
    struct options options = usual;
    options.timeout = 10; /* 4 ms, three times */
    options.retry = 2;
    struct end end = accepts(child, options);
    await(child.from);
    if (iwarp()) {
        expect_disconnected(&end);
    } else {
        OK(sends(&end, 8, IBV_SEND_SIGNALED));
        IS(status_of(end.sends), IBV_WC_RETRY_EXC_ERR);
    }
    tell(child.to);
    if (!iwarp()) expect_disconnected(&end);
    leaves(&end);
    join(child);
}

/* One that is only stopped keeps its connection. */
static void is_stopped(void)
{
    struct end end = connects(usual);
    raise(SIGSTOP);
    IS(status_of(end.receives), IBV_WC_SUCCESS);
    tell(to_parent);
    await(from_parent);
    parts_first(&end);
}
static void a_stopped_peer(void)
{
    struct child child = family(is_stopped);
    struct options options = usual;
    struct ibv_wc wc;
    options.timeout = 8; /* 1 ms, eight times */
    struct end end = accepts(child, options);
    waitpid(child.pid, NULL, WUNTRACED);
    if (iwarp()) { /* the child speaks first, and it does not */
        kill(child.pid, SIGKILL);
        waitpid(child.pid, NULL, 0);
        expect_disconnected(&end);
        leaves(&end);
        return;
    }
    OK(sends(&end, 8, IBV_SEND_SIGNALED));
    usleep(200000);
    IS(ibv_poll_cq(end.sends, 1, &wc), 0);
    kill(child.pid, SIGCONT);
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    await(child.from);
    tell(child.to);
    parts_then(&end);
    join(child);
}

/* --- the device */

/* Files of HAWSER_VERBS_CONTROL, of what is called so. */
static void control_of(const char *name, const char *what, bool there)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", getenv("HAWSER_VERBS_CONTROL"), what, name);
    if (there) close(open(path, O_CREAT | O_WRONLY, 0600));
    else unlink(path);
}
static void control(const char *what, bool there) { control_of(iwarp() ? "siw1" : "rxe1", what, there); }

static void waits_behind_the_link(void)
{
    struct options options = usual;
    options.timeout = 10;
    options.retry = 2;
    struct end end = connects(options);
    tell(to_parent);
    await(from_parent);
    OK(sends(&end, 8, IBV_SEND_SIGNALED));
    if (iwarp()) IS(status_of(end.sends), IBV_WC_SUCCESS); /* when the link is there again */
    else IS(status_of(end.sends), IBV_WC_RETRY_EXC_ERR);
    tell(to_parent);
    if (!iwarp()) expect_disconnected(&end);
    await(from_parent);
    leaves(&end);
}
/* Its own port is down, or up again, and says so. */
static void hears_of_port(const struct end *end, int number, bool down)
{
    struct ibv_async_event async;
    OK(ibv_get_async_event(end->id->verbs, &async));
    IS(async.event_type, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
    IS(async.element.port_num, number);
    ibv_ack_async_event(&async);
}
static void port_goes(const struct end *end, bool down)
{
    control("port-down", down);
    hears_of_port(end, 1, down);
}

/* Whoever ends the queue pair before TCP has connected: the request was made when it was asked for, and is answered. */
static void a_link_is_down_while_it_connects(void)
{
    int port[2];
    struct end end = {0};
    if (pipe(port) != 0) abort();
    listens(&end, port[1]);
    resolves(&end, port[0]);
    builds(&end, usual);
    uint32_t number = end.id->qp->qp_num;
    port_goes(&end, true);
    OK(rdma_connect(end.id, &end.param));
    rdma_destroy_qp(end.id);
    port_goes(&end, false);
    struct rdma_cm_event request = event(end.channel);
    IS(request.event, RDMA_CM_EVENT_CONNECT_REQUEST);
    IS(request.param.conn.qp_num, number);
    OK(rdma_reject(request.id, NULL, 0));
    OK(rdma_destroy_id(request.id));
    IS(event_kind(end.channel), RDMA_CM_EVENT_REJECTED);
    leaves(&end);
    close(port[0]);
    close(port[1]);
}

static void a_link_goes_down(void)
{
    struct options options = usual;
    struct child child = family(waits_behind_the_link);
    struct ibv_wc wc;
    struct end end = accepts(child, options);
    await(child.from);
    port_goes(&end, true);
    struct ibv_port_attr port;
    OK(ibv_query_port(end.id->verbs, 1, &port));
    IS(port.state, IBV_PORT_DOWN);
    tell(child.to);
    /* Whoever has nothing under way hears nothing. */
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    IS(poll(&poll_on, 1, 300), 0);
    IS(ibv_poll_cq(end.receives, 1, &wc), 0);
    if (!iwarp()) await(child.from);
    port_goes(&end, false);
    if (iwarp()) {
        IS(status_of(end.receives), IBV_WC_SUCCESS);
        await(child.from);
        tell(child.to);
        parts_then(&end);
    } else {
        OK(rdma_disconnect(end.id));
        tell(child.to);
        expect_disconnected(&end);
        leaves(&end);
    }
    join(child);
}

/* Of two ports the second goes, and comes again: what goes by the first does not notice. */
static void sends_by_two_ports(void)
{
    struct options options = usual;
    struct end ends[2] = {{0}, {0}};
    options.timeout = 10;
    options.retry = 2;
    for (int i = 0; i < 2; i++) {
        resolves_at(&ends[i], i == 0 ? "127.0.0.1" : "127.0.0.2", from_parent);
        builds(&ends[i], options);
        OK(rdma_connect(ends[i].id, &ends[i].param));
        IS(event_kind(ends[i].channel), RDMA_CM_EVENT_ESTABLISHED);
    }
    tell(to_parent);
    await(from_parent);
    for (int i = 1; i >= 0; i--) OK(sends(&ends[i], 8, IBV_SEND_SIGNALED));
    IS(status_of(ends[0].sends), IBV_WC_SUCCESS);
    IS(status_of(ends[1].sends), iwarp() ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
    tell(to_parent);
    for (int i = 0; i < 2; i++) {
        expect_disconnected(&ends[i]);
        leaves(&ends[i]);
    }
}
static void both_are(struct ibv_context *verbs, enum ibv_port_state first, enum ibv_port_state second)
{
    struct ibv_port_attr port;
    OK(ibv_query_port(verbs, 1, &port));
    IS(port.state, first);
    OK(ibv_query_port(verbs, 2, &port));
    IS(port.state, second);
}
static void a_link_of_two_goes_down(void)
{
    struct child child = family(sends_by_two_ports);
    struct end ends[2] = {{0}, {0}};
    struct ibv_wc wc;
    for (int i = 0; i < 2; i++) {
        listens_at(&ends[i], i == 0 ? "127.0.0.1" : "127.0.0.2", child.to);
        ends[i].id = event(ends[i].channel).id;
        builds(&ends[i], usual);
        OK(rdma_accept(ends[i].id, &ends[i].param));
        IS(event_kind(ends[i].channel), RDMA_CM_EVENT_ESTABLISHED);
    }
    await(child.from);
    control_of("both.2", "port-down", true);
    hears_of_port(&ends[0], 2, true);
    both_are(ends[0].id->verbs, IBV_PORT_ACTIVE, IBV_PORT_DOWN);
    tell(child.to);
    IS(status_of(ends[0].receives), IBV_WC_SUCCESS);
    await(child.from);
    IS(ibv_poll_cq(ends[1].receives, 1, &wc), 0);
    control_of("both.2", "port-down", false);
    hears_of_port(&ends[0], 2, false);
    if (iwarp()) IS(status_of(ends[1].receives), IBV_WC_SUCCESS);
    control_of("both", "port-down", true);
    hears_of_port(&ends[0], 1, true);
    both_are(ends[0].id->verbs, IBV_PORT_DOWN, IBV_PORT_ACTIVE);
    control_of("both", "port-down", false);
    hears_of_port(&ends[0], 1, false);
    for (int i = 0; i < 2; i++) OK(rdma_disconnect(ends[i].id));
    for (int i = 0; i < 2; i++) {
        expect_disconnected(&ends[i]);
        leaves(&ends[i]);
    }
    join(child);
}

/* The device says that it does not work any more. */
static void hears_the_last(const struct end *end)
{
    struct ibv_async_event async;
    OK(ibv_get_async_event(end->id->verbs, &async));
    IS(async.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&async);
}

/* One that only says so is there, and nobody is told of an end. */
static void hears_of_the_device(void)
{
    struct end end = connects(usual);
    tell(to_parent);
    hears_the_last(&end);
    await(from_parent);
    leaves(&end);
}
static void a_device_fails(void)
{
    struct child child = family(hears_of_the_device);
    struct end end = accepts(child, usual);
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    await(child.from);
    control("failed", true);
    hears_the_last(&end);
    tell(child.to);
    join(child);
    IS(poll(&poll_on, 1, 300), 0);
    IS(end.id->qp->state, IBV_QPS_RTS);
    leaves(&end);
}

static void waits_for_the_end(void)
{
    struct end end = connects(usual);
    tell(to_parent);
    await(from_parent);
    struct rdma_cm_event removal = event(end.channel);
    IS(removal.event, RDMA_CM_EVENT_DEVICE_REMOVAL);
    IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    leaves(&end);
}
static void a_device_goes(void)
{
    struct child child = family(waits_for_the_end);
    struct end end = accepts(child, usual);
    await(child.from);
    control("removed", true);
    hears_the_last(&end);
    tell(child.to);
    for (int i = 0; i < 2; i++) { /* the listener's, and its own */
        struct rdma_cm_event removal = event(end.channel);
        IS(removal.event, RDMA_CM_EVENT_DEVICE_REMOVAL);
        IS(removal.id == end.id || removal.id == end.listener, true);
    }
    NONE(ibv_alloc_pd(end.id->verbs), EIO);
    leaves(&end);
    join(child);
}

/* --- by order: the script's HAWSER_VERBS_FAULTS */

static void faults(void)
{
    struct end end = {.channel = rdma_create_event_channel()};
    struct rdma_cm_event answer;
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    OK(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
    FAILS(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP), ENOMEM);
    for (int i = 0; i < 2; i++) {
        OK(rdma_resolve_addr(end.id, NULL, address_of(htons(1)), 1000));
        answer = event(end.channel);
        IS(answer.event, i == 0 ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED);
        IS(answer.status, i == 0 ? -ETIMEDOUT : 0);
    }
    IS(event_kind(end.channel), RDMA_CM_EVENT_ADDR_RESOLVED); /* twice */
    OK(rdma_resolve_route(end.id, 1000));
    IS(poll(&poll_on, 1, 300), 0); /* lost */
    OK(fcntl(end.channel->fd, F_SETFL, O_NONBLOCK));
    for (int i = 0; i < 3; i++) NONE(ibv_alloc_pd(end.id->verbs), EIO);
    OK(rdma_destroy_id(end.id));
    rdma_destroy_event_channel(end.channel);
}

static void meets_faults(void)
{
    struct end end = connects(usual);
    OK(sends(&end, 8, IBV_SEND_SIGNALED));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    OK(sends(&end, 8, IBV_SEND_SIGNALED));
    IS(status_of(end.sends), IBV_WC_RETRY_EXC_ERR);
    IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    tell(to_parent);
    leaves(&end);
}
static void a_completion_fails(void)
{
    struct child child = family(meets_faults);
    struct end end = accepts(child, usual);
    await(child.from);
    parts_then(&end);
    join(child);
}

static void is_not_established(void)
{
    struct end end = {0};
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    resolves(&end, from_parent);
    builds(&end, usual);
    OK(rdma_connect(end.id, &end.param));
    struct rdma_cm_event answer = event(end.channel);
    IS(answer.event, RDMA_CM_EVENT_UNREACHABLE);
    IS(answer.status, -ETIMEDOUT);
    leaves(&end);
}
static void a_connection_fails(void)
{
    struct child child = family(is_not_established);
    struct end end = {0};
    listens(&end, child.to);
    end.id = event(end.channel).id;
    builds(&end, usual);
    OK(rdma_accept(end.id, &end.param));
    if (iwarp()) IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED); /* who accepts is done */
    expect_disconnected(&end);
    leaves(&end);
    join(child);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"a-late-receive", a_late_receive},
        {"no-receive-and-no-patience", no_receive_and_no_patience},
        {"a-wrong-key", a_wrong_key},
        {"too-far", too_far},
        {"no-right", no_right},
        {"a-region-that-has-ended", a_region_that_has_ended},
        {"too-long", too_long},
        {"another-domain", another_domain},
        {"a-wrong-local-key", a_wrong_local_key},
        {"stale-memory", stale_memory},
        {"a-silent-peer", a_silent_peer},
        {"a-stopped-peer", a_stopped_peer},
        {"a-link-goes-down", a_link_goes_down},
        {"a-link-of-two-goes-down", a_link_of_two_goes_down},
        {"a-link-is-down-while-it-connects", a_link_is_down_while_it_connects},
        {"a-device-goes", a_device_goes},
        {"a-device-fails", a_device_fails},
        {"faults", faults},
        {"a-completion-fails", a_completion_fails},
        {"a-connection-fails", a_connection_fails},
    };
    RUN(tests);
}
