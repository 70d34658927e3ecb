//! What a queue pair asks of its device, and whether the device has it: who learns that when the first message makes the queue
//! pair has no other way left.

use super::flow::reserves;
use super::queues::Queues;
use crate::engine::cm::Dialect;

/// Places of a send queue for what is no message: credits, probes, reads.
const BESIDE: u32 = 16;

/// Room in a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// Work that is under way in its send queue at most.
    pub(super) sends: u32,
    /// Receives of its own.
    pub(super) receives: u32,
    /// Bytes of the longest message.
    pub(super) longest: usize,
}

/// Receives of a queue pair's own for messages that take no credit, besides the CTS.
pub(super) fn kept_back(queues: &Queues, queue: usize, dialect: Dialect) -> u32 {
    if dialect == Dialect::Openib && queue == queues.credits() { reserves(queues) } else { 0 }
}

impl Demand {
    /// That of one of the queues.
    pub(super) fn of(queues: &Queues, queue: usize, dialect: Dialect) -> Self {
        let it = queues.all()[queue];
        // The CTS has one of its own.
        let receives = if it.is_private() { it.depth + 1 + kept_back(queues, queue, dialect) } else { 0 };
        Self { sends: it.sends() + BESIDE, receives, longest: it.size as usize }
    }

    /// What there is less room for than that, in words.
    pub(super) fn exceeds(self, room: Room) -> Option<String> {
        let (sends, receives) = (self.sends as usize, self.receives as usize);
        let Room { work, completions, message, reads } = room;
        if reads == 0 {
            Some("a queue pair of its has no RDMA reads under way".to_owned())
        } else if self.longest > message {
            Some(format!("a message of its has {message} bytes at most"))
        } else if receives > work {
            Some(format!("a queue pair of its has {work} receives at most"))
        } else if sends > work {
            Some(format!("a queue pair of its has {work} sends at most"))
        } else if sends + receives > completions {
            Some(format!("a completion queue of its has room for {completions} of a queue pair's at most"))
        } else {
            None
        }
    }
}

/// What a device has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Sends of a queue pair, and as many receives.
    pub(super) work: usize,
    /// Of a queue pair in a completion queue: what shared queues may put there besides is left out.
    pub(super) completions: usize,
    /// Bytes of a message.
    pub(super) message: usize,
    /// RDMA reads that a queue pair answers at once, or that it begins.
    pub(super) reads: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the queues exceed of it.
    fn exceeded(text: &str, dialect: Dialect, work: usize, completions: usize) -> Vec<String> {
        let queues = Queues::parse(text).expect("queues");
        let demand = |queue| Demand::of(&queues, queue, dialect);
        (0..queues.len())
            .filter_map(|queue| demand(queue).exceeds(Room { work, completions, message: 65_536, reads: 1 }))
            .collect()
    }

    #[test]
    fn a_device_has_room_for_all_that_is_posted() {
        let text = "P,128,256,192,128,4:S,2048,1024,1008,64,512";
        let exceeds = |work, completions| exceeded(text, Dialect::Own, work, completions);
        // Sends: the buffers, rd_rsv and what is beside; receives: the buffers, and one for the CTS.
        assert_eq!(exceeds(276, 533), Vec::<String>::new());
        assert_eq!(
            exceeds(276, 532),
            ["a completion queue of its has room for 532 of a queue pair's at most"]
        );
        assert_eq!(exceeds(275, 533), ["a queue pair of its has 275 sends at most"]);
        assert_eq!(exceeds(256, 533), ["a queue pair of its has 256 receives at most"]);
        let room = Room { work: 1000, completions: 2000, message: 2047, reads: 1 };
        let queues = Queues::parse(text).expect("queues");
        let exceeds_message = |queue| Demand::of(&queues, queue, Dialect::Own).exceeds(room);
        let found = [exceeds_message(0), exceeds_message(1)];
        assert_eq!(found, [None, Some("a message of its has 2047 bytes at most".to_owned())]);
        let readless = Demand::of(&queues, 0, Dialect::Own).exceeds(Room { reads: 0, ..room });
        assert_eq!(readless.as_deref(), Some("a queue pair of its has no RDMA reads under way"));
        assert_eq!(exceeds(79, 1000).len(), 2, "a shared queue's sends are 64, and what is beside");
    }

    #[test]
    fn what_openib_keeps_back_wants_room_as_well() {
        let text = "P,128,256,192,128,30:P,65536,16,12,8,30";
        assert!(exceeded(text, Dialect::Own, 302, 1000).is_empty());
        assert_eq!(
            exceeded(text, Dialect::Openib, 316, 1000),
            ["a queue pair of its has 316 receives at most"]
        );
        assert!(exceeded(text, Dialect::Openib, 317, 1000).is_empty());
    }
}
