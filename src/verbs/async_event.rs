//! What a device tells without being asked (`ibv_get_async_event(3)`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use super::context::Context;
use super::sys::{self, event};
use super::{errno, error_of};
use crate::error::{Error, Result};

/// One event. It has been copied and acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A queue pair, by its number, cannot be used any more, or its peer did what it must not.
    QpFailed(u32),
    /// The last receive of a queue pair with a shared queue was taken, after its end.
    QpLastReceive(u32),
    /// Another event of a queue pair: a state that it has reached.
    QpState(u32),
    /// A completion queue, by its token, is broken.
    CqFailed(usize),
    /// A shared queue, by its token, has come below the limit that it was armed with.
    SrqLimit(usize),
    /// A shared queue, by its token, is broken.
    SrqFailed(usize),
    /// A port carries data again.
    PortActive(u8),
    /// A port carries none any more.
    PortDown(u8),
    /// The device cannot be used any more.
    DeviceFailed,
    /// Any other, by C's number: a port's tables have changed.
    Other(u32),
}

/// The events of a device.
///
/// There is one queue of them for each [`Context`] of librdmacm's; whoever reads one first has it.
pub struct AsyncEvents {
    context: Arc<Context>,
}

impl AsyncEvents {
    /// Makes the device's descriptor one that does not block.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let events = Self { context: Arc::clone(context) };
        if events.descriptor() < 0 {
            return Err(Error::Unsupported);
        }
        let flags = rustix::fs::fcntl_getfl(&events).map_err(system)?;
        rustix::fs::fcntl_setfl(&events, flags | rustix::fs::OFlags::NONBLOCK).map_err(system)?;
        Ok(events)
    }

    fn descriptor(&self) -> i32 {
        // SAFETY: an open context; the field is written before it is handed out.
        unsafe { (*self.context.as_ptr()).async_fd }
    }

    /// The next event, if there is one; it is acknowledged at once, so that no object's end waits for it.
    pub fn next(&self) -> Result<Option<AsyncEvent>> {
        let mut raw = sys::ibv_async_event::default();
        // SAFETY: an open context, whose descriptor does not block; one structure is written.
        let code = unsafe { (self.context.library().async_event)(self.context.as_ptr(), &raw mut raw) };
        if code != 0 {
            return match errno() {
                libc::EAGAIN | libc::EINTR => Ok(None),
                code => Err(error_of(code)),
            };
        }
        // SAFETY: just read, and not acknowledged.
        let event = unsafe { copied(&raw) };
        // SAFETY: acknowledged once.
        unsafe { (self.context.library().async_ack)(&raw mut raw) };
        Ok(Some(event))
    }
}

fn system(error: rustix::io::Errno) -> Error {
    Error::System(error.raw_os_error())
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the context, which outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.descriptor()) }
    }
}

impl AsRawFd for AsyncEvents {
    fn as_raw_fd(&self) -> i32 {
        self.descriptor()
    }
}

/// # Safety
/// The event has not been acknowledged: whatever it names is kept until then.
unsafe fn copied(raw: &sys::ibv_async_event) -> AsyncEvent {
    // SAFETY: whichever it is, the union is one machine word that was written.
    let element = unsafe { raw.element.cq };
    let qp = || {
        // SAFETY: events of queue pairs name one, which is kept; the number is written when it is made.
        unsafe { (*element.cast::<sys::ibv_qp>()).qp_num }
    };
    let cq = || {
        // SAFETY: events of completion queues name one, which is kept; the token is written when it is made.
        unsafe { (*element).cq_context }.addr()
    };
    let srq = || {
        // SAFETY: events of shared queues name one, which is kept; the token is written when it is made.
        unsafe { (*element.cast::<sys::ibv_srq>()).srq_context }.addr()
    };
    let port = || {
        // SAFETY: events of ports have a number.
        u8::try_from(unsafe { raw.element.port_num }).unwrap_or(0)
    };
    match raw.event_type {
        event::QP_FATAL | event::QP_REQUEST | event::QP_ACCESS | event::MIGRATION => {
            AsyncEvent::QpFailed(qp())
        }
        event::QP_LAST_RECEIVE => AsyncEvent::QpLastReceive(qp()),
        event::ESTABLISHED | event::DRAINED | event::MIGRATED => AsyncEvent::QpState(qp()),
        event::CQ_ERROR => AsyncEvent::CqFailed(cq()),
        event::SRQ_LIMIT => AsyncEvent::SrqLimit(srq()),
        event::SRQ_ERROR => AsyncEvent::SrqFailed(srq()),
        event::PORT_ACTIVE => AsyncEvent::PortActive(port()),
        event::PORT_ERROR => AsyncEvent::PortDown(port()),
        event::DEVICE_FATAL => AsyncEvent::DeviceFailed,
        other => AsyncEvent::Other(other),
    }
}
