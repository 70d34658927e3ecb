//! What Open MPI 4.1's own openib BTL says to its peers, where its connections are made by rdma_cm: the record that it
//! publishes, the private data of its connections, and its messages. The verbs BTL says the same where it is asked to.
//!
//! Numbers are in the byte order of the machine: a build for machines that differ turns them around, and a debug build or one
//! that pads headers has others. Debian's is neither, and nothing on the wire tells them apart. It answers to
//! `opal/mca/btl/openib/btl_openib{.h,_component.c,_frag.h}` and `connect/btl_openib_connect_rdmacm.c`.

mod message;
mod private;
mod record;

pub use message::{Control, HEADER, Header, JOINED, Joined, LONGEST_CONTROL, OVERHEAD};
pub use private::{Private, Refusal};
pub use record::{Listener, Port, Record, Transport};
