//! The table of what reads and writes the memory of peers, `fi_rma(3)`.

use std::ffi::c_void;

use super::super::argument::{Foreign, array, copy};
use super::super::errno::{Errno, Outcome};
use super::super::guard::size;
use super::super::object::body;
use super::super::offer::{INJECT, MAX_MESSAGE};
use super::super::sys::{self, fi_msg_rma, fi_ops_rma, fi_rma_iov, fid_ep, iovec};
use super::super::traffic::buffer::Buffer;
use super::super::traffic::{Act, Reach, Work};
use super::Endpoint;
use super::transfer::{Manner, Memory};
use super::work::Ticket;
use crate::wire::gni::remote::{Place, Places};

pub(super) static MEMORY: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};

/// What all calls know that say how an operation ends.
pub(super) const OF_ALL: u64 = sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE
    | sys::FI_MORE
    | sys::FI_TRIGGER
    | sys::FI_FENCE;

/// What an operation is given besides what it does.
pub(super) struct Given<'a> {
    pub(super) destination: u64,
    pub(super) places: Places,
    pub(super) context: *mut c_void,
    pub(super) manner: Manner<'a>,
}

/// The memory that an operation has on this side.
pub(super) struct Buffers {
    pub(super) main: Buffer,
    pub(super) result: Buffer,
    pub(super) compared: Buffer,
}

impl Endpoint {
    /// Does something to the memory of a peer, as far as this endpoint may; `known` are the flags that the call has.
    pub(super) fn reach(&self, act: Act, buffers: Buffers, given: Given<'_>, known: u64) -> Outcome<usize> {
        let ready = self.ready()?;
        let manner = given.manner;
        let flags = manner.flags(&self.transmit_flags, known)?;
        let Buffers { main: buffer, result, compared } = buffers;
        let right = act.right();
        if self.caps & right != right {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let is_silent = manner.is_injected();
        let is_injected = (is_silent || flags & sys::FI_INJECT != 0) && act != Act::Get;
        let length = buffer.length();
        if is_injected && length + compared.length() > INJECT {
            return Err(Errno::INVAL);
        }
        if length > MAX_MESSAGE {
            return Err(Errno(libc::EMSGSIZE));
        }
        let is_selective = ready.transmit.as_ref().map(|direction| direction.is_selective);
        let reach = Reach {
            context: Foreign(given.context),
            destination: self.destination(given.destination)?,
            act,
            places: given.places,
            buffer,
            result,
            compared,
            wants: manner.wants(flags, is_selective),
            is_injected,
            is_silent,
            is_fenced: flags & sys::FI_FENCE != 0,
            instead: manner.ticket().map(Ticket::instead),
        };
        if let Some(ticket) = manner.ticket() {
            return self.queue(ready.slot, ticket, Work::Reach(reach)).map(|()| 0);
        }
        if flags & sys::FI_TRIGGER != 0 {
            return self.defer(ready.slot, given.context, Work::Reach(reach)).map(|()| 0);
        }
        self.domain.traffic.with(|traffic| traffic.reach(ready.slot, reach))?;
        Ok(0)
    }
}

/// Memory of a peer, as C says it.
#[derive(Clone, Copy)]
enum Far {
    /// Address and key; it is as long as what is here.
    One(u64, u64),
    Many(*const fi_rma_iov, usize),
}

impl Far {
    /// The places of so many bytes in all.
    ///
    /// # Safety
    /// What is named is there.
    unsafe fn places(self, length: usize) -> Outcome<Places> {
        match self {
            Self::One(address, key) => Ok(Places::one(Place { key, address, length: length as u64 })),
            Self::Many(start, count) => {
                let mut places = Places::NOWHERE;
                // SAFETY: the contract: so many places.
                for place in unsafe { array(start, count) }? {
                    let place = Place { key: place.key, address: place.addr, length: place.len as u64 };
                    if !places.push(place) {
                        return Err(Errno::INVAL);
                    }
                }
                if places.total() == Some(length as u64) { Ok(places) } else { Err(Errno::INVAL) }
            }
        }
    }
}

/// Does something with memory here and memory of a peer.
///
/// # Safety
/// The contract of `fi_rma(3)`.
unsafe fn reach(
    ep: *mut fid_ep,
    act: Act,
    memory: Memory,
    (destination, far): (u64, Far),
    context: *mut c_void,
    manner: Manner<'_>,
) -> isize {
    size("fi_rma", || {
        // SAFETY: the contract: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the contract.
        unsafe { begin(endpoint, act, memory, (destination, far), context, manner) }
    })
}

/// The same of an endpoint.
///
/// # Safety
/// The contract of `fi_rma(3)`.
unsafe fn begin(
    endpoint: &Endpoint,
    act: Act,
    memory: Memory,
    (destination, far): (u64, Far),
    context: *mut c_void,
    manner: Manner<'_>,
) -> Outcome<usize> {
    let known = match act {
        Act::Get => OF_ALL & !sys::FI_INJECT,
        _ => OF_ALL | sys::FI_REMOTE_CQ_DATA,
    };
    // SAFETY: the contract: it is readable, or writable, until the operation has ended.
    let main = unsafe { memory.buffer() }?;
    // SAFETY: the contract.
    let places = unsafe { far.places(main.length()) }?;
    let buffers = Buffers { main, result: Buffer::NONE, compared: Buffer::NONE };
    endpoint.reach(act, buffers, Given { destination, places, context, manner }, known)
}

/// Does what a message says when its time has come.
///
/// # Safety
/// The contract of `fi_rma(3)`: what the message names is there.
pub(super) unsafe fn queue(
    endpoint: &Endpoint,
    is_read: bool,
    message: &fi_msg_rma,
    (flags, ticket): (u64, &Ticket),
) -> Outcome<usize> {
    let data = (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data);
    let act = if is_read { Act::Get } else { Act::Put(data) };
    let memory = Memory::Many(message.msg_iov, message.iov_count);
    let far = (message.addr, Far::Many(message.rma_iov, message.rma_iov_count));
    // SAFETY: the contract.
    unsafe { begin(endpoint, act, memory, far, message.context, Manner::Queued(flags, ticket)) }
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    source: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (memory, far) = (Memory::One(buffer, length), (source, Far::One(address, key)));
    // SAFETY: the contract of `fi_rma(3)`.
    unsafe { reach(ep, Act::Get, memory, far, context, Manner::Usual) }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    source: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (memory, far) = (Memory::Many(pieces, count), (source, Far::One(address, key)));
    // SAFETY: the contract of `fi_rma(3)`.
    unsafe { reach(ep, Act::Get, memory, far, context, Manner::Usual) }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (memory, far) = (Memory::One(buffer, length), (destination, Far::One(address, key)));
    // SAFETY: the contract of `fi_rma(3)`.
    unsafe { reach(ep, Act::Put(None), memory, far, context, Manner::Usual) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    destination: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (memory, far) = (Memory::Many(pieces, count), (destination, Far::One(address, key)));
    // SAFETY: the contract of `fi_rma(3)`.
    unsafe { reach(ep, Act::Put(None), memory, far, context, Manner::Usual) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    destination: u64,
    address: u64,
    key: u64,
) -> isize {
    let (memory, far) = (Memory::One(buffer, length), (destination, Far::One(address, key)));
    // SAFETY: the contract of `fi_rma(3)`.
    unsafe { reach(ep, Act::Put(None), memory, far, std::ptr::null_mut(), Manner::Injected) }
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    destination: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (memory, far) = (Memory::One(buffer, length), (destination, Far::One(address, key)));
    // SAFETY: the contract of `fi_rma(3)`.
    unsafe { reach(ep, Act::Put(Some(data)), memory, far, context, Manner::Usual) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
    address: u64,
    key: u64,
) -> isize {
    let (memory, far) = (Memory::One(buffer, length), (destination, Far::One(address, key)));
    // SAFETY: the contract of `fi_rma(3)`.
    unsafe { reach(ep, Act::Put(Some(data)), memory, far, std::ptr::null_mut(), Manner::Injected) }
}

/// What a message says.
///
/// # Safety
/// NULL, or a message.
unsafe fn parts(message: *const fi_msg_rma) -> Outcome<(fi_msg_rma, Memory, (u64, Far))> {
    // SAFETY: the contract.
    let message = unsafe { copy(message) }?;
    let memory = Memory::Many(message.msg_iov, message.iov_count);
    let far = Far::Many(message.rma_iov, message.rma_iov_count);
    Ok((message, memory, (message.addr, far)))
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the contract of `fi_rma(3)`: a message.
    let Ok((message, memory, far)) = (unsafe { parts(message) }) else { return -(libc::EINVAL as isize) };
    // SAFETY: the same.
    unsafe { reach(ep, Act::Get, memory, far, message.context, Manner::Flags(flags)) }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the contract of `fi_rma(3)`: a message.
    let Ok((message, memory, far)) = (unsafe { parts(message) }) else { return -(libc::EINVAL as isize) };
    let data = (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data);
    // SAFETY: the same.
    unsafe { reach(ep, Act::Put(data), memory, far, message.context, Manner::Flags(flags)) }
}
