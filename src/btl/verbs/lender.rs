//! The receiver's side of a shared queue: buffers that are posted for nobody in particular, lent to peers as credits.
//!
//! What is out is never more than what is posted, so that every message finds a buffer. A peer has a *share*, up to
//! which its credits are made up whenever buffers are posted again. Shares begin small and double when a peer uses all of
//! its credits and wants more; there are more buffers then, twice as many as often as they do not suffice, up to
//! the queue's depth. When there are no more, or there is no memory for more, peers that have sent nothing for a while are asked to give theirs back,
//! and then those that have more than their part. Every peer has a right to one buffer, whatever the depth: who waits
//! for a credit does not wait for another peer's program.

use std::collections::VecDeque;

use super::credit::Beyond;

/// What a peer has.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    is_open: bool,
    limit: u32,
    arrived: u32,
    told: u32,
    share: u32,
    /// Something has come since idle ones were last looked for.
    is_used: bool,
    /// It has been asked to give credits back.
    is_recalled: bool,
    /// It is in the line of those who get the next buffers.
    is_waiting: bool,
    /// It has asked, and has had no credit since.
    is_hungry: bool,
}

impl Account {
    /// Credits that are out.
    const fn out(&self) -> u32 {
        self.limit.wrapping_sub(self.arrived)
    }
}

/// A peer is to give credits back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recall {
    /// Whose.
    pub(super) account: usize,
    /// What it may keep.
    pub(super) keep: u32,
}

/// The buffers of a shared queue, and who has been lent which of them.
#[derive(Debug)]
pub(super) struct Lender {
    /// Most buffers, unless there are more peers.
    depth: u32,
    /// Buffers that there are.
    capacity: u32,
    /// Of these, those that a message can arrive in.
    posted: u32,
    /// Credits that are out.
    lent: u32,
    /// Peers that have an account.
    open: u32,
    accounts: Vec<Account>,
    /// Who gets the next ones.
    waiting: VecDeque<usize>,
    /// Where the search for idle ones goes on.
    hand: usize,
    /// Most buffers that there can be, whoever has a right to one.
    most: u32,
    /// Who was lent something out of turn.
    fresh: Vec<usize>,
    /// There is no memory for more buffers.
    is_full: bool,
    /// Buffers that were made for [someone hungry](Self::owed) although there was none.
    extra: u32,
    /// There may be someone hungry.
    has_hungry: bool,
}

/// The first share of a peer.
const FIRST: u32 = 4;

impl Lender {
    /// Of a queue that has no buffers yet, and may have `most` if there are more peers than it is deep.
    pub(super) const fn new(depth: u32, most: u32) -> Self {
        Self {
            most,
            fresh: Vec::new(),
            is_full: false,
            extra: 0,
            has_hungry: false,
            depth,
            capacity: 0,
            posted: 0,
            lent: 0,
            open: 0,
            accounts: Vec::new(),
            waiting: VecDeque::new(),
            hand: 0,
        }
    }

    /// Buffers that there are.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Those that are posted.
    pub(super) fn posted(&self) -> u32 {
        self.posted
    }

    /// There are so many more buffers, which are not posted yet.
    pub(super) fn enlarge(&mut self, count: u32) {
        self.capacity += count;
    }

    /// There should be more buffers. Whether there is memory for any.
    pub(super) fn may_grow(&mut self, is_possible: bool) {
        self.is_full = !is_possible;
    }

    /// So many buffers are posted.
    pub(super) fn post(&mut self, count: u32) {
        self.posted += count;
        if self.is_full && self.has_hungry {
            self.feed();
        }
        while self.posted > self.lent
            && let Some(account) = self.waiting.pop_front()
        {
            self.accounts[account].is_waiting = false;
            self.make_up(account);
            self.fresh.push(account);
        }
    }

    /// Where there are too few buffers, whoever cannot send anything gets one before others get more.
    #[cold]
    fn feed(&mut self) {
        self.has_hungry = false;
        let mut at = 0;
        for _ in 0..self.waiting.len() {
            let account = self.waiting[at];
            let to = &mut self.accounts[account];
            if !to.is_hungry || to.out() > 0 {
                at += 1;
                continue;
            }
            if self.posted <= self.lent {
                self.has_hungry = true;
                return;
            }
            to.is_hungry = false;
            to.is_used = true;
            to.limit = to.limit.wrapping_add(1);
            self.lent += 1;
            self.fresh.push(account);
            // Behind those who have not had any.
            self.waiting.remove(at);
            self.waiting.push_back(account);
        }
    }

    /// Whether somebody stands in line, or has just got what it stood in line for.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        !self.waiting.is_empty() || !self.fresh.is_empty()
    }

    /// Whether more is lent than is posted: a buffer was taken by [somebody](Self::lose) to whom it was not lent.
    pub(super) fn is_behind(&self) -> bool {
        self.posted < self.lent
    }

    /// Somebody who has been lent something and may not have been told.
    #[inline]
    pub(super) fn next_fresh(&mut self) -> Option<usize> {
        self.fresh.pop()
    }

    /// A new peer has an account, at a place of its own.
    pub(super) fn open(&mut self, account: usize) {
        if self.accounts.len() <= account {
            self.accounts.resize(account + 1, Account::default());
        }
        if self.accounts[account].is_open {
            return;
        }
        self.open += 1;
        let share = FIRST.min(self.depth / self.open).max(1);
        self.accounts[account] = Account { is_open: true, share, ..Account::default() };
        self.make_up(account);
    }

    /// A peer is gone: nothing of it arrives any more, and its credits are others'.
    pub(super) fn close(&mut self, account: usize) {
        let Some(gone) = self.accounts.get_mut(account).filter(|gone| gone.is_open) else { return };
        self.lent -= gone.out();
        self.open -= 1;
        *gone = Account::default();
        self.waiting.retain(|other| *other != account);
        self.post(0);
    }

    /// A message of a peer has arrived; it may have said that it wants to send more than it can.
    ///
    /// # Errors
    /// When the peer had no credit for it.
    #[inline]
    pub(super) fn arrive(&mut self, account: usize, wants: bool) -> Result<(), Beyond> {
        let from =
            self.accounts.get_mut(account).filter(|from| from.is_open && from.out() > 0).ok_or(Beyond)?;
        from.arrived = from.arrived.wrapping_add(1);
        from.is_used = true;
        self.lent -= 1;
        self.posted -= 1;
        if wants {
            self.ask(account);
        }
        Ok(())
    }

    /// A buffer was taken by nobody who has an account, or beyond it.
    pub(super) fn lose(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// A peer wants to send more than it can.
    pub(super) fn ask(&mut self, account: usize) {
        let all = self.all();
        let most = if self.open > 1 { (all / 2).max(1) } else { all };
        let Some(from) = self.accounts.get_mut(account).filter(|from| from.is_open) else { return };
        from.is_used = true;
        from.is_hungry = from.out() == 0;
        self.has_hungry |= from.is_hungry;
        from.share = (from.share * 2).clamp(1, most.max(1));
        self.make_up(account);
    }

    /// Lends a peer what it lacks, as far as there are buffers; it stands in line for the rest.
    #[inline]
    pub(super) fn make_up(&mut self, account: usize) {
        let Some(to) = self.accounts.get_mut(account).filter(|to| to.is_open) else { return };
        let lacks = to.share.saturating_sub(to.out());
        let given = lacks.min(self.posted.saturating_sub(self.lent));
        to.limit = to.limit.wrapping_add(given);
        to.is_hungry &= given == 0;
        self.lent += given;
        if given < lacks && !to.is_waiting {
            to.is_waiting = true;
            self.waiting.push_back(account);
        }
    }

    /// A peer has given credits back, which it does not use.
    ///
    /// # Errors
    /// When it did not have so many.
    pub(super) fn take_back(&mut self, account: usize, count: u32) -> Result<(), Beyond> {
        let from = self
            .accounts
            .get_mut(account)
            .filter(|from| from.is_open && from.out() >= count)
            .ok_or(Beyond)?;
        from.arrived = from.arrived.wrapping_add(count);
        from.is_recalled = false;
        self.lent -= count;
        self.post(0);
        Ok(())
    }

    /// Whether a peer waits that has no credit at all.
    fn is_short(&self) -> bool {
        self.waiting.iter().any(|account| self.accounts[*account].out() == 0)
    }

    /// Buffers that there are, or are going to be.
    const fn all(&self) -> u32 {
        if self.is_full { self.capacity } else { self.depth }
    }

    /// How many buffers there should be for those who want to send and cannot, though there is little memory: one for each peer
    /// at most, in all.
    pub(super) fn owed(&self) -> u32 {
        let is_hungry = |account: &&usize| {
            let it = &self.accounts[**account];
            it.is_hungry && it.out() == 0
        };
        let hungry = self.waiting.iter().filter(is_hungry).count() as u32;
        hungry.min(self.open.saturating_sub(self.extra))
    }

    /// So many of them are made.
    pub(super) fn pay(&mut self, count: u32) {
        self.extra += count;
    }

    /// How many more buffers there should be.
    pub(super) fn growth(&self) -> u32 {
        if self.waiting.is_empty() {
            return 0;
        }
        let most = if self.is_short() { self.depth.max(self.open).min(self.most) } else { self.depth };
        self.capacity.max(1).min(most.saturating_sub(self.capacity))
    }

    /// Who is to be asked for credits, if somebody waits for some and there can be no more buffers.
    pub(super) fn recall(&mut self) -> Option<Recall> {
        if self.waiting.is_empty() || self.growth() > 0 && !self.is_full || self.posted > self.lent {
            return None;
        }
        let part = (self.all() / self.open.max(1)).max(1);
        let is_owed = self.accounts.iter().any(|account| account.is_recalled);
        for greedy in [false, true] {
            for _ in 0..self.accounts.len() {
                self.hand = (self.hand + 1) % self.accounts.len();
                let account = &mut self.accounts[self.hand];
                let is_idle = !std::mem::take(&mut account.is_used);
                let keep = if is_idle { 0 } else { part };
                if account.is_open
                    && !account.is_recalled
                    && account.out() > keep
                    && (is_idle || greedy && !is_owed)
                {
                    account.is_recalled = true;
                    account.share = keep;
                    return Some(Recall { account: self.hand, keep });
                }
            }
            if is_owed {
                break;
            }
        }
        None
    }

    /// The limit, for a message that goes to the peer anyway, if it does not know it.
    #[inline]
    pub(super) fn news(&self, account: usize) -> Option<u32> {
        let to = self.accounts.get(account).filter(|to| to.is_open && to.limit != to.told)?;
        Some(to.limit)
    }

    /// The same, if it is worth a word of its own: half of the share is owed, or the peer knows of nothing.
    #[inline]
    pub(super) fn urgent_news(&self, account: usize) -> Option<u32> {
        let to = self.accounts.get(account).filter(|to| to.is_open)?;
        let owed = to.limit.wrapping_sub(to.told);
        // What was given back counts as arrived, also of what it has not been told yet.
        let knows = to.told.wrapping_sub(to.arrived).cast_signed();
        (owed > 0 && (knows <= 0 || owed >= to.share.div_ceil(2))).then_some(to.limit)
    }

    /// The peer is told the limit; how many credits it had not known of.
    #[inline]
    pub(super) fn tell(&mut self, account: usize) -> u32 {
        let Some(to) = self.accounts.get_mut(account) else { return 0 };
        to.limit.wrapping_sub(std::mem::replace(&mut to.told, to.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffers::together;
    use super::super::credit::Allowance;
    use super::*;

    impl Lender {
        fn check(&self) {
            let out: u32 = self.accounts.iter().filter(|one| one.is_open).map(Account::out).sum();
            assert_eq!(out, self.lent, "{self:?}");
            assert!(self.lent <= self.posted && self.posted <= self.capacity, "{self:?}");
            assert!(self.capacity <= self.depth.max(self.open), "{self:?}");
        }

        fn with(depth: u32, buffers: u32) -> Self {
            let mut lender = Self::new(depth, u32::MAX);
            lender.enlarge(buffers);
            lender.post(buffers);
            lender
        }
    }

    #[test]
    fn nothing_is_lent_that_is_not_posted() {
        let mut lender = Lender::with(4, 2);
        lender.open(0);
        lender.open(1);
        assert_eq!((lender.news(0), lender.news(1)), (Some(2), None));
        assert_eq!(lender.growth(), 2);
        lender.enlarge(2);
        lender.post(2);
        lender.check();
        assert_eq!(lender.lent, 4);
        assert_eq!((lender.arrive(0, false), lender.arrive(2, false)), (Ok(()), Err(Beyond)));
        lender.check();
    }

    #[test]
    fn who_sends_beyond_its_credit_is_found_out() {
        let mut lender = Lender::with(64, 64);
        lender.open(3);
        assert!((0..FIRST).all(|_| lender.arrive(3, false).is_ok()));
        assert_eq!(
            (lender.arrive(3, false), lender.arrive(0, false), lender.arrive(99, false)),
            (Err(Beyond), Err(Beyond), Err(Beyond))
        );
        assert_eq!((lender.take_back(3, 1), lender.take_back(99, 0)), (Err(Beyond), Err(Beyond)));
    }

    #[test]
    fn a_buffer_that_somebody_else_has_taken_is_lacking_until_it_is_posted_again() {
        let mut lender = Lender::with(16, 16);
        (0..4).for_each(|account| lender.open(account));
        assert_eq!((lender.lent, lender.is_due(), lender.is_behind()), (16, false, false));
        lender.lose();
        assert_eq!((lender.is_due(), lender.is_behind()), (false, true), "15 for 16 credits");
        lender.post(1);
        assert!(!lender.is_behind());
        lender.check();
    }

    #[test]
    fn shares_grow_where_they_are_used() {
        let mut lender = Lender::with(64, 64);
        lender.open(0);
        lender.open(1);
        for _ in 0..FIRST - 1 {
            lender.arrive(0, false).expect("credit");
        }
        lender.arrive(0, true).expect("credit");
        assert_eq!(lender.urgent_news(0), Some(FIRST * 3), "twice as many as before");
        lender.check();
    }

    #[test]
    fn idle_peers_are_asked_first_and_everybody_has_a_right_to_one_buffer() {
        let mut lender = Lender::with(4, 4);
        lender.open(0);
        assert_eq!(lender.lent, 4);
        lender.tell(0);
        lender.open(1);
        lender.ask(1);
        assert_eq!(lender.growth(), 0);
        // The first look finds who has not been looked at before.
        assert_eq!(lender.recall(), Some(Recall { account: 0, keep: 0 }));
        assert_eq!(lender.recall(), None, "once");
        for account in 2..6 {
            lender.open(account);
        }
        assert_eq!(lender.growth(), 2, "six peers");
        lender.enlarge(2);
        lender.post(2);
        lender.check();
        lender.take_back(0, 4).expect("its own");
        lender.check();
        assert!((1..6).all(|account| lender.news(account).is_some()), "{lender:?}");
    }

    #[test]
    fn where_there_is_no_memory_for_more_buffers_peers_share_those_that_there_are() {
        let mut lender = Lender::with(64, 4);
        (0..3).for_each(|account| lender.open(account));
        assert_eq!((lender.lent, lender.growth() > 0, lender.recall()), (4, true, None));
        lender.may_grow(false);
        lender.arrive(0, true).expect("it had a credit");
        let recalled: Vec<_> = std::iter::from_fn(|| lender.recall()).collect();
        assert_eq!(recalled, [Recall { account: 0, keep: 0 }], "nobody else has any");
        lender.take_back(0, 2).expect("it had three");
        lender.check();
        assert_eq!([1, 2].map(|account| lender.accounts[account].out()), [2, 0], "in the order of asking");
        lender.enlarge(4);
        lender.may_grow(true);
        assert_eq!((lender.growth(), lender.recall()), (8, None), "there can be more again");
    }

    #[test]
    fn without_memory_whoever_asks_and_has_nothing_is_served_before_others_get_more() {
        let mut lender = Lender::with(64, 4);
        (0..3).for_each(|account| lender.open(account));
        let out = |lender: &Lender| [0, 1, 2].map(|account| lender.accounts[account].out());
        assert_eq!((out(&lender), lender.owed()), ([4, 0, 0], 0), "nobody has asked");
        lender.may_grow(false);
        lender.arrive(0, false).expect("it had four");
        lender.make_up(0);
        lender.ask(2);
        assert_eq!(lender.owed(), 1, "it can send nothing");
        lender.enlarge(1);
        lender.pay(1);
        lender.post(1);
        lender.check();
        assert_eq!((out(&lender), lender.next_fresh(), lender.owed()), ([3, 0, 1], Some(2), 0));
        lender.ask(1);
        (0..9).for_each(|_| lender.pay(1));
        assert_eq!(lender.owed(), 0, "one for each peer, in all");
    }

    #[test]
    fn without_memory_those_who_have_nothing_are_served_in_turn() {
        let mut lender = Lender::with(64, 1);
        (0..3).for_each(|account| lender.open(account));
        lender.may_grow(false);
        let mut served = Vec::new();
        for _ in 0..7 {
            let account =
                (0..3).find(|account| lender.accounts[*account].out() == 1).expect("it has the credit");
            served.push(account);
            (0..3).filter(|other| *other != account).for_each(|other| lender.ask(other));
            lender.arrive(account, true).expect("it had a credit");
            lender.post(1);
            lender.check();
        }
        assert_eq!(served, [0, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_word_is_written_when_half_of_the_share_is_owed_or_the_peer_knows_of_nothing() {
        let urgent = |limit, arrived, told, share| {
            let mut lender = Lender::new(64, 64);
            lender.accounts =
                vec![Account { is_open: true, limit, arrived, told, share, ..Account::default() }];
            lender.urgent_news(0)
        };
        // It knows of one: half of what it may have is worth a word, or a little more where that is no whole number.
        assert_eq!((urgent(12, 3, 4, 16), urgent(11, 3, 4, 16)), (Some(12), None));
        assert_eq!((urgent(7, 3, 4, 5), urgent(6, 3, 4, 5)), (Some(7), None));
        // It knows of none, or has given back more than it knows of.
        assert_eq!((urgent(6, 3, 4, 16), urgent(6, 4, 4, 16), urgent(6, 5, 4, 16)), (None, Some(6), Some(6)));
        // There is nothing to tell.
        assert_eq!((urgent(4, 4, 4, 16), urgent(4, 4, 4, 0)), (None, None));
        // Numbers that begin anew.
        let last = u32::MAX;
        assert_eq!((urgent(1, last - 1, last, 16), urgent(1, last, last, 16)), (None, Some(1)));
        assert_eq!(
            (urgent(3, last, 1, 16), urgent(3, 1, 1, 16), urgent(3, 2, 1, 16)),
            (None, Some(3), Some(3))
        );
    }

    #[test]
    fn what_a_dead_peer_had_is_others() {
        let mut lender = Lender::with(4, 4);
        lender.open(0);
        lender.open(1);
        assert_eq!(lender.news(1), None);
        lender.close(0);
        lender.check();
        assert!(lender.news(1).is_some());
        lender.close(0);
        lender.open(0);
        lender.check();
    }

    /// Peers that send at random, compute, ask, give back and die, over wires with delays.
    #[test]
    fn every_message_finds_a_buffer_and_nobody_waits_for_good() {
        struct Sender {
            allowance: Allowance,
            wire: VecDeque<bool>,
            limits: Vec<u32>,
            recalls: Vec<u32>,
            returns: Vec<u32>,
            asks: u32,
            wants: u32,
            sent: u32,
        }
        for (depth, peers) in [(1_u32, 1_usize), (4, 9), (16, 5), (64, 3), (256, 40)] {
            let mut lender = Lender::with(depth, depth.div_ceil(4));
            let mut state = u64::from(depth);
            let mut random = |most: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % most
            };
            let sender = || Sender {
                allowance: Allowance::new(0),
                wire: VecDeque::new(),
                limits: Vec::new(),
                recalls: Vec::new(),
                returns: Vec::new(),
                asks: 0,
                wants: 0,
                sent: 0,
            };
            let mut all: Vec<Sender> = (0..peers).map(|_| sender()).collect();
            (0..peers).for_each(|account| lender.open(account));
            let mut unposted = 0;
            for round in 0..40_000 {
                // The last rounds only end what has begun.
                let is_ending = round > 35_000;
                let at = random(peers as u64) as usize;
                let it = &mut all[at];
                if !is_ending && random(200) == 0 {
                    lender.close(at);
                    *it = sender();
                    lender.open(at);
                }
                if !is_ending {
                    it.wants = it.wants.max(random(6) as u32);
                }
                // A peer that computes does nothing of this.
                if is_ending || random(3) == 0 {
                    for limit in it.limits.drain(..) {
                        it.allowance.raise(limit, depth.max(peers as u32)).expect("buffers that there are");
                    }
                    while it.wants > 0 && it.allowance.take() {
                        (it.wants, it.sent) = (it.wants - 1, it.sent + 1);
                        it.wire.push_back(it.allowance.left() == 0 && it.wants > 0);
                    }
                    if it.wants > 0 && it.asks == 0 {
                        it.asks = 1;
                    }
                    for keep in it.recalls.drain(..) {
                        it.returns.push(it.allowance.give_back(keep));
                    }
                }
                while let Some(wants) = it.wire.front() {
                    if !is_ending && random(3) == 0 {
                        break;
                    }
                    lender.arrive(at, *wants).expect("within its credit");
                    it.wire.pop_front();
                    unposted += 1;
                }
                it.returns.drain(..).for_each(|count| lender.take_back(at, count).expect("its own"));
                if std::mem::take(&mut it.asks) > 0 {
                    lender.ask(at);
                }
                if is_ending || random(2) == 0 {
                    (0..peers).for_each(|account| lender.make_up(account));
                    // As `Shared::is_due` has it.
                    if unposted >= together(lender.capacity()) || lender.is_due() {
                        lender.post(std::mem::take(&mut unposted) as u32);
                    }
                    while lender.next_fresh().is_some() {}
                }
                let growth = lender.growth();
                lender.enlarge(growth);
                lender.post(growth);
                if let Some(Recall { account, keep }) = lender.recall() {
                    all[account].recalls.push(keep);
                }
                for (account, peer) in all.iter_mut().enumerate() {
                    let is_told = !is_ending && random(9) == 0;
                    let news = if is_told { lender.news(account) } else { lender.urgent_news(account) };
                    if let Some(limit) = news {
                        lender.tell(account);
                        peer.limits.push(limit);
                    }
                }
                lender.check();
            }
            for (at, it) in all.iter().enumerate() {
                assert_eq!(it.wants, 0, "{depth} {peers}: peer {at} waits: {lender:?}");
            }
        }
    }
}
