//! Room for what is large and made when something is opened: where there is none, that is an error, and the host goes on
//! without it. What is small has to be there, as everywhere in Rust.

use super::{Error, Result};

/// An empty vector with room for so many.
///
/// # Errors
/// [`Error::OutOfResource`].
pub fn vector<T>(count: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(count).map_err(|_| Error::OutOfResource)?;
    Ok(vector)
}

/// A vector of so many that are all the same.
///
/// # Errors
/// [`Error::OutOfResource`].
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut vector = vector(count)?;
    vector.resize(count, value);
    Ok(vector)
}

/// An array of such.
///
/// # Errors
/// [`Error::OutOfResource`].
pub fn array<T: Clone, const COUNT: usize>(value: T) -> Result<Box<[T; COUNT]>> {
    filled(value, COUNT)?.into_boxed_slice().try_into().map_err(|_| Error::OutOfResource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_an_error() {
        assert!(vector::<u8>(100).is_ok_and(|room| room.is_empty() && room.capacity() >= 100));
        assert_eq!(filled(7_u8, 3), Ok(vec![7; 3]));
        assert_eq!(array::<u8, 3>(7), Ok(Box::new([7; 3])));
        assert_eq!(vector::<u64>(1 << 61).err(), Some(Error::OutOfResource));
        assert_eq!(filled(0_u8, isize::MAX as usize).err(), Some(Error::OutOfResource));
    }
}
