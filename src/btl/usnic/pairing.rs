//! Which module talks to which: the best assignment of two processes' addresses to each other, each
//! used at most once.
//!
//! Best means, in this order: most pairs on one subnet, then most of those behind one router, then
//! most pairs at all, then the greatest sum of speeds (of a pair, the slower end's), then the
//! straightest, so that equal rails are spread alike by all. It is found by the Hungarian method
//! (Kuhn 1955) in the form of Jonker and Volgenant, in time cubic in the number of addresses.

use crate::wire::modex::Address;

/// Which of the two processes comes first where both have the same choice. Given by something on
/// which both agree, such as their names, it makes both come to the same pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// We do.
    First,
    /// The peer does.
    Second,
}

/// The good of a pair; that of none is 0. Its parts have so much room that 255 pairs of a lesser
/// kind weigh less than one of a better.
type Weight = i128;

const STRAIGHT: Weight = 1;
const SPEED: Weight = 1 << 16;
const PAIR: Weight = 1 << 56;
const NEARER: Weight = 1 << 8;

fn weigh(distance: u32, speed: u32, i: usize, j: usize) -> Weight {
    let kind = match distance {
        0 | 1 => PAIR * NEARER * NEARER,
        2 => PAIR * NEARER,
        _ => PAIR,
    };
    let straightness = 255_usize.saturating_sub(i.abs_diff(j)) as Weight;
    kind + Weight::from(speed) * SPEED + straightness * STRAIGHT
}

/// For each of our addresses, the index of the peer's that it talks to. `distance` says how far an
/// address of the peer is from one of ours (0: on this host); `None` when it cannot be reached. Peers
/// on this host are reached that way only: a network device beside it would slow it down.
///
/// Both processes come to the same pairs if they see the same distances. Where they do not, because
/// only one has a route, each sends over its own pairs and answers where it was asked.
pub fn pair(
    ours: &[Address],
    theirs: &[Address],
    side: Side,
    distance: impl Fn(usize, &Address) -> Option<u32>,
) -> Vec<Option<usize>> {
    let mut far: Vec<Vec<Option<u32>>> =
        (0..ours.len()).map(|mine| theirs.iter().map(|other| distance(mine, other)).collect()).collect();
    if far.iter().flatten().any(|far| *far == Some(0)) {
        far.iter_mut().flatten().for_each(|far| *far = far.filter(|far| *far == 0));
    }
    let weight = |mine: usize, other: usize| {
        let speed = ours[mine].speed.min(theirs[other].speed);
        far[mine][other].map_or(0, |distance| weigh(distance, speed, mine, other))
    };
    let mut pairs = vec![None; ours.len()];
    let most = ours.len().max(theirs.len());
    // Whoever comes first has the rows.
    let assigned = assign(most, |row, column| {
        let (mine, other) = if side == Side::First { (row, column) } else { (column, row) };
        if mine < ours.len() && other < theirs.len() { weight(mine, other) } else { 0 }
    });
    for (row, column) in assigned.into_iter().enumerate() {
        let (mine, other) = if side == Side::First { (row, column) } else { (column, row) };
        if mine < ours.len() && other < theirs.len() && far[mine][other].is_some() {
            pairs[mine] = Some(other);
        }
    }
    pairs
}

/// The column of each of `size` rows in an assignment of greatest weight. No weight is negative.
///
/// Rows are taken in one after the other; each is given a column along the cheapest path of
/// reassignments, cost being the weight that is given up. `rows` and `columns` hold prices: no cost
/// is below the sum of its two prices, and that of an assigned pair equals it.
fn assign(size: usize, weight: impl Fn(usize, usize) -> Weight) -> Vec<usize> {
    let (mut rows, mut columns) = (vec![0; size], vec![0; size]);
    let mut owner: Vec<Option<usize>> = vec![None; size];
    for begin in 0..size {
        let mut distance = vec![Weight::MAX; size];
        let mut previous: Vec<Option<usize>> = vec![None; size];
        let mut done = vec![false; size];
        let (mut row, mut from, mut so_far) = (begin, None, 0);
        let end = loop {
            for column in (0..size).filter(|column| !done[*column]) {
                let reach = so_far - weight(row, column) - rows[row] - columns[column];
                if reach < distance[column] {
                    distance[column] = reach;
                    previous[column] = from;
                }
            }
            let open = (0..size).filter(|column| !done[*column]);
            let nearest = open.min_by_key(|column| distance[*column]).unwrap_or(0);
            done[nearest] = true;
            so_far = distance[nearest];
            match owner[nearest] {
                Some(next) => (row, from) = (next, Some(nearest)),
                None => break nearest,
            }
        };
        rows[begin] += so_far;
        for column in (0..size).filter(|column| done[*column] && *column != end) {
            let slack = so_far - distance[column];
            columns[column] -= slack;
            if let Some(row) = owner[column] {
                rows[row] += slack;
            }
        }
        let mut column = end;
        while let Some(before) = previous[column] {
            owner[column] = owner[before];
            column = before;
        }
        owner[column] = Some(begin);
    }
    let mut assigned = vec![0; size];
    for (column, row) in owner.into_iter().enumerate() {
        if let Some(row) = row {
            assigned[row] = column;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::modex::Protection;

    fn address(speed: u32) -> Address {
        let protection = Protection::NONE;
        Address {
            incarnation: 1,
            key: [0; 16],
            max_datagram: 1472,
            speed,
            protection,
            name: vec![],
            agent: None,
        }
    }

    /// A number for these two, seemingly at random (`splitmix64`).
    fn random(seed: u64, i: usize, j: usize) -> u64 {
        let mut x = seed ^ (i as u64) << 32 ^ (j as u64) << 48 ^ 0x9E37_79B9_7F4A_7C15;
        for factor in [0xBF58_476D_1CE4_E5B9_u64, 0x94D0_49BB_1331_11EB] {
            x = (x ^ x >> 30).wrapping_mul(factor);
        }
        x ^ x >> 31
    }

    /// The greatest weight that any assignment of the rows from `row` on has.
    fn best(size: usize, row: usize, taken: u32, weight: &impl Fn(usize, usize) -> Weight) -> Weight {
        let free = (0..size).filter(|column| taken & 1 << column == 0);
        free.map(|column| weight(row, column) + best(size, row + 1, taken | 1 << column, weight))
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn no_assignment_is_better() {
        for seed in 0..400 {
            let size = (seed % 7) as usize;
            // Few different weights make many ties.
            let few = [2, 5, 1 << 40][(seed % 3) as usize];
            let weight = |row, column| Weight::from(random(seed, row, column) % few);
            let assigned = assign(size, weight);
            let mut columns = assigned.clone();
            columns.sort_unstable();
            assert_eq!(columns, (0..size).collect::<Vec<_>>(), "{seed}");
            let sum: Weight = assigned.iter().enumerate().map(|(row, column)| weight(row, *column)).sum();
            assert_eq!(sum, best(size, 0, 0, &weight), "{seed}");
        }
    }

    #[test]
    fn both_processes_come_to_the_same_pairs() {
        for seed in 0..200_u64 {
            let (few, many) = (1 + (seed % 5) as usize, 1 + (seed / 5 % 6) as usize);
            let speed = |n| address(if seed % 2 == 0 { 10 } else { 10 + (random(seed, n, 9) % 3) as u32 });
            let rails = |count, from| (from..from + count).map(speed).collect::<Vec<_>>();
            let (one, two) = (rails(few, 0), rails(many, 20));
            let far = |i, j| match random(seed, i, j) % 4 {
                0 => None,
                far => Some(far as u32),
            };
            let index = |list: &[Address], it: &Address| {
                list.iter().position(|other| std::ptr::eq(other, it)).expect("one of them")
            };
            let left = pair(&one, &two, Side::First, |i, other| far(i, index(&two, other)));
            let right = pair(&two, &one, Side::Second, |j, other| far(index(&one, other), j));
            let seen_from_right: Vec<_> =
                (0..one.len()).map(|i| right.iter().position(|pair| *pair == Some(i))).collect();
            assert_eq!(left, seen_from_right, "{seed}");
        }
    }

    #[test]
    fn equal_rails_are_spread() {
        let rails = [address(100), address(100), address(100)];
        for side in [Side::First, Side::Second] {
            assert_eq!(pair(&rails, &rails, side, |_, _| Some(1)), [Some(0), Some(1), Some(2)]);
            assert_eq!(pair(&rails, &rails[..1], side, |_, _| Some(1)), [Some(0), None, None]);
            assert_eq!(pair(&rails[..1], &rails, side, |_, _| Some(1)), [Some(0)]);
            assert_eq!(pair(&[], &rails, side, |_, _| Some(1)), []);
        }
    }

    #[test]
    fn near_comes_before_fast_and_fast_before_the_rest() {
        let ours = [address(100)];
        let theirs = [address(10), address(100), address(40)];
        let near = |_: usize, other: &Address| Some(1 + u32::from(other.speed != 10));
        assert_eq!(pair(&ours, &theirs, Side::First, near), [Some(0)]);
        assert_eq!(pair(&ours, &theirs, Side::First, |_, _| Some(1)), [Some(1)]);
    }

    /// The first may have either, the second only one: both are used.
    #[test]
    fn no_rail_is_left_out_for_a_better_one_of_another() {
        let ours = [address(100), address(100)];
        let theirs = [address(100), address(40)];
        let only = |mine: usize, other: &Address| (mine == 0 || other.speed == 100).then_some(1);
        assert_eq!(pair(&ours, &theirs, Side::First, only), [Some(1), Some(0)]);
    }

    #[test]
    fn one_subnet_is_better_than_any_number_of_routes() {
        let rails: Vec<_> = (0..255).map(|_| address(u32::MAX)).collect();
        let distance = |mine: usize, _: &Address| Some(if mine == 0 { 1 } else { 3 });
        let one = pair(&rails, &rails[..1], Side::Second, distance);
        assert_eq!(one[0], Some(0));
        let all = rails.len() as Weight;
        assert!(weigh(1, 0, 0, 254) > all * weigh(2, u32::MAX, 0, 0));
        assert!(weigh(2, 0, 0, 254) > all * weigh(3, u32::MAX, 0, 0));
        assert!(weigh(3, 1, 0, 254) + (all - 1) * weigh(3, 0, 0, 254) > all * weigh(3, 0, 0, 0));
    }

    #[test]
    fn peers_on_this_host_are_not_striped_over_devices() {
        let rails = [address(100), address(1000)];
        let distance = |mine: usize, other: &Address| match (mine, other.speed) {
            (1, 1000) => Some(0),
            (0, 100) => Some(1),
            _ => None,
        };
        assert_eq!(pair(&rails, &rails, Side::First, distance), [None, Some(1)]);
    }

    #[test]
    fn unreachable_addresses_are_no_partners() {
        let ours = [address(100)];
        assert_eq!(pair(&ours, &[address(100)], Side::First, |_, _| None), [None]);
    }
}
