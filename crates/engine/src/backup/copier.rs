//! Copies pages and log of an open database into a backup.
//!
//! - P1: a page that neither memory nor flash has newer than home is read there, in runs; any other
//!   one through the pool, as a transaction reads it. Each is verified.
//! - P2: what cannot be read is noted: it may be a page that nothing leads to yet, or any more.
//!   With it comes a position behind all that was logged of an earlier life of the page, and
//!   before what will make it anew.
//! - P3: of each page it is known whether it was copied, or need not be (`seen`), and whether a
//!   record changed it that was appended before its group's map was read (`changed`). One that was
//!   changed, and not seen, was free by then.

use std::io::Write;
use std::ops::Range;

use terrace_device::read;
use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId, lsn, seal, verify};
use terrace_pool::{Mutation, PoolError};
use terrace_rt::{Nanos, now, sleep};

use super::error::BackupError;
use super::format::{FREED_MAX, LOG_MAX, PAGES_MAX, Writer};
use crate::engine::Engine;
use crate::log::record::{Body, RECORD_MAX};
use crate::log::{Aligned, LogReader};
use crate::space::{InUse, group_number};
use crate::{Action, Error, Part};

/// The log is copied when it has so many durable bytes that are not.
const LOG_STEP: u64 = 256 << 10;
/// It is forced when it has so many bytes more than were copied, or this part of what it may have:
/// transactions that are not durable leave it to others, and it could not be cut meanwhile.
const FORCED_STEP: u64 = 1 << 20;
const FORCED_ONE_IN: u64 = 8;
/// How often a page is asked for while all frames are taken, and how long in between.
const PINNED_MAX: u32 = 500;
const PINNED_PAUSE: Nanos = Nanos::from_millis(20);
/// How long it sleeps at a time so as not to be faster than it may.
const PACE_PAUSE: Nanos = Nanos::from_millis(50);

/// A set of pages.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, page: u64) {
        let word = (page / 64) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (page % 64);
    }

    fn clear(&mut self, page: u64) {
        if let Some(word) = self.0.get_mut((page / 64) as usize) {
            *word &= !(1 << (page % 64));
        }
    }

    fn has(&self, page: u64) -> bool {
        self.0.get((page / 64) as usize).is_some_and(|word| word & 1 << (page % 64) != 0)
    }

    fn without<'b>(&'b self, other: &'b Bits) -> impl Iterator<Item = u64> + 'b {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let left = word & !other.0.get(at).copied().unwrap_or(0);
            (0..64).filter(move |bit| left & 1 << bit != 0).map(move |bit| at as u64 * 64 + bit)
        })
    }
}

/// Pages next to each other that were read, in memory.
pub(super) struct Gathered {
    first: PageId,
    bytes: Vec<u8>,
}

/// See the module.
pub(super) struct Copier<'e, W: Write> {
    engine: &'e Engine,
    pub(super) out: Writer<W>,
    /// Pages with a lower LSN are not copied.
    since: Lsn,
    /// Records from here on are redone in the copy.
    redo: Lsn,
    /// The log was copied up to here.
    copied: Lsn,
    seen: Bits,
    changed: Bits,
    /// Where the log ended when the map of each group was read.
    passed: Vec<Lsn>,
    pub(super) unread: Vec<(PageId, Lsn)>,
    /// The highest LSN of a page.
    pub(super) newest: Lsn,
    buffer: Aligned,
    /// Bytes a second, and since when.
    rate: Option<(u64, Nanos)>,
    paced_bytes: u64,
}

impl<'e, W: Write> Copier<'e, W> {
    pub(super) fn new(
        engine: &'e Engine,
        out: Writer<W>,
        since: Lsn,
        (log_start, redo): (Lsn, Lsn),
        rate: Option<u64>,
    ) -> Copier<'e, W> {
        Copier {
            engine,
            out,
            since,
            redo,
            copied: log_start,
            seen: Bits::default(),
            changed: Bits::default(),
            passed: Vec::new(),
            unread: Vec::new(),
            newest: Lsn::ZERO,
            buffer: Aligned::zeroed(PAGES_MAX * PAGE_SIZE),
            rate: rate.map(|rate| (rate.max(1), now())),
            paced_bytes: 0,
        }
    }

    /// Copies the pages of all groups, and the log that comes meanwhile.
    ///
    /// # Errors
    ///
    /// See [`BackupError`]; so for the others.
    pub(super) fn copy_pages(&mut self) -> Result<(), BackupError> {
        let space = &self.engine.trees.space;
        while (self.passed.len() as u64) < space.groups_mapped()? {
            let group = self.passed.len() as u64;
            let InUse { runs, at } = space.in_use(group, || self.engine.log.end())?;
            // The records before that were appended before: they are looked at first.
            self.copy_log(at)?;
            self.passed.push(at);
            for run in runs {
                for first in run.clone().step_by(PAGES_MAX) {
                    let part = first..run.end.min(first + PAGES_MAX as u64);
                    let gathered = self.gather(part, self.since)?;
                    self.put(&gathered)?;
                    self.keep_up()?;
                }
            }
        }
        Ok(())
    }

    /// Reads pages, of which those before `since` are left out.
    pub(super) fn gather(
        &mut self,
        run: Range<u64>,
        since: Lsn,
    ) -> Result<Vec<Gathered>, BackupError> {
        self.check()?;
        let mut gathered: Vec<Gathered> = Vec::new();
        self.paced_bytes += (run.end - run.start) * PAGE_SIZE as u64;
        let at_home = self.read_home(run.clone())?;
        for (at, page) in run.map(PageId).enumerate() {
            let range = at * PAGE_SIZE..(at + 1) * PAGE_SIZE;
            let bytes: &mut PageBuf =
                (&mut self.buffer[range]).try_into().expect("as long as a page");
            let is_read = at_home[at] && verify(bytes, page).is_ok();
            if !is_read
                && !read_through(self.engine, page, bytes)?
                && let Some(free) = not_there(self.engine, page, bytes)?
            {
                self.unread.push((page, free));
                // What was copied before was of a life that has ended.
                self.seen.clear(page.0);
                continue;
            }
            self.seen.set(page.0);
            self.newest = self.newest.max(lsn(bytes));
            if lsn(bytes) < since {
                continue;
            }
            match gathered.last_mut() {
                Some(last) if last.end() == page => last.bytes.extend_from_slice(&bytes[..]),
                _ => gathered.push(Gathered { first: page, bytes: bytes.to_vec() }),
            }
        }
        Ok(gathered)
    }

    /// Reads the pages that home has as they are, or had when they were asked for, in one request;
    /// says which these are.
    fn read_home(&mut self, run: Range<u64>) -> Result<Vec<bool>, BackupError> {
        let pool = &self.engine.pool;
        let any = pool.mutations().has(Mutation::BackupReadsHome);
        let at_home: Vec<bool> =
            run.clone().map(|page| any || pool.is_at_home(PageId(page))).collect();
        let first = at_home.iter().position(|&is| is);
        let last = at_home.iter().rposition(|&is| is);
        if let (Some(first), Some(last)) = (first, last) {
            let bytes = &mut self.buffer[first * PAGE_SIZE..(last + 1) * PAGE_SIZE];
            let offset = (run.start + first as u64) * PAGE_SIZE as u64;
            let is_read = read(&*self.engine.home, offset, bytes);
            if let Err(source) = is_read {
                // A sector may be bad: page by page the pool tells which.
                if self.engine.home.has_failed() {
                    return Err(Error::device(Part::Home, Action::Read)(source).into());
                }
                return Ok(vec![false; at_home.len()]);
            }
        }
        Ok(at_home)
    }

    /// Writes pages that were read.
    pub(super) fn put(&mut self, gathered: &[Gathered]) -> Result<(), BackupError> {
        for Gathered { first, bytes } in gathered {
            for (at, part) in bytes.chunks(PAGES_MAX * PAGE_SIZE).enumerate() {
                let first = first.plus((at * PAGES_MAX) as u64);
                self.out.pages(first, part).map_err(BackupError::Output)?;
            }
        }
        Ok(())
    }

    /// Copies the log if there is much of it, and waits as long as the rate asks for.
    pub(super) fn keep_up(&mut self) -> Result<(), BackupError> {
        loop {
            let log = &self.engine.log;
            let (durable, end) = (log.durable_end(), log.end());
            let forced = FORCED_STEP.min(log.capacity() / FORCED_ONE_IN);
            if end.0 >= self.copied.0 + forced {
                self.copy_log(end)?;
            } else if durable.0 >= self.copied.0 + LOG_STEP {
                self.copy_log(durable)?;
            }
            let Some((rate, began)) = self.rate else { return Ok(()) };
            let nanos = u128::from(self.paced_bytes) * 1_000_000_000 / u128::from(rate);
            let due = began.saturating_add(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
            let left = due.saturating_sub(now());
            if left == Nanos::ZERO {
                return Ok(());
            }
            sleep(left.min(PACE_PAUSE));
            self.check()?;
        }
    }

    /// Copies the log up to `to`, where a record ends.
    pub(super) fn copy_log(&mut self, to: Lsn) -> Result<(), BackupError> {
        if to <= self.copied {
            return Ok(());
        }
        self.engine.log.force(to, crate::log::Level::Durable)?;
        let (map, device) = self.engine.log.place();
        let mut reader = LogReader::new(&**device, map, self.copied, to);
        let mut records = Vec::new();
        while reader.end().position < to {
            let read = reader
                .next()
                .map(|stored| stored.map(|stored| (stored.lsn, changed_page(&stored.record.body))));
            self.check()?;
            let Some((at, page)) = read? else {
                let (at, what) = (reader.end().position, "a record cannot be read for a backup");
                return Err(Error::corrupt_log(at, what).into());
            };
            if let Some(page) = page {
                self.note_changed(page, at);
            }
            records.extend_from_slice(reader.last_bytes());
            if records.len() + RECORD_MAX > LOG_MAX {
                self.put_log(&mut records)?;
            }
        }
        self.put_log(&mut records)
    }

    fn put_log(&mut self, records: &mut Vec<u8>) -> Result<(), BackupError> {
        if !records.is_empty() {
            self.out.log(self.copied, records).map_err(BackupError::Output)?;
            self.copied = Lsn(self.copied.0 + records.len() as u64);
            let cut = self.engine.backup.advance(self.copied);
            self.engine.log.truncate(cut);
            records.clear();
        }
        Ok(())
    }

    /// P3.
    fn note_changed(&mut self, page: PageId, at: Lsn) {
        let passed = self.passed.get(group_number(page) as usize);
        if at >= self.redo && passed.is_none_or(|passed| at < *passed) {
            self.changed.set(page.0);
        }
    }

    /// Writes which pages were freed before they were copied: the copy has records of them that it
    /// must not redo on what it finds there.
    pub(super) fn put_freed(&mut self) -> Result<u64, BackupError> {
        if self.engine.pool.mutations().has(Mutation::BackupSkipsFreed) {
            return Ok(0);
        }
        // Higher than any record before, and lower than any after.
        let before = |position: Lsn| Lsn(position.0 - 1);
        let freed = self.changed.without(&self.seen).filter_map(|page| {
            let passed = self.passed.get(group_number(PageId(page)) as usize)?;
            Some((PageId(page), before(*passed)))
        });
        let unread = self.unread.iter().filter(|(page, _)| !self.seen.has(page.0));
        let unread = unread.map(|(page, free)| (*page, before(*free)));
        // Of two entries the last one counts, which is the higher one.
        let freed: Vec<_> = freed.chain(unread).collect();
        for freed in freed.chunks(FREED_MAX) {
            self.out.freed(freed).map_err(BackupError::Output)?;
        }
        Ok(freed.len() as u64)
    }

    /// # Errors
    ///
    /// `Behind`; `Closed`, `Failed` and the like.
    pub(super) fn check(&self) -> Result<(), BackupError> {
        if self.engine.backup.is_behind() {
            return Err(BackupError::Behind);
        }
        self.engine.check_beginning()?;
        Ok(self.engine.check_running()?)
    }
}

impl Gathered {
    fn end(&self) -> PageId {
        self.first.plus((self.bytes.len() / PAGE_SIZE) as u64)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A page that could not be read: reads it once more, and if that fails returns where the log ended
/// while the page was not what a record had made of it (P2).
fn not_there(
    engine: &Engine,
    page: PageId,
    bytes: &mut PageBuf,
) -> Result<Option<Lsn>, BackupError> {
    let look = || engine.trees.space.holder(page, || engine.log.end());
    let (_, before) = look()?;
    if read_through(engine, page, bytes)? {
        return Ok(None);
    }
    match look()? {
        // What it was has ended by now.
        (None, after) => Ok(Some(after)),
        // It was taken before the first look, and is not made yet.
        (Some(_), _) => Ok(Some(before)),
    }
}

fn changed_page(body: &Body<'_>) -> Option<PageId> {
    body.page()
}

/// Reads a page as transactions do; whether it is whole.
pub(super) fn read_through(
    engine: &Engine,
    page: PageId,
    bytes: &mut PageBuf,
) -> Result<bool, BackupError> {
    for _ in 0..PINNED_MAX {
        match engine.pool.read(page) {
            Ok(read) => {
                bytes.copy_from_slice(&read[..]);
                drop(read);
                seal(bytes);
                return Ok(verify(bytes, page).is_ok());
            }
            Err(PoolError::AllPinned) => sleep(PINNED_PAUSE),
            Err(PoolError::Damaged { .. }) => return Ok(false),
            Err(error) => return Err(Error::from(error).into()),
        }
    }
    Err(Error::AllPinned.into())
}
