//! What the verbs BTL says to its peers: the record that it publishes, the private data with which connections are made,
//! and messages over a connection.

mod message;
pub mod private;
mod record;

pub use message::{Control, HEADER, Header, LONGEST_CONTROL, QUEUES, Word};
pub use record::{Network, Port, Record};
