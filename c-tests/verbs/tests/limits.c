/* What is refused: more than there is room for, what is another's, what has ended. One process, but where data have to move. */
#define _GNU_SOURCE
#include "ends.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static struct end alone(void)
{
    struct end end = {.channel = rdma_create_event_channel()};
    OK(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
    OK(rdma_bind_addr(end.id, address_of(0)));
    return end;
}

static void devices(void)
{
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    IS(count, 1);
    IS(strcmp(ibv_get_device_name(list[0]), iwarp() ? "siw1" : "rxe1"), 0);
    IS(list[0]->transport_type, iwarp() ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB);
    IS(list[1] == NULL, true);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    union ibv_gid gid;
    struct ibv_gid_entry entry;
    uint16_t key;
    OK(ibv_query_device(context, &attr));
    IS(attr.max_sge, iwarp() ? 6 : 32);
    IS(attr.max_qp_rd_atom, 128);
    IS(attr.atomic_cap, iwarp() ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA);
    OK(ibv_query_port(context, 1, &port));
    IS(port.state, IBV_PORT_ACTIVE);
    IS(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    IS(ibv_query_port(context, 2, &port), EINVAL);
    OK((ibv_query_port)(context, 1, (struct _compat_ibv_port_attr *)&port));
    IS(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    OK(ibv_query_pkey(context, 1, 0, &key));
    IS(key, 0xffff);
    if (iwarp()) {
        OK(ibv_query_gid(context, 1, 0, &gid));
        FAILS(ibv_query_gid(context, 1, 1, &gid), EINVAL);
    } else {
        OK(ibv_query_gid(context, 1, 1, &gid));
        IS(memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16), 0);
        OK(ibv_query_gid_ex(context, 1, 1, &entry, 0));
        IS(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
        IS(entry.ndev_ifindex, 1);
        IS(ibv_query_gid_ex(context, 1, 2, &entry, 0), ENODATA);
    }
    OK(ibv_close_device(context));
    /* The manager's own is another, and its objects do not go together with those. */
    list = ibv_get_device_list(NULL);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    struct end end = alone();
    IS(end.id->verbs != context, true);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 1}};
    FAILS(rdma_create_qp(end.id, pd, &init), EINVAL);
    OK(ibv_destroy_cq(cq));
    OK(ibv_dealloc_pd(pd));
    OK(ibv_close_device(context));
    OK(rdma_destroy_id(end.id));
    rdma_destroy_event_channel(end.channel);
}

/* Without the capability, no more pages than may be locked, each as often as it is registered. */
static void locked_memory(struct ibv_pd *pd)
{
    static _Alignas(4096) char bytes[4 * 4096];
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct before[_LINUX_CAPABILITY_U32S_3], without[_LINUX_CAPABILITY_U32S_3];
    struct rlimit limit, little;
    OK(syscall(SYS_capget, &header, before));
    memcpy(without, before, sizeof without);
    without[0].effective &= ~(1u << CAP_IPC_LOCK);
    OK(getrlimit(RLIMIT_MEMLOCK, &limit));
    little = (struct rlimit){.rlim_cur = 3 * 4096, .rlim_max = limit.rlim_max};
    OK(setrlimit(RLIMIT_MEMLOCK, &little));
    OK(syscall(SYS_capset, &header, without));
    IS(ibv_reg_mr(pd, bytes, 4 * 4096, 0) == NULL && errno == ENOMEM, true);
    /* Two bytes of two pages, and one page again. */
    struct ibv_mr *two = ibv_reg_mr(pd, bytes + 4095, 2, 0), *one = ibv_reg_mr(pd, bytes, 1, 0);
    IS(two != NULL && one != NULL, true);
    IS(ibv_reg_mr(pd, bytes, 1, 0) == NULL && errno == ENOMEM, true);
    OK(ibv_dereg_mr(one));
    one = ibv_reg_mr(pd, bytes + 4096, 4096, 0);
    IS(one != NULL, true);
    OK(ibv_dereg_mr(one));
    OK(ibv_dereg_mr(two));
    OK(syscall(SYS_capset, &header, before));
    OK(setrlimit(RLIMIT_MEMLOCK, &limit));
}

static void memory(void)
{
    struct end end = alone();
    struct ibv_pd *pd = ibv_alloc_pd(end.id->verbs);
    static char bytes[8192];
    IS(ibv_reg_mr(pd, NULL, 4096, 0) == NULL && errno == EFAULT, true);
    IS(ibv_reg_mr(pd, bytes, 0, 0) == NULL && errno == EINVAL, true);
    IS(ibv_reg_mr(pd, bytes, 8192, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL, true);
    /* What cannot be written cannot be registered to be written. */
    static const char constant[4096] = {1};
    IS(ibv_reg_mr(pd, (void *)(uintptr_t)constant, 4096, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT, true);
    struct ibv_mr *read = ibv_reg_mr(pd, (void *)(uintptr_t)constant, 4096, IBV_ACCESS_REMOTE_READ);
    IS(read != NULL && read->rkey != 0, true);
    OK(ibv_dereg_mr(read));
    /* Nor do peers have a key of what they have no right to. */
    struct ibv_mr *own = ibv_reg_mr(pd, bytes, 8192, IBV_ACCESS_LOCAL_WRITE);
    IS(own->rkey, 0);
    OK(ibv_dereg_mr(own));
    struct ibv_mr *first = ibv_reg_mr(pd, bytes, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
                  *second = ibv_reg_mr(pd, bytes, 8192, IBV_ACCESS_REMOTE_READ);
    IS(first->lkey != second->lkey && first->rkey != second->rkey && first->lkey != first->rkey, true);
    IS(first->addr == bytes && first->length == 8192 && first->pd == pd, true);
    IS(ibv_dealloc_pd(pd), EBUSY);
    uint32_t key = first->lkey;
    OK(ibv_dereg_mr(first));
    first = ibv_reg_mr(pd, bytes, 8192, 0);
    IS(first->lkey != key, true);
    OK(ibv_dereg_mr(first));
    OK(ibv_dereg_mr(second));
    locked_memory(pd);
    OK(ibv_dealloc_pd(pd));
    OK(rdma_destroy_id(end.id));
    rdma_destroy_event_channel(end.channel);
}

static void queues(void)
{
    struct end end = alone();
    struct ibv_context *context = end.id->verbs;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}},
                             too_many = {.attr = {.max_wr = 4, .max_sge = 33}};
    NONE(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    NONE(ibv_create_srq(pd, &too_many), EINVAL);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_qp_cap cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = cap};
    init.cap.max_inline_data = iwarp() ? 65 : 513;
    NONE(ibv_create_qp(pd, &init), EINVAL);
    init.cap = cap;
    init.cap.max_send_sge = iwarp() ? 7 : 33;
    NONE(ibv_create_qp(pd, &init), EINVAL);
    init.cap = cap;
    init.qp_type = IBV_QPT_UD;
    NONE(ibv_create_qp(pd, &init), EOPNOTSUPP);
    init.qp_type = IBV_QPT_RC;
    init.srq = srq;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    IS(init.cap.max_recv_wr, 0);
    IS(qp->state, IBV_QPS_RESET);
    IS(ibv_destroy_cq(cq), EBUSY);
    IS(ibv_destroy_srq(srq), EBUSY);
    IS(ibv_dealloc_pd(pd), EBUSY);
    OK(ibv_destroy_qp(qp));
    struct ibv_srq_attr attr = {.srq_limit = 5};
    IS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
    attr.srq_limit = 3;
    OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
    OK(ibv_query_srq(srq, &attr));
    IS(attr.srq_limit, 3);
    IS(attr.max_wr, 4);
    struct ibv_recv_wr wr[3] = {{.wr_id = 1, .next = &wr[1], .num_sge = 1}, {.wr_id = 2, .next = &wr[2], .num_sge = 2},
        {.wr_id = 3}},
                       *bad = NULL;
    struct ibv_sge sge[2] = {{0, 0, 0}, {0, 0, 0}};
    wr[0].sg_list = wr[1].sg_list = sge;
    IS(ibv_post_srq_recv(srq, wr, &bad), code(EINVAL)); /* the first is there, the others are not */
    IS(bad == &wr[1], true);
    wr[0].next = NULL;
    for (int i = 0; i < 3; i++) OK(ibv_post_srq_recv(srq, wr, &bad));
    IS(ibv_post_srq_recv(srq, wr, &bad), code(ENOMEM));
    OK(ibv_destroy_srq(srq));
    OK(ibv_destroy_cq(cq));
    OK(ibv_dealloc_pd(pd));
    OK(rdma_destroy_id(end.id));
    rdma_destroy_event_channel(end.channel);
}

static void states(void)
{
    struct end end = alone();
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
    builds(&end, usual);
    struct ibv_qp *qp = end.id->qp;
    IS(qp->state, IBV_QPS_INIT);
    IS(ibv_post_send(qp, &send, &bad_send), code(EINVAL));
    IS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = IBV_QPS_RTS;
    IS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    for (uint64_t i = 4; i < 16; i++) OK(post(&end, i, SLOT));
    IS(post(&end, 0, SLOT), code(ENOMEM));
    attr.qp_state = IBV_QPS_ERR;
    OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    IS(poll(&poll_on, 1, 0), 0); /* nothing has been connected */
    for (uint64_t i = 0; i < 16; i++) {
        struct ibv_wc wc = completion(end.receives);
        IS(wc.status, IBV_WC_WR_FLUSH_ERR);
        IS(wc.wr_id, i);
    }
    OK(ibv_post_send(qp, &send, &bad_send));
    IS(status_of(end.sends), IBV_WC_WR_FLUSH_ERR); /* though it is not signalled */
    OK(post(&end, 3, SLOT));
    IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    attr.qp_state = IBV_QPS_RESET;
    OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    IS(post(&end, 3, SLOT), code(EINVAL));
    leaves(&end);
}

/* libfabric names these; an id goes with its queue pair there. */
static void what_libfabric_asks_for(void)
{
    struct end end = alone();
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC};
    builds(&end, usual);
    NONE(ibv_reg_dmabuf_mr(end.pd, 0, SLOT, 0, 0, IBV_ACCESS_LOCAL_WRITE), EOPNOTSUPP);
    FAILS(rdma_create_qp_ex(end.id, &init), EOPNOTSUPP);
    IS(ibv_query_qp_data_in_order(end.id->qp, IBV_WR_SEND, 0), 0);
    rdma_destroy_ep(end.id);
    OK(ibv_dereg_mr(end.mr));
    OK(ibv_destroy_cq(end.sends));
    OK(ibv_destroy_cq(end.receives));
    OK(ibv_dealloc_pd(end.pd));
    rdma_destroy_event_channel(end.channel);
    free(end.memory);
}

/* --- places in queues */

static void fills_the_send_queue(void)
{
    struct options options = usual;
    options.sends = 4;
    struct end end = connects(options);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    await(from_parent);
    for (int i = 0; i < 3; i++) OK(ibv_post_send(end.id->qp, &wr, &bad));
    wr.send_flags = IBV_SEND_SIGNALED;
    OK(ibv_post_send(end.id->qp, &wr, &bad));
    IS(ibv_post_send(end.id->qp, &wr, &bad), code(ENOMEM));
    await(from_parent); /* all have arrived: places are free when the completion is taken, and not before */
    IS(ibv_post_send(end.id->qp, &wr, &bad), code(ENOMEM));
    IS(status_of(end.sends), IBV_WC_SUCCESS);
    for (int i = 0; i < 4; i++) OK(ibv_post_send(end.id->qp, &wr, &bad));
    IS(ibv_post_send(end.id->qp, &wr, &bad), code(ENOMEM));
    for (int i = 0; i < 4; i++) IS(status_of(end.sends), IBV_WC_SUCCESS);
    tell(to_parent);
    await(from_parent);
    parts_first(&end);
}
static void places_in_the_send_queue(void)
{
    struct child child = family(fills_the_send_queue);
    struct options options = usual;
    options.posted = 8;
    struct end end = accepts(child, options);
    tell(child.to);
    for (int i = 0; i < 4; i++) IS(status_of(end.receives), IBV_WC_SUCCESS);
    for (uint64_t i = 8; i < 12; i++) OK(post(&end, i, SLOT));
    tell(child.to);
    await(child.from);
    tell(child.to);
    parts_then(&end);
    join(child);
}

/* To whom it is not strict, a place is free when what it held is done: nothing is read here. */
static void fills_it_again(void)
{
    setenv("HAWSER_VERBS_STRICT", "0", 1);
    struct options options = usual;
    options.sends = 4;
    struct end end = connects(options);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    await(from_parent);
    for (int i = 0; i < 4; i++) OK(ibv_post_send(end.id->qp, &wr, &bad));
    await(from_parent); /* all have arrived; the last acknowledgement may be behind that */
    for (int i = 0; i < 4; i++)
        while (ibv_post_send(end.id->qp, &wr, &bad) != 0) sched_yield();
    tell(to_parent);
    await(from_parent);
    parts_first(&end);
}
static void places_in_a_send_queue_not_strictly(void)
{
    struct child child = family(fills_it_again);
    struct options options = usual;
    options.posted = 8;
    struct end end = accepts(child, options);
    tell(child.to);
    for (int i = 0; i < 4; i++) IS(status_of(end.receives), IBV_WC_SUCCESS);
    tell(child.to);
    for (int i = 0; i < 4; i++) IS(status_of(end.receives), IBV_WC_SUCCESS);
    await(child.from);
    tell(child.to);
    parts_then(&end);
    join(child);
}

/* What has completed stays where it was read from when its queue pair ends. What is under way then, iWARP flushes, and RoCE
 * forgets. */
static void sends_two_and_says_so(void)
{
    struct end end = connects(usual);
    struct remote remote;
    struct ibv_sge sge;
    take(from_parent, &remote, sizeof remote);
    struct ibv_send_wr wr = work(&end, &sge, IBV_WR_RDMA_WRITE, 1);
    end.memory[SIZE / 2] = 42;
    wr.wr.rdma.remote_addr = remote.address + SIZE - 1;
    wr.wr.rdma.rkey = (uint32_t)remote.key;
    for (int i = 0; i < 2; i++) OK(sends(&end, 8, 0));
    OK(posts(&end, &wr));
    await(from_parent);
    leaves(&end);
}
static void completions_stay_when_a_queue_pair_ends(void)
{
    struct child child = family(sends_two_and_says_so);
    setenv("HAWSER_VERBS_DELAY", "3600000000", 1); /* what this end sends stays under way */
    struct end end = accepts(child, usual);
    volatile unsigned char *byte = end.memory + SIZE - 1;
    struct ibv_wc wc[8];
    uint32_t number = end.id->qp->qp_num;
    shows(&end, child.to);
    while (*byte != 42) sched_yield();
    OK(sends(&end, 8, IBV_SEND_SIGNALED));
    rdma_destroy_qp(end.id);
    IS(ibv_poll_cq(end.receives, 8, wc), iwarp() ? 4 : 2);
    for (uint64_t i = 0; i < (iwarp() ? 4 : 2); i++) {
        IS(wc[i].status, i < 2 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
        IS(wc[i].wr_id, i);
        IS(wc[i].qp_num, number);
    }
    IS(ibv_poll_cq(end.sends, 8, wc), iwarp());
    if (iwarp()) IS(wc[0].status, IBV_WC_WR_FLUSH_ERR);
    tell(child.to);
    leaves(&end);
    join(child);
}

/* A queue pair that has been reset has all its places, whatever is read of what it did before. */
static void places_after_a_reset(void)
{
    struct end end = alone();
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    builds(&end, usual);
    OK(ibv_modify_qp(end.id->qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RESET;
    OK(ibv_modify_qp(end.id->qp, &attr, IBV_QP_STATE));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
    OK(ibv_modify_qp(end.id->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    for (uint64_t i = 0; i < 8; i++) OK(post(&end, i, SLOT));
    for (int i = 0; i < 4; i++) IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    for (uint64_t i = 8; i < 16; i++) OK(post(&end, i, SLOT));
    IS(post(&end, 0, SLOT), code(ENOMEM));
    leaves(&end);
}

static void sends_ten(void)
{
    struct end end = connects(usual);
    for (int i = 0; i < 10; i++) {
        OK(sends(&end, 8, IBV_SEND_SIGNALED));
        completion(end.sends);
    }
    tell(to_parent);
    await(from_parent);
    parts_first(&end);
}
static void a_completion_queue_runs_over(void)
{
    struct child child = family(sends_ten);
    struct options options = usual;
    options.entries = 8;
    options.posted = 16;
    struct end end = accepts(child, options);
    struct ibv_async_event async;
    OK(ibv_get_async_event(end.id->verbs, &async));
    IS(async.event_type, IBV_EVENT_CQ_ERR);
    IS(async.element.cq == end.receives, true);
    ibv_ack_async_event(&async);
    OK(ibv_get_async_event(end.id->verbs, &async));
    IS(async.event_type, IBV_EVENT_QP_FATAL);
    ibv_ack_async_event(&async);
    await(child.from);
    tell(child.to);
    expect_disconnected(&end);
    leaves(&end);
    join(child);
}

static void sends_eight(void)
{
    struct end end = connects(usual);
    await(from_parent);
    for (int i = 0; i < 8; i++) {
        OK(sends(&end, 8, IBV_SEND_SIGNALED));
        IS(status_of(end.sends), IBV_WC_SUCCESS);
    }
    await(from_parent);
    parts_first(&end);
}
static void a_shared_queue_says_that_it_runs_low(void)
{
    struct child child = family(sends_eight);
    struct options options = usual;
    options.shared = 1;
    options.posted = 8;
    struct end end = accepts(child, options);
    struct ibv_srq_attr attr = {.srq_limit = 4};
    struct ibv_async_event async;
    struct pollfd poll_on = {.fd = end.id->verbs->async_fd, .events = POLLIN};
    OK(ibv_modify_srq(end.srq, &attr, IBV_SRQ_LIMIT));
    IS(post(&end, 0, SLOT), 0);
    tell(child.to);
    OK(ibv_get_async_event(end.id->verbs, &async));
    IS(async.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    IS(async.element.srq == end.srq, true);
    ibv_ack_async_event(&async);
    for (int i = 0; i < 8; i++) IS(status_of(end.receives), IBV_WC_SUCCESS);
    IS(poll(&poll_on, 1, 0), 0); /* once */
    OK(ibv_query_srq(end.srq, &attr));
    IS(attr.srq_limit, 0);
    tell(child.to);
    parts_then(&end);
    join(child);
}

/* --- what the real libraries do not survive ends the process */

static void posts_after_the_end(void)
{
    struct end end = alone();
    builds(&end, usual);
    struct ibv_qp *qp = end.id->qp;
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    rdma_destroy_qp(end.id);
    ibv_post_send(qp, &wr, &bad);
}
static void uses_an_id_after_the_end(void)
{
    struct end end = alone();
    OK(rdma_destroy_id(end.id));
    rdma_listen(end.id, 1);
}
static void acknowledges_twice(void)
{
    struct end end = alone();
    struct rdma_cm_id *id;
    struct rdma_cm_event *got;
    OK(rdma_create_id(end.channel, &id, NULL, RDMA_PS_TCP));
    OK(rdma_resolve_addr(id, NULL, address_of(htons(1)), 1000));
    OK(rdma_get_cm_event(end.channel, &got));
    OK(rdma_ack_cm_event(got));
    rdma_ack_cm_event(got);
}
static void ends_a_channel_under_an_id(void)
{
    struct end end = alone();
    rdma_destroy_event_channel(end.channel);
}
static void deregisters_twice(void)
{
    struct end end = alone();
    builds(&end, usual);
    OK(ibv_dereg_mr(end.mr));
    ibv_dereg_mr(end.mr);
}
static void closes_a_used_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    if (ibv_alloc_pd(context) != NULL) ibv_close_device(context);
}
static void uses_a_closed_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    OK(ibv_close_device(context));
    ibv_alloc_pd(context);
}
static void polls_after_the_end(void)
{
    struct end end = alone();
    struct ibv_cq *cq = ibv_create_cq(end.id->verbs, 4, NULL, NULL, 0);
    struct ibv_wc wc;
    OK(ibv_destroy_cq(cq));
    ibv_poll_cq(cq, 1, &wc);
}
static void forks(void)
{
    struct end end = alone();
    int status;
    if (fork() == 0) {
        rdma_destroy_id(end.id);
        _exit(0);
    }
    wait(&status);
    if (WIFSIGNALED(status)) raise(WTERMSIG(status));
}
static void use_after_the_end(void)
{
    IS(signal_of(posts_after_the_end), SIGABRT);
    IS(signal_of(uses_an_id_after_the_end), SIGABRT);
    IS(signal_of(acknowledges_twice), SIGABRT);
    IS(signal_of(ends_a_channel_under_an_id), SIGABRT);
    IS(signal_of(deregisters_twice), SIGABRT);
    IS(signal_of(closes_a_used_device), SIGABRT);
    IS(signal_of(uses_a_closed_device), SIGABRT);
    IS(signal_of(polls_after_the_end), SIGABRT);
    IS(signal_of(forks), SIGABRT);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"devices", devices},
        {"memory", memory},
        {"queues", queues},
        {"states", states},
        {"what-libfabric-asks-for", what_libfabric_asks_for},
        {"places-in-the-send-queue", places_in_the_send_queue},
        {"places-in-a-send-queue-not-strictly", places_in_a_send_queue_not_strictly},
        {"places-after-a-reset", places_after_a_reset},
        {"completions-stay-when-a-queue-pair-ends", completions_stay_when_a_queue_pair_ends},
        {"a-completion-queue-runs-over", a_completion_queue_runs_over},
        {"a-shared-queue-says-that-it-runs-low", a_shared_queue_says_that_it_runs_low},
        {"use-after-the-end", use_after_the_end},
    };
    RUN(tests);
}
