//! The messages of matched probes (`MPI_Message`): the host lets the transport make them.

use std::ptr::{self, NonNull};

use parking_lot::Mutex;

use crate::host::abi::Communicator;
use crate::host::services::Services;
use crate::host::sys::{Message, Status};
use crate::mtl::{Claim, Envelope};

/// Messages that are free for use again.
static FREE: Mutex<Vec<Free>> = Mutex::new(Vec::new());

struct Free(NonNull<Message>);

// SAFETY: a free message belongs to the list alone.
unsafe impl Send for Free {}

/// `MPI_UNDEFINED`: the message has no Fortran handle.
const NO_FORTRAN_HANDLE: i32 = -32766;

/// Makes the message of a matched probe, which the transport knows by a number.
pub(super) fn new(comm: *mut Communicator, claim: Claim) -> *mut Message {
    let free = FREE.lock().pop();
    let message = free.map_or_else(
        || {
            let fresh = Box::<Message>::new_zeroed();
            // SAFETY: all fields are plain numbers and pointers; zero is a value of each.
            NonNull::from(Box::leak(unsafe { fresh.assume_init() }))
        },
        |message| message.0,
    );
    let raw = message.as_ptr();
    // SAFETY: a message of our own, in nobody's hands: fresh, or just taken off the list.
    let fields = unsafe { &mut *raw };
    fields.fortran = NO_FORTRAN_HANDLE;
    fields.comm = comm;
    fields.request = ptr::without_provenance_mut(claim.message as usize);
    fields.peer = claim.envelope.source;
    fields.count = claim.envelope.len;
    raw
}

/// Takes that number out of a message, keeps the message for later and puts `MPI_MESSAGE_NULL` in its place.
///
/// # Safety
/// The address of a handle, which holds null, `MPI_MESSAGE_NULL`, or a message that [`new`] made and nobody
/// has taken since.
pub(super) unsafe fn take(message: *mut *mut Message) -> Option<u64> {
    let null = null();
    // SAFETY: the address of a handle.
    let raw = NonNull::new(unsafe { message.replace(null) })?;
    // That one is the host's own, and stands for none.
    if raw.as_ptr() == null {
        return None;
    }
    // SAFETY: neither null nor the host's, hence one that we made, which nobody else uses.
    let claim = unsafe { raw.as_ref() }.request;
    FREE.lock().push(Free(raw));
    (!claim.is_null()).then(|| claim.addr() as u64)
}

/// The message that stands for none: `MPI_MESSAGE_NULL`.
pub(super) fn null() -> *mut Message {
    Services::host().message_null.cast()
}

/// Writes the outcome of a probe.
pub(super) fn write_status(status: &mut Status, envelope: Envelope) {
    status.source = envelope.source;
    status.tag = envelope.tag;
    status.count = envelope.len;
    status.cancelled = 0;
}
