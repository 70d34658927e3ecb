/* Connections: how they begin, what is refused, and how they end. */
#define _GNU_SOURCE
#include "ends.h"

/* --- a whole life */

static void connects_and_parts(void)
{
    struct end end = connects(usual);
    IS(rdma_get_dst_port(end.id) != 0, true);
    IS(rdma_get_src_port(end.id) != 0, true);
    await(from_parent);
    parts_first(&end);
}
static void a_whole_life(void)
{
    struct child child = family(connects_and_parts);
    struct end end = accepts(child, usual);
    IS(end.id->context == &end || end.id->context == end.listener->context, true);
    IS(end.id->verbs == end.listener->verbs, true);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    OK(ibv_query_qp(end.id->qp, &attr, IBV_QP_STATE, &init));
    IS(attr.qp_state, iwarp() ? 0 : IBV_QPS_RTS);
    IS(attr.timeout, iwarp() ? 0 : 19);
    IS(attr.min_rnr_timer, 0);
    IS(end.id->qp->state, IBV_QPS_RTS);
    tell(child.to);
    parts_then(&end);
    join(child);
}

/* --- private data */

static void gives_private_data(void)
{
    struct end end = {0};
    unsigned char data[256];
    fill(data, 256, 3);
    resolves(&end, from_parent);
    builds(&end, usual);
    end.param.private_data = data;
    end.param.private_data_len = 57;
    if (!iwarp()) FAILS(rdma_connect(end.id, &end.param), EINVAL);
    end.param.private_data_len = 56;
    OK(rdma_connect(end.id, &end.param));
    memset(data, 0, 256);
    struct rdma_cm_event answer = event_with(end.channel, data);
    IS(answer.event, RDMA_CM_EVENT_ESTABLISHED);
    IS(answer.param.conn.private_data_len, iwarp() ? 20 : 196);
    IS(wrong(data, 20, 4), 0);
    IS(data[20], 0);
    await(from_parent);
    parts_first(&end);
}
static void private_data_arrive(void)
{
    struct child child = family(gives_private_data);
    struct end end = {0};
    unsigned char data[256];
    listens(&end, child.to);
    struct rdma_cm_event request = event_with(end.channel, data);
    IS(request.param.conn.private_data_len, 56);
    IS(wrong(data, 56, 3), 0);
    IS(request.param.conn.responder_resources, 4);
    end.id = request.id;
    builds(&end, usual);
    fill(data, 256, 4);
    end.param.private_data = data;
    end.param.private_data_len = 20;
    OK(rdma_accept(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    tell(child.to);
    parts_then(&end);
    join(child);
}

/* --- refusals */

static void is_rejected(void)
{
    struct end end = {0};
    unsigned char data[256];
    resolves(&end, from_parent);
    builds(&end, usual);
    OK(rdma_connect(end.id, &end.param));
    struct rdma_cm_event answer = event_with(end.channel, data);
    IS(answer.event, RDMA_CM_EVENT_REJECTED);
    IS(answer.status, iwarp() ? -ECONNRESET : 28);
    IS(answer.param.conn.private_data_len, iwarp() ? 6 : 148);
    IS(memcmp(data, "wrong", 6), 0);
    IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    FAILS(rdma_connect(end.id, &end.param), EINVAL); /* an id asks once */
    leaves(&end);
}
static void a_request_is_rejected(void)
{
    struct child child = family(is_rejected);
    struct end end = {0};
    listens(&end, child.to);
    struct rdma_cm_event request = event(end.channel);
    OK(rdma_reject(request.id, "wrong", 6));
    FAILS(rdma_reject(request.id, "wrong", 6), EINVAL);
    FAILS(rdma_accept(request.id, NULL), iwarp() ? ECONNRESET : EINVAL);
    OK(rdma_destroy_id(request.id));
    OK(rdma_destroy_id(end.listener));
    rdma_destroy_event_channel(end.channel);
    join(child);
}

/* A listener that ends takes the requests with it that nobody has seen. */
static void asks_for_nothing(void)
{
    struct end end = {0};
    resolves(&end, from_parent);
    builds(&end, usual);
    OK(rdma_connect(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_REJECTED);
    leaves(&end);
}
static void a_listener_ends(void)
{
    struct child child = family(asks_for_nothing);
    struct end end = {0};
    listens(&end, child.to);
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    IS(poll(&poll_on, 1, -1), 1);
    OK(rdma_destroy_id(end.listener));
    IS(poll(&poll_on, 1, 0), 0);
    rdma_destroy_event_channel(end.channel);
    join(child);
}

static void nobody_listens(void)
{
    struct end end = {0};
    int fds[2];
    /* A port that was somebody's. */
    struct end other = {0};
    if (pipe(fds) != 0) abort();
    listens(&other, fds[1]);
    OK(rdma_destroy_id(other.listener));
    rdma_destroy_event_channel(other.channel);
    resolves(&end, fds[0]);
    builds(&end, usual);
    if (iwarp()) {
        FAILS(rdma_connect(end.id, &end.param), ECONNREFUSED);
    } else {
        OK(rdma_connect(end.id, &end.param));
        struct rdma_cm_event answer = event(end.channel);
        IS(answer.event, RDMA_CM_EVENT_REJECTED);
        IS(answer.status, 8);
        IS(answer.param.conn.private_data_len, 148);
    }
    leaves(&end);
}

static void not_now(void)
{
    struct end end = {.channel = rdma_create_event_channel()};
    struct rdma_conn_param param = {0};
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)},
                       other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000063)};
    struct ibv_qp_init_attr init = {0};
    OK(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
    IS(end.id->verbs == NULL, true);
    FAILS(rdma_create_qp(end.id, NULL, &init), EINVAL);
    FAILS(rdma_connect(end.id, &param), EINVAL);
    FAILS(rdma_accept(end.id, &param), EINVAL);
    FAILS(rdma_disconnect(end.id), EINVAL);
    FAILS(rdma_listen(end.id, 1), EINVAL);
    FAILS(rdma_resolve_route(end.id, 1000), EINVAL);
    FAILS(rdma_bind_addr(end.id, (struct sockaddr *)&far), EADDRNOTAVAIL);
    FAILS(rdma_bind_addr(end.id, (struct sockaddr *)&other), ENODEV);
    OK(rdma_bind_addr(end.id, address_of(0)));
    FAILS(rdma_bind_addr(end.id, address_of(0)), EINVAL);
    IS(end.id->verbs != NULL, true);
    uint8_t timeout = 32;
    FAILS(rdma_set_option(end.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
    OK(rdma_listen(end.id, 1));
    struct rdma_cm_id *second;
    OK(rdma_create_id(end.channel, &second, NULL, RDMA_PS_TCP));
    FAILS(rdma_bind_addr(second, address_of(rdma_get_src_port(end.id))), EADDRINUSE);
    OK(rdma_destroy_id(second));
    OK(rdma_destroy_id(end.id));
    FAILS(rdma_create_id(end.channel, &second, NULL, RDMA_PS_UDP), EOPNOTSUPP);
    rdma_destroy_event_channel(end.channel);
}

/* An address that no device has, and one that the kernel cannot reach. */
static void no_way(void)
{
    struct end end = {.channel = rdma_create_event_channel()};
    struct sockaddr_in other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000063)};
    OK(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
    OK(rdma_resolve_addr(end.id, (struct sockaddr *)&other, address_of(htons(1)), 1000));
    struct rdma_cm_event answer = event(end.channel);
    IS(answer.event, RDMA_CM_EVENT_ADDR_ERROR);
    IS(answer.status, -ENODEV);
    OK(rdma_resolve_addr(end.id, NULL, address_of(htons(1)), 1000)); /* once more, with another */
    IS(event_kind(end.channel), RDMA_CM_EVENT_ADDR_RESOLVED);
    OK(rdma_destroy_id(end.id));
    rdma_destroy_event_channel(end.channel);
}

/* --- events */

static void events_through_the_channel(void)
{
    struct end end = {.channel = rdma_create_event_channel()};
    struct rdma_cm_event *got;
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    OK(fcntl(end.channel->fd, F_SETFL, O_NONBLOCK));
    FAILS(rdma_get_cm_event(end.channel, &got), EAGAIN);
    OK(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
    IS(poll(&poll_on, 1, 0), 0);
    OK(rdma_resolve_addr(end.id, NULL, address_of(htons(1)), 1000));
    IS(poll(&poll_on, 1, -1), 1);
    FAILS(rdma_resolve_route(end.id, 1000), EINVAL); /* not before it is known here */
    OK(rdma_get_cm_event(end.channel, &got));
    IS(poll(&poll_on, 1, 0), 0);
    IS(got->id == end.id, true);
    OK(rdma_resolve_route(end.id, 1000));
    IS(poll(&poll_on, 1, -1), 1);
    /* On another channel the rest goes there, once what was got is acknowledged. */
    struct rdma_event_channel *other = rdma_create_event_channel();
    OK(rdma_ack_cm_event(got));
    OK(rdma_migrate_id(end.id, other));
    IS(poll(&poll_on, 1, 0), 0);
    IS(event_kind(other), RDMA_CM_EVENT_ROUTE_RESOLVED);
    IS(end.id->channel == other, true);
    OK(rdma_destroy_id(end.id));
    rdma_destroy_event_channel(end.channel);
    rdma_destroy_event_channel(other);
}

static _Atomic bool destroyed;
static void *destroys(void *id)
{
    OK(rdma_destroy_id(id));
    destroyed = true;
    return NULL;
}
static void destroy_waits_for_acknowledgement(void)
{
    struct end end = {.channel = rdma_create_event_channel()};
    struct rdma_cm_event *got;
    pthread_t thread;
    OK(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
    OK(rdma_resolve_addr(end.id, NULL, address_of(htons(1)), 1000));
    OK(rdma_get_cm_event(end.channel, &got));
    OK(pthread_create(&thread, NULL, destroys, end.id));
    usleep(100000);
    IS(destroyed, false);
    OK(rdma_ack_cm_event(got));
    pthread_join(thread, NULL);
    IS(destroyed, true);
    rdma_destroy_event_channel(end.channel);
}

/* --- ends */

static void is_killed(void)
{
    struct end end = connects(usual);
    await(from_parent);
    raise(SIGKILL);
    leaves(&end);
}
static void a_killed_peer(void)
{
    struct child child = family(is_killed);
    struct end end = accepts(child, usual);
    tell(child.to);
    expect_disconnected(&end);
    struct ibv_wc wc;
    if (iwarp()) IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    else IS(ibv_poll_cq(end.receives, 1, &wc), 0); /* its receives wait until it disconnects as well */
    OK(rdma_disconnect(end.id));
    if (!iwarp()) IS(status_of(end.receives), IBV_WC_WR_FLUSH_ERR);
    if (!iwarp()) IS(event_kind(end.channel), RDMA_CM_EVENT_TIMEWAIT_EXIT);
    leaves(&end);
    waitpid(child.pid, NULL, 0);
}

static void goes_without_a_word(void)
{
    struct end end = connects(usual);
    await(from_parent);
    leaves(&end);
}
static void an_id_that_ends_disconnects(void)
{
    struct child child = family(goes_without_a_word);
    struct end end = accepts(child, usual);
    tell(child.to);
    parts_then(&end);
    join(child);
}

static void crosses(void)
{
    struct end end = connects(usual);
    tell(to_parent);
    await(from_parent);
    parts_first(&end);
}
static void disconnects_cross(void)
{
    struct child child = family(crosses);
    struct end end = accepts(child, usual);
    await(child.from);
    tell(child.to);
    parts_first(&end);
    join(child);
}

/* RoCE: the queue pair comes up when the program takes the event; until then the other end hears nothing. iWARP: the
 * responder must not speak first. */
static void answers_late(void)
{
    struct end end = {0};
    resolves(&end, from_parent);
    builds(&end, usual);
    OK(rdma_connect(end.id, &end.param));
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    IS(poll(&poll_on, 1, -1), 1);
    IS(end.id->qp->state, iwarp() ? IBV_QPS_RTS : IBV_QPS_INIT);
    await(from_parent);
    struct ibv_wc wc;
    usleep(100000);
    IS(ibv_poll_cq(end.receives, 1, &wc), 0);
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    IS(end.id->qp->state, IBV_QPS_RTS);
    tell(to_parent);
    if (iwarp()) {
        expect_disconnected(&end);
        leaves(&end);
        return;
    }
    IS(status_of(end.receives), IBV_WC_SUCCESS); /* what came before waited */
    parts_first(&end);
}
static void established_when_the_event_is_taken(void)
{
    struct child child = family(answers_late);
    struct end end = {0};
    listens(&end, child.to);
    end.id = event(end.channel).id;
    builds(&end, usual);
    OK(rdma_accept(end.id, &end.param));
    struct pollfd poll_on = {.fd = end.channel->fd, .events = POLLIN};
    if (iwarp()) IS(poll(&poll_on, 1, -1), 1);
    else {
        usleep(100000);
        IS(poll(&poll_on, 1, 0), 0);
        OK(sends(&end, 8, IBV_SEND_SIGNALED));
    }
    tell(child.to);
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    await(child.from);
    if (iwarp()) { /* the responder must not speak first: the connection ends */
        OK(sends(&end, 8, IBV_SEND_SIGNALED));
        IS(status_of(end.sends), IBV_WC_WR_FLUSH_ERR);
        expect_disconnected(&end);
        leaves(&end);
    } else {
        parts_then(&end);
    }
    join(child);
}

/* --- several devices: two on this machine, of which one is of the other kind, and one that is elsewhere */

static struct sockaddr *at(const char *address, uint16_t port)
{
    static struct sockaddr_in two[2]; /* a call takes two */
    static unsigned turn;
    struct sockaddr_in *in = &two[turn++ % 2];
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
    inet_pton(AF_INET, address, &in->sin_addr);
    return (struct sockaddr *)in;
}

static void asks_the_other_device(void)
{
    struct end end = {.channel = rdma_create_event_channel()};
    uint16_t port;
    take(from_parent, &port, sizeof port);
    OK(rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
    OK(rdma_resolve_addr(end.id, at("127.0.0.2", 0), at("127.0.0.2", port), 1000));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ADDR_RESOLVED);
    IS(strcmp(end.id->verbs->device->name, "second"), 0);
    OK(rdma_resolve_route(end.id, 1000));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ROUTE_RESOLVED);
    builds(&end, usual);
    OK(rdma_connect(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    await(from_parent);
    parts_first(&end);
}
static void several_devices(void)
{
    struct child child = family(asks_the_other_device);
    struct end end = {.channel = rdma_create_event_channel()};
    struct rdma_cm_id *far;
    int count;
    struct ibv_context **all = rdma_get_devices(&count);
    IS(count, 3);
    IS(all[0]->device->transport_type == all[1]->device->transport_type, false);
    OK(rdma_create_id(end.channel, &far, NULL, RDMA_PS_TCP));
    FAILS(rdma_bind_addr(far, at("192.0.2.1", 0)), EADDRNOTAVAIL);
    OK(rdma_destroy_id(far));
    /* A listener on every address has no device; what comes in has that of its address. */
    OK(rdma_create_id(end.channel, &end.listener, NULL, RDMA_PS_TCP));
    OK(rdma_bind_addr(end.listener, at("0.0.0.0", 0)));
    IS(end.listener->verbs == NULL, true);
    OK(rdma_listen(end.listener, 8));
    uint16_t port = rdma_get_src_port(end.listener);
    put(child.to, &port, sizeof port);
    end.id = event(end.channel).id;
    IS(end.id->verbs == all[1], true);
    rdma_free_devices(all);
    builds(&end, usual);
    OK(rdma_accept(end.id, &end.param));
    IS(event_kind(end.channel), RDMA_CM_EVENT_ESTABLISHED);
    tell(child.to);
    parts_then(&end);
    join(child);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"a-whole-life", a_whole_life},
        {"private-data-arrive", private_data_arrive},
        {"a-request-is-rejected", a_request_is_rejected},
        {"a-listener-ends", a_listener_ends},
        {"nobody-listens", nobody_listens},
        {"not-now", not_now},
        {"no-way", no_way},
        {"events-through-the-channel", events_through_the_channel},
        {"destroy-waits-for-acknowledgement", destroy_waits_for_acknowledgement},
        {"a-killed-peer", a_killed_peer},
        {"an-id-that-ends-disconnects", an_id_that_ends_disconnects},
        {"disconnects-cross", disconnects_cross},
        {"established-when-the-event-is-taken", established_when_the_event_is_taken},
        {"several-devices", several_devices},
    };
    RUN(tests);
}
