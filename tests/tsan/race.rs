//! Threads race for one cell after the other, under ThreadSanitizer (`tests/tsan.sh`).
//!
//! They are started and joined by `pthread_create(3)` and `pthread_join(3)`, which the sanitizer knows; the
//! standard library is not instrumented, and what it does between threads would look like races.

#[path = "../../src/sync/barrier.rs"]
mod barrier;
#[expect(dead_code, reason = "two of its three ways in are enough")]
#[path = "../../src/sync/cell.rs"]
mod cell;

use cell::{Bars, EngineCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const THREADS: usize = 3;
const TIMES: u64 = 200;

struct Shared {
    cell: EngineCell<[u64; 2]>,
    there: AtomicU32,
}

fn work(shared: &Shared) {
    let step = |both: &mut [u64; 2]| {
        assert_eq!(both[0], both[1]);
        both[0] += 1;
        both[1] += 1;
    };
    if shared.cell.with_unless(Bars::NONE, step).is_none() {
        shared.cell.with(step);
    }
}

/// What each thread does, all at the same time.
extern "C" fn run(shared: *mut c_void) -> *mut c_void {
    // SAFETY: what `main` gave, alive until the thread is joined.
    let shared = unsafe { &*shared.cast::<Shared>() };
    shared.there.fetch_add(1, Ordering::Relaxed);
    while shared.there.load(Ordering::Relaxed) < THREADS as u32 {
        std::hint::spin_loop();
    }
    for _ in 0..TIMES {
        work(shared);
    }
    ptr::null_mut()
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(2_000);
    for _ in 0..rounds {
        let shared = Box::new(Shared { cell: EngineCell::new([0; 2]), there: AtomicU32::new(0) });
        let mut threads = [0; THREADS];
        for thread in &mut threads {
            let argument = ptr::from_ref(&*shared).cast_mut().cast();
            // SAFETY: a function of this type, and what it shares outlives the threads.
            let code = unsafe { libc::pthread_create(thread, ptr::null(), run, argument) };
            assert_eq!(code, 0);
        }
        for thread in threads {
            // SAFETY: started above, joined once.
            unsafe { libc::pthread_join(thread, ptr::null_mut()) };
        }
        assert_eq!(shared.cell.with(|both| *both), [TIMES * THREADS as u64; 2]);
    }
    println!("{rounds} rounds of {THREADS} threads");
}
