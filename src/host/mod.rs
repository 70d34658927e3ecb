//! The only folder that knows Open MPI.
//!
//! [`construct`] recognises the host when the library is loaded and fills in the exported component
//! structures, or leaves them empty, and the host then declines us itself. `mtl` and `btl` hold the entry
//! points, written once for every [`Abi`] and every transport; `sys` holds the layouts that all versions
//! share, `v4_1` and `v5_0` what differs; `object` is the host's
//! class system, `copy_hook` looks at copies of the host's own code, `params`, `pvars` and `services` are the host's services. [`listing`] is what
//! can be set and read, for tools.

mod abi;
mod accelerator;
pub mod btl;
mod component;
pub mod components;
pub mod construct;
mod copy_hook;
mod entry;
mod foreign;
mod guard;
mod inherited;
pub mod listing;
mod mtl;
mod object;
mod params;
mod pvars;
mod released;
mod services;
mod symbols;
pub mod sys;
pub mod v4_1;
pub mod v5_0;
pub mod verify;

pub use abi::{Abi, ProcessFacts};
