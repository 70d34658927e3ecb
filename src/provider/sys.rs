//! libfabric's own types and numbers, under their C names.
//!
//! Structures that are the same in libfabric 1.17 and 2 come from the official bindings. Those that have grown are here,
//! as they begin in all of them; nothing behind that is read or written. `c-tests/layout/gni.c` compares both with the
//! headers that are installed.

use std::ffi::{c_char, c_int, c_void};

pub(super) use libc::iovec;
pub(super) use libfabric_sys::bindgen::{
    fi_atomic_attr, fi_av_attr, fi_eq_attr, fi_eq_cm_entry, fi_eq_err_entry, fi_fabric_attr, fi_info, fi_ioc,
    fi_mr_attr, fi_msg, fi_msg_atomic, fi_msg_compare, fi_msg_fetch, fi_msg_rma, fi_msg_tagged, fi_op_atomic,
    fi_op_cntr, fi_op_compare_atomic, fi_op_fetch_atomic, fi_op_msg, fi_op_rma, fi_op_tagged, fi_ops,
    fi_ops_atomic, fi_ops_cm, fi_ops_collective, fi_ops_eq, fi_ops_fabric, fi_ops_mr, fi_ops_msg,
    fi_ops_poll, fi_ops_rma, fi_ops_tagged, fi_ops_wait, fi_poll_attr, fi_provider, fi_rma_ioc, fi_rma_iov,
    fi_rx_attr, fi_tx_attr, fi_wait_attr, fid, fid_av, fid_cntr, fid_cq, fid_domain, fid_ep, fid_eq,
    fid_fabric, fid_mr, fid_pep, fid_poll, fid_stx, fid_wait,
};

/// `struct fi_domain_attr`, up to `tclass`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DomainAttr {
    pub(super) domain: *mut fid_domain,
    pub(super) name: *mut c_char,
    pub(super) threading: u32,
    pub(super) control_progress: u32,
    pub(super) data_progress: u32,
    pub(super) resource_mgmt: u32,
    pub(super) av_type: u32,
    pub(super) mr_mode: c_int,
    pub(super) mr_key_size: usize,
    pub(super) cq_data_size: usize,
    pub(super) cq_cnt: usize,
    pub(super) ep_cnt: usize,
    pub(super) tx_ctx_cnt: usize,
    pub(super) rx_ctx_cnt: usize,
    pub(super) max_ep_tx_ctx: usize,
    pub(super) max_ep_rx_ctx: usize,
    pub(super) max_ep_stx_ctx: usize,
    pub(super) max_ep_srx_ctx: usize,
    pub(super) cntr_cnt: usize,
    pub(super) mr_iov_limit: usize,
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) auth_key: *mut u8,
    pub(super) auth_key_size: usize,
    pub(super) max_err_data: usize,
    pub(super) mr_cnt: usize,
    pub(super) tclass: u32,
}

/// `struct fi_ep_attr`, up to `auth_key`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct EpAttr {
    pub(super) kind: u32,
    pub(super) protocol: u32,
    pub(super) protocol_version: u32,
    pub(super) max_msg_size: usize,
    pub(super) msg_prefix_size: usize,
    pub(super) max_order_raw_size: usize,
    pub(super) max_order_war_size: usize,
    pub(super) max_order_waw_size: usize,
    pub(super) mem_tag_format: u64,
    pub(super) tx_ctx_cnt: usize,
    pub(super) rx_ctx_cnt: usize,
    pub(super) auth_key_size: usize,
    pub(super) auth_key: *mut u8,
}

/// `struct fi_cq_attr`, up to `wait_set`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqAttr {
    pub(super) size: usize,
    pub(super) flags: u64,
    pub(super) format: u32,
    pub(super) wait_obj: u32,
    pub(super) signaling_vector: c_int,
    pub(super) wait_cond: u32,
    pub(super) wait_set: *mut fid_wait,
}

/// `struct fi_cntr_attr`, up to `flags`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CntrAttr {
    pub(super) events: u32,
    pub(super) wait_obj: u32,
    pub(super) wait_set: *mut fid_wait,
    pub(super) flags: u64,
}

/// `struct fi_mr_attr` as it was before version 1.5.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MrAttr {
    pub(super) mr_iov: *const iovec,
    pub(super) iov_count: usize,
    pub(super) access: u64,
    pub(super) offset: u64,
    pub(super) requested_key: u64,
    pub(super) context: *mut c_void,
}

/// What follows [`MrAttr`] since version 1.5.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MrAttrKey {
    pub(super) before: MrAttr,
    pub(super) auth_key_size: usize,
    pub(super) auth_key: *mut u8,
}

/// What follows [`MrAttrKey`] since version 1.9, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MrAttrDevice {
    pub(super) before: MrAttrKey,
    pub(super) iface: u32,
}

/// `struct fi_triggered_context`, as it is of `FI_TRIGGER_THRESHOLD`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TriggeredContext {
    pub(super) event_type: u32,
    pub(super) counter: *mut fid_cntr,
    pub(super) threshold: usize,
}

/// `struct fi_deferred_work`: what is behind `op`, its type says.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeferredWork {
    pub(super) context: [*mut c_void; 8],
    pub(super) threshold: u64,
    pub(super) triggering_cntr: *mut fid_cntr,
    pub(super) completion_cntr: *mut fid_cntr,
    pub(super) op_type: u32,
    pub(super) op: *const c_void,
}

/// `struct fi_alias`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Alias {
    pub(super) fid: *mut *mut fid,
    pub(super) flags: u64,
}

/// `struct fi_cq_err_entry`, up to `err_data_size`, which is there since version 1.5.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqErrEntry {
    pub(super) first: CqErrEntryOf10,
    pub(super) err_data_size: usize,
}

/// The same as it was before.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqErrEntryOf10 {
    pub(super) op_context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) buf: *mut c_void,
    pub(super) data: u64,
    pub(super) tag: u64,
    pub(super) olen: usize,
    pub(super) err: c_int,
    pub(super) prov_errno: c_int,
    pub(super) err_data: *mut c_void,
}

/// What follows [`CqErrEntry`] since version 1.20.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqErrEntrySource {
    pub(super) before: CqErrEntry,
    pub(super) src_addr: u64,
}

/// `struct fi_cq_tagged_entry`; other formats are how it begins.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqEntry {
    pub(super) op_context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) buf: *mut c_void,
    pub(super) data: u64,
    pub(super) tag: u64,
}

/// `struct fi_eq_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct EqEntry {
    pub(super) fid: *mut fid,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

/// A function that takes a domain, attributes, where to write what was opened, and a context.
type OpenIn<A, F> = Option<unsafe extern "C" fn(*mut fid_domain, *mut A, *mut *mut F, *mut c_void) -> c_int>;

/// `struct fi_ops_domain`, up to `endpoint2`.
#[repr(C)]
pub(super) struct OpsDomain {
    pub(super) size: usize,
    pub(super) av_open: OpenIn<fi_av_attr, fid_av>,
    pub(super) cq_open: OpenIn<CqAttr, fid_cq>,
    pub(super) endpoint: OpenIn<fi_info, fid_ep>,
    pub(super) scalable_ep: OpenIn<fi_info, fid_ep>,
    pub(super) cntr_open: OpenIn<CntrAttr, fid_cntr>,
    pub(super) poll_open:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll) -> c_int>,
    pub(super) stx_ctx: OpenIn<fi_tx_attr, fid_stx>,
    pub(super) srx_ctx: OpenIn<fi_rx_attr, fid_ep>,
    pub(super) query_atomic:
        Option<unsafe extern "C" fn(*mut fid_domain, u32, u32, *mut fi_atomic_attr, u64) -> c_int>,
    pub(super) query_collective:
        Option<unsafe extern "C" fn(*mut fid_domain, u32, *mut c_void, u64) -> c_int>,
    pub(super) endpoint2: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void) -> c_int,
    >,
}

/// `struct fi_ops_ep`, up to `tx_size_left`.
#[repr(C)]
pub(super) struct OpsEp {
    pub(super) size: usize,
    pub(super) cancel: Option<unsafe extern "C" fn(*mut fid, *mut c_void) -> isize>,
    pub(super) getopt: Option<unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int>,
    pub(super) setopt: Option<unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int>,
    pub(super) tx_ctx: Option<
        unsafe extern "C" fn(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int,
    >,
    pub(super) rx_ctx: Option<
        unsafe extern "C" fn(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int,
    >,
    pub(super) rx_size_left: Option<unsafe extern "C" fn(*mut fid_ep) -> isize>,
    pub(super) tx_size_left: Option<unsafe extern "C" fn(*mut fid_ep) -> isize>,
}

/// `struct fi_ops_cq`, up to `strerror`.
#[repr(C)]
pub(super) struct OpsCq {
    pub(super) size: usize,
    pub(super) read: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize>,
    pub(super) readfrom: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *mut u64) -> isize>,
    pub(super) readerr: Option<unsafe extern "C" fn(*mut fid_cq, *mut CqErrEntry, u64) -> isize>,
    pub(super) sread:
        Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize>,
    pub(super) sreadfrom: Option<
        unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize,
    >,
    pub(super) signal: Option<unsafe extern "C" fn(*mut fid_cq) -> c_int>,
    pub(super) strerror:
        Option<unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char>,
}

/// `struct fi_ops_cntr`, up to `seterr`.
#[repr(C)]
pub(super) struct OpsCntr {
    pub(super) size: usize,
    pub(super) read: Option<unsafe extern "C" fn(*mut fid_cntr) -> u64>,
    pub(super) readerr: Option<unsafe extern "C" fn(*mut fid_cntr) -> u64>,
    pub(super) add: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
    pub(super) set: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
    pub(super) wait: Option<unsafe extern "C" fn(*mut fid_cntr, u64, c_int) -> c_int>,
    pub(super) adderr: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
    pub(super) seterr: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
}

/// `struct fi_ops_av`, up to `av_set`.
#[repr(C)]
pub(super) struct OpsAv {
    pub(super) size: usize,
    pub(super) insert:
        Option<unsafe extern "C" fn(*mut fid_av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int>,
    pub(super) insertsvc: Option<
        unsafe extern "C" fn(*mut fid_av, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int,
    >,
    pub(super) insertsym: Option<
        unsafe extern "C" fn(
            *mut fid_av,
            *const c_char,
            usize,
            *const c_char,
            usize,
            *mut u64,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) remove: Option<unsafe extern "C" fn(*mut fid_av, *mut u64, usize, u64) -> c_int>,
    pub(super) lookup: Option<unsafe extern "C" fn(*mut fid_av, u64, *mut c_void, *mut usize) -> c_int>,
    pub(super) straddr:
        Option<unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char>,
    pub(super) av_set:
        Option<unsafe extern "C" fn(*mut fid_av, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int>,
}

/// `FI_VERSION`.
pub(super) const fn version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

pub(super) const FI_MSG: u64 = 1 << 1;
pub(super) const FI_RMA: u64 = 1 << 2;
pub(super) const FI_TAGGED: u64 = 1 << 3;
pub(super) const FI_ATOMIC: u64 = 1 << 4;
pub(super) const FI_READ: u64 = 1 << 8;
pub(super) const FI_WRITE: u64 = 1 << 9;
pub(super) const FI_RECV: u64 = 1 << 10;
pub(super) const FI_SEND: u64 = 1 << 11;
pub(super) const FI_REMOTE_READ: u64 = 1 << 12;
pub(super) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(super) const FI_MULTI_RECV: u64 = 1 << 16;
pub(super) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(super) const FI_MORE: u64 = 1 << 18;
pub(super) const FI_PEEK: u64 = 1 << 19;
pub(super) const FI_TRIGGER: u64 = 1 << 20;
pub(super) const FI_FENCE: u64 = 1 << 21;
pub(super) const FI_COMPLETION: u64 = 1 << 24;
pub(super) const FI_EVENT: u64 = FI_COMPLETION;
pub(super) const FI_INJECT: u64 = 1 << 25;
pub(super) const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub(super) const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub(super) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub(super) const FI_AFFINITY: u64 = 1 << 29;
/// Of a provider of libfabric's that looks for one to stand on; `OFI_CORE_PROV_ONLY` there.
pub(super) const CORE_ONLY: u64 = 1 << 59;
pub(super) const FI_LOCAL_COMM: u64 = 1 << 51;
pub(super) const FI_REMOTE_COMM: u64 = 1 << 52;
pub(super) const FI_SHARED_AV: u64 = 1 << 53;
pub(super) const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
pub(super) const FI_NUMERICHOST: u64 = 1 << 55;
pub(super) const FI_RMA_EVENT: u64 = 1 << 56;
pub(super) const FI_SOURCE: u64 = 1 << 57;
pub(super) const FI_NAMED_RX_CTX: u64 = 1 << 58;
pub(super) const FI_DIRECTED_RECV: u64 = 1 << 59;
/// Of `fi_trecvmsg(3)`.
pub(super) const FI_DISCARD: u64 = 1 << 58;
pub(super) const FI_CLAIM: u64 = 1 << 59;
/// Of `fi_av_insert(3)`.
pub(super) const FI_SYNC_ERR: u64 = 1 << 58;
/// Of `fi_query_atomic(3)`.
pub(super) const FI_FETCH_ATOMIC: u64 = 1 << 58;
pub(super) const FI_COMPARE_ATOMIC: u64 = 1 << 59;
/// Of `fi_ep_bind(3)`.
pub(super) const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;

pub(super) const FI_ORDER_RAR: u64 = 1 << 0;
pub(super) const FI_ORDER_RAW: u64 = 1 << 1;
pub(super) const FI_ORDER_WAR: u64 = 1 << 3;
pub(super) const FI_ORDER_WAW: u64 = 1 << 4;
pub(super) const FI_ORDER_SAS: u64 = 1 << 8;
/// `FI_ORDER_RMA_RAR` to `FI_ORDER_ATOMIC_WAW`.
pub(super) const FI_ORDER_RMA_AND_ATOMIC: u64 = 0xFF << 32;

pub(super) const FI_MR_BASIC: c_int = 1 << 0;
pub(super) const FI_MR_SCALABLE: c_int = 1 << 1;
pub(super) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(super) const FI_MR_PROV_KEY: c_int = 1 << 6;

pub(super) const FI_EP_MSG: u32 = 1;
pub(super) const FI_EP_DGRAM: u32 = 2;
pub(super) const FI_EP_RDM: u32 = 3;
/// In place of a number of contexts: that of others.
pub(super) const FI_SHARED_CONTEXT: usize = usize::MAX;
pub(super) const FI_ADDR_GNI: u32 = 6;
pub(super) const FI_ADDR_STR: u32 = 9;
pub(super) const FI_PROTO_GNI: u32 = 10;
pub(super) const FI_THREAD_SAFE: u32 = 1;
pub(super) const FI_THREAD_ENDPOINT: u32 = 5;
pub(super) const FI_PROGRESS_AUTO: u32 = 1;
pub(super) const FI_PROGRESS_MANUAL: u32 = 2;
pub(super) const FI_PROGRESS_CONTROL_UNIFIED: u32 = 3;
pub(super) const FI_RM_ENABLED: u32 = 2;
pub(super) const FI_AV_MAP: u32 = 1;
pub(super) const FI_AV_TABLE: u32 = 2;

pub(super) const FI_CLASS_FABRIC: usize = 1;
pub(super) const FI_CLASS_DOMAIN: usize = 2;
pub(super) const FI_CLASS_EP: usize = 3;
pub(super) const FI_CLASS_SEP: usize = 4;
pub(super) const FI_CLASS_RX_CTX: usize = 5;
pub(super) const FI_CLASS_SRX_CTX: usize = 6;
pub(super) const FI_CLASS_TX_CTX: usize = 7;
pub(super) const FI_CLASS_STX_CTX: usize = 8;
pub(super) const FI_CLASS_PEP: usize = 9;
pub(super) const FI_CLASS_AV: usize = 11;
pub(super) const FI_CLASS_MR: usize = 12;
pub(super) const FI_CLASS_EQ: usize = 13;
pub(super) const FI_CLASS_CQ: usize = 14;
pub(super) const FI_CLASS_CNTR: usize = 15;
pub(super) const FI_CLASS_WAIT: usize = 16;
pub(super) const FI_CLASS_POLL: usize = 17;
pub(super) const FI_CLASS_CONNREQ: usize = 18;

pub(super) const FI_GETOPSFLAG: c_int = 2;
pub(super) const FI_SETOPSFLAG: c_int = 3;
pub(super) const FI_ALIAS: c_int = 4;
pub(super) const FI_GETWAIT: c_int = 5;
pub(super) const FI_ENABLE: c_int = 6;
pub(super) const FI_QUEUE_WORK: c_int = 11;
pub(super) const FI_CANCEL_WORK: c_int = 12;
pub(super) const FI_FLUSH_WORK: c_int = 13;
pub(super) const FI_TRIGGER_THRESHOLD: u32 = 0;

pub(super) const FI_OP_RECV: u32 = 0;
pub(super) const FI_OP_SEND: u32 = 1;
pub(super) const FI_OP_TRECV: u32 = 2;
pub(super) const FI_OP_TSEND: u32 = 3;
pub(super) const FI_OP_READ: u32 = 4;
pub(super) const FI_OP_WRITE: u32 = 5;
pub(super) const FI_OP_ATOMIC: u32 = 6;
pub(super) const FI_OP_FETCH_ATOMIC: u32 = 7;
pub(super) const FI_OP_COMPARE_ATOMIC: u32 = 8;
pub(super) const FI_OP_CNTR_SET: u32 = 9;
pub(super) const FI_OP_CNTR_ADD: u32 = 10;
pub(super) const FI_GETWAITOBJ: c_int = 16;

pub(super) const FI_WAIT_NONE: u32 = 0;
pub(super) const FI_WAIT_UNSPEC: u32 = 1;
pub(super) const FI_WAIT_SET: u32 = 2;
pub(super) const FI_WAIT_FD: u32 = 3;

pub(super) const FI_CQ_COND_THRESHOLD: u32 = 1;
pub(super) const FI_CONNREQ: u32 = 1;
pub(super) const FI_CONNECTED: u32 = 2;
pub(super) const FI_SHUTDOWN: u32 = 3;
pub(super) const FI_AV_COMPLETE: u32 = 5;
pub(super) const FI_OPT_ENDPOINT: c_int = 0;
pub(super) const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub(super) const FI_OPT_CM_DATA_SIZE: c_int = 1;
pub(super) const FI_ADDR_NOTAVAIL: u64 = u64::MAX;
pub(super) const FI_KEY_NOTAVAIL: u64 = u64::MAX;
