/* Checks what hawser's provider `gni` takes for granted of libfabric, from 1.17 to 2.1: src/provider/sys.rs. */

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include <rdma/fi_atomic.h>
#include <rdma/providers/fi_prov.h>

#include "check.h"

/* What is written or read is at least as long as this. */
#define CHECK_AT_LEAST(type, size) CHECK_CONSTANT(sizeof(type) >= (size), 1)

static void check_loading(void)
{
    CHECK_OFFSET(struct fi_provider, version, 0);
    CHECK_OFFSET(struct fi_provider, fi_version, 4);
    CHECK_OFFSET(struct fi_provider, context, 8);
    CHECK_OFFSET(struct fi_provider, name, 40);
    CHECK_OFFSET(struct fi_provider, getinfo, 48);
    CHECK_OFFSET(struct fi_provider, fabric, 56);
    CHECK_OFFSET(struct fi_provider, cleanup, 64);
    CHECK_SIZE_IS(struct fi_provider, 72);
    CHECK_PROTOTYPE(fi_dupinfo, struct fi_info *(*)(const struct fi_info *));
    CHECK_PROTOTYPE(fi_freeinfo, void (*)(struct fi_info *));
    CHECK_PROTOTYPE(fi_version, uint32_t (*)(void));
    CHECK_PROTOTYPE(fi_strerror, const char *(*)(int));
}

static void check_domain_attributes(void)
{
    CHECK_OFFSET(struct fi_domain_attr, domain, 0);
    CHECK_OFFSET(struct fi_domain_attr, name, 8);
    CHECK_OFFSET(struct fi_domain_attr, threading, 16);
    CHECK_OFFSET(struct fi_domain_attr, control_progress, 20);
    CHECK_OFFSET(struct fi_domain_attr, data_progress, 24);
    CHECK_OFFSET(struct fi_domain_attr, resource_mgmt, 28);
    CHECK_OFFSET(struct fi_domain_attr, av_type, 32);
    CHECK_OFFSET(struct fi_domain_attr, mr_mode, 36);
    CHECK_OFFSET(struct fi_domain_attr, mr_key_size, 40);
    CHECK_OFFSET(struct fi_domain_attr, cq_data_size, 48);
    CHECK_OFFSET(struct fi_domain_attr, cq_cnt, 56);
    CHECK_OFFSET(struct fi_domain_attr, ep_cnt, 64);
    CHECK_OFFSET(struct fi_domain_attr, tx_ctx_cnt, 72);
    CHECK_OFFSET(struct fi_domain_attr, rx_ctx_cnt, 80);
    CHECK_OFFSET(struct fi_domain_attr, max_ep_tx_ctx, 88);
    CHECK_OFFSET(struct fi_domain_attr, max_ep_rx_ctx, 96);
    CHECK_OFFSET(struct fi_domain_attr, max_ep_stx_ctx, 104);
    CHECK_OFFSET(struct fi_domain_attr, max_ep_srx_ctx, 112);
    CHECK_OFFSET(struct fi_domain_attr, cntr_cnt, 120);
    CHECK_OFFSET(struct fi_domain_attr, mr_iov_limit, 128);
    CHECK_OFFSET(struct fi_domain_attr, caps, 136);
    CHECK_OFFSET(struct fi_domain_attr, mode, 144);
    CHECK_OFFSET(struct fi_domain_attr, auth_key, 152);
    CHECK_OFFSET(struct fi_domain_attr, auth_key_size, 160);
    CHECK_OFFSET(struct fi_domain_attr, max_err_data, 168);
    CHECK_OFFSET(struct fi_domain_attr, mr_cnt, 176);
    CHECK_OFFSET(struct fi_domain_attr, tclass, 184);
    CHECK_AT_LEAST(struct fi_domain_attr, 192);
}

static void check_other_attributes(void)
{
    CHECK_OFFSET(struct fi_ep_attr, type, 0);
    CHECK_OFFSET(struct fi_ep_attr, protocol, 4);
    CHECK_OFFSET(struct fi_ep_attr, protocol_version, 8);
    CHECK_OFFSET(struct fi_ep_attr, max_msg_size, 16);
    CHECK_OFFSET(struct fi_ep_attr, msg_prefix_size, 24);
    CHECK_OFFSET(struct fi_ep_attr, max_order_raw_size, 32);
    CHECK_OFFSET(struct fi_ep_attr, max_order_war_size, 40);
    CHECK_OFFSET(struct fi_ep_attr, max_order_waw_size, 48);
    CHECK_OFFSET(struct fi_ep_attr, mem_tag_format, 56);
    CHECK_OFFSET(struct fi_ep_attr, tx_ctx_cnt, 64);
    CHECK_OFFSET(struct fi_ep_attr, rx_ctx_cnt, 72);
    CHECK_OFFSET(struct fi_ep_attr, auth_key_size, 80);
    CHECK_OFFSET(struct fi_ep_attr, auth_key, 88);
    CHECK_AT_LEAST(struct fi_ep_attr, 96);
    CHECK_SIZE_IS(struct fi_info, 120);
    CHECK_SIZE_IS(struct fi_tx_attr, 80);
    CHECK_SIZE_IS(struct fi_rx_attr, 64);
    CHECK_SIZE_IS(struct fi_fabric_attr, 32);
    CHECK_OFFSET(struct fi_fabric_attr, name, 8);
    CHECK_OFFSET(struct fi_fabric_attr, api_version, 28);

    CHECK_OFFSET(struct fi_cq_attr, size, 0);
    CHECK_OFFSET(struct fi_cq_attr, flags, 8);
    CHECK_OFFSET(struct fi_cq_attr, format, 16);
    CHECK_OFFSET(struct fi_cq_attr, wait_obj, 20);
    CHECK_OFFSET(struct fi_cq_attr, signaling_vector, 24);
    CHECK_OFFSET(struct fi_cq_attr, wait_cond, 28);
    CHECK_OFFSET(struct fi_cq_attr, wait_set, 32);
    CHECK_AT_LEAST(struct fi_cq_attr, 40);
    CHECK_OFFSET(struct fi_cntr_attr, events, 0);
    CHECK_OFFSET(struct fi_cntr_attr, wait_obj, 4);
    CHECK_OFFSET(struct fi_cntr_attr, wait_set, 8);
    CHECK_OFFSET(struct fi_cntr_attr, flags, 16);
    CHECK_AT_LEAST(struct fi_cntr_attr, 24);
    CHECK_SIZE_IS(struct fi_eq_attr, 32);
    CHECK_SIZE_IS(struct fi_av_attr, 48);
    CHECK_OFFSET(struct fi_av_attr, rx_ctx_bits, 4);
    CHECK_OFFSET(struct fi_av_attr, name, 24);
    CHECK_OFFSET(struct fi_av_attr, flags, 40);
    CHECK_OFFSET(struct fi_mr_attr, mr_iov, 0);
    CHECK_OFFSET(struct fi_mr_attr, requested_key, 32);
    CHECK_OFFSET(struct fi_mr_attr, context, 40);
    CHECK_OFFSET(struct fi_mr_attr, auth_key_size, 48);
    CHECK_OFFSET(struct fi_mr_attr, auth_key, 56);
    CHECK_OFFSET(struct fi_mr_attr, iface, 64);
    CHECK_AT_LEAST(struct fi_mr_attr, 80);
}

static void check_entries(void)
{
    CHECK_OFFSET(struct fi_cq_err_entry, olen, 48);
    CHECK_OFFSET(struct fi_cq_err_entry, err, 56);
    CHECK_OFFSET(struct fi_cq_err_entry, prov_errno, 60);
    CHECK_OFFSET(struct fi_cq_err_entry, err_data, 64);
    CHECK_OFFSET(struct fi_cq_err_entry, err_data_size, 72);
#if FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION) >= FI_VERSION(1, 20)
    CHECK_OFFSET(struct fi_cq_err_entry, src_addr, 80);
#else
    CHECK_SIZE_IS(struct fi_cq_err_entry, 80);
#endif
    CHECK_SIZE_IS(struct fi_cq_entry, 8);
    CHECK_SIZE_IS(struct fi_cq_msg_entry, 24);
    CHECK_SIZE_IS(struct fi_cq_data_entry, 40);
    CHECK_SIZE_IS(struct fi_cq_tagged_entry, 48);
    CHECK_OFFSET(struct fi_cq_tagged_entry, buf, 24);
    CHECK_SIZE_IS(struct fi_eq_entry, 24);
    CHECK_OFFSET(struct fi_eq_entry, context, 8);
    CHECK_OFFSET(struct fi_eq_entry, data, 16);
    CHECK_SIZE_IS(struct fi_eq_err_entry, 48);
}

static void check_objects(void)
{
    CHECK_SIZE_IS(struct fid, 24);
    CHECK_SIZE_IS(struct fid_fabric, 40);
    CHECK_OFFSET(struct fid_fabric, api_version, 32);
    CHECK_SIZE_IS(struct fid_domain, 40);
    CHECK_SIZE_IS(struct fi_eq_cm_entry, 16);
    CHECK_OFFSET(struct fi_eq_cm_entry, info, 8);
    CHECK_OFFSET(struct fi_eq_cm_entry, data, 16);
    CHECK_OFFSET(struct fi_triggered_context, event_type, 0);
    CHECK_OFFSET(struct fi_triggered_context, trigger.threshold.cntr, 8);
    CHECK_OFFSET(struct fi_triggered_context, trigger.threshold.threshold, 16);
    CHECK_SIZE_IS(struct fi_triggered_context, 32);
    CHECK_OFFSET(struct fi_deferred_work, threshold, 64);
    CHECK_OFFSET(struct fi_deferred_work, triggering_cntr, 72);
    CHECK_OFFSET(struct fi_deferred_work, completion_cntr, 80);
    CHECK_OFFSET(struct fi_deferred_work, op_type, 88);
    CHECK_OFFSET(struct fi_deferred_work, op, 96);
    CHECK_SIZE_IS(struct fi_deferred_work, 104);
    CHECK_OFFSET(struct fi_op_msg, flags, 56);
    CHECK_OFFSET(struct fi_op_tagged, flags, 72);
    CHECK_OFFSET(struct fi_op_rma, flags, 72);
    CHECK_OFFSET(struct fi_op_atomic, flags, 80);
    CHECK_OFFSET(struct fi_op_fetch_atomic, flags, 104);
    CHECK_OFFSET(struct fi_op_compare_atomic, flags, 128);
    CHECK_OFFSET(struct fi_op_cntr, value, 8);
    CHECK_CONSTANT(FI_QUEUE_WORK, 11);
    CHECK_CONSTANT(FI_CANCEL_WORK, 12);
    CHECK_CONSTANT(FI_FLUSH_WORK, 13);
    CHECK_CONSTANT(FI_OP_RECV, 0);
    CHECK_CONSTANT(FI_OP_CNTR_ADD, 10);
    CHECK_OFFSET(struct fi_alias, flags, 8);
    CHECK_SIZE_IS(struct fi_alias, 16);
    CHECK_OFFSET(struct fid_stx, ops, 24);
    CHECK_SIZE_IS(struct fid_stx, 32);
    CHECK_OFFSET(struct fid_pep, cm, 32);
    CHECK_SIZE_IS(struct fid_pep, 40);
    CHECK_SIZE_IS(struct fid_ep, 80);
    CHECK_SIZE_IS(struct fid_av, 32);
    CHECK_SIZE_IS(struct fid_cq, 32);
    CHECK_SIZE_IS(struct fid_cntr, 32);
    CHECK_SIZE_IS(struct fid_eq, 32);
    CHECK_SIZE_IS(struct fid_poll, 32);
    CHECK_SIZE_IS(struct fi_ops_poll, 32);
    CHECK_OFFSET(struct fi_ops_poll, poll_del, 24);
    CHECK_SIZE_IS(struct fi_poll_attr, 8);
    CHECK_SIZE_IS(struct fid_wait, 32);
    CHECK_SIZE_IS(struct fi_ops_wait, 16);
    CHECK_SIZE_IS(struct fi_wait_attr, 16);
    CHECK_SIZE_IS(struct fid_mr, 40);
    CHECK_OFFSET(struct fid_mr, key, 32);
}

static void check_tables(void)
{
    CHECK_SIZE_IS(struct fi_ops, 56);
    CHECK_SIZE_IS(struct fi_ops_fabric, 56);
    CHECK_SIZE_IS(struct fi_ops_mr, 32);
    CHECK_SIZE_IS(struct fi_ops_cm, 80);
    CHECK_SIZE_IS(struct fi_msg, 48);
    CHECK_SIZE_IS(struct fi_msg_tagged, 64);
    CHECK_SIZE_IS(struct fi_ops_msg, 80);
    CHECK_SIZE_IS(struct fi_ops_tagged, 80);
    CHECK_SIZE_IS(struct fi_ops_rma, 80);
    CHECK_SIZE_IS(struct fi_msg_rma, 64);
    CHECK_OFFSET(struct fi_msg_rma, rma_iov, 32);
    CHECK_SIZE_IS(struct fi_rma_iov, 24);
    CHECK_SIZE_IS(struct fi_ioc, 16);
    CHECK_SIZE_IS(struct fi_rma_ioc, 24);
    CHECK_SIZE_IS(struct fi_msg_atomic, 72);
    CHECK_OFFSET(struct fi_msg_atomic, datatype, 48);
    CHECK_SIZE_IS(struct fi_atomic_attr, 16);
    CHECK_SIZE_IS(struct fi_ops_atomic, 112);
    CHECK_SIZE_IS(struct fi_ops_collective, 96);
    CHECK_SIZE_IS(struct fi_ops_eq, 48);
    CHECK_OFFSET(struct fi_ops_domain, av_open, 8);
    CHECK_OFFSET(struct fi_ops_domain, cq_open, 16);
    CHECK_OFFSET(struct fi_ops_domain, endpoint, 24);
    CHECK_OFFSET(struct fi_ops_domain, scalable_ep, 32);
    CHECK_OFFSET(struct fi_ops_domain, cntr_open, 40);
    CHECK_OFFSET(struct fi_ops_domain, poll_open, 48);
    CHECK_OFFSET(struct fi_ops_domain, stx_ctx, 56);
    CHECK_OFFSET(struct fi_ops_domain, srx_ctx, 64);
    CHECK_OFFSET(struct fi_ops_domain, query_atomic, 72);
    CHECK_OFFSET(struct fi_ops_domain, query_collective, 80);
    CHECK_OFFSET(struct fi_ops_domain, endpoint2, 88);
    CHECK_OFFSET(struct fi_ops_ep, cancel, 8);
    CHECK_OFFSET(struct fi_ops_ep, getopt, 16);
    CHECK_OFFSET(struct fi_ops_ep, setopt, 24);
    CHECK_OFFSET(struct fi_ops_ep, tx_ctx, 32);
    CHECK_OFFSET(struct fi_ops_ep, rx_ctx, 40);
    CHECK_OFFSET(struct fi_ops_ep, rx_size_left, 48);
    CHECK_OFFSET(struct fi_ops_ep, tx_size_left, 56);
    CHECK_OFFSET(struct fi_ops_cq, read, 8);
    CHECK_OFFSET(struct fi_ops_cq, readfrom, 16);
    CHECK_OFFSET(struct fi_ops_cq, readerr, 24);
    CHECK_OFFSET(struct fi_ops_cq, sread, 32);
    CHECK_OFFSET(struct fi_ops_cq, sreadfrom, 40);
    CHECK_OFFSET(struct fi_ops_cq, signal, 48);
    CHECK_OFFSET(struct fi_ops_cq, strerror, 56);
    CHECK_OFFSET(struct fi_ops_cntr, read, 8);
    CHECK_OFFSET(struct fi_ops_cntr, readerr, 16);
    CHECK_OFFSET(struct fi_ops_cntr, add, 24);
    CHECK_OFFSET(struct fi_ops_cntr, set, 32);
    CHECK_OFFSET(struct fi_ops_cntr, wait, 40);
    CHECK_OFFSET(struct fi_ops_cntr, adderr, 48);
    CHECK_OFFSET(struct fi_ops_cntr, seterr, 56);
    CHECK_OFFSET(struct fi_ops_av, insert, 8);
    CHECK_OFFSET(struct fi_ops_av, insertsvc, 16);
    CHECK_OFFSET(struct fi_ops_av, insertsym, 24);
    CHECK_OFFSET(struct fi_ops_av, remove, 32);
    CHECK_OFFSET(struct fi_ops_av, lookup, 40);
    CHECK_OFFSET(struct fi_ops_av, straddr, 48);
    CHECK_OFFSET(struct fi_ops_av, av_set, 56);
}

static void check_capabilities(void)
{
    CHECK_CONSTANT(FI_MSG, 1ll << 1);
    CHECK_CONSTANT(FI_RMA, 1ll << 2);
    CHECK_CONSTANT(FI_TAGGED, 1ll << 3);
    CHECK_CONSTANT(FI_ATOMIC, 1ll << 4);
    CHECK_CONSTANT(FI_READ, 1ll << 8);
    CHECK_CONSTANT(FI_WRITE, 1ll << 9);
    CHECK_CONSTANT(FI_RECV, 1ll << 10);
    CHECK_CONSTANT(FI_SEND, 1ll << 11);
    CHECK_CONSTANT(FI_REMOTE_READ, 1ll << 12);
    CHECK_CONSTANT(FI_REMOTE_WRITE, 1ll << 13);
    CHECK_CONSTANT(FI_MULTI_RECV, 1ll << 16);
    CHECK_CONSTANT(FI_MORE, 1ll << 18);
    CHECK_CONSTANT(FI_PEEK, 1ll << 19);
    CHECK_CONSTANT(FI_FENCE, 1ll << 21);
    CHECK_CONSTANT(FI_COMPLETION, 1ll << 24);
    CHECK_CONSTANT(FI_EVENT, 1ll << 24);
    CHECK_CONSTANT(FI_INJECT, 1ll << 25);
    CHECK_CONSTANT(FI_INJECT_COMPLETE, 1ll << 26);
    CHECK_CONSTANT(FI_TRANSMIT_COMPLETE, 1ll << 27);
    CHECK_CONSTANT(FI_DELIVERY_COMPLETE, 1ll << 28);
    CHECK_CONSTANT(FI_AFFINITY, 1ll << 29);
    CHECK_CONSTANT(FI_LOCAL_COMM, 1ll << 51);
    CHECK_CONSTANT(FI_REMOTE_COMM, 1ll << 52);
    CHECK_CONSTANT(FI_PROV_ATTR_ONLY, 1ll << 54);
    CHECK_CONSTANT(FI_NUMERICHOST, 1ll << 55);
    CHECK_CONSTANT(FI_RMA_EVENT, 1ll << 56);
    CHECK_CONSTANT(FI_SHARED_AV, 1ll << 53);
    CHECK_CONSTANT(FI_SOURCE, 1ll << 57);
    CHECK_CONSTANT(FI_NAMED_RX_CTX, 1ll << 58);
    CHECK_CONSTANT(FI_DIRECTED_RECV, 1ll << 59);
    CHECK_CONSTANT(FI_SYNC_ERR, 1ll << 58);
    CHECK_CONSTANT(FI_SELECTIVE_COMPLETION, 1ll << 59);
    CHECK_CONSTANT(FI_ORDER_RAR, 1);
    CHECK_CONSTANT(FI_ORDER_RAW, 2);
    CHECK_CONSTANT(FI_ORDER_WAR, 1 << 3);
    CHECK_CONSTANT(FI_ORDER_WAW, 1 << 4);
    CHECK_CONSTANT(FI_ORDER_SAS, 1 << 8);
    CHECK_CONSTANT(FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                       FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW,
                   0xFFll << 32);
    CHECK_CONSTANT(FI_MR_VIRT_ADDR, 1 << 4);
    CHECK_CONSTANT(FI_MR_ALLOCATED, 1 << 5);
    CHECK_CONSTANT(FI_MR_PROV_KEY, 1 << 6);
}

static void check_numbers(void)
{
    CHECK_CONSTANT(FI_REMOTE_CQ_DATA, 1ull << 17);
    CHECK_CONSTANT(FI_DISCARD, 1ull << 58);
    CHECK_CONSTANT(FI_CLAIM, 1ull << 59);
    CHECK_CONSTANT(FI_ETRUNC, 265);
    CHECK_CONSTANT(FI_EP_RDM, 3);
    CHECK_CONSTANT(FI_ADDR_GNI, 6);
    CHECK_CONSTANT(FI_ADDR_STR, 9);
    CHECK_CONSTANT(FI_PROTO_GNI, 10);
    CHECK_CONSTANT(FI_THREAD_SAFE, 1);
    CHECK_CONSTANT(FI_THREAD_ENDPOINT, 5);
    CHECK_CONSTANT(FI_PROGRESS_AUTO, 1);
    CHECK_CONSTANT(FI_PROGRESS_MANUAL, 2);
    CHECK_CONSTANT(FI_RM_ENABLED, 2);
    CHECK_CONSTANT(FI_AV_MAP, 1);
    CHECK_CONSTANT(FI_AV_TABLE, 2);
    CHECK_CONSTANT(FI_CLASS_FABRIC, 1);
    CHECK_CONSTANT(FI_CLASS_DOMAIN, 2);
    CHECK_CONSTANT(FI_CLASS_EP, 3);
    CHECK_CONSTANT(FI_CLASS_SEP, 4);
    CHECK_CONSTANT(FI_CLASS_RX_CTX, 5);
    CHECK_CONSTANT(FI_CLASS_SRX_CTX, 6);
    CHECK_CONSTANT(FI_CLASS_TX_CTX, 7);
    CHECK_CONSTANT(FI_CLASS_STX_CTX, 8);
    CHECK_CONSTANT(FI_CLASS_PEP, 9);
    CHECK_CONSTANT(FI_CLASS_WAIT, 16);
    CHECK_CONSTANT(FI_CLASS_POLL, 17);
    CHECK_CONSTANT(FI_WAIT_SET, 2);
    CHECK_CONSTANT(FI_CLASS_CONNREQ, 18);
    CHECK_CONSTANT(FI_CONNREQ, 1);
    CHECK_CONSTANT(FI_CONNECTED, 2);
    CHECK_CONSTANT(FI_SHUTDOWN, 3);
    CHECK_CONSTANT(FI_EP_MSG, 1);
    CHECK_CONSTANT(FI_EP_DGRAM, 2);
    CHECK_CONSTANT(FI_OPT_CM_DATA_SIZE, 1);
    CHECK_CONSTANT(FI_ALIAS, 4);
    CHECK_CONSTANT(FI_TRIGGER, 1 << 20);
    CHECK_CONSTANT(FI_TRIGGER_THRESHOLD, 0);
    CHECK_CONSTANT(FI_CLASS_AV, 11);
    CHECK_CONSTANT(FI_CLASS_MR, 12);
    CHECK_CONSTANT(FI_CLASS_EQ, 13);
    CHECK_CONSTANT(FI_CLASS_CQ, 14);
    CHECK_CONSTANT(FI_CLASS_CNTR, 15);
    CHECK_CONSTANT(FI_GETOPSFLAG, 2);
    CHECK_CONSTANT(FI_SETOPSFLAG, 3);
    CHECK_CONSTANT(FI_GETWAIT, 5);
    CHECK_CONSTANT(FI_ENABLE, 6);
    CHECK_CONSTANT(FI_GETWAITOBJ, 16);
    CHECK_CONSTANT(FI_WAIT_NONE, 0);
    CHECK_CONSTANT(FI_WAIT_UNSPEC, 1);
    CHECK_CONSTANT(FI_WAIT_FD, 3);
    CHECK_CONSTANT(FI_CQ_FORMAT_CONTEXT, 1);
    CHECK_CONSTANT(FI_CQ_FORMAT_MSG, 2);
    CHECK_CONSTANT(FI_CQ_FORMAT_DATA, 3);
    CHECK_CONSTANT(FI_CQ_FORMAT_TAGGED, 4);
    CHECK_CONSTANT(FI_CQ_COND_THRESHOLD, 1);
    CHECK_CONSTANT(FI_CNTR_EVENTS_COMP, 0);
    CHECK_CONSTANT(FI_HMEM_SYSTEM, 0);
    CHECK_CONSTANT(FI_AV_COMPLETE, 5);
    CHECK_CONSTANT(FI_OPT_ENDPOINT, 0);
    CHECK_CONSTANT(FI_OPT_MIN_MULTI_RECV, 0);
    CHECK_CONSTANT(FI_ADDR_NOTAVAIL, -1);
    CHECK_CONSTANT(FI_KEY_NOTAVAIL, -1);
    CHECK_CONSTANT(FI_EOTHER, 256);
    CHECK_CONSTANT(FI_ETOOSMALL, 257);
    CHECK_CONSTANT(FI_EOPBADSTATE, 258);
    CHECK_CONSTANT(FI_EAVAIL, 259);
    CHECK_CONSTANT(FI_EBADFLAGS, 260);
    CHECK_CONSTANT(FI_ENOEQ, 261);
    CHECK_CONSTANT(FI_EDOMAIN, 262);
    CHECK_CONSTANT(FI_ENOCQ, 263);
    CHECK_CONSTANT(FI_ENOKEY, 266);
    CHECK_CONSTANT(FI_ENOAV, 267);
}

int main(void)
{
    check_loading();
    check_domain_attributes();
    check_other_attributes();
    check_entries();
    check_objects();
    check_tables();
    check_capabilities();
    check_numbers();
    return summary();
}
