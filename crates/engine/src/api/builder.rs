//! The builder: how a database is created and opened.

mod setup;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::{Access, OverlayMemory};
use terrace_page::{LOG_BYTES_MAX, Lsn, PAGE_SIZE};
use terrace_policy::{Design, FlashRole, Restart};
use terrace_pool::{ColdStart, Metadata, PoolConfig};
use terrace_rt::{Nanos, World};

use crate::api::files::{Files, Overwrite, Sizes};
use crate::api::options::{IoTimeouts, Wrap};
use crate::api::{Checkpoints, DirectIo, Misses, TornPages};
use crate::engine::LockLimits;
use crate::error::Places;
use crate::log::FIRST_LSN;
use crate::open::{self, Losers};
use crate::superblock::{self, Found};
use crate::{Action, BadCopy, Database, Devices, Error, Part};

const MEMORY_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 256 << 20;
const LOCK_BYTES: u64 = 64 << 20;
const LOCK_TIMEOUT: Nanos = Nanos(10_000_000_000);
/// Fewer frames than this may all be latched by one task's splits and evictions.
const FRAMES_MIN: u64 = 16;
/// What recovery would have written to a database that is read only, in memory.
const READ_ONLY_BYTES: u64 = 64 << 20;
const CHECKPOINT_INTERVAL: Nanos = Nanos::from_secs(60);

/// How a database is created and opened.
///
/// At a path, the home is a file of that name and the log is a file beside it, with `.log` added,
/// unless [`Builder::log`] names another place. The flash tier is a file or block device of its
/// own. Each may be a block device; a log has no place beside one, and then needs a path.
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
    log_bytes: u64,
    pub(super) direct_io: DirectIo,
    torn_pages: TornPages,
    checkpoints: Checkpoints,
    devices: Option<Devices>,
    pub(super) io_timeouts: IoTimeouts,
    world: Option<World>,
    lock_bytes: u64,
    lock_limits: LockLimits,
    pub(super) identity: Option<u128>,
    pub(super) first_lsn: Lsn,
    restart: Option<Restart>,
    misses_path: Option<PathBuf>,
    pub(super) access: Access,
    read_only_bytes: u64,
    /// Where the parts are, for errors.
    places: Places,
    overwrite: Overwrite,
    flash_doubt: Option<ColdStart>,
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
            log_bytes: LOG_BYTES,
            direct_io: DirectIo::Preferred,
            torn_pages: TornPages::Doublewrite,
            checkpoints: Checkpoints::Every(CHECKPOINT_INTERVAL),
            devices: None,
            io_timeouts: IoTimeouts::default(),
            world: None,
            lock_bytes: LOCK_BYTES,
            lock_limits: LockLimits {
                escalate_at: 10_000,
                per_transaction_max: 500_000,
                timeout: LOCK_TIMEOUT,
                close_timeout: LOCK_TIMEOUT,
            },
            identity: None,
            first_lsn: FIRST_LSN,
            restart: None,
            misses_path: None,
            access: Access::ReadWrite,
            read_only_bytes: READ_ONLY_BYTES,
            places: Places::default(),
            overwrite: Overwrite::No,
            flash_doubt: None,
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
    /// A builder with the defaults: 64 MiB of memory, no flash, a log of 256 MiB, doublewrite,
    /// an indirect checkpoint each minute.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Memory for pages, in bytes: rounded down to whole pages, at least 128 KiB.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Builder {
        self.memory_bytes = bytes;
        self
    }

    /// Keeps a flash tier of `bytes` in the file or block device at `path`, with the design `auto`
    /// unless `design` says otherwise.
    #[must_use]
    pub fn flash(mut self, path: impl AsRef<Path>, bytes: u64) -> Builder {
        self.flash = Some((path.as_ref().to_path_buf(), bytes));
        self
    }

    /// How the flash tier is used: a row of `terrace_policy::designs::DESIGNS`.
    #[must_use]
    pub fn design(mut self, design: Design) -> Builder {
        self.design = Some(design);
        self
    }

    /// What of the flash tier is found again when the database is next opened: a row of
    /// `terrace_policy::RESTARTS`. With a flash tier the default is `warm`.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Builder {
        self.restart = Some(restart);
        self
    }

    /// Whether flash is a part of the database, as FaCE, FASC and CAC are published, or a cache
    /// that may vanish: the default.
    ///
    /// A part of the database does not hold the log: what is on flash need not go home before the
    /// log is cut. But without it, or with an older copy of it, the database does not open
    /// (`FlashNeeded`). It wants a design that keeps changed pages on flash, and a restart with
    /// a journalled table (`warm`). A sharp checkpoint brings all home; closed then, the database
    /// can do without.
    #[must_use]
    pub fn flash_role(mut self, role: FlashRole) -> Builder {
        self.pool.flash_role = role;
        self
    }

    /// Tunes memory and flash by what the papers name: memory policy, tau, mu, lambda, the cleaner,
    /// the fills, the classifier, TAC's choices. Sizes and design have methods of their own, which
    /// win over what is set here.
    #[must_use]
    pub fn tune(mut self, change: impl FnOnce(&mut PoolConfig)) -> Builder {
        change(&mut self.pool);
        self
    }

    /// Whether the memory that the books of the flash tier take comes out of [`Builder::memory`]:
    /// then a large tier leaves fewer pages in memory. By default it is beside it: 16 bytes for
    /// each page of flash with the design `auto`, twice that with some others.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> Builder {
        self.pool.metadata = metadata;
        self
    }

    /// Brings every change home after so many bytes of log, whatever else the cleaner goes by: a
    /// bound on what recovery redoes, at least 64 KiB. Without, pages that nobody uses may stay on
    /// flash alone for ever, and hold the log.
    ///
    /// It counts bytes of log, not time, since these are what recovery reads. What it costs is home
    /// writes of pages that would have changed again.
    #[must_use]
    pub fn clean_age(mut self, log_bytes: u64) -> Builder {
        self.pool.clean_age = Some(log_bytes);
        self
    }

    /// Bytes of the home, when it is created, or opened and smaller: reserved at once, so that a
    /// full disk is found out then. Without, the home is a sparse file that may grow to 64 GiB, a
    /// few MiB at a time; where its file system is full, transactions that need room fail with
    /// `HomeFull`, and no others. A file or block device that has grown is used to its end.
    #[must_use]
    pub fn home_size(mut self, bytes: u64) -> Builder {
        self.home_bytes = Some(bytes);
        self
    }

    /// Puts the log at `path` instead of beside the home.
    #[must_use]
    pub fn log(mut self, path: impl AsRef<Path>) -> Builder {
        self.log = Some(path.as_ref().to_path_buf());
        self
    }

    /// Bytes of the log, when it is created: from 1 MiB to 4 TiB. A sixteenth, 128 KiB to 8 MiB, is
    /// for copies of pages ([`Builder::torn_pages`]). Half of the rest may be one transaction's,
    /// what its rollback would write included: of rows of 1,000 bytes, as measured, a fifth of the
    /// log's size in new or shortened ones, a seventh in replaced ones.
    #[must_use]
    pub fn log_size(mut self, bytes: u64) -> Builder {
        self.log_bytes = bytes;
        self
    }

    /// Whether files are used that have no direct I/O.
    #[must_use]
    pub fn direct_io(mut self, direct_io: DirectIo) -> Builder {
        self.direct_io = direct_io;
        self
    }

    /// What is done about torn pages.
    #[must_use]
    pub fn torn_pages(mut self, torn_pages: TornPages) -> Builder {
        self.torn_pages = torn_pages;
        self
    }

    /// When checkpoints are taken.
    #[must_use]
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Builder {
        self.checkpoints = checkpoints;
        self
    }

    /// The devices to use, instead of files. Then end with `create_on_devices`,
    /// `open_on_devices` or `open_or_create_on_devices`.
    #[must_use]
    pub fn devices(mut self, devices: Devices) -> Builder {
        self.devices = Some(devices);
        self
    }

    /// The world to run in: by default the one of the caller. Background tasks live there.
    #[must_use]
    pub fn world(mut self, world: World) -> Builder {
        self.world = Some(world);
        self
    }

    /// Memory for locks, in bytes, taken as needed: by default at most 64 MiB.
    #[must_use]
    pub fn lock_memory(mut self, bytes: u64) -> Builder {
        self.lock_bytes = bytes;
        self
    }

    /// How long a transaction waits for a lock before it fails with `LockTimeout`, and for room in
    /// a full log before it fails with `LogHeld`: 10 s by default. A transaction may set its own
    /// limit.
    #[must_use]
    pub fn lock_timeout(mut self, limit: Nanos) -> Builder {
        self.lock_limits.timeout = limit;
        self
    }

    /// How long closing waits for transactions that other tasks and threads have open: 10 s by
    /// default. Those that are still open then are told `Closed`, and rolled back at the next
    /// opening.
    #[must_use]
    pub fn close_timeout(mut self, limit: Nanos) -> Builder {
        self.lock_limits.close_timeout = limit;
        self
    }

    /// How many rows of a table a transaction locks before it tries to lock the table instead.
    #[must_use]
    pub fn lock_escalation(mut self, rows: usize) -> Builder {
        self.lock_limits.escalate_at = rows;
        self
    }

    /// Writes what memory missed to the file at `path` when the database is closed, as
    /// [`Database::misses`] has it. With the path of the home and `.misses` behind it,
    /// `terrace advise` finds it beside the database. Not written unless asked for. A file that
    /// holds anything else is never overwritten: `create` and `open` refuse its path.
    #[must_use]
    pub fn keep_misses(mut self, path: impl AsRef<Path>) -> Builder {
        self.misses_path = Some(path.as_ref().to_path_buf());
        self
    }

    /// Opens the database to be read only: no byte of it changes, and its files need no permission
    /// to write. After a crash it is recovered as ever, but what that writes stays in memory (see
    /// [`Builder::read_only_memory`]). Several may read at once, while nobody writes.
    ///
    /// A flash tier that is named is only read, too; one that is a cache may be left out.
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

    /// Memory, in bytes, for what recovery would have written to a database that is opened to be
    /// read only: 64 MiB unless told otherwise. What is more goes to a temporary file without a
    /// name.
    #[must_use]
    pub fn read_only_memory(mut self, bytes: u64) -> Builder {
        self.read_only_bytes = bytes;
        self
    }

    /// Whether what stands at the paths of home, log and flash may be destroyed: by default only a
    /// blank file or block device is taken, which means that its first and last MiB are zeroes, a
    /// thousand pages between them are, and no other system has left its signature.
    ///
    /// It is for `create`, and for a flash tier that is opened. What a block device has between its
    /// ends stays until it is written over. Nothing overwrites what somebody has open, or mounted,
    /// and `open_or_create` never overwrites a home or a log.
    #[must_use]
    pub fn overwrite(mut self, may_destroy: bool) -> Builder {
        self.overwrite = if may_destroy { Overwrite::Yes } else { Overwrite::No };
        self
    }

    /// Creates a database at `path`. Files are made for their user alone (0600). Where `path` is a
    /// symbolic link, home and log are what and where it leads to. Where it is a block device,
    /// [`Builder::log`] must say where the log is to be.
    ///
    /// # Errors
    ///
    /// `Exists` if there is a database, `NotBlank` if there is anything else (see
    /// [`Builder::overwrite`]); `AlreadyOpen`, `LogPlace`, `NoRoom`, `NotAFile`, `Device`,
    /// `InvalidOption`, `Reentrant`. Files that were made are gone then.
    pub fn create(mut self, path: impl AsRef<Path>) -> Result<Database, Error> {
        self.check()?;
        self.check_writable()?;
        let files = self.files(path.as_ref(), self.overwrite)?;
        self.places = files.places();
        let sizes = Sizes { home: self.home_bytes, log: self.log_bytes };
        let (devices, made) = files.create(&sizes, &self.create_step)?;
        let step = self.create_step;
        let created = self.on_files(devices).create_on_devices();
        if created.is_err() {
            made.take_away();
        }
        step();
        created
    }

    /// Opens the database at `path`, after a crash too: it recovers first. Where `path` is a
    /// symbolic link, the log is looked for beside what it leads to. A flash tier that the database
    /// can do without and that is not whole starts cold: see [`Database::cold_start`].
    ///
    /// # Errors
    ///
    /// Not there: `Missing`, `NotADatabase`, `NotAFile`, `LogPlace`. Another version's:
    /// `NewerFormat`, `OlderFormat`, `UnknownFeatures`. Damaged: `Truncated`, `Corrupt`,
    /// `CorruptLog`, `RedoGap`. No room: `HomeFull`, `LogFull`. Flash: `FlashNeeded`, `NotBlank`,
    /// `NoRoom`. And `AlreadyOpen`, `Device`, `InvalidOption`, `Reentrant`.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Database, Error> {
        self.check()?;
        let files = self.files(path.as_ref(), self.overwrite)?;
        self.places = files.places();
        let home = files.open_home(self.access, self.home_bytes)?;
        // What is no database is told before anything else is looked for, or made for it.
        let boot = match superblock::find(&*home) {
            Ok(Found::Database(boot, _)) => boot,
            Ok(Found::Nothing) => {
                let missing = Error::Missing { part: Part::Home, path: None };
                return Err(self.places.explain(files.foreign(missing)));
            }
            Err(error) => return Err(self.places.explain(files.foreign(error))),
        };
        let opened = files.open(home, self.access, &boot)?;
        self.flash_doubt = opened.flash_doubt;
        if let (None, Some(why)) = (&opened.devices.flash, self.flash_doubt)
            && self.access == Access::ReadWrite
            && self.pool.flash_role.is_persistent()
        {
            // It needs nothing of it now, and would from the first change on.
            let needed = Error::FlashNeeded { path: None, why };
            return Err(self.places.explain(needed));
        }
        self.bad_label = opened.bad_label.as_ref().map(|label| label.copy);
        let (access, limit) = (self.access, self.io_timeouts.flash);
        let database = self.on_files(opened.devices).open_on_devices()?;
        if let Some(label) = opened.bad_label.filter(|_| access == Access::ReadWrite) {
            label.repair(limit);
        }
        Ok(database)
    }

    /// Opens the database at `path`, or creates it if there is nothing, or nothing but zeroes.
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
            // Somebody else has created it meanwhile.
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
        let created = open::create(&devices, identity, self.first_lsn);
        let opened = created.and_then(|()| open::open(setup.clone(), devices));
        let engine = opened.map_err(|error| setup.places.explain(error))?;
        let (access, misses_path) = (Access::ReadWrite, self.misses_path);
        Database::start(engine, &setup.world, access, self.checkpoints, misses_path)
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
        let (access, misses_path) = (self.access, self.misses_path);
        Database::start(engine, &setup.world, access, self.checkpoints, misses_path)
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

    /// Checks what can be checked before anything is touched.
    fn check(&self) -> Result<(), Error> {
        let bad = |option, what| Err(Error::InvalidOption { option, what });
        let page = PAGE_SIZE as u64;
        match self {
            _ if terrace_rt::in_callback() => Err(Error::Reentrant),
            _ if self.memory_bytes < FRAMES_MIN * page => {
                bad("memory", "memory must be at least 128 KiB")
            }
            _ if self.memory_bytes / page > u64::from(u32::MAX) => {
                bad("memory", "memory must be less than 32 TiB")
            }
            _ if self.log_bytes < 1 << 20 => bad("log_size", "the log must have at least 1 MiB"),
            _ if self.log_bytes >= LOG_BYTES_MAX => {
                bad("log_size", "the log must have less than 4 TiB")
            }
            _ if self.home_bytes.is_some_and(|bytes| bytes < 64 * page) => {
                bad("home_size", "the home must have at least 512 KiB")
            }
            _ if self.flash.as_ref().is_some_and(|(_, bytes)| *bytes < 64 * page) => {
                bad("flash", "the flash must have at least 512 KiB")
            }
            _ if self.misses_path.as_ref().is_some_and(|path| !takes_misses(path)) => {
                bad("keep_misses", "the path must be that of a file of misses, or of no file")
            }
            _ if self.lock_limits.escalate_at == 0 => {
                bad("lock_escalation", "locks must escalate at one row or more")
            }
            _ if matches!(self.checkpoints, Checkpoints::Every(Nanos(0))) => {
                bad("checkpoints", "the time between checkpoints must not be zero")
            }
            _ if self.world.is_some() => Ok(()),
            _ => terrace_rt::start_default_world()
                .map_err(|source| Error::NoThread { source: Arc::new(source) }),
        }
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

/// Whether what memory missed may go there, as far as can be told.
fn takes_misses(path: &Path) -> bool {
    Misses::may_go_to(path).unwrap_or(false)
}
