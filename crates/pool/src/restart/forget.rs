//! Nothing is kept, and nothing believed (SSDBP) [S3 I].

use super::found::{ColdStart, Image, LogFacts, Place, Recover, ScanFrom};

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
