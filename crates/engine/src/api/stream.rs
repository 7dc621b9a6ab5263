//! Large values in parts: written as they come, read where they are wanted.
//!
//! - S1: a value of `HOME_FIRST_MIN` bytes or more is written home before its record is; a shorter
//!   one is put as a whole when its writer is finished.
//! - S2: no transaction sees what a writer has written before it is finished.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use crate::api::core::Core;
use crate::btree::{HOME_FIRST_MIN, Put, RAW_DATA, Stored, Tree, Unfinished, VALUE_MAX};
use crate::context::Context;
use crate::writer::Step;
use crate::{Error, LockMode};

/// Puts an encoded value, home first if it is large.
pub(super) fn put(
    core: &Core,
    tree: &Tree,
    (key, value): (&[u8], &[u8]),
    put: Put,
    mut old: Option<&mut Vec<u8>>,
) -> Result<bool, Error> {
    if value.len() > VALUE_MAX {
        core.run(|_| tree.check_sizes(key, value))?;
    }
    if value.len() < HOME_FIRST_MIN {
        return core.change_with_space(key.len() + value.len(), |context| {
            tree.put(context, key, value, put, old.as_deref_mut())
        });
    }
    if put != Put::Upsert
        && let Some(existed) = decided(core, tree, key, put)?
    {
        return Ok(existed);
    }
    // Before it is written.
    core.run(|_| tree.check_sizes(key, &[]))?;
    let mut unfinished = begin(core, tree)?;
    write(core, tree, &mut unfinished, value, value.len())?;
    finish(core, tree, &mut unfinished)?;
    core.change_with_space(key.len(), |context| {
        tree.put_finished(context, key, &unfinished, put, old.as_deref_mut())
    })
}

/// Whether the key is there, if that shows that nothing is to be written: so no large value is
/// written for nothing.
fn decided(core: &Core, tree: &Tree, key: &[u8], put: Put) -> Result<Option<bool>, Error> {
    let is_for_nothing = |is_there: bool| is_there == (put == Put::InsertNew);
    // Without a lock that others would meet, if the value is to be written after all.
    let seen = core.run(|context| {
        context.without_locks(|context| tree.find(context, key, LockMode::Shared))
    })?;
    if !matches!(seen, Step::Done(found) if is_for_nothing(found.is_some())) {
        return Ok(None);
    }
    let is_there = core.read(|context| tree.find(context, key, LockMode::Shared))?.is_some();
    Ok(is_for_nothing(is_there).then_some(is_there))
}

/// The table is locked as for writing some of its rows: a check, which reads all of its pages,
/// waits for the transaction, and it for the check.
fn begin(core: &Core, tree: &Tree) -> Result<Unfinished, Error> {
    core.run(|context| context.lock_to_write(tree.id()))?;
    let begin = |context: &mut Context| tree.begin_runs(context).map(Step::Done);
    core.change_with_space(HOME_FIRST_OPERATION, begin)
}

/// What is reserved beside what any operation reserves: enough for it to wait for the reclaim task,
/// like others that put large values.
const HOME_FIRST_OPERATION: usize = 4 << 10;

/// Writes `bytes`, all of them. `hint` is how many will come, these included.
fn write(
    core: &Core,
    tree: &Tree,
    unfinished: &mut Unfinished,
    bytes: &[u8],
    hint: usize,
) -> Result<(), Error> {
    let mut at = 0;
    while at < bytes.len() {
        at += core.change_with_space(0, |context| {
            let hint = (hint - at) as u64;
            tree.write_runs(context, unfinished, &bytes[at..], hint).map(Step::Done)
        })?;
    }
    Ok(())
}

fn finish(core: &Core, tree: &Tree, unfinished: &mut Unfinished) -> Result<(), Error> {
    core.change(0, |context| tree.finish_runs(context, unfinished).map(Step::Done))
}

/// Writes a value as its bytes come: [`Table::writer`](crate::Table::writer) begins it. The value
/// may be larger than memory: a MiB of it is in memory at a time, and the log has only where it is.
///
/// No transaction sees anything of the value before [`ValueWriter::finish`]. A writer that is
/// dropped before that leaves nothing behind: its space is free again once its transaction has
/// ended. A savepoint that is rolled back to changes nothing of a value that is not finished.
///
/// [`Database::write`](crate::Database::write) may run its closure again: one that copies from a
/// reader must begin at its beginning then. A transaction of
/// [`Database::begin_write`](crate::Database::begin_write) is never run again.
///
/// # Examples
///
/// ```
/// use std::io::Write;
/// use terrace::TableDef;
/// # let db = terrace::doc_test::database();
/// const FILES: TableDef<&str, &[u8]> = TableDef::new("files");
/// db.write(|txn| {
///     let mut files = txn.open_table(FILES)?;
///     let mut writer = files.writer("zeroes")?;
///     for _ in 0..300 {
///         writer.write_all(&[0; 8_000])?;
///     }
///     Ok::<_, Box<dyn std::error::Error>>(writer.finish()?)
/// })?;
/// let txn = db.begin_read()?;
/// assert_eq!(txn.open_table(FILES)?.reader("zeroes")?.expect("there").len(), 2_400_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueWriter<'t> {
    core: &'t Core,
    tree: Arc<Tree>,
    name: &'t str,
    key: Vec<u8>,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    unfinished: Option<Unfinished>,
    /// An error after which it isn't known how much of what was pushed is in the value.
    failed: Option<Error>,
}

impl<'t> ValueWriter<'t> {
    pub(super) fn new(
        core: &'t Core,
        tree: &Arc<Tree>,
        name: &'t str,
        key: Vec<u8>,
    ) -> ValueWriter<'t> {
        let tree = Arc::clone(tree);
        ValueWriter { core, tree, name, key, buffer: Vec::new(), unfinished: None, failed: None }
    }

    /// Bytes that were written so far.
    pub fn len(&self) -> u64 {
        self.buffer.len() as u64 + self.unfinished.as_ref().map_or(0, Unfinished::len)
    }

    /// Whether nothing was written so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `bytes` to the value. The same as its `Write`, with this library's errors.
    ///
    /// # Errors
    ///
    /// Those of `Table::insert`. After one, but `ValueTooLong`, the writer returns it again, and
    /// cannot be finished.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.check_failed()?;
        let len = self.len() + bytes.len() as u64;
        if len > VALUE_MAX as u64 {
            let too_long =
                Error::ValueTooLong { table: self.tree.id().into(), len, max: VALUE_MAX as u64 };
            return Err(self.core.explain(too_long));
        }
        self.take(bytes).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn check_failed(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let room = HOME_FIRST_MIN - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == HOME_FIRST_MIN {
                self.spill(HOME_FIRST_MIN / RAW_DATA * RAW_DATA)?;
            }
        }
        Ok(())
    }

    /// Writes the first `len` bytes of the buffer.
    fn spill(&mut self, len: usize) -> Result<(), Error> {
        self.core.check_table(&self.tree, self.name)?;
        let unfinished = match &mut self.unfinished {
            Some(unfinished) => unfinished,
            None => self.unfinished.insert(begin(self.core, &self.tree)?),
        };
        write(self.core, &self.tree, unfinished, &self.buffer[..len], len)?;
        self.buffer.drain(..len);
        Ok(())
    }

    /// The value is complete: puts it at its key, in place of the one that was there.
    ///
    /// # Errors
    ///
    /// Those of `Table::insert`, and that of a `push` before.
    pub fn finish(mut self) -> Result<(), Error> {
        self.check_failed()?;
        self.core.check_table(&self.tree, self.name)?;
        self.core.emptied.borrow_mut().put(self.tree.id(), &self.key);
        if self.unfinished.is_none() {
            let entry = (&self.key[..], &self.buffer[..]);
            return put(self.core, &self.tree, entry, Put::Upsert, None).map(|_| ());
        }
        self.spill(self.buffer.len())?;
        let Some(unfinished) = &mut self.unfinished else { unreachable!("checked above") };
        finish(self.core, &self.tree, unfinished)?;
        let (tree, key) = (&self.tree, &self.key);
        let put = |context: &mut _| tree.put_finished(context, key, unfinished, Put::Upsert, None);
        self.core.change_with_space(key.len(), put).map(|_| ())
    }
}

impl Write for ValueWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    /// Does nothing: a value is not there before it is finished, nor durable before its commit.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ValueWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWriter").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Reads a value in parts, from any place: [`Table::reader`](crate::Table::reader) makes it. It
/// shows the value as it was then, whatever its transaction does to it meanwhile.
///
/// From large values (a MiB and more, unless a bulk load has put them) only what is asked for is
/// read, wherever it is. From others, what lies before it is read, too.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Seek, SeekFrom};
/// use terrace::TableDef;
/// # let db = terrace::doc_test::database();
/// const FILES: TableDef<&str, &[u8]> = TableDef::new("files");
/// db.write(|txn| txn.open_table(FILES)?.insert("nines", &[9; 2_000_000]))?;
/// let txn = db.begin_read()?;
/// let mut reader = txn.open_table(FILES)?.reader("nines")?.expect("just inserted");
/// let mut bytes = [0; 16];
/// reader.seek(SeekFrom::End(-16))?;
/// reader.read_exact(&mut bytes)?;
/// assert_eq!(bytes, [9; 16]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueReader<'t> {
    core: &'t Core,
    tree: Arc<Tree>,
    value: Stored,
    position: u64,
}

impl<'t> ValueReader<'t> {
    /// Of the value of `key`, if there is one.
    pub(super) fn find(
        core: &'t Core,
        tree: &Arc<Tree>,
        key: &[u8],
    ) -> Result<Option<ValueReader<'t>>, Error> {
        let found = core.read(|context| tree.find(context, key, LockMode::Shared))?;
        let tree = Arc::clone(tree);
        Ok(found.map(|value| ValueReader { core, tree, value, position: 0 }))
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        self.value.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes from `at` on; returns how many there were: fewer than asked for
    /// only at the end of the value.
    ///
    /// # Errors
    ///
    /// As `Table::get`.
    pub fn read_at(&mut self, at: u64, out: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < out.len() {
            let (tree, value) = (&self.tree, &mut self.value);
            let more = self.core.run(|_| {
                let mut to = filled;
                tree.read_stored(
                    value,
                    at.saturating_add(filled as u64),
                    out.len() - filled,
                    |bytes| {
                        out[to..to + bytes.len()].copy_from_slice(bytes);
                        to += bytes.len();
                    },
                )
            })?;
            if more == 0 {
                break;
            }
            filled += more as usize;
        }
        Ok(filled)
    }
}

impl Read for ValueReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, out).map_err(io::Error::other)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for ValueReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.len(), by),
            SeekFrom::Current(by) => (self.position, by),
        };
        self.position = from.checked_add_signed(by).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a place before the value's first byte")
        })?;
        Ok(self.position)
    }
}

impl fmt::Debug for ValueReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, position) = (self.len(), self.position);
        f.debug_struct("ValueReader").field("len", &len).field("position", &position).finish()
    }
}
