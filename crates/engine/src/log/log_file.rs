//! Appending to the log, and forcing it: group commit by leaders.
//!
//! ```text
//!   stream:   start         durable     written       end
//!   ----------|-------------|-----------|-------------|---------
//!   dropped     kept on device, or in      in memory     future
//!               its volatile cache
//! ```
//!
//! - L1: `start <= durable <= written <= end <= mapped`; each is a record's end, but the last.
//! - L2: a record is appended in one short critical section, the only one: LSN, last part of the
//!   checksum, copy. Nothing blocks in it.
//! - L3: a task that needs a force and finds none under way leads one: it takes the memory buffer
//!   away, writes it as whole blocks, and syncs. All others wait, and one of those that it did not
//!   serve leads next. So a group is what arrives during one force. The log writer, a task, leads
//!   when much waits in memory and no task forces: commits that need not be durable do not stop for
//!   the device.
//! - L4: the block that holds the end is written again by the next force, with the same bytes in
//!   front: whatever sectors of it a power cut leaves old or new, earlier records stand.
//! - L5: after a failed write or sync nothing is appended or written any more.
//! - L6: `claimed = end + all that is reserved`, and the device has room up to `claimed`. A record
//!   takes its bytes from what its owner reserved, and what it lacks from the log by one
//!   compare-and-swap (`room`): no append ever takes what another has reserved.
//! - L7: each record says how far the log was durable before it (`ending`).

mod awaited;
mod marks;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_device::{Device, write_shared};
use terrace_page::Lsn;
use terrace_rt::{LeafMutex, Signal, dead};

use self::awaited::Awaited;
use super::buffer::Aligned;
use super::chain::{Chain, Ends, Last, Link};
use super::map::{LINE_BYTES_MIN, Layout};
use super::record::Draft;
use super::room::{EDGE_BYTES, Room};
use super::{BLOCK, LogMap, LogSpace};
use crate::share::Apart;
use crate::{Action, Error, LogStats, Part};

/// The log knows where a record begins in each stretch of this length.
const MARK_BYTES: u64 = 16 << 10;
/// The log writer is asked to write when this many bytes wait in memory.
const WAITING_SOFT: u64 = 512 << 10;
/// Appends wait for the device when this many bytes wait in memory, or a sixteenth of the ring.
const WAITING_HARD: u64 = 16 << 20;

/// How far records must have got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Handed to the device and completed there, without a barrier.
    Written,
    /// Behind a barrier.
    Durable,
    /// Behind a barrier that begins now.
    Barrier,
}

/// A log is shared out as if it had at least this many bytes, though its device may be out of room
/// before it has them.
const CAPACITY_MIN: u64 = LINE_BYTES_MIN;

/// A record that was appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) lsn: Lsn,
    /// What `Log::set_versioned` had said then.
    pub(crate) versioned: u64,
}

struct Tail {
    buffer: Aligned,
    /// Position of the buffer's first byte, a multiple of `BLOCK`.
    base: u64,
    end: u64,
    spare: Option<Aligned>,
    flushing: bool,
    /// Where some records begin, `MARK_BYTES` apart or more.
    marks: VecDeque<u64>,
    records: u64,
    /// See `set_versioned`.
    versioned: u64,
}

/// The log of an open database.
pub(crate) struct Log {
    pub(super) device: Arc<dyn Device>,
    pub(crate) space: LogSpace,
    pub(super) map: LeafMutex<LogMap>,
    /// Of the map.
    salt: u64,
    /// The map is a line: it may grow.
    pub(super) is_line: bool,
    /// Bytes of the device that hold the stream.
    pub(super) mapped_bytes: AtomicU64,
    /// Where the map ends; of a ring, where it meets the start.
    pub(super) mapped: AtomicU64,
    /// Where it ends for what is reserved from now on.
    pub(super) offered: AtomicU64,
    /// How long it may get, as far as is known.
    pub(super) ceiling: AtomicU64,
    /// How much it kept ahead, and the end, at the last checkpoint (growth.W3).
    pub(super) demand: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) may_settle: AtomicBool,
    pub(super) is_extension_wanted: AtomicBool,
    epoch: u32,
    tail: Apart<LeafMutex<Tail>>,
    first_end: u64,
    ends: Ends,
    written: AtomicU64,
    durable: AtomicU64,
    pub(super) start: AtomicU64,
    /// L6.
    pub(super) claimed: Apart<AtomicU64>,
    /// Given when room was made, if a task waits for it.
    pub(super) room: Signal,
    pub(super) room_waiters: AtomicU64,
    flushed: Signal,
    pub(super) write_wanted: Signal,
    is_write_wanted: AtomicBool,
    failed: AtomicBool,
    /// The first cause, set before `failed`.
    cause: LeafMutex<Option<Error>>,
    writes: AtomicU64,
    /// Barriers begun and ended: one at a time.
    barriers: AtomicU64,
    forces: AtomicU64,
    durable_commits: AtomicU64,
    /// The end behind the last witness.
    witnessed: AtomicU64,
    awaited: Awaited,
}

impl Log {
    /// The log in `space`, whose kept part is `start..end`, all of it durable; `tail_block` is the
    /// block that holds `end`, read from the device, or zeroes.
    pub(crate) fn open(
        device: Arc<dyn Device>,
        space: LogSpace,
        epoch: u32,
        (start, end): (Lsn, Lsn),
        last: Lsn,
        tail_block: &[u8],
    ) -> Log {
        assert!(start <= end, "the log ends at {end}, before its start {start}");
        let base = end.0 / BLOCK as u64 * BLOCK as u64;
        let mut buffer = Aligned::zeroed(16 * BLOCK);
        buffer[..BLOCK].copy_from_slice(tail_block);
        let tail = Tail {
            buffer,
            base,
            end: end.0,
            spare: None,
            flushing: false,
            marks: VecDeque::new(),
            records: 0,
            versioned: 0,
        };
        let map = space.map();
        let (is_line, mapped) = (matches!(map.layout, Layout::Line(_)), map.end(start).0);
        let capacity = if is_line { space.limit() } else { map.bytes() };
        Log {
            device,
            space,
            salt: map.salt,
            is_line,
            mapped_bytes: AtomicU64::new(map.bytes()),
            mapped: AtomicU64::new(mapped),
            offered: AtomicU64::new(mapped),
            ceiling: AtomicU64::new(capacity),
            demand: AtomicU64::new(0),
            settled: AtomicU64::new(end.0),
            may_settle: AtomicBool::new(false),
            is_extension_wanted: AtomicBool::new(false),
            map: LeafMutex::new(map),
            epoch,
            tail: Apart(LeafMutex::new(tail)),
            first_end: end.0,
            ends: Ends::new(end, last),
            written: AtomicU64::new(end.0),
            durable: AtomicU64::new(end.0),
            start: AtomicU64::new(start.0),
            claimed: Apart(AtomicU64::new(end.0)),
            room: Signal::new(),
            room_waiters: AtomicU64::new(0),
            flushed: Signal::new(),
            write_wanted: Signal::new(),
            is_write_wanted: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            cause: LeafMutex::new(None),
            writes: AtomicU64::new(0),
            barriers: AtomicU64::new(0),
            forces: AtomicU64::new(0),
            durable_commits: AtomicU64::new(0),
            witnessed: AtomicU64::new(end.0),
            awaited: Awaited::default(),
        }
    }

    /// The map to the device, and the device.
    pub(crate) fn place(&self) -> (LogMap, &Arc<dyn Device>) {
        (self.map.lock().clone(), &self.device)
    }

    /// Whether it gets longer and shorter.
    pub(crate) fn is_line(&self) -> bool {
        self.is_line
    }

    /// The number of this opening of the database, carried by each record.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Appends a record of no transaction.
    ///
    /// # Errors
    ///
    /// `LogFull`, `Failed`; nothing is appended then. So for all appends.
    pub(crate) fn append(&self, draft: &mut Draft, room: Room) -> Result<Lsn, Error> {
        self.append_linked(draft, room, &mut 0, Link::None).map(|appended| appended.lsn)
    }

    /// From now on appends return `number`: whether, and under which number, versions are kept. An
    /// append is before this or after it.
    pub(crate) fn set_versioned(&self, number: u64) {
        self.tail.lock().versioned = number;
    }

    /// Appends a record of a checkpoint, for which the log is extended if it has to be, whatever
    /// its limit.
    pub(crate) fn append_growing(&self, draft: &mut Draft) -> Result<Lsn, Error> {
        loop {
            match self.append(draft, Room::Reserved) {
                Err(Error::LogFull { wanted_bytes, .. })
                    if self.extend(wanted_bytes, Room::Reserved)? => {}
                appended => return appended,
            }
        }
    }

    /// Appends the next record of the transaction of `chain`, which may use what is `reserved`, and
    /// takes what that lacks from `room`.
    pub(crate) fn append_next(
        &self,
        draft: &mut Draft,
        room: Room,
        reserved: &mut u64,
        chain: &Chain,
    ) -> Result<Appended, Error> {
        self.append_linked(draft, room, reserved, Link::Next(chain))
    }

    /// Appends the last record of the transaction of `chain`.
    pub(crate) fn append_last(
        &self,
        draft: &mut Draft,
        reserved: &mut u64,
        (chain, last): (&Chain, Last),
    ) -> Result<Lsn, Error> {
        let link = Link::Last(chain, last);
        self.append_linked(draft, Room::Reserved, reserved, link).map(|appended| appended.lsn)
    }

    pub(super) fn append_linked(
        &self,
        draft: &mut Draft,
        room: Room,
        reserved: &mut u64,
        link: Link<'_>,
    ) -> Result<Appended, Error> {
        let durable = self.durable.load(Ordering::Relaxed);
        let checksum = draft.close(self.epoch, durable, self.end().0);
        let len = draft.len() as u64;
        let lacking = len.saturating_sub(*reserved);
        if lacking > 0 && !self.try_reserve(lacking, room) {
            return Err(self.full(link, lacking));
        }
        let mut tail = self.tail.lock();
        if self.failed.load(Ordering::Relaxed) {
            drop(tail);
            self.unreserve(lacking);
            return Err(self.failure());
        }
        *reserved -= len - lacking;
        let mapped = self.mapped.load(Ordering::Acquire);
        assert!(tail.end + len + EDGE_BYTES <= mapped, "L6: {len} bytes at {}", tail.end);
        let lsn = Lsn(tail.end);
        let record = draft.seal(checksum, lsn, self.salt);
        let at = (tail.end - tail.base) as usize;
        tail.buffer.grow(at + record.len());
        tail.buffer[at..at + record.len()].copy_from_slice(record);
        tail.end += len;
        tail.records += 1;
        if tail.marks.back().is_none_or(|mark| lsn.0 - mark >= MARK_BYTES) {
            tail.marks.push_back(lsn.0);
        }
        link.appended(lsn, len);
        self.ends.appended(link, lsn, tail.end);
        Ok(Appended { lsn, versioned: tail.versioned })
    }

    /// The LSN of the last record appended.
    pub(crate) fn last_lsn(&self) -> Lsn {
        self.ends.last()
    }

    /// Where the next record will begin.
    pub(crate) fn end(&self) -> Lsn {
        self.ends.end()
    }

    /// Where it ended when it was opened.
    pub(crate) fn opened_at(&self) -> Lsn {
        Lsn(self.first_end)
    }

    /// What is read now may be as new as a COMMIT that begins before this.
    pub(crate) fn committed_end(&self) -> Lsn {
        self.ends.committed()
    }

    /// Every record that begins before this is durable.
    pub(crate) fn durable_end(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Where the kept part begins.
    pub(crate) fn start(&self) -> Lsn {
        Lsn(self.start.load(Ordering::Acquire))
    }

    /// Whether a write failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// # Errors
    ///
    /// `Failed` if it has failed, with the first cause.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_failed() { Err(self.failure()) } else { Ok(()) }
    }

    /// The error that all callers get once the log has failed.
    #[cold]
    fn failure(&self) -> Error {
        self.cause.lock().clone().unwrap_or(Error::STOPPED)
    }

    /// Takes no more records: a device failed, or the engine found itself in a state that only
    /// recovery can mend. Returns `Failed` with the first cause, which is not this one if it came
    /// later.
    pub(crate) fn fail(&self, cause: Error) -> Error {
        let failed = match cause {
            failed @ Error::Failed { .. } => failed,
            cause => Error::Failed { cause: Some(Arc::new(cause)) },
        };
        let first = self.cause.lock().get_or_insert(failed).clone();
        // Within the critical section, so that no append is half way past the check.
        let tail = self.tail.lock();
        self.failed.store(true, Ordering::Release);
        drop(tail);
        // There will be none.
        self.tell_room();
        first
    }

    /// Drops the log before `start`: the superblock that says so must be durable.
    pub(crate) fn truncate(&self, start: Lsn) {
        assert!(start <= self.durable_end(), "truncation to {start}, past what is durable");
        let before = self.start.fetch_max(start.0, Ordering::AcqRel);
        if !self.is_line {
            // What a ring has passed is room at its end.
            let end = start.0 + self.mapped_bytes.load(Ordering::Relaxed);
            self.mapped.fetch_max(end, Ordering::AcqRel);
            self.offered.fetch_max(end, Ordering::AcqRel);
        }
        self.forget_marks(start);
        (before < start.0).then(|| self.tell_room());
    }

    /// If all is durable and nothing was appended since, has the device keep a record that says so:
    /// damage to what was forced last is then no torn tail (`ending`). Cheap where that is known.
    ///
    /// # Errors
    ///
    /// As `append` and `force`.
    pub(crate) fn witness(&self) -> Result<(), Error> {
        let end = self.end();
        if self.durable_end() < end || self.witnessed.load(Ordering::Relaxed) == end.0 {
            return Ok(());
        }
        let mut draft = Draft::default();
        draft.buf_write(&[], Lsn::ZERO);
        self.append(&mut draft, Room::Forward)?;
        let end = self.end();
        self.witnessed.store(end.0, Ordering::Relaxed);
        self.force(end, Level::Written)
    }

    /// Bytes from the start to the end.
    pub(crate) fn used(&self) -> u64 {
        self.end().0.saturating_sub(self.start().0)
    }

    /// Bytes that the log may have, as far as is known: those of a ring; of a line its limit, or
    /// how long it is if the device has no room for more.
    pub(crate) fn capacity(&self) -> u64 {
        self.ceiling.load(Ordering::Relaxed).max(CAPACITY_MIN)
    }

    /// Before an append, without latches: has the log writer begin when much waits in memory, and
    /// waits for the device when too much does.
    ///
    /// # Errors
    ///
    /// As `force`.
    pub(crate) fn relieve(&self) -> Result<(), Error> {
        let end = self.end();
        // Others may have written past `end` since.
        let waiting = end.0.saturating_sub(self.written.load(Ordering::Relaxed));
        if waiting <= WAITING_SOFT {
            return Ok(());
        }
        if !self.is_write_wanted.load(Ordering::Relaxed)
            && !self.is_write_wanted.swap(true, Ordering::AcqRel)
        {
            self.write_wanted.notify_all();
        }
        if waiting > WAITING_HARD.min(self.capacity() / 16) {
            self.force(end, Level::Written)?;
        }
        Ok(())
    }

    /// The log writer's work: writes whenever `relieve` wants it, until `is_closed` (a change of it
    /// is announced by [`Log::wake_writer`]) or until the device fails.
    pub(crate) fn write_as_wanted(&self, is_closed: impl Fn() -> bool) {
        loop {
            let seen = self.write_wanted.seen();
            if is_closed() || dead() {
                return;
            }
            if self.is_extension_wanted.load(Ordering::Acquire) && self.extend_ahead().is_err() {
                return;
            }
            if !self.is_write_wanted.swap(false, Ordering::AcqRel) {
                self.write_wanted.wait(seen);
            } else if self.force(self.end(), Level::Written).is_err() {
                return;
            }
        }
    }

    /// Counts a commit that is about to wait for a barrier.
    pub(crate) fn count_durable_commit(&self) {
        self.durable_commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when every record that begins before `position` has got to `level`.
    ///
    /// # Errors
    ///
    /// `Failed` if the device failed, now or before; `Closed` in a dead world.
    pub(crate) fn force(&self, position: Lsn, level: Level) -> Result<(), Error> {
        assert!(position <= self.end(), "a force to {position}, past the end");
        let reached = match level {
            Level::Written => &self.written,
            Level::Durable | Level::Barrier => &self.durable,
        };
        self.lead_until(level, || reached.load(Ordering::Acquire) >= position.0)
    }

    /// Returns when every record that begins before `position` is durable, and all else that was
    /// written to the device before the call.
    ///
    /// # Errors
    ///
    /// As `force`.
    pub(crate) fn barrier(&self, position: Lsn) -> Result<(), Error> {
        assert!(position <= self.end(), "a barrier at {position}, past the end");
        // One that is under way may have begun before what was written.
        let wanted = self.barriers.load(Ordering::Acquire) + 1;
        self.lead_until(Level::Barrier, || {
            self.forces.load(Ordering::Acquire) >= wanted
                && self.durable.load(Ordering::Acquire) >= position.0
        })
    }

    /// L3.
    fn lead_until(&self, level: Level, is_reached: impl Fn() -> bool) -> Result<(), Error> {
        while !is_reached() {
            if dead() {
                return Err(Error::Closed);
            }
            self.check()?;
            let seen = self.flushed.seen();
            let leads = {
                let mut tail = self.tail.lock();
                !std::mem::replace(&mut tail.flushing, true)
            };
            if !leads {
                if !is_reached() {
                    self.flushed.wait(seen);
                }
                continue;
            }
            // A leader that failed since has taken from the buffer what it has not written.
            let is_over = is_reached() || dead() || self.check().is_err();
            let flushed = if is_over { Ok(()) } else { self.flush(level) };
            if let (Err((action, source)), false) = (flushed, dead()) {
                self.fail(Error::device(Part::Log, action)(source));
            }
            self.tail.lock().flushing = false;
            self.flushed.notify_all();
        }
        Ok(())
    }

    /// Writes out what is in memory. The leader's work, one at a time.
    fn flush(&self, level: Level) -> Result<(), (Action, std::io::Error)> {
        let written = self.written.load(Ordering::Acquire);
        if self.end().0 > written {
            let (mut buffer, base, end) = self.take_buffer();
            assert!(base <= written, "the buffer begins past what is written");
            let whole = (end.next_multiple_of(BLOCK as u64) - base) as usize;
            buffer.grow(whole);
            buffer[(end - base) as usize..whole].fill(0);
            let buffer = Arc::new(buffer);
            self.write_blocks(base, &buffer, whole).map_err(|source| (Action::Write, source))?;
            self.written.store(end, Ordering::Release);
            self.tail.lock().spare = Arc::into_inner(buffer);
        }
        let written = self.written.load(Ordering::Acquire);
        let is_durable = self.durable.load(Ordering::Acquire) >= written;
        if level == Level::Barrier || (level == Level::Durable && !is_durable) {
            self.barriers.fetch_add(1, Ordering::AcqRel);
            self.device.sync().map_err(|source| (Action::Sync, source))?;
            self.forces.fetch_add(1, Ordering::AcqRel);
            self.durable.store(written, Ordering::Release);
        }
        Ok(())
    }

    /// Takes the memory buffer, and leaves one that begins with the last, partial block.
    fn take_buffer(&self) -> (Aligned, u64, u64) {
        let mut tail = self.tail.lock();
        let mut fresh = tail.spare.take().unwrap_or_else(|| Aligned::zeroed(16 * BLOCK));
        let (base, end) = (tail.base, tail.end);
        let fresh_base = end / BLOCK as u64 * BLOCK as u64;
        let kept = (fresh_base - base) as usize..(end - base) as usize;
        fresh[..kept.len()].copy_from_slice(&tail.buffer[kept]);
        tail.base = fresh_base;
        (std::mem::replace(&mut tail.buffer, fresh), base, end)
    }

    /// Writes the first `len` bytes of the buffer.
    fn write_blocks(
        &self,
        position: u64,
        buffer: &Arc<Aligned>,
        len: usize,
    ) -> std::io::Result<()> {
        let map = self.map.lock().clone();
        let mut written = 0;
        for (part, offset) in map.pieces(position, len) {
            written = part.end;
            write_shared(&*self.device, offset, buffer, part)?;
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(written, len, "L1: records past the end of the map, at {position}");
        Ok(())
    }

    /// Counters and gauges; checkpoints are counted elsewhere.
    pub(crate) fn stats(&self) -> LogStats {
        let records = self.tail.lock().records;
        LogStats {
            records,
            bytes: self.end().0 - self.first_end,
            writes: self.writes.load(Ordering::Relaxed),
            forces: self.forces.load(Ordering::Relaxed),
            durable_commits: self.durable_commits.load(Ordering::Relaxed),
            used_bytes: self.used(),
            capacity_bytes: self.capacity(),
            allocated_bytes: self.mapped_bytes.load(Ordering::Relaxed),
            ..LogStats::default()
        }
    }
}
