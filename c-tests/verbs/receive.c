/* Receive queues: those of queue pairs, and shared ones. */
#include "standin.h"

void receive_queue_make(struct receive_queue *queue, uint32_t capacity, uint32_t max_sge)
{
    *queue = (struct receive_queue){.capacity = capacity, .max_sge = max_sge};
    if (capacity != 0) queue->ring = make(capacity * sizeof *queue->ring);
}

int receive_queue_post(struct receive_queue *queue, const struct device *device, const struct ibv_recv_wr *wr)
{
    if (queue->used == queue->capacity) return ENOMEM;
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge) return EINVAL;
    if (wr->num_sge == 0 && device->iwarp) return EINVAL;
    struct receive *receive = &queue->ring[(queue->first + queue->count) % queue->capacity];
    receive->wr_id = wr->wr_id;
    receive->sges = wr->num_sge;
    if (wr->num_sge != 0) memcpy(receive->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
    queue->count++;
    queue->used++;
    return 0;
}

bool receive_queue_take(struct receive_queue *queue, struct receive *receive)
{
    if (queue->count == 0) return false;
    *receive = queue->ring[queue->first];
    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    return true;
}

/* --- shared */

PUBLIC struct ibv_srq *ibv_create_srq(struct ibv_pd *public, struct ibv_srq_init_attr *init)
{
    ENTER_NULL;
    struct pd *pd = (struct pd *)public;
    LIVE(pd, KIND_PD, "protection domain");
    const struct device *device = context_of(public->context)->device;
    if (device->removed) return refuse_null(EIO);
    if (init->attr.max_wr < 1 || init->attr.max_wr > (uint32_t)device->limits->max_srq_wr ||
        init->attr.max_sge > (uint32_t)device->limits->max_sge || init->attr.srq_limit > init->attr.max_wr)
        return refuse_null(EINVAL);
    struct srq *srq = make(sizeof *srq);
    srq->tag = (struct tag){.kind = KIND_SRQ, .alive = true};
    receive_queue_make(&srq->queue, init->attr.max_wr, init->attr.max_sge);
    srq->public = (struct ibv_srq){.context = public->context, .srq_context = init->srq_context, .pd = public};
    srq->limit = init->attr.srq_limit;
    pd->users++;
    ledger_add(SRQS);
    return &srq->public;
}

PUBLIC int ibv_modify_srq(struct ibv_srq *public, struct ibv_srq_attr *attr, int mask)
{
    ENTER_CODE;
    struct srq *srq = (struct srq *)public;
    LIVE(srq, KIND_SRQ, "shared receive queue");
    if (mask != IBV_SRQ_LIMIT) return (mask & IBV_SRQ_MAX_WR) != 0 ? EOPNOTSUPP : EINVAL;
    if (attr->srq_limit > srq->queue.capacity) return EINVAL;
    srq->limit = attr->srq_limit;
    return 0;
}

PUBLIC int ibv_query_srq(struct ibv_srq *public, struct ibv_srq_attr *attr)
{
    ENTER_CODE;
    struct srq *srq = (struct srq *)public;
    LIVE(srq, KIND_SRQ, "shared receive queue");
    *attr = (struct ibv_srq_attr){.max_wr = srq->queue.capacity, .max_sge = srq->queue.max_sge, .srq_limit = srq->limit};
    return 0;
}

PUBLIC int ibv_destroy_srq(struct ibv_srq *public)
{
    ENTER_CODE;
    struct srq *srq = (struct srq *)public;
    uint64_t since = 0;
    LIVE(srq, KIND_SRQ, "shared receive queue");
    if (srq->users != 0) return EBUSY;
    async_forget(context_of(public->context), srq);
    while (srq->async.reported != srq->async.acknowledged)
        wait_for_change(&since, "the acknowledgement of a shared receive queue's events");
    BURY(srq);
    ((struct pd *)public->pd)->users--;
    ledger_remove(SRQS);
    free(srq->queue.ring);
    srq->queue.ring = NULL;
    return 0;
}

static void end(struct srq *srq)
{
    srq->broken = true;
    async_post(context_of(srq->public.context), IBV_EVENT_SRQ_ERR, srq);
}

/* Those of a device that queue pairs have end; without a device, of all. */
void srq_end_all(const struct device *device)
{
    for (const struct qp *qp = qps; qp != NULL; qp = qp->following) {
        struct srq *srq = (struct srq *)qp->public.srq;
        if (srq != NULL && !srq->broken && (device == NULL || qp->device == device)) end(srq);
    }
}

bool srq_take(struct srq *srq, struct receive *receive)
{
    static struct call faults = {.name = "shared-queue"};
    if (srq->broken) return false;
    ledger_call(&faults);
    if (fault_for(&faults) != NULL) {
        end(srq);
        return false;
    }
    if (!receive_queue_take(&srq->queue, receive)) return false;
    if (srq->limit != 0 && srq->queue.count < srq->limit) {
        srq->limit = 0; /* once */
        async_post(context_of(srq->public.context), IBV_EVENT_SRQ_LIMIT_REACHED, srq);
    }
    return true;
}

int post_srq_recv(struct ibv_srq *public, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    static struct call call_ = {.name = "ibv_post_srq_recv"};
    struct srq *srq = (struct srq *)public;
    int error = enter(&call_);
    must_live(&srq->tag, KIND_SRQ, "ibv_post_srq_recv", "shared receive queue");
    const struct device *device = context_of(public->context)->device;
    for (; wr != NULL; wr = wr->next) {
        if (error == 0) error = receive_queue_post(&srq->queue, device, wr);
        if (error != 0) {
            *bad = wr;
            break;
        }
    }
    leave(NULL);
    return post_error(device, error);
}
