//! A helper thread as a guest may start one: no signal of the process is delivered to it.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts a thread with a stack of so many bytes. Signals go to the threads of the process's own, as
/// if this one were not there.
///
/// # Errors
/// Of `pthread_create(3)` and `pthread_sigmask(3)`.
pub fn spawn(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // The new thread inherits what is blocked here: there is no moment at which it takes a signal.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = Builder::new().name(name.to_owned()).stack_size(stack).spawn(body);
    before.thread_set_mask()?;
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
