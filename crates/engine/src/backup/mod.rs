//! Backups: a copy of an open database as a stream, and a database made of it.
//!
//! ```text
//!   begin_backup    a checkpoint begins at B; from min(B, oldest transaction) on the log is kept
//!   copy_pages      every page in use, at least as new as B; the log, as it comes
//!   settle          pages written past the log, until there are none to copy: there the log has
//!                   its end E, the moment of the copy
//!   copy_log        up to E; then which pages were freed, and the end
//!
//!   restore         pages home, records with the copy's id to its log, then the superblock: the
//!                   first opening redoes from B to E, and rolls back what was not committed at E
//! ```
//!
//! - U1: a page in the backup has all changes before B, and none after E. What lies between is in
//!   the log, and is redone on it as after a crash.
//! - U2: a page that the log does not have (bulk loads, large values) is copied after it was
//!   written, if a record before E refers to it.
//! - U3: a page that was in use at B and is not copied was freed before its map was read. If the
//!   log has records of its life before that, the backup says so, and the copy has a page there
//!   that is newer than these records: redo passes them by, up to the one that makes it anew.
//! - U4: what the log says of the original's home (BUF_WRITE) does not count in the copy, whose
//!   home has what was copied.
//! - U5: no writer waits for a backup (backup_watch.K1).
//! - U6: the copy has an id of its own, and its home names no flash, before it is first opened.
//! - U7: a restore writes the superblock last: before that its home says that it is unfinished.
//!
//! `docs/RECOVERY.md` says why the copy is right.

mod copier;
mod error;
mod format;
mod restore;

use std::io::{Read, Seek, Write};

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId};
use terrace_rt::{Nanos, sleep};

use self::copier::{Copier, Gathered, read_through};
pub use self::error::{BackupError, RestoreError};
use self::format::{Begin, End, PAGES_MAX, Writer};
pub use self::restore::Restored;
use crate::engine::{Engine, Runs};
use crate::space::Holder;
use crate::superblock::{FORMAT_VERSION, Superblock};
use crate::{Action, Database, Error, Part, TreeId};

/// Pages that are copied before the moment of a backup is tried for again, in bytes.
const SETTLED_BYTES: usize = 32 << 20;
/// How often it is tried.
const SETTLES_MAX: u32 = 10_000;
/// How often a backup checks the database for a page that it could not read, while transactions end
/// the check by a deadlock.
const CHECKS_MAX: u32 = 100;
const CHECK_PAUSE: Nanos = Nanos::from_millis(20);

/// How a backup is taken.
///
/// # Examples
///
/// ```
/// # let db = terrace::doc_test::database();
/// let mut whole = Vec::new();
/// let options = terrace::BackupOptions::new().rate(64 << 20);
/// let taken = db.backup(&mut whole, &options)?;
/// // Later, only what has changed since.
/// let mut changes = Vec::new();
/// let since = taken.mark.expect("one to stand upon");
/// db.backup(&mut changes, &terrace::BackupOptions::new().since(since))?;
/// # Ok::<(), terrace::BackupError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    rate: Option<u64>,
    since: Option<BackupMark>,
}

impl BackupOptions {
    /// A whole backup, as fast as it can be.
    #[must_use]
    pub fn new() -> BackupOptions {
        BackupOptions::default()
    }

    /// Reads at most this many bytes of pages a second. The log that is written meanwhile comes on
    /// top.
    #[must_use]
    pub fn rate(mut self, bytes_per_s: u64) -> BackupOptions {
        self.rate = Some(bytes_per_s);
        self
    }

    /// Copies only pages that have changed since the backup that `mark` is of: it is restored upon
    /// that one.
    #[must_use]
    pub fn since(mut self, mark: BackupMark) -> BackupOptions {
        self.since = Some(mark);
        self
    }
}

/// Names a backup that others can stand upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupMark {
    database: u128,
    backup: u128,
    position: Lsn,
}

impl BackupMark {
    /// Reads the mark of a backup, from its beginning and its end. `None`: no other can stand upon
    /// it, since it was taken of a database that was opened for reading only and had to be
    /// recovered.
    ///
    /// # Errors
    ///
    /// `Input`, `NotABackup`, `Newer`; `Cut` if it does not end like a backup; `Damaged`.
    pub fn read(backup: impl Read + Seek) -> Result<Option<BackupMark>, RestoreError> {
        let (begin, end) = format::ends(backup)?;
        let (database, backup) = (begin.database, begin.backup);
        let mark = BackupMark { database, backup, position: end.mark };
        Ok((end.mark != Lsn::MAX).then_some(mark))
    }
}

/// What a backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackedUp {
    /// Bytes of the backup.
    pub bytes: u64,
    /// Pages in it. A page that was written past the log meanwhile counts again.
    pub pages: u64,
    /// Bytes of the log in it.
    pub log_bytes: u64,
    /// Where the log ended at the moment of which the backup has everything that was committed.
    pub end: Lsn,
    /// What another backup can stand upon: see [`BackupMark::read`].
    pub mark: Option<BackupMark>,
}

impl Database {
    /// Writes a backup of the database, as it is at a moment before this returns: of all
    /// transactions whose commit was called by then and had locked what it changed, those are in it
    /// that were committed at that moment. Restore it with
    /// [`Builder::restore`](crate::Builder::restore).
    ///
    /// The database stays in use, and no transaction waits for the backup: if the log, which it
    /// copies as it is written, is full before it was copied, the backup ends with
    /// [`BackupError::Behind`]. `to` is written by the calling thread or task: a thread of its own
    /// is best. Every page is verified. A page that is damaged ends the backup with `Corrupt`;
    /// before that it locks all tables to find out whether anything leads to that page, as
    /// [`Database::check`] does.
    ///
    /// Of a database that is opened for reading only it works as well.
    ///
    /// # Errors
    ///
    /// See [`BackupError`].
    pub fn backup(
        &self,
        to: &mut dyn Write,
        options: &BackupOptions,
    ) -> Result<BackedUp, BackupError> {
        let engine = self.engine();
        engine.check_beginning()?;
        engine.check_running()?;
        let since = options.since;
        if since.is_some_and(|mark| {
            mark.database != engine.database_id() || mark.position > engine.log.end()
        }) {
            return Err(BackupError::Foreign);
        }
        let drawn = self.draw_id().map_err(Error::device(Part::Home, Action::Open))?;
        let began = engine.begin_backup().map_err(|error| engine.explain_first(error))?;
        let boot = began.ok_or(BackupError::Busy)?;
        let _running = Running(engine);
        // In a virtual world each id that is drawn is the same.
        let backup = drawn ^ u128::from(boot.begin_checkpoint.0);
        let taken = Taking { database: self, engine, boot, backup }.run(to, options);
        taken.map_err(|error| match error {
            BackupError::Database(error) => engine.explain_first(error).into(),
            error => error,
        })
    }
}

/// Ends what a backup asks of the engine.
struct Running<'e>(&'e Engine);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.backup.end();
    }
}

/// A backup that is being taken.
struct Taking<'d> {
    database: &'d Database,
    engine: &'d Engine,
    /// The superblock of its checkpoint.
    boot: Superblock,
    backup: u128,
}

impl Taking<'_> {
    fn run(&self, to: &mut dyn Write, options: &BackupOptions) -> Result<BackedUp, BackupError> {
        let (engine, boot) = (self.engine, &self.boot);
        let since = options.since.map_or(Lsn::ZERO, |mark| mark.position);
        let begin = Begin {
            database: engine.database_id(),
            backup: self.backup,
            parent: options.since.map_or(0, |mark| mark.backup),
            since,
            home_pages: boot.home_pages,
            format: FORMAT_VERSION,
            features: boot.features,
        };
        let log_start = boot.begin_checkpoint.min(boot.oldest_txn);
        let out = Writer::new(to, &begin).map_err(BackupError::Output)?;
        let places = (log_start, boot.begin_checkpoint);
        let mut copier = Copier::new(engine, out, since, places, options.rate);
        copier.copy_pages()?;
        let end = self.settle(&mut copier)?;
        copier.copy_log(end)?;
        self.judge_unread(&copier.unread)?;
        copier.put_freed()?;
        let position = self.mark(copier.newest);
        let (pages, log_bytes) = (copier.out.pages, end.0 - log_start.0);
        let ended = End {
            log_start,
            checkpoint: boot.begin_checkpoint,
            checkpoint_end: boot.end_checkpoint,
            oldest_txn: boot.oldest_txn,
            end,
            next_txn: boot.next_txn,
            mark: position,
            pages,
            frames: 0,
            epoch: engine.log.epoch(),
        };
        let bytes = copier.out.end(ended).map_err(BackupError::Output)?;
        let mark = BackupMark { database: begin.database, backup: self.backup, position };
        let mark = (position != Lsn::MAX).then_some(mark);
        Ok(BackedUp { bytes, pages, log_bytes, end, mark })
    }

    /// From which LSN on pages are changed that differ from what was copied. A database that is
    /// read only has log that is dropped at its end: pages that were changed with that may never
    /// be so again.
    fn mark(&self, newest: Lsn) -> Lsn {
        let log = &self.engine.log;
        match (self.database.is_read_only(), newest < log.opened_at()) {
            (false, _) => self.boot.begin_checkpoint,
            (true, true) => self.boot.begin_checkpoint.min(log.opened_at()),
            (true, false) => Lsn::MAX,
        }
    }

    /// U2: copies pages written past the log until a moment comes at which none is to be copied;
    /// returns where the log ends then.
    fn settle<W: Write>(&self, copier: &mut Copier<'_, W>) -> Result<Lsn, BackupError> {
        let mut waiting: Runs = Vec::new();
        let mut gathered: Vec<Gathered> = Vec::new();
        for _ in 0..SETTLES_MAX {
            let step = PAGES_MAX as u64;
            while let Some(run) = waiting.pop() {
                let end = run.end.min(run.start + step);
                if end < run.end {
                    waiting.push(end..run.end);
                }
                gathered.extend(copier.gather(run.start..end, Lsn::ZERO)?);
                if gathered.iter().map(Gathered::len).sum::<usize>() >= SETTLED_BYTES {
                    break;
                }
            }
            let settled = match waiting.is_empty() {
                true => self.engine.backup.settle(|| self.engine.log.end()),
                false => Err(Runs::new()),
            };
            match settled {
                Ok(end) => {
                    copier.put(&gathered)?;
                    return Ok(end);
                }
                Err(more) => waiting.extend(more),
            }
            copier.put(&gathered)?;
            gathered.clear();
            copier.keep_up()?;
            // What was written past the log leaves little in it.
            copier.copy_log(self.engine.log.durable_end())?;
        }
        Err(BackupError::Behind)
    }

    /// Whether a page that could not be read is one that something leads to. A check that
    /// transactions are in the way of is run again, as a transaction is; by then the page may have
    /// been written.
    fn judge_unread(&self, unread: &[(PageId, Lsn)]) -> Result<(), BackupError> {
        let mut tries = 0;
        while self.has_suspect(unread)? {
            tries += 1;
            // It reads all that anything leads to.
            match self.database.check() {
                Err(Error::Conflict | Error::AllPinned) if tries < CHECKS_MAX => sleep(CHECK_PAUSE),
                checked => return Ok(checked.map(drop)?),
            }
        }
        Ok(())
    }

    /// Whether one of the pages is in use, as far as the maps say, and still cannot be read.
    fn has_suspect(&self, unread: &[(PageId, Lsn)]) -> Result<bool, BackupError> {
        let engine = self.engine;
        if unread.is_empty() {
            return Ok(false);
        }
        let waiting = engine.trees.waiting_runs()?;
        let unfinished = engine.trees.unfinished();
        let mut bytes: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        let is_of_none = |tree: TreeId| unfinished.contains(&tree) || !engine.trees.has(tree);
        for &(page, _) in unread {
            let (holder, _) = engine.trees.space.holder(page, || engine.log.end())?;
            let is_unused = match holder {
                None => true,
                Some(Holder::Blocks(tree) | Holder::Tree(tree)) if is_of_none(tree) => true,
                // Pages of blocks are taken ahead.
                Some(Holder::Blocks(_)) => is_blank_at_home(engine, page)?,
                Some(Holder::Tree(_)) => waiting.iter().any(|run| run.contains(&page.0)),
            };
            if !is_unused && !read_through(engine, page, &mut bytes)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_blank_at_home(engine: &Engine, page: PageId) -> Result<bool, Error> {
    let mut bytes = crate::log::Aligned::zeroed(PAGE_SIZE);
    let read = terrace_device::read(&*engine.home, page.0 * PAGE_SIZE as u64, &mut bytes);
    read.map_err(Error::device(Part::Home, Action::Read))?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// Reads any bytes as a backup, and as the end of one: it returns.
pub(crate) fn fuzz(bytes: &[u8]) {
    restore::fuzz(bytes);
    let _ends = format::ends(std::io::Cursor::new(bytes));
}
