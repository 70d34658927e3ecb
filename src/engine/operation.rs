//! What somebody asked for, until it is over: sends, PUTs, GETs, and what peers ask of us.

use super::coverage::Coverage;
use super::interface::{Cookie, Memory, Piece};
use crate::wire::usnic::{Body, HEADER_LEN, Kind, MAX_PAYLOAD, header_len};

/// What is to be done.
pub(super) enum Job<M> {
    /// A fragment to deliver.
    Send { tag: u8, pieces: [Option<M>; 2], split: u64, fragment: u32, awaited: bool },
    /// Bytes for a registration of the peer.
    Put { local: M, registration: u32, generation: u32, offset: u64 },
    /// Bytes wanted from a registration of the peer.
    Get { local: M, registration: u32, generation: u32, offset: u64, arrived: Coverage },
    /// Bytes that the peer wants from a registration of ours.
    Serve { memory: M, registration: u32, generation: u32, offset: u64, operation: u64 },
    /// A PUT or GET of the peer that is not possible.
    Refuse { operation: u64 },
    /// Cancelled, or done: only its segments are still known to the peer.
    Nothing,
}

/// A job and how far it has got.
pub(super) struct Operation<M> {
    /// Place of its endpoint in the table.
    pub(super) endpoint: u32,
    /// Its number among all operations; the table uses its places again.
    pub(super) raw: u64,
    /// Who is to be told; nobody twice.
    pub(super) cookie: Option<Cookie>,
    pub(super) job: Job<M>,
    /// Bytes to send.
    pub(super) total: u64,
    /// Bytes that have been cut into segments.
    pub(super) cut: u64,
    /// Nothing is left to cut.
    pub(super) whole: bool,
    /// Segments not acknowledged.
    pub(super) open: u32,
    /// On its endpoint's queue.
    pub(super) queued: bool,
}

/// The next segment of an operation.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub(super) kind: Kind,
    pub(super) len: u64,
}

/// Bytes of an operation whose segment was withdrawn: they are sent anew, cut for the path as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withdrawn {
    pub(super) operation: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Nothing of them was sent anew yet.
    pub(super) untouched: bool,
}

/// Most payload of a packet of this kind in such a datagram.
pub(super) const fn room(kind: Kind, max_datagram: usize) -> u64 {
    let room = max_datagram.saturating_sub(header_len(kind));
    if room > MAX_PAYLOAD { MAX_PAYLOAD as u64 } else { room as u64 }
}

impl<M: Memory> Operation<M> {
    pub(super) fn new(endpoint: u32, cookie: Option<Cookie>, job: Job<M>, total: u64) -> Self {
        Self { endpoint, raw: 0, cookie, job, total, cut: 0, whole: false, open: 0, queued: true }
    }

    /// Whether it fits a datagram of the priority channel, and belongs there.
    pub(super) fn is_tiny(&self, max_tiny: usize) -> bool {
        match self.job {
            Job::Send { .. } => HEADER_LEN as u64 + self.total <= max_tiny as u64,
            Job::Get { .. } | Job::Refuse { .. } => true,
            _ => false,
        }
    }

    /// What the next segment is.
    #[inline]
    pub(super) fn next_cut(&self, max_datagram: usize) -> Cut {
        let kind = match self.job {
            Job::Send { .. } => {
                // What has begun in chunks ends in chunks, however wide the path has become.
                if self.cut == 0 && self.total <= room(Kind::Fragment, max_datagram) {
                    return Cut { kind: Kind::Fragment, len: self.total };
                }
                Kind::Chunk
            }
            Job::Put { .. } => Kind::Put,
            Job::Serve { .. } => Kind::GetData,
            Job::Get { .. } => return Cut { kind: Kind::GetRequest, len: 0 },
            Job::Refuse { .. } => return Cut { kind: Kind::Refused, len: 0 },
            Job::Nothing => return Cut { kind: Kind::Void, len: 0 },
        };
        Cut { kind, len: (self.total - self.cut).min(room(kind, max_datagram)) }
    }

    /// What the next segment of data is whose first segment was withdrawn.
    pub(super) fn recut(&self, data: &Withdrawn, max_datagram: usize) -> Cut {
        let len = data.end - data.start;
        let kind = match self.job {
            Job::Send { fragment: 0, .. } if len <= room(Kind::Fragment, max_datagram) => Kind::Fragment,
            Job::Send { .. } => Kind::Chunk,
            Job::Put { .. } => Kind::Put,
            Job::Serve { .. } => Kind::GetData,
            Job::Get { .. } | Job::Refuse { .. } | Job::Nothing => return Cut { kind: Kind::Void, len: 0 },
        };
        Cut { kind, len: len.min(room(kind, max_datagram)) }
    }

    /// The extension of the segment at `offset`.
    #[inline]
    pub(super) fn body(&self, kind: Kind, at: u64) -> Body {
        match (&self.job, kind) {
            (_, Kind::Fragment) => Body::Fragment,
            (Job::Send { fragment, .. }, Kind::Chunk) => {
                Body::Chunk { fragment: *fragment, size: self.total as u32, offset: at as u32 }
            }
            (&Job::Put { registration, generation, offset, .. }, _) => {
                Body::Put { registration, generation, offset: offset + at, operation: self.raw }
            }
            (Job::Get { registration, generation, offset, local, .. }, _) => Body::GetRequest {
                registration: *registration,
                generation: *generation,
                offset: *offset,
                length: local.len() as u64,
                operation: self.raw,
            },
            (&Job::Serve { operation, .. }, _) => Body::GetData { operation, offset: at },
            (&Job::Refuse { operation }, _) => Body::Refused { operation },
            _ => Body::Void,
        }
    }

    /// Where the bytes of the segment at `at` are.
    #[inline]
    pub(super) fn pieces(&self, at: u64, len: u64) -> [Option<Piece<M>>; 2] {
        let piece = |memory: &M, offset: u64, len: u64| {
            (len > 0).then(|| Piece { memory: memory.clone(), offset: offset as usize, len: len as usize })
        };
        match &self.job {
            Job::Send { pieces, split, .. } => {
                let first = split.saturating_sub(at).min(len);
                [
                    pieces[0].as_ref().and_then(|memory| piece(memory, at, first)),
                    pieces[1]
                        .as_ref()
                        .and_then(|memory| piece(memory, at.saturating_sub(*split), len - first)),
                ]
            }
            Job::Put { local, .. } => [piece(local, at, len), None],
            Job::Serve { memory, offset, .. } => [piece(memory, offset + at, len), None],
            Job::Get { .. } | Job::Refuse { .. } | Job::Nothing => [None, None],
        }
    }

    /// Whether somebody here waits for the end of its last segment. Who has served a GET does not.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.job, Job::Send { awaited: true, .. } | Job::Put { .. })
    }

    /// Tag of the PML.
    pub(super) fn tag(&self) -> u8 {
        if let Job::Send { tag, .. } = self.job { tag } else { 0 }
    }
}
