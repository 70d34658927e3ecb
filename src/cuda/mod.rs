//! Owned objects over the CUDA driver, where the program has loaded it (CUDA driver API).
//!
//! `library` holds the driver's entry points, `context` makes contexts current, `pointer` says what an address
//! is, `host_memory` what surely is the host's and `host_pages` what has been so and still is, `memory` has copies, allocations and pinned ranges, `stream`
//! streams and events, `share` memory that other processes open. Every object holds the driver and its context, and gives itself back when it is
//! dropped; where its context has gone before, or the driver at the process's end, nothing is left to be given
//! back, and the driver's refusal is not an error.
//!
//! Nothing here begins to use CUDA: the program does, and until then there is no driver, and no device memory.

mod context;
#[cfg(test)]
pub(crate) mod fake;
mod host_memory;
pub mod host_pages;
mod library;
mod memory;
mod pointer;
pub mod share;
mod stream;
mod sys;

pub use context::{Context, Entered, Primary};
pub use host_memory::is_surely_host;
pub use library::{Driver, Error, Result};
pub use memory::{Allocation, Registration, Transfer};
pub use pointer::{Device, Place};
pub use stream::{Event, Stream};
