//! The agent of a node: it tries whether datagrams of all lengths reach other nodes, and says whether
//! a process of its own node lives, also while that process computes and calls nothing of ours, is
//! stopped, or has ended.
//!
//! The agent is no process and no thread of one, but a socket for each address, which all processes of
//! the job on this node (in one network namespace) share. Each has a thread that waits for questions
//! there, and the kernel wakes one of those that wait: whoever is stopped, or has ended, is not relied on,
//! and nothing has to be handed over. That a process lives, the others see by a lock that it holds in
//! the node's folder. What a process wants to know of other nodes it asks by a socket of its own. Agents
//! of two nodes talk in datagrams ([`wire::probe`](crate::wire::probe)), which say of themselves whether
//! they are genuine.
//!
//! * `checker` is the state machine: no clock, no socket.
//! * `lines` are the thread's connections to agents of other nodes.
//! * `node` is what the processes of a node share, and how they come by it.
//! * `service` is the thread: the sockets around the state machine. It never calls the host, and ends
//!   when the last module of its process does.
//! * `watch` is a module's end: it asks, and looks for answers now and then, from `progress`.
//! * `mail` is what they say to each other.
//!
//! Without an agent nothing is checked, and nobody answers for others. Answers to
//! `opal/mca/btl/usnic/btl_usnic_cagent.c`, whose messages could be forged, whose buffers did not hold
//! both its pings, and whose agent was one process.

mod checker;
#[cfg(test)]
mod checker_tests;
mod lines;
mod mail;
mod node;
#[cfg(test)]
mod node_tests;
mod service;
#[cfg(test)]
mod service_tests;
mod watch;

pub use node::Node;
pub use service::Counters;
pub use watch::{Finding, Site, Watch};

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use crate::link::Listener;
use crate::sync;
use crate::wire::probe::Key;
use node::Place;
use service::{Order, Service};

/// Bytes of the thread's stack: it keeps its buffers elsewhere.
const STACK: usize = 128 << 10;

/// The helper thread, as its owners hold it. It ends with the last of them.
struct Agent {
    /// A byte wakes the thread, and that it is shut down is its word to end. To close it would not do:
    /// children that the program has forked hold it open as long as they live.
    awake: UnixStream,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    place: Option<Arc<Place>>,
    /// The process whose thread it is: a forked child has none.
    process: u32,
}

impl Agent {
    fn start(place: Option<Arc<Place>>, listener: Option<Listener>, key: Key) -> io::Result<Self> {
        let (awake, woken) = UnixStream::pair()?;
        awake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (orders, taken) = mpsc::channel();
        let counters = Arc::new(Counters::default());
        let service = Service::new((listener, place.clone()), (woken, taken), key, Arc::clone(&counters))?;
        let thread = sync::spawn("hawser-agent", STACK, move || service.run())?;
        let process = std::process::id();
        Ok(Self { awake, orders, thread: Some(thread), counters, place, process })
    }

    /// Gives the thread something to do.
    fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            // Where so many bytes wait that there is no room, it will wake.
            let _ = (&self.awake).write(&[0]);
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether it belongs to this process, and not to one that has forked this one.
    fn is_own(&self) -> bool {
        std::process::id() == self.process
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !self.is_own() {
            // A forked child that ends what it has inherited; the thread is its parent's.
            return;
        }
        let is_told = self.awake.shutdown(Shutdown::Both).is_ok();
        if let Some(thread) = self.thread.take()
            && is_told
        {
            // It waits for nothing but what has just been shut down. If it has panicked, it is gone too. Where
            // the program has closed that under us, the thread never hears of it, and stays until the process
            // ends.
            let _ = thread.join();
        }
        if let Some(place) = self.place.take().and_then(Arc::into_inner) {
            place.leave();
        }
    }
}
