//! The queue pairs of a peer while they are ours: what is posted on them, and what may be.

use std::sync::Arc;

use super::buffers::{Pool, Shared};
use super::counters::Counters;
use super::credit::Beyond;
use super::flow::Flow;
use super::line::{ATTEMPT, Line, Port};
use super::outgoing::Body;
use super::side::Side;
use super::sides::Sides;
use super::signs::Signs;
use crate::btl::{Cookie, Lent};
use crate::engine::cm::{Attempt, Dialect};
use crate::error::{Error, Result};
use crate::verbs::{Access, Flags, InlineSend, Mr, Piece, PostError, Remote, Slab, Work};
use crate::wire::openib;
use crate::wire::verbs::{HEADER, Header, Word};

/// What all peers of a module use.
pub(super) struct Desk {
    pub(super) port: Arc<Port>,
    /// Send buffers, by queue.
    pub(super) pools: Vec<Pool>,
    /// Shared receive queues, by queue.
    pub(super) shared: Vec<Option<Shared>>,
    pub(super) counters: Arc<Counters>,
    /// The queue that is for control.
    pub(super) credits: usize,
    /// Bytes of one RDMA operation at most.
    pub(super) longest: usize,
}

/// What is under way in a send queue.
pub(super) enum Entry {
    /// A message, from a send buffer of this queue.
    Buffer { at: u32, cookie: Option<Cookie> },
    /// A message that was copied when it was posted.
    Copied(Cookie),
    /// A part of a transfer, which counts as a read where the peer answers; the last has the cookie.
    Part { cookie: Option<Cookie>, is_read: bool, _memory: Option<Arc<Mr>> },
    /// A question to the peer's device.
    Probe { is_read: bool },
}

impl Entry {
    /// Whether the peer answers, and it is over then.
    #[inline]
    pub(super) const fn is_answered(&self) -> bool {
        match self {
            Self::Buffer { .. } | Self::Copied(_) => false,
            Self::Part { is_read, .. } | Self::Probe { is_read } => *is_read,
        }
    }
}

/// A queue pair does not work any more, or the peer does what no peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Post,
    Silent,
    /// There has been no memory to send from for too long.
    Memory,
    Corrupt,
}

impl From<Beyond> for Broken {
    fn from(_: Beyond) -> Self {
        Self::Corrupt
    }
}

/// What something waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    /// Others are before it.
    Turn,
    Connection,
    Credit,
    Slot,
    Buffer,
}

/// All queue pairs of one attempt.
pub(super) struct Connection {
    pub(super) attempt: Attempt,
    pub(super) sides: Sides,
    /// What the peer writes, by queue; what is written to it; and where answers to probes go.
    pub(super) words: Arc<Slab>,
    /// Where the peer has the first.
    pub(super) remote: Option<Remote>,
    /// Data may be sent.
    pub(super) is_connected: bool,
    /// Nothing is posted any more.
    pub(super) is_ending: bool,
    /// Its devices take nothing any more.
    pub(super) is_flushed: bool,
    /// Reads and atomic operations under way.
    pub(super) reads: usize,
    /// Whether the peer's device is there.
    pub(super) signs: Signs,
    place: u32,
    /// Where messages lie that are copied when they are posted.
    pub(super) scratch: Lent,
    /// Where what says that the receives are posted lies, if it has bytes.
    pub(super) ready: Lent,
    /// By what those go that take the short path.
    pub(super) short: InlineSend<HEADER>,
    /// There may be a queue of which the peer has not been told what it may send.
    pub(super) has_news: bool,
    /// Where the search for news goes on.
    hand: usize,
    /// What is so long and not copied when it is posted asks for its own completion.
    lent_from: usize,
    /// Nothing but the answer to a read says that what was sent before it has arrived.
    is_told_by_reads: bool,
    /// Where openib's wire is spoken, what it counts.
    pub(super) openib: Option<Flow>,
}

/// From so many bytes on, Linux' siw sends work that asks for no completion out of the program's memory, and again out of it what
/// got lost on the way, whenever that is: the completion of later work does not say that the memory is free (`siw_qp_tx.c`). What
/// asks for its completion is copied.
const LENT: usize = 4096;

impl Connection {
    /// Whether it is of the attempt whose lower bits these are.
    #[inline]
    pub(super) const fn is_of(&self, attempt: u16) -> bool {
        (self.attempt.0 & ATTEMPT) as u16 == attempt
    }

    /// Posts all receives of a peer.
    ///
    /// # Errors
    /// When there is no memory, or nothing can be posted.
    pub(super) fn begin(
        place: u32,
        (attempt, token): (Attempt, u32),
        lines: Vec<Arc<Line>>,
        desk: &mut Desk,
        now: u64,
    ) -> Result<Self> {
        let queues = desk.port.queues.clone();
        let inline = lines.iter().map(|line| line.inline).max().unwrap_or(0);
        let (words, scratch, ready) = desk.words(queues.len(), inline)?;
        let openib = (desk.port.dialect == Dialect::Openib).then(|| Flow::new(token, &queues));
        let mut sides = Vec::new();
        for (index, (line, queue)) in lines.into_iter().zip(queues.all()).enumerate() {
            line.keep(&words);
            let mut side = Side::new(&desk.port, line, (place, attempt), (index, queue))?;
            if let Some(receives) = &mut side.receives {
                receives.buffers.post(&side.line.pair)?;
            }
            if let Some(shared) = &mut desk.shared[index] {
                shared.begin(&desk.port)?;
                // What an earlier attempt had is of the past.
                shared.lender.close(place as usize);
                if openib.is_none() {
                    shared.lender.open(place as usize);
                }
            }
            sides.push(side);
        }
        if sides.is_empty() {
            return Err(Error::NotFound);
        }
        let first = sides.remove(0);
        let short = InlineSend::new(first.longest_short(&queues.all()[0]))?;
        Ok(Self {
            attempt,
            sides: Sides::new(first, sides),
            words,
            remote: None,
            is_connected: false,
            is_ending: false,
            is_flushed: false,
            reads: 0,
            signs: Signs::new(now),
            place,
            scratch,
            ready,
            short,
            has_news: true,
            hand: 0,
            lent_from: if desk.port.is_iwarp() { LENT } else { usize::MAX },
            is_told_by_reads: desk.port.is_iwarp() && desk.port.dialect == Dialect::Own,
            openib,
        })
    }

    /// Whether all that was posted on a queue is over, and has arrived as far as is to be known.
    pub(super) fn is_over(&self, queue: usize) -> bool {
        let side = &self.sides[queue];
        side.trail.is_over(side.slots.len(), self.is_told_by_reads)
    }

    /// The same of all queues.
    pub(super) fn is_all_over(&self) -> bool {
        (0..self.sides.len()).all(|queue| self.is_over(queue))
    }

    /// Posts something, if there is a place; `None`: there is none.
    #[inline]
    pub(super) fn post(
        &mut self,
        queue: usize,
        work: Work,
        pieces: &[Piece],
        (asks, is_inline): (bool, bool),
    ) -> std::result::Result<Option<bool>, Broken> {
        let side = &mut self.sides[queue];
        if !side.slots.has_room() {
            return Ok(None);
        }
        let (number, must) = side.slots.next();
        let is_read = matches!(work, Work::Read(_));
        let is_lent = !is_inline && pieces.iter().map(Piece::len).sum::<usize>() >= self.lent_from;
        let asks = asks || must || is_lent;
        let mut flags = if asks { Flags::SIGNALLED } else { Flags::NONE };
        if is_inline {
            flags = flags | Flags::INLINE;
        }
        match side.post(number, work, pieces, flags) {
            Ok(()) => {
                side.trail.post(is_read);
                Ok(Some(asks))
            }
            Err(PostError::Full) => Ok(None),
            Err(PostError::Refused(_)) => Err(Broken::Post),
        }
    }

    /// Sends the CTS, which takes no credit, and has no bytes unless openib's wire is spoken.
    pub(super) fn send_cts(&mut self, desk: &mut Desk) -> std::result::Result<(), Broken> {
        if self.openib.is_some() {
            return self.send_ready(desk);
        }
        let queue = desk.credits;
        let asks = self.post(queue, Work::Send, &[], (false, false))?.ok_or(Broken::Post)?;
        self.sides[queue].slots.push(None, asks);
        Ok(())
    }

    /// What the peer does not know of our buffers: a queue, and the lower half of its limit.
    #[inline]
    fn news(&mut self, desk: &Desk) -> Option<(u8, u16)> {
        if self.has_news { self.find_news(desk) } else { None }
    }

    /// Looks for news, one queue after the other.
    fn find_news(&mut self, desk: &Desk) -> Option<(u8, u16)> {
        let count = self.sides.len();
        for queue in (self.hand..count).chain(0..self.hand) {
            if let Some(limit) = self.limit(queue, desk, false) {
                self.hand = if queue + 1 == count { 0 } else { queue + 1 };
                return Some((queue as u8, limit as u16));
            }
        }
        self.has_news = false;
        None
    }

    #[inline]
    fn limit(&self, queue: usize, desk: &Desk, urgent: bool) -> Option<u32> {
        match (&self.sides[queue].receives, &desk.shared[queue]) {
            (Some(receives), _) if urgent => receives.window.urgent_news(),
            (Some(receives), _) => receives.window.news(),
            (None, Some(shared)) if urgent => shared.lender.urgent_news(self.place as usize),
            (None, Some(shared)) => shared.lender.news(self.place as usize),
            (None, None) => None,
        }
    }

    #[inline]
    fn told(&mut self, queue: usize, desk: &mut Desk) {
        match (&mut self.sides[queue].receives, &mut desk.shared[queue]) {
            (Some(receives), _) => receives.window.tell(),
            (None, Some(shared)) => {
                let lent = shared.lender.tell(self.place as usize);
                desk.counters.num_credits_lent.add(u64::from(lent));
            }
            (None, None) => {}
        }
    }

    /// The limits of shared queues, for the first message.
    pub(super) fn limits(&mut self, desk: &mut Desk) -> [u32; crate::wire::verbs::QUEUES] {
        let mut limits = [0; crate::wire::verbs::QUEUES];
        for (queue, place) in limits.iter_mut().enumerate().take(self.sides.len()) {
            *place = match &self.sides[queue].receives {
                Some(receives) => receives.window.limit(),
                None => self.limit(queue, desk, false).unwrap_or(0),
            };
            self.told(queue, desk);
        }
        limits
    }

    /// Looks at what the peer has written.
    #[inline]
    pub(super) fn read_word(&mut self, queue: usize, most: u32) -> std::result::Result<bool, Broken> {
        let Some(limit) = Word(self.words.load(queue)).limit() else { return Ok(false) };
        self.raise(queue, limit, most)
    }

    /// The peer has told a limit.
    #[inline]
    pub(super) fn raise(&mut self, queue: usize, limit: u32, most: u32) -> std::result::Result<bool, Broken> {
        let side = &mut self.sides[queue];
        let is_new = side.credit.raise(limit, most)?;
        side.has_asked &= !is_new;
        Ok(is_new)
    }

    /// Sends a message, if it can go: with a credit, a place and a buffer.
    #[inline]
    pub(super) fn push(
        &mut self,
        queue: usize,
        tag: Option<u8>,
        body: Body<'_>,
        waits: Option<Cookie>,
        desk: &mut Desk,
    ) -> std::result::Result<std::result::Result<(), Stall>, Broken> {
        if let (Some(_), Some(tag)) = (&self.openib, tag) {
            return self.push_openib(queue, tag, body, waits, desk);
        }
        if self.sides[queue].credit.left() == 0 {
            self.read_word(queue, desk.most(queue))?;
            if self.sides[queue].credit.left() == 0 {
                return Ok(Err(Stall::Credit));
            }
        }
        let length = body.len();
        let outgoing = match self.outgoing(queue, HEADER + length, desk) {
            Ok(outgoing) => outgoing,
            Err(stall) => return Ok(Err(stall)),
        };
        let news = self.news(desk);
        let (of, limit) = news.unwrap_or_else(|| {
            let limit = self.sides[desk.credits].receives.as_ref().map_or(0, |it| it.window.limit());
            (desk.credits as u8, limit as u16)
        });
        let wants = self.sides[queue].credit.left() == 1;
        let header = Header { tag, queue: of, limit, wants, length: length as u32 };
        outgoing.write(&header.to_bytes(), body);
        let posted = self.post_outgoing(queue, Work::Send, &outgoing, (waits, waits.is_some()), desk)?;
        if posted.is_err() {
            return Ok(posted);
        }
        let side = &mut self.sides[queue];
        side.credit.take();
        side.has_asked |= wants;
        self.told(usize::from(of), desk);
        let counters = &desk.counters;
        if tag.is_none() {
            counters.num_controls.add(1);
        } else {
            counters.num_sends.add(1);
            counters.send_bytes.add(length as u64);
        }
        Ok(Ok(()))
    }

    /// Writes to the peer's memory what it should know now; whether there was a place for all of it.
    pub(super) fn write_words(&mut self, desk: &mut Desk) -> std::result::Result<bool, Broken> {
        if self.openib.is_some() {
            return self.send_credits(desk);
        }
        let Some(remote) = self.remote else { return Ok(true) };
        let (count, credits) = (self.sides.len(), desk.credits);
        for queue in 0..count {
            let Some(limit) = self.limit(queue, desk, true) else { continue };
            let own = count + queue;
            self.words.store(own, Word::new(limit).0);
            let at = Remote { address: remote.address.wrapping_add(queue as u64 * 8), key: remote.key };
            let is_inline = self.sides[credits].inline >= 8;
            let piece = self.words.piece(own * 8, 8);
            let Some(asks) = self.post(credits, Work::Write(at), &[piece], (false, is_inline))? else {
                return Ok(false);
            };
            self.sides[credits].slots.push(None, asks);
            self.told(queue, desk);
            desk.counters.num_credit_words.add(1);
        }
        Ok(true)
    }

    /// Asks the peer's device whether it is there, on one queue; false if that cannot be asked now.
    pub(super) fn probe(&mut self, queue: usize, desk: &Desk) -> std::result::Result<bool, Broken> {
        let Some(remote) = self.remote else { return Ok(false) };
        // Of iWARP, nothing but an answer says that anything has arrived.
        let is_read = desk.port.is_iwarp();
        let scratch = 2 * self.sides.len();
        let piece = self.words.piece(scratch * 8, if is_read { 8 } else { 0 });
        let posted = if is_read {
            self.post(queue, Work::Read(remote), &[piece], (true, false))?
        } else {
            self.post(queue, Work::Write(remote), &[], (true, false))?
        };
        if posted.is_none() {
            return Ok(false);
        }
        self.reads += usize::from(is_read);
        self.sides[queue].slots.push(Some(Entry::Probe { is_read }), true);
        desk.counters.num_probes.add(1);
        Ok(true)
    }

    /// Posts a part of a transfer; `None`: there is no place.
    pub(super) fn post_part(
        &mut self,
        (work, piece): (Work, Piece),
        (cookie, memory): (Option<Cookie>, Option<Arc<Mr>>),
        queue: usize,
    ) -> std::result::Result<bool, Broken> {
        let is_read = !matches!(work, Work::Write(_));
        let is_inline = memory.is_none() && !is_read;
        // Of reads, and of atomic operations with them, there may only be so many: each has to be heard of.
        let asks = is_read || cookie.is_some();
        let Some(asks) = self.post(queue, work, &[piece], (asks, is_inline))? else {
            return Ok(false);
        };
        self.reads += usize::from(is_read);
        self.sides[queue].slots.push(Some(Entry::Part { cookie, is_read, _memory: memory }), asks);
        Ok(true)
    }

    /// Where answers go that nobody looks at.
    pub(super) fn nowhere(&self) -> Piece {
        self.words.piece(2 * self.sides.len() * 8, 8)
    }

    /// A read that only asks.
    pub(super) fn fence(&self) -> Option<(Work, Piece)> {
        Some((Work::Read(self.remote?), self.nowhere()))
    }

    /// Posts the free buffers of a private queue, so many; whether the peer may have to be told now. What is free of the queue that
    /// is for control, each message says.
    pub(super) fn post_again(
        &mut self,
        queue: usize,
        count: u32,
        credits: usize,
    ) -> std::result::Result<bool, Broken> {
        let side = &mut self.sides[queue];
        let Some(receives) = side.receives.as_mut().filter(|_| !self.is_ending) else { return Ok(false) };
        receives.buffers.post(&side.line.pair).map_err(|_| Broken::Post)?;
        receives.window.post(count);
        self.has_news |= queue != credits;
        Ok(queue != credits || receives.window.urgent_news().is_some())
    }
}

impl Desk {
    /// Most messages of a queue that a peer may allow.
    #[inline]
    pub(super) fn most(&self, queue: usize) -> u32 {
        self.port.queues.all()[queue].depth
    }

    /// Words for a peer: those that it writes, those that are written to it, and one for answers. Behind them is room for
    /// messages that are copied when they are posted, and behind that for the one that says that the receives are posted.
    fn words(&self, queues: usize, inline: usize) -> Result<(Arc<Slab>, Lent, Lent)> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let words = (2 * queues + 1) * 8;
        let ready = match self.port.dialect {
            Dialect::Own => 0,
            Dialect::Openib => openib::HEADER + openib::LONGEST_CONTROL,
        };
        let slab = self.port.slab(words + inline + ready, access)?;
        let (scratch, ready) = (slab.lent(words, inline), slab.lent(words + inline, ready));
        Ok((slab, scratch, ready))
    }
}
