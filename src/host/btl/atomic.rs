//! Atomic operations on the registered memory of peers: 64 bits, addition and compare-and-swap.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::Entry;
use super::module::{self, Shell, code, status};
use super::sys::{BtlEndpoint, BtlModule, BtlRegistration, Transferred};
use super::transfer::{Copied, Left, Operation};
use super::{BtlAbi, Listed};
use crate::btl::{Atomic, Atomics, Sending};
use crate::error::Error;

/// `mca_btl_base_atomic_op_t`: the one that devices have.
const ADD: c_int = 0x1;

/// What a table says of a transport's atomic operations (`MCA_BTL_ATOMIC_SUPPORTS_*`).
pub(super) const fn flags(atomics: Atomics) -> u32 {
    const ADD: u32 = 0x1;
    const CSWAP: u32 = 0x1000_0000;
    const GLOB: u32 = 0x2000_0000;
    match atomics {
        Atomics::None => 0,
        Atomics::Device => ADD | CSWAP,
        Atomics::Global => ADD | CSWAP | GLOB,
    }
}

/// What is asked for, of a host that may ask for what there is not; `flags`: `MCA_BTL_ATOMIC_FLAG_*`, of which each wants
/// another kind of number.
fn asked(operation: c_int, operand: u64, flags: c_int) -> Option<Atomic> {
    (operation == ADD && flags == 0).then_some(Atomic::Add(operand))
}

/// What the host is told of an operation that is over, and of which its callback does not run.
const OVER: c_int = 1;

/// Changes a word that the process itself can reach.
///
/// HOST: of a window in such memory osc/rdma asks for a compare-and-swap without a handle. When that fails it does one by itself
/// that is not atomic: a copy, a comparison and another copy, under a lock that those do not take who change the word by a device
/// (`ompi_osc_rdma_compare_and_swap`, 4.1). Of other operations it does not ask so.
///
/// # Safety
/// There is a word at `address` if that is a multiple of 8, which others change too, and room for another at `result`, if that is
/// not null.
unsafe fn change_own(address: u64, what: Atomic, result: *mut u64) -> c_int {
    let Atomic::CompareSwap { compare, swap } = what else { return code::NOT_SUPPORTED };
    let word = ptr::with_exposed_provenance_mut::<u64>(address as usize);
    if word.is_null() || !word.is_aligned() {
        return code::NOT_SUPPORTED;
    }
    // SAFETY: the caller's contract; it is aligned.
    let word = unsafe { AtomicU64::from_ptr(word) };
    let was =
        word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|was| was);
    if !result.is_null() {
        // SAFETY: the caller's contract.
        unsafe { result.write_unaligned(was) };
    }
    OVER
}

/// Begins one. `what`: `None` of one that there is not.
///
/// HOST: osc/rdma asks for a word at whatever address, and does by itself what is not supported, under a lock of its own. Of any
/// other error it asks again, for ever (`ompi_osc_rdma_gacc_amo`).
///
/// # Safety
/// The contract of `btl_atomic_op`, `btl_atomic_fop` and `btl_atomic_cswap`: through the module's own table, with a handle of the
/// peer's, as its bytes have come, or with none and the address of a word of the process's own; and, if any, 8 bytes for the
/// result that are ours until the callback has run.
unsafe fn start<A: BtlAbi, T: Listed>(
    name: &'static str,
    module: *mut BtlModule,
    operation: Operation,
    (handle, address): (*const BtlRegistration, u64),
    what: Option<Atomic>,
) -> c_int {
    if handle.is_null() {
        return what.map_or(code::NOT_SUPPORTED, |what| {
            // SAFETY: the caller's contract: without a handle, the word is within the process's own reach.
            unsafe { change_own(address, what, operation.local.cast()) }
        });
    }
    if !address.is_multiple_of(8) || !operation.local.cast::<u64>().is_aligned() {
        return code::NOT_SUPPORTED;
    }
    let room = if operation.local.is_null() { 0 } else { size_of::<u64>() };
    // SAFETY: the caller's contract; the table is read only.
    let length = unsafe { (*module).registration_handle_size };
    // SAFETY: the caller's contract.
    let entry =
        unsafe { Entry::<A, T, _>::of(module, (Copied(handle, length), Left(operation.local, room))) };
    entry.run(name, |shell: &Shell<A, T>, (handle, result)| {
        let Some(what) = what else { return code::NOT_SUPPORTED };
        let Some((registration, offset)) = handle.remote(address) else { return code::ERROR };
        let to = module::endpoint(operation.endpoint);
        let cookie = shell.transfers.put(operation);
        match shell.core.atomic(to, result, (registration, offset), what, cookie) {
            Ok(Sending::UnderWay) => code::SUCCESS,
            Ok(Sending::Over) => {
                shell.transferred(cookie, Ok(()));
                code::SUCCESS
            }
            Err(error) => {
                shell.transfers.take(cookie);
                if error == Error::Unsupported { code::NOT_SUPPORTED } else { status(Err(error)) }
            }
        }
    })
}

/// Without a result.
pub(super) unsafe extern "C" fn op<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    endpoint: *mut BtlEndpoint,
    address: u64,
    remote: *mut BtlRegistration,
    operation: c_int,
    operand: u64,
    flags: c_int,
    _order: c_int,
    callback: Transferred,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let what = asked(operation, operand, flags);
    let operation = Operation::new(endpoint, (ptr::null_mut(), ptr::null_mut()), callback, context, data);
    // SAFETY: the contract of `btl_atomic_op`.
    unsafe { start::<A, T>("atomic_op", module, operation, (remote, address), what) }
}

/// With a result.
pub(super) unsafe extern "C" fn fop<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    endpoint: *mut BtlEndpoint,
    local: *mut c_void,
    address: u64,
    handle: *mut BtlRegistration,
    remote: *mut BtlRegistration,
    operation: c_int,
    operand: u64,
    flags: c_int,
    _order: c_int,
    callback: Transferred,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let what = asked(operation, operand, flags);
    let operation = Operation::new(endpoint, (local, handle), callback, context, data);
    // SAFETY: the contract of `btl_atomic_fop`.
    unsafe { start::<A, T>("atomic_fop", module, operation, (remote, address), what) }
}

/// Compare-and-swap.
pub(super) unsafe extern "C" fn cswap<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    endpoint: *mut BtlEndpoint,
    local: *mut c_void,
    address: u64,
    handle: *mut BtlRegistration,
    remote: *mut BtlRegistration,
    compare: u64,
    swap: u64,
    flags: c_int,
    _order: c_int,
    callback: Transferred,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let what = (flags == 0).then_some(Atomic::CompareSwap { compare, swap });
    let operation = Operation::new(endpoint, (local, handle), callback, context, data);
    // SAFETY: the contract of `btl_atomic_cswap`.
    unsafe { start::<A, T>("atomic_cswap", module, operation, (remote, address), what) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::btl::fake::Fake;
    use crate::host::v4_1::V4_1;

    /// Asks for one without a handle: what is answered, and what the word was then.
    fn ask(address: usize, (compare, swap): (u64, u64), flags: c_int) -> (c_int, u64) {
        let (module, none) = (Shell::<V4_1, _>::new(Fake::new(&[])), ptr::null_mut::<c_void>());
        let mut was = 99_u64;
        let local = ptr::from_mut(&mut was).cast();
        let to = module::handle(crate::btl::EndpointId::from_raw(1));
        // SAFETY: a module of this type, and words that live longer than the call.
        let answer = unsafe {
            cswap::<V4_1, Fake>(
                module.raw(),
                to,
                local,
                address as u64,
                none.cast(),
                none.cast(),
                compare,
                swap,
                flags,
                0,
                None,
                none,
                none,
            )
        };
        (answer, was)
    }

    #[test]
    fn a_word_of_the_process_s_own_is_compared_and_swapped_at_once() {
        let mut words = [7_u64, 1];
        let at = ptr::from_mut(&mut words).expose_provenance();
        assert_eq!(ask(at, (7, 8), 0), (OVER, 7));
        assert_eq!(ask(at, (7, 9), 0), (OVER, 8));
        assert_eq!(ask(at + 4, (0, 9), 0), (code::NOT_SUPPORTED, 99), "it is not a word");
        assert_eq!(ask(at, (8, 9), 1), (code::NOT_SUPPORTED, 99), "of 32 bits");
        assert_eq!(ask(0, (8, 9), 0), (code::NOT_SUPPORTED, 99));
        assert_eq!(words, [8, 1]);
    }
}
