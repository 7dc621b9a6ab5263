//! The database: a handle for any number of tasks and threads.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::Access;
use terrace_page::{Lsn, PAGE_SIZE};
use terrace_pool::ColdStart;
use terrace_rt::{LeafMutex, Mutex, Nanos, Task, Waited, World, dead, in_callback};

use crate::api::turns::Turns;
use crate::api::{Checkpoints, spilling};
use crate::context::Context;
use crate::engine::Engine;
use crate::error::locked;
use crate::events::{Event, FlashWatch};
use crate::share::Shares;
use crate::{BadCopy, Builder, Durability, Error, Misses, ReadTransaction, WriteTransaction};

/// Which kind of checkpoint to take.
///
/// # Examples
///
/// ```
/// # let db = terrace::doc_test::database();
/// db.checkpoint(terrace::Checkpoint::Sharp)?;
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// Records the oldest change that is not at home, and cuts the log there. Nothing waits for it.
    Indirect,
    /// Writes every dirty page home first, from memory and flash.
    Sharp,
}

/// What `Database::check` has verified.
///
/// # Examples
///
/// ```
/// # let db = terrace::doc_test::database();
/// let report = db.check()?;
/// assert_eq!((report.trees, report.entries), (1, 0)); // the catalog
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Trees, the catalog included.
    pub trees: u64,
    /// Pages of those trees.
    pub pages: u64,
    /// Those of large values that no row has any more: they wait to be used again, or freed.
    pub pages_pending: u64,
    /// Entries in them.
    pub entries: u64,
}

/// An open database. It is a handle that can be cloned and shared by threads; dropping the last
/// clone closes the database.
///
/// # Examples
///
/// ```
/// use terrace::{Database, TableDef};
///
/// const ACCOUNTS: TableDef<u64, &str> = TableDef::new("accounts");
///
/// # let dir = tempfile::tempdir()?;
/// let db = Database::builder().home_size(32 << 20).create(dir.path().join("bank.terrace"))?;
/// db.write(|txn| txn.open_table(ACCOUNTS)?.insert(7, "seven"))?;
/// db.read(|txn| {
///     let accounts = txn.open_table(ACCOUNTS)?;
///     assert_eq!(accounts.get(7)?.expect("just inserted").value(), "seven");
///     Ok::<_, terrace::Error>(())
/// })?;
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {
    handle: Arc<Handle>,
}

/// What the last handle closes.
struct Handle {
    engine: Arc<Engine>,
    /// For the transactions.
    shares: Shares<Engine>,
    access: Access,
    background: LeafMutex<Vec<Task>>,
    world: World,
    /// For closures that run beside futures of callers.
    turns: Arc<Turns>,
    /// Held by the task that closes the database: others wait until it is closed. Whether it was
    /// told that it is.
    closing: Mutex<bool>,
    /// When the database was opened.
    opened: Nanos,
    /// Where what memory missed is kept at closing.
    misses_path: Option<PathBuf>,
}

impl Handle {
    fn close(&self) -> Result<(), Error> {
        if self.engine.is_forked() {
            return self.engine.check_beginning();
        }
        if in_callback() {
            return Err(Error::Reentrant);
        }
        if dead() {
            return Ok(());
        }
        let mut is_told = self.closing.lock();
        let misses = self.misses_path.as_ref().map(|_| self.misses());
        let closed = match self.access {
            Access::ReadWrite => self.engine.close(),
            Access::ReadOnly => {
                self.engine.abandon();
                Ok(())
            }
        };
        if let Some((path, misses)) = self.misses_path.as_ref().zip(misses)
            && !dead()
        {
            // Advice is not worth an error: the next opening finds no file.
            let _kept = misses.keep(path);
        }
        self.turns.wake_all();
        let tasks = std::mem::take(&mut *self.background.lock());
        if !dead() {
            tasks.into_iter().chain(self.engine.forcing.end()).for_each(Task::join);
            self.engine.release();
            if !std::mem::replace(&mut *is_told, true) {
                Event::Closed { is_clean: closed.is_ok() }.tell();
            }
        }
        closed
    }
}

impl Handle {
    fn misses(&self) -> Misses {
        let pool = &self.engine.pool;
        let stats = pool.stats();
        Misses {
            seconds: self.world.now().saturating_sub(self.opened).as_secs_f64(),
            requests: stats.hits + stats.misses,
            flash_hits: stats.flash_hits,
            dirty_leaves: stats.evictions_dirty,
            frames: stats.frames,
            slots: stats.slots,
            pages: self.engine.trees.used_bytes() / PAGE_SIZE as u64,
            curve: pool.miss_curve(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            // It is the parent's. Nothing of it is taken apart here.
            std::mem::forget(Arc::clone(&self.engine));
        } else if terrace_rt::unwinding() || in_callback() {
            // Nothing can wait while a task panics, or holds a latch: another one closes.
            let handle = Handle {
                engine: Arc::clone(&self.engine),
                shares: Shares::new(&self.engine),
                access: self.access,
                background: LeafMutex::new(std::mem::take(&mut *self.background.lock())),
                world: self.world.clone(),
                turns: Arc::clone(&self.turns),
                closing: Mutex::new(false),
                opened: self.opened,
                misses_path: self.misses_path.take(),
            };
            drop(self.world.spawn("close", move || drop(handle)));
        } else if !dead() {
            // No caller is left to get an error; recovery does what could not be done.
            let _closed = self.close();
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("epoch", &self.engine().log.epoch()).finish()
    }
}

/// How often the background writer looks, within the time between two checkpoints.
const WRITER_ROUNDS: u64 = 8;

/// Takes a checkpoint after each `interval`, and when the log is half full. In between it is the
/// background writer: it brings home, a part at a time and oldest first, what has been dirty in
/// memory for longer than `interval`, so that a checkpoint finds the oldest change no older than
/// about two of them [S3 II-A2].
fn take_checkpoints(engine: &Engine, interval: Nanos) {
    let mut rounds = WRITER_ROUNDS;
    let mut ends: VecDeque<Lsn> = VecDeque::new();
    let mut flash = FlashWatch::new();
    let nap = Nanos((interval.0 / WRITER_ROUNDS).max(1));
    loop {
        let seen = engine.checkpoint_wanted.seen();
        if engine.check_open().is_err() {
            return;
        }
        let deadline = terrace_rt::now().saturating_add(nap);
        let waited = engine.checkpoint_wanted.wait_until(seen, deadline);
        if engine.check_open().is_err() {
            return;
        }
        flash.look(&engine.pool);
        // Without room, or after a failure, it is not needed: other calls return the error.
        let _witnessed = engine.log.witness();
        if ends.len() as u64 >= WRITER_ROUNDS {
            // A failure has stopped the pool: the next write returns it.
            let target = ends.pop_front().expect("a round ago");
            let _failed = engine.pool.write_older(target);
        }
        ends.push_back(engine.log.end());
        rounds -= 1;
        let is_full = engine.wants_checkpoint();
        if is_full {
            engine.flush_old_half();
        }
        if rounds > 0 && waited == Waited::TimedOut && !is_full {
            continue;
        }
        rounds = WRITER_ROUNDS;
        // A failure has stopped the log: the next write returns it.
        let _failed = engine.checkpoint(Checkpoint::Indirect);
    }
}

impl Database {
    /// Starts the background of an engine that has recovered.
    pub(crate) fn start(
        engine: Arc<Engine>,
        world: &World,
        access: Access,
        checkpoints: Checkpoints,
        (run_limit, misses_path): (usize, Option<PathBuf>),
    ) -> Result<Database, Error> {
        let writer = Arc::clone(&engine);
        let write_log = move || writer.log.write_as_wanted(|| writer.check_open().is_err());
        let mut background = vec![world.spawn("log writer", write_log)];
        if access == Access::ReadWrite {
            let reclaimer = Arc::clone(&engine);
            background.push(world.spawn("reclaim", move || reclaimer.reclaim.run(&reclaimer)));
            background.extend(spilling::start(&engine, world));
        }
        if let Checkpoints::Every(interval) = checkpoints
            && access == Access::ReadWrite
        {
            let engine = Arc::clone(&engine);
            let checkpoint = move || take_checkpoints(&engine, interval);
            background.push(world.spawn("checkpoint", checkpoint));
        }
        let (background, world) = (LeafMutex::new(background), world.clone());
        let opened = world.now();
        let closing = Mutex::new(false);
        let (shares, turns) = (Shares::new(&engine), Turns::new(run_limit));
        engine.forcing.allow(&world);
        let handle = Handle {
            engine,
            shares,
            access,
            background,
            world,
            turns,
            closing,
            opened,
            misses_path,
        };
        Ok(Database { handle: Arc::new(handle) })
    }

    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.handle.turns
    }

    pub(super) fn world(&self) -> &World {
        &self.handle.world
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Options to create or open a database with.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Creates a database at `path` with the defaults of `Builder`.
    ///
    /// # Errors
    ///
    /// As [`Builder::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Database, Error> {
        Builder::new().create(path)
    }

    /// Opens the database at `path` with the defaults of `Builder`.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database, Error> {
        Builder::new().open(path)
    }

    /// Opens the database at `path` for reading only, with the defaults of `Builder`: see
    /// [`Builder::read_only`].
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Database, Error> {
        Builder::new().read_only().open(path)
    }

    pub(super) fn check_writable(&self) -> Result<(), Error> {
        match self.handle.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Error::ReadOnly),
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.handle.access == Access::ReadOnly
    }

    /// A random id.
    pub(crate) fn draw_id(&self) -> std::io::Result<u128> {
        self.handle.world.unique_id()
    }

    /// Begins a transaction that may write. At most 65,536 transactions may be open at once.
    ///
    /// # Errors
    ///
    /// `TooManyTransactions`, `ReadOnly`, `Failed`, `Closed`, `Forked`, `Reentrant`.
    pub fn begin_write(&self) -> Result<WriteTransaction, Error> {
        self.check_writable()?;
        WriteTransaction::begin(self.handle.shares.own())
    }

    /// Begins a transaction that only reads. It reads a snapshot: what was committed when it began.
    /// It takes no locks, waits for no transaction, and no transaction waits for it
    /// ([`ReadTransaction`] says more). Any number may be open at once.
    ///
    /// It may see a commit that is not durable yet; see [`Database::begin_read_durable`].
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`, `Forked`, `Reentrant`; `TooManyTransactions` if it has to take locks.
    pub fn begin_read(&self) -> Result<ReadTransaction, Error> {
        ReadTransaction::begin(self.handle.shares.own())
    }

    /// As `begin_read`, for a reader whose results must not be taken back: it waits until all that
    /// the snapshot sees is durable, for the log's device but for no transaction. So it never shows
    /// a commit that a power cut can undo.
    ///
    /// # Errors
    ///
    /// As `begin_read`; `SnapshotTooOld` while a transaction is open that makes readers take locks.
    pub fn begin_read_durable(&self) -> Result<ReadTransaction, Error> {
        let txn = self.begin_read()?;
        txn.harden()?;
        Ok(txn)
    }

    /// Runs `run` in a write transaction and commits it durably. If `run` returns an error, its
    /// changes are rolled back.
    ///
    /// After [`Error::Conflict`] the transaction is rolled back and `run` is called again, at most
    /// 1,000 times in all; after [`Error::AllPinned`] at most 100 times, after [`Error::HoldsLog`]
    /// 5 times. Other errors, [`Error::LockTimeout`] among them, are returned at once.
    ///
    /// After [`Error::HomeFull`] it is called again if space of deleted rows or dropped tables was
    /// about to be free, which this transaction or an older one may have held up, and some of it
    /// has been freed since: at most 10 times, and for as long as
    /// [`Builder::lock_timeout`](crate::Builder::lock_timeout) in all. If nothing is to be freed,
    /// the error is returned at once.
    ///
    /// # Errors
    ///
    /// What `run` returns, those of `begin_write` and those of the commit.
    pub fn write<T, E: From<Error>>(
        &self,
        run: impl FnMut(&WriteTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.write_with(Durability::Durable, run)
    }

    /// As `write`, with a durability of choice.
    ///
    /// # Errors
    ///
    /// As `write`.
    pub fn write_with<T, E: From<Error>>(
        &self,
        durability: Durability,
        run: impl FnMut(&WriteTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.write_and(run, |txn| txn.commit(durability)).map(|(value, ())| value)
    }

    /// As `write`, with a commit of choice.
    pub(super) fn write_and<T, C, E: From<Error>>(
        &self,
        mut run: impl FnMut(&WriteTransaction) -> Result<T, E>,
        commit: impl FnOnce(WriteTransaction) -> Result<C, Error>,
    ) -> Result<(T, C), E> {
        let (mut runs, began) = (0, terrace_rt::now());
        loop {
            let txn = self.begin_write()?;
            let ran = run(&txn);
            runs += 1;
            match (txn.run_again(runs), ran) {
                (Some(before), ran) => {
                    txn.rollback()?;
                    let may_succeed = before.wait(self.engine(), began);
                    if let (false, Err(error)) = (may_succeed, ran) {
                        return Err(error);
                    }
                }
                (None, Ok(value)) => {
                    return commit(txn).map(|committed| (value, committed)).map_err(E::from);
                }
                (None, Err(error)) => {
                    // What the rollback says is less than what went wrong before.
                    let _rolled_back = txn.rollback();
                    return Err(error);
                }
            }
        }
    }

    /// Runs `run` in a read transaction, which reads a snapshot as that of
    /// [`Database::begin_read`] does. After [`Error::AllPinned`] it is retried as that of
    /// [`Database::write`] is. It is not retried after [`Error::SnapshotTooOld`].
    ///
    /// # Errors
    ///
    /// What `run` returns, and those of `begin_read`.
    pub fn read<T, E: From<Error>>(
        &self,
        mut run: impl FnMut(&ReadTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut runs, began) = (0, terrace_rt::now());
        loop {
            let txn = self.begin_read()?;
            let ran = run(&txn);
            runs += 1;
            let Some(before) = txn.run_again(runs) else { return ran };
            drop(txn);
            before.wait(self.engine(), began);
        }
    }

    /// Forces the log: returns when every transaction committed so far is durable.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`.
    pub fn flush(&self) -> Result<(), Error> {
        self.engine().check_running()?;
        let log = &self.engine().log;
        let forced = log.force(log.end(), crate::log::Level::Durable);
        forced.map_err(|error| self.engine().explain(error))
    }

    /// Why the flash tier started cold when the database was opened, if it did. Its text is one
    /// line for a log.
    ///
    /// ```
    /// # fn main() -> Result<(), terrace::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = terrace::Database::builder().create(dir.path().join("db"))?;
    /// assert_eq!(db.cold_start(), Some(terrace::ColdStart::NoDevice));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cold_start(&self) -> Option<ColdStart> {
        self.engine().pool.cold_start()
    }

    /// Takes a checkpoint, and cuts the part of the log that is not needed any more.
    ///
    /// # Errors
    ///
    /// `ReadOnly`, `Failed`, `Closed`, `Device`.
    pub fn checkpoint(&self, kind: Checkpoint) -> Result<(), Error> {
        self.check_writable()?;
        self.engine().check_beginning()?;
        self.engine().check_running()?;
        self.engine().checkpoint(kind).map_err(|error| self.engine().explain_first(error))
    }

    /// Which transactions wait for which locks, and which hold them, as text: for a database that
    /// seems to hang.
    pub fn debug_waits(&self) -> String {
        let engine = self.engine();
        engine.locks.waits(|tree, key| {
            let (table, key_type) = engine.trees.described(tree).unwrap_or_default();
            locked(tree, &table, key, &key_type)
        })
    }

    /// Statistics of the page requests that missed memory since the database was opened. `terrace
    /// advise` reads their text, and computes from it what a flash tier would gain.
    ///
    /// ```
    /// # let db = terrace::doc_test::database();
    /// let text = db.misses().to_string();
    /// assert!(text.parse::<terrace::Misses>().is_ok());
    /// ```
    pub fn misses(&self) -> Misses {
        self.handle.misses()
    }

    /// Verifies the order, links and checksums of every tree, and the consistency of the buffer
    /// pool. It locks each table as a transaction that reads all of it does: it waits for writers
    /// of the table, and they wait for its end.
    ///
    /// # Errors
    ///
    /// `Corrupt` at the first damage; `LockTimeout`, `Nested`, `Conflict` because of other
    /// transactions; those of `begin_read`, and those of devices.
    pub fn check(&self) -> Result<CheckReport, Error> {
        self.engine().check_beginning()?;
        self.engine().check_running()?;
        let report = self.check_trees().map_err(|error| {
            // Closing ends transactions, this one too: without its locks it meets what rollbacks
            // are about to change.
            match (&error, self.engine().check_beginning()) {
                (Error::Corrupt { .. }, Err(closed)) => closed,
                _ => self.engine().explain(error),
            }
        })?;
        self.engine().pool.check();
        self.engine().locks.check();
        Ok(report)
    }

    /// The random id of the database, which home, log and flash carry.
    pub fn id(&self) -> u128 {
        self.engine().database_id()
    }

    /// Whether the database had been shut down cleanly when it was opened. If not, it was
    /// recovered.
    pub fn was_closed(&self) -> bool {
        self.engine().was_closed
    }

    /// Damaged copies of headers that were found when the database was opened and of which another
    /// copy was good, and a damaged label of the flash. Nothing is lost. An opening for writing has
    /// repaired them, unless the device refused that; a read-only one has left them as they are.
    pub fn bad_copies(&self) -> &[BadCopy] {
        &self.engine().bad_copies
    }

    fn check_trees(&self) -> Result<CheckReport, Error> {
        let mut context = Context::begin_in_task(self.handle.shares.own(), terrace_rt::task_id())?;
        let checked = self.engine().trees.check(&mut context);
        let report = checked.map_err(|error| context.first_cause(error))?;
        context.commit(Durability::None)?;
        Ok(report)
    }

    /// Closes the database. New transactions are refused with `Closed`. Transactions that other
    /// tasks and threads have open are waited for, up to [`Builder::close_timeout`]. Those that are
    /// still open then, and those of the caller, get `Closed` from their next operation, and are
    /// rolled back then or at the next opening. A last checkpoint follows. When `close` has
    /// returned, nothing is written any more and the files are unlocked, even if clones of the
    /// handle and transactions still exist.
    ///
    /// Dropping the last handle does the same, but errors are lost.
    ///
    /// # Errors
    ///
    /// Those of a checkpoint. The database is closed all the same, and recovers at the next
    /// opening.
    pub fn close(self) -> Result<(), Error> {
        self.handle.close().map_err(|error| self.engine().explain(error))
    }
}
