//! The smcuda BTL: messages between the processes of a node, through memory that they share.
//!
//! A short message goes into the sender's ring for the receiver, header and payload in one copy, and is delivered
//! from there; a long one is announced, and the receiver copies it from the sender's memory itself, where
//! the system lets it, or else it goes through the ring in fragments. `shm` is the memory; here is who
//! talks to whom: `record` what a process publishes, `peer` one peer, `state` all of them and what is to be
//! done next, `meeting` how they come and go, `loss` how they are lost, `component` what the host sees of it.
//!
//! Memory of CUDA devices is copied by the devices: `device` has what is registered and under way (`device_serve` and
//! `device_get` the two sides), `ipc` the hand-shake with a peer, `staging` the slots by way of which goes what a
//! peer cannot open, `wire` the messages of all that.
//!
//! It answers to `opal/mca/btl/smcuda`, whose name and parameters it has. Nothing of what lies in memory is that
//! component's: both ends must be this one, and a process that runs another publishes another record.

#![forbid(unsafe_code)]

#[cfg(test)]
mod closed_tests;
mod component;
mod counters;
mod device;
mod device_get;
mod device_serve;
mod errands;
mod ipc;
#[cfg(test)]
mod lives_model;
#[cfg(test)]
mod lives_tests;
mod loss;
mod meeting;
mod parameters;
mod peer;
mod record;
mod staging;
mod state;
mod strangers;
#[cfg(test)]
mod strangers_tests;
#[cfg(test)]
mod tests;
mod wire;

pub use component::Smcuda;
