//! What was told last, for all who read it at their own pace.
//!
//! Any thread writes, at any time and in any number, and none of them waits for another or for a reader: each takes a number,
//! and writes into the place of that number. A reader who finds there what is not of that number, because it was overwritten
//! before he came, because it is being written, or because whoever had the number found another one at work there and left it,
//! takes it that everything has gone. So nothing that was told before a call to [`Log::read`] is ever missed by it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What readers hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// From the first address up to the second, memory goes.
    Range(usize, usize),
    /// More was told than is known: any memory may have gone.
    All,
}

/// Numbers whose ranges are there.
const PLACES: usize = 1024;

/// INVARIANT: `mark` is 0 as long as nothing was written, odd while somebody writes, and `2 * number + 2` when what is of that
/// number is there as a whole. It grows.
struct Place {
    mark: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
}

pub(super) struct Log {
    /// The number that the next one takes.
    next: AtomicU64,
    places: [Place; PLACES],
}

const fn place(number: u64) -> usize {
    (number % PLACES as u64) as usize
}

impl Log {
    pub(super) const fn new() -> Self {
        let empty = [const {
            Place { mark: AtomicU64::new(0), start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
        }; PLACES];
        Self { next: AtomicU64::new(0), places: empty }
    }

    /// Takes down that memory goes.
    pub(super) fn note(&self, start: usize, end: usize) {
        let number = self.next.fetch_add(1, Ordering::AcqRel);
        let place = &self.places[place(number)];
        let (writing, written) = (2 * number + 1, 2 * number + 2);
        let found = place.mark.load(Ordering::Relaxed);
        if found % 2 == 1
            || found > writing
            || place.mark.compare_exchange(found, writing, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        // SYNC POINT: gone-range (acquired in `read`): who reads one of these sees that the place is being written.
        place.start.store(start, Ordering::Release);
        place.end.store(end, Ordering::Release);
        // SYNC POINT: gone-mark (acquired in `read`)
        place.mark.store(written, Ordering::Release);
    }

    /// The number of what is told next.
    pub(super) fn end(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Reads on from a number.
    pub(super) fn read(&self, position: &mut u64, mut heard: impl FnMut(News)) {
        let end = self.end();
        if end - *position > PLACES as u64 {
            *position = end;
            return heard(News::All);
        }
        while *position < end {
            let place = &self.places[place(*position)];
            let written = 2 * *position + 2;
            // SYNC POINT: gone-mark (released in `note`)
            let is_whole = place.mark.load(Ordering::Acquire) == written;
            // SYNC POINT: gone-range (released in `note`)
            let range = (place.start.load(Ordering::Acquire), place.end.load(Ordering::Acquire));
            if !is_whole || place.mark.load(Ordering::Relaxed) != written {
                *position = end;
                return heard(News::All);
            }
            heard(News::Range(range.0, range.1));
            *position += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &Log, position: &mut u64) -> Vec<News> {
        let mut told = Vec::new();
        log.read(position, |news| told.push(news));
        told
    }

    #[test]
    fn each_reader_reads_everything_once_and_in_order() {
        let log = Box::new(Log::new());
        let (mut one, mut other) = (log.end(), log.end());
        log.note(1, 2);
        assert_eq!(read(&log, &mut one), [News::Range(1, 2)]);
        log.note(3, 4);
        assert_eq!(read(&log, &mut one), [News::Range(3, 4)]);
        assert_eq!(read(&log, &mut other), [News::Range(1, 2), News::Range(3, 4)]);
        assert!(read(&log, &mut one).is_empty() && read(&log, &mut other).is_empty());
    }

    #[test]
    fn who_comes_too_late_knows_that() {
        let log = Box::new(Log::new());
        let (mut slow, mut quick) = (log.end(), log.end());
        (0..PLACES).for_each(|at| log.note(at, at + 1));
        assert_eq!(read(&log, &mut quick).len(), PLACES);
        log.note(7, 8);
        assert_eq!(read(&log, &mut slow), [News::All]);
        assert_eq!(read(&log, &mut quick), [News::Range(7, 8)]);
        assert!(read(&log, &mut slow).is_empty());
    }

    #[test]
    fn what_is_being_written_counts_as_everything() {
        let log = Box::new(Log::new());
        let mut position = log.end();
        log.note(1, 2);
        // Somebody has taken a number, and is held up.
        let number = log.next.fetch_add(1, Ordering::AcqRel);
        let stuck = &log.places[place(number)].mark;
        assert_eq!(read(&log, &mut position), [News::Range(1, 2), News::All]);
        stuck.store(2 * number + 1, Ordering::Release);
        // One of a later number comes by, and leaves the place to whoever is there.
        (0..PLACES).for_each(|_| log.note(3, 4));
        assert_eq!(read(&log, &mut position).last(), Some(&News::All));
        assert_eq!(stuck.load(Ordering::Acquire), 2 * number + 1);
        stuck.store(2 * number + 2, Ordering::Release);
        (0..PLACES).for_each(|_| log.note(5, 6));
        assert_eq!(read(&log, &mut position).len(), PLACES, "the place is used again");
    }

    /// Writers on several threads; each of their ranges tells by itself whether it is whole.
    #[test]
    fn nothing_that_was_told_is_missed_and_nothing_is_torn() {
        const WRITERS: usize = 3;
        const EACH: usize = 20_000;
        let log = Box::new(Log::new());
        let told: [AtomicUsize; WRITERS] = Default::default();
        std::thread::scope(|scope| {
            for (writer, told) in told.iter().enumerate() {
                let log = &log;
                scope.spawn(move || {
                    for at in 1..=EACH {
                        let start = writer << 32 | at;
                        log.note(start, !start);
                        told.store(at, Ordering::Release);
                    }
                });
            }
            let (mut position, mut heard) = (0, [0; WRITERS]);
            loop {
                let before: Vec<_> = told.iter().map(|told| told.load(Ordering::Acquire)).collect();
                let mut is_all = false;
                log.read(&mut position, |news| match news {
                    News::All => is_all = true,
                    News::Range(start, end) => {
                        assert_eq!(start, !end, "it is whole");
                        let at = &mut heard[start >> 32];
                        *at = (start & 0xFFFF_FFFF).max(*at);
                    }
                });
                if is_all {
                    // And with it perhaps what a writer has not come back from yet.
                    let last = told.iter().map(|told| told.load(Ordering::Acquire) + 1);
                    heard.iter_mut().zip(last).for_each(|(heard, last)| *heard = last.max(*heard));
                }
                for (heard, before) in heard.iter().zip(&before) {
                    assert!(heard >= before, "{heard} of {before}");
                }
                if before.iter().all(|told| *told == EACH) {
                    break;
                }
            }
        });
    }
}
