/* Checks the parts of libfabric's ABI that hawser relies on, from 1.17 to 2.1. */

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "check.h"

static void check_completions(void)
{
    CHECK_OFFSET(struct fi_cq_tagged_entry, op_context, 0);
    CHECK_OFFSET(struct fi_cq_tagged_entry, flags, 8);
    CHECK_OFFSET(struct fi_cq_tagged_entry, len, 16);
    CHECK_OFFSET(struct fi_cq_tagged_entry, buf, 24);
    CHECK_OFFSET(struct fi_cq_tagged_entry, data, 32);
    CHECK_OFFSET(struct fi_cq_tagged_entry, tag, 40);
    CHECK_SIZE_IS(struct fi_cq_tagged_entry, 48);

    CHECK_OFFSET(struct fi_cq_err_entry, op_context, 0);
    CHECK_OFFSET(struct fi_cq_err_entry, flags, 8);
    CHECK_OFFSET(struct fi_cq_err_entry, len, 16);
    CHECK_OFFSET(struct fi_cq_err_entry, buf, 24);
    CHECK_OFFSET(struct fi_cq_err_entry, data, 32);
    CHECK_OFFSET(struct fi_cq_err_entry, tag, 40);
    CHECK_OFFSET(struct fi_cq_err_entry, olen, 48);
    CHECK_OFFSET(struct fi_cq_err_entry, err, 56);
    CHECK_OFFSET(struct fi_cq_err_entry, prov_errno, 60);
    CHECK_OFFSET(struct fi_cq_err_entry, err_data, 64);
    CHECK_OFFSET(struct fi_cq_err_entry, err_data_size, 72);
    /* The error entry grew: 2.x may write 88 bytes, so 88 are always provided. */
    CHECK_CONSTANT(sizeof(struct fi_cq_err_entry) >= 80, 1);
    CHECK_CONSTANT(sizeof(struct fi_cq_err_entry) <= 88, 1);

    CHECK_SIZE_IS(struct fi_context, 32);
    CHECK_SIZE_IS(struct fi_context2, 64);
}

static void check_tables(void)
{
    CHECK_OFFSET(struct fid, fclass, 0);
    CHECK_OFFSET(struct fid, context, 8);
    CHECK_OFFSET(struct fid, ops, 16);
    CHECK_SIZE_IS(struct fid, 24);
    CHECK_OFFSET(struct fi_ops, close, 8);
    CHECK_OFFSET(struct fi_ops, bind, 16);
    CHECK_OFFSET(struct fi_ops, control, 24);

    CHECK_OFFSET(struct fid_ep, ops, 24);
    CHECK_OFFSET(struct fid_ep, cm, 32);
    CHECK_OFFSET(struct fid_ep, msg, 40);
    CHECK_OFFSET(struct fid_ep, tagged, 56);
    CHECK_OFFSET(struct fi_ops_ep, cancel, 8);
    CHECK_OFFSET(struct fi_ops_cm, getname, 16);

    CHECK_OFFSET(struct fi_ops_tagged, recv, 8);
    CHECK_OFFSET(struct fi_ops_tagged, recvv, 16);
    CHECK_OFFSET(struct fi_ops_tagged, recvmsg, 24);
    CHECK_OFFSET(struct fi_ops_tagged, send, 32);
    CHECK_OFFSET(struct fi_ops_tagged, sendv, 40);
    CHECK_OFFSET(struct fi_ops_tagged, sendmsg, 48);
    CHECK_OFFSET(struct fi_ops_tagged, inject, 56);
    CHECK_OFFSET(struct fi_ops_tagged, senddata, 64);
    CHECK_OFFSET(struct fi_ops_tagged, injectdata, 72);
    CHECK_SIZE_IS(struct fi_ops_tagged, 80);

    CHECK_OFFSET(struct fi_msg_tagged, msg_iov, 0);
    CHECK_OFFSET(struct fi_msg_tagged, desc, 8);
    CHECK_OFFSET(struct fi_msg_tagged, iov_count, 16);
    CHECK_OFFSET(struct fi_msg_tagged, addr, 24);
    CHECK_OFFSET(struct fi_msg_tagged, tag, 32);
    CHECK_OFFSET(struct fi_msg_tagged, ignore, 40);
    CHECK_OFFSET(struct fi_msg_tagged, context, 48);
    CHECK_OFFSET(struct fi_msg_tagged, data, 56);
    CHECK_SIZE_IS(struct fi_msg_tagged, 64);

    CHECK_OFFSET(struct fid_cq, ops, 24);
    CHECK_OFFSET(struct fi_ops_cq, read, 8);
    CHECK_OFFSET(struct fi_ops_cq, readfrom, 16);
    CHECK_OFFSET(struct fi_ops_cq, readerr, 24);
    CHECK_OFFSET(struct fi_ops_cq, strerror, 56);

    CHECK_OFFSET(struct fid_fabric, ops, 24);
    CHECK_OFFSET(struct fi_ops_fabric, domain, 8);
    CHECK_OFFSET(struct fid_domain, ops, 24);
    CHECK_OFFSET(struct fi_ops_domain, av_open, 8);
    CHECK_OFFSET(struct fi_ops_domain, cq_open, 16);
    CHECK_OFFSET(struct fi_ops_domain, endpoint, 24);
    CHECK_OFFSET(struct fi_ops_domain, scalable_ep, 32);
    CHECK_OFFSET(struct fid_domain, mr, 32);
    CHECK_OFFSET(struct fi_ops_mr, regattr, 24);
    CHECK_OFFSET(struct fid_mr, mem_desc, 24);
    CHECK_OFFSET(struct fid_av, ops, 24);
    CHECK_OFFSET(struct fi_ops_av, insert, 8);
    CHECK_OFFSET(struct fi_ops_av, remove, 32);
}

static void check_attributes(void)
{
    CHECK_OFFSET(struct fi_info, next, 0);
    CHECK_OFFSET(struct fi_info, caps, 8);
    CHECK_OFFSET(struct fi_info, mode, 16);
    CHECK_OFFSET(struct fi_info, addr_format, 24);
    CHECK_OFFSET(struct fi_info, src_addrlen, 32);
    CHECK_OFFSET(struct fi_info, dest_addrlen, 40);
    CHECK_OFFSET(struct fi_info, src_addr, 48);
    CHECK_OFFSET(struct fi_info, dest_addr, 56);
    CHECK_OFFSET(struct fi_info, handle, 64);
    CHECK_OFFSET(struct fi_info, tx_attr, 72);
    CHECK_OFFSET(struct fi_info, rx_attr, 80);
    CHECK_OFFSET(struct fi_info, ep_attr, 88);
    CHECK_OFFSET(struct fi_info, domain_attr, 96);
    CHECK_OFFSET(struct fi_info, fabric_attr, 104);
    CHECK_OFFSET(struct fi_info, nic, 112);
    CHECK_SIZE_IS(struct fi_info, 120);

    CHECK_OFFSET(struct fi_tx_attr, op_flags, 16);
    CHECK_OFFSET(struct fi_tx_attr, msg_order, 24);
    CHECK_OFFSET(struct fi_tx_attr, inject_size, 40);
    CHECK_OFFSET(struct fi_tx_attr, size, 48);
    CHECK_OFFSET(struct fi_tx_attr, iov_limit, 56);
    CHECK_OFFSET(struct fi_rx_attr, op_flags, 16);
    CHECK_OFFSET(struct fi_rx_attr, msg_order, 24);
    CHECK_OFFSET(struct fi_ep_attr, type, 0);
    CHECK_OFFSET(struct fi_ep_attr, max_msg_size, 16);
    CHECK_OFFSET(struct fi_ep_attr, mem_tag_format, 56);
    CHECK_OFFSET(struct fi_domain_attr, name, 8);
    CHECK_OFFSET(struct fi_domain_attr, threading, 16);
    CHECK_OFFSET(struct fi_domain_attr, control_progress, 20);
    CHECK_OFFSET(struct fi_domain_attr, data_progress, 24);
    CHECK_OFFSET(struct fi_domain_attr, resource_mgmt, 28);
    CHECK_OFFSET(struct fi_domain_attr, av_type, 32);
    CHECK_OFFSET(struct fi_domain_attr, mr_mode, 36);
    CHECK_OFFSET(struct fi_domain_attr, cq_data_size, 48);
    CHECK_OFFSET(struct fi_domain_attr, mr_key_size, 40);
    CHECK_OFFSET(struct fi_fabric_attr, name, 8);
    CHECK_OFFSET(struct fi_fabric_attr, prov_name, 16);

    CHECK_OFFSET(struct fi_cq_attr, size, 0);
    CHECK_OFFSET(struct fi_cq_attr, flags, 8);
    CHECK_OFFSET(struct fi_cq_attr, format, 16);
    CHECK_OFFSET(struct fi_cq_attr, wait_obj, 20);
    CHECK_OFFSET(struct fi_av_attr, type, 0);
    CHECK_OFFSET(struct fi_av_attr, count, 8);

    CHECK_OFFSET(struct fi_mr_attr, mr_iov, 0);
    CHECK_OFFSET(struct fi_mr_attr, iov_count, 8);
    CHECK_OFFSET(struct fi_mr_attr, access, 16);
    CHECK_OFFSET(struct fi_mr_attr, offset, 24);
    CHECK_OFFSET(struct fi_mr_attr, requested_key, 32);
    CHECK_OFFSET(struct fi_mr_attr, context, 40);
    CHECK_OFFSET(struct fi_mr_attr, auth_key_size, 48);
    CHECK_OFFSET(struct fi_mr_attr, auth_key, 56);
    CHECK_OFFSET(struct fi_mr_attr, iface, 64);
    CHECK_OFFSET(struct fi_mr_attr, device, 72);
    /* The attributes grew: 144 bytes are always provided. */
    CHECK_CONSTANT(sizeof(struct fi_mr_attr) >= 80, 1);
    CHECK_CONSTANT(sizeof(struct fi_mr_attr) <= 144, 1);
}

static void check_constants(void)
{
    CHECK_CONSTANT(FI_TAGGED, 1ll << 3);
    CHECK_CONSTANT(FI_COMPLETION, 1ll << 24);
    CHECK_CONSTANT(FI_INJECT, 1ll << 25);
    CHECK_CONSTANT(FI_PEEK, 1ll << 19);
    CHECK_CONSTANT(FI_CLAIM, 1ll << 59);
    CHECK_CONSTANT(FI_DIRECTED_RECV, 1ll << 59);
    CHECK_CONSTANT(FI_CONTEXT, 1ll << 59);
    CHECK_CONSTANT(FI_CONTEXT2, 1ll << 52);
    CHECK_CONSTANT(FI_SELECTIVE_COMPLETION, 1ll << 59);
    CHECK_CONSTANT(FI_HMEM, 1ll << 47);
    CHECK_CONSTANT(FI_MR_ALLOCATED, 1ll << 5);
    CHECK_CONSTANT(FI_MR_HMEM, 1ll << 10);
    CHECK_CONSTANT(FI_RECV, 1ll << 10);
    CHECK_CONSTANT(FI_SEND, 1ll << 11);
    CHECK_CONSTANT(FI_HMEM_CUDA, 1);
    CHECK_CONSTANT(FI_HMEM_ROCR, 2);
    CHECK_CONSTANT(FI_HMEM_ZE, 3);
    CHECK_CONSTANT(FI_EP_RDM, 3);
    CHECK_CONSTANT(FI_CQ_FORMAT_TAGGED, 4);
    CHECK_CONSTANT(FI_AV_MAP, 1);
    CHECK_CONSTANT(FI_AV_TABLE, 2);
    CHECK_CONSTANT(FI_ADDR_UNSPEC, -1ll);
    CHECK_CONSTANT(FI_EAGAIN, 11);
    CHECK_CONSTANT(FI_EAVAIL, 259);
    CHECK_CONSTANT(FI_ETRUNC, 265);
    CHECK_CONSTANT(FI_ECANCELED, 125);
    CHECK_CONSTANT(FI_ENOMSG, 42);
}

int main(void)
{
    check_completions();
    check_tables();
    check_attributes();
    check_constants();
    return summary();
}
