//! What it is worth to have a page on flash, by its reads and writes: the benefit of CC and CAC
//! (Liu and Salem, "Hybrid storage management for database systems", PVLDB 6(8), 2013) [S1e 5].
//!
//! - Idea: a page's physical requests are counted apart while it is on flash and while it is not.
//!   CC multiplies both with what flash saves. CAC anticipates: memory that knows of the flash
//!   keeps a page on flash less long, so a page that moves there will be read and written more
//!   often, by the expansion factor alpha, and one that leaves it less often.
//! - State: five bytes for each page; the logical and physical reads of groups of pages, from which
//!   alpha is estimated while running.
//! - A1: with alpha fixed at 1 CAC is CC, page for page (a test).
//! - A2: alpha of a group is 1 until a hundred logical reads were seen both on flash and not, and
//!   stays between 1 and what a read from home costs in reads of flash, or a write in writes if
//!   that is less [sources.R8]: beyond, a page would be worse off on flash for being asked for.
//! - A3: counters are in eighths, so that halving them from time to time, as their owner does, does
//!   not forget a single request at once. They saturate at 31 requests.
//! - Groups are pages with the same order of magnitude of logical reads and of writes
//!   [sources.U3], by powers of two.
//! - Not for: pages that a scan reads: the caller leaves out what was read ahead.

use crate::placement::Costs;

/// A counter that is not one but says that its slot is free, in `Counts::logical`.
const FREE: u8 = u8::MAX;
/// Logical reads are counted to here.
const LOGICAL_MAX: u8 = FREE - 1;
/// A physical request (A3).
const REQUEST: u8 = 8;
/// Requests by what their counter says.
static REQUESTS: [f64; 256] = {
    let mut requests = [0.0; 256];
    let mut count = 0;
    while count < requests.len() {
        requests[count] = count as f64 / REQUEST as f64;
        count += 1;
    }
    requests
};
/// Orders of magnitude of a counter: zero, and eight powers of two.
const LEVELS: usize = 9;
/// Groups of pages.
pub(crate) const GROUPS: usize = LEVELS * LEVELS;
/// Logical reads that a group must have on each side before its factor is believed.
const LOGICAL_READS_MIN: f64 = 100.0;
/// Logical reads between two estimates.
const LOGICAL_READS_PER_ESTIMATE: u64 = 100_000;

/// Where a page was when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenefitSide {
    /// It had a slot on flash.
    OnFlash,
    /// It had none.
    Elsewhere,
}

/// The requests for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Physical reads by side, and physical writes.
    reads: [u8; 2],
    writes: [u8; 2],
    /// Reads that memory or a device served.
    logical: u8,
}

const _: () = assert!(size_of::<Counts>() == 5);

impl Counts {
    /// Adds a physical read.
    pub fn read(&mut self, side: BenefitSide) {
        let count = &mut self.reads[side as usize];
        *count = count.saturating_add(REQUEST);
    }

    /// Adds a physical write.
    pub fn wrote(&mut self, side: BenefitSide) {
        let count = &mut self.writes[side as usize];
        *count = count.saturating_add(REQUEST);
    }

    /// Adds logical reads.
    pub fn read_logically(&mut self, reads: u32) {
        let sum = u32::from(self.logical).saturating_add(reads);
        self.logical = sum.min(u32::from(LOGICAL_MAX)) as u8;
    }

    /// The counts that a page has after half of them were forgotten.
    #[must_use]
    pub fn halved(self) -> Counts {
        let half = |counts: [u8; 2]| counts.map(|count| count / 2);
        Counts { reads: half(self.reads), writes: half(self.writes), logical: self.logical / 2 }
    }

    /// What was counted here and there.
    #[must_use]
    pub fn plus(mut self, other: Counts) -> Counts {
        let add = |counts: &mut [u8; 2], others: [u8; 2]| {
            for (count, other) in counts.iter_mut().zip(others) {
                *count = count.saturating_add(other);
            }
        };
        add(&mut self.reads, other.reads);
        add(&mut self.writes, other.writes);
        self.read_logically(u32::from(other.logical));
        self
    }

    /// Whether there is nothing to remember.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Counts::default()
    }

    /// The group of pages like this one.
    pub(crate) fn group(self) -> usize {
        let writes = self.writes[0].saturating_add(self.writes[1]);
        level(self.logical) * LEVELS + level(writes / REQUEST)
    }

    /// What a page on flash saves, if its group has the expansion factor `alpha` [S1e (3) to (8)].
    #[must_use]
    #[inline]
    pub fn benefit(self, costs: &Costs, alpha: f64) -> f64 {
        // If it had never been on flash, and if always.
        let both = |counts: [u8; 2]| {
            let [on_flash, elsewhere] = counts.map(|count| REQUESTS[usize::from(count)]);
            match alpha == 1.0 {
                // As below, without a division.
                true => (elsewhere + on_flash, on_flash + elsewhere),
                false => (elsewhere + on_flash / alpha, on_flash + alpha * elsewhere),
            }
        };
        let (reads, writes) = (both(self.reads), both(self.writes));
        reads.0 * costs.home_read - reads.1 * costs.flash_read
            + (writes.0 * costs.home_write - writes.1 * costs.flash_write)
    }

    /// In the place of a free slot's counts: the free slot after it.
    pub(crate) fn free(next: u32) -> Counts {
        let [a, b, c, d] = next.to_le_bytes();
        Counts { reads: [a, b], writes: [c, d], logical: FREE }
    }

    /// The free slot after this one, if this is one.
    pub(crate) fn next_free(self) -> Option<u32> {
        let ([a, b], [c, d]) = (self.reads, self.writes);
        (self.logical == FREE).then(|| u32::from_le_bytes([a, b, c, d]))
    }
}

/// The order of magnitude of a counter: 0, 1, 2 to 3, 4 to 7 and so on.
fn level(count: u8) -> usize {
    (u8::BITS - count.leading_zeros()) as usize
}

/// Where expansion factors come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionRule {
    /// They are 1: CC.
    One,
    /// They are estimated while running: CAC.
    Estimated,
}

/// Reads of a group, by side; halved at each estimate.
#[derive(Clone, Copy, Default)]
struct Reads {
    logical: [f64; 2],
    physical: [f64; 2],
}

/// The expansion factors of all groups.
pub struct Expansion {
    rule: ExpansionRule,
    factor_max: f64,
    reads: Box<[Reads]>,
    factors: Box<[f64]>,
    unseen: u64,
    estimates: u32,
}

impl Expansion {
    /// Factors of 1.
    ///
    /// # Panics
    ///
    /// If reads cost nothing, or writes of flash.
    #[must_use]
    pub fn new(rule: ExpansionRule, costs: &Costs) -> Expansion {
        assert!(costs.home_read > 0.0);
        assert!(costs.flash_read > 0.0);
        assert!(costs.flash_write > 0.0);
        let reads = costs.home_read / costs.flash_read;
        let writes = costs.home_write / costs.flash_write;
        Expansion {
            rule,
            factor_max: reads.min(writes).max(1.0),
            reads: vec![Reads::default(); GROUPS].into(),
            factors: vec![1.0; GROUPS].into(),
            unseen: 0,
            estimates: 0,
        }
    }

    /// A page with these counts was read `physical` times from a device while memory was asked for
    /// it `logical` times.
    pub fn was_read(&mut self, counts: Counts, side: BenefitSide, physical: u32, logical: u32) {
        if self.rule == ExpansionRule::One {
            return;
        }
        let reads = &mut self.reads[counts.group()];
        reads.physical[side as usize] += f64::from(physical);
        reads.logical[side as usize] += f64::from(logical);
        self.unseen += u64::from(logical);
        if self.unseen >= LOGICAL_READS_PER_ESTIMATE {
            self.unseen = 0;
            self.estimate();
        }
    }

    fn estimate(&mut self) {
        for (reads, factor) in self.reads.iter_mut().zip(&mut self.factors) {
            *factor = reads.factor().clamp(1.0, self.factor_max);
            *reads = reads.halved();
        }
        self.estimates += 1;
    }

    /// The factor of the group of pages like this one.
    #[must_use]
    pub fn factor(&self, counts: Counts) -> f64 {
        self.factors[counts.group()]
    }

    /// All factors, by group.
    pub(crate) fn factors(&self) -> &[f64] {
        &self.factors
    }

    /// How often the factors were estimated: a caller that has copied them looks again when it
    /// changes.
    #[must_use]
    pub fn estimates(&self) -> u32 {
        self.estimates
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val::<[Reads]>(&self.reads) + size_of_val::<[f64]>(&self.factors)
    }
}

impl Reads {
    /// How much more often a page is missed when it is on flash.
    fn factor(&self) -> f64 {
        let [on_flash, elsewhere] = self.logical;
        if on_flash.min(elsewhere) < LOGICAL_READS_MIN {
            return 1.0;
        }
        let miss_rate =
            |side: BenefitSide| self.physical[side as usize] / self.logical[side as usize];
        match miss_rate(BenefitSide::Elsewhere) {
            0.0 if miss_rate(BenefitSide::OnFlash) == 0.0 => 1.0,
            elsewhere => miss_rate(BenefitSide::OnFlash) / elsewhere,
        }
    }

    fn halved(&self) -> Reads {
        let half = |counts: [f64; 2]| counts.map(|count| count / 2.0);
        Reads { logical: half(self.logical), physical: half(self.physical) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_equations_by_hand() {
        let costs = Costs { home_read: 12.0, home_write: 12.5, flash_read: 0.25, flash_write: 0.5 };
        let mut counts = Counts::default();
        (0..3).for_each(|_| counts.read(BenefitSide::Elsewhere));
        (0..8).for_each(|_| counts.read(BenefitSide::OnFlash));
        (0..2).for_each(|_| counts.wrote(BenefitSide::Elsewhere));
        (0..4).for_each(|_| counts.wrote(BenefitSide::OnFlash));
        // Equation 3: 11 reads, 6 writes.
        assert_eq!(counts.benefit(&costs, 1.0), 11.0 * 11.75 + 6.0 * 12.0);
        // Equations 4 to 8 with alpha 4: 14 or 20 reads and 3 or 12 writes.
        let (reads, writes) = ((5.0, 20.0), (3.0, 12.0));
        let expected = reads.0 * 12.0 - reads.1 * 0.25 + writes.0 * 12.5 - writes.1 * 0.5;
        assert_eq!(counts.benefit(&costs, 4.0), expected);
    }

    #[test]
    fn no_page_is_worth_less_than_nothing_at_the_greatest_factor() {
        let costs = Costs { home_read: 12.0, home_write: 12.5, flash_read: 0.25, flash_write: 0.5 };
        let mut expansion = Expansion::new(ExpansionRule::Estimated, &costs);
        let mut written = Counts::default();
        for _ in 0..1_000 {
            expansion.was_read(written, BenefitSide::OnFlash, 100, 100);
            expansion.was_read(written, BenefitSide::Elsewhere, 1, 100);
        }
        assert_eq!(expansion.factor(written), 25.0, "of writes, not 48, of reads");
        (0..4).for_each(|_| written.wrote(BenefitSide::Elsewhere));
        assert!(written.benefit(&costs, 25.0) >= 0.0);
    }

    #[test]
    fn a_factor_is_the_ratio_of_miss_rates_once_both_sides_were_seen() {
        let costs = Costs { home_read: 12.0, home_write: 12.0, flash_read: 2.0, flash_write: 2.0 };
        let mut counts = Counts::default();
        counts.read_logically(5);
        let other = Counts::default();
        for (on_flash, elsewhere, expected) in [(4, 2, 2.0), (2, 4, 1.0), (90, 1, 6.0)] {
            let mut expansion = Expansion::new(ExpansionRule::Estimated, &costs);
            for _ in 0..400 {
                expansion.was_read(counts, BenefitSide::OnFlash, on_flash, 100);
                assert_eq!(expansion.factor(counts), 1.0);
                expansion.was_read(counts, BenefitSide::Elsewhere, elsewhere, 100);
                // Seen on one side only.
                expansion.was_read(other, BenefitSide::OnFlash, 50, 50);
            }
            assert_eq!(expansion.estimates(), 1);
            assert_eq!(expansion.factor(counts), expected);
            assert_eq!(expansion.factor(other), 1.0);
        }
    }

    #[test]
    fn counters_saturate_and_are_halved() {
        let mut counts = Counts::default();
        (0..300).for_each(|_| counts.read(BenefitSide::OnFlash));
        counts.read_logically(1_000);
        assert_eq!(counts.reads, [255, 0]);
        assert_eq!(counts.next_free(), None);
        let mut times = 0;
        while !counts.is_zero() {
            counts = counts.halved();
            times += 1;
        }
        assert_eq!(times, 8);
        assert_eq!(Counts::free(0xABCD_EF01).next_free(), Some(0xABCD_EF01));
    }
}
