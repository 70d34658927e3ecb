//! [`Stream`]: a mailbox between nodes: entries one after the other on a connection of TCP.
//!
//! What the kernel does not take at once of an entry is kept and goes first; before that has gone there is no room for
//! another. Short entries are read into a buffer and taken there. A [long](Long) one, a piece of a message, never is in a
//! buffer as a whole: it is sent from where it lies and received where it belongs, as far as it goes each time.
//!
//! The end of a connection is heard of when all that has come before it is taken.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{Shutdown, shutdown, sockopt};

use super::silence::Silence;
use crate::link::{Lent, stream};
use crate::shm::{Arrival, Corrupt};
use crate::sync::fork::Own;
use crate::wire::gni::stream::{HEADER, Header};
use crate::wire::gni::{mailbox, remote};

/// Longest message of an entry that is taken whole: a copy of it costs less than the round trip that a longer one waits for.
pub const MESSAGE: usize = 64 << 10;
/// Longest payload of such an entry: there is a head before the message.
pub const WHOLE: usize = MESSAGE + 512;
const _: () = assert!(WHOLE - MESSAGE >= mailbox::HEAD && WHOLE - MESSAGE >= remote::HEAD);
/// Bytes of the head of a long entry, which its payload begins with.
const HEAD: usize = 16;
/// Longest payload of any.
pub const LONGEST: usize = HEAD + (256 << 10);
/// Bytes of the buffer.
const INBOX: usize = 2 * WHOLE;
/// Bytes that are read behind the end of a long entry.
const BEHIND: usize = 4 << 10;
/// Bytes that are read of a peer that nobody listens to any more, at a time.
const DISCARDED: usize = 1 << 20;

/// Whether an error says that the network has no way to the peer now.
pub(super) fn is_no_way(error: &io::Error) -> bool {
    let kinds = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable, ErrorKind::NetworkDown];
    kinds.contains(&error.kind())
}

/// A connection.
pub struct Stream {
    /// A child of fork(2) does not keep it open when this process ends.
    _own: Own,
    socket: OwnedFd,
    /// What has come and is not taken lies from one place to the other.
    inbox: Vec<u8>,
    from: usize,
    to: usize,
    /// What is kept, and how much of it has gone.
    outbox: Vec<u8>,
    gone: usize,
    /// Bytes of a long entry that have not been sent, and those of the one that comes that are here.
    owed: usize,
    landed: usize,
    /// There may be something to be read.
    may_read: bool,
    /// It is looked at each time: once is enough.
    is_hot: bool,
    is_dry: bool,
    /// Nothing comes any more; nothing goes.
    is_over: bool,
    is_broken: bool,
    /// The network has no way there now.
    is_unreached: Cell<bool>,
    /// Something has gone: there was a connection.
    has_begun: bool,
    silence: Silence,
    /// Something was on its way at the last look: until the next one, no time of the kernel's ends the connection.
    is_held: bool,
    /// Nobody listens any more: what comes is no entry, for it begins anywhere.
    is_parted: bool,
}

/// A long entry that comes.
pub struct Long {
    /// Its kind.
    pub kind: u8,
    /// Its head: two words.
    pub head: [u64; 2],
    /// Bytes behind that.
    pub length: usize,
    /// Those of them that are where they belong.
    pub landed: usize,
}

/// What is at the front of the buffer.
enum Front {
    /// A part of an entry at most.
    Part,
    /// An entry of this kind with so many bytes.
    Whole(u8, usize),
    /// The beginning of a long one.
    Long(u8, usize),
}

impl Stream {
    /// A connection that may not be there yet, on which these bytes go first.
    pub fn new(socket: OwnedFd, first: &[u8]) -> Self {
        Self {
            _own: Own::new(&socket),
            socket,
            inbox: Vec::new(),
            from: 0,
            to: 0,
            outbox: first.to_vec(),
            gone: 0,
            owed: 0,
            landed: 0,
            may_read: true,
            is_hot: false,
            is_dry: false,
            is_over: false,
            is_broken: false,
            is_unreached: Cell::new(false),
            has_begun: first.is_empty(),
            silence: Silence::default(),
            is_held: false,
            is_parted: false,
        }
    }

    /// The socket.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Something may have come.
    #[inline]
    pub fn wake(&mut self) {
        (self.may_read, self.is_dry) = (true, false);
    }

    /// It is woken each time from now on, or only when something has come.
    pub fn heat(&mut self, is_hot: bool) {
        (self.is_hot, self.is_dry) = (is_hot, false);
    }

    /// Something may be there that was not looked for.
    pub fn may_read(&self) -> bool {
        self.may_read && !self.is_dry && !self.is_over
    }

    /// Nothing comes any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// There never was a connection, because the network had no way there: nothing is lost, and there may be one later.
    pub fn is_unreached(&self) -> bool {
        self.is_unreached.get() && !self.has_begun
    }

    /// There was a connection.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// For how long the peer has not answered what was sent to it, nanoseconds; `None` where nothing is on its way.
    pub fn silence(&mut self, now: u64) -> Option<u64> {
        let standing = stream::standing(&self.socket);
        if standing.is_some() != std::mem::replace(&mut self.is_held, standing.is_some()) {
            self.silence = Silence::default();
            // The kernel's own time for it is the administrator's, and may be far shorter.
            let most = if self.is_held { i32::MAX as u32 } else { 0 };
            let _ = sockopt::set_tcp_user_timeout(&self.socket, most);
        }
        let silence = standing.map(|standing| self.silence.lasts(&standing, now));
        let is_kept = self.owed != 0 || !self.outbox.is_empty();
        silence.or(if is_kept { Some(0) } else { None })
    }

    /// Why nothing goes or comes any more.
    fn note(&self, error: &io::Error) {
        if is_no_way(error) {
            self.is_unreached.set(true);
        }
    }

    /// Sends what is kept; whether nothing is any more.
    pub fn flush(&mut self) -> bool {
        while self.gone < self.outbox.len() && !self.is_broken {
            match self.send(&self.outbox[self.gone..], [Lent::EMPTY; 2]) {
                Some(0) => return false,
                Some(sent) => {
                    self.has_begun = true;
                    self.gone += sent;
                }
                None => self.is_broken = true,
            }
        }
        self.outbox.clear();
        self.gone = 0;
        !self.is_broken
    }

    /// A part of what was [pushed](Self::push) has not gone: it goes when the kernel has room, and this side calls.
    pub fn is_keeping(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// How many bytes have gone; `None`: none ever will.
    fn send(&self, head: &[u8], pieces: [Lent; 2]) -> Option<usize> {
        loop {
            match stream::send(&self.socket, head, pieces) {
                Ok(sent) => return Some(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.note(&error);
                    return None;
                }
            }
        }
    }

    /// Whether an entry may begin.
    fn is_free(&mut self) -> bool {
        self.owed == 0 && (self.outbox.is_empty() && !self.is_broken || self.flush())
    }

    /// Sends an entry; false where there is no room yet.
    pub fn push(&mut self, kind: u8, pieces: [Lent; 2]) -> bool {
        let length = pieces[0].len() + pieces[1].len();
        if !self.is_free() || length > WHOLE {
            return false;
        }
        let header = Header { kind, length: length as u32 }.emit();
        let Some(mut sent) = self.send(&header, pieces) else {
            self.is_broken = true;
            return false;
        };
        if sent == 0 {
            return false;
        }
        if sent < HEADER + length {
            self.outbox.extend_from_slice(&header[sent.min(HEADER)..]);
            sent -= sent.min(HEADER);
            for piece in pieces {
                let here = sent.min(piece.len());
                piece.slice(here, piece.len() - here).append_to(&mut self.outbox);
                sent -= here;
            }
        }
        true
    }

    /// Begins a long entry with a head and so many bytes behind it, which [follow](Self::go_on); false where there is no
    /// room yet.
    pub fn begin(&mut self, kind: u8, head: &[u8], length: usize) -> bool {
        let is_fit = head.len() == HEAD && length != 0 && HEAD + length <= LONGEST;
        if !self.is_free() || !is_fit {
            return false;
        }
        self.outbox.extend_from_slice(&Header { kind, length: (HEAD + length) as u32 }.emit());
        self.outbox.extend_from_slice(head);
        self.owed = length;
        true
    }

    /// Bytes that are to follow.
    pub fn owed(&self) -> usize {
        self.owed
    }

    /// Sends what follows of a long entry, from where it lies; how much of it has gone.
    pub fn go_on(&mut self, piece: Lent) -> usize {
        let piece = piece.slice(0, piece.len().min(self.owed));
        if self.is_broken {
            return 0;
        }
        // The header is on its way with it.
        let kept = self.outbox.len() - self.gone;
        let Some(sent) = self.send(&self.outbox[self.gone..], [piece, Lent::EMPTY]) else {
            self.is_broken = true;
            return 0;
        };
        if sent < kept {
            self.gone += sent;
            return 0;
        }
        self.outbox.clear();
        self.gone = 0;
        self.owed -= sent - kept;
        sent - kept
    }

    fn front(&self) -> Result<Front, Corrupt> {
        let here = &self.inbox[self.from..self.to];
        let Some(header) = here.first_chunk::<HEADER>() else { return Ok(Front::Part) };
        let Header { kind, length } = Header::parse(*header).ok_or(Corrupt::Kind)?;
        let length = length as usize;
        match here.len() - HEADER {
            _ if length > LONGEST => Err(Corrupt::Length),
            come if length > WHOLE && come >= HEAD => Ok(Front::Long(kind, length)),
            come if length <= WHOLE && come >= length => Ok(Front::Whole(kind, length)),
            _ => Ok(Front::Part),
        }
    }

    /// Reads into pieces of memory, and then into the buffer, so many bytes at most; how many have come into the pieces.
    /// `None`: there is nothing now.
    fn fill(&mut self, pieces: &[Lent], most: usize) -> Option<usize> {
        if !self.may_read() {
            return None;
        }
        if self.inbox.is_empty() {
            // Of the kernel, which gives each page when it is first written to.
            self.inbox = vec![0; INBOX];
        }
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.from > 0 && INBOX - self.to < HEADER + WHOLE {
            self.inbox.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        let room = (self.to + most).min(INBOX) - self.to;
        loop {
            match stream::receive(&self.socket, pieces, &mut self.inbox[self.to..self.to + room]) {
                Ok(0) => self.is_over = true,
                Ok(come) => {
                    self.is_dry = self.is_hot && come < wanted + room;
                    let here = come.min(wanted);
                    self.to += come - here;
                    return Some(here);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.may_read = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.is_over = true;
                    self.note(&error);
                }
            }
            return None;
        }
    }

    /// Whether there is something to be [taken](Self::take): an entry, or the end.
    ///
    /// # Errors
    /// When the peer breaks the rules.
    pub fn has_next(&mut self) -> Result<bool, Corrupt> {
        loop {
            match self.front()? {
                Front::Whole(..) => return Ok(true),
                Front::Long(..) => return Ok(false),
                Front::Part if self.is_parted || self.fill(&[], INBOX).is_none() => return Ok(self.is_over),
                Front::Part => {}
            }
        }
    }

    /// The next entry, to be [released](Self::release) before the next is taken.
    ///
    /// # Errors
    /// When the peer breaks the rules, or there is an end.
    pub fn take(&mut self) -> Result<Option<Arrival>, Corrupt> {
        match self.front()? {
            Front::Whole(tag, length) => {
                let start = self.from + HEADER;
                let bytes = stream::lend(&mut self.inbox[start..start + length]);
                Ok(Some(Arrival { tag, bytes, is_cut: false }))
            }
            Front::Part if self.is_over => Err(Corrupt::Read),
            _ => Ok(None),
        }
    }

    /// Kind of the next entry, if it is there.
    pub fn next_kind(&self) -> Option<u8> {
        match self.front() {
            Ok(Front::Whole(kind, _)) => Some(kind),
            _ => None,
        }
    }

    /// The entry that was taken is done with.
    pub fn release(&mut self) {
        if let Ok(Front::Whole(_, length)) = self.front() {
            self.from += HEADER + length;
        }
    }

    /// The long entry that is next, if one is.
    ///
    /// # Errors
    /// When the peer breaks the rules.
    pub fn long(&self) -> Result<Option<Long>, Corrupt> {
        let Front::Long(kind, length) = self.front()? else { return Ok(None) };
        let head = &self.inbox[self.from + HEADER..][..HEAD];
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
        Ok(Some(Long { kind, head: [word(0), word(8)], length: length - HEAD, landed: self.landed }))
    }

    /// Reads more of the long entry that is next: pieces of memory are where its next bytes belong, and `length` bytes are
    /// still to come. Whether all are here, with which it is done with.
    ///
    /// # Errors
    /// There is an end before.
    pub fn land(&mut self, pieces: &[Lent], length: usize) -> Result<bool, Corrupt> {
        let (start, mut done) = (self.from + HEADER + HEAD, 0);
        let mut left: [Lent; stream::PIECES - 1] = [Lent::EMPTY; stream::PIECES - 1];
        let mut count = 0;
        // What came with the head.
        let here = (self.to - start).min(length);
        for piece in pieces {
            let part = (here - done).min(piece.len());
            piece.write(0, &self.inbox[start + done..start + done + part]);
            done += part;
            if part < piece.len() && count < left.len() {
                left[count] = piece.slice(part, piece.len() - part);
                count += 1;
            }
        }
        self.inbox.copy_within(start + done..self.to, start);
        self.to -= done;
        self.landed += done;
        if done < length {
            let wanted: usize = left[..count].iter().map(|piece| piece.len()).sum();
            // What follows pieces that are left out does not belong into the buffer.
            let most = if wanted == length - done { BEHIND } else { 0 };
            let come = self.fill(&left[..count], most);
            if come.is_none() && self.is_over {
                return Err(Corrupt::Read);
            }
            done += come.unwrap_or(0);
            self.landed += come.unwrap_or(0);
        }
        if done < length {
            return Ok(false);
        }
        self.from += HEADER + HEAD;
        self.landed = 0;
        Ok(true)
    }

    /// Nobody listens any more: sends what is kept, and reads what comes to nobody, so that the end of the connection is
    /// one in which nothing of this side is lost.
    pub fn part(&mut self) {
        self.flush();
        (self.is_parted, self.landed) = (true, 0);
        let mut read = 0;
        while read < DISCARDED && !self.is_over {
            (self.from, self.to) = (0, 0);
            self.wake();
            self.is_hot = false;
            if self.fill(&[], INBOX).is_none() {
                break;
            }
            read += self.to;
        }
        (self.from, self.to) = (0, 0);
    }

    /// What has not gone yet goes when the kernel can send it.
    pub fn end(mut self) {
        self.part();
        let _: io::Result<()> = shutdown(&self.socket, Shutdown::Write).map_err(io::Error::from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Stream, Stream) {
        let (one, two) = UnixStream::pair().expect("sockets");
        (Stream::new(one.into(), &[]), Stream::new(two.into(), &[]))
    }

    fn lend(bytes: &mut [u8]) -> Lent {
        stream::lend(bytes)
    }

    fn take(stream: &mut Stream) -> Option<(u8, Vec<u8>)> {
        stream.wake();
        if !stream.has_next().expect("sound") {
            return None;
        }
        let arrival = stream.take().expect("sound")?;
        let mut bytes = Vec::new();
        arrival.bytes.append_to(&mut bytes);
        stream.release();
        Some((arrival.tag, bytes))
    }

    #[test]
    fn entries_come_in_order_and_whole() {
        let (mut one, mut two) = pair();
        let (mut head, mut rest) = (*b"head", vec![5; 9000]);
        assert!(one.push(7, [lend(&mut head), lend(&mut rest)]));
        assert!(one.push(8, [Lent::EMPTY; 2]));
        assert_eq!(take(&mut two), Some((7, [b"head".as_slice(), &rest].concat())));
        assert_eq!(two.next_kind(), Some(8));
        assert_eq!(take(&mut two), Some((8, Vec::new())));
        assert_eq!((take(&mut two), two.next_kind()), (None, None));
    }

    #[test]
    fn who_does_not_read_leaves_no_room_and_loses_nothing() {
        let (mut one, mut two) = pair();
        let mut bytes = vec![0; 20_000];
        let mut sent = 0_u32;
        loop {
            bytes[..4].copy_from_slice(&sent.to_le_bytes());
            if !one.push(1, [lend(&mut bytes), Lent::EMPTY]) {
                break;
            }
            sent += 1;
        }
        assert!(sent > 2 && !one.push(2, [Lent::EMPTY; 2]));
        for number in 0..sent {
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            one.flush();
            assert_eq!(take(&mut two), Some((1, bytes.clone())), "{number} of {sent}");
        }
        assert!(one.push(2, [Lent::EMPTY; 2]));
        assert_eq!(take(&mut two), Some((2, Vec::new())));
    }

    #[test]
    fn an_end_is_heard_behind_what_was_said() {
        let (mut one, mut two) = pair();
        let mut bytes = *b"last words";
        assert!(one.push(1, [lend(&mut bytes), Lent::EMPTY]));
        one.end();
        assert_eq!(take(&mut two), Some((1, b"last words".to_vec())));
        assert_eq!((two.has_next(), two.is_over()), (Ok(true), true));
        assert_eq!(two.take().map(|_| ()), Err(Corrupt::Read));
        let mut more = *b"to nobody";
        let pushed: Vec<bool> = (0..3).map(|_| two.push(1, [lend(&mut more), Lent::EMPTY])).collect();
        assert!(!pushed[2]);
    }

    /// Sends a long entry as far as it goes, and receives it as far as it has come, until it is here.
    fn long(one: &mut Stream, two: &mut Stream, bytes: &mut [u8], room: &mut [&mut [u8]]) {
        let length = bytes.len();
        assert!(one.begin(3, &[[1; 8], [2; 8]].concat(), length));
        let mut gone = 0;
        loop {
            gone += one.go_on(lend(&mut bytes[gone..]));
            assert_eq!(one.owed(), length - gone);
            two.wake();
            assert_eq!(two.has_next(), Ok(false));
            let Some(Long { kind, head, length: whole, landed }) = two.long().expect("sound") else {
                continue;
            };
            assert_eq!(
                (kind, head, whole),
                (3, [u64::from_le_bytes([1; 8]), u64::from_le_bytes([2; 8])], length)
            );
            let (mut skip, mut parts) = (landed, Vec::new());
            for piece in room.iter_mut() {
                let from = skip.min(piece.len());
                skip -= from;
                if from < piece.len() {
                    parts.push(lend(&mut piece[from..]));
                }
            }
            if two.land(&parts, length - landed).expect("sound") {
                break;
            }
        }
        assert_eq!(gone, length);
    }

    #[test]
    fn a_long_entry_goes_from_where_it_lies_to_where_it_belongs() {
        let (mut one, mut two) = pair();
        for length in [WHOLE + 1, 100_000, LONGEST - HEAD] {
            let mut bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
            let (mut first, mut second) = (vec![0; 40_000.min(length / 2)], vec![0; length]);
            second.truncate(length - first.len());
            let mut before = *b"before";
            assert!(one.push(1, [lend(&mut before), Lent::EMPTY]));
            assert_eq!(take(&mut two), Some((1, b"before".to_vec())));
            long(&mut one, &mut two, &mut bytes, &mut [&mut first, &mut second]);
            assert!([first, second].concat() == bytes, "{length}");
            assert!(one.push(1, [lend(&mut before), Lent::EMPTY]));
            assert_eq!(take(&mut two), Some((1, b"before".to_vec())));
        }
    }

    #[test]
    fn nothing_goes_between_the_parts_of_a_long_entry() {
        let (mut one, _two) = pair();
        let mut bytes = vec![1; WHOLE + 9];
        assert!(one.begin(3, &[0; HEAD], bytes.len()));
        assert!(!one.push(1, [Lent::EMPTY; 2]) && !one.begin(3, &[0; HEAD], 1));
        let mut gone = 0;
        while gone < bytes.len() {
            gone += one.go_on(lend(&mut bytes[gone..]));
        }
        assert!(one.push(1, [Lent::EMPTY; 2]));
    }

    #[test]
    fn what_follows_where_nobody_listens_any_more_is_no_entry() {
        let (mut one, mut two) = pair();
        // The middle of it looks like entries.
        let mut bytes = Header { kind: 1, length: 0 }.emit().repeat(WHOLE);
        let (mut gone, mut room) = (0, vec![0; bytes.len()]);
        assert!(one.begin(3, &[0; HEAD], LONGEST - HEAD));
        gone += one.go_on(lend(&mut bytes[..1000 * HEADER]));
        two.wake();
        assert_eq!(two.has_next(), Ok(false));
        assert_eq!(two.long().expect("sound").map(|long| long.landed), Some(0));
        assert_eq!(two.land(&[lend(&mut room)], LONGEST - HEAD), Ok(false));
        two.part();
        gone += one.go_on(lend(&mut bytes[gone..2000 * HEADER]));
        assert!(gone > 1000 * HEADER);
        assert_eq!(take(&mut two), None);
        assert!(two.long().expect("sound").is_none() && two.next_kind().is_none());
        // The end is heard nevertheless.
        drop(one);
        two.part();
        assert_eq!((two.has_next(), two.is_over()), (Ok(true), true));
    }

    #[test]
    fn what_is_no_entry_is_the_end() {
        for bytes in [[0xFF; HEADER], Header { kind: 1, length: LONGEST as u32 + 1 }.emit()] {
            let (one, two) = UnixStream::pair().expect("sockets");
            let mut stream = Stream::new(two.into(), &[]);
            let mut bytes = bytes;
            assert_eq!(
                crate::link::stream::send(&one, &[], [lend(&mut bytes), Lent::EMPTY]).ok(),
                Some(HEADER)
            );
            assert!(stream.has_next().is_err() && stream.take().is_err() && stream.long().is_err());
        }
    }
}
