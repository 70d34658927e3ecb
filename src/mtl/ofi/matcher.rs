//! The OFI MTL as the host sees it: a component that finds a provider, and the matcher over it, one type
//! for each layout of the tag bits.

use std::marker::PhantomData;

use super::{Body, Needs, Offer, Ofi, candidates, counters, reaching_devices, select};
use crate::config::{self, TagMode};
use crate::error::{Error, Result};
use crate::fabric::{AtOnce, Library, Place, Standing, View};
use crate::mtl::{
    self, Claim, Counter, Envelope, Keep, Limits, Progress, Refusal, Selector, Setting, Upcalls,
};
use crate::wire::tag::{Full, Layout, One, Two};

/// The component.
pub struct Component;

impl mtl::Component for Component {
    type Config = config::Ofi;

    fn counters() -> &'static [&'static Counter] {
        &counters::COUNTERS
    }

    fn open<H: Upcalls, K: Keep<H>>(
        config: &config::Ofi,
        setting: &Setting<'_>,
        keep: K,
    ) -> std::result::Result<K::Kept, Refusal> {
        let name = setting.name;
        let is_wanted = config.include.as_ref().is_some_and(|list| !list.is_empty()) || setting.asked_for;
        let wish = |why: String| if is_wanted { Refusal::Wish(why) } else { Refusal::NoneSuitable(why) };
        let library = Library::open().map_err(|missing| wish(missing.0))?;
        let needs = Needs { threads: setting.threads, untagged: setting.group_communicators };
        let list = candidates(library, config, needs).map_err(|error| match error {
            Error::NotFound => wish("no libfabric provider here has tagged messages over reliable datagrams; `fi_info` lists what there is".to_owned()),
            error => wish(format!("libfabric could not list its providers: {error}")),
        })?;
        let chosen = select(&list, config, name, setting.local_rank, setting.universe);
        let offer = chosen.map_err(|refusal| match refusal {
            Refusal::NoneSuitable(why) => {
                wish(format!("{why}; name one in mtl_{name}_provider_include to use it all the same"))
            }
            other => other,
        })?;
        let describe = |error: Error| match error {
            Error::Fabric(code) => library.describe(code),
            other => other.to_string(),
        };
        let provider = offer.info.provider().to_owned();
        if config.scalable && !offer.info.is_scalable() {
            return Err(Refusal::Wish(format!(
                "the provider {provider} has no scalable endpoints, which mtl_{name}_enable_sep asks for; leave the parameter out, or choose another provider with mtl_{name}_provider_include"
            )));
        }
        let devices = (config.device && setting.devices)
            .then(|| reaching_devices(library, config, needs, &offer))
            .flatten();
        let open = |offer: &Offer<'_>| Ofi::<H>::open(offer, config, setting.universe);
        let reaching = devices.as_ref().and_then(|found| open(&offer.with_devices(found)?).ok());
        let ofi = reaching.map_or_else(|| open(&offer), Ok).map_err(|error| {
            Refusal::Wish(format!("the endpoint of provider {provider} on {} cannot be opened: {}; choose another provider with mtl_{name}_provider_include", offer.info.domain(), describe(error)))
        })?;
        let name = ofi.name().map_err(|error| {
            Refusal::Wish(format!("provider {provider} gives its endpoint no name: {}", describe(error)))
        })?;
        // HOST: the stock component prints the provider in this form (mtl_ofi_component.c), and people look for it.
        (setting.report)(&format!("prov: {provider} on {}", offer.info.domain()));
        if ofi.reaches_devices() {
            (setting.report)(&format!(" {provider} reaches device memory itself"));
        }
        Ok(match offer.layout {
            TagMode::One => keep.keep(LaidOut::<H, One>::new(ofi, &offer), name),
            TagMode::Two => keep.keep(LaidOut::<H, Two>::new(ofi, &offer), name),
            TagMode::Full | TagMode::Auto => keep.keep(LaidOut::<H, Full>::new(ofi, &offer), name),
        })
    }
}

/// An endpoint whose tag bits are laid out in one way.
struct LaidOut<H: Upcalls, L> {
    ofi: Ofi<H>,
    limits: Limits,
    layout: PhantomData<fn() -> L>,
}

impl<H: Upcalls, L: Layout> LaidOut<H, L> {
    fn new(ofi: Ofi<H>, offer: &Offer<'_>) -> Self {
        let max_source = i32::try_from(L::MAX_SOURCE).unwrap_or(i32::MAX);
        let limits = Limits { max_context: offer.max_context, max_tag: offer.max_tag, max_source };
        Self { ofi, limits, layout: PhantomData }
    }
}

impl<H: Upcalls, L: Layout> mtl::Matcher<H> for LaidOut<H, L> {
    type Work = Body<H>;

    fn limits(&self) -> Limits {
        self.limits
    }

    fn reaches_devices(&self) -> bool {
        self.ofi.reaches_devices()
    }

    fn add_peer(&self, peer: H::Proc) -> Result<()> {
        self.ofi.add_peer(peer).map(|_address| ())
    }

    fn remove_peer(&self, peer: H::Proc) {
        // The peer is forgotten whether or not the provider could remove its address.
        let _ = self.ofi.remove_peer(peer);
    }

    fn add_comm(&self, comm: H::Comm) -> Result<()> {
        self.ofi.add_comm::<L>(comm)
    }

    fn remove_comm(&self, comm: H::Comm) {
        self.ofi.remove_comm(comm);
    }

    fn send(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        view: View<'_, H::Conv>,
        synchronous: bool,
    ) -> Result<()> {
        self.ofi.send::<L>(comm, dest, tag, view, synchronous)
    }

    fn isend(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        place: Place<Body<H>>,
        synchronous: bool,
    ) -> Result<()> {
        self.ofi.isend::<L>(comm, dest, tag, place, synchronous)
    }

    fn irecv(&self, comm: H::Comm, source: Selector, tag: Selector, place: Place<Body<H>>) -> Result<()> {
        self.ofi.irecv::<L>(comm, source, tag, place)
    }

    #[inline(always)]
    fn iprobe(&self, comm: H::Comm, source: Selector, tag: Selector) -> Result<Option<Envelope>> {
        self.ofi.iprobe::<L>(comm, source, tag)
    }

    #[inline(always)]
    fn improbe(&self, comm: H::Comm, source: Selector, tag: Selector) -> Result<Option<Claim>> {
        self.ofi.improbe::<L>(comm, source, tag)
    }

    fn imrecv(&self, message: u64, place: Place<Body<H>>) -> Result<()> {
        self.ofi.imrecv::<L>(message, place)
    }

    fn cancel(&self, receive: &Standing<'_, Body<H>>) {
        self.ofi.cancel::<L>(receive);
    }

    fn progress(&self) -> usize {
        self.ofi.advance::<L>()
    }

    #[inline(always)]
    fn send_at_once(&self, comm: H::Comm, dest: i32, tag: i32, view: View<'_, H::Conv>) -> bool {
        self.ofi.send_at_once::<L>(comm, dest, tag, view)
    }

    #[inline(always)]
    fn isend_at_once(&self, comm: H::Comm, dest: i32, tag: i32, place: Place<Body<H>>) -> bool {
        self.ofi.isend_at_once::<L>(comm, dest, tag, place)
    }

    #[inline(always)]
    fn irecv_at_once(&self, comm: H::Comm, source: Selector, tag: Selector, place: Place<Body<H>>) -> AtOnce {
        self.ofi.irecv_at_once::<L>(comm, source, tag, place)
    }

    fn irecv_again(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        place: Place<Body<H>>,
    ) -> Result<()> {
        self.ofi.irecv_again::<L>(comm, source, tag, place)
    }

    #[inline(always)]
    fn progress_at_once(&self) -> Progress {
        self.ofi.advance_at_once::<L>()
    }

    fn idle(&self) -> usize {
        self.ofi.idle::<L>()
    }
}
