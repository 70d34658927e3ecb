//! Two mailboxes and a wake-up: how the connection thread and the main thread talk. Neither waits for the other.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::line::Line;
use crate::engine::cm::{Counters, Notice, Order};

/// What the connection thread tells a module.
pub(super) struct Letter {
    pub(super) notice: Notice,
    /// The queue pairs of [`Notice::Up`], by queue.
    pub(super) lines: Vec<Arc<Line>>,
    /// When it was put there, in nanoseconds.
    pub(super) at: u64,
}

/// What a module is told.
#[derive(Default)]
pub(super) struct Mail {
    letters: Mutex<VecDeque<Letter>>,
    /// There is something in it.
    is_there: AtomicBool,
}

impl Mail {
    /// Puts a letter there.
    pub(super) fn put(&self, letter: Letter) {
        let mut letters = self.letters.lock();
        letters.push_back(letter);
        // Under the lock, as `take` has it: what is there is never said not to be. SYNC POINT: mail
        self.is_there.store(true, Ordering::Release);
    }

    /// Whether there is anything.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        // SYNC POINT: mail (released in `put`)
        self.is_there.load(Ordering::Acquire)
    }

    /// Takes the first one.
    pub(super) fn take(&self) -> Option<Letter> {
        let mut letters = self.letters.lock();
        let letter = letters.pop_front();
        self.is_there.store(!letters.is_empty(), Ordering::Release);
        letter
    }
}

/// What the connection thread is told, and what it tells.
pub(super) struct Office {
    orders: Mutex<VecDeque<Order>>,
    bell: OwnedFd,
    /// One for each module.
    pub(super) mails: Vec<Arc<Mail>>,
    /// What the thread has counted, as it was when it last looked.
    pub(super) counters: Mutex<Counters>,
    /// Everything has ended.
    pub(super) is_over: AtomicBool,
}

impl Office {
    /// For so many modules.
    ///
    /// # Errors
    /// Of `eventfd(2)`.
    pub(super) fn new(modules: usize) -> io::Result<Self> {
        Ok(Self {
            orders: Mutex::new(VecDeque::new()),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            mails: (0..modules).map(|_| Arc::default()).collect(),
            counters: Mutex::new(Counters::default()),
            is_over: AtomicBool::new(false),
        })
    }

    /// Tells the connection thread something, and wakes it up.
    pub(super) fn order(&self, order: Order) {
        self.orders.lock().push_back(order);
        // A count that is full wakes it up as well.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// The next order.
    pub(super) fn take(&self) -> Option<Order> {
        self.orders.lock().pop_front()
    }

    /// Has heard the bell.
    pub(super) fn hush(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// What becomes readable when there is an order.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cm::EndpointId;

    #[test]
    fn letters_and_orders_come_in_order_and_ring() {
        let office = Office::new(2).expect("an office");
        assert!(!office.mails[1].is_there() && office.mails[1].take().is_none());
        for process in [4, 5] {
            office.mails[1].put(Letter {
                notice: Notice::Unknown { process, listener: 1 },
                lines: Vec::new(),
                at: 0,
            });
            office.order(Order::Close { endpoint: EndpointId(process as u32) });
        }
        assert!(office.mails[1].is_there() && !office.mails[0].is_there());
        let notices: Vec<_> =
            std::iter::from_fn(|| office.mails[1].take()).map(|letter| letter.notice).collect();
        assert_eq!(notices, [4, 5].map(|process| Notice::Unknown { process, listener: 1 }));
        assert!(!office.mails[1].is_there());
        let mut polled = [rustix::event::PollFd::new(&office.bell, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut polled, Some(&Default::default())), Ok(1));
        office.hush();
        assert_eq!(rustix::event::poll(&mut polled, Some(&Default::default())), Ok(0));
        let orders: Vec<_> = std::iter::from_fn(|| office.take()).collect();
        assert_eq!(orders, [4, 5].map(|number| Order::Close { endpoint: EndpointId(number) }));
    }
}
