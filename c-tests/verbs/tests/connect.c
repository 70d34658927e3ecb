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

/* --- a device with two ports, at 127.0.0.1 and 127.0.0.2: all but what ids and their queue pairs have is the device's */

static const char *const addresses[] = {"127.0.0.1", "127.0.0.2"};

/* What a program may ask about ports, of which there are two. */
static void asks_about_ports(struct ibv_context *verbs)
{
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    struct ibv_gid_entry entry, entries[8];
    union ibv_gid gid;
    __be16 key;
    OK(ibv_query_device(verbs, &device));
    IS(device.phys_port_cnt, 2);
    for (uint8_t number = 0; number <= 3; number++) {
        bool there = number == 1 || number == 2;
        IS(ibv_query_port(verbs, number, &port), there ? 0 : EINVAL);
        IS(ibv_query_gid_ex(verbs, number, 0, &entry, 0), there ? 0 : EINVAL);
        if (!there) {
            FAILS(ibv_query_gid(verbs, number, 0, &gid), EINVAL);
            FAILS(ibv_query_pkey(verbs, number, 0, &key), EINVAL);
            continue;
        }
        IS(port.state, IBV_PORT_ACTIVE);
        IS(entry.port_num, number);
        OK(ibv_query_gid(verbs, number, 0, &gid));
        IS(memcmp(&gid, &entry.gid, sizeof gid), 0);
        OK(ibv_query_pkey(verbs, number, 0, &key));
        if (iwarp()) continue;
        OK(ibv_query_gid(verbs, number, 1, &gid));
        IS(gid.raw[15], number);
    }
    IS(ibv_query_gid_table(verbs, entries, 8, 0), iwarp() ? 2 : 4);
    for (int i = 0; i < (iwarp() ? 2 : 4); i++) IS(entries[i].port_num, 1 + i / (iwarp() ? 1 : 2));
    IS(memcmp(&entries[0].gid, &entries[iwarp() ? 1 : 2].gid, sizeof gid) != 0, true);
}

static int port_of(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    OK(ibv_query_qp(qp, &attr, IBV_QP_PORT, &init));
    return attr.port_num;
}

/* Another queue pair, at the port of its id, with what the first has. */
static void builds_beside(struct end *end, const struct end *first)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
        .send_cq = first->sends,
        .recv_cq = first->receives,
        .srq = first->srq,
        .cap = {.max_send_wr = 16, .max_send_sge = 1}};
    OK(rdma_create_qp(end->id, first->pd, &init));
    end->memory = first->memory;
    end->mr = first->mr;
    end->param = first->param;
}

static void asks_at_both_ports(void)
{
    struct end ends[2] = {{0}, {0}};
    struct remote remote;
    for (int i = 0; i < 2; i++) {
        resolves_at(&ends[i], addresses[i], from_parent);
        IS(ends[i].id->port_num, i + 1);
        builds(&ends[i], usual);
        IS(port_of(ends[i].id->qp), iwarp() ? 0 : i + 1);
        /* Any of the device's is taken; the manager sets the id's when it connects. */
        struct ibv_qp_attr attr = {.port_num = 3};
        if (!iwarp()) IS(ibv_modify_qp(ends[i].id->qp, &attr, IBV_QP_PORT), EINVAL);
        attr.port_num = 2;
        OK(ibv_modify_qp(ends[i].id->qp, &attr, IBV_QP_PORT));
        IS(port_of(ends[i].id->qp), iwarp() ? 0 : 2);
        OK(rdma_connect(ends[i].id, &ends[i].param));
        IS(event_kind(ends[i].channel), RDMA_CM_EVENT_ESTABLISHED);
        IS(port_of(ends[i].id->qp), iwarp() ? 0 : i + 1);
    }
    IS(ends[0].id->verbs == ends[1].id->verbs, true);
    take(from_parent, &remote, sizeof remote);
    for (int i = 0; i < 2; i++) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = work(&ends[i], &sge, IBV_WR_RDMA_WRITE, 64);
        memset(ends[i].memory + SIZE / 2, 0x21 + i, 64);
        wr.wr.rdma.remote_addr = remote.address + SIZE / 4 + (unsigned)i * 64;
        wr.wr.rdma.rkey = (uint32_t)remote.key;
        OK(posts(&ends[i], &wr));
        OK(sends(&ends[i], 100 + (unsigned)i, IBV_SEND_SIGNALED));
        IS(status_of(ends[i].sends), IBV_WC_SUCCESS);
        IS(status_of(ends[i].sends), IBV_WC_SUCCESS);
        tell(to_parent);
    }
    for (int i = 0; i < 2; i++) {
        await(from_parent);
        parts_first(&ends[i]);
    }
}
static void several_ports(void)
{
    struct child child = family(asks_at_both_ports);
    struct end ends[2] = {{0}, {0}};
    struct options options = usual;
    options.shared = 1;
    for (int i = 0; i < 2; i++) {
        listens_at(&ends[i], addresses[i], child.to);
        IS(ends[i].listener->port_num, i + 1);
        ends[i].id = event(ends[i].channel).id;
        IS(ends[i].id->port_num, i + 1);
        IS(ends[i].id->verbs == ends[0].listener->verbs, true);
        if (i == 0) builds(&ends[i], options);
        else builds_beside(&ends[1], &ends[0]);
        IS(port_of(ends[i].id->qp), iwarp() ? 0 : i + 1);
        OK(rdma_accept(ends[i].id, &ends[i].param));
        IS(event_kind(ends[i].channel), RDMA_CM_EVENT_ESTABLISHED);
    }
    asks_about_ports(ends[0].id->verbs);
    shows(&ends[0], child.to);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = completion(ends[0].receives);
        IS(wc.status, IBV_WC_SUCCESS);
        IS(wc.byte_len, 100 + i);
        IS(wc.qp_num, ends[i].id->qp->qp_num);
        IS(ends[0].memory[SIZE / 4 + i * 64 + 63], 0x21 + i);
        await(child.from);
    }
    /* The second first: it has what is the first one's. */
    tell(child.to);
    tell(child.to);
    for (int i = 1; i >= 0; i--) {
        expect_disconnected(&ends[i]);
        OK(rdma_disconnect(ends[i].id));
        if (i == 0) break;
        rdma_destroy_qp(ends[i].id);
        OK(rdma_destroy_id(ends[i].id));
        OK(rdma_destroy_id(ends[i].listener));
        rdma_destroy_event_channel(ends[i].channel);
    }
    leaves(&ends[0]);
    join(child);
}

static const char *devices;
static void lists_devices(void)
{
    setenv("HAWSER_VERBS_DEVICES", devices, 1);
    ibv_free_device_list(ibv_get_device_list(NULL));
}
static void devices_that_are_none(void)
{
    static const char *const wrong[] = {"a", "a=", "=127.0.0.1", "a=127.0.0.1/ib", "a=127.0.0", "a=127.0.0.1+", "a=+127.0.0.1",
        "a=127.0.0.1+127.0.0.2+127.0.0.3", "a=127.0.0.1+127.0.0.2/ib", "a=127.0.0.1/roce+127.0.0.2"};
    static const char *const right[] = {"", "a=127.0.0.1,", "a=127.0.0.1+127.0.0.2", "a=127.0.0.1+127.0.0.2/iwarp,b=127.0.0.3/roce"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        devices = wrong[i];
        IS(signal_of(lists_devices), SIGABRT);
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        devices = right[i];
        IS(signal_of(lists_devices), 0);
    }
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
        {"several-ports", several_ports},
        {"devices-that-are-none", devices_that_are_none},
    };
    RUN(tests);
}
