//! Nothing is kept, and nothing believed (SSDBP) [S3 I].

use std::io;
use std::sync::Arc;

use super::keeper::Keeper;
use super::recover::{ColdStart, LogFacts, Place, Recover, ScanFrom};
use super::site::{Site, TableError};
use terrace_tier::Image;

/// A table that is not there.
pub(super) struct Nothing;

impl Recover for Nothing {
    fn load(&mut self, _place: &Place<'_>, _journal: u64) -> Result<(), ColdStart> {
        Err(ColdStart::Forget)
    }

    fn scan_from(&self) -> ScanFrom {
        ScanFrom::OldestDirty
    }

    fn settle(&mut self, _place: &Place<'_>, _facts: &LogFacts<'_>) -> Result<(), ColdStart> {
        Ok(())
    }

    fn image(&self, _slot: u32) -> Option<Image> {
        None
    }
}

/// The keeper of a device whose header could not be written: it says so at each checkpoint, and
/// home then names no flash device.
pub(super) struct Disowned;

impl Keeper for Disowned {
    fn checkpoint(&self, _site: &dyn Site) -> Result<u64, TableError> {
        Err(not_written("the header"))
    }
}

/// Why home is to forget the device at a checkpoint.
pub(super) fn not_written(what: &str) -> TableError {
    let source = Arc::new(io::Error::other(format!("{what} of the flash device is not written")));
    TableError::Flash { source }
}
