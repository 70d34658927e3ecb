//! What both processes have: a device, memory, and a connection of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use hawser::link::Lent;
use hawser::verbs::{
    Access, AsyncEvents, Completion, Connect, Context, Cq, Depths, Event, EventChannel, EventKind, Id,
    Library, Limits, Mr, Pd, Queues, Srq, Transport,
};
use rustix::event::{PollFd, PollFlags, poll};

use crate::Outcome;

/// Time for an answer of the network's own services.
pub(crate) const SERVICES: Duration = Duration::from_secs(20);
/// Bytes of the memory that is registered, in either half.
pub(crate) const HALF: usize = 256 << 10;

/// What a client asks for, as the private data of its request say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    Done,
    Traffic,
    Refusal,
    Shared,
    WrongKey,
}

impl Part {
    const ALL: [Self; 5] = [Self::Done, Self::Traffic, Self::Refusal, Self::Shared, Self::WrongKey];

    pub(crate) fn bytes(self) -> [u8; 4] {
        [b'h', b'v', 1, self as u8]
    }

    pub(crate) fn of(private: &[u8]) -> Option<Self> {
        let said = private.first_chunk::<4>()?;
        Self::ALL.into_iter().find(|part| part.bytes() == *said)
    }
}

/// Counts, and prints a line for each.
#[derive(Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
}

impl Report {
    pub(crate) fn check(&mut self, good: bool, what: &str) {
        println!("{} - {what}", if good { "ok" } else { "not ok" });
        if good { self.passed += 1 } else { self.failed += 1 }
    }

    pub(crate) fn same<T: PartialEq + std::fmt::Debug>(&mut self, found: T, wanted: T, what: &str) {
        let good = found == wanted;
        self.check(good, what);
        if !good {
            println!("    {found:?}, not {wanted:?}");
        }
    }

    pub(crate) fn close(self) -> bool {
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}

/// Memory of the process, in two halves.
pub(crate) struct Memory {
    // Ends before its memory goes.
    pub(crate) mr: Mr,
    _bytes: Box<[u8]>,
}

impl Memory {
    fn new(pd: &Arc<Pd>, access: Access) -> Outcome<Self> {
        let mut bytes = vec![0_u8; 2 * HALF].into_boxed_slice();
        // SAFETY: the bytes live at one place until the registration has ended, which is before, and are copied only.
        let memory = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
        let mr = Mr::register(pd, memory, access)?;
        Ok(Self { mr, _bytes: bytes })
    }

    pub(crate) fn fill(&self, offset: usize, len: usize, seed: u8) {
        let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect();
        self.mr.memory().slice(offset, len).write(0, &bytes);
    }

    pub(crate) fn is_filled(&self, offset: usize, len: usize, seed: u8) -> bool {
        let mut bytes = vec![0; len];
        self.mr.memory().read(offset, &mut bytes);
        bytes.iter().enumerate().all(|(at, byte)| *byte == (at as u8).wrapping_mul(7).wrapping_add(seed))
    }

    pub(crate) fn number(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.mr.memory().read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    pub(crate) fn set_number(&self, offset: usize, number: u64) {
        self.mr.memory().slice(offset, 8).write(0, &number.to_ne_bytes());
    }
}

/// One of the two processes.
pub(crate) struct Side {
    pub(crate) channel: Arc<EventChannel>,
    pub(crate) context: Arc<Context>,
    pub(crate) limits: Limits,
    pub(crate) pd: Arc<Pd>,
    pub(crate) cq: Arc<Cq>,
    pub(crate) events: AsyncEvents,
    /// Requests that came before the last connection had ended.
    requests: RefCell<VecDeque<Event>>,
}

impl Side {
    pub(crate) fn at(library: &'static Library, address: SocketAddr) -> Outcome<Self> {
        println!("# forks: {:?}", library.prepare_forks()?);
        let channel = EventChannel::new(library)?;
        let (context, port) = Context::at(&channel, address, 0)?;
        println!("# {} is {} port {port}, {:?}", address.ip(), context.name(), context.transport());
        println!("# entry of RoCE v2: {:?}", context.roce_v2(port, Some(address.ip()))?);
        let limits = context.limits()?;
        let pd = Pd::new(&context)?;
        let cq = Cq::new(&context, 256, 1)?;
        let events = AsyncEvents::new(&context)?;
        Ok(Self { channel, context, limits, pd, cq, events, requests: RefCell::default() })
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.context.transport() == Transport::Iwarp
    }

    pub(crate) fn memory(&self) -> Outcome<Memory> {
        let atomics = if self.is_iwarp() { Access::LOCAL_READ } else { Access::REMOTE_ATOMIC };
        Memory::new(&self.pd, Access::REMOTE_READ | Access::REMOTE_WRITE | Access::ANY_ORDER | atomics)
    }

    pub(crate) fn queues(&self, shared: Option<&Arc<Srq>>) -> Queues {
        Queues {
            pd: Arc::clone(&self.pd),
            send: Arc::clone(&self.cq),
            receive: Arc::clone(&self.cq),
            shared: shared.cloned(),
        }
    }

    pub(crate) fn depths(&self) -> Depths {
        Depths { sends: 16, receives: 16, send_pieces: 2, receive_pieces: 2, inline: 1024 }
    }

    pub(crate) fn connect<'a>(&self, private: &'a [u8]) -> Connect<'a> {
        let reads = |most: u8| most.min(4);
        Connect {
            private,
            served_reads: reads(self.limits.served_reads),
            started_reads: reads(self.limits.started_reads),
            retries: 7,
            retries_without_receive: 7,
        }
    }

    /// The next event. Whoever starts the program gives up on it.
    fn event(&self) -> Outcome<Event> {
        loop {
            if let Some(event) = self.channel.next()? {
                println!("# event {:?} of {}, status {}", event.kind, event.token, event.status);
                return Ok(event);
            }
            poll(&mut [PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::IN)], None)?;
        }
    }

    /// The next event, which is of this kind. Requests may come before another connection has ended: they wait.
    pub(crate) fn expect(&self, kind: EventKind) -> Outcome<Event> {
        if kind == EventKind::ConnectRequest
            && let Some(request) = self.requests.borrow_mut().pop_front()
        {
            return Ok(request);
        }
        loop {
            let event = self.event()?;
            if event.kind == kind {
                return Ok(event);
            }
            if event.kind != EventKind::ConnectRequest {
                return Err(format!("{event:?} instead of {kind:?}").into());
            }
            self.requests.borrow_mut().push_back(event);
        }
    }

    /// The next completion.
    pub(crate) fn completion(&self) -> Outcome<Completion> {
        let mut completions = [Completion::default()];
        while self.cq.poll(&mut completions)? == 0 {
            std::thread::yield_now();
        }
        Ok(completions[0])
    }

    /// The next completion of a connection that the peer ends in the meantime: its answer is ours, and only that flushes
    /// InfiniBand's queue pair.
    pub(crate) fn completion_until(&self, id: &Id, ended: &mut bool) -> Outcome<Completion> {
        let mut completions = [Completion::default()];
        loop {
            if self.cq.poll(&mut completions)? > 0 {
                return Ok(completions[0]);
            }
            if let Some(event) = self.channel.next()? {
                println!("# event {:?} of {}, status {}", event.kind, event.token, event.status);
                match event.kind {
                    EventKind::Disconnected => {
                        *ended = true;
                        println!("# answered: {:?}", id.disconnect());
                    }
                    EventKind::ConnectRequest => self.requests.borrow_mut().push_back(event),
                    _ => return Err(format!("{event:?}").into()),
                }
            }
            std::thread::yield_now();
        }
    }

    /// Waits until the peer has ended a connection, and answers.
    pub(crate) fn ended(&self, id: &Id) -> Outcome<()> {
        self.expect(EventKind::Disconnected)?;
        println!("# answered: {:?}", id.disconnect());
        Ok(())
    }

    /// Waits for the completion of work that must go well.
    pub(crate) fn completed(&self, id: u64) -> Outcome<Completion> {
        let completion = self.completion()?;
        if completion.id() == id && completion.is_success() {
            Ok(completion)
        } else {
            Err(format!("{completion:?} instead of {id}").into())
        }
    }

    /// Takes a request.
    pub(crate) fn accept(&self, id: &Id, private: &[u8]) -> Outcome<()> {
        id.accept(&self.connect(private))?;
        self.expect(EventKind::Established).map(drop)
    }
}
