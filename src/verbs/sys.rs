//! C's types: those of `<infiniband/verbs.h>` from the bindings, those of `<rdma/rdma_cma.h>` by hand.
//!
//! `c-tests/layout/verbs.c` holds both against the headers that are installed: the same numbers as the assertions
//! below.

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};

pub(super) use ibverbs_sys::{
    IBV_ATOMIC_GLOB, IBV_ATOMIC_HCA, IBV_FORK_UNNEEDED, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_SRQ_LIMIT, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP,
    ibv_access_flags, ibv_async_event, ibv_context, ibv_context_ops, ibv_cq, ibv_device, ibv_device_attr,
    ibv_gid, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_port_state, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags,
    ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode,
};

/// `enum ibv_event_type`, as far as they are told apart here.
pub(super) mod event {
    pub(in crate::verbs) use ibverbs_sys::{
        IBV_EVENT_COMM_EST as ESTABLISHED, IBV_EVENT_CQ_ERR as CQ_ERROR,
        IBV_EVENT_DEVICE_FATAL as DEVICE_FATAL, IBV_EVENT_PATH_MIG as MIGRATED,
        IBV_EVENT_PATH_MIG_ERR as MIGRATION, IBV_EVENT_PORT_ACTIVE as PORT_ACTIVE,
        IBV_EVENT_PORT_ERR as PORT_ERROR, IBV_EVENT_QP_ACCESS_ERR as QP_ACCESS,
        IBV_EVENT_QP_FATAL as QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED as QP_LAST_RECEIVE,
        IBV_EVENT_QP_REQ_ERR as QP_REQUEST, IBV_EVENT_SQ_DRAINED as DRAINED, IBV_EVENT_SRQ_ERR as SRQ_ERROR,
        IBV_EVENT_SRQ_LIMIT_REACHED as SRQ_LIMIT,
    };
}

/// `struct rdma_event_channel`
#[repr(C)]
pub(super) struct rdma_event_channel {
    pub(super) fd: c_int,
}

/// `struct rdma_addr`, with both addresses as `struct sockaddr_storage`.
#[repr(C)]
pub(super) struct rdma_addr {
    pub(super) source: libc::sockaddr_storage,
    pub(super) destination: libc::sockaddr_storage,
    /// `struct rdma_ib_addr`: both GIDs and the partition's key.
    infiniband: [u64; 5],
}

/// `struct rdma_route`
#[repr(C)]
pub(super) struct rdma_route {
    pub(super) addr: rdma_addr,
    path_rec: *mut c_void,
    num_paths: c_int,
}

/// `struct rdma_cm_id`, as far as it is used: only librdmacm makes one.
#[repr(C)]
pub(super) struct rdma_cm_id {
    pub(super) verbs: *mut ibv_context,
    channel: *mut rdma_event_channel,
    pub(super) context: *mut c_void,
    pub(super) qp: *mut ibv_qp,
    pub(super) route: rdma_route,
    port_space: c_int,
    pub(super) port_num: u8,
}

/// `struct rdma_conn_param`
#[repr(C)]
pub(super) struct rdma_conn_param {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// `struct rdma_cm_event`, with the parameters of a connection. Those of a datagram's, which are longer, are never
/// those of an id of `RDMA_PS_TCP`.
#[repr(C)]
pub(super) struct rdma_cm_event {
    pub(super) id: *mut rdma_cm_id,
    pub(super) listen_id: *mut rdma_cm_id,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) conn: rdma_conn_param,
}

/// `RDMA_PS_TCP`: reliable connections, with port numbers of their own.
pub(super) const RDMA_PS_TCP: c_int = 0x0106;
/// `RDMA_OPTION_ID`
pub(super) const RDMA_OPTION_ID: c_int = 0;
/// `RDMA_OPTION_ID_TOS`
pub(super) const RDMA_OPTION_ID_TOS: c_int = 0;
/// `RDMA_OPTION_ID_ACK_TIMEOUT`
pub(super) const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;

// The same numbers are in c-tests/layout/verbs.c.
const _: () = {
    assert!(size_of::<rdma_event_channel>() == 4);
    assert!(size_of::<rdma_addr>() == 296);
    assert!(size_of::<rdma_route>() == 312);
    assert!(offset_of!(rdma_addr, destination) == 128);
    assert!(offset_of!(rdma_cm_id, context) == 16);
    assert!(offset_of!(rdma_cm_id, qp) == 24);
    assert!(offset_of!(rdma_cm_id, route) == 32);
    assert!(offset_of!(rdma_cm_id, port_num) == 348);
    assert!(size_of::<rdma_conn_param>() == 24);
    assert!(offset_of!(rdma_conn_param, srq) == 14);
    assert!(offset_of!(rdma_conn_param, qp_num) == 16);
    assert!(offset_of!(rdma_cm_event, event) == 16);
    assert!(offset_of!(rdma_cm_event, conn) == 24);
    assert!(offset_of!(ibv_context, ops) == 8);
    assert!(offset_of!(ibv_context, async_fd) == 268);
    assert!(offset_of!(ibv_context_ops, poll_cq) == 88);
    assert!(offset_of!(ibv_context_ops, post_srq_recv) == 160);
    assert!(offset_of!(ibv_context_ops, post_send) == 200);
    assert!(offset_of!(ibv_context_ops, post_recv) == 208);
    assert!(offset_of!(ibv_device, transport_type) == 20);
    assert!(offset_of!(ibv_qp, qp_num) == 52);
    assert!(offset_of!(ibv_mr, lkey) == 36);
    assert!(offset_of!(ibv_mr, rkey) == 40);
    assert!(offset_of!(ibv_port_attr, link_layer) == 46);
    assert!(size_of::<ibv_sge>() == 16);
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(size_of::<ibv_recv_wr>() == 32);
    assert!(size_of::<ibv_wc>() == 48);
    assert!(size_of::<ibv_qp_init_attr>() == 64);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(offset_of!(ibv_qp_attr, min_rnr_timer) == 128);
    assert!(size_of::<ibv_device_attr>() == 232);
    assert!(size_of::<ibv_gid_entry>() == 32);
    assert!(size_of::<ibv_srq_init_attr>() == 24);
    // What the library writes there is at most as long as that.
    assert!(size_of::<ibv_port_attr>() >= 52);
};
