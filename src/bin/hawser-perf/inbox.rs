//! What comes and ends: the state that hawser's callbacks change.
//!
//! All of it is in cells, because a callback runs inside a call that this program makes. One thread does it all.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;

use hawser::capi::abi::{Btl, Endpoint};
use hawser::capi::code::HAWSER_SUCCESS;

/// The tag of a whole message.
pub(crate) const WHOLE: u8 = 1;
/// That of a piece of one, which begins with its place there.
pub(crate) const PIECE: u8 = 2;
/// That of an answer, which says that a part of the window is free again.
pub(crate) const ANSWER: u8 = 3;
/// Bytes of a piece's place.
pub(crate) const PLACE: usize = 8;

/// What has come, and what has ended.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Length of the messages that are to come.
    bytes: Cell<usize>,
    /// Whole ones that have come.
    pub(crate) messages: Cell<u64>,
    /// Bytes of pieces that make no whole message yet.
    loose: Cell<usize>,
    pub(crate) answers: Cell<u64>,
    /// Something has come that nobody sends.
    pub(crate) is_wrong: Cell<bool>,
    /// The message itself, while it is looked at.
    kept: RefCell<Option<Vec<u8>>>,
    /// Where the last message came from.
    from: Cell<Option<(Btl, Endpoint)>>,
    /// Sends of a matching transport that have not ended.
    pub(crate) sends: Cell<u64>,
    /// PUTs and GETs that have ended.
    pub(crate) ended: Cell<u64>,
    /// Why an operation has failed.
    pub(crate) failure: Cell<Option<i32>>,
    pub(crate) is_lost: Cell<bool>,
    /// Grows with all that happens.
    pub(crate) stir: Cell<u64>,
}

pub(crate) fn grow(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl Inbox {
    /// Messages of this length are to come, the first of which is kept or not.
    pub(crate) fn begin(&self, bytes: usize, keep: bool) {
        self.bytes.set(bytes);
        self.messages.set(0);
        self.answers.set(0);
        self.ended.set(0);
        self.loose.set(0);
        self.kept.replace(keep.then(|| vec![0; bytes]));
    }

    /// The message that was kept.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.kept.take().unwrap_or_default()
    }

    /// Where the last message came from.
    pub(crate) fn from(&self) -> Option<(Btl, Endpoint)> {
        self.from.get()
    }

    fn whole(&self, part: Part) {
        if part.length != self.bytes.get() {
            return self.is_wrong.set(true);
        }
        self.keep(0, part);
        grow(&self.messages);
    }

    fn piece(&self, part: Part) {
        let (Some(place), bytes) = (part.place(), self.bytes.get()) else { return self.is_wrong.set(true) };
        let rest = Part { start: part.start.wrapping_add(PLACE), length: part.length - PLACE };
        if place > bytes || rest.length > bytes - place || rest.length == 0 {
            return self.is_wrong.set(true);
        }
        self.keep(place, rest);
        let mut loose = self.loose.get() + rest.length;
        while loose >= bytes {
            loose -= bytes;
            grow(&self.messages);
        }
        self.loose.set(loose);
    }

    /// Keeps a part that lies within the message.
    fn keep(&self, place: usize, part: Part) {
        if let Some(kept) = self.kept.borrow_mut().as_mut() {
            part.copy(&mut kept[place..place + part.length]);
        }
    }
}

/// Bytes that have come, which another process may still be writing.
///
/// INVARIANT: readable for the time of a callback.
#[derive(Clone, Copy)]
struct Part {
    start: *const u8,
    length: usize,
}

impl Part {
    /// Copies as much as there is room for.
    fn copy(self, to: &mut [u8]) {
        let length = self.length.min(to.len());
        // SAFETY: so many bytes are readable, by the invariant, and writable, as a slice's; they are not the same.
        unsafe { ptr::copy_nonoverlapping(self.start, to.as_mut_ptr(), length) };
    }

    /// The place that a piece begins with.
    fn place(self) -> Option<usize> {
        let mut place = [0; PLACE];
        if self.length < PLACE {
            return None;
        }
        self.copy(&mut place);
        usize::try_from(u64::from_le_bytes(place)).ok()
    }
}

/// The state behind a context.
///
/// # Safety
/// The context is an [`Inbox`]'s address, and the inbox lives for `'a`.
unsafe fn inbox<'a>(context: *mut c_void) -> &'a Inbox {
    // SAFETY: by the contract; all that changes is in cells, and one thread is at it.
    unsafe { &*context.cast::<Inbox>() }
}

/// A message has come ([`hawser::capi::abi::Received`]).
pub(crate) unsafe extern "C" fn received(
    context: *mut c_void,
    module: Btl,
    endpoint: Endpoint,
    tag: u8,
    bytes: *const c_void,
    length: usize,
) {
    // SAFETY: registered with the inbox of a transport, which outlives its modules.
    let inbox = unsafe { inbox(context) };
    let part = Part { start: bytes.cast(), length };
    grow(&inbox.stir);
    inbox.from.set(Some((module, endpoint)));
    match tag {
        WHOLE => inbox.whole(part),
        PIECE => inbox.piece(part),
        ANSWER => grow(&inbox.answers),
        _ => inbox.is_wrong.set(true),
    }
}

/// A PUT or GET has ended ([`hawser::capi::abi::Completed`]).
pub(crate) unsafe extern "C" fn ended(context: *mut c_void, _: Btl, _: Endpoint, status: i32) {
    // SAFETY: handed over with the inbox of a transport, which outlives its modules.
    let inbox = unsafe { inbox(context) };
    grow(&inbox.stir);
    grow(&inbox.ended);
    if status != HAWSER_SUCCESS {
        inbox.failure.set(Some(status));
    }
}

/// The peer is lost ([`hawser::capi::abi::Lost`]).
pub(crate) unsafe extern "C" fn lost(context: *mut c_void, _: Btl, _: Endpoint, _: u64) {
    // SAFETY: registered with the inbox of a transport, which outlives its modules.
    unsafe { inbox(context) }.is_lost.set(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(inbox: &Inbox, tag: u8, bytes: &[u8]) {
        let context = ptr::from_ref(inbox).cast_mut().cast();
        // SAFETY: an inbox that lives, and bytes that do.
        unsafe {
            received(context, Btl { id: 1 }, Endpoint { id: 2 }, tag, bytes.as_ptr().cast(), bytes.len())
        };
    }

    fn piece(place: u64, bytes: &[u8]) -> Vec<u8> {
        [&place.to_le_bytes(), bytes].concat()
    }

    #[test]
    fn pieces_make_messages_in_any_order() {
        let inbox = Inbox::default();
        inbox.begin(5, true);
        come(&inbox, PIECE, &piece(3, b"de"));
        assert_eq!(inbox.messages.get(), 0);
        come(&inbox, PIECE, &piece(0, b"abc"));
        assert_eq!((inbox.messages.get(), inbox.take()), (1, b"abcde".to_vec()));
        come(&inbox, WHOLE, b"fghij");
        come(&inbox, ANSWER, b"");
        assert_eq!((inbox.messages.get(), inbox.answers.get(), inbox.is_wrong.get()), (2, 1, false));
        assert_eq!(inbox.from(), Some((Btl { id: 1 }, Endpoint { id: 2 })));
    }

    #[test]
    fn what_nobody_sends_is_wrong_and_kept_nowhere() {
        let long = u64::MAX - 2;
        for (tag, bytes) in [
            (WHOLE, b"four".to_vec()),
            (WHOLE, b"longer".to_vec()),
            (PIECE, b"short".to_vec()),
            (PIECE, piece(0, b"")),
            (PIECE, piece(3, b"def")),
            (PIECE, piece(6, b"a")),
            (PIECE, piece(long, b"abc")),
            (9, b"abcde".to_vec()),
        ] {
            let inbox = Inbox::default();
            inbox.begin(5, true);
            come(&inbox, tag, &bytes);
            assert!(inbox.is_wrong.get() && inbox.messages.get() == 0, "{tag} {bytes:?}");
            assert_eq!(inbox.take(), [0; 5]);
        }
    }
}
