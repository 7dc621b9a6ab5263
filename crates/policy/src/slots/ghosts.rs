//! The counts of pages that are not on flash: pages in memory, and ghosts of pages that are in
//! neither and may come back.
//!
//! - Idea: what was counted must outlast a page's way through the tiers, in bounded memory. Buckets
//!   of eight pages, found by a hash; in each the page whose last request is oldest is forgotten.
//! - State: 16 bits of the page's hash, a tag, and its counts for each place.
//! - H1: within a bucket places are in order of the last request, the newest first, without gaps.
//! - H2: a tag is in one place of a bucket at most. Pages that share bucket and tag count as one:
//!   one of 8,192 pages that are looked for in a full bucket meets another's counts.
//! - H3: a page of which nothing was counted has none.
//! - Cost: 7 bytes per place; every operation looks at eight tags, side by side.
//! - Not for: exact LRU over all pages, or what must not be taken for another page's.

use crate::Counts;
use std::ops::Range;
use terrace_page::PageId;

/// Places in a bucket.
const WAYS: usize = 8;
/// A place without a page.
const NO_TAG: u16 = 0;

pub struct Ghosts {
    tags: Box<[u16]>,
    counts: Box<[Counts]>,
}

impl Ghosts {
    /// Room for `pages_count` pages, rounded up to whole buckets.
    pub fn new(pages_count: u32) -> Ghosts {
        let places = (pages_count as usize).max(1).next_multiple_of(WAYS);
        Ghosts { tags: vec![NO_TAG; places].into(), counts: vec![Counts::default(); places].into() }
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
        self.tags.copy_within(place + 1..end, place);
        self.counts.copy_within(place + 1..end, place);
        self.tags[end - 1] = NO_TAG;
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
        self.tags.copy_within(start..end - 1, start + 1);
        self.counts.copy_within(start..end - 1, start + 1);
        self.tags[start] = tag(hash(page));
        self.counts[start] = counts;
    }

    /// Forgets half of all that was counted.
    pub fn halve(&mut self) {
        for start in (0..self.tags.len()).step_by(WAYS) {
            let mut to = start;
            for from in start..start + WAYS {
                let (tag, counts) = (self.tags[from], self.counts[from].halved());
                if tag != NO_TAG && !counts.is_zero() {
                    (self.tags[to], self.counts[to]) = (tag, counts);
                    to += 1;
                }
            }
            self.tags[to..start + WAYS].fill(NO_TAG);
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        size_of_val::<[u16]>(&self.tags) + size_of_val::<[Counts]>(&self.counts)
    }

    /// Asserts H1 to H3.
    pub fn check(&self) {
        for (at, &tag) in self.tags.iter().enumerate().filter(|place| *place.1 != NO_TAG) {
            let first = at - at % WAYS;
            assert!(!self.tags[first..at].contains(&tag), "tag {tag} is in two places");
            assert!(!self.counts[at].is_zero(), "place {at} is for nothing");
            assert!(at == first || self.tags[at - 1] != NO_TAG, "a gap before place {at}");
        }
    }

    fn place(&self, page: PageId) -> Option<usize> {
        let bucket = self.bucket(page);
        let start = bucket.start;
        let tag = tag(hash(page));
        let at = self.tags[bucket].iter().position(|&other| other == tag);
        at.map(|at| start + at)
    }

    fn bucket(&self, page: PageId) -> Range<usize> {
        let buckets = (self.tags.len() / WAYS) as u64;
        let start = (((hash(page) >> 32) * buckets) >> 32) as usize * WAYS;
        start..start + WAYS
    }
}

/// The finalizer of SplitMix64: partitions are told by a hash of the page, too, and this one must
/// not follow it.
fn hash(page: PageId) -> u64 {
    let mut hash = page.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

/// The lowest bits of a hash, which say nothing of the bucket.
fn tag(hash: u64) -> u16 {
    (hash as u16).max(NO_TAG + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BenefitSide;
    use std::collections::BTreeMap;

    /// Lists of tags by bucket, newest first.
    #[derive(Default)]
    struct Model(BTreeMap<usize, Vec<(u16, Counts)>>);

    impl Model {
        fn take(&mut self, bucket: usize, tag: u16) -> Counts {
            let list = self.0.entry(bucket).or_default();
            match list.iter().position(|row| row.0 == tag) {
                Some(at) => list.remove(at).1,
                None => Counts::default(),
            }
        }

        fn put(&mut self, bucket: usize, tag: u16, counts: Counts) {
            if !counts.is_zero() {
                let list = self.0.entry(bucket).or_default();
                list.insert(0, (tag, counts));
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
                let tag = tag(hash(PageId(page)));
                match prng.u8(..16) {
                    0..=9 => {
                        ghosts.change(PageId(page), |counts| counts.read(BenefitSide::Elsewhere));
                        let mut counts = model.take(bucket, tag);
                        counts.read(BenefitSide::Elsewhere);
                        model.put(bucket, tag, counts);
                    }
                    10..=12 => {
                        let taken = ghosts.take(PageId(page));
                        assert_eq!(taken, model.take(bucket, tag), "seed {seed} step {step}");
                    }
                    13 | 14 => {
                        let mut counts = Counts::default();
                        counts.wrote(BenefitSide::OnFlash);
                        ghosts.put(PageId(page), counts);
                        let sum = counts.plus(model.take(bucket, tag));
                        model.put(bucket, tag, sum);
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
                let row = list.and_then(|list| list.iter().find(|row| row.0 == tag));
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
        assert_eq!(ghosts.bytes(), 7 * 8_000);
        // Tags tell the pages of a bucket apart: a few pairs of 3.5 in each, at 1 in 65,535.
        let mut seen = BTreeMap::new();
        for page in (0..8_000).map(PageId) {
            *seen.entry((ghosts.bucket(page).start, tag(hash(page)))).or_insert(0) += 1;
        }
        assert!(seen.len() > 7_990, "{} are told apart", seen.len());
    }
}
