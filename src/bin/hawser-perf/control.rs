//! The connection over which the two sides agree: a greeting, then frames.
//!
//! Whoever is at its other end may be anybody: what comes is bounded before it is kept, and nothing is waited for
//! longer than the patience of this side. A side that fails says why, and the other one repeats it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hawser::link::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::signals;

/// What each side says first: who it is, and the version of all that follows.
const GREETING: [u8; 12] = *b"hawserpf\x01\0\0\0";
/// How much of it says who it is.
const MAGIC: usize = 8;
/// How long a stranger may take for it, nanoseconds.
const GREETING_PATIENCE: u64 = 5_000_000_000;
/// Kind and length before the bytes of a frame.
const HEAD: usize = 5;
/// Most bytes of a frame.
const LONGEST: usize = 1 << 16;
/// Most frames that wait to be asked for.
const MOST: usize = 64;
/// How often a side that is busy says that it lives, nanoseconds.
const ALIVE: u64 = 1_000_000_000;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The plan.
    Plan,
    /// What a transport has published: its key, a zero, its bytes.
    Record,
    /// All of that has been sent.
    Published,
    /// The name of memory.
    Memory,
    /// This side is as far as that.
    Mark,
    /// Nothing, but that this side lives.
    Alive,
    /// This side has failed.
    Failed,
}

const KINDS: [Kind; 7] =
    [Kind::Plan, Kind::Record, Kind::Published, Kind::Memory, Kind::Mark, Kind::Alive, Kind::Failed];

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// One end of the connection.
pub(crate) struct Control {
    wire: OwnedFd,
    clock: Clock,
    /// Nanoseconds that the other side may be silent.
    patience: u64,
    /// What has come of the next frame.
    input: Vec<u8>,
    frames: VecDeque<Frame>,
    has_ended: bool,
    /// When the other side was last heard.
    heard: u64,
    /// When this side last spoke.
    spoke: u64,
}

/// Text of the other side's, fit for a terminal.
pub(crate) fn readable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The next whole frame of bytes that have come; `None` while there is none.
fn parse(input: &mut Vec<u8>) -> Result<Option<Frame>, String> {
    let Some(head) = input.first_chunk::<HEAD>() else { return Ok(None) };
    let [kind, length @ ..] = *head;
    let length = u32::from_le_bytes(length) as usize;
    let kind = *KINDS.get(usize::from(kind)).ok_or("a frame of no known kind")?;
    if length > LONGEST {
        return Err(format!("a frame of {length} bytes"));
    }
    if input.len() < HEAD + length {
        return Ok(None);
    }
    let bytes = input[HEAD..HEAD + length].to_vec();
    input.drain(..HEAD + length);
    Ok(Some(Frame { kind, bytes }))
}

impl Control {
    /// Over a connected stream.
    pub(crate) fn new(wire: OwnedFd, clock: Clock, patience: u64) -> Self {
        let now = clock.nanos();
        Self {
            wire,
            clock,
            patience,
            input: Vec::new(),
            frames: VecDeque::new(),
            has_ended: false,
            heard: now,
            spoke: now,
        }
    }

    /// Says who this is, and learns whether the other side is one of these, too.
    pub(crate) fn greet(&mut self) -> Result<(), String> {
        self.write(&GREETING)?;
        let begin = self.clock.nanos();
        loop {
            self.pull_bytes()?;
            let known = self.input.len().min(MAGIC);
            if self.input[..known] != GREETING[..known] {
                return Err(format!("it is no hawser-perf: it says \"{}\"", readable(&self.input[..known])));
            }
            if let Some(greeting) = self.input.first_chunk::<{ GREETING.len() }>() {
                if *greeting != GREETING {
                    return Err(
                        "it is a hawser-perf of another version: use the same on both sides".to_owned()
                    );
                }
                self.input.drain(..GREETING.len());
                return Ok(());
            }
            let waited = self.clock.nanos() - begin;
            let Some(left) = GREETING_PATIENCE.min(self.patience).checked_sub(waited) else {
                return Err(
                    "it says nothing that a hawser-perf would say, or measures with somebody else now"
                        .to_owned(),
                );
            };
            if self.has_ended {
                return Err(
                    "it has closed the connection at once: it is no hawser-perf, or it is busy".to_owned()
                );
            }
            self.sleep(PollFlags::IN, left)?;
        }
    }

    /// Sleeps until the connection is ready, or so many nanoseconds have passed.
    fn sleep(&self, what: PollFlags, nanos: u64) -> Result<(), String> {
        let time =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        match poll(&mut [PollFd::new(&self.wire, what)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(format!("poll: {error}")),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let begin = self.clock.nanos();
        self.spoke = begin;
        while !bytes.is_empty() {
            match send(&self.wire, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let waited = self.clock.nanos() - begin;
                    let left = self.patience.checked_sub(waited).ok_or_else(|| self.silence())?;
                    self.sleep(PollFlags::OUT, left)?;
                }
                Err(_) => {
                    // What it said before it ended is worth more.
                    self.look()?;
                    return Err(Self::gone());
                }
            }
        }
        Ok(())
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), String> {
        let mut frame = vec![kind as u8];
        frame.extend((bytes.len() as u32).to_le_bytes());
        frame.extend(bytes);
        self.write(&frame)
    }

    /// Tells the other side why this one ends; it may have ended itself.
    pub(crate) fn fail(&mut self, why: &str) {
        if !self.has_ended {
            let _ = self.send(Kind::Failed, &why.as_bytes()[..why.len().min(LONGEST)]);
        }
    }

    fn gone() -> String {
        "the other side has ended the connection: its process is gone; see what it says there".to_owned()
    }

    fn silence(&self) -> String {
        format!(
            "the other side has said nothing for {} s: it is stopped, or cannot be reached; --timeout waits longer",
            self.patience / 1_000_000_000
        )
    }

    /// Takes what has come, without waiting.
    fn pull_bytes(&mut self) -> Result<(), String> {
        let mut room = [0_u8; 4096];
        while !self.has_ended && self.input.len() <= HEAD + LONGEST {
            match recv(&self.wire, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.has_ended = true,
                Ok((count, _)) => {
                    self.input.extend(&room[..count]);
                    self.heard = self.clock.nanos();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.has_ended = true,
            }
        }
        Ok(())
    }

    /// Looks whether the other side is still there, and has not failed.
    pub(crate) fn look(&mut self) -> Result<(), String> {
        signals::check()?;
        self.pull_bytes()?;
        while let Some(frame) = parse(&mut self.input)
            .map_err(|what| format!("the other side sends {what}; use the same version on both sides"))?
        {
            match frame.kind {
                Kind::Alive => {}
                Kind::Failed => {
                    self.has_ended = true;
                    return Err(format!("the other side: {}", readable(&frame.bytes)));
                }
                _ if self.frames.len() == MOST => {
                    return Err("the other side sends more than anybody has asked for".to_owned());
                }
                _ => self.frames.push_back(frame),
            }
        }
        if self.has_ended && self.frames.is_empty() {
            return Err(Self::gone());
        }
        if self.clock.nanos() - self.spoke > ALIVE {
            self.send(Kind::Alive, &[])?;
        }
        Ok(())
    }

    /// Whether a side that has been waited for since then has been silent for too long.
    fn check_silence(&self, since: u64) -> Result<(), String> {
        let silent = self.clock.nanos() - self.heard.max(since);
        if silent > self.patience { Err(self.silence()) } else { Ok(()) }
    }

    /// The next frame, which must be of this kind; `None`: not yet. It has been waited for since then.
    pub(crate) fn poll(&mut self, kind: Kind, since: u64) -> Result<Option<Vec<u8>>, String> {
        if self.frames.is_empty() {
            self.look()?;
        }
        match self.frames.pop_front() {
            None => self.check_silence(since).map(|()| None),
            Some(frame) if frame.kind == kind => Ok(Some(frame.bytes)),
            Some(frame) => Err(format!(
                "the other side sends {:?} where {kind:?} is due; use the same version on both sides",
                frame.kind
            )),
        }
    }

    /// The next frame, of any of two kinds, asleep until it comes.
    pub(crate) fn wait(&mut self, kinds: [Kind; 2]) -> Result<Frame, String> {
        let since = self.clock.nanos();
        loop {
            self.look()?;
            match self.frames.pop_front() {
                Some(frame) if kinds.contains(&frame.kind) => return Ok(frame),
                Some(frame) => {
                    return Err(format!(
                        "the other side sends {:?} where {:?} is due; use the same version on both sides",
                        frame.kind, kinds[0]
                    ));
                }
                None => {
                    self.check_silence(since)?;
                    self.sleep(PollFlags::IN, ALIVE.min(self.patience))?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair(patience: u64) -> (Control, UnixStream) {
        let (one, other) = UnixStream::pair().expect("a pair");
        (Control::new(one.into(), Clock::new(), patience), other)
    }

    const LONG: u64 = 60_000_000_000;

    #[test]
    fn two_of_a_kind_greet_each_other() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let [mut one, mut other] = [one, other].map(|end| Control::new(end.into(), Clock::new(), LONG));
        one.write(&GREETING).expect("written");
        other.greet().expect("greeted");
        other.send(Kind::Mark, b"x").expect("sent");
        // The greeting that the other has sent, and what it said next.
        one.greet().expect("greeted");
        assert_eq!(one.poll(Kind::Mark, 0), Ok(Some(b"x".to_vec())));
    }

    #[test]
    fn a_frame_is_whole_or_not_there() {
        let (mut one, mut other) = pair(LONG);
        other.write_all(&[Kind::Mark as u8, 2, 0, 0, 0, 5]).expect("written");
        assert_eq!(one.poll(Kind::Mark, 0), Ok(None));
        other.write_all(&[6]).expect("written");
        assert_eq!(one.poll(Kind::Mark, 0), Ok(Some(vec![5, 6])));
        one.send(Kind::Plan, &[9]).expect("sent");
        let mut read = [0; 6];
        other.read_exact(&mut read).expect("read");
        assert_eq!(read, [Kind::Plan as u8, 1, 0, 0, 0, 9]);
    }

    #[test]
    fn what_no_side_sends_is_refused() {
        for rubbish in [&[7, 0, 0, 0, 0][..], &[Kind::Mark as u8, 1, 0, 1, 0], b"SSH-2.0-OpenSSH"] {
            let (mut one, mut other) = pair(LONG);
            other.write_all(rubbish).expect("written");
            assert!(one.poll(Kind::Mark, 0).is_err(), "{rubbish:?}");
        }
        let (mut one, mut other) = pair(LONG);
        other.write_all(&[Kind::Mark as u8, 0, 0, 0, 0].repeat(MOST + 1)).expect("written");
        assert!(one.look().is_err());
    }

    #[test]
    fn a_stranger_is_known_by_its_first_bytes() {
        for rubbish in [&b"S"[..], b"hawserpg", b"hawserpf\x02\0\0\0", b"GET / HTTP/1.0\r\n\r\n"] {
            let (mut one, mut other) = pair(LONG);
            other.write_all(rubbish).expect("written");
            assert!(one.greet().is_err(), "{rubbish:?}");
        }
        let (mut silent, _other) = pair(1_000_000);
        assert!(silent.greet().is_err_and(|why| why.contains("says nothing")));
        let (mut gone, other) = pair(LONG);
        drop(other);
        assert!(gone.greet().is_err());
    }

    #[test]
    fn the_end_of_the_other_side_is_told_with_its_reason() {
        let (mut one, other) = pair(LONG);
        drop(other);
        assert!(one.poll(Kind::Mark, 0).is_err_and(|why| why.contains("is gone")));
        let (mut one, mut other) = pair(LONG);
        other.write_all(&[Kind::Failed as u8, 4, 0, 0, 0, b'w', b'h', 27, b'y']).expect("written");
        assert_eq!(one.poll(Kind::Mark, 0), Err("the other side: wh y".to_owned()));
        let (mut one, _other) = pair(0);
        assert!(one.poll(Kind::Mark, 0).is_err_and(|why| why.contains("said nothing")));
    }
}
