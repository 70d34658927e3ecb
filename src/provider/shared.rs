//! What several endpoints share: the transmit context, `fi_stx_context(3)`, of which there is no more than that they share
//! it, and the receive context, `fi_srx_context(3)`, whose receives whichever of them takes that a message comes to.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::argument::{Foreign, Out, copy};
use super::domain::Domain;
use super::endpoint::{Memory, OF_RECEIVES};
use super::errno::{Errno, Outcome};
use super::guard::{guard, size};
use super::names::NOBODY;
use super::nosys;
use super::nosys::size::{eight, five, four, seven, six, three};
use super::object::{self, Object, body, fid_of};
use super::sys::{
    self, OpsEp, fi_msg, fi_msg_tagged, fi_ops, fi_ops_msg, fi_ops_tagged, fid, fid_ep, fid_stx, iovec,
};
use super::traffic::{Queue, SharedWant, Want};
use crate::sync::EngineCell;

/// A shared transmit context.
pub(super) struct Stx {
    domain: Arc<Domain>,
}

// SAFETY: `fid_stx` is libfabric's structure of the class, and `open_stx` below opens those.
unsafe impl Object for Stx {
    type Head = fid_stx;
    const CLASS: usize = sys::FI_CLASS_STX_CTX;
}

impl Stx {
    /// What it was opened of.
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

/// A shared receive context.
pub(super) struct Srx {
    domain: Arc<Domain>,
    queue: Arc<EngineCell<Queue>>,
}

// SAFETY: `fid_ep` is libfabric's structure of the class, and `open_srx` below opens those.
unsafe impl Object for Srx {
    type Head = fid_ep;
    const CLASS: usize = sys::FI_CLASS_SRX_CTX;
}

impl Srx {
    /// What it was opened of.
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The receives.
    pub(super) fn queue(&self) -> &Arc<EngineCell<Queue>> {
        &self.queue
    }

    fn receive(&self, want: Want, flags: u64) -> Outcome<usize> {
        if flags & sys::FI_MULTI_RECV != 0 {
            // A buffer for several messages is one endpoint's.
            return Err(Errno::NOSYS);
        }
        if flags & !OF_RECEIVES != 0 {
            return Err(Errno::BADFLAGS);
        }
        let shared = SharedWant { want, asks: flags & sys::FI_COMPLETION != 0 };
        self.domain.traffic.with(|traffic| traffic.receive_shared(&self.queue, shared))?;
        Ok(0)
    }
}

static STX_OPS: fi_ops = object::ops(close_stx, object::no_bind, object::no_control);

static SRX_OPS: fi_ops = object::ops(close_srx, object::no_bind, control_srx);

const fn options(cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> isize) -> OpsEp {
    OpsEp {
        size: size_of::<OpsEp>(),
        cancel: Some(cancel),
        getopt: Some(nosys::five),
        setopt: Some(nosys::five),
        tx_ctx: Some(nosys::five),
        rx_ctx: Some(nosys::five),
        rx_size_left: Some(nosys::size::one),
        tx_size_left: Some(nosys::size::one),
    }
}

static STX_OPTIONS: OpsEp = options(nosys::size::two);

static SRX_OPTIONS: OpsEp = options(cancel);

static MESSAGES: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(six),
    sendv: Some(six),
    sendmsg: Some(three),
    inject: Some(four),
    senddata: Some(seven),
    injectdata: Some(five),
};

static TAGGED: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(seven),
    sendv: Some(seven),
    sendmsg: Some(three),
    inject: Some(five),
    senddata: Some(eight),
    injectdata: Some(six),
};

/// Opens a shared transmit context.
///
/// # Safety
/// The contract of `fi_stx_context(3)`.
pub(super) unsafe fn open_stx(
    domain: &Arc<Domain>,
    to: *mut *mut fid_stx,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    let head = fid_stx {
        fid: fid_of::<Stx>(context, &STX_OPS),
        ops: std::ptr::from_ref(&STX_OPTIONS).cast_mut().cast(),
    };
    to.write(object::open(head, Arc::new(Stx { domain: Arc::clone(domain) })));
    Ok(())
}

/// Opens a shared receive context.
///
/// # Safety
/// The contract of `fi_srx_context(3)`.
pub(super) unsafe fn open_srx(
    domain: &Arc<Domain>,
    to: *mut *mut fid_ep,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    let head = fid_ep {
        fid: fid_of::<Srx>(context, &SRX_OPS),
        ops: std::ptr::from_ref(&SRX_OPTIONS).cast_mut().cast(),
        cm: std::ptr::from_ref(&super::endpoint::NO_NAMES).cast_mut(),
        msg: std::ptr::from_ref(&MESSAGES).cast_mut(),
        rma: std::ptr::from_ref(&super::endpoint::NO_MEMORY).cast_mut(),
        tagged: std::ptr::from_ref(&TAGGED).cast_mut(),
        atomic: std::ptr::from_ref(&super::endpoint::NO_ATOMIC).cast_mut(),
        collective: std::ptr::from_ref(&super::endpoint::NO_COLLECTIVE).cast_mut(),
    };
    let queue = Arc::new(EngineCell::new(Queue::new()));
    to.write(object::open(head, Arc::new(Srx { domain: Arc::clone(domain), queue })));
    Ok(())
}

unsafe extern "C" fn close_stx(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a shared transmit context", || unsafe { object::close::<Stx>(fid) })
}

unsafe extern "C" fn close_srx(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a shared receive context", || unsafe { object::close::<Srx>(fid) })
}

unsafe extern "C" fn control_srx(fid: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    guard("fi_control of a shared receive context", || {
        // SAFETY: the contract of `fi_control(3)`.
        unsafe { body::<Srx>(fid.cast()) }?;
        // It is of use at once.
        if command == sys::FI_ENABLE { Ok(()) } else { Err(Errno::NOSYS) }
    })
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    size("fi_cancel", || {
        // SAFETY: the contract of `fi_cancel(3)`.
        let srx = unsafe { body::<Srx>(fid.cast()) }?;
        srx.domain.traffic.with(|traffic| traffic.cancel_shared(&srx.queue, Foreign(context)))?;
        Ok(0)
    })
}

/// Receives to where C says.
///
/// # Safety
/// The contract of `fi_msg(3)` and `fi_tagged(3)`.
unsafe fn receive_to(
    ep: *mut fid_ep,
    memory: Memory,
    tag: Option<(u64, u64)>,
    context: *mut c_void,
    flags: u64,
) -> isize {
    size("fi_recv", || {
        // SAFETY: the contract: a shared receive context.
        let srx = unsafe { body::<Srx>(ep) }?;
        // SAFETY: the contract: it is writable until the operation has ended.
        let buffer = unsafe { memory.room() }?;
        let want = Want {
            context: Foreign(context),
            source: NOBODY,
            tag,
            buffer,
            wants: true,
            many: None,
            instead: None,
        };
        srx.receive(want, flags)
    })
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    _: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_msg(3)`.
    unsafe { receive_to(ep, Memory::One(buffer, length), None, context, 0) }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    _: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_msg(3)`.
    unsafe { receive_to(ep, Memory::Many(pieces, count), None, context, 0) }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the contract of `fi_msg(3)`: a message.
    let message = match unsafe { copy(message) } {
        Ok(message) => message,
        Err(Errno(code)) => return -(code as isize),
    };
    // SAFETY: the same.
    unsafe { receive_to(ep, Memory::Many(message.msg_iov, message.iov_count), None, message.context, flags) }
}

unsafe extern "C" fn trecv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    _: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_tagged(3)`.
    unsafe { receive_to(ep, Memory::One(buffer, length), Some((tag, ignore)), context, 0) }
}

unsafe extern "C" fn trecvv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    _: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_tagged(3)`.
    unsafe { receive_to(ep, Memory::Many(pieces, count), Some((tag, ignore)), context, 0) }
}

unsafe extern "C" fn trecvmsg(ep: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the contract of `fi_tagged(3)`: a message.
    let message = match unsafe { copy(message) } {
        Ok(message) => message,
        Err(Errno(code)) => return -(code as isize),
    };
    let memory = Memory::Many(message.msg_iov, message.iov_count);
    // SAFETY: the same.
    unsafe { receive_to(ep, memory, Some((message.tag, message.ignore)), message.context, flags) }
}
