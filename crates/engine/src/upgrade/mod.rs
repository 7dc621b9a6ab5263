//! Databases of older formats, converted: all rows are read from the old home and loaded into a new
//! database, which is then read again and compared.

mod old;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use terrace_device::Device;

use self::old::{Old, OldTable};
use crate::dump::{LoadError, Loss, SaveError, Saved, State, TableLoad, Writer};
use crate::superblock::{self, Found};
use crate::{Builder, Database, Error, PageId};

/// Why a database could not be converted. It is as it was.
#[derive(Debug)]
pub enum UpgradeError {
    /// It is no database of an older format, nor of today's.
    NotOld,
    /// It has this format already: there is nothing to do.
    Todays {
        /// The format.
        version: u32,
    },
    /// It was not closed in good order: open and close it with the version that wrote it.
    NotClosed,
    /// Home lacks changes that are on flash and in the log. The version that wrote it brings them
    /// home.
    OnFlash,
    /// It cannot be opened.
    Old(Error),
    /// Its device failed.
    Read {
        /// The page that was to be read.
        page: PageId,
        /// What the device said.
        source: io::Error,
    },
    /// Stored bytes break their format. Restore it from a backup.
    Damaged {
        /// The page.
        page: PageId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A table cannot be written.
    Load(LoadError),
    /// The new database cannot be made, or be opened.
    New(Error),
    /// The new database is not what the old one was: throw it away.
    Differs,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpgradeError::NotOld => f.write_str(
                "it is no database of format 1 or 2, nor of a later one: check the path",
            ),
            UpgradeError::Todays { version } => write!(f, "it has format {version} already"),
            UpgradeError::NotClosed => f.write_str(
                "it was not closed in good order: open and close it first with the version of \
                 terrace that wrote it (its `terrace check` does)",
            ),
            UpgradeError::OnFlash => f.write_str(
                "its home lacks changes that its flash tier or its log has: open it first with \
                 the version of terrace that wrote it, take a sharp checkpoint, and close it \
                 (where flash is only a cache, its `terrace check` without the flash tier does)",
            ),
            UpgradeError::Old(source) => write!(f, "it cannot be opened: {source}"),
            UpgradeError::Read { page, source } => write!(f, "{page} cannot be read: {source}"),
            UpgradeError::Damaged { page, what } => {
                write!(f, "{page} is corrupt: {what}; restore it from a backup")
            }
            UpgradeError::Load(source) => source.fmt(f),
            UpgradeError::New(source) => write!(f, "the new database: {source}"),
            UpgradeError::Differs => f.write_str("the new database is not what the old one was"),
        }
    }
}

impl std::error::Error for UpgradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            UpgradeError::Old(source) | UpgradeError::New(source) => Some(source),
            UpgradeError::Load(source) => Some(source),
            UpgradeError::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The format that it had.
    pub version: u32,
    /// Tables.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
}

/// Counts and checksums what is written.
#[derive(Default, PartialEq, Eq)]
struct Digest {
    bytes: u64,
    checksum: u32,
}

impl Write for &mut Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The format version of the older database at `path`, which is only looked at.
///
/// # Errors
///
/// As those of [`upgrade`] about the old database: `Todays` if it has today's format.
pub fn old_version(builder: &Builder, path: &Path) -> Result<u32, UpgradeError> {
    let home = builder.home_read_only(path).map_err(UpgradeError::Old)?;
    match Old::open(Arc::clone(&home))? {
        Some(old) => Ok(old.version),
        None => Err(not_old(&*home)),
    }
}

/// Converts the database of format 1 or 2 at `old` to a new one at `new`, which `builder` makes.
/// The old one is only read. After an error the new one, if there is any, is of no use.
///
/// # Errors
///
/// See [`UpgradeError`].
pub fn upgrade(builder: Builder, old: &Path, new: &Path) -> Result<Upgraded, UpgradeError> {
    let home = builder.home_read_only(old).map_err(UpgradeError::Old)?;
    let old = match Old::open(Arc::clone(&home))? {
        Some(old) => old,
        None => return Err(not_old(&*home)),
    };
    let database = builder.clone().create(new).map_err(UpgradeError::New)?;
    let mut digest = Digest::default();
    let upgraded = convert(&old, &database, &mut digest)?;
    database.check().map_err(UpgradeError::New)?;
    database.close().map_err(UpgradeError::New)?;
    verify(builder, new, &digest)?;
    Ok(upgraded)
}

/// What is there instead of a database of an older format.
fn not_old(home: &dyn Device) -> UpgradeError {
    match superblock::find(home) {
        Ok(Found::Database(..)) => UpgradeError::Todays { version: superblock::FORMAT_VERSION },
        Err(error @ Error::NewerFormat { .. }) => UpgradeError::Old(error),
        _ => UpgradeError::NotOld,
    }
}

fn convert(old: &Old, database: &Database, to: &mut Digest) -> Result<Upgraded, UpgradeError> {
    let mut upgraded = Upgraded { version: old.version, tables: 0, rows: 0 };
    let memory = |_| UpgradeError::Differs;
    let mut writer = Writer::new(to).map_err(memory)?;
    for table in old.tables()? {
        let OldTable { info, .. } = &table;
        writer.table(info).map_err(memory)?;
        let mut load = TableLoad::begin(database, info).map_err(UpgradeError::Load)?;
        old.rows(&table, &mut |key, value| {
            upgraded.rows += 1;
            writer.row(key, value).map_err(memory)?;
            load.row(key, value).map_err(UpgradeError::Load)
        })?;
        load.finish().map_err(UpgradeError::Load)?;
        writer.end_table(State::Whole).map_err(memory)?;
        upgraded.tables += 1;
    }
    writer.finish(State::Whole).map_err(memory)?;
    Ok(upgraded)
}

/// Opens the new database and compares all that it has.
fn verify(builder: Builder, new: &Path, expected: &Digest) -> Result<(), UpgradeError> {
    let saved = Saved::open(builder, new).map_err(UpgradeError::New)?;
    let mut found = Digest::default();
    let mut losses = saved.losses().len();
    let dumped = saved.dump(&[], &mut found, &mut |_: &Loss| losses += 1);
    match dumped {
        Ok(_) if losses == 0 && found == *expected => Ok(()),
        Ok(_) | Err(SaveError::Output(_) | SaveError::NoSuchTable(_) | SaveError::Lost) => {
            Err(UpgradeError::Differs)
        }
    }
}
