/* What moves: order, lengths, keys and kinds of operations. */
#define _GNU_SOURCE
#include "ends.h"

static void parted(struct end *end)
{
    tell(to_parent);
    await(from_parent);
    parts_first(end);
}
static void part(struct child child, struct end *end)
{
    await(child.from);
    tell(child.to);
    parts_then(end);
    join(child);
}

/* --- sends */

static void sends_many(void)
{
    struct end end = connects(usual);
    for (uint32_t i = 0; i < 1000; i++) {
        fill(end.memory + SIZE / 2, i, i);
        OK(sends(&end, i, IBV_SEND_SIGNALED));
        struct ibv_wc wc = completion(end.sends);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.opcode, IBV_WC_SEND);
        IS(wc.wr_id, 7);
        IS(wc.qp_num, end.id->qp->qp_num);
        /* The other end has room for four: iWARP wants to hear that there is room. */
        if (i % 4 == 3) await(from_parent);
    }
    parted(&end);
}
static void sends_arrive_in_order(void)
{
    struct child child = family(sends_many);
    struct end end = accepts(child, usual);
    for (uint32_t i = 0; i < 1000; i++) {
        struct ibv_wc wc = completion(end.receives);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.opcode, IBV_WC_RECV);
        IS(wc.wr_id, i % 4);
        IS(wc.byte_len, i);
        IS(wrong(end.memory + i % 4 * SLOT, i, i), 0);
        OK(post(&end, i % 4, SLOT));
        if (i % 4 == 3) tell(child.to);
    }
    part(child, &end);
}

/* Data are taken from where they are when they are sent, and that is later than the post. */
static void posts_and_changes(void)
{
    struct end end = connects(usual);
    fill(end.memory + SIZE / 2, 100, 1);
    OK(sends(&end, 100, IBV_SEND_SIGNALED));
    fill(end.memory + SIZE / 2, 100, 2);
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    parted(&end);
}
static void data_move_late(void)
{
    struct child child = family(posts_and_changes);
    struct end end = accepts(child, usual);
    IS(status_of(end.receives), IBV_WC_SUCCESS);
    IS(wrong(end.memory, 100, 2), 0);
    part(child, &end);
}

/* Inline data are taken at once, whatever their key; so much and no more. */
static void sends_inline(void)
{
    struct options options = usual;
    options.inlined = iwarp() ? 64 : 512;
    struct end end = connects(options);
    unsigned char bytes[1024];
    struct ibv_sge sge = {(uintptr_t)bytes, options.inlined, 0};
    struct ibv_send_wr wr = {
        .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
    fill(bytes, sizeof bytes, 5);
    OK(posts(&end, &wr));
    memset(bytes, 0, sizeof bytes);
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    sge.length++;
    IS(posts(&end, &wr), code(EINVAL));
    wr.opcode = IBV_WR_RDMA_READ;
    sge.length = 8;
    IS(posts(&end, &wr), code(EINVAL));
    parted(&end);
}
static void inline_data(void)
{
    struct child child = family(sends_inline);
    struct end end = accepts(child, usual);
    struct ibv_wc wc = completion(end.receives);
    IS(wc.byte_len, iwarp() ? 64 : 512);
    IS(wrong(end.memory, wc.byte_len, 5), 0);
    part(child, &end);
}

/* --- elements */

static void gathers(void)
{
    struct end end = connects(usual);
    struct ibv_sge sge[2] = {
        {(uintptr_t)end.memory + SIZE / 2, 70000, end.mr->lkey}, {(uintptr_t)end.memory + SIZE / 4, 50000, end.mr->lkey}};
    struct ibv_send_wr wr = {
        .wr_id = 1, .sg_list = sge, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    unsigned char *whole = malloc(120000);
    fill(whole, 120000, 9);
    memcpy(end.memory + SIZE / 2, whole, 70000);
    memcpy(end.memory + SIZE / 4, whole + 70000, 50000);
    free(whole);
    await(from_parent);
    OK(posts(&end, &wr));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    parted(&end);
}
static void elements_are_gathered_and_scattered(void)
{
    struct child child = family(gathers);
    struct options options = usual;
    options.posted = 0;
    struct end end = accepts(child, options);
    struct ibv_sge sge[2] = {
        {(uintptr_t)end.memory, 30000, end.mr->lkey}, {(uintptr_t)end.memory + SIZE / 2, 100000, end.mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = sge, .num_sge = 2}, *bad;
    OK(ibv_post_recv(end.id->qp, &wr, &bad));
    tell(child.to);
    IS(completion(end.receives).byte_len, 120000);
    unsigned char *whole = malloc(120000);
    memcpy(whole, end.memory, 30000);
    memcpy(whole + 30000, end.memory + SIZE / 2, 90000);
    IS(wrong(whole, 120000, 9), 0);
    free(whole);
    part(child, &end);
}

static void sends_nothing(void)
{
    struct end end = connects(usual);
    struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    await(from_parent);
    OK(posts(&end, &wr));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    OK(posts(&end, &wr));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    parted(&end);
}
static void zero_bytes(void)
{
    struct child child = family(sends_nothing);
    struct options options = usual;
    options.posted = 0;
    struct end end = accepts(child, options);
    struct ibv_recv_wr wr = {.wr_id = 5}, *bad;
    IS(ibv_post_recv(end.id->qp, &wr, &bad), iwarp() ? -EINVAL : 0);
    if (iwarp()) OK(post(&end, 5, 0));
    OK(post(&end, 6, 0));
    tell(child.to);
    for (uint64_t i = 5; i < 7; i++) {
        struct ibv_wc wc = completion(end.receives);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.wr_id, i);
        IS(wc.byte_len, 0);
    }
    part(child, &end);
}

/* --- the peer's memory */

static void writes_and_reads(void)
{
    struct end end = connects(usual);
    struct remote remote;
    struct ibv_sge sge;
    take(from_parent, &remote, sizeof remote);
    uint32_t lengths[] = {0, 1, 4095, 32768, 32769, SIZE / 2};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct ibv_send_wr wr = work(&end, &sge, IBV_WR_RDMA_WRITE, lengths[i]);
        wr.wr.rdma.remote_addr = remote.address + 3;
        wr.wr.rdma.rkey = (uint32_t)remote.key;
        fill(end.memory + SIZE / 2, lengths[i], (unsigned)i);
        OK(posts(&end, &wr));
        struct ibv_wc wc = completion(end.sends);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.opcode, IBV_WC_RDMA_WRITE);
        memset(end.memory + SIZE / 2, 0, SIZE / 2);
        wr.opcode = IBV_WR_RDMA_READ;
        OK(posts(&end, &wr));
        wc = completion(end.sends);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.opcode, IBV_WC_RDMA_READ);
        IS(wc.byte_len, lengths[i]);
        IS(wrong(end.memory + SIZE / 2, lengths[i], (unsigned)i), 0);
    }
    parted(&end);
}
static void memory_of_the_peer(void)
{
    struct child child = family(writes_and_reads);
    struct options options = usual;
    options.posted = 0;
    struct end end = accepts(child, options);
    shows(&end, child.to);
    part(child, &end);
}

/* More reads than the peer has room for wait by themselves; a fence waits for them. */
static void reads_many(void)
{
    struct options options = usual;
    options.depth = 2;
    struct end end = connects(options);
    struct remote remote;
    struct ibv_sge sge;
    take(from_parent, &remote, sizeof remote);
    for (uint64_t i = 0; i < 15; i++) {
        struct ibv_send_wr wr = work(&end, &sge, IBV_WR_RDMA_READ, 40000);
        if (i < 14) sge.addr = (uintptr_t)end.memory + SIZE / 4; /* what is sent is what the last one reads */
        wr.wr_id = i;
        wr.wr.rdma.remote_addr = remote.address;
        wr.wr.rdma.rkey = (uint32_t)remote.key;
        OK(posts(&end, &wr));
    }
    OK(sends(&end, 40000, IBV_SEND_SIGNALED | IBV_SEND_FENCE));
    for (uint64_t i = 0; i < 15; i++) {
        struct ibv_wc wc = completion(end.sends);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.wr_id, i);
    }
    IS(completion(end.sends).opcode, IBV_WC_SEND);
    IS(wrong(end.memory + SIZE / 2, 40000, 77), 0);
    parted(&end);
}
static void reads_wait_for_room(void)
{
    struct child child = family(reads_many);
    struct options options = usual;
    options.posted = 0;
    struct end end = {0};
    listens(&end, child.to);
    struct rdma_cm_event request = event(end.channel);
    IS(request.param.conn.initiator_depth, 2);
    end.id = request.id;
    builds(&end, options);
    struct ibv_sge sge = {(uintptr_t)end.memory + SIZE / 2, SIZE / 2, end.mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    OK(ibv_post_recv(end.id->qp, &wr, &bad));
    fill(end.memory, 40000, 77);
    OK(rdma_accept(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    shows(&end, child.to);
    IS(status_of(end.receives), IBV_WC_SUCCESS);
    IS(wrong(end.memory + SIZE / 2, 40000, 77), 0);
    part(child, &end);
}

/* No more reads are under way than the peer has said. This end reads nothing before it has sent what it may, and a socket does
 * not take an answer as a whole: one read too many would find its peer with two to answer. */
enum { LONG = 8 << 20 };
static void reads_long(void)
{
    struct end end = connects(usual);
    struct remote remote;
    unsigned char *into = malloc(LONG);
    struct ibv_mr *mr = ibv_reg_mr(end.pd, into, LONG, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge sge = {(uintptr_t)into, LONG, mr->lkey};
    struct ibv_send_wr wr[4];
    take(from_parent, &remote, sizeof remote);
    for (int i = 0; i < 4; i++) {
        wr[i] = (struct ibv_send_wr){.next = i < 3 ? &wr[i + 1] : NULL,
            .sg_list = &sge,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ,
            .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = {.remote_addr = remote.address, .rkey = (uint32_t)remote.key}};
    }
    OK(posts(&end, wr));
    for (int i = 0; i < 4; i++) IS(status_of(end.sends), IBV_WC_SUCCESS);
    IS(wrong(into, LONG, 3), 0);
    OK(ibv_dereg_mr(mr));
    free(into);
    parted(&end);
}
static void no_more_reads_than_the_peer_serves(void)
{
    struct child child = family(reads_long);
    struct options options = usual;
    options.depth = 2;
    struct end end = accepts(child, options);
    unsigned char *from = malloc(LONG);
    fill(from, LONG, 3);
    struct ibv_mr *mr = ibv_reg_mr(end.pd, from, LONG, IBV_ACCESS_REMOTE_READ);
    struct remote remote = {(uintptr_t)from, mr->rkey};
    put(child.to, &remote, sizeof remote);
    await(child.from);
    OK(ibv_dereg_mr(mr));
    free(from);
    tell(child.to);
    parts_then(&end);
    join(child);
}

static void sends_and_writes_with_immediate(void)
{
    struct end end = connects(usual);
    struct remote remote;
    struct ibv_sge sge;
    take(from_parent, &remote, sizeof remote);
    struct ibv_send_wr wr = work(&end, &sge, IBV_WR_SEND_WITH_IMM, 10);
    wr.imm_data = htonl(0x1234);
    IS(posts(&end, &wr), iwarp() ? -EINVAL : 0);
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.wr.rdma.remote_addr = remote.address + SIZE / 2;
    wr.wr.rdma.rkey = (uint32_t)remote.key;
    IS(posts(&end, &wr), iwarp() ? -EINVAL : 0);
    for (int i = 0; i < 2 && !iwarp(); i++) IS(status_of(end.sends), IBV_WC_SUCCESS);
    parted(&end);
}
static void immediate_data(void)
{
    struct child child = family(sends_and_writes_with_immediate);
    struct end end = accepts(child, usual);
    shows(&end, child.to);
    for (int i = 0; i < 2 && !iwarp(); i++) {
        struct ibv_wc wc = completion(end.receives);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.opcode, i == 0 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
        IS(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
        IS(wc.imm_data, htonl(0x1234));
        IS(wc.byte_len, 10);
    }
    part(child, &end);
}

/* --- who looks */

/* The peer computes, calls nothing, and its memory changes. */
static void writes_to_a_sleeper(void)
{
    struct end end = connects(usual);
    struct remote remote;
    struct ibv_sge sge;
    take(from_parent, &remote, sizeof remote);
    struct ibv_send_wr wr = work(&end, &sge, IBV_WR_RDMA_WRITE, 1);
    end.memory[SIZE / 2] = 42;
    wr.wr.rdma.remote_addr = remote.address;
    wr.wr.rdma.rkey = (uint32_t)remote.key;
    OK(posts(&end, &wr));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    parted(&end);
}
static void progress_without_calls(void)
{
    struct child child = family(writes_to_a_sleeper);
    struct options options = usual;
    options.posted = 0;
    struct end end = accepts(child, options);
    volatile unsigned char *byte = end.memory;
    shows(&end, child.to);
    while (*byte != 42) sched_yield();
    part(child, &end);
}

static void sends_solicited(void)
{
    struct end end = connects(usual);
    OK(sends(&end, 1, IBV_SEND_SIGNALED));
    await(from_parent);
    OK(sends(&end, 1, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
    parted(&end);
}
static void completion_events(void)
{
    struct child child = family(sends_solicited);
    struct end end = {0};
    listens(&end, child.to);
    end.id = event(end.channel).id;
    builds(&end, usual);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(end.id->verbs);
    struct ibv_cq *cq = ibv_create_cq(end.id->verbs, 8, &end, channel, 0), *which;
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
        .send_cq = end.sends,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    void *context;
    IS(ibv_destroy_comp_channel(channel), EBUSY);
    rdma_destroy_qp(end.id);
    OK(rdma_create_qp(end.id, end.pd, &init));
    for (uint64_t i = 0; i < 4; i++) OK(post(&end, i, SLOT));
    OK(ibv_req_notify_cq(cq, 1));
    struct pollfd poll_on = {.fd = channel->fd, .events = POLLIN};
    OK(rdma_accept(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    IS(status_of(cq), IBV_WC_SUCCESS);
    IS(poll(&poll_on, 1, 0), 0); /* that was not asked for */
    tell(child.to);
    OK(ibv_get_cq_event(channel, &which, &context));
    IS(which == cq && context == &end, true);
    ibv_ack_cq_events(cq, 1);
    IS(status_of(cq), IBV_WC_SUCCESS);
    OK(fcntl(channel->fd, F_SETFL, O_NONBLOCK));
    FAILS(ibv_get_cq_event(channel, &which, &context), EAGAIN);
    await(child.from);
    tell(child.to);
    expect_disconnected(&end);
    rdma_destroy_qp(end.id);
    OK(ibv_destroy_cq(cq));
    OK(ibv_destroy_comp_channel(channel));
    leaves(&end);
    join(child);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"sends-arrive-in-order", sends_arrive_in_order},
        {"data-move-late", data_move_late},
        {"inline-data", inline_data},
        {"elements-are-gathered-and-scattered", elements_are_gathered_and_scattered},
        {"zero-bytes", zero_bytes},
        {"memory-of-the-peer", memory_of_the_peer},
        {"reads-wait-for-room", reads_wait_for_room},
        {"no-more-reads-than-the-peer-serves", no_more_reads_than_the_peer_serves},
        {"immediate-data", immediate_data},
        {"progress-without-calls", progress_without_calls},
        {"completion-events", completion_events},
    };
    RUN(tests);
}
