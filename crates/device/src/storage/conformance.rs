//! The test of a storage: it does what the engine will do, and compares with a model.
//!
//! ```text
//!   open: length, growth      -> the model of what it holds
//!   random reads, writes, syncs, punches, each compared
//!   closed and opened again: what was synced is there
//!   threads side by side: ranges of their own, and reads beside writes of one range
//! ```
//!
//! - N1: each call runs on a helper thread, and is waited for no longer than a limit (storage.S7).
//! - N2: the operations are drawn by a fixed seed: a second run does the same, but for what threads
//!   do side by side.
//! - What it cannot find: a `sync` that leaves bytes to the operating system, or to the cache of a
//!   drive. Only a power cut shows that.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_rt::{self as rt, Helpers, LeafMutex, Nanos, Prng};

use super::{Broken, Storage};
use crate::SECTOR_SIZE;

/// How long a call may take.
const LIMIT: Nanos = Nanos::from_secs(60);
const SECTOR: u64 = SECTOR_SIZE as u64;
/// What the test needs, and what it lets the storage grow to.
const BYTES: u64 = 1 << 20;
const GROWN: u64 = BYTES + (256 << 10);
/// Random operations.
const STEPS: u64 = 600;
/// The longest range of one, in sectors.
const SECTORS_MAX: u64 = 128;
/// Threads side by side, and rounds of each.
const THREADS: u64 = 8;
const ROUNDS: u64 = 60;
const SEED: u64 = 0x0005_707a_6e00;

/// Finds out whether a storage keeps the rules of this module, as far as a test can: storage.S1 to
/// storage.S7.
///
/// `open` opens the storage under test: the same one each time, with what it holds. It is called
/// three times; what it returned before is dropped first. What the storage holds is destroyed. It
/// needs 1 MiB, or grows to that, and may grow a little further.
///
/// Call it in a test, or wherever a storage is set up. It takes about as long as a thousand syncs
/// and writes.
///
/// # Errors
///
/// The first rule that is broken, with what was done and where.
///
/// # Examples
///
/// ```
/// use std::io;
/// use std::sync::{Arc, RwLock};
///
/// use terrace_device::storage::{Storage, conformance};
///
/// /// Bytes in memory. A clone is the same storage.
/// #[derive(Clone, Default)]
/// struct Memory(Arc<RwLock<Vec<u8>>>);
///
/// impl Storage for Memory {
///     fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
///         let held = self.0.read().expect("no panic");
///         let rest = held.get(offset as usize..).unwrap_or_default();
///         let len = rest.len().min(bytes.len());
///         bytes[..len].copy_from_slice(&rest[..len]);
///         Ok(len)
///     }
///     fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
///         let mut held = self.0.write().expect("no panic");
///         held[offset as usize..][..bytes.len()].copy_from_slice(bytes);
///         Ok(bytes.len())
///     }
///     fn sync(&self) -> io::Result<()> {
///         Ok(())
///     }
///     fn len(&self) -> io::Result<u64> {
///         Ok(self.0.read().expect("no panic").len() as u64)
///     }
///     fn grow(&self, len: u64) -> io::Result<()> {
///         let mut held = self.0.write().expect("no panic");
///         let len = held.len().max(len as usize);
///         held.resize(len, 0);
///         Ok(())
///     }
/// }
///
/// let memory = Memory::default();
/// conformance(|| memory.clone()).expect("it keeps the rules");
/// ```
pub fn conformance<S: Storage>(open: impl FnMut() -> S) -> Result<(), Broken> {
    conformance_within(LIMIT, open)
}

/// As `conformance`; a call may take `limit`.
pub(super) fn conformance_within<S: Storage>(
    limit: Nanos,
    mut open: impl FnMut() -> S,
) -> Result<(), Broken> {
    let mut bench = Bench::open(Arc::new(open()), limit)?;
    bench.lengthen()?;
    bench.look_past_the_end()?;
    bench.operate()?;
    let model = bench.close()?;
    let mut bench = Bench::open_again(Arc::new(open()), limit, model)?;
    bench.side_by_side()?;
    bench.beside_a_writer()?;
    // What threads have left is drawn by no seed.
    bench.model = bench.read(0, bench.model.len())?;
    let model = bench.close()?;
    Bench::open_again(Arc::new(open()), limit, model).map(drop)
}

/// A storage, and what it must hold.
struct Bench {
    storage: Arc<dyn Storage>,
    limit: Nanos,
    model: Vec<u8>,
    prng: Prng,
}

/// Bytes that tell where they are, and of which write.
/// Says that something is over, however it ends.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn pattern(offset: u64, number: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(31) ^ (at >> 9).wrapping_mul(7) ^ number) as u8;
    (offset..offset + len as u64).map(byte).collect()
}

/// Runs one call on a helper (N1).
fn call<T: Send + 'static>(
    limit: Nanos,
    call: &'static str,
    run: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Broken> {
    let ran = rt::within(limit, move || catch_unwind(AssertUnwindSafe(run)).map_err(drop));
    match ran {
        None => Err(Broken::Silent { call, limit }),
        Some(Err(())) => Err(Broken::Panicked { call }),
        Some(Ok(Err(source))) => Err(Broken::Failed { call, source }),
        Some(Ok(Ok(value))) => Ok(value),
    }
}

/// All of a range, in as many calls as it takes.
fn read_all(storage: &dyn Storage, offset: u64, len: usize) -> io::Result<Result<Vec<u8>, Broken>> {
    let (mut bytes, mut done) = (vec![0xa5; len], 0);
    while done < len {
        match storage.read_at(offset + done as u64, &mut bytes[done..]) {
            Ok(told) if told == 0 || told > len - done => {
                return Ok(Err(Broken::Count { call: "read_at", asked: len - done, told }));
            }
            Ok(told) => done += told,
            Err(error) if passes(&error) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(bytes))
}

/// The same, to write.
fn write_all(storage: &dyn Storage, offset: u64, bytes: &[u8]) -> io::Result<Result<(), Broken>> {
    write_in_parts(storage, offset, bytes, |_| ())
}

/// As `write_all`; `each` is told how many bytes are written after each call.
fn write_in_parts(
    storage: &dyn Storage,
    offset: u64,
    bytes: &[u8],
    mut each: impl FnMut(usize),
) -> io::Result<Result<(), Broken>> {
    let mut done = 0;
    while done < bytes.len() {
        let asked = bytes.len() - done;
        match storage.write_at(offset + done as u64, &bytes[done..]) {
            Ok(told) if told == 0 || told > asked => {
                return Ok(Err(Broken::Count { call: "write_at", asked, told }));
            }
            Ok(told) => {
                done += told;
                each(done);
            }
            Err(error) if passes(&error) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(()))
}

/// What a thread reads beside others is what it has written.
fn same(found: &[u8], expected: &[u8], offset: u64) -> Result<(), Broken> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => {
            Err(Broken::Contents { after: "a write beside others", offset: offset + at as u64 })
        }
        None => Ok(()),
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

impl Bench {
    fn open(storage: Arc<dyn Storage>, limit: Nanos) -> Result<Bench, Broken> {
        let prng = Prng::from_seed(SEED);
        let mut bench = Bench { storage, limit, model: Vec::new(), prng };
        let (first, second) = (bench.len()?, bench.len()?);
        if first != second {
            let after = "a call of `len`";
            return Err(Broken::Length { after, expected: first, found: second });
        }
        // No more of it is looked at.
        let bytes = first.min(BYTES) / SECTOR * SECTOR;
        bench.model = bench.read(0, bytes as usize)?;
        Ok(bench)
    }

    /// storage.S4: what was synced is there.
    fn open_again(
        storage: Arc<dyn Storage>,
        limit: Nanos,
        model: Vec<u8>,
    ) -> Result<Bench, Broken> {
        let bench = Bench { storage, limit, model, prng: Prng::from_seed(!SEED) };
        let (expected, found) = (bench.model.len() as u64, bench.len()?);
        if found < expected {
            let after = "it was synced and opened again";
            return Err(Broken::Length { after, expected, found });
        }
        bench.compare(0, bench.model.len(), "it was synced and opened again")?;
        Ok(bench)
    }

    fn close(self) -> Result<Vec<u8>, Broken> {
        self.sync()?;
        Ok(self.model)
    }

    fn len(&self) -> Result<u64, Broken> {
        let storage = Arc::clone(&self.storage);
        call(self.limit, "len", move || storage.len())
    }

    fn sync(&self) -> Result<(), Broken> {
        let storage = Arc::clone(&self.storage);
        call(self.limit, "sync", move || storage.sync())
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Broken> {
        let storage = Arc::clone(&self.storage);
        call(self.limit, "read_at", move || read_all(&*storage, offset, len))?
    }

    fn write(&mut self, offset: u64, bytes: Vec<u8>) -> Result<(), Broken> {
        self.model[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        let storage = Arc::clone(&self.storage);
        call(self.limit, "write_at", move || write_all(&*storage, offset, &bytes))?
    }

    /// Reads a range, and compares it with the model.
    fn compare(&self, offset: u64, len: usize, after: &'static str) -> Result<(), Broken> {
        let found = self.read(offset, len)?;
        let expected = &self.model[offset as usize..][..len];
        match found.iter().zip(expected).position(|(found, expected)| found != expected) {
            Some(at) => Err(Broken::Contents { after, offset: offset + at as u64 }),
            None => Ok(()),
        }
    }

    fn compare_all(&self, after: &'static str) -> Result<(), Broken> {
        self.compare(0, self.model.len(), after)
    }

    fn has_length(&self, expected: u64, after: &'static str) -> Result<(), Broken> {
        match self.len()? {
            found if found == expected => Ok(()),
            found => Err(Broken::Length { after, expected, found }),
        }
    }

    /// Grows it; false if its length is fixed.
    fn grow(&mut self, len: u64) -> Result<bool, Broken> {
        let before = self.len()?;
        let storage = Arc::clone(&self.storage);
        match call(self.limit, "grow", move || storage.grow(len)) {
            Ok(()) => (),
            Err(Broken::Failed { source, .. }) if source.kind() == ErrorKind::Unsupported => {
                self.has_length(before, "growth that it does not support")?;
                return Ok(false);
            }
            Err(broken) => return Err(broken),
        }
        let found = self.len()?;
        if found < len.max(before) {
            let expected = len.max(before);
            return Err(Broken::Length { after: "it has grown", expected, found });
        }
        Ok(true)
    }

    /// storage.S5.
    fn lengthen(&mut self) -> Result<(), Broken> {
        let begins_with = self.len()?;
        if begins_with < BYTES && !self.grow(BYTES)? {
            return Err(Broken::TooShort { len: begins_with, needed: BYTES });
        }
        self.model.resize(BYTES as usize, 0);
        self.compare_all("it has grown")?;
        // Now nothing is zero where it ends, and then it grows once more.
        self.write(0, pattern(0, 1, BYTES as usize))?;
        let before = self.len()?;
        if before == BYTES && self.grow(GROWN)? {
            self.model.resize(GROWN as usize, 0);
            self.compare_all("it has grown")?;
        }
        let before = self.len()?;
        if self.grow(BYTES / 2)? {
            self.has_length(before, "it was to grow to less than it has")?;
        }
        self.compare_all("it was to grow to less than it has")
    }

    /// storage.S1.
    fn look_past_the_end(&self) -> Result<(), Broken> {
        let len = self.len()?;
        for before in [0, SECTOR] {
            let (storage, offset) = (Arc::clone(&self.storage), len - before);
            let read = move || storage.read_at(offset, &mut [0; 4 * SECTOR_SIZE]);
            match call(self.limit, "read_at", read) {
                Ok(told) if told as u64 > before => {
                    return Err(Broken::PastEnd { offset, told, len });
                }
                // To fail is as good.
                Ok(_) | Err(Broken::Failed { .. }) => (),
                Err(broken) => return Err(broken),
            }
        }
        self.has_length(len, "a read past the end")
    }

    /// storage.S2, storage.S6: random operations against the model.
    fn operate(&mut self) -> Result<(), Broken> {
        for step in 0..STEPS {
            let sectors = self.model.len() as u64 / SECTOR;
            let count = 1 + self.prng.below(SECTORS_MAX.min(sectors));
            let offset = self.prng.below(sectors - count + 1) * SECTOR;
            let len = (count * SECTOR) as usize;
            match self.prng.below(8) {
                0..=3 => {
                    self.write(offset, pattern(offset, step, len))?;
                    self.compare(offset, len, "a write")?;
                }
                4 => self.punch(offset, len)?,
                5 => self.sync()?,
                // What is left of a call that has moved fewer bytes begins anywhere.
                6 => {
                    let (skip, less) = (self.prng.below(SECTOR), self.prng.below(SECTOR));
                    let part = (len as u64 + SECTOR - skip - less).min(len as u64 - skip);
                    self.write(offset + skip, pattern(offset, step, part as usize))?;
                    self.compare(offset, len, "a write of a part of a sector")?;
                }
                _ => self.compare(offset, len, "writes elsewhere")?,
            }
        }
        self.compare_all("writes, syncs and punches")
    }

    /// storage.S6.
    fn punch(&mut self, offset: u64, len: usize) -> Result<(), Broken> {
        let before = self.len()?;
        let storage = Arc::clone(&self.storage);
        call(self.limit, "punch", move || storage.punch(offset, len as u64))?;
        self.has_length(before, "a punch")?;
        let found = self.read(offset, len)?;
        let range = &mut self.model[offset as usize..][..len];
        for (at, (found, expected)) in found.into_iter().zip(range).enumerate() {
            if found != *expected && found != 0 {
                let offset = offset + at as u64;
                return Err(Broken::Contents { after: "a punch", offset });
            }
            *expected = found;
        }
        self.compare_all("a punch")
    }

    /// storage.S3: threads with ranges of their own.
    fn side_by_side(&self) -> Result<(), Broken> {
        let part = self.model.len() as u64 / THREADS / SECTOR * SECTOR;
        let storage = &self.storage;
        let jobs = (0..THREADS).map(|thread| {
            let storage = Arc::clone(storage);
            move || -> Result<(), Broken> {
                let failed = |call| move |source| Broken::Failed { call, source };
                let mut prng = Prng::from_seed(SEED + thread);
                let all = || read_all(&*storage, thread * part, part as usize);
                let mut model = all().map_err(failed("read_at"))??;
                for round in 0..ROUNDS {
                    let count = 1 + prng.below(8);
                    let within = prng.below(part / SECTOR - count + 1) * SECTOR;
                    let (offset, len) = (thread * part + within, (count * SECTOR) as usize);
                    let bytes = pattern(offset, thread * ROUNDS + round, len);
                    write_all(&*storage, offset, &bytes).map_err(failed("write_at"))??;
                    if round % 8 == thread {
                        storage.sync().map_err(failed("sync"))?;
                    }
                    model[within as usize..][..len].copy_from_slice(&bytes);
                    let found = read_all(&*storage, offset, len).map_err(failed("read_at"))??;
                    same(&found, &bytes, offset)?;
                }
                same(&all().map_err(failed("read_at"))??, &model, thread * part)
            }
        });
        self.together(jobs.collect())
    }

    /// storage.S3: a sector is old or new.
    fn beside_a_writer(&self) -> Result<(), Broken> {
        const SECTORS: usize = 16;
        let is_over = Arc::new(AtomicBool::new(false));
        // A call has written a part of a sector, which is allowed: then one is torn between two.
        let is_cut = Arc::new(AtomicBool::new(false));
        let mut jobs: Vec<Box<dyn FnOnce() -> Result<(), Broken> + Send>> = Vec::new();
        let (storage, over) = (Arc::clone(&self.storage), Arc::clone(&is_over));
        let cut = Arc::clone(&is_cut);
        jobs.push(Box::new(move || {
            let _over = SetOnDrop(over);
            (0..ROUNDS * 8).try_for_each(|round| {
                let bytes = vec![round as u8; SECTORS * SECTOR_SIZE];
                let told = |done: usize| {
                    if !done.is_multiple_of(SECTOR_SIZE) {
                        cut.store(true, Ordering::Release);
                    }
                };
                write_in_parts(&*storage, 0, &bytes, told)
                    .map_err(|source| Broken::Failed { call: "write_at", source })?
            })
        }));
        // The first write may not have begun: then the sectors are not of one byte each.
        let storage = Arc::clone(&self.storage);
        let first = vec![0; SECTORS * SECTOR_SIZE];
        call(self.limit, "write_at", move || write_all(&*storage, 0, &first))??;
        for _ in 1..THREADS / 2 {
            let (storage, over) = (Arc::clone(&self.storage), Arc::clone(&is_over));
            let cut = Arc::clone(&is_cut);
            jobs.push(Box::new(move || {
                let mut seen = None;
                while !over.load(Ordering::Acquire) {
                    let found = read_all(&*storage, 0, SECTORS * SECTOR_SIZE)
                        .map_err(|source| Broken::Failed { call: "read_at", source })??;
                    let torn = |sector: &[u8]| sector.iter().any(|byte| *byte != sector[0]);
                    seen = seen.or(found.chunks(SECTOR_SIZE).position(torn));
                }
                match seen {
                    Some(at) if !cut.load(Ordering::Acquire) => {
                        Err(Broken::TornSector { offset: (at * SECTOR_SIZE) as u64 })
                    }
                    _ => Ok(()),
                }
            }));
        }
        let found = self.together(jobs);
        // A writer that does not return: the readers are to.
        is_over.store(true, Ordering::Release);
        found
    }

    /// Runs all of the jobs at once, each on a helper; the first rule that one finds broken.
    fn together<J>(&self, jobs: Vec<J>) -> Result<(), Broken>
    where
        J: FnOnce() -> Result<(), Broken> + Send + 'static,
    {
        struct All {
            left: AtomicU64,
            broken: LeafMutex<Option<Broken>>,
        }
        let left = AtomicU64::new(jobs.len() as u64);
        let all = Arc::new(All { left, broken: LeafMutex::new(None) });
        let helpers = Arc::<Helpers>::default();
        for job in jobs {
            let all = Arc::clone(&all);
            helpers.run(move || {
                let panicked = |_| Err(Broken::Panicked { call: "a call beside others" });
                let ended = catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(panicked);
                if let Err(broken) = ended {
                    all.broken.lock().get_or_insert(broken);
                }
                all.left.fetch_sub(1, Ordering::AcqRel);
                rt::wake_all(&all.left);
            });
        }
        let until = rt::now().saturating_add(self.limit);
        loop {
            let left = all.left.load(Ordering::Acquire);
            if left == 0 {
                return all.broken.lock().take().map_or(Ok(()), Err);
            }
            if rt::now() >= until {
                return Err(Broken::Silent { call: "a call beside others", limit: self.limit });
            }
            rt::wait_until(&all.left, left, until);
        }
    }
}
