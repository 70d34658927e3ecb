//! The verbs BTL.

#![forbid(unsafe_code)]

mod credit;
mod lender;
mod queues;
mod slots;
