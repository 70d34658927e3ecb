//! What the GNI provider says to its peers.

pub mod datagram;
