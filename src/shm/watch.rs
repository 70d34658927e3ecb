//! Which processes have ended: a descriptor for each (`pidfd_open(2)`), all in one that can be asked at once.
//!
//! A process that is stopped has not ended, and one that computes has not either.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

/// Processes that are watched, by numbers of the caller's.
#[derive(Default)]
pub struct Watch {
    epoll: Option<OwnedFd>,
    watched: HashMap<u32, Watched>,
}

enum Watched {
    /// By its descriptor.
    Descriptor(OwnedFd),
    /// By its number, where the kernel gives no descriptor.
    Number(Pid),
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
        Ok(std::os::fd::AsFd::as_fd(self.epoll.insert(epoll)))
    }

    /// Whether any is watched by its number, of which no descriptor tells.
    pub fn is_blind(&self) -> bool {
        self.watched.values().any(|watched| matches!(watched, Watched::Number(_)))
    }

    /// Watches a process that lives.
    pub fn add(&mut self, number: u32, pid: u32) {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let watched = match self.register(number, pid) {
            Some(descriptor) => Watched::Descriptor(descriptor),
            None => Watched::Number(pid),
        };
        self.watched.insert(number, watched);
    }

    fn register(&mut self, number: u32, pid: Pid) -> Option<OwnedFd> {
        if self.epoll.is_none() {
            self.epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        }
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let data = epoll::EventData::new_u64(number.into());
        epoll::add(self.epoll.as_ref()?, &descriptor, data, epoll::EventFlags::IN).ok()?;
        Some(descriptor)
    }

    /// Watches no more.
    pub fn remove(&mut self, number: u32) {
        // A descriptor that is closed leaves the set, unless a child of fork(2) has it too.
        if let (Some(Watched::Descriptor(descriptor)), Some(epoll)) =
            (self.watched.remove(&number), &self.epoll)
        {
            let _ = epoll::delete(epoll, descriptor);
        }
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
        for (number, watched) in &self.watched {
            if let Watched::Number(pid) = watched
                && test_kill_process(*pid) == Err(rustix::io::Errno::SRCH)
            {
                ended.push(*number);
            }
        }
        ended.iter().for_each(|number| self.remove(*number));
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
        watch.remove(1);
        lives.kill().expect("killed");
        lives.wait().expect("reaped");
        assert!(watch.ended().is_empty(), "not watched any more");
    }
}
