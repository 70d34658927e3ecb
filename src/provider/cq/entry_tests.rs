//! What programs read of a completion queue, by its table.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, OnceLock};

use super::super::argument::Foreign;
use super::super::domain::Domain;
use super::super::fabric::Fabric;
use super::super::object::body;
use super::super::offer::Registration;
use super::super::regions::Regions;
use super::super::sys::{self, CqAttr, CqErrEntry, CqErrEntrySource, OpsCq, fid_cq};
use super::{Completion, Cq, Entry, Failure, open};

const AGAIN: isize = -(libc::EAGAIN as isize);

/// A queue that is closed when it goes.
struct Opened(*mut fid_cq);

impl Opened {
    fn new(version: u32, attr: CqAttr) -> Self {
        let fabric = Arc::new(Fabric::new(version));
        let regions = Regions::new(Registration { virtual_addresses: false, provider_keys: false });
        let traffic = Arc::new(crate::sync::EngineCell::new(crate::provider::traffic::Traffic::new()));
        let domain = Arc::new(Domain {
            fabric,
            av_type: 0,
            addr_format: sys::FI_ADDR_GNI,
            regions: Arc::new(regions),
            traffic,
            automatic: None,
            helper: OnceLock::new(),
        });
        let mut attr = attr;
        let mut cq = ptr::null_mut();
        // SAFETY: attributes, and a variable.
        unsafe { open(&domain, &raw mut attr, &raw mut cq, ptr::null_mut()) }.expect("a queue");
        Self(cq)
    }

    fn cq(&self) -> &Arc<Cq> {
        // SAFETY: open.
        unsafe { body(self.0) }.expect("a queue")
    }

    fn ops(&self) -> &'static OpsCq {
        // SAFETY: open.
        let ops = unsafe { (*self.0).ops };
        // SAFETY: a table of this type, which is static.
        unsafe { &*ops.cast::<OpsCq>() }
    }

    fn put(&self, entry: Entry) {
        let place = self.cq().reserve().expect("a place");
        self.cq().put(place, entry);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: open; nothing stands on it.
        unsafe { super::super::object::close::<Cq>(self.0.cast()) }.expect("closed");
    }
}

fn attr(format: u32, wait_obj: u32, wait_cond: u32) -> CqAttr {
    CqAttr { size: 4, flags: 0, format, wait_obj, signaling_vector: 0, wait_cond, wait_set: ptr::null_mut() }
}

fn completion(number: u64) -> Completion {
    let place = |offset| Foreign(ptr::without_provenance_mut((number + offset) as usize));
    Completion {
        context: place(0),
        flags: number + 1,
        length: number as usize + 2,
        buffer: place(3),
        data: number + 4,
        tag: number + 5,
        source: number + 6,
    }
}

#[test]
fn every_format_is_how_the_longest_begins_and_no_more_is_written() {
    for (format, words) in [(0, 1), (1, 1), (2, 3), (3, 5), (4, 6)] {
        let opened = Opened::new(sys::version(1, 17), attr(format, sys::FI_WAIT_NONE, 0));
        opened.put(Entry::Done(completion(10)));
        opened.put(Entry::Done(completion(20)));
        let mut room = [0xEEEE_EEEE_u64; 13];
        let mut sources = [0; 2];
        let readfrom = opened.ops().readfrom.expect("a full table");
        // SAFETY: room for two entries of any format, and for two addresses.
        let count = unsafe { readfrom(opened.0, room.as_mut_ptr().cast(), 2, sources.as_mut_ptr()) };
        assert_eq!(count, 2);
        assert_eq!(sources, [16, 26]);
        let expected: Vec<u64> =
            [10, 20].iter().flat_map(|first| (0..words).map(move |word| first + word)).collect();
        assert_eq!(room[..expected.len()], expected, "format {format}");
        assert!(room[expected.len()..].iter().all(|word| *word == 0xEEEE_EEEE));
        let read = opened.ops().read.expect("a full table");
        // SAFETY: the same.
        assert_eq!(unsafe { read(opened.0, room.as_mut_ptr().cast(), 2) }, AGAIN);
    }
}

#[test]
fn a_failure_is_as_long_as_its_reader_knows() {
    for (version, is_longer) in
        [(sys::version(1, 4), false), (sys::version(1, 19), false), (sys::version(1, 20), true)]
    {
        let opened = Opened::new(version, attr(4, sys::FI_WAIT_NONE, 0));
        opened.put(Entry::Failed(Box::new(Failure {
            of: completion(10),
            overflow: 7,
            code: 265,
            detail: 265,
        })));
        let mut more = [0_u8; 4];
        // SAFETY: zero is a value of these numbers and pointers.
        let mut entry = unsafe { MaybeUninit::<CqErrEntrySource>::zeroed().assume_init() };
        entry.src_addr = 99;
        entry.before.first.err_data = more.as_mut_ptr().cast();
        entry.before.err_data_size = more.len();
        let mut room = 0_u64;
        let read = opened.ops().read.expect("a full table");
        // SAFETY: not even one entry is written.
        assert_eq!(unsafe { read(opened.0, (&raw mut room).cast(), 1) }, -259);
        let readerr = opened.ops().readerr.expect("a full table");
        // SAFETY: the longest form.
        assert_eq!(unsafe { readerr(opened.0, (&raw mut entry).cast::<CqErrEntry>(), 0) }, 1);
        let said = entry.before;
        assert_eq!(
            (said.first.op_context.addr(), said.first.flags, said.first.len, said.first.tag),
            (10, 11, 12, 15)
        );
        assert_eq!((said.first.olen, said.first.err, said.first.prov_errno), (7, 265, 265));
        let behind = if version < sys::version(1, 5) { more.len() } else { 0 };
        assert_eq!(said.err_data_size, behind, "before 1.5 it is not there, and what is, is somebody else's");
        assert_eq!(
            said.first.err_data.is_null(),
            version < sys::version(1, 5),
            "the caller's room stays its own"
        );
        assert_eq!(entry.src_addr, if is_longer { 16 } else { 99 });
        // SAFETY: the same.
        assert_eq!(unsafe { readerr(opened.0, (&raw mut entry).cast(), 0) }, AGAIN);
    }
}

#[test]
fn a_waiting_read_waits_for_as_many_as_it_says() {
    let opened = Opened::new(sys::version(1, 17), attr(1, sys::FI_WAIT_UNSPEC, sys::FI_CQ_COND_THRESHOLD));
    let sread = opened.ops().sread.expect("a full table");
    let mut room = [0_u64; 4];
    let read = |room: &mut [u64; 4], least: usize, timeout| {
        // SAFETY: room for four entries, and a number.
        unsafe { sread(opened.0, room.as_mut_ptr().cast(), 4, (&raw const least).cast(), timeout) }
    };
    opened.put(Entry::Done(completion(1)));
    assert_eq!(read(&mut room, 2, 5), 1, "the time is over: what there is");
    assert_eq!(read(&mut room, 2, 5), AGAIN);
    std::thread::scope(|scope| {
        let cq = Arc::clone(opened.cq());
        scope.spawn(move || {
            for number in 1..=3 {
                let place = cq.reserve().expect("a place");
                cq.put(place, Entry::Done(completion(number)));
            }
        });
        assert_eq!(read(&mut room, 3, -1), 3);
    });
    assert_eq!(room[..3], [1, 2, 3]);
}

#[test]
fn nothing_is_closed_that_another_stands_on() {
    let opened = Opened::new(sys::version(1, 17), attr(1, sys::FI_WAIT_NONE, 0));
    let held = Arc::clone(opened.cq());
    // SAFETY: open.
    let refused = unsafe { super::super::object::close::<Cq>(opened.0.cast()) };
    assert_eq!(refused.map_err(|error| error.0), Err(libc::EBUSY));
    drop(held);
}
