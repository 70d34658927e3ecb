//! The queue specification (`receive_queues`): which receive queues an endpoint has, and how deep they are.
//!
//! `spec (":" spec)*`, each a letter and numbers: `P,size,rd_num,rd_low,rd_win,rd_rsv` for a private queue, whose
//! buffers are posted for one peer alone, `S,size,rd_num,rd_low,sd_max,rd_init,srq_limit` for a shared one, whose
//! buffers are for whichever peer has been lent a credit. It answers to the grammar and the defaults of Open MPI's
//! `btl_openib_receive_queues`. The queues come out ordered by size, and one of them is private: connections are made
//! and credits asked for there.

use std::fmt;

/// Most queues of an endpoint: a header names one with four bits.
pub(super) const MOST: usize = 16;

/// Shortest buffer: a control message fits into any private queue's.
pub(super) const SHORTEST: u32 = 128;

/// Most buffers of a queue: credits travel as the lower 16 bits of a number that only grows.
const DEEPEST: u32 = 16_384;

/// Least reserve of a private queue with openib's wire: so many buffers are kept there for messages that tell of credits alone,
/// and one of them is never used.
const LEAST_RESERVE_FOR_OPENIB: u32 = 2;

/// Longest buffer.
const LONGEST: u32 = 1 << 24;

/// Who a queue's buffers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// One peer.
    Private {
        /// Work that may be under way besides as many messages as there are buffers. Limits are written to the peer's
        /// memory, which takes no buffer there.
        reserve: u32,
        /// Credits that are told by themselves, when no message takes them along.
        window: u32,
    },
    /// All peers.
    Shared {
        /// Buffers at first; twice as many as often as they do not suffice.
        initial: u32,
        /// Messages of this process that are under way at a time, to one peer.
        most_sends: u32,
    },
}

/// One queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    /// Longest message, without our header.
    pub(super) size: u32,
    /// Buffers, at most.
    pub(super) depth: u32,
    /// Buffers are posted again when no more than these are left.
    pub(super) low: u32,
    pub(super) kind: Kind,
}

impl Queue {
    /// Whether its buffers are one peer's.
    pub(super) fn is_private(&self) -> bool {
        matches!(self.kind, Kind::Private { .. })
    }

    /// Work requests that may be under way in its send queue.
    pub(super) fn sends(&self) -> u32 {
        match self.kind {
            Kind::Private { reserve, .. } => self.depth + reserve,
            Kind::Shared { most_sends, .. } => most_sends,
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, depth, low, kind } = *self;
        match kind {
            Kind::Private { reserve, window } => write!(f, "P,{size},{depth},{low},{window},{reserve}"),
            Kind::Shared { initial, most_sends } => {
                write!(f, "S,{size},{depth},{low},{most_sends},{initial}")
            }
        }
    }
}

/// The queues of every endpoint, ordered by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queues {
    all: Vec<Queue>,
    /// The private one with the shortest messages, by which control messages go.
    credits: usize,
}

impl Queues {
    /// Reads a specification.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence for its user.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for part in text.split(':') {
            all.push(parse_queue(part.trim())?);
        }
        all.sort_by_key(|queue| queue.size);
        if let Some(pair) = all.windows(2).find(|pair| pair[0].size == pair[1].size) {
            return Err(format!("two queues have buffers of {} bytes", pair[0].size));
        }
        let private = all.iter().position(Queue::is_private);
        let credits = private.unwrap_or_else(|| {
            // HOST: the default of Open MPI 4.1 has none, and its connection manager for RoCE then withdraws.
            let size = all.first().map_or(SHORTEST, |queue| queue.size / 2).max(SHORTEST);
            let at = all.partition_point(|queue| queue.size < size);
            // Of two that are equally long, the private one is found first.
            all.insert(at, ADDED.with_size(size));
            at
        });
        if all.len() > MOST {
            return Err(format!("it has {} queues, and there may be {MOST}, one of them private", all.len()));
        }
        Ok(Self { all, credits })
    }

    /// Reads a specification that both sides number in the same way, one of which is Open MPI's own.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); or it is one of which that makes something else.
    pub(super) fn parse_for_openib(text: &str) -> Result<Self, String> {
        let queues = Self::parse(text)?;
        let given = text.split(':').map(|part| parse_queue(part.trim())).collect::<Result<Vec<_>, _>>()?;
        if given != queues.all || queues.credits != 0 {
            return Err("with openib's wire, the first queue is private, and each has longer buffers than the one before"
                .to_owned());
        }
        let scarce = |queue: &&Queue| matches!(queue.kind, Kind::Private { reserve, .. } if reserve < LEAST_RESERVE_FOR_OPENIB);
        if let Some(queue) = given.iter().find(scarce) {
            return Err(format!(
                "{queue}: with openib's wire, rd_rsv is at least {LEAST_RESERVE_FOR_OPENIB}"
            ));
        }
        Ok(queues)
    }

    /// All of them.
    pub(super) fn all(&self) -> &[Queue] {
        &self.all
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The one that control messages go by.
    pub(super) fn credits(&self) -> usize {
        self.credits
    }

    /// The longest message.
    pub(super) fn longest(&self) -> usize {
        self.all.last().map_or(0, |queue| queue.size as usize)
    }

    /// The queue for a message of so many bytes; `None` when it is too long for any.
    #[inline]
    pub(super) fn for_length(&self, length: usize) -> Option<usize> {
        self.all.iter().position(|queue| length <= queue.size as usize)
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, queue) in self.all.iter().enumerate() {
            write!(f, "{}{queue}", if index == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// The private queue of who asks for none.
const ADDED: Queue =
    Queue { size: SHORTEST, depth: 16, low: 12, kind: Kind::Private { reserve: 4, window: 8 } };

impl Queue {
    const fn with_size(self, size: u32) -> Self {
        Self { size, ..self }
    }
}

/// Reads one queue.
fn parse_queue(text: &str) -> Result<Queue, String> {
    let mut fields = text.split(',').map(str::trim);
    let letter = fields.next().unwrap_or_default();
    let numbers = fields
        .map(|field| field.parse::<u32>().map_err(|_| format!("{text}: `{field}` is no number")))
        .collect::<Result<Vec<u32>, String>>()?;
    let most = match letter {
        "P" => 5,
        "S" => 6,
        "X" => return Err(format!("{text}: XRC queues (X) are not supported; use S for shared queues")),
        _ => return Err(format!("{text}: a queue begins with P (private) or S (shared)")),
    };
    if numbers.len() < 2 || numbers.len() > most {
        return Err(format!("{text}: {letter} has 2 to {most} numbers"));
    }
    let given = |at: usize| numbers.get(at).copied().filter(|number| *number != 0);
    let size = given(0).unwrap_or(0);
    if !(SHORTEST..=LONGEST).contains(&size) {
        return Err(format!("{text}: buffers have {SHORTEST} to {LONGEST} bytes"));
    }
    let depth = given(1).unwrap_or(256);
    if !(2..=DEEPEST).contains(&depth) {
        return Err(format!("{text}: a queue has 2 to {DEEPEST} buffers"));
    }
    let low = given(2).unwrap_or(depth / 4 * 3 + depth % 4 * 3 / 4);
    if low >= depth {
        return Err(format!("{text}: rd_low ({low}) must be less than rd_num ({depth})"));
    }
    let kind = if letter == "P" {
        let window = given(3).unwrap_or(2 * (depth - low));
        let window = window.clamp(1, depth);
        let reserve = given(4).unwrap_or(2 * depth / window);
        if reserve > DEEPEST {
            return Err(format!("{text}: rd_rsv ({reserve}) is more than {DEEPEST}"));
        }
        Kind::Private { reserve: reserve.max(1), window }
    } else {
        let most_sends = given(3).unwrap_or(low / 4).max(1);
        let initial = given(4).unwrap_or(depth / 4).max(1);
        if initial > depth {
            return Err(format!("{text}: rd_init ({initial}) must not be more than rd_num ({depth})"));
        }
        if most_sends > DEEPEST {
            return Err(format!("{text}: sd_max ({most_sends}) is more than {DEEPEST}"));
        }
        if given(5).is_some_and(|limit| limit > depth) {
            return Err(format!("{text}: srq_limit must not be more than rd_num ({depth})"));
        }
        // The lender itself sees how many are left, whatever the limit: it is read for files that have it.
        Kind::Shared { initial, most_sends }
    };
    Ok(Queue { size, depth, low, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        Queues::parse(text).map_or_else(|why| why, |queues| queues.to_string())
    }

    #[test]
    fn what_is_left_out_has_the_originals_defaults() {
        assert_eq!(parsed("P,128,256"), "P,128,256,192,128,4");
        assert_eq!(parsed("P,65536,64"), "P,65536,64,48,32,4");
        assert_eq!(parsed("P,65536,256,192,128"), "P,65536,256,192,128,4");
        assert_eq!(parsed("P,128,0"), "P,128,256,192,128,4");
        assert_eq!(parsed("P,128,16:S,65536,1024"), "P,128,16,12,8,4:S,65536,1024,768,192,256");
        assert_eq!(parsed("P,128,16:S,2048,1024,1008,64,512,30"), "P,128,16,12,8,4:S,2048,1024,1008,64,512");
    }

    #[test]
    fn openib_has_its_queues_in_the_order_that_is_given_and_a_private_one_first() {
        assert!(Queues::parse_for_openib("P,128,256:S,2048,1024:P,65536,64").is_ok());
        for text in ["S,128,256", "S,128,256:P,2048,64", "P,2048,64:P,128,64"] {
            assert!(Queues::parse(text).is_ok(), "{text}");
            assert!(Queues::parse_for_openib(text).is_err_and(|why| why.contains("private")), "{text}");
        }
    }

    #[test]
    fn openib_needs_two_buffers_for_messages_of_control() {
        for (text, is_enough) in [
            ("P,128,16,12,8,2", true),
            ("P,128,16,12,16", true),
            ("P,128,16,12,8,1", false),
            ("P,128,16,12,8,2:S,2048,64:P,65536,16,12,8,1", false),
        ] {
            assert!(Queues::parse(text).is_ok(), "{text}");
            let parsed = Queues::parse_for_openib(text);
            assert_eq!(parsed.is_ok(), is_enough, "{text}");
            assert!(parsed.map_or_else(|why| why.contains("rd_rsv is at least 2"), |_| true), "{text}");
        }
    }

    #[test]
    fn queues_are_ordered_by_size_and_the_shortest_private_one_is_for_control() {
        let queues = Queues::parse("P,65536,64:S,12288,256:P,2048,32:S,128,256").expect("queues");
        let sizes: Vec<u32> = queues.all().iter().map(|queue| queue.size).collect();
        assert_eq!((sizes, queues.credits(), queues.longest()), (vec![128, 2048, 12288, 65536], 1, 65_536));
        assert_eq!(
            [0, 128, 129, 65_536, 65_537].map(|length| queues.for_length(length)),
            [Some(0), Some(0), Some(1), Some(3), None]
        );
    }

    #[test]
    fn who_asks_for_shared_queues_only_gets_a_private_one_as_well() {
        let text = "S,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,1024,1008,64";
        let queues = Queues::parse(text).expect("queues");
        assert_eq!((queues.len(), queues.credits()), (5, 0));
        assert_eq!(queues.all()[0], ADDED);
        let queues = Queues::parse("S,65536,256").expect("queues");
        assert_eq!((queues.len(), queues.credits(), queues.all()[0].size), (2, 0, 32_768));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (text, why) in [
            ("", "begins with P"),
            ("Q,128,256", "begins with P"),
            ("X,128,256", "XRC"),
            ("P,128", "2 to 5 numbers"),
            ("P,128,256,1,1,1,1", "2 to 5 numbers"),
            ("S,128,256,1,1,1,1,1", "2 to 6 numbers"),
            ("P,128,256,256", "less than rd_num"),
            ("S,128,256,192,64,257", "rd_init"),
            ("S,128,256,192,64,128,257", "srq_limit"),
            ("P,64,256", "128 to"),
            ("P,4294967295,256", "128 to"),
            ("P,128,1", "2 to 16384"),
            ("P,128,65536", "2 to 16384"),
            ("P,128,many", "`many` is no number"),
            ("P,128,-1", "`-1` is no number"),
            ("P,128,256:", "begins with P"),
            ("P,128,256:S,128,256", "two queues"),
        ] {
            let refused = Queues::parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let many: Vec<String> = (0..17).map(|i| format!("P,{},16", 128 + i)).collect();
        assert!(Queues::parse(&many.join(":")).expect_err("many").contains("17 queues"));
    }

    #[test]
    fn no_text_makes_queues_that_cannot_work() {
        let words = ["P", "S", "X", ",", ":", "0", "1", "2", "128", "200", "16384", "4294967295", " ", "x"];
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..state % 16 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(words[(state >> 33) as usize % words.len()]);
            }
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 1;
            let Ok(queues) = Queues::parse(&text) else { continue };
            assert!(queues.all()[queues.credits()].is_private() && queues.len() <= MOST, "{text}");
            for queue in queues.all() {
                assert!(queue.low < queue.depth && queue.sends() > 0 && queue.size >= SHORTEST, "{text}");
            }
        }
    }
}
