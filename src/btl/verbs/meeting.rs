//! What a process publishes of itself, and what it learns of a peer from what that has published, by the wire that is spoken.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use super::choice::pair;
use super::line::Port;
use crate::btl::Host;
use crate::engine::cm::{self, Dialect};
use crate::wire::openib::{self, Listener, Transport};
use crate::wire::verbs;

/// The keys of the records. HOST: that of openib's is its name with the numbers of the Open MPI that had it last
/// (`mca_base_component_to_string`, 4.1).
const OWN: &CStr = c"hawser.btl.verbs";
pub(super) const OPENIB: &CStr = c"btl.openib.4.1";

/// What is published.
pub(super) enum Published {
    Own(verbs::Record),
    Openib(openib::Record),
}

/// What is published of a port, this BTL's own wire.
fn own(port: &Port) -> verbs::Port {
    verbs::Port {
        at: port.at,
        prefix: port.prefix,
        network: port.network,
        reads: port.reads[0],
        speed: port.speed,
    }
}

/// The same for openib.
///
/// HOST: openib has 0 for the subnet of every Ethernet port, so that ports are paired by their order alone: it looks its
/// addresses up in a list that it makes later (`init_one_port`, `rdmacm_component_init`, 4.1.4).
fn openibs(port: &Port) -> openib::Port {
    let listener = match port.at {
        SocketAddr::V4(at) => Some(Listener { at, reads: port.reads }),
        SocketAddr::V6(_) => None,
    };
    let transport = Some(Transport::Roce);
    openib::Port { subnet: 0, mtu: port.mtu, device: port.device, transport, listener }
}

impl Published {
    /// Of a process with these ports and queues, in this life.
    pub(super) fn of<'a>(
        dialect: Dialect,
        ports: impl Iterator<Item = &'a Port>,
        life: (u64, String),
    ) -> Self {
        match dialect {
            Dialect::Own => {
                let (nonce, queues) = life;
                Self::Own(verbs::Record { nonce, queues, ports: ports.map(own).collect() })
            }
            Dialect::Openib => Self::Openib(openib::Record { ports: ports.map(openibs).collect() }),
        }
    }

    /// Under which key.
    pub(super) const fn key(&self) -> &'static CStr {
        match self {
            Self::Own(_) => OWN,
            Self::Openib(_) => OPENIB,
        }
    }

    /// As bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Own(record) => record.to_bytes(),
            Self::Openib(record) => record.to_bytes(),
        }
    }

    /// Why nothing is known of a process that has published nothing under the same key, if that is because it speaks
    /// another wire.
    pub(super) fn why_not(&self, name: u64, host: &impl Host) -> Option<&'static str> {
        let (other, why) = match self {
            Self::Own(_) => (
                OPENIB,
                "it speaks openib's wire, and this process does not (--mca btl_openib_wire openib, or btl_verbs_wire)",
            ),
            Self::Openib(_) => (OWN, "it speaks the wire own, and this process openib's"),
        };
        host.published_by_now(other, name).is_ok().then_some(why)
    }

    /// Where the port of this place connects to a process that has published this, and how many reads that serves.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn meet(&self, place: usize, name: u64, bytes: &[u8]) -> Result<(cm::Peer, u8), String> {
        match self {
            Self::Own(ours) => meet_own(ours, place, name, bytes),
            Self::Openib(ours) => meet_openib(ours, place, name, bytes),
        }
    }
}

fn meet_own(ours: &verbs::Record, place: usize, name: u64, bytes: &[u8]) -> Result<(cm::Peer, u8), String> {
    let record = verbs::Record::parse(bytes).ok_or("it has published a record of another version")?;
    if record.queues != ours.queues {
        return Err(format!(
            "it has other receive queues ({} there, {} here); all processes of a job must agree",
            record.queues, ours.queues
        ));
    }
    let listener = pair(&ours.ports, &record.ports, place).ok_or("none of its ports is in our networks")?;
    let port = record.ports[listener];
    let peer = cm::Peer { process: name, nonce: record.nonce, listener: listener as u8, address: port.at };
    Ok((peer, port.reads))
}

fn meet_openib(
    ours: &openib::Record,
    place: usize,
    name: u64,
    bytes: &[u8],
) -> Result<(cm::Peer, u8), String> {
    let record = openib::Record::parse(bytes).ok_or("it has published what is no record of openib's")?;
    let port = ours.pair(&record, place).ok_or("none of its ports is in our networks")?;
    let port = record.ports[port];
    if port.transport != ours.ports[place].transport {
        return Err("its port speaks something else than ours of that network".to_owned());
    }
    let listener = port.listener.filter(|listener| !IpAddr::V4(*listener.at.ip()).is_unspecified()).ok_or(
        "its connections are not made by rdma_cm (openib withdraws that where its first receive queue is not private)",
    )?;
    let peer = cm::Peer { process: name, nonce: 0, listener: 0, address: SocketAddr::V4(listener.at) };
    Ok((peer, listener.reads[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    fn record(listener: Option<Listener>, transport: Transport) -> openib::Record {
        let port = openib::Port { subnet: 1, mtu: 3, device: [0; 2], transport: Some(transport), listener };
        openib::Record { ports: vec![port] }
    }

    #[test]
    fn a_stock_peer_is_met_where_rdma_cm_listens_and_both_speak_the_same() {
        let at = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 77);
        let listener = Some(Listener { at, reads: [9, 1] });
        let ours = Published::Openib(record(listener, Transport::Roce));
        let met = |theirs: openib::Record| ours.meet(0, 5, &theirs.to_bytes());
        let (peer, reads) = met(record(listener, Transport::Roce)).expect("a peer");
        assert_eq!((peer.process, peer.nonce, peer.address, reads), (5, 0, SocketAddr::V4(at), 9));
        assert!(met(record(None, Transport::Roce)).is_err_and(|why| why.contains("rdma_cm")));
        assert!(met(record(listener, Transport::InfiniBand)).is_err_and(|why| why.contains("else")));
        assert!(met(openib::Record { ports: Vec::new() }).is_err_and(|why| why.contains("networks")));
        assert!(ours.meet(0, 5, &[3]).is_err_and(|why| why.contains("no record")));
        assert_eq!((ours.key(), ours.to_bytes()), (OPENIB, record(listener, Transport::Roce).to_bytes()));
    }
}
