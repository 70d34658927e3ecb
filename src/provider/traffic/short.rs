//! The short way of a message: it waits for nothing, and a receive waits for it.
//!
//! Here is only what such a message needs. Where anything is to be seen to besides, nothing is done, which is said, and it goes
//! the way of all others: `send`, `receive`, `arrive`.

use super::super::argument::Foreign;
use super::super::cq::{Completion, Entry};
use super::super::names::NOBODY;
use super::super::sys;
use super::Traffic;
use super::buffer::{Buffer, copy};
use super::context::{Context, Peer, Receive, Share};
use crate::engine::matching::Wanted;
use crate::link::Lent;
use crate::shm::Next;
use crate::sync::Visit;
use crate::wire::gni::mailbox::{Label, SHORT};

/// What is sent at once, if that can be. Whether it has gone is what comes of the visit.
#[derive(Clone, Copy)]
pub struct Short {
    /// Whose endpoint it is.
    pub slot: u32,
    /// To whom.
    pub destination: u64,
    /// What.
    pub message: Plain,
}

/// A message, as much as matters where it goes at once.
#[derive(Clone, Copy)]
pub struct Plain {
    /// Handed back when it has ended.
    pub context: Foreign,
    /// Tag,
    pub tag: Option<u64>,
    /// and data, as in a [`Label`]; each by itself, so that they stay in registers on their way. As one they are copied from place
    /// to place, with loads that are wider than the stores just before and wait until these are in the cache.
    pub data: Option<u64>,
    /// What.
    pub bytes: Lent,
    /// It has an entry.
    pub wants: bool,
}

impl Plain {
    /// A message with this label.
    #[inline(always)]
    pub fn new(context: Foreign, label: Label, bytes: Lent, wants: bool) -> Self {
        let Label { tag, data } = label;
        Self { context, tag, data, bytes, wants }
    }
}

/// What is received into memory in one piece, if nothing is there yet. Whether it is posted is what comes of the visit.
#[derive(Clone, Copy)]
pub struct ShortWant {
    /// Whose endpoint it is.
    pub slot: u32,
    /// Handed back when it has ended.
    pub context: Foreign,
    /// From whom, where the endpoint has directed receives.
    pub source: u64,
    /// The tag,
    pub tag: u64,
    /// and its bits that do not count.
    pub ignore: u64,
    /// Where to.
    pub memory: Lent,
    /// It has an entry when it ends well.
    pub wants: bool,
}

/// What has come of a look for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was there, and is received.
    Message,
    /// Nothing is there.
    Nothing,
    /// Something is that goes another way.
    Other,
}

/// Bytes of the header of a message.
const WORD: usize = size_of::<u64>();

impl Visit<Traffic> for Short {
    type Out = bool;

    #[inline(always)]
    fn visit(self, traffic: &mut Traffic) -> bool {
        let Ok(context) = traffic.context(self.slot) else { return false };
        let Some(peer) = context.known_peer(self.destination) else { return false };
        let is_sent = matches!(context.send_at_once(peer, self.message), Some(Ok(true)));
        if is_sent {
            traffic.rouse_deferred();
        }
        is_sent
    }
}

impl Visit<Traffic> for ShortWant {
    type Out = bool;

    #[inline(always)]
    fn visit(self, traffic: &mut Traffic) -> bool {
        let Ok(context) = traffic.context(self.slot) else { return false };
        let is_posted = context.receive_short(self);
        if is_posted && !(traffic.again.is_empty() & traffic.deferred.is_empty()) {
            // There may be room for what has come now, or something begins by it.
            traffic.rouse();
        }
        is_posted
    }
}

impl Context {
    #[inline(always)]
    fn receive_short(&mut self, want: ShortWant) -> bool {
        let Some(source) = self.source_at_once(want.source) else { return false };
        if self.place.is_none() {
            return false;
        }
        let Self { tagged, receives, .. } = self;
        let wanted = Wanted { source, tag: want.tag, ignore: want.ignore };
        if !tagged.is_waiting() {
            return false;
        }
        let key = receives.insert_with(|_| Receive {
            context: want.context,
            buffer: Buffer::of(want.memory),
            wants: want.wants,
            is_tagged: true,
            share: Share::Own,
            instead: None,
        });
        tagged.wait(wanted, key);
        true
    }

    /// Whose messages a receive is for, if it names somebody of whom they may come.
    #[inline(always)]
    fn source_at_once(&self, number: u64) -> Option<Option<u64>> {
        if number == NOBODY {
            return Some(None);
        }
        let ends = self.ends.as_ref()?;
        if !ends.is_directed {
            return Some(None);
        }
        let peer = self.known_peer(ends.av.whole(number))?;
        let is_over = self.peers.get(peer as usize).and_then(Peer::end).is_some();
        (!is_over).then_some(Some(peer.into()))
    }

    /// Receives the next message of a peer of this node.
    #[inline(always)]
    pub(super) fn take_short(&mut self, peer: u32) -> Taken {
        let Self { peers, tagged, receives, ends, place, owed, is_sharing, takes, .. } = self;
        let Some(there) = peers.get_mut(peer as usize) else { return Taken::Other };
        let Some(mailbox) = &mut there.mailbox else { return Taken::Other };
        let entry = match mailbox.next(SHORT) {
            Next::Nothing => return Taken::Nothing,
            Next::Entry(entry) if entry.len() >= WORD => entry,
            Next::Entry(_) | Next::Other => return Taken::Other,
        };
        let mut tag = [0; WORD];
        entry.read(0, &mut tag);
        let (tag, payload) = (u64::from_le_bytes(tag), entry.slice(WORD, entry.len() - WORD));
        let Some(ends) = ends else { return Taken::Other };
        let (Some(direction), true, false) = (&ends.receive, *takes & owed.is_empty(), *is_sharing) else {
            return Taken::Other;
        };
        let source = match ends.tells_source {
            false => NOBODY,
            true if there.number.0 == ends.av.version() => there.number.1,
            true => return Taken::Other,
        };
        let Some(candidate) = tagged.candidate(there.whole.into(), tag) else { return Taken::Other };
        let Some(receive) = receives.get(candidate.token) else { return Taken::Other };
        let Receive { context, buffer, wants: true, share: Share::Own, instead: None, .. } = receive else {
            return Taken::Other;
        };
        let (Some(memory), context) = (buffer.one(), *context) else { return Taken::Other };
        if memory.len() < payload.len() {
            return Taken::Other;
        }
        let Some(own) = place.take() else { return Taken::Other };
        copy(payload, memory);
        mailbox.pass(entry.len());
        tagged.arrive_for(&candidate);
        receives.forget(candidate.token.index);
        if let Some(counter) = &ends.receives {
            counter.add(1);
        }
        let done = Completion {
            context,
            flags: sys::FI_RECV | sys::FI_TAGGED,
            length: payload.len(),
            buffer: Foreign::NULL,
            data: 0,
            tag,
            source,
        };
        *place = direction.cq.put_again(own, Entry::Done(done));
        Taken::Message
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Side, pair, some, stir};
    use super::*;

    fn send(side: &Side, bytes: &[u8], label: Label) -> bool {
        // SAFETY: the bytes outlive the call, with which the message has gone, or nothing has happened.
        let bytes = unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) };
        let message = Plain::new(Foreign::NULL, label, bytes, false);
        side.domain.traffic.admit(Short { slot: side.slot, destination: 0, message })
    }

    fn receive(side: &Side, source: u64, to: &mut [u8], (tag, ignore): (u64, u64)) -> bool {
        // SAFETY: the bytes outlive the receive in each test.
        let memory = unsafe { Lent::new(to.as_mut_ptr(), to.len()) };
        let context = Foreign(std::ptr::without_provenance_mut(tag as usize));
        let want = ShortWant { slot: side.slot, context, source, tag, ignore, memory, wants: true };
        side.domain.traffic.admit(want)
    }

    const fn tagged(tag: u64) -> Label {
        Label { tag: Some(tag), data: None }
    }

    /// What comes next, of which so many bytes are told.
    fn next(side: &Side) -> Completion {
        loop {
            side.with(Traffic::progress);
            if let (well, failed) = side.ended(&side.receive)
                && let [first, ..] = well[..]
            {
                assert_eq!((well.len(), failed.len()), (1, 0));
                return first;
            }
        }
    }

    #[test]
    fn what_is_waited_for_comes_and_says_what_it_is() {
        let [one, two] = pair();
        for (number, length) in
            [0, 1, 7, 8, 9, 31, 33, 200, 4096, 4097, 30_000, 32_768].into_iter().enumerate()
        {
            let (bytes, mut to) = (some(length), vec![0; length + number % 2]);
            let source = if number % 3 == 0 { 0 } else { NOBODY };
            assert!(receive(&two, source, &mut to, (0x50, 0xF)));
            assert!(send(&one, &bytes, tagged(0x5A)));
            let done = next(&two);
            assert_eq!((done.length, done.tag, done.source, done.data), (length, 0x5A, 0, 0));
            assert_eq!((done.context.0.addr(), done.flags), (0x50, sys::FI_RECV | sys::FI_TAGGED));
            assert!(to[..length] == bytes);
        }
    }

    #[test]
    fn all_else_goes_the_other_way_in_its_turn() {
        let [one, two] = pair();
        let mut to = [[0; 8]; 4];
        // What nobody waits for, what has data, what is too long for who takes it, and what is not.
        assert!(send(&one, b"a", tagged(1)));
        stir(&[&two]);
        assert!(!receive(&two, NOBODY, &mut to[0], (2, 0)), "something may be there for it");
        two.receive(&mut to[0], 1);
        assert!(receive(&two, NOBODY, &mut to[1], (2, 0)) && receive(&two, NOBODY, &mut to[2][..2], (3, 0)));
        assert!(receive(&two, NOBODY, &mut to[3], (4, 0)));
        assert!(send(&one, b"b", Label { tag: Some(2), data: Some(9) }));
        assert!(send(&one, b"long", tagged(3)) && send(&one, b"d", tagged(4)));
        stir(&[&two]);
        let (well, failed) = two.ended(&two.receive);
        let said: Vec<_> = well.iter().map(|done| (done.tag, done.data, done.length)).collect();
        assert_eq!(said, [(1, 0, 1), (2, 9, 1), (4, 0, 1)]);
        assert_eq!(
            failed.iter().map(|failure| (failure.of.tag, failure.overflow)).collect::<Vec<_>>(),
            [(3, 2)]
        );
        assert_eq!(to.map(|to| to[0]), *b"abld");
    }

    #[test]
    fn nobody_is_told_of_a_message_that_is_too_short_for_its_tag() {
        let [one, two] = pair();
        let mut to = [0; 8];
        assert!(receive(&two, NOBODY, &mut to, (1, 0)));
        one.lie(SHORT, &[1; WORD - 1]);
        stir(&[&two]);
        assert_eq!((two.malformed(), two.receive.len()), (1, 0));
    }

    #[test]
    fn who_does_not_answer_is_sent_so_many_long_messages_and_told_of_others() {
        let [one, two] = pair();
        let bytes = some(1 << 15);
        for _ in 0..32 {
            while !send(&one, &bytes, tagged(1)) {
                // The ring holds less.
                stir(&[&two]);
            }
        }
        stir(&[&two]);
        assert!(!send(&one, &bytes, tagged(1)), "1 MiB has gone");
        assert!(send(&one, &bytes[..4096], tagged(1)), "what is short goes on");
        one.send(&bytes, 1, 1).expect("told of");
        assert_eq!(one.transmit.len(), 0);
        let mut to = vec![0; bytes.len()];
        for (number, length) in std::iter::repeat_n(bytes.len(), 32).chain([4096, bytes.len()]).enumerate() {
            to.fill(0);
            two.receive(&mut to, 1);
            while two.receive.len() == 0 {
                stir(&[&one, &two]);
            }
            assert_eq!(two.ended(&two.receive).0[0].length, length, "{number}");
            assert!(to[..length] == bytes[..length]);
        }
        stir(&[&two, &one]);
        assert_eq!(one.ended(&one.transmit).0.len(), 1);
        assert!(send(&one, &bytes, tagged(1)), "it has said something");
    }
}
