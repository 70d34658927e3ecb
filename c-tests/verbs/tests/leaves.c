/* Leaves one of everything, so that the ledger has something to say. */
#include "ends.h"

int main(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct rdma_cm_event *got;
    int count;
    static char bytes[4096];
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *completions = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, completions, 0);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 1}};
    IS(ibv_reg_mr(pd, bytes, sizeof bytes, 0) != NULL, true);
    IS(ibv_create_srq(pd, &shared) != NULL, true);
    IS(ibv_create_qp(pd, &init) != NULL, true);
    OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    OK(rdma_resolve_addr(id, NULL, address_of(htons(1)), 1000));
    OK(rdma_get_cm_event(channel, &got));
    return failures > 0;
}
