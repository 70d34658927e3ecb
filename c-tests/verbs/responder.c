/* The half of a queue pair that receives: requests in order, checked against keys, bounds and rights before a byte of this
 * process is touched, and answered in order. An answer is on its way before the program can see what it is about. */
#include "standin.h"

static bool answers(const struct qp *qp) { return qp->public.state == IBV_QPS_RTR || qp->public.state == IBV_QPS_RTS; }

void respond(struct qp *qp, const struct response *response)
{
    struct response *made = make(sizeof *made);
    *made = *response;
    made->next = NULL;
    if (qp->responses == NULL) qp->responses = made;
    else qp->last_response->next = made;
    qp->last_response = made;
}

/* Puts the next packet of the oldest response on the wire. */
bool responder_produce(struct qp *qp)
{
    struct response *response = qp->responses;
    if (response == NULL || qp->wire == NULL || !answers(qp)) return false;
    struct packet packet = {
        .kind = response->kind, .code = response->code, .number = response->number, .flags = PACKET_LAST};
    const void *payload = NULL;
    if (response->kind == PACKET_VALUE) {
        packet.length = 8;
        payload = &response->value;
    } else if (response->kind == PACKET_DATA) {
        uint64_t left = response->total - response->offset;
        packet.offset = response->offset;
        packet.length = (uint32_t)(left < CHUNK ? left : CHUNK);
        if (left > CHUNK) packet.flags = 0;
        /* The region may have ended since it was asked for. */
        payload = memory_remote((struct pd *)qp->public.pd, response->rkey, response->address + response->offset,
            packet.length, IBV_ACCESS_REMOTE_READ);
        if (payload == NULL && packet.length != 0) {
            if (qp->device->iwarp) {
                terminate(qp);
                return false;
            }
            packet = (struct packet){
                .kind = PACKET_NAK, .code = IBV_WC_REM_ACCESS_ERR, .number = response->number, .flags = PACKET_LAST};
        }
        response->offset += packet.length;
    }
    wire_put(qp->wire, &packet, payload);
    if ((packet.flags & PACKET_LAST) == 0) return true;
    if (response->kind == PACKET_DATA || response->kind == PACKET_VALUE) qp->reads_asked--;
    qp->responses = response->next;
    if (qp->responses == NULL) qp->last_response = NULL;
    free(response);
    return true;
}

/* --- what a request may not do ends the queue pair */

static void refuse_request(struct qp *qp, const struct packet *packet, enum ibv_wc_status status)
{
    ledger_tally(NAKS);
    if (qp->device->iwarp) {
        terminate(qp);
        return;
    }
    respond(qp, &(struct response){.kind = PACKET_NAK, .code = (uint16_t)status, .number = packet->number});
    while (responder_produce(qp)) {}
    qp_error(qp);
}

/* The receive that was being filled ends in an error first. */
static void fail_receive(struct qp *qp, const struct packet *packet, enum ibv_wc_status here, enum ibv_wc_status there)
{
    qp->receiving = false;
    qp_complete_receive(qp, &(struct ibv_wc){.wr_id = qp->receive.wr_id, .status = here}, false);
    refuse_request(qp, packet, there);
}

static bool take_receive(struct qp *qp, const struct packet *packet)
{
    if (qp->receiving) return true;
    qp->receiving = qp->public.srq != NULL ? srq_take((struct srq *)qp->public.srq, &qp->receive)
                                           : receive_queue_take(&qp->receives, &qp->receive);
    if (qp->receiving) return true;
    if (qp->device->iwarp) {
        terminate(qp);
    } else {
        ledger_tally(RNR_NAKS);
        qp->received = 0;
        respond(qp, &(struct response){.kind = PACKET_RNR, .code = qp->attr.min_rnr_timer, .number = packet->number});
    }
    return false;
}

static void finish(struct qp *qp, const struct packet *packet)
{
    qp->expected++;
    qp->received = 0;
    if (!qp->device->iwarp) respond(qp, &(struct response){.kind = PACKET_ACK, .number = packet->number});
    while (responder_produce(qp)) {}
}

static void receive_is_full(struct qp *qp, const struct packet *packet, enum ibv_wc_opcode opcode)
{
    /* rxe says so of every message that is received. */
    struct ibv_wc wc = {.wr_id = qp->receive.wr_id,
        .status = IBV_WC_SUCCESS,
        .opcode = opcode,
        .byte_len = (uint32_t)packet->total,
        .wc_flags = qp->device->iwarp ? 0 : IBV_WC_GRH};
    static struct call faults = {.name = "receive-completion"};
    if (packet->flags & PACKET_IMMEDIATE) {
        wc.wc_flags |= IBV_WC_WITH_IMM;
        wc.imm_data = packet->immediate;
    }
    ledger_call(&faults);
    const char *fault = fault_for(&faults);
    if (fault != NULL) {
        fail_receive(qp, packet, (enum ibv_wc_status)atoi(fault), IBV_WC_REM_OP_ERR);
        return;
    }
    qp->receiving = false;
    finish(qp, packet);
    qp_complete_receive(qp, &wc, (packet->flags & PACKET_SOLICITED) != 0);
}

/* --- requests */

/* One byte of a message, if that is ordered. */
static void garble(char *memory, uint64_t length)
{
    static struct call faults = {.name = "message"};
    ledger_call(&faults);
    const char *fault = fault_for(&faults);
    if (fault != NULL && strtoul(fault, NULL, 10) < length) memory[strtoul(fault, NULL, 10)] ^= (char)0xFF;
}

static void receive_send(struct qp *qp, const struct packet *packet, const char *payload)
{
    uint64_t room = 0, offset = packet->offset, length = packet->length;
    if (!take_receive(qp, packet)) return;
    for (int i = 0; i < qp->receive.sges; i++) room += qp->receive.sge[i].length;
    if (packet->total > room) {
        fail_receive(qp, packet, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
        return;
    }
    for (int i = 0; i < qp->receive.sges && length != 0; i++) {
        const struct ibv_sge *sge = &qp->receive.sge[i];
        if (offset >= sge->length) {
            offset -= sge->length;
            continue;
        }
        uint64_t part = sge->length - offset < length ? sge->length - offset : length;
        char *memory = memory_local((struct pd *)(qp->public.srq != NULL ? qp->public.srq->pd : qp->public.pd), sge->lkey,
            sge->addr + offset, part, IBV_ACCESS_LOCAL_WRITE);
        if (memory == NULL) {
            fail_receive(qp, packet, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
            return;
        }
        memcpy(memory, payload, part);
        if (i == 0 && offset == 0) garble(memory, part);
        payload += part;
        length -= part;
        offset = 0;
    }
    qp->received += packet->length;
    if (packet->flags & PACKET_LAST) receive_is_full(qp, packet, IBV_WC_RECV);
}

static void receive_write(struct qp *qp, const struct packet *packet, const char *payload)
{
    const struct pd *pd = (struct pd *)qp->public.pd;
    if (packet->total != 0) {
        bool may = (qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0 && packet->offset <= packet->total &&
            packet->length <= packet->total - packet->offset;
        char *whole = may ? memory_remote(pd, packet->rkey, packet->address, packet->total, IBV_ACCESS_REMOTE_WRITE) : NULL;
        if (whole == NULL) {
            refuse_request(qp, packet, IBV_WC_REM_ACCESS_ERR);
            return;
        }
        memcpy(whole + packet->offset, payload, packet->length);
    }
    qp->received += packet->length;
    if ((packet->flags & PACKET_LAST) == 0) return;
    if ((packet->flags & PACKET_IMMEDIATE) == 0) {
        finish(qp, packet);
    } else if (take_receive(qp, packet)) {
        receive_is_full(qp, packet, IBV_WC_RECV_RDMA_WITH_IMM);
    }
}

static void receive_read(struct qp *qp, const struct packet *packet)
{
    const struct pd *pd = (struct pd *)qp->public.pd;
    bool swap = (packet->flags & PACKET_SWAP) != 0, atomic = packet->kind == PACKET_ATOMIC;
    int right = atomic ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_READ;
    if (qp->reads_asked >= qp->attr.max_dest_rd_atomic || (atomic && packet->address % 8 != 0)) {
        refuse_request(qp, packet, IBV_WC_REM_INV_REQ_ERR);
        return;
    }
    char *memory = (qp->attr.qp_access_flags & (unsigned)right) != 0
        ? memory_remote(pd, packet->rkey, packet->address, atomic ? 8 : packet->total, right)
        : NULL;
    if (memory == NULL && packet->total != 0) {
        refuse_request(qp, packet, IBV_WC_REM_ACCESS_ERR);
        return;
    }
    struct response response = {.kind = atomic ? PACKET_VALUE : PACKET_DATA,
        .number = packet->number,
        .rkey = packet->rkey,
        .address = packet->address,
        .total = packet->total};
    if (atomic && swap) {
        response.value = packet->first;
        __atomic_compare_exchange_n(
            (uint64_t *)(void *)memory, &response.value, packet->second, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    } else if (atomic) {
        response.value = __atomic_fetch_add((uint64_t *)(void *)memory, packet->first, __ATOMIC_SEQ_CST);
    }
    qp->reads_asked++;
    qp->expected++;
    respond(qp, &response);
}

void responder_packet(struct qp *qp, const struct packet *packet, const char *payload)
{
    qp->has_heard = true;
    /* What follows a message that had no receive comes again. */
    if (packet->number != qp->expected || packet->offset != qp->received) {
        ledger_tally(DROPPED);
        return;
    }
    switch (packet->kind) {
    case PACKET_SEND: receive_send(qp, packet, payload); break;
    case PACKET_WRITE: receive_write(qp, packet, payload); break;
    default: receive_read(qp, packet);
    }
}

/* iWARP: both ends hear that the connection has ended, and nothing else. */
void terminate(struct qp *qp)
{
    struct wire *wire = qp->wire;
    qp_error(qp);
    if (wire == NULL) return; /* it has ended already, or has not begun */
    ledger_tally(TERMINATED);
    wire_close(wire);
    if (qp->id != NULL) id_disconnected(qp->id);
}
