//! The agent of a node: it tries whether datagrams of all lengths reach other nodes, and says whether
//! a process of its own node lives, also while that process computes and calls nothing of ours.
//!
//! Of the processes of a job in one network namespace, the first one that takes the node's name
//! starts the agent, a helper thread. The modules of all of them, its own included, are its clients,
//! by a connection each: while that is open, the module lives, and the kernel closes it when the
//! process ends. Agents of two nodes talk in datagrams ([`wire::probe`](crate::wire::probe)), which
//! say of themselves whether they are genuine.
//!
//! * `checker` is the state machine: no clock, no socket.
//! * `service` is the thread: the sockets around it. It never calls the host, holds no lock, and ends
//!   when the last module of its process does.
//! * `watch` is a module's end: it asks, and looks for answers now and then, from `progress`.
//! * `mail` is what the two say to each other.
//!
//! Without an agent, or after its end, nothing is checked, nothing is said, and only time tells who
//! is lost. Answers to `opal/mca/btl/usnic/btl_usnic_cagent.c`, whose messages could be forged and
//! whose buffers did not hold both its pings.

mod checker;
#[cfg(test)]
mod checker_tests;
mod mail;
mod service;
#[cfg(test)]
mod service_tests;
mod watch;

pub use service::Counters;
pub use watch::{Finding, Site, Watch};

use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::link::{Listener, Local, Waiter, local_name};
use crate::sync;
use crate::wire::probe::Key;
use service::Service;

/// How often a process tries to find the agent that another is just starting, a millisecond apart.
const TRIES: u32 = 1000;

/// Bytes of the thread's stack: it keeps its buffers elsewhere.
const STACK: usize = 128 << 10;

/// The way to this node's agent, for the modules that are to be opened.
pub struct Node {
    name: Vec<u8>,
    /// When it is ours.
    agent: Option<Arc<Agent>>,
    /// Who has waited for it in vain once, waits no more.
    is_deaf: Cell<bool>,
}

impl Node {
    /// Finds the agent of a job on this node, or starts it. `key` is what it will be asked under.
    pub fn open(job: u32, key: Key) -> Self {
        let name = local_name("hawser-usnic", u64::from(job));
        let agent = Listener::bind(&name).and_then(|listener| Agent::start(listener, key));
        Self { name, agent: agent.ok().map(Arc::new), is_deaf: Cell::new(false) }
    }

    /// A connection to the agent. Whoever has its name may not listen yet, or may just have ended.
    fn connect(&self) -> io::Result<Local> {
        let mut tries = TRIES;
        loop {
            match Local::connect(&self.name) {
                Err(error) if tries > 0 && is_passing(&error) => tries -= 1,
                result => return result,
            }
            Waiter::new().wait(Some(Duration::from_millis(1)));
        }
    }
}

/// Whether it may go well the next time.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted)
}

/// The helper thread, as its owners hold it. It ends with the last of them.
struct Agent {
    /// That it is shut down is what the thread takes for the word to end. To close it would not do:
    /// children that the program has forked hold it open as long as they live.
    awake: UnixStream,
    thread: Option<JoinHandle<()>>,
    /// The process whose thread it is: a forked child has none.
    process: u32,
    counters: Arc<Counters>,
}

impl Agent {
    fn start(listener: Listener, key: Key) -> io::Result<Self> {
        let (awake, woken) = UnixStream::pair()?;
        let counters = Arc::new(Counters::default());
        let service = Service::new(listener, woken, key, Arc::clone(&counters));
        let thread = sync::spawn("hawser-agent", STACK, move || service.run())?;
        Ok(Self { awake, thread: Some(thread), process: std::process::id(), counters })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A forked child that ends what it has inherited; the thread is its parent's.
            return;
        }
        let _ = self.awake.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but what has just been shut down. If it has panicked, it is gone too.
            let _ = thread.join();
        }
    }
}
