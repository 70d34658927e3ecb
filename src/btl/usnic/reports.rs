//! What users are told about peers, in their own words.

use super::agent::{Finding, Site};
use super::{EndpointId, Place};
use crate::btl::{Host, Upcalls};
use crate::engine::End;
use crate::error::Error;

/// What users call a process: its rank, and the number of its job in the job's family.
pub(super) fn title(name: u64) -> String {
    format!("rank {} of job {}", name >> 32, name & 0xFFFF)
}

/// A peer is lost.
pub(super) fn tell_loss(name: u64, end: Option<End>, host: &impl Host) {
    host.notice("peer lost", &format!("btl_usnic: {} no longer answers: {}", title(name), why(end)));
}

/// By what a peer is known to have ended, and which parameter says how much of that is borne.
fn why(end: Option<End>) -> &'static str {
    match end {
        Some(End::Said) => "its process has ended, as another process of its node says",
        Some(End::Refused) => {
            "its process has ended, or a packet filter of its host refuses everything, for longer than btl_usnic_refusal_timeout says"
        }
        Some(End::Silent) => {
            "its process has ended or is stopped, or its node or the network between is down, for longer than btl_usnic_peer_timeout says"
        }
        None => "its process has ended, or has ended the connection",
    }
}

/// The sockets of a module are closed. Its peers count as lost from now on.
pub(super) fn tell_broken(errno: i32, place: Option<Place>, peers: &[(EndpointId, u64)], up: &impl Upcalls) {
    let at = place.map_or_else(String::new, |place| format!(" of {place}"));
    let line = format!(
        "btl_usnic: something else in this process has closed the sockets{at} ({}): no message comes or goes there any more, and its {} peers count as lost",
        Error::System(errno),
        peers.len()
    );
    up.host().notice("sockets closed", &line);
    peers.iter().for_each(|&(endpoint, name)| up.doomed(endpoint, name, || {}));
}

/// Some datagrams do not reach a peer. If that is fatal, it counts as lost from now on.
pub(super) fn tell_unreached(name: u64, finding: &Finding, up: &impl Upcalls) {
    let (line, host) = (describe(name, finding), up.host());
    if !finding.is_fatal {
        if host.is_verbose() {
            host.say(&format!("{line}; but the peer has been heard of otherwise, so this job goes on"));
        }
        return;
    }
    up.doomed(finding.endpoint, name, || match (finding.short.0, finding.long.0) {
        (true, _) => host.notice("connectivity error: small ok, large bad", &line),
        (false, true) => host.notice("connectivity error: small bad, large ok", &line),
        (false, false) => host.notice("connectivity error: small bad, large bad", &line),
    });
}

/// Which datagrams do not get where, in one line.
fn describe(name: u64, finding: &Finding) -> String {
    let site = |site: &Site| format!("{} ({}, {})", site.host, site.interface, site.address);
    let come = |(come, length): (bool, usize)| {
        format!("of {length} bytes {}", if come { "were answered" } else { "were not" })
    };
    format!(
        "btl_usnic: {} does not reach {} on {}: datagrams {}, those {}, in {} tries within {:?}",
        site(&finding.from),
        title(name),
        site(&finding.to),
        come(finding.short),
        come(finding.long),
        finding.tries,
        finding.within
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_names_the_parameter_that_bounds_what_it_is_by_and_no_other() {
        let named = |end| ["refusal_timeout", "peer_timeout"].map(|name| why(end).contains(name));
        assert_eq!(named(Some(End::Refused)), [true, false]);
        assert_eq!(named(Some(End::Silent)), [false, true]);
        assert_eq!((named(Some(End::Said)), named(None)), ([false; 2], [false; 2]));
    }
}
