//! Each rule of matching.

use std::cell::Cell;

use super::posted::CLASSES;
use super::*;

thread_local! {
    /// Places and entries that were looked at.
    pub(super) static LOOKS: Cell<u64> = const { Cell::new(0) };
}

const KEY: [u8; 16] = *b"sixteen of bytes";
const ANY: u64 = u64::MAX;

pub(super) type Engine = Matching<usize, usize>;

pub(super) fn engine(limit: usize) -> Engine {
    Matching::new(limit, KEY)
}

pub(super) fn exact(source: u64, tag: u64) -> Wanted {
    Wanted { source: Some(source), tag, ignore: 0 }
}

pub(super) fn from_any(tag: u64, ignore: u64) -> Wanted {
    Wanted { source: None, tag, ignore }
}

pub(super) fn message(source: u64, tag: u64, token: usize) -> Message<usize> {
    Message { source, tag, bytes: 10, complete: true, token }
}

pub(super) fn posts(engine: &mut Engine, wanted: Wanted, token: usize) -> ReceiveId {
    match engine.post(wanted, Times::Once, token) {
        Ok(Posting::Waits(id)) => id,
        other => panic!("{other:?}"),
    }
}

fn posts_many(engine: &mut Engine, wanted: Wanted, token: usize) -> ReceiveId {
    match engine.post(wanted, Times::Many, token) {
        Ok(Posting::Waits(id)) => id,
        other => panic!("{other:?}"),
    }
}

pub(super) fn keeps(engine: &mut Engine, message: Message<usize>) -> MessageId {
    match engine.arrive(message) {
        Arrival::Unexpected(id) => id,
        other => panic!("{other:?}"),
    }
}

/// Which message a receive takes, if any; one that would wait is withdrawn.
pub(super) fn takes(engine: &mut Engine, wanted: Wanted) -> Option<usize> {
    match engine.post(wanted, Times::Once, 0).expect("room") {
        Posting::Takes(message) => Some(message.token),
        Posting::Waits(id) => {
            assert_eq!(engine.withdraw(id), Some(0));
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_takes_the_oldest_receive_that_fits() {
    let mut engine = engine(10);
    posts(&mut engine, exact(1, 7), 0);
    posts(&mut engine, from_any(7, 0), 1);
    posts(&mut engine, exact(2, 7), 2);
    posts(&mut engine, from_any(0, ANY), 3);
    let order = [(2, 7, 1), (2, 7, 2), (2, 7, 3), (1, 7, 0)];
    for (source, tag, receive) in order {
        assert_eq!(engine.arrive(message(source, tag, 9)), Arrival::Taken(receive));
    }
    keeps(&mut engine, message(1, 7, 9));
    assert_eq!((engine.posted(), engine.kept().messages), (0, 1));
}

#[test]
fn a_receive_takes_the_oldest_message_that_fits() {
    let mut engine = engine(10);
    for (token, (source, tag)) in [(1, 7), (2, 7), (1, 8), (1, 7)].into_iter().enumerate() {
        keeps(&mut engine, message(source, tag, token));
    }
    assert_eq!(takes(&mut engine, exact(1, 8)), Some(2));
    assert_eq!(takes(&mut engine, from_any(7, 0)), Some(0));
    assert_eq!(takes(&mut engine, exact(1, 7)), Some(3));
    assert_eq!(takes(&mut engine, exact(1, 7)), None);
    assert_eq!(takes(&mut engine, from_any(0, ANY)), Some(1));
}

/// However many receives there are, and of however many kinds.
#[test]
fn the_oldest_is_the_oldest_of_all_kinds() {
    let kinds = 2 * CLASSES;
    let mut engine = engine(10 * kinds);
    let all: Vec<u64> = (0..kinds as u64).map(|bit| 1 << bit).collect();
    for round in 0..10 {
        for (kind, ignore) in all.iter().enumerate() {
            posts(&mut engine, from_any(0, *ignore), round * kinds + kind);
        }
    }
    let (hashed, classes, strays) = engine.posted.state();
    assert!(hashed && classes as usize == CLASSES && strays);
    for receive in 0..5 * kinds {
        assert_eq!(engine.arrive(message(1, 0, 0)), Arrival::Taken(receive), "all fit");
    }
    // Only those that ignore this bit fit: of a class, and of the strays.
    for kind in [3, kinds - 1] {
        for round in 5..10 {
            assert_eq!(engine.arrive(message(1, all[kind], 0)), Arrival::Taken(round * kinds + kind));
        }
        keeps(&mut engine, message(1, all[kind], 0));
    }
    assert_eq!(engine.posted(), 5 * (kinds - 2));
}

#[test]
fn bits_that_are_ignored_do_not_count_on_either_side() {
    let mut engine = engine(10);
    let context = Wanted { source: Some(1), tag: 0xab_1234, ignore: 0xffff };
    posts(&mut engine, context, 5);
    keeps(&mut engine, message(1, 0xac_1234, 0));
    keeps(&mut engine, message(2, 0xab_1234, 1));
    assert_eq!(engine.arrive(message(1, 0xab_0001, 2)), Arrival::Taken(5));
    keeps(&mut engine, message(1, 0xab_0002, 3));
    assert_eq!(takes(&mut engine, context), Some(3));
    assert_eq!(takes(&mut engine, Wanted { source: None, ..context }), Some(1));
}

#[test]
fn untagged_receives_take_what_their_source_sends() {
    let mut engine = engine(10);
    posts(&mut engine, Wanted::untagged(Some(4)), 0);
    posts(&mut engine, Wanted::untagged(None), 1);
    assert_eq!(engine.arrive(message(3, 0, 0)), Arrival::Taken(1));
    keeps(&mut engine, message(3, 0, 1));
    assert_eq!(engine.arrive(message(4, 0, 2)), Arrival::Taken(0));
    assert_eq!(takes(&mut engine, Wanted::untagged(Some(4))), None);
    assert_eq!(takes(&mut engine, Wanted::untagged(Some(3))), Some(1));
}

#[test]
fn a_receive_for_many_keeps_its_place_until_it_is_withdrawn() {
    for others in [0, 100] {
        let mut engine = engine(200);
        posts(&mut engine, exact(1, 5), 0);
        let many = posts_many(&mut engine, from_any(5, 0), 1);
        posts(&mut engine, exact(1, 5), 2);
        for other in 0..others {
            posts(&mut engine, exact(7, other), 3);
        }
        assert_eq!(engine.arrive(message(1, 5, 0)), Arrival::Taken(0));
        for _ in 0..50 {
            assert_eq!(engine.arrive(message(1, 5, 0)), Arrival::TakenByMany(1, many));
        }
        assert_eq!(engine.withdraw(many), Some(1));
        assert_eq!(engine.arrive(message(1, 5, 0)), Arrival::Taken(2));
        assert_eq!((engine.withdraw(many), engine.more(many)), (None, None));
    }
}

#[test]
fn a_receive_for_many_first_takes_what_waits() {
    let mut engine = engine(1);
    for token in 0..4 {
        keeps(&mut engine, message(1, token as u64 % 2, token));
    }
    let posting = engine.post(from_any(0, 0), Times::Many, 9);
    let Ok(Posting::TakesAndWaits(first, many)) = posting else { panic!("{posting:?}") };
    assert_eq!(first.token, 0);
    assert_eq!(engine.more(many).map(|message| message.token), Some(2));
    assert_eq!(engine.more(many), None);
    assert_eq!(engine.arrive(message(1, 0, 0)), Arrival::TakenByMany(9, many));
    assert_eq!((engine.posted(), engine.kept().messages), (1, 2));
    engine.withdraw(many);
    let once = posts(&mut engine, exact(1, 5), 8);
    assert_eq!(engine.more(once), None, "that is for receives that take many");
}

#[test]
fn a_receive_that_was_withdrawn_takes_nothing_and_its_id_is_refused() {
    for others in [0, 100] {
        let mut engine = engine(200);
        for other in 0..others {
            posts(&mut engine, exact(7, other), 3);
        }
        let first = posts(&mut engine, exact(1, 5), 0);
        let second = posts(&mut engine, exact(1, 5), 1);
        let third = posts(&mut engine, exact(1, 5), 2);
        assert_eq!(engine.withdraw(second), Some(1));
        assert_eq!(engine.arrive(message(1, 5, 0)), Arrival::Taken(0));
        assert_eq!((engine.withdraw(first), engine.withdraw(second)), (None, None));
        let tenant = posts(&mut engine, exact(1, 5), 4);
        assert_eq!(
            (tenant.0.index, engine.withdraw(first)),
            (first.0.index, None),
            "its place is used again"
        );
        assert_eq!(engine.withdraw(third), Some(2));
        assert_eq!(engine.arrive(message(1, 5, 0)), Arrival::Taken(4));
        assert_eq!(engine.withdraw(ReceiveId::from_raw(tenant.raw())), None);
        assert_eq!(engine.withdraw(ReceiveId::from_raw(ANY)), None);
        assert_eq!(engine.posted(), others as usize);
    }
}

#[test]
fn what_is_peeked_at_stays_and_what_is_claimed_is_for_nobody_else() {
    let mut engine = engine(10);
    let first = keeps(&mut engine, message(1, 5, 0));
    let second = keeps(&mut engine, message(1, 5, 1));
    let wanted = exact(1, 5);
    assert_eq!(engine.peek(&wanted), Some((first, message(1, 5, 0))));
    assert_eq!(engine.peek(&from_any(5, 0)), Some((first, message(1, 5, 0))));
    assert_eq!(engine.redeem(first), None, "it was not claimed");
    assert_eq!(engine.claim(&wanted), Some((first, message(1, 5, 0))));
    assert_eq!(engine.peek(&wanted), Some((second, message(1, 5, 1))));
    assert_eq!(takes(&mut engine, wanted), Some(1));
    assert_eq!((engine.peek(&wanted), engine.claim(&wanted)), (None, None));
    assert_eq!(engine.kept(), Kept { messages: 1, bytes: 10 }, "it still takes room");
    let again = MessageId::from_raw(first.raw());
    assert_eq!(engine.redeem(again), Some(message(1, 5, 0)));
    assert_eq!((engine.redeem(first), engine.discard(first), engine.discard(second)), (None, None, None));
    assert_eq!(engine.kept(), Kept::default());
}

#[test]
fn what_is_discarded_is_gone_claimed_or_not() {
    let mut engine = engine(10);
    let ids: Vec<MessageId> = (0..3).map(|token| keeps(&mut engine, message(1, 5, token))).collect();
    assert_eq!(engine.claim(&exact(1, 5)).map(|(id, _)| id), Some(ids[0]));
    assert_eq!(engine.discard(ids[1]), Some(message(1, 5, 1)));
    assert_eq!(engine.discard(ids[0]), Some(message(1, 5, 0)));
    assert_eq!((engine.discard(ids[0]), engine.redeem(ids[0])), (None, None));
    assert_eq!((takes(&mut engine, exact(1, 5)), engine.kept()), (Some(2), Kept::default()));
}

#[test]
fn a_receive_is_refused_only_if_it_would_have_to_wait() {
    let mut engine = engine(2);
    posts(&mut engine, exact(1, 1), 0);
    posts(&mut engine, exact(1, 1), 1);
    keeps(&mut engine, message(1, 2, 7));
    assert_eq!(engine.post(exact(1, 1), Times::Once, 2), Err(Full));
    assert_eq!(engine.post(exact(1, 2), Times::Many, 2), Err(Full));
    assert_eq!(engine.kept().messages, 1, "nothing has happened");
    assert_eq!(engine.post(exact(1, 2), Times::Once, 2), Ok(Posting::Takes(message(1, 2, 7))));
    assert_eq!(engine.arrive(message(1, 1, 0)), Arrival::Taken(0));
    posts(&mut engine, exact(1, 1), 2);
}

#[test]
fn what_unexpected_messages_take_is_known() {
    let mut engine = engine(10);
    assert_eq!(engine.kept(), Kept::default());
    posts(&mut engine, exact(1, 0), 0);
    assert_eq!(engine.arrive(message(1, 0, 0)), Arrival::Taken(0));
    assert_eq!(engine.kept(), Kept::default());
    keeps(&mut engine, Message { bytes: 100, ..message(1, 1, 0) });
    keeps(&mut engine, Message { bytes: 0, ..message(1, 2, 0) });
    assert_eq!(engine.kept(), Kept { messages: 2, bytes: 100 });
    assert_eq!(takes(&mut engine, exact(1, 1)), Some(0));
    assert_eq!(engine.kept(), Kept { messages: 1, bytes: 0 });
}

#[test]
fn who_ends_takes_along_what_only_he_could_complete() {
    let mut engine = engine(10);
    for (token, source) in [4, 5, 4].into_iter().enumerate() {
        posts(&mut engine, exact(source, 1), token);
    }
    posts(&mut engine, from_any(1, 0), 3);
    posts_many(&mut engine, exact(4, 1), 4);
    let part = |source, token| Message { complete: false, ..message(source, 9, token) };
    keeps(&mut engine, message(4, 9, 0));
    let claimed = keeps(&mut engine, part(4, 1));
    keeps(&mut engine, part(5, 2));
    let later = keeps(&mut engine, part(4, 3));
    keeps(&mut engine, part(4, 4));
    let aside = engine.claim(&exact(4, 9)).expect("the first");
    assert_eq!(engine.claim(&exact(4, 9)), Some((claimed, part(4, 1))));
    assert!(engine.complete(later));
    let Leftover { receives, messages } = engine.forget(4, |_| true);
    assert_eq!((receives, messages), (vec![0, 2, 4], vec![part(4, 4), part(4, 1)]));
    assert_eq!((engine.redeem(claimed), engine.complete(claimed)), (None, false));
    assert_eq!(engine.redeem(aside.0), Some(message(4, 9, 0)), "that one is complete");
    assert_eq!(takes(&mut engine, exact(4, 9)), Some(3), "and so has this become");
    assert_eq!(takes(&mut engine, exact(5, 9)), Some(2));
    let nothing = Leftover { receives: vec![], messages: vec![] };
    assert_eq!((engine.forget(4, |_| true), engine.kept()), (nothing, Kept::default()));
    let left: Vec<usize> = engine.receives().map(|(_, receive)| receive).collect();
    assert_eq!(left, [1, 3]);
}

#[test]
fn of_several_that_are_one_source_one_can_be_forgotten() {
    let mut engine = engine(10);
    let part = |token| Message { complete: false, ..message(4, 9, token) };
    let kept: Vec<MessageId> = (0..3).map(|token| keeps(&mut engine, part(token))).collect();
    posts(&mut engine, exact(4, 1), 7);
    assert_eq!(engine.forget_incomplete(4, |token| token == 1), [part(1)]);
    assert!(engine.complete(kept[0]) && engine.complete(kept[2]) && !engine.complete(kept[1]));
    let Leftover { receives, messages } = engine.forget(4, |token| token == 1);
    assert_eq!((receives, messages), (vec![7], vec![]));
    assert_eq!((takes(&mut engine, exact(4, 9)), takes(&mut engine, exact(4, 9))), (Some(0), Some(2)));
}

#[test]
fn draining_gives_all_back_in_order() {
    for count in [3, 300] {
        let mut engine = engine(1000);
        let receives: Vec<ReceiveId> =
            (0..count).map(|token| posts(&mut engine, exact(token as u64 % 7, 1), token)).collect();
        let messages: Vec<MessageId> =
            (0..count).map(|token| keeps(&mut engine, message(token as u64 % 7, 2, token))).collect();
        assert!(engine.claim(&exact(1, 2)).is_some_and(|(id, _)| id == messages[1]));
        let listed: Vec<(ReceiveId, usize)> = engine.receives().collect();
        assert_eq!(listed, receives.iter().copied().zip(0..).collect::<Vec<_>>());
        let left = engine.drain();
        assert_eq!(left.receives, (0..count).collect::<Vec<_>>());
        let tokens: Vec<usize> = left.messages.iter().map(|message| message.token).collect();
        let unclaimed = (0..count).filter(|token| *token != 1);
        assert_eq!(tokens, unclaimed.chain([1]).collect::<Vec<_>>());
        assert!(receives.iter().all(|id| engine.withdraw(*id).is_none()));
        assert!(messages.iter().all(|id| engine.discard(*id).is_none()));
        assert_eq!((engine.posted(), engine.kept()), (0, Kept::default()));
        posts(&mut engine, exact(1, 1), 5);
        assert_eq!(engine.arrive(message(1, 1, 0)), Arrival::Taken(5));
    }
}
