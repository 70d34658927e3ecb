/* librdmacm.so.1: its names. What they do is in libibverbs.so.1 of the stand-in, where the queue pairs are. */
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#define PUBLIC __attribute__((visibility("default")))
/* One function: what it returns, its name, its parameters, and the same as arguments. */
#define FORWARD(type, name, parameters, arguments) \
    type standin_##name parameters;                \
    PUBLIC type name parameters { return standin_##name arguments; }
#define FORWARD_PLAIN(name, parameters, arguments) \
    void standin_##name parameters;                \
    PUBLIC void name parameters { standin_##name arguments; }

FORWARD(struct rdma_event_channel *, rdma_create_event_channel, (void), ())
FORWARD_PLAIN(rdma_destroy_event_channel, (struct rdma_event_channel *channel), (channel))
FORWARD(int, rdma_create_id,
    (struct rdma_event_channel * channel, struct rdma_cm_id **id, void *context, enum rdma_port_space space),
    (channel, id, context, space))
FORWARD(int, rdma_destroy_id, (struct rdma_cm_id *id), (id))
FORWARD(int, rdma_bind_addr, (struct rdma_cm_id *id, struct sockaddr *address), (id, address))
FORWARD(int, rdma_resolve_addr, (struct rdma_cm_id * id, struct sockaddr *from, struct sockaddr *to, int timeout),
    (id, from, to, timeout))
FORWARD(int, rdma_resolve_route, (struct rdma_cm_id *id, int timeout), (id, timeout))
FORWARD(int, rdma_create_qp, (struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *init), (id, pd, init))
FORWARD_PLAIN(rdma_destroy_qp, (struct rdma_cm_id *id), (id))
FORWARD(int, rdma_connect, (struct rdma_cm_id *id, struct rdma_conn_param *param), (id, param))
FORWARD(int, rdma_establish, (struct rdma_cm_id *id), (id))
FORWARD(int, rdma_listen, (struct rdma_cm_id *id, int backlog), (id, backlog))
FORWARD(int, rdma_accept, (struct rdma_cm_id *id, struct rdma_conn_param *param), (id, param))
FORWARD(int, rdma_reject, (struct rdma_cm_id *id, const void *data, uint8_t length), (id, data, length))
FORWARD(int, rdma_disconnect, (struct rdma_cm_id *id), (id))
FORWARD(int, rdma_get_cm_event, (struct rdma_event_channel *channel, struct rdma_cm_event **event), (channel, event))
FORWARD(int, rdma_ack_cm_event, (struct rdma_cm_event *event), (event))
FORWARD(__be16, rdma_get_src_port, (struct rdma_cm_id *id), (id))
FORWARD(__be16, rdma_get_dst_port, (struct rdma_cm_id *id), (id))
FORWARD(struct ibv_context **, rdma_get_devices, (int *count), (count))
FORWARD_PLAIN(rdma_free_devices, (struct ibv_context **list), (list))
FORWARD(const char *, rdma_event_str, (enum rdma_cm_event_type event), (event))
FORWARD(int, rdma_set_option, (struct rdma_cm_id * id, int level, int name, void *value, size_t size),
    (id, level, name, value, size))
FORWARD(int, rdma_migrate_id, (struct rdma_cm_id *id, struct rdma_event_channel *channel), (id, channel))
FORWARD(int, rdma_getaddrinfo,
    (const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **answer),
    (node, service, hints, answer))
FORWARD_PLAIN(rdma_freeaddrinfo, (struct rdma_addrinfo *info), (info))

/* What the examples and libfabric name and do not call here. */
PUBLIC int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *init)
{
    (void)id, (void)init;
    errno = EOPNOTSUPP;
    return -1;
}
PUBLIC void rdma_destroy_ep(struct rdma_cm_id *id)
{
    if (id->qp != NULL) rdma_destroy_qp(id);
    rdma_destroy_id(id);
}
PUBLIC int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
    (void)id, (void)attr, (void)mask;
    errno = ENOSYS;
    return -1;
}
int rpoll(struct pollfd *list, nfds_t count, int timeout);
PUBLIC int rpoll(struct pollfd *list, nfds_t count, int timeout) { return poll(list, count, timeout); }
