//! The table of atomic operations on the memory of peers, `fi_atomic(3)`.

use std::ffi::{c_int, c_void};

use super::super::argument::{Out, array, copy};
use super::super::errno::{Errno, Outcome};
use super::super::guard::{guard, size};
use super::super::object::body;
use super::super::sys::{
    self, fi_atomic_attr, fi_ioc, fi_msg_atomic, fi_msg_compare, fi_msg_fetch, fi_ops_atomic, fi_rma_ioc,
    fid_ep, iovec,
};
use super::super::traffic::buffer::Buffer;
use super::super::traffic::{Act, MOST_VALUES};
use super::Endpoint;
use super::rma::{Buffers, Given, OF_ALL};
use super::transfer::Manner;
use super::work::Ticket;
use crate::wire::gni::amo::{Amo, Form};
use crate::wire::gni::mailbox::PIECES;
use crate::wire::gni::remote::{Place, Places};

pub(super) static ATOMIC: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};

/// Values on this side, as C says it.
#[derive(Clone, Copy)]
enum Values {
    None,
    One(*const c_void, usize),
    Many(*const fi_ioc, usize),
}

impl Values {
    /// The memory of values of this size.
    ///
    /// # Safety
    /// What is named is there until the operation has ended.
    unsafe fn buffer(self, size: usize) -> Outcome<Buffer> {
        match self {
            Self::None => Ok(Buffer::NONE),
            Self::One(start, count) => {
                let length = count.checked_mul(size).ok_or(Errno::INVAL)?;
                if start.is_null() && length != 0 {
                    return Err(Errno::INVAL);
                }
                // SAFETY: the contract.
                Ok(unsafe { Buffer::new(start.cast(), length) })
            }
            Self::Many(start, count) => {
                // SAFETY: the contract: so many pieces.
                let pieces = unsafe { array(start, count) }?;
                let mut all = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
                let all = all.get_mut(..pieces.len()).ok_or(Errno::INVAL)?;
                for (piece, of) in pieces.iter().zip(all.iter_mut()) {
                    let length = piece.count.checked_mul(size).ok_or(Errno::INVAL)?;
                    if piece.addr.is_null() && length != 0 {
                        return Err(Errno::INVAL);
                    }
                    *of = iovec { iov_base: piece.addr, iov_len: length };
                }
                // SAFETY: the contract.
                unsafe { Buffer::of_pieces(all) }
            }
        }
    }
}

/// Values of a peer, as C says it.
#[derive(Clone, Copy)]
enum Far {
    /// Address and key, of as many as are here.
    One(u64, u64),
    Many(*const fi_rma_ioc, usize),
}

/// What is done with values, as C says it.
struct Call<'a> {
    form: Form,
    datatype: u32,
    operation: u32,
    destination: u64,
    far: Far,
    operands: Values,
    compared: Values,
    result: Values,
    context: *mut c_void,
    manner: Manner<'a>,
}

impl Call<'_> {
    /// The places of so many bytes in all, of values of this size.
    ///
    /// # Safety
    /// What is named is there.
    unsafe fn places(&self, length: usize, size: usize) -> Outcome<Places> {
        let (start, count) = match self.far {
            Far::One(address, key) => return Ok(Places::one(Place { key, address, length: length as u64 })),
            Far::Many(start, count) => (start, count),
        };
        let mut places = Places::NOWHERE;
        // SAFETY: the contract: so many places.
        for place in unsafe { array(start, count) }? {
            let length = (place.count as u64).checked_mul(size as u64).ok_or(Errno::INVAL)?;
            if !places.push(Place { key: place.key, address: place.addr, length }) {
                return Err(Errno::INVAL);
            }
        }
        if places.total() == Some(length as u64) { Ok(places) } else { Err(Errno::INVAL) }
    }

    /// Does it.
    ///
    /// # Safety
    /// The contract of `fi_atomic(3)`.
    unsafe fn run(self, ep: *mut fid_ep) -> isize {
        size("fi_atomic", || {
            // SAFETY: the contract: an endpoint.
            let endpoint = unsafe { body::<Endpoint>(ep) }?;
            // SAFETY: the contract.
            unsafe { self.begin(endpoint) }
        })
    }

    /// The same of an endpoint.
    ///
    /// # Safety
    /// The contract of `fi_atomic(3)`.
    unsafe fn begin(self, endpoint: &Endpoint) -> Outcome<usize> {
        let amo = Amo::new(self.operation, self.datatype, self.form).ok_or(Errno(libc::EOPNOTSUPP))?;
        let size = amo.datatype().size();
        // What is only read needs no operands, and what there are is not looked at.
        let operands = if amo.operands() == 0 { Values::None } else { self.operands };
        // SAFETY: the contract: it is readable until the operation has ended; so are those that are compared.
        let main = unsafe { operands.buffer(size) }?;
        // SAFETY: the same.
        let compared = unsafe { self.compared.buffer(size) }?;
        // SAFETY: the same: it is writable.
        let result = unsafe { self.result.buffer(size) }?;
        let length = if amo.operands() == 0 { result.length() } else { main.length() };
        let is_paired = |form, buffer: &Buffer| self.form == form && buffer.length() != length;
        if is_paired(Form::Fetch, &result) || is_paired(Form::Compare, &result) {
            return Err(Errno::INVAL);
        }
        if is_paired(Form::Compare, &compared) {
            return Err(Errno::INVAL);
        }
        if length > MOST_VALUES {
            return Err(Errno(libc::EMSGSIZE));
        }
        // SAFETY: the contract.
        let places = unsafe { self.places(length, size) }?;
        let Self { destination, context, manner, .. } = self;
        let given = Given { destination, places, context, manner };
        endpoint.reach(Act::Atomic(amo), Buffers { main, result, compared }, given, OF_ALL)
    }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    _: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    datatype: u32,
    operation: u32,
    context: *mut c_void,
) -> isize {
    let (form, far, manner) = (Form::Base, Far::One(address, key), Manner::Usual);
    let (operands, compared, result) = (Values::One(buffer, count), Values::None, Values::None);
    let call =
        Call { form, datatype, operation, destination, far, operands, compared, result, context, manner };
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { call.run(ep) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    pieces: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: u32,
    operation: u32,
    context: *mut c_void,
) -> isize {
    let (form, far, manner) = (Form::Base, Far::One(address, key), Manner::Usual);
    let (operands, compared, result) = (Values::Many(pieces, count), Values::None, Values::None);
    let call =
        Call { form, datatype, operation, destination, far, operands, compared, result, context, manner };
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { call.run(ep) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: u32,
    operation: u32,
) -> isize {
    let (form, far, manner) = (Form::Base, Far::One(address, key), Manner::Injected);
    let (operands, compared, result) = (Values::One(buffer, count), Values::None, Values::None);
    let context = std::ptr::null_mut();
    let call =
        Call { form, datatype, operation, destination, far, operands, compared, result, context, manner };
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { call.run(ep) }
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    datatype: u32,
    operation: u32,
    context: *mut c_void,
) -> isize {
    let (form, far, manner) = (Form::Fetch, Far::One(address, key), Manner::Usual);
    let (operands, compared, result) = (Values::One(buffer, count), Values::None, Values::One(result, count));
    let call =
        Call { form, datatype, operation, destination, far, operands, compared, result, context, manner };
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { call.run(ep) }
}

unsafe extern "C" fn readwritev(
    ep: *mut fid_ep,
    pieces: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: u32,
    operation: u32,
    context: *mut c_void,
) -> isize {
    let (form, far, manner) = (Form::Fetch, Far::One(address, key), Manner::Usual);
    let (operands, compared, result) =
        (Values::Many(pieces, count), Values::None, Values::Many(results, result_count));
    let call =
        Call { form, datatype, operation, destination, far, operands, compared, result, context, manner };
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { call.run(ep) }
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buffer: *const c_void,
    count: usize,
    _: *mut c_void,
    compared: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    datatype: u32,
    operation: u32,
    context: *mut c_void,
) -> isize {
    let (form, far, manner) = (Form::Compare, Far::One(address, key), Manner::Usual);
    let (operands, compared, result) =
        (Values::One(buffer, count), Values::One(compared, count), Values::One(result, count));
    let call =
        Call { form, datatype, operation, destination, far, operands, compared, result, context, manner };
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { call.run(ep) }
}

unsafe extern "C" fn compwritev(
    ep: *mut fid_ep,
    pieces: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    compared: *const fi_ioc,
    _: *mut *mut c_void,
    compared_count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: u32,
    operation: u32,
    context: *mut c_void,
) -> isize {
    let (form, far, manner) = (Form::Compare, Far::One(address, key), Manner::Usual);
    let operands = Values::Many(pieces, count);
    let (compared, result) = (Values::Many(compared, compared_count), Values::Many(results, result_count));
    let call =
        Call { form, datatype, operation, destination, far, operands, compared, result, context, manner };
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { call.run(ep) }
}

/// Does what a message says.
///
/// # Safety
/// The contract of `fi_atomic(3)`.
unsafe fn by_message(
    ep: *mut fid_ep,
    message: *const fi_msg_atomic,
    form: Form,
    (compared, result): (Values, Values),
    flags: u64,
) -> isize {
    // SAFETY: the contract: NULL, or a message.
    let Ok(message) = (unsafe { copy(message) }) else { return -(libc::EINVAL as isize) };
    let call = said(&message, form, (compared, result), Manner::Flags(flags));
    // SAFETY: the contract.
    unsafe { call.run(ep) }
}

/// What a message says.
fn said<'a>(
    message: &fi_msg_atomic,
    form: Form,
    (compared, result): (Values, Values),
    manner: Manner<'a>,
) -> Call<'a> {
    Call {
        form,
        datatype: message.datatype,
        operation: message.op,
        destination: message.addr,
        far: Far::Many(message.rma_iov, message.rma_iov_count),
        operands: Values::Many(message.msg_iov, message.iov_count),
        compared,
        result,
        context: message.context,
        manner,
    }
}

/// Does what a message says when its time has come; with what there is before is fetched, and with what it is compared.
///
/// # Safety
/// The contract of `fi_atomic(3)`: what the message names is there.
pub(super) unsafe fn queue(
    endpoint: &Endpoint,
    message: &fi_msg_atomic,
    fetched: Option<&fi_msg_fetch>,
    compared: Option<&fi_msg_compare>,
    (flags, ticket): (u64, &Ticket),
) -> Outcome<usize> {
    let form = match (fetched, compared) {
        (None, _) => Form::Base,
        (Some(_), None) => Form::Fetch,
        (Some(_), Some(_)) => Form::Compare,
    };
    let result = fetched.map_or(Values::None, |fetched| Values::Many(fetched.msg_iov, fetched.iov_count));
    let compared = compared.map_or(Values::None, |with| Values::Many(with.msg_iov, with.iov_count));
    // SAFETY: the contract.
    unsafe { said(message, form, (compared, result), Manner::Queued(flags, ticket)).begin(endpoint) }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, message: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { by_message(ep, message, Form::Base, (Values::None, Values::None), flags) }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut fid_ep,
    message: *const fi_msg_atomic,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let values = (Values::None, Values::Many(results, result_count));
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { by_message(ep, message, Form::Fetch, values, flags) }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut fid_ep,
    message: *const fi_msg_atomic,
    compared: *const fi_ioc,
    _: *mut *mut c_void,
    compared_count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let values = (Values::Many(compared, compared_count), Values::Many(results, result_count));
    // SAFETY: the contract of `fi_atomic(3)`.
    unsafe { by_message(ep, message, Form::Compare, values, flags) }
}

/// How many values of a kind one operation takes.
fn most(datatype: u32, operation: u32, form: Form) -> Outcome<fi_atomic_attr> {
    let amo = Amo::new(operation, datatype, form).ok_or(Errno(libc::EOPNOTSUPP))?;
    let size = amo.datatype().size();
    Ok(fi_atomic_attr { count: MOST_VALUES / size, size })
}

/// Answers a question of whether there is such an operation.
///
/// # Safety
/// The contract of `fi_atomicvalid(3)`.
unsafe fn valid(datatype: u32, operation: u32, form: Form, count: *mut usize) -> c_int {
    guard("fi_atomicvalid", || {
        let most = most(datatype, operation, form)?;
        // SAFETY: the contract: NULL, or a variable of the caller's.
        unsafe { Out::new(count) }?.write(most.count);
        Ok(())
    })
}

unsafe extern "C" fn writevalid(_: *mut fid_ep, datatype: u32, operation: u32, count: *mut usize) -> c_int {
    // SAFETY: the contract of `fi_atomicvalid(3)`.
    unsafe { valid(datatype, operation, Form::Base, count) }
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: u32,
    operation: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: the contract of `fi_fetch_atomicvalid(3)`.
    unsafe { valid(datatype, operation, Form::Fetch, count) }
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: u32,
    operation: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: the contract of `fi_compare_atomicvalid(3)`.
    unsafe { valid(datatype, operation, Form::Compare, count) }
}

/// What a domain says of an operation, `fi_query_atomic(3)`.
///
/// # Safety
/// NULL, or a variable of the caller's.
pub(in super::super) unsafe fn query(
    datatype: u32,
    operation: u32,
    to: *mut fi_atomic_attr,
    flags: u64,
) -> Outcome<()> {
    let form = match flags {
        0 => Form::Base,
        sys::FI_FETCH_ATOMIC => Form::Fetch,
        sys::FI_COMPARE_ATOMIC => Form::Compare,
        // Buffers of tagged receives are no targets.
        _ if flags & sys::FI_TAGGED != 0 => return Err(Errno(libc::EOPNOTSUPP)),
        _ => return Err(Errno::BADFLAGS),
    };
    let most = most(datatype, operation, form)?;
    // SAFETY: the contract.
    unsafe { Out::new(to) }?.write(most);
    Ok(())
}
