//! Memory is used up: what is opened then says so, and is opened when there is some again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use super::abi::{self, HAWSER_ABI};
use super::code::*;
use super::component::Listed;
use super::entry::Tables;
use crate::btl::smcuda::Smcuda;
use crate::btl::usnic::Usnic;
use crate::link::Inbox;

/// The system's allocator, without memory for what is larger than the test of a thread wants.
struct Scarce;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[global_allocator]
static MEMORY: Scarce = Scarce;

// SAFETY: the system's, but for null, which every allocator may return.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST.get() {
            return ptr::null_mut();
        }
        // SAFETY: the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST.get() {
            return ptr::null_mut();
        }
        // SAFETY: the contract of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > MOST.get() {
            return ptr::null_mut();
        }
        // SAFETY: the contract of this function; all memory is the system's.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the contract of this function; all memory is the system's.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Does something in this thread, with memory for what has so many bytes at most.
fn with_most<R>(bytes: usize, body: impl FnOnce() -> R) -> R {
    MOST.set(bytes);
    let result = body();
    MOST.set(usize::MAX);
    result
}

unsafe extern "C" fn publish(_: *mut c_void, _: *const c_char, _: *const c_void, _: usize) -> i32 {
    0
}

unsafe extern "C" fn lookup(_: *mut c_void, _: *const c_char, _: u64, _: *mut c_void, _: *mut usize) -> i32 {
    HAWSER_ERR_NOT_FOUND
}

unsafe extern "C" fn parameter(_: *mut c_void, name: *const c_char) -> *const c_char {
    // SAFETY: a text, by the type of this function.
    let is_interface = unsafe { CStr::from_ptr(name) } == c"btl_usnic_if_include";
    if is_interface { c"127.0.0.0/8".as_ptr() } else { ptr::null() }
}

/// A component says that there is no memory where there is none for so many bytes at once, and is opened later.
fn opens_later<T: Listed>(bytes: usize) {
    let table = Tables::<T>::COMPONENT;
    let host = abi::Host {
        size: size_of::<abi::Host>(),
        abi: HAWSER_ABI,
        threads: 0,
        name: 1 << 32 | u64::from(std::process::id()),
        node: ptr::null(),
        context: ptr::null_mut(),
        publish: Some(publish),
        lookup: Some(lookup),
        parameter: Some(parameter),
        declare: None,
        log: None,
        verbose: 0,
        reserved: 0,
    };
    let mut count = 0;
    // SAFETY: a whole table, with functions of these types.
    assert_eq!(unsafe { (table.open)(&raw const host) }, 0);
    // SAFETY: takes nothing.
    assert_eq!(unsafe { (table.register_parameters)() }, 0);
    // SAFETY: a variable for the number.
    let scarce = with_most(bytes, || unsafe { (table.init)(&raw mut count) });
    assert_eq!((scarce, count), (HAWSER_ERR_MEMORY, 0));
    // SAFETY: the same.
    let plenty = unsafe { (table.init)(&raw mut count) };
    // SAFETY: takes nothing.
    assert_eq!((plenty, count, unsafe { (table.close)() }), (0, 1, 0));
}

#[test]
fn usnic_is_not_opened_without_memory() {
    opens_later::<Usnic>(8192);
}

#[test]
fn smcuda_is_not_opened_without_memory() {
    opens_later::<Smcuda>(4000);
}

#[test]
fn where_there_is_no_buffer_nothing_is_received() {
    let mut inbox = Inbox::new();
    assert!(with_most(32 << 10, || inbox.take()).is_none());
    assert_eq!(inbox.buffers(), 0);
    let mut vacant = inbox.take().expect("memory");
    assert!(vacant.bytes().iter().all(|byte| *byte == 0));
    assert!(with_most(32 << 10, || inbox.take()).is_none(), "it is not back yet");
    assert_eq!(inbox.buffers(), 1);
}
