//! Copies that devices make while the program goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Contexts, Opened};
use crate::cuda::library::{Driver, Error, Result};
use crate::cuda::{Context, Device, Event, Place, Stream, Transfer, sys};

/// How many things are used at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Marks in streams that are waited for; copies beyond them wait for their turn.
    pub events: usize,
    /// Bytes above which a copy is made in pieces of this size, over two streams.
    pub piece: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 400, piece: 4 << 20 }
    }
}

/// Streams for each context and direction, at most.
const LANES: usize = 4;

/// Which of a device's engines makes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToDevice,
    ToHost,
    Between,
}

/// Who makes a copy.
enum Route {
    Processor,
    Device(Context, Direction),
    /// No device reaches both: each does its part, in its context.
    ByWayOfHost {
        out: Context,
        back: Context,
    },
}

/// A stream, and what was begun in it.
struct Lane {
    direction: Direction,
    stream: Stream,
    /// That of the context when the stream was made: a later one does not have the stream.
    life: u64,
    /// In the order in which it is made.
    begun: VecDeque<Begun>,
    /// Bytes of it all.
    bytes: usize,
    /// Marks that were reached, for others.
    spare: Vec<Event>,
}

struct Begun {
    event: Event,
    job: usize,
    bytes: usize,
}

/// A copy that was begun.
struct Job {
    cookie: u64,
    /// In how many streams it is not over.
    parts: usize,
    error: Option<Error>,
    _keep: Option<Opened>,
}

struct Waiting {
    cookie: u64,
    transfer: Transfer,
    to: Place,
    from: Place,
    keep: Option<Opened>,
}

/// Copies that are under way or wait for their turn. They may be over in any order.
pub struct Copies {
    contexts: Arc<Contexts>,
    limits: Limits,
    waiting: VecDeque<Waiting>,
    lanes: Vec<Lane>,
    jobs: Vec<Option<Job>>,
    /// Places in the former that are free.
    free: Vec<usize>,
    /// Marks that are set.
    events: usize,
    over: VecDeque<(u64, Result<()>)>,
}

impl Copies {
    /// None so far.
    pub fn new(contexts: Arc<Contexts>, limits: Limits) -> Self {
        Self {
            contexts,
            limits: Limits { events: limits.events.max(1), piece: limits.piece.max(1) },
            waiting: VecDeque::new(),
            lanes: Vec::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            events: 0,
            over: VecDeque::new(),
        }
    }

    /// Begins a copy, or has it wait. How it ends is said by [`poll`](Self::poll), under its cookie, and only there.
    /// `to` and `from` are what its memory is; `keep` stays open until then. The ranges do not overlap.
    pub fn begin(&mut self, cookie: u64, transfer: Transfer, to: Place, from: Place, keep: Option<Opened>) {
        self.waiting.push_back(Waiting { cookie, transfer, to, from, keep });
        self.go_on();
    }

    /// Says of each copy that is over how it went. Returns how many were.
    pub fn poll(&mut self, mut say: impl FnMut(u64, Result<()>)) -> usize {
        if self.is_idle() {
            return 0;
        }
        if self.events > 0 {
            self.look();
            self.go_on();
        }
        let count = self.over.len();
        for (cookie, result) in self.over.drain(..) {
            say(cookie, result);
        }
        count
    }

    /// Whether no copy is under way, waits, or is to be said of.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.events == 0 && self.over.is_empty() && self.waiting.is_empty()
    }

    /// Begins what waits, as far as there are marks.
    fn go_on(&mut self) {
        while self.events < self.limits.events
            && let Some(waiting) = self.waiting.pop_front()
        {
            self.start(waiting);
        }
    }

    fn start(&mut self, waiting: Waiting) {
        let Waiting { cookie, transfer, to, from, keep } = waiting;
        let job = Some(Job { cookie, parts: 1, error: None, _keep: keep });
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.jobs.push(None);
                self.jobs.len() - 1
            }
        };
        self.jobs[index] = job;
        let begun = self.make(index, transfer, to, from);
        // One part was this function.
        self.part_is_over(index, begun);
    }

    fn make(&mut self, job: usize, transfer: Transfer, to: Place, from: Place) -> Result<()> {
        if transfer.is_empty() {
            return Ok(());
        }
        match self.route(to, from)? {
            Route::Processor => {
                transfer.by_processor();
                Ok(())
            }
            Route::Device(context, direction) => {
                match self.on_device(job, transfer, context, direction) {
                    // The program has ended the context since, and made one that is called the same; where the driver
                    // tells these apart that was found before.
                    Err(Error::Gone(_)) if self.contexts.driver().life(context) == 0 => {
                        self.forget(context);
                        self.on_device(job, transfer, context, direction)
                    }
                    made => made,
                }
            }
            Route::ByWayOfHost { out, back } => self.by_way_of_host(transfer, out, back),
        }
    }

    /// Who makes a copy.
    ///
    /// The driver finds its way to memory of any context, but to that of a pool or of the virtual memory calls
    /// only for a device that was given access: its own has it.
    fn route(&self, to: Place, from: Place) -> Result<Route> {
        let on = |device: Device, direction| Ok(Route::Device(self.contexts.of(device)?, direction));
        match (to, from) {
            (Place::Host, Place::Host) => Ok(Route::Processor),
            (Place::Device(device), Place::Host) => on(device, Direction::ToDevice),
            (Place::Host, Place::Device(device)) => on(device, Direction::ToHost),
            (Place::Device(to), Place::Device(from)) => match (to.context, from.context) {
                (None, None) if to.ordinal != from.ordinal => {
                    Ok(Route::ByWayOfHost { out: self.contexts.of(from)?, back: self.contexts.of(to)? })
                }
                (Some(_), None) => on(from, Direction::Between),
                _ => on(to, Direction::Between),
            },
        }
    }

    /// Begins a copy: a large one in pieces, by turns in two streams.
    fn on_device(
        &mut self,
        job: usize,
        transfer: Transfer,
        context: Context,
        direction: Direction,
    ) -> Result<()> {
        // Once for all the calls.
        let _entered = self.contexts.driver().enter(context)?;
        let piece = self.limits.piece;
        let first = self.lane(context, direction, None)?;
        let second = if transfer.len() > piece && self.limits.events - self.events > 1 {
            self.lane(context, direction, Some(first)).ok().filter(|second| *second != first)
        } else {
            None
        };
        let mut bytes = [0, 0];
        let mut begun = Ok(());
        for (index, offset) in (0..transfer.len()).step_by(piece).enumerate() {
            let part = transfer.part(offset, piece.min(transfer.len() - offset));
            let which = if second.is_some() { index % 2 } else { 0 };
            let lane = if which == 1 { second.unwrap_or(first) } else { first };
            begun = self.lanes[lane].stream.begin(part);
            if begun.is_err() {
                break;
            }
            bytes[which] += part.len();
        }
        // What was begun is waited for in any case.
        for (lane, bytes) in std::iter::once(first).chain(second).zip(bytes) {
            if bytes > 0 {
                self.mark(lane, job, bytes);
            }
        }
        match begun {
            // Begun in part: no second attempt.
            Err(Error::Gone(code)) if bytes != [0, 0] => Err(Error::Driver(code)),
            begun => begun,
        }
    }

    /// Marks where a stream is now, for a job that has begun something in it.
    fn mark(&mut self, lane: usize, job: usize, bytes: usize) {
        let driver = self.contexts.driver();
        let lane = &mut self.lanes[lane];
        let event = lane.spare.pop().map_or_else(|| Event::new(driver, lane.stream.context()), Ok);
        let marked = event.and_then(|event| event.record(&lane.stream).map(|()| event));
        match marked {
            Ok(event) => {
                lane.begun.push_back(Begun { event, job, bytes });
                lane.bytes += bytes;
                self.events += 1;
                if let Some(job) = &mut self.jobs[job] {
                    job.parts += 1;
                }
            }
            // Without a mark there is only to wait.
            Err(_) => {
                if let Err(error) = lane.stream.wait()
                    && let Some(job) = &mut self.jobs[job]
                {
                    job.error = Some(error);
                }
            }
        }
    }

    /// A stream for a direction, but not this one: one in which nothing is under way, or a new one, or else that
    /// which has least to do.
    fn lane(&mut self, context: Context, direction: Direction, but: Option<usize>) -> Result<usize> {
        let driver = self.contexts.driver();
        let is_of = |lane: &Lane| lane.stream.context() == context;
        if let Some(lane) = self.lanes.iter().find(|lane| is_of(lane))
            && !lane.is_there(driver)
        {
            self.forget(context);
        }
        let ours = |(index, lane): &(usize, &Lane)| {
            lane.direction == direction && is_of(lane) && Some(*index) != but
        };
        let lanes = || self.lanes.iter().enumerate().filter(ours);
        let least = lanes().min_by_key(|(_, lane)| lane.bytes).map(|(index, lane)| (index, lane.bytes));
        if let Some((index, bytes)) = least
            && (bytes == 0 || lanes().count() >= LANES)
        {
            return Ok(index);
        }
        match Stream::new(driver, context) {
            Ok(stream) => {
                let (life, begun, spare) = (driver.life(context), VecDeque::new(), Vec::new());
                self.lanes.push(Lane { direction, stream, life, begun, bytes: 0, spare });
                Ok(self.lanes.len() - 1)
            }
            Err(error) => least.map(|(index, _)| index).ok_or(error),
        }
    }

    /// Copies at once between memory that no device reaches both of.
    fn by_way_of_host(&mut self, transfer: Transfer, out: Context, back: Context) -> Result<()> {
        // What has gone of either context goes first: the places of others change with it.
        self.lane(out, Direction::ToHost, None)?;
        let back = self.lane(back, Direction::ToDevice, None)?;
        let out = self.lane(out, Direction::ToHost, None)?;
        let mut turn = [out, back].into_iter().cycle();
        transfer.by_way_of_host(|step| {
            let lane = turn.next().unwrap_or(out);
            self.lanes[lane].stream.copy(step)
        })
    }

    /// Looks at all marks that may be reached.
    fn look(&mut self) {
        let driver = self.contexts.driver();
        let mut index = 0;
        while index < self.lanes.len() {
            let lane = &mut self.lanes[index];
            let Some(begun) = lane.begun.front() else {
                index += 1;
                continue;
            };
            if !lane.is_there(driver) {
                let context = lane.stream.context();
                self.forget(context);
                index = 0;
                continue;
            }
            match begun.event.is_reached() {
                Ok(false) => index += 1,
                Ok(true) => self.reached(index, Ok(())),
                Err(error) => {
                    // What is over is over, whatever the mark says.
                    let waited = lane.wait(driver).map_err(|_| error);
                    while !self.lanes[index].begun.is_empty() {
                        self.reached(index, waited);
                    }
                    if waited.is_err() {
                        self.lanes.swap_remove(index).give_back(driver);
                    }
                }
            }
        }
    }

    /// The first of a stream is over.
    fn reached(&mut self, lane: usize, result: Result<()>) {
        let lane = &mut self.lanes[lane];
        let Some(Begun { event, job, bytes }) = lane.begun.pop_front() else { return };
        lane.bytes -= bytes;
        lane.spare.push(event);
        self.events -= 1;
        self.part_is_over(job, result);
    }

    fn part_is_over(&mut self, index: usize, result: Result<()>) {
        let Some(job) = &mut self.jobs[index] else { return };
        job.parts -= 1;
        job.error = job.error.or(result.err());
        if job.parts > 0 {
            return;
        }
        if let Some(job) = self.jobs[index].take() {
            self.free.push(index);
            self.over.push_back((job.cookie, job.error.map_or(Ok(()), Err)));
        }
    }

    /// The program has ended a context, with all streams and marks in it.
    fn forget(&mut self, context: Context) {
        let driver = self.contexts.driver();
        while let Some(index) = self.lanes.iter().position(|lane| lane.stream.context() == context) {
            let over = self.lanes[index].wait(driver);
            while !self.lanes[index].begun.is_empty() {
                self.reached(index, over);
            }
            self.lanes.swap_remove(index).give_back(driver);
        }
    }
}

impl Lane {
    /// Whether the context is still that in which the stream was made.
    fn is_there(&self, driver: &'static Driver) -> bool {
        driver.is_in(self.stream.context(), self.life)
    }

    /// Waits for all that was begun, which ends with its context.
    fn wait(&self, driver: &'static Driver) -> Result<()> {
        if !self.is_there(driver) {
            return Err(Error::Gone(sys::CONTEXT_IS_DESTROYED));
        }
        if self.begun.is_empty() { Ok(()) } else { self.stream.wait() }
    }

    /// Gives back what is still there: handles of a context that has gone must not be used.
    fn give_back(self, driver: &'static Driver) {
        if !self.is_there(driver) {
            self.spare.into_iter().for_each(std::mem::forget);
            self.begun.into_iter().for_each(std::mem::forget);
            std::mem::forget(self.stream);
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let driver = self.contexts.driver();
        for lane in self.lanes.drain(..) {
            // Nobody uses memory after this that is being copied.
            let _ = lane.wait(driver);
            lane.give_back(driver);
        }
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
