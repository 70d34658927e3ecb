//! Matching against a model that keeps two lists and searches them from the oldest on.

use super::posted::CLASSES;
use super::unexpected::INDEXES;
use super::*;

type Engine = Matching<u32, u32>;

#[derive(Clone, Copy, Debug)]
struct Receive {
    id: ReceiveId,
    wanted: Wanted,
    times: Times,
    token: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: MessageId,
    message: Message<u32>,
}

/// What should be: everything in the order in which it came.
#[derive(Debug, Default)]
struct Model {
    receives: Vec<Receive>,
    messages: Vec<Waiting>,
    claimed: Vec<Waiting>,
}

impl Model {
    fn receive_for(&self, message: &Message<u32>) -> Option<usize> {
        let fits = |receive: &Receive| receive.wanted.fits(message.source, message.tag);
        self.receives.iter().position(fits)
    }

    fn message_for(&self, wanted: &Wanted) -> Option<usize> {
        self.messages.iter().position(|waiting| wanted.fits(waiting.message.source, waiting.message.tag))
    }

    fn kept(&self) -> Kept {
        let all = || self.messages.iter().chain(&self.claimed);
        Kept { messages: all().count(), bytes: all().map(|waiting| waiting.message.bytes).sum() }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }

    /// One in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() { None } else { Some(all[self.below(all.len())]) }
    }
}

/// What came by in all runs together.
#[derive(Debug, Default)]
struct Seen {
    hashed: usize,
    strays: usize,
    all_indexes: usize,
    replaced: usize,
    deepest: [usize; 2],
    taken_by_many: usize,
    refused_ids: usize,
    full: usize,
}

struct Run {
    random: Random,
    engine: Engine,
    model: Model,
    limit: usize,
    sources: usize,
    tags: usize,
    ignores: Vec<u64>,
    /// Ids that were good once.
    old_receives: Vec<ReceiveId>,
    old_messages: Vec<MessageId>,
    tokens: u32,
    indexed: Vec<Shape>,
    seen: Seen,
}

impl Run {
    fn new(seed: u64, seen: Seen) -> Self {
        let mut random = Random(seed);
        let limit = [5, 40, 400][random.below(3)];
        let (sources, tags) = ([1, 4, 30][random.below(3)], [1, 8, 200][random.below(3)]);
        let kinds = [1, 3, 12, 60][random.below(4)];
        let ignores = (0..kinds).map(|kind| match kind {
            0 => 0,
            1 => u64::MAX,
            2 => 0xf,
            _ => 1 << random.below(40) | random.below(256) as u64,
        });
        let ignores = ignores.collect();
        Self {
            engine: Engine::new(limit, [seed as u8; 16]),
            model: Model::default(),
            limit,
            sources,
            tags,
            ignores,
            random,
            old_receives: vec![ReceiveId::from_raw(0), ReceiveId::from_raw(u64::MAX)],
            old_messages: vec![MessageId::from_raw(0), MessageId::from_raw(u64::MAX)],
            tokens: 0,
            indexed: Vec::new(),
            seen,
        }
    }

    fn token(&mut self) -> u32 {
        self.tokens += 1;
        self.tokens
    }

    fn source(&mut self) -> u64 {
        // Zero is what stands for any in the tables.
        self.random.below(self.sources) as u64
    }

    fn tag(&mut self) -> u64 {
        let tag = self.random.below(self.tags) as u64;
        tag << (8 * self.random.below(2))
    }

    fn wanted(&mut self) -> Wanted {
        let source = if self.random.once_in(3) { None } else { Some(self.source()) };
        // Bits that are ignored may be set.
        Wanted { source, tag: self.tag(), ignore: self.random.of(&self.ignores).unwrap_or(0) }
    }

    fn message(&mut self) -> Message<u32> {
        let (bytes, complete) = (self.random.below(1000), !self.random.once_in(3));
        Message { source: self.source(), tag: self.tag(), bytes, complete, token: self.token() }
    }

    /// The model's message is no longer there.
    fn gone(&mut self, at: usize) -> Message<u32> {
        let waiting = self.model.messages.remove(at);
        self.old_messages.push(waiting.id);
        waiting.message
    }

    fn post(&mut self) {
        let (wanted, token) = (self.wanted(), self.token());
        let times = if self.random.once_in(6) { Times::Many } else { Times::Once };
        let posting = self.engine.post(wanted, times, token);
        let is_full = self.model.receives.len() == self.limit;
        let found = self.model.message_for(&wanted);
        let expected = match (found, times) {
            (_, Times::Many) | (None, Times::Once) if is_full => None,
            (Some(at), _) => Some(Some(self.gone(at))),
            (None, _) => Some(None),
        };
        let (message, id) = match posting {
            Ok(Posting::Waits(id)) => (Some(None), Some(id)),
            Ok(Posting::Takes(message)) => (Some(Some(message)), None),
            Ok(Posting::TakesAndWaits(message, id)) => (Some(Some(message)), Some(id)),
            Err(Full) => (None, None),
        };
        assert_eq!(message, expected);
        let stays = message.is_some_and(|message| message.is_none() || times == Times::Many);
        assert_eq!(id.is_some(), stays);
        self.seen.full += usize::from(message.is_none());
        if let Some(id) = id {
            self.model.receives.push(Receive { id, wanted, times, token });
            let drains = message.flatten().is_some() && !self.random.once_in(4);
            while drains && self.more(id) {}
        }
    }

    /// Whether there was one.
    fn more(&mut self, id: ReceiveId) -> bool {
        let receive = self.model.receives.iter().find(|receive| receive.id == id).copied();
        let many = receive.filter(|receive| receive.times == Times::Many);
        let at = many.and_then(|receive| self.model.message_for(&receive.wanted));
        let message = at.map(|at| self.gone(at));
        assert_eq!(self.engine.more(id), message);
        message.is_some()
    }

    fn arrive(&mut self) {
        let message = self.message();
        let arrival = self.engine.arrive(message);
        let Some(at) = self.model.receive_for(&message) else {
            let Arrival::Unexpected(id) = arrival else { panic!("nobody wants {message:?}: {arrival:?}") };
            return self.model.messages.push(Waiting { id, message });
        };
        let Receive { id, times, token, .. } = self.model.receives[at];
        if times == Times::Many {
            assert_eq!(arrival, Arrival::TakenByMany(token, id));
            self.seen.taken_by_many += 1;
        } else {
            assert_eq!(arrival, Arrival::Taken(token));
            self.model.receives.remove(at);
            self.old_receives.push(id);
        }
    }

    fn withdraw(&mut self, id: ReceiveId) {
        let at = self.model.receives.iter().position(|receive| receive.id == id);
        let receive = at.map(|at| self.model.receives.remove(at));
        assert_eq!(self.engine.withdraw(id), receive.map(|receive| receive.token));
        self.old_receives.push(id);
        self.seen.refused_ids += usize::from(receive.is_none());
    }

    fn peek(&mut self, claims: bool) {
        let wanted = self.wanted();
        let at = self.model.message_for(&wanted);
        let waiting = at.map(|at| self.model.messages[at]);
        let expected = waiting.map(|waiting| (waiting.id, waiting.message));
        if !claims {
            return assert_eq!(self.engine.peek(&wanted), expected);
        }
        assert_eq!(self.engine.claim(&wanted), expected);
        self.model.claimed.extend(at.map(|at| self.model.messages.remove(at)));
    }

    fn redeem(&mut self, id: MessageId) {
        let at = self.model.claimed.iter().position(|waiting| waiting.id == id);
        let message = at.map(|at| self.model.claimed.remove(at).message);
        assert_eq!(self.engine.redeem(id), message);
        self.old_messages.extend(message.map(|_| id));
    }

    fn discard(&mut self, id: MessageId) {
        let of = |all: &mut Vec<Waiting>| {
            let at = all.iter().position(|waiting| waiting.id == id);
            at.map(|at| all.remove(at).message)
        };
        let message = of(&mut self.model.messages).or_else(|| of(&mut self.model.claimed));
        assert_eq!(self.engine.discard(id), message);
        self.old_messages.push(id);
        self.seen.refused_ids += usize::from(message.is_none());
    }

    fn complete(&mut self, id: MessageId) {
        let mut all = self.model.messages.iter_mut().chain(&mut self.model.claimed);
        let waiting = all.find(|waiting| waiting.id == id);
        let known = waiting.map(|waiting| waiting.message.complete = true).is_some();
        assert_eq!(self.engine.complete(id), known);
    }

    /// Takes out what a source that ends takes along, or everything.
    fn end(&mut self, source: Option<u64>) {
        let left = match source {
            Some(source) => self.engine.forget(source, |_| true),
            None => self.engine.drain(),
        };
        let of_it = |receive: &mut Receive| source.is_none() || receive.wanted.source == source;
        let receives: Vec<Receive> = self.model.receives.extract_if(.., of_it).collect();
        let goes = |waiting: &mut Waiting| {
            source.is_none_or(|source| waiting.message.source == source && !waiting.message.complete)
        };
        let mut messages: Vec<Waiting> = self.model.messages.extract_if(.., goes).collect();
        messages.extend(self.model.claimed.extract_if(.., goes));
        assert_eq!(left.receives, receives.iter().map(|receive| receive.token).collect::<Vec<_>>());
        assert_eq!(left.messages, messages.iter().map(|waiting| waiting.message).collect::<Vec<_>>());
        self.old_receives.extend(receives.iter().map(|receive| receive.id));
        self.old_messages.extend(messages.iter().map(|waiting| waiting.id));
    }

    /// An id of a receive, good three times in four.
    fn some_receive(&mut self) -> ReceiveId {
        let live: Vec<ReceiveId> = self.model.receives.iter().map(|receive| receive.id).collect();
        let good = if self.random.once_in(4) { None } else { self.random.of(&live) };
        good.or_else(|| self.random.of(&self.old_receives)).expect("there are old ones")
    }

    /// An id of a message, claimed or not, good three times in four.
    fn some_message(&mut self) -> MessageId {
        let from = if self.random.once_in(2) { &self.model.messages } else { &self.model.claimed };
        let live: Vec<MessageId> = from.iter().map(|waiting| waiting.id).collect();
        let good = if self.random.once_in(4) { None } else { self.random.of(&live) };
        good.or_else(|| self.random.of(&self.old_messages)).expect("there are old ones")
    }

    /// Anything, but of every 100 so many posts and arrivals.
    fn step(&mut self, posts: usize, arrivals: usize) {
        let dice = self.random.below(100);
        if dice < posts {
            return self.post();
        } else if dice < posts + arrivals {
            return self.arrive();
        }
        match self.random.below(40) {
            0..8 => {
                let id = self.some_receive();
                self.withdraw(id);
            }
            8..12 => {
                let id = self.some_receive();
                self.more(id);
            }
            12..20 => self.peek(false),
            20..26 => self.peek(true),
            26..31 => {
                let id = self.some_message();
                self.redeem(id);
            }
            31..35 => {
                let id = self.some_message();
                self.discard(id);
            }
            35..39 => {
                let id = self.some_message();
                self.complete(id);
            }
            _ if self.random.once_in(20) => self.end(None),
            _ if self.random.once_in(2) => {
                let source = self.source();
                self.end(Some(source));
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        self.engine.posted.check();
        self.engine.unexpected.check();
        let receives: Vec<(ReceiveId, u32)> = self.engine.receives().collect();
        assert!(
            receives.into_iter().eq(self.model.receives.iter().map(|receive| (receive.id, receive.token)))
        );
        let (hashed, classes, strays) = self.engine.posted.state();
        assert!(classes as usize <= CLASSES);
        let indexed = self.engine.unexpected.indexed();
        let seen = &mut self.seen;
        seen.hashed += usize::from(hashed);
        seen.strays += usize::from(strays);
        seen.all_indexes += usize::from(indexed.len() == INDEXES);
        let were_all = self.indexed.len() == INDEXES && indexed.len() == INDEXES;
        seen.replaced += usize::from(were_all && indexed != self.indexed);
        let depths = [self.model.receives.len(), self.model.messages.len()];
        seen.deepest = [seen.deepest[0].max(depths[0]), seen.deepest[1].max(depths[1])];
        self.indexed = indexed;
    }

    fn run(mut self) -> Seen {
        for number in 0..2000 {
            // Times of posting, of arriving, and of both.
            let (posts, arrivals) = [(85, 5), (5, 85), (45, 45), (30, 30)][number / 250 % 4];
            self.step(posts, arrivals);
            assert_eq!(self.engine.posted(), self.model.receives.len());
            assert_eq!(self.engine.kept(), self.model.kept());
            if number % 8 == 0 {
                self.check();
            }
        }
        self.end(None);
        self.check();
        self.seen
    }
}

#[test]
fn matching_does_what_two_lists_in_order_do() {
    let mut seen = Seen::default();
    for seed in 0..400 {
        seen = Run::new(seed, seen).run();
    }
    let Seen { hashed, strays, all_indexes, replaced, deepest, taken_by_many, refused_ids, full } = seen;
    let least = [hashed, strays, all_indexes, replaced, taken_by_many, refused_ids, full].into_iter().min();
    assert!(
        least.is_some_and(|least| least > 100) && deepest.into_iter().all(|depth| depth > 300),
        "{seen:?}"
    );
}
