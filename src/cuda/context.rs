//! Contexts: whose they are, and how one is made current for the span of a few calls.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::library::{Driver, Error, Result, checked};
use super::sys;

/// A context of the program's. Never made or destroyed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context(NonNull<c_void>);

// SAFETY: a handle, which the driver takes on every thread.
unsafe impl Send for Context {}
// SAFETY: a handle, which is only copied.
unsafe impl Sync for Context {}

impl Context {
    /// Null is none.
    pub(super) fn of(raw: sys::Context) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }
}

/// A context that is current on this thread until this is dropped; then the one before is.
pub struct Entered {
    driver: &'static Driver,
    /// Whether it had to be made current.
    pushed: bool,
    /// Belongs to the thread.
    _thread: PhantomData<*mut ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.pushed {
            let mut context = ptr::null_mut();
            // SAFETY: the callee writes one handle. What was pushed is on top: whatever was pushed after it on
            // this thread is a guard that was dropped before this one. At the process's end the driver refuses.
            unsafe { (self.driver.context_pop)(&raw mut context) };
        }
    }
}

impl Driver {
    /// The context that is current on this thread.
    pub fn current(&self) -> Result<Option<Context>> {
        let mut context = ptr::null_mut();
        // SAFETY: the callee writes one handle.
        checked(unsafe { (self.context_current)(&raw mut context) })?;
        Ok(Context::of(context))
    }

    /// The device of the current context.
    pub fn current_device(&self) -> Result<i32> {
        let mut device = -1;
        // SAFETY: the callee writes one number.
        checked(unsafe { (self.context_device)(&raw mut device) })?;
        Ok(device)
    }

    /// Which of the contexts that are called the same, one after the other, this is; 0 where the driver does not say.
    pub(super) fn life(&self, context: Context) -> u64 {
        self.ask_life(context).unwrap_or(0)
    }

    /// Whether a context is still that of this life, as far as the driver says.
    pub(super) fn is_in(&self, context: Context, life: u64) -> bool {
        match self.ask_life(context) {
            Ok(now) => life == 0 || now == life,
            Err(Error::Gone(_) | Error::NotInitialized | Error::Deinitialized) => false,
            Err(_) => true,
        }
    }

    fn ask_life(&self, context: Context) -> Result<u64> {
        let mut id = 0;
        if let Some(ask) = self.context_id {
            // SAFETY: a context that the driver has named; the callee writes one number.
            checked(unsafe { ask(context.0.as_ptr(), &raw mut id) })?;
        }
        Ok(id)
    }

    /// Makes a context current.
    ///
    /// # Errors
    /// Where the context has gone. The driver itself takes one that has, and crashes when it is taken off again.
    pub fn enter(&'static self, context: Context) -> Result<Entered> {
        self.enter_in(context, 0)
    }

    /// The same, for what was made in the context in this life of it: handles of an earlier one must not be used.
    pub(super) fn enter_in(&'static self, context: Context, life: u64) -> Result<Entered> {
        let now = self.ask_life(context)?;
        if life != 0 && now != life {
            return Err(Error::Gone(sys::CONTEXT_IS_DESTROYED));
        }
        let pushed = self.current()? != Some(context);
        if pushed {
            // SAFETY: a context that the driver has named, and which is there, or else is refused by a driver that does not
            // tell lives apart.
            checked(unsafe { (self.context_push)(context.0.as_ptr()) })?;
        }
        Ok(Entered { driver: self, pushed, _thread: PhantomData })
    }

    /// Holds the primary context of a device, which comes to life if need be.
    pub fn primary(&'static self, device: i32) -> Result<Primary> {
        let mut context = ptr::null_mut();
        // SAFETY: the callee writes one handle.
        checked(unsafe { (self.primary_retain)(&raw mut context, device) })?;
        let context = Context::of(context).ok_or(Error::Gone(sys::INVALID_CONTEXT))?;
        Ok(Primary { driver: self, device, context, life: self.life(context) })
    }
}

/// A hold on a device's primary context: the one that the CUDA runtime uses.
pub struct Primary {
    driver: &'static Driver,
    device: i32,
    context: Context,
    life: u64,
}

impl Primary {
    /// The context.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Whether it is still held: a program that resets the device ends the holds of all.
    pub fn is_there(&self) -> bool {
        self.driver.is_in(self.context, self.life)
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // After a reset the holds are those that the program has taken since.
        if !self.is_there() {
            return;
        }
        // SAFETY: gives back what `primary` took, once. At the process's end the driver refuses.
        unsafe { (self.driver.primary_release)(self.device) };
    }
}
