//! [`Entries`]: what the short path calls, copied out of the provider's tables once, so that a post is one
//! indirect call.

use std::ffi::c_void;

use super::sys;
use crate::error::{Error, Result};

pub(super) type Recv = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *mut c_void,
    usize,
    *mut c_void,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;
pub(super) type Send =
    unsafe extern "C" fn(*mut sys::fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize;
pub(super) type SendData = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;
pub(super) type Inject = unsafe extern "C" fn(*mut sys::fid_ep, *const c_void, usize, u64, u64) -> isize;
pub(super) type InjectData =
    unsafe extern "C" fn(*mut sys::fid_ep, *const c_void, usize, u64, u64, u64) -> isize;
pub(super) type RecvPieces = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *const libc::iovec,
    *mut *mut c_void,
    usize,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;
pub(super) type Message = unsafe extern "C" fn(*mut sys::fid_ep, *const sys::fi_msg_tagged, u64) -> isize;
pub(super) type Read = unsafe extern "C" fn(*mut sys::fid_cq, *mut c_void, usize) -> isize;
pub(super) type ReadError = unsafe extern "C" fn(*mut sys::fid_cq, *mut sys::fi_cq_err_entry, u64) -> isize;
pub(super) type Cancel = unsafe extern "C" fn(*mut sys::fid, *mut c_void) -> isize;

/// `fi_send(3)` and `fi_recv(3)`: one reads the memory, the other writes it.
pub(super) type Untagged<P> =
    unsafe extern "C" fn(*mut sys::fid_ep, P, usize, *mut c_void, u64, *mut c_void) -> isize;

// Stand-ins for entries that a provider leaves out, so that the short path need not ask.
unsafe extern "C" fn no_send_data(
    _: *mut sys::fid_ep,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: u64,
    _: u64,
    _: u64,
    _: *mut c_void,
) -> isize {
    -(sys::FI_ENOSYS as isize)
}

unsafe extern "C" fn no_inject_data(
    _: *mut sys::fid_ep,
    _: *const c_void,
    _: usize,
    _: u64,
    _: u64,
    _: u64,
) -> isize {
    -(sys::FI_ENOSYS as isize)
}

#[derive(Clone, Copy)]
pub(super) struct Entries {
    pub(super) recv: Recv,
    pub(super) send: Send,
    pub(super) send_data: SendData,
    pub(super) inject: Inject,
    pub(super) inject_data: InjectData,
    pub(super) recv_message: Option<Message>,
    pub(super) read: Read,
    pub(super) read_error: ReadError,
    pub(super) cancel: Option<Cancel>,
}

impl Entries {
    /// Those of an endpoint's halves and of their queue, which are open.
    pub(super) fn of(
        tx: &sys::fi_ops_tagged,
        rx: &sys::fi_ops_tagged,
        queue: &sys::fi_ops_cq,
        ops: &sys::fi_ops_ep,
    ) -> Result<Self> {
        // Tables only grow at their end; `size` says how much of one the provider filled in.
        if tx.size.min(rx.size) < size_of::<sys::fi_ops_tagged>() {
            return Err(Error::Unsupported);
        }
        Ok(Self {
            recv: rx.recv.ok_or(Error::Unsupported)?,
            send: tx.send.ok_or(Error::Unsupported)?,
            send_data: tx.senddata.unwrap_or(no_send_data),
            inject: tx.inject.ok_or(Error::Unsupported)?,
            inject_data: tx.injectdata.unwrap_or(no_inject_data),
            recv_message: rx.recvmsg,
            read: queue.read.ok_or(Error::Unsupported)?,
            read_error: queue.readerr.ok_or(Error::Unsupported)?,
            cancel: ops.cancel,
        })
    }
}
