/* The half of a queue pair that sends: work requests in order, and what the peer answers. RoCE waits for answers, and sends
 * again from where the peer had no receive; on iWARP what is written is done, whatever the peer makes of it. */
#define _GNU_SOURCE
#include "standin.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

bool is_read(const struct send *send)
{
    return send->opcode == IBV_WR_RDMA_READ || send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
        send->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static struct send *send_of(const struct qp *qp, uint32_t number) { return &qp->sends[number % qp->cap.max_send_wr]; }

/* Copies between `bytes` and a part of what the elements name; false if a key says no. */
static bool across(
    const struct qp *qp, const struct send *send, uint64_t offset, uint64_t length, char *bytes, bool into_elements)
{
    const struct pd *pd = (struct pd *)qp->public.pd;
    for (int i = 0; i < send->sges && length != 0; i++) {
        const struct ibv_sge *sge = &send->sge[i];
        if (offset >= sge->length) {
            offset -= sge->length;
            continue;
        }
        uint64_t part = sge->length - offset < length ? sge->length - offset : length;
        char *memory = memory_local(pd, sge->lkey, sge->addr + offset, part, into_elements ? IBV_ACCESS_LOCAL_WRITE : 0);
        if (memory == NULL) return false;
        if (into_elements) memcpy(memory, bytes, part);
        else memcpy(bytes, memory, part);
        bytes += part;
        length -= part;
        offset = 0;
    }
    return true;
}

static void fail(struct qp *qp, uint32_t number, enum ibv_wc_status status)
{
    struct send *send = send_of(qp, number);
    send->done = true;
    send->status = status;
    qp->stopped = true;
    qp_retire(qp);
}

/* --- sending */

bool requester_produce(struct qp *qp)
{
    static char chunk[CHUNK];
    if (qp->public.state != IBV_QPS_RTS || qp->stopped || qp->next == qp->posted) return false;
    struct send *send = send_of(qp, qp->next);
    uint64_t time = now();
    if (time < qp->rnr_until || time < send->due) return false;
    struct packet packet = {
        .number = qp->next, .total = send->length, .offset = qp->offset, .address = send->address, .rkey = send->rkey};
    if (qp->offset == 0 && (send->flags & IBV_SEND_FENCE) != 0 && qp->reads != 0) return false;
    if (is_read(send)) {
        if (qp->reads >= qp->attr.max_rd_atomic) return false;
        packet.kind = send->opcode == IBV_WR_RDMA_READ ? PACKET_READ : PACKET_ATOMIC;
        packet.flags = send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? PACKET_SWAP : 0;
        packet.first = send->first;
        packet.second = send->second;
        send->answered = 0;
        qp->reads++;
        qp->next++;
        wire_put(qp->wire, &packet, NULL);
        return true;
    }
    uint64_t left = send->length - qp->offset;
    packet.length = (uint32_t)(left < CHUNK ? left : CHUNK);
    packet.kind = send->opcode == IBV_WR_SEND || send->opcode == IBV_WR_SEND_WITH_IMM ? PACKET_SEND : PACKET_WRITE;
    packet.immediate = send->immediate;
    if (send->opcode == IBV_WR_SEND_WITH_IMM || send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) packet.flags |= PACKET_IMMEDIATE;
    if (send->flags & IBV_SEND_SOLICITED) packet.flags |= PACKET_SOLICITED;
    if (left <= CHUNK) packet.flags |= PACKET_LAST;
    const char *payload = chunk;
    if (send->inlined != NULL) {
        payload = send->inlined + qp->offset;
    } else if (!across(qp, send, qp->offset, packet.length, chunk, false)) {
        fail(qp, qp->next, IBV_WC_LOC_PROT_ERR);
        return false;
    }
    wire_put(qp->wire, &packet, payload);
    qp->offset += packet.length;
    if (packet.flags & PACKET_LAST) {
        qp->next++;
        qp->offset = 0;
    }
    return true;
}

void requester_written(struct qp *qp)
{
    if (!qp->device->iwarp || qp->public.state != IBV_QPS_RTS || qp->written == qp->next) return;
    for (; qp->written != qp->next; qp->written++) {
        struct send *send = send_of(qp, qp->written);
        if (!is_read(send)) send->done = true;
    }
    qp_retire(qp);
}

/* --- answers */

uint64_t rnr_delay(unsigned code)
{
    static const unsigned hundredths[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512,
        768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return (uint64_t)hundredths[code & 31] * 10000;
}

static void not_ready(struct qp *qp, uint32_t number, unsigned code)
{
    if (qp->attr.rnr_retry != 7) {
        if (qp->rnr_left == 0) {
            fail(qp, number, IBV_WC_RNR_RETRY_EXC_ERR);
            return;
        }
        qp->rnr_left--;
    }
    for (uint32_t again = number; again != qp->next; again++)
        if (is_read(send_of(qp, again))) qp->reads--;
    ledger_tally(RESENT);
    qp->next = number;
    qp->offset = 0;
    qp->rnr_until = now() + rnr_delay(code);
}

void requester_packet(struct qp *qp, const struct packet *packet, const char *payload)
{
    uint32_t number = packet->number;
    if (packet->kind == PACKET_SILENT) {
        if (!qp->silent) qp->heard = now();
        qp->silent = true;
        return;
    }
    qp->heard = now();
    /* One that is only partly out may be answered too. */
    bool under_way = number - qp->oldest < qp->next - qp->oldest || (number == qp->next && qp->offset != 0);
    if (!under_way || qp->stopped) return;
    struct send *send = send_of(qp, number);
    switch (packet->kind) {
    case PACKET_ACK:
        qp->rnr_left = qp->attr.rnr_retry;
        send->done = true;
        qp_retire(qp);
        break;
    case PACKET_NAK: fail(qp, number, (enum ibv_wc_status)packet->code); break;
    case PACKET_RNR: not_ready(qp, number, packet->code); break;
    case PACKET_DATA:
    case PACKET_VALUE:
        if (!is_read(send) || packet->offset != send->answered || packet->offset + packet->length > send->length) {
            fail(qp, number, IBV_WC_BAD_RESP_ERR);
            break;
        }
        if (!across(qp, send, packet->offset, packet->length, (char *)payload, true)) {
            fail(qp, number, IBV_WC_LOC_PROT_ERR);
            break;
        }
        qp->rnr_left = qp->attr.rnr_retry;
        send->answered += packet->length;
        if (packet->flags & PACKET_LAST) {
            send->done = true;
            qp->reads--;
            qp_retire(qp);
        }
        break;
    default: break;
    }
}

/* --- no answers */

/* Whether packets get no further than this machine, as the kernel knows it: for a peer that is only stopped its kernel
 * acknowledges, though perhaps late. */
static bool unreachable(const struct wire *wire, uint64_t patience)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    if (getsockopt(wire->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    return info.tcpi_unacked != 0 && info.tcpi_retransmits != 0 && info.tcpi_last_ack_recv * MILLISECOND > patience;
}

void requester_tick(struct qp *qp, uint64_t time)
{
    if (!qp_outstanding(qp) || qp->device->iwarp || qp->attr.timeout == 0) return;
    uint64_t patience = ((uint64_t)4096 << qp->attr.timeout) * (qp->attr.retry_cnt + 1);
    if (time < qp->heard + patience) return;
    if (qp->silent || qp->wire == NULL || qp->wire->port->down || unreachable(qp->wire, patience))
        fail(qp, qp->oldest, IBV_WC_RETRY_EXC_ERR);
}
