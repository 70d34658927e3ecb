/* Connections between processes: packets in and out of a TCP socket, which only the thread reads. */
#define _GNU_SOURCE
#include "standin.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IN_ROOM = 2 * (sizeof(struct packet) + CHUNK), KERNEL_TAKES = 256 << 10 };
struct wire *wires;

struct wire *wire_make(int fd, struct port *port)
{
    int on = 1;
    struct wire *wire = make(sizeof *wire);
    wire->fd = fd;
    wire->port = port;
    wire->in = make(IN_ROOM);
    wire->next = wires;
    wires = wire;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return wire;
}

/* Sets what is waited for. A descriptor for which nothing is may not be with epoll: it would hear of hang-ups. */
void wire_watch(struct wire *wire)
{
    unsigned wanted = 0;
    if (!wire->ended && !(wire->port != NULL && wire->port->down)) {
        if (wire->connecting) wanted = EPOLLOUT;
        else {
            if (!wire->held && !wire->eof) wanted |= EPOLLIN;
            if (wire->out_sent < wire->out_size) wanted |= EPOLLOUT;
        }
    }
    if (wanted == wire->watched) return;
    struct epoll_event event = {.events = wanted, .data.ptr = wire};
    int act = wire->watched == 0 ? EPOLL_CTL_ADD : wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    if (epoll_ctl(progress_poll(), act, wire->fd, &event) != 0) violation("epoll refuses a connection");
    wire->watched = wanted;
}

static void detach(struct wire *wire)
{
    if (wire->qp != NULL) {
        wire->qp->wire = NULL;
        wire->qp->heard = now();
    }
    if (wire->id != NULL && wire->id->wire == wire) wire->id->wire = NULL;
    wire->qp = NULL;
    wire->id = wire->listener = NULL;
}

void wire_end(struct wire *wire)
{
    if (wire->ended) return;
    wire->ended = true;
    wire_watch(wire);
    timer_drop(wire);
    close(wire->fd);
    detach(wire);
}

void wire_reap(void)
{
    for (struct wire **link = &wires; *link != NULL;) {
        struct wire *wire = *link;
        if (!wire->ended) {
            link = &wire->next;
            continue;
        }
        *link = wire->next;
        free(wire->in);
        free(wire->out);
        free(wire);
    }
}

static void end_late(void *wire) { wire_end(wire); }

/* What is out goes out; what still comes is not looked at. The socket stays until the peer has closed as well, so that
 * nothing that is under way to it is lost. */
void wire_close(struct wire *wire)
{
    if (wire->closing) return;
    wire->closing = true;
    detach(wire);
    wire->held = false;
    if (wire->connecting || wire->listening || wire->eof) {
        wire_end(wire);
        return;
    }
    timer_set(now() + 2000 * MILLISECOND, end_late, wire);
    progress_wake();
}

void wire_release(struct wire *wire)
{
    if (!wire->held) return;
    wire->held = false;
    progress_wake();
}

/* --- out */

void wire_put(struct wire *wire, const struct packet *packet, const void *payload)
{
    size_t size = sizeof *packet + packet->length;
    struct packet whole = *packet;
    if (wire->ended) return;
    whole.magic = PACKET_MAGIC;
    if (wire->out_size + size > wire->out_room) {
        wire->out_room = wire->out_size + size + CHUNK;
        wire->out = realloc(wire->out, wire->out_room);
        if (wire->out == NULL) violation("no memory");
    }
    memcpy(wire->out + wire->out_size, &whole, sizeof whole);
    if (packet->length != 0) memcpy(wire->out + wire->out_size + sizeof whole, payload, packet->length);
    wire->out_size += size;
    progress_wake();
}

static void lost(struct wire *wire)
{
    wire->eof = true;
    if (wire->closing) {
        wire_end(wire);
        return;
    }
    wire_watch(wire);
    cm_lost(wire);
}

/* Sends what waits; true if nothing is left. */
static bool send_out(struct wire *wire)
{
    while (wire->out_sent < wire->out_size) {
        ssize_t size =
            send(wire->fd, wire->out + wire->out_sent, wire->out_size - wire->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && errno == EAGAIN) return false;
        if (size < 0) {
            /* What the peer has sent before it closed is still read. */
            wire->out_sent = wire->out_size = 0;
            if (wire->closing) wire_end(wire);
            return false;
        }
        wire->out_sent += (size_t)size;
    }
    wire->out_sent = wire->out_size = 0;
    return true;
}

void wire_pump(struct wire *wire)
{
    while (!wire->ended && !wire->connecting && !wire->listening && !(wire->port != NULL && wire->port->down)) {
        if (!send_out(wire)) break;
        if (wire->qp != NULL) requester_written(wire->qp);
        if (wire->closing && !wire->is_shut) {
            wire->is_shut = true;
            shutdown(wire->fd, SHUT_WR);
        }
        if (wire->qp == NULL || wire->eof || wire->ended) break;
        if (!responder_produce(wire->qp) && (wire->qp == NULL || !requester_produce(wire->qp))) break;
    }
    if (!wire->ended) wire_watch(wire);
}

/* --- in */

/* False if the packet has to wait. */
static bool handle(struct wire *wire, const struct packet *packet, const char *payload)
{
    struct qp *qp = wire->qp;
    if (wire->closing) return true;
    if (packet->kind <= PACKET_DISCONNECT) {
        cm_packet(wire, packet, payload);
    } else if (packet->kind <= PACKET_ATOMIC) {
        if (qp != NULL && qp->public.state == IBV_QPS_INIT) return false;
        if (qp == NULL || qp->public.state == IBV_QPS_ERR || qp->public.state == IBV_QPS_RESET) {
            ledger_tally(DROPPED);
            if (!wire->said_silent) wire_put(wire, &(struct packet){.kind = PACKET_SILENT}, NULL);
            wire->said_silent = true;
        } else {
            responder_packet(qp, packet, payload);
        }
    } else if (qp != NULL && qp->public.state == IBV_QPS_RTS) {
        requester_packet(qp, packet, payload);
    }
    return true;
}

static void consume(struct wire *wire)
{
    size_t at = 0;
    while (!wire->ended && !wire->held && wire->in_size - at >= sizeof(struct packet)) {
        struct packet packet;
        memcpy(&packet, wire->in + at, sizeof packet);
        if (packet.magic != PACKET_MAGIC || packet.length > CHUNK) { /* a stranger */
            lost(wire);
            return;
        }
        if (wire->in_size - at < sizeof packet + packet.length) break;
        if (!handle(wire, &packet, wire->in + at + sizeof packet)) {
            wire->held = true;
            break;
        }
        at += sizeof packet + packet.length;
        wire_pump(wire);
    }
    if (wire->ended) return;
    wire->in_size -= at;
    memmove(wire->in, wire->in + at, wire->in_size);
}

static void read_in(struct wire *wire)
{
    for (int round = 0; round < 16 && !wire->ended && !wire->held; round++) {
        ssize_t size = recv(wire->fd, wire->in + wire->in_size, IN_ROOM - wire->in_size, MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && errno == EAGAIN) return;
        if (size <= 0) {
            lost(wire);
            return;
        }
        wire->in_size += (size_t)size;
        consume(wire);
    }
}

/* iWARP over a network that is down: the kernel takes so many bytes, and what it has taken has gone, as far as the sender knows. */
static void send_into_the_void(struct wire *wire)
{
    if (wire->qp == NULL || !wire->port->device->iwarp || wire->connecting || wire->listening) return;
    while (wire->out_size - wire->out_sent < KERNEL_TAKES && requester_produce(wire->qp)) {}
    if (wire->out_size - wire->out_sent < KERNEL_TAKES) requester_written(wire->qp);
}

void wire_ready(struct wire *wire, unsigned events)
{
    if (wire->ended) return;
    if (wire->port != NULL && wire->port->down) {
        send_into_the_void(wire);
        return;
    }
    if (wire->listening) {
        if (events != 0) cm_incoming(wire);
        return;
    }
    if (wire->connecting) {
        int error = 0;
        socklen_t size = sizeof error;
        if (events == 0) return;
        if (getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
        wire->connecting = false;
        cm_connected(wire, error);
    } else {
        consume(wire);
        if ((events & ~(unsigned)EPOLLOUT) != 0 && !wire->ended) read_in(wire);
    }
    wire_pump(wire);
}
