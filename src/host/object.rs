//! Objects of the host's class system that hawser makes (`opal/class/opal_object.h`).
//!
//! The host counts who uses an object, and whoever gives it up last destroys it: destructors run, derived class
//! first, and the memory goes back to `free`.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use super::sys::{Class, Object};

/// Prepares a class before its first instance (`opal_class_initialize`); again, for nothing, before each.
pub(super) type Initialize = unsafe extern "C" fn(*mut Class);

/// A class of ours, made when it is first needed: its parent's address is known only then.
pub(super) struct OwnClass(OnceLock<usize>);

impl OwnClass {
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Its address, for good: the host remembers it for as long as it lives.
    pub(super) fn get(
        &self,
        name: &'static CStr,
        parent: *mut Class,
        destruct: unsafe extern "C" fn(*mut c_void),
        size: usize,
    ) -> *mut Class {
        let make =
            || Box::into_raw(Box::new(Class::new(name.as_ptr(), parent, destruct, size))).expose_provenance();
        std::ptr::with_exposed_provenance_mut(*self.0.get_or_init(make))
    }
}

/// A structure that begins with the host's object and may be given to the host.
///
/// # Safety
/// `repr(C)`, with an [`Object`] first, and without a destructor of Rust's: the host frees it.
pub(super) unsafe trait Instance {}

/// Moves a structure to where the host's `free` finds it, used by one; `None` without memory. Constructors of the
/// class's ancestors have run before: what they do must leave nothing that the structure would overwrite.
///
/// # Safety
/// The class says the size of `T`, or less, and its ancestors are the host's.
pub(super) unsafe fn make<T: Instance>(
    value: T,
    class: *mut Class,
    initialize: Initialize,
) -> Option<NonNull<T>> {
    const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= 16) };
    // SAFETY: a class whose ancestors the host knows; it does nothing for one that is ready.
    unsafe { initialize(class) };
    // SAFETY: takes any size.
    let memory = NonNull::new(unsafe { libc::calloc(1, size_of::<T>()) }.cast::<T>())?;
    let object = memory.cast::<Object>().as_ptr();
    let head = Object { class, references: 1, ..Object::EMPTY };
    // SAFETY: fresh memory, longer than an object, aligned as `calloc` does for everything.
    unsafe { object.write(head) };
    // SAFETY: a class that is ready: its list of constructors is there.
    let mut construct = unsafe { (*class).construct };
    // SAFETY: an entry of a list that ends with null.
    while let Some(run) = unsafe { *construct } {
        // SAFETY: a constructor of an ancestor, the eldest first, and a fresh object of its size at least.
        unsafe { run(object.cast()) };
        // SAFETY: not the end of the list.
        construct = unsafe { construct.add(1) };
    }
    // SAFETY: this memory, of this size.
    unsafe { memory.write(value) };
    // SAFETY: the first field of what was just written.
    unsafe { object.write(Object { class, references: 1, ..Object::EMPTY }) };
    Some(memory)
}

/// The count of an object's users.
///
/// # Safety
/// An object of the host's, alive for `'a`.
unsafe fn references<'a>(object: *mut Object) -> &'a AtomicI32 {
    // SAFETY: alive, hence a field of it.
    let references = unsafe { &raw mut (*object).references };
    // SAFETY: aligned, alive for `'a`, and written by atomic operations wherever several threads may.
    unsafe { AtomicI32::from_ptr(references) }
}

/// One more uses an object (`OBJ_RETAIN`).
///
/// # Safety
/// An object of the host's, alive.
pub(super) unsafe fn retain(object: *mut Object) {
    // SAFETY: alive, as the caller says.
    unsafe { references(object) }.fetch_add(1, Ordering::Relaxed);
}

/// One less does (`OBJ_RELEASE`).
///
/// # Safety
/// An object of the host's, alive, whose memory is `malloc`'s; the caller does not use it any more.
pub(super) unsafe fn release(object: *mut Object) {
    // SAFETY: alive, as the caller says.
    if unsafe { references(object) }.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    // SAFETY: alive, and nobody else's any more.
    let class = unsafe { (*object).class };
    // SAFETY: an instance's class is ready: its list of destructors is there.
    let mut destruct = unsafe { (*class).destruct };
    // SAFETY: an entry of a list that ends with null.
    while let Some(run) = unsafe { *destruct } {
        // SAFETY: a destructor of this object's class or of an ancestor, in their order.
        unsafe { run(object.cast()) };
        // SAFETY: not the end of the list.
        destruct = unsafe { destruct.add(1) };
    }
    // SAFETY: nobody uses it any more, and its memory is `malloc`'s, as the caller says.
    unsafe { libc::free(object.cast()) };
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[repr(C)]
    struct Counted {
        object: Object,
        ended: *const AtomicI32,
    }

    // SAFETY: an object first, and nothing to drop.
    unsafe impl Instance for Counted {}

    unsafe extern "C" fn end(counted: *mut c_void) {
        // SAFETY: of this class.
        let ended = unsafe { (*counted.cast::<Counted>()).ended };
        // SAFETY: a variable of the test.
        unsafe { &*ended }.fetch_add(1, Ordering::Relaxed);
    }

    static CONSTRUCTED: AtomicI32 = AtomicI32::new(0);

    unsafe extern "C" fn constructed(_: *mut c_void) {
        CONSTRUCTED.fetch_add(1, Ordering::Relaxed);
    }

    /// As the host does, for a class without ancestors but one that has a constructor.
    unsafe extern "C" fn initialize(class: *mut Class) {
        // SAFETY: the test's class.
        let class = unsafe { &mut *class };
        if class.initialized == 0 {
            class.initialized = 1;
            class.destruct = Box::leak(Box::new([class.destruct_own, None])).as_mut_ptr();
            class.construct = Box::leak(Box::new([Some(constructed as _), None])).as_mut_ptr();
        }
    }

    #[test]
    fn the_last_user_destroys_an_object() {
        static CLASS: OwnClass = OwnClass::new();
        let class = || CLASS.get(c"counted", ptr::null_mut(), end, size_of::<Counted>());
        assert_eq!(class(), class(), "one class");
        let ended = AtomicI32::new(0);
        let value = Counted { object: Object::EMPTY, ended: &raw const ended };
        // SAFETY: of this size, without ancestors.
        let object = unsafe { make(value, class(), initialize) }.expect("memory").cast::<Object>().as_ptr();
        assert_eq!(CONSTRUCTED.load(Ordering::Relaxed), 1);
        // SAFETY: alive.
        let head = unsafe { &*object };
        assert_eq!((head.class, head.references), (class(), 1));
        // SAFETY: alive.
        unsafe { retain(object) };
        // SAFETY: alive; used by another still.
        unsafe { release(object) };
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        // SAFETY: alive; not used any more.
        unsafe { release(object) };
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }
}
