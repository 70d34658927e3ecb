//! State that is borrowed for the span of one closure and no longer, and threads of our own.

pub mod across;
mod barrier;
mod cell;
pub mod fork;
mod thread;

pub use cell::{Bars, EngineCell, Visit};
pub use thread::spawn;
