//! The cache alone, and beside a model of it that looks at everything each time.

use super::*;

const BOUNDS: Bounds = Bounds { count: 3, bytes: 1000 };
const BOTH: Rights = Rights::READ.and(Rights::FILLED);

fn cache() -> Cache<Key> {
    Cache::new(BOUNDS)
}

/// One that was held and is not any more.
fn kept(cache: &mut Cache<Key>, span: Span, key: Key) {
    cache.insert(span, BOTH, key, true, key);
    cache.release(key);
}

/// What has ended.
fn ended(cache: &mut Cache<Key>) -> Vec<Key> {
    cache.take_ended().into_iter().map(|(key, _)| key).collect()
}

fn found(cache: &mut Cache<Key>, span: Span) -> Option<Key> {
    cache.find(span, BOTH).map(|(key, _)| key)
}

#[test]
fn what_nobody_holds_is_found_for_all_that_lies_within() {
    let mut cache = cache();
    kept(&mut cache, (100, 200), 1);
    kept(&mut cache, (150, 300), 2);
    assert_eq!(found(&mut cache, (100, 200)), Some(1));
    assert_eq!(found(&mut cache, (100, 201)), None, "one byte more");
    assert_eq!(found(&mut cache, (99, 200)), None);
    assert_eq!(found(&mut cache, (150, 200)), Some(2));
    assert_eq!(found(&mut cache, (299, 300)), Some(2));
    assert_eq!(found(&mut cache, (300, 301)), None);
    assert!(ended(&mut cache).is_empty());
}

#[test]
fn rights_that_it_does_not_have_are_not_found_in_it() {
    let mut cache = cache();
    cache.insert((0, 100), Rights::READ, 1, true, 1);
    assert_eq!(cache.find((0, 100), Rights::NONE), Some((1, &1)));
    assert_eq!(cache.find((0, 100), BOTH), None);
    cache.insert((0, 50), BOTH, 2, true, 2);
    assert_eq!(cache.find((10, 20), BOTH), Some((2, &2)));
    assert_eq!(cache.find((0, 100), Rights::READ), Some((1, &1)), "the greater one stays for what it can");
    cache.insert((0, 100), BOTH.and(Rights::WRITTEN), 3, true, 3);
    for rights in [Rights::NONE, Rights::READ, BOTH, Rights::WRITTEN] {
        assert_eq!(cache.find((10, 20), rights), Some((3, &3)), "it serves for all that the others do");
    }
    cache.release(1);
    cache.release(2);
    assert_eq!(ended(&mut cache), [1, 2], "which end with those who hold them");
}

#[test]
fn memory_that_is_gone_is_not_found_again() {
    let mut cache = cache();
    kept(&mut cache, (100, 200), 1);
    kept(&mut cache, (200, 300), 2);
    cache.forget((200, 250));
    assert_eq!(ended(&mut cache), [2]);
    assert_eq!(found(&mut cache, (100, 200)), Some(1), "its neighbour");
    cache.forget((0, 101));
    assert_eq!(found(&mut cache, (150, 200)), None, "half of it is as good as all");
    assert_eq!(ended(&mut cache), [1]);
    assert_eq!(cache.tally(), Tally { evictions: 0, invalidations: 2 });
}

#[test]
fn what_is_held_lives_on_and_is_not_found() {
    let mut cache = cache();
    cache.insert((100, 200), BOTH, 1, true, 1);
    cache.hold(1);
    cache.forget_all();
    assert_eq!(found(&mut cache, (100, 200)), None);
    cache.insert((100, 200), BOTH, 2, true, 2);
    assert_eq!(found(&mut cache, (100, 200)), Some(2), "the memory that is there now");
    cache.release(1);
    assert!(ended(&mut cache).is_empty(), "one still holds it");
    cache.release(1);
    assert_eq!(ended(&mut cache), [1]);
    assert_eq!(found(&mut cache, (100, 200)), Some(2));
}

#[test]
fn it_is_bounded_by_number_and_what_was_used_last_stays() {
    let mut cache = cache();
    (1..=3).for_each(|key| kept(&mut cache, (key as usize * 100, key as usize * 100 + 10), key));
    assert_eq!(found(&mut cache, (100, 110)), Some(1));
    kept(&mut cache, (900, 910), 4);
    assert_eq!(ended(&mut cache), [2]);
    let gone: Vec<_> = (0..4).map(|_| cache.evict(|_| true).is_some()).collect();
    assert_eq!(gone, [true, true, true, false]);
    assert_eq!(ended(&mut cache), [3, 1, 4]);
    assert_eq!(cache.tally(), Tally { evictions: 4, invalidations: 0 });
}

#[test]
fn it_is_bounded_by_bytes_of_what_nobody_holds() {
    let mut cache = cache();
    cache.insert((0, 5000), BOTH, 1, true, 1);
    kept(&mut cache, (5000, 5600), 2);
    assert!(ended(&mut cache).is_empty(), "what is held does not count");
    kept(&mut cache, (6000, 6600), 3);
    assert_eq!(ended(&mut cache), [2]);
    cache.release(1);
    assert_eq!(ended(&mut cache), [1], "longer than all that may be kept");
    assert_eq!(found(&mut cache, (6000, 6600)), Some(3), "which takes nothing else along");
}

#[test]
fn what_may_not_stay_ends_with_its_holders_and_is_found_until_then() {
    let mut cache = cache();
    cache.insert((0, 100), BOTH, 1, false, 1);
    assert_eq!(found(&mut cache, (0, 100)), Some(1));
    cache.release(1);
    assert_eq!((found(&mut cache, (0, 100)), ended(&mut cache)), (None, vec![1]));
    cache.insert((0, 100), BOTH, 2, true, 2);
    cache.keep_none();
    cache.release(2);
    kept(&mut cache, (0, 100), 3);
    assert_eq!(ended(&mut cache), [2, 3], "nothing is kept any more");
}

/// The same, without any order.
#[derive(Default)]
struct Model {
    /// The oldest use first.
    all: Vec<Modelled>,
    ended: Vec<Key>,
    tally: Tally,
}

#[derive(Clone, Copy)]
struct Modelled {
    span: Span,
    rights: Rights,
    key: Key,
    holders: usize,
    is_found: bool,
    may_stay: bool,
}

impl Modelled {
    fn covers(&self, span: Span, rights: Rights) -> bool {
        self.is_found && self.span.0 <= span.0 && self.span.1 >= span.1 && self.rights.allow(rights)
    }
}

impl Model {
    fn at(&self, key: Key) -> usize {
        self.all.iter().position(|one| one.key == key).expect("it is there")
    }

    fn end_where(&mut self, ends: impl Fn(&Modelled) -> bool) {
        let (gone, left): (Vec<_>, Vec<_>) = self.all.drain(..).partition(|one| ends(one));
        self.all = left;
        self.ended.extend(gone.iter().map(|one| one.key));
    }

    fn lose_where(&mut self, lost: impl Fn(&Modelled) -> bool) -> u64 {
        let mut count = 0;
        for one in self.all.iter_mut().filter(|one| one.is_found && lost(one)) {
            one.is_found = false;
            count += 1;
        }
        self.end_where(|one| !one.is_found && one.holders == 0);
        count
    }

    fn find(&mut self, span: Span, rights: Rights, found: Option<Key>) {
        assert_eq!(self.all.iter().any(|one| one.covers(span, rights)), found.is_some(), "{span:?}");
        if let Some(key) = found {
            let one = self.all.remove(self.at(key));
            assert!(one.covers(span, rights), "{span:?} in {:?}", one.span);
            self.all.push(one);
        }
    }

    fn insert(&mut self, span: Span, rights: Rights, key: Key, may_stay: bool) {
        let is_found = !self.all.iter().any(|one| one.covers(span, rights));
        if is_found {
            self.lose_where(|one| span.0 <= one.span.0 && span.1 >= one.span.1 && rights.allow(one.rights));
        }
        self.all.push(Modelled { span, rights, key, holders: 1, is_found, may_stay });
    }

    fn idle(&self) -> impl Iterator<Item = &Modelled> {
        self.all.iter().filter(|one| one.holders == 0)
    }

    fn release(&mut self, key: Key) {
        let mut one = self.all.remove(self.at(key));
        one.holders -= 1;
        self.all.push(one);
        self.end_where(|one| one.holders == 0 && !(one.is_found && one.may_stay));
        while self.idle().count() > BOUNDS.count
            || self.idle().map(|one| one.span.1 - one.span.0).sum::<usize>() > BOUNDS.bytes
        {
            let oldest = self.idle().next().expect("there are some").key;
            self.tally.evictions += 1;
            self.end_where(|one| one.key == oldest);
        }
    }
}

/// Numbers of a fixed sequence (splitmix64).
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ mixed >> 31) as usize
}

#[test]
fn whatever_happens_it_is_as_the_model_says() {
    for seed in 0..300 {
        let mut state = seed;
        let (mut cache, mut model) = (cache(), Model::default());
        let mut held: Vec<Key> = Vec::new();
        for key in 1..200 {
            let start = next(&mut state) % 40 * 16;
            let span = (start, start + 1 + next(&mut state) % 320);
            let rights = Rights((next(&mut state) % SETS) as u8);
            match next(&mut state) % 8 {
                0..3 => {
                    let found = cache.find(span, rights).map(|(key, _)| key);
                    model.find(span, rights, found);
                    match found {
                        Some(key) => {
                            cache.hold(key);
                            let at = model.at(key);
                            model.all[at].holders += 1;
                            held.push(key);
                        }
                        None => {
                            let may_stay = !next(&mut state).is_multiple_of(8);
                            cache.insert(span, rights, key, may_stay, key);
                            model.insert(span, rights, key, may_stay);
                            held.push(key);
                        }
                    }
                }
                3 => {
                    // Two threads that find nothing at the same time both come with one.
                    cache.insert(span, rights, key, true, key);
                    model.insert(span, rights, key, true);
                    held.push(key);
                }
                4..7 if !held.is_empty() => {
                    let key = held.swap_remove(next(&mut state) % held.len());
                    cache.release(key);
                    model.release(key);
                }
                _ => {
                    cache.forget(span);
                    let gone = model.lose_where(|one| one.span.0 < span.1 && one.span.1 > span.0);
                    model.tally.invalidations += gone;
                }
            }
            let (mut ended, mut expected) = (ended(&mut cache), std::mem::take(&mut model.ended));
            ended.sort_unstable();
            expected.sort_unstable();
            assert_eq!((ended, cache.tally()), (expected, model.tally), "seed {seed}, step {key}");
            assert!(cache.idle.len() <= BOUNDS.count && cache.idle_bytes <= BOUNDS.bytes);
        }
    }
}
