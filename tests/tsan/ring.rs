//! A writer and a reader of one ring of src/shm, under ThreadSanitizer (`tests/tsan.sh`): what the reader copies
//! out is written before, and what it has copied is only then written over.
//!
//! They are started and joined by `pthread_create(3)` and `pthread_join(3)`, as in `race.rs`.

#[expect(dead_code, reason = "a ring needs little of it")]
#[path = "../../src/link/lent.rs"]
mod lent;
mod link {
    pub(crate) use super::lent::Lent;
}
#[expect(dead_code, unused_imports, reason = "nobody rings a bell here")]
#[path = "../../src/shm/ring/mod.rs"]
mod ring;
#[expect(dead_code, reason = "nothing is left out here")]
#[path = "../../src/shm/tail.rs"]
mod tail;

use link::Lent;
use ring::{Receiver, STRIDE, Sender};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// Bytes of an entry: short ones, and now and then one that fills much of the ring.
fn length(entry: u64) -> usize {
    8 + (entry as usize * 37) % if entry.is_multiple_of(61) { 9000 } else { 300 }
}

fn lend(bytes: &[u8]) -> Lent {
    // SAFETY: read by the push only, which the bytes outlive.
    unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

#[derive(Clone)]
#[repr(align(64))]
#[expect(dead_code, reason = "it is reached by its address")]
struct Line([u8; 64]);

struct Writer(Sender, u64);
struct Reader(Receiver, u64);

extern "C" fn write(writer: *mut c_void) -> *mut c_void {
    // SAFETY: what `main` gave to this thread alone, alive until it is joined.
    let Writer(sender, entries) = unsafe { &mut *writer.cast::<Writer>() };
    let mut bytes = vec![0; 9008];
    for entry in 0..*entries {
        let len = length(entry);
        bytes[..len].fill(entry as u8);
        let (head, data) = bytes[..len].split_at(len.min(14));
        while !sender.push(entry as u8, [lend(head), lend(data)]).expect("an honest reader") {
            std::hint::spin_loop();
        }
    }
    ptr::null_mut()
}

extern "C" fn read(reader: *mut c_void) -> *mut c_void {
    // SAFETY: what `main` gave to this thread alone, alive until it is joined.
    let Reader(receiver, entries) = unsafe { &mut *reader.cast::<Reader>() };
    let mut bytes = vec![0; 9008];
    let mut entry = 0;
    while entry < *entries {
        let Some(arrival) = receiver.take().expect("an honest writer") else {
            std::hint::spin_loop();
            continue;
        };
        let len = length(entry);
        assert_eq!((arrival.tag, arrival.bytes.len()), (entry as u8, len));
        arrival.bytes.read(0, &mut bytes[..len]);
        assert!(bytes[..len].iter().all(|byte| *byte == entry as u8));
        receiver.release();
        entry += 1;
        // A writer that waits for room writes over what was read last.
        if entry % 1024 < 512 {
            (0..2000).for_each(|_| std::hint::spin_loop());
        }
    }
    ptr::null_mut()
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|entries| entries.parse().ok()).unwrap_or(20_000);
    let memory = Arc::new(vec![Line([0; 64]); STRIDE / 64]);
    let start = memory.as_ptr().cast_mut().cast::<u8>();
    // SAFETY: zero, as long as a ring, kept by the vector that goes along, and written by this sender only.
    let mut writer = Writer(unsafe { Sender::new(start, Arc::clone(&memory) as _) }, entries);
    // SAFETY: the same memory.
    let mut reader = Reader(unsafe { Receiver::new(start, memory as _) }, entries);
    let mut threads = [0; 2];
    let bodies: [extern "C" fn(*mut c_void) -> *mut c_void; 2] = [write, read];
    let arguments = [ptr::from_mut(&mut writer).cast(), ptr::from_mut(&mut reader).cast()];
    for ((thread, body), argument) in threads.iter_mut().zip(bodies).zip(arguments) {
        // SAFETY: a function of this type, and what it gets outlives the thread.
        let code = unsafe { libc::pthread_create(thread, ptr::null(), body, argument) };
        assert_eq!(code, 0);
    }
    for thread in threads {
        // SAFETY: started above, joined once.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    }
    println!("{entries} entries through a ring");
}
