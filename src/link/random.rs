//! Numbers that nobody can guess.

use std::io;

/// Fills bytes with them.
///
/// # Errors
/// When the system gives none (`getrandom(2)`).
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// One of them.
///
/// # Errors
/// When the system gives none.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
