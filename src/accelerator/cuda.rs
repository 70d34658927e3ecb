//! CUDA devices, through the driver that the program has loaded.
//!
//! Nothing is made before the first buffer on a device: then the copies' streams, one for each context in which
//! buffers lie. A copy is made in the context of the buffer and not in the one in use, which may be another
//! device's or none at all, as on a thread that has never called CUDA.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Accelerator, Counter};
use crate::cuda::{
    self, Allocation, Context, Device, Driver, Error, Place, Primary, Registration, Result, Transfer,
};

/// What says that NVIDIA's kernel driver is there: of a PC or server, of an embedded board, of Windows under
/// which this Linux runs.
const NODES: [&str; 4] = ["/dev/nvidiactl", "/dev/nvhost-ctrl", "/dev/nvmap", "/dev/dxg"];

/// The first of them that is there.
pub fn kernel_driver() -> Option<&'static str> {
    NODES.into_iter().find(|node| Path::new(node).exists())
}

static QUERIES: Counter = Counter::new(c"queries", c"How often the driver was asked what an address is");
static COPIES: Counter = Counter::new(c"copies", c"Copies to, from or on a device that were waited for");
static COPIED: Counter = Counter::new(c"copied_bytes", c"Bytes in these copies");
static BEGUN: Counter = Counter::new(c"begun_copies", c"Copies that were begun in a stream of the caller's");
static BEGUN_BYTES: Counter = Counter::new(c"begun_bytes", c"Bytes in these copies");

/// The CUDA devices of this process.
pub struct Cuda {
    /// Where the driver is found.
    driver: fn() -> Option<&'static Driver>,
    held: Mutex<Held>,
}

/// What was made so far.
struct Held {
    /// For copies that are waited for: one a context.
    streams: Option<HashMap<Context, Arc<cuda::Stream>>>,
    /// Holds on primary contexts, for memory that has no context: one a device.
    primaries: Vec<(i32, Primary)>,
    /// Memory of the host's, by its begin.
    pinned: Option<HashMap<usize, Pinned>>,
}

/// Memory of the host's that is to be pinned.
enum Pinned {
    /// Of this length; when there is a context.
    Wanted(usize),
    /// It is.
    Done(#[expect(dead_code, reason = "held until it is unpinned")] Registration),
}

/// How a transfer is made.
enum Route {
    /// Both ranges are the host's.
    Processor,
    /// In this context.
    Context(&'static Driver, Context),
    /// There is no device that reaches both ranges.
    ByWayOfHost,
}

/// A stream that comes to life with its first copy, in the context of the buffer.
#[derive(Default)]
pub struct Stream(Mutex<Option<cuda::Stream>>);

/// An event that comes to life when it is first set.
#[derive(Default)]
pub struct Event(Mutex<Option<cuda::Event>>);

impl Cuda {
    const fn new(driver: fn() -> Option<&'static Driver>) -> Self {
        Self { driver, held: Mutex::new(Held { streams: None, primaries: Vec::new(), pinned: None }) }
    }

    fn driver(&self) -> Result<&'static Driver> {
        (self.driver)().ok_or(Error::NotLoaded)
    }

    /// The context for a buffer: its own; for one that has none, that in use if it is of the same device, or else
    /// the device's primary one.
    fn context(&self, driver: &'static Driver, device: Device) -> Result<Context> {
        if let Some(context) = device.context {
            return Ok(context);
        }
        if let Some(current) = driver.current()?
            && driver.current_device()? == device.ordinal
        {
            return Ok(current);
        }
        self.primary(driver, device.ordinal)
    }

    fn primary(&self, driver: &'static Driver, device: i32) -> Result<Context> {
        let primaries = &mut self.held.lock().primaries;
        primaries.retain(|(_, primary)| primary.is_there());
        if let Some((_, primary)) = primaries.iter().find(|(of, _)| *of == device) {
            return Ok(primary.context());
        }
        let primary = driver.primary(device)?;
        let context = primary.context();
        primaries.push((device, primary));
        Ok(context)
    }

    /// How a transfer is made.
    ///
    /// The driver finds its way to memory of any context, but to that of a pool or of the virtual memory calls
    /// only for a device that was given access: its own has it.
    fn route(&self, transfer: Transfer) -> Result<Route> {
        let on_device = |address| match self.place(address)? {
            Place::Device(device) => Ok(Some(device)),
            Place::Host => Ok(None),
        };
        let works = match (on_device(transfer.to())?, on_device(transfer.from())?) {
            (None, None) => return Ok(Route::Processor),
            (Some(to), Some(from)) => match (to.context, from.context) {
                (None, None) if to.ordinal != from.ordinal => return Ok(Route::ByWayOfHost),
                (Some(_), None) => from,
                _ => to,
            },
            (Some(device), None) | (None, Some(device)) => device,
        };
        let driver = self.driver()?;
        Ok(Route::Context(driver, self.context(driver, works)?))
    }

    /// Makes a transfer in the stream of its context.
    fn in_stream(&self, transfer: Transfer, make: impl Fn(&cuda::Stream) -> Result<()>) -> Result<()> {
        if transfer.is_empty() {
            return Ok(());
        }
        let (driver, context) = match self.route(transfer)? {
            Route::Processor => {
                transfer.by_processor();
                return Ok(());
            }
            Route::ByWayOfHost => return transfer.by_way_of_host(|step| self.copy(step)),
            Route::Context(driver, context) => (driver, context),
        };
        COPIES.add(1);
        COPIED.add(transfer.len());
        match make(&*self.stream(driver, context)?) {
            // The program has ended the context since, and made one that is called the same.
            Err(Error::Gone(_)) => {
                self.forget(context);
                make(&*self.stream(driver, context)?)
            }
            made => made,
        }
    }

    /// The stream for copies in a context.
    fn stream(&self, driver: &'static Driver, context: Context) -> Result<Arc<cuda::Stream>> {
        let held = &mut *self.held.lock();
        let streams = held.streams.get_or_insert_default();
        if let Some(stream) = streams.get(&context) {
            return Ok(Arc::clone(stream));
        }
        let stream = Arc::new(cuda::Stream::new(driver, context)?);
        streams.insert(context, Arc::clone(&stream));
        // This is the first that is heard of the context: what waited for one is pinned now. Where that fails,
        // copies take a detour, no more.
        for (&start, pinned) in held.pinned.iter_mut().flatten() {
            if let Pinned::Wanted(len) = *pinned
                && let Ok(registration) = Registration::new(driver, context, start, len)
            {
                *pinned = Pinned::Done(registration);
            }
        }
        Ok(stream)
    }

    fn forget(&self, context: Context) {
        let stream = self.held.lock().streams.as_mut().and_then(|streams| streams.remove(&context));
        drop(stream);
    }
}

impl Accelerator for Cuda {
    const NAME: &'static CStr = c"cuda";
    type Stream = Stream;
    type Event = Event;

    fn the() -> &'static Self {
        static CUDA: Cuda = Cuda::new(Driver::loaded);
        &CUDA
    }

    fn counters() -> &'static [&'static Counter] {
        static ALL: [&Counter; 5] = [&QUERIES, &COPIES, &COPIED, &BEGUN, &BEGUN_BYTES];
        &ALL
    }

    /// The driver is not loaded or initialised for the question: programs that never use CUDA shall not pay for it.
    /// The program may do so later, where the machine has NVIDIA's kernel driver.
    fn is_there(&self, named: bool) -> bool {
        let known = (self.driver)().and_then(Driver::has_device);
        known.unwrap_or_else(|| named || kernel_driver().is_some())
    }

    fn is_in_use(&self) -> bool {
        (self.driver)().is_some()
    }

    #[inline]
    fn place(&self, address: usize) -> Result<Place> {
        if cuda::is_surely_host(address) {
            return Ok(Place::Host);
        }
        let Some(driver) = (self.driver)() else { return Ok(Place::Host) };
        QUERIES.add(1);
        driver.place(address)
    }

    fn begin(&self, transfer: Transfer, stream: &Stream) -> Result<()> {
        if transfer.is_empty() {
            return Ok(());
        }
        let route = self.route(transfer)?;
        let stream = &mut *stream.0.lock();
        let (driver, context) = match route {
            Route::Context(driver, context) => (driver, context),
            Route::Processor | Route::ByWayOfHost => {
                // Not before the copies in front of it.
                if let Some(stream) = stream {
                    stream.wait()?;
                }
                return self.copy(transfer);
            }
        };
        BEGUN.add(1);
        BEGUN_BYTES.add(transfer.len());
        if let Some(stream) = stream {
            match stream.begin(transfer) {
                // The program has ended the stream's context since, and with it all that was begun there.
                Err(Error::Gone(_)) => {}
                begun => return begun,
            }
        }
        stream.insert(cuda::Stream::new(driver, context)?).begin(transfer)
    }

    fn record(&self, event: &Event, stream: &Stream) -> Result<()> {
        let stream = &*stream.0.lock();
        let event = &mut *event.0.lock();
        let Some(stream) = stream else {
            // There is nothing to wait for.
            *event = None;
            return Ok(());
        };
        if event.as_ref().is_none_or(|event| !event.is_for(stream)) {
            *event = Some(cuda::Event::new(self.driver()?, stream.context())?);
        }
        event.as_ref().map_or(Ok(()), |event| event.record(stream))
    }

    fn is_reached(&self, event: &Event) -> Result<bool> {
        event.0.lock().as_ref().map_or(Ok(true), cuda::Event::is_reached)
    }

    fn copy(&self, transfer: Transfer) -> Result<()> {
        if transfer.overlaps() {
            self.in_stream(transfer, |stream| stream.shift(transfer))
        } else {
            self.in_stream(transfer, |stream| stream.copy(transfer))
        }
    }

    fn allocate(&self, device: Option<i32>, len: usize) -> Result<Allocation> {
        let driver = self.driver()?;
        let context = match (device, driver.current()?) {
            (Some(device), Some(current)) if driver.current_device()? == device => current,
            (None, Some(current)) => current,
            // The runtime begins with the first device, too.
            (device, _) => self.primary(driver, device.unwrap_or(0))?,
        };
        Allocation::new(driver, context, len)
    }

    fn owner(&self, address: usize) -> Result<(&'static Driver, Context)> {
        let driver = self.driver()?;
        match driver.place(address)? {
            Place::Device(device) => Ok((driver, self.context(driver, device)?)),
            Place::Host => Err(Error::NotOnDevice),
        }
    }

    fn range(&self, address: usize) -> Result<(usize, usize)> {
        let (driver, context) = self.owner(address)?;
        let _entered = driver.enter(context)?;
        driver.range(address)
    }

    fn buffer_id(&self, address: usize) -> Result<u64> {
        let driver = self.driver()?;
        let id = driver.buffer_id(address)?;
        // Who keeps what was learned of a buffer may read it by other ways than ours. Not all memory has this.
        let _ = driver.synchronize_copies(address);
        Ok(id)
    }

    fn register(&self, start: usize, len: usize) -> Result<()> {
        let context = match (self.driver)() {
            Some(driver) => driver.current().unwrap_or(None).map(|context| (driver, context)),
            None => None,
        };
        let pinned = match context {
            Some((driver, context)) => Pinned::Done(Registration::new(driver, context, start, len)?),
            None => Pinned::Wanted(len),
        };
        let before = self.held.lock().pinned.get_or_insert_default().insert(start, pinned);
        drop(before);
        Ok(())
    }

    fn unregister(&self, start: usize) -> Result<()> {
        let pinned = self.held.lock().pinned.as_mut().and_then(|pinned| pinned.remove(&start));
        pinned.map(drop).ok_or(Error::NotOnDevice)
    }

    fn device(&self) -> Result<i32> {
        self.driver()?.current_device()
    }

    fn pci(&self, device: i32) -> Result<[u16; 4]> {
        self.driver()?.pci(device)
    }

    fn reaches(&self, device: i32, other: i32) -> Result<bool> {
        self.driver()?.reaches(device, other)
    }

    fn end(&self) {
        let held = &mut *self.held.lock();
        held.streams = None;
        held.pinned = None;
        held.primaries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::fake::{self, bytes, host, host_bytes, left, transfer};

    /// Contexts: the primary ones of devices 0 and 1, and one of the program's own.
    const FIRST: usize = 1;
    const SECOND: usize = 2;
    const OWN: usize = 7;

    fn cuda() -> Cuda {
        Cuda::new(fake::driver)
    }

    fn numbers(len: usize) -> Vec<u8> {
        (0..len).map(|index| (index * 7 % 251) as u8).collect()
    }

    #[test]
    fn without_the_driver_everything_is_the_hosts() {
        let cuda = Cuda::new(|| None);
        let device = fake::program_allocates(FIRST, 0, false, 8);
        assert_eq!(cuda.place(device), Ok(Place::Host));
        assert_eq!(cuda.device(), Err(Error::NotLoaded));
        assert_eq!(cuda.allocate(None, 8).err(), Some(Error::NotLoaded));
        let (to, from) = (host(&[0; 4]), host(&[1, 2, 3, 4]));
        assert_eq!(cuda.copy(transfer(to, from, 4)), Ok(()));
        assert_eq!(host_bytes(to, 4), [1, 2, 3, 4]);
    }

    #[test]
    fn the_question_whether_there_are_devices_begins_nothing() {
        let cuda = cuda();
        fake::initialized(false);
        assert!(cuda.is_there(true), "the program may begin to use it, and is said to");
        fake::initialized(true);
        assert!(cuda.is_there(false));
        fake::fail("cuDeviceGetCount", 100);
        assert!(!cuda.is_there(true), "there is none");
        assert!(Cuda::new(|| None).is_there(true));
        assert_eq!(left(), [0; 4]);
    }

    #[test]
    fn an_address_is_asked_about_only_if_it_could_be_a_devices() {
        let cuda = cuda();
        let device = fake::program_allocates(SECOND, 1, true, 100);
        let place = cuda.place(device + 99).expect("an answer");
        let Place::Device(found) = place else { panic!("it is on a device") };
        assert_eq!((found.ordinal, found.is_managed), (1, true));
        assert_eq!(cuda.place(device + 100), Ok(Place::Host));
        let asked = fake::calls("cuPointerGetAttributes");
        let local = 0_u8;
        assert_eq!(cuda.place((&raw const local).addr()), Ok(Place::Host));
        assert_eq!(cuda.place(0), Ok(Place::Host));
        assert_eq!(fake::calls("cuPointerGetAttributes"), asked);
        fake::initialized(false);
        assert_eq!(cuda.place(device), Ok(Place::Host), "as in a forked child");
        fake::initialized(true);
        fake::fail("cuPointerGetAttributes", 700);
        assert_eq!(cuda.place(device), Err(Error::Driver(700)), "nobody knows");
    }

    #[test]
    fn copies_are_made_in_the_context_of_the_buffer_whatever_is_in_use() {
        let cuda = cuda();
        let data = numbers(1000);
        for (context, device) in [(FIRST, 0), (SECOND, 1), (OWN, 0)] {
            fake::program_uses(Some(context));
            let memory = fake::program_allocates(context, device, false, 1000);
            for current in [None, Some(FIRST), Some(SECOND)] {
                fake::program_uses(current);
                assert_eq!(cuda.copy(transfer(memory, host(&data), 1000)), Ok(()));
                assert_eq!(bytes(memory, 1000), data);
                let back = host(&[0; 1000]);
                assert_eq!(cuda.copy(transfer(back, memory, 1000)), Ok(()));
                assert_eq!(host_bytes(back, 1000), data);
                assert_eq!(fake::current(), Vec::from_iter(current), "what was in use is again");
            }
        }
        assert_eq!(left(), [3, 0, 0, 0], "a stream each, and no hold");
        cuda.end();
        assert_eq!(left(), [0; 4]);
    }

    #[test]
    fn memory_of_a_pool_is_copied_in_the_primary_context_of_its_device() {
        let cuda = cuda();
        fake::program_uses(Some(FIRST));
        let pool = fake::program_allocates(0, 1, false, 16);
        for _ in 0..2 {
            assert_eq!(cuda.copy(transfer(pool, host(&numbers(16)), 16)), Ok(()));
        }
        assert_eq!(bytes(pool, 16), numbers(16));
        assert_eq!(left(), [1, 0, 1, 0], "held once");
        fake::program_uses(Some(SECOND));
        assert_eq!(cuda.copy(transfer(pool, host(&numbers(8)), 8)), Ok(()));
        assert_eq!(fake::calls("cuDevicePrimaryCtxRetain"), 1, "that in use is of the device");
        cuda.end();
        assert_eq!(left(), [0; 4]);
    }

    /// A pool gives access to its own device, and the driver finds its way to all other memory.
    #[test]
    fn the_device_that_has_access_to_both_ranges_does_the_work() {
        let cuda = cuda();
        let data = numbers(3 << 20);
        fake::program_uses(Some(FIRST));
        let [pool, own, other] = [(0, 0), (FIRST, 0), (SECOND, 1)]
            .map(|(context, device)| fake::program_allocates(context, device, false, data.len()));
        let pool_of_other = fake::program_allocates(0, 1, false, data.len());
        let all = [pool, own, other, pool_of_other];
        let copied = |to, from| {
            for (address, value) in [(to, 0), (from, 1)] {
                let data: Vec<u8> = data.iter().map(|byte| byte * value).collect();
                assert_eq!(cuda.copy(transfer(address, host(&data), data.len())), Ok(()));
            }
            cuda.copy(transfer(to, from, data.len()))
        };
        for to in all {
            for from in all.into_iter().filter(|from| *from != to) {
                assert_eq!(
                    copied(to, from),
                    Ok(()),
                    "{:?}",
                    all.map(|address| (address == to, address == from))
                );
                assert!(bytes(to, data.len()) == data);
            }
        }
        // The same in a stream of the caller's, behind what is in front of it.
        let stream = Stream::default();
        assert_eq!(cuda.begin(transfer(pool, host(&data), data.len()), &stream), Ok(()));
        assert_eq!(cuda.begin(transfer(pool_of_other, pool, data.len()), &stream), Ok(()));
        assert!(bytes(pool_of_other, data.len()) == data);
        drop(stream);
        cuda.end();
    }

    #[test]
    fn a_context_that_has_gone_and_come_again_is_served() {
        let cuda = cuda();
        fake::program_uses(Some(OWN));
        let memory = fake::program_allocates(OWN, 0, false, 8);
        assert_eq!(cuda.copy(transfer(memory, host(&[1; 8]), 8)), Ok(()));
        fake::program_ends(OWN);
        fake::program_uses(Some(OWN));
        assert_eq!(cuda.copy(transfer(memory, host(&[2; 8]), 8)), Ok(()));
        assert_eq!(bytes(memory, 8), [2; 8]);
        // The same in a stream of the caller's.
        let stream = Stream::default();
        assert_eq!(cuda.begin(transfer(memory, host(&[3; 8]), 8), &stream), Ok(()));
        fake::program_ends(OWN);
        fake::program_uses(Some(OWN));
        assert_eq!(cuda.begin(transfer(memory, host(&[4; 8]), 8), &stream), Ok(()));
        let event = Event::default();
        assert_eq!(cuda.record(&event, &stream), Ok(()));
        while cuda.is_reached(&event) != Ok(true) {}
        assert_eq!(bytes(memory, 8), [4; 8]);
        drop((event, stream));
        fake::program_ends(OWN);
        fake::program_uses(None);
        cuda.end();
        assert_eq!(left(), [0; 4]);
    }

    #[test]
    fn overlapping_ranges_are_moved_as_by_memmove() {
        let cuda = cuda();
        let len = 5 << 20;
        let data = numbers(len);
        let memory = fake::program_allocates(FIRST, 0, false, len);
        for (to, from, count) in
            [(0, 1, len - 1), (1, 0, len - 1), (0, 3 << 20, 2 << 20), (2 << 20, 0, 3 << 20)]
        {
            assert_eq!(cuda.copy(transfer(memory, host(&data), len)), Ok(()));
            assert_eq!(cuda.copy(transfer(memory + to, memory + from, count)), Ok(()));
            let mut expected = data.clone();
            expected.copy_within(from..from + count, to);
            assert!(bytes(memory, len) == expected, "{count} bytes from {from} to {to}");
        }
        let (start, _) = cuda.range(memory + 5).expect("a range");
        assert_eq!(start, memory);
        assert_eq!(fake::calls("cuMemAlloc"), fake::calls("cuMemFree"), "what was taken aside is given back");
    }

    #[test]
    fn errors_of_a_copy_are_told_and_nothing_is_left() {
        let cuda = cuda();
        let memory = fake::program_allocates(FIRST, 0, false, 100);
        let to_it = transfer(memory, host(&[1; 100]), 100);
        for (name, code) in [("cuStreamCreate", 2), ("cuMemcpyAsync", 700), ("cuStreamSynchronize", 719)] {
            fake::fail(name, code);
            assert_eq!(cuda.copy(to_it).map_err(Error::number), Err(Some(code)), "{name}");
            assert_eq!(cuda.copy(to_it), Ok(()));
        }
        let over = transfer(memory, memory + 1, 99);
        fake::fail("cuMemAlloc", 2);
        assert_eq!(cuda.copy(over), Err(Error::OutOfMemory));
        fake::fail("cuMemcpyAsync", 700);
        assert_eq!(cuda.copy(over), Err(Error::Driver(700)));
        assert_eq!(fake::calls("cuMemAlloc"), fake::calls("cuMemFree") + 1);
        fake::end();
        cuda.end();
    }

    #[test]
    fn streams_and_events_made_before_there_is_a_device_come_to_life_with_the_first_copy() {
        let cuda = cuda();
        fake::initialized(false);
        let (stream, event) = (Stream::default(), Event::default());
        assert_eq!(cuda.record(&event, &stream), Ok(()));
        assert_eq!(cuda.is_reached(&event), Ok(true), "nothing to wait for");
        fake::initialized(true);
        assert_eq!(left(), [0; 4]);
        let memory = fake::program_allocates(SECOND, 1, false, 20);
        let data = numbers(20);
        let from = host(&data);
        assert_eq!(cuda.begin(transfer(memory, from, 10), &stream), Ok(()));
        assert_eq!(cuda.begin(transfer(memory + 10, from + 10, 10), &stream), Ok(()));
        assert_eq!(cuda.record(&event, &stream), Ok(()));
        assert_eq!(cuda.is_reached(&event), Ok(false));
        assert_eq!(cuda.is_reached(&event), Ok(false));
        assert_eq!(cuda.is_reached(&event), Ok(true));
        assert_eq!(bytes(memory, 20), data);
        assert_eq!(left(), [1, 1, 0, 0]);
        // The same event for a stream of another context.
        let (other, elsewhere) = (Stream::default(), fake::program_allocates(FIRST, 0, false, 4));
        assert_eq!(cuda.begin(transfer(elsewhere, from, 4), &other), Ok(()));
        assert_eq!(cuda.record(&event, &other), Ok(()));
        // What is the host's alone waits for what is in front of it.
        let back = host(&[0; 4]);
        assert_eq!(cuda.begin(transfer(back, elsewhere, 4), &other), Ok(()));
        let again = host(&[0; 4]);
        assert_eq!(cuda.begin(transfer(again, back, 4), &other), Ok(()));
        assert_eq!(host_bytes(again, 4), data[..4]);
        drop((stream, other, event));
        assert_eq!(left(), [0; 4]);
    }

    #[test]
    fn memory_is_pinned_as_soon_as_there_is_a_context() {
        let cuda = cuda();
        let (one, other) = (host(&[0; 8]), host(&[0; 8]));
        assert_eq!(cuda.register(one, 8), Ok(()));
        assert_eq!(cuda.register(other, 8), Ok(()));
        assert_eq!((fake::pinned(), cuda.unregister(other)), (0, Ok(())));
        let memory = fake::program_allocates(FIRST, 0, false, 8);
        assert_eq!(cuda.copy(transfer(memory, one, 8)), Ok(()));
        assert_eq!(fake::pinned(), 1);
        fake::program_uses(Some(FIRST));
        assert_eq!(cuda.register(other, 8), Ok(()));
        assert_eq!(fake::pinned(), 2);
        assert_eq!(cuda.unregister(one), Ok(()));
        assert_eq!((fake::pinned(), cuda.unregister(one)), (1, Err(Error::NotOnDevice)));
        cuda.end();
        assert_eq!(left(), [0; 4]);
    }

    #[test]
    fn allocations_and_what_is_asked_about_them() {
        let cuda = cuda();
        let one = cuda.allocate(Some(1), 64).expect("memory").into_address();
        let found = match cuda.place(one) {
            Ok(Place::Device(device)) => device.ordinal,
            other => panic!("{other:?}"),
        };
        assert_eq!((found, cuda.range(one + 63)), (1, Ok((one, 64))));
        assert_eq!(cuda.range(1).err(), Some(Error::NotOnDevice));
        assert!(cuda.buffer_id(one).is_ok());
        assert_eq!(cuda.buffer_id(one + 5), cuda.buffer_id(one));
        assert_eq!(fake::calls("cuPointerSetAttribute"), 3);
        assert_eq!(cuda.buffer_id(1).err(), Some(Error::Gone(1)));
        assert!(cuda.owner(one).is_ok());
        drop(cuda.allocate(None, 8).expect("memory"));
        assert_eq!(fake::calls("cuMemFree"), 1, "what is not handed over is freed");
        assert_eq!(cuda.allocate(Some(5), 8).err(), Some(Error::Gone(1)), "there is no such device");
        assert_eq!(
            (cuda.reaches(0, 1), cuda.reaches(1, 0), cuda.reaches(1, 1)),
            (Ok(true), Ok(false), Ok(true))
        );
        assert_eq!(cuda.pci(1), Ok([0, 0xAF, 0, 0]));
        assert_eq!(cuda.device().map_err(Error::number), Err(Some(201)), "none is in use");
        fake::program_uses(Some(SECOND));
        assert_eq!(cuda.device(), Ok(1));
        fake::program_frees();
        cuda.end();
        assert_eq!(left(), [0; 4]);
    }
}
