//! What is slept on: descriptors that are readable when something is to be done, and the last look before sleep.
//!
//! There is a set of all of them (`epoll(7)`): what peers write into memory sets off an alarm, datagrams have sockets,
//! processes that end have descriptors, and what is due at some time has a timer. Another set has all but the alarm, for
//! who sees to connections only. Nobody sleeps on them before he has [looked](Traffic::arm): that arms the alarm.
//!
//! What waits for something in this process, as for room in a queue, is done when somebody sees that it can be: then
//! sleepers are [roused](Traffic::rouse).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::event::{Timespec, epoll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::super::errno::{Errno, Outcome};
use super::super::wait::Beside;
use super::Traffic;
use crate::wire::gni::datagram::NameId;

/// The sets, and the timer.
pub(super) struct Rest {
    all: Arc<OwnedFd>,
    control: Arc<OwnedFd>,
    timer: OwnedFd,
    due: Option<u64>,
}

/// What is known of a domain outside of it.
pub struct Rests {
    /// Readable when connections are to be seen to.
    pub control: Arc<OwnedFd>,
    /// How often anybody has looked for what is to be done.
    pub passes: Arc<AtomicU32>,
}

/// Nanoseconds to the next look where something may come without a sign.
const DOZE: u64 = 10_000_000;
/// A timer is set for so many nanoseconds at least.
const SOON: u64 = 100_000;
const SECOND: u64 = 1_000_000_000;

impl Rest {
    fn new() -> Outcome<Self> {
        let set = || epoll::create(epoll::CreateFlags::CLOEXEC);
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let rest = Self { all: Arc::new(set()?), control: Arc::new(set()?), timer, due: None };
        rest.add(&rest.timer, true)?;
        Ok(rest)
    }

    /// From now on a descriptor wakes sleepers, those who see to connections too or not.
    fn add(&self, descriptor: impl AsFd, is_control: bool) -> Outcome<()> {
        let nothing = epoll::EventData::new_u64(0);
        epoll::add(&*self.all, &descriptor, nothing, epoll::EventFlags::IN)?;
        if is_control {
            epoll::add(&*self.control, &descriptor, nothing, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// And no more.
    fn remove(&self, descriptor: impl AsFd) {
        for set in [&self.all, &self.control] {
            let _ = epoll::delete(&**set, &descriptor);
        }
    }

    /// Has the timer be readable before long, unless it is going to be, or is.
    fn wake_soon(&mut self, now: u64) {
        if self.due.is_none_or(|due| due > now + SOON) {
            self.wake_at(Some(now + SOON), false, now);
        }
    }

    /// Has the timer be readable at a time, or never; within [`DOZE`] where something may come without a sign.
    fn wake_at(&mut self, due: Option<u64>, dozes: bool, now: u64) {
        let due = if dozes {
            // One that is set for then is not set anew each time.
            let set = self.due.filter(|set| (now + 1..=now + DOZE).contains(set)).unwrap_or(now + DOZE);
            Some(due.map_or(set, |due| due.min(set)))
        } else {
            due
        };
        if due == self.due && due.is_none_or(|due| due > now) {
            return;
        }
        self.due = due;
        // Zero is never.
        let nanos = due.map_or(0, |due| due.saturating_sub(now).max(SOON));
        let it_value = Timespec { tv_sec: (nanos / SECOND) as i64, tv_nsec: (nanos % SECOND) as i64 };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let times = Itimerspec { it_interval: never, it_value };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times);
    }
}

impl Traffic {
    /// The sets of descriptors: all, and those of connections.
    fn rest(&mut self) -> Outcome<&mut Rest> {
        if self.rest.is_none() {
            let rest = Rest::new()?;
            if let Some(nic) = &mut self.nic {
                rest.add(nic.alarm(), false)?;
                rest.add(nic.deaths()?, true)?;
            }
            if let Some(network) = self.nic.as_ref().and_then(|nic| nic.streams()) {
                rest.add(network.begins(), true)?;
                rest.add(network.streams(), false)?;
            }
            for socket in self.service.iter().flat_map(|service| service.descriptors()) {
                rest.add(socket, true)?;
            }
            self.rest = Some(rest);
        }
        self.rest.as_mut().ok_or(Errno::NOMEM)
    }

    /// What is readable when something is to be done, if whoever sleeps on it has looked before.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn descriptor(&mut self) -> Outcome<Arc<OwnedFd>> {
        self.rest().map(|rest| Arc::clone(&rest.all))
    }

    /// There is an interface, and nobody may know of its descriptors yet.
    pub(super) fn rest_on_nic(&mut self) -> Outcome<()> {
        let Self { rest: Some(rest), nic: Some(nic), .. } = self else { return Ok(()) };
        rest.add(nic.alarm(), false)?;
        rest.add(nic.deaths()?, true)?;
        self.rouse();
        Ok(())
    }

    /// There are streams to other nodes.
    pub(super) fn rest_on_streams(&self) -> Outcome<()> {
        let network = self.nic.as_ref().and_then(|nic| nic.streams());
        let (Some(rest), Some(network)) = (&self.rest, network) else { return Ok(()) };
        rest.add(network.begins(), true)?;
        rest.add(network.streams(), false)
    }

    /// There is a socket of an endpoint, or there is going to be none.
    pub(super) fn rest_on_socket(&self, name: NameId, is_new: bool) -> Outcome<()> {
        let (Some(rest), Some(service)) = (&self.rest, &self.service) else { return Ok(()) };
        for socket in service.descriptors_of(name.device, name.cdm_id) {
            if is_new {
                rest.add(socket, true)?;
            } else {
                rest.remove(socket);
            }
        }
        Ok(())
    }

    /// Looks for what is to be done a last time before sleep. What comes from now on is seen.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn arm(&mut self) -> Outcome<Beside> {
        let all = self.descriptor()?;
        let wants_room = !self.again.is_empty();
        let is_seen = self.nic.as_ref().is_none_or(|nic| nic.sleep(wants_room));
        // What this look leaves to the next one rouses nobody.
        (self.is_armed, self.watch_at) = (false, 0);
        self.expect_answers();
        let before = self.moved;
        self.progress_all();
        // Also where this one does not sleep: another may, who was woken and sleeps on, because what woke it is gone.
        self.is_armed = true;
        if self.moved == before && !self.is_stirred && (wants_room || self.again.is_empty()) {
            let is_sure = is_seen && !self.has_unreached();
            return Ok(Beside::Set(all, if is_sure { None } else { Some(DOZE) }));
        }
        if !self.again.is_empty() || self.is_stirred {
            // Others sleep who do not know.
            self.rouse();
        }
        Ok(Beside::Moved)
    }

    /// Sees to connections only; whether there was anything, so that there may be more.
    pub fn control_again(&mut self) -> bool {
        let before = self.moved;
        self.watch_at = 0;
        self.control();
        self.moved != before
    }

    /// What the domain's own thread sleeps on, and sees of it without coming in.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn rests(&mut self) -> Outcome<Rests> {
        Ok(Rests { control: Arc::clone(&self.rest()?.control), passes: Arc::clone(&self.passes) })
    }

    /// Has sleepers look again, if there are any.
    pub fn rouse(&mut self) {
        if let Some(nic) = &self.nic
            && std::mem::take(&mut self.is_armed)
        {
            nic.wake();
        }
    }

    /// What was begun may be over, and counted, and something may begin by that: whoever sleeps is to see to it.
    #[inline]
    pub(super) fn rouse_deferred(&mut self) {
        if !self.deferred.is_empty() {
            self.rouse();
        }
    }

    /// The engine has something to say, soon: also who sees to connections only hears of it, for whoever is in here may not look
    /// again.
    pub(super) fn stir(&mut self) {
        self.is_stirred = true;
        self.rouse();
        let now = self.clock.nanos();
        if let Some(rest) = &mut self.rest {
            rest.wake_soon(now);
        }
    }

    /// Has sleepers woken when something is due.
    pub(super) fn set_timer(&mut self) {
        let now = self.clock.nanos();
        let dozes = self.nic.as_ref().is_some_and(|nic| nic.is_blind()) || self.has_unreached();
        let dues = [self.engine.poll_timeout().map(|at| at.nanos()), self.asks_at(now), self.lets_in_at(now)];
        let due = dues.into_iter().flatten().min();
        if let Some(rest) = &mut self.rest {
            rest.wake_at(due, dozes, now);
        }
    }
}
