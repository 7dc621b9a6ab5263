//! What opening found on the flash device, and what the log says of it.
//!
//! The engine holds a [`FlashRecovery`] from its first look at the device until the pool is opened:
//! it stamps the device, reads the table, shows it the log, and hands it to the pool.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use terrace_device::{Device, write};
use terrace_page::{Lsn, PAGE_SIZE, PageId};
use terrace_policy::RestartKind;

pub use terrace_tier::Image;

use super::header::{Header, Looked, SECTOR_BYTES};
use super::layout::FlashLayout;
use super::settings::Settings;
use super::warm::Resume;
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};

/// Fewer frames than this in a partition are too few for the latches that tasks hold at once: a
/// pool with less memory cannot be divided as the tier on flash is.
pub const PARTITION_FRAMES_MIN: u32 = 64;

/// Why the tier starts cold. One line for whoever opened the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColdStart {
    /// There is no flash device.
    NoDevice,
    /// The restart is `forget`.
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
    /// Its table was kept by another restart.
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

/// Whether a database can be opened without what is on its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashNeed {
    /// The log has all that home lacks.
    Optional,
    /// Flash has what neither home nor the log has. A device that cannot be believed is left as it
    /// is: it may be the right one, and whole the next time.
    Needed,
}

/// The flash tier between the first look at its device and the opening of the pool.
pub struct FlashRecovery {
    layout: FlashLayout,
    header: Header,
    cold: Option<ColdStart>,
    clean: bool,
    began: Lsn,
    is_disowned: bool,
    need: FlashNeed,
    table: Box<dyn Recover>,
}

impl FlashRecovery {
    /// Looks at the header on `flash`. `database` and `known` are what home says: the id, and the
    /// stamps that it accepts, of which zero is none; `clean`, whether the database was closed.
    /// Where flash is needed, the tier is not to be used if it then is [`FlashRecovery::cold`].
    #[must_use]
    pub fn look(
        settings: &Settings,
        flash: &dyn Device,
        database: u128,
        known: [u64; 2],
        (clean, need): (bool, FlashNeed),
    ) -> FlashRecovery {
        let kind = settings.kind;
        let layout = FlashLayout::new(settings.slots, kind);
        let (slots, partitions) = (settings.slots, settings.partitions);
        let is_part = settings.role.is_persistent();
        let wanted =
            Header { database, stamp: 0, table: 0, slots, partitions, restart: kind, is_part };
        let (header, cold) = match judge(flash, &wanted, known) {
            Ok(found) => {
                let header = Header { is_part, ..found };
                let cold = match kind {
                    RestartKind::Forget => Some(ColdStart::Forget),
                    // A cache uses slots again before its table says so: not all that it names is
                    // there. The log has it.
                    _ if is_part && !found.is_part => Some(ColdStart::NotPersistent),
                    _ => None,
                };
                (header, cold)
            }
            Err(cold) => (wanted, Some(cold)),
        };
        let table = super::table_of(kind, layout, settings);
        let began = Lsn::ZERO;
        FlashRecovery { layout, header, cold, clean, began, is_disowned: false, need, table }
    }

    /// There is no flash device.
    #[must_use]
    pub fn nothing(settings: &Settings) -> FlashRecovery {
        let (slots, kind) = (0, settings.kind);
        let layout = FlashLayout::new(slots, kind);
        let (database, partitions) = (0, settings.partitions);
        let header = Header {
            database,
            stamp: 0,
            table: 0,
            slots,
            partitions,
            restart: kind,
            is_part: false,
        };
        let table = super::table_of(RestartKind::Forget, layout, settings);
        FlashRecovery {
            layout,
            header,
            cold: Some(ColdStart::NoDevice),
            clean: false,
            began: Lsn::ZERO,
            is_disowned: false,
            need: FlashNeed::Optional,
            table,
        }
    }

    /// The stamp that the device has and home accepts; zero if the tier starts cold.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        if self.cold.is_some() { 0 } else { self.header.stamp }
    }

    /// Has the tier start cold, for a reason that was found before it was looked at.
    pub fn doubt(&mut self, why: ColdStart) {
        self.cold = Some(why);
    }

    /// Why the tier starts cold, if it does.
    #[must_use]
    pub fn cold(&self) -> Option<ColdStart> {
        self.cold
    }

    /// Gives the device `stamp`, which home names already as the next one. A device that cannot be
    /// written starts cold, and stays unknown to home.
    pub fn adopt(&mut self, flash: &dyn Device, stamp: u64) {
        self.header.stamp = stamp;
        if self.cold.is_some() {
            self.header.table = stamp;
        }
        self.write_header(flash);
    }

    fn write_header(&mut self, flash: &dyn Device) {
        let mut staging = Staging::new(1);
        staging.pages_mut()[0][..SECTOR_BYTES].copy_from_slice(&self.header.encode());
        let written = write(flash, 0, &staging.pages()[0][..SECTOR_BYTES]);
        if let Err(error) = written.and_then(|()| flash.sync()) {
            self.cold = Some(ColdStart::Device(error.kind()));
            self.header.stamp = 0;
            self.is_disowned = true;
        }
    }

    /// The stamp that the device has now; zero if it could not be written.
    #[must_use]
    pub fn adopted(&self) -> u64 {
        self.header.stamp
    }

    /// The tier starts cold after all: a new table begins, so that nothing of the old one is taken
    /// for a part of it.
    fn turn(&mut self, flash: &dyn Device, judged: Result<(), ColdStart>) {
        if let Err(cold) = judged {
            self.cold = Some(cold);
            if self.need == FlashNeed::Needed {
                return;
            }
            self.header.table = self.header.stamp;
            self.write_header(flash);
        }
    }

    /// Whether the device could not be told what it holds: home must not believe it again.
    pub(super) fn is_disowned(&self) -> bool {
        self.is_disowned
    }

    /// Reads the table, if the tier is this database's. `journal` is the position that home names,
    /// `began` the BEGIN_CHKPT of the last checkpoint that ended.
    pub fn load(&mut self, flash: &dyn Device, journal: u64, began: Lsn) {
        self.began = began;
        if self.cold.is_none() {
            let place = self.place(flash);
            let loaded = self.table.load(&place, journal);
            self.turn(flash, loaded);
        }
    }

    /// Where analysis must begin.
    #[must_use]
    pub fn scan_from(&self) -> ScanFrom {
        if self.cold.is_some() { ScanFrom::OldestDirty } else { self.table.scan_from() }
    }

    /// Analysis met a change of `page`.
    pub fn updated(&mut self, page: PageId, lsn: Lsn) {
        if self.cold.is_none() {
            self.table.updated(page, lsn);
        }
    }

    /// Analysis met a BUF_WRITE of `page`.
    pub fn written(&mut self, page: PageId, eol: Lsn) {
        if self.cold.is_none() {
            self.table.written(page, eol);
        }
    }

    /// Analysis met a BEGIN_CHKPT.
    pub fn checkpoint_began(&mut self, lsn: Lsn) {
        if self.cold.is_none() {
            self.table.checkpoint_began(lsn);
        }
    }

    /// Analysis met a record of the flash tier.
    pub fn record(&mut self, lsn: Lsn, payload: &[u8]) {
        if self.cold.is_none() {
            self.table.record(lsn, payload);
        }
    }

    /// Analysis is done: drops what it contradicts.
    pub fn settle(&mut self, flash: &dyn Device, facts: &LogFacts<'_>) {
        if self.cold.is_none() {
            let place = self.place(flash);
            let settled = self.table.settle(&place, facts);
            self.turn(flash, settled);
        }
    }

    fn place<'a>(&self, flash: &'a dyn Device) -> Place<'a> {
        Place {
            flash,
            layout: self.layout,
            table: self.header.table,
            clean: self.clean,
            began: self.began,
        }
    }

    /// The stamp of the cold start at which the table was begun.
    pub(crate) fn table_stamp(&self) -> u64 {
        self.header.table
    }

    /// Where the journal goes on: at its beginning after a cold start.
    pub(super) fn resume(&self) -> Resume {
        let warm = if self.cold.is_none() { self.table.resume() } else { None };
        warm.unwrap_or(Resume { table: self.header.table, ..Resume::default() })
    }

    /// The policies' clock when the table was written: no use that it tells of is later.
    #[must_use]
    pub fn clock(&self) -> u64 {
        let last = |slot| self.image(slot).map_or(0, |image| image.history.last.0);
        match self.cold {
            Some(_) => 0,
            None => self
                .table
                .clock()
                .unwrap_or_else(|| (0..self.layout.slots).map(last).max().unwrap_or(0)),
        }
    }

    /// Pages of which the tier has changes that home may lack, as far as it is believed.
    pub fn newer_pages(&self) -> BTreeSet<PageId> {
        let images = (0..self.layout.slots).filter_map(|slot| self.image(slot));
        images.filter(|image| image.newer.is_some()).map(|image| image.page).collect()
    }

    /// What is believed of slot `slot`.
    #[must_use]
    pub fn image(&self, slot: u32) -> Option<Image> {
        if self.cold.is_some() { None } else { self.table.image(slot) }
    }
}

/// The partitions into which the flash tier of `database` on `flash` is divided, if there is one.
#[must_use]
pub fn partitions_of(flash: &dyn Device, database: u128) -> Option<u32> {
    let mut staging = Staging::new(1);
    run(flash, vec![PageIo::read(0, staging.pages_mut())]).ok()?;
    let sector = staging.pages()[0][..SECTOR_BYTES].try_into().expect("a sector");
    match Header::look(sector) {
        Looked::Header(found) if found.database == database => Some(found.partitions),
        _ => None,
    }
}

/// The header on the device if it is that of the tier that is `wanted`.
fn judge(flash: &dyn Device, wanted: &Header, known: [u64; 2]) -> Result<Header, ColdStart> {
    let mut staging = Staging::new(1);
    run(flash, vec![PageIo::read(0, staging.pages_mut())])
        .map_err(|error| ColdStart::Device(error.kind()))?;
    let sector = staging.pages()[0][..SECTOR_BYTES].try_into().expect("a sector");
    let found = match Header::look(sector) {
        Looked::Header(found) => found,
        Looked::Blank => return Err(ColdStart::Blank),
        Looked::Version => return Err(ColdStart::Version),
        Looked::Damaged => return Err(ColdStart::Header),
    };
    match () {
        () if found.database != wanted.database => Err(ColdStart::OtherDatabase),
        () if found.stamp == 0 || !known.contains(&found.stamp) => Err(ColdStart::OtherSession),
        () if found.restart != wanted.restart => Err(ColdStart::OtherRestart),
        () if found.slots != wanted.slots => Err(ColdStart::OtherShape),
        () if found.partitions != wanted.partitions => Err(ColdStart::Partitions(found.partitions)),
        () => Ok(found),
    }
}

/// Bytes of `pages` pages of `flash` from page `first` on, read in large requests.
pub(super) fn read_pages(flash: &dyn Device, first: u64, staging: &mut Staging) -> io::Result<()> {
    const PAGES_PER_IO: usize = 32;
    let ios = staging.pages_mut().chunks_mut(PAGES_PER_IO).enumerate();
    let ios = ios.map(|(at, pages)| PageIo::read(first + (at * PAGES_PER_IO) as u64, pages));
    run(flash, ios.collect())
}

/// Pages that hold `bytes`.
pub(super) fn pages_of(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_SIZE)
}

/// A table that says what a test wants it to.
struct Told(Vec<Option<Image>>);

impl Recover for Told {
    fn load(&mut self, _place: &Place<'_>, _journal: u64) -> Result<(), ColdStart> {
        Ok(())
    }

    fn scan_from(&self) -> ScanFrom {
        ScanFrom::OldestDirty
    }

    fn settle(&mut self, _place: &Place<'_>, _facts: &LogFacts<'_>) -> Result<(), ColdStart> {
        Ok(())
    }

    fn image(&self, slot: u32) -> Option<Image> {
        self.0[slot as usize]
    }
}

impl FlashRecovery {
    /// A warm tier with `images` in its slots, for tests of what a pool makes of it.
    #[doc(hidden)]
    #[must_use]
    pub fn of_images(settings: &Settings, images: Vec<Option<Image>>) -> FlashRecovery {
        let layout = FlashLayout::new(settings.slots, settings.kind);
        let table: Box<dyn Recover> = Box::new(Told(images));
        FlashRecovery { layout, cold: None, table, ..FlashRecovery::nothing(settings) }
    }
}
