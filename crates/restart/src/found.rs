//! What opening found on the flash device, and what the log says of it.
//!
//! The engine holds a [`FlashRecovery`] from its first look at the device until the pool is opened:
//! it stamps the device, reads the table, shows it the log, and hands it to the pool.

use std::collections::BTreeSet;

use terrace_device::{Device, write};
use terrace_page::{Lsn, PageId};
use terrace_page_io::{PageIo, Staging, run};
use terrace_policy::RestartKind;
use terrace_tier::Image;

use super::header::{Header, Looked, SECTOR_BYTES};
use super::keeper::Keeper;
use super::layout::FlashLayout;
use super::recover::{ColdStart, LogFacts, Place, Recover, ScanFrom};
use super::rows;
use super::settings::Settings;
use super::warm::Resume;

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
        let table = rows::table_of(kind, layout, settings);
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
        let table = rows::table_of(RestartKind::Forget, layout, settings);
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

    /// Whether the device's header could not be written: home must not believe the device again.
    fn is_disowned(&self) -> bool {
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
    fn table_stamp(&self) -> u64 {
        self.header.table
    }

    /// Where the journal goes on: at its beginning after a cold start.
    fn resume(&self) -> Resume {
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

/// The keeper of the restart method that `settings` names, which goes on from what `recovery`
/// found.
#[must_use]
pub fn keeper_of(
    settings: &Settings,
    layout: &FlashLayout,
    recovery: Option<&FlashRecovery>,
) -> Option<Box<dyn Keeper>> {
    let table = recovery.map_or(0, FlashRecovery::table_stamp);
    let was_loaded = recovery.is_some_and(|recovery| recovery.cold().is_none());
    if recovery.is_some_and(FlashRecovery::is_disowned) {
        return rows::disowned();
    }
    let resume = || recovery.map(FlashRecovery::resume).unwrap_or_default();
    rows::keeper_of(settings, *layout, (table, was_loaded), resume)
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
