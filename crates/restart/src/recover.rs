//! What an opening asks the table of a restart, whichever restart keeps it: to read what is on
//! flash, to be shown the log, and to drop what the log contradicts.

use std::fmt;
use std::io;

use terrace_device::Device;
use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId};
use terrace_page_io::{PageIo, run_beside};
use terrace_tier::Image;

use super::layout::FlashLayout;
use super::warm::Resume;

/// Fewer frames than this in a partition are too few for the latches that tasks hold at once: a
/// pool with less memory cannot be divided as the tier on flash is.
pub const PARTITION_FRAMES_MIN: u32 = 64;

/// Why the tier starts cold. One line for the caller that opened the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColdStart {
    /// There is no flash device.
    NoDevice,
    /// The restart method is `forget`.
    Forget,
    /// The device is new: its header is all zeroes.
    Blank,
    /// The header is damaged or missing.
    Header,
    /// The device has the format of another version.
    Version,
    /// It belongs to another database.
    OtherDatabase,
    /// The database was used without this device since, or the device with another copy of the
    /// database.
    OtherSession,
    /// Its table was kept by another restart method.
    OtherRestart,
    /// It had another number of slots.
    OtherShape,
    /// It is divided into this many partitions, for which the memory is too small.
    Partitions(u32),
    /// The table, or its journal, is damaged or incomplete.
    Table,
    /// In the last session its table could not be written any more.
    GivenUp,
    /// It has pages that are newer than the end of the log.
    LogLost,
    /// Opening failed with it, and succeeded without it.
    Contradicted,
    /// The file had been truncated, and was created anew.
    CutShort,
    /// The label at its end is damaged, by which a flash tier is recognized.
    Label,
    /// The database was opened without `FlashRole::Persistent`.
    NotPersistent,
    /// Its file system has no room for it.
    NoRoom,
    /// The device could not be read or written.
    Device(io::ErrorKind),
}

impl fmt::Display for ColdStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            ColdStart::NoDevice => "there is no flash device",
            ColdStart::Forget => "the restart is `forget`",
            ColdStart::Blank => "the flash device is new",
            ColdStart::Header => "the flash device has no whole header",
            ColdStart::Version => "the flash device has the format of another version",
            ColdStart::OtherDatabase => "the flash device belongs to another database",
            ColdStart::OtherSession => {
                "the flash device is not what this database used last, or is of an older day"
            }
            ColdStart::OtherRestart => "the flash device was kept for another restart",
            ColdStart::OtherShape => "the flash tier had another size",
            ColdStart::Partitions(found) => {
                let memory = u64::from(*found) * u64::from(PARTITION_FRAMES_MIN) * PAGE_SIZE as u64;
                let memory = memory >> 10;
                return write!(
                    f,
                    "the flash tier has {found} partitions, for {memory} KiB of memory"
                );
            }
            ColdStart::Table => "the table of the flash tier is damaged",
            ColdStart::GivenUp => "the table of the flash tier could not be written",
            ColdStart::LogLost => "the flash tier is newer than the log, which has lost its end",
            ColdStart::Contradicted => "home and log contradict what the flash tier holds",
            ColdStart::CutShort => "the flash file was cut short",
            ColdStart::Label => "the label at the end of the flash is damaged",
            ColdStart::NotPersistent => "the database was not opened with persistent flash",
            ColdStart::NoRoom => "the file system of the flash has no room for it",
            ColdStart::Device(kind) => return write!(f, "the flash device failed: {kind}"),
        };
        f.write_str(why)
    }
}

/// Where analysis must begin for the tier to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFrom {
    /// At the oldest change that home may lack, or the last checkpoint: as without flash.
    OldestDirty,
    /// At the first record that is kept [sources.D11].
    LogStart,
    /// At the oldest change that neither home nor the flash has.
    OldestBase,
}

/// What analysis knows of the log when it is done.
pub struct LogFacts<'a> {
    /// Where the log begins: truncationLSN.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// The dirty entry of a page: the first change that home may lack, and the last.
    pub dirty: &'a dyn Fn(PageId) -> Option<(Lsn, Lsn)>,
    /// The oldest version that the records to be redone of a page can be applied to, if some are.
    pub redo_base: &'a dyn Fn(PageId) -> Option<Lsn>,
}

/// The table of one restart while the database is opened.
pub(super) trait Recover: Send + Sync {
    /// Reads the table. `journal` is the position that home names.
    fn load(&mut self, place: &Place<'_>, journal: u64) -> Result<(), ColdStart>;
    /// Where analysis begins.
    fn scan_from(&self) -> ScanFrom;
    /// The log has a change of `page`.
    fn updated(&mut self, _page: PageId, _lsn: Lsn) {}
    /// The log says that home has `page` with every change up to `eol`.
    fn written(&mut self, _page: PageId, _eol: Lsn) {}
    /// The log has a BEGIN_CHKPT at `lsn`.
    fn checkpoint_began(&mut self, _lsn: Lsn) {}
    /// The log has a record of the tier's own.
    fn record(&mut self, _lsn: Lsn, _payload: &[u8]) {}
    /// Drops what the log contradicts. Reads the slots if it must.
    fn settle(&mut self, place: &Place<'_>, facts: &LogFacts<'_>) -> Result<(), ColdStart>;
    /// What is believed of slot `slot`.
    fn image(&self, slot: u32) -> Option<Image>;
    /// The policies' clock when the table was written, if it says so.
    fn clock(&self) -> Option<u64> {
        None
    }
    /// Where the journal goes on, for the restart that has one.
    fn resume(&self) -> Option<Resume> {
        None
    }
}

/// A flash device and its layout.
pub(super) struct Place<'a> {
    pub flash: &'a dyn Device,
    pub layout: FlashLayout,
    /// The stamp of the cold start at which the table was begun.
    pub table: u64,
    /// Whether the database was closed in good order.
    pub clean: bool,
    /// Where the last checkpoint that ended began.
    pub began: Lsn,
}

impl Place<'_> {
    /// Reads pages of the device from page `first` on.
    pub fn read(&self, first: u64, pages: &mut [PageBuf]) -> Result<(), ColdStart> {
        self.read_beside(first, pages, || ())
    }

    /// As `read`, with `work` done meanwhile.
    pub fn read_beside<T>(
        &self,
        first: u64,
        pages: &mut [PageBuf],
        work: impl FnOnce() -> T,
    ) -> Result<T, ColdStart> {
        const PAGES_PER_IO: usize = 64;
        let ios = pages.chunks_mut(PAGES_PER_IO).enumerate();
        let ios = ios.map(|(at, pages)| PageIo::read(first + (at * PAGES_PER_IO) as u64, pages));
        let (done, read) = run_beside(self.flash, ios.collect(), work);
        read.map(|()| done).map_err(|error| ColdStart::Device(error.kind()))
    }
}
