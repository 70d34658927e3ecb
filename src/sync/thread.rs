//! A helper thread as a guest may start one: no signal of the process is delivered to it.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with a stack of so many bytes. Signals go to the threads of the process's own, as
/// if this one were not there.
///
/// # Errors
/// Of `pthread_create(3)`.
pub fn spawn(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // SAFETY: plain bits; zero is a value of each.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set to fill.
    unsafe { libc::sigfillset(&raw mut all) };
    // The new thread inherits what is blocked here: there is no moment at which it takes a signal.
    // SAFETY: two sets; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let thread = Builder::new().name(name.to_owned()).stack_size(stack).spawn(body);
    // SAFETY: the set that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals that this thread blocks, from what the kernel says.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc(5)");
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
        u64::from_str_radix(line.trim(), 16).expect("a number")
    }

    #[test]
    fn the_thread_blocks_signals_and_its_maker_does_not() {
        let before = blocked();
        let (tell, told) = std::sync::mpsc::channel();
        let thread =
            spawn("helper", 64 << 10, move || tell.send(blocked()).expect("heard")).expect("a thread");
        thread.join().expect("no panic");
        let inside = told.recv().expect("told");
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1, libc::SIGALRM] {
            assert_ne!(inside & 1 << (signal - 1), 0, "signal {signal}");
        }
        assert_eq!(blocked(), before);
    }
}
