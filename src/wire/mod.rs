//! Bytes and bits to values and back. Nothing here calls anything.

#![forbid(unsafe_code)]

pub mod announcement;
mod bitmap;
pub mod coalesced;
pub mod gni;
mod kind;
pub mod modex;
pub mod openib;
pub mod probe;
pub mod protection;
pub mod run;
mod siphash;
pub mod tag;
mod tagging;
pub mod usnic;
pub mod verbs;
