//! The one internal vocabulary of failure.
//!
//! Small and `Copy`, so that it can travel on hot paths. It is turned into a host's code at the
//! edge, in `host`, by a total `match`; the text for people is made where the failure is first known.

pub mod panic;
pub mod room;

use std::ffi::{CStr, CString};
use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

/// What went wrong, without the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Memory or another bounded resource is used up.
    OutOfResource,
    /// The peer cannot be addressed.
    Unreachable,
    /// The message is longer than the provider carries.
    MessageTooBig,
    /// What was asked for is not there.
    NotFound,
    /// An argument or parameter is out of its range.
    BadParameter,
    /// The provider or the host lacks the function.
    Unsupported,
    /// A libfabric call failed with this positive code (`fi_errno(3)`).
    Fabric(i32),
    /// A system call failed with this code (`errno(3)`).
    System(i32),
    /// A host call failed with this code.
    Host(i32),
}

/// The result of nearly everything here.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfResource => f.write_str("out of resources"),
            Self::Unreachable => f.write_str("peer unreachable"),
            Self::MessageTooBig => f.write_str("message too big"),
            Self::NotFound => f.write_str("not found"),
            Self::BadParameter => f.write_str("bad parameter"),
            Self::Unsupported => f.write_str("not supported"),
            Self::Fabric(code) => write!(f, "libfabric error {code}"),
            Self::System(code) => write!(f, "{}", std::io::Error::from_raw_os_error(code)),
            Self::Host(code) => write!(f, "Open MPI error {code}"),
        }
    }
}

impl std::error::Error for Error {}

static REFUSAL: OnceLock<CString> = OnceLock::new();

/// Notes why the host that loaded the library was refused; the first reason stays.
pub fn note_refusal(why: &str) {
    let _ = REFUSAL.set(CString::new(why).unwrap_or_default());
}

/// Why the host that loaded the library was refused; empty when it was not.
pub fn refusal() -> &'static CStr {
    REFUSAL.get().map_or(c"", CString::as_c_str)
}

/// Says one line to the user where no host can say it. Never fails: there is nobody left to tell.
pub fn say(line: fmt::Arguments<'_>) {
    say_to(&mut std::io::stderr().lock(), line);
}

/// Writes a whole text of many lines to the user where no host does it right.
pub fn write_out(text: &[u8]) {
    let _ = std::io::stderr().lock().write_all(text);
}

/// One write for the whole line: the processes of a job share what they write to.
fn say_to(out: &mut impl Write, line: fmt::Arguments<'_>) {
    let _ = out.write_all(format!("hawser: {line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_at_once() {
        struct Writes(Vec<Vec<u8>>);
        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut writes = Writes(Vec::new());
        say_to(&mut writes, format_args!("{} of {}: {why}", 1, 2, why = "so"));
        assert_eq!(writes.0, [b"hawser: 1 of 2: so\n".to_vec()]);
    }
}
