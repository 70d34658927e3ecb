//! A transport by hawser's C functions, opened as any C program opens one: what byte transports and matching ones have in
//! common. What they have not is in [`bytes`](crate::bytes) and [`matching`].

use std::rc::Rc;

use hawser::capi::abi::{HAWSER_LOG_INFO, Remote};
use hawser::capi::code::{HAWSER_DONE, HAWSER_ERR_AGAIN, HAWSER_ERR_UNREACHABLE, HAWSER_SUCCESS};

use crate::block::{Block, pattern};
use crate::caller::{Caller, Record};
use crate::inbox::Inbox;
use crate::matching::{self, Coming, room};
use crate::opening::{self, Calls, Way};
use crate::plan::Plan;

/// The number of the message that nobody sends.
const NOBODY: u64 = 0;

/// What to do with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its end is told later.
    UnderWay,
    /// It is over.
    Over,
    /// There is no room: make progress.
    NotNow,
}

/// What every transport has.
pub(crate) struct Base {
    name: String,
    /// Boxed, because hawser has its address until `close`.
    pub(crate) caller: Box<Caller>,
    /// The same.
    pub(crate) inbox: Rc<Inbox>,
    /// What is sent, put, or got by the other side.
    pub(crate) outgoing: Block,
    /// What the other side puts, what is got from it, or what is received.
    pub(crate) incoming: Block,
}

impl Base {
    /// An error, with what the transport has said last.
    pub(crate) fn check(&self, what: &str, code: i32) -> Result<i32, String> {
        self.caller.check(&self.name, what, code)
    }

    /// Why the other side is lost.
    fn loss(&self) -> String {
        let said = self.caller.said();
        let why = if said.is_empty() { "its process has ended" } else { &said };
        format!("the other side is lost: {why}; see what it says there")
    }

    /// What a code of an operation says.
    #[inline]
    pub(crate) fn taken(&self, what: &str, code: i32) -> Result<Taken, String> {
        match code {
            HAWSER_SUCCESS => Ok(Taken::UnderWay),
            HAWSER_DONE => Ok(Taken::Over),
            HAWSER_ERR_AGAIN => Ok(Taken::NotNow),
            HAWSER_ERR_UNREACHABLE => Err(self.loss()),
            _ => self.check(what, code).map(|_| Taken::Over),
        }
    }
}

/// An open transport, with the other side as its peer once it has [joined](Transport::join).
pub(crate) struct Transport {
    calls: Calls,
    base: Base,
    way: Way,
    is_open: bool,
}

impl Transport {
    /// Opens the component that is planned. `name` is this process's among those that talk.
    pub(crate) fn open(
        plan: &Plan,
        name: u64,
        settings: &[(String, String)],
        is_verbose: bool,
    ) -> Result<Self, String> {
        let inbox = Rc::default();
        let (calls, way) = opening::find(plan, &inbox)?;
        let settings = opening::settings(settings)?;
        let longest = plan.longest().max(1);
        let incoming = match way {
            Way::Bytes(_) => longest,
            Way::Matching(_) => room(longest, plan.window),
        };
        let base = Base {
            name: plan.transport.clone(),
            caller: Box::new(Caller::new(settings, is_verbose)),
            inbox,
            outgoing: Block::new(longest),
            incoming: Block::new(incoming),
        };
        let mut opened = Self { calls, base, way, is_open: false };
        opened.start(name)?;
        Ok(opened)
    }

    fn start(&mut self, name: u64) -> Result<(), String> {
        self.calls.open(&self.base.name, name, &self.base.caller)?;
        self.is_open = true;
        self.calls.register(&self.base.name, &self.base.caller)?;
        match &mut self.way {
            Way::Bytes(bytes) => bytes.start(&self.base),
            Way::Matching(matching) => matching.start(&self.base),
        }
    }

    /// Makes the other side known, by what it has published, and chooses the module: the first that reaches it, or the one
    /// of that name.
    pub(crate) fn join(
        &mut self,
        name: u64,
        records: Vec<Record>,
        device: Option<&str>,
    ) -> Result<(), String> {
        self.base.caller.found.replace(records);
        self.base.caller.peer.set(name);
        match &mut self.way {
            Way::Bytes(bytes) => bytes.join(&self.base, name, device),
            Way::Matching(matching) => matching.join(&self.base, name, device),
        }
    }

    /// Why the other side is lost.
    pub(crate) fn loss(&self) -> String {
        self.base.loss()
    }

    /// Why this side ends is known. That the other side is lost, and what closing brings, are no news beside it.
    pub(crate) fn conclude(&self) {
        self.base.caller.conclude(self.inbox().is_lost.get());
    }

    /// What this side has published.
    pub(crate) fn published(&self) -> Vec<Record> {
        self.base.caller.published.borrow().clone()
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.base.inbox
    }

    /// The name of what is used.
    pub(crate) fn device(&self) -> String {
        match &self.way {
            Way::Bytes(bytes) => bytes.device(),
            Way::Matching(_) => "libfabric".to_owned(),
        }
    }

    /// Why there are no PUTs, or GETs, if there are none.
    pub(crate) fn refusal(&self, is_put: bool) -> Option<&'static str> {
        match &self.way {
            Way::Bytes(bytes) if bytes.can_transfer(is_put) => None,
            Way::Bytes(_) => {
                Some("to the other side (the system may not let processes read each other's memory)")
            }
            Way::Matching(_) => Some(matching::REFUSAL),
        }
    }

    /// Messages of this length are to be sent, with the bytes of that number, and to come. Those that are to be looked at
    /// do not lie there before.
    pub(crate) fn begin(&self, bytes: usize, keep: bool, number: u64, coming: Coming) -> Result<(), String> {
        self.base.inbox.begin(bytes, keep && matches!(self.way, Way::Bytes(_)));
        self.base.outgoing.fill(number, bytes);
        if keep {
            self.base.incoming.fill(NOBODY, bytes);
        }
        match &self.way {
            Way::Bytes(_) => Ok(()),
            Way::Matching(matching) => matching.begin(&self.base, bytes, coming),
        }
    }

    /// Whether the message that has come has the bytes of that number.
    pub(crate) fn has_come(&self, number: u64, length: usize) -> bool {
        match self.way {
            Way::Bytes(_) => {
                let kept = self.base.inbox.take();
                kept.len() == length && kept.iter().enumerate().all(|(at, byte)| *byte == pattern(number, at))
            }
            Way::Matching(_) => self.is_filled(number, length),
        }
    }

    /// Whether what was put or got has.
    pub(crate) fn is_filled(&self, number: u64, length: usize) -> bool {
        self.base.incoming.is_filled(number, length)
    }

    /// Answers go the way that messages come.
    pub(crate) fn follow(&mut self) {
        if let (Way::Bytes(bytes), Some(from)) = (&mut self.way, self.base.inbox.from()) {
            bytes.follow(from);
        }
    }

    /// One pass. Returns how much happened.
    #[inline]
    pub(crate) fn progress(&self) -> Result<i32, String> {
        let code = self.calls.progress();
        if let Way::Matching(matching) = &self.way {
            matching.post(&self.base)?;
        }
        if code >= 0 { Ok(code) } else { self.base.check("makes no progress", code) }
    }

    /// Sends the first bytes of `outgoing` as a message, from a place on, and says how far it has come: a message that
    /// is longer than a fragment goes in several.
    #[inline]
    pub(crate) fn send(&self, tag: u8, length: usize, done: usize) -> Result<Option<usize>, String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.send(&self.base, tag, length, done),
            Way::Matching(matching) => matching.send(&self.base, tag, length),
        }
    }

    /// Opens the blocks to the other side: `incoming` to be written, or `outgoing` to be read. Returns its name.
    pub(crate) fn lend(&self, is_put: bool) -> Result<Vec<u8>, String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.lend(&self.base, is_put),
            Way::Matching(_) => Err(self.without_memory()),
        }
    }

    /// Puts so many bytes of `outgoing`, or gets as many to `incoming`.
    #[inline]
    pub(crate) fn transfer(&self, is_put: bool, length: usize, remote: &Remote) -> Result<Taken, String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.transfer(&self.base, is_put, length, remote),
            Way::Matching(_) => Err(self.without_memory()),
        }
    }

    fn without_memory(&self) -> String {
        format!("{} opens no memory to the other side", self.base.name)
    }

    /// Ends what is under way. The sends of a matching transport have [ended](Inbox::sends) before.
    pub(crate) fn flush(&self) -> Result<(), String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.flush(&self.base),
            Way::Matching(_) => Ok(()),
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if self.is_open {
            self.calls.close();
        }
        let (level, line) = &*self.base.caller.line.borrow();
        if *level != HAWSER_LOG_INFO && !self.base.caller.is_verbose {
            eprintln!("hawser-perf: {line}");
        }
    }
}
