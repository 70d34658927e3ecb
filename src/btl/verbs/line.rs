//! What a device gives: a port with its queues, and lines, each of which is one queue pair to one peer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::demand::{self, Demand, Room};
use super::lockable::{Lockable, Pinned};
use super::parameters::Config;
use super::queues::{Kind, Queues};
use crate::engine::cm::{Attempt, Dialect};
use crate::error::{Error, Result};
use crate::link::Lent;
use crate::verbs::{Access, Atomics, Context, Cq, Depths, Id, Pd, Piece, Qp, Slab, Srq};
use crate::wire::openib;
use crate::wire::verbs::{HEADER, Network};

/// Receives of a shared queue that there may be at least: a peer has a right to one.
const PEERS: usize = 1024;

/// Bytes for a CTS that has some.
const CTS: usize = 64;

/// A completion queue, and how much it can still hold.
struct Share {
    queue: Arc<Cq>,
    left: usize,
}

/// A port of a device that is open.
pub(super) struct Port {
    pub(super) context: Arc<Context>,
    pub(super) pd: Arc<Pd>,
    pub(super) network: Network,
    /// The device's name and the port's number.
    pub(super) name: String,
    number: u8,
    /// The code of its MTU, and the vendor and part of the device.
    pub(super) mtu: u8,
    pub(super) device: [u32; 2],
    /// Where this process listens.
    pub(super) at: SocketAddr,
    pub(super) prefix: u8,
    pub(super) speed: u32,
    /// Reads of a peer's that are served at once, and own ones that are under way.
    pub(super) reads: [u8; 2],
    /// Atomic operations that its device has.
    pub(super) atomics: Atomics,
    /// Bytes of the longest message.
    pub(super) longest: usize,
    pub(super) queues: Queues,
    /// The shared receive queue of each queue that has one.
    pub(super) shared: Vec<Option<Arc<Srq>>>,
    completions: Mutex<Vec<Share>>,
    /// How many completion queues there are to read; any other number where one has failed.
    pub(super) count: AtomicUsize,
    /// What queue pairs had of them that have gone: which one, and how much of it.
    vacated: Mutex<Vec<(usize, usize)>>,
    has_vacated: AtomicBool,
    /// A completion queue or a shared queue does not work any more.
    has_failed: AtomicBool,
    depth: usize,
    inline: u32,
    /// How long a peer waits that found no buffer, by its code.
    pub(super) receiver_not_ready: u8,
    /// What is spoken with peers.
    pub(super) dialect: Dialect,
    /// Where the CTS of whichever peer arrives, if it has bytes.
    cts: Option<Slab>,
    /// Buffers that queue pairs may use: they stay until all of those have gone.
    kept: Mutex<Vec<Arc<Slab>>>,
    /// Bytes that could not be had for those, if that is to be told; [`TOLD`] when it has been.
    lack: AtomicUsize,
    /// Bytes that are wanted of what nobody uses.
    wanted: AtomicUsize,
    /// Of those, bytes that were asked for and refused.
    refused: AtomicUsize,
    /// One of the three has changed.
    is_short: AtomicBool,
    /// What it may have locked.
    lockable: Lockable,
}

/// That memory was lacking has been told.
const TOLD: usize = usize::MAX;

/// Receives of all shared queues together: each may complete in any completion queue.
fn depth(shared: &[Option<Arc<Srq>>]) -> usize {
    shared.iter().flatten().map(|shared| shared.depth()).sum()
}

/// Bits of a token that say which queue.
const PLACE: u32 = 16;

/// What an event names a queue of a port by: whoever reads it does so for all ports of the device.
fn token(port: u8, place: usize) -> usize {
    usize::from(port) << PLACE | place
}

/// What it takes to make a port.
pub(super) struct Found {
    pub(super) context: Arc<Context>,
    pub(super) number: u8,
    pub(super) network: Network,
    pub(super) at: SocketAddr,
    pub(super) prefix: u8,
    pub(super) speed: u32,
}

impl Port {
    /// Makes what all queue pairs of a port share.
    ///
    /// # Errors
    /// What cannot be made, and why, in words.
    pub(super) fn open(
        found: Found,
        config: &Config,
        lockable: Lockable,
    ) -> std::result::Result<Self, String> {
        let Found { context, number, network, at, prefix, speed } = found;
        let name = format!("{}:{number}", context.name());
        let failed = |what: &str, error: Error| {
            let hint = match error {
                Error::OutOfResource => "; the limit of locked memory may be too low (`ulimit -l`)",
                _ => "",
            };
            format!("{name}: {what}: {error}{hint}")
        };
        let limits = context.limits().map_err(|error| failed("its limits cannot be read", error))?;
        let port = context.port(number).map_err(|error| failed("the port cannot be read", error))?;
        let pd = Pd::new(&context).map_err(|error| failed("no protection domain", error))?;
        let cts = match config.dialect {
            Dialect::Own => Ok(None),
            Dialect::Openib => Slab::new(&pd, CTS, Access::LOCAL_WRITE).map(Some),
        };
        let cts = cts.map_err(|error| failed("no memory can be registered", error))?;
        let mut shared = Vec::new();
        for (index, queue) in config.queues.all().iter().enumerate() {
            let depth = (queue.depth as usize).max(PEERS).min(limits.shared_depth);
            let made = match queue.kind {
                Kind::Private { .. } => None,
                Kind::Shared { .. } if (queue.depth as usize) > depth => {
                    return Err(format!(
                        "{name}: a shared queue of its has {depth} buffers at most, and `{queue}` asks for more"
                    ));
                }
                Kind::Shared { .. } => Some(
                    Srq::new(&pd, depth, 1, token(number, index))
                        .map_err(|error| failed("no shared receive queue", error))?,
                ),
            };
            shared.push(made);
        }
        let room = Room {
            work: limits.queue_depth,
            completions: limits.completion_depth.saturating_sub(depth(&shared)),
            message: port.message_size as usize,
            reads: limits.served_reads.min(limits.started_reads),
        };
        for (index, queue) in config.queues.all().iter().enumerate() {
            if let Some(why) = Demand::of(&config.queues, index, config.dialect).exceeds(room) {
                return Err(format!("{name}: {why}, and `{queue}` asks for more"));
            }
        }
        Ok(Self {
            pd,
            mtu: (port.mtu / 128).checked_ilog2().unwrap_or(0) as u8,
            device: [limits.vendor, limits.part],
            network,
            at,
            prefix,
            speed: if port.bandwidth == 0 { speed } else { port.bandwidth },
            reads: [
                limits.served_reads.min(config.served_reads).max(1),
                limits.started_reads.min(config.started_reads).max(1),
            ],
            // Those of InfiniBand and RoCE.
            atomics: if network == Network::Iwarp { Atomics::None } else { limits.atomics },
            longest: (port.message_size as usize).min(1 << 30),
            queues: config.queues.clone(),
            shared,
            completions: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            vacated: Mutex::new(Vec::new()),
            has_vacated: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            depth: config.completions.min(limits.completion_depth),
            inline: config.inline,
            receiver_not_ready: config.receiver_not_ready,
            dialect: config.dialect,
            cts,
            kept: Mutex::new(Vec::new()),
            lack: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
            lockable,
            name,
            number,
            context,
        })
    }

    /// Whether only an answer of the peer's says that something has arrived.
    pub(super) fn is_iwarp(&self) -> bool {
        self.network == Network::Iwarp
    }

    /// Work that is under way in a send queue at most.
    pub(super) fn sends(&self, queue: usize) -> u32 {
        self.demand(queue).sends
    }

    /// Receives of a queue pair's own for messages that take no credit, besides the CTS.
    pub(super) fn kept_back(&self, queue: usize) -> u32 {
        demand::kept_back(&self.queues, queue, self.dialect)
    }

    /// Where the CTS of whichever peer arrives; `None`: it has no bytes.
    pub(super) fn cts(&self) -> Option<Piece> {
        self.cts.as_ref().map(|slab| slab.piece(0, slab.len()))
    }

    fn demand(&self, queue: usize) -> Demand {
        Demand::of(&self.queues, queue, self.dialect)
    }

    /// The completion queue of this place.
    pub(super) fn completions(&self, place: usize) -> Option<Arc<Cq>> {
        self.completions.lock().get(place).map(|share| Arc::clone(&share.queue))
    }

    /// A completion queue with room for so many completions more.
    fn reserve(&self, room: usize) -> Result<(usize, Arc<Cq>)> {
        let mut all = self.completions.lock();
        if let Some((place, share)) = all.iter_mut().enumerate().find(|(_, share)| share.left >= room) {
            share.left -= room;
            return Ok((place, Arc::clone(&share.queue)));
        }
        let shared = depth(&self.shared);
        let depth = self.depth.max(shared + room);
        let queue = Cq::new(&self.context, depth, token(self.number, all.len()))?;
        all.push(Share { queue: Arc::clone(&queue), left: depth - shared - room });
        // SYNC POINT: completion-queues (acquired in `State::poll`)
        if !self.has_failed() {
            self.count.store(all.len(), Ordering::Release);
        }
        Ok((all.len() - 1, queue))
    }

    /// A completion queue, whichever, for what never completes.
    pub(super) fn any_completions(&self) -> Result<Arc<Cq>> {
        self.reserve(0).map(|(_, queue)| queue)
    }

    /// Room is free again, and nothing is in the queue that it was for.
    pub(super) fn give_back(&self, place: usize, room: usize) {
        if let Some(share) = self.completions.lock().get_mut(place) {
            share.left += room;
        }
    }

    /// Whether queue pairs have gone, of which there may still be something in the completion queues.
    #[inline]
    pub(super) fn has_vacated(&self) -> bool {
        self.has_vacated.load(Ordering::Relaxed)
    }

    /// What those had: it can be [given back](Self::give_back) when the completion queues have been empty since.
    pub(super) fn vacated(&self) -> Vec<(usize, usize)> {
        let mut all = self.vacated.lock();
        self.has_vacated.store(false, Ordering::Relaxed);
        std::mem::take(&mut all)
    }

    /// A queue of its does not work any more: what was in it is lost, or is going to be.
    #[cold]
    pub(super) fn fail(&self) {
        // Under the lock, as `reserve` has it: who reads them looks for another number of them from now on, and learns it.
        let _all = self.completions.lock();
        self.has_failed.store(true, Ordering::Relaxed);
        // SYNC POINT: completion-queues (acquired in `State::poll`)
        self.count.store(usize::MAX, Ordering::Release);
    }

    /// The same of the one with this token, if that is of this port.
    pub(super) fn fail_with(&self, token: usize) {
        if token >> PLACE == usize::from(self.number) {
            self.fail();
        }
    }

    /// Whether a queue that peers have in common does not work any more.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether there is room for the program's memory besides messages.
    pub(super) fn admits(&self, memory: Lent) -> bool {
        self.lockable.admits(self.pinned(), crate::verbs::pages(memory))
    }

    /// Whether there is if so many bytes of it go that nobody uses.
    pub(super) fn could_admit(&self, memory: Lent, idle: usize) -> bool {
        let Pinned { own, lent } = self.pinned();
        let held = Pinned { own, lent: lent.saturating_sub(idle) };
        self.lockable.admits(held, crate::verbs::pages(memory))
    }

    /// By how many bytes buffers for what arrives may grow.
    pub(super) fn growth(&self) -> usize {
        self.lockable.growth(self.pinned())
    }

    /// By how many for peers that cannot send anything otherwise.
    pub(super) fn left(&self) -> usize {
        self.lockable.left(self.pinned())
    }

    /// Bytes that the first buffers of a queue may have.
    pub(super) fn first(&self) -> usize {
        self.lockable.first()
    }

    fn pinned(&self) -> Pinned {
        let [own, lent] = self.pd.pinned();
        Pinned { own, lent }
    }

    /// Memory for messages, or for words of peers.
    pub(super) fn slab(&self, len: usize, access: Access) -> Result<Arc<Slab>> {
        Slab::new(&self.pd, len, access).map(Arc::new).inspect_err(|_| self.was_refused(len))
    }

    /// Buffers that stay until all queue pairs have gone.
    pub(super) fn keep(&self, len: usize) -> Result<Arc<Slab>> {
        let slab = Slab::new(&self.pd, len, Access::LOCAL_WRITE).map(Arc::new)?;
        self.kept.lock().push(Arc::clone(&slab));
        Ok(slab)
    }

    /// So many bytes could not be had for buffers, and fewer were: that is told once.
    #[cold]
    pub(super) fn is_short_of(&self, len: usize) {
        let _ = self.lack.compare_exchange(0, len, Ordering::Relaxed, Ordering::Relaxed);
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// So many could not, and none were: that is told where nothing can be done about it.
    #[cold]
    pub(super) fn was_refused(&self, len: usize) {
        self.refused.fetch_max(len, Ordering::Relaxed);
        self.want_room(len);
    }

    /// So many are not left to messages while the program's memory is registered, whether it is used or not.
    #[cold]
    pub(super) fn want_room(&self, len: usize) {
        self.wanted.fetch_max(len, Ordering::Relaxed);
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// Whether memory for messages has been lacking since this was last asked.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) && self.is_short.swap(false, Ordering::Relaxed)
    }

    /// So many bytes are wanted that nobody uses, and so many of them were refused.
    pub(super) fn wanted(&self) -> (usize, usize) {
        (self.wanted.swap(0, Ordering::Relaxed), self.refused.swap(0, Ordering::Relaxed))
    }

    /// So many could not be had, and that has not been told.
    pub(super) fn lack(&self) -> Option<usize> {
        let lack = self.lack.load(Ordering::Relaxed);
        if lack == 0 || lack == TOLD {
            return None;
        }
        self.lack.store(TOLD, Ordering::Relaxed);
        Some(lack)
    }

    /// Makes the queue pair of an id.
    pub(super) fn line(self: &Arc<Self>, id: &Id, queue: usize) -> Result<Line> {
        let Demand { sends, receives, .. } = self.demand(queue);
        let completed = (sends + receives) as usize;
        let (place, completions) = self.reserve(completed)?;
        // What no message of this queue can use makes its work requests longer, and those are memory that is gone through in turn.
        let front = if self.dialect == Dialect::Own { HEADER } else { openib::OVERHEAD };
        let inline = self.inline.min(self.queues.all()[queue].size + front as u32);
        let wanted = Depths { sends, receives, send_pieces: 1, receive_pieces: 1, inline };
        let queues = crate::verbs::Queues {
            pd: Arc::clone(&self.pd),
            send: Arc::clone(&completions),
            receive: completions,
            shared: self.shared[queue].clone(),
        };
        match id.create_qp(&queues, wanted) {
            Ok(pair) => Ok(Line {
                inline: pair.granted().inline.min(inline) as usize,
                pair,
                kept: Mutex::new(Vec::new()),
                gone: Gone {
                    told: Arc::new(AtomicBool::new(false)),
                    port: Arc::clone(self),
                    place,
                    room: completed,
                },
            }),
            Err(error) => {
                self.give_back(place, completed);
                Err(error)
            }
        }
    }
}

/// Says, last of all, that a line has gone.
struct Gone {
    told: Arc<AtomicBool>,
    port: Arc<Port>,
    /// Which completion queue it had, and how much of it.
    place: usize,
    room: usize,
}

impl Drop for Gone {
    fn drop(&mut self) {
        let mut vacated = self.port.vacated.lock();
        vacated.push((self.place, self.room));
        // Under the lock, as `vacated` has it: what is there is never said not to be.
        self.port.has_vacated.store(true, Ordering::Relaxed);
        // SYNC POINT: line-gone (acquired in `Departing::is_over`)
        self.told.store(true, Ordering::Release);
    }
}

/// A queue pair to a peer, with all that its device may use. The connection thread and the main thread have it together;
/// it goes with the last of them, the queue pair first.
pub(super) struct Line {
    pub(super) pair: Qp,
    /// Bytes that are copied when they are posted.
    pub(super) inline: usize,
    kept: Mutex<Vec<Arc<Slab>>>,
    gone: Gone,
}

impl Line {
    /// Memory stays until the queue pair has gone.
    pub(super) fn keep(&self, slab: &Arc<Slab>) {
        self.kept.lock().push(Arc::clone(slab));
    }

    /// What says that it has gone.
    pub(super) fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone.told)
    }
}

/// What work is numbered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Of a send queue.
    Send,
    /// A receive of a queue pair's own.
    Receive,
    /// One of a shared queue: it has no peer.
    Shared,
    /// The receive for a CTS.
    Cts,
}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// The peer, by its place, below 2^24.
    pub(super) peer: u32,
    /// Which of the attempts to connect, its lower bits.
    pub(super) attempt: u16,
    pub(super) work: Work,
    pub(super) queue: u8,
    /// The place in the send queue, or the buffer; 20 bits.
    pub(super) at: u32,
}

/// Bits of a place.
pub(super) const AT: u32 = 0xF_FFFF;

/// Bits of an attempt that are told.
pub(super) const ATTEMPT: u32 = 0x3FFF;

impl Number {
    /// As one number.
    #[inline]
    pub(super) const fn raw(self) -> u64 {
        let work = match self.work {
            Work::Send => 0,
            Work::Receive => 1,
            Work::Shared => 2,
            Work::Cts => 3,
        };
        (self.peer as u64) << 40
            | (self.attempt as u64) << 26
            | work << 24
            | (self.queue as u64) << 20
            | (self.at & AT) as u64
    }

    /// What the numbers of all receives of the first queue pair of a peer have in common. Not 0.
    #[inline]
    pub(super) const fn first_of(peer: u32, attempt: Attempt) -> u64 {
        let attempt = (attempt.0 & ATTEMPT) as u16;
        Self { peer, attempt, work: Work::Receive, queue: 0, at: 0 }.raw()
    }

    /// The place of the peer.
    #[inline]
    pub(super) const fn place(raw: u64) -> usize {
        (raw >> 40) as usize
    }

    /// All but the buffer.
    #[inline]
    pub(super) const fn common(raw: u64) -> u64 {
        raw & !(AT as u64)
    }

    /// Whether two numbers differ in the buffer alone.
    #[inline]
    pub(super) const fn are_beside(one: u64, other: u64) -> bool {
        one ^ other <= AT as u64
    }

    /// From one number.
    #[inline]
    pub(super) const fn from_raw(raw: u64) -> Self {
        Self {
            peer: (raw >> 40) as u32,
            attempt: (raw >> 26 & ATTEMPT as u64) as u16,
            work: match raw >> 24 & 3 {
                0 => Work::Send,
                1 => Work::Receive,
                2 => Work::Shared,
                _ => Work::Cts,
            },
            queue: (raw >> 20 & 15) as u8,
            at: raw as u32 & AT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_what_it_was_made_of() {
        for work in [Work::Send, Work::Receive, Work::Shared, Work::Cts] {
            for (peer, attempt, queue, at) in [(0, 0, 0, 0), (0xFF_FFFF, 0x3FFF, 15, AT), (1, 2, 3, 4)] {
                let number = Number { peer, attempt, work, queue, at };
                assert_eq!(Number::from_raw(number.raw()), number);
                assert_eq!(Number::place(number.raw()), peer as usize);
                let first = Number::first_of(peer, Attempt(u32::from(attempt)));
                assert_eq!(Number::common(number.raw()) == first, work == Work::Receive && queue == 0);
                let beside = |other: Number| Number::are_beside(number.raw(), other.raw());
                assert!(beside(Number { at: at ^ 7, ..number }));
                assert!(
                    !beside(Number { peer: peer ^ 1, ..number })
                        && !beside(Number { attempt: attempt ^ 1, ..number })
                );
                assert!(!beside(Number { queue: queue ^ 1, ..number }));
            }
        }
    }
}
