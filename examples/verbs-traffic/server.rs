//! The process that answers.

use std::net::SocketAddr;

use hawser::verbs::{AsyncEvent, EventKind, Flags, Id, Library, Piece, Srq, Status, Work};

use crate::Outcome;
use crate::side::{HALF, Part, Report, Side};

/// The token of whatever belongs to a connection.
const CONNECTION: usize = 7;
/// The token of the shared queue.
const SHARED: usize = 8;

/// Serves until a client is done.
pub(crate) fn serve(library: &'static Library, address: SocketAddr) -> Outcome<bool> {
    let side = Side::at(library, address)?;
    let mut report = Report::default();
    let listener = Id::new(&side.channel, 3)?;
    listener.bind(address)?;
    listener.listen(16)?;
    report.same(listener.address(), Some(address), "the listener has the address that it was bound to");
    println!("# listening");
    loop {
        let event = side.expect(EventKind::ConnectRequest)?;
        report.same(event.token, 3, "a request names its listener");
        let request = event.request.ok_or("a request without an id")?;
        request.set_token(CONNECTION);
        report.check(request.is_of(&side.context), "a request comes by the listener's device");
        match Part::of(event.private.as_slice()) {
            Some(Part::Traffic) => traffic(&side, request, &mut report)?,
            Some(Part::Refusal) => request.reject(b"reason")?,
            Some(Part::Shared) => shared(&side, request, &mut report)?,
            Some(Part::WrongKey) => wrong_key(&side, request, &mut report)?,
            Some(Part::Done) => {
                request.reject(&[])?;
                return Ok(report.close());
            }
            None => return Err(format!("private data {:?}", event.private).into()),
        }
    }
}

/// Sends back what comes, and lets its memory be read and written, until the client disconnects.
fn traffic(side: &Side, id: Id, report: &mut Report) -> Outcome<()> {
    let memory = side.memory()?;
    let pair = id.create_qp(&side.queues(None), side.depths())?;
    let whole = memory.mr.remote(0);
    let mut told = whole.address.to_be_bytes().to_vec();
    told.extend(whole.key.to_be_bytes());
    pair.post_receive(100, &[memory.mr.piece(0, HALF)])?;
    side.accept(&id, &told)?;
    pair.set_receiver_not_ready_delay(12)?;
    report.same(id.has(&pair), true, "a queue pair is its id's");
    let mut ended = false;
    loop {
        let completion = side.completion_until(&id, &mut ended)?;
        if completion.status() == Status::Flushed {
            break;
        }
        if completion.id() != 100 {
            continue;
        }
        let len = completion.len();
        // What a client writes into must not be what is sent back: the halves are used in turn.
        let mut bytes = vec![0; len];
        memory.mr.memory().read(0, &mut bytes);
        memory.mr.memory().slice(HALF, len).write(0, &bytes);
        pair.post_receive(100, &[memory.mr.piece(0, HALF)])?;
        let back = [memory.mr.piece(HALF, len)];
        match completion.immediate() {
            Some(number) => {
                pair.post_send(1, Work::SendWithImmediate(number + 1), &back, Flags::SIGNALLED)?
            }
            None => pair.post_send(1, Work::Send, if len == 0 { &[] } else { &back }, Flags::SIGNALLED)?,
        }
    }
    report.check(true, "what was posted is flushed when the peer disconnects");
    if !ended {
        side.ended(&id)?;
    }
    Ok(())
}

/// Receives from a shared queue that runs low.
fn shared(side: &Side, id: Id, report: &mut Report) -> Outcome<()> {
    let memory = side.memory()?;
    let shared = Srq::new(&side.pd, 8, 1, SHARED)?;
    let pair = id.create_qp(&side.queues(Some(&shared)), side.depths())?;
    report.check(pair.post_receive(0, &[]).is_err(), "a queue pair with a shared queue takes no receive");
    let list = |numbers: std::ops::Range<u64>| {
        numbers.map(|number| (number, memory.mr.piece(number as usize * 64, 64)))
    };
    let taken = [0..3, 3..8, 8..8].map(|numbers| shared.post_receives(list(numbers)));
    report.check(taken == [3, 5, 0], "receives are posted as lists");
    shared.arm(4)?;
    side.accept(&id, &[])?;
    pair.set_receiver_not_ready_delay(12)?;
    let mut ids = Vec::new();
    for _ in 0..6 {
        let completion = side.completion()?;
        report.same(completion.status(), Status::Success, "a shared receive completes");
        report.same(completion.qp_number(), pair.number(), "and names the queue pair");
        ids.push(completion.id());
    }
    report.same(ids, (0..6).collect(), "shared receives are used in order");
    let mut told = Vec::new();
    while let Some(event) = side.events.next()? {
        if !matches!(event, AsyncEvent::QpState(_)) {
            told.push(event);
        }
    }
    report.same(told, vec![AsyncEvent::SrqLimit(SHARED)], "the limit is told once");
    pair.post_send(1, Work::Send, &[memory.mr.piece(0, 64)], Flags::SIGNALLED)?;
    side.completed(1)?;
    side.ended(&id)
}

/// A client that writes where it must not.
fn wrong_key(side: &Side, id: Id, report: &mut Report) -> Outcome<()> {
    let memory = side.memory()?;
    memory.fill(0, 64, 1);
    let pair = id.create_qp(&side.queues(None), side.depths())?;
    pair.post_receive(100, &[Piece::EMPTY])?;
    let address = memory.mr.remote(0).address;
    side.accept(&id, &address.to_be_bytes())?;
    let completion = side.completion()?;
    report.same(
        completion.status(),
        Status::Flushed,
        "whoever is written to with a wrong key is disconnected",
    );
    report.check(memory.is_filled(0, 64, 1), "and nothing is written");
    side.ended(&id)
}
