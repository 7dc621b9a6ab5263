//! The counts of pages that are not on flash: pages in memory, and ghosts of pages that are in
//! neither and may come back.
//!
//! - Idea: what was counted must outlast a page's way through the tiers, in bounded memory. Buckets
//!   of eight pages, found by a hash; in each the page whose last request is oldest is forgotten.
//! - State: a page number and its counts for each place.
//! - H1: within a bucket places are in order of the last request, the newest first, without gaps.
//! - H2: a page has one place at most, in the bucket of its hash.
//! - H3: a page of which nothing was counted has none.
//! - Cost: 9 bytes per place; every operation looks at eight page numbers, side by side.
//! - Not for: exact LRU over all pages.

use crate::Counts;
use std::ops::Range;
use terrace_page::PageId;

/// Places in a bucket.
const WAYS: usize = 8;
/// A place without a page.
const NO_PAGE: u32 = u32::MAX;

pub struct Ghosts {
    pages: Box<[u32]>,
    counts: Box<[Counts]>,
}

impl Ghosts {
    /// Room for `pages_count` pages, rounded up to whole buckets.
    pub fn new(pages_count: u32) -> Ghosts {
        let places = (pages_count as usize).max(1).next_multiple_of(WAYS);
        Ghosts {
            pages: vec![NO_PAGE; places].into(),
            counts: vec![Counts::default(); places].into(),
        }
    }

    /// What was counted of `page`.
    pub fn of(&self, page: PageId) -> Counts {
        self.place(page).map_or(Counts::default(), |place| self.counts[place])
    }

    /// `page` was asked for: changes its counts, and puts it first in its bucket.
    pub fn change(&mut self, page: PageId, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.take(page);
        change(&mut counts);
        self.put(page, counts);
    }

    /// Takes the counts of `page` out: it has a slot from now on.
    pub fn take(&mut self, page: PageId) -> Counts {
        let Some(place) = self.place(page) else { return Counts::default() };
        let counts = self.counts[place];
        let end = self.bucket(page).end;
        self.pages.copy_within(place + 1..end, place);
        self.counts.copy_within(place + 1..end, place);
        self.pages[end - 1] = NO_PAGE;
        counts
    }

    /// Puts `page` first in its bucket, with what was counted of it there already; the last may
    /// have to give way.
    pub fn put(&mut self, page: PageId, counts: Counts) {
        let counts = counts.plus(self.take(page));
        if counts.is_zero() {
            return;
        }
        let Range { start, end } = self.bucket(page);
        self.pages.copy_within(start..end - 1, start + 1);
        self.counts.copy_within(start..end - 1, start + 1);
        self.pages[start] = number(page);
        self.counts[start] = counts;
    }

    /// Forgets half of all that was counted.
    pub fn halve(&mut self) {
        for start in (0..self.pages.len()).step_by(WAYS) {
            let mut to = start;
            for from in start..start + WAYS {
                let (page, counts) = (self.pages[from], self.counts[from].halved());
                if page != NO_PAGE && !counts.is_zero() {
                    (self.pages[to], self.counts[to]) = (page, counts);
                    to += 1;
                }
            }
            self.pages[to..start + WAYS].fill(NO_PAGE);
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        size_of_val::<[u32]>(&self.pages) + size_of_val::<[Counts]>(&self.counts)
    }

    /// Asserts H1 to H3.
    pub fn check(&self) {
        for (at, &page) in self.pages.iter().enumerate().filter(|place| *place.1 != NO_PAGE) {
            assert_eq!(self.place(PageId(u64::from(page))), Some(at), "page {page}");
            assert!(!self.counts[at].is_zero(), "page {page} is remembered for nothing");
            assert!(at % WAYS == 0 || self.pages[at - 1] != NO_PAGE, "a gap before page {page}");
        }
    }

    fn place(&self, page: PageId) -> Option<usize> {
        let bucket = self.bucket(page);
        let start = bucket.start;
        let at = self.pages[bucket].iter().position(|&other| other == number(page));
        at.map(|at| start + at)
    }

    fn bucket(&self, page: PageId) -> Range<usize> {
        let buckets = (self.pages.len() / WAYS) as u64;
        // The finalizer of SplitMix64: partitions are told by a hash of the page, too, and this one
        // must not follow it.
        let mut hash = page.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let start = (((hash >> 32) * buckets) >> 32) as usize * WAYS;
        start..start + WAYS
    }
}

/// The 32 bits of a page number.
fn number(page: PageId) -> u32 {
    let number = u32::try_from(page.0).expect("page numbers have 32 bits");
    assert_ne!(number, NO_PAGE);
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BenefitSide;
    use std::collections::BTreeMap;

    /// Lists by bucket, newest first.
    #[derive(Default)]
    struct Model(BTreeMap<usize, Vec<(u64, Counts)>>);

    impl Model {
        fn take(&mut self, bucket: usize, page: u64) -> Counts {
            let list = self.0.entry(bucket).or_default();
            match list.iter().position(|row| row.0 == page) {
                Some(at) => list.remove(at).1,
                None => Counts::default(),
            }
        }

        fn put(&mut self, bucket: usize, page: u64, counts: Counts) {
            if !counts.is_zero() {
                let list = self.0.entry(bucket).or_default();
                list.insert(0, (page, counts));
                list.truncate(8);
            }
        }
    }

    #[test]
    fn ghosts_agree_with_their_model() {
        for seed in 0..100 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut ghosts = Ghosts::new(prng.u32(..60));
            let mut model = Model::default();
            for step in 0..600 {
                let page = prng.u64(..120);
                let bucket = ghosts.bucket(PageId(page)).start;
                match prng.u8(..16) {
                    0..=9 => {
                        ghosts.change(PageId(page), |counts| counts.read(BenefitSide::Elsewhere));
                        let mut counts = model.take(bucket, page);
                        counts.read(BenefitSide::Elsewhere);
                        model.put(bucket, page, counts);
                    }
                    10..=12 => {
                        let taken = ghosts.take(PageId(page));
                        assert_eq!(taken, model.take(bucket, page), "seed {seed} step {step}");
                    }
                    13 | 14 => {
                        let mut counts = Counts::default();
                        counts.wrote(BenefitSide::OnFlash);
                        ghosts.put(PageId(page), counts);
                        let sum = counts.plus(model.take(bucket, page));
                        model.put(bucket, page, sum);
                    }
                    _ => {
                        ghosts.halve();
                        for list in model.0.values_mut() {
                            list.iter_mut().for_each(|row| row.1 = row.1.halved());
                            list.retain(|row| !row.1.is_zero());
                        }
                    }
                }
                ghosts.check();
                let list = model.0.get(&bucket);
                let row = list.and_then(|list| list.iter().find(|row| row.0 == page));
                let expected = row.map_or(Counts::default(), |row| row.1);
                assert_eq!(ghosts.of(PageId(page)), expected, "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn pages_spread_over_the_buckets() {
        let ghosts = Ghosts::new(8_000);
        let mut lengths = vec![0; 1_000];
        for page in 0..8_000 {
            lengths[ghosts.bucket(PageId(page)).start / WAYS] += 1;
        }
        let empty = lengths.iter().filter(|&&length| length == 0).count();
        assert!(empty < 5, "{empty} of 1000 buckets are empty");
        assert!(lengths.iter().all(|&length| length < 24));
        assert_eq!(ghosts.bytes(), 9 * 8_000);
    }
}
