//! Who sends to us before the host has made it known: its record is looked up by the name that it gives in the inbox, and
//! waited for where the host knows of such a process.
//!
//! Any process of the same user can write names there, in as many places as there are, and ring for them without end. So
//! a place whose claimant was not found is left alone for a [`REST`], a name that was not found is not looked up again for
//! a time that doubles up to [`LONGEST`], and [`MOST_FAILED`] look-ups at most find nothing in one rest. Who is honest and
//! becomes known late loses that time and no more: its place is looked at again whether it rings or not, and those that
//! could not be asked for go first the next time.

use rustix::process::{Pid, test_kill_process};

use super::component::{KEY, Smcuda, title};
use super::counters::Counters;
use super::state::{State, Step};
use crate::btl::Host;
use crate::link::Clock;
use crate::shm::{Claim, SLOTS};

/// For so many nanoseconds a place is left alone.
pub(super) const REST: u64 = 20_000_000;

/// Nanoseconds between two look-ups of one name, in the end.
const LONGEST: u64 = 32 * REST;

/// Look-ups that may find nothing in one rest.
pub(super) const MOST_FAILED: u32 = 4;

/// Nanoseconds between two looks at all of them, for each: many times what one costs.
const BETWEEN: u64 = 1000;

/// Names that are remembered.
const MOST_UNKNOWN: usize = 64;

/// Lines about them that a process writes.
const MOST_LINES: u32 = 32;

/// A name that was not found.
struct Unknown {
    name: u64,
    /// It is not looked up before.
    until: u64,
    /// How long that was.
    wait: u64,
}

/// What is known of those whom nobody knows.
pub(super) struct Strangers {
    /// A bit for each place that is left alone.
    resting: [u64; SLOTS / 64],
    /// A bit for each that is about to be asked for.
    noted: [u64; SLOTS / 64],
    /// Until when the former are left alone, if there are any.
    over: Option<u64>,
    /// The place that is heard first then.
    first: usize,
    /// How many look-ups may still find nothing, and until when that holds.
    left: u32,
    counted: u64,
    unknown: Vec<Unknown>,
    lines: u32,
    /// When it is looked again whether they have been made known.
    looked: u64,
}

impl Strangers {
    pub(super) const fn new() -> Self {
        Self {
            resting: [0; SLOTS / 64],
            noted: [0; SLOTS / 64],
            over: None,
            first: 0,
            left: MOST_FAILED,
            counted: 0,
            unknown: Vec::new(),
            lines: MOST_LINES,
            looked: 0,
        }
    }

    /// Whether a place is left alone.
    pub(super) fn rests(&self, place: usize) -> bool {
        self.resting[place / 64 % (SLOTS / 64)] & 1 << (place % 64) != 0
    }

    /// Notes that a place is to be asked for. Whether that is new.
    pub(super) fn note(&mut self, place: usize) -> bool {
        let (word, bit) = (place / 64 % (SLOTS / 64), 1 << (place % 64));
        let is_new = self.noted[word] & bit == 0;
        self.noted[word] |= bit;
        is_new
    }

    /// Leaves those out that are left alone, of the places that were rung for, or adds all of them when that is over.
    pub(super) fn sift(&mut self, rung: &mut Vec<usize>, clock: &Clock) {
        let Some(over) = self.over else { return };
        rung.retain(|place| !self.rests(*place));
        if clock.nanos() >= over {
            let all = (0..SLOTS).map(|step| (self.first + step) % SLOTS);
            rung.extend(all.filter(|place| self.rests(*place)));
            self.resting = [0; SLOTS / 64];
            self.over = None;
        }
    }

    /// Places that are left alone, and will be no more: somebody may have become known there.
    pub(super) fn wake(&mut self, is_known: impl Fn(usize) -> bool) -> Vec<usize> {
        let woken: Vec<usize> = match self.over {
            Some(_) => (0..SLOTS).filter(|place| self.rests(*place) && is_known(*place)).collect(),
            None => Vec::new(),
        };
        woken.iter().for_each(|place| self.resting[place / 64 % (SLOTS / 64)] &= !(1 << (place % 64)));
        woken
    }

    fn rest(&mut self, place: usize, now: u64) {
        self.over.get_or_insert(now + REST);
        self.resting[place / 64 % (SLOTS / 64)] |= 1 << (place % 64);
    }

    /// Whether it is time to look at so many of them again: the more they are, the less often.
    pub(super) fn are_due(&mut self, count: usize, clock: &Clock) -> bool {
        if count == 0 && self.over.is_none() {
            return false;
        }
        let now = clock.nanos();
        let is_due = now >= self.looked;
        if is_due {
            self.looked = now + count as u64 * BETWEEN;
        }
        is_due
    }

    /// Whether a name may be looked up now.
    fn may_ask(&mut self, name: u64, now: u64) -> bool {
        if now >= self.counted {
            self.counted = now + REST;
            self.left = MOST_FAILED;
        }
        self.left != 0 && self.unknown.iter().all(|other| other.name != name || other.until <= now)
    }

    /// A name was looked up, and not found. Whether a line may say so: once, while it is remembered.
    fn not_found(&mut self, name: u64, place: usize, now: u64) -> bool {
        self.left = self.left.saturating_sub(1);
        self.first = (place + 1) % SLOTS;
        self.rest(place, now);
        if let Some(known) = self.unknown.iter_mut().find(|other| other.name == name) {
            known.wait = (2 * known.wait).min(LONGEST);
            known.until = now + known.wait;
            return false;
        }
        let new = Unknown { name, until: now + REST, wait: REST };
        if self.unknown.len() < MOST_UNKNOWN {
            self.unknown.push(new);
        } else if let Some(oldest) = self.unknown.iter_mut().min_by_key(|other| other.until) {
            *oldest = new;
        }
        self.may_say()
    }

    /// Whether there is a line left.
    fn may_say(&mut self) -> bool {
        let may_say = self.lines != 0;
        self.lines = self.lines.saturating_sub(1);
        may_say
    }
}

/// Whether there is such a process.
fn lives(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

impl State {
    /// Somebody has rung whom nobody has made known: it is looked up soon.
    pub(super) fn wonder(&mut self, place: usize) {
        // Whoever rings without end is asked for once.
        if self.unmet.note(place) {
            self.news.push_back(Step::Stranger(place));
        }
    }

    /// Who has claimed a place of the inbox, if its record is to be looked up now.
    fn wonders(&mut self, place: usize) -> Option<Claim> {
        let now = self.clock.nanos();
        self.unmet.noted[place / 64 % (SLOTS / 64)] &= !(1 << (place % 64));
        let claimant = self.segment.claimant(place).ok();
        let wanted = claimant.filter(|claim| {
            claim.name != self.own && self.unmet.may_ask(claim.name, now) && lives(claim.pid)
        });
        if wanted.is_none() {
            self.unmet.rest(place, now);
        }
        wanted
    }

    /// A stranger's record was found, and is no reason to hear of this place. Whether that is so.
    pub(super) fn is_unheard_of(&self, place: usize) -> bool {
        let claim = self.segment.claimant(place);
        !self.strangers.contains(&place)
            && claim.is_ok_and(|claim| self.known(claim.name, &claim.life).is_none())
    }

    /// A stranger's record was not found. Whether a line may say so.
    pub(super) fn not_found(&mut self, name: u64, place: usize, counters: &Counters) -> bool {
        counters.num_unknown.add(1);
        self.unmet.not_found(name, place, self.clock.nanos())
    }
}

impl Smcuda {
    /// Somebody sends to us whom nobody has made known.
    #[cold]
    pub(super) fn look_up(&self, place: usize, host: &impl Host) {
        let Some(claim) = self.state.with(|state| state.wonders(place)) else { return };
        let (name, counters) = (claim.name, &self.counters);
        let found = host.published_by_now(KEY, name).or_else(|error| {
            // What the host takes for another node, such as a container, may be this one: it has the record of a process there
            // only if that is asked for.
            if host.knows(name) { host.published(KEY, name) } else { Err(error) }
        });
        if !host.is_here() {
            return;
        }
        let met = found.map(|bytes| self.meet(name, &bytes, host));
        if !host.is_here() {
            return;
        }
        match met {
            Ok(Ok(_)) => self.state.with(|state| {
                state.settle(place);
                if state.is_unheard_of(place) {
                    state.not_found(name, place, counters);
                }
            }),
            Ok(Err(why)) => {
                let may_say = self.state.with(|state| {
                    state.refuse(place, &claim);
                    state.not_found(name, place, counters);
                    state.unmet.may_say()
                });
                if may_say {
                    host.say(&format!(
                        "btl:smcuda: {} sends, but is not reached from here, and loses this process for that reason: {why}; `--mca btl ^smcuda` does without",
                        title(name)
                    ));
                }
            }
            // It may be known later.
            Err(error) => {
                let may_say = self.state.with(|state| state.not_found(name, place, counters));
                if may_say && host.is_verbose() {
                    host.say(&format!(
                        "btl:smcuda: {} sends, and its record is not to be had yet ({error})",
                        title(name)
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_found_is_asked_for_less_and_less_often() {
        let mut strangers = Strangers::new();
        let (mut now, mut asked) = (1, 0);
        while now < 100 * LONGEST {
            if strangers.may_ask(7, now) {
                strangers.not_found(7, 0, now);
                asked += 1;
            }
            now += REST / 2;
        }
        assert!((100..110).contains(&asked), "{asked}");
        assert!(strangers.may_ask(8, now), "another one");
    }

    #[test]
    fn few_look_ups_in_a_rest_find_nothing_however_many_names_there_are() {
        let mut strangers = Strangers::new();
        let mut asked = 0;
        for turn in 0..1000_u64 {
            let now = 1 + turn * REST;
            for name in 0..200 {
                if strangers.may_ask(turn << 32 | name, now + name) {
                    strangers.not_found(turn << 32 | name, name as usize, now + name);
                    asked += 1;
                }
            }
        }
        assert_eq!(asked, 1000 * MOST_FAILED);
        assert_eq!(strangers.unknown.len(), MOST_UNKNOWN);
        assert_eq!(strangers.lines, 0);
    }

    #[test]
    fn every_place_has_its_turn() {
        let mut strangers = Strangers::new();
        let (clock, mut heard) = (Clock::new(), [false; SLOTS]);
        for turn in 0..SLOTS as u64 / u64::from(MOST_FAILED) {
            let mut rung: Vec<usize> = (0..SLOTS).collect();
            strangers.over = strangers.over.map(|_| 0);
            strangers.sift(&mut rung, &clock);
            assert_eq!(rung.len(), SLOTS);
            for place in rung {
                // Other names each time.
                let (now, name) = (1 + turn * REST, turn << 32 | place as u64);
                if strangers.may_ask(name, now) {
                    strangers.not_found(name, place, now);
                    heard[place] = true;
                } else {
                    strangers.rest(place, now);
                }
            }
        }
        assert!(heard.iter().all(|heard| *heard));
    }

    #[test]
    fn who_rests_is_not_heard_and_who_does_not_is() {
        let mut strangers = Strangers::new();
        let clock = Clock::new();
        strangers.rest(3, u64::MAX - REST);
        strangers.rest(SLOTS - 1, u64::MAX - REST);
        let mut rung = vec![3, 4, SLOTS - 1];
        strangers.sift(&mut rung, &clock);
        assert_eq!(rung, [4]);
        strangers.over = Some(0);
        strangers.sift(&mut rung, &clock);
        assert_eq!(rung, [4, 3, SLOTS - 1], "without their ringing");
        strangers.sift(&mut rung, &clock);
        assert_eq!(rung.len(), 3, "once");
    }
}
