//! The channel that librdmacm's events come through (`rdma_create_event_channel(3)`, `rdma_get_cm_event(3)`).

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::id::Id;
use super::library::Library;
use super::{errno, error_of, last_error, sys};
use crate::error::{Error, Result};

/// A channel of events. Reading it never blocks.
pub struct EventChannel {
    library: &'static Library,
    raw: NonNull<sys::rdma_event_channel>,
    /// librdmacm's ids have no lock: this is the one of all ids of the channel. An event is read, copied and acknowledged
    /// under it, so that no id ends between: its end would wait for the acknowledgement.
    turn: Mutex<()>,
}

// SAFETY: whatever uses it, or an id of it, has the turn.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// A channel of its own.
    ///
    /// # Errors
    /// [`Error::System`]: the kernel has no RDMA connection manager (`ENOENT`, `ENODEV`), or too many files are open.
    pub fn new(library: &'static Library) -> Result<Arc<Self>> {
        // SAFETY: takes no argument; the channel is ours, or null on failure.
        let raw = unsafe { (library.channel_create)() };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        let channel = Self { library, raw, turn: Mutex::new(()) };
        let system = |error: rustix::io::Errno| Error::System(error.raw_os_error());
        let flags = rustix::fs::fcntl_getfl(&channel).map_err(system)?;
        rustix::fs::fcntl_setfl(&channel, flags | rustix::fs::OFlags::NONBLOCK).map_err(system)?;
        Ok(Arc::new(channel))
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn as_ptr(&self) -> *mut sys::rdma_event_channel {
        self.raw.as_ptr()
    }

    /// Has the ids of the channel to itself.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// The next event, if there is one; its descriptor is readable while there is. It is copied and acknowledged at once.
    pub fn next(self: &Arc<Self>) -> Result<Option<Event>> {
        let _turn = self.turn();
        let mut raw = ptr::null_mut();
        // SAFETY: an open channel, whose descriptor does not block; an event is written, or nothing on failure.
        let code = unsafe { (self.library.event_next)(self.as_ptr(), &raw mut raw) };
        let Some(raw) = NonNull::new(raw).filter(|_| code == 0) else {
            return match errno() {
                libc::EAGAIN | libc::EINTR => Ok(None),
                code => Err(error_of(code)),
            };
        };
        // SAFETY: just read, not acknowledged, and in our turn.
        let event = unsafe { self.copied(raw) };
        // SAFETY: acknowledged once, and nothing of it is used any more.
        let _acknowledged = unsafe { (self.library.event_ack)(raw.as_ptr()) };
        Ok(Some(event))
    }

    /// # Safety
    /// The event has not been acknowledged, and it is our turn.
    unsafe fn copied(self: &Arc<Self>, raw: NonNull<sys::rdma_cm_event>) -> Event {
        // SAFETY: an event that librdmacm has written; nobody else has it.
        let raw = unsafe { raw.as_ref() };
        let kind = EventKind::of(raw.event);
        // Of a request, the id is a new one: what its token is, its listener says.
        let (known, request) = match kind {
            EventKind::ConnectRequest => {
                let id = NonNull::new(raw.id);
                // SAFETY: an id that librdmacm has made for this event, and gives away with it.
                (raw.listen_id, id.map(|id| unsafe { Id::own(self, id) }))
            }
            _ => (raw.id, None),
        };
        let token = NonNull::new(known).map_or(0, |id| {
            // SAFETY: an id of this channel that has not ended, or it would have no event; the field is written in turn.
            unsafe { (*id.as_ptr()).context }.addr()
        });
        let bytes = NonNull::new(raw.conn.private_data.cast_mut().cast::<u8>());
        // SAFETY: the event has so many bytes, until it is acknowledged.
        let private = unsafe { PrivateData::copied(bytes, raw.conn.private_data_len) };
        Event {
            kind,
            token,
            status: raw.status,
            private,
            served_reads: raw.conn.responder_resources,
            started_reads: raw.conn.initiator_depth,
            request,
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel, which outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> i32 {
        // SAFETY: an open channel; the field is written when it is made.
        unsafe { (*self.raw.as_ptr()).fd }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: ours, ended once; ids hold their channel, so none is left, and all events were acknowledged.
        unsafe { (self.library.channel_destroy)(self.as_ptr()) };
    }
}

/// What has happened (`rdma_get_cm_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The way to the peer's address is known, and with it the device.
    AddressResolved,
    /// It cannot be found.
    AddressError,
    /// The route is known.
    RouteResolved,
    /// It cannot be found.
    RouteError,
    /// A peer wants a connection with a listening id; the request has an id of its own.
    ConnectRequest,
    /// The peer has accepted; of ids without a queue pair.
    ConnectResponse,
    /// The connection cannot be made.
    ConnectError,
    /// Nobody answers.
    Unreachable,
    /// The peer, or its machine, refuses.
    Rejected,
    /// There is a connection.
    Established,
    /// It has ended.
    Disconnected,
    /// The device goes: everything of it has to be dropped.
    DeviceRemoval,
    /// The address has moved to another device: the connection cannot be used any more.
    AddressChange,
    /// The queue pair of an ended connection may be used again.
    TimewaitExit,
    /// Any other, by C's number.
    Other(i32),
}

impl EventKind {
    /// `enum rdma_cm_event_type`
    fn of(code: i32) -> Self {
        match code {
            0 => Self::AddressResolved,
            1 => Self::AddressError,
            2 => Self::RouteResolved,
            3 => Self::RouteError,
            4 => Self::ConnectRequest,
            5 => Self::ConnectResponse,
            6 => Self::ConnectError,
            7 => Self::Unreachable,
            8 => Self::Rejected,
            9 => Self::Established,
            10 => Self::Disconnected,
            11 => Self::DeviceRemoval,
            14 => Self::AddressChange,
            15 => Self::TimewaitExit,
            code => Self::Other(code),
        }
    }
}

/// What a peer sends with its request, its answer or its refusal: untrusted, and on InfiniBand filled up with zeros, so
/// that its own length has to be inside.
#[derive(Clone, Copy)]
pub struct PrivateData {
    bytes: [u8; 255],
    len: u8,
}

impl PrivateData {
    /// # Safety
    /// `from`, if any, is readable for `len` bytes.
    unsafe fn copied(from: Option<NonNull<u8>>, len: u8) -> Self {
        let mut data = Self { bytes: [0; 255], len: 0 };
        if let Some(from) = from {
            // SAFETY: readable, by the promise of the caller; a length of 8 bits is at most as long as there is room.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), data.bytes.as_mut_ptr(), usize::from(len)) };
            data.len = len;
        }
        data
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// An event that has been copied and acknowledged.
#[derive(Debug)]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// To whom: the token of the id; of a request, of the listening id.
    pub token: usize,
    /// Why, of errors and refusals: a negative `errno(3)`, or a reason of the transport's. 0 of what is none.
    pub status: i32,
    /// What the peer has sent with it.
    pub private: PrivateData,
    /// Reads and atomics that this side is asked to serve at once, of a request; that it may, of an answer.
    pub served_reads: u8,
    /// Reads and atomics that this side may have under way at once.
    pub started_reads: u8,
    /// The id of a request: to be accepted or rejected. It has its listener's token.
    pub request: Option<Id>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_is_as_long_as_the_event_says() {
        let bytes: Vec<u8> = (0..255).collect();
        let from = NonNull::new(bytes.as_ptr().cast_mut());
        for len in [0, 1, 148, 255] {
            // SAFETY: there are 255 bytes.
            let data = unsafe { PrivateData::copied(from, len) };
            assert_eq!(data.as_slice(), &bytes[..usize::from(len)]);
        }
    }

    #[test]
    fn no_private_data_is_empty_whatever_its_length_says() {
        // SAFETY: there is nothing to read.
        let data = unsafe { PrivateData::copied(None, 56) };
        assert!(data.as_slice().is_empty());
    }

    #[test]
    fn events_that_nobody_knows_are_told_by_their_number() {
        assert_eq!(EventKind::of(9), EventKind::Established);
        assert_eq!(EventKind::of(12), EventKind::Other(12));
        assert_eq!(EventKind::of(-1), EventKind::Other(-1));
    }
}
