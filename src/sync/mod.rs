//! State that is borrowed for the span of one closure and no longer, and threads of our own.

mod barrier;
mod cell;
mod thread;

pub use cell::{Bars, EngineCell};
pub use thread::spawn;
