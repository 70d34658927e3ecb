//! [`Aside`]: the arguments of an entry, kept in memory while the short path runs.
//!
//! A value that may be needed after a call lies in a register that each function saves and restores, if the
//! compiler has its way: three instructions for what is needed once in a million messages. Here it costs one.

use std::mem::MaybeUninit;
use std::ptr;

/// Room for the arguments of an entry.
pub(super) struct Aside<T>(MaybeUninit<T>);

impl<T: Kept> Aside<T> {
    /// Keeps the arguments there for as long as `short` runs: what that makes of them, or why it makes nothing, and the
    /// arguments again.
    #[inline(always)]
    pub(super) fn keep<R, E>(arguments: T, short: impl FnOnce() -> Result<R, E>) -> Result<R, (E, T)> {
        let mut aside = Self(MaybeUninit::uninit());
        arguments.put(&mut aside.0);
        match short() {
            Ok(done) => Ok(done),
            // SAFETY: put there above.
            Err(why) => Err((why, unsafe { T::take(&aside.0) })),
        }
    }
}

/// Several arguments.
pub(super) trait Kept: Copy {
    /// Writes each to its place.
    fn put(self, to: &mut MaybeUninit<Self>);
    /// Reads each from its place.
    ///
    /// # Safety
    /// They were put there.
    unsafe fn take(from: &MaybeUninit<Self>) -> Self;
}

macro_rules! tuples {
    ($($name:ident $place:tt),*) => {
        impl<$($name: Copy),*> Kept for ($($name,)*) {
            #[inline(always)]
            fn put(self, to: &mut MaybeUninit<Self>) {
                let at = to.as_mut_ptr();
                $(
                    // SAFETY: a field of the tuple, within it.
                    let field = unsafe { &raw mut (*at).$place };
                    // SAFETY: our own memory. Volatile, so that it is memory.
                    unsafe { ptr::write_volatile(field, self.$place) };
                )*
            }

            #[inline(always)]
            unsafe fn take(from: &MaybeUninit<Self>) -> Self {
                let at = from.as_ptr();
                ($({
                    // SAFETY: a field of the tuple, within it.
                    let field = unsafe { &raw const (*at).$place };
                    // SAFETY: a value, by the caller's promise. Volatile, so that it is not taken from a register.
                    unsafe { ptr::read_volatile(field) }
                },)*)
            }
        }
    };
}
tuples!(T0 0, T1 1, T2 2, T3 3, T4 4);
tuples!(T0 0, T1 1, T2 2, T3 3, T4 4, T5 5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_back_when_they_are_needed_again() {
        let arguments = (1, "two", 3_u8, ptr::dangling::<u64>(), -5_i64, 6.0);
        assert_eq!(Aside::keep(arguments, || Err::<(), _>("why")), Err(("why", arguments)));
        assert_eq!(Aside::keep(arguments, || Ok::<_, ()>(7)), Ok(7));
        let fewer = (1, 2, 3, 4, 5);
        assert_eq!(Aside::keep(fewer, || Err::<(), _>(6)), Err((6, fewer)));
    }
}
