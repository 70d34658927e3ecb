//! The cell's way in, tried in every order that the memory allows.
//!
//! Two or three threads, each with a list of calls, as lists of steps over a memory in which each word keeps all that was ever
//! stored there, and each side has a view: which store of each word is the oldest that it may still see. A load may return any
//! store from there on; an exchange takes the last one, or fails with any other. A store with release carries the view
//! of its writer, an exchange goes on carrying what the one before it did, and a load with acquire takes over what it finds. The heavy
//! half of the barrier is a fence of the thread that calls it, one in each other thread at some moment during the call, and
//! one more of its own; the light half is nothing. Of the orderings that `cell::order` does not name, the model takes
//! the weakest, whatever the code says.
//!
//! What is inside is a word too, which everybody who comes in writes. It is a defect when two are inside, when somebody comes in
//! who may not see what the one before has written, when somebody comes in by the door after it was taken away, when a bar goes
//! unseen by who comes in after a turn of the one that has put it up, when somebody is refused for nothing or comes in twice, and
//! when there is a state from which the calls cannot all come to their end.
//!
//! What is not tried: that a store is seen before what its own thread loads ahead of it. A thread that has the number of one that
//! has ended is the same to the model, since it begins with what that one has seen.
//!
//! With any part of the protocol left out the model must fail, or it proves nothing. What a call leaves in the words, if nobody
//! comes in between, is compared with the cell itself.

use std::sync::atomic::Ordering::{self, Relaxed};

use super::cell::{INSIDE, NOBODY, REVOKED, REVOKING, SHARED, UNUSED, order};

mod exploration;

/// Words.
const DOOR: usize = 0;
const BARS: usize = 1;
const OWNER: usize = 2;
const HOLDER: usize = 3;
const WORDS: usize = 4;
/// No word, but a part of views: whether what was last written inside is seen.
const STATE: usize = WORDS;
const SIDES: usize = 3;

/// A bar of a user's.
const BAR: u8 = 1 << 1;

fn mark(side: usize) -> u8 {
    SHARED as u8 + 2 * (side as u8 + 1)
}

fn inside(side: usize) -> u8 {
    mark(side) | INSIDE as u8
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    With,
    Try,
    /// The short way, unless the user's bar is up.
    Unless,
    /// Comes in, and calls again there.
    WithWith,
    WithTry,
    /// Puts the bar up, or takes it away.
    Bar(bool),
}

type Scripts<'a> = [&'a [Call]; SIDES];
type View = [u8; WORDS + 1];

/// What one sees who has seen nothing.
const NOTHING: View = [0; WORDS + 1];

fn join(view: &mut View, other: &View) {
    view.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

/// Which step is next, by what it touches.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// `enter`, and `step_back`.
    #[default]
    Door,
    Mark,
    Bars,
    Back,
    BackBars,
    Gone,
    /// `try_lock`
    Owner,
    Holder,
    Take(u8),
    /// `own`
    Own,
    Claim,
    Open,
    /// `revoke`
    OwnDoor,
    Settled,
    Revoking(u8),
    Revoke,
    Barrier,
    /// The side that has its part of it next.
    Interrupt(usize),
    Out,
    Share,
    /// Has the state by this word.
    Leave(usize),
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Side {
    view: View,
    call: u8,
    step: Step,
    /// The way by `lock`, not the short one before it.
    is_long: bool,
    /// The outer call has the state by this word.
    outer: Option<usize>,
    /// Began when nobody else had anything to do any more, and knew everything.
    is_alone: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// Each store that may still be seen, and the view that it carries.
    memory: [Vec<(u8, View)>; WORDS],
    /// What was seen before any fence.
    fence: View,
    sides: [Side; SIDES],
    inside: Option<usize>,
    /// The cell is everybody's.
    is_shared: bool,
    /// Who has put the user's bar up, and whether it has had a turn since.
    bar: Option<(usize, bool)>,
}

/// What is done of the protocol.
#[derive(Clone, Copy)]
struct Protocol {
    is_available: bool,
    has_barrier: bool,
    bars_before_barrier: bool,
    waits_before_it_shares: bool,
    clears_what_it_marked: bool,
    looks_behind_its_door: bool,
    leave: Ordering,
    gone: Ordering,
    out: Ordering,
    share: Ordering,
    shared: Ordering,
    settled: Ordering,
    take: Ordering,
}

const RIGHT: Protocol = Protocol {
    is_available: true,
    has_barrier: true,
    bars_before_barrier: true,
    waits_before_it_shares: true,
    clears_what_it_marked: true,
    looks_behind_its_door: true,
    leave: order::LEAVE,
    gone: order::GONE,
    out: order::OUT,
    share: order::SHARE,
    shared: order::SHARED,
    settled: order::SETTLED,
    take: order::TAKE,
};

type Next = Result<Vec<World>, &'static str>;

impl World {
    fn new() -> Self {
        let memory = [NOBODY as u8, 0, UNUSED as u8, NOBODY as u8].map(|value| vec![(value, NOTHING)]);
        let mut sides = [Side::default(); SIDES];
        sides.iter_mut().for_each(|side| side.view[STATE] = 1);
        Self { memory, fence: NOTHING, sides, inside: None, is_shared: false, bar: None }
    }

    fn store(&mut self, side: usize, word: usize, value: u8, order: Ordering) {
        let view = &mut self.sides[side].view;
        view[word] = self.memory[word].len() as u8;
        let carried = if order == Relaxed { NOTHING } else { *view };
        self.memory[word].push((value, carried));
    }

    fn last(&self, word: usize) -> u8 {
        self.memory[word].last().map_or(0, |(value, _)| *value)
    }

    /// Everything that a load may return, with the world after it; the newest last.
    fn load(&self, side: usize, word: usize, order: Ordering) -> impl Iterator<Item = (u8, Self)> {
        let oldest = usize::from(self.sides[side].view[word]);
        (oldest..self.memory[word].len()).map(move |place| {
            let mut after = self.clone();
            let (value, carried) = self.memory[word][place];
            let view = &mut after.sides[side].view;
            view[word] = place as u8;
            if order != Relaxed {
                join(view, &carried);
            }
            (value, after)
        })
    }

    /// The same, and which step follows.
    fn look(&self, side: usize, word: usize, order: Ordering, then: impl Fn(u8) -> Step) -> Vec<Self> {
        self.load(side, word, order).map(|(value, after)| after.at(side, then(value))).collect()
    }

    /// Changes the last store of a word.
    fn change(&mut self, side: usize, word: usize, value: u8, order: Ordering) {
        let carried = self.memory[word].last().map_or(NOTHING, |(_, carried)| *carried);
        if order != Relaxed {
            join(&mut self.sides[side].view, &carried);
        }
        self.store(side, word, value, Relaxed);
        if let Some((_, further)) = self.memory[word].last_mut() {
            *further = carried;
        }
    }

    /// Exchanges one value for another: the worlds where that fails, and the one where it does not.
    fn exchange(
        &self,
        side: usize,
        word: usize,
        (from, to): (u8, u8),
        order: Ordering,
    ) -> (Vec<Self>, Option<Self>) {
        let others = self.load(side, word, Relaxed).filter(|(value, _)| *value != from);
        let done = (self.last(word) == from).then(|| {
            let mut after = self.clone();
            after.change(side, word, to, order);
            after
        });
        (others.map(|(_, after)| after).collect(), done)
    }

    fn pass_fence(&mut self, side: usize) {
        join(&mut self.fence, &self.sides[side].view);
        self.sides[side].view = self.fence;
    }

    fn views(&mut self) -> impl Iterator<Item = &mut View> {
        let carried = self.memory.iter_mut().flatten().map(|(_, carried)| carried);
        self.sides.iter_mut().map(|side| &mut side.view).chain([&mut self.fence]).chain(carried)
    }

    /// Forgets what nobody may see any more who still has something to do, and takes for one what is the same twice.
    fn forget(mut self, scripts: &Scripts<'_>) -> Self {
        for word in 0..WORDS {
            let goes_on = |side: &usize| !self.is_over(*side, scripts);
            let oldest = (0..SIDES).filter(goes_on).map(|side| self.sides[side].view[word]).min();
            let oldest = oldest.unwrap_or(self.memory[word].len() as u8 - 1);
            self.memory[word].drain(..usize::from(oldest));
            self.views().for_each(|view| view[word] = view[word].saturating_sub(oldest));
            let stores = &self.memory[word];
            let same = (1..stores.len()).rev().filter(|place| stores[*place] == stores[place - 1]);
            for place in same.collect::<Vec<_>>() {
                self.memory[word].remove(place);
                self.views().for_each(|view| view[word] -= u8::from(usize::from(view[word]) >= place));
            }
        }
        self
    }

    fn at(mut self, side: usize, step: Step) -> Self {
        self.sides[side].step = step;
        self
    }

    /// The call is over.
    fn done(mut self, side: usize) -> Self {
        let own = &mut self.sides[side];
        *own = Side { view: own.view, call: own.call + 1, ..Side::default() };
        self
    }

    /// An inner call is over: back to the outer one.
    fn returned(mut self, side: usize) -> Self {
        let own = &mut self.sides[side];
        (own.is_long, own.step) = (false, own.outer.take().map_or(Step::Door, Step::Leave));
        self
    }

    /// Whether the call waits, if it must.
    fn waits(&self, side: usize, call: Call) -> bool {
        match call {
            Call::With | Call::WithWith => true,
            Call::WithTry => self.sides[side].outer.is_none(),
            Call::Try | Call::Unless | Call::Bar(_) => false,
        }
    }

    /// `enter` or `try_lock` has come to nothing. Whether it has the state already a thread sees of its own stores.
    fn refused(mut self, side: usize, call: Call) -> Result<Self, &'static str> {
        let own = &mut self.sides[side];
        if !own.is_long && call != Call::Unless {
            own.is_long = true;
            return Ok(self.at(side, Step::Owner));
        }
        let mut words = [DOOR, HOLDER].into_iter();
        let has = words.any(|word| self.load(side, word, Relaxed).any(|(value, _)| value == inside(side)));
        match self.sides[side] {
            Side { outer: None, .. } if has => Err("somebody seems to have what it has not"),
            Side { outer: Some(_), .. } if has || !self.waits(side, call) => Ok(self.returned(side)),
            _ if self.waits(side, call) => Ok(self.at(side, Step::Owner)),
            Side { is_alone: true, is_long: true, .. } => Err("somebody is refused for nothing"),
            _ => Ok(self.done(side)),
        }
    }

    /// Comes in.
    fn comes_in(mut self, side: usize, by: usize) -> Result<Self, &'static str> {
        if self.sides[side].outer.is_some() {
            return Err("somebody comes in twice");
        }
        if self.inside.is_some() {
            return Err("two are inside");
        }
        if by == DOOR && self.is_shared {
            return Err("somebody comes in by a door that was taken away");
        }
        if self.sides[side].view[STATE] == 0 {
            return Err("what the one before has written may go unseen");
        }
        if matches!(self.bar, Some((_, true)))
            && self.load(side, BARS, Relaxed).any(|(bars, _)| bars & BAR == 0)
        {
            return Err("a bar goes unseen");
        }
        if let Some((who, had_turn)) = &mut self.bar {
            *had_turn |= *who == side;
        }
        self.inside = Some(side);
        Ok(self.at(side, Step::Leave(by)))
    }

    fn is_over(&self, side: usize, scripts: &Scripts<'_>) -> bool {
        usize::from(self.sides[side].call) == scripts[side].len()
    }

    /// Whether all others have done, and this one knows it.
    fn is_alone(&self, side: usize, scripts: &Scripts<'_>) -> bool {
        let is_done = |other| other == side || self.is_over(other, scripts);
        let mut words = self.sides[side].view.iter().zip(&self.memory);
        (0..SIDES).all(is_done) && words.all(|(seen, stores)| usize::from(*seen) + 1 == stores.len())
    }

    /// The barrier of another side, from this one on, or the end of it. Sides that never do anything have none.
    fn interrupt(&self, side: usize, from: usize, scripts: &Scripts<'_>) -> Step {
        let mut others = (from..SIDES).filter(|other| *other != side && !scripts[*other].is_empty());
        Step::Interrupt(others.next().unwrap_or(SIDES))
    }

    /// One call of a side, while no other does anything: how it ends, and whether it came in.
    fn alone(mut self, side: usize, scripts: &Scripts<'_>, protocol: Protocol) -> (Self, bool) {
        let (before, mut came_in) = (self.sides[side].call, false);
        while self.sides[side].call == before {
            // The newest is what a load returns.
            let next = self.go(side, scripts, protocol).expect("no defect");
            self = next.into_iter().next_back().expect("it goes on");
            came_in |= self.inside.is_some();
        }
        (self.forget(scripts), came_in)
    }

    /// What a side may do next.
    fn go(&self, side: usize, scripts: &Scripts<'_>, protocol: Protocol) -> Next {
        let Side { call, step, is_long, .. } = self.sides[side];
        let Some(&call) = scripts[side].get(usize::from(call)) else { return Ok(Vec::new()) };
        let has = inside(side);
        let mut after = self.clone();
        Ok(match step {
            Step::Door if matches!(call, Call::Bar(_)) => {
                let (bars, up) = (self.last(BARS), call == Call::Bar(true));
                after.change(side, BARS, if up { bars | BAR } else { bars & !BAR }, Relaxed);
                after.bar = up.then_some((side, false));
                vec![after.done(side)]
            }
            Step::Door => {
                after.sides[side].is_alone |= !is_long && self.is_alone(side, scripts);
                let doors = after.load(side, DOOR, Relaxed).map(|(door, after)| {
                    if door == mark(side) {
                        Ok(after.at(side, Step::Mark))
                    } else {
                        after.refused(side, call)
                    }
                });
                return doors.collect();
            }
            Step::Mark => {
                let marked = self.load(side, DOOR, Relaxed).map(|(door, mut after)| {
                    after.store(side, DOOR, door | INSIDE as u8, Relaxed);
                    after.at(side, Step::Bars)
                });
                marked.collect()
            }
            Step::Bars => {
                let bar = if call == Call::Unless { BAR } else { 0 };
                let bars = self.load(side, BARS, Relaxed).map(|(bars, after)| {
                    if bars & (REVOKED as u8 | bar) == 0 || !protocol.looks_behind_its_door {
                        after.comes_in(side, DOOR)
                    } else {
                        Ok(after.at(side, Step::Back))
                    }
                });
                return bars.collect();
            }
            Step::Back => {
                if protocol.clears_what_it_marked {
                    after.store(side, DOOR, mark(side), protocol.leave);
                }
                vec![after.at(side, Step::BackBars)]
            }
            Step::BackBars => {
                let looked = self.load(side, BARS, Relaxed).map(|(bars, after)| {
                    if bars & REVOKED as u8 != 0 && protocol.clears_what_it_marked {
                        Ok(after.at(side, Step::Gone))
                    } else {
                        after.refused(side, call)
                    }
                });
                return looked.collect();
            }
            Step::Gone => {
                after.store(side, DOOR, NOBODY as u8, protocol.gone);
                vec![after.refused(side, call)?]
            }
            Step::Owner => self.look(side, OWNER, protocol.shared, |owner| {
                if owner == SHARED as u8 { Step::Holder } else { Step::Own }
            }),
            Step::Own => self.look(side, OWNER, Relaxed, |owner| match owner {
                owner if owner == UNUSED as u8 => Step::Claim,
                owner if owner == mark(side) => Step::Door,
                _ => Step::OwnDoor,
            }),
            Step::Claim => {
                let first = if protocol.is_available { mark(side) } else { SHARED as u8 };
                let (lost, won) = self.exchange(side, OWNER, (UNUSED as u8, first), Relaxed);
                let to = if protocol.is_available { Step::Open } else { Step::OwnDoor };
                let lost = lost.into_iter().map(|after| after.at(side, Step::OwnDoor));
                lost.chain(won.map(|after| after.at(side, to))).collect()
            }
            Step::Open => {
                after.store(side, DOOR, mark(side), Relaxed);
                vec![after.at(side, Step::Door)]
            }
            Step::OwnDoor => {
                let doors = self.load(side, DOOR, Relaxed).map(|(door, after)| {
                    if door == has { after.refused(side, call) } else { Ok(after.at(side, Step::Settled)) }
                });
                return doors.collect();
            }
            Step::Settled => self.look(side, OWNER, protocol.settled, |owner| match owner {
                owner if owner == SHARED as u8 => Step::Holder,
                owner if owner == REVOKING as u8 => protocol.revoke(),
                owner => Step::Revoking(owner),
            }),
            Step::Revoking(owner) => {
                let (lost, won) = self.exchange(side, OWNER, (owner, REVOKING as u8), Relaxed);
                lost.into_iter().chain(won).map(|after| after.at(side, protocol.revoke())).collect()
            }
            Step::Revoke => {
                after.change(side, BARS, self.last(BARS) | REVOKED as u8, Relaxed);
                vec![after.at(side, if protocol.bars_before_barrier { Step::Barrier } else { Step::Out })]
            }
            Step::Barrier if protocol.has_barrier => {
                after.pass_fence(side);
                vec![after.at(side, self.interrupt(side, 0, scripts))]
            }
            Step::Interrupt(other) if other < SIDES => {
                after.pass_fence(other);
                vec![after.at(side, self.interrupt(side, other + 1, scripts))]
            }
            Step::Barrier | Step::Interrupt(_) => {
                if protocol.has_barrier {
                    after.pass_fence(side);
                }
                vec![after.at(side, if protocol.bars_before_barrier { Step::Out } else { Step::Revoke })]
            }
            Step::Out => {
                let doors = self.load(side, DOOR, protocol.out).map(|(door, after)| {
                    if door & INSIDE as u8 == 0 || !protocol.waits_before_it_shares {
                        Ok(after.at(side, Step::Share))
                    } else if self.waits(side, call) {
                        Ok(after)
                    } else {
                        after.refused(side, call)
                    }
                });
                return doors.collect();
            }
            Step::Share => {
                after.store(side, OWNER, SHARED as u8, protocol.share);
                after.is_shared = true;
                vec![after.at(side, Step::Holder)]
            }
            Step::Holder => {
                let holders = self.load(side, HOLDER, Relaxed).map(|(holder, after)| {
                    if holder & INSIDE as u8 == 0 {
                        Ok(after.at(side, Step::Take(holder)))
                    } else {
                        after.refused(side, call)
                    }
                });
                return holders.collect();
            }
            Step::Take(last) => {
                let (lost, won) = self.exchange(side, HOLDER, (last, has), protocol.take);
                let lost = lost.into_iter().map(|after| after.refused(side, call));
                return lost.chain(won.map(|after| after.comes_in(side, HOLDER))).collect();
            }
            Step::Leave(by) => {
                let calls_again = matches!(call, Call::WithWith | Call::WithTry);
                // Writes what is lent, and goes.
                after.views().for_each(|view| view[STATE] = 0);
                after.sides[side].view[STATE] = 1;
                after.store(side, by, mark(side), protocol.leave);
                after.inside = None;
                let mut next = vec![after.done(side)];
                if calls_again {
                    let mut inner = self.clone();
                    inner.sides[side].outer = Some(by);
                    (inner.sides[side].is_long, inner.sides[side].is_alone) = (false, false);
                    next.push(inner.at(side, Step::Door));
                }
                next
            }
        })
    }
}

impl Protocol {
    /// The first step of those that take the bias away.
    fn revoke(self) -> Step {
        if self.bars_before_barrier { Step::Revoke } else { Step::Barrier }
    }
}
