//! What a host that knows no devices cannot do with a buffer on one: the job ends, and the user reads why.
//!
//! Whoever would touch the buffer, deep in the host's code, cannot be told that it failed. So the process says one line, and
//! has the host end the job as `MPI_Abort` does: the launcher names the rank, the exit status is not 0, nobody dies of a
//! signal, and nothing wrong was computed.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::host::services::show_help;
use crate::host::symbols::Loaded;

/// What was to be done with the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) enum Why {
    /// To be copied, sent, received, compared or computed with, by the host's own code.
    Copy,
    /// To be a window, or to be used in one-sided communication.
    OneSided,
    /// To be read from a file, or written to one.
    File,
    /// To be packed to external32, or unpacked from it.
    External,
    /// To be sent or received by a matching transport.
    Matched,
    /// To be sent or received by a UCX that does not know devices.
    Ucx,
}

impl Why {
    /// What happened, why, and what to do.
    fn line(self) -> String {
        let (what, instead) = match self {
            Self::Copy => (
                "would read or write it with the processor",
                "--mca op_hawser_copy_hook 1 has messages, datatypes, collectives and reductions take such buffers; \
                 with Open MPI 5.0 and hawser's accelerator component all of MPI does (hawser-accelerator(7))",
            ),
            Self::OneSided => (
                "cannot use it in one-sided communication",
                "Windows and their buffers may be there with Open MPI 5.0 and hawser's accelerator component \
                 (hawser-accelerator(7)); here they must be in host memory",
            ),
            Self::File => (
                "cannot read or write a file with it",
                "A file is read to host memory, and written from there",
            ),
            Self::External => (
                "would convert it with the processor",
                "MPI_Pack_external and MPI_Unpack_external take host memory",
            ),
            Self::Matched => (
                "would give it to libfabric as host memory",
                "--mca pml ob1 --mca op_hawser_copy_hook 1 sends and receives such buffers over byte transports; with \
                 Open MPI 5.0 and hawser's accelerator component this transport does, too (hawser-accelerator(7))",
            ),
            Self::Ucx => (
                "would give it to a UCX without support for CUDA",
                "--mca pml ob1 --mca op_hawser_copy_hook 1 sends and receives such buffers over byte transports; so does a \
                 UCX that has its module for CUDA",
            ),
        };
        format!(
            "a buffer lies in the memory of a CUDA device, of which this Open MPI 4.1 does not know, and {what}. {instead}"
        )
    }
}

/// `MPI_Abort`
type Abort = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The host's function that ends a job, and the communicator of all.
static HOST: OnceLock<Option<(usize, usize)>> = OnceLock::new();

/// The thread that ends the process; 0 while none does.
static ENDING: AtomicI32 = AtomicI32::new(0);

/// What the process ends with.
const STATUS: c_int = 1;

/// Finds what is needed of the host. Called before anything can be refused.
pub(in crate::host) fn prepare() -> bool {
    let found = HOST.get_or_init(|| {
        let host = Loaded::find(c"libmpi.so.40")?;
        let found = |name| Some(host.symbol(name).ok()?.as_ptr().expose_provenance());
        Some((found(c"PMPI_Abort")?, found(c"ompi_mpi_comm_world")?))
    });
    found.is_some()
}

/// Ends the job, with one line. Other threads that come here meanwhile wait for the end.
#[cold]
pub(in crate::host) fn end(why: Why) -> ! {
    // SAFETY: takes nothing.
    let this = unsafe { libc::gettid() };
    match ENDING.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            show_help("device memory refused", &why.line());
            if let Some(Some((abort, world))) = HOST.get() {
                let abort = std::ptr::with_exposed_provenance::<c_void>(*abort);
                // SAFETY: the host's function of this name, which `mpi.h` declares so in all releases.
                let abort = unsafe { std::mem::transmute::<*const c_void, Abort>(abort) };
                // SAFETY: the host's communicator, which stays; a thread of the program's may call this at any time.
                unsafe { abort(std::ptr::with_exposed_provenance_mut(*world), STATUS) };
            }
        }
        // The end itself has come upon such memory.
        Err(ending) if ending == this => {}
        Err(_) => loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        },
    }
    // There is nothing left to be done in order.
    // SAFETY: takes a number, and does not return.
    unsafe { libc::_exit(STATUS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_happened_and_what_to_do() {
        let lines =
            [Why::Copy, Why::Matched, Why::Ucx, Why::OneSided, Why::File, Why::External].map(Why::line);
        for line in &lines {
            assert!(
                line.starts_with("a buffer lies in the memory of a CUDA device, of which this Open MPI 4.1")
            );
            assert!(!line.ends_with('.'), "the help text ends it");
        }
        assert!(lines[..3].iter().all(|line| line.contains("--mca op_hawser_copy_hook 1")));
        assert!(lines[3..].iter().all(|line| !line.contains("copy_hook")), "that would not help");
    }
}
