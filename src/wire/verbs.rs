//! What the verbs BTL says to its peers: the record that it publishes, and messages over a connection.

mod message;
mod record;

pub use message::{Control, HEADER, Header, LONGEST_CONTROL, QUEUES, Word};
pub use record::{Network, Port, Record};
