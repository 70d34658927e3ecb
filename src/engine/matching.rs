//! Tag matching: which receive of a receive context takes which message.
//!
//! Two rules, from which all else follows:
//! * a message that arrives takes the oldest posted receive that fits it, or waits as *unexpected*;
//! * a receive that is posted takes the oldest unexpected message that fits it, or waits as *posted*.
//!
//! A receive fits a message if it asks for its source or for any, and if their tags differ in no bit but those that
//! the receive ignores. Tagged and untagged messages never meet: a context has a [`Matching`] for each. In the one for
//! untagged messages all have the tag 0, and receives ask for it ([`Wanted::untagged`]).
//!
//! Here are no buffers and no peers, only tokens of the caller for them. What a *source* is the caller says: a number
//! that one peer has as long as it lives and that no other gets while something of the former waits here. Messages of
//! one source are to be handed to [`Matching::arrive`] in the order in which they were sent; whether all of a message
//! has come by then does not matter.
//!
//! The time that an operation takes does not depend on how many receives or messages wait, as long as receives differ
//! in source and tag and not in more than a few combinations of what they ignore: `posted` and `unexpected` say how.
//! Only what happens once for a peer or a context, [`Matching::forget`] and [`Matching::drain`], looks at all. In
//! the long run nothing is allocated: tables keep the room that they once needed.
//!
//! Unexpected messages are not bounded here, since a peer has sent them already. [`Matching::kept`] says what they
//! take, for a caller who then grants peers no more credit.
//!
//! Files, each of which needs only those before it: `list`, `table`, then `posted` and `unexpected`, the two halves.
//!
//! Answers to fi_msg(3), fi_tagged(3), and the class `gnix_tme` of the GNI provider's design.

mod list;
mod posted;
mod table;
mod unexpected;

use super::slab::Key;
pub use posted::Candidate;
use posted::Posted;
use table::Group;
use unexpected::Unexpected;

/// What a receive asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose messages; anybody's, if none is named (`FI_DIRECTED_RECV`).
    pub source: Option<u64>,
    /// The tag that a message must have,
    pub tag: u64,
    /// but for the bits that are set here.
    pub ignore: u64,
}

impl Wanted {
    /// What a receive of untagged messages asks for.
    pub const fn untagged(source: Option<u64>) -> Self {
        Self { source, tag: 0, ignore: 0 }
    }

    /// Whether a message is one that is asked for.
    #[inline]
    pub fn fits(&self, source: u64, tag: u64) -> bool {
        (tag ^ self.tag) & !self.ignore == 0 && self.source.is_none_or(|wanted| wanted == source)
    }
}

/// How many messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// One, and then it is no longer posted.
    Once,
    /// As many as come until it is withdrawn, in its place in the order of receives (`FI_MULTI_RECV`).
    Many,
}

/// A message, as much as matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<M> {
    /// Who has sent it.
    pub source: u64,
    /// Its tag; 0, if it has none.
    pub tag: u64,
    /// Bytes of memory that it keeps here while it is unexpected: not those that are still with its sender.
    pub bytes: usize,
    /// Whether its sender is no longer needed to receive it.
    pub complete: bool,
    /// The caller's name for it.
    pub token: M,
}

/// A posted receive. That of one that is no longer posted is refused everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiveId(Key);

impl ReceiveId {
    /// As one number, for a context of the user.
    pub const fn raw(self) -> u64 {
        self.0.raw()
    }

    /// The id that [`Self::raw`] made. Any number may be given: the worst is an id that is refused, or that of another.
    pub const fn from_raw(raw: u64) -> Self {
        Self(Key::from_raw(raw))
    }
}

/// An unexpected message, claimed or not. That of one that has gone is refused everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(Key);

impl MessageId {
    /// As one number, for a context of the user.
    pub const fn raw(self) -> u64 {
        self.0.raw()
    }

    /// The id that [`Self::raw`] made. Any number may be given: the worst is an id that is refused, or that of another.
    pub const fn from_raw(raw: u64) -> Self {
        Self(Key::from_raw(raw))
    }
}

/// As many receives are posted as may be (`-FI_EAGAIN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What came of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Posting<M> {
    /// It is posted.
    Waits(ReceiveId),
    /// It takes a message that was unexpected, and is over.
    Takes(Message<M>),
    /// It takes a message that was unexpected, and is posted. More may wait for it: see [`Matching::more`].
    TakesAndWaits(Message<M>, ReceiveId),
}

/// What came of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Arrival<R> {
    /// This receive takes it, and is over.
    Taken(R),
    /// This receive for many messages takes it, and is still posted.
    TakenByMany(R, ReceiveId),
    /// It is kept.
    Unexpected(MessageId),
}

/// What unexpected messages take, claimed ones too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// How many there are.
    pub messages: usize,
    /// The sum of their bytes.
    pub bytes: usize,
}

/// What has been taken out without having been matched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Leftover<R, M> {
    /// Receives, in the order in which they were posted.
    pub receives: Vec<R>,
    /// Messages in the order in which they came, and then claimed ones in the order of their claims.
    pub messages: Vec<Message<M>>,
}

/// The matching engine of a receive context, for its tagged messages or for its untagged ones. `R` and `M` are the
/// caller's names for receives and messages.
#[derive(Debug)]
pub struct Matching<R, M> {
    limit: usize,
    posted: Posted<R>,
    unexpected: Unexpected<M>,
}

impl<R: Copy, M: Copy> Matching<R, M> {
    /// At most `limit` receives will be posted at a time. `key` is to be random, and nobody else's to know: it keeps
    /// peers from choosing tags that make searches long.
    pub fn new(limit: usize, key: [u8; 16]) -> Self {
        Self { limit, posted: Posted::new(&key), unexpected: Unexpected::new(&key) }
    }

    /// Posts a receive.
    ///
    /// One for many messages first takes what waits: after [`Posting::TakesAndWaits`] ask [`Self::more`] until there
    /// is nothing, or withdraw the receive, before anything else is posted or arrives. Else a later message could
    /// overtake.
    ///
    /// # Errors
    /// [`Full`], if it would have to wait and as many receives are posted as may be. Nothing has happened then.
    #[inline(always)]
    pub fn post(&mut self, wanted: Wanted, times: Times, token: R) -> Result<Posting<M>, Full> {
        let is_full = self.posted.len() >= self.limit;
        if times == Times::Many && is_full {
            return Err(Full);
        }
        match (self.unexpected.take(&wanted), times) {
            (Some(message), Times::Once) => Ok(Posting::Takes(message)),
            (None, Times::Once) if is_full => Err(Full),
            (None, _) => Ok(Posting::Waits(self.posted.push(wanted, token, times))),
            (Some(message), Times::Many) => {
                Ok(Posting::TakesAndWaits(message, self.posted.push(wanted, token, times)))
            }
        }
    }

    /// Whether any receive would be [posted](Self::wait) now: no message waits at all, and there is room.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        self.unexpected.len() == 0 && self.posted.len() < self.limit
    }

    /// Posts a receive for one message where it is known that [none is there](Self::is_waiting).
    #[inline(always)]
    pub fn wait(&mut self, wanted: Wanted, token: R) {
        self.posted.push(wanted, token, Times::Once);
    }

    /// The receive for one message that a message would take if it arrived now.
    #[inline(always)]
    pub fn candidate(&self, source: u64, tag: u64) -> Option<Candidate<R>> {
        self.posted.candidate(source, tag)
    }

    /// That message has arrived, and nothing has changed since: the receive is over.
    #[inline(always)]
    pub fn arrive_for(&mut self, candidate: &Candidate<R>) {
        self.posted.take_candidate(candidate);
    }

    /// The next unexpected message for a posted receive that takes many.
    pub fn more(&mut self, receive: ReceiveId) -> Option<Message<M>> {
        let wanted = self.posted.of_many(receive)?;
        self.unexpected.take(&wanted)
    }

    /// A message arrives, or its beginning does.
    #[inline(always)]
    pub fn arrive(&mut self, message: Message<M>) -> Arrival<R> {
        match self.posted.take(message.source, message.tag) {
            Some((token, None)) => Arrival::Taken(token),
            Some((token, Some(receive))) => Arrival::TakenByMany(token, receive),
            None => Arrival::Unexpected(self.unexpected.push(message)),
        }
    }

    /// Takes a posted receive back: it is cancelled, or is one for many messages that is spent. `None`, if it is
    /// no longer posted.
    pub fn withdraw(&mut self, receive: ReceiveId) -> Option<R> {
        self.posted.withdraw(receive)
    }

    /// The message that a receive would take now (`FI_PEEK`). It stays, for everybody; with its id it can be
    /// discarded (`FI_PEEK | FI_DISCARD`).
    pub fn peek(&mut self, wanted: &Wanted) -> Option<(MessageId, Message<M>)> {
        self.unexpected.peek(wanted)
    }

    /// Sets the message that a receive would take now aside (`FI_PEEK | FI_CLAIM`): from now on only
    /// [`Self::redeem`] and [`Self::discard`] find it.
    pub fn claim(&mut self, wanted: &Wanted) -> Option<(MessageId, Message<M>)> {
        self.unexpected.claim(wanted)
    }

    /// Receives a claimed message (`FI_CLAIM`). `None`, if it has gone, or has not been claimed.
    pub fn redeem(&mut self, message: MessageId) -> Option<Message<M>> {
        self.unexpected.redeem(message)
    }

    /// Takes an unexpected message out, claimed or not, to be thrown away. `None`, if it has gone.
    pub fn discard(&mut self, message: MessageId) -> Option<Message<M>> {
        self.unexpected.discard(message)
    }

    /// What was missing of an unexpected message has come. Whether it is still unexpected.
    pub fn complete(&mut self, message: MessageId) -> bool {
        self.unexpected.complete(message)
    }

    /// A source will not complete what it has begun: its messages that are incomplete go, claimed ones too, unless the caller
    /// says of one that it is none of them. Those that are complete can still be received.
    pub fn forget_incomplete(&mut self, source: u64, is_one: impl Fn(M) -> bool) -> Vec<Message<M>> {
        self.unexpected
            .take_all(|message| message.source == source && !message.complete && is_one(message.token))
    }

    /// The same, and receives that ask for no other source go, too: it has ended.
    pub fn forget(&mut self, source: u64, is_one: impl Fn(M) -> bool) -> Leftover<R, M> {
        let messages = self.forget_incomplete(source, is_one);
        Leftover { receives: self.posted.take_all(Some(source)), messages }
    }

    /// Takes everything out. No id is good any more.
    pub fn drain(&mut self) -> Leftover<R, M> {
        Leftover { receives: self.posted.take_all(None), messages: self.unexpected.take_all(|_| true) }
    }

    /// Posted receives, oldest first.
    pub fn receives(&self) -> impl Iterator<Item = (ReceiveId, R)> {
        self.posted.iter()
    }

    /// The sources that posted receives name, each as often as one does.
    pub fn sources(&self) -> impl Iterator<Item = u64> {
        self.posted.sources()
    }

    /// How many receives are posted.
    pub fn posted(&self) -> usize {
        self.posted.len()
    }

    /// What unexpected messages take.
    pub fn kept(&self) -> Kept {
        Kept { messages: self.unexpected.len(), bytes: self.unexpected.bytes() }
    }
}

/// What about a receive decides how its messages are found: whether the source counts, and which bits of the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    is_directed: bool,
    ignore: u64,
}

impl Shape {
    const EXACT: Self = Self { is_directed: true, ignore: 0 };

    #[inline]
    const fn of(wanted: &Wanted) -> Self {
        Self { is_directed: wanted.source.is_some(), ignore: wanted.ignore }
    }

    /// The group of receives of this shape that fit a message.
    #[inline]
    const fn group(self, class: u8, source: u64, tag: u64) -> Group {
        Group { class, source: if self.is_directed { source } else { 0 }, tag: tag & !self.ignore }
    }

    /// The group of a receive of this shape.
    #[inline]
    fn group_of(self, class: u8, wanted: &Wanted) -> Group {
        self.group(class, wanted.source.unwrap_or(0), wanted.tag)
    }
}

/// A place of a table, an entry of a list is looked at: tests count it.
#[inline(always)]
fn look() {
    #[cfg(test)]
    tests::LOOKS.set(tests::LOOKS.get() + 1);
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod cost_tests;

#[cfg(test)]
mod model_tests;
