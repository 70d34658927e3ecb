//! What operations cost, in entries and places that are looked at, and what of the tables stays.

use super::tests::{Engine, LOOKS, engine, exact, from_any, keeps, message, posts, takes};
use super::*;

#[test]
fn tables_keep_their_room_and_need_no_more() {
    let mut engine = engine(1000);
    let turn = |engine: &mut Engine, salt: u64| {
        for tag in 0..500 {
            posts(engine, exact(salt, tag), 0);
            keeps(engine, message(salt + 1, tag, 0));
        }
        for tag in (0..500).rev() {
            assert_eq!(engine.arrive(message(salt, tag, 0)), Arrival::Taken(0));
            assert_eq!(takes(engine, exact(salt + 1, tag)), Some(0));
        }
        [engine.posted.room(), engine.unexpected.room()]
    };
    let room = turn(&mut engine, 0);
    assert_eq!(room, [[500, 1024]; 2], "places of the slab, and of the table");
    for salt in 1..50 {
        assert_eq!(turn(&mut engine, 10 * salt), room);
    }
}

#[test]
fn kinds_of_receives_come_and_go() {
    let mut engine = engine(100);
    let lasting: Vec<ReceiveId> = (0..50).map(|tag| posts(&mut engine, exact(1, tag), 0)).collect();
    for bit in 0..64 {
        let ids = [1, 2].map(|source| posts(&mut engine, Wanted { ignore: 1 << bit, ..exact(source, 0) }, 0));
        assert_eq!(engine.posted.state(), (true, 2, false), "those of before have made room");
        assert_eq!(ids.map(|id| engine.withdraw(id)), [Some(0); 2]);
    }
    assert!(lasting[2..].iter().all(|id| engine.withdraw(*id).is_some()));
    assert_eq!(engine.posted.state(), (false, 0, false), "two are searched");
    assert_eq!(engine.arrive(message(1, 1, 0)), Arrival::Taken(0));
}

#[test]
fn indexes_are_made_for_those_who_search() {
    let mut engine = engine(10);
    let all: Vec<Shape> = (0..6).map(|bit| Shape { is_directed: true, ignore: 1 << (32 + bit) }).collect();
    let wanted = |shape: &Shape, tag| Wanted { ignore: shape.ignore, ..exact(1, tag) };
    for round in 0..3 {
        // In order: none is needed.
        for tag in 0..10_000 {
            keeps(&mut engine, message(1, tag, 0));
            if tag >= 100 {
                assert_eq!(takes(&mut engine, exact(1, tag - 100)), Some(0));
            }
            assert_eq!(engine.unexpected.indexed(), []);
        }
        // From the newest on, by some kinds, and then by others.
        for kinds in [&all[..2], &all[2..6], &all[..2]] {
            for tag in 0..40 {
                let kind = &kinds[tag as usize % kinds.len()];
                keeps(&mut engine, message(1, 20_000, round));
                assert_eq!(engine.peek(&wanted(kind, tag)), None);
            }
            let indexed = engine.unexpected.indexed();
            assert!(kinds.iter().all(|kind| indexed.contains(kind)), "{kinds:?}, {indexed:?}");
        }
        let mut left = engine.kept().messages;
        while let Some((id, _)) = engine.peek(&from_any(0, u64::MAX)) {
            let indexes = engine.unexpected.indexed().len();
            assert_eq!(indexes == 0, left <= 4, "{indexes} for {left}");
            engine.discard(id);
            left -= 1;
        }
    }
}

/// The receive for the `n`th message, and that message's source and tag.
type Pattern = fn(u64) -> (Wanted, u64, u64);

/// What MPI's receives look like.
const PATTERNS: [(&str, Pattern); 4] = [
    ("source and tag", |n| (exact(n % 64, n / 64), n % 64, n / 64)),
    ("tag, any source", |n| (from_any(n, 0), n % 64, n)),
    ("source and context", |n| {
        let context = (n / 64) << 32;
        (Wanted { source: Some(n % 64), tag: context, ignore: 0xffff_ffff }, n % 64, context + n % 1000)
    }),
    ("context, any source", |n| (from_any(n << 32, 0xffff_ffff), n % 64, (n << 32) + n % 1000)),
];

const DEPTHS: [u64; 2] = [1_000, 100_000];

/// All numbers below `count`, in an order that has nothing to do with theirs.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| (n * 7_919 + 13) % count)
}

/// What an operation looks at.
fn looks_of(operation: impl FnOnce()) -> u64 {
    let before = LOOKS.get();
    operation();
    LOOKS.get() - before
}

#[test]
fn a_message_finds_its_receive_among_any_number() {
    for (name, pattern) in PATTERNS {
        for depth in DEPTHS {
            let mut engine = engine(depth as usize);
            let mut looks = 0;
            for n in 0..depth {
                looks += looks_of(|| {
                    posts(&mut engine, pattern(n).0, n as usize);
                });
            }
            let mut most = 0;
            for n in scattered(depth) {
                let (_, source, tag) = pattern(n);
                let own = looks_of(|| {
                    assert_eq!(engine.arrive(message(source, tag, 0)), Arrival::Taken(n as usize));
                });
                most = most.max(own);
                looks += own;
            }
            let each = looks as f64 / depth as f64;
            assert!(each < 8.0 && most < 100, "{name}, {depth}: {each} looks for each, at most {most}");
        }
    }
}

#[test]
fn a_receive_finds_its_message_among_any_number() {
    for (name, pattern) in PATTERNS {
        for depth in DEPTHS {
            let mut engine = engine(10);
            let mut looks = 0;
            for n in 0..depth {
                let (_, source, tag) = pattern(n);
                looks += looks_of(|| {
                    keeps(&mut engine, message(source, tag, n as usize));
                });
            }
            let mut long = 0;
            for n in scattered(depth) {
                let own = looks_of(|| assert_eq!(takes(&mut engine, pattern(n).0), Some(n as usize)));
                long += u64::from(own > 100);
                looks += own;
            }
            let each = looks as f64 / depth as f64;
            assert!(each < 10.0 && long < 50, "{name}, {depth}: {each} looks for each, {long} with many");
        }
    }
}

/// Receives of all patterns wait, many of them alike; one sender and one receiver go on among them.
#[test]
fn traffic_among_what_waits_costs_the_same_however_much_waits() {
    for depth in DEPTHS {
        let mut engine = engine(3 * depth as usize);
        for (number, (_, pattern)) in PATTERNS.into_iter().enumerate() {
            for n in 0..depth / 4 {
                let (mut wanted, source, tag) = pattern(n / 2);
                wanted.tag |= 1 << 63;
                posts(&mut engine, wanted, 0);
                // Of three kinds of message only.
                keeps(&mut engine, message(source, tag | 1 << 62 | (number as u64 % 3) << 60, 0));
            }
        }
        // What is needed to find anything among these is made in the first rounds.
        let mut looks = 0;
        for n in 0..10_000 {
            let own = looks_of(|| {
                let id = posts(&mut engine, exact(1, 5), n);
                assert_eq!(engine.arrive(message(1, 5, 0)), Arrival::Taken(n));
                keeps(&mut engine, message(2, 6, n));
                assert_eq!(engine.withdraw(id), None);
                assert_eq!(engine.peek(&exact(2, 7)), None);
                assert_eq!(takes(&mut engine, exact(2, 6)), Some(n));
                let cancelled = posts(&mut engine, from_any(9, 0), n);
                assert_eq!(engine.withdraw(cancelled), Some(n));
            });
            looks += if n < 3 { 0 } else { own };
        }
        let each = looks as f64 / 10_000.0;
        assert!(each < 60.0, "{depth}: {each} looks for a round of nine operations");
    }
}

#[test]
fn receives_are_withdrawn_from_among_any_number() {
    for (name, pattern) in PATTERNS {
        let depth = DEPTHS[1];
        let mut engine = engine(depth as usize);
        let ids: Vec<ReceiveId> = (0..depth).map(|n| posts(&mut engine, pattern(n / 3).0, 7)).collect();
        let looks = looks_of(|| {
            for n in scattered(depth) {
                assert_eq!(engine.withdraw(ids[n as usize]), Some(7));
            }
        });
        assert!(looks < 4 * depth, "{name}: {looks} looks for {depth}");
    }
}
