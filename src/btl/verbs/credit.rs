//! Credits: nobody sends what there is no buffer for.
//!
//! A sender has an [`Allowance`] for each queue of each peer, a receiver a [`Window`] for each private queue. Both
//! count what has ever been, not what is there: a limit that is told twice, late, or by two ways at once says no more
//! than once. Limits only grow. A receiver takes credits back by asking for them, and the sender then counts them as
//! used. `lender` has the receiver's side of shared queues.
//!
//! Numbers are of 32 bits and wrap; never more than 16384 credits are out, so that the lower 16 bits tell a limit.

/// A message or a word of a peer that its account does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beyond;

/// What may be sent by one queue to one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    limit: u32,
    used: u32,
}

impl Allowance {
    /// So many messages may be sent unasked.
    pub(super) const fn new(initial: u32) -> Self {
        Self { limit: initial, used: 0 }
    }

    /// Messages that may be sent.
    #[inline]
    pub(super) const fn left(&self) -> u32 {
        self.limit.wrapping_sub(self.used)
    }

    /// One message is sent; false when it must not be.
    #[inline]
    pub(super) const fn take(&mut self) -> bool {
        if self.left() == 0 {
            return false;
        }
        self.spend();
        true
    }

    /// The same where there is known to be one left.
    #[inline]
    pub(super) const fn spend(&mut self) {
        debug_assert!(self.left() > 0);
        self.used = self.used.wrapping_add(1);
    }

    /// One message that was taken is not sent after all.
    pub(super) const fn put_back(&mut self) {
        self.used = self.used.wrapping_sub(1);
    }

    /// The peer has told a limit; whether it is a new one.
    ///
    /// # Errors
    /// When it would allow more than `most` messages at once.
    #[inline]
    pub(super) const fn raise(&mut self, limit: u32, most: u32) -> Result<bool, Beyond> {
        if limit.wrapping_sub(self.limit).cast_signed() <= 0 {
            return Ok(false);
        }
        if limit.wrapping_sub(self.used) > most {
            return Err(Beyond);
        }
        self.limit = limit;
        Ok(true)
    }

    /// The same of the lower 16 bits of a limit.
    #[inline]
    pub(super) const fn raise_short(&mut self, limit: u16, most: u32) -> Result<bool, Beyond> {
        let more = limit.wrapping_sub(self.limit as u16).cast_signed();
        if more <= 0 {
            return Ok(false);
        }
        self.raise(self.limit.wrapping_add(more as u32), most)
    }

    /// The peer has told that there are so many more.
    ///
    /// # Errors
    /// As [`raise`](Self::raise).
    pub(super) const fn add(&mut self, more: u32, most: u32) -> Result<(), Beyond> {
        match self.raise(self.limit.wrapping_add(more), most) {
            Ok(_) => Ok(()),
            Err(beyond) => Err(beyond),
        }
    }

    /// All but so many messages are given up; how many those are.
    pub(super) const fn give_back(&mut self, keep: u32) -> u32 {
        let given = self.left().saturating_sub(keep);
        self.used = self.used.wrapping_add(given);
        given
    }
}

/// The buffers of a private queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Messages that the peer may have sent, ever.
    limit: u32,
    arrived: u32,
    /// The limit as the peer has been told it.
    told: u32,
    /// Buffers that are read and not posted again.
    free: u32,
    depth: u32,
    low: u32,
    tell: u32,
}

impl Window {
    /// All buffers are posted, and the peer knows how many they are. They are posted again when no more than `low` are
    /// left, and `tell` credits are worth a word of their own.
    pub(super) const fn new(depth: u32, low: u32, tell: u32) -> Self {
        Self { limit: depth, arrived: 0, told: depth, free: 0, depth, low, tell }
    }

    /// Whether a message may arrive.
    #[inline]
    pub(super) const fn may_arrive(&self) -> bool {
        self.limit != self.arrived
    }

    /// A message has arrived.
    ///
    /// # Errors
    /// When the peer had no credit for it.
    #[inline]
    pub(super) const fn arrive(&mut self) -> Result<(), Beyond> {
        if !self.may_arrive() {
            return Err(Beyond);
        }
        self.arrived = self.arrived.wrapping_add(1);
        Ok(())
    }

    /// The buffer of a message is not needed any more. How many buffers are to be posted now: all that are not, or
    /// none.
    #[inline]
    pub(super) const fn release(&mut self) -> u32 {
        self.free += 1;
        if self.depth - self.free <= self.low { self.free } else { 0 }
    }

    /// So many buffers have been posted again.
    #[inline]
    pub(super) const fn post(&mut self, count: u32) {
        self.free -= count;
        self.limit = self.limit.wrapping_add(count);
    }

    /// The limit, for a message that goes to the peer anyway, if it does not know it.
    #[inline]
    pub(super) const fn news(&self) -> Option<u32> {
        if self.limit == self.told { None } else { Some(self.limit) }
    }

    /// How much of the limit the peer does not know.
    pub(super) const fn owed(&self) -> u32 {
        self.limit.wrapping_sub(self.told)
    }

    /// The limit, known or not.
    #[inline]
    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// The same, if it is worth a word of its own: much is owed, or the peer knows of nothing.
    #[inline]
    pub(super) const fn urgent_news(&self) -> Option<u32> {
        let owed = self.limit.wrapping_sub(self.told);
        if owed == 0 {
            return None;
        }
        if owed >= self.tell || self.told == self.arrived { Some(self.limit) } else { None }
    }

    /// The peer is told the limit.
    #[inline]
    pub(super) const fn tell(&mut self) {
        self.told = self.limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_comes_twice_or_late_changes_nothing() {
        let mut allowance = Allowance::new(2);
        assert!(allowance.take() && allowance.take() && !allowance.take());
        allowance.put_back();
        assert!(allowance.take() && !allowance.take());
        assert_eq!(allowance.raise(4, 8), Ok(true));
        assert_eq!(
            (allowance.raise(3, 8), allowance.raise(4, 8), allowance.raise_short(2, 8)),
            (Ok(false), Ok(false), Ok(false))
        );
        assert_eq!(allowance.left(), 2);
    }

    #[test]
    fn nobody_is_believed_to_have_more_buffers_than_there_can_be() {
        let mut allowance = Allowance::new(2);
        assert_eq!((allowance.raise(9, 8), allowance.left()), (Err(Beyond), 2));
        assert_eq!((allowance.raise_short(9, 8), allowance.left()), (Err(Beyond), 2));
        assert_eq!(allowance.raise(u32::MAX, 8), Ok(false), "of long ago");
        assert_eq!((allowance.raise(8, 8), allowance.left()), (Ok(true), 8));
    }

    #[test]
    fn what_is_given_back_is_never_sent() {
        let mut allowance = Allowance::new(8);
        assert!(allowance.take());
        assert_eq!((allowance.give_back(3), allowance.left(), allowance.give_back(3)), (4, 3, 0));
        // The same limit again, by another way.
        assert_eq!((allowance.raise(8, 8), allowance.left()), (Ok(false), 3));
        assert_eq!((allowance.raise(10, 8), allowance.left()), (Ok(true), 5));
    }

    #[test]
    fn buffers_are_posted_again_in_time_and_by_the_batch() {
        let mut window = Window::new(4, 2, 2);
        assert_eq!((window.arrive(), window.release(), window.news()), (Ok(()), 0, None));
        assert_eq!((window.arrive(), window.release()), (Ok(()), 2));
        window.post(2);
        assert_eq!((window.news(), window.urgent_news()), (Some(6), Some(6)));
        window.tell();
        assert_eq!((window.news(), window.urgent_news()), (None, None));
        assert!((0..4).all(|_| window.arrive().is_ok()));
        assert_eq!(window.arrive(), Err(Beyond));
    }

    /// Both sides over a wire that keeps limits back, doubles them and mixes them up, through the end of all numbers.
    #[test]
    fn a_sender_never_outruns_the_receiver_and_never_stalls_for_good() {
        for (depth, low, tell) in [(2, 1, 1), (2, 0, 2), (5, 3, 4), (64, 48, 32), (16_384, 1, 16_384)] {
            let start = u32::MAX - 100_000;
            let mut allowance = Allowance { limit: start.wrapping_add(depth), used: start };
            let mut window = Window::new(depth, low, tell);
            (window.limit, window.told, window.arrived) =
                (start.wrapping_add(depth), start.wrapping_add(depth), start);
            let (mut wire, mut words, mut held) = (0_u32, Vec::new(), 0_u32);
            let mut state = 7_u64;
            let mut random = |most: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % most
            };
            let mut sent = 0;
            while sent < 200_000 {
                let burst = random(u64::from(depth) + 2);
                for _ in 0..burst {
                    if allowance.take() {
                        (sent, wire) = (sent + 1, wire + 1);
                    }
                }
                for _ in 0..random(u64::from(wire) + 1) {
                    wire -= 1;
                    window.arrive().expect("within its credit");
                    held += 1;
                }
                for _ in 0..random(u64::from(held) + 1) {
                    held -= 1;
                    let count = window.release();
                    window.post(count);
                }
                if let Some(limit) = window.urgent_news() {
                    words.push(limit);
                    window.tell();
                } else if random(3) == 0
                    && let Some(limit) = window.news()
                {
                    words.push(limit);
                    window.tell();
                }
                while words.len() > 3 || (allowance.left() == 0 && !words.is_empty()) {
                    let limit = words.swap_remove(random(words.len() as u64) as usize);
                    let short = depth < 16_384 && random(2) == 0;
                    let raised = if short {
                        allowance.raise_short(limit as u16, depth)
                    } else {
                        allowance.raise(limit, depth)
                    };
                    raised.expect("of buffers that there are");
                    if random(4) == 0 {
                        words.push(limit);
                    }
                }
                if allowance.left() == 0 && wire == 0 && held == 0 && words.is_empty() {
                    assert_eq!(window.news(), None, "told");
                    panic!("{depth} {low} {tell}: nobody can go on after {sent}");
                }
            }
        }
    }
}
