//! How long opening takes over the table of a large flash tier, in real time.
//!
//! The table is synthetic and the slots are holes of a sparse file: what is measured is reading the
//! table and its journal, judging it by the log, and filling the structures in memory, which is all
//! that the restart method `warm` does of the tier before the first transaction.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use terrace_device::{Device, FileDevice, FileOptions};
use terrace_page::{Lsn, PageBuf, PageId};
use terrace_policy::{RestartKind, designs, restarts};
use terrace_pool::{
    BufferPool, FlashLayout, FlashNeed, FlashRecovery, Journal, LogFacts, PoolConfig, PoolError,
};
use terrace_rt::{Nanos, Prng, Real, now};

use crate::Error;

const DATABASE: u128 = 7;
const STAMP: u64 = 11;
const FRAMES: u32 = 1024;
/// Slots of a partition, at most.
const PARTITION_SLOTS: u32 = 4 << 20;
/// After every version that the synthetic table has.
const LOG_END: Lsn = Lsn(1 << 41);

/// All that decides a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Slots of the tier, all filled.
    pub slots: u32,
    /// The flash device: a file that is made.
    pub path: PathBuf,
    /// Pages that changed since the last checkpoint, as analysis finds them.
    pub updated: u32,
    /// Threads.
    pub threads: usize,
}

/// How long opening took, and what it came to.
#[derive(Clone, Copy, Debug)]
pub struct RunResult {
    /// Reading the table and its journal.
    pub load: Nanos,
    /// Judging it by the log.
    pub settle: Nanos,
    /// Filling the structures in memory.
    pub fill: Nanos,
    /// Bytes of memory for each slot.
    pub bytes_per_slot: u64,
    /// Slots that were found filled.
    pub filled: u64,
}

impl RunResult {
    /// All three parts.
    pub fn total(&self) -> Nanos {
        self.load + self.settle + self.fill
    }
}

/// A log that nothing is written to.
struct NoLog;

impl Journal for NoLog {
    fn last_lsn(&self) -> Lsn {
        LOG_END
    }

    fn durable_lsn(&self) -> Lsn {
        LOG_END
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
        unreachable!("{page} is never read")
    }
}

/// Writes the table, then opens it.
///
/// # Errors
///
/// What the file, or the pool, says.
pub fn run(config: &Config) -> Result<RunResult, Error> {
    let real = Real::new(config.threads);
    real.run(|| {
        let pool = PoolConfig {
            frames: FRAMES,
            design: designs::find("lc").map_err(Error::UnknownName)?,
            restart: restarts::find("warm").map_err(Error::UnknownName)?,
            flash_slots: config.slots,
            partitions: config.slots.div_ceil(PARTITION_SLOTS).max(16),
            ..PoolConfig::default()
        };
        let layout = FlashLayout::new(config.slots, RestartKind::Warm);
        // Holes: the slots hold nothing.
        let file = File::create_new(&config.path).map_err(device)?;
        file.set_len(layout.bytes()).map_err(device)?;
        drop(file);
        let flash = FileDevice::open(&config.path, &FileOptions::default()).map_err(device)?;
        let flash: Arc<dyn Device> = Arc::new(flash);
        let journal = pool.write_synthetic_table(&*flash, DATABASE, STAMP).map_err(device)?;
        open(config, pool, flash, journal)
    })
}

fn device(source: std::io::Error) -> Error {
    Error::Device(source)
}

fn open(
    config: &Config,
    pool: PoolConfig,
    flash: Arc<dyn Device>,
    journal: u64,
) -> Result<RunResult, Error> {
    let begin = now();
    let mut found = FlashRecovery::look(
        &pool.of_restart(),
        &*flash,
        DATABASE,
        [STAMP, 0],
        (false, FlashNeed::Optional),
    );
    found.load(&*flash, journal, Lsn::ZERO);
    let loaded = now();
    let mut prng = Prng::from_seed(2);
    for _ in 0..config.updated {
        let page = PageId(prng.below(u64::from(config.slots)));
        found.updated(page, Lsn(LOG_END.0 - 1));
    }
    let facts = LogFacts {
        start: Lsn::ZERO,
        end: LOG_END,
        dirty: &|_| None,
        redo_base: &|_| Some(Lsn::ZERO),
    };
    found.settle(&*flash, &facts);
    let settled = now();
    // Home need not be there: nothing reads it.
    let home = Arc::clone(&flash);
    let world = terrace_rt::World::current();
    let log = Arc::new(NoLog);
    let opened =
        BufferPool::open_recovering(pool, world, home, Some(flash), log, Some(Arc::new(found)));
    let opened = opened.map_err(|error| Error::Engine(error.into()))?;
    let filled = now();
    let stats = opened.stats();
    opened.shutdown();
    Ok(RunResult {
        load: loaded - begin,
        settle: settled - loaded,
        fill: filled - settled,
        bytes_per_slot: stats.metadata_bytes_per_slot,
        filled: stats.slots_used,
    })
}
