//! Several threads that sleep by what a domain has to be done ([`Traffic::arm`](super::traffic::Traffic::arm)), tried in every
//! order of their steps.
//!
//! Each sleeper waits for completions of his own, which anybody who makes progress may put: another sleeper, a program that looks
//! now and then and never sleeps, or who closes an endpoint, who sleeps too and is not told of all that others do for him.
//!
//! There is one peer. On this node it writes an entry, or reads one and so makes room, looks at the word of the alarm and rings
//! its pipe. On another node the kernel tells of either, once, and whoever looks first has taken that. What is left of the peer,
//! because it is others' turn, or for want of a place in the queue or of room in the ring, is in `Traffic::again`; who finds there
//! that nothing has changed wakes nobody.
//!
//! All sleep on the one pipe, which who arms empties; who was woken and has not looked yet sleeps on then. One
//! thread at a time is in the domain. What the memory may do with the word and the entries is tried in
//! `src/shm/alarm_model.rs`, and what one queue says to its own sleepers in `wait_model`; here steps are whole, and all see them
//! in one order. It is a defect when nobody can do anything any more and somebody sleeps, and when some can go on for ever: they
//! wake each other for nothing. Who closes may glance whenever he sleeps, but has to only where others have done what he waits for.
//!
//! What there is to be done is in several scenes, `exploration`, for all of it at once would be too much.

mod exploration;

use exploration::{Close, Deed, Scene};

const SLEEPERS: usize = 2;
/// The thread that closes an endpoint.
const CLOSER: usize = 2;
/// Whose completions no sleeper waits for.
const NOBODY: usize = 3;

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sleep {
    /// `Traffic::progress_all`: `progress`, and its last look.
    Progress,
    Last,
    Look(Then),
    /// `Wait::arm`
    ArmOwn,
    /// `Traffic::arm`, in the domain. Whether there is anything left, so that room is slept for, too.
    Empty,
    Say(bool),
    LookAll(bool),
    /// The last look, and whether anything has moved before it.
    Leave {
        wants_room: bool,
        has_moved: bool,
    },
    Asleep,
    Over,
}

/// What follows when nothing is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Then {
    Arm,
    Again,
    Sleep,
}

/// Where a peer of this node is with what it does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Do,
    Look,
    Ring,
}

/// What the word of the alarm says that is slept for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Word {
    Nothing,
    Entries,
    EntriesAndRoom,
}

/// The stream of who closes: it has ended, and somebody has taken that.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Stream {
    Open,
    Ended,
    Taken,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct World {
    /// Entries that the peer has written, and that were read; messages that were sent, and that have gone into our ring.
    written: u8,
    heard: u8,
    asked: u8,
    gone: u8,
    is_full: bool,
    places: u8,
    has_begun: bool,
    /// What has been put and not taken.
    put: [u8; SLEEPERS],
    taken: [u8; SLEEPERS],
    /// The word of the alarm, and its pipe; and what the kernel tells of the peer's stream.
    word: Word,
    pipe: bool,
    edge: bool,
    stream: Stream,
    /// `Traffic::again` and `is_armed`, and whether a thread is in there for more than a step.
    again: bool,
    is_armed: bool,
    is_inside: bool,
    /// The wait of each queue, and its sleeper's event.
    waits: [bool; SLEEPERS],
    events: [bool; SLEEPERS],
    threads: [Sleep; SLEEPERS + 1],
    writer: Step,
    reader: Step,
    /// What the program has done, and whether it has made room that it has not told of.
    deed: (u8, bool),
}

/// What is done of the protocol.
#[derive(Clone, Copy)]
struct Protocol {
    /// `Alarm::set`, and the look after it.
    empties_first: bool,
    says_room: bool,
    looks_after_it_says: bool,
    /// `Traffic::arm`: also where something has moved; it does not sleep by a word without room while something is left; and
    /// it rouses others for that.
    stays_armed: bool,
    sleeps_by_what_it_said: bool,
    rouses_for_what_it_leaves: bool,
    /// `Cq::read` and `Traffic::rouse_for_room`; `Wait::notify`.
    rouses_for_room: bool,
    notifies: bool,
    /// `Traffic::look_again`: whoever leaves a peer first rouses, and whoever finds that nothing has changed (`visited`) does not.
    rouses_at_first: bool,
    is_quiet_in_vain: bool,
    /// `Traffic::visit` rouses when something has moved and something is left; and so does `look_last`, by which begins what can.
    rouses_if_moved: bool,
    rouses_at_last: bool,
    begins_at_last: bool,
    /// `Traffic::part_from` and `GLANCE`
    wakes_closer: bool,
    glances: bool,
    /// `Traffic::progress_through`: who may sleep next reads on, though he was waiting.
    reads_through: bool,
}

const RIGHT: Protocol = Protocol {
    empties_first: true,
    says_room: true,
    looks_after_it_says: true,
    stays_armed: true,
    sleeps_by_what_it_said: true,
    rouses_for_what_it_leaves: true,
    rouses_for_room: true,
    notifies: true,
    rouses_at_first: true,
    is_quiet_in_vain: true,
    rouses_if_moved: true,
    rouses_at_last: true,
    begins_at_last: true,
    wakes_closer: true,
    glances: true,
    reads_through: true,
};

/// A scene, and how it is played.
#[derive(Clone, Copy)]
struct Trial {
    scene: Scene,
    protocol: Protocol,
}

impl World {
    fn new(scene: &Scene) -> Self {
        let begin = |has_to: bool| if has_to { Sleep::Progress } else { Sleep::Over };
        let [one, two] = scene.wanted.map(|wanted| begin(wanted != 0));
        Self {
            written: 0,
            heard: 0,
            asked: scene.asked,
            gone: 0,
            is_full: !scene.sends.is_empty(),
            places: scene.places,
            has_begun: false,
            put: [0; SLEEPERS],
            taken: [0; SLEEPERS],
            word: Word::Nothing,
            pipe: false,
            edge: false,
            stream: Stream::Open,
            again: scene.asked != 0,
            is_armed: false,
            is_inside: false,
            waits: [false; SLEEPERS],
            events: [false; SLEEPERS],
            threads: [one, two, begin(scene.closes.is_some())],
            writer: Step::Do,
            reader: Step::Do,
            deed: (0, false),
        }
    }

    /// Something has ended: `Cq::put`.
    fn put(&mut self, of: usize, trial: &Trial) {
        let Some(put) = self.put.get_mut(of) else { return };
        *put += 1;
        if trial.protocol.notifies && std::mem::take(&mut self.waits[of]) {
            self.events[of] = true;
        }
    }

    fn rouse(&mut self) {
        self.pipe |= std::mem::take(&mut self.is_armed);
    }

    fn look_again(&mut self, is_visited: bool, trial: &Trial) {
        let Protocol { rouses_at_first, is_quiet_in_vain, .. } = trial.protocol;
        let rouses = if is_visited { !is_quiet_in_vain } else { rouses_at_first };
        if !std::mem::replace(&mut self.again, true) && rouses {
            self.rouse();
        }
    }

    /// Messages go while there is room; whether any did.
    fn pump(&mut self, is_visited: bool, trial: &Trial) -> bool {
        let before = self.gone;
        while self.gone != self.asked {
            if std::mem::replace(&mut self.is_full, true) {
                self.look_again(is_visited, trial);
                break;
            }
            self.put(trial.scene.sends[usize::from(self.gone)], trial);
            self.gone += 1;
        }
        self.gone != before
    }

    /// Reads an entry; whether there was one that has a place.
    fn take(&mut self, is_visited: bool, trial: &Trial) -> bool {
        let has_come = self.heard != self.written && self.places != 0;
        if has_come {
            self.places -= 1;
            self.put(trial.scene.entries[usize::from(self.heard)], trial);
            self.heard += 1;
            self.pump(is_visited, trial);
        }
        has_come
    }

    /// The same, after which it is others' turn.
    fn read(&mut self, is_visited: bool, trial: &Trial) -> bool {
        let has_come = self.take(is_visited, trial);
        if self.heard != self.written {
            self.look_again(is_visited, trial);
        }
        has_come
    }

    /// A look of who waits, and `Traffic::glance`: what is behind the first entry is left without a word.
    fn glance(&mut self, trial: &Trial) {
        match self.places {
            0 => self.read(false, trial),
            _ => self.take(false, trial),
        };
    }

    /// Takes what the kernel tells of streams; whether anything moved.
    fn hear_far(&mut self, trial: &Trial) -> bool {
        let mut has_moved = false;
        if std::mem::take(&mut self.edge) {
            has_moved = self.read(false, trial) | self.pump(false, trial);
        }
        if self.stream == Stream::Ended {
            self.stream = Stream::Taken;
            self.pipe |= trial.protocol.wakes_closer;
            has_moved = true;
        }
        has_moved
    }

    /// What waits for entries that have come begins; whether it did.
    fn fire(&mut self, trial: &Trial) -> bool {
        let Some((count, of)) = trial.scene.then else { return false };
        let begins = !self.has_begun && self.heard >= count;
        if begins {
            self.has_begun = true;
            self.put(of, trial);
        }
        begins
    }

    /// `Traffic::progress`, with `visit`; whether anything moved.
    fn progress(&mut self, trial: &Trial) -> bool {
        let reads_on = trial.protocol.reads_through || self.places == 0;
        let mut has_moved =
            !trial.scene.is_far && if reads_on { self.read(false, trial) } else { self.take(false, trial) };
        has_moved |= self.hear_far(trial);
        if std::mem::take(&mut self.again) {
            let has_changed = self.read(true, trial) | self.pump(true, trial);
            if has_changed && self.again && trial.protocol.rouses_if_moved {
                self.rouse();
            }
            has_moved |= has_changed;
        }
        has_moved | self.fire(trial)
    }

    fn look_last(&mut self, trial: &Trial) -> bool {
        let Protocol { rouses_at_last, begins_at_last, .. } = trial.protocol;
        let mut has_moved = self.hear_far(trial);
        has_moved |= begins_at_last && self.fire(trial);
        if has_moved && self.again && rouses_at_last {
            self.rouse();
        }
        has_moved
    }

    /// The peer has done something, and the kernel tells of it; or it looks at the word itself, and rings.
    fn tell(&mut self, step: Step, is_far: bool, is_slept_for: bool) -> Step {
        match step {
            Step::Do if is_far => {
                self.edge = true;
                Step::Do
            }
            Step::Do => Step::Look,
            Step::Look if is_slept_for => {
                self.word = Word::Nothing;
                Step::Ring
            }
            Step::Look => Step::Do,
            Step::Ring => {
                self.pipe = true;
                Step::Do
            }
        }
    }

    /// The peer writes its entries.
    fn writes(&self, trial: &Trial) -> Option<Self> {
        let Scene { entries, ring, is_far, .. } = trial.scene;
        let mut after = *self;
        if self.writer == Step::Do {
            if usize::from(self.written) == entries.len() || self.written - self.heard == ring {
                return None;
            }
            after.written += 1;
        }
        after.writer = after.tell(self.writer, is_far, self.word != Word::Nothing);
        Some(after)
    }

    /// It reads our messages.
    fn reads(&self, trial: &Trial) -> Option<Self> {
        let Scene { entries, reads_last, is_far, .. } = trial.scene;
        let mut after = *self;
        if self.reader == Step::Do {
            if !self.is_full || reads_last && usize::from(self.heard) != entries.len() {
                return None;
            }
            after.is_full = false;
        }
        after.reader = after.tell(self.reader, is_far, self.word == Word::EntriesAndRoom);
        Some(after)
    }

    /// The stream of who closes ends.
    fn ends(&self, trial: &Trial) -> Option<Self> {
        let Scene { closes, is_alone, .. } = trial.scene;
        let is_time = !is_alone || self.threads[CLOSER] == Sleep::Asleep;
        let ends = closes == Some(Close::Farewell) && self.stream == Stream::Open && is_time;
        ends.then_some(Self { stream: Stream::Ended, ..*self })
    }

    /// What the program does next.
    fn acts(&self, trial: &Trial) -> Option<Self> {
        let mut after = *self;
        let (number, has_made_room) = self.deed;
        match trial.scene.program.get(usize::from(number))? {
            Deed::Room if !has_made_room => {
                after.places += 1;
                after.deed = (number, true);
                return (self.gone == self.asked).then_some(after);
            }
            _ if self.is_inside => return None,
            Deed::Room if self.again && trial.protocol.rouses_for_room => after.rouse(),
            Deed::Room => {}
            Deed::Poll => _ = after.progress(trial),
            Deed::Glance => after.glance(trial),
            Deed::Send => {
                after.asked += 1;
                after.pump(false, trial);
            }
        }
        after.deed = (number + 1, false);
        Some(after)
    }

    /// Whether there is nothing more that who closes waits for.
    fn is_closed(&self, trial: &Trial) -> bool {
        match trial.scene.closes {
            Some(Close::Answer) => self.gone != 0,
            Some(Close::Farewell) => self.stream != Stream::Open,
            None => true,
        }
    }

    /// Who closes does what he can.
    fn close(&mut self, trial: &Trial) -> Sleep {
        if trial.scene.closes == Some(Close::Answer) {
            self.pump(false, trial);
        } else {
            self.progress(trial);
        }
        if self.is_closed(trial) { Sleep::Over } else { Sleep::Empty }
    }

    /// What a sleeper, or who closes, does next: `Wait::until`, or `Domain::end`.
    fn sleeps(&self, thread: usize, trial: &Trial) -> Option<Self> {
        let Trial { scene, protocol } = *trial;
        let is_closer = thread == CLOSER;
        let mut after = *self;
        after.threads[thread] = match self.threads[thread] {
            Sleep::Progress | Sleep::Empty if self.is_inside => return None,
            Sleep::Progress if is_closer => after.close(trial),
            Sleep::Progress => {
                after.is_inside = true;
                after.progress(trial);
                Sleep::Last
            }
            Sleep::Last => {
                after.look_last(trial);
                after.is_inside = false;
                Sleep::Look(Then::Arm)
            }
            Sleep::Look(_) if self.put[thread] != 0 => {
                after.put[thread] -= 1;
                after.taken[thread] += 1;
                if after.taken[thread] == scene.wanted[thread] { Sleep::Over } else { Sleep::Progress }
            }
            Sleep::Look(Then::Arm) => Sleep::ArmOwn,
            Sleep::Look(Then::Again) => Sleep::Progress,
            Sleep::Look(Then::Sleep) => Sleep::Asleep,
            Sleep::ArmOwn => {
                (after.events[thread], after.waits[thread]) = (false, true);
                Sleep::Empty
            }
            Sleep::Empty => {
                after.is_inside = true;
                after.pipe &= !protocol.empties_first;
                Sleep::Say(self.again)
            }
            Sleep::Say(wants_room) => {
                let says_room = wants_room && protocol.says_room;
                after.word = if says_room { Word::EntriesAndRoom } else { Word::Entries };
                Sleep::LookAll(wants_room)
            }
            Sleep::LookAll(wants_room) => {
                after.is_armed = false;
                let has_moved = protocol.looks_after_it_says && after.progress(trial);
                Sleep::Leave { wants_room, has_moved }
            }
            Sleep::Leave { wants_room, has_moved } => {
                let has_moved = has_moved | (protocol.looks_after_it_says && after.look_last(trial));
                after.is_inside = false;
                after.pipe &= protocol.empties_first;
                after.is_armed |= protocol.stays_armed || !has_moved;
                let has_said_it = wants_room || !after.again || !protocol.sleeps_by_what_it_said;
                let may_sleep = !has_moved && has_said_it;
                if !may_sleep && after.again && protocol.rouses_for_what_it_leaves {
                    after.rouse();
                }
                match (is_closer, may_sleep) {
                    (true, true) => Sleep::Asleep,
                    (true, false) => Sleep::Progress,
                    (false, true) => Sleep::Look(Then::Sleep),
                    (false, false) => Sleep::Look(Then::Again),
                }
            }
            Sleep::Asleep => {
                let is_told = self.pipe || self.edge || self.stream == Stream::Ended;
                if !is_told && self.events.get(thread) != Some(&true) {
                    return None;
                }
                Sleep::Progress
            }
            Sleep::Over => return None,
        };
        Some(after)
    }

    /// Who closes looks again before long.
    fn glances(&self, trial: &Trial) -> Option<Self> {
        let may = trial.protocol.glances && !trial.scene.is_alone;
        let mut after = *self;
        after.threads[CLOSER] = Sleep::Progress;
        (may && self.threads[CLOSER] == Sleep::Asleep).then_some(after)
    }

    /// All that may follow, but for glances.
    fn next(&self, trial: &Trial) -> Vec<Self> {
        let others = [self.writes(trial), self.reads(trial), self.ends(trial), self.acts(trial)];
        let threads = (0..=CLOSER).map(|thread| self.sleeps(thread, trial));
        others.into_iter().chain(threads).flatten().collect()
    }

    /// What is wrong where nothing follows.
    fn defect(&self, trial: &Trial) -> Option<&'static str> {
        if self.threads[..SLEEPERS] != [Sleep::Over; SLEEPERS] {
            return Some("somebody sleeps while there is something to be done");
        }
        match self.threads[CLOSER] {
            Sleep::Over => None,
            _ if !self.is_closed(trial) => Some("who closes sleeps while there is something to be done"),
            _ if self.glances(trial).is_none() => Some("nobody tells who closes"),
            _ => None,
        }
    }
}
