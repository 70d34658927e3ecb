//! All orders of the model's steps, for some lists of calls; and the cell beside the model.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;

use super::super::barrier;
use super::super::cell::{Bars, EngineCell, this_thread};
use super::Call::{self, Bar, Try, Unless, With, WithTry, WithWith};
use super::{BARS, DOOR, HOLDER, OWNER, Protocol, RIGHT, SIDES, Scripts, World, mark};

/// The bar of the model, as the cell has it.
const BAR_OF_USER: Bars = Bars::number(0);

/// Tries everything that follows a world; how many worlds there are, or what went wrong.
fn explore(first: World, scripts: &Scripts<'_>, protocol: Protocol) -> Result<usize, &'static str> {
    let mut known = HashMap::from([(first.clone(), 0)]);
    let mut todo = vec![(first, 0)];
    // From which worlds each one can be come to, and those in which all calls have ended.
    let mut before: Vec<Vec<u32>> = vec![Vec::new()];
    let mut ends = Vec::new();
    while let Some((world, number)) = todo.pop() {
        if (0..SIDES).all(|side| world.is_over(side, scripts)) {
            ends.push(number);
        }
        for side in 0..SIDES {
            for next in world.go(side, scripts, protocol)? {
                let next = next.forget(scripts);
                let place = known.get(&next).copied().unwrap_or_else(|| {
                    let place = before.len() as u32;
                    before.push(Vec::new());
                    known.insert(next.clone(), place);
                    todo.push((next, place));
                    place
                });
                before[place as usize].push(number);
            }
        }
    }
    let mut can_end = vec![false; before.len()];
    while let Some(number) = ends.pop() {
        if !std::mem::replace(&mut can_end[number as usize], true) {
            ends.append(&mut before[number as usize]);
        }
    }
    if can_end.contains(&false) { Err("somebody waits for ever") } else { Ok(known.len()) }
}

/// Nobody has come yet.
const TWO: [Scripts<'static>; 4] = [
    [&[With, Unless, With, Unless], &[With, Try], &[]],
    [&[WithWith, WithTry], &[WithTry, WithWith], &[]],
    [&[With, Unless, Try], &[Bar(true), With, Bar(false)], &[]],
    [&[Try, Bar(true), Unless, With, Bar(false), Unless], &[Try, Unless, Try], &[]],
];

/// The first call is over: there is an owner.
const THREE: [Scripts<'static>; 3] =
    [[&[With, Unless], &[With], &[With]], [&[With, Unless], &[With], &[Try]], [&[With, Try], &[Try], &[Try]]];

fn explore_all(protocol: Protocol) -> Result<usize, &'static str> {
    let two = TWO.iter().map(|scripts| explore(World::new(), scripts, protocol));
    let three = THREE.iter().map(|scripts| {
        let (first, _) = World::new().alone(0, scripts, protocol);
        explore(first, scripts, protocol)
    });
    two.chain(three).sum()
}

#[test]
fn one_is_inside_and_nobody_waits_for_ever() {
    let worlds = explore_all(RIGHT).expect("no defect");
    assert!(worlds > 100_000, "{worlds} worlds");
    let worlds = explore_all(Protocol { is_available: false, ..RIGHT }).expect("no defect without an owner");
    assert!(worlds > 1_000, "{worlds} worlds");
}

#[test]
fn no_part_of_the_way_in_can_be_left_out() {
    let parts = [
        Protocol { has_barrier: false, ..RIGHT },
        Protocol { bars_before_barrier: false, ..RIGHT },
        Protocol { waits_before_it_shares: false, ..RIGHT },
        Protocol { clears_what_it_marked: false, ..RIGHT },
        Protocol { looks_behind_its_door: false, ..RIGHT },
    ];
    let orderings = [
        Protocol { leave: Relaxed, ..RIGHT },
        Protocol { gone: Relaxed, ..RIGHT },
        Protocol { out: Relaxed, ..RIGHT },
        Protocol { share: Relaxed, ..RIGHT },
        Protocol { shared: Relaxed, ..RIGHT },
        Protocol { settled: Relaxed, ..RIGHT },
        Protocol { take: Relaxed, ..RIGHT },
    ];
    for (number, protocol) in parts.into_iter().chain(orderings).enumerate() {
        assert!(explore_all(protocol).is_err(), "without part {number}");
    }
}

/// A thread that makes the calls that it is told to.
struct Caller {
    calls: mpsc::Sender<(Arc<EngineCell<()>>, Call)>,
    /// Whether it came in.
    answers: mpsc::Receiver<bool>,
    number: usize,
}

impl Caller {
    fn begin<'scope>(scope: &'scope thread::Scope<'scope, '_>) -> Self {
        let (calls, told) = mpsc::channel::<(Arc<EngineCell<()>>, Call)>();
        let (answer, answers) = mpsc::channel();
        let (name, named) = mpsc::channel();
        scope.spawn(move || {
            name.send(this_thread()).expect("heard");
            for (cell, call) in told {
                let came_in = match call {
                    With => cell.with(|()| true),
                    Try => cell.try_with(|()| true).unwrap_or(false),
                    Unless => cell.with_unless(BAR_OF_USER, |()| true).unwrap_or(false),
                    Bar(up) => {
                        cell.bar(BAR_OF_USER, up, Relaxed);
                        false
                    }
                    WithWith | WithTry => unreachable!("not told"),
                };
                drop(cell);
                answer.send(came_in).expect("heard");
            }
        });
        Self { calls, answers, number: named.recv().expect("a number") }
    }
}

#[test]
fn what_a_call_leaves_is_what_the_model_says() {
    let protocol = Protocol { is_available: barrier::is_available(), ..RIGHT };
    let calls = [With, Try, Unless, Bar(true), Bar(false)];
    let deeds: Vec<_> = (0..SIDES).flat_map(|side| calls.map(|call| (side, call))).collect();
    thread::scope(|scope| {
        let callers: [Caller; SIDES] = std::array::from_fn(|_| Caller::begin(scope));
        let real = |word: u8| {
            let named = callers.iter().enumerate().find(|(side, _)| word & !1 == mark(*side));
            named.map_or(usize::from(word), |(_, caller)| caller.number | usize::from(word & 1))
        };
        for number in 0..deeds.len().pow(3) {
            let rest = (0..3).map(|place| deeds[number / deeds.len().pow(place) % deeds.len()]);
            let made: Vec<_> = [(0, With)].into_iter().chain(rest).collect();
            let of = |side| made.iter().filter(move |deed| deed.0 == side).map(|deed| deed.1).collect();
            let lists: [Vec<Call>; SIDES] = [of(0), of(1), of(2)];
            let scripts = [&*lists[0], &*lists[1], &*lists[2]];
            let (cell, mut world) = (Arc::new(EngineCell::new(())), World::new());
            for (side, call) in &made {
                let Caller { calls, answers, .. } = &callers[*side];
                calls.send((Arc::clone(&cell), *call)).expect("heard");
                let came_in;
                (world, came_in) = world.alone(*side, &scripts, protocol);
                assert_eq!(answers.recv(), Ok(came_in), "{made:?}");
                let words = [DOOR, BARS, OWNER, HOLDER].map(|word| real(world.last(word)));
                assert_eq!(cell.words(), words, "{made:?}");
            }
        }
    });
}
