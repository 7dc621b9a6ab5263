//! The builder: how a database is created and opened.

use std::path::Path;
use std::sync::Arc;

use terrace_device::Device;
use terrace_policy::Design;
use terrace_pool::PoolConfig;
use terrace_rt::{Nanos, World};

use crate::{Database, Error};

/// Whether a full image of a page is logged before its first change after it was clean.
///
/// Images repair home pages that a power cut has torn. Without them such a page is seen (by its
/// checksum) and refused, not repaired: only for devices that write 8 KiB atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullImages {
    /// Images are logged.
    On,
    /// Images are not logged.
    Off,
}

/// When checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoints {
    /// Only when asked for, when the log runs full, and when the database is closed.
    Off,
    /// Indirect ones whenever this much time has passed, and when the log runs full.
    Every(Nanos),
}

/// The devices of a database: for modelled and faulty devices, or a storage of your own.
///
/// # Examples
///
/// ```no_run
/// # fn devices() -> terrace::Devices { unimplemented!() }
/// let db = terrace::Database::builder().devices(devices()).open_or_create_on_devices()?;
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone)]
pub struct Devices {
    /// Where every page has its permanent place.
    pub home: Arc<dyn Device>,
    /// The flash tier, if there is one.
    pub flash: Option<Arc<dyn Device>>,
    /// The log.
    pub log: Arc<dyn Device>,
}

/// How a database is created and opened.
///
/// At a path, the home is a file of that name and the log is `PATH.log`, unless `log` names
/// another place. The flash tier is a file or block device of its own.
///
/// # Examples
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = terrace::Database::builder()
///     .memory(16 << 20)
///     .log_size(64 << 20)
///     .create(dir.path().join("accounts.terrace"))?;
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Builder {}

impl Builder {
    /// A builder with the defaults: 64 MiB of memory, no flash, a log of 256 MiB, full images,
    /// an indirect checkpoint each minute.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Memory for pages, in bytes: rounded down to whole pages.
    #[must_use]
    pub fn memory(self, _bytes: u64) -> Builder {
        unimplemented!()
    }

    /// Keeps a flash tier of `bytes` in the file or block device at `path`.
    #[must_use]
    pub fn flash(self, _path: impl AsRef<Path>, _bytes: u64) -> Builder {
        unimplemented!()
    }

    /// How the flash tier is used: a row of `terrace_policy::designs::DESIGNS`.
    #[must_use]
    pub fn design(self, _design: Design) -> Builder {
        unimplemented!()
    }

    /// Tunes memory and flash by what the papers name: memory policy, tau, mu, lambda, the cleaner,
    /// the fills, the classifier, TAC's choices. Sizes and design have methods of their own, which
    /// win over what is set here.
    #[must_use]
    pub fn tune(self, _change: impl FnOnce(&mut PoolConfig)) -> Builder {
        unimplemented!()
    }

    /// The most bytes that the home may grow to, when it is created. The file is sparse.
    #[must_use]
    pub fn home_size(self, _bytes: u64) -> Builder {
        unimplemented!()
    }

    /// Puts the log at `path` instead of beside the home.
    #[must_use]
    pub fn log(self, _path: impl AsRef<Path>) -> Builder {
        unimplemented!()
    }

    /// Bytes of the log, when it is created.
    #[must_use]
    pub fn log_size(self, _bytes: u64) -> Builder {
        unimplemented!()
    }

    /// Whether full images of pages are logged.
    #[must_use]
    pub fn full_images(self, _images: FullImages) -> Builder {
        unimplemented!()
    }

    /// When checkpoints are taken.
    #[must_use]
    pub fn checkpoints(self, _checkpoints: Checkpoints) -> Builder {
        unimplemented!()
    }

    /// The devices to use, instead of files. Then end with `create_on_devices`,
    /// `open_on_devices` or `open_or_create_on_devices`.
    #[must_use]
    pub fn devices(self, _devices: Devices) -> Builder {
        unimplemented!()
    }

    /// The world to run in: by default the one of the caller. Background tasks live there.
    #[must_use]
    pub fn world(self, _world: World) -> Builder {
        unimplemented!()
    }

    /// Creates a database at `path`.
    ///
    /// # Errors
    ///
    /// `Exists` if there is anything; `Device`, `InvalidOption`.
    pub fn create(self, _path: impl AsRef<Path>) -> Result<Database, Error> {
        unimplemented!()
    }

    /// Opens the database at `path`, after a crash too: it recovers first.
    ///
    /// # Errors
    ///
    /// `Missing`, `NotADatabase`, `NewerFormat`, `AlreadyOpen`, `Corrupt`, `CorruptLog`,
    /// `RedoGap`, `Device`, `InvalidOption`.
    pub fn open(self, _path: impl AsRef<Path>) -> Result<Database, Error> {
        unimplemented!()
    }

    /// Opens the database at `path`, or creates it if there is nothing.
    ///
    /// # Errors
    ///
    /// Those of `open` and `create`.
    pub fn open_or_create(self, _path: impl AsRef<Path>) -> Result<Database, Error> {
        unimplemented!()
    }

    /// Creates a database on the devices given, which must be blank.
    ///
    /// # Errors
    ///
    /// As `create`.
    pub fn create_on_devices(self) -> Result<Database, Error> {
        unimplemented!()
    }

    /// Opens the database on the devices given.
    ///
    /// # Errors
    ///
    /// As `open`.
    pub fn open_on_devices(self) -> Result<Database, Error> {
        unimplemented!()
    }

    /// Opens the database on the devices given, or creates it if they are blank.
    ///
    /// # Errors
    ///
    /// As `open_or_create`.
    pub fn open_or_create_on_devices(self) -> Result<Database, Error> {
        unimplemented!()
    }
}
