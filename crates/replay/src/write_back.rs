//! Writes alone, gathered on flash and sorted on their way home [S4 4.4].
//!
//! - Each write of a trace is appended to flash. When that is full, the pages are read from there,
//!   wherever they lie, and written home in the order of their places, neighbours in one request.
//! - B1: of a page that was written several times, the newest copy is written home, once.
//! - B2: without flash every write goes to home at once, one page each.
//! - B3: what is on flash at the end is written home, too: all sizes write the same.

use crate::places::Places;
use crate::timed::{Ask, Asked};
use crate::{References, tiers::DeviceTraffic};

/// What the writes of a trace become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBack {
    /// Writes of the trace.
    pub writes: u64,
    /// How often flash was emptied.
    pub flushes: u64,
    /// Pages written home, and how many of them with the one before.
    pub home: DeviceTraffic,
    /// All requests.
    pub asked: Asked,
}

impl WriteBack {
    /// The writes of `references`, behind a flash of `slots` pages; none for zero.
    #[must_use]
    pub fn of(references: &References, places: &Places, slots: u32) -> WriteBack {
        let mut write_back = WriteBack::default();
        let mut gathered: Vec<u32> = Vec::new();
        let written = (0..references.pages().len()).filter(|&at| references.is_write(at));
        for page in written.map(|at| references.pages()[at]) {
            write_back.writes += 1;
            if slots == 0 {
                write_back.home.writes += 1;
                write_back.asked.push(Ask::WriteHome(page));
                continue;
            }
            write_back.asked.push(Ask::AppendFlash);
            gathered.push(page);
            if gathered.len() == slots as usize {
                write_back.flush(places, &mut gathered);
            }
        }
        if !gathered.is_empty() {
            write_back.flush(places, &mut gathered);
        }
        write_back
    }

    fn flush(&mut self, places: &Places, gathered: &mut Vec<u32>) {
        self.flushes += 1;
        gathered.sort_unstable_by_key(|&page| places.of(page));
        gathered.dedup();
        gathered.iter().for_each(|_| self.asked.push(Ask::ReadFlash));
        let mut last = None;
        for page in gathered.drain(..) {
            let place = places.of(page).0;
            let is_next = last.is_some_and(|last: u64| last + 1 == place);
            self.asked.push(if is_next { Ask::WriteHomeAlong(page) } else { Ask::WriteHome(page) });
            self.home.writes += 1;
            self.home.sequential_writes += u64::from(is_next);
            self.home.run_writes += u64::from(is_next);
            last = Some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use terrace_trace::{Kind, PageKey, PageRequest};

    fn references(prng: &mut fastrand::Rng) -> References {
        let mut references = References::default();
        for _ in 0..prng.usize(..400) {
            let kind = if prng.bool() { Kind::Write } else { Kind::Read };
            let page = PageKey { file: 0, number: prng.u64(..90) };
            references.push(PageRequest { time_ns: 0, page, kind });
        }
        references
    }

    #[test]
    fn every_fill_goes_home_sorted_and_once() {
        for seed in 0..200 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let references = references(&mut prng);
            let places = Places::new(&references);
            let slots = prng.usize(1..40);
            let written: Vec<u64> = (0..references.pages().len())
                .filter(|&at| references.is_write(at))
                .map(|at| places.of(references.pages()[at]).0)
                .collect();
            // By definition: fill after fill, a set of places each.
            let mut expected = Vec::new();
            for fill in written.chunks(slots) {
                expected.extend(fill.iter().map(|_| None));
                let set: BTreeSet<u64> = fill.iter().copied().collect();
                expected.extend(set.iter().map(|_| None));
                expected.extend(set.iter().map(|&place| {
                    let along = place > 0 && set.contains(&(place - 1));
                    Some((place, along))
                }));
            }
            let got = WriteBack::of(&references, &places, slots as u32);
            let asked = got.asked.iter().map(|ask| match ask {
                Ask::WriteHome(page) => Some((places.of(page).0, false)),
                Ask::WriteHomeAlong(page) => Some((places.of(page).0, true)),
                Ask::ReadFlash | Ask::AppendFlash => None,
                other => panic!("nobody asks for {other:?}"),
            });
            assert_eq!(asked.collect::<Vec<_>>(), expected, "seed {seed}");
            assert_eq!(got.flushes, written.len().div_ceil(slots) as u64, "seed {seed}");
            assert_eq!(got.writes, written.len() as u64);
        }
    }

    #[test]
    fn without_flash_all_goes_home_as_it_comes() {
        let references = references(&mut fastrand::Rng::with_seed(7));
        let places = Places::new(&references);
        let got = WriteBack::of(&references, &places, 0);
        let expected = (0..references.pages().len())
            .filter(|&at| references.is_write(at))
            .map(|at| Ask::WriteHome(references.pages()[at]));
        assert_eq!(got.asked.iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert_eq!((got.home.writes, got.flushes), (got.writes, 0));
    }
}
