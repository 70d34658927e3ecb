//! [`Watch`]: the sockets of connected endpoints that an event queue looks at, `epoll(7)`.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{Timespec, epoll};

use super::cm::{Notice, Passive, Session};
use super::errno::Outcome;
use crate::gni::session::{Heard, Link, Listener};
use crate::wire::gni::cm;

/// Sockets that are looked at in one call.
const TURN: usize = 64;

/// Whose socket it is.
#[derive(Clone)]
pub(super) enum Owner {
    /// Can be called.
    Passive(Arc<Passive>),
    /// Is connected, or is going to be.
    Session(Arc<Session>),
}

enum Source {
    Listener(Arc<Passive>, Arc<Listener>),
    /// Has called, and has not said yet what for.
    Caller(Arc<Passive>, Link),
    Session(Arc<Session>, Arc<Link>),
}

/// The sockets.
pub(super) struct Watch {
    epoll: Arc<OwnedFd>,
    sources: HashMap<u64, Source>,
    next: u64,
}

impl Watch {
    /// None yet.
    ///
    /// # Errors
    /// Of `epoll_create(2)`.
    pub(super) fn new() -> Outcome<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        Ok(Self { epoll, sources: HashMap::new(), next: 0 })
    }

    /// What is readable when something is to be looked at.
    pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    fn add(&mut self, source: Source) -> Outcome<()> {
        let socket = match &source {
            Source::Listener(_, listener) => listener.as_fd(),
            Source::Caller(_, link) => link.as_fd(),
            Source::Session(_, link) => link.as_fd(),
        };
        let data = epoll::EventData::new_u64(self.next);
        epoll::add(&*self.epoll, socket, data, epoll::EventFlags::IN)?;
        self.sources.insert(self.next, source);
        self.next += 1;
        Ok(())
    }

    /// Looks at who calls.
    pub(super) fn listen(&mut self, passive: &Arc<Passive>) -> Outcome<()> {
        self.add(Source::Listener(Arc::clone(passive), passive.listener()))
    }

    /// Looks at what becomes of a connection.
    pub(super) fn follow(&mut self, session: &Arc<Session>, link: Arc<Link>) -> Outcome<()> {
        self.add(Source::Session(Arc::clone(session), link))
    }

    /// Looks at an end no more. A socket that is closed is in no set.
    pub(super) fn leave(&mut self, owner: &Owner) {
        let Self { epoll, sources, .. } = self;
        sources.retain(|_, source| {
            let (is_it, socket) = match (&*source, owner) {
                (Source::Listener(own, listener), Owner::Passive(of)) => {
                    (Arc::ptr_eq(own, of), listener.as_fd())
                }
                (Source::Caller(own, link), Owner::Passive(of)) => (Arc::ptr_eq(own, of), link.as_fd()),
                (Source::Session(own, link), Owner::Session(of)) => (Arc::ptr_eq(own, of), link.as_fd()),
                _ => return true,
            };
            if is_it {
                let _ = epoll::delete(&**epoll, socket);
            }
            !is_it
        });
    }

    /// Looks at what there is to be looked at, and says what it has found.
    pub(super) fn look(&mut self, mut tell: impl FnMut(Owner, Notice)) {
        if self.sources.is_empty() {
            return;
        }
        let mut found =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; TURN];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&*self.epoll, &mut found, Some(&none)).unwrap_or(0);
        for event in &found[..count] {
            self.look_at(event.data.u64(), &mut tell);
        }
    }

    fn look_at(&mut self, id: u64, tell: &mut impl FnMut(Owner, Notice)) {
        match self.sources.get(&id) {
            None => {}
            Some(Source::Listener(passive, listener)) => {
                let (passive, listener) = (Arc::clone(passive), Arc::clone(listener));
                for link in std::iter::from_fn(|| listener.accept()).take(TURN) {
                    // Nobody is called back: whoever is not looked at is closed.
                    let _ = self.add(Source::Caller(Arc::clone(&passive), link));
                }
            }
            Some(Source::Caller(_, link)) => {
                let mut bytes = [0; cm::LEN + 1];
                let heard = link.receive(&mut bytes);
                if heard == Heard::Nothing {
                    return;
                }
                let _ = epoll::delete(&*self.epoll, link.as_fd());
                let Some(Source::Caller(passive, link)) = self.sources.remove(&id) else { return };
                if let Heard::Message(length) = heard
                    && let Some(notice) = passive.hear(link, &bytes[..length])
                {
                    tell(Owner::Passive(passive), notice);
                }
            }
            Some(Source::Session(session, link)) => {
                let session = Arc::clone(session);
                let (goes_on, notice) = session.look();
                if !goes_on {
                    let _ = epoll::delete(&*self.epoll, link.as_fd());
                    self.sources.remove(&id);
                }
                if let Some(notice) = notice {
                    tell(Owner::Session(session), notice);
                }
            }
        }
    }
}
