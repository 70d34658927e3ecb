//! A number that nobody can guess.

use std::io;

/// One of them.
///
/// # Errors
/// When the system gives none (`getrandom(2)`).
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u64::from_ne_bytes(bytes))
}
