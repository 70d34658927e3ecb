//! [`Coalescer`]: short packets that share a datagram.
//!
//! A program that sends many short messages in a row would pay a system call for each. So while it does,
//! they lie here, and leave when the datagram is full, when the link is flushed, or after a while by a
//! thread: who sends and then computes must not leave a message lying. The thread is started when packets
//! have come in a row for the first time, looks again and again while they do, and sleeps when they do not.
//! While it sleeps nothing waits here.
//!
//! Only these packets are shared with the thread, behind a lock that nobody else needs, so the rest of the
//! link stays with the one who has it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::thread::set_current_timer_slack;

use super::AddressId;
use super::COALESCED;
use super::address::SocketAddress;
use super::clock::Clock;
use super::udp::{Errno, Udp};
use crate::sync;

/// So many packets are a row, if no more than so much time passed between them. What the kernel took to send
/// each by itself does not count: where the peer is behind a virtual device, that is all the way to its socket.
const ROW: u32 = 16;
const ROW_NANOS: u64 = 60_000;

/// So many looks at nothing new send the thread to sleep.
const LOOKS: u32 = 8;

/// Bytes of the thread's stack.
const STACK: usize = 64 << 10;

/// Where a datagram goes.
struct Target {
    id: AddressId,
    udp: Arc<Udp>,
    /// `None`: the socket is connected.
    address: Option<SocketAddress>,
}

/// What waits to be sent.
struct Waiting {
    bytes: Vec<u8>,
    packets: u64,
    /// Present while packets wait.
    to: Option<Target>,
    /// Since when, by the clock.
    since: u64,
    /// The thread looks again and again.
    is_watched: bool,
    /// The thread shall end.
    is_over: bool,
    /// Packets that were ever put here.
    put: u64,
    /// Datagrams that the kernel took, and what it did not, not yet told.
    sent: u64,
    refused: Option<Refused>,
}

/// An error that the kernel has told.
pub(super) struct Refused {
    pub(super) udp: Arc<Udp>,
    pub(super) errno: Errno,
    /// A datagram was not taken.
    pub(super) is_lost: bool,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// The thread is wanted.
    wanted: Condvar,
    clock: Clock,
    delay: Duration,
}

/// What has become of datagrams.
#[derive(Default)]
pub(super) struct Outcome {
    /// Taken by the kernel.
    pub(super) sent: u64,
    pub(super) refused: Option<Refused>,
}

/// Packets to one peer that wait for company.
pub(super) struct Coalescer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Some may wait: the thread may have sent them.
    may_wait: bool,
    /// The thread looks, as far as is known here.
    is_watched: bool,
    /// It could not be started, or is not wanted.
    is_off: bool,
    /// Packets that came in a row, the time that passed between them, and when the last had left; whether it is yet to leave.
    row: u32,
    row_nanos: u64,
    left: u64,
    is_leaving: bool,
}

impl Coalescer {
    /// Packets wait no longer than `delay`; none at all if that is zero.
    pub(super) fn new(delay: Duration) -> Self {
        let waiting = Waiting {
            bytes: Vec::with_capacity(COALESCED),
            packets: 0,
            to: None,
            since: 0,
            is_watched: false,
            is_over: false,
            put: 0,
            sent: 0,
            refused: None,
        };
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::new(waiting),
                wanted: Condvar::new(),
                clock: Clock::new(),
                delay,
            }),
            thread: None,
            may_wait: false,
            is_watched: false,
            is_off: delay.is_zero(),
            row: 0,
            row_nanos: 0,
            left: 0,
            is_leaving: false,
        }
    }

    /// Whether packets may wait.
    #[inline]
    pub(super) const fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Whether packets in a row share datagrams here.
    pub(super) const fn is_on(&self) -> bool {
        !self.is_off
    }

    /// Its clock.
    pub(super) fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Lets a packet wait for company, `now` being nanoseconds of the [clock](Self::clock); `None` when it must go its own
    /// way. It goes to `to`, whose socket `target` tells, and whose path carries `longest` bytes.
    #[inline]
    pub(super) fn put(
        &mut self,
        to: AddressId,
        longest: usize,
        packet: &[u8],
        now: u64,
        target: impl FnOnce() -> (Arc<Udp>, Option<SocketAddress>),
    ) -> Option<Outcome> {
        if !self.is_watched {
            self.note_row(now);
            return None;
        }
        let full = longest.min(COALESCED);
        let mut waiting = self.shared.waiting.lock();
        self.is_watched = waiting.is_watched;
        let goes_along = waiting.to.as_ref().is_none_or(|other| other.id == to)
            && waiting.bytes.len() + packet.len() <= full;
        if !waiting.is_watched || packet.len() > full || !(goes_along || waiting.send()) {
            return None;
        }
        if waiting.to.is_none() {
            let (udp, address) = target();
            waiting.to = Some(Target { id: to, udp, address });
            waiting.since = now;
        }
        waiting.bytes.extend_from_slice(packet);
        waiting.packets += 1;
        waiting.put += 1;
        if waiting.bytes.len() + packet.len() > full {
            waiting.send();
        }
        self.may_wait = waiting.to.is_some();
        Some(waiting.outcome())
    }

    /// Sends what waits.
    #[inline(never)]
    pub(super) fn flush(&mut self) -> Outcome {
        let mut waiting = self.shared.waiting.lock();
        self.may_wait = !waiting.send();
        waiting.outcome()
    }

    /// Something has been sent: the packet that came last, if that did not wait, or what has nothing to do with a row.
    #[inline]
    pub(super) fn has_left(&mut self) {
        if std::mem::take(&mut self.is_leaving) {
            self.left = self.shared.clock.nanos();
        }
    }

    /// Packets that wait.
    pub(super) fn packets(&self) -> u64 {
        if self.may_wait { self.shared.waiting.lock().packets } else { 0 }
    }

    /// A packet came that could have waited.
    #[cold]
    fn note_row(&mut self, now: u64) {
        if self.is_off {
            return;
        }
        self.row_nanos = self.row_nanos.saturating_add(now.saturating_sub(self.left));
        if self.row_nanos > ROW_NANOS {
            (self.row, self.row_nanos) = (0, 0);
        }
        (self.left, self.is_leaving) = (now, true);
        self.row += 1;
        if self.row >= ROW {
            (self.row, self.row_nanos) = (0, 0);
            self.wake();
        }
    }

    fn wake(&mut self) {
        if self.thread.is_none() && is_real_time() {
            self.is_off = true;
            return;
        }
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            match sync::spawn("hawser-coalesce", STACK, move || shared.watch()) {
                Ok(thread) => self.thread = Some(thread),
                // Everything goes on without: slower, not less.
                Err(_) => {
                    self.is_off = true;
                    return;
                }
            }
        }
        self.shared.waiting.lock().is_watched = true;
        self.shared.wanted.notify_one();
        self.is_watched = true;
    }
}

/// Whether this thread runs under a real-time policy (sched(7)). The new thread would have it as well, and would not
/// get the processor from the one that computes.
fn is_real_time() -> bool {
    // SAFETY: no memory is involved; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
}

impl Drop for Coalescer {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.send();
        waiting.is_over = true;
        drop(waiting);
        self.shared.wanted.notify_one();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did, there would be nothing to be done.
            let _ = thread.join();
        }
    }
}

impl Waiting {
    /// Sends what waits, if anything does; false when the kernel does not take it now.
    fn send(&mut self) -> bool {
        let Some(to) = &self.to else { return true };
        let send = || match &to.address {
            Some(address) => to.udp.send(address, &self.bytes),
            None => to.udp.send_there(&self.bytes),
        };
        let refused = |errno, is_lost| Some(Refused { udp: Arc::clone(&to.udp), errno, is_lost });
        let mut result = send();
        // It may be the error of an earlier one, which the call only announced.
        if let Err(errno) = result
            && !matches!(errno, libc::EAGAIN | libc::EINTR)
        {
            self.refused = refused(errno, false);
            result = send();
        }
        match result {
            Ok(()) => self.sent += 1,
            Err(libc::EAGAIN | libc::EINTR) => return false,
            Err(errno) => self.refused = refused(errno, true),
        }
        self.bytes.clear();
        (self.packets, self.to) = (0, None);
        true
    }

    fn outcome(&mut self) -> Outcome {
        Outcome { sent: std::mem::take(&mut self.sent), refused: self.refused.take() }
    }
}

impl Shared {
    /// How much longer what waits `since` then may wait.
    fn left(&self, since: u64) -> Duration {
        self.delay.saturating_sub(Duration::from_nanos(self.clock.nanos().saturating_sub(since)))
    }

    /// The thread: sends what has waited for long enough.
    fn watch(&self) {
        // Else the kernel adds as much again to so short a sleep.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let (mut looks, mut put) = (0, 0);
        let mut waiting = self.waiting.lock();
        while !waiting.is_over {
            if !waiting.is_watched {
                self.wanted.wait(&mut waiting);
                looks = 0;
                continue;
            }
            let waits = waiting.to.is_some();
            let left = if waits { self.left(waiting.since) } else { self.delay };
            if left.is_zero() {
                if !waiting.send() {
                    // The kernel is busy: again after as long.
                    waiting.since = self.clock.nanos();
                }
                continue;
            }
            self.wanted.wait_for(&mut waiting, left);
            looks = if waiting.put == put { looks + 1 } else { 0 };
            put = waiting.put;
            if looks >= LOOKS && waiting.to.is_none() {
                waiting.is_watched = false;
            }
        }
    }
}

#[cfg(test)]
#[path = "coalescer_tests.rs"]
mod tests;
