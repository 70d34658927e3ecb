/* Connections: requests and what answers them, and how they end. RoCE and iWARP differ in each of these. */
#define _GNU_SOURCE
#include "standin.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* As InfiniBand's connection manager has them: how many bytes of private data a message carries, whatever was given. */
enum { REQUEST_DATA = 56, REPLY_DATA = 196, REJECT_DATA = 148, DEFAULT_TIMEOUT = 19 };
enum { REASON_NOBODY = 8, REASON_CONSUMER = 28 };

static bool is_iwarp(const struct id *id) { return id->port->device->iwarp; }

/* What a side asks for travels in one packet. */
static struct packet packet_of(uint8_t kind, const struct id *id, const struct rdma_conn_param *param)
{
    return (struct packet){.kind = kind,
        .flags = is_iwarp(id) ? PACKET_IWARP : 0,
        .length = param->private_data_len,
        .code = (uint16_t)(param->rnr_retry_count | param->retry_count << 8),
        .rkey = (uint32_t)param->responder_resources << 8 | param->initiator_depth,
        .immediate = param->qp_num};
}

static struct rdma_conn_param param_of(const struct packet *packet)
{
    /* What the one may ask for, the other has to answer: seen from here they are the other way round. */
    return (struct rdma_conn_param){.responder_resources = (uint8_t)packet->rkey,
        .initiator_depth = (uint8_t)(packet->rkey >> 8),
        .flow_control = 1,
        .retry_count = (uint8_t)(packet->code >> 8),
        .rnr_retry_count = (uint8_t)packet->code,
        .qp_num = packet->immediate};
}

static uint8_t at_most(uint8_t value, uint8_t most) { return value < most ? value : most; }

static bool resources_fit(const struct id *id, const struct rdma_conn_param *param)
{
    int most = id->port->device->limits->rd_atom;
    return (param->responder_resources == RDMA_MAX_RESP_RES || param->responder_resources <= most) &&
        (param->initiator_depth == RDMA_MAX_INIT_DEPTH || param->initiator_depth <= most);
}

/* The queue pair as the manager sets it: `reads` may be asked of the peer, and `answers` by it. */
static void set_up(struct id *id, uint8_t reads, uint8_t answers, uint8_t rnr_retry, uint8_t retry)
{
    struct qp *qp = (struct qp *)id->public.qp;
    qp_reset_numbers(qp);
    qp->attr.max_rd_atomic = reads;
    qp->attr.max_dest_rd_atomic = answers;
    qp->attr.rnr_retry = qp->rnr_left = at_most(rnr_retry, 7);
    qp->attr.retry_cnt = at_most(retry, 7);
    qp->attr.timeout = id->has_ack_timeout ? id->ack_timeout : DEFAULT_TIMEOUT;
    if (!id->has_ack_timeout && !is_iwarp(id)) ledger_tally(PATIENT);
    qp->attr.path_mtu = IBV_MTU_1024;
    qp->attr.port_num = id->public.port_num;
    qp->attr.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | (answers != 0 ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0);
    qp->wire = id->wire;
    id->wire->qp = qp;
}

static bool qp_ready(const struct id *id) { return id->public.qp != NULL && id->public.qp->state == IBV_QPS_INIT; }

/* --- asking */

static void unreachable(void *object)
{
    struct id *id = object;
    if (id->state != ID_CONNECTING) return;
    id->state = ID_ENDED;
    if (id->wire != NULL) wire_end(id->wire);
    event_post(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
}

static void rejected(struct id *id, int status, const void *data, size_t length)
{
    struct event_data with = {.data = data, .length = length, .filled = is_iwarp(id) ? 0 : REJECT_DATA};
    event_post(id, RDMA_CM_EVENT_REJECTED, status, &with);
}

static void send_request(struct id *id)
{
    struct packet packet = packet_of(PACKET_REQUEST, id, &id->param);
    id_names(id, id->wire->fd, true);
    wire_put(id->wire, &packet, id->data);
}

/* iWARP waits for the peer's kernel within the call. */
static int connect_now(struct id *id, int fd)
{
    struct pollfd poll_on = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    pthread_mutex_unlock(&lock);
    int status = poll(&poll_on, 1, (int)settings.cm_timeout);
    pthread_mutex_lock(&lock);
    if (!id->tag.alive) violation("rdma_connect: the id ended in another thread");
    if (status == 0) return ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    return error;
}

static int start_connect(struct id *id, const struct rdma_conn_param *param)
{
    if (id->state != ID_ROUTE || !qp_ready(id)) return EINVAL;
    if (id->port->device->removed) return ENODEV;
    if (!is_iwarp(id) && param->private_data_len > REQUEST_DATA) return EINVAL;
    if (!resources_fit(id, param)) return EINVAL;
    int fd = id->fd;
    if (fd < 0) fd = socket(id->public.route.addr.dst_addr.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    id->fd = -1;
    if (fd < 0) return errno;
    id->param = *param;
    /* The request goes out once TCP has connected: the queue pair may have ended by then. */
    id->param.qp_num = id->public.qp->qp_num;
    if (param->responder_resources == RDMA_MAX_RESP_RES)
        id->param.responder_resources = (uint8_t)id->port->device->limits->rd_atom;
    if (param->initiator_depth == RDMA_MAX_INIT_DEPTH) id->param.initiator_depth = (uint8_t)id->port->device->limits->rd_atom;
    if (param->private_data_len != 0) memcpy(id->data, param->private_data, param->private_data_len);
    int error = connect(fd, &id->public.route.addr.dst_addr, address_size(&id->public.route.addr.dst_addr)) == 0 ? 0 : errno;
    if (error == EINPROGRESS && is_iwarp(id)) error = connect_now(id, fd);
    if (error != 0 && error != EINPROGRESS) {
        close(fd);
        if (is_iwarp(id) || error != ECONNREFUSED) return error;
        id->state = ID_ENDED;
        rejected(id, REASON_NOBODY, NULL, 0);
        return 0;
    }
    id->wire = wire_make(fd, id->port);
    id->wire->id = id;
    id->wire->connecting = error == EINPROGRESS;
    id->state = ID_CONNECTING;
    id->told = id->disconnecting = false;
    timer_set(now() + settings.cm_timeout * MILLISECOND, unreachable, id);
    if (!id->wire->connecting) send_request(id);
    wire_watch(id->wire);
    progress_wake();
    return 0;
}

PUBLIC int standin_rdma_connect(struct rdma_cm_id *public, struct rdma_conn_param *param)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    struct rdma_conn_param none = {.responder_resources = RDMA_MAX_RESP_RES,
        .initiator_depth = RDMA_MAX_INIT_DEPTH,
        .retry_count = 7,
        .rnr_retry_count = 7};
    LIVE(id, KIND_ID, "id");
    int error = start_connect(id, param != NULL ? param : &none);
    return error != 0 ? refuse(error) : 0;
}

void cm_connected(struct wire *wire, int error)
{
    struct id *id = wire->id;
    if (id == NULL) {
        wire_end(wire);
    } else if (error == 0) {
        send_request(id);
    } else {
        id->state = ID_ENDED;
        wire_end(wire);
        timer_drop(id);
        if (error == ECONNREFUSED) rejected(id, REASON_NOBODY, NULL, 0);
        else event_post(id, RDMA_CM_EVENT_UNREACHABLE, -error, NULL);
    }
}

/* --- being asked */

PUBLIC int standin_rdma_listen(struct rdma_cm_id *public, int backlog)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    if (id->state != ID_BOUND) return refuse(EINVAL);
    if (listen(id->fd, backlog > 0 ? backlog : 1024) != 0) return -1;
    id->wire = wire_make(id->fd, id->port);
    id->fd = -1;
    id->wire->listening = true;
    id->wire->id = id;
    id->state = ID_LISTENING;
    wire_watch(id->wire);
    return 0;
}

void listener_drop(struct id *id)
{
    if (id->state != ID_LISTENING) return;
    id->state = ID_ENDED;
    for (struct wire *wire = wires; wire != NULL; wire = wire->next)
        if (wire->listener == id) wire_end(wire);
    if (id->wire != NULL) wire_end(id->wire);
}

void cm_incoming(struct wire *listener)
{
    struct sockaddr_storage storage;
    struct sockaddr *here = (struct sockaddr *)&storage;
    socklen_t size = sizeof storage;
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (getsockname(fd, here, &size) != 0 || port_at(here) == NULL) {
        close(fd);
        return;
    }
    struct wire *wire = wire_make(fd, port_at(here));
    wire->passive = true;
    wire->listener = listener->id;
    wire_watch(wire);
}

static void request(struct wire *wire, const struct packet *packet, const char *data)
{
    struct id *listener = wire->listener;
    wire->listener = NULL;
    if (listener == NULL || packet->length > sizeof listener->data ||
        ((packet->flags & PACKET_IWARP) != 0) != wire->port->device->iwarp) {
        wire_end(wire);
        return;
    }
    struct id *id = id_make((struct channel *)listener->public.channel, listener->public.context);
    id_use(id, wire->port);
    id->wire = wire;
    wire->id = id;
    id->state = ID_REQUESTED;
    id_names(id, wire->fd, true);
    id->param = param_of(packet);
    struct event_data with = {.data = data,
        .length = packet->length,
        .filled = wire->port->device->iwarp ? 0 : REQUEST_DATA,
        .param = id->param,
        .request = id};
    event_post(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &with);
}

static int start_accept(struct id *id, const struct rdma_conn_param *param)
{
    struct rdma_conn_param answer = *param;
    if (id->state == ID_ENDED && id->port != NULL && is_iwarp(id)) return ECONNRESET;
    if (id->state != ID_REQUESTED || !qp_ready(id) || !resources_fit(id, param)) return EINVAL;
    if (!is_iwarp(id) && param->private_data_len > REPLY_DATA) return EINVAL;
    answer.responder_resources = at_most(param->responder_resources, id->param.responder_resources);
    answer.initiator_depth = at_most(param->initiator_depth, id->param.initiator_depth);
    answer.qp_num = id->public.qp->qp_num;
    set_up(id, answer.initiator_depth, answer.responder_resources, id->param.rnr_retry_count, id->param.retry_count);
    id->public.qp->state = IBV_QPS_RTS;
    struct packet packet = packet_of(PACKET_REPLY, id, &answer);
    wire_put(id->wire, &packet, param->private_data);
    if (is_iwarp(id)) {
        id->state = ID_CONNECTED;
        event_post(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
    } else {
        id->state = ID_ACCEPTED;
    }
    progress_wake();
    return 0;
}

PUBLIC int standin_rdma_accept(struct rdma_cm_id *public, struct rdma_conn_param *param)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    struct rdma_conn_param none = {
        .responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH, .rnr_retry_count = 7};
    LIVE(id, KIND_ID, "id");
    int error = start_accept(id, param != NULL ? param : &none);
    return error != 0 ? refuse(error) : 0;
}

PUBLIC int standin_rdma_reject(struct rdma_cm_id *public, const void *data, uint8_t length)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    if (id->state != ID_REQUESTED || (!is_iwarp(id) && length > REJECT_DATA)) return refuse(EINVAL);
    id->state = ID_ENDED;
    wire_put(id->wire, &(struct packet){.kind = PACKET_REJECT, .length = length}, data);
    wire_close(id->wire);
    return 0;
}

/* Only for ids whose queue pair is not theirs, as the real one says. */
PUBLIC int standin_rdma_establish(struct rdma_cm_id *id)
{
    ENTER_MINUS;
    LIVE((struct id *)id, KIND_ID, "id");
    return refuse(EINVAL);
}

/* --- being answered */

static void reply(struct id *id, const struct packet *packet, const char *data)
{
    struct rdma_conn_param param = param_of(packet);
    struct event_data with = {
        .data = data, .length = packet->length, .filled = is_iwarp(id) ? 0 : REPLY_DATA, .param = param};
    timer_drop(id);
    if (!qp_ready(id)) { /* the program has ended it meanwhile */
        connection_drop(id);
        return;
    }
    set_up(id, param.initiator_depth, param.responder_resources, param.rnr_retry_count, id->param.retry_count);
    if (is_iwarp(id)) {
        id->state = ID_CONNECTED;
        id->public.qp->state = IBV_QPS_RTS;
        event_post(id, RDMA_CM_EVENT_ESTABLISHED, 0, &with);
    } else {
        id->state = ID_ANSWERED;
        event_post(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &with);
    }
}

/* On RoCE the library brings the queue pair up when the program takes the event, and only then tells the peer. */
void cm_answered(struct id *id, struct rdma_cm_event *event)
{
    if (id->state == ID_ANSWERED && id->wire != NULL && qp_ready(id)) {
        id->state = ID_CONNECTED;
        id->public.qp->state = IBV_QPS_RTS;
        wire_put(id->wire, &(struct packet){.kind = PACKET_READY}, NULL);
        wire_release(id->wire);
        wire_pump(id->wire); /* a program that is stopped now has said it */
        event->event = RDMA_CM_EVENT_ESTABLISHED;
    } else if (id->state == ID_CONNECTED) {
        event->event = RDMA_CM_EVENT_ESTABLISHED;
    } else {
        event->event = RDMA_CM_EVENT_CONNECT_ERROR;
        event->status = -ECONNRESET;
        connection_drop(id);
    }
}

/* --- ends */

static void time_waited(void *object)
{
    event_post(object, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL);
}

void id_disconnected(struct id *id)
{
    if (id->told) return;
    id->told = true;
    id->state = ID_DISCONNECTED;
    timer_drop(id);
    event_post(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
    if (!is_iwarp(id)) timer_set(now() + settings.timewait * MILLISECOND, time_waited, id);
}

static void no_answer(void *id) { id_disconnected(id); }

static bool has_connection(const struct id *id)
{
    return id->state == ID_CONNECTED || id->state == ID_ACCEPTED || id->state == ID_ANSWERED || id->state == ID_DISCONNECTED;
}

PUBLIC int standin_rdma_disconnect(struct rdma_cm_id *public)
{
    ENTER_MINUS;
    struct id *id = (struct id *)public;
    LIVE(id, KIND_ID, "id");
    if (!has_connection(id) || (id->disconnecting && !is_iwarp(id))) return refuse(EINVAL);
    id->disconnecting = true;
    if (public->qp != NULL) qp_error((struct qp *)public->qp);
    if (id->wire == NULL) {
        id_disconnected(id);
    } else if (is_iwarp(id) || id->told) {
        struct wire *wire = id->wire;
        wire_put(wire, &(struct packet){.kind = PACKET_DISCONNECT}, NULL);
        wire_close(wire);
        id_disconnected(id);
    } else {
        wire_put(id->wire, &(struct packet){.kind = PACKET_DISCONNECT}, NULL);
        timer_set(now() + settings.cm_timeout * MILLISECOND, no_answer, id);
    }
    progress_wake();
    return 0;
}

/* The id gives its connection up, and says so. */
void connection_drop(struct id *id)
{
    struct wire *wire = id->wire;
    if (id->state == ID_LISTENING) return;
    if (wire != NULL) {
        if (id->state == ID_REQUESTED) wire_put(wire, &(struct packet){.kind = PACKET_REJECT}, NULL);
        else if (has_connection(id) && !id->disconnecting) wire_put(wire, &(struct packet){.kind = PACKET_DISCONNECT}, NULL);
        if (wire->qp != NULL && is_iwarp(id)) qp_error(wire->qp);
        wire_close(wire);
    }
    if (id->state >= ID_CONNECTING) id->state = ID_ENDED;
}

static void peer_disconnected(struct wire *wire, struct id *id)
{
    if (is_iwarp(id)) {
        if (wire->qp != NULL) qp_error(wire->qp);
        wire_close(wire);
        id_disconnected(id);
    } else {
        if (id->disconnecting) wire_close(wire);
        id_disconnected(id);
    }
}

void cm_packet(struct wire *wire, const struct packet *packet, const char *payload)
{
    struct id *id = wire->id;
    if (packet->kind == PACKET_REQUEST && wire->listener != NULL) request(wire, packet, payload);
    if (id == NULL) return;
    switch (packet->kind) {
    case PACKET_REPLY:
        if (id->state == ID_CONNECTING) reply(id, packet, payload);
        break;
    case PACKET_REJECT:
        if (id->state != ID_CONNECTING) break;
        id->state = ID_ENDED;
        timer_drop(id);
        wire_close(wire);
        rejected(id, is_iwarp(id) ? -ECONNRESET : REASON_CONSUMER, payload, packet->length);
        break;
    case PACKET_READY:
        if (id->state != ID_ACCEPTED) break;
        id->state = ID_CONNECTED;
        event_post(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
        break;
    case PACKET_DISCONNECT:
        if (has_connection(id)) peer_disconnected(wire, id);
        break;
    default: break;
    }
}

/* The peer's process, or its kernel, has closed without a word. */
void cm_lost(struct wire *wire)
{
    struct id *id = wire->id;
    struct qp *qp = wire->qp;
    wire_end(wire);
    if (qp != NULL && qp->device->iwarp) qp_error(qp);
    if (id == NULL) return;
    bool iwarp = is_iwarp(id);
    switch (id->state) {
    case ID_CONNECTING:
        id->state = ID_ENDED;
        timer_drop(id);
        rejected(id, iwarp ? -ECONNRESET : REASON_CONSUMER, NULL, 0);
        break;
    case ID_REQUESTED:
        id->state = ID_ENDED;
        if (!iwarp) rejected(id, REASON_CONSUMER, NULL, 0);
        break;
    case ID_ACCEPTED:
        id->state = ID_ENDED;
        rejected(id, REASON_CONSUMER, NULL, 0);
        break;
    case ID_ANSWERED: id->state = ID_ENDED; break; /* told when the program takes the answer */
    case ID_CONNECTED:
    case ID_DISCONNECTED: id_disconnected(id); break;
    default: break;
    }
}
