//! What the provider offers, and whether that is what somebody wants: `fi_getinfo(3)`, without its structures.
//!
//! Hints are taken at their word. Whatever is wanted and not here is `-FI_ENODATA`, so that no layer of libfabric's takes
//! this provider for one that it could stand on.

use std::ffi::{CStr, CString};
use std::ptr;

use super::argument::Foreign;
use super::errno::{Errno, Outcome};
use super::load::NAME;
use super::sys::{self, DomainAttr, EpAttr, fi_rx_attr, fi_tx_attr};
use crate::wire::gni::context;
use crate::wire::gni::name::Name;
use crate::wire::gni::remote::PLACES;

/// The fabric: all nodes that IP packets reach.
pub(super) const FABRIC: &CStr = c"gni";
/// The domain: the software Aries of this node.
pub(super) const DOMAIN: &CStr = c"gni0";

/// Longest message, bytes: as of the GNI provider.
pub(super) const MAX_MESSAGE: usize = u32::MAX as usize;
/// Longest message whose buffer is free again at once, bytes.
pub(super) const INJECT: usize = 192;
/// Operations that an endpoint has under way, on each side.
pub(super) const DEPTH: usize = 512;
/// Pieces of memory of one message.
pub(super) const PIECES: usize = 8;

/// A tag format in which every bit is the user's: `fi_endpoint(3)`.
const ALL_TAG_BITS: u64 = 0xAAAA_AAAA_AAAA_AAAA;

const DIRECTIONS: u64 = sys::FI_SEND | sys::FI_RECV;
const MESSAGES: u64 = sys::FI_MSG | sys::FI_TAGGED;
/// Operations on the memory of peers, those that begin them, and those that are their targets.
const MEMORY: u64 = sys::FI_RMA | sys::FI_ATOMIC;
const INITIATES: u64 = sys::FI_READ | sys::FI_WRITE;
const IS_TARGET: u64 = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
/// Only for those who ask for them.
const ON_REQUEST: u64 = MESSAGES
    | DIRECTIONS
    | MEMORY
    | INITIATES
    | IS_TARGET
    | sys::FI_DIRECTED_RECV
    | sys::FI_NAMED_RX_CTX
    | sys::FI_SOURCE
    | sys::FI_REMOTE_COMM;
/// For everybody.
const ALWAYS: u64 = sys::FI_MULTI_RECV
    | sys::FI_RMA_EVENT
    | sys::FI_FENCE
    | sys::FI_TRIGGER
    | sys::FI_SHARED_AV
    | sys::FI_LOCAL_COMM;
/// What concerns a domain: address vectors have names; peers of this node are reached, and of others.
const OF_DOMAIN: u64 = sys::FI_SHARED_AV | sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
const CAPS: u64 = ON_REQUEST | ALWAYS;
/// What concerns a transmit context.
const TRANSMIT: u64 =
    MESSAGES | MEMORY | sys::FI_NAMED_RX_CTX | sys::FI_SEND | INITIATES | sys::FI_FENCE | sys::FI_TRIGGER;
/// What concerns a receive context.
const RECEIVE: u64 = MESSAGES
    | MEMORY
    | sys::FI_RECV
    | IS_TARGET
    | sys::FI_DIRECTED_RECV
    | sys::FI_SOURCE
    | sys::FI_MULTI_RECV
    | sys::FI_RMA_EVENT
    | sys::FI_TRIGGER;
const ORDER: u64 = sys::FI_ORDER_SAS
    | sys::FI_ORDER_RAR
    | sys::FI_ORDER_RAW
    | sys::FI_ORDER_WAR
    | sys::FI_ORDER_WAW
    | sys::FI_ORDER_RMA_AND_ATOMIC;
const TRANSMIT_FLAGS: u64 = sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE;
const RECEIVE_FLAGS: u64 = sys::FI_COMPLETION | sys::FI_MULTI_RECV;

/// What somebody wants, as far as it was said.
pub(super) struct Wanted {
    pub(super) caps: u64,
    pub(super) addr_format: u32,
    /// What it is an endpoint of: a connection that somebody wants, or a passive end.
    pub(super) handle: Foreign,
    pub(super) source: Option<Name>,
    pub(super) target: Option<Name>,
    pub(super) tx: Option<fi_tx_attr>,
    pub(super) rx: Option<fi_rx_attr>,
    pub(super) ep: Option<EpAttr>,
    pub(super) domain: Option<DomainAttr>,
    pub(super) domain_name: Option<CString>,
    pub(super) fabric_name: Option<CString>,
    pub(super) provider_name: Option<CString>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            caps: 0,
            addr_format: 0,
            handle: Foreign::NULL,
            source: None,
            target: None,
            tx: None,
            rx: None,
            ep: None,
            domain: None,
            domain_name: None,
            fabric_name: None,
            provider_name: None,
        }
    }
}

// SAFETY: addresses in the attributes are never followed.
unsafe impl Send for Wanted {}
// SAFETY: the same.
unsafe impl Sync for Wanted {}

/// What is offered. Pointers in the structures are null.
pub(super) struct Offer {
    pub(super) caps: u64,
    pub(super) addr_format: u32,
    pub(super) tx: fi_tx_attr,
    pub(super) rx: fi_rx_attr,
    pub(super) ep: EpAttr,
    pub(super) domain: DomainAttr,
}

/// The first, unless it is 0.
fn given<T: Default + PartialEq>(wish: T, otherwise: T) -> T {
    if wish == T::default() { otherwise } else { wish }
}

/// All of this holds.
fn require(conditions: &[bool]) -> Outcome<()> {
    if conditions.iter().all(|holds| *holds) { Ok(()) } else { Err(Errno::NODATA) }
}

/// The offer of endpoints of this type for a program of this interface version that wants that.
pub(super) fn make(version: u32, kind: u32, wanted: Option<&Wanted>) -> Outcome<Offer> {
    let nothing = Wanted::default();
    let wanted = wanted.unwrap_or(&nothing);
    let name_is = |name: &Option<CString>, own: &CStr| name.as_deref().is_none_or(|name| name == own);
    let is_ours = |name: &CString| name.as_bytes().eq_ignore_ascii_case(NAME.to_bytes());
    // What is connected has one context on each side.
    let known = if kind == sys::FI_EP_MSG { CAPS & !sys::FI_NAMED_RX_CTX } else { CAPS };
    require(&[
        wanted.caps & !known == 0,
        matches!(wanted.addr_format, 0 | sys::FI_ADDR_GNI | sys::FI_ADDR_STR),
        name_is(&wanted.domain_name, DOMAIN),
        name_is(&wanted.fabric_name, FABRIC),
        wanted.provider_name.as_ref().is_none_or(is_ours),
    ])?;
    let caps = caps(wanted.caps) & known;
    Ok(Offer {
        caps,
        addr_format: given(wanted.addr_format, sys::FI_ADDR_GNI),
        tx: transmit(caps, wanted.tx.as_ref())?,
        rx: receive(caps, wanted.rx.as_ref())?,
        ep: endpoint(version, kind, wanted.ep.as_ref())?,
        domain: domain(version, kind, caps, wanted.domain.as_ref())?,
    })
}

/// All capabilities that follow from those that were asked for; from none, all.
fn caps(asked: u64) -> u64 {
    if asked == 0 {
        return CAPS & !(sys::FI_SOURCE | sys::FI_REMOTE_COMM);
    }
    let mut caps = asked & ON_REQUEST | ALWAYS;
    if caps & MESSAGES != 0 && caps & DIRECTIONS == 0 {
        caps |= DIRECTIONS;
    }
    if caps & MEMORY != 0 && caps & (INITIATES | IS_TARGET) == 0 {
        caps |= INITIATES | IS_TARGET;
    }
    caps
}

/// What a transmit context has, of an endpoint with these capabilities.
pub(super) fn transmit(caps: u64, wish: Option<&fi_tx_attr>) -> Outcome<fi_tx_attr> {
    let wish = wish.copied().unwrap_or_default();
    require(&[
        // What only concerns receives may be named here, too.
        wish.caps & !(caps | RECEIVE) == 0,
        wish.op_flags & !TRANSMIT_FLAGS == 0,
        wish.msg_order & !ORDER == 0,
        wish.comp_order == 0,
        wish.inject_size <= INJECT,
        wish.size <= DEPTH,
        wish.iov_limit <= PIECES,
        wish.rma_iov_limit <= PLACES,
    ])?;
    Ok(fi_tx_attr {
        caps: given(wish.caps & TRANSMIT, caps & TRANSMIT) | caps & (sys::FI_FENCE | sys::FI_TRIGGER),
        op_flags: wish.op_flags,
        msg_order: ORDER,
        inject_size: given(wish.inject_size, INJECT),
        size: given(wish.size, DEPTH),
        iov_limit: given(wish.iov_limit, PIECES),
        rma_iov_limit: given(wish.rma_iov_limit, PLACES),
        ..Default::default()
    })
}

/// The same of a receive context.
pub(super) fn receive(caps: u64, wish: Option<&fi_rx_attr>) -> Outcome<fi_rx_attr> {
    let wish = wish.copied().unwrap_or_default();
    require(&[
        wish.caps & !(caps | TRANSMIT) == 0,
        wish.op_flags & !RECEIVE_FLAGS == 0,
        wish.msg_order & !ORDER == 0,
        wish.comp_order == 0,
        wish.size <= DEPTH,
        wish.iov_limit <= PIECES,
    ])?;
    Ok(fi_rx_attr {
        caps: given(wish.caps & RECEIVE, caps & RECEIVE)
            | caps & (sys::FI_MULTI_RECV | sys::FI_RMA_EVENT | sys::FI_TRIGGER),
        op_flags: wish.op_flags,
        msg_order: ORDER,
        size: given(wish.size, DEPTH),
        iov_limit: given(wish.iov_limit, PIECES),
        ..Default::default()
    })
}

/// Contexts that an endpoint of this type has on each side, at most.
fn most_contexts(kind: u32) -> usize {
    if kind == sys::FI_EP_MSG { 1 } else { context::MOST }
}

fn endpoint(version: u32, kind: u32, wish: Option<&EpAttr>) -> Outcome<EpAttr> {
    let most = EpAttr {
        kind,
        protocol: sys::FI_PROTO_GNI,
        protocol_version: 1,
        max_msg_size: MAX_MESSAGE,
        msg_prefix_size: 0,
        max_order_raw_size: MAX_MESSAGE,
        max_order_war_size: MAX_MESSAGE,
        max_order_waw_size: MAX_MESSAGE,
        mem_tag_format: ALL_TAG_BITS,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: ptr::null_mut(),
    };
    let Some(wish) = wish else { return Ok(most) };
    require(&[
        matches!(wish.kind, 0) || wish.kind == kind,
        matches!(wish.protocol, 0 | sys::FI_PROTO_GNI),
        wish.protocol_version <= most.protocol_version,
        wish.max_msg_size <= most.max_msg_size,
        wish.max_order_raw_size <= most.max_order_raw_size,
        wish.max_order_war_size <= most.max_order_war_size,
        wish.max_order_waw_size <= most.max_order_waw_size,
        wish.tx_ctx_cnt <= most_contexts(kind) || wish.tx_ctx_cnt == sys::FI_SHARED_CONTEXT,
        wish.rx_ctx_cnt <= most_contexts(kind) || wish.rx_ctx_cnt == sys::FI_SHARED_CONTEXT,
        version < sys::version(1, 5) || wish.auth_key_size == 0,
    ])?;
    Ok(EpAttr {
        max_order_raw_size: given(wish.max_order_raw_size, most.max_order_raw_size),
        max_order_war_size: given(wish.max_order_war_size, most.max_order_war_size),
        max_order_waw_size: given(wish.max_order_waw_size, most.max_order_waw_size),
        tx_ctx_cnt: given(wish.tx_ctx_cnt, most.tx_ctx_cnt),
        rx_ctx_cnt: given(wish.rx_ctx_cnt, most.rx_ctx_cnt),
        ..most
    })
}

/// The attributes of a domain for somebody who wants nothing.
const ANY_DOMAIN: DomainAttr = DomainAttr {
    domain: ptr::null_mut(),
    name: ptr::null_mut(),
    threading: sys::FI_THREAD_SAFE,
    control_progress: sys::FI_PROGRESS_AUTO,
    data_progress: sys::FI_PROGRESS_MANUAL,
    resource_mgmt: sys::FI_RM_ENABLED,
    av_type: 0,
    mr_mode: 0,
    mr_key_size: size_of::<u64>(),
    cq_data_size: size_of::<u64>(),
    cq_cnt: 1024,
    ep_cnt: 1024,
    tx_ctx_cnt: 1024,
    rx_ctx_cnt: 1024,
    max_ep_tx_ctx: context::MOST,
    max_ep_rx_ctx: context::MOST,
    max_ep_stx_ctx: 1024,
    max_ep_srx_ctx: 1024,
    cntr_cnt: 1024,
    mr_iov_limit: 1,
    caps: OF_DOMAIN,
    mode: 0,
    auth_key: ptr::null_mut(),
    auth_key_size: 0,
    max_err_data: 0,
    mr_cnt: 1 << 20,
    tclass: 0,
};

fn domain(version: u32, kind: u32, caps: u64, wish: Option<&DomainAttr>) -> Outcome<DomainAttr> {
    let contexts = most_contexts(kind);
    let most = DomainAttr { max_ep_tx_ctx: contexts, max_ep_rx_ctx: contexts, ..ANY_DOMAIN };
    let mr_mode = registration(version, wish.map_or(0, |wish| wish.mr_mode), wish.is_some())?;
    let Some(wish) = wish else { return Ok(DomainAttr { mr_mode, caps: most.caps & caps, ..most }) };
    require(&[
        wish.threading <= sys::FI_THREAD_ENDPOINT,
        wish.control_progress <= sys::FI_PROGRESS_CONTROL_UNIFIED,
        wish.data_progress <= sys::FI_PROGRESS_MANUAL,
        wish.resource_mgmt <= sys::FI_RM_ENABLED,
        wish.av_type <= sys::FI_AV_TABLE,
        wish.mr_key_size <= most.mr_key_size,
        wish.cq_data_size <= most.cq_data_size,
        wish.cq_cnt <= most.cq_cnt,
        wish.ep_cnt <= most.ep_cnt,
        wish.tx_ctx_cnt <= most.tx_ctx_cnt,
        wish.rx_ctx_cnt <= most.rx_ctx_cnt,
        wish.max_ep_tx_ctx <= most.max_ep_tx_ctx,
        wish.max_ep_rx_ctx <= most.max_ep_rx_ctx,
        wish.max_ep_stx_ctx <= most.max_ep_stx_ctx,
        wish.max_ep_srx_ctx <= most.max_ep_srx_ctx,
    ])?;
    if version >= sys::version(1, 5) {
        require(&[
            wish.cntr_cnt <= most.cntr_cnt,
            wish.mr_iov_limit <= most.mr_iov_limit,
            wish.caps & !most.caps == 0,
            wish.auth_key_size == 0,
            wish.max_err_data == 0,
            wish.mr_cnt <= most.mr_cnt,
        ])?;
    }
    let data_progress = given(wish.data_progress, most.data_progress);
    Ok(DomainAttr {
        threading: given(wish.threading, most.threading),
        control_progress: given(wish.control_progress, most.control_progress),
        data_progress,
        resource_mgmt: given(wish.resource_mgmt, most.resource_mgmt),
        av_type: wish.av_type,
        mr_mode,
        caps: most.caps & (caps | wish.caps),
        ..most
    })
}

/// The mode of memory registration. In the bits of version 1.5 (fi_mr(3)) a provider leaves those that it needs, and
/// here none is needed: places are offsets, and keys the user's. Of the two words from before, each is taken as it is.
fn registration(version: u32, wish: i32, is_said: bool) -> Outcome<i32> {
    let is_word = matches!(wish, sys::FI_MR_BASIC | sys::FI_MR_SCALABLE);
    if is_word {
        return Ok(wish);
    }
    if version < sys::version(1, 5) {
        return if wish == 0 { Ok(sys::FI_MR_SCALABLE) } else { Err(Errno::NODATA) };
    }
    require(&[!is_said || wish & (sys::FI_MR_BASIC | sys::FI_MR_SCALABLE) == 0])?;
    Ok(0)
}

/// What a mode of registration means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Peers name places by addresses of the target, rather than by their distance from the start.
    pub virtual_addresses: bool,
    /// The provider makes the keys.
    pub provider_keys: bool,
}

impl Registration {
    pub(super) fn of_mode(mode: i32) -> Self {
        let is_basic = mode & sys::FI_MR_BASIC != 0;
        Self {
            virtual_addresses: is_basic || mode & sys::FI_MR_VIRT_ADDR != 0,
            provider_keys: is_basic || mode & sys::FI_MR_PROV_KEY != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: u32 = sys::version(1, 17);

    fn with(change: impl FnOnce(&mut Wanted)) -> Outcome<Offer> {
        let mut wanted = Wanted::default();
        change(&mut wanted);
        make(NEW, sys::FI_EP_RDM, Some(&wanted))
    }

    #[test]
    fn capabilities_follow_from_what_is_asked() {
        let of = |caps| with(|wanted| wanted.caps = caps).expect("an offer").caps;
        assert_eq!(
            make(NEW, sys::FI_EP_RDM, None).expect("an offer").caps,
            CAPS & !(sys::FI_SOURCE | sys::FI_REMOTE_COMM)
        );
        assert_eq!(of(sys::FI_MSG), sys::FI_MSG | DIRECTIONS | ALWAYS);
        assert_eq!(of(sys::FI_MSG | sys::FI_SEND), sys::FI_MSG | sys::FI_SEND | ALWAYS);
        assert_eq!(of(sys::FI_TAGGED), sys::FI_TAGGED | DIRECTIONS | ALWAYS);
        assert_eq!(of(sys::FI_SOURCE | sys::FI_TAGGED) & sys::FI_SOURCE, sys::FI_SOURCE);
        assert_eq!(of(sys::FI_RMA), sys::FI_RMA | INITIATES | IS_TARGET | ALWAYS);
        assert_eq!(of(sys::FI_ATOMIC | sys::FI_WRITE), sys::FI_ATOMIC | sys::FI_WRITE | ALWAYS);
        for bit in (0..64).map(|bit| 1 << bit) {
            let offer = with(|wanted| wanted.caps = bit);
            assert_eq!(offer.is_ok(), CAPS & bit != 0, "bit {bit:#x}");
            if let Ok(offer) = offer {
                assert_eq!(offer.tx.caps & !(TRANSMIT & offer.caps), 0);
                assert_eq!(offer.rx.caps & !(RECEIVE & offer.caps), 0);
            }
        }
    }

    #[test]
    fn the_type_that_is_asked_for_is_offered() {
        for kind in 0..8 {
            let of_kind = |wanted: &mut Wanted| wanted.ep = Some(EpAttr { kind, ..nothing_of_an_endpoint() });
            assert_eq!(with(of_kind).is_ok(), kind == 0 || kind == sys::FI_EP_RDM, "type {kind}");
        }
        let kind = make(NEW, sys::FI_EP_MSG, None).expect("an offer").ep.kind;
        assert_eq!(kind, sys::FI_EP_MSG);
        let shared = EpAttr { rx_ctx_cnt: sys::FI_SHARED_CONTEXT, ..nothing_of_an_endpoint() };
        let offer = with(|wanted| wanted.ep = Some(shared)).expect("an offer");
        assert_eq!((offer.ep.tx_ctx_cnt, offer.ep.rx_ctx_cnt), (1, sys::FI_SHARED_CONTEXT));
        let many = |tx_ctx_cnt| EpAttr { tx_ctx_cnt, ..shared };
        let offer = with(|wanted| wanted.ep = Some(many(context::MOST))).expect("an offer");
        assert_eq!((offer.ep.tx_ctx_cnt, offer.domain.max_ep_rx_ctx), (context::MOST, context::MOST));
        assert!(with(|wanted| wanted.ep = Some(many(context::MOST + 1))).is_err());
        let two = Wanted { ep: Some(many(2)), ..Wanted::default() };
        assert!(make(NEW, sys::FI_EP_MSG, Some(&two)).is_err());
        let named = Wanted { caps: sys::FI_MSG | sys::FI_NAMED_RX_CTX, ..Wanted::default() };
        assert!(make(NEW, sys::FI_EP_MSG, Some(&named)).is_err());
        assert_eq!(make(NEW, sys::FI_EP_MSG, None).expect("an offer").domain.max_ep_tx_ctx, 1);
        let long = EpAttr { max_msg_size: MAX_MESSAGE + 1, ..nothing_of_an_endpoint() };
        assert!(with(|wanted| wanted.ep = Some(long)).is_err());
        let keyed =
            Wanted { ep: Some(EpAttr { auth_key_size: 8, ..nothing_of_an_endpoint() }), ..Wanted::default() };
        assert!(make(NEW, sys::FI_EP_RDM, Some(&keyed)).is_err());
        assert!(make(sys::version(1, 4), sys::FI_EP_RDM, Some(&keyed)).is_ok(), "not there in that version");
    }

    fn nothing_of_an_endpoint() -> EpAttr {
        EpAttr {
            kind: 0,
            protocol: 0,
            protocol_version: 0,
            max_msg_size: 0,
            msg_prefix_size: 0,
            max_order_raw_size: 0,
            max_order_war_size: 0,
            max_order_waw_size: 0,
            mem_tag_format: 0,
            tx_ctx_cnt: 0,
            rx_ctx_cnt: 0,
            auth_key_size: 0,
            auth_key: ptr::null_mut(),
        }
    }

    #[test]
    fn memory_is_registered_by_offsets_and_the_users_keys_or_as_a_word_says() {
        let bits = |bits| registration(NEW, bits, true);
        assert_eq!(bits(0), Ok(0));
        assert_eq!(bits(!3), Ok(0), "none is needed");
        assert_eq!(bits(sys::FI_MR_BASIC), Ok(sys::FI_MR_BASIC));
        assert_eq!(bits(sys::FI_MR_SCALABLE), Ok(sys::FI_MR_SCALABLE));
        assert_eq!(bits(sys::FI_MR_BASIC | sys::FI_MR_PROV_KEY), Err(Errno::NODATA));
        assert_eq!(bits(sys::FI_MR_BASIC | sys::FI_MR_SCALABLE), Err(Errno::NODATA));
        assert_eq!(registration(sys::version(1, 4), 0, true), Ok(sys::FI_MR_SCALABLE));
        assert_eq!(registration(sys::version(1, 4), sys::FI_MR_PROV_KEY, true), Err(Errno::NODATA));
        let both = Registration { virtual_addresses: true, provider_keys: true };
        assert_eq!(Registration::of_mode(sys::FI_MR_BASIC), both);
        assert_eq!(Registration::of_mode(sys::FI_MR_VIRT_ADDR | sys::FI_MR_PROV_KEY), both);
        let neither = Registration { virtual_addresses: false, provider_keys: false };
        assert_eq!(Registration::of_mode(sys::FI_MR_SCALABLE), neither);
    }

    #[test]
    fn what_a_domain_is_wanted_for_comes_back() {
        for threading in 1..=sys::FI_THREAD_ENDPOINT {
            let offer = with(|wanted| wanted.domain = Some(DomainAttr { threading, ..ANY_DOMAIN }));
            assert_eq!(offer.expect("an offer").domain.threading, threading);
        }
        let progress = |control_progress, data_progress| {
            let attr = DomainAttr { control_progress, data_progress, ..ANY_DOMAIN };
            let offer = with(|wanted| wanted.domain = Some(attr));
            offer.map(|offer| (offer.domain.control_progress, offer.domain.data_progress))
        };
        const AUTO: u32 = sys::FI_PROGRESS_AUTO;
        const MANUAL: u32 = sys::FI_PROGRESS_MANUAL;
        assert_eq!((progress(0, 0), progress(0, AUTO)), (Ok((AUTO, MANUAL)), Ok((AUTO, AUTO))));
        for both in [(AUTO, AUTO), (AUTO, MANUAL), (MANUAL, AUTO), (MANUAL, MANUAL), (3, AUTO), (3, MANUAL)] {
            assert_eq!(progress(both.0, both.1), Ok(both));
        }
        assert!(progress(4, 0).is_err() && progress(0, 3).is_err());
        assert!(with(|wanted| wanted.domain = Some(DomainAttr { threading: 6, ..ANY_DOMAIN })).is_err());
        assert!(with(|wanted| wanted.domain = Some(DomainAttr { max_ep_tx_ctx: 65, ..ANY_DOMAIN })).is_err());
        assert!(with(|wanted| wanted.domain_name = Some(c"gni1".into())).is_err());
        assert!(with(|wanted| wanted.fabric_name = Some(FABRIC.into())).is_ok());
        for (name, is_good) in [(c"GNI", true), (c"gni;ofi_rxm", false), (c"tcp", false)] {
            assert_eq!(with(|wanted| wanted.provider_name = Some(name.into())).is_ok(), is_good, "{name:?}");
        }
    }

    #[test]
    fn order_and_sizes_are_checked_and_kept() {
        let tx = fi_tx_attr { size: 7, inject_size: 64, msg_order: sys::FI_ORDER_SAS, ..Default::default() };
        let offer = with(|wanted| wanted.tx = Some(tx)).expect("an offer");
        assert_eq!((offer.tx.size, offer.tx.inject_size, offer.tx.msg_order), (7, 64, ORDER));
        // FI_ORDER_DATA, and completions in order.
        for (msg_order, comp_order) in [(1 << 16, 0), (0, 1)] {
            let rx = fi_rx_attr { msg_order, comp_order, ..Default::default() };
            assert!(with(|wanted| wanted.rx = Some(rx)).is_err());
        }
        assert!(with(|wanted| wanted.tx = Some(fi_tx_attr { inject_size: INJECT + 1, ..tx })).is_err());
    }
}
