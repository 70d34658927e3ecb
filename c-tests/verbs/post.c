/* Posts: what is refused at once, and what is written down for the thread to do. */
#include "standin.h"

enum { UNTOLD_BYTES = 4096 };

static bool is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool known(const struct device *device, enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ: return true;
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return !device->iwarp;
    default: return false;
    }
}

static int check(const struct qp *qp, const struct ibv_send_wr *wr, uint64_t length)
{
    const unsigned flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    bool from_peer = wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr->opcode);
    /* Linux' rxe lets a place go once the peer has acknowledged; adapters do once a completion that says so is taken. */
    uint32_t in_use = qp->posted - (settings.strict ? qp->released : qp->oldest);
    if (in_use >= qp->cap.max_send_wr) return ENOMEM;
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge) return EINVAL;
    if (!known(qp->device, wr->opcode) || (wr->send_flags & ~flags) != 0) return EINVAL;
    if (wr->send_flags & IBV_SEND_INLINE && (from_peer || length > qp->cap.max_inline_data)) return EINVAL;
    if (is_atomic(wr->opcode) &&
        (length != 8 || wr->num_sge != 1 || wr->sg_list->addr % 8 != 0 || wr->wr.atomic.remote_addr % 8 != 0))
        return EINVAL;
    if (qp->device->iwarp && wr->opcode == IBV_WR_RDMA_READ && wr->num_sge > 1) return EINVAL;
    /* Without any room for it at the peer it would wait for ever. */
    if (from_peer && qp->public.state == IBV_QPS_RTS && qp->attr.max_rd_atomic == 0) return EINVAL;
    return length > qp->device->limits->message ? EINVAL : 0;
}

static int post_one(struct qp *qp, const struct ibv_send_wr *wr, uint64_t due)
{
    uint64_t length = 0;
    if (qp->public.state != IBV_QPS_RTS && qp->public.state != IBV_QPS_ERR) return EINVAL;
    for (int i = 0; i < wr->num_sge; i++) length += wr->sg_list[i].length;
    int error = check(qp, wr, length);
    if (error != 0) return error;
    struct send *send = &qp->sends[qp->posted % qp->cap.max_send_wr];
    *send = (struct send){.wr_id = wr->wr_id,
        .opcode = wr->opcode,
        .flags = wr->send_flags,
        .immediate = wr->imm_data,
        .length = length,
        .due = length >= settings.delay_from ? due : 0,
        .sges = wr->num_sge};
    if (is_atomic(wr->opcode)) {
        send->address = wr->wr.atomic.remote_addr;
        send->rkey = wr->wr.atomic.rkey;
        send->first = wr->wr.atomic.compare_add;
        send->second = wr->wr.atomic.swap;
    } else if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) {
        send->address = wr->wr.rdma.remote_addr;
        send->rkey = wr->wr.rdma.rkey;
    }
    if (wr->num_sge != 0) memcpy(send->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *send->sge);
    if (wr->send_flags & IBV_SEND_INLINE) {
        /* Its keys are not looked at. */
        size_t at = 0;
        send->inlined = make(length + 1);
        for (int i = 0; i < wr->num_sge; at += wr->sg_list[i++].length)
            memcpy(send->inlined + at, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
    }
    /* siw sends a page and more out of the program's memory where no completion is asked for, and again out of it what is
     * lost, however much later: another completion does not say that it is done with it (siw_qp_tx.c). */
    if (qp->device->iwarp && length >= UNTOLD_BYTES && !(wr->send_flags & (IBV_SEND_SIGNALED | IBV_SEND_INLINE)) &&
        wr->opcode != IBV_WR_RDMA_READ && !qp->signal_all)
        ledger_tally(UNTOLD);
    if (qp->oldest == qp->posted) qp->heard = now();
    qp->posted++;
    if (qp->public.state == IBV_QPS_ERR) {
        qp->next = qp->written = qp->posted;
        qp_complete_send(qp, IBV_WC_WR_FLUSH_ERR);
    }
    return 0;
}

int post_send(struct ibv_qp *public, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    static struct call call_ = {.name = "ibv_post_send"};
    struct qp *qp = (struct qp *)public;
    int error = enter(&call_);
    must_live(&qp->tag, KIND_QP, "ibv_post_send", "queue pair");
    uint64_t due = settings.delay == 0 ? 0 : now() + settings.delay * 1000;
    for (; wr != NULL; wr = wr->next) {
        if (error == 0) error = post_one(qp, wr, due);
        if (error != 0) {
            *bad = wr;
            break;
        }
    }
    /* An iWARP responder that sends before it has heard from the initiator breaks the connection. */
    if (qp->device->iwarp && public->state == IBV_QPS_RTS && qp->wire != NULL && qp->wire->passive && !qp->has_heard &&
        qp->posted != qp->oldest) {
        ledger_tally(SPOKE_FIRST);
        qp_error(qp);
        terminate(qp);
    }
    progress_wake();
    int code = post_error(qp->device, error);
    leave(NULL);
    return code;
}

int post_recv(struct ibv_qp *public, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    static struct call call_ = {.name = "ibv_post_recv"};
    struct qp *qp = (struct qp *)public;
    int error = enter(&call_);
    must_live(&qp->tag, KIND_QP, "ibv_post_recv", "queue pair");
    for (; wr != NULL; wr = wr->next) {
        if (error == 0 && (public->state == IBV_QPS_RESET || public->srq != NULL)) error = EINVAL;
        if (error == 0) error = receive_queue_post(&qp->receives, qp->device, wr);
        if (error != 0) {
            *bad = wr;
            break;
        }
        if (public->state == IBV_QPS_ERR) {
            struct receive receive;
            receive_queue_take(&qp->receives, &receive);
            qp_complete_receive(qp, &(struct ibv_wc){.wr_id = receive.wr_id, .status = IBV_WC_WR_FLUSH_ERR}, false);
        }
    }
    int code = post_error(qp->device, error);
    leave(NULL);
    return code;
}
