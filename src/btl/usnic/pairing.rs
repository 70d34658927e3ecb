//! Which module talks to which: the best pairs of two processes' addresses.

use crate::wire::card::Address;

/// How good a connection between two addresses would be; higher is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    near: bool,
    speed: u32,
}

/// For each of our addresses, the index of the peer's that it talks to. `distance` says how far an
/// address of the peer is from one of ours (0: no router between); `None` when it cannot be reached.
///
/// Both sides may come to different pairs: each sends over its own, and answers where it was asked.
pub fn pair(
    ours: &[Address],
    theirs: &[Address],
    distance: impl Fn(usize, &Address) -> Option<u32>,
) -> Vec<Option<usize>> {
    let mut candidates = Vec::new();
    for (i, mine) in ours.iter().enumerate() {
        for (j, other) in theirs.iter().enumerate() {
            if mine.kind != other.kind {
                continue;
            }
            if let Some(far) = distance(i, other) {
                candidates.push((Weight { near: far == 0, speed: mine.speed.min(other.speed) }, i, j));
            }
        }
    }
    // The best first; between equals, the diagonal, so that rails are spread.
    candidates.sort_by_key(|&(weight, i, j)| (std::cmp::Reverse(weight), i.abs_diff(j), i));
    let mut pairs = vec![None; ours.len()];
    let mut taken = vec![false; theirs.len()];
    for (_, i, j) in candidates {
        if pairs[i].is_none() && !taken[j] {
            pairs[i] = Some(j);
            taken[j] = true;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(kind: u8, speed: u32) -> Address {
        Address { incarnation: 1, key: [0; 16], max_datagram: 1472, speed, kind, name: vec![] }
    }

    #[test]
    fn equal_rails_are_spread() {
        let rails = [address(0, 100), address(0, 100), address(0, 100)];
        assert_eq!(pair(&rails, &rails, |_, _| Some(0)), [Some(0), Some(1), Some(2)]);
        assert_eq!(pair(&rails, &rails[..1], |_, _| Some(0)), [Some(0), None, None]);
    }

    #[test]
    fn near_comes_before_fast_and_fast_before_the_rest() {
        let ours = [address(0, 100)];
        let theirs = [address(0, 10), address(0, 100), address(0, 40)];
        let near = |_: usize, other: &Address| Some(u32::from(other.speed != 10));
        assert_eq!(pair(&ours, &theirs, near), [Some(0)]);
        assert_eq!(pair(&ours, &theirs, |_, _| Some(0)), [Some(1)]);
    }

    #[test]
    fn other_links_and_unreachable_addresses_are_no_partners() {
        let ours = [address(0, 100)];
        assert_eq!(pair(&ours, &[address(1, 100)], |_, _| Some(0)), [None]);
        assert_eq!(pair(&ours, &[address(0, 100)], |_, _| None), [None]);
    }
}
