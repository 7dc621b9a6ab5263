//! Which evicted pages are worth a write to flash: classes, the fill and the throttle [S0 2.2,
//! 3.3].
//!
//! - Idea: flash helps random reads most, so pages that were read sequentially stay out; but until
//!   the tier is nearly full every page is welcome, and while its queue is long none is.
//! - A1: filling ends for good when its threshold is first reached [sources.R1].
//! - A2: nothing is admitted when no slot is free or clean.
//! - Not for: TAC, which asks temperatures (`tac`) and keeps only the fill and the throttle.

use terrace_page::PageId;

/// How a page came into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessClass {
    /// By a single read, or made in memory.
    #[default]
    Random,
    /// By a scan.
    Sequential,
}

/// How a sequential page is recognized [S0 2.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classifier {
    /// It was fetched by read-ahead: right for 82% of pages.
    ReadAhead,
    /// It is within 64 pages of the page read before it: right for 51%.
    Near,
}

/// The distance of `Classifier::Near`, in pages.
pub const NEAR_PAGES: u64 = 64;

impl Classifier {
    /// The class of `page`, fetched by read-ahead or not, after `previous` was fetched.
    #[must_use]
    pub fn class(
        self,
        fetched: AccessClass,
        previous: Option<PageId>,
        page: PageId,
    ) -> AccessClass {
        match self {
            Classifier::ReadAhead => fetched,
            Classifier::Near => match previous {
                Some(previous) if page.0.abs_diff(previous.0) <= NEAR_PAGES => {
                    AccessClass::Sequential
                }
                _ => AccessClass::Random,
            },
        }
    }
}

/// Aggressive filling: whether every evicted page is admitted, whatever its class [S0 3.3.1].
#[derive(Clone, Copy, Debug)]
pub struct Filling {
    threshold_slots: u32,
    over: bool,
}

impl Filling {
    /// Fills until the share `tau` of `slots_count` slots is used; a share of zero never fills.
    ///
    /// # Panics
    ///
    /// If `tau` is no share.
    #[must_use]
    pub fn new(slots_count: u32, tau: f64) -> Filling {
        assert!((0.0..=1.0).contains(&tau), "tau {tau} is a share");
        let threshold_slots = (f64::from(slots_count) * tau).ceil() as u32;
        Filling { threshold_slots, over: threshold_slots == 0 }
    }

    /// Whether the tier is filling, now that `used_slots` slots are used.
    pub fn is_on(&mut self, used_slots: u32) -> bool {
        self.over |= used_slots >= self.threshold_slots;
        !self.over
    }
}

/// Why a page is not written to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// More than mu requests are queued at the flash device [S0 3.3.2].
    Throttled,
    /// The flash was sent all that it may be sent by now.
    OverBudget,
    /// The page is sequential, and filling is over.
    Sequential,
    /// No slot is free or clean.
    NoRoom,
}

/// Whether an evicted page of `class` may be written to flash [S0 2.2, 3.3].
///
/// # Errors
///
/// Why it may not, the first reason of the list.
pub fn admit(
    class: AccessClass,
    filling: bool,
    queued: usize,
    queued_max: usize,
    reusable_slots: u32,
) -> Result<(), Refusal> {
    if queued > queued_max {
        Err(Refusal::Throttled)
    } else if class == AccessClass::Sequential && !filling {
        Err(Refusal::Sequential)
    } else if reusable_slots == 0 {
        Err(Refusal::NoRoom)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_ends_for_good() {
        let mut filling = Filling::new(1_000, 0.95);
        assert!(filling.is_on(0));
        assert!(filling.is_on(949));
        assert!(!filling.is_on(950));
        assert!(!filling.is_on(10));
        assert!(!Filling::new(1_000, 0.0).is_on(0));
    }

    #[test]
    fn each_refusal_has_its_reason() {
        use AccessClass::{Random, Sequential};
        assert_eq!(admit(Random, false, 100, 100, 1), Ok(()));
        assert_eq!(admit(Random, true, 101, 100, 1), Err(Refusal::Throttled));
        assert_eq!(admit(Sequential, false, 0, 100, 1), Err(Refusal::Sequential));
        assert_eq!(admit(Sequential, true, 0, 100, 1), Ok(()));
        assert_eq!(admit(Random, true, 0, 100, 0), Err(Refusal::NoRoom));
    }

    #[test]
    fn near_pages_are_sequential_by_distance_alone() {
        let near = |previous: Option<u64>, page: u64| {
            Classifier::Near.class(AccessClass::Random, previous.map(PageId), PageId(page))
        };
        assert_eq!(near(None, 5), AccessClass::Random);
        assert_eq!(near(Some(100), 164), AccessClass::Sequential);
        assert_eq!(near(Some(100), 36), AccessClass::Sequential);
        assert_eq!(near(Some(100), 165), AccessClass::Random);
        let ahead = Classifier::ReadAhead.class(AccessClass::Random, Some(PageId(1)), PageId(2));
        assert_eq!(ahead, AccessClass::Random);
    }
}
