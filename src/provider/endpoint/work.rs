//! Work that a domain queues (`FI_QUEUE_WORK`, `fi_trigger(3)`): operations of its endpoints that begin when a counter has
//! come so far, of failures and of what went well, and changes of counters that wait for others.
//!
//! What C says is read when it is queued, and what its memory holds when it begins. Such an operation is counted by the
//! counter that is named with it and by none of its endpoint, and has an entry only where `FI_COMPLETION` asks for one.

use std::sync::Arc;

use super::super::argument::{Foreign, copy};
use super::super::cntr::Counter;
use super::super::domain::Domain;
use super::super::errno::{Errno, Outcome};
use super::super::object::body;
use super::super::sys::{
    self, DeferredWork, fi_op_atomic, fi_op_cntr, fi_op_compare_atomic, fi_op_fetch_atomic, fi_op_msg,
    fi_op_rma, fi_op_tagged, fid_cntr, fid_ep,
};
use super::super::traffic::{Instead, Trigger, Work};
use super::scalable::Side;
use super::transfer::{Manner, Memory, data_of, plain, tagged};
use super::{Endpoint, atomic, rma};

/// When something is to begin, and what counts its end.
pub(super) struct Ticket {
    /// What C calls it.
    work: Foreign,
    trigger: Trigger,
    completes: Option<Arc<Counter>>,
}

impl Ticket {
    /// What counts its end.
    pub(super) fn instead(&self) -> Box<Instead> {
        Box::new(Instead(self.completes.clone()))
    }
}

impl Endpoint {
    /// Has something begin when its time has come.
    #[cold]
    #[inline(never)]
    pub(super) fn queue(&self, slot: u32, ticket: &Ticket, work: Work) -> Outcome<()> {
        let Ticket { work: id, trigger, .. } = ticket;
        self.domain.traffic.with(|traffic| traffic.defer(Some(slot), trigger.clone(), work, Some(*id)))
    }
}

/// A counter of a domain.
///
/// # Safety
/// NULL, or a counter that is open.
unsafe fn counter(domain: &Arc<Domain>, of: *const fid_cntr) -> Outcome<Arc<Counter>> {
    // SAFETY: the contract.
    let counter = unsafe { body::<Counter>(of) }?;
    if Arc::ptr_eq(counter.domain(), domain) { Ok(Arc::clone(counter)) } else { Err(Errno::DOMAIN) }
}

/// An endpoint of a domain, or a context of one, if it is of this side.
///
/// # Safety
/// NULL, or an endpoint that is open.
unsafe fn endpoint<'a>(domain: &Arc<Domain>, of: *const fid_ep, side: Side) -> Outcome<&'a Arc<Endpoint>> {
    // SAFETY: the contract.
    let endpoint = unsafe { body::<Endpoint>(of) }?;
    if endpoint.side().is_some_and(|own| own != side) {
        return Err(Errno::INVAL);
    }
    if Arc::ptr_eq(endpoint.domain(), domain) { Ok(endpoint) } else { Err(Errno::DOMAIN) }
}

/// Queues a piece of work.
///
/// # Safety
/// The contract of `fi_trigger(3)`: what is named is there until the work has ended, or is cancelled.
pub(in super::super) unsafe fn queue(domain: &Arc<Domain>, work: *const DeferredWork) -> Outcome<()> {
    // SAFETY: the contract.
    let told = unsafe { copy(work) }?;
    // SAFETY: the contract.
    let triggering = unsafe { counter(domain, told.triggering_cntr) }?;
    let completes = if told.completion_cntr.is_null() {
        None
    } else {
        // SAFETY: the contract.
        Some(unsafe { counter(domain, told.completion_cntr) }?)
    };
    let trigger = Trigger { counter: triggering, threshold: told.threshold, counts_failures: true };
    let ticket = Ticket { work: Foreign(work.cast_mut().cast()), trigger, completes };
    match told.op_type {
        // SAFETY: the contract; what this type says is behind it.
        sys::FI_OP_SEND | sys::FI_OP_RECV => unsafe { message(domain, told, &ticket) },
        // SAFETY: the same.
        sys::FI_OP_TSEND | sys::FI_OP_TRECV => unsafe { tagged_message(domain, told, &ticket) },
        sys::FI_OP_READ | sys::FI_OP_WRITE => {
            // SAFETY: the same.
            let op = unsafe { copy(told.op.cast::<fi_op_rma>()) }?;
            // SAFETY: the same.
            let endpoint = unsafe { endpoint(domain, op.ep, Side::Transmit) }?;
            let is_read = told.op_type == sys::FI_OP_READ;
            // SAFETY: the same.
            unsafe { rma::queue(endpoint, is_read, &op.msg, (op.flags, &ticket)) }
        }
        sys::FI_OP_ATOMIC => {
            // SAFETY: the same.
            let op = unsafe { copy(told.op.cast::<fi_op_atomic>()) }?;
            // SAFETY: the same.
            let endpoint = unsafe { endpoint(domain, op.ep, Side::Transmit) }?;
            // SAFETY: the same.
            unsafe { atomic::queue(endpoint, &op.msg, None, None, (op.flags, &ticket)) }
        }
        sys::FI_OP_FETCH_ATOMIC => {
            // SAFETY: the same.
            let op = unsafe { copy(told.op.cast::<fi_op_fetch_atomic>()) }?;
            // SAFETY: the same.
            let endpoint = unsafe { endpoint(domain, op.ep, Side::Transmit) }?;
            // SAFETY: the same.
            unsafe { atomic::queue(endpoint, &op.msg, Some(&op.fetch), None, (op.flags, &ticket)) }
        }
        sys::FI_OP_COMPARE_ATOMIC => {
            // SAFETY: the same.
            let op = unsafe { copy(told.op.cast::<fi_op_compare_atomic>()) }?;
            // SAFETY: the same.
            let endpoint = unsafe { endpoint(domain, op.ep, Side::Transmit) }?;
            let (fetched, compared) = (Some(&op.fetch), Some(&op.compare));
            // SAFETY: the same.
            unsafe { atomic::queue(endpoint, &op.msg, fetched, compared, (op.flags, &ticket)) }
        }
        sys::FI_OP_CNTR_SET | sys::FI_OP_CNTR_ADD if ticket.completes.is_some() => Err(Errno::INVAL),
        sys::FI_OP_CNTR_SET | sys::FI_OP_CNTR_ADD => {
            // SAFETY: the same.
            let op = unsafe { copy(told.op.cast::<fi_op_cntr>()) }?;
            // SAFETY: the same.
            let counter = unsafe { counter(domain, op.cntr) }?;
            let is_set = told.op_type == sys::FI_OP_CNTR_SET;
            let count = Work::Count { counter, value: op.value, is_set };
            let Ticket { work: id, trigger, .. } = ticket;
            domain.traffic.with(|traffic| traffic.defer(None, trigger, count, Some(id))).map(|()| 0)
        }
        _ => Err(Errno::NOSYS),
    }
    .map(|_| ())
}

/// A message without a tag, sent or received.
///
/// # Safety
/// As [`queue`]; the work is of such a message.
unsafe fn message(domain: &Arc<Domain>, told: DeferredWork, ticket: &Ticket) -> Outcome<usize> {
    // SAFETY: the contract.
    let op = unsafe { copy(told.op.cast::<fi_op_msg>()) }?;
    let side = if told.op_type == sys::FI_OP_RECV { Side::Receive } else { Side::Transmit };
    // SAFETY: the contract.
    let endpoint = unsafe { endpoint(domain, op.ep, side) }?;
    let memory = Memory::Many(op.msg.msg_iov, op.msg.iov_count);
    // SAFETY: the contract: readable, or writable, until the operation has ended.
    let buffer = unsafe { memory.buffer() }?;
    if told.op_type == sys::FI_OP_RECV {
        let from = (op.msg.addr, None);
        return endpoint.receive_queued(buffer, from, op.msg.context, (op.flags, ticket));
    }
    let label = plain(data_of(op.msg.data, op.flags));
    let manner = Manner::Queued(op.flags, ticket);
    endpoint.send(buffer, op.msg.addr, label, op.msg.context, manner).map(|()| 0)
}

/// One with a tag.
///
/// # Safety
/// As [`queue`]; the work is of such a message.
unsafe fn tagged_message(domain: &Arc<Domain>, told: DeferredWork, ticket: &Ticket) -> Outcome<usize> {
    // SAFETY: the contract.
    let op = unsafe { copy(told.op.cast::<fi_op_tagged>()) }?;
    let side = if told.op_type == sys::FI_OP_TRECV { Side::Receive } else { Side::Transmit };
    // SAFETY: the contract.
    let endpoint = unsafe { endpoint(domain, op.ep, side) }?;
    let memory = Memory::Many(op.msg.msg_iov, op.msg.iov_count);
    // SAFETY: the contract: readable, or writable, until the operation has ended.
    let buffer = unsafe { memory.buffer() }?;
    if told.op_type == sys::FI_OP_TRECV {
        let from = (op.msg.addr, Some((op.msg.tag, op.msg.ignore)));
        return endpoint.receive_queued(buffer, from, op.msg.context, (op.flags, ticket));
    }
    let label = tagged(op.msg.tag, data_of(op.msg.data, op.flags));
    let manner = Manner::Queued(op.flags, ticket);
    endpoint.send(buffer, op.msg.addr, label, op.msg.context, manner).map(|()| 0)
}

/// `struct fi_context2` is as long as eight pointers: what is read of work comes behind it.
const _: () = assert!(std::mem::offset_of!(DeferredWork, threshold) == 64);
