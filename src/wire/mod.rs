//! Bytes and bits to values and back. Nothing here calls anything.

#![forbid(unsafe_code)]

pub mod announcement;
pub mod modex;
pub mod probe;
pub mod protection;
pub mod run;
pub mod tag;
pub mod usnic;
