//! State that is borrowed for the span of one closure and no longer, threads of our own, what becomes of descriptors, and what the
//! process unmaps, on any thread.

pub mod across;
mod barrier;
mod cell;
#[cfg(test)]
mod cell_model;
pub mod descriptor;
pub mod fork;
mod thread;
pub mod unmapped;

pub use cell::{Bars, EngineCell, Visit};
pub use thread::spawn;
