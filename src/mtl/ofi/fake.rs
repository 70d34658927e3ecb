//! A host for tests of the transport: one communicator of processes whose names the test sets.

use std::cell::RefCell;

use crate::error::{Error, Result};
use crate::fabric::fake::{Buffer, Request};
use crate::mtl::{self, Communicator, Envelope, Outcome, Peer, Upcalls};

/// The host.
#[derive(Clone, Copy)]
pub(super) struct Fake;

/// What was completed, by the request's number; and what the user was told.
#[derive(Default)]
pub(super) struct Log {
    pub(super) sent: Vec<(u64, Outcome)>,
    pub(super) received: Vec<(u64, Envelope, Outcome)>,
    pub(super) notices: Vec<String>,
    names: Vec<(Vec<u8>, u64)>,
    note: usize,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
}

/// The log of this thread's host.
pub(super) fn log<R>(look: impl FnOnce(&mut Log) -> R) -> R {
    LOG.with_borrow_mut(look)
}

/// The processes of the job: the names of their endpoints.
pub(super) fn job(names: impl IntoIterator<Item = Vec<u8>>) {
    log(|log| log.names = names.into_iter().map(|name| (name, 0)).collect());
}

/// A communicator: the one of all, or one made from a group, whose short id is known here only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comm {
    pub(super) id: u32,
    pub(super) rank: i32,
    pub(super) global: bool,
}

/// A process, by its rank.
#[derive(Clone, Copy)]
pub(super) struct Proc(usize);

impl Communicator for Comm {
    type Peer = Proc;

    fn context_id(self) -> u32 {
        self.id
    }

    fn is_global(self) -> bool {
        self.global
    }

    fn extended_id(self) -> [u64; 2] {
        [u64::from(self.id), 1]
    }

    fn size(self) -> usize {
        log(|log| log.names.len())
    }

    fn note(self) -> usize {
        log(|log| log.note)
    }

    fn set_note(self, note: usize) {
        log(|log| log.note = note);
    }

    fn rank(self) -> i32 {
        self.rank
    }

    fn peer(self, rank: i32) -> Result<Proc> {
        let rank = usize::try_from(rank).map_err(|_| Error::BadParameter)?;
        log(|log| log.names.get(rank).map(|_| Proc(rank))).ok_or(Error::Unreachable)
    }

    fn peer_at_hand(self, rank: i32) -> Option<Proc> {
        self.peer(rank).ok()
    }
}

impl Peer for Proc {
    fn note(self) -> u64 {
        log(|log| log.names[self.0].1)
    }

    fn set_note(self, note: u64) {
        log(|log| log.names[self.0].1 = note);
    }

    fn published(self) -> Result<Vec<u8>> {
        Ok(log(|log| log.names[self.0].0.clone()))
    }
}

impl mtl::Request for Request {
    fn sent(self, outcome: Outcome) {
        log(|log| log.sent.push((self.number, outcome)));
    }

    fn received(self, envelope: Envelope, outcome: Outcome) {
        log(|log| log.received.push((self.number, envelope, outcome)));
    }
}

impl Upcalls for Fake {
    type Comm = Comm;
    type Proc = Proc;
    type Conv = Buffer;
    type Req = Request;

    const SENDS_WAIT: bool = true;

    fn progress() {}

    fn notice(topic: &str, text: &str) {
        log(|log| log.notices.push(format!("{topic}: {text}")));
    }

    fn last_words(text: &str) {
        log(|log| log.notices.push(text.to_owned()));
    }
}
