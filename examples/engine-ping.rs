//! Two engines hand each other eight bytes so many times: for `valgrind --tool=callgrind` and the
//! like. The difference between two counts, divided, is what one message costs: its sending, its
//! reception and the book-keeping of both, acknowledgement included.

use hawser::config;
use hawser::engine::{
    Cookie, EndpointId, Engine, Fragment, Header, Identity, Instant, Memory, Peer, Received,
};

/// Eight bytes that nobody looks at.
#[derive(Clone, Copy)]
struct Eight;

impl Memory for Eight {
    fn len(&self) -> usize {
        8
    }
    fn read(&self, _: usize, to: &mut [u8]) {
        to.fill(1);
    }
    fn write(&self, _: usize, _: &[u8]) {}
}

fn engine(name: u64, now: Instant) -> (Engine<Eight>, EndpointId) {
    let identity = Identity { name, incarnation: 1, key: [name as u8; 16] };
    let config = config::Usnic { max_datagram: 1472, ..config::Usnic::default() };
    let mut engine = Engine::new(&config, identity, 1 << 20, now).expect("memory");
    let peer = Peer { name: 1 - name, incarnation: 1, key: [1 - name as u8; 16], max_datagram: 1472 };
    let endpoint = engine.connect(peer, now).expect("connected");
    (engine, endpoint)
}

fn main() {
    let argument = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let count: Cookie = argument.unwrap_or(1_000_000);
    let mut now = Instant::from_nanos(1_000_000);
    let mut sides = [engine(0, now), engine(1, now)];
    let mut header = Header::EMPTY;
    for cookie in 0..count {
        let from = (cookie % 2) as usize;
        let (sender, endpoint) = &mut sides[from];
        let endpoint = *endpoint;
        let fragment =
            Fragment { tag: 1, pieces: [Some(Eight), None], cookie, priority: false, awaited: false };
        // At first they do not know each other, and there is no copy.
        if !sender.send_copy(endpoint, &fragment, now, &mut header) {
            let at_once = sender.send_at_once(endpoint, fragment, now).expect("sent");
            header = at_once.or_else(|| sender.poll_transmit(now)).expect("it leaves").header;
            header.append(&[1; 8]);
        }
        now = now.plus(2_000);
        let receiver = &mut sides[1 - from].0;
        let received = receiver.handle_datagram(&header, None, now);
        assert!(matches!(received, Received::Deliver { .. }));
        assert!(sides[from].0.poll_transmit(now).is_none(), "the end of the pass");
        let receiver = &mut sides[1 - from].0;
        while receiver.poll_event().is_some() {}
    }
    let facts = sides.map(|(engine, endpoint)| engine.peer(endpoint).expect("known"));
    println!("{count} messages, {} not acknowledged", facts[0].unacknowledged + facts[1].unacknowledged);
}
