//! What libfabric sees of hawser as its provider `gni`: the top-level classes of the GNI provider's design, each a file
//! with the object and its C entries.
//!
//! * `sys`: libfabric's structures and numbers; `argument`: what C passes, made into values; `guard`: panics stop;
//!   `object`: what C holds of an object, and what it is.
//! * [`load`], `library`: `fi_prov_ini`, and the libfabric that called it.
//! * [`offer`], `info`, `resolve`: `fi_getinfo`.
//! * [`fabric`], [`domain`], [`eq`], [`cq`], [`cntr`], [`av`], `mr`, [`endpoint`], `pep`, `poll`, `wait_set`, `shared`: the classes; [`wait`],
//!   [`names`], `shared_names` and [`regions`]: what they are made of.
//! * `cm`, `watch`: connections of connected endpoints, and the sockets that an event queue looks at for them.
//! * [`traffic`]: what moves; [`helper`]: while the program does something else.
//!
//! A child of fork(2) has nothing of what its parent has opened: calls of it there answer `-FI_EOPBADSTATE`, and `fi_close`
//! does nothing.
//!
//! libfabric loads it from a folder that `FI_PROVIDER_PATH` names, and never links to it, nor it to libfabric. What an
//! object stands on is held by it, so that a program that closes in the wrong order is told `-FI_EBUSY`.

mod argument;
#[cfg(test)]
mod arm_model;
pub mod av;
mod cm;
pub mod cntr;
pub mod cq;
pub mod domain;
pub mod endpoint;
pub mod eq;
pub mod errno;
pub mod fabric;
mod guard;
pub mod helper;
mod info;
mod library;
pub mod load;
mod mr;
pub mod names;
mod nosys;
mod object;
pub mod offer;
mod pep;
mod poll;
pub mod regions;
mod resolve;
mod shared;
mod shared_names;
mod strerror;
mod sys;
pub mod traffic;
pub mod wait;
#[cfg(test)]
mod wait_model;
mod wait_set;
mod watch;

pub use argument::Foreign;
pub use load::fi_prov_ini;
