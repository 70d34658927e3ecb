//! [`Node`]: what the processes of a job on one node share: a folder, the agent's sockets and its key.
//!
//! In the folder, each process has
//!
//! * `id-ID`, held for as long as it uses the folder;
//! * `ID.sock`, where others ask it to share a socket;
//! * `at-ADDRESS-ID`, held while it has the agent's socket on that address;
//! * `is-NAME-INCARNATION` for each of its modules, held while that lives.
//!
//! The folder is the runtime's for this job, which is this user's alone; the launcher removes what a job
//! that was killed has left of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::mail::{REPLY, Reply, Request};
use super::service::{Order, Port};
use super::{Agent, Counters};
use crate::btl::usnic::links::about_ports;
use crate::link::{Calls, Folder, Held, Listener, Local, Prober, host, random, user};
use crate::wire::probe::{Key, Process};

/// After how long it is looked whether another process that could share a socket is stopped.
const PATIENCE: Duration = Duration::from_secs(1);
/// So often one is waited for that is not, but late, where the machine has much to do: with a socket of its own a process answers
/// for nobody else, and nobody for it.
const LATE: usize = 30;
/// Ports of UDP that are tried whose number may be free for TCP.
const TRIES: usize = 16;
/// How many are asked.
const ASKED: usize = 3;

/// Where the processes of a job on this node meet.
pub(super) struct Place {
    folder: Folder,
    path: PathBuf,
    /// This process's name in it.
    id: String,
    /// By it others see that the folder is used.
    present: Held,
}

/// The file of a module.
fn name_of(process: Process) -> String {
    format!("is-{:x}-{:x}", process.name, process.incarnation)
}

impl Place {
    pub(super) fn open(path: &Path) -> io::Result<(Self, Listener)> {
        let id = format!("{:016x}", random()?);
        let (folder, present) = Folder::join(path, &format!("id-{id}"))?;
        let listener = Listener::bind(&folder, &format!("{id}.sock"))?;
        Ok((Self { folder, path: path.to_owned(), id, present }, listener))
    }

    /// Whether a module of another process lives; `None` when there never was one of this name.
    pub(super) fn lives(&self, process: Process) -> Option<bool> {
        self.folder.is_held(&name_of(process))
    }

    /// Says that this process has the agent's socket on an address.
    pub(super) fn hold_socket(&self, at: IpAddr) -> io::Result<Held> {
        self.folder.hold(&format!("at-{at}-{}", self.id))
    }

    /// Who shares the socket on an address.
    fn sharers(&self, at: IpAddr) -> Vec<String> {
        let begin = format!("at-{at}-");
        let names = self.folder.names();
        let others = names.iter().filter_map(|name| name.strip_prefix(&begin)).filter(|id| *id != self.id);
        let live = others.filter(|id| self.folder.is_held(&format!("{begin}{id}")) == Some(true));
        live.map(str::to_owned).collect()
    }

    /// Leaves the folder, and removes it when nobody is left. What this process held is closed.
    ///
    /// Nobody is waited for: who has its turn may be stopped. If it is one that leaves too, it looks again after
    /// its turn; if another one, it will leave; if neither, the launcher removes the folder.
    pub(super) fn leave(self) {
        let Self { folder, path, id, present } = self;
        drop(present);
        folder.remove(&format!("id-{id}"));
        folder.remove(&format!("{id}.sock"));
        while !is_used(&folder) {
            let Ok(Some(turn)) = folder.turn_now() else { return };
            if !is_used(&folder) {
                folder.remove_all(&path);
                return;
            }
            drop(turn);
        }
    }
}

/// Whether a process is there.
fn is_used(folder: &Folder) -> bool {
    let tells = |name: &&String| ["id-", "at-", "is-"].iter().any(|begin| name.starts_with(begin));
    folder.names().iter().filter(tells).any(|name| folder.is_held(name) == Some(true))
}

/// Joins the folder of this name: in that of the runtime for this job, else in that of the login, else in
/// one of this user's for temporary files. What went wrong with each where none will do.
fn find(name: &str) -> Result<(Place, Listener), String> {
    let mut whys = Vec::new();
    let mut open = |base: &Path| {
        let found = Place::open(&base.join(name));
        found.map_err(|error| whys.push(format!("{}: {error}", base.display()))).ok()
    };
    let named = ["PMIX_SERVER_TMPDIR", "XDG_RUNTIME_DIR"].into_iter().filter_map(std::env::var_os);
    if let Some(found) =
        named.map(PathBuf::from).filter(|base| base.is_absolute()).find_map(|base| open(&base))
    {
        return Ok(found);
    }
    let base = std::env::temp_dir().join(format!("hawser-{}", user()));
    let found = Folder::open(&base).map_err(|error| format!("{}: {error}", base.display()));
    match found.map(|_| open(&base)) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(whys.join("; ")),
        Err(why) => Err(whys.into_iter().chain([why]).collect::<Vec<_>>().join("; ")),
    }
}

/// The agent's socket on an address, and where it takes calls: at one port, the first of `at` or behind it that is free for both.
fn sockets(at: SocketAddr) -> crate::error::Result<(Prober, Option<Calls>)> {
    let (mut base, mut others) = (at.port(), Vec::new());
    while others.len() < TRIES {
        let prober = match Prober::open(at.ip(), base) {
            Err(why) if others.is_empty() => return Err(why),
            Err(_) => break,
            Ok(prober) => prober,
        };
        if let Ok(calls) = Calls::bind(SocketAddr::new(at.ip(), prober.port())) {
            return Ok((prober, Some(calls)));
        }
        if base != 0 {
            base = prober.port().saturating_add(1);
        }
        others.push(prober);
    }
    // Somebody else has all of these: a process that is stopped is given up then, as is who is behind a filter.
    Ok((others.swap_remove(0), None))
}

/// The way to this node's agent, for the modules that are to be opened.
pub struct Node {
    place: Option<Arc<Place>>,
    agent: Option<Arc<Agent>>,
    key: Key,
    /// Port and key of the agent's sockets that this process has, by address.
    ports: RefCell<HashMap<IpAddr, (u16, Key)>>,
    troubles: RefCell<Vec<String>>,
}

impl Node {
    /// Joins the agent of a job on this node. `key` is what it is asked under if nobody else has begun.
    pub fn open(job: u32, key: Key) -> Self {
        match find(&format!("hawser-usnic-{job:x}-{:x}", host())) {
            Ok(found) => Self::start(Some(found), None, key),
            Err(why) => Self::start(None, Some(why), key),
        }
    }

    /// The same in a folder of this path.
    #[cfg(test)]
    pub(super) fn open_in(path: &Path, key: Key) -> Self {
        Self::start(Some(Place::open(path).expect("a folder")), None, key)
    }

    pub(super) fn start(found: Option<(Place, Listener)>, trouble: Option<String>, key: Key) -> Self {
        let (place, listener) = found.map(|(place, listener)| (Arc::new(place), listener)).unzip();
        let (agent, trouble) = match Agent::start(place.clone(), listener, key) {
            Ok(agent) => (Some(Arc::new(agent)), trouble),
            Err(error) => (None, Some(format!("its thread cannot be started: {error}"))),
        };
        let troubles = RefCell::new(Vec::from_iter(trouble));
        Self { place, agent, key, ports: RefCell::default(), troubles }
    }

    /// Why this process, or a module of it, cannot answer for others, or others for it.
    pub fn trouble(&self) -> Option<String> {
        let troubles = self.troubles.borrow();
        (!troubles.is_empty()).then(|| troubles.join("; "))
    }

    /// Notes what has gone wrong, for [`trouble`](Self::trouble).
    pub(super) fn note(&self, what: &str, why: &impl fmt::Display) {
        let line = format!("{what}: {why}");
        let mut troubles = self.troubles.borrow_mut();
        if !troubles.contains(&line) {
            troubles.push(line);
        }
    }

    /// The same, of something that can be done without.
    fn noted<T, E: fmt::Display>(&self, what: &str, result: Result<T, E>) -> Option<T> {
        result.inspect_err(|why| self.note(what, why)).ok()
    }

    pub(super) fn agent(&self) -> Option<&Arc<Agent>> {
        self.agent.as_ref()
    }

    /// What the agent has counted in this process.
    pub fn counters(&self) -> Option<&Counters> {
        self.agent.as_ref().map(|agent| agent.counters())
    }

    /// Says to the node that a module lives, until what is returned is dropped.
    pub(super) fn hold(&self, process: Process) -> Option<Held> {
        let held = self.place.as_ref()?.folder.hold(&name_of(process));
        self.noted("others cannot see that a module lives", held)
    }

    /// Port and key under which the agent is asked on an address, with the first port that it may take
    /// if it is this process that makes the socket.
    ///
    /// # Errors
    /// Why there is no socket.
    pub(super) fn share(&self, at: SocketAddr) -> Result<(u16, Key), String> {
        if let Some(known) = self.ports.borrow().get(&at.ip()) {
            return Ok(*known);
        }
        let agent = self.agent.as_ref().ok_or("its thread is not there")?;
        let place = self.place.as_ref();
        // One after the other, so that there is one socket for all. Without turns, each has its own.
        let turn = place.and_then(|place| self.noted("its folder gives no turn", place.folder.turn()));
        let sharers = self.place.iter().flat_map(|place| place.sharers(at.ip())).take(ASKED);
        let shared = sharers.filter_map(|id| self.ask(&id, at)).next();
        let (prober, calls, key) = match shared {
            Some(shared) => shared,
            None => {
                let (prober, calls) = sockets(at).map_err(|why| {
                    format!("no socket on {}: {why}{}", at.ip(), about_ports(why, at.port()))
                })?;
                (prober, calls, self.key)
            }
        };
        let port = prober.port();
        let held =
            place.and_then(|place| self.noted("others cannot see its socket", place.hold_socket(at.ip())));
        agent.order(Order::Answer(Port::shared(at.ip(), (prober, calls), key, held)));
        drop(turn);
        self.ports.borrow_mut().insert(at.ip(), (port, key));
        Ok((port, key))
    }

    /// Asks another process of the node for the agent's socket, and where calls are taken.
    fn ask(&self, id: &str, at: SocketAddr) -> Option<(Prober, Option<Calls>, Key)> {
        let folder = &self.place.as_ref()?.folder;
        let local = Local::connect(folder, &format!("{id}.sock")).ok()?;
        local.send(&Request::Share { at }.emit(), None).ok()?;
        let mut record = [0; REPLY];
        let mut answers = std::iter::repeat_with(|| local.receive_within(&mut record, PATIENCE)).take(LATE);
        let is_late = |answer: &io::Result<_>| {
            let is_none = answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
            is_none && !folder.is_stopped(&format!("at-{}-{id}", at.ip()))
        };
        let (len, shared) = answers.find(|answer| !is_late(answer))?.ok()?;
        match Reply::parse(record.get(..len)?)? {
            Reply::Joined { port, key } => {
                let prober = Prober::adopt(shared?).ok()?;
                let is_it = prober.port() == port && prober.address().is_ok_and(|found| found == at.ip());
                let (_, calls) = local.receive_within(&mut record, PATIENCE).unwrap_or_default();
                let here = SocketAddr::new(at.ip(), port);
                let calls = calls.and_then(|calls| Calls::adopt(calls, here).ok());
                // It may have lost them, or was stopped in between; then nobody has that port.
                let calls = calls.or_else(|| Calls::bind(here).ok());
                is_it.then_some((prober, calls, key))
            }
            _ => None,
        }
    }
}
