//! Streams and events as objects of the host's class system: the host makes them through the table, counts
//! references itself and calls the destructor of our class with the last.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::accelerator::Accelerator;
use crate::host::sys::{Class, Object};
use crate::host::v5_0::sys::AcceleratorObject;

/// What the host's class system is needed for.
pub(in crate::host) struct Classes {
    pub(in crate::host) initialize: unsafe extern "C" fn(*mut Class),
    /// The class of streams.
    pub(in crate::host) stream: *mut Class,
    /// The class of events.
    pub(in crate::host) event: *mut Class,
}

/// Our classes, which are the host's with a destructor. They live for ever.
struct Ours {
    initialize: unsafe extern "C" fn(*mut Class),
    stream: NonNull<Class>,
    event: NonNull<Class>,
}

// SAFETY: the host's class system has a lock of its own; the addresses are only copied here.
unsafe impl Send for Ours {}
// SAFETY: the host's class system has a lock of its own; the addresses are only copied here.
unsafe impl Sync for Ours {}

/// Of the one accelerator that the host uses: it opens no second one.
static OURS: OnceLock<Ours> = OnceLock::new();

/// What makes the classes.
pub(super) fn prepare<T: Accelerator>(host: &Classes) {
    OURS.get_or_init(|| Ours {
        initialize: host.initialize,
        stream: derived(c"hawser_accelerator_stream_t", host.stream, destruct::<T::Stream>),
        event: derived(c"hawser_accelerator_event_t", host.event, destruct::<T::Event>),
    });
}

fn derived(
    name: &'static CStr,
    parent: *mut Class,
    destruct: unsafe extern "C" fn(*mut c_void),
) -> NonNull<Class> {
    let class = Box::leak(Box::new(Class {
        name: name.as_ptr(),
        parent,
        construct_own: None,
        destruct_own: Some(destruct),
        initialized: 0,
        _pad1: [0; 4],
        construct: ptr::null_mut(),
        destruct: ptr::null_mut(),
        size: size_of::<AcceleratorObject>(),
    }));
    NonNull::from(class)
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
    OURS.get().and_then(|ours| make(ours, ours.stream, T::Stream::default()))
}

/// An event for the host, with one reference; `None` without memory.
pub(super) fn event<T: Accelerator>() -> Option<NonNull<AcceleratorObject>> {
    OURS.get().and_then(|ours| make(ours, ours.event, T::Event::default()))
}

fn make<I>(ours: &Ours, class: NonNull<Class>, inside: I) -> Option<NonNull<AcceleratorObject>> {
    // SAFETY: a class that lives for ever. The host fills it in once, and again when it has ended and begun anew.
    unsafe { (ours.initialize)(class.as_ptr()) };
    // SAFETY: the host frees the object with `free`.
    let memory = unsafe { libc::malloc(size_of::<AcceleratorObject>()) };
    let object = NonNull::new(memory.cast::<AcceleratorObject>())?;
    let head = Object { class: class.as_ptr(), references: 1, _pad0: [0; 4] };
    let value = AcceleratorObject { object: head, inside: Box::into_raw(Box::new(inside)).cast() };
    // SAFETY: fresh memory of this size, aligned for anything.
    unsafe { object.write(value) };
    // SAFETY: filled in by `initialize`: constructors, the base's first, that a null ends.
    let mut constructor = unsafe { (*class.as_ptr()).construct };
    // SAFETY: in the array, for no null was seen yet.
    while let Some(construct) = unsafe { constructor.read() } {
        // SAFETY: a constructor of a class that this one is derived from, and a fresh object.
        unsafe { construct(memory) };
        // SAFETY: this one was none, so there is one more.
        constructor = unsafe { constructor.add(1) };
    }
    Some(object)
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
    static CONSTRUCTED: AtomicU32 = AtomicU32::new(0);

    struct Inside(u32);

    impl Drop for Inside {
        fn drop(&mut self) {
            ENDED.fetch_add(self.0, Ordering::Relaxed);
        }
    }

    unsafe extern "C" fn constructed(_: *mut c_void) {
        CONSTRUCTED.fetch_add(1, Ordering::Relaxed);
    }

    /// As the host's: fills in a class that it sees for the first time.
    unsafe extern "C" fn initialize(class: *mut Class) {
        static CONSTRUCTORS: [Option<unsafe extern "C" fn(*mut c_void)>; 2] = [Some(constructed), None];
        // SAFETY: the test's class.
        unsafe { (*class).construct = CONSTRUCTORS.as_ptr().cast_mut() };
    }

    #[test]
    fn an_object_is_made_used_and_ended_with_its_class() {
        let class = derived(c"test", ptr::null_mut(), destruct::<Inside>);
        let ours = Ours { initialize, stream: class, event: class };
        let object = make(&ours, class, Inside(7)).expect("memory");
        assert_eq!(CONSTRUCTED.load(Ordering::Relaxed), 1);
        // SAFETY: made just now.
        let found = unsafe { inside::<Inside>(object.as_ptr()) };
        assert_eq!(found.map(|inside| inside.0), Some(7));
        // SAFETY: alive.
        let head = unsafe { &(*object.as_ptr()).object };
        assert_eq!((head.class, head.references), (class.as_ptr(), 1));
        for _ in 0..2 {
            // SAFETY: as the host does it with the last reference; a second time finds nothing.
            unsafe { destruct::<Inside>(object.as_ptr().cast()) };
            assert_eq!(ENDED.load(Ordering::Relaxed), 7);
        }
        // SAFETY: made with `malloc`, and not used any more.
        unsafe { libc::free(object.as_ptr().cast()) };
        // SAFETY: null.
        assert!(unsafe { inside::<Inside>(ptr::null_mut()) }.is_none());
    }
}
