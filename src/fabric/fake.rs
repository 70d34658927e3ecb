//! A host for tests: buffers and requests that live for ever, and so are lent safely.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::loan::{Convertor, Loan, Piece, Route, View};
use super::operation::{Operation, Work};
use super::place::Place;
use super::registration::Device;
use super::standing::Standing;
use crate::error::{Error, Result};

/// A buffer, which may have to be packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    start: NonNull<u8>,
    len: usize,
    in_place: bool,
}

// SAFETY: the address of memory that lives for ever.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn new(bytes: &[u8], in_place: bool) -> Self {
        let memory = bytes.to_vec().leak();
        Self { start: NonNull::from(&mut *memory).cast(), len: memory.len(), in_place }
    }

    /// What is in it. Nobody may receive into it at the time: a test is one thread.
    pub(crate) fn bytes(self) -> Vec<u8> {
        // SAFETY: memory that lives for ever, of that many bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }.to_vec()
    }

    fn piece(self) -> Option<Piece> {
        self.in_place.then_some(Piece { start: self.start.as_ptr(), len: self.len })
    }
}

// SAFETY: the memory lives for ever, and tests leave it alone while it is lent.
unsafe impl Convertor for Buffer {
    fn packed_size(self) -> usize {
        self.len
    }

    fn payload(self, _route: Route) -> Option<Piece> {
        self.piece()
    }

    fn landing(self) -> Option<Piece> {
        self.piece()
    }

    fn device_payload(self, _route: Route) -> Option<Piece> {
        None
    }

    fn device_landing(self) -> Option<Piece> {
        None
    }

    fn device(self) -> Option<Device> {
        None
    }

    fn pack(self, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self.bytes());
        Ok(())
    }

    fn unpack(self, from: &[u8]) -> Result<()> {
        if from.len() > self.len {
            return Err(Error::BadParameter);
        }
        // SAFETY: in bounds of memory that lives for ever; the slice is another.
        unsafe { self.start.as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }
}

/// A request, known by its number.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) number: u64,
}

/// What a test keeps of a request that it lent.
pub(crate) struct Host<W: Work> {
    at: NonNull<Operation<W>>,
    pub(crate) number: u64,
    pub(crate) buffer: Buffer,
}

impl<W: Work<Convertor = Buffer, Request = Request>> Host<W> {
    /// Makes the place again, which a short path has given up.
    pub(crate) fn place(&self) -> Place<W> {
        // SAFETY: buffer and request live for ever.
        let loan = unsafe { Loan::new(self.buffer, Route::Prepared, Request { number: self.number }) };
        // SAFETY: memory that lives for ever, and that nobody else uses: the place before was given up.
        unsafe { Place::new(self.at, loan) }
    }
}

impl<W: Work> Host<W> {
    pub(crate) fn standing(&self) -> Standing<'_, W> {
        // SAFETY: memory that lives for ever, and that a place was made of.
        unsafe { Standing::at(self.at) }
    }
}

/// A receive of so many bytes into one piece of memory.
pub(crate) fn receive<W: Work<Convertor = Buffer, Request = Request>>(len: usize) -> (Place<W>, Host<W>) {
    place(Buffer::new(&vec![0; len], true))
}

/// A request with this buffer.
pub(crate) fn place<W: Work<Convertor = Buffer, Request = Request>>(buffer: Buffer) -> (Place<W>, Host<W>) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let memory = Box::leak(Box::<Operation<W>>::new_zeroed());
    let at = NonNull::from(memory).cast();
    // SAFETY: buffer and request live for ever.
    let loan = unsafe { Loan::new(buffer, Route::Prepared, Request { number }) };
    // SAFETY: memory that lives for ever, and that nobody else uses.
    (unsafe { Place::new(at, loan) }, Host { at, number, buffer })
}

/// A message of a blocking send.
pub(crate) fn view(buffer: Buffer) -> View<'static, Buffer> {
    // SAFETY: the buffer lives for ever.
    unsafe { View::new(buffer, Route::Prepared) }
}
