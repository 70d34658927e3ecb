//! State that is borrowed for the span of one closure and no longer.

mod cell;

pub use cell::EngineCell;
