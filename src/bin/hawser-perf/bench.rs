//! Both sides of a measurement. The client sends and measures; the server answers.

use std::thread;

use hawser::capi::abi::{HAWSER_REMOTE_BYTES, Remote};
use hawser::link::Clock;

use crate::caller::meaning;
use crate::control::{Control, Kind};
use crate::inbox::{ANSWER, WHOLE};
use crate::matching::Coming;
use crate::meter::Meter;
use crate::plan::{Bench, Case, Operation, Plan};
use crate::signals;
use crate::transport::{Taken, Transport};

/// Passes without anything between two looks at the connection.
const PASSES: u32 = 512;
/// The numbers of the messages by which each way is checked.
const THERE: u64 = 1;
const BACK: u64 = 2;

/// What a case has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) case: Case,
    /// From first to last, nanoseconds.
    pub(crate) whole: u64,
    /// One message or operation, nanoseconds; of latency only.
    pub(crate) single: Option<Single>,
}

/// How long one message takes, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

/// One side.
pub(crate) struct Side<'a> {
    pub(crate) control: &'a mut Control,
    pub(crate) transport: Transport,
    pub(crate) plan: &'a Plan,
    pub(crate) clock: Clock,
    /// Nanoseconds that nothing may happen.
    pub(crate) patience: u64,
    pub(crate) is_server: bool,
    pub(crate) meter: Meter,
}

/// The figure below which so much of a hundred lies; they are sorted.
fn share(times: &[u64], hundredths: usize) -> f64 {
    let at = (times.len() * hundredths).div_ceil(100).clamp(1, times.len());
    times[at - 1] as f64
}

impl Side<'_> {
    /// Has the transport connect, before anything is said of a bench: where messages are sent, by the first of them.
    pub(crate) fn connect(&mut self) -> Result<(), String> {
        let refusal = match self.plan.operation {
            Operation::Send => None,
            _ => self.transport.refusal(self.is_put()),
        };
        if let Some(why) = refusal {
            return Err(self.plan.without(why));
        }
        if self.plan.operation == Operation::Send
            && let Some(case) = self.plan.cases.first().copied()
        {
            self.begin(case.bytes, None)?;
            self.verify(case, &Remote { bytes: [0; HAWSER_REMOTE_BYTES] })?;
        }
        Ok(())
    }

    /// Runs all cases; the client is told of each when it is over.
    pub(crate) fn run(&mut self, mut tell: impl FnMut(&Figures) -> Result<(), String>) -> Result<(), String> {
        let remote = self.exchange_memory()?;
        for at in 0..self.plan.cases.len() {
            let case = self.plan.cases[at];
            self.begin(case.bytes, None)?;
            self.verify(case, &remote)?;
            self.begin(case.bytes, Some(case.warm_up))?;
            self.measure(case, case.warm_up, &remote)?;
            self.begin(case.bytes, Some(case.iterations))?;
            let figures = self.measure(case, case.iterations, &remote)?;
            self.meter.clear();
            if let Some(figures) = figures {
                tell(&figures)?;
            }
        }
        self.settle()?;
        self.meet()
    }

    fn is_put(&self) -> bool {
        self.plan.operation == Operation::Put
    }

    /// The server opens its memory and says its name.
    fn exchange_memory(&mut self) -> Result<Remote, String> {
        let mut remote = Remote { bytes: [0; HAWSER_REMOTE_BYTES] };
        if self.plan.operation == Operation::Send {
            return Ok(remote);
        }
        if self.is_server {
            let name = self.transport.lend(self.is_put())?;
            self.control.send(Kind::Memory, &name)?;
        } else {
            let name = self.await_frame(Kind::Memory)?;
            remote.bytes = name.try_into().map_err(|_| "the other side's memory has no name of ours")?;
        }
        Ok(remote)
    }

    /// Something wrong that callbacks have seen, or the end that somebody wants.
    fn check(&self) -> Result<(), String> {
        signals::check()?;
        let inbox = self.transport.inbox();
        if inbox.is_lost.get() {
            return Err(self.transport.loss());
        }
        if let Some(status) = inbox.failure.get() {
            return Err(format!("an operation has failed: {}", meaning(status)));
        }
        if inbox.is_wrong.get() {
            return Err("something has come that nobody has sent: the transport is broken".to_owned());
        }
        Ok(())
    }

    /// Makes progress until something holds.
    #[inline]
    fn until(&mut self, holds: impl Fn(&Transport) -> bool) -> Result<(), String> {
        let (mut idle, mut stirred, mut since) = (0_u32, self.transport.inbox().stir.get(), None);
        while !holds(&self.transport) {
            if self.transport.progress()? != 0 {
                continue;
            }
            thread::yield_now();
            idle += 1;
            if idle % PASSES != 0 {
                continue;
            }
            self.check()?;
            self.control.look()?;
            let (now, stir) = (self.clock.nanos(), self.transport.inbox().stir.get());
            if stir != stirred || since.is_none() {
                (stirred, since) = (stir, Some(now));
            } else if since.is_some_and(|since| now - since > self.patience) {
                return Err(format!(
                    "nothing has come for {} s: the other side is stopped, or the network between drops what is sent (a firewall, a smaller MTU); --timeout waits longer",
                    self.patience / 1_000_000_000
                ));
            }
        }
        self.check()
    }

    /// The next frame, with progress meanwhile, which the other side may need.
    fn await_frame(&mut self, kind: Kind) -> Result<Vec<u8>, String> {
        let since = self.clock.nanos();
        loop {
            if let Some(bytes) = self.control.poll(kind, since)? {
                return Ok(bytes);
            }
            self.check()?;
            for _ in 0..PASSES {
                if self.transport.progress()? == 0 {
                    thread::yield_now();
                    break;
                }
            }
        }
    }

    /// Both sides are here.
    fn meet(&mut self) -> Result<(), String> {
        self.control.send(Kind::Mark, &[])?;
        self.await_frame(Kind::Mark).map(drop)
    }

    /// Nothing of this side's is under way any more.
    fn settle(&mut self) -> Result<(), String> {
        self.until(|transport| transport.inbox().sends.get() == 0)?;
        self.transport.flush()
    }

    /// Both sides are ready for messages of this length: so many are sent, or one each way, to be looked at.
    fn begin(&mut self, bytes: usize, count: Option<u32>) -> Result<(), String> {
        self.settle()?;
        let (number, coming) = (if self.is_server { BACK } else { THERE }, self.coming(count));
        self.transport.begin(bytes, count.is_none(), number, coming)?;
        self.meet()
    }

    /// What the other side sends then.
    fn coming(&self, count: Option<u32>) -> Coming {
        let single = |messages| Coming { messages, answers: 0, window: 1 };
        match (count.map(u64::from), self.plan.bench) {
            _ if self.plan.operation != Operation::Send => single(0),
            (None, _) => single(1),
            (Some(count), Bench::Latency) => single(count),
            (Some(count), _) if self.is_server => {
                Coming { messages: count, answers: 0, window: self.plan.window }
            }
            (Some(count), _) => Coming { messages: 0, answers: count.div_ceil(self.stride()), window: 1 },
        }
    }

    /// Sends a message, whole.
    #[inline]
    fn send(&mut self, tag: u8, length: usize) -> Result<(), String> {
        let mut done = 0;
        loop {
            match self.transport.send(tag, length, done)? {
                Some(far) if far >= length => return Ok(()),
                Some(far) => done = far,
                None => self.make_room()?,
            }
        }
    }

    /// Makes progress once, or until something has happened.
    #[cold]
    fn make_room(&mut self) -> Result<(), String> {
        for _ in 0..PASSES {
            if self.transport.progress()? != 0 {
                return Ok(());
            }
            thread::yield_now();
        }
        self.check()?;
        self.control.look()
    }

    fn await_messages(&mut self, count: u64) -> Result<(), String> {
        self.until(|transport| transport.inbox().messages.get() >= count)
    }

    /// Begins a PUT or GET.
    #[inline]
    fn transfer(&mut self, length: usize, remote: &Remote) -> Result<Taken, String> {
        loop {
            match self.transport.transfer(self.is_put(), length, remote)? {
                Taken::NotNow => self.make_room()?,
                taken => return Ok(taken),
            }
        }
    }

    /// Until so many PUTs and GETs have ended.
    #[inline]
    fn await_ends(&mut self, count: u64) -> Result<(), String> {
        self.until(|transport| transport.inbox().ended.get() >= count)
    }

    /// One message each way, or one operation, every byte of which is looked at.
    fn verify(&mut self, case: Case, remote: &Remote) -> Result<(), String> {
        let length = case.bytes;
        let is_right = match (self.plan.operation, self.is_server) {
            (Operation::Send, false) => {
                self.send(WHOLE, length)?;
                self.await_messages(1)?;
                self.transport.has_come(BACK, length)
            }
            (Operation::Send, true) => {
                self.await_messages(1)?;
                self.transport.follow();
                self.send(WHOLE, length)?;
                self.transport.has_come(THERE, length)
            }
            (_, false) => {
                if self.transfer(length, remote)? == Taken::UnderWay {
                    self.await_ends(1)?;
                }
                self.transport.flush()?;
                self.is_put() || self.transport.is_filled(BACK, length)
            }
            (_, true) => true,
        };
        self.meet()?;
        let put_came = || !self.is_put() || self.transport.is_filled(THERE, length);
        if !is_right || self.is_server && !put_came() {
            return Err(format!("{length} bytes have come with wrong contents: the transport is broken"));
        }
        Ok(())
    }

    /// So many messages or operations; the client learns how long they took.
    fn measure(&mut self, case: Case, count: u32, remote: &Remote) -> Result<Option<Figures>, String> {
        let begin = self.clock.nanos();
        let mut times = Vec::new();
        match (self.plan.bench, self.plan.operation, self.is_server) {
            (Bench::Latency, Operation::Send, true) => self.answer_each(case.bytes, count)?,
            (Bench::Latency, Operation::Send, false) => times = self.ping(case.bytes, count)?,
            (Bench::Latency, _, false) => times = self.transfer_each(case.bytes, count, remote)?,
            (_, Operation::Send, true) => self.answer_stream(count)?,
            (_, Operation::Send, false) => self.stream(case.bytes, count)?,
            (_, _, false) => self.transfer_stream(case.bytes, count, remote)?,
            // The other side reads or writes, and says when it is ready.
            (_, _, true) => {}
        }
        let whole = self.clock.nanos() - begin;
        times.sort_unstable();
        let single = times.first().map(|&least| {
            // There and back are two.
            let ways = if self.plan.operation == Operation::Send { 2.0 } else { 1.0 };
            Single {
                least: least as f64 / ways,
                median: share(&times, 50) / ways,
                p99: share(&times, 99) / ways,
            }
        });
        Ok((!self.is_server).then_some(Figures { case, whole, single }))
    }

    fn ping(&mut self, length: usize, count: u32) -> Result<Vec<u64>, String> {
        let mut times = Vec::with_capacity(count as usize);
        let mut before = self.clock.nanos();
        for sent in 1..=u64::from(count) {
            self.send(WHOLE, length)?;
            self.await_messages(sent)?;
            let now = self.clock.nanos();
            times.push(now - before);
            before = now;
            self.meter.tick(now, length, sent, count);
        }
        Ok(times)
    }

    fn answer_each(&mut self, length: usize, count: u32) -> Result<(), String> {
        for come in 1..=u64::from(count) {
            self.await_messages(come)?;
            self.send(WHOLE, length)?;
        }
        Ok(())
    }

    /// After how many messages there is an answer: twice in a window.
    fn stride(&self) -> u64 {
        u64::from(self.plan.window).div_ceil(2)
    }

    fn stream(&mut self, length: usize, count: u32) -> Result<(), String> {
        let (count, window, stride) = (u64::from(count), u64::from(self.plan.window), self.stride());
        for sent in 0..count {
            // So many answers must have come before one more may be under way.
            let due = (sent + 1).saturating_sub(window).div_ceil(stride);
            if self.transport.inbox().answers.get() < due {
                self.until(|transport| transport.inbox().answers.get() >= due)?;
                let now = self.clock.nanos();
                self.meter.tick(now, length, sent, count as u32);
            }
            self.send(WHOLE, length)?;
        }
        self.until(|transport| transport.inbox().answers.get() >= count.div_ceil(stride))
    }

    fn answer_stream(&mut self, count: u32) -> Result<(), String> {
        let (count, stride) = (u64::from(count), self.stride());
        let mut come = 0;
        while come < count {
            come = (come + stride).min(count);
            self.await_messages(come)?;
            self.send(ANSWER, 1.min(self.plan.longest()))?;
        }
        Ok(())
    }

    fn transfer_each(&mut self, length: usize, count: u32, remote: &Remote) -> Result<Vec<u64>, String> {
        let mut times = Vec::with_capacity(count as usize);
        let (mut owed, mut before) = (0, self.clock.nanos());
        for done in 1..=count {
            if self.transfer(length, remote)? == Taken::UnderWay {
                owed += 1;
                self.await_ends(owed)?;
            }
            let now = self.clock.nanos();
            times.push(now - before);
            before = now;
            self.pause(now, length, done, count)?;
        }
        Ok(times)
    }

    fn transfer_stream(&mut self, length: usize, count: u32, remote: &Remote) -> Result<(), String> {
        let window = u64::from(self.plan.window);
        let mut owed: u64 = 0;
        for done in 0..count {
            if self.transfer(length, remote)? == Taken::UnderWay {
                owed += 1;
                self.await_ends((owed + 1).saturating_sub(window))?;
            }
            if done % self.plan.window == 0 {
                let now = self.clock.nanos();
                self.pause(now, length, done, count)?;
            }
        }
        self.await_ends(owed)?;
        self.transport.flush()
    }

    /// Between operations of which the other side hears nothing: it is told that this one lives, now and then.
    #[inline]
    fn pause(&mut self, now: u64, length: usize, done: u32, count: u32) -> Result<(), String> {
        if self.meter.tick(now, length, done.into(), count) {
            self.control.look()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_of_the_times() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([share(&hundred, 50), share(&hundred, 99)], [50.0, 99.0]);
        assert_eq!(
            [share(&[7], 50), share(&[7], 99), share(&[1, 9], 50), share(&[1, 9], 99)],
            [7.0, 7.0, 1.0, 9.0]
        );
    }
}
