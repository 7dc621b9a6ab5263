//! The superblock: the boot page of [S3 Fig.3], kept as two copies on pages 0 and 1 of the home.
//!
//! ```text
//! offset size field
//!      0   32 (header)          sealed like any page: checksum, kind Super, page id
//!     32    8 magic             "TERRACE" and a zero
//!     40    4 version           format of the database: home, log and flash
//!     44    4 page_size         8192
//!     48   16 database          random id, the same in home, log and flash
//!     64    8 sequence          rises with each write: the newer copy counts
//!     72    4 epoch             rises with each opening
//!     76    4 flags             bit 0: closed in good order since; bit 1: the log is kept from
//!                              `oldest_base` on, not from `oldest_dirty`; bit 2: creation has
//!                              finished
//!     80    8 oldest_dirty      oldestDirtyLSN, all ones if nothing was dirty
//!     88    8 oldest_txn        oldestTxLSN, all ones if there was none
//!     96    8 begin_checkpoint  LSN of the last completed checkpoint's BEGIN_CHKPT
//!    104    8 end_checkpoint    where that checkpoint's END_CHKPT ended: the log reaches that far
//!    112    8 next_txn          greater than any transaction before the checkpoint
//!    120    8 home_pages        pages that the home may have
//!    128    8 oldest_base       the first change that home and the flash may lack
//!    136    8 flash_stamp       stamp of the flash device that is this database's, or zero
//!    144    8 next_flash_stamp  stamp that the device gets, or zero
//!    152    8 flash_journal     the flash table's journal reaches this far at least
//!    160    8 compatible        features that a version which does not know them may ignore
//!    168    8 read_only         features that such a version may read past, but not write past
//!    176    8 incompatible      features without which such a version understands nothing
//!    184      reserved          zero
//! ```
//!
//! - S1: copy `sequence % 2` is written, then synced, so the other one stays whole: the change from
//!   one superblock to the next is atomic and durable. Then the other one is written with the same
//!   fields, without a sync: it helps if the first is damaged at rest, when an older one would name
//!   a log that has been cut since. The log is not cut unless both were written. Where the log is
//!   a line, whose front goes back to the file system, a checkpoint syncs the other one, too,
//!   before it cuts the log.
//! - S2: magic and version keep their places in every format to come.
//! - S3: a flash device is believed only with one of the two stamps. Both are zero while the
//!   database runs without flash.
//! - S4: the log from `min(oldest_dirty, oldest_txn, begin_checkpoint)` on is kept; with bit 1,
//!   from `min(oldest_base, oldest_txn, begin_checkpoint)` on, and flash is needed if
//!   `oldest_dirty` is before that.
//! - S5: what later versions add is marked by a feature bit, not by another version. No bit of
//!   `incompatible` or `read_only` that is unknown here is written past, nor lost.
//! - S6: bit 2 of the flags is durable only once the first map and the catalog are, at home or in
//!   the log that the same superblock keeps. From then on a blank system page is a damaged one.
//! - S7: all fields lie in the first sector, so a write that is cut short leaves the old copy or
//!   the new one. A copy that is neither, or cannot be read, was damaged at rest: the other one is
//!   believed, and its place written next. If that one is older, since power failed before it was
//!   written anew (S1), analysis finds what the log has lost since.
//! - S8: the home of a restore that is under way begins with [`UNFINISHED`] instead. It is no
//!   database, and says so.

use terrace_device::contents::ReadAt;
use terrace_device::{Access, Device, write};
use terrace_page::{
    Damage, Lsn, PAGE_SIZE, PageBuf, PageId, PageKind, TxnId, seal, set_kind, set_page_id, verify,
};

use crate::copies::{BadCopy, CopyFlaw, read_copy};
use crate::log::Aligned;
use crate::{Action, Error, Part};

/// The one format that this version reads and writes.
pub const FORMAT_VERSION: u32 = 3;
/// An incompatible feature: leaves may have cells of more than 2,000 bytes, two of which an older
/// version may be unable to part, and references to large values with a tail (`btree/node.rs`,
/// `btree/overflow.rs`).
const LARGE_CELLS: u64 = 1;
/// Another: large values of which the log has no pages (`btree/runs.rs`), and changes that renew
/// pages (`change.rs`), without which an opening would redo what such pages were before.
const HOME_FIRST: u64 = 2;
/// Another: changes that splice cells (`btree/splice.rs`), which an older version cannot redo.
const SPLICES: u64 = 4;
/// Another: blocks, references to them, extents of them and the mark in the header of their tree
/// (`btree/blocks.rs`).
const BLOCKS: u64 = 8;
/// Another: counts of rows in COMMIT and COUNTS records (`counts.rs`).
const COUNTS: u64 = 16;
/// Features that this version writes.
const WRITTEN: u64 = LARGE_CELLS | HOME_FIRST | SPLICES | BLOCKS | COUNTS;
/// Features of each kind that this version knows.
const KNOWN: Features = Features { compatible: 0, read_only: 0, incompatible: WRITTEN };
/// Pages of the home before the first one that trees may use.
pub(crate) const SUPERBLOCK_PAGES: u64 = 2;

const MAGIC: [u8; 8] = *b"TERRACE\0";
const MAGIC_AT: usize = 32;
const VERSION_AT: usize = 40;
const PAGE_SIZE_AT: usize = 44;
const DATABASE_AT: usize = 48;
const SEQUENCE_AT: usize = 64;
const EPOCH_AT: usize = 72;
const FLAGS_AT: usize = 76;
const NUMBERS_AT: usize = 80;
const NUMBERS: usize = 10;
const FEATURES_AT: usize = 160;
const END_AT: usize = 184;

/// What the home of a restore begins with that has not come to its end.
pub(crate) const UNFINISHED: &[u8] = b"terrace restore, not finished\n";

const CLEAN: u32 = 1;
const FROM_FLASH: u32 = 2;
const CREATED: u32 = 4;

const _: () = assert!(MAGIC_AT == terrace_page::HEADER_SIZE);
const _: () = assert!(DATABASE_AT + 16 == SEQUENCE_AT);
const _: () = assert!(NUMBERS_AT + 8 * NUMBERS == FEATURES_AT);
const _: () = assert!(FEATURES_AT + 24 == END_AT);
// S7.
const _: () = assert!(END_AT <= 512);

/// What the superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Random id of the database.
    pub(crate) database: u128,
    /// Which write of the superblock this is.
    pub(crate) sequence: u64,
    /// How often the database was opened.
    pub(crate) epoch: u32,
    /// Whether it was closed in good order.
    pub(crate) clean: bool,
    /// The least LSN that redo needs, or `Lsn::MAX`.
    pub(crate) oldest_dirty: Lsn,
    /// The first record of any transaction active at the checkpoint, or `Lsn::MAX`.
    pub(crate) oldest_txn: Lsn,
    /// Where the last completed checkpoint began.
    pub(crate) begin_checkpoint: Lsn,
    /// Where its last record ended.
    pub(crate) end_checkpoint: Lsn,
    /// Greater than any transaction that began before the checkpoint.
    pub(crate) next_txn: TxnId,
    /// Pages that the home may have.
    pub(crate) home_pages: u64,
    /// The first change that home and the flash may both lack, or `Lsn::MAX`.
    pub(crate) oldest_base: Lsn,
    /// Of the flash device that is this database's.
    pub(crate) flash: FlashMark,
    /// From where on the log is kept.
    pub(crate) log_from: LogFrom,
    /// How far its creation got.
    pub(crate) creation: Creation,
    /// What it has beyond this format.
    pub(crate) features: Features,
}

/// How far the creation of a database got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// The map and the catalog may not be there yet.
    Begun,
    /// They are there, and durable.
    Finished,
}

/// What a file has beyond its format version: one bit for each feature, by what becomes of a
/// version that does not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// It may ignore them.
    pub(crate) compatible: u64,
    /// It may read, and must not write.
    pub(crate) read_only: u64,
    /// It must not open the database.
    pub(crate) incompatible: u64,
}

impl Features {
    /// Those of a database that this version is about to write.
    pub(crate) fn to_write(self) -> Features {
        Features { incompatible: self.incompatible | WRITTEN, ..self }
    }
}

/// For which device the log makes good what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFrom {
    /// What home lacks is in the log, whether flash has it or not.
    Home,
    /// What both home and flash lack is.
    Flash,
}

/// What home knows of its flash device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlashMark {
    /// The stamps that it may have: the one it had, and the one it gets. Zero is none.
    pub(crate) stamps: [u64; 2],
    /// How far the journal of its table reaches at least.
    pub(crate) journal: u64,
}

impl Superblock {
    /// The log before this is not needed any more: truncationLSN.
    pub(crate) fn log_start(&self) -> Lsn {
        let oldest = match self.log_from {
            LogFrom::Home => self.oldest_dirty,
            LogFrom::Flash => self.oldest_base,
        };
        oldest.min(self.oldest_txn).min(self.begin_checkpoint)
    }

    /// Records before this are of pages that are at home, or whole on flash.
    pub(crate) fn redo_floor(&self) -> Lsn {
        self.oldest_dirty.max(self.log_start())
    }

    /// Whether flash has changes that neither home nor the log has.
    pub(crate) fn needs_flash(&self) -> bool {
        self.oldest_dirty < self.log_start()
    }

    /// Refuses features that this version does not know (S5).
    ///
    /// # Errors
    ///
    /// `UnknownFeatures`.
    pub(crate) fn check_features(&self, access: Access) -> Result<(), Error> {
        let incompatible = self.features.incompatible & !KNOWN.incompatible;
        let read_only = match access {
            Access::ReadOnly => 0,
            Access::ReadWrite => self.features.read_only & !KNOWN.read_only,
        };
        match (incompatible, read_only) {
            (0, 0) => Ok(()),
            _ => Err(Error::UnknownFeatures { path: None, incompatible, read_only }),
        }
    }

    fn encode(&self, place: PageId) -> Aligned {
        let mut bytes = Aligned::zeroed(PAGE_SIZE);
        let page: &mut PageBuf = (&mut bytes[..]).try_into().expect("a page");
        set_kind(page, PageKind::Super);
        set_page_id(page, place);
        page[MAGIC_AT..VERSION_AT].copy_from_slice(&MAGIC);
        page[VERSION_AT..PAGE_SIZE_AT].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        page[PAGE_SIZE_AT..DATABASE_AT].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
        page[DATABASE_AT..SEQUENCE_AT].copy_from_slice(&self.database.to_le_bytes());
        page[SEQUENCE_AT..EPOCH_AT].copy_from_slice(&self.sequence.to_le_bytes());
        page[EPOCH_AT..FLAGS_AT].copy_from_slice(&self.epoch.to_le_bytes());
        let mut flags = if self.clean { CLEAN } else { 0 };
        flags |= if self.log_from == LogFrom::Flash { FROM_FLASH } else { 0 };
        flags |= if self.creation == Creation::Finished { CREATED } else { 0 };
        page[FLAGS_AT..NUMBERS_AT].copy_from_slice(&flags.to_le_bytes());
        let numbers: [u64; NUMBERS] = [
            self.oldest_dirty.0,
            self.oldest_txn.0,
            self.begin_checkpoint.0,
            self.end_checkpoint.0,
            self.next_txn.0,
            self.home_pages,
            self.oldest_base.0,
            self.flash.stamps[0],
            self.flash.stamps[1],
            self.flash.journal,
        ];
        for (at, number) in (NUMBERS_AT..).step_by(8).zip(numbers) {
            page[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let Features { compatible, read_only, incompatible } = self.features;
        for (at, bits) in (FEATURES_AT..).step_by(8).zip([compatible, read_only, incompatible]) {
            page[at..at + 8].copy_from_slice(&bits.to_le_bytes());
        }
        seal(page);
        bytes
    }

    fn place(&self) -> PageId {
        PageId(self.sequence % SUPERBLOCK_PAGES)
    }

    /// Reads a copy whose checksum is right. `None` if it makes no sense all the same.
    fn decode(page: &PageBuf) -> Option<Superblock> {
        let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight"));
        let database = page[DATABASE_AT..SEQUENCE_AT].try_into().expect("sixteen");
        let block = Superblock {
            database: u128::from_le_bytes(database),
            sequence: u64_at(SEQUENCE_AT),
            epoch: u32_at(EPOCH_AT),
            clean: u32_at(FLAGS_AT) & CLEAN != 0,
            oldest_dirty: Lsn(u64_at(NUMBERS_AT)),
            oldest_txn: Lsn(u64_at(NUMBERS_AT + 8)),
            begin_checkpoint: Lsn(u64_at(NUMBERS_AT + 16)),
            end_checkpoint: Lsn(u64_at(NUMBERS_AT + 24)),
            next_txn: TxnId(u64_at(NUMBERS_AT + 32)),
            home_pages: u64_at(NUMBERS_AT + 40),
            oldest_base: Lsn(u64_at(NUMBERS_AT + 48)),
            flash: FlashMark {
                stamps: [u64_at(NUMBERS_AT + 56), u64_at(NUMBERS_AT + 64)],
                journal: u64_at(NUMBERS_AT + 72),
            },
            log_from: match u32_at(FLAGS_AT) & FROM_FLASH {
                0 => LogFrom::Home,
                _ => LogFrom::Flash,
            },
            creation: match u32_at(FLAGS_AT) & CREATED {
                0 => Creation::Begun,
                _ => Creation::Finished,
            },
            features: Features {
                compatible: u64_at(FEATURES_AT),
                read_only: u64_at(FEATURES_AT + 8),
                incompatible: u64_at(FEATURES_AT + 16),
            },
        };
        let ordered = block.log_start() <= block.begin_checkpoint
            && block.begin_checkpoint <= block.end_checkpoint;
        (ordered && u32_at(PAGE_SIZE_AT) == PAGE_SIZE as u32).then_some(block)
    }

    /// Writes it over the older copy and syncs, then over the other one (S1).
    ///
    /// # Errors
    ///
    /// `Device`: then either of the two copies may be what it was, and the log that they name must
    /// stay.
    pub(crate) fn write(&self, home: &dyn Device) -> Result<(), Error> {
        let failed = |action| Error::device(Part::Home, action);
        let copy_at = |place: PageId| write(home, place.0 * PAGE_SIZE as u64, &self.encode(place));
        copy_at(self.place()).map_err(failed(Action::Write))?;
        home.sync().map_err(failed(Action::Sync))?;
        copy_at(PageId(1 - self.place().0)).map_err(failed(Action::Write))
    }
}

/// What stands where a superblock should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    Blank,
    Foreign,
    /// Another version than the one that is read here.
    Other(u32),
    Broken,
    /// The device could not read it.
    Unreadable,
    Whole(Superblock),
}

impl Copied {
    /// What is wrong with a copy that another one stands in for.
    fn flaw(self) -> Option<CopyFlaw> {
        match self {
            Copied::Whole(_) => None,
            Copied::Blank => Some(CopyFlaw::Blank),
            Copied::Unreadable => Some(CopyFlaw::Unreadable),
            Copied::Foreign | Copied::Other(_) | Copied::Broken => Some(CopyFlaw::Damaged),
        }
    }
}

fn look(page: &PageBuf, place: PageId) -> Copied {
    let ours = page[MAGIC_AT..VERSION_AT] == MAGIC;
    match verify(page, place) {
        Err(Damage::Blank) => Copied::Blank,
        Err(_) if ours => Copied::Broken,
        Ok(()) if ours => {
            let version = &page[VERSION_AT..PAGE_SIZE_AT];
            let version = u32::from_le_bytes(version.try_into().expect("four"));
            match Superblock::decode(page) {
                _ if version != FORMAT_VERSION => Copied::Other(version),
                Some(block) => Copied::Whole(block),
                None => Copied::Broken,
            }
        }
        _ => Copied::Foreign,
    }
}

/// Looks at any bytes, resealed so that they get past the checksum.
pub(crate) fn fuzz(page: &PageBuf) {
    let mut page = Box::new(*page);
    let _foreign = look(&page, PageId(0));
    page[MAGIC_AT..VERSION_AT].copy_from_slice(&MAGIC);
    set_page_id(&mut page, PageId(0));
    seal(&mut page);
    let _ours = look(&page, PageId(0));
}

/// What a home device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing: both places are blank, or the device is too short to have them.
    Nothing,
    /// A database, and a copy that the other one stands in for.
    Database(Superblock, Option<BadCopy>),
}

/// Pages that the home in a file has, by the newest copy of its superblock; `None` if no copy is
/// one that this version opens.
///
/// # Errors
///
/// What the system says.
pub(crate) fn pages_told(file: &impl ReadAt) -> std::io::Result<Option<u64>> {
    let mut newest = None;
    for place in 0..SUPERBLOCK_PAGES {
        let mut page = [0; PAGE_SIZE];
        file.read_at(place * PAGE_SIZE as u64, &mut page)?;
        if let Copied::Whole(block) = look(&page, PageId(place)) {
            newest = newest.max(Some((block.sequence, block.home_pages)));
        }
    }
    Ok(newest.map(|(_, pages)| pages))
}

/// Looks for a database on `home`.
///
/// # Errors
///
/// `NotADatabase` if there is something else, `NewerFormat`, `OlderFormat`, `Corrupt` if both
/// copies are damaged, `Device`.
pub(crate) fn find(home: &dyn Device) -> Result<Found, Error> {
    if home.len() < SUPERBLOCK_PAGES * PAGE_SIZE as u64 {
        return Ok(Found::Nothing);
    }
    let mut bytes = Aligned::zeroed(2 * PAGE_SIZE);
    let (pages, _) = bytes.as_chunks_mut::<PAGE_SIZE>();
    let (mut copies, mut unread) = ([Copied::Blank; 2], None);
    for (place, page) in pages.iter_mut().enumerate() {
        let id = PageId(place as u64);
        copies[place] = match read_copy(home, (Part::Home, id.0 * PAGE_SIZE as u64), page)? {
            Ok(()) => look(page, id),
            Err(error) => {
                unread = Some(error);
                Copied::Unreadable
            }
        };
    }
    let other = copies.iter().filter_map(|copy| match copy {
        Copied::Other(found) => Some(*found),
        _ => None,
    });
    match other.max() {
        Some(found) if found > FORMAT_VERSION => {
            let (part, path, supported) = (Part::Home, None, FORMAT_VERSION);
            return Err(Error::NewerFormat { part, path, found, supported });
        }
        // One of each: an upgrade in place was cut short, which no version does.
        Some(found) => {
            let (part, path, supported) = (Part::Home, None, FORMAT_VERSION);
            return Err(Error::OlderFormat { part, path, found, supported });
        }
        None => (),
    }
    let whole = copies.iter().filter_map(|copy| match copy {
        Copied::Whole(block) => Some(*block),
        _ => None,
    });
    if let Some(mut block) = whole.max_by_key(|block| block.sequence) {
        let is_new = block.sequence == 0;
        let bad = bad_copy(&copies).filter(|bad| !is_new || bad.flaw != CopyFlaw::Blank);
        if copies.iter().any(|copy| !matches!(copy, Copied::Whole(_))) {
            // The copy that is lost may have been of the opening after this one's (S7).
            block.epoch = block.epoch.saturating_add(1);
        }
        return Ok(Found::Database(block, bad));
    }
    if let Some(error) = unread {
        return Err(error);
    }
    if copies.contains(&Copied::Broken) {
        let what = "both superblocks are damaged";
        return Err(Error::corrupt(Part::Home, PageId(0), what));
    }
    if copies == [Copied::Blank, Copied::Blank] {
        return Ok(Found::Nothing);
    }
    let what = if pages[0].starts_with(UNFINISHED) {
        "a restore that was cut short: delete home and log, and restore again"
    } else {
        "it holds something else"
    };
    Err(Error::NotADatabase { part: Part::Home, path: None, what })
}

/// The copy that is not whole. Only the first superblock of a database has no copy before it.
fn bad_copy(copies: &[Copied; 2]) -> Option<BadCopy> {
    let flaws = copies.iter().map(|copy| copy.flaw());
    let (place, flaw) = flaws.enumerate().find_map(|(place, flaw)| Some((place, flaw?)))?;
    Some(BadCopy { part: Part::Home, offset: (place * PAGE_SIZE) as u64, flaw })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terrace_device::model::{Preset, build};
    use terrace_device::{FaultPlan, FaultyDevice, Keep, Store, read};
    use terrace_rt::{Virtual, VirtualConfig, World};

    use super::*;

    fn block(sequence: u64) -> Superblock {
        Superblock {
            database: 0x0123_4567_89ab_cdef,
            sequence,
            epoch: 3,
            clean: true,
            oldest_dirty: Lsn::MAX,
            oldest_txn: Lsn(5000),
            begin_checkpoint: Lsn(6000),
            end_checkpoint: Lsn(6100),
            next_txn: TxnId(9),
            home_pages: 1000,
            oldest_base: Lsn(80),
            flash: FlashMark { stamps: [5, 6], journal: 7 },
            log_from: LogFrom::Home,
            creation: Creation::Finished,
            features: Features { compatible: 1 << 40, read_only: 2, incompatible: 1 << 63 },
        }
    }

    fn page_of(block: &Superblock) -> PageBuf {
        block.encode(block.place())[..].try_into().expect("a page")
    }

    #[test]
    fn a_superblock_comes_back() {
        let stored = block(7);
        assert_eq!(look(&page_of(&stored), PageId(1)), Copied::Whole(stored));
        assert_eq!(stored.log_start(), Lsn(5000));
    }

    #[test]
    fn a_log_that_is_kept_from_flash_needs_flash_for_what_is_older() {
        let old = Superblock { oldest_dirty: Lsn(70), ..block(8) };
        assert!(!old.needs_flash());
        let stored = Superblock { log_from: LogFrom::Flash, ..old };
        assert_eq!((stored.log_start(), stored.needs_flash()), (Lsn(80), true));
        assert_eq!(look(&page_of(&stored), PageId(0)), Copied::Whole(stored));
        assert!(!Superblock { oldest_dirty: Lsn(80), ..stored }.needs_flash());
    }

    #[test]
    fn unknown_features_refuse_what_they_must() {
        let with = |compatible, read_only, incompatible| Superblock {
            features: Features { compatible, read_only, incompatible },
            ..block(7)
        };
        assert!(with(u64::MAX, 0, 0).check_features(Access::ReadWrite).is_ok());
        assert!(with(1, 4, 0).check_features(Access::ReadOnly).is_ok());
        let refused = with(1, 4, 0).check_features(Access::ReadWrite);
        let bits = |refused: Result<(), Error>| match refused {
            Err(Error::UnknownFeatures { incompatible, read_only, .. }) => {
                (incompatible, read_only)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(bits(refused), (0, 4));
        assert_eq!(bits(with(0, 0, 32).check_features(Access::ReadOnly)), (32, 0));
    }

    const HOME_BYTES: u64 = 4 * PAGE_SIZE as u64;

    /// A home with superblocks 7, on page 1, and 8, on page 0.
    fn home() -> Arc<dyn Device> {
        let store = Store::new(HOME_BYTES, Keep::Plain);
        let home = build(Preset::Ram, World::current(), store);
        block(7).write(&*home).expect("memory");
        block(8).write(&*home).expect("memory");
        home
    }

    fn in_world<T>(run: impl FnOnce() -> T) -> T {
        let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 64 << 10 };
        Virtual::new(config).run(run).expect("nobody waits for ever")
    }

    /// The superblock of the home, if that is whole but for one copy with a flaw.
    fn stood_in(home: &dyn Device, place: u64, flaw: CopyFlaw, case: &str) {
        // S1: both have the fields of the newest.
        let expected = Superblock { epoch: 4, ..block(8) };
        let bad = BadCopy { part: Part::Home, offset: place * PAGE_SIZE as u64, flaw };
        match find(home) {
            Ok(Found::Database(found, told)) => {
                assert_eq!((found, told), (expected, Some(bad)), "{case}");
            }
            other => panic!("{case}: {other:?}"),
        }
    }

    /// A copy with a flipped bit, zeroes, or none that the device can read: one of them alone made
    /// an error of the other.
    #[test]
    fn the_whole_copy_stands_in_for_a_bad_one() {
        in_world(|| {
            let home = home();
            assert_eq!(find(&*home).expect("whole"), Found::Database(block(8), None));
            for place in 0..2 {
                let at = place * PAGE_SIZE as u64;
                let mut whole = [0; PAGE_SIZE];
                read(&*home, at, &mut whole).expect("memory");
                for byte in 0..PAGE_SIZE {
                    let mut damaged = whole;
                    damaged[byte] ^= 1 << (byte % 8);
                    write(&*home, at, &damaged).expect("memory");
                    let case = format!("byte {byte} of copy {place}");
                    stood_in(&*home, place, CopyFlaw::Damaged, &case);
                }
                write(&*home, at, &[0; PAGE_SIZE]).expect("memory");
                stood_in(&*home, place, CopyFlaw::Blank, "zeroes");
                write(&*home, at, &whole).expect("memory");

                let faulty = FaultyDevice::new(Arc::clone(&home), FaultPlan::default());
                faulty.set_unreadable(at + 512..at + 1024);
                stood_in(&*faulty, place, CopyFlaw::Unreadable, "unreadable");
                faulty.set_unreadable(0..HOME_BYTES);
                assert!(matches!(find(&*faulty), Err(Error::Device { .. })), "neither is read");
            }
        });
    }

    /// The bug: a failed write of the second copy was not reported, and the log was cut.
    #[test]
    fn a_superblock_is_not_written_unless_both_copies_are() {
        in_world(|| {
            let (home, page) = (home(), PAGE_SIZE as u64);
            let faulty = FaultyDevice::new(Arc::clone(&home), FaultPlan::default());
            for (sequence, place) in [(9, 1), (9, 0), (10, 0), (10, 1)] {
                faulty.set_unwritable(Some(place * page..(place + 1) * page));
                let written = block(sequence).write(&*faulty);
                let is_told = matches!(written, Err(Error::Device { action: Action::Write, .. }));
                assert!(is_told, "superblock {sequence}, page {place}: {written:?}");
                assert!(matches!(find(&*home), Ok(Found::Database(_, None))), "both are whole");
            }
            faulty.set_unwritable(None);
            block(10).write(&*faulty).expect("memory");
        });
    }

    #[test]
    fn the_first_superblock_has_no_bad_copy_beside_it() {
        in_world(|| {
            let home = build(Preset::Ram, World::current(), Store::new(HOME_BYTES, Keep::Plain));
            block(0).write(&*home).expect("memory");
            assert!(matches!(find(&*home), Ok(Found::Database(_, None))));
        });
    }

    #[test]
    fn what_is_no_superblock_is_told_apart() {
        let mut page = page_of(&block(8));
        assert_eq!(look(&page, PageId(1)), Copied::Broken, "misdirected");
        page[200] ^= 1;
        assert_eq!(look(&page, PageId(0)), Copied::Broken);
        assert_eq!(look(&[0; PAGE_SIZE], PageId(0)), Copied::Blank);
        assert_eq!(look(&[b'x'; PAGE_SIZE], PageId(0)), Copied::Foreign);
        for version in [1, 2, 4] {
            let mut other = page_of(&block(8));
            other[VERSION_AT] = version;
            seal(&mut other);
            assert_eq!(look(&other, PageId(0)), Copied::Other(u32::from(version)));
        }
    }
}
