//! The connections of connected endpoints (`FI_EP_MSG`), `fi_cm(3)`: who asks for one, who has one, and what event queues
//! hear of it.
//!
//! A [`Passive`] end listens under its name. Whoever wants a connection calls it on a [`Link`], says its own name and some
//! data, and waits; the listener's event queue tells of a [`Request`], which becomes a [`Session`] when it is accepted. The
//! link stays as long as the connection: that it has ended is how a session hears that the other side is over, however it
//! has ended. Messages take another way, as those of all endpoints.
//!
//! Nothing here runs by itself: the event queue that is bound to an end looks at its sockets when it is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::argument::Foreign;
use super::av::Av;
use super::domain::Domain;
use super::errno::{Errno, Outcome};
use super::fabric::Fabric;
use super::info::{Made, Wanted, of_request};
use super::library::Library;
use super::resolve;
use super::sys::{self, fid};
use crate::gni::session::{Heard, Link, Listener};
use crate::sync::EngineCell;
use crate::wire::gni::cm::{self, DATA, Message, Said};
use crate::wire::gni::name::Name;

/// Requests of a fabric that nobody has answered, at most.
const ASKED: usize = 4096;

/// What an event queue is to tell.
pub(super) enum Notice {
    /// Somebody wants to be connected: what an endpoint is opened with that is, and what was said.
    Asked(Made, Vec<u8>),
    /// A connection is there, and what the other side has said.
    Connected(Vec<u8>),
    /// It is not going to be: why, and what the other side has said.
    Refused(i32, Vec<u8>),
    /// It is over.
    Over,
}

/// What a call says to the other side.
pub(super) fn check_data(data: &[u8]) -> Outcome<()> {
    if data.len() > DATA { Err(Errno::INVAL) } else { Ok(()) }
}

fn system(error: &std::io::Error) -> Errno {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => Errno::AGAIN,
        std::io::ErrorKind::BrokenPipe => Errno(libc::ECONNABORTED),
        _ => Errno(error.raw_os_error().unwrap_or(libc::ECONNREFUSED)),
    }
}

fn say(link: &Link, said: Said, name: Name, data: &[u8]) -> Outcome<()> {
    link.send(&Message { said, name, data }.emit()).map_err(|error| system(&error))
}

/// Somebody who wants to be connected, and has not been answered.
pub(super) struct Request {
    link: Link,
    caller: Name,
}

/// What C has for a request: nobody looks behind it.
struct Handle(fid);

// SAFETY: nothing but its address is used.
unsafe impl Send for Handle {}

/// Those of a fabric, by what C has for them.
#[derive(Default)]
pub(super) struct Requests(Vec<(Box<Handle>, Request)>);

impl Requests {
    fn address(handle: &Handle) -> *mut fid {
        std::ptr::from_ref(&handle.0).cast_mut()
    }

    fn add(&mut self, request: Request) -> Option<*mut fid> {
        if self.0.len() >= ASKED {
            return None;
        }
        let head =
            fid { fclass: sys::FI_CLASS_CONNREQ, context: std::ptr::null_mut(), ops: std::ptr::null_mut() };
        let handle = Box::new(Handle(head));
        let address = Self::address(&handle);
        self.0.push((handle, request));
        Some(address)
    }

    /// The request of a handle, which is no longer one.
    pub(super) fn take(&mut self, handle: *mut fid) -> Option<Request> {
        let index = self.0.iter().position(|(known, _)| std::ptr::eq(Self::address(known), handle))?;
        Some(self.0.swap_remove(index).1)
    }

    /// Tells whoever asked that there will be no connection.
    pub(super) fn reject(&mut self, handle: *mut fid, own: Name, data: &[u8]) -> Outcome<()> {
        check_data(data)?;
        let request = self.take(handle).ok_or(Errno::INVAL)?;
        // Whoever has gone needs no answer.
        let _ = say(&request.link, Said::Reject, own, data);
        Ok(())
    }
}

/// What can be called.
pub(super) struct Passive {
    fabric: Arc<Fabric>,
    /// What its requests are offered with.
    wanted: Wanted,
    library: Library,
    place: EngineCell<(Name, Arc<Listener>)>,
    /// What C has of it.
    pub(super) fid: OnceLock<Foreign>,
}

impl Passive {
    pub(super) fn new(fabric: Arc<Fabric>, wanted: Wanted, place: (Name, Listener)) -> Outcome<Self> {
        let library = Library::kept().ok_or(Errno::NODATA)?;
        let place = EngineCell::new((place.0, Arc::new(place.1)));
        Ok(Self { fabric, wanted, library, place, fid: OnceLock::new() })
    }

    /// What it was opened of.
    pub(super) fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }

    /// The form of its name.
    pub(super) fn addr_format(&self) -> u32 {
        self.wanted.addr_format
    }

    /// Its name.
    pub(super) fn name(&self) -> Name {
        self.place.with(|place| place.0)
    }

    /// It has another name from now on.
    pub(super) fn rename(&self, name: Name, listener: Listener) {
        self.place.with(|place| *place = (name, Arc::new(listener)));
    }

    /// Its socket.
    pub(super) fn listener(&self) -> Arc<Listener> {
        self.place.with(|place| Arc::clone(&place.1))
    }

    /// What somebody has said who has called: a request, or nothing that may be said.
    pub(super) fn hear(&self, link: Link, bytes: &[u8]) -> Option<Notice> {
        let message = Message::parse(bytes).filter(|message| message.said == Said::Request)?;
        let (own, caller) = (self.name(), message.name);
        let request = Request { link, caller };
        let handle = self.fabric.requests.with(|requests| requests.add(request))?;
        match of_request(self.library, self.fabric.version, &self.wanted, own, caller, handle) {
            Ok(made) => Some(Notice::Asked(made, message.data.to_vec())),
            Err(_) => {
                self.fabric.requests.with(|requests| requests.take(handle));
                None
            }
        }
    }
}

/// How far a session has come.
enum Stage {
    /// Nothing has been asked for.
    Idle,
    /// Somebody asks for it, and is to be answered.
    Asked(Request),
    /// This side has asked.
    Asking(Arc<Link>),
    /// It is there.
    Connected(Arc<Link>),
    /// It has been.
    Over,
}

/// One side of a connection.
pub(super) struct Session {
    /// Its other side, as the one peer of an address vector.
    peer: Arc<Av>,
    name: EngineCell<Option<Name>>,
    stage: EngineCell<Stage>,
    is_connected: AtomicBool,
    /// What C has of its endpoint.
    pub(super) fid: OnceLock<Foreign>,
}

/// The number of the one peer.
const PEER: u64 = 0;

impl Session {
    /// For an endpoint that is going to ask, or is to answer a request.
    pub(super) fn new(domain: &Arc<Domain>, request: Option<Request>) -> Outcome<Self> {
        let name = EngineCell::new(request.as_ref().map(|request| request.caller));
        Ok(Self {
            peer: Arc::new(Av::of_one(Arc::clone(domain))),
            name,
            stage: EngineCell::new(request.map_or(Stage::Idle, Stage::Asked)),
            is_connected: AtomicBool::new(false),
            fid: OnceLock::new(),
        })
    }

    /// The address vector with its other side.
    pub(super) fn peer(&self) -> &Arc<Av> {
        &self.peer
    }

    /// The number of its other side there.
    ///
    /// # Errors
    /// `FI_ENOTCONN`: there is none, or no more.
    #[inline]
    pub(super) fn number(&self) -> Outcome<u64> {
        if self.is_connected.load(Ordering::Acquire) { Ok(PEER) } else { Err(Errno(libc::ENOTCONN)) }
    }

    /// The name of its other side.
    ///
    /// # Errors
    /// `FI_ENOTCONN`.
    pub(super) fn peer_name(&self) -> Outcome<Name> {
        self.number()?;
        self.name.with(|name| *name).ok_or(Errno(libc::ENOTCONN))
    }

    /// Asks for a connection; answers the socket on which it is answered.
    pub(super) fn connect(&self, own: Name, to: Name, data: &[u8]) -> Outcome<Arc<Link>> {
        check_data(data)?;
        self.stage.with(|stage| {
            if !matches!(stage, Stage::Idle) {
                return Err(Errno(libc::EISCONN));
            }
            let link = Link::new(to.device.to_bits(), to.cdm_id).map_err(|error| system(&error))?;
            say(&link, Said::Request, own, data)?;
            let link = Arc::new(link);
            *stage = Stage::Asking(Arc::clone(&link));
            Ok(link)
        })
    }

    /// Answers a request; answers the socket that says when the connection is over.
    pub(super) fn accept(&self, own: Name, data: &[u8]) -> Outcome<Arc<Link>> {
        check_data(data)?;
        let caller = self.name.with(|name| *name);
        self.stage.with(|stage| {
            let Stage::Asked(request) = stage else { return Err(Errno::OPBADSTATE) };
            say(&request.link, Said::Accept, own, data)?;
            let Stage::Asked(request) = std::mem::replace(stage, Stage::Over) else {
                return Err(Errno::OPBADSTATE);
            };
            self.establish(caller.unwrap_or(request.caller))?;
            let link = Arc::new(request.link);
            *stage = Stage::Connected(Arc::clone(&link));
            Ok(link)
        })
    }

    fn establish(&self, name: Name) -> Outcome<()> {
        self.peer.add(resolve::known(name, &resolve::own()?))?;
        self.name.with(|own| *own = Some(name));
        self.is_connected.store(true, Ordering::Release);
        Ok(())
    }

    /// Sends nothing any more, and says so.
    pub(super) fn shut_down(&self) -> Outcome<()> {
        self.is_connected.store(false, Ordering::Release);
        self.stage.with(|stage| match stage {
            Stage::Connected(link) | Stage::Asking(link) => {
                link.end();
                Ok(())
            }
            Stage::Over => Ok(()),
            Stage::Idle | Stage::Asked(_) => Err(Errno(libc::ENOTCONN)),
        })
    }

    /// Looks at its socket; whether there may be more, and what is to be told.
    pub(super) fn look(&self) -> (bool, Option<Notice>) {
        let mut bytes = [0; cm::LEN + 1];
        self.stage.with(|stage| {
            let (link, is_asking) = match stage {
                Stage::Asking(link) => (Arc::clone(link), true),
                Stage::Connected(link) => (Arc::clone(link), false),
                _ => return (false, None),
            };
            let heard = match link.receive(&mut bytes) {
                Heard::Nothing => return (true, None),
                Heard::Message(length) => Message::parse(&bytes[..length]),
                Heard::End => None,
            };
            match heard {
                Some(Message { said: Said::Accept, name, data }) if is_asking => {
                    if self.establish(name).is_err() {
                        *stage = Stage::Over;
                        return (false, Some(Notice::Refused(libc::ENOMEM, Vec::new())));
                    }
                    *stage = Stage::Connected(link);
                    (true, Some(Notice::Connected(data.to_vec())))
                }
                Some(Message { said: Said::Reject, data, .. }) if is_asking => {
                    *stage = Stage::Over;
                    (false, Some(Notice::Refused(libc::ECONNREFUSED, data.to_vec())))
                }
                // The other side is over, or breaks the rules.
                _ => {
                    *stage = Stage::Over;
                    self.is_connected.store(false, Ordering::Release);
                    let refused = Notice::Refused(libc::ECONNREFUSED, Vec::new());
                    (false, Some(if is_asking { refused } else { Notice::Over }))
                }
            }
        })
    }
}
