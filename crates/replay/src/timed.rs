//! How long modelled devices take for requests, in the order in which a replay made them and where
//! they went.
//!
//! - D1: one request is at the devices at a time, as in the simulator of [S4 4]; but writes home
//!   that follow one another may be there together, `outstanding` at most.
//! - D2: home knows where a request goes: its arm moves from the last one, its platter turns on. On
//!   flash pages lie anywhere, but what is appended lies behind the last that was.
//! - D3: times are those of a virtual world: the same requests take the same time.
//! - Cost: 4 bytes for each request that is kept, and a virtual world's microseconds to time it.
//! - Not for: what a queue of reads would gain.

use crate::places::Places;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_device::model::{SimDevice, Spec};
use terrace_device::{Keep, Store, read, write};
use terrace_rt::{Prng, Virtual, VirtualConfig};

/// Pages in one write home, at most.
const RUN_PAGES_MAX: usize = 32;
/// Writes home that are handed to the tasks that keep them outstanding, at most.
const BATCH_WRITES_MAX: usize = 1 << 14;
/// The most pages that can be distinguished.
const PAGES_MAX: u32 = 1 << 29;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Home reads a page.
    ReadHome(u32),
    /// Home writes a page.
    WriteHome(u32),
    /// Home writes a page in one request with the page before it.
    WriteHomeAlong(u32),
    /// Flash reads a page.
    ReadFlash,
    /// Flash writes a page, anywhere.
    WriteFlash,
    /// Flash writes a page behind the last that was appended.
    AppendFlash,
    /// The same, in one request with the page before it.
    AppendFlashAlong,
    /// Flash reads a page in one request with the page before it.
    ReadFlashAlong,
}

/// Requests in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What in the upper three bits, the page in the others.
    words: Vec<u32>,
}

impl Asked {
    /// Adds a request.
    pub fn push(&mut self, ask: Ask) {
        let (what, page) = match ask {
            Ask::ReadHome(page) => (0, page),
            Ask::WriteHome(page) => (1, page),
            Ask::WriteHomeAlong(page) => (2, page),
            Ask::ReadFlash => (3, 0),
            Ask::WriteFlash => (4, 0),
            Ask::AppendFlash => (5, 0),
            Ask::AppendFlashAlong => (6, 0),
            Ask::ReadFlashAlong => (7, 0),
        };
        assert!(page < PAGES_MAX, "page {page} of a trace that is to be timed");
        self.words.push(what << 29 | page);
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Ask> + '_ {
        (0..self.words.len()).map(|at| self.at(at))
    }

    fn at(&self, at: usize) -> Ask {
        let word = self.words[at];
        let page = word % PAGES_MAX;
        match word >> 29 {
            0 => Ask::ReadHome(page),
            1 => Ask::WriteHome(page),
            2 => Ask::WriteHomeAlong(page),
            3 => Ask::ReadFlash,
            4 => Ask::WriteFlash,
            5 => Ask::AppendFlash,
            6 => Ask::AppendFlashAlong,
            _ => Ask::ReadFlashAlong,
        }
    }
}

/// Seconds that devices take for requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Home, for reads.
    pub home_reads: f64,
    /// Home, for writes.
    pub home_writes: f64,
    /// Flash, for reads.
    pub flash_reads: f64,
    /// Flash, for writes.
    pub flash_writes: f64,
}

impl Seconds {
    /// Of home.
    #[must_use]
    pub fn home(&self) -> f64 {
        self.home_reads + self.home_writes
    }

    /// Of flash.
    #[must_use]
    pub fn flash(&self) -> f64 {
        self.flash_reads + self.flash_writes
    }

    /// The same, where home is the flash device.
    #[must_use]
    pub fn at_home_on_flash(self) -> Seconds {
        let (flash_reads, flash_writes) = (self.home_reads, self.home_writes);
        Seconds { flash_reads, flash_writes, ..Seconds::default() }
    }

    /// Of both, one after the other: the time that the replay takes.
    #[must_use]
    pub fn all(&self) -> f64 {
        self.home() + self.flash()
    }
}

/// The devices that requests are timed on.
#[derive(Clone, Debug)]
pub struct TimedDevices {
    /// Home.
    pub home: Spec,
    /// Flash.
    pub flash: Spec,
    /// Pages that the flash holds.
    pub slots: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Writes home at once, at most.
    pub outstanding: u32,
    /// Decides where on flash a page is.
    pub seed: u64,
}

impl TimedDevices {
    /// The same, but home is on a device such as flash is.
    #[must_use]
    pub fn with_home_on_flash(self) -> TimedDevices {
        TimedDevices { home: self.flash.clone(), ..self }
    }

    /// What they take for `asked`, for pages that lie at `places`.
    ///
    /// # Panics
    ///
    /// If pages are not sectors, or there is no slot, or nothing may be outstanding.
    #[must_use]
    pub fn seconds(&self, asked: &Asked, places: &Places) -> Seconds {
        assert!(self.slots > 0, "a flash device has pages");
        assert!(self.outstanding > 0, "a request at least");
        let world = Virtual::new(VirtualConfig::default());
        let device = |spec: &Spec, pages: u64| {
            let stripe = u64::from(spec.members) * spec.stripe;
            let len = (pages * self.page_bytes).next_multiple_of(stripe);
            SimDevice::new(spec.clone(), world.world(), Store::new(len, Keep::Plain))
        };
        let mut clock = Clock {
            home: device(&self.home, places.end()),
            flash: device(&self.flash, u64::from(self.slots)),
            devices: self,
            places,
            // Zeroes, of which a store keeps nothing.
            bytes: vec![0; RUN_PAGES_MAX * self.page_bytes as usize],
            prng: Prng::from_seed(self.seed),
            appended: 0,
            seconds: Seconds::default(),
        };
        let done = world.run(|| {
            let mut at = 0;
            while at < asked.len() {
                at = clock.serve(asked, at);
            }
        });
        done.expect("nothing cuts the power");
        clock.seconds
    }
}

/// Devices at work.
struct Clock<'a> {
    home: Arc<SimDevice>,
    flash: Arc<SimDevice>,
    devices: &'a TimedDevices,
    places: &'a Places,
    bytes: Vec<u8>,
    prng: Prng,
    appended: u64,
    seconds: Seconds,
}

impl Clock<'_> {
    /// Serves the request at `at` and those that go with it; which comes next.
    fn serve(&mut self, asked: &Asked, at: usize) -> usize {
        let began = terrace_rt::now();
        let page = self.devices.page_bytes as usize;
        let mut next = at + 1;
        match asked.at(at) {
            Ask::ReadHome(number) => {
                let offset = self.offset(number);
                read(&*self.home, offset, &mut self.bytes[..page]).expect("no faults");
            }
            Ask::WriteHome(_) | Ask::WriteHomeAlong(_) => next = self.write_home(asked, at),
            Ask::ReadFlash | Ask::ReadFlashAlong => {
                let len = self.run(asked, at, Ask::ReadFlashAlong);
                next = at + len;
                let offset = self.anywhere(len);
                read(&*self.flash, offset, &mut self.bytes[..len * page]).expect("no faults");
            }
            Ask::WriteFlash => {
                let offset = self.anywhere(1);
                write(&*self.flash, offset, &self.bytes[..page]).expect("no faults");
            }
            Ask::AppendFlash | Ask::AppendFlashAlong => {
                let len = self.run(asked, at, Ask::AppendFlashAlong);
                next = at + len;
                if self.appended + len as u64 > u64::from(self.devices.slots) {
                    self.appended = 0;
                }
                let offset = self.appended * self.devices.page_bytes;
                self.appended += len as u64;
                write(&*self.flash, offset, &self.bytes[..len * page]).expect("no faults");
            }
        }
        let took = (terrace_rt::now() - began).as_secs_f64();
        let sum = match asked.at(at) {
            Ask::ReadHome(_) => &mut self.seconds.home_reads,
            Ask::WriteHome(_) | Ask::WriteHomeAlong(_) => &mut self.seconds.home_writes,
            Ask::ReadFlash | Ask::ReadFlashAlong => &mut self.seconds.flash_reads,
            Ask::WriteFlash | Ask::AppendFlash | Ask::AppendFlashAlong => {
                &mut self.seconds.flash_writes
            }
        };
        *sum += took;
        next
    }

    /// The run of pages from `at` on; with several outstanding, all writes home from there on.
    fn write_home(&mut self, asked: &Asked, mut at: usize) -> usize {
        let mut runs = Vec::new();
        let most = if self.devices.outstanding == 1 { 1 } else { BATCH_WRITES_MAX };
        while runs.len() < most
            && at < asked.len()
            && let Ask::WriteHome(first) | Ask::WriteHomeAlong(first) = asked.at(at)
        {
            let goes_along = |at: usize| matches!(asked.at(at), Ask::WriteHomeAlong(_));
            let behind = (at + 1..asked.len()).take_while(|&at| goes_along(at));
            let pages = 1 + behind.take(RUN_PAGES_MAX - 1).count();
            runs.push((self.offset(first), pages * self.devices.page_bytes as usize));
            at += pages;
        }
        if let [(offset, len)] = runs[..] {
            write(&*self.home, offset, &self.bytes[..len]).expect("no faults");
        } else {
            self.write_together(runs);
        }
        at
    }

    /// Writes `runs`, begun in their order, with the configured number outstanding.
    fn write_together(&self, runs: Vec<(u64, usize)>) {
        let shared = Arc::new((runs, AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..self.devices.outstanding)
            .map(|_| {
                let (home, shared) = (Arc::clone(&self.home), Arc::clone(&shared));
                let bytes = vec![0; self.bytes.len()];
                terrace_rt::spawn("write", move || {
                    let (runs, next) = &*shared;
                    while let Some(&(offset, len)) = runs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        write(&*home, offset, &bytes[..len]).expect("no faults");
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(terrace_rt::Task::join);
    }

    fn offset(&self, page: u32) -> u64 {
        self.places.of(page).0 * self.devices.page_bytes
    }

    /// Pages of the request at `at` with those behind it that go `along`; no more than there are
    /// slots.
    fn run(&self, asked: &Asked, at: usize, along: Ask) -> usize {
        let most = RUN_PAGES_MAX.min(self.devices.slots as usize);
        let behind = (at + 1..asked.len()).take_while(|&at| asked.at(at) == along);
        1 + behind.take(most - 1).count()
    }

    /// A random place on flash for `pages` pages.
    fn anywhere(&mut self, pages: usize) -> u64 {
        let places = u64::from(self.devices.slots) + 1 - pages as u64;
        self.prng.below(places) * self.devices.page_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::References;
    use terrace_device::model::Preset;

    fn devices(outstanding: u32) -> TimedDevices {
        TimedDevices {
            home: Preset::Hdd7200.spec(),
            flash: Preset::IoDrive.spec(),
            slots: 1_000,
            page_bytes: 8 << 10,
            outstanding,
            seed: 1,
        }
    }

    fn asked(asks: impl IntoIterator<Item = Ask>) -> Asked {
        let mut asked = Asked::default();
        asks.into_iter().for_each(|ask| asked.push(ask));
        asked
    }

    /// Pages that are named as they are numbered.
    fn places(count: u64) -> Places {
        Places::new(&References::of_reads(0..count))
    }

    #[test]
    fn requests_are_kept_as_they_were_made() {
        let asks = [
            Ask::ReadHome(PAGES_MAX - 1),
            Ask::WriteHome(0),
            Ask::WriteHomeAlong(1),
            Ask::ReadFlash,
            Ask::WriteFlash,
            Ask::AppendFlash,
            Ask::AppendFlashAlong,
            Ask::ReadFlashAlong,
        ];
        assert_eq!(asked(asks).iter().collect::<Vec<_>>(), asks);
    }

    #[test]
    fn neighbours_are_read_faster_than_pages_anywhere() {
        let places = places(60_000);
        let inorder = asked((0..2_000).map(Ask::ReadHome));
        let spread = asked((0..2_000).map(|at| Ask::ReadHome(at * 7_919 % 60_000)));
        let near = asked((0..2_000).map(|at| Ask::ReadHome(at * 7_919 % 6_000)));
        let [inorder, spread, near] =
            [inorder, spread, near].map(|asked| devices(1).seconds(&asked, &places));
        assert!(spread.home_reads > 20.0 * inorder.home_reads, "{spread:?} {inorder:?}");
        assert!(near.home_reads < 0.9 * spread.home_reads, "a shorter seek: {near:?} {spread:?}");
        assert_eq!(inorder.all(), inorder.home_reads);
    }

    #[test]
    fn flash_takes_what_it_was_measured_to_take() {
        let asks = (0..3_000).map(|at| match at % 3 {
            0 => Ask::ReadFlash,
            1 => Ask::WriteFlash,
            _ => Ask::ReadFlash,
        });
        let seconds = devices(1).seconds(&asked(asks), &places(1));
        assert!((seconds.flash_reads / 2_000.0 * 12_182.0 - 1.0).abs() < 0.02, "{seconds:?}");
        assert!((seconds.flash_writes / 1_000.0 * 12_374.0 - 1.0).abs() < 0.02, "{seconds:?}");
        let appends = asked((0..1_000).map(|_| Ask::AppendFlash));
        let appends = devices(1).seconds(&appends, &places(1));
        assert!((appends.flash_writes / 1_000.0 * 14_965.0 - 1.0).abs() < 0.02, "{appends:?}");
        let groups = (0..1_024).map(|at| match at % 32 {
            0 => Ask::AppendFlash,
            _ => Ask::AppendFlashAlong,
        });
        let groups = devices(1).seconds(&asked(groups), &places(1));
        assert!(groups.flash_writes < appends.flash_writes / 3.0, "{groups:?} {appends:?}");
    }

    #[test]
    fn runs_and_queues_make_writes_cheaper() {
        let places = places(60_000);
        let lone = asked((0..640).map(Ask::WriteHome));
        let runs = asked((0..640).map(|page| match page % 64 {
            0 => Ask::WriteHome(page),
            _ => Ask::WriteHomeAlong(page),
        }));
        let [lone, runs] = [lone, runs].map(|asked| devices(1).seconds(&asked, &places));
        assert!(lone.home_writes > 10.0 * runs.home_writes, "a turn for each: {lone:?} {runs:?}");
        let spread = asked((0..1_000).map(|at| Ask::WriteHome(at * 7_919 % 60_000)));
        let [alone, queued] =
            [1, 16].map(|outstanding| devices(outstanding).seconds(&spread, &places));
        assert!(alone.home_writes > 1.3 * queued.home_writes, "{alone:?} {queued:?}");
        assert_eq!(queued, devices(16).seconds(&spread, &places), "the same each time");
    }
}
