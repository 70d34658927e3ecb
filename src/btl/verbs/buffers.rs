//! Registered buffers: those that messages are sent from, and those of shared receive queues. They are made as they are
//! needed, and stay until the port goes.

use std::sync::Arc;

use super::lender::Lender;
use super::line::{AT, Number, Port, Work};
use super::parameters::Buffers;
use crate::btl::Lent;
use crate::error::{Error, Result};
use crate::verbs::{LIST, Piece, Slab, Srq};
use crate::wire::openib;
use crate::wire::verbs::HEADER;

/// Bytes of a buffer: the message, and what is in front of it, whichever wire is spoken.
pub(super) const fn room(size: u32) -> usize {
    let front = if HEADER > openib::OVERHEAD { HEADER } else { openib::OVERHEAD };
    size as usize + front
}

/// Bytes from one buffer to the next: the header, the message, and what makes each begin at a line of the cache.
pub(super) const fn stride(size: u32) -> usize {
    room(size).next_multiple_of(64)
}

/// What can be had of so many, one at least: half as many as often as there are not; how many that is.
fn at_most<T>(mut count: usize, have: impl Fn(usize) -> Result<T>) -> Result<(usize, T)> {
    loop {
        match have(count) {
            Ok(had) => return Ok((count, had)),
            Err(Error::OutOfResource) if count > 1 => count /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// When memory that was refused is asked for again: not the next time that it is wanted, and after each refusal twice as late.
#[derive(Debug, Default)]
struct Reserve {
    /// So many times it is not asked for.
    left: u32,
    last: u32,
}

impl Reserve {
    /// Longest.
    const MOST: u32 = 1 << 12;

    /// Whether to ask this time.
    fn asks(&mut self) -> bool {
        let asks = self.left == 0;
        self.left = self.left.saturating_sub(1);
        asks
    }

    const fn was_refused(&self) -> bool {
        self.last > 0
    }

    fn refused(&mut self) {
        self.last = (self.last * 2).clamp(1, Self::MOST);
        self.left = self.last;
    }
}

/// So many buffers of a shared queue are posted with one call, as long as nobody lacks them: an eighth of all, and no more than a
/// list holds. What is not posted is not lent, either.
pub(super) fn together(capacity: u32) -> usize {
    (capacity as usize / 8).clamp(1, LIST)
}

/// Whether so few of all buffers are posted, where nothing is lent, that there should be more: less than a quarter.
fn are_few(posted: u32, capacity: u32) -> bool {
    posted < capacity.div_ceil(4)
}

/// Buffers of one size.
pub(super) struct Pool {
    size: u32,
    places: Vec<(Arc<Slab>, usize)>,
    free: Vec<u32>,
    limits: Buffers,
    reserve: Reserve,
    /// Since when it has been known that someone waits for a buffer, and there is none at all.
    barren: Option<u64>,
}

impl Pool {
    /// Of messages of up to so many bytes; there is no buffer yet.
    pub(super) const fn new(size: u32, limits: Buffers) -> Self {
        Self {
            size,
            places: Vec::new(),
            free: Vec::new(),
            limits,
            reserve: Reserve { left: 0, last: 0 },
            barren: None,
        }
    }

    /// A free buffer; `None` where there is none, and no more memory for one.
    #[inline]
    pub(super) fn take(&mut self, port: &Port) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            return Some(at);
        }
        self.make(port).ok()?;
        self.free.pop()
    }

    /// Makes the first buffers, or more of them where others leave memory for that.
    #[cold]
    fn make(&mut self, port: &Port) -> Result<usize> {
        let stride = stride(self.size);
        let wanted = if self.places.is_empty() {
            self.limits.first.min((port.first() / stride).max(1))
        } else {
            self.limits.more.min(port.left() / stride)
        };
        let room = self.limits.most.min(AT as usize).saturating_sub(self.places.len());
        if wanted == 0 && room > 0 && self.reserve.asks() {
            self.reserve.refused();
            port.want_room(stride);
        }
        self.enlarge(wanted.min(room), port)
    }

    /// Makes so many buffers more, or as many as there is memory for, halved until there is; how many.
    ///
    /// # Errors
    /// When there is none for a single one.
    #[cold]
    fn enlarge(&mut self, count: usize, port: &Port) -> Result<usize> {
        if count == 0 {
            return Ok(0);
        }
        if !self.reserve.asks() {
            return Err(Error::OutOfResource);
        }
        let stride = stride(self.size);
        let had = at_most(count, |count| port.keep(count * stride));
        let (had, slab) = had.inspect_err(|_| {
            self.reserve.refused();
            port.was_refused(stride);
        })?;
        if had < count {
            port.is_short_of(count * stride);
        }
        let count = had;
        self.reserve = Reserve::default();
        for index in 0..count {
            self.free.push(self.places.len() as u32);
            self.places.push((Arc::clone(&slab), index * stride));
        }
        Ok(count)
    }

    /// Whether few are free, three in four taken: what is sent from another asks for a completion then, so that it comes back. Who
    /// does not ask keeps its buffer for as long as nothing follows, and there may never be more.
    #[inline]
    pub(super) const fn is_low(&self) -> bool {
        self.free.len() <= self.places.len() / 4
    }

    /// For how long someone has waited while there has been no buffer at all, and no memory for one: nothing that is under way
    /// brings one. `is_wanted`: whether someone waits now.
    pub(super) fn barren_for(&mut self, now: u64, is_wanted: impl FnOnce() -> bool) -> u64 {
        let is_barren = self.places.is_empty() && self.reserve.was_refused() && is_wanted();
        self.barren = is_barren.then(|| self.barren.unwrap_or(now));
        self.barren.map_or(0, |since| now - since)
    }

    /// Asks for memory once more, however often that was refused: it may have come meanwhile, and nobody have looked.
    ///
    /// # Errors
    /// When there is none for a single buffer.
    pub(super) fn insist(&mut self, port: &Port) -> Result<()> {
        self.reserve.left = 0;
        self.make(port).map(|_| ())
    }

    /// A buffer is free again.
    #[inline]
    pub(super) fn give(&mut self, at: u32) {
        self.free.push(at);
    }

    /// The bytes of a buffer, and the key of its registration.
    #[inline]
    pub(super) fn lent(&self, at: u32, len: usize) -> (Lent, u32) {
        let (slab, offset) = &self.places[at as usize];
        (slab.lent(*offset, len), slab.local_key())
    }

    /// The same, for work.
    #[inline]
    pub(super) fn piece(&self, at: u32, len: usize) -> Piece {
        let (slab, offset) = &self.places[at as usize];
        slab.piece(*offset, len)
    }
}

/// A shared receive queue with its buffers.
pub(super) struct Shared {
    queue: Arc<Srq>,
    /// Which queue of the specification it is.
    index: u8,
    pub(super) lender: Lender,
    pool: Pool,
    /// Those that are read and not posted again.
    free: Vec<u32>,
    initial: u32,
    /// Buffers, at most.
    depth: u32,
    /// Where nothing is lent: there have been few.
    is_short: bool,
    /// Since when the device has taken none at all.
    stuck: Option<u64>,
}

impl Shared {
    /// One of which no buffer is posted yet.
    pub(super) fn new(queue: &Arc<Srq>, index: usize, size: u32, depth: u32, initial: u32) -> Self {
        let limits = Buffers { first: 0, more: 0, most: usize::MAX };
        Self {
            lender: Lender::new(depth, queue.depth() as u32),
            queue: Arc::clone(queue),
            index: index as u8,
            pool: Pool::new(size, limits),
            free: Vec::new(),
            initial,
            depth,
            is_short: false,
            stuck: None,
        }
    }

    /// The first buffers, once there is a peer.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub(super) fn begin(&mut self, port: &Port) -> Result<()> {
        if self.lender.capacity() > 0 {
            return Ok(());
        }
        let most = u32::try_from(port.first() / stride(self.pool.size)).unwrap_or(u32::MAX);
        self.pool.reserve.left = 0;
        self.grow(self.initial.min(most).max(1), port).map(|_| ())
    }

    fn grow(&mut self, count: u32, port: &Port) -> Result<u32> {
        let made = self.pool.enlarge(count as usize, port)? as u32;
        self.lender.enlarge(made);
        self.free.append(&mut self.pool.free);
        self.post();
        Ok(made)
    }

    /// A buffer is not needed any more.
    #[inline]
    pub(super) fn release(&mut self, at: u32) {
        self.free.push(at);
    }

    /// A message has come of a peer that is lent nothing.
    pub(super) fn arrive_unlent(&mut self) {
        self.lender.lose();
        self.is_short |= are_few(self.lender.posted(), self.lender.capacity());
    }

    /// As many buffers more of these as others leave memory for; without it, those that there are go around.
    fn grow_by(&mut self, count: u32, port: &Port) {
        let stride = stride(self.pool.size);
        let room = |bytes: usize| u32::try_from(bytes / stride).unwrap_or(u32::MAX);
        let most = count.min(room(port.growth()));
        let has_grown = most > 0 && self.grow(most, port).is_ok();
        self.lender.may_grow(has_grown);
        if has_grown {
            return;
        }
        // Who cannot send anything has a right to one, whatever is left to others.
        let owed = self.lender.owed();
        let left = owed.min(room(port.left()));
        if left > 0 {
            if let Ok(made) = self.grow(left, port) {
                self.lender.pay(made);
            }
        } else if owed > 0 && self.pool.reserve.asks() {
            self.pool.reserve.refused();
            port.want_room(stride);
        }
    }

    /// Makes twice as many buffers, where nothing is lent and there have been few.
    pub(super) fn keep_up_unlent(&mut self, port: &Port) {
        if std::mem::take(&mut self.is_short) {
            let capacity = self.lender.capacity();
            let count = capacity.min(self.depth.saturating_sub(capacity));
            if count > 0 {
                self.grow_by(count, port);
            }
        }
    }

    /// Whether there is something to be done: as many buffers to post as are posted together, peers that wait for some or have
    /// just got some, or few left where nothing is lent.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.free.len() >= together(self.lender.capacity())
            || self.is_lacking()
            || self.lender.is_due()
            || self.is_short
    }

    /// Whether there are buffers to post that somebody lacks: a peer that waits, or one that may send, and nothing is posted for it.
    fn is_lacking(&self) -> bool {
        !self.free.is_empty() && (self.lender.is_due() || self.lender.is_behind())
    }

    /// Lends a peer what it lacks, and posts buffers for it if it is to be had by that.
    #[inline]
    pub(super) fn make_up(&mut self, account: usize) {
        self.lender.make_up(account);
        if self.is_lacking() {
            self.post();
        }
    }

    /// Posts what is free.
    #[inline]
    pub(super) fn post(&mut self) {
        let (index, pool, len) = (self.index, &self.pool, room(self.pool.size));
        let receive = |at: &u32| {
            let number = Number { peer: 0, attempt: 0, work: Work::Shared, queue: index, at: *at };
            (number.raw(), pool.piece(*at, len))
        };
        let mut count = 0;
        loop {
            let posted = self.queue.post_receives(self.free.iter().rev().map(receive));
            self.free.truncate(self.free.len() - posted);
            count += posted as u32;
            // A queue that takes no more takes it later: completions make room.
            if posted < LIST {
                break;
            }
        }
        if count > 0 {
            self.lender.post(count);
        }
    }

    /// For how long none has been posted, though there are some: the device takes none, and nobody hears from any peer.
    pub(super) fn stuck_for(&mut self, now: u64) -> u64 {
        let is_stuck = |shared: &Self| shared.lender.posted() == 0 && !shared.free.is_empty();
        if is_stuck(self) {
            self.post();
        }
        self.stuck = is_stuck(self).then(|| self.stuck.unwrap_or(now));
        self.stuck.map_or(0, |since| now - since)
    }

    /// Makes more buffers where they do not suffice.
    #[inline]
    pub(super) fn keep_up(&mut self, port: &Port) {
        let count = self.lender.growth();
        if count > 0 {
            self.grow_by(count, port);
        }
    }

    /// The bytes of a buffer.
    #[inline]
    pub(super) fn lent(&self, at: u32, len: usize) -> Option<Lent> {
        ((at as usize) < self.pool.places.len() && len <= stride(self.pool.size))
            .then(|| self.pool.lent(at, len).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_asked_for_less_and_less() {
        let mut reserve = Reserve::default();
        let mut asked = Vec::new();
        for time in 0..20_000 {
            if reserve.asks() {
                asked.push(time);
                reserve.refused();
            }
        }
        assert_eq!(asked[..6], [0, 2, 5, 10, 19, 36]);
        assert_eq!(asked.windows(2).map(|two| two[1] - two[0]).max(), Some(Reserve::MOST + 1));
    }

    #[test]
    fn a_pool_is_barren_while_someone_waits_for_its_first_buffer_and_memory_is_refused() {
        let limits = Buffers { first: 8, more: 8, most: usize::MAX };
        let mut pool = Pool::new(64, limits);
        assert_eq!([5, 9].map(|now| pool.barren_for(now, || true)), [0, 0], "nothing has been refused");
        pool.reserve.refused();
        assert_eq!([10, 17].map(|now| pool.barren_for(now, || true)), [0, 7]);
        assert_eq!([18, 40].map(|now| pool.barren_for(now, || false)), [0, 0]);
        assert_eq!(
            [41, 42].map(|now| pool.barren_for(now, || true)),
            [0, 1],
            "who waits now has not waited before"
        );
        pool.reserve = Reserve::default();
        assert_eq!([50, 60].map(|now| pool.barren_for(now, || true)), [0, 0]);
    }

    #[test]
    fn an_eighth_of_the_buffers_is_posted_together_and_a_list_at_most() {
        assert_eq!([0, 1, 4, 15, 16, 64, 255, 256, 1024].map(together), [1, 1, 1, 1, 2, 8, 31, LIST, LIST]);
    }

    #[test]
    fn where_nothing_is_lent_there_should_be_more_before_nothing_is_posted() {
        assert_eq!(
            [(0, 1), (0, 3), (1, 3), (0, 4), (1, 4), (1, 8), (2, 8)]
                .map(|(posted, all)| are_few(posted, all)),
            [true, true, false, true, false, true, false]
        );
    }

    #[test]
    fn where_memory_is_short_there_are_as_many_as_it_suffices_for() {
        let short_of = |most: usize| {
            move |count: usize| if count <= most { Ok(count) } else { Err(Error::OutOfResource) }
        };
        assert_eq!(at_most(32, short_of(32)), Ok((32, 32)));
        assert_eq!(at_most(32, short_of(5)), Ok((4, 4)));
        assert_eq!(at_most(1, short_of(0)), Err(Error::OutOfResource));
        assert_eq!(at_most(32, |_| -> Result<()> { Err(Error::Unreachable) }), Err(Error::Unreachable));
    }
}
