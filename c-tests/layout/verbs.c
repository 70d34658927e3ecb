/* Checks what hawser takes for granted of libibverbs, from 44 to 56: src/verbs/sys.rs has the same numbers, and
 * src/verbs/library.rs the same prototypes. */

#include <infiniband/verbs.h>

#include "check.h"

static void check_devices(void)
{
    CHECK_OFFSET(struct ibv_device, transport_type, 20);
    CHECK_OFFSET(struct ibv_context, device, 0);
    CHECK_OFFSET(struct ibv_context, ops, 8);
    CHECK_OFFSET(struct ibv_context, async_fd, 268);
    /* These are no symbols: they are called through the table. */
    CHECK_OFFSET(struct ibv_context_ops, poll_cq, 88);
    CHECK_OFFSET(struct ibv_context_ops, post_srq_recv, 160);
    CHECK_OFFSET(struct ibv_context_ops, post_send, 200);
    CHECK_OFFSET(struct ibv_context_ops, post_recv, 208);
    compare_type("poll_cq", __builtin_types_compatible_p(
                                __typeof__(((struct ibv_context_ops *) 0)->poll_cq),
                                int (*)(struct ibv_cq *, int, struct ibv_wc *)));
    compare_type("post_send", __builtin_types_compatible_p(
                                  __typeof__(((struct ibv_context_ops *) 0)->post_send),
                                  int (*)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **)));
    compare_type("post_recv", __builtin_types_compatible_p(
                                  __typeof__(((struct ibv_context_ops *) 0)->post_recv),
                                  int (*)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **)));
    compare_type("post_srq_recv",
                 __builtin_types_compatible_p(
                     __typeof__(((struct ibv_context_ops *) 0)->post_srq_recv),
                     int (*)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **)));

    CHECK_SIZE_IS(struct ibv_device_attr, 232);
    CHECK_OFFSET(struct ibv_device_attr, max_qp, 108);
    CHECK_OFFSET(struct ibv_device_attr, max_qp_rd_atom, 144);
    CHECK_OFFSET(struct ibv_device_attr, atomic_cap, 164);
    CHECK_OFFSET(struct ibv_device_attr, phys_port_cnt, 227);
    CHECK_OFFSET(struct ibv_port_attr, link_layer, 46);
    /* Newer ones are longer; the symbol writes what the first had. */
    CHECK_CONSTANT(sizeof(struct ibv_port_attr) >= 52, 1);
    CHECK_SIZE_IS(struct ibv_gid_entry, 32);
    CHECK_OFFSET(struct ibv_gid_entry, gid_type, 24);
    CHECK_OFFSET(struct ibv_gid_entry, ndev_ifindex, 28);

    CHECK_CONSTANT(IBV_TRANSPORT_IB, 0);
    CHECK_CONSTANT(IBV_TRANSPORT_IWARP, 1);
    CHECK_CONSTANT(IBV_ATOMIC_HCA, 1);
    CHECK_CONSTANT(IBV_ATOMIC_GLOB, 2);
    CHECK_CONSTANT(IBV_FORK_UNNEEDED, 2);
    CHECK_CONSTANT(IBV_PORT_ACTIVE, 4);
    CHECK_CONSTANT(IBV_LINK_LAYER_INFINIBAND, 1);
    CHECK_CONSTANT(IBV_LINK_LAYER_ETHERNET, 2);
    CHECK_CONSTANT(IBV_GID_TYPE_ROCE_V2, 2);
    CHECK_CONSTANT(IBV_MTU_4096, 5);
}

static void check_objects(void)
{
    CHECK_OFFSET(struct ibv_mr, lkey, 36);
    CHECK_OFFSET(struct ibv_mr, rkey, 40);
    CHECK_OFFSET(struct ibv_cq, cq_context, 16);
    CHECK_OFFSET(struct ibv_srq, srq_context, 8);
    CHECK_OFFSET(struct ibv_qp, qp_num, 52);
    CHECK_SIZE_IS(struct ibv_qp_init_attr, 64);
    CHECK_OFFSET(struct ibv_qp_init_attr, srq, 24);
    CHECK_OFFSET(struct ibv_qp_init_attr, cap, 32);
    CHECK_SIZE_IS(struct ibv_qp_attr, 144);
    CHECK_OFFSET(struct ibv_qp_attr, min_rnr_timer, 128);
    CHECK_SIZE_IS(struct ibv_srq_init_attr, 24);
    CHECK_CONSTANT(IBV_QPT_RC, 2);
    CHECK_CONSTANT(IBV_QPS_ERR, 6);
    CHECK_CONSTANT(IBV_QP_STATE, 1);
    CHECK_CONSTANT(IBV_QP_MIN_RNR_TIMER, 1 << 15);
    CHECK_CONSTANT(IBV_SRQ_LIMIT, 2);
    CHECK_CONSTANT(IBV_ACCESS_LOCAL_WRITE, 1);
    CHECK_CONSTANT(IBV_ACCESS_REMOTE_WRITE, 2);
    CHECK_CONSTANT(IBV_ACCESS_REMOTE_READ, 4);
    CHECK_CONSTANT(IBV_ACCESS_REMOTE_ATOMIC, 8);
    CHECK_CONSTANT(IBV_ACCESS_RELAXED_ORDERING, 1 << 20);
}

static void check_work(void)
{
    CHECK_SIZE_IS(struct ibv_sge, 16);
    CHECK_OFFSET(struct ibv_sge, lkey, 12);
    CHECK_SIZE_IS(struct ibv_send_wr, 128);
    CHECK_OFFSET(struct ibv_send_wr, opcode, 28);
    CHECK_OFFSET(struct ibv_send_wr, send_flags, 32);
    CHECK_OFFSET(struct ibv_send_wr, imm_data, 36);
    CHECK_OFFSET(struct ibv_send_wr, wr.rdma.remote_addr, 40);
    CHECK_OFFSET(struct ibv_send_wr, wr.rdma.rkey, 48);
    CHECK_OFFSET(struct ibv_send_wr, wr.atomic.compare_add, 48);
    CHECK_OFFSET(struct ibv_send_wr, wr.atomic.swap, 56);
    CHECK_OFFSET(struct ibv_send_wr, wr.atomic.rkey, 64);
    CHECK_SIZE_IS(struct ibv_recv_wr, 32);
    CHECK_SIZE_IS(struct ibv_wc, 48);
    CHECK_OFFSET(struct ibv_wc, status, 8);
    CHECK_OFFSET(struct ibv_wc, byte_len, 20);
    CHECK_OFFSET(struct ibv_wc, qp_num, 28);
    CHECK_OFFSET(struct ibv_wc, wc_flags, 36);
    CHECK_CONSTANT(IBV_WR_RDMA_WRITE, 0);
    CHECK_CONSTANT(IBV_WR_SEND, 2);
    CHECK_CONSTANT(IBV_WR_SEND_WITH_IMM, 3);
    CHECK_CONSTANT(IBV_WR_RDMA_READ, 4);
    CHECK_CONSTANT(IBV_WR_ATOMIC_CMP_AND_SWP, 5);
    CHECK_CONSTANT(IBV_WR_ATOMIC_FETCH_AND_ADD, 6);
    CHECK_CONSTANT(IBV_SEND_FENCE, 1);
    CHECK_CONSTANT(IBV_SEND_SIGNALED, 2);
    CHECK_CONSTANT(IBV_SEND_INLINE, 8);
    CHECK_CONSTANT(IBV_WC_WR_FLUSH_ERR, 5);
    CHECK_CONSTANT(IBV_WC_REM_ACCESS_ERR, 10);
    CHECK_CONSTANT(IBV_WC_RETRY_EXC_ERR, 12);
    CHECK_CONSTANT(IBV_WC_RNR_RETRY_EXC_ERR, 13);
    CHECK_CONSTANT(IBV_WC_RECV, 128);
}

static void check_events(void)
{
    CHECK_OFFSET(struct ibv_async_event, event_type, 8);
    CHECK_SIZE_IS(struct ibv_async_event, 16);
    CHECK_CONSTANT(IBV_EVENT_CQ_ERR, 0);
    CHECK_CONSTANT(IBV_EVENT_DEVICE_FATAL, 8);
    CHECK_CONSTANT(IBV_EVENT_PORT_ERR, 10);
    CHECK_CONSTANT(IBV_EVENT_SRQ_LIMIT_REACHED, 15);
    CHECK_CONSTANT(IBV_EVENT_QP_LAST_WQE_REACHED, 16);
}

/* Some of these are macros too: what the library exports has the plain name. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

static void check_prototypes(void)
{
    CHECK_PROTOTYPE(ibv_get_device_list, struct ibv_device **(*)(int *));
    CHECK_PROTOTYPE(ibv_free_device_list, void (*)(struct ibv_device **));
    CHECK_PROTOTYPE(ibv_get_device_name, const char *(*)(struct ibv_device *));
    CHECK_PROTOTYPE(ibv_get_device_guid, __be64 (*)(struct ibv_device *));
    CHECK_PROTOTYPE(ibv_open_device, struct ibv_context *(*)(struct ibv_device *));
    CHECK_PROTOTYPE(ibv_close_device, int (*)(struct ibv_context *));
    CHECK_PROTOTYPE(ibv_query_device, int (*)(struct ibv_context *, struct ibv_device_attr *));
    CHECK_PROTOTYPE(ibv_query_port, int (*)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *));
    CHECK_PROTOTYPE(ibv_query_gid, int (*)(struct ibv_context *, uint8_t, int, union ibv_gid *));
    CHECK_PROTOTYPE(_ibv_query_gid_table,
                    ssize_t (*)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t));
    CHECK_PROTOTYPE(ibv_get_async_event, int (*)(struct ibv_context *, struct ibv_async_event *));
    CHECK_PROTOTYPE(ibv_ack_async_event, void (*)(struct ibv_async_event *));
    CHECK_PROTOTYPE(ibv_alloc_pd, struct ibv_pd *(*)(struct ibv_context *));
    CHECK_PROTOTYPE(ibv_dealloc_pd, int (*)(struct ibv_pd *));
    CHECK_PROTOTYPE(ibv_reg_mr, struct ibv_mr *(*)(struct ibv_pd *, void *, size_t, int));
    CHECK_PROTOTYPE(ibv_reg_mr_iova2,
                    struct ibv_mr *(*)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int));
    CHECK_PROTOTYPE(ibv_dereg_mr, int (*)(struct ibv_mr *));
    CHECK_PROTOTYPE(ibv_create_cq, struct ibv_cq *(*)(struct ibv_context *, int, void *,
                                                       struct ibv_comp_channel *, int));
    CHECK_PROTOTYPE(ibv_destroy_cq, int (*)(struct ibv_cq *));
    CHECK_PROTOTYPE(ibv_create_srq, struct ibv_srq *(*)(struct ibv_pd *, struct ibv_srq_init_attr *));
    CHECK_PROTOTYPE(ibv_modify_srq, int (*)(struct ibv_srq *, struct ibv_srq_attr *, int));
    CHECK_PROTOTYPE(ibv_destroy_srq, int (*)(struct ibv_srq *));
    CHECK_PROTOTYPE(ibv_modify_qp, int (*)(struct ibv_qp *, struct ibv_qp_attr *, int));
    CHECK_PROTOTYPE(ibv_fork_init, int (*)(void));
    CHECK_PROTOTYPE(ibv_is_fork_initialized, enum ibv_fork_status (*)(void));
    CHECK_SIZE_IS(enum ibv_fork_status, 4);
}

int main(void)
{
    check_devices();
    check_objects();
    check_work();
    check_events();
    check_prototypes();
    return summary();
}
