//! How often pages are read and written while they have a slot on flash, and while they have none:
//! whether memory gives up sooner what flash can give back [S1e 6, Fig. 6].
//!
//! - Idea: of each page the time with and without a slot, and what was asked of memory and of the
//!   devices meanwhile. Pages that were long in both states are compared with themselves.
//! - P1: the read that brings a page, and the write after which it has a slot, count for the state
//!   that it was in before.
//! - Cost: 64 bytes for each page of home that was asked for, and a lock for each event.
//! - Not for: designs that have no slots.

use std::sync::atomic::{AtomicBool, Ordering};

use terrace::{PageEvent, PageId, PageObserver};
use terrace_policy::sample_hash;
use terrace_rt::{LeafMutex, Nanos, now};

use crate::PageRecording;

/// A page was long in a state if it was in it for at least this fraction of the time.
const LONG_ONE_IN: u64 = 10;

/// Counts, while clients work.
pub struct PageRates {
    is_on: AtomicBool,
    state: LeafMutex<State>,
    pages_max: usize,
}

#[derive(Default)]
struct State {
    began: Nanos,
    ended: Nanos,
    /// By page number.
    pages: Vec<Page>,
}

/// What a page went through without a slot, and with one.
#[derive(Clone, Copy, Default)]
struct Page {
    has_slot: bool,
    /// When that became so; zero is when the clients began.
    since: Nanos,
    of: [Counts; 2],
}

#[derive(Clone, Copy, Default)]
struct Counts {
    time: Nanos,
    requests: u32,
    reads: u32,
    writes: u32,
}

/// How pages were asked for with a slot on flash and without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Pages that were long in both states: at most the number that was asked for.
    pub pages: u64,
    /// Reads from a device a second.
    pub reads: Compared,
    /// Reads from a device for each request of memory.
    pub misses: Compared,
    /// Writes to a device a second.
    pub writes: Compared,
}

/// Pages whose rate was higher in one state than in the other; for the rest it was the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// With a slot.
    pub higher_on_flash: u64,
    /// Without.
    pub higher_elsewhere: u64,
}

impl Compared {
    /// Of the pages whose rates differ, the share whose rate is higher with a slot.
    #[must_use]
    pub fn share(self) -> f64 {
        let different = self.higher_on_flash + self.higher_elsewhere;
        if different == 0 { 0.0 } else { self.higher_on_flash as f64 / different as f64 }
    }

    /// Counts a page by its events, and the time or requests in which they happened, with a slot
    /// and without.
    fn add(&mut self, on_flash: (u32, u64), elsewhere: (u32, u64)) {
        let times = |events: u32, other: u64| u128::from(events) * u128::from(other);
        let (on, off) = (times(on_flash.0, elsewhere.1), times(elsewhere.0, on_flash.1));
        self.higher_on_flash += u64::from(on > off);
        self.higher_elsewhere += u64::from(off > on);
    }
}

impl PageRates {
    /// Compares up to `pages` pages.
    #[must_use]
    pub fn new(pages: usize) -> PageRates {
        PageRates { is_on: AtomicBool::new(false), state: LeafMutex::default(), pages_max: pages }
    }

    /// What came out, once the clients have stopped.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let state = self.state.lock();
        let span = state.ended.saturating_sub(state.began).0;
        let pages = state.pages.iter().enumerate();
        let mut long: Vec<(u64, [Counts; 2])> = pages
            .map(|(number, page)| (sample_hash(PageId(number as u64)), page.until(state.ended)))
            .filter(|(_, of)| of.iter().all(|counts| counts.time.0 * LONG_ONE_IN >= span.max(1)))
            .collect();
        long.sort_unstable_by_key(|row| row.0);
        let mut rates = Rates::default();
        for (_, [off, on]) in long.into_iter().take(self.pages_max) {
            rates.pages += 1;
            rates.reads.add((on.reads, on.time.0), (off.reads, off.time.0));
            rates.writes.add((on.writes, on.time.0), (off.writes, off.time.0));
            let requests = |counts: Counts| u64::from(counts.requests);
            // A page that was not requested in a state says nothing of it.
            if on.requests > 0 && off.requests > 0 {
                rates.misses.add((on.reads, requests(on)), (off.reads, requests(off)));
            }
        }
        rates
    }
}

impl Page {
    /// The counts if its state lasts until `end`.
    fn until(&self, end: Nanos) -> [Counts; 2] {
        let mut of = self.of;
        let time = &mut of[usize::from(self.has_slot)].time;
        *time = Nanos(time.0 + end.saturating_sub(self.since).0);
        of
    }

    fn turn(&mut self, has_slot: bool, at: Nanos) {
        self.of = self.until(at);
        (self.has_slot, self.since) = (has_slot, at);
    }
}

impl std::fmt::Debug for PageRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageRates({})", self.pages_max)
    }
}

impl PageObserver for PageRates {
    fn saw(&self, page: PageId, event: PageEvent) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let (at, began) = (page.0 as usize, state.began);
        if state.pages.len() <= at {
            state.pages.resize(at + 1, Page { since: began, ..Page::default() });
        }
        let page = &mut state.pages[at];
        let counts = &mut page.of[usize::from(page.has_slot)];
        match event {
            PageEvent::Read | PageEvent::Change => counts.requests += 1,
            PageEvent::Ahead => {}
            PageEvent::Fetch => counts.reads += 1,
            PageEvent::WriteOut => counts.writes += 1,
            PageEvent::SlotTaken => page.turn(true, now()),
            PageEvent::SlotLost => page.turn(false, now()),
        }
    }
}

impl PageRecording for PageRates {
    /// Flash is cold: no page has a slot.
    fn begin(&self) {
        *self.state.lock() = State { began: now(), ..State::default() };
        self.is_on.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        self.state.lock().ended = now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::{Prng, Virtual, VirtualConfig, sleep};

    /// Rates by hand: events are kept with their times, and looked at when all is over.
    fn naive(events: &[(u64, u64, PageEvent)], span: u64, pages: u64) -> Rates {
        let mut rates = Rates::default();
        for page in 0..pages {
            let (mut on, mut since, mut of) = (0, 0, [(0_u64, 0_u32, 0_u32, 0_u32); 2]);
            for &(at, _, event) in events.iter().filter(|row| row.1 == page) {
                match event {
                    PageEvent::Read | PageEvent::Change => of[on].1 += 1,
                    PageEvent::Ahead => {}
                    PageEvent::Fetch => of[on].2 += 1,
                    PageEvent::WriteOut => of[on].3 += 1,
                    PageEvent::SlotTaken | PageEvent::SlotLost => {
                        of[on].0 += at - since;
                        (on, since) = (usize::from(event == PageEvent::SlotTaken), at);
                    }
                }
            }
            of[on].0 += span - since;
            if of.iter().any(|state| (state.0 as f64) < span as f64 / 10.0) {
                continue;
            }
            rates.pages += 1;
            let [off, on] = of;
            let rate = |events: u32, of: u64| match (events, of) {
                (0, _) => 0.0,
                (events, of) => f64::from(events) / of as f64,
            };
            let compare = |to: &mut Compared, on: f64, off: f64| {
                to.higher_on_flash += u64::from(on > off);
                to.higher_elsewhere += u64::from(off > on);
            };
            compare(&mut rates.reads, rate(on.2, on.0), rate(off.2, off.0));
            compare(&mut rates.writes, rate(on.3, on.0), rate(off.3, off.0));
            let of = |state: (u64, u32, u32, u32)| rate(state.2, u64::from(state.1));
            if on.1 > 0 && off.1 > 0 {
                compare(&mut rates.misses, of(on), of(off));
            }
        }
        rates
    }

    #[test]
    fn rates_agree_with_a_naive_count() {
        for seed in 0..50 {
            let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
            let run = || {
                let (rates, mut prng) = (PageRates::new(1_000), Prng::from_seed(seed));
                rates.saw(PageId(3), PageEvent::Fetch);
                rates.begin();
                let began = now();
                let (mut events, mut slots) = (Vec::new(), [false; 20]);
                for _ in 0..2_000 {
                    sleep(Nanos(1 + prng.below(1_000)));
                    let page = prng.below(20);
                    let slot = &mut slots[page as usize];
                    let event = match prng.below(20) {
                        0..4 => PageEvent::Fetch,
                        4..6 => PageEvent::WriteOut,
                        6 => {
                            *slot = !*slot;
                            if *slot { PageEvent::SlotTaken } else { PageEvent::SlotLost }
                        }
                        7 => PageEvent::Change,
                        _ => PageEvent::Read,
                    };
                    rates.saw(PageId(page), event);
                    events.push((now().0 - began.0, page, event));
                }
                rates.end();
                rates.saw(PageId(4), PageEvent::Fetch);
                let span = now().0 - began.0;
                assert_eq!(rates.rates(), naive(&events, span, 20), "seed {seed}");
                assert!(rates.rates().pages > 5, "seed {seed}");
            };
            world.run(run).expect("the world goes on");
        }
    }

    #[test]
    fn no_more_pages_are_compared_than_asked_for() {
        let world = Virtual::new(VirtualConfig::default());
        let run = || {
            let rates = PageRates::new(7);
            rates.begin();
            sleep(Nanos(1_000));
            (0..30).for_each(|page| rates.saw(PageId(page), PageEvent::SlotTaken));
            (0..30).for_each(|page| rates.saw(PageId(page), PageEvent::Fetch));
            sleep(Nanos(1_000));
            rates.end();
            let found = rates.rates();
            assert_eq!((found.pages, found.reads.higher_on_flash), (7, 7));
            assert_eq!((found.reads.share(), found.writes.share()), (1.0, 0.0));
        };
        world.run(run).expect("the world goes on");
    }
}
