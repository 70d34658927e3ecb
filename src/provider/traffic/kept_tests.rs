//! Messages that nobody has asked for: what of them is kept, and that whoever waits for what is behind them gets it.

use super::super::argument::Foreign;
use super::super::errno::Errno;
use super::super::wait::Beside;
use super::buffer::Buffer;
use super::far_tests;
use super::tests::{Side, pair, some, stir};
use super::{Act, Context, Look, Lost, Traffic, Want};
use crate::link::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Fills a side with messages that it has not asked for, until it takes no more.
pub(super) fn flood(from: &Side, to: &Side, length: usize) {
    // What is still to be sent lies there, also when this has returned.
    static BYTES: [u8; 4096] = [1; 4096];
    let bytes = &BYTES[..length];
    let mut refused = 0;
    while refused < 64 {
        match from.send(bytes, 1, 5) {
            Ok(()) => refused = 0,
            Err(_) => refused += 1,
        }
        if refused != 0 {
            to.with(Traffic::progress);
            from.with(Traffic::progress);
            from.ended(&from.transmit);
        }
    }
}

#[test]
fn who_writes_again_where_an_entry_was_judged_by_its_kind_is_lost() {
    let [one, two] = pair();
    (0..2).for_each(|_| one.send(b"word", 1, 5).expect("sent"));
    let of_peer = |take: &dyn Fn(&mut Context) -> bool| {
        two.with(|traffic| take(traffic.context(two.slot).expect("open")))
    };
    let kind = |context: &Context| {
        let mailbox = context.peers[0].mailbox.as_ref().expect("connected");
        mailbox.next_kind().expect("a message")
    };
    assert!(of_peer(&|context| context.take_next(0, Some(kind(context))).is_ok()));
    assert!(of_peer(&|context| matches!(context.take_next(0, Some(kind(context) + 1)), Err(Lost))));
}

#[test]
fn what_nobody_asks_for_is_bounded_and_stops_nothing_else() {
    for length in [0, 4096] {
        let [one, two] = pair();
        flood(&one, &two, length);
        let kept = |side: &Side| side.with(|traffic| traffic.context(side.slot).expect("open").kept());
        let most = kept(&two);
        assert!(most < 300 << 20, "{most}");
        // Who is connected later is answered, and so is what goes to who fills the ring.
        let three = Side::new();
        two.knows(&three);
        let long = some(100_000);
        let mut to = vec![0; long.len()];
        three.receive(&mut to, 9);
        let order = |number| {
            // SAFETY: the bytes outlive the message.
            let buffer = unsafe { Buffer::new(long.as_ptr(), long.len()) };
            two.send_to(number, buffer, 9).expect("told of");
        };
        order(1);
        while two.ended(&two.transmit).0.is_empty() {
            stir(&[&two, &three]);
        }
        assert!(to == long);
        one.receive(&mut to, 9);
        order(0);
        while two.ended(&two.transmit).0.is_empty() {
            stir(&[&one, &two]);
            one.ended(&one.transmit);
        }
        assert!(kept(&two) > most, "it is read past the bound");
    }
}

/// For so long what is to come may be waited for: more than nobody reads for, and than it then takes.
const LONG: u64 = 60_000_000_000;

/// What is behind messages that nobody asks for is there before long.
fn comes(sides: &[&Side], mut is_here: impl FnMut() -> bool) -> bool {
    let clock = Clock::new();
    let start = clock.nanos();
    while clock.nanos() - start < LONG {
        stir(sides);
        sides[0].ended(&sides[0].transmit);
        if is_here() {
            return true;
        }
    }
    false
}

/// Two sides, and the first has sent the second all that is kept for nobody, and more.
fn full(is_far: bool) -> [Side; 2] {
    let sides = if is_far { far_tests::pair() } else { pair() };
    flood(&sides[0], &sides[1], 0);
    sides
}

/// Sends when there is room.
fn send_behind([one, two]: &[Side; 2], bytes: &[u8], tag: u64) {
    assert!(comes(&[one, two], || one.send(bytes, 1, tag) != Err(Errno::AGAIN)), "there is no room");
}

#[test]
fn what_is_waited_for_comes_though_it_is_behind_what_nobody_asks_for() {
    for is_far in [false, true] {
        let sides = full(is_far);
        let [one, two] = &sides;
        let mut to = [0; 4];
        two.receive(&mut to, 9);
        send_behind(&sides, b"word", 9);
        assert!(comes(&[one, two], || two.receive.len() == 1), "far: {is_far}");
        assert_eq!((two.ended(&two.receive).0[0].tag, &to), (9, b"word"));
        // And so does all that was before.
        two.receive(&mut to, 5);
        assert_eq!(two.ended(&two.receive).0.len(), 1);
    }
}

#[test]
fn who_receives_what_is_kept_slowly_is_not_sent_more_than_there_is_room_for() {
    let [one, two] = full(false);
    let kept = || two.with(|traffic| traffic.context(two.slot).expect("open").kept());
    // A word that is waited for all the time, and messages that are received one by one.
    let (mut word, mut to, most) = ([0; 4], [0; 1], kept());
    two.receive(&mut word, 9);
    let clock = Clock::new();
    let start = clock.nanos();
    while clock.nanos() - start < 500_000_000 {
        two.receive(&mut to, 5);
        assert_eq!(two.ended(&two.receive).0.len(), 1, "it is there");
        while one.send(&[], 1, 5).is_ok() {}
        stir(&[&one, &two]);
        one.ended(&one.transmit);
        assert!(kept() <= most, "no more are read than received");
    }
}

#[test]
fn who_sleeps_has_read_what_may_be_before_what_it_waits_for() {
    let [one, two] = full(false);
    let kept = || two.with(|traffic| traffic.context(two.slot).expect("open").kept());
    let (mut to, before) = ([0; 4], kept());
    two.receive(&mut to, 9);
    // Nothing comes; its timer wakes it.
    let mut naps = 0;
    while kept() == before {
        if let Beside::Set(all, _) = two.with(Traffic::arm).expect("armed") {
            let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
            assert_ne!(poll(&mut [PollFd::new(&all, PollFlags::IN)], Some(&limit)), Ok(0), "it is woken");
            naps += 1;
        }
    }
    assert!(naps > 0);
    while let Beside::Moved = two.with(Traffic::arm).expect("armed") {}
    // There is room again.
    one.send(b"word", 1, 9).expect_err("not before it is looked");
    stir(&[&one]);
    assert!(two.with(|traffic| traffic.has_come(two.slot, 0)));
}

#[test]
fn what_is_looked_for_is_found_though_it_is_behind_what_nobody_asks_for() {
    let sides = full(false);
    let [one, two] = &sides;
    let look = || {
        let (context, tag) = (Foreign::NULL, Some((9, 0)));
        let (buffer, instead) = (Buffer::NONE, None);
        let want = Want { context, source: u64::MAX, tag, buffer, wants: true, many: None, instead };
        two.with(|traffic| traffic.look(two.slot, want, Look::Peek)).expect("looked");
        two.ended(&two.receive).0.len()
    };
    let mut is_sent = false;
    let is_found = comes(&[one], || {
        is_sent |= one.send(b"word", 1, 9).is_ok();
        look() != 0
    });
    assert!(is_sent && is_found);
}

#[test]
fn memory_that_peers_reach_is_written_to_behind_what_nobody_asks_for() {
    let sides = full(false);
    let [one, two] = &sides;
    let (mut memory, mut bytes) = ([0; 8], [7; 8]);
    two.register(&mut memory, 5);
    one.reach(Act::Put(None), &mut bytes, &[(5, 0, 8)]);
    // SAFETY: the memory is there, and written to by this thread.
    assert!(comes(&[one, two], || unsafe { memory.as_ptr().read_volatile() } == 7));
    two.deregister(5);
}

#[test]
fn of_those_who_send_in_a_circle_nobody_waits_for_one_who_waits() {
    let sides = [Side::new(), Side::new(), Side::new()];
    for (index, side) in sides.iter().enumerate() {
        let next = &sides[(index + 1) % 3];
        side.knows(next);
        let mut to = [0; 1];
        next.receive(&mut to, 1);
        side.send(b"a", 1, 1).expect("queued");
        while next.ended(&next.receive).0.is_empty() {
            stir(&[side, next]);
        }
        side.ended(&side.transmit);
    }
    (0..2).for_each(|index| flood(&sides[index], &sides[index + 1], 0));
    // The first waits by now, and keeps more.
    let (mut sent, mut refused) = (0, 0);
    while sent < 600_000 && refused < 200_000 {
        match sides[2].send(&[], 1, 5) {
            Ok(()) => sent += 1,
            Err(_) => {
                refused += 1;
                stir(&[&sides[2], &sides[0]]);
                sides[2].ended(&sides[2].transmit);
            }
        }
    }
    let all = sides.each_ref();
    let waits = |side: &Side| side.with(|traffic| traffic.context(side.slot).expect("open").sends.len()) != 0;
    // Nobody waits for one who waits himself: only what nobody asks for, of who waits for nothing, is left where it is.
    assert!(comes(&all, || {
        all.iter().for_each(|side| drop(side.ended(&side.transmit)));
        let waiting = all.map(waits);
        (0..3).all(|index| !(waiting[index] && waiting[(index + 1) % 3]))
    }));
}
