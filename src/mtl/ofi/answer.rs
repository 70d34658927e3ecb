//! Answers to synchronous sends: a sender goes on when the receiver tells it that the message was matched.
//!
//! A synchronous send ends with two completions, its own and that of the receive of its answer, in
//! either order. The table here is where the first waits for the second. A send that fails does not
//! wait: no answer will come, and its receive is taken back.

use std::collections::BTreeMap;

use super::body::{Failed, Op};
use super::{Body, Ofi, Outgoing};
use crate::fabric::{Id, Pool};
use crate::mtl::{Communicator, Outcome, Upcalls};
use crate::sync::EngineCell;
use crate::wire::tag::Layout;

/// One synchronous send of this endpoint, never the same twice.
pub type AnswerKey = u64;

/// The answers that are awaited.
pub(super) struct Answers<H: Upcalls> {
    state: EngineCell<State<H>>,
}

struct State<H: Upcalls> {
    next: AnswerKey,
    awaited: BTreeMap<AnswerKey, Awaited<H>>,
}

struct Awaited<H: Upcalls> {
    /// The receive of the answer, and its context.
    receive: Id,
    context: usize,
    stage: Stage<H>,
}

enum Stage<H: Upcalls> {
    /// Neither has ended.
    Both,
    /// The send has; its request waits.
    Sent(Op<H>),
    /// The answer came, or never will.
    Answered(Outcome),
}

impl<H: Upcalls> Answers<H> {
    pub(super) fn new() -> Self {
        Self { state: EngineCell::new(State { next: 1, awaited: BTreeMap::new() }) }
    }

    /// Begins to wait for an answer: its key, and the operation that is to receive it.
    pub(super) fn begin(&self, pool: &Pool<Body<H>>, context: usize) -> (AnswerKey, Op<H>) {
        self.state.with(|state| {
            let answer = state.next;
            state.next += 1;
            let receive = pool.take(Body::Answer { answer });
            state.awaited.insert(answer, Awaited { receive: receive.id(), context, stage: Stage::Both });
            (answer, receive)
        })
    }

    /// Waits no longer: the receive of the answer was never posted.
    pub(super) fn abandon(&self, answer: AnswerKey) {
        self.state.with(|state| state.awaited.remove(&answer));
    }

    /// Waits no longer; the receive of the answer, and its context, where that is not over.
    fn end(&self, answer: AnswerKey) -> Option<(usize, Id)> {
        let ended = self.state.with(|state| state.awaited.remove(&answer))?;
        (!matches!(ended.stage, Stage::Answered(_))).then_some((ended.context, ended.receive))
    }

    /// The send has ended well. It comes back, with its outcome, if it was answered before.
    fn sent(&self, answer: AnswerKey, operation: Op<H>) -> Option<(Op<H>, Outcome)> {
        self.state.with(|state| match state.awaited.get_mut(&answer) {
            Some(Awaited { stage: stage @ Stage::Both, .. }) => {
                *stage = Stage::Sent(operation);
                None
            }
            Some(Awaited { stage: Stage::Answered(outcome), .. }) => {
                let outcome = *outcome;
                state.awaited.remove(&answer);
                Some((operation, outcome))
            }
            Some(Awaited { stage: Stage::Sent(_), .. }) | None => Some((operation, Outcome::Failed)),
        })
    }

    /// The answer came, or never will. The send comes back, if that had ended before.
    fn came(&self, answer: AnswerKey, outcome: Outcome) -> Option<Op<H>> {
        self.state.with(|state| {
            let awaited = state.awaited.get_mut(&answer)?;
            match std::mem::replace(&mut awaited.stage, Stage::Answered(outcome)) {
                Stage::Sent(operation) => {
                    state.awaited.remove(&answer);
                    Some(operation)
                }
                Stage::Both | Stage::Answered(_) => None,
            }
        })
    }

    /// The answer to a blocking send, once it is there.
    pub(super) fn take(&self, answer: AnswerKey) -> Option<Outcome> {
        self.state.with(|state| match state.awaited.get(&answer) {
            Some(Awaited { stage: Stage::Answered(outcome), .. }) => {
                let outcome = *outcome;
                state.awaited.remove(&answer);
                Some(outcome)
            }
            Some(_) => None,
            None => Some(Outcome::Failed),
        })
    }
}

impl<H: Upcalls> Ofi<H> {
    /// Tells the sender of a synchronous message that it was matched.
    #[inline(never)]
    pub(super) fn answer<L: Layout>(&self, context: usize, comm: H::Comm, bits: u64, source: i32) {
        match self.address(comm, source, context) {
            Ok(to) => {
                let answer = Outgoing::Answer { context, to, bits: L::ack(bits, comm.rank()) };
                let _sent_or_put_off = self.dispatch_out::<L>(answer);
            }
            Err(error) => H::notice(
                "peer unreachable",
                &format!("rank {source} sent a synchronous message and cannot be answered: {error}"),
            ),
        }
    }

    /// A synchronous send of the host's has ended, well or not.
    pub(super) fn sent_synchronously(&self, operation: Op<H>, answer: AnswerKey, failed: Option<Failed>) {
        let over = match failed {
            Some(Failed { outcome, .. }) => {
                self.forget_answer(answer);
                Some((operation, outcome))
            }
            None => self.answers.sent(answer, operation),
        };
        if let Some((operation, outcome)) = over {
            self.sent(operation, outcome);
        }
    }

    /// The receive of an answer has ended, well or not.
    pub(super) fn answered(&self, receive: Op<H>, answer: AnswerKey, outcome: Outcome) {
        drop(receive);
        let outcome = if outcome == Outcome::Success { outcome } else { Outcome::Failed };
        if let Some(operation) = self.answers.came(answer, outcome) {
            self.sent(operation, outcome);
        }
    }

    /// The message did not go out: no answer is awaited, and its receive is taken back.
    #[cold]
    pub(super) fn forget_answer(&self, answer: AnswerKey) {
        if let Some((context, receive)) = self.answers.end(answer)
            && !self.forget_waiting_answer(receive)
        {
            self.cancel_own(context, receive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mtl::ofi::fake::Fake;

    #[test]
    fn the_second_of_the_two_completions_ends_a_synchronous_send() {
        let (pool, answers) = (Pool::<Body<Fake>>::default(), Answers::new());
        let (answer, receive) = answers.begin(&pool, 0);
        let send = pool.take(Body::SynchronousSend { answer });
        let id = send.id();
        assert!(answers.sent(answer, send).is_none(), "not answered yet");
        drop(receive);
        assert_eq!(answers.came(answer, Outcome::Success).map(|send| send.id()), Some(id));
        assert!(answers.end(answer).is_none());

        let (answer, receive) = answers.begin(&pool, 0);
        drop(receive);
        assert!(answers.came(answer, Outcome::Success).is_none(), "not sent yet");
        let send = pool.take(Body::SynchronousSend { answer });
        assert!(matches!(answers.sent(answer, send), Some((_, Outcome::Success))));
        assert_eq!(pool.out(), 0);
    }

    #[test]
    fn a_send_that_fails_gives_its_answer_up() {
        let (pool, answers) = (Pool::<Body<Fake>>::default(), Answers::new());
        let (answer, receive) = answers.begin(&pool, 3);
        assert_eq!(answers.end(answer), Some((3, receive.id())));
        assert!(answers.came(answer, Outcome::Success).is_none(), "whoever answers late wakes nobody");
        assert_eq!(answers.take(answer), Some(Outcome::Failed), "nobody waits for it");
        let (next, _receive) = answers.begin(&pool, 0);
        assert_ne!(next, answer);
        assert_eq!(answers.take(next), None);
    }
}
