//! What all entries in a module's table have in common: they make Rust values of what C passes, once, and
//! then run safe code inside a guard.
//!
//! An entry's proof is one sentence: that it is called as the host's contract of it says. What that means
//! for a kind of argument is said, and proved, where the kind is: here, or with each framework's.

use std::mem::MaybeUninit;

use super::foreign;
use super::guard::guard;

/// A module as the host holds it.
///
/// # Safety
/// The host's table is the first field of the structure, in memory that does not move, and what the host
/// writes there is [`Opaque`](foreign::Opaque).
pub(super) unsafe trait Module: Sized {
    /// The host's table.
    type Table;
    /// What the user reads of its entries.
    const NAME: &'static str;
}

/// The module of an entry, with the other arguments.
pub(super) struct Entry<S: Module, T> {
    module: *mut S::Table,
    arguments: T,
}

/// Arguments of an entry of a module `S`, as C passes them.
pub(super) trait Arguments<S> {
    /// As Rust values, for the time of the call.
    type Values<'a>;

    /// Makes the values.
    ///
    /// # Safety
    /// Each argument is what its type here says.
    unsafe fn values<'a>(self) -> Self::Values<'a>;
}

impl<S: Module, T: Arguments<S>> Entry<S, T> {
    /// # Safety
    /// `module` is the table of a module of this type, alive until the entry returns: the host calls the
    /// functions of a table only for the module that the table is of, and none after `finalize`. The
    /// arguments are what their types say.
    #[inline(always)]
    pub(super) unsafe fn of(module: *mut S::Table, arguments: T) -> Self {
        Self { module, arguments }
    }

    /// Runs the body of the entry, and stops panics.
    #[inline(always)]
    pub(super) fn run<R>(self, entry: &str, body: impl for<'a> FnOnce(&'a S, T::Values<'a>) -> R) -> R {
        guard(S::NAME, entry, || {
            // SAFETY: alive until the entry returns, by the promise of `of`, and its address is the table's. It
            // is shared only, and what the host writes is opaque.
            let module = unsafe { &*self.module.cast::<S>() };
            // SAFETY: what their types say, by the promise of `of`.
            body(module, unsafe { self.arguments.values() })
        })
    }
}

macro_rules! tuples {
    ($($name:ident),*) => {
        impl<S, $($name: Arguments<S>),*> Arguments<S> for ($($name,)*) {
            type Values<'a> = ($($name::Values<'a>,)*);

            #[inline(always)]
            #[expect(non_snake_case, reason = "a value is called as its type")]
            unsafe fn values<'a>(self) -> Self::Values<'a> {
                let ($($name,)*) = self;
                // SAFETY: the caller says it of all arguments, hence of each.
                ($(unsafe { $name.values() },)*)
            }
        }
    };
}
tuples!(T1);
tuples!(T1, T2);
tuples!(T1, T2, T3);
tuples!(T1, T2, T3, T4);

/// No arguments but the module.
impl<S> Arguments<S> for () {
    type Values<'a> = ();

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {}
}

/// A variable of the host's that the entry writes: valid, and nobody else's, until the entry returns.
pub(super) struct Out<T>(pub(super) *mut T);

impl<S, T: 'static> Arguments<S> for Out<T> {
    type Values<'a> = &'a mut MaybeUninit<T>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: valid for writes, and nobody else's, for the time of the call.
        unsafe { &mut *self.0.cast() }
    }
}

/// Such a variable, or null where the host does not want it.
pub(super) struct OutOrNull<T>(pub(super) *mut T);

impl<S, T: 'static> Arguments<S> for OutOrNull<T> {
    type Values<'a> = Option<&'a mut MaybeUninit<T>>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: null, or valid for writes and nobody else's, for the time of the call.
        unsafe { self.0.cast::<MaybeUninit<T>>().as_mut() }
    }
}

/// A variable of the host's that the entry reads and writes: it has a value, and is nobody else's until the
/// entry returns; or null where the host does not want it.
pub(super) struct InOut<T>(pub(super) *mut T);

impl<S, T: 'static> Arguments<S> for InOut<T> {
    type Values<'a> = Option<&'a mut T>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: null, or a value, and nobody else's, for the time of the call.
        unsafe { self.0.as_mut() }
    }
}

/// An array of the host's of so many values, read at once: it may change while we call out. Null is empty.
pub(super) struct Array<T>(pub(super) *const T, pub(super) usize);

impl<S, T: Copy + 'static> Arguments<S> for Array<T> {
    type Values<'a> = Vec<T>;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: so many values, or null.
        unsafe { foreign::copied(self.0, self.1) }
    }
}

/// Room of the host's for so many values, which the entry writes; nobody else's until it returns. Null is none.
pub(super) struct Room<T>(pub(super) *mut T, pub(super) usize);

impl<S, T: 'static> Arguments<S> for Room<T> {
    type Values<'a> = &'a mut [MaybeUninit<T>];

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        if self.0.is_null() || self.1 == 0 {
            return &mut [];
        }
        // SAFETY: not null, hence room for so many, valid for writes and nobody else's for the time of the call.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), self.1) }
    }
}
