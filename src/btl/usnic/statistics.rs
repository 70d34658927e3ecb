//! What a module prints of its counters while the job runs (`btl_usnic_stats`), and at its end.

use std::fmt::Write as _;
use std::time::Duration;

use crate::engine::{Counters, Extents, Instant};
use crate::link;

/// When the next line is due, and what the last one said.
pub struct Statistics {
    /// Whose they are.
    title: String,
    every: Duration,
    relative: bool,
    due: Instant,
    lines: u32,
    told: Told,
}

/// What a line is made of.
#[derive(Clone, Default)]
pub struct Told {
    /// What the engine counted.
    pub engine: Counters,
    /// What the link counted.
    pub link: link::Counters,
    /// What is under way.
    pub extents: Extents,
}

/// Counters that the original has, first in our list: they are in every line. Others, which mostly
/// count what should not happen, are named when they are not 0.
const ORIGINAL: usize = 24;

impl Statistics {
    /// A line `every` so often, beginning with `title`. `relative` ones count from the line before.
    pub fn new(title: String, every: Duration, relative: bool) -> Self {
        Self { title, every, relative, due: Instant::ORIGIN + every, lines: 0, told: Told::default() }
    }

    /// Whether a line is due.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// The line that is due. Those that nobody asked for in time are left out.
    pub fn line(&mut self, now: Instant, told: Told) -> String {
        self.lines += 1;
        self.due = now + self.every;
        let number = self.lines.to_string();
        self.write(&number, told)
    }

    /// The last line.
    pub fn end(&mut self, told: Told) -> String {
        self.write("final", told)
    }

    fn write(&mut self, number: &str, told: Told) -> String {
        let before =
            if self.relative { std::mem::replace(&mut self.told, told.clone()) } else { Told::default() };
        let mut line = format!("btl_usnic statistics {number}: {}:", self.title);
        let mut add = |name: &str, count: u64| {
            let _ = write!(line, " {name}={count}");
        };
        for (index, ((name, count), (_, earlier))) in told.engine.iter().zip(before.engine.iter()).enumerate()
        {
            // The greatest of something has no difference.
            let count = if name.starts_with("max_") { count } else { count.saturating_sub(earlier) };
            if index < ORIGINAL || count != 0 {
                add(name, count);
            }
        }
        for ((name, count), (_, earlier)) in counts(&told.link).into_iter().zip(counts(&before.link)) {
            if count != earlier {
                add(name, count.saturating_sub(earlier));
            }
        }
        let Extents { peers, unacknowledged, received_ahead } = told.extents;
        add("peers", peers as u64);
        add("send_unacked_min", unacknowledged[0]);
        add("send_unacked_max", unacknowledged[1]);
        add("recv_depth_min", received_ahead[0]);
        add("recv_depth_max", received_ahead[1]);
        line
    }
}

/// The link's counters, by name.
fn counts(link: &link::Counters) -> [(&'static str, u64); 16] {
    let link::Counters {
        sent,
        received,
        coalesced,
        offloaded,
        fragmented,
        kept,
        no_buffers,
        refused,
        unreachable,
        forbidden,
        too_long,
        stale,
        send_errors,
        receive_errors,
        truncated,
        empty,
    } = *link;
    [
        ("link_sent", sent),
        ("link_received", received),
        ("link_coalesced", coalesced),
        ("link_offloaded", offloaded),
        ("link_fragmented", fragmented),
        ("link_kept", kept),
        ("link_no_buffers", no_buffers),
        ("link_refused", refused),
        ("link_unreachable", unreachable),
        ("link_forbidden", forbidden),
        ("link_too_long", too_long),
        ("link_stale", stale),
        ("link_send_errors", send_errors),
        ("link_receive_errors", receive_errors),
        ("link_truncated", truncated),
        ("link_empty", empty),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::COUNTERS;

    fn told(sends: u64, window: u64) -> Told {
        Told {
            engine: Counters { num_total_sends: sends, max_sent_window_size: window, ..Counters::default() },
            link: link::Counters { sent: sends, ..link::Counters::default() },
            extents: Extents { peers: 2, unacknowledged: [0, 7], received_ahead: [1, 3] },
        }
    }

    fn value(line: &str, name: &str) -> u64 {
        let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.expect(name).parse().expect("a number")
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_line_has_the_originals_counters_and_what_is_not_zero() {
        let line = Statistics::new("rank 1, eth0".to_owned(), SECOND, false).end(told(5, 4));
        assert!(line.starts_with("btl_usnic statistics final: rank 1, eth0: num_total_sends=5 "));
        let (original, new) = COUNTERS.split_at(ORIGINAL);
        assert_eq!((original[ORIGINAL - 1].0, new[0].0), ("max_rcvd_window_size", "num_short_recvs"));
        assert!(original.iter().all(|(name, _)| line.contains(&format!(" {name}="))));
        assert!(new.iter().all(|(name, _)| !line.contains(name)) && !line.contains("link_kept"));
        let mut worse = told(5, 4);
        worse.engine.num_bad_acks = 9;
        worse.link.kept = 8;
        let line = Statistics::new(String::new(), SECOND, false).end(worse);
        assert_eq!((value(&line, "num_bad_acks"), value(&line, "link_kept")), (9, 8));
        let line = Statistics::new(String::new(), SECOND, true).end(told(5, 4));
        let extents = ["peers", "send_unacked_min", "send_unacked_max", "recv_depth_min", "recv_depth_max"];
        assert_eq!(extents.map(|name| value(&line, name)), [2, 0, 7, 1, 3]);
        assert_eq!(value(&line, "link_sent"), 5);
        assert!(!line.contains('\n'));
    }

    #[test]
    fn relative_lines_count_from_the_line_before_and_others_from_the_beginning() {
        for (relative, second) in [(true, 3), (false, 8)] {
            let mut statistics = Statistics::new(String::new(), SECOND, relative);
            let first = statistics.line(Instant::ORIGIN + SECOND, told(5, 4));
            assert_eq!((value(&first, "num_total_sends"), value(&first, "link_sent")), (5, 5));
            let last = statistics.end(told(8, 4));
            assert_eq!((value(&last, "num_total_sends"), value(&last, "link_sent")), (second, second));
            assert_eq!(value(&last, "max_sent_window_size"), 4);
        }
    }

    #[test]
    fn a_line_is_due_every_so_often_and_missed_ones_are_not_made_up_for() {
        let mut statistics = Statistics::new(String::new(), SECOND, false);
        let at = |millis| Instant::ORIGIN + Duration::from_millis(millis);
        assert!(!statistics.is_due(at(999)) && statistics.is_due(at(1000)));
        assert!(statistics.line(at(5_500), told(0, 0)).contains("statistics 1:"));
        assert!(!statistics.is_due(at(6_499)) && statistics.is_due(at(6_500)));
        assert!(statistics.line(at(6_500), told(0, 0)).contains("statistics 2:"));
    }
}
