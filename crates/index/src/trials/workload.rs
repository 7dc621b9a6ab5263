//! What is asked of an index, and how long it took.

use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, now};

use super::drives::Drive;
use super::setup::{KEY_STEP, Loaded, Setup};
use crate::Error;
use crate::entry::{Key, Pointer};
use crate::index::{Index, Memory};
use crate::pages::Traffic;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Keys that are not there, in random order.
    Inserts {
        /// How many.
        count: u64,
    },
    /// Keys that are there, one at a time.
    Searches {
        /// How many.
        count: u64,
    },
    /// Keys that are there, many at a time.
    Batches {
        /// How many keys in all.
        count: u64,
        /// How many together.
        keys: u64,
    },
    /// The first two in random order.
    Mixed {
        /// How many operations.
        count: u64,
        /// Of a hundred, those that insert.
        inserts: u64,
    },
    /// Ranges that begin at random.
    Ranges {
        /// How many.
        count: u64,
        /// Loaded entries of each.
        entries: u64,
    },
    /// Deletes and updates of keys that are there, and inserts, a third each.
    Changes {
        /// How many.
        count: u64,
    },
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// From the first operation to the end of the flush.
    pub elapsed: Nanos,
    /// Of it, in inserts and other changes, and the flush.
    pub changes: Nanos,
    /// Of it, in searches and ranges.
    pub searches: Nanos,
    /// Operations.
    pub ops: u64,
    /// What the device was asked for.
    pub traffic: Traffic,
    /// What the index held at the end.
    pub memory: Memory,
}

impl Measured {
    /// Time of an operation in ns, its share of the flush included.
    #[must_use]
    pub fn op_ns(&self) -> f64 {
        self.elapsed.0 as f64 / self.ops.max(1) as f64
    }
}

/// Runs `workload` on a structure that has just been loaded.
///
/// # Errors
///
/// Those of the index.
///
/// # Panics
///
/// If it does not find what was loaded.
pub fn measure(
    drive: &Drive,
    setup: &Setup,
    loaded: &Loaded,
    workload: Workload,
    seed: u64,
) -> Result<Measured, Error> {
    let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    let device = loaded.device(drive, &world);
    let run = || {
        let mut index = loaded.open(setup, device)?;
        let prng = Prng::from_seed(seed);
        let entries = loaded.scale().entries();
        let before = index.traffic();
        let mut run = Run { index: &mut *index, prng, entries, measured: Measured::default() };
        run.all(workload)?;
        let mut measured = run.measured;
        measured.memory = index.memory();
        measured.traffic = index.traffic() - before;
        Ok(measured)
    };
    world.run(run).expect("nothing stops it")
}

struct Run<'a> {
    index: &'a mut dyn Index,
    prng: Prng,
    entries: u64,
    measured: Measured,
}

#[derive(Clone, Copy)]
enum Did {
    Change,
    Search,
}

impl Run<'_> {
    fn all(&mut self, workload: Workload) -> Result<(), Error> {
        match workload {
            Workload::Inserts { count } => self.mixed(count, 100)?,
            Workload::Searches { count } => self.mixed(count, 0)?,
            Workload::Mixed { count, inserts } => self.mixed(count, inserts)?,
            Workload::Batches { count, keys } => {
                for _ in 0..count.div_ceil(keys) {
                    self.timed(Did::Search, |run| run.batch(keys))?;
                }
            }
            Workload::Ranges { count, entries } => {
                for _ in 0..count {
                    self.timed(Did::Search, |run| run.range(entries))?;
                }
            }
            Workload::Changes { count } => {
                for _ in 0..count {
                    self.timed(Did::Change, Run::change)?;
                }
            }
        }
        self.timed(Did::Change, |run| run.index.flush())?;
        self.measured.ops -= 1;
        Ok(())
    }

    fn mixed(&mut self, count: u64, inserts: u64) -> Result<(), Error> {
        for _ in 0..count {
            if self.prng.below(100) < inserts {
                self.timed(Did::Change, Run::insert)?;
            } else {
                self.timed(Did::Search, Run::search)?;
            }
        }
        Ok(())
    }

    fn timed(
        &mut self,
        did: Did,
        work: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let begin = now();
        work(self)?;
        let span = now().saturating_sub(begin);
        let measured = &mut self.measured;
        measured.elapsed = measured.elapsed.saturating_add(span);
        measured.ops += 1;
        let part = match did {
            Did::Change => &mut measured.changes,
            Did::Search => &mut measured.searches,
        };
        *part = part.saturating_add(span);
        Ok(())
    }

    /// A key that was loaded, and its pointer.
    fn loaded(&mut self) -> (Key, Pointer) {
        let at = self.prng.below(self.entries);
        ((at * u64::from(KEY_STEP)) as Key + KEY_STEP / 2, at as Pointer)
    }

    fn insert(&mut self) -> Result<(), Error> {
        let (loaded, pointer) = self.loaded();
        let offset = [1, 2, 3][self.prng.below(3) as usize];
        self.index.insert((loaded + offset) % (self.entries as Key * KEY_STEP), pointer)
    }

    fn search(&mut self) -> Result<(), Error> {
        let (key, pointer) = self.loaded();
        let found = self.index.get(key)?;
        assert_eq!(found, Some(pointer), "key {key} was loaded");
        Ok(())
    }

    fn batch(&mut self, keys: u64) -> Result<(), Error> {
        let wanted: Vec<(Key, Pointer)> = (0..keys).map(|_| self.loaded()).collect();
        let keys: Vec<Key> = wanted.iter().map(|(key, _)| *key).collect();
        let found = self.index.get_many(&keys)?;
        let pointers = wanted.iter().map(|(_, pointer)| Some(*pointer));
        assert!(found.into_iter().eq(pointers), "all were loaded");
        Ok(())
    }

    fn range(&mut self, entries: u64) -> Result<(), Error> {
        let first = self.prng.below(self.entries - entries.min(self.entries) + 1) as Key;
        let keys = first * KEY_STEP..(first + entries as Key) * KEY_STEP;
        let found = self.index.range(keys)?;
        assert_eq!(found.len() as u64, entries, "a range of what was loaded");
        Ok(())
    }

    fn change(&mut self) -> Result<(), Error> {
        match self.prng.below(3) {
            0 => self.insert(),
            1 => {
                let (key, pointer) = self.loaded();
                self.index.apply(crate::Op::update(key, pointer + 1))
            }
            _ => {
                let (key, _) = self.loaded();
                self.index.remove(key)
            }
        }
    }
}
