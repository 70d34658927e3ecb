//! The process that asks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hawser::error::Error;
use hawser::verbs::{
    Atomics, Context, Event, EventChannel, EventKind, Flags, Id, Library, Operation, Piece, Qp, Remote,
    Status, Work,
};

use crate::Outcome;
use crate::side::{HALF, Part, Report, SERVICES, Side};

/// The token of whatever belongs to a connection.
const CONNECTION: usize = 5;

/// Asks for each part.
pub(crate) fn ask(library: &'static Library, own: IpAddr, server: SocketAddr) -> Outcome<bool> {
    let side = Side::at(library, SocketAddr::new(own, 0))?;
    let mut report = Report::default();
    places(library, &side, own, server, &mut report)?;
    nobody(&side, own, server, &mut report)?;
    refusal(&side, own, server, &mut report)?;
    traffic(&side, own, server, &mut report)?;
    shared(&side, own, server, &mut report)?;
    wrong_key(&side, own, server, &mut report)?;
    endings(&side, own, server, &mut report)?;
    let (id, _pair) = prepared(&side, own, server)?;
    id.connect(&side.connect(&Part::Done.bytes()))?;
    side.expect(EventKind::Rejected)?;
    Ok(report.close())
}

/// An id with a route to a server, and its queue pair.
fn prepared(side: &Side, own: IpAddr, server: SocketAddr) -> Outcome<(Id, Qp)> {
    let id = Id::new(&side.channel, CONNECTION)?;
    id.resolve_address(Some(SocketAddr::new(own, 0)), server, SERVICES)?;
    side.expect(EventKind::AddressResolved)?;
    id.resolve_route(SERVICES)?;
    side.expect(EventKind::RouteResolved)?;
    let pair = id.create_qp(&side.queues(None), side.depths())?;
    Ok((id, pair))
}

/// The same, connected, with what the server says.
fn connected(side: &Side, own: IpAddr, server: SocketAddr, part: Part) -> Outcome<(Id, Qp, Event)> {
    let (id, pair) = prepared(side, own, server)?;
    id.connect(&side.connect(&part.bytes()))?;
    let event = side.expect(EventKind::Established)?;
    pair.set_receiver_not_ready_delay(12)?;
    Ok((id, pair, event))
}

/// Ends a connection, and reads what was flushed.
fn disconnected(side: &Side, id: &Id) -> Outcome<()> {
    id.disconnect()?;
    side.expect(EventKind::Disconnected)?;
    Ok(())
}

/// Which addresses are a device's.
fn places(
    library: &'static Library,
    side: &Side,
    own: IpAddr,
    server: SocketAddr,
    report: &mut Report,
) -> Outcome<()> {
    let channel = EventChannel::new(library)?;
    report.check(channel.next()?.is_none(), "a channel without events does not block");
    if server.ip() != own {
        let elsewhere = Context::at(&channel, server, 0).err();
        report.check(
            matches!(elsewhere, Some(Error::System(libc::ENODEV | libc::EADDRNOTAVAIL))),
            &format!("another node's address is nobody's here: {elsewhere:?}"),
        );
    }
    let nowhere = Context::at(&channel, "192.0.2.1:0".parse()?, 0).err();
    report.check(nowhere.is_some(), &format!("nor is one that nobody has: {nowhere:?}"));
    report.check(side.events.next()?.is_none(), "a device without events does not block");
    let bound = Id::new(&side.channel, 1)?;
    report.same((bound.port(), bound.address()), (0, None), "a new id has neither port nor address");
    report.check(!bound.is_of(&side.context), "nor a device");
    Ok(())
}

/// Nobody listens there.
fn nobody(side: &Side, own: IpAddr, server: SocketAddr, report: &mut Report) -> Outcome<()> {
    let (id, _pair) = prepared(side, own, SocketAddr::new(server.ip(), server.port() + 1))?;
    match id.connect(&side.connect(b"hello")) {
        Ok(()) => {
            let event = side.expect(EventKind::Rejected)?;
            report.check(!side.is_iwarp(), "where nobody listens, InfiniBand says so with an event");
            report.same(event.token, CONNECTION, "which names the id");
        }
        Err(error) => {
            report.same(
                error,
                Error::System(libc::ECONNREFUSED),
                "where nobody listens, iWARP refuses at once",
            );
            report.check(side.is_iwarp() && side.channel.next()?.is_none(), "and no event follows");
        }
    }
    Ok(())
}

/// The server refuses, and says why.
fn refusal(side: &Side, own: IpAddr, server: SocketAddr, report: &mut Report) -> Outcome<()> {
    let (id, pair) = prepared(side, own, server)?;
    report.check(
        matches!(id.create_qp(&side.queues(None), side.depths()), Err(Error::BadParameter)),
        "an id has one queue pair",
    );
    let timeout = id.set_acknowledgement_timeout(14);
    report.check(timeout.is_ok(), &format!("the time of acknowledgement is taken: {timeout:?}"));
    pair.post_receive(9, &[Piece::EMPTY])?;
    id.connect(&side.connect(&Part::Refusal.bytes()))?;
    let event = side.expect(EventKind::Rejected)?;
    println!("# {} bytes of private data", event.private.as_slice().len());
    report.check(event.private.as_slice().starts_with(b"reason"), "a refusal has its reason");
    report.check(event.status != 0, "and a status");
    // It outlives the pair, and belongs to no later one.
    report.same(side.completion()?.status(), Status::Flushed, "a refusal flushes what was posted");
    drop((id, pair));
    Ok(())
}

/// Messages, writes, reads and atomics.
fn traffic(side: &Side, own: IpAddr, server: SocketAddr, report: &mut Report) -> Outcome<()> {
    let memory = side.memory()?;
    let (id, pair, event) = connected(side, own, server, Part::Traffic)?;
    report.same(id.peer(), Some(server), "an id knows its peer");
    let granted = pair.granted();
    println!("# granted {granted:?}");
    report.check(granted.inline <= 1024 && granted.sends >= 16, "depths are granted");
    let told = event.private.as_slice();
    let address = u64::from_be_bytes(*told.first_chunk().ok_or("an address")?);
    let key = u32::from_be_bytes(*told[8..].first_chunk().ok_or("a key")?);
    let there = |offset: usize| Remote { address: address + offset as u64, key };

    let bare = pair.post_receive(1, &[]);
    report.same(bare.is_ok(), !side.is_iwarp(), &format!("a receive without pieces: {bare:?}"));
    if bare.is_err() {
        pair.post_receive(1, &[Piece::EMPTY])?;
    }
    pair.post_send(2, Work::Send, &[], Flags::SIGNALLED)?;
    let (sent, arrived) = both(side)?;
    report.same((sent, arrived), (2, 0), "a message of no bytes comes back");

    for (seed, len) in [(1, 1), (2, 4096), (3, 65536), (4, HALF)] {
        memory.fill(0, len, seed);
        pair.post_receive(1, &[memory.mr.piece(HALF, HALF)])?;
        pair.post_send(2, Work::Send, &[memory.mr.piece(0, len)], Flags::SIGNALLED)?;
        let (sent, arrived) = both(side)?;
        report.same((sent, arrived), (2, len), &format!("a message of {len} bytes comes back"));
        report.check(memory.is_filled(HALF, len, seed), "as it was");
    }

    let inline = granted.inline.min(48) as usize;
    memory.fill(0, inline, 9);
    pair.post_receive(1, &[memory.mr.piece(HALF, HALF)])?;
    let unregistered = Piece::new(memory.mr.memory().slice(0, inline), 0);
    pair.post_send(2, Work::Send, &[unregistered], Flags::SIGNALLED | Flags::INLINE)?;
    memory.fill(0, inline, 0);
    let (_, arrived) = both(side)?;
    report.check(
        arrived == inline && memory.is_filled(HALF, inline, 9),
        "inline bytes are as they were when they were posted",
    );

    // Beyond what the server receives into.
    memory.fill(0, HALF, 5);
    pair.post_send(3, Work::Write(there(HALF)), &[memory.mr.piece(0, HALF)], Flags::SIGNALLED)?;
    report.same(side.completed(3)?.operation(), Operation::Write, "a write completes");
    memory.fill(0, HALF, 0);
    pair.post_send(4, Work::Read(there(HALF)), &[memory.mr.piece(0, HALF)], Flags::SIGNALLED)?;
    let read = side.completed(4)?;
    report.same(read.operation(), Operation::Read, "a read completes");
    report.check(memory.is_filled(0, HALF, 5), "and brings what was written");

    atomics(
        side,
        &pair,
        &memory.mr.piece(0, 8),
        || memory.number(0),
        there(HALF),
        report,
        |number| {
            memory.set_number(8, number);
            pair.post_send(3, Work::Write(there(HALF)), &[memory.mr.piece(8, 8)], Flags::SIGNALLED)?;
            side.completed(3).map(drop)
        },
    )?;

    let immediate = pair.post_send(5, Work::SendWithImmediate(41), &[], Flags::SIGNALLED);
    report.same(immediate.is_ok(), !side.is_iwarp(), &format!("a send with a number: {immediate:?}"));
    if immediate.is_ok() {
        pair.post_receive(1, &[memory.mr.piece(0, 64)])?;
        let mut number = None;
        for _ in 0..2 {
            number = number.or(side.completion()?.immediate());
        }
        report.same(number, Some(42), "comes back with the next");
    }

    pair.post_receive(1, &[memory.mr.piece(0, 64)])?;
    disconnected(side, &id)?;
    report.same(side.completion()?.status(), Status::Flushed, "what was posted is flushed");
    // The pair's end, on another thread, does not wait for whoever reads events.
    let ends = std::thread::spawn(move || drop(pair));
    while !ends.is_finished() {
        if let Some(event) = side.channel.next()? {
            report.same(event.kind, EventKind::TimewaitExit, "what comes after a disconnection");
        }
        std::thread::yield_now();
    }
    ends.join().map_err(|_| "a thread")?;
    drop(id);
    Ok(())
}

/// A send and the receive of its answer, in any order: the number of the one, the length of the other.
fn both(side: &Side) -> Outcome<(u64, usize)> {
    let (mut sent, mut arrived) = (0, usize::MAX);
    for _ in 0..2 {
        let completion = side.completion()?;
        if !completion.is_success() {
            return Err(format!("{completion:?}").into());
        }
        match completion.operation() {
            Operation::Receive => arrived = completion.len(),
            _ => sent = completion.id(),
        }
    }
    Ok((sent, arrived))
}

/// Operations on a number of the server's.
fn atomics(
    side: &Side,
    pair: &Qp,
    result: &Piece,
    number: impl Fn() -> u64,
    at: Remote,
    report: &mut Report,
    set: impl Fn(u64) -> Outcome<()>,
) -> Outcome<()> {
    let add = Work::FetchAdd { at, add: 5 };
    if side.limits.atomics == Atomics::None {
        let posted = pair.post_send(6, add, &[*result], Flags::SIGNALLED);
        report.check(posted.is_err(), &format!("a device without atomics refuses them: {posted:?}"));
        return Ok(());
    }
    set(1000)?;
    for (work, before, what) in [
        (add, 1000, "a fetch and add brings what was"),
        (Work::CompareSwap { at, compare: 1, swap: 2 }, 1005, "a swap of what is not there brings what is"),
        (Work::CompareSwap { at, compare: 1005, swap: 77 }, 1005, "a swap brings what was"),
        (Work::FetchAdd { at, add: 0 }, 77, "and has been done"),
    ] {
        pair.post_send(6, work, &[*result], Flags::SIGNALLED)?;
        side.completed(6)?;
        report.same(number(), before, what);
    }
    Ok(())
}

/// More messages than a queue may run low without telling.
fn shared(side: &Side, own: IpAddr, server: SocketAddr, report: &mut Report) -> Outcome<()> {
    let memory = side.memory()?;
    let (id, pair) = prepared(side, own, server)?;
    pair.post_receive(1, &[memory.mr.piece(HALF, 64)])?;
    id.connect(&side.connect(&Part::Shared.bytes()))?;
    side.expect(EventKind::Established)?;
    for number in 0..6 {
        pair.post_send(10 + number, Work::Send, &[memory.mr.piece(0, 64)], Flags::SIGNALLED)?;
    }
    let mut sent = 0;
    let mut answered = false;
    while !(sent == 6 && answered) {
        let completion = side.completion()?;
        if !completion.is_success() {
            return Err(format!("{completion:?}").into());
        }
        if completion.id() == 1 { answered = true } else { sent += 1 }
    }
    report.check(true, "a shared queue takes all messages");
    disconnected(side, &id)
}

/// A write where it must not.
fn wrong_key(side: &Side, own: IpAddr, server: SocketAddr, report: &mut Report) -> Outcome<()> {
    let memory = side.memory()?;
    let (id, pair, event) = connected(side, own, server, Part::WrongKey)?;
    let address = u64::from_be_bytes(*event.private.as_slice().first_chunk().ok_or("an address")?);
    let wrong = Remote { address, key: 0x00C0_FFEE };
    pair.post_receive(7, &[Piece::EMPTY])?;
    pair.post_send(8, Work::Write(wrong), &[memory.mr.piece(0, 64)], Flags::SIGNALLED)?;
    let completion = side.completion()?;
    let expected = if side.is_iwarp() { Status::Success } else { Status::RemoteAccess };
    report.same((completion.id(), completion.status()), (8, expected), "a write with a wrong key");
    if side.is_iwarp() {
        report.same(side.completion()?.status(), Status::Flushed, "ends the connection over iWARP");
        side.expect(EventKind::Disconnected)?;
    } else {
        report.same(side.completion()?.status(), Status::Flushed, "flushes what was posted");
        disconnected(side, &id)?;
    }
    Ok(())
}

/// Ids that end while something of theirs is under way.
fn endings(side: &Side, own: IpAddr, server: SocketAddr, report: &mut Report) -> Outcome<()> {
    for _ in 0..20 {
        let id = Id::new(&side.channel, 999)?;
        id.resolve_address(Some(SocketAddr::new(own, 0)), server, SERVICES)?;
        drop(id);
    }
    report.check(side.channel.next()?.is_none(), "an id that has ended has no events");
    let raced = std::thread::scope(|scope| {
        let channel = Arc::clone(&side.channel);
        let ends = scope.spawn(move || {
            for _ in 0..50 {
                let id = Id::new(&channel, 998)?;
                id.resolve_address(Some(SocketAddr::new(own, 0)), server, SERVICES)?;
                std::thread::yield_now();
                drop(id);
            }
            Ok::<_, Error>(())
        });
        let mut read = 0;
        while !ends.is_finished() {
            match side.channel.next() {
                Ok(Some(event)) if event.token == 998 => read += 1,
                Ok(Some(event)) => return Err(format!("{event:?}")),
                Ok(None) => std::thread::yield_now(),
                Err(error) => return Err(error.to_string()),
            }
        }
        ends.join().map_err(|_| "a thread".to_owned())?.map_err(|error| error.to_string())?;
        Ok(read)
    });
    report.check(raced.is_ok(), &format!("ids end while another thread reads events: {raced:?}"));
    Ok(())
}
