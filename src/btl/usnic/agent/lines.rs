//! [`Lines`]: the calls of an agent to those of other nodes, and theirs to it, as the thread holds them.

use std::net::{IpAddr, SocketAddr};

use super::checker::SocketId;
use crate::link::{Call, Calls, Waiter};
use crate::wire::probe::LEN;

/// Calls of others at a time: one that says nothing makes room for others.
const TAKEN: usize = 64;
/// Most that are taken in one turn.
const BATCH: usize = 64;

/// Whose a call is, and what it is about.
#[derive(Clone, Copy)]
enum About {
    /// Ours: the number of the errand, and what is to be said.
    Errand(u64, [u8; LEN]),
    /// The same, said.
    Said(u64),
    /// Another agent's, at this socket's port.
    Question(SocketId),
}

struct Line {
    number: u64,
    call: Call,
    about: About,
    heard: [u8; LEN],
    length: usize,
}

/// What has become of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// That of an errand has been taken.
    Taken(u64),
    /// It is over, with these words or none.
    Over(u64, Option<[u8; LEN]>),
    /// Another agent asks something at this socket's port, and is to be answered under this number.
    Question(u64, SocketId, [u8; LEN]),
}

/// All calls there are.
pub(super) struct Lines {
    lines: Vec<Line>,
    /// Of the next call; they are waited for under these numbers.
    number: u64,
}

impl Lines {
    /// None yet; the first has this number.
    pub(super) fn new(number: u64) -> Self {
        Self { lines: Vec::new(), number }
    }

    fn add(&mut self, call: Call, about: About, waiter: &Waiter) -> bool {
        let number = self.number;
        self.number += 1;
        let is_heard = waiter.add(&call, number).is_ok();
        if is_heard {
            self.lines.push(Line { number, call, about, heard: [0; LEN], length: 0 });
        }
        is_heard
    }

    /// Calls for an errand; false when that is not possible.
    pub(super) fn call(
        &mut self,
        nonce: u64,
        (from, to): (IpAddr, SocketAddr),
        head: [u8; LEN],
        waiter: &Waiter,
    ) -> bool {
        Call::begin(from, to).is_ok_and(|call| self.add(call, About::Errand(nonce, head), waiter))
    }

    /// Takes one out. A child that was forked may have a duplicate, of which we would be told for ever.
    fn remove(&mut self, at: usize, waiter: &Waiter) -> Line {
        let line = self.lines.remove(at);
        waiter.remove(&line.call);
        line
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.lines.iter().position(|line| line.number == number)
    }

    /// Ends the call for an errand.
    pub(super) fn hang_up(&mut self, nonce: u64, waiter: &Waiter) {
        let is_of_it =
            |line: &Line| matches!(line.about, About::Errand(of, _) | About::Said(of) if of == nonce);
        if let Some(at) = self.lines.iter().position(is_of_it) {
            self.remove(at, waiter);
        }
    }

    /// Takes those that others have begun, and hears what they have said already; and whether the process can take more.
    pub(super) fn take(&mut self, socket: SocketId, calls: &Calls, waiter: &Waiter) -> (Vec<News>, bool) {
        let mut news = Vec::new();
        for _ in 0..BATCH {
            let call = match calls.accept() {
                Ok(Some(call)) => call,
                Ok(None) => break,
                Err(_) => return (news, false),
            };
            let is_question = |line: &Line| matches!(line.about, About::Question(_));
            if self.lines.iter().filter(|line| is_question(line)).count() == TAKEN
                && let Some(oldest) = self.lines.iter().position(is_question)
            {
                self.remove(oldest, waiter);
            }
            let number = self.number;
            self.add(call, About::Question(socket), waiter);
            news.extend(self.hear(number, waiter));
        }
        (news, true)
    }

    /// Sees which of those of errands have been taken, of which nobody is told.
    pub(super) fn look(&mut self, waiter: &Waiter) -> Vec<News> {
        let are_begun = self.lines.iter().filter(|line| matches!(line.about, About::Errand(..)));
        let numbers: Vec<u64> = are_begun.map(|line| line.number).collect();
        numbers.into_iter().flat_map(|number| self.hear(number, waiter)).collect()
    }

    /// Something has happened to one of them.
    pub(super) fn hear(&mut self, number: u64, waiter: &Waiter) -> Vec<News> {
        let Some(at) = self.position(number) else { return Vec::new() };
        let (news, is_over) = self.lines[at].go_on();
        if is_over {
            self.remove(at, waiter);
        }
        news
    }

    /// Answers a question, which is all that there is to be said.
    pub(super) fn answer(&mut self, number: u64, answer: Option<[u8; LEN]>, waiter: &Waiter) {
        let Some(at) = self.position(number) else { return };
        let line = self.remove(at, waiter);
        // Whoever does not hear it has hung up.
        let _ = answer.map(|answer| line.call.say(&answer));
    }
}

impl Line {
    /// What there is to tell, and whether the line is dead.
    fn go_on(&mut self) -> (Vec<News>, bool) {
        let mut news = Vec::new();
        if let About::Errand(nonce, head) = self.about {
            match self.call.say(&head) {
                Ok(true) => {
                    self.about = About::Said(nonce);
                    news.push(News::Taken(nonce));
                }
                Ok(false) => return (news, false),
                Err(_) => return (vec![News::Over(nonce, None)], true),
            }
        }
        let is_dead = loop {
            if self.length == LEN {
                break false;
            }
            match self.call.hear(&mut self.heard[self.length..]) {
                Ok(Some(length)) => self.length += length,
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        let said = (self.length == LEN).then_some(self.heard);
        match (self.about, said) {
            (About::Errand(nonce, _) | About::Said(nonce), said) if is_dead || said.is_some() => {
                news.push(News::Over(nonce, said));
                (news, true)
            }
            (About::Question(socket), Some(question)) => {
                news.push(News::Question(self.number, socket, question));
                (news, false)
            }
            _ => (news, is_dead),
        }
    }
}
