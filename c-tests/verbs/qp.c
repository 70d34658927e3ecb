/* Queue pairs: their states, and how their work requests end. */
#include "standin.h"

struct qp *qps;
static uint32_t next_number;

/* --- completions */

/* Tells how a send has ended. */
static void tell(struct qp *qp, uint32_t number, enum ibv_wc_status status)
{
    struct send *send = &qp->sends[number % qp->cap.max_send_wr];
    send->told = true;
    if (status == IBV_WC_WR_FLUSH_ERR) ledger_tally(FLUSHED);
    if (status == IBV_WC_SUCCESS && (send->flags & IBV_SEND_SIGNALED) == 0 && !qp->signal_all) return;
    struct completion completion = {.wc = {.wr_id = send->wr_id, .status = status, .qp_num = qp->public.qp_num},
        .qp = qp,
        .number = number,
        .send = true};
    if (status == IBV_WC_SUCCESS) {
        switch (send->opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM: completion.wc.opcode = IBV_WC_RDMA_WRITE; break;
        case IBV_WR_RDMA_READ:
            completion.wc.opcode = IBV_WC_RDMA_READ;
            completion.wc.byte_len = (uint32_t)send->length;
            break;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            completion.wc.opcode = send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD;
            completion.wc.byte_len = 8;
            break;
        default: completion.wc.opcode = IBV_WC_SEND;
        }
    } else {
        /* Only the number, status and queue pair of an entry in error mean anything. */
        memset(&completion.wc.opcode, 0xee, sizeof completion.wc.opcode);
        completion.wc.byte_len = 0xeeeeeeee;
    }
    cq_push((struct cq *)qp->public.send_cq, &completion);
}

/* Ends the oldest send. */
void qp_complete_send(struct qp *qp, enum ibv_wc_status status)
{
    /* A completion queue that this overruns ends all the others. */
    uint32_t number = qp->oldest++;
    struct send *send = &qp->sends[number % qp->cap.max_send_wr];
    if (!send->told) tell(qp, number, status);
    free(send->inlined);
    send->inlined = NULL;
}

void qp_complete_receive(struct qp *qp, const struct ibv_wc *wc, bool solicited)
{
    struct completion completion = {.wc = *wc, .qp = qp, .srq = (struct srq *)qp->public.srq, .solicited = solicited};
    completion.wc.qp_num = qp->public.qp_num;
    if (wc->status != IBV_WC_SUCCESS) {
        memset(&completion.wc.opcode, 0xee, sizeof completion.wc.opcode);
        completion.wc.byte_len = 0xeeeeeeee;
    }
    if (wc->status == IBV_WC_WR_FLUSH_ERR) ledger_tally(FLUSHED);
    cq_push((struct cq *)qp->public.recv_cq, &completion);
}

/* How what is done ends: as it has, or with a fault that was asked for. */
static enum ibv_wc_status end_of(struct send *send)
{
    static struct call faults = {.name = "send-completion"};
    if (!send->judged) {
        send->judged = true;
        ledger_call(&faults);
        const char *fault = fault_for(&faults);
        if (fault != NULL && send->status == IBV_WC_SUCCESS) send->status = (enum ibv_wc_status)atoi(fault);
    }
    return send->status;
}

/* Linux' siw tells of what has gone, though a read before it is not answered. */
static void overtake(struct qp *qp)
{
    for (uint32_t number = qp->oldest; qp->public.state == IBV_QPS_RTS && number != qp->next; number++) {
        struct send *send = &qp->sends[number % qp->cap.max_send_wr];
        if (!send->done || send->told) continue;
        if (end_of(send) != IBV_WC_SUCCESS) return;
        tell(qp, number, IBV_WC_SUCCESS);
    }
}

/* Ends what is done, in order; an error ends all the rest. */
void qp_retire(struct qp *qp)
{
    while (qp->public.state == IBV_QPS_RTS && qp->oldest != qp->posted) {
        struct send *send = &qp->sends[qp->oldest % qp->cap.max_send_wr];
        if (!send->done) break;
        enum ibv_wc_status status = end_of(send);
        if (qp->oldest == qp->next) qp->next++; /* it ended before it was sent */
        qp_complete_send(qp, status);
        if (status != IBV_WC_SUCCESS) {
            qp_error(qp);
            if (qp->device->iwarp) terminate(qp);
        }
    }
    if (qp->device->iwarp) overtake(qp);
}

void qp_taken(struct qp *qp, uint32_t number)
{
    qp->sends[number % qp->cap.max_send_wr].taken = true;
    if ((int32_t)(number + 1 - qp->taken) > 0) qp->taken = number + 1;
    for (; (int32_t)(qp->taken - qp->released) > 0; qp->released++) {
        const struct send *send = &qp->sends[qp->released % qp->cap.max_send_wr];
        bool tells = (send->flags & IBV_SEND_SIGNALED) != 0 || qp->signal_all;
        if (qp->device->iwarp && is_read(send) && tells && !send->taken) return;
    }
}

bool qp_outstanding(const struct qp *qp) { return qp->public.state == IBV_QPS_RTS && qp->oldest != qp->posted; }

/* --- states */

void qp_reset_numbers(struct qp *qp)
{
    qp->expected = 0;
    qp->received = 0;
    qp->offset = 0;
    qp->reads = qp->reads_asked = 0;
    qp->stopped = qp->silent = qp->has_heard = false;
    qp->rnr_until = 0;
}

static void drop_responses(struct qp *qp)
{
    while (qp->responses != NULL) {
        struct response *response = qp->responses;
        qp->responses = response->next;
        free(response);
    }
    qp->last_response = NULL;
}

/* Everything that waits ends; the order is that of the posts. */
void qp_error(struct qp *qp)
{
    if (qp->public.state == IBV_QPS_ERR || qp->public.state == IBV_QPS_RESET) return;
    qp->public.state = IBV_QPS_ERR;
    drop_responses(qp);
    while (qp->oldest != qp->posted) {
        const struct send *send = &qp->sends[qp->oldest % qp->cap.max_send_wr];
        qp_complete_send(qp, send->done ? send->status : IBV_WC_WR_FLUSH_ERR);
    }
    qp->next = qp->written = qp->posted;
    qp->offset = 0;
    struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};
    if (qp->receiving) {
        qp->receiving = false;
        wc.wr_id = qp->receive.wr_id;
        qp_complete_receive(qp, &wc, false);
    }
    struct receive receive;
    while (receive_queue_take(&qp->receives, &receive)) {
        wc.wr_id = receive.wr_id;
        qp_complete_receive(qp, &wc, false);
    }
    if (qp->public.srq != NULL && !qp->device->iwarp)
        async_post(context_of(qp->public.context), IBV_EVENT_QP_LAST_WQE_REACHED, qp);
    if (qp->wire != NULL) wire_release(qp->wire);
}

static void to_reset(struct qp *qp)
{
    for (; qp->oldest != qp->posted; qp->oldest++) {
        free(qp->sends[qp->oldest % qp->cap.max_send_wr].inlined);
        qp->sends[qp->oldest % qp->cap.max_send_wr].inlined = NULL;
    }
    drop_responses(qp);
    qp->life++;
    qp->released = qp->taken = qp->oldest = qp->next = qp->written = qp->posted = 0;
    qp->receives.first = qp->receives.count = qp->receives.used = 0;
    qp->receiving = false;
    qp_reset_numbers(qp);
    qp->public.state = IBV_QPS_RESET;
}

/* --- calls */

static struct qp *qp_of_number(uint32_t number)
{
    for (struct qp *qp = qps; qp != NULL; qp = qp->following)
        if (qp->public.qp_num == number) return qp;
    return NULL;
}

static struct ibv_qp *create(struct ibv_pd *public, struct ibv_qp_init_attr *init)
{
    struct pd *pd = (struct pd *)public;
    LIVE(pd, KIND_PD, "protection domain");
    struct context *context = context_of(public->context);
    const struct device *device = context->device;
    const struct limits *limits = device->limits;
    if (device->removed) return refuse_null(EIO);
    if (init->qp_type != IBV_QPT_RC) return refuse_null(EOPNOTSUPP);
    if (init->send_cq == NULL || init->recv_cq == NULL) return refuse_null(EINVAL);
    LIVE((struct cq *)init->send_cq, KIND_CQ, "completion queue");
    LIVE((struct cq *)init->recv_cq, KIND_CQ, "completion queue");
    if (init->send_cq->context != public->context || init->recv_cq->context != public->context) return refuse_null(EINVAL);
    if (init->srq != NULL) LIVE((struct srq *)init->srq, KIND_SRQ, "shared receive queue");
    struct ibv_qp_cap *cap = &init->cap;
    uint32_t most = (uint32_t)limits->max_qp_wr, sges = (uint32_t)limits->max_sge;
    if (cap->max_send_wr < 1 || cap->max_send_wr > most || cap->max_recv_wr > most || cap->max_send_sge > sges ||
        cap->max_recv_sge > sges || cap->max_inline_data > limits->inline_data)
        return refuse_null(EINVAL);
    struct qp *qp = make(sizeof *qp);
    qp->tag = (struct tag){.kind = KIND_QP, .alive = true};
    qp->device = context->device;
    if (init->srq != NULL) cap->max_recv_wr = cap->max_recv_sge = 0;
    qp->cap = *cap;
    qp->signal_all = init->sq_sig_all != 0;
    qp->sends = make(cap->max_send_wr * sizeof *qp->sends);
    receive_queue_make(&qp->receives, cap->max_recv_wr, cap->max_recv_sge);
    qp->public = (struct ibv_qp){.context = public->context,
        .qp_context = init->qp_context,
        .pd = public,
        .send_cq = init->send_cq,
        .recv_cq = init->recv_cq,
        .srq = init->srq,
        .qp_num = 17 + (next_number++ & 0xffff),
        .state = IBV_QPS_RESET,
        .qp_type = IBV_QPT_RC};
    while (qp_of_number(qp->public.qp_num) != NULL) qp->public.qp_num = 17 + (next_number++ & 0xffff);
    pd->users++;
    ((struct cq *)init->send_cq)->users++;
    ((struct cq *)init->recv_cq)->users++;
    if (init->srq != NULL) ((struct srq *)init->srq)->users++;
    qp->following = qps;
    qps = qp;
    ledger_add(QPS);
    return &qp->public;
}

PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    ENTER_NULL;
    return create(pd, init);
}

/* The steps of a reliable connection, with what each must and may set. */
static const struct step { enum ibv_qp_state from, to; int must, may;
} steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH},
    {IBV_QPS_RTR, IBV_QPS_RTS,
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
        IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
        IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE},
};

static bool allowed(const struct device *device, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
    mask &= ~IBV_QP_STATE;
    if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return mask == 0;
    if (device->iwarp && from == to) return true; /* it takes what it does not know */
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].from == from && steps[i].to == to)
            return (mask & steps[i].must) == steps[i].must && (mask & ~(steps[i].must | steps[i].may)) == 0;
    return false;
}

static void take_attributes(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
    if (mask & IBV_QP_ACCESS_FLAGS) to->qp_access_flags = from->qp_access_flags;
    if (mask & IBV_QP_AV) to->ah_attr = from->ah_attr;
    if (mask & IBV_QP_PATH_MTU) to->path_mtu = from->path_mtu;
    if (mask & IBV_QP_DEST_QPN) to->dest_qp_num = from->dest_qp_num;
    if (mask & IBV_QP_RQ_PSN) to->rq_psn = from->rq_psn;
    if (mask & IBV_QP_SQ_PSN) to->sq_psn = from->sq_psn;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) to->max_dest_rd_atomic = from->max_dest_rd_atomic;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) to->max_rd_atomic = from->max_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER) to->min_rnr_timer = from->min_rnr_timer;
    if (mask & IBV_QP_TIMEOUT) to->timeout = from->timeout;
    if (mask & IBV_QP_RETRY_CNT) to->retry_cnt = from->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) to->rnr_retry = from->rnr_retry;
    if (mask & IBV_QP_PORT) to->port_num = from->port_num;
}

static bool in_range(const struct device *device, const struct ibv_qp_attr *attr, int mask)
{
    int rd_atom = device->limits->rd_atom;
    if ((mask & IBV_QP_PORT) && (attr->port_num < 1 || attr->port_num > device->port_count)) return false;
    if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0) return false;
    if ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31) return false;
    if ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31) return false;
    if ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7) return false;
    if ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7) return false;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > rd_atom) return false;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > rd_atom) return false;
    return true;
}

PUBLIC int ibv_modify_qp(struct ibv_qp *public, struct ibv_qp_attr *attr, int mask)
{
    ENTER_CODE;
    struct qp *qp = (struct qp *)public;
    LIVE(qp, KIND_QP, "queue pair");
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : public->state;
    if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != public->state) return EINVAL;
    if (!allowed(qp->device, public->state, to, mask) || !in_range(qp->device, attr, mask)) return EINVAL;
    /* The states between belong to the connection manager, where it makes the connection. */
    if (qp->id == NULL && to == IBV_QPS_RTR) return EOPNOTSUPP;
    take_attributes(&qp->attr, attr, mask);
    if (to == IBV_QPS_ERR) {
        qp_error(qp);
        if (qp->device->iwarp) terminate(qp);
        progress_wake();
    } else if (to == IBV_QPS_RESET) {
        to_reset(qp);
    } else {
        public->state = to;
    }
    return 0;
}

/* iWARP's leaves everything 0. */
PUBLIC int ibv_query_qp(struct ibv_qp *public, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    ENTER_CODE;
    struct qp *qp = (struct qp *)public;
    (void)mask;
    LIVE(qp, KIND_QP, "queue pair");
    memset(attr, 0, sizeof *attr);
    memset(init, 0, sizeof *init);
    if (qp->device->iwarp) return 0;
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = public->state;
    attr->cap = qp->cap;
    *init = (struct ibv_qp_init_attr){.qp_context = public->qp_context,
        .send_cq = public->send_cq,
        .recv_cq = public->recv_cq,
        .srq = public->srq,
        .cap = qp->cap,
        .qp_type = public->qp_type,
        .sq_sig_all = qp->signal_all};
    return 0;
}

static int destroy(struct qp *qp)
{
    uint64_t since = 0;
    LIVE(qp, KIND_QP, "queue pair");
    /* Who had sent to it and met no receive would have waited for 655 ms. */
    if (!qp->device->iwarp && qp->expected > 1 && qp->attr.min_rnr_timer == 0) ledger_tally(SLOW);
    struct ibv_qp *public = &qp->public;
    struct wire *wire = qp->wire;
    /* siw flushes what is under way; rxe forgets it. */
    if (qp->device->iwarp) qp_error(qp);
    if (wire != NULL) {
        wire->qp = NULL;
        qp->wire = NULL;
        wire_release(wire);
        /* iWARP: the connection is the queue pair's. */
        if (qp->device->iwarp) wire_close(wire);
    }
    if (qp->id != NULL) {
        if (wire != NULL && qp->device->iwarp) id_disconnected(qp->id);
        if (qp->id->public.qp == public) qp->id->public.qp = NULL;
        qp->id = NULL;
    }
    to_reset(qp);
    async_forget(context_of(public->context), qp);
    while (qp->async.reported != qp->async.acknowledged)
        wait_for_change(&since, "the acknowledgement of a queue pair's events");
    for (struct qp **link = &qps; *link != NULL; link = &(*link)->following)
        if (*link == qp) {
            *link = qp->following;
            break;
        }
    BURY(qp);
    ((struct pd *)public->pd)->users--;
    ((struct cq *)public->send_cq)->users--;
    ((struct cq *)public->recv_cq)->users--;
    if (public->srq != NULL) ((struct srq *)public->srq)->users--;
    ledger_remove(QPS);
    free(qp->sends);
    free(qp->receives.ring);
    qp->sends = NULL;
    qp->receives.ring = NULL;
    progress_wake();
    return 0;
}

PUBLIC int ibv_destroy_qp(struct ibv_qp *qp)
{
    ENTER_CODE;
    return destroy((struct qp *)qp);
}

PUBLIC struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    (void)qp;
    return NULL;
}

/* Nobody promises that the last byte of a message is written last. */
PUBLIC int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
    ENTER_CODE;
    (void)opcode, (void)flags;
    LIVE((struct qp *)qp, KIND_QP, "queue pair");
    return 0;
}

/* --- of ids */

PUBLIC int standin_rdma_create_qp(struct rdma_cm_id *public, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    if (public->qp != NULL || public->verbs == NULL) return refuse(EINVAL);
    if (pd == NULL) violation("rdma_create_qp: the protection domain of the library is not in the stand-in; give one");
    if (pd->context != public->verbs) return refuse(EINVAL);
    struct ibv_qp *made = create(pd, init);
    if (made == NULL) return -1;
    struct qp *qp = (struct qp *)made;
    made->state = IBV_QPS_INIT;
    qp->attr.port_num = public->port_num;
    qp->id = id;
    public->qp = made;
    public->pd = pd;
    return 0;
}

PUBLIC void standin_rdma_destroy_qp(struct rdma_cm_id *public)
{
    ENTER_PLAIN;
    LIVE((struct id *)public, KIND_ID, "id");
    if (public->qp == NULL) violation("rdma_destroy_qp: the id has no queue pair");
    destroy((struct qp *)public->qp);
    public->qp = NULL;
}
