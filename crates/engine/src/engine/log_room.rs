//! Room in a full log: which transactions wait for it, and which one gives way.
//!
//! - L1: a log is full because of a transaction that is open, which keeps it from being cut, or
//!   because of changes that only memory has. A checkpoint helps against the second only.
//! - L2: the oldest transaction holds the log if it keeps most of it, or if the log stays full for
//!   [`PATIENCE`] though it was cut up to that transaction: what others have reserved did not come
//!   free, perhaps since they wait for room too, or for its locks. Its next operation, or its wait
//!   for a lock, fails, and it gives way; until then, or until their time limit, others wait.
//! - L3: a transaction that has given way and is run again lets the others end first: otherwise it
//!   fills the log beside them as before.

use std::sync::atomic::Ordering;

use terrace_page::{Lsn, TxnId};
use terrace_rt::{Nanos, dead, now, sleep};

use super::{Engine, Occasion};
use crate::events::Event;
use crate::log::Room;
use crate::superblock::Superblock;
use crate::{Error, TransactionId};

/// A writer that finds the log full looks again after a pause, at first this and then twice as long
/// each time.
const ROOM_PAUSE: Nanos = Nanos::from_millis(2);
const ROOM_PAUSE_MAX: Nanos = Nanos::from_millis(128);

/// More than the records of a checkpoint take, but for those of very many transactions and tables.
const CHECKPOINT_BYTES: u64 = 64 << 10;

/// How long what transactions have reserved is waited for. Most of it comes free within the
/// operation under way; the rest when they end.
const PATIENCE: Nanos = Nanos::from_millis(250);

impl Engine {
    /// Reserves `bytes` of the log for a transaction: takes checkpoints, waits for others to end,
    /// and tells the transaction that holds back a full log to go.
    ///
    /// # Errors
    ///
    /// `HoldsLog` if one that `is_own` holds it, `LogHeld` if another transaction did until `limit`
    /// was over, `full` if none did; those of a checkpoint.
    pub(crate) fn wait_for_log_room(
        &self,
        is_own: impl Fn(TxnId) -> bool,
        full: Error,
        bytes: u64,
        limit: Nanos,
    ) -> Result<(), Error> {
        let began = now();
        let deadline = began.saturating_add(limit);
        let room = self.log.wait_room();
        let mut pause = ROOM_PAUSE;
        for attempt in 0.. {
            let seen = room.seen();
            if self.try_log_room(bytes, attempt)? {
                self.log_holder.store(0, Ordering::Relaxed);
                return Ok(());
            }
            if attempt == 0 {
                let (used, capacity) = (self.log.used(), self.log.capacity());
                Event::LogFull { wanted: bytes, used, capacity }.tell();
            }
            let is_patient = now() < began.saturating_add(PATIENCE);
            let holder = self.log_holder(is_patient);
            match holder {
                Some((other, held_bytes)) if is_own(other) => {
                    return Err(self.holds_log(full, held_bytes));
                }
                Some((other, _)) => {
                    self.log_holder.store(other.0, Ordering::Relaxed);
                    self.locks.interrupt(other);
                }
                None => {}
            }
            if now() >= deadline {
                let (capacity, is_device_full) = (self.log.capacity(), self.log.is_device_full());
                return Err(holder.map_or(full, |(txn, held_bytes)| {
                    let holder = self.locks.id_of(txn);
                    Error::LogHeld { holder, held_bytes, capacity, is_device_full }
                }));
            }
            self.check_open()?;
            self.log.check()?;
            // What is reserved by operations under way comes free soon.
            let next = now() + pause;
            room.wait_until(seen, if next < deadline { next } else { deadline });
            pause = Nanos(pause.0 * 2).min(ROOM_PAUSE_MAX);
        }
        Err(full)
    }

    /// Waits, for `limit` at most, until open transactions leave half of the log (L3). Once the
    /// engine has stopped, what they have reserved never comes free.
    pub(crate) fn wait_for_others(&self, limit: Nanos) {
        let deadline = now().saturating_add(limit);
        let mut pause = ROOM_PAUSE;
        while self.held_and_reserved() > self.log.capacity() / 2
            && now() < deadline
            && self.is_running()
            && !dead()
        {
            sleep(pause);
            pause = Nanos(pause.0 * 2).min(ROOM_PAUSE_MAX);
        }
    }

    /// Bytes of log since the oldest transaction began, and those that are reserved.
    fn held_and_reserved(&self) -> u64 {
        let end = self.log.end();
        let first = self.active().into_iter().map(|(_, first, _)| first).min().unwrap_or(end);
        end.0 - first.0.min(end.0) + self.log.reserved()
    }

    /// The error of a transaction that keeps `held_bytes` of the log and wants more of it: that it
    /// holds the log, unless what it has logged itself is most of that.
    fn holds_log(&self, full: Error, held_bytes: u64) -> Error {
        match full {
            Error::LogFull { own_bytes, capacity, is_device_full, .. }
                if own_bytes < held_bytes / 2 || !self.is_most(held_bytes) =>
            {
                Error::HoldsLog { own_bytes, held_bytes, capacity, is_device_full }
            }
            full => full,
        }
    }

    /// Whether the log is half full of what a checkpoint may cut.
    #[inline]
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let (used, half) = (self.log.used(), self.log.capacity() / 2);
        used > half && used.saturating_sub(self.backup.keeps()) > half
    }

    /// Makes room for a checkpoint, if only what a backup keeps is in its way (backup_watch.K1).
    pub(super) fn clear_way(&self, boot: &Superblock) -> Result<(), Error> {
        if self.backup.keeps() == 0 {
            return Ok(());
        }
        let bytes = CHECKPOINT_BYTES.min(self.log.capacity() / 16);
        if self.log.reserve_or_extend(bytes, Room::Forward)? {
            self.log.unreserve(bytes);
        } else if self.backup.gives_way(boot.log_start()) {
            self.log.truncate(boot.log_start());
        }
        Ok(())
    }

    /// Takes a checkpoint unless `bytes` find room as it is, or could not find it then: each takes
    /// some room itself. Whether they do.
    fn try_log_room(&self, bytes: u64, attempt: u32) -> Result<bool, Error> {
        let mut boot = self.boot.lock();
        if self.log.reserve_or_extend(bytes, Room::Forward)? {
            return Ok(true);
        }
        let first = self.active().into_iter().map(|(_, first, _)| first).min();
        let cut = first.unwrap_or(self.log.end()).0.saturating_sub(self.log.start().0);
        if cut < self.log.lacking(bytes) {
            return Ok(false);
        }
        // First the older half of what memory holds back, then all of it and flash too.
        if attempt == 0 {
            let half = Lsn(self.log.start().0 + self.log.used() / 2);
            self.pool.flush_below(half)?;
        } else {
            self.pool.flush_all()?;
        }
        self.take_checkpoint(&mut boot, Occasion::Running)?;
        if self.log.reserve_or_extend(bytes, Room::Forward)? {
            return Ok(true);
        }
        // A backup that does not keep up with the log ends before a writer waits for it.
        if !self.backup.gives_way(boot.log_start()) {
            return Ok(false);
        }
        self.log.truncate(boot.log_start());
        self.log.reserve_or_extend(bytes, Room::Forward)
    }

    /// The oldest transaction, and the bytes of log kept since it began; while the log `is_patient`
    /// only if that is most of it.
    fn log_holder(&self, is_patient: bool) -> Option<(TxnId, u64)> {
        let (txn, first, _) = self.active().into_iter().min_by_key(|(_, first, _)| *first)?;
        let held_bytes = self.log.end().0 - first.0;
        (self.is_most(held_bytes) || !is_patient).then_some((txn, held_bytes))
    }

    /// The oldest transaction, if users know it, and the bytes of log kept since it began.
    pub(crate) fn held_log(&self) -> Option<(Option<TransactionId>, u64)> {
        self.log_holder(false).map(|(txn, held_bytes)| (self.locks.id_of(txn), held_bytes))
    }

    fn is_most(&self, held_bytes: u64) -> bool {
        held_bytes > self.log.capacity() / 4 * 3
    }
}
