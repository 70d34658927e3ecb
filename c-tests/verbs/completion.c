/* Completion queues and their channels. One that runs over is broken: it takes nothing more, and neither it nor the queue
 * pairs on it recover. What is in one stays there when its queue pair is reset or destroyed, as with rxe and siw, whose
 * libraries leave the queue alone; some others' clean it. */
#include "standin.h"

#include <unistd.h>

struct completion_channel {
    struct ibv_comp_channel public;
    struct tag tag;
    struct bell bell;
    struct announcement { struct cq *cq; struct announcement *next; } *first, *last;
};

/* --- channels */

PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    ENTER_NULL;
    struct completion_channel *channel = make(sizeof *channel);
    if (bell_make(&channel->bell) != 0) return refuse_null(EMFILE);
    channel->tag = (struct tag){.kind = KIND_COMPLETION_CHANNEL, .alive = true};
    channel->public = (struct ibv_comp_channel){.context = context, .fd = channel->bell.fd};
    context_of(context)->users++;
    ledger_add(COMPLETION_CHANNELS);
    return &channel->public;
}

PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *public)
{
    ENTER_CODE;
    struct completion_channel *channel = (struct completion_channel *)public;
    LIVE(channel, KIND_COMPLETION_CHANNEL, "completion channel");
    if (public->refcnt != 0) return EBUSY;
    BURY(channel);
    close(channel->bell.fd);
    context_of(public->context)->users--;
    ledger_remove(COMPLETION_CHANNELS);
    return 0;
}

static void announce(struct cq *cq)
{
    struct completion_channel *channel = (struct completion_channel *)cq->public.channel;
    if (channel == NULL) return;
    struct announcement *announcement = make(sizeof *announcement);
    announcement->cq = cq;
    if (channel->first == NULL) channel->first = announcement;
    else channel->last->next = announcement;
    channel->last = announcement;
    bell_set(&channel->bell, true);
}

static void forget(struct cq *cq)
{
    struct completion_channel *channel = (struct completion_channel *)cq->public.channel;
    struct announcement *last = NULL;
    if (channel == NULL) return;
    for (struct announcement **link = &channel->first; *link != NULL;) {
        struct announcement *announcement = *link;
        if (announcement->cq == cq) {
            *link = announcement->next;
            free(announcement);
        } else {
            last = announcement;
            link = &announcement->next;
        }
    }
    channel->last = last;
    if (channel->first == NULL) bell_set(&channel->bell, false);
}

PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *public, struct ibv_cq **cq, void **context)
{
    ENTER_MINUS;
    struct completion_channel *channel = (struct completion_channel *)public;
    LIVE(channel, KIND_COMPLETION_CHANNEL, "completion channel");
    while (channel->first == NULL) {
        int error = bell_wait(&channel->bell);
        if (error != 0) return refuse(error);
        LIVE(channel, KIND_COMPLETION_CHANNEL, "completion channel");
    }
    struct announcement *first = channel->first;
    *cq = &first->cq->public;
    *context = first->cq->public.cq_context;
    first->cq->completion.reported++;
    ledger_add(COMPLETION_EVENTS);
    channel->first = first->next;
    if (channel->first == NULL) bell_set(&channel->bell, false);
    free(first);
    return 0;
}

PUBLIC void ibv_ack_cq_events(struct ibv_cq *public, unsigned count)
{
    ENTER_PLAIN;
    struct cq *cq = (struct cq *)public;
    LIVE(cq, KIND_CQ, "completion queue");
    if (count > cq->completion.reported - cq->completion.acknowledged) violation("ibv_ack_cq_events: more than were got");
    cq->completion.acknowledged += count;
    while (count-- != 0) ledger_remove(COMPLETION_EVENTS);
    pthread_cond_broadcast(&changed);
}

/* --- queues */

/* For programs that ask how many receives have completed and were not read. */
static long unread;
PUBLIC long standin_unread(void);
PUBLIC long standin_unread(void)
{
    pthread_mutex_lock(&lock);
    long count = unread;
    pthread_mutex_unlock(&lock);
    return count;
}

PUBLIC struct ibv_cq *ibv_create_cq(
    struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
    ENTER_NULL;
    const struct device *device = context_of(context)->device;
    if (channel != NULL) {
        LIVE((struct completion_channel *)channel, KIND_COMPLETION_CHANNEL, "completion channel");
        if (channel->context != context) return refuse_null(EINVAL);
    }
    if (device->removed) return refuse_null(EIO);
    if (cqe < 1 || cqe > device->limits->max_cqe || vector != 0) return refuse_null(EINVAL);
    struct cq *cq = make(sizeof *cq);
    cq->tag = (struct tag){.kind = KIND_CQ, .alive = true};
    cq->ring = make((size_t)cqe * sizeof *cq->ring);
    cq->public = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
    if (channel != NULL) channel->refcnt++;
    context_of(context)->users++;
    ledger_add(CQS);
    return &cq->public;
}

PUBLIC int ibv_resize_cq(struct ibv_cq *public, int cqe)
{
    ENTER_CODE;
    struct cq *cq = (struct cq *)public;
    LIVE(cq, KIND_CQ, "completion queue");
    const struct device *device = context_of(public->context)->device;
    if (device->iwarp) return ENOSYS;
    if (cqe < 1 || cqe > device->limits->max_cqe || (unsigned)cqe < cq->count) return EINVAL;
    struct entry *ring = make((size_t)cqe * sizeof *ring);
    for (unsigned i = 0; i < cq->count; i++) ring[i] = cq->ring[(cq->first + i) % (unsigned)public->cqe];
    free(cq->ring);
    cq->ring = ring;
    cq->first = 0;
    public->cqe = cqe;
    return 0;
}

PUBLIC int ibv_destroy_cq(struct ibv_cq *public)
{
    ENTER_CODE;
    struct cq *cq = (struct cq *)public;
    uint64_t since = 0;
    LIVE(cq, KIND_CQ, "completion queue");
    if (cq->users != 0) return EBUSY;
    forget(cq);
    async_forget(context_of(public->context), cq);
    while (cq->completion.reported != cq->completion.acknowledged || cq->async.reported != cq->async.acknowledged)
        wait_for_change(&since, "the acknowledgement of a completion queue's events");
    for (unsigned i = 0; i < cq->count; i++) unread -= !cq->ring[(cq->first + i) % (unsigned)public->cqe].send;
    BURY(cq);
    if (public->channel != NULL) public->channel->refcnt--;
    context_of(public->context)->users--;
    ledger_remove(CQS);
    free(cq->ring);
    cq->ring = NULL;
    return 0;
}

/* It takes nothing more, and neither do the queue pairs on it. */
static void end(struct cq *cq)
{
    cq->broken = true;
    async_post(context_of(cq->public.context), IBV_EVENT_CQ_ERR, cq);
    for (struct qp *qp = qps; qp != NULL; qp = qp->following)
        if (qp->public.send_cq == &cq->public || qp->public.recv_cq == &cq->public) {
            async_post(context_of(cq->public.context), IBV_EVENT_QP_FATAL, qp);
            qp_error(qp);
        }
}

static void overrun(struct cq *cq)
{
    ledger_tally(CQ_OVERRUNS);
    end(cq);
}

/* Those of a device that queue pairs have end, whatever is in them; without a device, of all. */
void cq_end_all(const struct device *device)
{
    for (struct qp *qp = qps; qp != NULL; qp = qp->following) {
        if (device != NULL && qp->device != device) continue;
        struct cq *both[] = {(struct cq *)qp->public.send_cq, (struct cq *)qp->public.recv_cq};
        for (size_t at = 0; at < 2; at++)
            if (!both[at]->broken) end(both[at]);
    }
    progress_wake();
}

void cq_push(struct cq *cq, const struct completion *completion)
{
    static struct call faults = {.name = "overrun"};
    if (cq->broken) return;
    ledger_call(&faults);
    const char *fault = fault_for(&faults);
    if (cq->count == (unsigned)cq->public.cqe || (fault != NULL && strcmp(fault, "lost") != 0)) {
        overrun(cq);
        return;
    }
    if (fault != NULL) {
        async_post(context_of(cq->public.context), IBV_EVENT_CQ_ERR, cq);
        return;
    }
    struct entry *entry = &cq->ring[(cq->first + cq->count) % (unsigned)cq->public.cqe];
    *entry = (struct entry){.wc = completion->wc,
        .qp = completion->qp,
        .srq = completion->srq,
        .number = completion->number,
        .life = completion->qp->life,
        .send = completion->send};
    atomic_fetch_add(&cq->count, 1);
    unread += !completion->send;
    if (cq->armed == 2 || (cq->armed == 1 && (completion->solicited || completion->wc.status != IBV_WC_SUCCESS))) {
        cq->armed = 0;
        announce(cq);
    }
}

/* A place that an entry stands for is free. */
static void release(const struct entry *entry)
{
    if (entry->srq != NULL && !entry->send) entry->srq->queue.used--;
    else if (entry->life != entry->qp->life) return;
    else if (entry->send) qp_taken(entry->qp, entry->number);
    else entry->qp->receives.used--;
}

/* A place in a work queue is free again when its completion, or a later one, has been taken from here. */
int poll_cq(struct ibv_cq *public, int most, struct ibv_wc *wc)
{
    static struct call call_ = {.name = "ibv_poll_cq"};
    struct cq *cq = (struct cq *)public;
    int count = 0;
    if (cq->tag.alive && cq->tag.kind == KIND_CQ && atomic_load(&cq->count) == 0) return 0;
    int fault = enter(&call_);
    must_live(&cq->tag, KIND_CQ, "ibv_poll_cq", "completion queue");
    for (; fault == 0 && count < most && cq->count != 0; count++) {
        struct entry *entry = &cq->ring[cq->first];
        wc[count] = entry->wc;
        unread -= !entry->send;
        release(entry);
        cq->first = (cq->first + 1) % (unsigned)public->cqe;
        atomic_fetch_sub(&cq->count, 1);
    }
    leave(NULL);
    return fault == 0 ? count : -fault;
}

int req_notify_cq(struct ibv_cq *public, int solicited_only)
{
    static struct call call_ = {.name = "ibv_req_notify_cq"};
    struct cq *cq = (struct cq *)public;
    int fault = enter(&call_);
    must_live(&cq->tag, KIND_CQ, "ibv_req_notify_cq", "completion queue");
    if (fault == 0 && public->channel == NULL) violation("ibv_req_notify_cq: this completion queue has no channel");
    if (fault == 0 && cq->armed != 2) cq->armed = solicited_only ? 1 : 2;
    leave(NULL);
    return fault;
}

PUBLIC const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const texts[] = {"success", "local length error", "local QP operation error",
        "local EE context operation error", "local protection error", "Work Request Flushed Error",
        "memory management operation error", "bad response error", "local access error", "remote invalid request error",
        "remote access error", "remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
        "local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number",
        "invalid EE context state", "fatal error", "response timeout error", "general error"};
    return (size_t)status < sizeof texts / sizeof *texts ? texts[status] : "unknown";
}
