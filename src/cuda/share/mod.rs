//! Device memory that other processes of the node open: one exports a piece of it, another imports it and copies.
//!
//! [`Exports`] has what this process lets others open, as [`Exported`]: bytes that are sent to them. [`Imports`] has
//! what it has opened of one other process's, and keeps it open, because opening is expensive. [`Copies`] are made
//! by devices while the program goes on, and asked for later. [`Bounce`] is memory of the host's that all of them
//! reach fast. Which context is used for which device is for [`Contexts`] to say, which they share.

mod bounce;
mod calls;
mod contexts;
mod copies;
mod export;
mod exported;
mod import;
mod lent;
mod process;

pub use bounce::Bounce;
pub use contexts::Contexts;
pub use copies::{Copies, Limits};
pub use export::{Exports, FILES};
pub use exported::{Exported, Kind, Process, Uuid};
pub use import::{Bounds, Counts, Imports, Opened};

/// Why device memory of another process is not opened, or none is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no device that could take part.
    NoDevice,
    /// No device here reaches that of the other.
    NoPeerAccess,
    /// The driver does not open it: another container, a part of a device, memory that has gone, another driver.
    NotOpened,
    /// The program has no context yet, or none any more; or a device has no room just now.
    NotReady,
}
