//! Why the pool could not do what it was asked: one variant for each thing a caller can do.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use terrace_device::{Device, DeviceError, Operation};
use terrace_page::{Damage, PAGE_SIZE, PageId};

/// A place where pages live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Frames in memory.
    Memory,
    /// Slots on the flash device.
    Flash,
    /// The permanent place of every page.
    Home,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Memory => "memory",
            Tier::Flash => "flash",
            Tier::Home => "home",
        })
    }
}

/// Why the pool takes no more changes.
#[derive(Debug)]
pub struct Stop {
    /// The tier whose device failed.
    pub tier: Tier,
    /// The name of that device.
    pub device: String,
    /// What it was asked.
    pub operation: Operation,
    /// The first page of the request, if it was one for pages at home.
    pub page: Option<PageId>,
    /// What it said.
    pub source: io::Error,
}

impl Stop {
    /// `device`, of `tier`, has failed `operation`, or what it says that it has failed.
    pub(crate) fn new(
        tier: Tier,
        device: &dyn Device,
        operation: Operation,
        source: io::Error,
    ) -> Stop {
        let told = DeviceError::of(&source);
        let operation = told.map_or(operation, |told| told.operation);
        let range = told.and_then(|told| told.range).filter(|_| tier == Tier::Home);
        let page = range.map(|(offset, _)| PageId(offset / PAGE_SIZE as u64));
        Stop { tier, device: device.name(), operation, page, source }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stop { tier, device, operation, source, .. } = self;
        write!(f, "the {tier} device {device} failed to {operation}: {source}")
    }
}

impl Error for Stop {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Why an operation of the pool failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// No frame could be freed: too many pages are latched at once. Drop a guard, or give more
    /// memory.
    AllPinned,
    /// The stored bytes are not the page. Recover it from the log, or restore it from a backup.
    Damaged {
        /// Where the bytes came from.
        tier: Tier,
        /// The page that was asked for.
        page: PageId,
        /// How the bytes differ from a page.
        damage: Damage,
    },
    /// The log does not fit the page that it should bring up to date. Restore from a backup.
    Redo {
        /// The page.
        page: PageId,
        /// How they do not fit.
        what: &'static str,
    },
    /// A device failed to read. Try again, or replace it.
    Read {
        /// Which device.
        tier: Tier,
        /// The page that was asked for.
        page: PageId,
        /// What the device said.
        source: Arc<io::Error>,
    },
    /// A device failed a write or a sync that the pool cannot do without, and may have lost writes:
    /// the pool takes no more changes. Reopen the database, to recover.
    Stopped {
        /// The first cause: a [`Stop`], or what the journal has made of it.
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// The log could not be written. Reopen the database, to recover.
    Journal {
        /// What the log said.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The page lies beyond the end of home, or of what a page number can be. Grow the home device.
    OutOfRange {
        /// The page that was asked for.
        page: PageId,
    },
    /// The system has no memory for this number of frames. Ask for fewer.
    NoMemory,
    /// The configuration cannot work. Change the value named.
    Config {
        /// The value.
        option: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::AllPinned => f.write_str("every frame of the memory pool is in use"),
            PoolError::Damaged { tier, page, damage } => {
                write!(f, "{page} read from {tier} is damaged: ")?;
                match damage {
                    Damage::Blank => f.write_str("never written"),
                    Damage::Checksum => f.write_str("wrong checksum"),
                    Damage::WrongPage { found } => write!(f, "it is {found}"),
                    Damage::Version => f.write_str("it is another version of the page"),
                }
            }
            PoolError::Redo { page, what } => write!(f, "{page} cannot be redone: {what}"),
            PoolError::Read { tier, page, source } => {
                write!(f, "{page} cannot be read from {tier}: {source}")
            }
            PoolError::Stopped { cause } => write!(f, "writes are stopped: {cause}"),
            PoolError::Journal { source } => write!(f, "the log cannot be written: {source}"),
            PoolError::OutOfRange { page } => write!(f, "{page} lies beyond the end of home"),
            PoolError::NoMemory => f.write_str("the system has no memory for so many frames"),
            PoolError::Config { option, what } => {
                write!(f, "bad pool configuration: {option}: {what}")
            }
        }
    }
}

impl Error for PoolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            PoolError::Read { source, .. } => Some(&**source),
            PoolError::Stopped { cause } => Some(&**cause),
            PoolError::Journal { source } => Some(&**source),
            _ => None,
        }
    }
}
