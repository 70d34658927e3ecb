//! How an attempt begins and ends.

use std::time::Duration;

use super::desk::Desk;
use super::dialect::Dialect;
use super::interface::{Action, Attempt, Notice, Reason, Role, Settings, Verdict};
use super::link::{Leg, Link, Phase, Stage};
use crate::engine::time::Instant;
use crate::wire::verbs::private::Refusal;

impl Link {
    /// The next attempt, or the next kick, if there may be one.
    pub(super) fn begin(&mut self, desk: &mut Desk, now: Instant) {
        let has_ended = self.hurries && self.why == Reason::NotListening;
        let Settings { attempts, last_attempts, .. } = desk.settings;
        if self.failures >= if has_ended { last_attempts } else { attempts } {
            self.fail(self.why, desk);
            return;
        }
        self.failures += 1;
        match self.role {
            Role::Initiator => {
                desk.counters.attempts += 1;
                self.attempt.0 += 1;
                self.token = None;
                let queues = 0..desk.settings.queues.count;
                let resolve = |_| Some(desk.resolve(self.endpoint, self.listener, self.peer.address));
                self.legs = queues.map(resolve).collect();
                self.phase = Phase::Asking;
                self.deadline = Some(now + desk.settings.attempt);
            }
            Role::Acceptor => {
                self.phase = Phase::Kicking;
                self.send_kick(desk, now);
            }
        }
    }

    fn send_kick(&mut self, desk: &mut Desk, now: Instant) {
        desk.counters.kicks += 1;
        self.kick = Some(desk.resolve(self.endpoint, self.listener, self.peer.address));
        self.deadline = Some(now + desk.settings.attempt);
    }

    /// The last attempt that this side has nothing of any more.
    pub(super) const fn given_up(&self) -> u32 {
        if self.is_up() { self.attempt.0 - 1 } else { self.attempt.0 }
    }

    /// A request of an attempt that is new to this side: whatever was before is over.
    pub(super) fn begin_answering(&mut self, attempt: Attempt, token: u32, desk: &mut Desk, now: Instant) {
        self.abandon(desk);
        desk.counters.answers += 1;
        self.attempt = attempt;
        self.token = Some(token);
        self.legs = vec![None; usize::from(desk.settings.queues.count)];
        self.phase = Phase::Answering;
        self.deadline = Some(now + desk.settings.answer);
    }

    /// An attempt of this side is rejected.
    pub(super) fn rejected(&mut self, why: Option<Refusal>, desk: &mut Desk, now: Instant) {
        match why {
            None => self.again(Reason::NotListening, desk, now),
            Some(Refusal::Later) => self.postpone(desk, now),
            Some(why) => self.fail(Reason::Refused(why), desk),
        }
    }

    /// A kick of this side is rejected.
    pub(super) fn kick_rejected(&mut self, why: Option<Refusal>, desk: &mut Desk, now: Instant) {
        match (self.phase, why) {
            (_, None) => self.kick_failed(Reason::NotListening, desk, now),
            (Phase::Kicking, Some(Refusal::WrongDirection)) => self.expect(desk, now),
            // The initiator knows of what is up here.
            (_, Some(Refusal::WrongDirection)) => self.deadline = Some(now + desk.settings.answer),
            (Phase::Kicking, Some(Refusal::Later)) => self.postpone(desk, now),
            (_, Some(Refusal::Later)) => self.down(Reason::Abandoned, desk),
            (_, Some(why)) => self.fail(Reason::Refused(why), desk),
        }
    }

    /// A kick of this side comes to nothing.
    pub(super) fn kick_failed(&mut self, why: Reason, desk: &mut Desk, now: Instant) {
        self.end_kick(desk);
        if self.phase == Phase::Kicking {
            self.again(why, desk, now);
            return;
        }
        // Of the last attempt it is asked once.
        self.failures = (self.failures + 1).min(desk.settings.attempts);
        if self.failures == desk.settings.attempts {
            self.down(why, desk);
        } else {
            self.deadline = Some(now + self.pause(desk));
        }
    }

    /// The present attempt or kick has come to nothing; there is going to be another.
    pub(super) fn again(&mut self, why: Reason, desk: &mut Desk, now: Instant) {
        self.why = why;
        // The next attempt is the initiator's.
        let waits = self.phase == Phase::Answering;
        self.abandon(desk);
        self.rest(waits, desk, now);
    }

    /// The initiator says that it connects now. If it dies meanwhile, nothing tells: it is asked again.
    fn expect(&mut self, desk: &mut Desk, now: Instant) {
        if self.postponements >= desk.settings.postponements {
            self.fail(Reason::TimedOut, desk);
            return;
        }
        self.postponements += 1;
        self.failures = self.failures.saturating_sub(1);
        self.rest(true, desk, now);
    }

    /// The peer says that it is too early.
    fn postpone(&mut self, desk: &mut Desk, now: Instant) {
        if self.postponements >= desk.settings.postponements {
            self.fail(Reason::Refused(Refusal::Later), desk);
            return;
        }
        self.postponements += 1;
        self.failures = self.failures.saturating_sub(1);
        self.again(Reason::Refused(Refusal::Later), desk, now);
    }

    fn rest(&mut self, waits: bool, desk: &Desk, now: Instant) {
        self.phase = Phase::Pausing;
        self.deadline = Some(now + if waits { desk.settings.question } else { self.pause(desk) });
    }

    fn pause(&self, desk: &Desk) -> Duration {
        let doublings = (self.failures + self.postponements).min(16);
        desk.settings.interval.saturating_mul(1 << doublings).min(desk.settings.longest)
    }

    /// A timer has run out.
    pub(super) fn expire(&mut self, desk: &mut Desk, now: Instant) {
        let over: Vec<_> = self.crossed.extract_if(.., |(_, deadline)| *deadline <= now).collect();
        for (kick, _) in over {
            self.end(kick, desk);
        }
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        match self.phase {
            Phase::Pausing => self.begin(desk, now),
            Phase::Kicking => self.kick_failed(Reason::TimedOut, desk, now),
            Phase::Asking | Phase::Answering => self.again(Reason::TimedOut, desk, now),
            // Does the initiator still know of it?
            Phase::Up if self.kick.is_none() => self.send_kick(desk, now),
            Phase::Up => self.kick_failed(Reason::TimedOut, desk, now),
            _ => self.deadline = None,
        }
    }

    /// The main thread is connected.
    pub(super) fn settle(&mut self, attempt: Attempt, desk: &mut Desk) {
        if self.phase == Phase::Up && self.attempt == attempt {
            self.drop_kick(desk);
            self.phase = Phase::Settled;
            self.deadline = None;
        }
    }

    /// What is up is disconnected. The main thread comes to release it.
    pub(super) fn down(&mut self, reason: Reason, desk: &mut Desk) {
        self.drop_kick(desk);
        for leg in self.legs.iter().flatten() {
            desk.actions.push_back(Action::Disconnect { id: leg.id });
        }
        self.why = reason;
        self.phase = Phase::Down;
        self.deadline = None;
        desk.notices.push_back(Notice::Down { endpoint: self.endpoint, attempt: self.attempt, reason });
    }

    /// The main thread has released the queue pairs.
    pub(super) fn release(&mut self, attempt: Attempt, verdict: Verdict, desk: &mut Desk, now: Instant) {
        if !(self.is_up() || self.phase == Phase::Down) || self.attempt != attempt {
            desk.counters.stray += 1;
            return;
        }
        let is_down = self.phase == Phase::Down;
        self.drop_kick(desk);
        for leg in std::mem::take(&mut self.legs).into_iter().flatten() {
            if !is_down {
                desk.actions.push_back(Action::Disconnect { id: leg.id });
            }
            desk.actions.push_back(Action::Destroy { id: leg.id });
            desk.ids.remove(&leg.id);
        }
        self.deadline = None;
        desk.counters.abandoned += u64::from(verdict == Verdict::Again);
        match (self.closing, verdict, self.doom) {
            (true, ..) => self.phase = Phase::Closed,
            // It has told itself.
            (false, Verdict::Fail, _) => {
                desk.counters.failed += 1;
                self.phase = Phase::Failed;
            }
            (false, _, Some(reason)) => self.tell_failed(reason, desk),
            (false, Verdict::Part, None) => {
                self.phase = Phase::Idle;
                (self.failures, self.postponements) = (0, 0);
            }
            (false, Verdict::Again, None) => self.rest(self.role == Role::Acceptor, desk, now),
        }
    }

    /// There is no connection, and there will be none.
    pub(super) fn fail(&mut self, reason: Reason, desk: &mut Desk) {
        if reason == Reason::DeviceRemoved {
            self.end_kicks(desk);
        }
        match self.phase {
            Phase::Failed | Phase::Closed => {}
            Phase::Up | Phase::Settled => {
                self.doom = Some(reason);
                self.down(reason, desk);
            }
            Phase::Down => self.doom = self.doom.or(Some(reason)),
            _ => {
                self.abandon(desk);
                self.tell_failed(reason, desk);
            }
        }
    }

    fn tell_failed(&mut self, reason: Reason, desk: &mut Desk) {
        desk.counters.failed += 1;
        self.phase = Phase::Failed;
        self.deadline = None;
        desk.notices.push_back(Notice::Failed { endpoint: self.endpoint, reason });
    }

    /// It ends, as soon as nothing of it is the main thread's.
    pub(super) fn close(&mut self, desk: &mut Desk) {
        self.closing = true;
        self.end_kicks(desk);
        match self.phase {
            Phase::Up | Phase::Settled => self.down(Reason::Refusing(Refusal::Closing), desk),
            Phase::Down => {}
            _ => {
                self.abandon(desk);
                self.phase = Phase::Closed;
                self.deadline = None;
            }
        }
    }

    /// Lets go of all ids, none of which is the main thread's, but of kicks that may still be rejected.
    fn abandon(&mut self, desk: &mut Desk) {
        self.drop_kick(desk);
        let legs: Vec<Leg> = std::mem::take(&mut self.legs).into_iter().flatten().collect();
        desk.counters.abandoned += u64::from(!legs.is_empty());
        for leg in legs {
            self.end(leg, desk);
        }
    }

    /// Nothing follows from the answer to a kick any more. With openib's words it stays until then, if it has been sent: the
    /// peer may have received it, and its own openib ends the job when it cannot reject it.
    fn drop_kick(&mut self, desk: &mut Desk) {
        let is_sent = self.kick.is_some_and(|kick| kick.stage == Stage::Connecting);
        match (desk.settings.dialect, self.deadline) {
            (Dialect::Openib, Some(deadline)) if is_sent => {
                self.crossed.extend(self.kick.take().map(|kick| (kick, deadline)));
            }
            _ => self.end_kick(desk),
        }
    }

    /// The kick is answered, or its time is over.
    pub(super) fn end_kick(&mut self, desk: &mut Desk) {
        if let Some(kick) = self.kick.take() {
            self.end(kick, desk);
        }
    }

    /// Nobody waits for the answer to any kick.
    fn end_kicks(&mut self, desk: &mut Desk) {
        self.end_kick(desk);
        for (kick, _) in std::mem::take(&mut self.crossed) {
            self.end(kick, desk);
        }
    }

    pub(super) fn end(&self, leg: Leg, desk: &mut Desk) {
        desk.let_go(leg, (self.listener, self.peer.nonce, self.attempt.0));
    }
}
