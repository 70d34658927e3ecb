//! Streams and events as objects of the host's class system: the host makes them through the table, counts
//! references itself and calls the destructor of our class with the last.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::accelerator::Accelerator;
use crate::host::object::{self, Initialize, Instance, OwnClass};
use crate::host::sys::{Class, Object};
use crate::host::v5_0::sys::AcceleratorObject;

/// What the host's class system is needed for.
#[derive(Clone, Copy)]
pub(in crate::host) struct Classes {
    pub(in crate::host) initialize: Initialize,
    /// The class of streams.
    pub(in crate::host) stream: *mut Class,
    /// The class of events.
    pub(in crate::host) event: *mut Class,
}

// SAFETY: the host's class system has a lock of its own; the addresses are only copied here.
unsafe impl Send for Classes {}
// SAFETY: the host's class system has a lock of its own; the addresses are only copied here.
unsafe impl Sync for Classes {}

// SAFETY: begins with the object; a pointer besides.
unsafe impl Instance for AcceleratorObject {}

/// The host's classes.
static HOST: OnceLock<Classes> = OnceLock::new();

/// Ours, which are the host's with a destructor, of the one accelerator that the host uses: it opens no second one.
static STREAM: OwnClass = OwnClass::new();
static EVENT: OwnClass = OwnClass::new();

/// Keeps what streams and events are made with.
pub(super) fn prepare(host: Classes) {
    HOST.get_or_init(|| host);
}

/// Ends what is inside an object.
unsafe extern "C" fn destruct<I>(object: *mut c_void) {
    crate::host::guard::guard(super::NAME, "destruct", || {
        // SAFETY: the host calls the destructor of a class with an object of it, whose last reference is gone.
        let inside = unsafe { &raw mut (*object.cast::<AcceleratorObject>()).inside };
        // SAFETY: the object's own field, which nobody else uses any more.
        let inside = unsafe { inside.replace(ptr::null_mut()) };
        if !inside.is_null() {
            // SAFETY: the object is of a class of ours, so this was put there by `make`, and is taken out once.
            drop(unsafe { Box::from_raw(inside.cast::<I>()) });
        }
    });
}

/// A stream for the host, with one reference; `None` without memory.
pub(super) fn stream<T: Accelerator>() -> Option<NonNull<AcceleratorObject>> {
    let host = HOST.get()?;
    make(&STREAM, c"hawser_accelerator_stream_t", host.stream, host.initialize, T::Stream::default())
}

/// An event for the host, with one reference; `None` without memory.
pub(super) fn event<T: Accelerator>() -> Option<NonNull<AcceleratorObject>> {
    let host = HOST.get()?;
    make(&EVENT, c"hawser_accelerator_event_t", host.event, host.initialize, T::Event::default())
}

fn make<I>(
    class: &OwnClass,
    name: &'static CStr,
    parent: *mut Class,
    initialize: Initialize,
    inside: I,
) -> Option<NonNull<AcceleratorObject>> {
    let class = class.get(name, parent, destruct::<I>, size_of::<AcceleratorObject>());
    let inside = Box::into_raw(Box::new(inside));
    let value = AcceleratorObject { object: Object::EMPTY, inside: inside.cast() };
    // SAFETY: of the class's size, whose ancestors are the host's.
    let made = unsafe { object::make(value, class, initialize) };
    if made.is_none() {
        // SAFETY: made above, and nobody else has it.
        drop(unsafe { Box::from_raw(inside) });
    }
    made
}

/// What is inside an object that the host passes to an entry.
///
/// # Safety
/// Null, or an object that [`stream`] or [`event`] made with what is asked for, alive for `'a`.
pub(super) unsafe fn inside<'a, I>(object: *mut AcceleratorObject) -> Option<&'a I> {
    if object.is_null() {
        return None;
    }
    // SAFETY: not null, hence an object of ours, alive.
    let inside = unsafe { (*object).inside };
    // SAFETY: what was put there, or null; it is shared, and stays as long as the object.
    unsafe { inside.cast::<I>().as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static ENDED: AtomicU32 = AtomicU32::new(0);

    struct Inside(u32);

    impl Drop for Inside {
        fn drop(&mut self) {
            ENDED.fetch_add(self.0, Ordering::Relaxed);
        }
    }

    /// As the host's: fills in a class that it sees for the first time.
    unsafe extern "C" fn initialize(class: *mut Class) {
        // SAFETY: the test's class.
        let class = unsafe { &mut *class };
        class.construct = Box::leak(Box::new([None])).as_mut_ptr();
        class.destruct = Box::leak(Box::new([class.destruct_own, None])).as_mut_ptr();
    }

    #[test]
    fn an_object_is_made_used_and_ended_with_its_class() {
        static CLASS: OwnClass = OwnClass::new();
        let object = make(&CLASS, c"test", ptr::null_mut(), initialize, Inside(7)).expect("memory");
        // SAFETY: made just now.
        let found = unsafe { inside::<Inside>(object.as_ptr()) };
        assert_eq!(found.map(|inside| inside.0), Some(7));
        for _ in 0..2 {
            // SAFETY: as the host does it with the last reference; a second time finds nothing.
            unsafe { destruct::<Inside>(object.as_ptr().cast()) };
            assert_eq!(ENDED.load(Ordering::Relaxed), 7);
        }
        // SAFETY: alive; not used any more.
        unsafe { object::release(object.as_ptr().cast()) };
        assert_eq!(ENDED.load(Ordering::Relaxed), 7);
        // SAFETY: null.
        assert!(unsafe { inside::<Inside>(ptr::null_mut()) }.is_none());
    }
}
