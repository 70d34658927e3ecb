//! What has come: entries of mailboxes.

use super::super::errno::Outcome;
use super::context::{Context, Ends, Item, Pull, Receive, Stage, Unexpected, What};
use super::ending::Received;
use super::short::Taken;
use super::{Lost, Traffic};
use crate::engine::matching::{Arrival, Message};
use crate::engine::slab::Key;
use crate::gni::Mailbox;
use crate::link::Lent;
use crate::shm::Next;
use crate::wire::gni::mailbox::{self, Label, SHORT};
use crate::wire::gni::remote::Remote;

/// Entries that are read from a peer before others have their turn.
pub(super) const TURN: usize = 64;
/// Bytes of messages that nobody has asked for, beyond which no more are read while nothing is waited for.
const KEPT: usize = 256 << 20;
/// More are read when none of them has been received for so long, nanoseconds: who receives them will have room.
const STILL: u64 = 100_000_000;
/// What a message is counted as beside its bytes: what is noted of it. Likewise an entry without a place.
pub(super) const NOTED: usize = 512;

/// How reading has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// There is nothing more, or it is looked for the next time without being said so.
    Nothing,
    /// There may be, and it may not be read now.
    Something,
}

impl Traffic {
    /// Whether something has come from a peer of this node, right or wrong. Mostly nothing has.
    #[inline(always)]
    pub(super) fn has_come(&self, slot: u32, peer: u32) -> bool {
        let context = self.contexts.get(slot as usize).and_then(Option::as_deref);
        let there = context.and_then(|context| context.peers.get(peer as usize));
        there.and_then(|there| there.mailbox.as_ref()).is_some_and(|mailbox| mailbox.has_come())
    }

    /// Reads what has come from a peer, [`TURN`] entries at most; or so many, if it is looked at the next time anyway.
    #[inline(never)]
    pub(super) fn read(&mut self, slot: u32, peer: u32, most: usize) -> usize {
        let Ok(context) = self.context(slot) else { return 0 };
        let outcome = context.read(peer, most);
        match outcome {
            Ok((0, Left::Nothing)) => 0,
            Ok((count, left)) => {
                let is_plain = left == Left::Nothing && context.is_calm(peer);
                self.moved += count as u64;
                if !(is_plain && self.closing.is_empty()) {
                    self.after(slot, peer, left);
                }
                count
            }
            Err(Lost) if self.is_unreached(slot, peer) => 0,
            Err(Lost) => {
                let there = self.context(slot).ok().and_then(|context| context.peers.get(peer as usize));
                let mailbox = there.and_then(|there| there.mailbox.as_ref());
                self.counters.malformed += u64::from(!mailbox.is_some_and(|mailbox| mailbox.is_over()));
                self.lose(slot, peer, libc::ECONNRESET);
                0
            }
        }
    }

    /// Sees to what reading has left to be done.
    #[inline(never)]
    fn after(&mut self, slot: u32, peer: u32, left: Left) {
        let Ok(context) = self.context(slot) else { return };
        let Some(there) = context.peers.get(peer as usize) else { return };
        let (is_heard, vc) = (there.is_heard, there.vc);
        let is_owing = context.owes();
        if !there.queue.is_empty() || !there.held.is_empty() {
            self.pump(slot, peer);
        }
        if left == Left::Something {
            self.let_in();
        }
        if left == Left::Something || is_owing {
            self.look_again(slot, peer);
        }
        if !is_heard {
            self.hear(slot, peer);
        }
        if !self.closing.is_empty() && vc.is_some_and(|vc| self.closing.contains(&vc)) {
            self.drain(slot, peer);
        }
    }
}

impl Traffic {
    /// Where anything is waited for, and none of what is kept is received, messages are read beyond the bound: mailboxes are
    /// read in order, so what is waited for may be behind them, or behind those that somebody else does not read before he is
    /// answered. Whoever is about to sleep looks again, if there were to be none any more.
    fn let_in(&mut self) {
        let Self { contexts, moved, full_since, is_sought, .. } = self;
        let mut has_received = false;
        for context in contexts.iter_mut().flatten() {
            has_received |= std::mem::take(&mut context.has_received);
        }
        if !contexts.iter().flatten().any(|context| context.is_full()) {
            *full_since = None;
            return;
        }
        let now = self.clock.nanos();
        if has_received {
            (*full_since, *is_sought) = (None, false);
        }
        let is_still = now - *full_since.get_or_insert(now) >= STILL;
        if is_still && (*is_sought || contexts.iter().flatten().any(|context| context.waits())) {
            for context in contexts.iter_mut().flatten() {
                *moved += u64::from(std::mem::replace(&mut context.let_in, TURN) == 0);
            }
        }
    }

    /// When it is to be looked whether more are read, if that may be without anything coming.
    pub(super) fn lets_in_at(&self, now: u64) -> Option<u64> {
        let is_left =
            !self.again.is_empty() && self.contexts.iter().flatten().any(|context| context.is_full());
        let soon = self.full_since.map(|since| since + STILL).filter(|at| *at > now);
        is_left.then(|| soon.unwrap_or(now + STILL))
    }
}

impl Context {
    /// Whether nothing waits to be said to a peer that is known, and nothing is owed.
    #[inline(always)]
    fn is_calm(&self, peer: u32) -> bool {
        let there = self.peers.get(peer as usize);
        let is_quiet =
            there.is_some_and(|there| there.is_heard & there.queue.is_empty() & there.held.is_empty());
        is_quiet && !self.owes()
    }

    #[inline(always)]
    fn read(&mut self, peer: u32, most: usize) -> Result<(usize, Left), Lost> {
        let mut count = 0;
        while count < most {
            match self.take_short(peer) {
                Taken::Message => {}
                Taken::Nothing => return Ok((count, Left::Nothing)),
                Taken::Other => {
                    if let Some(left) = self.take(peer)? {
                        return Ok((count, left));
                    }
                }
            }
            count += 1;
        }
        if most < TURN {
            return Ok((count, Left::Nothing));
        }
        let mailbox = self.peers.get(peer as usize).and_then(|there| there.mailbox.as_ref());
        let is_over = mailbox.is_none_or(|mailbox| matches!(mailbox.next(SHORT), Next::Nothing));
        Ok((count, if is_over { Left::Nothing } else { Left::Something }))
    }

    /// Takes whatever is next of a peer; or how reading ends.
    #[inline(never)]
    fn take(&mut self, peer: u32) -> Result<Option<Left>, Lost> {
        let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
        let Some(mailbox) = mailbox else { return Ok(Some(Left::Nothing)) };
        if !mailbox.has_next().map_err(|_| Lost)? {
            let has_landed = mailbox.number().is_some() && self.land(peer)?;
            return Ok(if has_landed { None } else { Some(Left::Nothing) });
        }
        let mut judged = None;
        if self.place_is_missing() {
            let mailbox = self.peers.get(peer as usize).and_then(|there| there.mailbox.as_ref());
            judged = mailbox.and_then(|mailbox| mailbox.next_kind());
            // Of a peer of this node what is no entry yet may be one in a moment. The end of a stream is none.
            let is_near = mailbox.is_some_and(|mailbox| mailbox.number().is_none());
            if judged.is_none() && is_near || !self.may_read(peer, judged) {
                return Ok(Some(Left::Something));
            }
        }
        self.take_next(peer, judged)
    }

    /// Takes the next entry of a peer. Where it was judged by its kind whether it may be read, it is of that kind, or the peer has
    /// written there again.
    pub(super) fn take_next(&mut self, peer: u32, judged: Option<u8>) -> Result<Option<Left>, Lost> {
        let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
        let Some(arrival) = mailbox.map_or(Ok(None), Mailbox::take).map_err(|_| Lost)? else {
            return Ok(Some(Left::Nothing));
        };
        if judged.is_some_and(|kind| kind != arrival.tag) {
            return Err(Lost);
        }
        let heard = if arrival.is_cut { None } else { self.hear(peer, arrival.tag, arrival.bytes) };
        if let Some(mailbox) = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut()) {
            mailbox.release();
        }
        heard.ok_or(Lost)?;
        Ok(None)
    }

    /// Whether no more messages may be received now.
    #[inline(always)]
    fn place_is_missing(&mut self) -> bool {
        !self.has_place() || self.is_full()
    }

    /// Whether what is kept of messages that nobody has asked for is enough.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.kept() > KEPT
    }

    /// Bytes of messages that nobody has asked for, and of what is noted of them.
    #[inline(always)]
    pub(super) fn kept(&self) -> usize {
        self.tagged.kept().bytes + self.untagged.kept().bytes
    }

    /// Whether the next entry of a peer, of this kind, is read nevertheless: it takes no room; or what is behind it may be what an
    /// operation waits for, for mailboxes are read in order; or there will be no later. Messages that are received meanwhile are
    /// owed their entries. Where there is a place for these, some are [let in](Traffic::let_in).
    #[cold]
    #[inline(never)]
    fn may_read(&mut self, peer: u32, kind: Option<u8>) -> bool {
        if !kind.is_some_and(mailbox::takes_room) {
            return true;
        }
        if self.is_last || self.is_awaited(peer) {
            return true;
        }
        let is_let_in = self.let_in != 0 && self.has_place();
        self.let_in -= usize::from(is_let_in);
        is_let_in
    }

    /// Whether something of a peer is waited for, by what is known here: a receive, the end of what was begun, or what peers do
    /// to memory, of which nobody knows whether it is waited for.
    fn waits(&self) -> bool {
        let is_under_way = self.sends.len() + self.operations.len() + self.pulls.len() != 0;
        let waits = |ends: &Ends| {
            let is_shared = ends.queue.as_ref().is_some_and(|queue| queue.with(|queue| queue.waits()));
            is_shared || ends.rights != 0 && ends.regions.are_reached()
        };
        self.receives.len() != 0 || is_under_way || self.ends.as_ref().is_some_and(waits)
    }

    /// Whether an operation of ours waits for a peer.
    fn is_awaited(&self, peer: u32) -> bool {
        self.sends.iter().any(|outgoing| outgoing.peer == peer)
            || self.operations.iter().any(|operation| operation.peer == peer)
            || self.pulls.iter().any(|pull| pull.peer == peer)
    }

    /// Does what an entry says. `None`: it says nothing that may be said.
    #[inline(always)]
    fn hear(&mut self, peer: u32, kind: u8, bytes: Lent) -> Option<()> {
        let word = |at: usize| {
            let mut word = [0; 8];
            bytes.read(at, &mut word);
            u64::from_le_bytes(word)
        };
        if Remote::is_one(kind) {
            return self.hear_remote(peer, kind, bytes);
        }
        let (entry, head) = mailbox::Entry::parse(kind, bytes.len(), word)?;
        let payload = bytes.slice(head, bytes.len() - head);
        match entry {
            // Nobody could receive it.
            mailbox::Entry::Eager { .. } | mailbox::Entry::Start { .. } if !self.takes => return None,
            mailbox::Entry::Eager { label, send } => self.hear_eager(peer, label, send, payload)?,
            other => self.hear_rest(peer, &other, payload)?,
        }
        Some(())
    }

    #[inline(always)]
    fn arrive(&mut self, peer: u32, label: Label, bytes: usize, complete: bool) -> Arrival<Key> {
        if self.is_sharing
            && let Some(key) = self.take_shared(label.tag)
        {
            return Arrival::Taken(key);
        }
        let token = self.vacant();
        let (tag, bytes) = (label.tag.unwrap_or(0), bytes + NOTED);
        let source = self.peers.get(peer as usize).map_or(peer, |there| there.whole).into();
        let message = Message { source, tag, bytes, complete, token };
        self.matching(label.tag.is_some()).arrive(message)
    }

    /// The receive that takes a message of so many bytes.
    #[inline(always)]
    fn taker(&mut self, arrival: Arrival<Key>, length: usize) -> Option<Receive> {
        match arrival {
            Arrival::Taken(key) => self.receives.remove(key.index),
            Arrival::TakenByMany(key, _) => self.cut(key, length),
            Arrival::Unexpected(_) => None,
        }
    }

    /// A message that is here as a whole. `None`: there is no memory to keep it.
    #[inline(always)]
    fn hear_eager(&mut self, peer: u32, label: Label, send: Option<u64>, payload: Lent) -> Option<()> {
        let length = payload.len();
        match self.arrive(peer, label, length, true) {
            Arrival::Unexpected(id) => {
                let mut bytes = self.room();
                if bytes.try_reserve(length).is_err() {
                    self.matching(label.tag.is_some()).discard(id);
                    return None;
                }
                payload.append_to(&mut bytes);
                self.fill(Unexpected { peer, label, length, what: What::Whole(bytes, send) });
            }
            taken => {
                let Some(receive) = self.taker(taken, length) else { return Some(()) };
                receive.buffer.write(0, payload);
                let room = receive.buffer.length();
                self.received(&receive, &Received { peer, label, length, room, code: 0 });
                if let Some(send) = send {
                    self.say(peer, &mailbox::Entry::Ack { send });
                }
            }
        }
        Some(())
    }

    #[inline(never)]
    fn hear_rest(&mut self, peer: u32, entry: &mailbox::Entry, payload: Lent) -> Option<()> {
        match *entry {
            mailbox::Entry::Eager { .. } => {}
            mailbox::Entry::Hello { address, shown } => {
                let there = self.peers.get_mut(peer as usize)?;
                let mailbox = there.mailbox.as_ref().filter(|_| address != 0);
                there.memory = mailbox.and_then(|mailbox| mailbox.memory(address, &shown));
            }
            mailbox::Entry::Start { label, send, length, ref lies } => {
                let length = usize::try_from(length).ok()?;
                match self.arrive(peer, label, 0, false) {
                    Arrival::Unexpected(_) => {
                        let what = What::Beginning(send, *lies);
                        self.fill(Unexpected { peer, label, length, what });
                    }
                    taken => {
                        let receive = self.taker(taken, length)?;
                        self.fetch(receive, peer, label, send, length, lies);
                    }
                }
            }
            mailbox::Entry::Fin { send, code } => {
                let code = i32::try_from(code).ok()?;
                self.answered(peer, send, code)?;
            }
            mailbox::Entry::Ack { send } => self.answered(peer, send, 0)?,
            mailbox::Entry::Pull { send, receive, length } => {
                let key = Key::from_raw(send);
                let outgoing = self.sends.get_mut(key)?;
                let wanted = usize::try_from(length).ok()?;
                let is_fit = outgoing.peer == peer && outgoing.stage == Stage::Told;
                if !is_fit || wanted > outgoing.buffer.length() {
                    return None;
                }
                outgoing.stage = Stage::Pieces(receive, wanted, 0);
                self.peers.get_mut(peer as usize)?.queue.push_back(Item::Pieces(key));
            }
            mailbox::Entry::Piece { receive, offset } => self.hear_piece(peer, receive, offset, payload)?,
        }
        Some(())
    }

    /// The peer has received a message.
    fn answered(&mut self, peer: u32, send: u64, code: i32) -> Option<()> {
        let key = Key::from_raw(send);
        let outgoing = self.sends.get(key)?;
        if outgoing.peer != peer || outgoing.stage != Stage::Told {
            return None;
        }
        self.sent(key, code);
        Some(())
    }

    fn hear_piece(&mut self, peer: u32, receive: u64, offset: u64, payload: Lent) -> Option<()> {
        let pull = self.expected(peer, receive, offset, payload.len())?;
        pull.receive.buffer.write(pull.come, payload);
        self.piece_has_come(peer, receive, payload.len())
    }

    /// What such a piece is for.
    pub(super) fn expected(
        &mut self,
        peer: u32,
        receive: u64,
        offset: u64,
        length: usize,
    ) -> Option<&mut Pull> {
        let pull = self.pulls.get_mut(Key::from_raw(receive))?;
        let is_next = pull.peer == peer && pull.come as u64 == offset && length != 0;
        (is_next && length <= pull.wanted - pull.come).then_some(pull)
    }

    /// It is where it belongs.
    pub(super) fn piece_has_come(&mut self, peer: u32, receive: u64, length: usize) -> Option<()> {
        let key = Key::from_raw(receive);
        let pull = self.pulls.get_mut(key)?;
        pull.come += length;
        if pull.come == pull.wanted {
            let pull = self.pulls.remove(key.index)?;
            let (label, length) = (pull.label, pull.length);
            let room = pull.receive.buffer.length();
            self.received(&pull.receive, &Received { peer, label, length, room, code: 0 });
            self.say(peer, &mailbox::Entry::Fin { send: pull.send, code: 0 });
        }
        Some(())
    }
}

impl Traffic {
    /// Everything that a peer had written is read, though nobody may have asked for it. What it writes meanwhile is not waited for:
    /// it might never end.
    pub(super) fn read_all(&mut self, slot: u32, peer: u32) -> Outcome<()> {
        let context = self.context(slot)?;
        let mailbox = context.peers.get(peer as usize).and_then(|there| there.mailbox.as_ref());
        let mut left = mailbox.map_or(0, Mailbox::most_unread);
        context.is_last = true;
        while left > 0
            && let Ok((count, Left::Something)) = context.read(peer, TURN)
            && count != 0
        {
            left = left.saturating_sub(count);
        }
        context.is_last = false;
        Ok(())
    }
}
