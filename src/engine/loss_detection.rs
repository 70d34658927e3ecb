//! Which segments are lost: RFC 9002, 6.1, for the two channels of a connection.
//!
//! A segment is lost when [several](Reordering) later transmissions of its channel have arrived, or when one has and some
//! time has passed, or when one of the other channel has and much time has passed. Silence loses nothing.

use super::interface::Channel;
use super::reordering::Reordering;
use super::send_window::{Order, SendWindow, State};
use super::time::Instant;

/// How long after it was sent a segment is lost that a later one has overtaken, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    /// By one of its channel: the time threshold of RFC 9002, 6.1.2.
    pub(super) same_channel: u64,
    /// By one of the other channel, which may have gone another way.
    pub(super) other_channel: u64,
}

/// What was sent to a peer, in the order in which it was, and what of it is known to have arrived.
#[derive(Debug)]
pub(super) struct LossDetection {
    /// Of the priority and the data channel.
    sent: [Order; 2],
    /// When the latest of those that have arrived was sent.
    newest_arrival: Instant,
    reordering: Reordering,
}

impl LossDetection {
    pub(super) fn new() -> Self {
        Self {
            sent: [Order::default(), Order::default()],
            newest_arrival: Instant::ORIGIN,
            reordering: Reordering::new(),
        }
    }

    /// A segment leaves: the number of this transmission.
    #[inline(always)]
    pub(super) fn note_sent(&mut self, channel: Channel, seq: u64) -> u64 {
        self.sent[channel as usize].push(seq)
    }

    /// It has arrived.
    #[inline(always)]
    pub(super) fn note_arrival(&mut self, channel: Channel, transmission: u64, sent: Instant) {
        self.sent[channel as usize].note_arrival(transmission);
        self.newest_arrival = self.newest_arrival.max(sent);
    }

    /// What counted as lost had not been: its path reorders more than was allowed for.
    pub(super) fn note_spurious(&mut self) {
        self.reordering.note_spurious();
    }

    /// It had been.
    pub(super) fn note_recovered(&mut self) {
        self.reordering.note_recovered();
    }

    /// What of the window is lost by now is put behind `lost`. When more may be, if nothing else arrives.
    pub(super) fn find(
        &mut self,
        window: &SendWindow,
        delays: Delays,
        now: Instant,
        lost: &mut Vec<u64>,
    ) -> Option<Instant> {
        let newest_arrival = self.newest_arrival;
        let threshold = self.reordering.threshold();
        let mut next: Option<Instant> = None;
        for channel in [Channel::Priority, Channel::Data] {
            let sent = &mut self.sent[channel as usize];
            while let Some((transmission, seq)) = sent.front() {
                let is_current =
                    |state, number, of| state == State::InFlight && number == transmission && of == channel;
                let Some(segment) =
                    window.get(seq).filter(|it| is_current(it.state, it.transmission, it.channel))
                else {
                    sent.pop();
                    continue;
                };
                let overtaken = sent.overtaken(transmission);
                let expires = if overtaken >= threshold {
                    now
                } else if overtaken > 0 {
                    segment.sent.plus(delays.same_channel)
                } else if segment.sent < newest_arrival {
                    segment.sent.plus(delays.other_channel)
                } else {
                    break;
                };
                if expires > now {
                    next = Some(next.map_or(expires, |next| next.min(expires)));
                    break;
                }
                sent.pop();
                lost.push(seq);
            }
        }
        next
    }

    /// Nothing is under way any more.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        for sent in &mut self.sent {
            if !sent.is_empty() {
                sent.clear();
            }
        }
    }

    /// Gives memory back that a busy time has left.
    pub(super) fn shrink(&mut self) {
        self.sent.iter_mut().for_each(Order::shrink);
    }

    /// Bytes of memory that it takes up besides its own.
    pub(super) fn capacity_bytes(&self) -> usize {
        self.sent.iter().map(Order::capacity_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::send_window::Segment;
    use super::super::time::MILLI;
    use super::*;
    use crate::wire::usnic::Kind;

    const DELAYS: Delays = Delays { same_channel: 2 * MILLI, other_channel: 9 * MILLI };

    /// A sender of which nothing is there but its window.
    struct Sender {
        window: SendWindow,
        detection: LossDetection,
    }

    impl Sender {
        fn new() -> Self {
            Self { window: SendWindow::default(), detection: LossDetection::new() }
        }

        fn send(&mut self, channel: Channel, millis: u64) -> u64 {
            let seq = self.window.next();
            let segment = Segment {
                operation: Segment::NOBODY,
                kind: Kind::Void,
                channel,
                state: State::InFlight,
                resends: 0,
                fast: false,
                recut: false,
                len: 0,
                charge: 1,
                offset: 0,
                transmission: self.detection.note_sent(channel, seq),
                sent: at(millis),
            };
            self.window.push(segment)
        }

        fn arrive(&mut self, seq: u64) {
            let segment = self.window.get_mut(seq).expect("under way");
            segment.state = State::Arrived;
            self.detection.note_arrival(segment.channel, segment.transmission, segment.sent);
        }

        /// Sends one again.
        fn repeat(&mut self, seq: u64, millis: u64) {
            let segment = self.window.get_mut(seq).expect("lost");
            (segment.state, segment.sent) = (State::InFlight, at(millis));
            segment.transmission = self.detection.note_sent(segment.channel, seq);
        }

        /// What is lost then, and when more may be.
        fn lost(&mut self, millis: u64) -> (Vec<u64>, Option<Instant>) {
            let mut lost = Vec::new();
            let next = self.detection.find(&self.window, DELAYS, at(millis), &mut lost);
            for seq in &lost {
                self.window.get_mut(*seq).expect("lost").state = State::Lost;
            }
            (lost, next)
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1 + millis * MILLI)
    }

    #[test]
    fn three_later_ones_make_a_segment_lost_at_once() {
        let mut sender = Sender::new();
        (0..5).for_each(|_| _ = sender.send(Channel::Data, 0));
        sender.arrive(2);
        assert_eq!(sender.lost(0), (vec![], Some(at(2))), "overtaken by two, and by one");
        sender.arrive(3);
        assert_eq!(sender.lost(0), (vec![0], Some(at(2))));
        assert_eq!(sender.lost(0), (vec![], Some(at(2))), "once");
    }

    #[test]
    fn one_later_one_makes_it_lost_after_some_time() {
        let mut sender = Sender::new();
        (0..2).for_each(|_| _ = sender.send(Channel::Data, 1));
        sender.arrive(1);
        assert_eq!(sender.lost(2), (vec![], Some(at(3))));
        assert_eq!(sender.lost(3), (vec![0], None));
    }

    #[test]
    fn one_of_the_other_channel_makes_it_lost_after_much_time() {
        let mut sender = Sender::new();
        sender.send(Channel::Data, 1);
        let later = sender.send(Channel::Priority, 2);
        sender.arrive(later);
        assert_eq!(sender.lost(9), (vec![], Some(at(10))));
        assert_eq!(sender.lost(10), (vec![0], None));
    }

    #[test]
    fn silence_and_what_was_sent_before_lose_nothing() {
        let mut sender = Sender::new();
        let first = sender.send(Channel::Data, 0);
        sender.send(Channel::Data, 1);
        assert_eq!(sender.lost(60_000), (vec![], None));
        sender.arrive(first);
        assert_eq!(sender.lost(60_000), (vec![], None));
    }

    #[test]
    fn a_segment_that_is_sent_again_is_overtaken_by_what_left_after_that() {
        let mut sender = Sender::new();
        (0..4).for_each(|_| _ = sender.send(Channel::Data, 0));
        sender.arrive(3);
        assert_eq!(sender.lost(0).0, [0]);
        sender.repeat(0, 1);
        let later = sender.send(Channel::Data, 1);
        (1..3).for_each(|seq| sender.arrive(seq));
        assert_eq!(sender.lost(60_000), (vec![], None), "those left before");
        sender.arrive(later);
        assert_eq!(sender.lost(1), (vec![], Some(at(3))));
        assert_eq!(sender.lost(3), (vec![0], None));
    }

    #[test]
    fn where_the_path_reorders_more_must_have_overtaken() {
        let mut sender = Sender::new();
        sender.detection.note_spurious();
        (0..7).for_each(|_| _ = sender.send(Channel::Data, 0));
        sender.arrive(5);
        assert_eq!(sender.lost(0).0, []);
        sender.arrive(6);
        assert_eq!(sender.lost(0).0, [0]);
    }

    #[test]
    fn what_is_forgotten_is_not_lost() {
        let mut sender = Sender::new();
        (0..4).for_each(|_| _ = sender.send(Channel::Data, 0));
        sender.arrive(3);
        sender.detection.forget();
        assert_eq!(sender.lost(60_000), (vec![], None));
    }
}
