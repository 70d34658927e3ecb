//! Whose the memory is that a port may have locked: messages go by buffers that have to be, and what the program sends and receives
//! may be, so that it need not be copied. Where there is little, neither takes all of it: what waits for a buffer while the
//! program's memory is registered for it would wait for itself.

/// What is registered at a port, in bytes of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pinned {
    /// Buffers for messages, and words of peers.
    pub(super) own: usize,
    /// The program's memory.
    pub(super) lent: usize,
}

/// Bytes that a port may have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lockable(pub(super) usize);

/// So much is left to messages, where half of all is more.
const MESSAGES: usize = 16 << 20;

impl Lockable {
    /// Whether so much more of the program's memory may be registered: messages have what they use, or are going to use.
    pub(super) fn admits(self, Pinned { own, lent }: Pinned, more: usize) -> bool {
        let messages = own.max((self.0 / 2).min(MESSAGES));
        lent.saturating_add(more).saturating_add(messages) <= self.0
    }

    /// By how much buffers for what arrives may grow beyond what there has to be: those that are sent from are made later, and
    /// half is the program's, whether it has it now or not.
    pub(super) fn growth(self, Pinned { own, lent }: Pinned) -> usize {
        let others = lent.max(self.0 / 2).saturating_add(self.sends());
        self.0.saturating_sub(own.saturating_add(others))
    }

    /// What nobody has, and need not be left to what is sent from.
    pub(super) fn left(self, Pinned { own, lent }: Pinned) -> usize {
        self.0.saturating_sub(own.saturating_add(lent).saturating_add(self.sends()))
    }

    /// What is left to buffers that are sent from, and to peers that there will be.
    fn sends(self) -> usize {
        (self.0 / 8).min(MESSAGES / 8)
    }

    /// What the first buffers of a queue may have, for either direction: there are several queues, and there will be peers.
    pub(super) const fn first(self) -> usize {
        self.0 / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_programs_memory_leaves_enough_for_messages() {
        let admitted = |share: usize, own: usize, lent: usize| {
            let is_admitted = |mib: &usize| {
                Lockable(share * MIB).admits(Pinned { own: own * MIB, lent: lent * MIB }, mib * MIB)
            };
            (0..=100).take_while(is_admitted).last()
        };
        assert_eq!(admitted(8, 0, 0), Some(4), "half of what there is");
        assert_eq!(admitted(8, 3, 1), Some(3));
        assert_eq!(admitted(8, 5, 0), Some(3), "what messages have is theirs");
        assert_eq!((admitted(8, 8, 0), admitted(8, 9, 0)), (Some(0), None));
        assert_eq!(admitted(64, 0, 0), Some(48), "half would be more than they use");
        assert!(Lockable(usize::MAX).admits(Pinned { own: 1, lent: 1 << 40 }, 1 << 40), "all that can be");
    }

    #[test]
    fn buffers_for_what_arrives_leave_some_for_what_is_sent_and_for_the_program() {
        let growth =
            |own: usize, lent: usize| Lockable(8 * MIB).growth(Pinned { own: own * MIB, lent: lent * MIB });
        assert_eq!([growth(0, 0), growth(2, 0), growth(2, 4), growth(3, 0)], [3 * MIB, MIB, MIB, 0]);
        assert_eq!([growth(2, 5), growth(9, 0), growth(0, 7)], [0, 0, 0]);
        let left = |own, lent| Lockable(8 * MIB).left(Pinned { own: own * MIB, lent: lent * MIB });
        assert_eq!([left(2, 4), left(3, 6), Lockable(8 * MIB).first()], [MIB, 0, MIB]);
        assert_eq!(Lockable(usize::MAX).growth(Pinned { own: usize::MAX, lent: usize::MAX }), 0);
    }
}
