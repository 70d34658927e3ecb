//! What the GNI provider says: names, and what travels between its endpoints.

pub mod amo;
pub mod cm;
pub mod context;
pub mod datagram;
pub mod envelope;
pub mod mailbox;
pub mod name;
pub mod remote;
pub mod stream;
