//! Atomic operations on the registered memory of peers: 64 bits, addition and compare-and-swap.

use std::ffi::{c_int, c_void};
use std::ptr;

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

/// Begins one. `what`: `None` of one that there is not.
///
/// # Safety
/// The contract of `btl_atomic_op`, `btl_atomic_fop` and `btl_atomic_cswap`: through the module's own table, with a handle of the
/// peer's, as its bytes have come, and, if any, 8 bytes for the result that are ours until the callback has run.
unsafe fn start<A: BtlAbi, T: Listed>(
    name: &'static str,
    module: *mut BtlModule,
    operation: Operation,
    (handle, address): (*const BtlRegistration, u64),
    what: Option<Atomic>,
) -> c_int {
    // HOST: where a window lies in memory that the process itself can reach, osc/rdma asks for a compare-and-swap without a handle
    // before it does one by itself, which it does when that fails (`ompi_osc_rdma_compare_and_swap`, 4.1).
    if handle.is_null() {
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
