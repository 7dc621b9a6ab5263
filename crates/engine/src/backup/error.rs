//! Why a backup or a restore ended early.

use std::fmt;
use std::io;

use crate::Error;
use crate::backup::format::BACKUP;
use crate::frames::FrameError;

/// Why there is no backup. What was written of it is recognized as cut short.
#[derive(Debug)]
#[non_exhaustive]
pub enum BackupError {
    /// Writing it failed: make room, or choose another place.
    Output(io::Error),
    /// Another backup of the database runs. Wait for its end.
    Busy,
    /// The log was full while the backup still had to copy a part of it, or pages were written past
    /// the log faster than they could be copied: writers do not wait for a backup. Write it to
    /// something faster, or open the database with a larger
    /// [`Builder::log_max`](crate::Builder::log_max).
    Behind,
    /// The backup to stand upon is of another database, or of a later moment than this database.
    /// Take a whole backup.
    Foreign,
    /// The database failed: `Corrupt` names a page that is damaged.
    Database(Error),
}

impl From<Error> for BackupError {
    fn from(error: Error) -> BackupError {
        BackupError::Database(error)
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Output(source) => write!(f, "the backup cannot be written: {source}"),
            BackupError::Busy => {
                f.write_str("another backup of this database runs: wait until it has ended")
            }
            BackupError::Behind => f.write_str(
                "the backup fell behind the writers, which do not wait for it: write it to \
                 something faster, raise its rate, or open the database with a larger log_max",
            ),
            BackupError::Foreign => f.write_str(
                "the backup to stand upon is of another database, or of a later moment than this \
                 one: take a whole backup",
            ),
            BackupError::Database(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for BackupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BackupError::Output(source) => Some(source),
            BackupError::Database(source) => Some(source),
            BackupError::Busy | BackupError::Behind | BackupError::Foreign => None,
        }
    }
}

/// Why nothing was restored. Files that were made are removed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RestoreError {
    /// Reading the backup failed.
    Input(io::Error),
    /// It is something else.
    NotABackup,
    /// It was written by a newer version. Use that one.
    Newer {
        /// The version found.
        found: u32,
    },
    /// It is of a database of another format. Restore it with the version that wrote it.
    Format {
        /// The format found.
        found: u32,
    },
    /// It ends before its end. Copy it again, or use an older one.
    Cut {
        /// How many bytes there are.
        at: u64,
    },
    /// Its bytes are not what was written. Copy it again, or use an older one.
    Damaged {
        /// Where the frame begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The backups do not stand upon each other: the first must be whole, and each other one must
    /// be made upon the one before.
    Chain {
        /// Which of them, counted from zero, does not fit.
        index: usize,
    },
    /// The home that was asked for has less room than that of the original. Restore it to one that
    /// has as much; a smaller one is made by a dump, and a load of that.
    HomeTooSmall {
        /// Bytes of the home.
        bytes: u64,
        /// Bytes of that of the original.
        needed: u64,
    },
    /// The new database cannot be written.
    Database(Error),
}

impl From<Error> for RestoreError {
    fn from(error: Error) -> RestoreError {
        RestoreError::Database(error)
    }
}

impl From<FrameError> for RestoreError {
    fn from(error: FrameError) -> RestoreError {
        match error {
            FrameError::Io(source) => RestoreError::Input(source),
            FrameError::Foreign => RestoreError::NotABackup,
            FrameError::Newer { found } => RestoreError::Newer { found },
            FrameError::Cut { at } => RestoreError::Cut { at },
            FrameError::Damaged { at, what } => RestoreError::Damaged { at, what },
        }
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Input(source) => write!(f, "the backup cannot be read: {source}"),
            RestoreError::NotABackup => f.write_str("it is no backup of a database"),
            RestoreError::Newer { found } => write!(
                f,
                "the backup has version {found}, this version reads up to {}: use a newer one",
                BACKUP.version
            ),
            RestoreError::Format { found } => write!(
                f,
                "the backup is of a database of format {found}: restore it with the version of \
                 terrace that wrote it"
            ),
            RestoreError::Cut { at } => write!(
                f,
                "the backup ends too early, after {at} bytes: copy it again, or use an older one"
            ),
            RestoreError::Damaged { at, what } => write!(
                f,
                "the backup is damaged at byte {at}: {what}; copy it again, or use an older one"
            ),
            RestoreError::Chain { index } => write!(
                f,
                "backup {} does not stand upon the one before: give a whole one first, then all \
                 that were made upon it, each upon the one before",
                index + 1
            ),
            RestoreError::HomeTooSmall { bytes, needed } => write!(
                f,
                "the home has {bytes} bytes, and that of the original {needed}: restore it with a \
                 home of that size; `terrace dump` and `terrace load` make a smaller one"
            ),
            RestoreError::Database(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for RestoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RestoreError::Input(source) => Some(source),
            RestoreError::Database(source) => Some(source),
            _ => None,
        }
    }
}
