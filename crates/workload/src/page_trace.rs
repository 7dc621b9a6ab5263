//! The page references of a trace through the buffer pool, on real files and in real time.
//!
//! ```text
//! trace --next--> client --read, write--> BufferPool --> flash file
//!            \--> client                             \-> home file
//! ```
//!
//! - T1: each client takes the next reference of the trace as soon as its last one is served. So as
//!   many references are outstanding as there are clients, and the trace's times do not count.
//! - T2: home has every page of the trace, by file and number. A gap between two pages of a file is
//!   kept, up to `GAP_PAGES`: neighbours stay neighbours, and no others become any.
//! - T3: what is counted lies between two readings of the counters: when the first counted
//!   reference is taken, and when the last one is served.
//! - Not for: what transactions cost. Changes get numbers from a counter; no log is written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hdrhistogram::Histogram;
use terrace_device::{Counters, Device, FileDevice, FileOptions};
use terrace_page::{
    HEADER_SIZE, Lsn, PAGE_SIZE, PageBuf, PageId, PageKind, seal, set_kind, set_page_id,
};
use terrace_policy::Design;
use terrace_pool::{BufferPool, FlashLayout, Journal, PoolConfig, PoolError, PoolStats};
use terrace_rt::{LeafMutex, Nanos, Real, World, now, sleep, yield_now};
use terrace_trace::{Kind, PageKey};

use crate::Error;

/// The longest gap between two pages at home, in pages: more than one request spans.
const GAP_PAGES: u64 = 64;
/// What a change adds to the log's end.
const CHANGE_BYTES: u64 = 128;
/// References that a client takes before others of its thread have a turn.
const TURN: usize = 32;
/// Time between two looks at how far the clients are.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// Bytes written at once when files are made.
const CHUNK_BYTES: usize = 1 << 20;

/// Where the pages of a trace lie at home (T2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeLayout {
    /// By the number of the page in the order of `HomeLayout::new`.
    places: Vec<PageId>,
    pages: u64,
}

impl HomeLayout {
    /// A place for each of `names`, which are distinct.
    #[must_use]
    pub fn new(names: &[PageKey]) -> HomeLayout {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_unstable_by_key(|&at| names[at]);
        let mut places = vec![PageId(0); names.len()];
        let (mut last, mut next) = (None::<PageKey>, 0);
        for at in order {
            let name = names[at];
            let gap = match last {
                Some(last) if last.file == name.file => name.number - last.number - 1,
                Some(_) => GAP_PAGES,
                None => 0,
            };
            next += gap.min(GAP_PAGES);
            places[at] = PageId(next);
            next += 1;
            last = Some(name);
        }
        HomeLayout { places, pages: next }
    }

    /// Pages of home, gaps included.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Where the page lies that was at `number` of the names.
    #[must_use]
    pub fn place(&self, number: u32) -> PageId {
        self.places[number as usize]
    }
}

/// All that decides a run but its design.
#[derive(Clone, Debug)]
pub struct Config {
    /// Pages at home, in the order of the trace.
    pub references: Arc<[(PageId, Kind)]>,
    /// Pages of home.
    pub home_pages: u64,
    /// A file that is made, and holds home.
    pub home: PathBuf,
    /// A file that is made, and holds the slots of designs that use flash.
    pub flash: PathBuf,
    /// Frames, slots, memory policy; the design does not count.
    pub pool: PoolConfig,
    /// References outstanding.
    pub clients: usize,
    /// Threads that run the clients.
    pub threads: usize,
    /// The references before this one fill memory and flash, and are not counted.
    pub counted_from: usize,
}

/// What a run found, of the counted references.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Counted references that were served.
    pub references: u64,
    /// How long that took.
    pub span: Nanos,
    /// How long a reference took, in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// The pool's counters when counting began.
    pub before: PoolStats,
    /// And in the end.
    pub after: PoolStats,
    /// What was asked of home meanwhile.
    pub home: Counters,
    /// And of flash.
    pub flash: Counters,
}

/// Makes the files, replays the references with `design`, and removes the files. `progress` is
/// called now and then with the references taken, and may break the run off, which then has the
/// counts so far.
///
/// # Errors
///
/// A file that is there already, or cannot be made; what stops the pool.
pub fn run(
    config: &Config,
    design: Design,
    progress: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
) -> Result<RunResult, Error> {
    let home = Made::home(&config.home, config.home_pages).map_err(Error::Device)?;
    let mut pool = PoolConfig { design, ..config.pool.clone() };
    let flash = if design.uses_flash() {
        let bytes = FlashLayout::new(pool.flash_slots, pool.restart.kind).bytes();
        Some(Made::blank(&config.flash, bytes).map_err(Error::Device)?)
    } else {
        pool.flash_slots = 0;
        None
    };
    let real = Real::new(config.threads);
    let world = real.world();
    real.run(|| {
        let home: Arc<dyn Device> = home.device()?;
        let flash = flash.as_ref().map(Made::device).transpose()?;
        let numbers = Arc::new(Numbers(AtomicU64::new(CHANGE_BYTES)));
        let devices = Devices { home: home.clone(), flash: flash.clone() };
        let pool = BufferPool::open(pool, world.clone(), home, flash, numbers.clone());
        let pool = pool.map_err(|error| Error::Engine(error.into()))?;
        let floor = Arc::new(Floor::new(config, pool, numbers, devices));
        let result = floor.measure(&world, progress);
        floor.pool.shutdown();
        result
    })
}

/// A file that goes when this does.
struct Made<'p>(&'p Path);

impl Made<'_> {
    /// A home of whole pages.
    fn home(path: &Path, pages: u64) -> std::io::Result<Made<'_>> {
        let file = File::create_new(path)?;
        let made = Made(path);
        let mut out = BufWriter::with_capacity(CHUNK_BYTES, &file);
        let mut bytes: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        set_kind(&mut bytes, PageKind::Leaf);
        for page in 0..pages {
            set_page_id(&mut bytes, PageId(page));
            seal(&mut bytes);
            out.write_all(&bytes[..])?;
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
        Ok(made)
    }

    /// Zeroes, written: a hole would be filled by the first write to it, at another cost.
    fn blank(path: &Path, bytes: u64) -> std::io::Result<Made<'_>> {
        let mut file = File::create_new(path)?;
        let made = Made(path);
        let zeroes = vec![0; CHUNK_BYTES];
        let mut left = bytes;
        while left > 0 {
            let chunk = left.min(CHUNK_BYTES as u64);
            file.write_all(&zeroes[..chunk as usize])?;
            left -= chunk;
        }
        file.sync_all()?;
        Ok(made)
    }

    fn device(&self) -> Result<Arc<dyn Device>, Error> {
        let device = FileDevice::open(self.0, &FileOptions::default());
        Ok(Arc::new(device.map_err(Error::Device)?))
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// A log that only numbers changes.
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> Lsn {
        Lsn(self.0.fetch_add(CHANGE_BYTES, Ordering::Relaxed) + CHANGE_BYTES)
    }
}

impl Journal for Numbers {
    fn last_lsn(&self) -> Lsn {
        Lsn(self.0.load(Ordering::Relaxed))
    }

    fn durable_lsn(&self) -> Lsn {
        self.last_lsn()
    }

    fn make_durable(&self, _upto: Lsn) -> Result<(), PoolError> {
        Ok(())
    }

    fn log_buf_write(&self, _pages: &[PageId], _eol: Lsn) {}

    fn log_flash(&self, _payload: &[u8]) -> Option<Lsn> {
        None
    }

    fn repair(
        &self,
        page: PageId,
        _rec: Lsn,
        _bytes: &mut PageBuf,
        _is_whole: bool,
    ) -> Result<(), PoolError> {
        Err(PoolError::Redo { page, what: "a replay of a trace keeps no log" })
    }
}

struct Devices {
    home: Arc<dyn Device>,
    flash: Option<Arc<dyn Device>>,
}

/// The counters at a moment.
#[derive(Clone)]
struct Reading {
    at: Nanos,
    pool: PoolStats,
    home: Counters,
    flash: Counters,
}

/// What the clients share.
struct Floor {
    pool: Arc<BufferPool>,
    numbers: Arc<Numbers>,
    devices: Devices,
    references: Arc<[(PageId, Kind)]>,
    counted_from: usize,
    clients: usize,
    /// The reference that is taken next.
    next: AtomicUsize,
    served: AtomicU64,
    clients_left: AtomicUsize,
    is_closed: AtomicBool,
    begun: LeafMutex<Option<Reading>>,
    latency_ns: LeafMutex<Histogram<u64>>,
    failure: LeafMutex<Option<PoolError>>,
}

fn histogram() -> Histogram<u64> {
    const HIGHEST_NS: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("three digits")
}

impl Floor {
    fn new(
        config: &Config,
        pool: Arc<BufferPool>,
        numbers: Arc<Numbers>,
        devices: Devices,
    ) -> Floor {
        Floor {
            pool,
            numbers,
            devices,
            references: Arc::clone(&config.references),
            counted_from: config.counted_from.min(config.references.len()),
            clients: config.clients,
            next: AtomicUsize::new(0),
            served: AtomicU64::new(0),
            clients_left: AtomicUsize::new(config.clients),
            is_closed: AtomicBool::new(false),
            begun: LeafMutex::new(None),
            latency_ns: LeafMutex::new(histogram()),
            failure: LeafMutex::new(None),
        }
    }

    fn reading(&self) -> Reading {
        let flash = self.devices.flash.as_ref().map(|flash| flash.counters());
        Reading {
            at: now(),
            pool: self.pool.stats(),
            home: self.devices.home.counters(),
            flash: flash.unwrap_or_default(),
        }
    }

    fn measure(
        self: &Arc<Floor>,
        world: &World,
        progress: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
    ) -> Result<RunResult, Error> {
        let begun = self.reading();
        if self.counted_from == 0 {
            *self.begun.lock() = Some(begun);
        }
        let tasks: Vec<_> = (0..self.clients)
            .map(|_| {
                let floor = Arc::clone(self);
                world.spawn("trace client", move || floor.serve())
            })
            .collect();
        while self.clients_left.load(Ordering::Acquire) > 0 {
            sleep(LOOK_EVERY);
            let taken = self.next.load(Ordering::Relaxed).min(self.references.len());
            if progress(taken as u64).is_break() {
                self.is_closed.store(true, Ordering::Relaxed);
            }
        }
        for task in tasks {
            task.join();
        }
        let failure = self.failure.lock().take();
        if let Some(error) = failure {
            return Err(Error::Engine(error.into()));
        }
        let ended = self.reading();
        let begun = self.begun.lock().take().unwrap_or_else(|| ended.clone());
        let latency_ns = self.latency_ns.lock().clone();
        Ok(RunResult {
            references: self.served.load(Ordering::Relaxed),
            span: ended.at.saturating_sub(begun.at),
            latency_ns,
            before: begun.pool,
            after: ended.pool,
            home: ended.home - begun.home,
            flash: ended.flash - begun.flash,
        })
    }

    /// A client, until the trace ends or a reference fails.
    fn serve(&self) {
        let (mut timings, mut served) = (histogram(), 0);
        while !self.is_closed.load(Ordering::Relaxed) {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&(page, kind)) = self.references.get(at) else { break };
            if at == self.counted_from && at > 0 {
                let reading = self.reading();
                *self.begun.lock() = Some(reading);
            }
            let begun = now();
            if let Err(error) = self.ask(page, kind) {
                self.failure.lock().get_or_insert(error);
                self.is_closed.store(true, Ordering::Relaxed);
                break;
            }
            if at >= self.counted_from {
                timings.saturating_record(now().saturating_sub(begun).0);
                served += 1;
            }
            if at.is_multiple_of(TURN) {
                // References that memory serves never wait.
                yield_now();
            }
        }
        self.served.fetch_add(served, Ordering::Relaxed);
        self.latency_ns.lock().add(&timings).expect("the same bounds");
        self.clients_left.fetch_sub(1, Ordering::Release);
    }

    fn ask(&self, page: PageId, kind: Kind) -> Result<(), PoolError> {
        match kind {
            Kind::Ahead => self.pool.read_ahead(page, 1),
            Kind::Read => {
                std::hint::black_box(self.pool.read(page)?[HEADER_SIZE]);
            }
            Kind::Write => {
                let mut guard = self.pool.write(page)?;
                guard.dirty();
                let number = self.numbers.next();
                guard.apply(number, |bytes| {
                    bytes[HEADER_SIZE..HEADER_SIZE + 8].copy_from_slice(&number.0.to_le_bytes());
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_policy::designs;
    use terrace_rt::Prng;

    fn key(file: u32, number: u64) -> PageKey {
        PageKey { file, number }
    }

    #[test]
    fn neighbours_stay_neighbours_and_no_others_become_any() {
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let mut names: Vec<PageKey> = (0..prng.range(1..200))
                .map(|_| {
                    let width = prng.range(3..40);
                    key(prng.below(3) as u32, prng.below(1 << width))
                })
                .collect();
            names.sort_unstable();
            names.dedup();
            let layout = HomeLayout::new(&names);
            let places: Vec<u64> = (0..names.len()).map(|at| layout.place(at as u32).0).collect();
            assert_eq!(layout.pages(), places[places.len() - 1] + 1, "seed {seed}");
            for (at, pair) in names.windows(2).enumerate() {
                let step = places[at + 1] - places[at];
                let is_far = pair[0].file != pair[1].file;
                let apart = if is_far { u64::MAX } else { pair[1].number - pair[0].number };
                assert_eq!(step, apart.min(GAP_PAGES + 1), "seed {seed}: {pair:?}");
            }
        }
    }

    /// Names in any order get the same places.
    #[test]
    fn places_do_not_depend_on_the_order_of_the_names() {
        let names = [key(1, 7), key(0, 3), key(1, 8), key(0, 900)];
        let layout = HomeLayout::new(&names);
        let places = [0, 1, 2, 3].map(|at| layout.place(at).0);
        assert_eq!(places, [2 * GAP_PAGES + 2, 0, 2 * GAP_PAGES + 3, GAP_PAGES + 1]);
    }

    fn config(folder: &Path, frames: u32, slots: u32) -> Config {
        let mut prng = Prng::from_seed(7);
        let references = (0..6_000).map(|_| {
            let kind = if prng.chance(4) { Kind::Write } else { Kind::Read };
            (PageId(prng.below(400)), kind)
        });
        Config {
            references: references.collect(),
            home_pages: 400,
            home: folder.join("home"),
            flash: folder.join("flash"),
            pool: PoolConfig { frames, flash_slots: slots, ..PoolConfig::default() },
            clients: 8,
            threads: 2,
            counted_from: 2_000,
        }
    }

    fn go_on(_: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn every_counted_reference_is_served_and_files_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), 100, 200);
        for (name, uses_flash) in [("no-ssd", false), ("lc", true)] {
            let design = designs::find(name).expect("a design");
            let result = run(&config, design, &mut go_on).expect("a run");
            assert_eq!(result.references, 4_000, "{name}");
            assert_eq!(result.latency_ns.len(), 4_000, "{name}");
            let (before, after) = (&result.before, &result.after);
            let asked = after.hits + after.misses - before.hits - before.misses;
            // Those that were under way when counting began were asked for before it.
            assert!((4_000 - 8..=4_000 + 8).contains(&asked), "{name}: {asked}");
            // Of 400 pages, asked for alike, memory has 100, and flash has others.
            assert!(after.misses - before.misses > 2_000, "{name}: {after:?}");
            let flash_hits = after.flash_hits - before.flash_hits;
            assert_eq!(flash_hits > 500, uses_flash, "{name}: {flash_hits}");
            assert!(result.home.reads > 0 && result.home.writes > 0, "{name}");
            assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0, "{name}");
        }
    }

    #[test]
    fn a_run_that_is_broken_off_has_what_was_served() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { counted_from: 0, ..config(folder.path(), 100, 0) };
        let design = designs::find("no-ssd").expect("a design");
        let result = run(&config, design, &mut |_| ControlFlow::Break(())).expect("a run");
        assert!(result.references <= 6_000, "{}", result.references);
    }

    #[test]
    fn a_file_that_is_there_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), 100, 0);
        std::fs::write(&config.home, "mine").expect("written");
        let design = designs::find("no-ssd").expect("a design");
        let error = run(&config, design, &mut go_on).expect_err("it is there");
        assert!(matches!(error, Error::Device(_)), "{error}");
        assert_eq!(std::fs::read(&config.home).expect("read"), b"mine");
    }
}
