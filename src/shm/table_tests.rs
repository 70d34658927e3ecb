//! What tables promise, to processes that share one and to those that find something else under its name.

use std::sync::atomic::Ordering;

use super::plate::Plate;
use super::segment::{NONCE, anonymous};
use super::table::*;
use crate::error::{Error, Result};

fn name(of: &str) -> Vec<u8> {
    format!("table {of} {}", std::process::id()).into_bytes()
}

fn number(place: usize, generation: u32) -> u64 {
    (generation as u64) << 32 | place as u64
}

fn add(table: &Table, entry: u64) -> Result<u64> {
    table.insert(&[entry; WORDS], number)
}

/// What lies where the numbers are said to lie.
fn said(table: &Table, place: usize) -> u64 {
    assert_eq!(table.numbers().cast::<u8>(), table.map.as_ptr().wrapping_add(NUMBERS));
    table.load(NUMBERS + 8 * place)
}

#[test]
fn who_comes_later_finds_what_was_made_until_its_maker_is_gone() {
    let name = name("life");
    assert_eq!(Table::open(&name, 7, Access::Read).err(), Some(Error::NotFound));
    let made = Table::open(&name, 7, Access::Write).expect("made");
    assert_eq!([add(&made, 10), add(&made, 11)], [Ok(0), Ok(1)]);
    let reads = Table::open(&name, 0, Access::Read).expect("found");
    let writes = Table::open(&name, 8, Access::Write).expect("found");
    assert_eq!((reads.kind(), writes.kind()), (7, 7), "its maker's");
    assert_eq!((reads.get(1), reads.get(2), reads.used()), (Some((0, [11; WORDS])), None, 2));
    assert_eq!(add(&writes, 12), Ok(2));
    assert_eq!(reads.get(2), Some((0, [12; WORDS])));
    assert_eq!((0..4).map(|place| said(&reads, place)).collect::<Vec<_>>(), [0, 1, 2, 0]);
    drop(made);
    assert_eq!(reads.get(0), Some((0, [10; WORDS])), "who has it keeps it");
    assert_eq!(Table::open(&name, 7, Access::Read).err(), Some(Error::NotFound));
    let next = Table::open(&name, 7, Access::Write).expect("made");
    assert_eq!(next.get(0), None, "another one");
}

#[test]
fn a_place_is_used_again_and_can_be_told_from_what_it_was() {
    let made = Table::open(&name("places"), 0, Access::Write).expect("made");
    (0..4).for_each(|entry| assert_eq!(add(&made, entry), Ok(entry)));
    let before = made.changes();
    assert_eq!(
        [made.remove(2, 0), made.remove(1, 0), made.remove(1, 0)],
        [Ok(()), Ok(()), Err(Error::NotFound)]
    );
    assert_ne!(made.changes(), before);
    assert_eq!((said(&made, 1), made.get(1)), (NOTHING, None));
    let again: Vec<u64> = (10..13).map(|entry| add(&made, entry).expect("room")).collect();
    assert_eq!(again, [number(1, 1), number(2, 1), 4], "the first that is free, then new ones");
    assert_eq!(made.remove(1, 0), Err(Error::NotFound), "it was used again");
    assert_eq!(made.get(1), Some((1, [10; WORDS])));
    assert_eq!(made.remove(PLACES, 0), Err(Error::NotFound));
    assert_eq!(made.get(PLACES), None);
}

#[test]
fn who_only_reads_writes_nothing() {
    let name = name("reads");
    let made = Table::open(&name, 0, Access::Write).expect("made");
    add(&made, 1).expect("room");
    let reads = Table::open(&name, 0, Access::Read).expect("found");
    assert!(made.is_writable() && !reads.is_writable());
    assert_eq!(add(&reads, 2), Err(Error::BadParameter));
    assert_eq!(reads.remove(0, 0), Err(Error::BadParameter));
    assert_eq!(made.get(0), Some((0, [1; WORDS])));
}

#[test]
fn what_is_no_name_is_refused_and_long_ones_are_told_apart() {
    for bad in [&b""[..], &[b'n'; NAME + 1]] {
        assert_eq!(Table::open(bad, 0, Access::Write).err(), Some(Error::BadParameter));
    }
    let long = |last: u8| {
        let mut name = name("long");
        name.resize(NAME - 1, b'n');
        name.push(last);
        name
    };
    let [one, other] = [1, 2].map(|last| Table::open(&long(last), 0, Access::Write).expect("made"));
    add(&one, 1).expect("room");
    assert_eq!(other.used(), 0);
}

#[test]
fn a_table_of_another_name_or_layout_under_this_one_is_not_it() {
    let name = name("layout");
    let made = Table::open(&name, 0, Access::Write).expect("made");
    for (at, value) in [(MAGIC_AT, MAGIC + 1), (NAME_LENGTH_AT, 3), (NAME_AT, 0)] {
        let right = made.word(at).swap(value, Ordering::Relaxed);
        assert_eq!(Table::open(&name, 0, Access::Read).err(), Some(Error::System(libc::EACCES)), "{at}");
        made.word(at).store(right, Ordering::Relaxed);
    }
    Table::open(&name, 0, Access::Read).expect("as it was");
}

#[test]
fn a_file_that_others_may_read_by_its_owner_but_is_too_short_is_not_mapped() {
    let name = name("short");
    let (_file, identity) = anonymous("short", LENGTH - 8, [0; NONCE]).expect("memory");
    let plate = Plate::new(&name, &identity).expect("sockets");
    assert!(plate.is_some());
    for access in [Access::Read, Access::Write] {
        assert_eq!(Table::open(&name, 0, access).err(), Some(Error::System(libc::EACCES)));
    }
}

/// Many that open a name that nobody has, at the same time.
#[test]
fn of_those_who_come_at_once_one_makes_it_and_all_have_the_same() {
    let name = name("at once");
    for _ in 0..50 {
        let begin = std::sync::Barrier::new(4);
        let open = |entry: u64| {
            begin.wait();
            let table = Table::open(&name, 0, Access::Write).expect("made or found");
            add(&table, entry).expect("room");
            begin.wait();
            assert_eq!(table.used(), 4);
            begin.wait();
        };
        let open = &open;
        std::thread::scope(|s| (0..4).for_each(|entry| drop(s.spawn(move || open(entry)))));
    }
}

#[test]
fn whatever_lies_in_its_words_leads_to_no_place_outside() {
    let made = Table::open(&name("rubbish"), 0, Access::Write).expect("made");
    add(&made, 1).expect("room");
    made.word(USED_AT).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(made.used(), PLACES);
    for hint in [u64::MAX, u64::from(u32::MAX), PLACES as u64] {
        made.word(VACANT_AT).store(hint, Ordering::Relaxed);
        assert_eq!(add(&made, 2), Err(Error::OutOfResource));
    }
    made.word(STATES).store(u64::MAX, Ordering::Relaxed);
    assert_eq!((made.get(0), made.remove(0, u32::MAX)), (None, Err(Error::NotFound)));
    made.word(STATES).store(state(u32::MAX, THERE), Ordering::Relaxed);
    assert_eq!(made.remove(0, u32::MAX), Ok(()));
    assert_eq!(add(&made, 3), Ok(0), "given back, it is found");
}

/// Two writers that put entries in and take them out again, and two readers.
#[test]
fn readers_see_whole_entries_and_writers_never_have_the_same_place() {
    let name = name("threads");
    let made = Table::open(&name, 0, Access::Write).expect("made");
    let rounds: u64 = 3_000;
    std::thread::scope(|s| {
        let writers = [1, 2].map(|writer: u64| {
            let table = Table::open(&name, 0, Access::Write).expect("found");
            s.spawn(move || {
                for round in 0..rounds {
                    let mine = writer << 32 | round;
                    let at = add(&table, mine).expect("room");
                    let (place, generation) = (at as u32 as usize, (at >> 32) as u32);
                    assert_eq!(table.get(place), Some((generation, [mine; WORDS])));
                    table.remove(place, generation).expect("there");
                }
            })
        });
        for _ in 0..2 {
            let table = Table::open(&name, 0, Access::Read).expect("found");
            s.spawn(move || {
                let mut last = 0;
                while last < 1 + 4 * rounds {
                    last = table.changes();
                    for place in 0..table.used() {
                        if let Some((_, entry)) = table.get(place) {
                            assert_eq!(entry, [entry[0]; WORDS]);
                        }
                    }
                }
            });
        }
        for writer in writers {
            writer.join().expect("no panic");
        }
    });
    assert!(made.used() <= 2, "{} places", made.used());
    assert_eq!((made.get(0), made.get(1)), (None, None));
}
