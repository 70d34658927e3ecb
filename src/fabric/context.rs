//! [`Context`]: the short path. Tagged sends and receives, and the completions they end in.
//!
//! Here is what is posted; `completion` reads how it ended, `peek` probes, and `entries` is what the provider
//! is called by.
//!
//! Where the domain takes one call at a time, [`Turn`] makes them so: it is the cell of the completions that
//! were read, so that a poll takes one cell and not two.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::completion::{Inbox, Turn};
use super::cushion::Cushion;
use super::entries::{Entries, RecvPieces, Untagged};
use super::loan::{Convertor, Memory, Payload, Source};
use super::objects::{Domain, Object, Ready, table};
use super::operation::{Id, Lease, Work};
use super::place::Place;
use super::standing::Standing;
use super::{Address, PostError, posted, sys};
use crate::error::{Error, Result};
use crate::sync::Bars;

/// What the provider did not take, and why.
pub struct Unposted<T> {
    /// What was to be posted.
    pub given: T,
    /// Why it is not.
    pub error: PostError,
}

/// What the short path of posting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// It is posted.
    Posted,
    /// It was not for the short path, and nothing was done.
    Untried,
    /// The provider did not take it.
    Refused,
}

/// How posting went; an operation that is not taken comes back.
pub type Post<W> = std::result::Result<(), Unposted<Lease<W>>>;

/// What a call that is not made comes to: the operation goes back to who gave it.
const BARRED: isize = -(sys::FI_EAGAIN as isize);

/// A flag that keeps calls off the short path while it is set, at no cost to those that look for other bars
/// anyway: the inbox's.
pub struct Bar {
    turn: Arc<Turn>,
    bars: Bars,
}

impl Bar {
    /// Sets it, or takes it away.
    pub fn set(&self, up: bool, order: Ordering) {
        // Most of the time it is as it should be, and an atomic exchange costs more than a look.
        if order == Ordering::SeqCst || self.is_set(Ordering::Relaxed) != up {
            self.turn.bar(self.bars, up, order);
        }
    }

    /// Whether it is set.
    #[inline]
    pub fn is_set(&self, order: Ordering) -> bool {
        self.turn.has_bar(self.bars, order)
    }
}

/// One transmit and one receive queue with the completion queue of both.
pub struct Context<W: Work> {
    tx: *mut sys::fid_ep,
    pub(super) rx: *mut sys::fid_ep,
    pub(super) cq: *mut sys::fid_cq,
    pub(super) entries: Entries,
    pub(super) inbox: Arc<Turn>,
    /// The inbox is also the right to call.
    takes_turns: bool,
    /// What the pointers are to; there until the context is dropped.
    objects: Option<Objects>,
    /// Behind what is received into it, in the order of closing.
    pub(super) cushion: Option<(Cushion, RecvPieces)>,
    _state: PhantomData<Lease<W>>,
}

/// What a context is made of. Closed in this order: endpoints before their queue, contexts before their endpoint.
struct Objects {
    tx: Arc<Object>,
    rx: Arc<Object>,
    queue: Object,
    _parent: Option<Arc<Object>>,
}

impl Objects {
    /// Closes them; whether that is so, and nothing is with the provider any more.
    fn close(self) -> bool {
        let Self { tx, rx, queue, _parent } = self;
        let close = |object| Arc::into_inner(object).is_some_and(Object::close);
        let closed = if Arc::ptr_eq(&tx, &rx) {
            drop(tx);
            close(rx)
        } else {
            // Both, whatever comes of the first.
            close(tx) & close(rx)
        };
        drop(queue);
        closed
    }
}

// SAFETY: the pointers are to objects that the context holds and that any thread may use; the leases
// that go through it may go to another thread.
unsafe impl<W: Work> std::marker::Send for Context<W> {}
// SAFETY: the entry points may be called by several threads at once if the domain's threading level is
// `FI_THREAD_SAFE` (`fi_domain(3)`), and are called in turn otherwise; a lease comes out once, in whichever
// thread, and is `Send`; the inbox is reached through its cell.
unsafe impl<W: Work> Sync for Context<W> {}

impl<W: Work> Context<W> {
    pub(super) fn new(
        tx: Arc<Object>,
        rx: Arc<Object>,
        queue: Object,
        parent: Option<Arc<Object>>,
        domain: &Domain,
        ready: &Ready,
    ) -> Result<Self> {
        let (tx_ep, rx_ep): (*mut sys::fid_ep, *mut sys::fid_ep) = (tx.as_ptr(), rx.as_ptr());
        let cq: *mut sys::fid_cq = queue.as_ptr();
        let (halves, queue_ops) = ((table!(tx_ep, tagged), table!(rx_ep, tagged)), table!(cq, ops));
        let entries = Entries::of(halves.0, halves.1, queue_ops, table!(rx_ep, ops))?;
        let inbox = Inbox::new(ready.batch);
        let inbox = match domain.turn() {
            None => Arc::new(Turn::new(inbox)),
            Some(turn) => {
                // One inbox, one context.
                let before = turn.with(|kept| kept.is_free().then(|| *kept = inbox));
                before.ok_or(Error::Unsupported)?;
                Arc::clone(turn)
            }
        };
        Ok(Self {
            tx: tx_ep,
            rx: rx_ep,
            cq,
            entries,
            inbox,
            takes_turns: domain.turn().is_some(),
            cushion: None,
            objects: Some(Objects { tx, rx, queue, _parent: parent }),
            _state: PhantomData,
        })
    }

    /// The same, safe from messages that are longer than their receive.
    pub(super) fn cushioned(mut self, cushion: Option<Cushion>) -> Self {
        self.cushion = cushion.zip(table!(self.rx, tagged).recvv);
        if let Some((cushion, _)) = &self.cushion {
            self.inbox.with(|inbox| inbox.pieces = cushion.pieces());
        }
        self
    }

    /// What operations that are posted here [say of it](Lease::posted).
    pub(super) fn address(&self) -> usize {
        self.rx.addr()
    }

    /// Closes it; whether that is so, and the provider uses nothing any more that was posted here.
    pub(super) fn close(mut self) -> bool {
        let is_closed = self.objects.take().is_some_and(Objects::close);
        if !is_closed {
            // What is received may still go there.
            std::mem::forget(self.cushion.take());
        }
        is_closed
    }

    /// One of the flags that keep calls off the short path.
    pub fn bar(&self, bars: Bars) -> Bar {
        Bar { turn: Arc::clone(&self.inbox), bars }
    }

    /// Whether messages can be probed for (`FI_PEEK`); some layered providers cannot.
    pub fn can_probe(&self) -> bool {
        self.entries.recv_message.is_some()
    }

    /// Whether calls of several threads go one after the other: what is looked at in a call is then as it
    /// is until the call is over.
    pub fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    /// Calls the provider, when it is our turn.
    #[inline(always)]
    fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        if self.takes_turns { self.inbox.with(|_| call()) } else { call() }
    }

    /// Gives an operation to the provider with `call`; back it comes if that is refused.
    #[inline(always)]
    pub(super) fn give(&self, lease: Lease<W>, call: impl FnOnce(*mut c_void) -> isize) -> Post<W> {
        let context = lease.posted(self.rx.addr());
        posted(self.call(|| call(context.as_ptr()))).map_err(|error| {
            // SAFETY: just given, and not taken: a provider that refuses keeps nothing.
            let given = unsafe { Lease::back(context) };
            Unposted { given, error }
        })
    }

    /// Posts a receive into the loan as it lies (`fi_trecv(3)`): the short path, where this thread has the inbox
    /// at once and none of these bars is up. If nothing is posted, the place must be made again.
    #[inline(always)]
    pub fn recv_at_once(
        &self,
        bars: Bars,
        from: Address,
        bits: u64,
        ignore: u64,
        place: Place<W>,
        body: W,
    ) -> AtOnce {
        let Some(piece) = place.loan().convertor().landing_at_once() else { return AtOnce::Untried };
        if piece.len == 0 {
            return AtOnce::Untried;
        }
        let rx = self.rx;
        let Some(context) = place.install_posted(body, rx.addr()) else { return AtOnce::Untried };
        let context = context.as_ptr();
        let posted = self.inbox.with_unless(bars, |inbox| {
            match &self.cushion {
                Some((_, receive)) => {
                    inbox.pieces.0[0] = piece.into();
                    let (first, count) = (inbox.pieces.0.as_ptr(), inbox.pieces.0.len());
                    // SAFETY: the endpoint is open; the pieces are read during the call. Their memory stays until
                    // completion: the one is lent until the loan's request is completed, which takes the loan, which
                    // the operation holds until it completes; the cushion goes after the endpoint has closed.
                    unsafe { receive(rx, first, ptr::null_mut(), count, from.0, bits, ignore, context) }
                }
                None => {
                    let (start, len) = (piece.start.cast(), piece.len);
                    // SAFETY: the endpoint is open; the memory is lent until the loan's request is completed, which
                    // takes the loan, which the operation holds until it completes.
                    unsafe {
                        (self.entries.recv)(rx, start, len, ptr::null_mut(), from.0, bits, ignore, context)
                    }
                }
            }
        });
        match posted {
            Some(0) => AtOnce::Posted,
            Some(_) => AtOnce::Refused,
            None => AtOnce::Untried,
        }
    }

    /// Posts a receive into the loan as it lies, unless one of these bars is up, which is looked at when it is our
    /// turn. Whatever is in the way, the operation comes back, for [`recv`](Self::recv).
    pub fn recv_in_place(
        &self,
        bars: Bars,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<W>,
    ) -> std::result::Result<(), Lease<W>> {
        let Some(to) = lease.lent_landing() else { return Err(lease) };
        // SAFETY: the memory is lent until the loan's request is completed, which takes the loan, which the
        // operation holds until it completes.
        let given = unsafe { self.recv_into(&to.into(), bars, from, bits, ignore, lease) };
        given.map_err(|unposted| unposted.given)
    }

    /// Posts a receive into the memory that the operation holds (`fi_trecv(3)`).
    #[inline]
    pub fn recv(&self, from: Address, bits: u64, ignore: u64, mut lease: Lease<W>) -> Post<W> {
        let to = lease.landing();
        // SAFETY: the operation holds the memory, and the registration that a descriptor is of, until it
        // completes.
        unsafe { self.recv_into(&to, Bars::NONE, from, bits, ignore, lease) }
    }

    /// Posts a receive, with the cushion behind it where there is one.
    ///
    /// # Safety
    /// The memory, and what its descriptor is of, stay until the operation completes.
    #[inline(always)]
    unsafe fn recv_into(
        &self,
        to: &Memory,
        bars: Bars,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<W>,
    ) -> Post<W> {
        let is_barred = || self.inbox.has_bar(bars, Ordering::Relaxed);
        let Memory { piece, descriptor } = *to;
        if let Some((cushion, receive)) = self.cushion.as_ref().filter(|_| descriptor.is_null()) {
            let both = cushion.behind(piece);
            let pieces = if piece.len == 0 { &both[1..] } else { &both[..] };
            let (first, count, none) = (pieces.as_ptr(), pieces.len(), ptr::null_mut());
            // SAFETY: the endpoint is open; the pieces are read during the call. Their memory stays until
            // completion: the one by the promise above, the cushion because the endpoint closes before it goes.
            return self.give(lease, |context| unsafe {
                if is_barred() {
                    BARRED
                } else {
                    receive(self.rx, first, none, count, from.0, bits, ignore, context)
                }
            });
        }
        let (start, len) = (piece.start.cast(), piece.len);
        // SAFETY: the endpoint is open; the memory, and what its descriptor is of, stay by the promise above.
        self.give(lease, |context| unsafe {
            if is_barred() {
                return BARRED;
            }
            (self.entries.recv)(self.rx, start, len, descriptor, from.0, bits, ignore, context)
        })
    }

    /// Whether a second piece of memory lies behind every receive. The pieces of one receive are of one
    /// kind, so that none goes to a device then.
    pub fn is_cushioned(&self) -> bool {
        self.cushion.is_some()
    }

    /// A message was so many bytes longer than its receive.
    pub fn overran(&self, len: usize) {
        if let Some((cushion, _)) = &self.cushion {
            cushion.shake_out(len);
        }
    }

    /// Posts a send of the message that the operation holds (`fi_tsend(3)`, `fi_tsenddata(3)`).
    pub fn send(&self, to: Address, bits: u64, data: Option<u64>, lease: Lease<W>) -> Post<W> {
        let memory = lease.source();
        // SAFETY: the operation holds the memory, and the registration that a descriptor is of, until it
        // completes.
        self.give(lease, |context| unsafe { self.post_send(&memory, to, bits, data, context) })
    }

    /// Sends a message that is lent for the span of this call: `wait` brings the operation back when it has
    /// completed.
    pub fn send_within(
        &self,
        message: &Source<'_>,
        to: Address,
        bits: u64,
        data: Option<u64>,
        lease: Lease<W>,
        mut wait: impl FnMut(Id) -> Lease<W>,
    ) -> std::result::Result<Lease<W>, Unposted<Lease<W>>> {
        let id = lease.id();
        let memory = message.memory();
        // SAFETY: this function does not return or unwind before the operation has completed: its lease is
        // the only one of that name. The message is lent, and its registration kept, for as long.
        self.give(lease, |context| unsafe { self.post_send(&memory, to, bits, data, context) })?;
        let posted = StillPosted;
        let mut lease = wait(id);
        while lease.id() != id {
            drop(lease);
            lease = wait(id);
        }
        std::mem::forget(posted);
        Ok(lease)
    }

    /// # Safety
    /// The memory, and what its descriptor is of, stay until the operation behind `context` completes.
    #[inline]
    unsafe fn post_send(
        &self,
        memory: &Memory,
        to: Address,
        bits: u64,
        data: Option<u64>,
        context: *mut c_void,
    ) -> isize {
        let (start, len, descriptor) = (memory.piece.start.cast(), memory.piece.len, memory.descriptor);
        match data {
            // SAFETY: the endpoint is open; the memory stays by the promise above.
            None => unsafe { (self.entries.send)(self.tx, start, len, descriptor, to.0, bits, context) },
            // SAFETY: the endpoint is open; the memory stays by the promise above.
            Some(data) => unsafe {
                (self.entries.send_data)(self.tx, start, len, descriptor, data, to.0, bits, context)
            },
        }
    }

    /// Sends bytes that are free again at once and complete silently (`fi_tinject(3)`), on the short path: where
    /// this thread has the inbox at once. False when they are not sent.
    #[inline(always)]
    pub fn inject_at_once(&self, bytes: Payload<'_>, to: Address, bits: u64, data: Option<u64>) -> bool {
        // SAFETY: who has the inbox has the turn.
        let sent = self.inbox.with_unless(Bars::NONE, |_| unsafe { self.post_bytes(bytes, to, bits, data) });
        sent == Some(0)
    }

    /// Sends bytes that are free again at once and complete silently (`fi_tinject(3)`).
    pub fn inject(
        &self,
        bytes: Payload<'_>,
        to: Address,
        bits: u64,
        data: Option<u64>,
    ) -> std::result::Result<(), PostError> {
        // SAFETY: in our turn.
        posted(self.call(|| unsafe { self.post_bytes(bytes, to, bits, data) }))
    }

    /// # Safety
    /// Only in our turn, where calls may not overlap.
    #[inline(always)]
    unsafe fn post_bytes(&self, bytes: Payload<'_>, to: Address, bits: u64, data: Option<u64>) -> isize {
        let (start, len) = (bytes.piece.start.cast(), bytes.piece.len);
        match data {
            // SAFETY: the endpoint is open; the bytes are lent, and read during the call only.
            None => unsafe { (self.entries.inject)(self.tx, start, len, to.0, bits) },
            // SAFETY: the endpoint is open; the bytes are lent, and read during the call only.
            Some(data) => unsafe { (self.entries.inject_data)(self.tx, start, len, data, to.0, bits) },
        }
    }

    /// Posts a send of the buffer that the operation holds, outside tag matching (`fi_send(3)`).
    pub fn send_untagged(&self, to: Address, lease: Lease<W>) -> Post<W> {
        let memory = lease.source();
        self.untagged(
            &table!(self.tx, msg).send,
            self.tx,
            memory.piece.start.cast_const().cast(),
            &memory,
            to,
            lease,
        )
    }

    /// Posts a receive into the buffer that the operation holds, outside tag matching, from anybody (`fi_recv(3)`).
    pub fn recv_untagged(&self, mut lease: Lease<W>) -> Post<W> {
        let memory = lease.landing();
        let start = memory.piece.start.cast();
        self.untagged(&table!(self.rx, msg).recv, self.rx, start, &memory, Address::ANY, lease)
    }

    /// Makes one of those two calls, which is of the endpoint's table, with what the operation holds.
    fn untagged<P>(
        &self,
        entry: &Option<Untagged<P>>,
        at: *mut sys::fid_ep,
        start: P,
        memory: &Memory,
        peer: Address,
        lease: Lease<W>,
    ) -> Post<W> {
        let Some(call) = *entry else {
            return Err(Unposted { given: lease, error: PostError::Refused(sys::FI_ENOSYS as i32) });
        };
        let (len, descriptor) = (memory.piece.len, memory.descriptor);
        // SAFETY: the endpoint is open; the operation holds the memory, and the registration that a
        // descriptor is of, until it completes.
        self.give(lease, |context| unsafe { call(at, start, len, descriptor, peer.0, context) })
    }

    /// Asks the provider to give an operation up, if it is posted here; it then fails with `FI_ECANCELED`, or
    /// completes.
    pub fn cancel(&self, operation: &Standing<'_, W>) {
        let Some(cancel) = self.entries.cancel else { return };
        // While somebody has the inbox no operation ends, so that none can take the place of this one.
        self.inbox.with(|_| {
            if let Some(context) = operation.context(self.rx.addr()) {
                // SAFETY: the endpoint is open, and the operation is posted there; one whose completion is already
                // in the queue is ignored (`fi_cancel(3)`).
                unsafe { cancel(self.rx.cast(), context) };
            }
        });
    }
}

/// Ends the process when dropped: bytes that are lent for the span of a call are still with the provider.
struct StillPosted;

impl Drop for StillPosted {
    fn drop(&mut self) {
        std::process::abort();
    }
}
