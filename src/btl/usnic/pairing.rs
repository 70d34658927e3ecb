//! Which module talks to which: the best pairs of two processes' addresses.

use crate::wire::card::Address;

/// How good a connection between two addresses would be; higher is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    nearness: std::cmp::Reverse<u32>,
    speed: u32,
}

/// For each of our addresses, the index of the peer's that it talks to. `distance` says how far an
/// address of the peer is from one of ours (0: on this host); `None` when it cannot be reached. Peers
/// on this host are reached that way only: a network device beside it would slow it down.
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
            if let Some(far) = distance(i, other) {
                let weight = Weight { nearness: std::cmp::Reverse(far), speed: mine.speed.min(other.speed) };
                candidates.push((weight, i, j));
            }
        }
    }
    // The best first; between equals, the diagonal, so that rails are spread.
    candidates.sort_by_key(|&(weight, i, j)| (std::cmp::Reverse(weight), i.abs_diff(j), i));
    if candidates.first().is_some_and(|(best, ..)| best.nearness.0 == 0) {
        candidates.retain(|(weight, ..)| weight.nearness.0 == 0);
    }
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

    fn address(speed: u32) -> Address {
        Address { incarnation: 1, key: [0; 16], max_datagram: 1472, speed, name: vec![], agent: None }
    }

    #[test]
    fn equal_rails_are_spread() {
        let rails = [address(100), address(100), address(100)];
        assert_eq!(pair(&rails, &rails, |_, _| Some(0)), [Some(0), Some(1), Some(2)]);
        assert_eq!(pair(&rails, &rails[..1], |_, _| Some(0)), [Some(0), None, None]);
    }

    #[test]
    fn near_comes_before_fast_and_fast_before_the_rest() {
        let ours = [address(100)];
        let theirs = [address(10), address(100), address(40)];
        let near = |_: usize, other: &Address| Some(u32::from(other.speed != 10));
        assert_eq!(pair(&ours, &theirs, near), [Some(0)]);
        assert_eq!(pair(&ours, &theirs, |_, _| Some(0)), [Some(1)]);
    }

    #[test]
    fn peers_on_this_host_are_not_striped_over_devices() {
        let rails = [address(100), address(1000)];
        let distance = |mine: usize, other: &Address| match (mine, other.speed) {
            (1, 1000) => Some(0),
            (0, 100) => Some(1),
            _ => None,
        };
        assert_eq!(pair(&rails, &rails, distance), [None, Some(1)]);
    }

    #[test]
    fn unreachable_addresses_are_no_partners() {
        let ours = [address(100)];
        assert_eq!(pair(&ours, &[address(100)], |_, _| None), [None]);
    }
}
