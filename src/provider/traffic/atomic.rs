//! Atomic operations of peers on values in the memory of this side.
//!
//! A value that a processor can exchange at once, and that lies as it likes it, is exchanged so: whoever else works there
//! with atomic operations, of this process or of others that share the memory, loses nothing. The others are exchanged
//! under a lock of the process.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::super::errno::Errno;
use super::super::regions::Access;
use super::MOST_VALUES;
use super::context::Context;
use super::send::lend;
use crate::gni::amo::{LONGEST, Value, combine};
use crate::link::Lent;
use crate::sync::fork;
use crate::wire::gni::amo::{Amo, Form, Operation};
use crate::wire::gni::remote::Places;

/// Held by who works on what lies where, or as, no atomic operation of the processor can reach it: 0 is nobody, any other a
/// process, in [generations](fork::generation) and one more.
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// Holds that, as long as it lives.
struct Alone;

impl Alone {
    /// Takes it, also where a thread of the parent had it when this process was made by fork(2): that one is not here.
    fn new() -> Self {
        let own = u64::from(fork::generation()) + 1;
        let mut holder = 0;
        while let Err(other) = OTHERS.compare_exchange_weak(holder, own, Ordering::Acquire, Ordering::Relaxed)
        {
            if other == own {
                std::thread::yield_now();
            }
            holder = if other == own { 0 } else { other };
        }
        Self
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        OTHERS.store(0, Ordering::Release);
    }
}

impl Context {
    /// Combines the values of these places with operands, and answers what they were.
    pub(super) fn combine(
        &mut self,
        peer: u32,
        operation: u64,
        amo: Amo,
        places: &Places,
        operands: Lent,
    ) -> Option<()> {
        let total = usize::try_from(places.total()?).ok().filter(|total| *total <= MOST_VALUES)?;
        let access = match (amo.form(), amo.operation()) {
            (Form::Base, _) => Access::REMOTE_WRITE,
            (_, Operation::Read) => Access::REMOTE_READ,
            _ => Access::REMOTE_BOTH,
        };
        let spots = match self.spots(places, access) {
            Ok(spots) => spots,
            Err(Errno(code)) => {
                self.answer(peer, operation, code);
                return Some(());
            }
        };
        let size = amo.datatype().size();
        let mut before = std::mem::take(&mut self.scratch);
        before.clear();
        let mut done = 0;
        for spot in spots.all() {
            for at in (0..spot.len()).step_by(size) {
                let value = spot.slice(at, size);
                let with = |index: usize| {
                    let mut bytes = [0; LONGEST];
                    if index < amo.operands() {
                        operands.read(index * total + done, &mut bytes[..size]);
                    }
                    bytes
                };
                let old = exchange(amo, value, &with(0), &with(1));
                if amo.form() != Form::Base {
                    before.extend_from_slice(&old[..size]);
                }
                done += size;
            }
        }
        let kind = if amo.form() == Form::Base { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        self.count_remote(places, false, kind);
        if spots.is_counted() {
            self.count_regions(places, access);
        }
        let told = match amo.form() {
            Form::Base => {
                self.answer(peer, operation, 0);
                Some(())
            }
            _ => self.answer_with(peer, operation, &[lend(&before)]),
        };
        self.scratch = before;
        told
    }
}

/// Exchanges a value by an atomic type, over integers of its size.
macro_rules! with_atomic {
    ($atomic:ty, $integer:ty, $amo:ident, $at:ident, $operand:ident, $compared:ident) => {{
        // SAFETY: registered memory of the program, as long as the type, aligned as has been looked at, and nobody's by a
        // reference; who reaches it at the same time does so atomically, or has no promise from us.
        let cell = unsafe { <$atomic>::from_ptr($at.as_mut_ptr().cast()) };
        let mut old = cell.load(Ordering::Acquire);
        loop {
            let mut before = [0; LONGEST];
            before[..size_of::<$integer>()].copy_from_slice(&old.to_ne_bytes());
            if $amo.operation() == Operation::Read {
                break before;
            }
            let new = combine($amo, &before, $operand, $compared);
            let new = <$integer>::from_ne_bytes(std::array::from_fn(|at| new[at]));
            match cell.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break before,
                Err(now) => old = now,
            }
        }
    }};
}

/// Exchanges one value; answers what it was.
fn exchange(amo: Amo, at: Lent, operand: &Value, compared: &Value) -> Value {
    let is_aligned = at.as_ptr().addr().is_multiple_of(at.len());
    match at.len() {
        1 => with_atomic!(AtomicU8, u8, amo, at, operand, compared),
        2 if is_aligned => with_atomic!(AtomicU16, u16, amo, at, operand, compared),
        4 if is_aligned => with_atomic!(AtomicU32, u32, amo, at, operand, compared),
        8 if is_aligned => with_atomic!(AtomicU64, u64, amo, at, operand, compared),
        length => {
            let _alone = Alone::new();
            let mut before = [0; LONGEST];
            at.read(0, &mut before[..length]);
            at.write(0, &combine(amo, &before, operand, compared)[..length]);
            before
        }
    }
}
