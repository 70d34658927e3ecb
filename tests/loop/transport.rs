//! A byte transport that carries what a process sends to itself, as Open MPI's `self` does: the least
//! that a component can be. Built with the feature `loop` only, and loaded by `c-tests/loop.sh`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::btl::{
    Atomics, Cookie, Declined, EndpointId, Fragment, Host, Kind, Lent, Limits, Number, Parameters, Peer,
    Pipeline, Seat, Sending, Transport, Upcalls,
};
use crate::error::Result;
use crate::sync::EngineCell;

static NUMBERS: [Number; 1] =
    [Number::new(Kind::Signed, c"eager_limit", 4096, 5, c"Longest message sent without asking the receiver")];
static PARAMETERS: Parameters = Parameters { numbers: &NUMBERS, texts: &[] };

/// `MCA_BTL_FLAGS_SEND`
const SEND: u32 = 0x1;

/// Its only module.
pub struct Loop {
    queue: EngineCell<VecDeque<Item>>,
    carried: AtomicU64,
    name: u64,
}

/// A fragment on its way.
struct Item {
    tag: u8,
    bytes: Vec<u8>,
    cookie: Cookie,
}

/// The endpoint of the only peer.
fn own() -> EndpointId {
    EndpointId::from_raw(1 << 32 | 1)
}

impl Transport for Loop {
    const COMPONENT: &'static str = "btl_loop";
    const COUNTERS: &'static [(&'static str, &'static str)] = &[("fragments", "Fragments carried")];
    const HAS_TRANSFERS: bool = false;

    fn parameters() -> &'static Parameters {
        &PARAMETERS
    }

    fn seat() -> &'static Seat {
        static SEAT: Seat = Seat::new();
        &SEAT
    }

    fn open(host: &impl Host) -> std::result::Result<Vec<Self>, Declined> {
        if !host.is_asked_for() {
            return Err(Declined::Silently("nobody asked for it".to_owned()));
        }
        let queue = EngineCell::new(VecDeque::new());
        Ok(vec![Self { queue, carried: AtomicU64::new(0), name: host.name() }])
    }

    fn device(&self) -> &str {
        "loop"
    }

    fn limits(&self) -> Limits {
        let eager = PARAMETERS.number(c"eager_limit").clamp(1024, 1 << 19) as usize;
        Limits {
            eager,
            rndv_eager: eager,
            max_send: 1 << 16,
            max_send_device: 0,
            pipeline: Pipeline::WHOLE,
            copy: usize::MAX,
            exclusivity: 1 << 16,
            latency: 0,
            bandwidth: 100,
            flags: SEND,
            atomics: Atomics::None,
        }
    }

    fn reach(all: &[&Self], own_place: usize, peer: &impl Peer, host: &impl Host) -> Option<EndpointId> {
        (all.get(own_place).is_some() && peer.name() == host.name()).then(own)
    }

    fn peer(&self, endpoint: EndpointId) -> Option<u64> {
        (endpoint == own()).then_some(self.name)
    }

    fn unheard(&self) {}

    fn tell_loss(&self, _name: u64, _host: &impl Host) {}

    fn close(&self, _endpoints: &[EndpointId], up: &impl Upcalls) {
        while self.progress(up) > 0 {}
    }

    fn send(&self, _endpoint: EndpointId, fragment: Fragment<Lent>) -> Result<Sending> {
        let mut bytes = Vec::new();
        fragment.pieces.iter().flatten().for_each(|piece| piece.append_to(&mut bytes));
        let item = Item { tag: fragment.tag, bytes, cookie: fragment.cookie };
        self.queue.with(|queue| queue.push_back(item));
        Ok(Sending::UnderWay)
    }

    fn progress(&self, up: &impl Upcalls) -> usize {
        let mut count = 0;
        // Nothing is borrowed while the host runs: it sends from its callbacks, and makes progress in them.
        while let Some(item) = self.queue.with(VecDeque::pop_front) {
            count += 1;
            self.carried.fetch_add(1, Ordering::Relaxed);
            up.deliver(own(), item.tag, &item.bytes);
            up.done(item.cookie, Ok(()));
        }
        count
    }

    fn counter(&self, _index: usize) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }
}
