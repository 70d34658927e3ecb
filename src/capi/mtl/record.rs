//! What a process publishes of its endpoint: how its messages say what they are, and its name in libfabric.
//!
//! Two processes whose tags are laid out differently would never match, and a name of another provider is no name: both
//! are refused here.

use crate::error::{Error, Result};
use crate::mtl::Limits;

/// The form of a record.
const FORM: u8 = 1;
/// Bytes before the name.
const HEAD: usize = 13;

/// The record of an endpoint.
pub(super) fn of(limits: Limits, name: &[u8]) -> Vec<u8> {
    let mut record = vec![FORM];
    record.extend(limits.max_context.to_le_bytes());
    record.extend(limits.max_tag.to_le_bytes());
    record.extend(limits.max_source.to_le_bytes());
    record.extend(name);
    record
}

/// The name in another's record, where that is one of the same kind as ours. A provider reads as many bytes as its own
/// names have, and those that are texts to their zero: there are so many.
pub(super) fn name(own: &[u8], record: &[u8]) -> Result<Vec<u8>> {
    let (head, name) = record.split_at_checked(HEAD).ok_or(Error::NotFound)?;
    if own.get(..HEAD) != Some(head) || name.is_empty() {
        return Err(Error::Unsupported);
    }
    let mut name = name.to_vec();
    name.resize(own.len().max(name.len()) + 1, 0);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_context: 7, max_tag: 100, max_source: 9 };

    #[test]
    fn a_name_has_as_many_bytes_as_our_own_at_least() {
        let own = of(LIMITS, b"our own name");
        let short = name(&own, &of(LIMITS, b"a")).expect("a record");
        assert!(short.len() > b"our own name".len() && short.starts_with(b"a\0"));
        let long = name(&own, &of(LIMITS, &[7; 100])).expect("a record");
        assert!(long.len() == 101 && long.ends_with(&[7, 0]));
    }

    #[test]
    fn what_would_never_match_is_refused() {
        let own = of(LIMITS, b"name");
        for other in [
            Limits { max_context: 8, ..LIMITS },
            Limits { max_tag: 99, ..LIMITS },
            Limits { max_source: 8, ..LIMITS },
        ] {
            assert_eq!(name(&own, &of(other, b"name")), Err(Error::Unsupported));
        }
        assert_eq!(name(&own, &of(LIMITS, b"")), Err(Error::Unsupported));
        let mut later = own.clone();
        later[0] = 2;
        assert_eq!(name(&own, &later), Err(Error::Unsupported));
        for len in 0..HEAD {
            assert!(name(&own, &own[..len]).is_err(), "{len}");
        }
    }
}
