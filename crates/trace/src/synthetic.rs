//! Traces that are made up: what a policy does on them is known, and they have any number of
//! requests.
//!
//! - S1: the same options give the same requests.
//! - S2: every request is to one page, at a multiple of the page's size, in file 0.
//! - S3: pages that are popular together do not lie together: ranks are scattered over the pages by
//!   a permutation that the seed decides. A loop and a scan run through neighbours.
//!
//! A scan is a run of pages from a random one on, wherever the other requests go. A working set is
//! a part of the ranks; requests go there, and after a given number of them the set moves on by
//! half of its size.

use crate::pages::PageBytes;
use crate::request::{Kind, Request};
use crate::scatter::Scatter;
use crate::zipf::Zipf;
use fastrand::Rng;

/// Pages that a made-up trace may have: their addresses stay below 2^63.
pub const IDS_MAX: u64 = 1 << 33;

/// Which pages are requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// The k-th in proportion to `1 / k^s`.
    Zipf(f64),
    /// All alike.
    Uniform,
    /// One after the other, over and over.
    Loop,
}

/// A part of the ranks that requests go to for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkingSet {
    /// Pages of it.
    pub ids: u64,
    /// Requests until it moves on.
    pub requests: u64,
}

/// Scans among the other requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scans {
    /// The share of requests that belong to scans, below 1.
    pub share: f64,
    /// Pages of a scan.
    pub pages: u64,
}

/// What a made-up trace is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyntheticOptions {
    /// Which pages are requested.
    pub popularity: Popularity,
    /// Pages.
    pub ids: u64,
    /// Requests.
    pub requests: u64,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// The share of writes.
    pub writes: f64,
    /// None, or a part of the pages at a time.
    pub working_set: Option<WorkingSet>,
    /// None, or scans.
    pub scans: Option<Scans>,
    /// The size of a page, and of every request.
    pub page_bytes: PageBytes,
    /// Nanoseconds between two requests.
    pub interval_ns: u64,
}

/// An option that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOption {
    /// Which.
    pub option: &'static str,
    /// What it has to be.
    pub rule: &'static str,
}

/// A made-up trace.
#[derive(Clone, Debug)]
pub struct Synthetic {
    options: SyntheticOptions,
    random: Rng,
    zipf: Option<Zipf>,
    scatter: Scatter,
    /// Ranks that are drawn from.
    span: u64,
    /// Requests made.
    made: u64,
    /// How likely a request that is in no scan begins one.
    scan_start: f64,
    /// The next page of a scan, and how many are left.
    scan: (u64, u64),
}

impl Synthetic {
    /// The trace that `options` describe.
    ///
    /// # Errors
    ///
    /// An option makes no sense.
    pub fn new(options: SyntheticOptions) -> Result<Synthetic, BadOption> {
        let bad = |option, rule| Err(BadOption { option, rule });
        if !(1..=IDS_MAX).contains(&options.ids) {
            return bad("ids", "from 1 to 2^33");
        }
        if !(0.0..=1.0).contains(&options.writes) {
            return bad("writes", "a share from 0 to 1");
        }
        let set = options.working_set;
        if set.is_some_and(|set| !(1..=options.ids).contains(&set.ids) || set.requests == 0) {
            return bad("working set", "from 1 page to all, and moves after 1 request or more");
        }
        let mut scan_start = 0.0;
        if let Some(Scans { share, pages }) = options.scans {
            if !(0.0..1.0).contains(&share) || !(1..=options.ids).contains(&pages) {
                return bad("scan", "a share from 0 to below 1, of 1 page to all");
            }
            // Solves share = p * pages / (p * pages + 1 - p).
            scan_start = share / (pages as f64 * (1.0 - share) + share);
        }
        let span = set.map_or(options.ids, |set| set.ids);
        let zipf = match options.popularity {
            Popularity::Zipf(exponent) => match Zipf::new(span, exponent) {
                Some(zipf) => Some(zipf),
                None => return bad("zipf", "an exponent from 0 on"),
            },
            Popularity::Uniform | Popularity::Loop => None,
        };
        let mut random = Rng::with_seed(options.seed);
        let scatter = Scatter::new(options.ids, &mut random);
        let (made, scan) = (0, (0, 0));
        Ok(Synthetic { options, random, zipf, scatter, span, made, scan_start, scan })
    }

    fn page(&mut self) -> u64 {
        let ids = self.options.ids;
        if self.scan.1 == 0 && self.scan_start > 0.0 && self.random.f64() < self.scan_start {
            let pages = self.options.scans.map_or(0, |scans| scans.pages);
            self.scan = (self.random.u64(..ids), pages);
        }
        if self.scan.1 > 0 {
            let page = self.scan.0;
            self.scan = ((page + 1) % ids, self.scan.1 - 1);
            return page;
        }
        let moved = match self.options.working_set {
            Some(set) => (self.made / set.requests).wrapping_mul(set.ids.div_ceil(2)) % ids,
            None => 0,
        };
        match (self.options.popularity, &self.zipf) {
            (Popularity::Loop, _) => (self.made % self.span + moved) % ids,
            (_, Some(zipf)) => {
                let rank = zipf.sample(&mut self.random) - 1;
                self.scatter.of((rank + moved) % ids)
            }
            (_, None) => self.scatter.of((self.random.u64(..self.span) + moved) % ids),
        }
    }
}

impl Iterator for Synthetic {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.made == self.options.requests {
            return None;
        }
        let address = self.page() * self.options.page_bytes.get();
        let writes = self.options.writes;
        let is_write = writes > 0.0 && self.random.f64() < writes;
        let kind = if is_write { Kind::Write } else { Kind::Read };
        let time_ns = self.made.wrapping_mul(self.options.interval_ns);
        self.made += 1;
        let length = self.options.page_bytes.get() as u32;
        Some(Request { time_ns, address, length, file: 0, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const OPTIONS: SyntheticOptions = SyntheticOptions {
        popularity: Popularity::Uniform,
        ids: 1_000,
        requests: 20_000,
        seed: 1,
        writes: 0.0,
        working_set: None,
        scans: None,
        page_bytes: PageBytes::DEFAULT,
        interval_ns: 1_000,
    };

    fn pages(options: SyntheticOptions) -> Vec<u64> {
        let trace = Synthetic::new(options).expect("options that make sense");
        trace.map(|request| request.address / 8192).collect()
    }

    fn distinct(pages: &[u64]) -> usize {
        pages.iter().collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let scans = Some(Scans { share: 0.1, pages: 7 });
        let options = SyntheticOptions { scans, writes: 0.3, ..OPTIONS };
        let make = |seed| {
            let options = SyntheticOptions { seed, ..options };
            Synthetic::new(options).expect("sense").collect::<Vec<_>>()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert_eq!(make(1).len(), 20_000);
        let writes = make(1).iter().filter(|request| request.kind == Kind::Write).count();
        assert!((5_700..6_300).contains(&writes), "{writes}");
    }

    #[test]
    fn a_loop_runs_through_neighbours() {
        let options =
            SyntheticOptions { popularity: Popularity::Loop, ids: 3, requests: 7, ..OPTIONS };
        assert_eq!(pages(options), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn popular_pages_take_their_share_and_lie_apart() {
        let popularity = Popularity::Zipf(1.0);
        let pages = pages(SyntheticOptions { popularity, ..OPTIONS });
        let mut counts = vec![0_u32; 1_000];
        for page in &pages {
            counts[*page as usize] += 1;
        }
        let mut ranked: Vec<usize> = (0..1_000).collect();
        ranked.sort_by_key(|page| std::cmp::Reverse(counts[*page]));
        // The first of a thousand has 1 / H(1000) = 13.4% of the requests.
        let share = f64::from(counts[ranked[0]]) / 20_000.0;
        assert!((0.124..0.144).contains(&share), "{share}");
        assert!(ranked[0].abs_diff(ranked[1]) > 1 || ranked[1].abs_diff(ranked[2]) > 1);
    }

    #[test]
    fn a_working_set_moves_on_by_half() {
        let working_set = Some(WorkingSet { ids: 100, requests: 5_000 });
        let pages = pages(SyntheticOptions { working_set, ..OPTIONS });
        assert_eq!(distinct(&pages[..5_000]), 100);
        assert_eq!(distinct(&pages[..10_000]), 150);
        assert_eq!(distinct(&pages), 250);
    }

    #[test]
    fn scans_take_their_share() {
        let scans = Some(Scans { share: 0.25, pages: 50 });
        let pages = pages(SyntheticOptions { scans, ids: 1_000_000, ..OPTIONS });
        let neighbours = pages.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        // 49 of 50 requests of a scan follow their neighbour.
        let share = neighbours as f64 / pages.len() as f64 * 50.0 / 49.0;
        assert!((0.2..0.3).contains(&share), "{share}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let options = [
            SyntheticOptions { ids: 0, ..OPTIONS },
            SyntheticOptions { ids: IDS_MAX + 1, ..OPTIONS },
            SyntheticOptions { writes: 1.1, ..OPTIONS },
            SyntheticOptions { writes: f64::NAN, ..OPTIONS },
            SyntheticOptions { popularity: Popularity::Zipf(-1.0), ..OPTIONS },
            SyntheticOptions { scans: Some(Scans { share: 1.0, pages: 1 }), ..OPTIONS },
            SyntheticOptions { scans: Some(Scans { share: 0.1, pages: 0 }), ..OPTIONS },
            SyntheticOptions {
                working_set: Some(WorkingSet { ids: 1_001, requests: 1 }),
                ..OPTIONS
            },
        ];
        for options in options {
            assert!(Synthetic::new(options).is_err(), "{options:?}");
        }
    }
}
