//! The host's symbols, looked up in libraries that are already loaded.
//!
//! Rust links eagerly, so a declared host function that one version lacks would keep the whole
//! library from loading. All are looked up when the library is loaded: all there, or refused.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A host library that is already loaded.
#[derive(Clone, Copy)]
pub(super) struct Loaded(NonNull<c_void>);

impl Loaded {
    /// The library of this name, if the process has it already.
    pub(super) fn find(name: &CStr) -> Option<Self> {
        // SAFETY: a literal name; with RTLD_NOLOAD nothing is loaded and no code runs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(Self)
    }

    /// The address of a symbol: in the process's global scope, as the linker would bind it, since
    /// a program may hold the only live copy of a host's object; else of the library or of what it
    /// needs, for a host that was loaded out of everybody's sight.
    pub(super) fn symbol(self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: a zero-ended name.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if let Some(address) = NonNull::new(address) {
            return Ok(address);
        }
        // SAFETY: a live handle and a zero-ended name.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(|| format!("the host has no symbol {}", name.to_string_lossy()))
    }
}

/// A variable of the host's, which it has filled in before it opens any component.
///
/// INVARIANT: the address of an object of this type, which is there as long as the process is: only
/// `symbols!` makes one, of an object that the host's library exports.
#[repr(transparent)]
pub(super) struct Variable<T>(*const T);

impl<T> Clone for Variable<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Variable<T> {}

impl<T> Variable<T> {
    /// For the host.
    pub(super) fn address(self) -> *mut T {
        self.0.cast_mut()
    }
}

impl<T: Copy> Variable<T> {
    /// Its value now.
    #[inline]
    pub(super) fn get(self) -> T {
        // SAFETY: an object of this type, by the invariant. The host does not write it beside our calls, but for
        // single bytes and words that are whole at any time.
        unsafe { self.0.read() }
    }
}

impl<T: Copy, const N: usize> Variable<[T; N]> {
    /// The value of one element now; none beyond the last.
    #[inline]
    pub(super) fn at(self, index: usize) -> Option<T> {
        if index >= N {
            return None;
        }
        let element = self.0.cast::<T>().wrapping_add(index);
        // SAFETY: an element of an array, by the invariant, for the index is below its length. The host writes it
        // before anything asks for it.
        Some(unsafe { element.read() })
    }
}

/// Declares a structure of host symbols and the function that looks all of them up.
macro_rules! symbols {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($field:ident: $type:ty = $symbol:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        $vis struct $name { $(pub(super) $field: $type,)* }

        impl $name {
            /// Looks everything up; the first symbol that is missing is named.
            pub(in crate::host) fn find(host: crate::host::symbols::Loaded) -> std::result::Result<Self, String> {
                Ok(Self {
                    $($field: {
                        let address = host.symbol($symbol)?;
                        // SAFETY: the host's symbol of this name is a function or an object of this type, and
                        // what stands for either is a pointer: `c-tests/layout` compares each with the host's headers, and
                        // `tests/prototypes.rs` each of these declarations with those prototypes.
                        unsafe { std::mem::transmute_copy::<std::ptr::NonNull<std::ffi::c_void>, $type>(&address) }
                    },)*
                })
            }
        }

        // SAFETY: functions, and the addresses of the host's own global objects.
        unsafe impl Send for $name {}
        // SAFETY: functions, and the addresses of the host's own global objects, which are only copied.
        unsafe impl Sync for $name {}
    };
}

pub(super) use symbols;
