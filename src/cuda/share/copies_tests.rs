use super::*;
use crate::cuda::{fake, library};

/// The places of allocations of the fake's: two of device 0 and one of the host.
fn begin(limits: Limits) -> (Copies, Place) {
    fake::program_uses(Some(1));
    let driver = fake::driver().expect("the fake");
    let contexts = Arc::new(Contexts::new(driver));
    let context = driver.current().expect("the fake").expect("a context");
    let device = Device { ordinal: 0, context: Some(context), is_managed: false };
    (Copies::new(contexts, limits), Place::Device(device))
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

/// Polls until nothing is left to do.
fn wait(copies: &mut Copies) -> Vec<(u64, Result<()>)> {
    let mut over = Vec::new();
    for _ in 0..1000 {
        copies.poll(|cookie, result| over.push((cookie, result)));
        if copies.is_idle() {
            return over;
        }
    }
    panic!("not over after a thousand looks");
}

#[test]
fn a_large_copy_goes_in_pieces_over_two_streams() {
    let (mut copies, place) = begin(Limits { events: 8, piece: 10 });
    let (to, from) = (fake::program_allocates(1, 0, false, 95), fake::host(&bytes(95)));
    copies.begin(7, fake::transfer(to, from, 95), place, Place::Host, None);
    assert!(!copies.is_idle());
    assert_eq!(fake::calls("cuMemcpyAsync"), 10);
    assert_eq!((fake::calls("cuStreamCreate"), fake::calls("cuEventRecord")), (2, 2));
    assert_eq!(wait(&mut copies), [(7, Ok(()))]);
    assert_eq!(fake::bytes(to, 95), bytes(95));
    // Again: nothing is made anew.
    copies.begin(8, fake::transfer(to, from, 95), place, Place::Host, None);
    assert_eq!(wait(&mut copies), [(8, Ok(()))]);
    assert_eq!((fake::calls("cuStreamCreate"), fake::calls("cuEventCreate")), (2, 2));
    drop(copies);
    assert_eq!(fake::left(), [0; 4]);
}

#[test]
fn a_short_copy_does_not_wait_for_a_long_one() {
    let (mut copies, place) = begin(Limits { events: 8, piece: 10 });
    let (to, from) = (fake::program_allocates(1, 0, false, 200), fake::host(&bytes(200)));
    copies.begin(1, fake::transfer(to, from, 190), place, Place::Host, None);
    copies.begin(2, fake::transfer(to + 190, from, 10), place, Place::Host, None);
    assert_eq!(wait(&mut copies), [(2, Ok(())), (1, Ok(()))]);
    drop(copies);
    assert_eq!(fake::left(), [0; 4]);
}

#[test]
fn beyond_the_marks_copies_wait() {
    let (mut copies, place) = begin(Limits { events: 3, piece: 1000 });
    let (to, from) = (fake::program_allocates(1, 0, false, 100), fake::host(&bytes(100)));
    for index in 0..10 {
        let (to, from) = (to + 10 * index, from + 10 * index);
        copies.begin(index as u64, fake::transfer(to, from, 10), place, Place::Host, None);
    }
    assert_eq!(fake::calls("cuMemcpyAsync"), 3);
    let mut over = wait(&mut copies);
    over.sort_by_key(|(cookie, _)| *cookie);
    assert_eq!(over, (0..10).map(|cookie| (cookie, Ok(()))).collect::<Vec<_>>());
    assert_eq!(fake::bytes(to, 100), bytes(100));
    assert!(fake::calls("cuEventCreate") <= 3 * LANES);
    drop(copies);
    assert_eq!(fake::left(), [0; 4]);
}

#[test]
fn between_memory_of_the_hosts_the_processor_copies() {
    let (mut copies, _) = begin(Limits::default());
    let (to, from) = (fake::host(&[0; 30]), fake::host(&bytes(30)));
    copies.begin(5, fake::transfer(to, from, 30), Place::Host, Place::Host, None);
    assert_eq!(fake::host_bytes(to, 30), bytes(30));
    assert!(!copies.is_idle(), "it is still to be said of");
    assert_eq!(wait(&mut copies), [(5, Ok(()))]);
    copies.begin(6, fake::transfer(to, from, 0), Place::Host, Place::Host, None);
    assert_eq!(wait(&mut copies), [(6, Ok(()))], "nothing is copied at once");
    assert_eq!(fake::calls("cuMemcpyAsync"), 0);
}

#[test]
fn between_pools_of_two_devices_copies_go_by_way_of_the_host() {
    let (mut copies, _) = begin(Limits::default());
    let (to, from) = (fake::program_allocates(0, 1, false, 30), fake::program_allocates(0, 0, false, 30));
    let place = |ordinal| Place::Device(Device { ordinal, context: None, is_managed: false });
    let start = fake::host(&bytes(30));
    copies.begin(1, fake::transfer(from, start, 30), place(0), Place::Host, None);
    assert_eq!(wait(&mut copies), [(1, Ok(()))]);
    copies.begin(2, fake::transfer(to, from, 30), place(1), place(0), None);
    assert_eq!(wait(&mut copies), [(2, Ok(()))]);
    assert_eq!(fake::bytes(to, 30), bytes(30));
    drop(copies);
    assert_eq!(fake::left(), [0; 4]);
}

#[test]
fn where_the_driver_fails_the_copy_does() {
    let (mut copies, place) = begin(Limits { events: 8, piece: 10 });
    let (to, from) = (fake::program_allocates(1, 0, false, 100), fake::host(&bytes(100)));
    let error = |code| Err(library::Error::Driver(code));
    for (call, expected) in [
        ("cuStreamCreate", error(999)),
        ("cuMemcpyAsync", error(999)),
        // Without a mark it is waited for.
        ("cuEventCreate", Ok(())),
        ("cuEventRecord", Ok(())),
        // What is over is over.
        ("cuEventQuery", Ok(())),
    ] {
        fake::fail(call, 999);
        copies.begin(3, fake::transfer(to, from, 100), place, Place::Host, None);
        assert_eq!(wait(&mut copies), [(3, expected)], "{call}");
    }
    fake::fail("cuEventQuery", 700);
    fake::fail("cuStreamSynchronize", 700);
    copies.begin(4, fake::transfer(to, from, 10), place, Place::Host, None);
    assert_eq!(wait(&mut copies), [(4, error(700))]);
    copies.begin(5, fake::transfer(to, from, 100), place, Place::Host, None);
    assert_eq!(wait(&mut copies), [(5, Ok(()))]);
    drop(copies);
    assert_eq!(fake::left(), [0; 4]);
}

#[test]
fn a_context_may_end_with_copies_under_way() {
    let (mut copies, place) = begin(Limits { events: 2, piece: 10 });
    let (to, from) = (fake::program_allocates(1, 0, false, 100), fake::host(&bytes(100)));
    for cookie in 0..3 {
        copies.begin(cookie, fake::transfer(to, from, 10), place, Place::Host, None);
    }
    fake::program_ends(1);
    let over = wait(&mut copies);
    assert_eq!(over.len(), 3);
    assert!(over.iter().all(|(_, result)| result.is_err()));
    // One that is called the same.
    fake::program_uses(Some(1));
    copies.begin(4, fake::transfer(to, from, 100), place, Place::Host, None);
    assert_eq!(wait(&mut copies), [(4, Ok(()))]);
    fake::end();
    drop(copies);
}

#[test]
fn streams_that_went_with_their_context_do_not_change_which_make_a_copy() {
    let (mut copies, _) = begin(Limits::default());
    let place = |ordinal| Place::Device(Device { ordinal, context: None, is_managed: false });
    let [first, second] = [0, 1].map(|device| fake::program_allocates(0, device, false, 30));
    let host = fake::host(&bytes(30));
    for (to, device) in [(second, 1), (first, 0)] {
        copies.begin(1, fake::transfer(to, host, 30), place(device), Place::Host, None);
        assert_eq!(wait(&mut copies), [(1, Ok(()))]);
    }
    copies.begin(2, fake::transfer(fake::host(&[0; 30]), first, 30), Place::Host, place(0), None);
    assert_eq!(wait(&mut copies), [(2, Ok(()))]);
    // The program has reset the second device, whose stream is the first of all.
    copies.lanes[0].life = 5;
    let other = fake::host(&[9; 30]);
    copies.begin(3, fake::transfer(first, other, 30), place(0), Place::Host, None);
    assert_eq!(wait(&mut copies), [(3, Ok(()))]);
    copies.begin(4, fake::transfer(second, first, 30), place(1), place(0), None);
    assert_eq!(wait(&mut copies), [(4, Ok(()))]);
    assert_eq!(fake::bytes(second, 30), [9; 30]);
}
