//! Receives: posted, matched, cancelled; and messages that are looked at, set aside or thrown away.

use super::super::argument::Foreign;
use super::super::errno::{Errno, Outcome};
use super::super::names::NOBODY;
use super::Traffic;
use super::buffer::Buffer;
use super::context::{Context, Item, Many, Note, Peer, Pull, Receive, Share, Unexpected, What};
use super::ending::{Instead, Received};
use crate::engine::matching::{MessageId, Posting, ReceiveId, Times, Wanted};
use crate::engine::slab::Key;
use crate::link::Lent;
use crate::shm::CrossMemory;
use crate::wire::gni::mailbox::{self, Label, Lies};

/// What somebody wants to receive.
#[derive(Clone)]
pub struct Want {
    /// Handed back when it has ended.
    pub context: Foreign,
    /// From whom, where the endpoint has directed receives.
    pub source: u64,
    /// Tag, and the bits of it that do not count; `None` for messages without.
    pub tag: Option<(u64, u64)>,
    /// Where to.
    pub buffer: Buffer,
    /// It has an entry when it ends well.
    pub wants: bool,
    /// It is for as many messages as come while there is as much room.
    pub many: Option<usize>,
    /// What counts it instead of its endpoint.
    pub instead: Option<Box<Instead>>,
}

/// What is done with a message instead of receiving it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It is looked at.
    Peek,
    /// It is looked at, and set aside.
    Claim,
    /// It is looked at, and thrown away.
    Discard,
}

/// `FI_ENOMSG`.
const NO_MESSAGE: i32 = libc::ENOMSG;

impl Traffic {
    /// Posts a receive.
    ///
    /// # Errors
    /// `FI_EAGAIN`: make progress, and try again. Others: it cannot be posted.
    #[inline]
    pub fn receive(&mut self, slot: u32, want: Want) -> Outcome<()> {
        let context = self.context(slot)?;
        // What is refused has changed nothing.
        context.receive(want)?;
        while let Some(peer) = self.context(slot)?.told.pop() {
            self.pump(slot, peer);
        }
        self.rouse_for_room();
        self.rouse_deferred();
        Ok(())
    }

    /// There may be room for what has come now.
    #[inline]
    pub(super) fn rouse_for_room(&mut self) {
        if !self.again.is_empty() {
            self.rouse();
        }
    }

    /// Looks for a message, and says in an entry what there is.
    ///
    /// # Errors
    /// `FI_EAGAIN`: make progress, and try again.
    pub fn look(&mut self, slot: u32, want: Want, look: Look) -> Outcome<()> {
        self.is_sought = true;
        self.progress_through();
        let context = self.context(slot)?;
        if let Some(peer) = context.look(want, look)? {
            self.pump(slot, peer);
        }
        if look == Look::Discard {
            self.rouse_for_room();
        }
        self.rouse_deferred();
        Ok(())
    }

    /// Receives a message that was set aside, or throws it away.
    ///
    /// # Errors
    /// `FI_EAGAIN`: make progress, and try again. `FI_EINVAL`: nothing was set aside for this context.
    pub fn redeem(&mut self, slot: u32, want: Want, is_discarded: bool) -> Outcome<()> {
        let context = self.context(slot)?;
        if let Some(peer) = context.redeem(want, is_discarded)? {
            self.pump(slot, peer);
        }
        self.rouse_for_room();
        self.rouse_deferred();
        Ok(())
    }

    /// Takes the oldest posted receive with this context back.
    ///
    /// # Errors
    /// `FI_ENOENT`: there is none. `FI_EAGAIN`: make progress, and try again.
    pub fn cancel(&mut self, slot: u32, of: Foreign) -> Outcome<()> {
        let context = self.context(slot)?;
        for is_tagged in [true, false] {
            let Context { tagged, untagged, receives, .. } = &mut *context;
            let matching = if is_tagged { tagged } else { untagged };
            let is_it = |key: &Key| receives.get(*key).is_some_and(|receive| receive.context == of);
            let Some((id, key)) = matching.receives().find(|(_, key)| is_it(key)) else { continue };
            if !context.has_place() {
                return Err(Errno::AGAIN);
            }
            context.matching(is_tagged).withdraw(id);
            context.withdrawn(key, libc::ECANCELED);
            self.rouse_deferred();
            return Ok(());
        }
        Err(Errno::NOENT)
    }
}

impl Context {
    /// What a receive asks the matching for; and why nothing more comes of its source, if nothing does.
    #[inline(always)]
    fn wanted(&mut self, source: u64, tag: Option<(u64, u64)>) -> Outcome<(Wanted, Option<i32>)> {
        let is_directed = source != NOBODY && self.ends()?.is_directed;
        let (source, end) = if is_directed {
            let (peer, end) = self.source_of(source)?;
            (Some(u64::from(peer)), end)
        } else {
            (None, None)
        };
        let (tag, ignore) = tag.unwrap_or_default();
        Ok((Wanted { source, tag, ignore }, end))
    }

    /// Whom a receive names as its source, and why nothing more comes from there, if nothing does.
    #[inline]
    fn source_of(&mut self, number: u64) -> Outcome<(u32, Option<i32>)> {
        let number = self.ends()?.av.whole(number);
        match self.peer_of(number) {
            Ok(peer) => Ok((peer, self.peers.get(peer as usize).and_then(Peer::end))),
            // Another life of it is there.
            Err(Errno(code @ libc::ECONNREFUSED)) => Ok((self.peer_at(number)?, Some(code))),
            Err(_) => Ok((self.peer_at(number)?, None)),
        }
    }

    /// Posts a receive.
    #[inline]
    fn receive(&mut self, want: Want) -> Outcome<()> {
        let (wanted, end) = self.wanted(want.source, want.tag)?;
        if !self.has_place() {
            return Err(Errno::AGAIN);
        }
        let is_tagged = want.tag.is_some();
        let (share, times) = match want.many {
            None => (Share::Own, Times::Once),
            Some(least) => {
                let many = Many { id: None, least, used: 0, pending: 0, is_spent: false };
                (Share::Many(Box::new(many)), Times::Many)
            }
        };
        let receive = Receive {
            context: want.context,
            buffer: want.buffer,
            wants: want.wants,
            is_tagged,
            share,
            instead: want.instead,
        };
        let key = self.receives.insert(receive);
        match self.matching(is_tagged).post(wanted, times, key) {
            Ok(Posting::Waits(id)) => {
                self.note(key, id);
                self.in_vain(is_tagged, id, end);
            }
            Ok(Posting::Takes(message)) => {
                let message = self.empty(message.token);
                if let Some(receive) = self.receives.remove(key.index) {
                    let told = self.meet(receive, message);
                    self.told.extend(told);
                }
            }
            Ok(Posting::TakesAndWaits(message, id)) => {
                self.note(key, id);
                let mut next = Some(message);
                while let Some(message) = next {
                    let message = self.empty(message.token);
                    if let Some(part) = self.cut(key, message.length) {
                        let told = self.meet(part, message);
                        self.told.extend(told);
                    }
                    // A receive that is spent is posted no more.
                    next = self.matching(is_tagged).more(id);
                }
                self.in_vain(is_tagged, id, end);
            }
            Err(_) => {
                self.receives.remove(key.index);
                return Err(Errno::AGAIN);
            }
        }
        Ok(())
    }

    /// A posted receive ends so, if there is a reason why no message comes for it.
    #[inline(always)]
    fn in_vain(&mut self, is_tagged: bool, id: ReceiveId, end: Option<i32>) {
        if let Some(code) = end
            && let Some(key) = self.matching(is_tagged).withdraw(id)
        {
            self.withdrawn(key, code);
        }
    }

    /// Notes by what a receive for several messages is withdrawn.
    #[inline(always)]
    fn note(&mut self, key: Key, id: ReceiveId) {
        if let Some(Receive { share: Share::Many(many), .. }) = self.receives.get_mut(key) {
            many.id = Some(id);
        }
    }

    /// A receive takes a message that was there before it; answers who is to be told of it.
    fn meet(&mut self, receive: Receive, message: Unexpected) -> Option<u32> {
        let Unexpected { peer, label, length, what } = message;
        match what {
            What::Whole(bytes, send) => {
                receive.buffer.write_bytes(&bytes);
                self.give_room(bytes);
                let room = receive.buffer.length();
                self.received(&receive, &Received { peer, label, length, room, code: 0 });
                send.map(|send| self.say(peer, &mailbox::Entry::Ack { send }))
            }
            What::Beginning(send, lies) => self.fetch(receive, peer, label, send, length, &lies),
            What::Nothing => None,
        }
    }

    /// Has something to say to a peer, who is returned; nothing to one that knows nothing of it any more.
    pub(super) fn say(&mut self, peer: u32, entry: &mailbox::Entry) -> u32 {
        if let Some(there) = self.peers.get_mut(peer as usize).filter(|there| there.is_connected) {
            there.queue.push_back(Item::Note(Note::new(entry)));
        }
        peer
    }

    /// Gets a long message from its sender, or asks for it; answers who is to be told so.
    pub(super) fn fetch(
        &mut self,
        receive: Receive,
        peer: u32,
        label: Label,
        send: u64,
        length: usize,
        lies: &Lies,
    ) -> Option<u32> {
        let room = receive.buffer.length();
        let wanted = length.min(room);
        let there = self.peers.get(peer as usize)?;
        let ended = |context: &mut Self, receive: &Receive, code| {
            context.received(receive, &Received { peer, label, length, room, code });
        };
        if !there.is_connected {
            ended(self, &receive, libc::ECONNRESET);
            return None;
        }
        match there.copy(|memory| read(memory, lies, &receive.buffer, wanted)) {
            None => {}
            Some(Ok(())) => {
                ended(self, &receive, 0);
                return Some(self.say(peer, &mailbox::Entry::Fin { send, code: 0 }));
            }
            Some(Err(errno)) => {
                // What it has said lies nowhere there.
                let code = if errno.0 == libc::EFAULT { libc::EIO } else { errno.0 };
                ended(self, &receive, code);
                return Some(self.say(peer, &mailbox::Entry::Fin { send, code: code as u32 }));
            }
        }
        if wanted == 0 {
            ended(self, &receive, 0);
            return Some(self.say(peer, &mailbox::Entry::Fin { send, code: 0 }));
        }
        let pull = Pull { receive, peer, label, send, length, wanted, come: 0 };
        let receive = self.pulls.insert(pull).raw();
        Some(self.say(peer, &mailbox::Entry::Pull { send, receive, length: wanted as u64 }))
    }

    /// A receive that is posted no more ends so; where messages still come into its memory, with the last of them.
    pub(super) fn withdrawn(&mut self, key: Key, code: i32) {
        if let Some(Receive { share: Share::Many(many), .. }) = self.receives.get_mut(key)
            && many.pending != 0
        {
            many.is_spent = true;
            return;
        }
        if let Some(receive) = self.receives.remove(key.index) {
            self.ended(&receive, code);
        }
    }

    fn look(&mut self, want: Want, look: Look) -> Outcome<Option<u32>> {
        let (wanted, _) = self.wanted(want.source, want.tag)?;
        if !self.has_place() {
            return Err(Errno::AGAIN);
        }
        let is_tagged = want.tag.is_some();
        let receive = Receive {
            context: want.context,
            buffer: want.buffer,
            wants: true,
            is_tagged,
            share: Share::Own,
            instead: None,
        };
        let matching = self.matching(is_tagged);
        let found = if look == Look::Claim { matching.claim(&wanted) } else { matching.peek(&wanted) };
        let Some((id, message)) = found else {
            self.ended(&receive, NO_MESSAGE);
            return Ok(None);
        };
        let known = self.message(message.token);
        let (peer, label, length) = (known.peer, known.label, known.length);
        self.received(&receive, &Received { peer, label, length, room: usize::MAX, code: 0 });
        match look {
            Look::Peek => Ok(None),
            Look::Claim => {
                if let Some((was_tagged, before)) =
                    self.claimed.insert(want.context.0.addr(), (is_tagged, id))
                {
                    // Nobody can ask for that one any more.
                    return Ok(self.throw_away(was_tagged, before));
                }
                Ok(None)
            }
            Look::Discard => Ok(self.throw_away(is_tagged, id)),
        }
    }

    /// A message is not received; answers who is to be told so.
    fn throw_away(&mut self, is_tagged: bool, id: MessageId) -> Option<u32> {
        let message = self.matching(is_tagged).discard(id)?;
        self.dispose(message.token)
    }

    /// The same of one that is matched no more.
    fn dispose(&mut self, token: u32) -> Option<u32> {
        let message = self.empty(token);
        match message.what {
            What::Whole(bytes, send) => {
                self.give_room(bytes);
                send.map(|send| self.say(message.peer, &mailbox::Entry::Ack { send }))
            }
            What::Beginning(send, _) => Some(self.say(message.peer, &mailbox::Entry::Fin { send, code: 0 })),
            What::Nothing => None,
        }
    }

    fn redeem(&mut self, want: Want, is_discarded: bool) -> Outcome<Option<u32>> {
        if !self.has_place() {
            return Err(Errno::AGAIN);
        }
        let context = want.context.0.addr();
        let is_tagged = want.tag.is_some();
        let (_, id) = self
            .claimed
            .get(&context)
            .copied()
            .filter(|(was_tagged, _)| *was_tagged == is_tagged)
            .ok_or(Errno::INVAL)?;
        self.claimed.remove(&context);
        let receive = Receive {
            context: want.context,
            buffer: want.buffer,
            wants: want.wants,
            is_tagged,
            share: Share::Own,
            instead: None,
        };
        // What was claimed is gone with its sender only.
        let Some(message) = self.matching(is_tagged).redeem(id) else {
            self.ended(&receive, libc::ECONNRESET);
            return Ok(None);
        };
        if !is_discarded {
            let message = self.empty(message.token);
            return Ok(self.meet(receive, message));
        }
        let known = self.message(message.token);
        let (peer, label, length) = (known.peer, known.label, known.length);
        self.received(&receive, &Received { peer, label, length, room: usize::MAX, code: 0 });
        Ok(self.dispose(message.token))
    }
}

/// Reads so many bytes that lie in the memory of another process.
fn read(memory: CrossMemory, lies: &Lies, to: &Buffer, wanted: usize) -> crate::error::Result<()> {
    let mut done = 0;
    for (address, length) in lies.pieces() {
        let here = usize::try_from(*length).unwrap_or(usize::MAX).min(wanted - done);
        let mut from = *address;
        for part in to.parts(done, here) {
            let part: Lent = part;
            memory.read(from, part)?;
            from = from.wrapping_add(part.len() as u64);
        }
        done += here;
    }
    Ok(())
}
