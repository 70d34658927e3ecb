/* Checks what hawser takes for granted of librdmacm: src/verbs/sys.rs has the same numbers, and
 * src/verbs/library.rs the same prototypes. */

#include <rdma/rdma_cma.h>

#include "check.h"

static void check_structures(void)
{
    CHECK_OFFSET(struct rdma_event_channel, fd, 0);
    CHECK_SIZE_IS(struct rdma_event_channel, 4);

    CHECK_OFFSET(struct rdma_addr, src_storage, 0);
    CHECK_OFFSET(struct rdma_addr, dst_storage, 128);
    CHECK_SIZE_IS(struct rdma_addr, 296);
    CHECK_OFFSET(struct rdma_route, addr, 0);
    CHECK_SIZE_IS(struct rdma_route, 312);
    CHECK_OFFSET(struct rdma_cm_id, verbs, 0);
    CHECK_OFFSET(struct rdma_cm_id, channel, 8);
    CHECK_OFFSET(struct rdma_cm_id, context, 16);
    CHECK_OFFSET(struct rdma_cm_id, qp, 24);
    CHECK_OFFSET(struct rdma_cm_id, route, 32);
    CHECK_OFFSET(struct rdma_cm_id, ps, 344);
    CHECK_OFFSET(struct rdma_cm_id, port_num, 348);
    CHECK_SIZE_IS(enum rdma_port_space, 4);

    CHECK_OFFSET(struct rdma_conn_param, private_data, 0);
    CHECK_OFFSET(struct rdma_conn_param, private_data_len, 8);
    CHECK_OFFSET(struct rdma_conn_param, responder_resources, 9);
    CHECK_OFFSET(struct rdma_conn_param, initiator_depth, 10);
    CHECK_OFFSET(struct rdma_conn_param, flow_control, 11);
    CHECK_OFFSET(struct rdma_conn_param, retry_count, 12);
    CHECK_OFFSET(struct rdma_conn_param, rnr_retry_count, 13);
    CHECK_OFFSET(struct rdma_conn_param, srq, 14);
    CHECK_OFFSET(struct rdma_conn_param, qp_num, 16);
    CHECK_SIZE_IS(struct rdma_conn_param, 24);

    CHECK_OFFSET(struct rdma_cm_event, id, 0);
    CHECK_OFFSET(struct rdma_cm_event, listen_id, 8);
    CHECK_OFFSET(struct rdma_cm_event, event, 16);
    CHECK_OFFSET(struct rdma_cm_event, status, 20);
    CHECK_OFFSET(struct rdma_cm_event, param.conn, 24);
    CHECK_SIZE_IS(enum rdma_cm_event_type, 4);
}

static void check_constants(void)
{
    CHECK_CONSTANT(RDMA_PS_TCP, 0x0106);
    CHECK_CONSTANT(RDMA_OPTION_ID, 0);
    CHECK_CONSTANT(RDMA_OPTION_ID_TOS, 0);
    CHECK_CONSTANT(RDMA_OPTION_ID_ACK_TIMEOUT, 3);
    CHECK_CONSTANT(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    CHECK_CONSTANT(RDMA_CM_EVENT_ADDR_ERROR, 1);
    CHECK_CONSTANT(RDMA_CM_EVENT_ROUTE_RESOLVED, 2);
    CHECK_CONSTANT(RDMA_CM_EVENT_ROUTE_ERROR, 3);
    CHECK_CONSTANT(RDMA_CM_EVENT_CONNECT_REQUEST, 4);
    CHECK_CONSTANT(RDMA_CM_EVENT_CONNECT_RESPONSE, 5);
    CHECK_CONSTANT(RDMA_CM_EVENT_CONNECT_ERROR, 6);
    CHECK_CONSTANT(RDMA_CM_EVENT_UNREACHABLE, 7);
    CHECK_CONSTANT(RDMA_CM_EVENT_REJECTED, 8);
    CHECK_CONSTANT(RDMA_CM_EVENT_ESTABLISHED, 9);
    CHECK_CONSTANT(RDMA_CM_EVENT_DISCONNECTED, 10);
    CHECK_CONSTANT(RDMA_CM_EVENT_DEVICE_REMOVAL, 11);
    CHECK_CONSTANT(RDMA_CM_EVENT_ADDR_CHANGE, 14);
    CHECK_CONSTANT(RDMA_CM_EVENT_TIMEWAIT_EXIT, 15);
}

static void check_prototypes(void)
{
    CHECK_PROTOTYPE(rdma_create_event_channel, struct rdma_event_channel *(*)(void));
    CHECK_PROTOTYPE(rdma_destroy_event_channel, void (*)(struct rdma_event_channel *));
    CHECK_PROTOTYPE(rdma_get_cm_event, int (*)(struct rdma_event_channel *, struct rdma_cm_event **));
    CHECK_PROTOTYPE(rdma_ack_cm_event, int (*)(struct rdma_cm_event *));
    CHECK_PROTOTYPE(rdma_create_id, int (*)(struct rdma_event_channel *, struct rdma_cm_id **, void *,
                                            enum rdma_port_space));
    CHECK_PROTOTYPE(rdma_destroy_id, int (*)(struct rdma_cm_id *));
    CHECK_PROTOTYPE(rdma_bind_addr, int (*)(struct rdma_cm_id *, struct sockaddr *));
    CHECK_PROTOTYPE(rdma_resolve_addr,
                    int (*)(struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int));
    CHECK_PROTOTYPE(rdma_resolve_route, int (*)(struct rdma_cm_id *, int));
    CHECK_PROTOTYPE(rdma_create_qp,
                    int (*)(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *));
    CHECK_PROTOTYPE(rdma_destroy_qp, void (*)(struct rdma_cm_id *));
    CHECK_PROTOTYPE(rdma_connect, int (*)(struct rdma_cm_id *, struct rdma_conn_param *));
    CHECK_PROTOTYPE(rdma_listen, int (*)(struct rdma_cm_id *, int));
    CHECK_PROTOTYPE(rdma_accept, int (*)(struct rdma_cm_id *, struct rdma_conn_param *));
    CHECK_PROTOTYPE(rdma_reject, int (*)(struct rdma_cm_id *, const void *, uint8_t));
    CHECK_PROTOTYPE(rdma_disconnect, int (*)(struct rdma_cm_id *));
    CHECK_PROTOTYPE(rdma_set_option, int (*)(struct rdma_cm_id *, int, int, void *, size_t));
}

int main(void)
{
    check_structures();
    check_constants();
    check_prototypes();
    return summary();
}
