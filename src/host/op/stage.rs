//! Pieces of arrays on the host, where the arrays themselves are on a device.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use super::Call;
use crate::error::{Result, say};
use crate::host::v5_0::accelerator;

/// Bytes of a piece, of each array: long enough that copies, which cost microseconds each, do not count, and
/// short enough to stay in the processor's cache.
const PIECE: usize = 256 << 10;

/// Memory that any type of number may lie in.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    /// Room for a piece of each array; once it is there it stays, because who reduces reduces again.
    static ROOM: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with pieces of the arrays that the processor reaches, one after the other, until all is done.
/// The last array takes the result; `reads` says whether it is read before.
///
/// # Safety
/// Arrays of as many elements as the call says, which nobody else uses meanwhile.
pub(super) unsafe fn through_host<const N: usize>(
    call: Call,
    arrays: [*mut c_void; N],
    reads: bool,
    body: impl Fn([*mut c_void; N], c_int),
) {
    let on_device = arrays.map(|array| accelerator::is_on_device(array));
    let elements = (PIECE / call.stride.max(1)).max(1);
    let room = (elements * call.stride).next_multiple_of(64);
    // What is nested in a callback of ours has room of its own.
    let mut lines = ROOM.try_with(|room| room.try_borrow_mut().map(|mut room| std::mem::take(&mut *room)));
    let lines = match &mut lines {
        Ok(Ok(lines)) => lines,
        _ => &mut Vec::new(),
    };
    lines.resize(lines.len().max(N * room / 64), Line([0; 64]));
    let start = lines.as_mut_ptr().cast::<c_void>();
    let pieces: [*mut c_void; N] = std::array::from_fn(|index| start.wrapping_byte_add(index * room));
    let mut done = 0;
    let count = usize::try_from(call.count).unwrap_or(0);
    while done < count {
        let now = elements.min(count - done);
        let bytes = now * call.stride;
        let at = arrays.map(|array| array.wrapping_byte_add(done * call.stride));
        let mut seen = at;
        for index in 0..N {
            if on_device[index] {
                seen[index] = pieces[index];
                if reads || index + 1 < N {
                    // SAFETY: so many bytes of an array, and room for a piece.
                    must(unsafe { accelerator::copy(pieces[index], at[index], bytes) });
                }
            }
        }
        body(seen, now as c_int);
        if on_device[N - 1] {
            // SAFETY: a piece, and so many bytes of the array for the result.
            must(unsafe { accelerator::copy(at[N - 1], pieces[N - 1], bytes) });
        }
        done += now;
    }
    let lines = std::mem::take(lines);
    let _ = ROOM.try_with(|room| room.try_borrow_mut().map(|mut room| *room = lines));
}

/// An operation cannot fail: the host has no way to say so. It ends the process itself where a copy fails.
fn must(copied: Result<()>) {
    if let Err(error) = copied {
        say(format_args!(
            "an operation on device memory: the device cannot be copied to or from ({error}); the process is ended, because its result would be wrong"
        ));
        std::process::abort();
    }
}
