//! What processes say to each other over verbs.

pub mod private;
