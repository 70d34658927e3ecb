//! Streams, in which copies are made one after the other, and events, which tell how far a stream is.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use super::context::Context;
use super::library::{Driver, Error, Result, checked};
use super::memory::{Allocation, Transfer};
use super::sys;

/// Bytes that an overlapping copy takes aside at a time.
const ASIDE: usize = 1 << 20;

/// A stream of copies.
pub struct Stream {
    driver: &'static Driver,
    context: Context,
    /// That of the context in which it was made.
    life: u64,
    raw: NonNull<c_void>,
}

// SAFETY: a handle, which the driver takes on every thread.
unsafe impl Send for Stream {}
// SAFETY: a handle; the driver takes calls for a stream from several threads at once.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream in a context. What the program has begun in the context's default stream before a copy is over
    /// before the copy begins.
    pub fn new(driver: &'static Driver, context: Context) -> Result<Self> {
        let _entered = driver.enter(context)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the callee writes one handle.
        checked(unsafe { (driver.stream_create)(&raw mut raw, sys::STREAM_DEFAULT) })?;
        let raw = NonNull::new(raw).ok_or(Error::Gone(sys::INVALID_HANDLE))?;
        Ok(Self { driver, context, life: driver.life(context), raw })
    }

    /// The context it is in.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Begins a copy after those before; both ranges are as the transfer says until the stream has made it.
    pub fn begin(&self, transfer: Transfer) -> Result<()> {
        let (to, from) = (transfer.to() as sys::Address, transfer.from() as sys::Address);
        let _entered = self.driver.enter_in(self.context, self.life)?;
        // SAFETY: readable and writable until the copy is made, by the transfer's invariant; the stream is alive.
        checked(unsafe { (self.driver.copy)(to, from, transfer.len(), self.raw.as_ptr()) })
    }

    /// Waits until all copies are made.
    pub fn wait(&self) -> Result<()> {
        let _entered = self.driver.enter_in(self.context, self.life)?;
        // SAFETY: the stream is alive.
        checked(unsafe { (self.driver.stream_synchronize)(self.raw.as_ptr()) })
    }

    /// Makes a copy.
    pub fn copy(&self, transfer: Transfer) -> Result<()> {
        self.begin(transfer)?;
        self.wait()
    }

    /// Makes a copy of ranges that overlap.
    pub fn shift(&self, transfer: Transfer) -> Result<()> {
        let _entered = self.driver.enter_in(self.context, self.life)?;
        let most = ASIDE.min(transfer.len());
        let aside = Allocation::new(self.driver, self.context, most)?;
        let step = |to, from, len| {
            // SAFETY: parts of the transfer's ranges and of the allocation, which are readable and writable until the
            // stream was waited for, below. It makes one after the other, so no two use the allocation at once.
            checked(unsafe { (self.driver.copy)(to, from, len, self.raw.as_ptr()) })
        };
        let begun = transfer.pieces(most).try_for_each(|(to, from, len)| {
            step(aside.address(), from, len)?;
            step(to, aside.address(), len)
        });
        // Waited for in any case: the allocation goes.
        let over = self.wait();
        begun.and(over)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A context takes its streams along when it goes.
        let Ok(_entered) = self.driver.enter_in(self.context, self.life) else { return };
        // SAFETY: made by us and given back once; the driver makes the copies that are begun all the same.
        unsafe { (self.driver.stream_destroy)(self.raw.as_ptr()) };
    }
}

/// A mark in a stream.
pub struct Event {
    driver: &'static Driver,
    context: Context,
    /// That of the context in which it was made.
    life: u64,
    raw: NonNull<c_void>,
}

// SAFETY: a handle, which the driver takes on every thread.
unsafe impl Send for Event {}
// SAFETY: a handle; the driver takes calls for an event from several threads at once.
unsafe impl Sync for Event {}

impl Event {
    /// An event for streams of a context.
    pub fn new(driver: &'static Driver, context: Context) -> Result<Self> {
        let _entered = driver.enter(context)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the callee writes one handle.
        checked(unsafe { (driver.event_create)(&raw mut raw, sys::EVENT_DISABLE_TIMING) })?;
        let raw = NonNull::new(raw).ok_or(Error::Gone(sys::INVALID_HANDLE))?;
        Ok(Self { driver, context, life: driver.life(context), raw })
    }

    /// Whether it is for a stream: made in the same context, and in the same life of it.
    pub fn is_for(&self, stream: &Stream) -> bool {
        (self.context, self.life) == (stream.context, stream.life)
    }

    /// Marks where the stream is now.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _entered = self.driver.enter_in(self.context, self.life)?;
        // SAFETY: both are alive.
        checked(unsafe { (self.driver.event_record)(self.raw.as_ptr(), stream.raw.as_ptr()) })
    }

    /// Whether the stream has come to the mark.
    pub fn is_reached(&self) -> Result<bool> {
        let _entered = self.driver.enter_in(self.context, self.life)?;
        // SAFETY: the event is alive.
        match unsafe { (self.driver.event_query)(self.raw.as_ptr()) } {
            sys::NOT_READY => Ok(false),
            code => checked(code).map(|()| true),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A context takes its events along when it goes.
        let Ok(_entered) = self.driver.enter_in(self.context, self.life) else { return };
        // SAFETY: made by us and given back once.
        unsafe { (self.driver.event_destroy)(self.raw.as_ptr()) };
    }
}
