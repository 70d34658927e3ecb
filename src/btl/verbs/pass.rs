//! One pass: what has come is read, one thing after the other, and then it is looked after who has something to send or
//! is to be told something.

use std::sync::atomic::Ordering;

use super::connection::Broken;
use super::peer::Item;
use super::signs::{Due, Patience, Places};
use super::state::{Delivered, SHORT_OF_BUFFERS, State, Step};
use crate::engine::cm::{Attempt, Reason};
use crate::wire::verbs::Control;

/// After so many nanoseconds it is looked at what is seldom due.
const TICK: u64 = 5_000_000;

/// Passes between looks at the clock, and at whether there is anyone who leaves.
const TURNS: u32 = 32;

impl State {
    /// A pass begins; whether there is anything to be done in it. If not, it is over.
    #[inline(always)]
    pub(super) fn begin_pass(&mut self) -> bool {
        self.cursor = 0;
        self.is_busy = false;
        if !self.news.is_empty() || self.next != self.came || self.has_mail() || self.poll() {
            return true;
        }
        self.end_pass();
        !self.news.is_empty()
    }

    /// Whether the connection thread has said something.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        self.mail.is_there()
    }

    /// What is to be done next; `None`: the pass is over.
    #[inline(never)]
    pub(super) fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Some(news);
            }
            if self.has_mail() {
                self.read_mail();
                continue;
            }
            if self.next < self.came {
                self.next += 1;
                if let Some(step) = self.complete(self.next - 1) {
                    return Some(step);
                }
                continue;
            }
            if self.poll() {
                continue;
            }
            self.end_pass();
            if self.news.is_empty() {
                return None;
            }
        }
    }

    /// Reads completion queues until something has come; false when all have been read.
    #[inline]
    pub(super) fn poll(&mut self) -> bool {
        // SYNC POINT: completion-queues (released in `Port::reserve`, and in `Port::fail`)
        if self.completions.len() != self.desk.port.count.load(Ordering::Acquire) {
            self.look_for_queues();
        }
        self.next = 0;
        self.came = 0;
        while let Some(queue) = self.completions.get(self.cursor) {
            self.cursor += 1;
            let Ok(came) = queue.poll(&mut self.batch) else {
                self.desk.port.fail();
                return false;
            };
            self.came = came;
            if self.came > 0 {
                self.is_busy = true;
                return true;
            }
        }
        false
    }

    #[cold]
    fn look_for_queues(&mut self) {
        if self.desk.port.has_failed() {
            // What comes after something that is lost is not to be delivered: nobody could tell.
            self.completions.clear();
            return;
        }
        while let Some(queue) = self.desk.port.completions(self.completions.len()) {
            self.completions.push(queue);
        }
    }

    /// Everything that has come is handled.
    #[inline(always)]
    pub(super) fn end_pass(&mut self) {
        let is_over =
            self.touched.is_empty() && self.stalled.is_empty() && !self.has_due && !self.is_seeing_off;
        if !is_over {
            self.do_what_is_left();
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS) {
            self.is_seeing_off = self.is_anyone_leaving();
            self.tick();
        }
    }

    /// Whether there is anyone whose queue pairs go.
    fn is_anyone_leaving(&self) -> bool {
        !self.leaving.is_empty()
            || !self.departing.is_empty()
            || !self.vacated.is_empty()
            || self.desk.port.has_vacated()
    }

    /// Does what is left for the end of a pass.
    #[inline(never)]
    fn do_what_is_left(&mut self) {
        if self.has_due {
            self.look_at_shared_queues();
        }
        while let Some(place) = self.touched.pop() {
            self.look_after(place);
        }
        if !self.stalled.is_empty() {
            self.look_for_words();
        }
        if self.desk.port.is_short() {
            self.make_room();
        }
        if self.is_seeing_off && !self.is_busy {
            self.let_go();
            self.is_seeing_off = self.is_anyone_leaving();
        }
    }

    /// There was too little memory for messages.
    #[cold]
    fn make_room(&mut self) {
        let (wanted, refused) = self.desk.port.wanted();
        if wanted > 0 {
            self.news.push_back(Step::Room { wanted, refused });
        }
        if let Some(bytes) = self.desk.port.lack() {
            self.news.push_back(Step::Short(bytes, SHORT_OF_BUFFERS));
        }
    }

    /// Posts buffers of shared queues, and finds out who has been lent some.
    fn look_at_shared_queues(&mut self) {
        self.has_due = false;
        for queue in 0..self.desk.shared.len() {
            let Some(shared) = self.desk.shared[queue].as_mut().filter(|shared| shared.is_due()) else {
                continue;
            };
            shared.post();
            shared.keep_up(&self.desk.port);
            shared.keep_up_unlent(&self.desk.port);
            self.has_due |= shared.is_due();
            while let Some(place) = self.desk.shared[queue].as_mut().and_then(|it| it.lender.next_fresh()) {
                self.touch(place as u32);
            }
        }
    }

    /// Sends what waits for a peer, and tells it what it may send.
    fn look_after(&mut self, place: u32) {
        let Self { desk, peers, news, stalled, has_due, .. } = self;
        let Some(peer) = peers.get_mut(place as usize) else { return };
        peer.is_touched = false;
        for shared in desk.shared.iter_mut().flatten() {
            shared.make_up(place as usize);
            *has_due |= shared.is_due();
            if shared.lender.news(place as usize).is_some()
                && let Some(connection) = &mut peer.connection
            {
                connection.has_news = true;
            }
        }
        match peer.flush(desk, |cookie| news.push_back(Step::Done(cookie, Ok(())))) {
            Ok(true) => {
                if !std::mem::replace(&mut peer.is_stalled, true) {
                    stalled.push(place);
                }
            }
            Ok(false) => {}
            Err(broken) => {
                self.break_off(place, broken);
                return;
            }
        }
        if let Some(attempt) = peer.is_left() {
            self.broken(place, attempt, Reason::Broken);
        }
    }

    /// Peers may have written what others wait for.
    #[cold]
    fn look_for_words(&mut self) {
        for place in std::mem::take(&mut self.stalled) {
            if let Some(peer) = self.at(place) {
                peer.is_stalled = false;
                self.look_after(place);
            }
        }
    }

    /// The host has read what was delivered.
    #[inline]
    pub(super) fn release(&mut self, delivered: Delivered) {
        match delivered {
            Delivered::Part { .. } | Delivered::Late { .. } => {}
            Delivered::Shared { place, queue, at } => {
                self.has_due = true;
                if let Some(shared) = &mut self.desk.shared[usize::from(queue)] {
                    shared.release(at);
                }
                // It may have been looked after while the host still read.
                self.touch(place);
            }
            Delivered::Private { place, attempt, queue, at, .. } => {
                self.release_private(place, attempt, usize::from(queue), at);
            }
        }
    }

    /// A private buffer of an attempt to connect is not needed any more.
    #[cold]
    pub(super) fn release_private(&mut self, place: u32, attempt: Attempt, queue: usize, at: u32) {
        let connection = self.at(place).and_then(|peer| peer.connection.as_mut());
        let Some(connection) = connection.filter(|it| it.attempt == attempt) else { return };
        let receives = connection.sides.get_mut(queue).and_then(|side| side.receives.as_mut());
        match receives.map_or(0, |receives| receives.release(at)) {
            0 => {}
            count => self.post_again(place, queue, count),
        }
    }

    /// Posts the free buffers of a private queue, of which there are so many.
    #[inline(never)]
    pub(super) fn post_again(&mut self, place: u32, queue: usize, count: u32) {
        let credits = self.desk.credits;
        let Some(connection) = self.at(place).and_then(|peer| peer.connection.as_mut()) else { return };
        let posted = connection.post_again(queue, count, credits);
        self.posted(place, posted);
    }

    /// Buffers of a peer's private queue have been posted, or could not be; whether it may have to be told.
    #[inline]
    pub(super) fn posted(&mut self, place: u32, outcome: std::result::Result<bool, Broken>) {
        match outcome {
            Ok(true) => self.touch(place),
            Ok(false) => {}
            Err(broken) => self.break_off(place, broken),
        }
    }

    /// Now and then.
    #[cold]
    fn tick(&mut self) {
        let now = self.clock.nanos();
        if now - self.ticked < TICK {
            return;
        }
        self.ticked = now;
        if self.reading == 0 {
            self.kept.clear();
        }
        for queue in 0..self.desk.shared.len() {
            let recall = self.desk.shared[queue].as_mut().and_then(|shared| shared.lender.recall());
            let Some(recall) = recall else { continue };
            let credits = self.desk.port.queues.credits();
            self.desk.counters.num_recalls.add(1);
            if let Some(peer) = self.at(recall.account as u32) {
                let control = Control::Recall { queue: queue as u8, keep: recall.keep };
                peer.pending[credits].push_back(Item::Control(control));
            }
            self.touch(recall.account as u32);
        }
        if self.desk.port.has_failed() {
            self.look_at_failure();
        }
        if let Some(patience) = self.patience {
            self.look_for_signs(now, patience);
            self.look_for_memory(now, patience);
            self.look_for_buffers(now, patience);
        }
    }

    /// A queue that all have in common has failed: no connection of the port is good, and another one would not be. Peers hear of it
    /// then, and may end the job: the user is told before.
    #[cold]
    fn look_at_failure(&mut self) {
        if !self.tell_failure() {
            return;
        }
        let begun: Vec<_> = self
            .peers
            .iter()
            .filter_map(|peer| Some((peer.id.index() as u32, peer.connection.as_ref()?.attempt)))
            .collect();
        for (place, attempt) in begun {
            self.lose(place, attempt);
            self.drive(place);
        }
    }

    /// Has the host told of it, once; whether that was before.
    pub(super) fn tell_failure(&mut self) -> bool {
        let is_news = self.has_news_of_failure();
        if is_news {
            self.news.push_back(Step::Failed);
        }
        !is_news
    }

    /// Whether the host has not been told of it until now, when it is.
    pub(super) fn has_news_of_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.has_told_failure, true)
    }

    /// What a peer has said in an attempt nobody knows, nor what has become of what it was sent.
    pub(super) fn lose(&mut self, place: u32, attempt: Attempt) {
        self.tell_failure();
        let Some(peer) = self.at(place) else { return };
        peer.machine.handle_hopeless(attempt, Reason::QueueFailed);
        (peer.is_corrupt, peer.is_starved) = (false, false);
        if !peer.says_bye {
            // That nothing follows is not all that it has said.
            peer.has_said_bye = false;
        } else if peer.is_quiet() {
            self.part_if_quiet(place, attempt);
        } else {
            peer.is_cut = true;
        }
    }

    /// Asks the devices of peers that nothing has been heard of whether they are there, and gives up those that do not
    /// answer.
    fn look_for_signs(&mut self, now: u64, usual: u64) {
        let mut lost = Vec::new();
        let Self { desk, peers, answer, .. } = self;
        let (credits, patience) = (desk.port.queues.credits(), Patience { usual, doubtful: *answer });
        let is_iwarp = desk.port.is_iwarp();
        for (place, connection) in peers.connections() {
            let places = match (connection.sides[credits].slots.has_room(), is_iwarp) {
                (true, _) => Places::Free,
                (false, false) => Places::Full,
                (false, true) => Places::Stuck,
            };
            let outcome = match connection.signs.look(now, places, patience) {
                Due::Nothing => continue,
                Due::Question => connection.probe(credits, desk),
                Due::End => Err(Broken::Silent),
            };
            match outcome {
                Ok(true) => connection.signs.probed = Some(now),
                // There is no place, or nobody has said yet what is to be asked.
                Ok(false) if places != Places::Free || connection.remote.is_none() => {}
                Ok(false) if connection.signs.is_refused(now, patience) => {
                    lost.push((place as u32, Broken::Post))
                }
                Ok(false) => connection.signs.refuse(now),
                Err(broken) => lost.push((place as u32, broken)),
            }
        }
        lost.into_iter().for_each(|(place, broken)| self.break_off(place, broken));
    }

    /// Gives those up for whom messages wait that there has been no memory to send from for that long, and is none now. What is on
    /// its way comes back with a buffer; where there is none, nothing does.
    fn look_for_memory(&mut self, now: u64, patience: u64) {
        let Self { desk, peers, .. } = self;
        let mut starved = Vec::new();
        for (queue, pool) in desk.pools.iter_mut().enumerate() {
            let barren = pool.barren_for(now, || peers.waiting(queue).next().is_some());
            if barren > patience && pool.insist(&desk.port).is_err() {
                starved.extend(peers.waiting(queue));
            }
        }
        starved.into_iter().for_each(|place| self.break_off(place, Broken::Memory));
    }

    /// Gives all up where the device has taken no buffer of a shared queue for that long: nothing that they send arrives, and they
    /// are answered for all that.
    fn look_for_buffers(&mut self, now: u64, patience: u64) {
        let stuck = self.desk.shared.iter_mut().flatten().map(|shared| shared.stuck_for(now)).max();
        if stuck.is_some_and(|stuck| stuck > patience) {
            let all: Vec<_> = self.peers.connections().map(|(place, _)| place as u32).collect();
            all.into_iter().for_each(|place| self.break_off(place, Broken::Post));
        }
    }
}
