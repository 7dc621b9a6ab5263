//! When a page was used: a frame's touch word, and the history that a page takes along.
//!
//! A hit costs one relaxed store of one word, and none if the clock stands still: the pool advances
//! its clock on misses only, so hits between two misses count as one use (the correlated references
//! of LRU-K, O'Neil 1993). Every memory policy reads the same word, so that a page carries its last
//! two uses to the flash whatever the memory policy [S0 3.1; sources.R2].
//!
//! ```text
//! bit 63        62..32                                   31..0
//! marked | gap between the last two uses, in ticks | last use, in ticks
//! ```
//!
//! - W1: `last` is modulo 2^32 and means the newest such tick; a frame unused for 2^32 misses has
//!   long been a victim. The gap saturates: all ones is "used once", one less "read ahead". Zero is
//!   "not used yet" (`cold`).
//! - W2: a `History` is in absolute ticks, of which the first is 1.

/// A point in the time that the caller counts: one tick for each miss. The first tick is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

/// The last two uses of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The last use.
    pub last: Tick,
    /// The use before the last, or `None` if there was only one.
    pub previous: Option<Tick>,
}

impl History {
    /// A page used once, at `now`.
    #[must_use]
    pub fn once(now: Tick) -> History {
        History { last: now, previous: None }
    }

    /// The history after one more use at `now` [S0 2.3: shift (nextToLast, last)].
    #[must_use]
    pub fn used(self, now: Tick) -> History {
        if now <= self.last { self } else { History { last: now, previous: Some(self.last) } }
    }
}

/// A frame's uses in one word, as the pool stores it beside the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch(pub u64);

const MARK: u64 = 1 << 63;
const GAP_SHIFT: u32 = 32;
const GAP_NEVER: u64 = (1 << 31) - 1;
/// Read ahead, and not used yet.
const GAP_AHEAD: u64 = GAP_NEVER - 1;
/// A gap of zero cannot arise, since hits of one tick count once: it marks a page not used yet.
const GAP_UNUSED: u64 = 0;
/// How long ago a page that enters at the cold end was used, in ticks.
const COLD_AGE: u32 = 1 << 30;

/// A gap as it is stored (W1).
fn told(gap: u64) -> u64 {
    if gap < GAP_AHEAD { gap } else { GAP_NEVER }
}

impl Touch {
    fn pack(last: u32, gap: u64, mark: u64) -> Touch {
        Touch(mark | (gap << GAP_SHIFT) | u64::from(last))
    }

    /// A page that enters memory because it is used now, for the first time that is known.
    #[must_use]
    pub fn first(now: Tick) -> Touch {
        Touch::pack(now.0 as u32, GAP_NEVER, MARK)
    }

    /// A page that enters memory at the cold end, unused: a neighbour read along [S3 IV-A1].
    #[must_use]
    pub fn cold(now: Tick) -> Touch {
        Touch::pack((now.0 as u32).wrapping_sub(COLD_AGE), GAP_UNUSED, 0)
    }

    /// A page that a scan has read ahead. Its first hit is the use that it was read for, and keeps
    /// its tick: so pages that the scan has passed leave before those that it has yet to reach.
    #[must_use]
    pub fn ahead(now: Tick) -> Touch {
        Touch::pack(now.0 as u32, GAP_AHEAD, MARK)
    }

    /// A page that enters memory with a history, from the flash.
    #[must_use]
    pub fn with_history(history: History) -> Touch {
        let gap = history.previous.map_or(GAP_NEVER, |it| told(history.last.0 - it.0));
        Touch::pack(history.last.0 as u32, gap, MARK)
    }

    /// The word after a hit at `now`. If it is the same word, there is nothing to store.
    #[must_use]
    #[inline]
    pub fn hit(self, now: Tick) -> Touch {
        let gap = (now.0 as u32).wrapping_sub(self.last());
        match self.gap() {
            // A page at the cold end has not been used before: its first hit starts its history.
            GAP_UNUSED => Touch::first(now),
            GAP_AHEAD => Touch::pack(self.last(), GAP_NEVER, MARK),
            _ if gap == 0 => Touch(self.0 | MARK),
            _ => Touch::pack(now.0 as u32, told(u64::from(gap)), MARK),
        }
    }

    /// The page's last two uses, in absolute ticks.
    #[must_use]
    pub fn history(self, now: Tick) -> History {
        let last = now.0.saturating_sub(u64::from(self.age(now))).max(1);
        let previous = match self.gap() {
            GAP_NEVER | GAP_AHEAD | GAP_UNUSED => None,
            gap => Some(Tick(last.saturating_sub(gap).max(1))),
        };
        History { last: Tick(last), previous }
    }

    /// Ticks since the last use.
    pub(crate) fn age(self, now: Tick) -> u32 {
        (now.0 as u32).wrapping_sub(self.last())
    }

    /// Ticks since the use before the last, or `None` if there was none. What was read ahead counts
    /// as used twice when it came, or pages used once would be all that is ever replaced, and it
    /// would leave before it is reached.
    pub(crate) fn age_of_previous(self, now: Tick) -> Option<u64> {
        match self.gap() {
            GAP_NEVER | GAP_UNUSED => None,
            GAP_AHEAD => Some(u64::from(self.age(now))),
            gap => Some(u64::from(self.age(now)) + gap),
        }
    }

    /// Whether the page was read along, and not used since.
    pub(crate) fn is_unused(self) -> bool {
        self.gap() == GAP_UNUSED
    }

    pub(crate) fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    pub(crate) fn unmarked(self) -> Touch {
        Touch(self.0 & !MARK)
    }

    fn last(self) -> u32 {
        self.0 as u32
    }

    fn gap(self) -> u64 {
        (self.0 >> GAP_SHIFT) & GAP_NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_between_two_misses_count_once() {
        let touch = Touch::first(Tick(5)).hit(Tick(5)).hit(Tick(5));
        assert_eq!(touch, Touch::first(Tick(5)));
        assert_eq!(touch.history(Tick(9)), History::once(Tick(5)));
    }

    #[test]
    fn a_word_remembers_what_a_history_does() {
        let mut prng = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            // Ticks that cross the wrap of 32 bits.
            let mut now = Tick((1 << 32) - 500 + prng.u64(..400));
            let mut touch = Touch::first(now);
            let mut history = History::once(now);
            for _ in 0..100 {
                now.0 += prng.u64(..20);
                assert_eq!(touch.history(now), history);
                touch = touch.hit(now);
                history = history.used(now);
            }
            assert_eq!(Touch::with_history(history).history(now), history);
        }
    }

    #[test]
    fn the_first_hit_of_a_cold_page_starts_its_history() {
        let cold = Touch::cold(Tick(1 << 40));
        assert_eq!(cold.hit(Tick(1 << 40)).history(Tick(1 << 40)), History::once(Tick(1 << 40)));
        assert_eq!(cold.age_of_previous(Tick(1 << 40)), None);
        assert_eq!(Touch::cold(Tick(7)).history(Tick(9)).last, Tick(1));
    }

    #[test]
    fn what_was_read_ahead_is_used_once_when_it_came() {
        let ahead = Touch::ahead(Tick(5));
        assert_eq!(ahead.history(Tick(9)), History::once(Tick(5)));
        // It stays as what was used twice until it is reached, and is then used once since it came.
        assert_eq!(ahead.age_of_previous(Tick(9)), Some(4));
        let reached = ahead.hit(Tick(9));
        assert_eq!((reached, reached.age_of_previous(Tick(9))), (Touch::first(Tick(5)), None));
        let again = reached.hit(Tick(12));
        let twice = History { last: Tick(12), previous: Some(Tick(5)) };
        assert_eq!(again.history(Tick(12)), twice);
        // No gap is taken for it.
        for gap in [GAP_AHEAD - 1, GAP_AHEAD, GAP_NEVER] {
            let far = Touch::first(Tick(1)).hit(Tick(1 + gap));
            assert_ne!(far.gap(), GAP_AHEAD, "{gap}");
        }
    }

    #[test]
    fn a_gap_saturates_as_used_once() {
        let touch = Touch::first(Tick(1)).hit(Tick(1 << 31));
        assert_eq!(touch.history(Tick(1 << 31)), History::once(Tick(1 << 31)));
    }
}
