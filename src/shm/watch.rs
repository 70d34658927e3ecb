//! Which processes have ended: a descriptor for each (`pidfd_open(2)`), all in one that can be asked at once.
//!
//! A process that is stopped has not ended, and one that computes has not either. One that goes on as another program has, for who
//! has a [lifeline](Lifeline) of it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use super::lifeline::Lifeline;

/// Processes that are watched, by numbers of the caller's.
#[derive(Default)]
pub struct Watch {
    epoll: Option<OwnedFd>,
    watched: HashMap<u32, Watched>,
}

struct Watched {
    pid: Pid,
    process: Option<OwnedFd>,
    lifeline: Option<Lifeline>,
    /// The kernel gives no descriptor of one of them that tells of itself: they are asked each time.
    is_blind: bool,
}

impl Watched {
    fn has_ended(&self) -> bool {
        test_kill_process(self.pid) == Err(rustix::io::Errno::SRCH)
            || self.lifeline.as_ref().is_some_and(Lifeline::is_broken)
    }
}

impl Watch {
    /// What is readable when one has ended that is watched by its descriptor.
    ///
    /// # Errors
    /// Of `epoll_create(2)`.
    pub fn descriptor(&mut self) -> crate::error::Result<std::os::fd::BorrowedFd<'_>> {
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(|error| crate::error::Error::System(error.raw_os_error()))?,
        };
        Ok(AsFd::as_fd(self.epoll.insert(epoll)))
    }

    /// Whether any is watched of which no descriptor tells.
    pub fn is_blind(&self) -> bool {
        self.watched.values().any(|watched| watched.is_blind)
    }

    /// Watches a process that lives.
    pub fn add(&mut self, number: u32, pid: u32) {
        self.add_with(number, pid, None);
    }

    /// The same, and whether it is still the program that it is.
    pub fn add_with(&mut self, number: u32, pid: u32, lifeline: Option<Lifeline>) {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let process = pidfd_open(pid, PidfdFlags::empty()).ok();
        let is_told =
            process.as_ref().is_some_and(|process| self.register(number, process, epoll::EventFlags::IN));
        let hangs_up = |lifeline: &Lifeline| self.register(number, lifeline, epoll::EventFlags::HUP);
        let is_blind = !is_told || !lifeline.as_ref().is_none_or(hangs_up);
        self.watched.insert(number, Watched { pid, process, lifeline, is_blind });
    }

    fn register(&mut self, number: u32, descriptor: impl AsFd, flags: epoll::EventFlags) -> bool {
        if self.epoll.is_none() {
            self.epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        }
        let data = epoll::EventData::new_u64(number.into());
        self.epoll.as_ref().is_some_and(|epoll| epoll::add(epoll, &descriptor, data, flags).is_ok())
    }

    /// Watches no more; whether it did.
    pub fn remove(&mut self, number: u32) -> bool {
        let Some(watched) = self.watched.remove(&number) else { return false };
        // A descriptor that is closed leaves the set, unless somebody else has it too, as a child of fork(2).
        let Watched { process, lifeline, .. } = &watched;
        let process = process.iter().map(|process| process.as_fd());
        for descriptor in process.chain(lifeline.iter().map(|lifeline| lifeline.as_fd())) {
            let _ = self.epoll.as_ref().map(|epoll| epoll::delete(epoll, descriptor));
        }
        true
    }

    /// Those that have ended. They are not watched any more.
    pub fn ended(&mut self) -> Vec<u32> {
        let mut ended = Vec::new();
        if let Some(epoll) = &self.epoll {
            let mut events = Vec::with_capacity(64);
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            if epoll::wait(epoll, spare_capacity(&mut events), Some(&none)).is_ok() {
                ended.extend(events.iter().map(|event| event.data.u64() as u32));
            }
        }
        let blind = self.watched.iter().filter(|(_, watched)| watched.is_blind && watched.has_ended());
        ended.extend(blind.map(|(number, _)| *number));
        // Both descriptors of one may tell of it.
        ended.retain(|number| self.remove(*number));
        ended
    }
}

/// Whether a process has ended, also if nobody has waited for it yet.
pub fn has_ended(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&none)) == Ok(1)
        }
        Err(error) => error == rustix::io::Errno::SRCH,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_ends_is_told_once_and_one_that_is_stopped_is_not() {
        let start = || Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let (mut lives, mut dies) = (start(), start());
        let mut watch = Watch::default();
        watch.add(1, lives.id());
        watch.add(2, dies.id());
        let stopped = Pid::from_child(&lives);
        rustix::process::kill_process(stopped, rustix::process::Signal::STOP).expect("stopped");
        assert!(watch.ended().is_empty());
        dies.kill().expect("killed");
        let mut ended = Vec::new();
        while ended.is_empty() {
            ended = watch.ended();
        }
        assert_eq!(ended, [2]);
        dies.wait().expect("reaped");
        assert!(watch.ended().is_empty());
        assert!(watch.remove(1) && !watch.remove(1));
        lives.kill().expect("killed");
        lives.wait().expect("reaped");
        assert!(watch.ended().is_empty(), "not watched any more");
    }

    #[test]
    fn a_process_that_lives_has_ended_for_who_has_its_lifeline_when_that_breaks() {
        use super::super::{Anchor, NONCE, Segment};
        let segment = Segment::make([7; NONCE]).expect("memory");
        let anchor = Anchor::of(&segment).expect("a pipe");
        let own = std::process::id();
        let lifeline = || Lifeline::of_peer(segment.shared(), own).expect("a pipe");
        let mut watch = Watch::default();
        let [first, second] = [lifeline(), lifeline()];
        watch.add_with(1, own, Some(first.clone()));
        watch.add_with(2, own, Some(second));
        watch.add(3, own);
        assert!(watch.ended().is_empty() && !watch.is_blind());
        assert!(watch.remove(2));
        drop(anchor);
        let mut ended = Vec::new();
        while ended.is_empty() {
            ended = watch.ended();
        }
        assert_eq!(ended, [1]);
        // Where the kernel would tell of nothing.
        watch.watched.insert(
            4,
            Watched {
                pid: Pid::from_raw(own as i32).expect("a number"),
                process: None,
                lifeline: Some(first),
                is_blind: true,
            },
        );
        assert!(watch.is_blind());
        assert_eq!((watch.ended(), watch.ended()), (vec![4], vec![]));
    }
}
