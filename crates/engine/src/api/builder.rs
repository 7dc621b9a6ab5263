//! The builder: how a database is created and opened.

mod in_memory;
mod limits;
mod restoring;
mod setup;
mod storages;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::{Access, Device, OverlayMemory};
use terrace_page::Lsn;
use terrace_policy::{Design, FlashRole, Restart};
use terrace_pool::{ColdStart, Metadata, PoolConfig};
use terrace_rt::{Nanos, World};

pub(crate) use self::restoring::RestoreParts;
use self::storages::Storages;
use crate::api::files::{Files, Label, Made, Overwrite, Sizes};
use crate::api::options::{IoTimeouts, Wrap};
use crate::api::{Checkpoints, DirectIo, TornPages};
use crate::engine::LockLimits;
use crate::error::Places;
use crate::log::{FIRST_LSN, LogShape};
use crate::open::{self, Losers};
use crate::superblock::{self, Found};
use crate::{Action, BadCopy, Database, Devices, Error, Part};

const MEMORY_BYTES: u64 = 64 << 20;
const LOCK_BYTES: u64 = 64 << 20;
const VERSION_BYTES: u64 = 64 << 20;
const LOCK_TIMEOUT: Nanos = Nanos(10_000_000_000);
/// Fewer frames than this may all be latched by one task's splits and evictions.
const FRAMES_MIN: u64 = 16;
/// What recovery would have written to a database that is read only, in memory.
const READ_ONLY_BYTES: u64 = 64 << 20;
const RUN_LIMIT: usize = 256;
const CHECKPOINT_INTERVAL: Nanos = Nanos::from_secs(60);

/// Options with which a database is created or opened.
///
/// The home is the file at the path given to [`Builder::create`] or [`Builder::open`]. The log is
/// the file at the same path with `.log` added, unless [`Builder::log`] names another path. The
/// flash tier is a file of its own ([`Builder::flash`]). Each of the three may be a block device
/// instead; if the home is one, the log needs a path.
///
/// The files keep the size of home, and of a log of fixed size, which `create` sets. All other
/// options, such as memory, flash and design, apply to one opening and may differ at the next.
/// While a database needs what is on flash ([`Builder::flash_role`]), flash, its size and the
/// restart method must stay, the design must be one that can have its flash as a part of the
/// database, and memory must not be much smaller than it was when the flash was first used: the
/// opening is refused with `FlashNeeded`, which says how much memory is needed, or with
/// `InvalidOption`.
///
/// # Examples
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let builder = terrace::Database::builder().memory(16 << 20).home_size(32 << 20);
/// let db = builder.log_size(8 << 20).create(dir.path().join("accounts.terrace"))?;
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Builder {
    pool: PoolConfig,
    memory_bytes: u64,
    flash: Option<(PathBuf, u64)>,
    design: Option<Design>,
    home_bytes: Option<u64>,
    log: Option<PathBuf>,
    /// Of a log of fixed size, where one is made.
    log_bytes: Option<u64>,
    pub(super) log_max: Option<u64>,
    /// How the log of a new database is made: by default as large as its device.
    log_shape: LogShape,
    pub(super) direct_io: DirectIo,
    torn_pages: TornPages,
    checkpoints: Checkpoints,
    devices: Option<Devices>,
    storages: Storages,
    pub(super) io_timeouts: IoTimeouts,
    world: Option<World>,
    lock_bytes: u64,
    lock_limits: LockLimits,
    version_bytes: u64,
    /// Bytes of versions on disk; `None` if no limit was given.
    version_limit: Option<u64>,
    /// Where versions go for which memory has no room, if they are to be spilled: a device, or a
    /// file in a folder.
    version_device: Option<Arc<dyn Device>>,
    version_folder: Option<PathBuf>,
    pub(super) identity: Option<u128>,
    pub(super) first_lsn: Lsn,
    restart: Option<Restart>,
    misses_path: Option<PathBuf>,
    run_limit: usize,
    pub(super) access: Access,
    read_only_bytes: u64,
    /// Where the parts are, for errors.
    places: Places,
    overwrite: Overwrite,
    flash_doubt: Option<ColdStart>,
    is_flash_foreign: bool,
    bad_label: Option<BadCopy>,
    pub(super) losers: Losers,
    pub(super) create_step: fn(),
    pub(super) wrap: Option<Wrap>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            pool: PoolConfig::default(),
            memory_bytes: MEMORY_BYTES,
            flash: None,
            design: None,
            home_bytes: None,
            log: None,
            log_bytes: None,
            log_max: None,
            log_shape: LogShape::Fixed,
            direct_io: DirectIo::Preferred,
            torn_pages: TornPages::Doublewrite,
            checkpoints: Checkpoints::Every(CHECKPOINT_INTERVAL),
            devices: None,
            storages: Storages::default(),
            io_timeouts: IoTimeouts::default(),
            world: None,
            lock_bytes: LOCK_BYTES,
            lock_limits: LockLimits {
                escalate_at: 10_000,
                per_transaction_max: 500_000,
                timeout: LOCK_TIMEOUT,
                close_timeout: LOCK_TIMEOUT,
            },
            version_bytes: VERSION_BYTES,
            version_limit: None,
            version_device: None,
            version_folder: None,
            identity: None,
            first_lsn: FIRST_LSN,
            restart: None,
            misses_path: None,
            run_limit: RUN_LIMIT,
            access: Access::ReadWrite,
            read_only_bytes: READ_ONLY_BYTES,
            places: Places::default(),
            overwrite: Overwrite::No,
            flash_doubt: None,
            is_flash_foreign: false,
            bad_label: None,
            losers: Losers::RollBack,
            create_step: || (),
            wrap: None,
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("memory_bytes", &self.memory_bytes)
            .field("flash", &self.flash)
            .field("log", &self.log)
            .field("torn_pages", &self.torn_pages)
            .field("checkpoints", &self.checkpoints)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// A builder with the defaults: 64 MiB of memory, no flash tier, a log of up to 1 GiB,
    /// a doublewrite area against torn pages, and an indirect checkpoint every minute.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Memory for pages, in bytes: 64 MiB by default, at least 128 KiB, rounded down to whole
    /// pages. Locks ([`Builder::lock_memory`]) and the metadata of the flash tier
    /// ([`Builder::metadata`]) come on top of it.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Builder {
        self.memory_bytes = bytes;
        self
    }

    /// Uses a flash tier of `bytes` in the file or block device at `path`, which is created if
    /// there is none. The database can be opened with another size, with another file or without
    /// one: a flash tier that is a cache then starts cold.
    #[must_use]
    pub fn flash(mut self, path: impl AsRef<Path>, bytes: u64) -> Builder {
        self.flash = Some((path.as_ref().to_path_buf(), bytes));
        self
    }

    /// How the flash tier is used: a design of [`designs`](crate::designs), for instance
    /// `terrace::designs::find("lc")?`. With a flash tier the default is `auto`; without one,
    /// `no-ssd`. It may differ from that of the last opening.
    #[must_use]
    pub fn design(mut self, design: Design) -> Builder {
        self.design = Some(design);
        self
    }

    /// How the contents of the flash tier are found again when the database is next opened: a
    /// restart method of [`restarts`](crate::restarts). With a flash tier the default is `warm`. A
    /// tier that was kept by another restart method starts cold.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Builder {
        self.restart = Some(restart);
        self
    }

    /// Whether the flash tier is a cache that may be lost at any time (the default), or a part of
    /// the database, as FaCE, FASC and CAC were published.
    ///
    /// As a part of the database it counts as durable: changed pages need not be written home
    /// before the log is cut. In return the database does not open without its flash, or with an
    /// older copy of it (`FlashNeeded`). This needs a design that keeps changed pages on flash, and
    /// the restart method `warm` or one of the `map-` methods. After a sharp checkpoint
    /// ([`Database::checkpoint`]) followed by a close, the flash is not needed any more.
    #[must_use]
    pub fn flash_role(mut self, role: FlashRole) -> Builder {
        self.pool.flash_role = role;
        self
    }

    /// Sets the tuning parameters of memory and flash: the memory policy, tau, mu, lambda, the
    /// cleaner, fills, the classifier, TAC's options. Sizes and design have methods of their own,
    /// which override what is set here.
    #[must_use]
    pub fn tune(mut self, change: impl FnOnce(&mut PoolConfig)) -> Builder {
        change(&mut self.pool);
        self
    }

    /// Whether the metadata of the flash tier is charged to [`Builder::memory`], so that a large
    /// tier leaves fewer pages in memory. By default it is allocated on top of it: 20 bytes for
    /// each page of flash with the design `auto` and the restart method `warm`, up to 36 with other
    /// designs.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> Builder {
        self.pool.metadata = metadata;
        self
    }

    /// Writes every change home before the log has grown by `log_bytes` since, at least 64 KiB.
    /// This bounds the log that recovery reads. By default there is no such bound: a changed page
    /// that is not used any more may stay on flash, and its records in the log, until the flash
    /// tier or the log needs the room.
    ///
    /// The cost is extra home writes of pages that change again soon. A home that is too slow may
    /// fall behind the bound.
    #[must_use]
    pub fn clean_age(mut self, log_bytes: u64) -> Builder {
        self.pool.clean_age = Some(log_bytes);
        self
    }

    /// Size of the home file in bytes. It is reserved when the database is created, or opened with
    /// a larger size than it has, so that a full disk is noticed then. By default the home is a
    /// sparse file that grows a few MiB at a time, up to 64 GiB. When its file system is full,
    /// transactions that need space fail with `HomeFull`, and no others. The file keeps its length;
    /// [`Database::compact`] gives the space of free pages back. If
    /// its file or block device has become larger, all of it is used.
    #[must_use]
    pub fn home_size(mut self, bytes: u64) -> Builder {
        self.home_bytes = Some(bytes);
        self
    }

    /// Path of the log, if it is not beside the home. It must be given at every opening.
    #[must_use]
    pub fn log(mut self, path: impl AsRef<Path>) -> Builder {
        self.log = Some(path.as_ref().to_path_buf());
        self
    }

    /// How long the log may get, in bytes: 1 GiB by default, from 1 MiB to 4 TiB. It begins with a
    /// few hundred KiB, grows as it is used, and gives room back when it is used less. The limit
    /// applies to one opening and may differ at the next; opening with a lower one than the last is
    /// refused with `InvalidOption` while more than it is in use. Rollbacks, checkpoints and
    /// recovery may exceed it, and the doublewrite area, of up to 8 MiB, comes on top. A log that
    /// was created with [`Builder::log_size`], or is a block device, keeps its size.
    ///
    /// It bounds a transaction: the records of one transaction and of its rollback may fill half of
    /// it. Values of 1 MiB and more are not logged. Checkpoints are taken when the log is half as
    /// long as it may get. If the file system has no room for growth, the log is full at the length
    /// that it has: transactions wait, or fail with `LogFull`, and no others.
    #[must_use]
    pub fn log_max(mut self, bytes: u64) -> Builder {
        (self.log_max, self.log_bytes) = (Some(bytes), None);
        self.log_shape = LogShape::Growing;
        self
    }

    /// Size of a log that does not grow, in bytes, when the database is created: from 1 MiB to 4
    /// TiB, reserved at once. It cannot be changed later, except by `terrace dump` and `terrace
    /// load`. By default the log grows instead ([`Builder::log_max`]).
    ///
    /// A sixteenth of it, 128 KiB to 8 MiB, is the doublewrite area ([`Builder::torn_pages`]).
    #[must_use]
    pub fn log_size(mut self, bytes: u64) -> Builder {
        self.log_bytes = Some(bytes);
        self.log_shape = LogShape::Fixed;
        self
    }

    /// Whether files that do not support direct I/O may be used: yes by default.
    #[must_use]
    pub fn direct_io(mut self, direct_io: DirectIo) -> Builder {
        self.direct_io = direct_io;
        self
    }

    /// How torn pages are handled: by default with a doublewrite area.
    #[must_use]
    pub fn torn_pages(mut self, torn_pages: TornPages) -> Builder {
        self.torn_pages = torn_pages;
        self
    }

    /// When checkpoints are taken: by default every minute.
    #[must_use]
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Builder {
        self.checkpoints = checkpoints;
        self
    }

    /// Uses these devices instead of files. Finish with `create_on_devices`, `open_on_devices` or
    /// `open_or_create_on_devices`.
    #[must_use]
    pub fn devices(mut self, devices: Devices) -> Builder {
        self.devices = Some(devices);
        self
    }

    /// The world in which background tasks run, real or virtual: by default that of the caller.
    #[must_use]
    pub fn world(mut self, world: World) -> Builder {
        self.world = Some(world);
        self
    }

    /// Writes the statistics of [`Database::misses`] to the file at `path` when the database is
    /// closed. If that is the path of the home with `.misses` added, `terrace advise` finds it. By
    /// default nothing is written. `create` and `open` refuse a path at which there is any other
    /// file.
    #[must_use]
    pub fn keep_misses(mut self, path: impl AsRef<Path>) -> Builder {
        self.misses_path = Some(path.as_ref().to_path_buf());
        self
    }

    /// Opens the database for reading only: no byte of its files changes, and they need no write
    /// permission. After a crash recovery runs as usual, but its writes are kept in memory
    /// ([`Builder::read_only_memory`]). Several processes may have a database open for reading, as
    /// long as none has it open for writing.
    ///
    /// A flash tier that is given is only read, too. One that is a cache need not be given.
    ///
    /// # Examples
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("bank.terrace");
    /// # let small = terrace::Database::builder().home_size(32 << 20).log_size(8 << 20);
    /// # small.create(&path)?.close()?;
    /// let db = terrace::Database::builder().memory(16 << 20).read_only().open(&path)?;
    /// assert!(matches!(db.begin_write(), Err(terrace::Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn read_only(mut self) -> Builder {
        self.access = Access::ReadOnly;
        self
    }

    /// Memory for the writes of recovery in a read-only opening, in bytes: 64 MiB by default.
    /// Beyond that they go to an unnamed temporary file.
    #[must_use]
    pub fn read_only_memory(mut self, bytes: u64) -> Builder {
        self.read_only_bytes = bytes;
        self
    }

    /// Whether `create` may destroy what is at the paths of home, log and flash, and `open` what is
    /// at the path of the flash. By default they use only a blank file or block device: its first
    /// and last MiB and a sample of a thousand pages in between are zeroes, and it has no signature
    /// of a file system or of another known format.
    ///
    /// What is open elsewhere, or mounted, is never overwritten, and `open_or_create` never
    /// overwrites a home or a log. On a block device, and in the file of a flash that is opened,
    /// old data remain until they are overwritten. An opening that is refused destroys nothing.
    #[must_use]
    pub fn overwrite(mut self, may_destroy: bool) -> Builder {
        self.overwrite = if may_destroy { Overwrite::Yes } else { Overwrite::No };
        self
    }

    /// Creates a database at `path`. Files get the permissions 0600. If `path` is a symbolic link,
    /// home and log are created at its target. If it is a block device, [`Builder::log`] must be
    /// set.
    ///
    /// # Errors
    ///
    /// `Exists` if there is a database, `NotBlank` if there is anything else (see
    /// [`Builder::overwrite`]); `AlreadyOpen`, `LogPlace`, `NoRoom`, `NotAFile`, `Device`,
    /// `InvalidOption`, `Reentrant`. Files that were created are removed again.
    pub fn create(mut self, path: impl AsRef<Path>) -> Result<Database, Error> {
        self.check()?;
        self.check_writable()?;
        self.check_storages_beside_files()?;
        let files = self.files(path.as_ref(), self.overwrite)?;
        self.places = files.places();
        self.version_folder = files.folder();
        let sizes = Sizes { home: self.home_bytes, log: self.log_bytes };
        let flash = self.storage_of_flash()?;
        let (mut devices, shape, made) = files.create(&sizes, &self.create_step)?;
        devices.flash = devices.flash.or(flash);
        self.log_shape = shape;
        let step = self.create_step;
        let created = self.on_files(devices).create_on_devices();
        if created.is_err() {
            made.take_away();
        }
        step();
        created
    }

    /// Opens the database at `path`, and recovers it first if it was not closed. If `path` is a
    /// symbolic link, the log is expected beside its target. A flash tier that is a cache and
    /// cannot be used as it is starts cold; if its device has failed, or its file system has no
    /// room for it, the database opens without it. [`Database::cold_start`] says why. It prevents
    /// opening only if something other than a flash tier is at its path, if the path cannot be used
    /// (`Device`, `NotAFile`), or if a block device is smaller than the size given (`NoRoom`).
    ///
    /// # Errors
    ///
    /// No database there: `Missing`, `NotADatabase`, `NotAFile`, `LogPlace`. Another version:
    /// `NewerFormat`, `OlderFormat`, `UnknownFeatures`. Damage: `Truncated`, `Corrupt`,
    /// `CorruptLog`, `RedoGap`. No space: `HomeFull`, `LogFull`. Flash: `FlashNeeded`, `NotBlank`,
    /// `NoRoom`. And `AlreadyOpen`, `Device`, `InvalidOption`, `Reentrant`.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Database, Error> {
        self.check()?;
        self.check_storages_beside_files()?;
        let files = self.files(path.as_ref(), self.overwrite)?;
        self.places = files.places();
        self.version_folder = files.folder();
        let (mut made, limit) = (Made::default(), self.io_timeouts.flash);
        match self.open_files(&files, &mut made) {
            Ok((database, label)) => {
                label.into_iter().for_each(|label| label.put(limit));
                Ok(database)
            }
            Err(error) => {
                made.take_away();
                Err(error)
            }
        }
    }

    /// Opens the database of `files`, and says which label its flash is to get. What becomes longer
    /// for that, or is made, is noted in `made`.
    fn open_files(
        mut self,
        files: &Files,
        made: &mut Made,
    ) -> Result<(Database, Option<Label>), Error> {
        let home = files.open_home(self.access, self.home_bytes, made)?;
        // A home that is no database is an error before any other part is looked for, or created.
        let boot = match superblock::find(&*home) {
            Ok(Found::Database(boot, _)) => boot,
            Ok(Found::Nothing) => {
                let missing = Error::Missing { part: Part::Home, path: None };
                return Err(self.places.explain(files.foreign(missing)));
            }
            Err(error) => return Err(self.places.explain(files.foreign(error))),
        };
        let opened = files.open(home, self.access, &boot, made)?;
        self.flash_doubt = opened.flash_doubt;
        self.is_flash_foreign = opened.is_flash_foreign;
        let mut devices = opened.devices;
        devices.flash = devices.flash.or_else(|| self.storage_of_flash_or_doubt());
        if let (None, Some(why)) = (&devices.flash, self.flash_doubt)
            && self.access == Access::ReadWrite
            && self.pool.flash_role.is_persistent()
        {
            // It needs nothing of it now, and would from the first change on.
            let needed = Error::FlashNeeded { path: None, why };
            return Err(self.places.explain(needed));
        }
        self.bad_label = opened.bad_label;
        let label = opened.label.filter(|_| self.access == Access::ReadWrite);
        let database = self.on_files(devices).open_on_devices()?;
        Ok((database, label))
    }

    /// Opens the database at `path`, or creates it if there is no file, an empty one, or one that
    /// is all zeroes.
    ///
    /// # Errors
    ///
    /// Those of `open` and `create`.
    pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<Database, Error> {
        let path = path.as_ref();
        let may_be_there = || self.files(path, Overwrite::No).map(|files| files.may_be_there());
        if may_be_there()? {
            return self.open(path);
        }
        // The flash alone may be overwritten.
        let overwrites = self.overwrite == Overwrite::Yes;
        let overwrite = if overwrites { Overwrite::FlashOnly } else { Overwrite::No };
        let created = Builder { overwrite, ..self.clone() }.create(path);
        match created {
            // Another caller has created it meanwhile.
            Err(Error::Exists { part: Part::Home, .. }) => self.open(path),
            created => created,
        }
    }

    /// Creates a database on the devices given, which must be blank.
    ///
    /// # Errors
    ///
    /// As `create`.
    pub fn create_on_devices(self) -> Result<Database, Error> {
        self.check()?;
        self.check_writable()?;
        let setup = self.setup()?;
        let devices = self.given()?;
        let drawn = self.identity.map_or_else(|| setup.world.unique_id(), Ok);
        let identity = drawn.map_err(Error::device(Part::Home, Action::Open))?;
        let created = open::create(&devices, identity, self.first_lsn, self.log_shape);
        let opened = created.and_then(|()| open::open(setup.clone(), devices));
        let engine = opened.map_err(|error| setup.places.explain(error))?;
        let (access, rest) = (Access::ReadWrite, (self.run_limit, self.misses_path));
        Database::start(engine, &setup.world, access, self.checkpoints, rest)
    }

    /// Opens the database on the devices given.
    ///
    /// # Errors
    ///
    /// As `open`.
    pub fn open_on_devices(self) -> Result<Database, Error> {
        self.check()?;
        let setup = self.setup()?;
        let mut devices = self.given()?;
        if self.access == Access::ReadOnly {
            devices = devices.read_only(&OverlayMemory::new(self.read_only_bytes));
        }
        let opened = open::open(setup.clone(), devices);
        let engine = opened.map_err(|error| setup.places.explain(error))?;
        let (access, rest) = (self.access, (self.run_limit, self.misses_path));
        Database::start(engine, &setup.world, access, self.checkpoints, rest)
    }

    /// Opens the database on the devices given, or creates it if they are blank.
    ///
    /// # Errors
    ///
    /// As `open_or_create`.
    pub fn open_or_create_on_devices(self) -> Result<Database, Error> {
        if open::is_database(&*self.given()?.home)? {
            self.open_on_devices()
        } else {
            self.create_on_devices()
        }
    }

    /// Uses the devices of files, and what is to be put over them.
    fn on_files(self, devices: Devices) -> Builder {
        let devices = match &self.wrap {
            Some(wrap) => wrap(devices),
            None => devices,
        };
        self.devices(devices)
    }

    fn check_writable(&self) -> Result<(), Error> {
        let what = "a database that is read only cannot be created";
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Error::InvalidOption { option: "read_only", what }),
        }
    }

    /// The files of a database whose home is at `path`.
    fn files(&self, path: &Path, overwrite: Overwrite) -> Result<Files, Error> {
        let flash = self.flash.as_ref().map(|(path, bytes)| (path.as_path(), *bytes));
        let how = (self.direct_io, overwrite);
        Files::at(path, self.log.as_deref(), flash, self.io_timeouts.flash, how)
    }
}
