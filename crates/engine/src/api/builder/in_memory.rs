//! Databases without files: their home and log are modelled devices that answer at once.

use std::sync::Arc;

use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_page::PAGE_SIZE;

use super::Builder;
use crate::api::Devices;
use crate::log::{LogShape, header};
use crate::{Database, Error, World};

/// What home may grow to, unless `Builder::home_size` says otherwise. Only what is written takes
/// memory.
const HOME_BYTES: u64 = 64 << 30;

impl Builder {
    /// Creates a database in memory, which goes when it is closed: for tests, caches and scratch
    /// data. Everything but durability is as with files. Besides the memory for pages
    /// ([`Builder::memory`]) it takes what its pages and its log take: at least the data, as pages
    /// have a second copy in their place at home.
    ///
    /// # Errors
    ///
    /// `InvalidOption`, also for a flash tier, a log's path or `read_only`; `Reentrant`.
    pub fn create_in_memory(mut self) -> Result<Database, Error> {
        self.check()?;
        let what = "a database in memory has no files";
        if self.flash.is_some() {
            return Err(Error::InvalidOption { option: "flash", what });
        }
        if self.log.is_some() {
            return Err(Error::InvalidOption { option: "log", what });
        }
        let world = self.world.clone().unwrap_or_else(World::current);
        let device = |bytes| -> Arc<dyn Device> {
            build(Preset::Ram, world.clone(), Store::new(bytes, Keep::Plain))
        };
        let page = PAGE_SIZE as u64;
        let pages = (self.home_bytes.unwrap_or(HOME_BYTES) / page).max(1);
        let home = device(pages * page);
        let log = device(header::GROWING_BYTES_MIN);
        self.log_shape = LogShape::Growing;
        self.devices(Devices { home, flash: None, log }).create_on_devices()
    }
}

impl Database {
    /// Creates a database in memory with the defaults: see [`Builder::create_in_memory`].
    ///
    /// # Errors
    ///
    /// As `Builder::create_in_memory`.
    ///
    /// # Examples
    ///
    /// ```
    /// use terrace::{Database, TableDef};
    ///
    /// const NAMES: TableDef<u64, &str> = TableDef::new("names");
    /// let db = Database::in_memory()?;
    /// db.write(|txn| txn.open_table(NAMES)?.insert(1, "one"))?;
    /// db.read(|txn| {
    ///     assert!(txn.open_table(NAMES)?.contains(1)?);
    ///     Ok::<_, terrace::Error>(())
    /// })?;
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn in_memory() -> Result<Database, Error> {
        Database::builder().create_in_memory()
    }
}
