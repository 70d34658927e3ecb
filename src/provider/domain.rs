//! The domain, `fi_domain(3)`: what everything that moves data is opened of.

use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::argument::{Foreign, Out, copy, text};
use super::cntr::Counter;
use super::errno::{Errno, Outcome};
use super::fabric::Fabric;
use super::guard::guard;
use super::helper::{Helper, Span};
use super::object::{self, Object, body, fid_of};
use super::offer::{self, Registration};
use super::regions::Regions;
use super::sys::{
    self, CntrAttr, CqAttr, DomainAttr, OpsDomain, fi_atomic_attr, fi_av_attr, fi_info, fi_ops, fi_poll_attr,
    fi_rx_attr, fi_tx_attr, fid, fid_av, fid_cntr, fid_cq, fid_domain, fid_ep, fid_poll, fid_stx,
};
use super::traffic::{Found, Traffic};
use super::wait::Beside;
use super::{av, cntr, cq, endpoint, mr, nosys, poll, shared};
use crate::sync::EngineCell;

/// A domain.
pub struct Domain {
    /// What it was opened of, and the interface version.
    pub(super) fabric: Arc<Fabric>,
    /// The kind of address vectors that was agreed on; 0 is any.
    pub(super) av_type: u32,
    /// The form of addresses.
    pub(super) addr_format: u32,
    /// The memory that peers may reach.
    pub regions: Arc<Regions>,
    /// What is under way.
    pub(super) traffic: Arc<EngineCell<Traffic>>,
    /// What makes progress by itself.
    pub(super) automatic: Option<Span>,
    /// Who does, once there is something.
    pub(super) helper: OnceLock<Helper>,
}

impl Domain {
    /// Does what there is to be done, unless somebody else does.
    #[inline(always)]
    pub(super) fn progress(&self) -> Found {
        let found = self.traffic.try_with(Traffic::progress).unwrap_or(Found::Something);
        found.wait();
        // What came during the breath is here, and need not wait until the program has come back.
        if found == Found::Nothing && self.traffic.try_with(Traffic::glance) == Some(true) {
            return Found::Something;
        }
        found
    }

    /// The same, thoroughly.
    pub(super) fn progress_all(&self) {
        self.traffic.with(Traffic::progress_all);
    }

    /// What is readable when something is to be done, after [`arm`](Self::arm).
    pub(super) fn descriptor(&self) -> Outcome<Arc<OwnedFd>> {
        self.traffic.with(Traffic::descriptor)
    }

    /// Does what there is to be done, a last time before sleep.
    pub(super) fn arm(&self) -> Outcome<Beside> {
        self.traffic.with(Traffic::arm)
    }

    /// There is room for what had none.
    #[cold]
    pub(super) fn rouse(&self) {
        self.traffic.with(Traffic::rouse);
    }

    /// Has progress made by itself from now on, if that was agreed on.
    pub(super) fn help(&self) -> Outcome<()> {
        if let (Some(span), None) = (self.automatic, self.helper.get()) {
            // Of two that are started at once, one ends again.
            let _ = self.helper.set(Helper::start(&self.traffic, span)?);
        }
        Ok(())
    }

    /// Closes an endpoint. What it has received its peers are told of, and what it has sent they find, if they look for it in time.
    pub(super) fn end(&self, slot: u32) {
        let start = self.traffic.with(|traffic| traffic.now()).nanos();
        while let Some(left) = self.traffic.with(|traffic| traffic.answer(slot, start)) {
            self.doze(left);
        }
        self.traffic.with(|traffic| traffic.begin_closing(slot, start));
        while let Some(left) = self.traffic.with(|traffic| traffic.farewell(slot, start)) {
            self.doze(left);
        }
        while let Some(left) = self.traffic.with(|traffic| traffic.be_left(slot, start)) {
            self.doze(left);
        }
        self.traffic.with(|traffic| traffic.end_closing(slot));
    }

    /// Waits until there may be something to do, for so many nanoseconds at most. Other threads may do it, and nobody says so: it is
    /// looked after it again before long.
    fn doze(&self, left: u64) {
        match self.arm() {
            Ok(Beside::Set(set, most)) => sleep(&set, most.unwrap_or(left).min(left).min(GLANCE)),
            Ok(Beside::Moved | Beside::Nothing) => {}
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Who closes an endpoint looks whether that is over at least so often, nanoseconds.
const GLANCE: u64 = 5_000_000;

/// Sleeps on a descriptor for so many nanoseconds at most.
fn sleep(descriptor: &OwnedFd, most: u64) {
    let most = Timespec { tv_sec: (most / 1_000_000_000) as i64, tv_nsec: (most % 1_000_000_000) as i64 };
    // A signal is none of ours.
    let _ = rustix::event::poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&most));
}

// SAFETY: `fid_domain` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Domain {
    type Head = fid_domain;
    const CLASS: usize = sys::FI_CLASS_DOMAIN;
}

static OPS: fi_ops = object::ops(close, object::no_bind, control);

static TABLE: OpsDomain = OpsDomain {
    size: size_of::<OpsDomain>(),
    av_open: Some(open_av),
    cq_open: Some(open_cq),
    endpoint: Some(open_endpoint),
    scalable_ep: Some(open_scalable),
    cntr_open: Some(open_counter),
    poll_open: Some(open_poll),
    stx_ctx: Some(open_stx),
    srx_ctx: Some(open_srx),
    query_atomic: Some(query_atomic),
    query_collective: Some(nosys::four),
    endpoint2: Some(open_endpoint2),
};

/// Opens a domain.
///
/// # Safety
/// The contract of `fi_domain(3)`.
pub(super) unsafe fn open(
    fabric: &Arc<Fabric>,
    info: *mut fi_info,
    to: *mut *mut fid_domain,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or an info of libfabric's.
    let info = unsafe { copy(info) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    // SAFETY: the contract: NULL, or that part of the info.
    let attr = unsafe { copy(info.domain_attr.cast::<DomainAttr>()) }?;
    // SAFETY: the contract: NULL, or a text.
    if unsafe { text(attr.name) }.is_some_and(|name| name != offer::DOMAIN) {
        return Err(Errno::INVAL);
    }
    if attr.av_type > sys::FI_AV_TABLE || attr.threading > sys::FI_THREAD_ENDPOINT {
        return Err(Errno::INVAL);
    }
    let automatic = match (attr.data_progress, attr.control_progress) {
        (sys::FI_PROGRESS_AUTO, _) => Some(Span::All),
        (_, sys::FI_PROGRESS_AUTO) => Some(Span::Control),
        _ => None,
    };
    let domain = Domain {
        fabric: Arc::clone(fabric),
        av_type: attr.av_type,
        addr_format: info.addr_format,
        regions: Arc::new(Regions::new(Registration::of_mode(attr.mr_mode))),
        traffic: Arc::new(EngineCell::new(Traffic::new())),
        automatic,
        helper: OnceLock::new(),
    };
    let head = fid_domain {
        fid: fid_of::<Domain>(context, &OPS),
        ops: std::ptr::from_ref(&TABLE).cast_mut().cast(),
        mr: std::ptr::from_ref(&mr::TABLE).cast_mut(),
    };
    to.write(object::open(head, Arc::new(domain)));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a domain", || unsafe { object::close::<Domain>(fid) })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard("fi_control of a domain", || {
        // SAFETY: the contract of `fi_control(3)`: a domain.
        let domain = unsafe { body::<Domain>(fid.cast()) }?;
        match command {
            // SAFETY: the contract of `fi_trigger(3)` for this command: a `struct fi_deferred_work`.
            sys::FI_QUEUE_WORK => unsafe { endpoint::queue(domain, argument.cast()) },
            sys::FI_CANCEL_WORK => domain.traffic.with(|traffic| traffic.cancel_work(Foreign(argument))),
            sys::FI_FLUSH_WORK if argument.is_null() => {
                domain.traffic.with(|traffic| traffic.flush_work(None));
                Ok(())
            }
            sys::FI_FLUSH_WORK => {
                // SAFETY: the same: a counter, of which all that waits for it is flushed.
                let counter = unsafe { body::<Counter>(argument.cast()) }?;
                domain.traffic.with(|traffic| traffic.flush_work(Some(counter)));
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    })
}

unsafe extern "C" fn open_av(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    to: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    guard("fi_av_open", || {
        // SAFETY: the contract of `fi_av_open(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { av::open(domain, attr, to, context) }
    })
}

unsafe extern "C" fn open_cq(
    domain: *mut fid_domain,
    attr: *mut CqAttr,
    to: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    guard("fi_cq_open", || {
        // SAFETY: the contract of `fi_cq_open(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { cq::open(domain, attr, to, context) }
    })
}

unsafe extern "C" fn open_counter(
    domain: *mut fid_domain,
    attr: *mut CntrAttr,
    to: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    guard("fi_cntr_open", || {
        // SAFETY: the contract of `fi_cntr_open(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { cntr::open(domain, attr, to, context) }
    })
}

unsafe extern "C" fn open_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    to: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    guard("fi_endpoint", || {
        // SAFETY: the contract of `fi_endpoint(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { endpoint::open(domain, info, to, context) }
    })
}

unsafe extern "C" fn open_scalable(
    domain: *mut fid_domain,
    info: *mut fi_info,
    to: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    guard("fi_scalable_ep", || {
        // SAFETY: the contract of `fi_scalable_ep(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { endpoint::open_scalable(domain, info, to, context) }
    })
}

unsafe extern "C" fn open_stx(
    domain: *mut fid_domain,
    _: *mut fi_tx_attr,
    to: *mut *mut fid_stx,
    context: *mut c_void,
) -> c_int {
    guard("fi_stx_context", || {
        // SAFETY: the contract of `fi_stx_context(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { shared::open_stx(domain, to, context) }
    })
}

unsafe extern "C" fn open_srx(
    domain: *mut fid_domain,
    _: *mut fi_rx_attr,
    to: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    guard("fi_srx_context", || {
        // SAFETY: the contract of `fi_srx_context(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { shared::open_srx(domain, to, context) }
    })
}

unsafe extern "C" fn open_poll(
    domain: *mut fid_domain,
    attr: *mut fi_poll_attr,
    to: *mut *mut fid_poll,
) -> c_int {
    guard("fi_poll_open", || {
        // SAFETY: the contract of `fi_poll_open(3)`.
        let domain = unsafe { body(domain) }?;
        // SAFETY: the same.
        unsafe { poll::open(domain, attr, to) }
    })
}

unsafe extern "C" fn query_atomic(
    domain: *mut fid_domain,
    datatype: u32,
    operation: u32,
    to: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    guard("fi_query_atomic", || {
        // SAFETY: the contract of `fi_query_atomic(3)`: a domain.
        unsafe { body::<Domain>(domain) }?;
        // SAFETY: the same: NULL, or a variable of the caller's.
        unsafe { endpoint::query(datatype, operation, to, flags) }
    })
}

unsafe extern "C" fn open_endpoint2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    to: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // A flag would make it one of a peer provider's.
    if flags != 0 {
        return -libc::ENOSYS;
    }
    // SAFETY: the contract of `fi_endpoint2(3)`.
    unsafe { open_endpoint(domain, info, to, context) }
}
