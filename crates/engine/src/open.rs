//! Creating and opening a database on its devices.
//!
//! - O1: a new database is the log's header, then the first map and catalog in the log, then home;
//!   the superblock that says so comes after the log's header. Cut short before it, there is
//!   nothing.
//! - O2: an opening that is refused has written nothing: its writes are withheld until recovery is
//!   through, or until they are more than `withheld_bytes`. By then it knows that home and log are
//!   one database of this format, that its system pages are what they were (`system_pages`), and
//!   that the log is whole.
//! - O3: a database is open only once recovery has finished, whether it was closed well or not.

use std::sync::Arc;

use terrace_device::{Access, Device, DeviceError, Withholding, write};
use terrace_page::{Lsn, PAGE_SIZE, PageId, TxnId};
use terrace_pool::{
    BufferPool, ColdStart, Doublewrite, DoublewriteOwner, PoolConfig, RestoreError, ScanFrom,
    restore_torn,
};
use terrace_rt::World;

use crate::api::{Checkpoint, TornPages};
use crate::copies::BadCopy;
use crate::engine::{Engine, LockLimits, Parts};
use crate::error::Places;
use crate::events;
use crate::flash::FoundFlash;
use crate::journal::LogJournal;
use crate::log::{Aligned, BLOCK, End, Layout, Log, LogReader, LogShape, LogSpace, header};
use crate::reclaim::Work;
use crate::recovery::{
    Analysis, NotUndone, OwedChanges, analyse, redo, resume_losers, undo_losers,
};
use crate::superblock::{self, Creation, Features, FlashMark, Found, LogFrom, Superblock};
use crate::versions::VersionRoom;
use crate::{Action, Devices, Error, Part, system_pages};

/// Pages of the smallest home: superblocks, a map, and one extent for the catalog.
const HOME_PAGES_MIN: u64 = 64;

/// Bytes that an opening may write before it is known that it will not be refused; an eighth of
/// memory comes on top.
const WITHHELD_BYTES: u64 = 8 << 20;

/// What is blank at either end of a flash that held something else.
const BLANKED_BYTES: u64 = 1 << 20;

/// How long a log that grows may get, unless something else is asked for.
const LOG_MAX: u64 = 1 << 30;
/// One part in this number of memory may hold changes of pages that flash has lost.
const LOST_SHARE: usize = 8;

/// What opening needs to know beside the devices.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) pool: PoolConfig,
    pub(crate) world: World,
    pub(crate) torn_pages: TornPages,
    pub(crate) lock_bytes: u64,
    pub(crate) lock_limits: LockLimits,
    pub(crate) version_room: VersionRoom,
    pub(crate) places: Places,
    /// Whether anything is to be written.
    pub(crate) access: Access,
    /// Why the flash starts cold, whatever it holds, unless it is needed.
    pub(crate) flash_doubt: Option<ColdStart>,
    /// Whether the flash holds what is no tier of ours, and may be destroyed.
    pub(crate) is_flash_foreign: bool,
    /// A flash that is known by its header or its pages, and not by its label.
    pub(crate) bad_label: Option<BadCopy>,
    /// What becomes of the transactions that a crash cut off.
    pub(crate) losers: Losers,
    /// How long a log that grows may get, in bytes, if that was said.
    pub(crate) log_max: Option<u64>,
}

/// What an opening does with the transactions that a crash cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losers {
    /// Rolls them back.
    RollBack,
    /// Keeps what they changed apart, for a reader, which cannot roll them back: the database has
    /// their changes, and is of no use but to be saved without them.
    SetApart,
}

/// Whether there is a database on this home.
///
/// # Errors
///
/// `NotADatabase` if there is something else, and those of `superblock::find`.
pub(crate) fn is_database(home: &dyn Device) -> Result<bool, Error> {
    Ok(match superblock::find(home)? {
        Found::Database(..) => true,
        Found::Nothing => false,
    })
}

/// Writes an empty database `database`, whose log begins at `first`, on blank devices. The log
/// device may hold what is left of an earlier attempt.
///
/// # Errors
///
/// `Exists`, `NotADatabase`, `InvalidOption`, `Device`.
pub(crate) fn create(
    devices: &Devices,
    database: u128,
    first: Lsn,
    shape: LogShape,
) -> Result<(), Error> {
    if is_database(&*devices.home)? {
        return Err(Error::Exists { part: Part::Home, path: None });
    }
    let home_pages = devices.home.len() / PAGE_SIZE as u64;
    if home_pages < HOME_PAGES_MIN {
        let what = "the home must have at least 512 KiB";
        return Err(Error::InvalidOption { option: "home_size", what });
    }
    if !header::is_free(&*devices.log)? {
        return Err(Error::Exists { part: Part::Log, path: None });
    }
    header::create(&*devices.log, database, first, shape)?;
    devices.log.sync().map_err(Error::device(Part::Log, Action::Sync))?;
    let boot = Superblock {
        database,
        sequence: 0,
        epoch: 0,
        clean: false,
        oldest_dirty: Lsn::MAX,
        oldest_txn: Lsn::MAX,
        begin_checkpoint: first,
        end_checkpoint: first,
        next_txn: TxnId(1),
        home_pages,
        oldest_base: Lsn::MAX,
        flash: FlashMark::default(),
        log_from: LogFrom::Home,
        creation: Creation::Begun,
        features: Features::default().to_write(),
    };
    boot.write(&*devices.home)
}

/// Opens the database on these devices: recovers it, and takes a checkpoint.
///
/// # Errors
///
/// `Missing`, `NotADatabase`, `Truncated`, `NewerFormat`, `OlderFormat`, `UnknownFeatures`,
/// `Corrupt`, `CorruptLog`, `RedoGap`, `Device`, `InvalidOption`, `FlashNeeded`.
pub(crate) fn open(setup: Setup, devices: Devices) -> Result<Arc<Engine>, Error> {
    let mut setup = setup;
    let is_lost = || devices.flash.as_ref().is_some_and(|flash| flash.is_given_up());
    loop {
        let was_lost = is_lost();
        let (error, has_failed) = match attempt(setup.clone(), &devices) {
            Ok(engine) => {
                let cold_start = engine.pool.cold_start();
                events::opened(engine.database_id(), engine.was_closed, cold_start);
                return Ok(engine);
            }
            Err(refused) => refused,
        };
        // Home and log can do without. If they cannot either, it was not the flash. But one that
        // was in doubt, and was lost when its writes were released, has ended that attempt only.
        let is_lost_now = is_lost() && !was_lost;
        let doubt = doubt_of(&setup, &devices, &error, has_failed);
        match doubt.filter(|_| setup.flash_doubt.is_none() || is_lost_now) {
            Some(doubt) => setup.flash_doubt = setup.flash_doubt.or(Some(doubt)),
            None => return Err(why(error)),
        }
    }
}

/// Why to open again without the flash, if that may be why the opening was refused.
fn doubt_of(
    setup: &Setup,
    devices: &Devices,
    error: &Error,
    has_failed: bool,
) -> Option<ColdStart> {
    devices.flash.as_ref()?;
    match error {
        // Analysis began where only the right flash allows.
        Error::FlashNeeded { why: why @ ColdStart::LogLost, .. } => Some(*why),
        // A part of the database, or not to be blamed.
        _ if setup.pool.flash_role.is_persistent() || !may_be_of_flash(error) => None,
        Error::Device { source, .. } if has_failed => Some(ColdStart::Device(source.kind())),
        _ if has_failed => Some(ColdStart::Device(std::io::ErrorKind::Other)),
        _ => Some(ColdStart::Contradicted),
    }
}

/// Why an opening failed: that the engine has stopped says nothing of one that never ran, and to
/// open again is no advice.
fn why(error: Error) -> Error {
    match error {
        Error::Failed { cause: Some(cause) } => Error::clone(&cause),
        error => error,
    }
}

/// Opens the database. With an error comes whether a request of the flash device has failed.
fn attempt(setup: Setup, devices: &Devices) -> Result<Arc<Engine>, (Error, bool)> {
    let group = Withholding::new(withheld_bytes(&setup.pool));
    let (access, role) = (setup.access, setup.pool.flash_role);
    let devices = match access {
        Access::ReadOnly => devices.clone(),
        Access::ReadWrite => devices.clone().withheld(&group, role.is_persistent()),
    };
    let flash = devices.flash.clone();
    if let Some(flash) = flash.as_ref().filter(|_| setup.is_flash_foreign) {
        blank_ends(&**flash);
    }
    let has_flash_failed = || flash.is_some_and(|flash| flash.has_failed());
    match recovered(setup, devices) {
        Ok(engine) if access == Access::ReadOnly => Ok(engine),
        Ok(engine) => {
            let written = group.let_go().map_err(not_written);
            match written.and_then(|()| engine.log.begin_settling()) {
                Ok(()) => Ok(engine),
                Err(error) => {
                    engine.abandon();
                    Err((error, has_flash_failed()))
                }
            }
        }
        Err(error) if access == Access::ReadOnly => Err((error, has_flash_failed())),
        // What comes of a write that failed is not why.
        Err(error) => {
            Err((group.discard().map_or_else(not_written, |()| error), has_flash_failed()))
        }
    }
}

/// Has a flash begin and end with zeroes, where signatures of other systems are.
fn blank_ends(flash: &dyn Device) {
    let bytes = BLANKED_BYTES.min(flash.len()) / BLOCK as u64 * BLOCK as u64;
    let zeroes = Aligned::zeroed(bytes as usize);
    for at in [0, (flash.len() - bytes) / BLOCK as u64 * BLOCK as u64] {
        // The flash starts cold, and is done without if it cannot be written.
        let _blanked = write(flash, at, &zeroes);
    }
}

/// Whether flash that fails, or that holds what it should not, can make an opening end so.
fn may_be_of_flash(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt { .. }
            | Error::RedoGap { .. }
            | Error::Failed { .. }
            | Error::Device { part: Part::Flash, .. }
    )
}

/// A write or sync of the opening has failed.
fn not_written((part, source): (usize, std::io::Error)) -> Error {
    let told = DeviceError::of(&source).map(|told| told.operation);
    Error::device(Devices::WITHHELD[part], told.map_or(Action::Write, Action::from))(source)
}

/// O2.
fn withheld_bytes(pool: &PoolConfig) -> u64 {
    WITHHELD_BYTES + u64::from(pool.frames) * PAGE_SIZE as u64 / 8
}

/// Bytes of changes of pages that flash has lost which memory may hold.
fn lost_bytes(pool: &PoolConfig) -> usize {
    pool.frames as usize * PAGE_SIZE / LOST_SHARE
}

/// The database of these devices, recovered.
fn recovered(mut setup: Setup, devices: Devices) -> Result<Arc<Engine>, Error> {
    let (mut boot, bad_superblock) = find_whole(&*devices.home)?;
    boot.check_features(setup.access)?;
    let header = header::open(&*devices.log, boot.database)?;
    let map = header.map(boot.database);
    // What is read now must not vanish later.
    devices.log.sync().map_err(Error::device(Part::Log, Action::Sync))?;
    let mut flash = FoundFlash::look(&mut setup, &devices, &boot);
    flash.check(&setup, &boot)?;
    system_pages::check(&*devices.home, (&*devices.log, &map), &boot, &setup.pool)?;
    let last_opening = boot;
    begin_epoch(&setup, &devices, &mut boot, &mut flash)?;
    let from = match flash.recovery.scan_from() {
        ScanFrom::OldestDirty => boot.oldest_dirty.min(boot.begin_checkpoint),
        ScanFrom::LogStart => boot.log_start(),
        ScanFrom::OldestBase => boot.oldest_base.min(boot.begin_checkpoint),
    };
    let mut reader = LogReader::new(&*devices.log, map.clone(), from, map.end(boot.log_start()));
    let mut owed = OwedChanges::new(flash.owed_bytes(&setup.pool));
    let told = (&boot, setup.pool.mutations);
    let earlier =
        (boot.oldest_txn < from).then(|| LogReader::new(&*devices.log, map, boot.oldest_txn, from));
    let readers = (earlier, &mut reader);
    let (analysis, end) = analyse(readers, told, &mut flash.recovery, &mut owed)?;
    if !last_opening.clean {
        reader.check_end(last_opening.epoch)?;
        events::recovering(&analysis, end.position.0 - from.0);
    }
    let log = open_log((&devices.log, &header, setup.log_max), &boot, &end, &mut reader)?;
    log.set_marks(analysis.places.iter().copied());
    flash.settle(&setup, &analysis, &boot, end.position)?;
    let newer = flash.recovery.newer_pages();
    let may_have_torn = |page| analysis.dirty.contains_key(&page) || newer.contains(&page);
    let doublewrite = make_whole(&setup, &devices, (&boot, &log, end.position), &may_have_torn)?;
    let journal = LogJournal::new(&log, Lsn(from.0 - 1), doublewrite, lost_bytes(&setup.pool));
    let flash_role = setup.pool.flash_role;
    let pool = BufferPool::open_recovering(
        setup.pool,
        setup.world,
        Arc::clone(&devices.home),
        devices.flash.clone(),
        Arc::clone(&journal) as Arc<dyn terrace_pool::Journal>,
        Some(Arc::new(flash.recovery)),
    )?;
    let parts = Parts {
        log,
        journal,
        pool,
        home: devices.home,
        flash: devices.flash,
        log_device: devices.log,
        boot,
        next_txn: TxnId(analysis.next_txn),
        flash_role,
        lock_bytes: setup.lock_bytes,
        lock_limits: setup.lock_limits,
        version_room: setup.version_room,
        places: setup.places,
        bad_copies: bad_superblock.into_iter().chain(header.bad).chain(setup.bad_label).collect(),
        was_closed: last_opening.clean,
    };
    let engine = Arc::new(Engine::assemble(parts));
    match recover(&engine, setup.losers, &analysis, owed, end.position) {
        Ok(()) => Ok(engine),
        Err(error) => {
            engine.abandon();
            Err(error)
        }
    }
}

/// The first write: home tells of another opening, of its length now, which may have grown, of the
/// stamp that the flash device gets, and of the features that this version writes.
fn begin_epoch(
    setup: &Setup,
    devices: &Devices,
    boot: &mut Superblock,
    flash: &mut FoundFlash,
) -> Result<(), Error> {
    let journal = if flash.is_believed() { boot.flash.journal } else { 0 };
    *boot = Superblock {
        sequence: boot.sequence + 1,
        epoch: boot.epoch + 1,
        clean: false,
        home_pages: devices.home.len() / PAGE_SIZE as u64,
        features: boot.features.to_write(),
        flash: FlashMark { stamps: flash.stamps(&setup.world, boot.epoch), journal },
        ..*boot
    };
    boot.write(&*devices.home)?;
    flash.adopt(setup, &*devices.home, boot)
}

/// The superblock of a home that is as long as it was made.
///
/// # Errors
///
/// `Missing`, `Truncated`, and those of `superblock::find`.
fn find_whole(home: &dyn Device) -> Result<(Superblock, Option<BadCopy>), Error> {
    let Found::Database(boot, bad) = superblock::find(home)? else {
        return Err(Error::Missing { part: Part::Home, path: None });
    };
    let (needed, found) = (boot.home_pages * PAGE_SIZE as u64, home.len());
    if found < needed {
        return Err(Error::Truncated { part: Part::Home, path: None, needed, found });
    }
    Ok((boot, bad))
}

/// Makes good what a power cut has torn at home, and has the copies of earlier openings count no
/// more once home is written. Nothing has read home for redo before, and home was synced with the
/// superblock.
fn make_whole(
    setup: &Setup,
    devices: &Devices,
    (boot, log, end): (&Superblock, &Arc<Log>, Lsn),
    may_have_torn: &dyn Fn(PageId) -> bool,
) -> Result<Option<Arc<Doublewrite>>, Error> {
    let (device, home) = (&devices.log, &devices.home);
    let area = log.space.hold().area();
    let looked = restore_torn(&**device, &**home, area, (boot.database, end), may_have_torn);
    let restored = looked.map_err(|error| match error {
        RestoreError::Log(source) => Error::device(Part::Log, Action::Read)(source),
        RestoreError::Home(operation, source) => {
            Error::device(Part::Home, operation.into())(source)
        }
    })?;
    let owner = DoublewriteOwner { database: boot.database, epoch: boot.epoch };
    let area = log.space.shrink_area()?;
    let area = Doublewrite::new(Arc::clone(device), Arc::clone(home), area, owner);
    let area = area.growing(Arc::clone(log) as _);
    let is_off = setup.torn_pages != TornPages::Doublewrite;
    if is_off || !restored.ahead.is_empty() {
        area.disown(&restored.ahead).map_err(Error::device(Part::Log, Action::Write))?;
    }
    Ok((!is_off).then(|| Arc::new(area)))
}

/// How long a log may get of which `used` bytes are in use. A log may be longer than its limit,
/// after a rollback; so only a limit that is lower than the last one is refused.
fn log_limit(asked: Option<u64>, header: &header::Header, used: u64) -> Result<u64, Error> {
    let Layout::Line(_) = header.table.layout else { return Ok(0) };
    match asked {
        Some(limit) if limit < used && limit < header.table.limit => {
            let what = "the log has more in use: open the database with a larger limit, and lower \
                it after a checkpoint";
            Err(Error::InvalidOption { option: "log_max", what })
        }
        asked => Ok(asked.unwrap_or(LOG_MAX)),
    }
}

/// The log, which goes on where `reader` found its end.
fn open_log(
    (device, header, limit): (&Arc<dyn Device>, &header::Header, Option<u64>),
    boot: &Superblock,
    end: &End,
    reader: &mut LogReader<'_>,
) -> Result<Arc<Log>, Error> {
    let tail_block = if end.position.0.is_multiple_of(BLOCK as u64) {
        vec![0; BLOCK]
    } else {
        reader.block_at(end.position)?
    };
    let limit = log_limit(limit, header, end.position.0 - boot.log_start().0)?;
    let space = LogSpace::new(Arc::clone(device), boot.database, header, limit);
    let kept = (boot.log_start(), end.position);
    let log = Log::open(Arc::clone(device), space, boot.epoch, kept, end.last, &tail_block);
    Ok(Arc::new(log))
}

fn recover(
    engine: &Arc<Engine>,
    fate: Losers,
    analysis: &Analysis,
    mut owed: OwedChanges,
    end: Lsn,
) -> Result<(), Error> {
    engine.trees.promise_pages(analysis.dirty.keys().copied())?;
    if owed.is_whole() {
        owed.keep(analysis, end);
        let pages =
            analysis.dirty.iter().map(|(&page, entry)| (page, entry.rec_lsn, entry.rebuilt_from));
        engine.pool.owe(pages, Arc::new(owed));
    } else if let Some(start) = analysis.redo_start() {
        let (map, device) = engine.log.place();
        let mut reader = LogReader::new(&**device, map.clone(), start, end);
        let mut ahead = LogReader::new(&**device, map, start, end);
        redo(&engine.pool, &engine.journal, analysis, &mut reader, &mut ahead, end)?;
    }
    engine.journal.end_redo();
    let losers = resume_losers(engine, analysis)?;
    let creation = engine.creation();
    if fate == Losers::SetApart {
        *engine.not_undone.lock() = Some(Arc::new(NotUndone::of(losers)?));
        engine.pool.begin();
        return Ok(());
    }
    engine.trees.load(creation)?;
    undo_losers(losers)?;
    engine.pool.begin();
    engine.trees.tidy(engine, creation)?;
    engine.counts.recovered(&analysis.counts, &engine.trees.numbers());
    analysis.thinned.iter().for_each(|&page| engine.reclaim.offer(Work::Page(page)));
    engine.finish_creation();
    engine.checkpoint(Checkpoint::Indirect)
}
