//! A database made of backups: see the picture in `backup`.
//!
//! - W1: home begins with a text that says what it is until all else is durable; then come the
//!   header of the log, durably, and the superblock.
//! - W2: every frame, page and record is verified before it is written.
//! - W3: of several backups only the last one's log is needed: its pages, and those of the earlier
//!   ones that have not changed since, have all that comes before.

use std::fmt;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;

use terrace_device::{Device, write};
use terrace_page::{
    Lsn, PAGE_SIZE, PageBuf, PageId, PageKind, seal, set_kind, set_lsn, set_page_id, verify,
};
use terrace_pool::{Mutation, Mutations};

use super::error::RestoreError;
use super::format::{self, End, Part, Reader, freed_in};
use crate::api::RestoreParts;
use crate::log::record::{self, HEADER_BYTES};
use crate::log::{Aligned, BLOCK, LogMap, NewLog};
use crate::superblock::{
    Creation, FORMAT_VERSION, FlashMark, LogFrom, SUPERBLOCK_PAGES, Superblock, UNFINISHED,
};
use crate::{Action, Builder, Error};

/// Pages that are written at once.
const RUN_PAGES: usize = 128;
/// Bytes of the log that are written at once.
const LOG_BYTES: usize = 1 << 20;

/// What was restored.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The random id of the new database.
    pub id: u128,
    /// That of the database that the backups are of.
    pub original: u128,
    /// Pages written.
    pub pages: u64,
    /// Bytes of the log that the first opening looks through.
    pub log_bytes: u64,
    /// The position in the log of the original at whose moment the new database begins.
    pub end: Lsn,
}

impl fmt::Debug for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restored").field("pages", &self.pages).field("end", &self.end).finish()
    }
}

impl Builder {
    /// Makes a database at `path` from a whole backup, and those that were made upon it, in their
    /// order. It has an id of its own: no flash tier and no log of the original is taken for one of
    /// it. The first opening recovers it, like one after a crash.
    ///
    /// Nothing may be at `path`, nor at that of its log: [`Builder::overwrite`] does not count. Of
    /// the other options those of paths and sizes do. After an error, or a panic of what is read,
    /// the files that were made are removed; what is left after a crash is no database, and says
    /// what it is.
    ///
    /// # Examples
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::builder().home_size(32 << 20).create(dir.path().join("db"))?;
    /// let mut backup = Vec::new();
    /// db.backup(&mut backup, &terrace::BackupOptions::new())?;
    /// let path = dir.path().join("copy");
    /// terrace::Database::builder().restore(&path, &mut [&mut &backup[..]])?;
    /// let copy = terrace::Database::open(&path)?;
    /// assert_ne!(copy.id(), db.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`RestoreError`]; `Database` has those of [`Builder::create`].
    pub fn restore(
        self,
        path: impl AsRef<Path>,
        backups: &mut [&mut dyn Read],
    ) -> Result<Restored, RestoreError> {
        let mut backups = Backups::begin(backups)?;
        let bytes = backups.home_pages * PAGE_SIZE as u64;
        let (parts, made) = self.restore_files(path.as_ref(), bytes)?;
        // What reads a backup is code of the caller.
        let restored = catch_unwind(AssertUnwindSafe(|| backups.restore(&parts)));
        if !matches!(restored, Ok(Ok(_))) {
            made.take_away();
        }
        restored.unwrap_or_else(|panic| resume_unwind(panic)).map_err(|error| match error {
            RestoreError::Database(error) => parts.explain(error).into(),
            error => error,
        })
    }

    /// As `restore`, on the devices given, which must be blank.
    ///
    /// # Errors
    ///
    /// As `restore`.
    pub fn restore_on_devices(
        self,
        backups: &mut [&mut dyn Read],
    ) -> Result<Restored, RestoreError> {
        let mut backups = Backups::begin(backups)?;
        backups.restore(&self.restore_devices()?)
    }
}

/// Backups whose beginnings were read.
struct Backups<'r, 'i> {
    readers: Vec<Reader<&'r mut &'i mut dyn Read>>,
    home_pages: u64,
}

impl<'r, 'i> Backups<'r, 'i> {
    fn begin(inputs: &'r mut [&'i mut dyn Read]) -> Result<Backups<'r, 'i>, RestoreError> {
        let (mut readers, mut home_pages) = (Vec::new(), 0);
        let mut before: Option<format::Begin> = None;
        for (index, input) in inputs.iter_mut().enumerate() {
            let reader = Reader::new(input)?;
            let begin = reader.begin;
            let fits = match before {
                None => begin.parent == 0,
                Some(before) => begin.parent == before.backup && begin.database == before.database,
            };
            if !fits {
                return Err(RestoreError::Chain { index });
            }
            if begin.format != FORMAT_VERSION {
                return Err(RestoreError::Format { found: begin.format });
            }
            home_pages = home_pages.max(begin.home_pages);
            before = Some(begin);
            readers.push(reader);
        }
        match readers.is_empty() {
            true => Err(RestoreError::Chain { index: 0 }),
            false => Ok(Backups { readers, home_pages }),
        }
    }

    fn restore(&mut self, parts: &RestoreParts) -> Result<Restored, RestoreError> {
        // Pages far behind may be taken for what has no page yet, or are in the log alone.
        let (needed, bytes) = (self.home_pages * PAGE_SIZE as u64, parts.home.len());
        if bytes < needed {
            return Err(RestoreError::HomeTooSmall { bytes, needed });
        }
        let drawn = parts.identity.map_or_else(|| parts.world.unique_id(), Ok);
        let id = drawn.map_err(Error::device(crate::Part::Home, Action::Open))?;
        begin_home(&*parts.home)?;
        let mut home = HomeWriter::new(&*parts.home);
        let mut restored = None;
        let last = self.readers.len() - 1;
        for (index, reader) in self.readers.iter_mut().enumerate() {
            let mutations = parts.mutations;
            let log = (index == last).then_some((parts, id, mutations));
            restored = restore_one(reader, &mut home, log)?;
        }
        let (log, end) = restored.expect("the last one has a log");
        home.flush()?;
        parts.home.sync().map_err(Error::device(crate::Part::Home, Action::Sync))?;
        log.finish()?;
        let begin = self.readers[last].begin;
        superblock(&begin, &end, id, &*parts.home)?;
        let log_bytes = end.end.0 - end.log_start.0;
        let original = begin.database;
        Ok(Restored { id, original, pages: home.pages, log_bytes, end: end.end })
    }
}

/// W1: the text, durably.
fn begin_home(home: &dyn Device) -> Result<(), Error> {
    let failed = |action| Error::device(crate::Part::Home, action);
    let mut page = Aligned::zeroed(SUPERBLOCK_PAGES as usize * PAGE_SIZE);
    page[..UNFINISHED.len()].copy_from_slice(UNFINISHED);
    if home.len() < page.len() as u64 {
        return Err(Error::HOME_FULL);
    }
    write(home, 0, &page).map_err(failed(Action::Write))?;
    home.sync().map_err(failed(Action::Sync))
}

/// W1: the superblock, durably.
fn superblock(begin: &format::Begin, end: &End, id: u128, home: &dyn Device) -> Result<(), Error> {
    let boot = Superblock {
        database: id,
        sequence: 1,
        epoch: end.epoch,
        clean: false,
        oldest_dirty: end.checkpoint,
        oldest_txn: end.oldest_txn,
        begin_checkpoint: end.checkpoint,
        end_checkpoint: end.checkpoint_end,
        next_txn: end.next_txn,
        home_pages: home.len() / PAGE_SIZE as u64,
        oldest_base: end.checkpoint,
        flash: FlashMark::default(),
        log_from: LogFrom::Home,
        creation: Creation::Finished,
        features: begin.features,
    };
    boot.write(home)?;
    home.sync().map_err(Error::device(crate::Part::Home, Action::Sync))
}

/// Reads a backup to its end, with its log if it is the last one: that is then written, too.
fn restore_one<'p>(
    reader: &mut Reader<impl Read>,
    home: &mut HomeWriter<'_>,
    log: Option<(&'p RestoreParts, u128, Mutations)>,
) -> Result<Option<(LogWriter<'p>, End)>, RestoreError> {
    let mut writer: Option<LogWriter<'p>> = None;
    let (mut first, mut position) = (None, None);
    let old_salt = LogMap::salt_of(reader.begin.database);
    loop {
        let mut what = None;
        match reader.next_part()? {
            Part::Pages { first, pages } => {
                for (at, page) in pages.iter().enumerate() {
                    let id = first.plus(at as u64);
                    if id.0 < SUPERBLOCK_PAGES || verify(page, id).is_err() {
                        what = Some("a page is not what it should be");
                        break;
                    }
                    home.put(id, page)?;
                }
            }
            Part::Freed(bytes) => {
                for (id, lsn) in freed_in(bytes) {
                    if id.0 < SUPERBLOCK_PAGES {
                        what = Some("a page that is freed is none");
                        break;
                    }
                    home.put(id, &freed(id, lsn))?;
                }
            }
            Part::Log { position: at, records } => {
                first.get_or_insert(at);
                if position.is_some_and(|position| position != at) {
                    what = Some("a part of the log is missing");
                } else if !is_log(records, at, old_salt) {
                    what = Some("a record of the log is not what it should be");
                } else {
                    position = at.0.checked_add(records.len() as u64).map(Lsn);
                    if let Some((parts, id, mutations)) = log {
                        let writer = match &mut writer {
                            Some(writer) => writer,
                            None => writer.insert(LogWriter::new(parts, id, at)?),
                        };
                        writer.put(records, mutations)?;
                    }
                }
            }
            Part::End(end) if first == Some(end.log_start) && position == Some(end.end) => {
                return Ok(writer.map(|writer| (writer, end)));
            }
            Part::End(_) => what = Some("its log is not as long as its end says"),
        }
        if let Some(what) = what {
            return Err(reader.damaged(what));
        }
    }
}

/// Whether these bytes are records that follow each other from `at` on.
fn is_log(mut records: &[u8], at: Lsn, salt: u64) -> bool {
    let mut at = at;
    while !records.is_empty() {
        let whole = record::claimed_len(records).filter(|&len| len <= records.len());
        let Some(len) = whole else { return false };
        if record::verify(&records[..len], at, salt).is_none()
            || record::decode(&records[..len]).is_none()
        {
            return false;
        }
        let Some(next) = at.0.checked_add(len as u64) else { return false };
        (at, records) = (Lsn(next), &records[len..]);
    }
    true
}

/// What stands in for a page that is free, and newer than what the log may have of it (backup.U3).
fn freed(id: PageId, lsn: Lsn) -> PageBuf {
    let mut page: PageBuf = [0; PAGE_SIZE];
    set_kind(&mut page, PageKind::Free);
    set_page_id(&mut page, id);
    set_lsn(&mut page, lsn);
    seal(&mut page);
    page
}

/// Writes pages home, neighbours at once.
struct HomeWriter<'d> {
    home: &'d dyn Device,
    buffer: Aligned,
    first: PageId,
    waiting: usize,
    pages: u64,
}

impl<'d> HomeWriter<'d> {
    fn new(home: &'d dyn Device) -> HomeWriter<'d> {
        let buffer = Aligned::zeroed(RUN_PAGES * PAGE_SIZE);
        HomeWriter { home, buffer, first: PageId(0), waiting: 0, pages: 0 }
    }

    fn put(&mut self, id: PageId, page: &PageBuf) -> Result<(), Error> {
        if id.0 >= self.home.len() / PAGE_SIZE as u64 {
            return Err(Error::HOME_FULL);
        }
        if self.waiting == RUN_PAGES || self.first.plus(self.waiting as u64) != id {
            self.flush()?;
            self.first = id;
        }
        let at = self.waiting * PAGE_SIZE;
        self.buffer[at..at + PAGE_SIZE].copy_from_slice(page);
        self.waiting += 1;
        self.pages += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let bytes = &self.buffer[..std::mem::take(&mut self.waiting) * PAGE_SIZE];
        if bytes.is_empty() {
            return Ok(());
        }
        let written = write(self.home, self.first.0 * PAGE_SIZE as u64, bytes);
        written.map_err(|source| no_room(crate::Part::Home, source))
    }
}

/// A write that failed: since there is no room, or for another reason.
fn no_room(part: crate::Part, source: io::Error) -> Error {
    let is_full =
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    match part {
        crate::Part::Home if is_full => Error::HOME_FULL,
        part => Error::device(part, Action::Write)(source),
    }
}

/// Writes the records of a copy to its log.
struct LogWriter<'p> {
    device: &'p Arc<dyn Device>,
    new: NewLog,
    /// Position of the buffer's first byte, a multiple of `BLOCK`.
    base: u64,
    buffer: Aligned,
    filled: usize,
    at: Lsn,
}

impl<'p> LogWriter<'p> {
    fn new(parts: &'p RestoreParts, id: u128, first: Lsn) -> Result<LogWriter<'p>, Error> {
        let new = NewLog::new(&*parts.log, parts.log_shape, id, first)?;
        let base = first.0 / BLOCK as u64 * BLOCK as u64;
        let (buffer, filled) = (Aligned::zeroed(LOG_BYTES), (first.0 - base) as usize);
        Ok(LogWriter { device: &parts.log, new, base, buffer, filled, at: first })
    }

    /// Adds whole records, which were verified.
    fn put(&mut self, records: &[u8], mutations: Mutations) -> Result<(), Error> {
        let keeps = mutations.has(Mutation::RestoreKeepsBufWrites);
        let (mut records, salt) = (records.to_vec(), self.new.salt());
        let mut rest = &mut records[..];
        while rest.len() >= HEADER_BYTES {
            let len = record::claimed_len(rest).expect("verified");
            let (one, after) = rest.split_at_mut(len);
            record::reseal(one, self.at, salt, keeps);
            self.at = Lsn(self.at.0 + len as u64);
            rest = after;
        }
        let mut records = &records[..];
        while !records.is_empty() {
            let room = (LOG_BYTES - self.filled).min(records.len());
            self.buffer[self.filled..self.filled + room].copy_from_slice(&records[..room]);
            self.filled += room;
            records = &records[room..];
            if self.filled == LOG_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let bytes = self.filled.next_multiple_of(BLOCK);
        self.new.extend(&**self.device, Lsn(self.base + bytes as u64))?;
        for (range, at) in self.new.pieces(self.base, bytes) {
            let written = write(&**self.device, at, &self.buffer[range]);
            written.map_err(|source| no_room(crate::Part::Log, source))?;
        }
        self.base += bytes as u64;
        self.buffer.fill(0);
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left, and the header, durably.
    fn finish(mut self) -> Result<(), Error> {
        if self.filled > 0 {
            self.flush()?;
        }
        self.new.finish(&**self.device, self.at)
    }
}

/// Restores any bytes into nothing, also with their checksums made right.
pub(super) fn fuzz(bytes: &[u8]) {
    let mut input = bytes;
    let Ok(mut reader) = Reader::new(&mut input) else { return };
    let salt = LogMap::salt_of(reader.begin.database);
    loop {
        match reader.next_part() {
            Ok(Part::Pages { first, pages }) => {
                let ids = (0..).map(|at| first.plus(at));
                ids.zip(pages).for_each(|(id, page)| assert!(verify(page, id) == verify(page, id)));
            }
            Ok(Part::Log { position, records }) => drop(is_log(records, position, salt)),
            Ok(Part::Freed(bytes)) => {
                freed_in(bytes).for_each(|(id, lsn)| assert!(verify(&freed(id, lsn), id).is_ok()));
            }
            Ok(Part::End(_)) | Err(_) => return,
        }
    }
}
