//! Storages of the user's own in the place of files.

use std::io::ErrorKind;
use std::sync::Arc;

use terrace_device::storage::{Storage, StorageDevice};
use terrace_device::{Device, SECTOR_SIZE};
use terrace_page::PAGE_SIZE;
use terrace_pool::ColdStart;
use terrace_rt::Nanos;

use super::Builder;
use crate::api::Devices;
use crate::log::{LogShape, header};
use crate::{Action, Database, Error, Part};

/// The storages that were given.
#[derive(Clone, Default)]
pub(super) struct Storages {
    home: Option<Arc<dyn Storage>>,
    flash: Option<Arc<dyn Storage>>,
    log: Option<Arc<dyn Storage>>,
}

impl Storages {
    fn of(&self, part: Part) -> Option<&Arc<dyn Storage>> {
        match part {
            Part::Home => self.home.as_ref(),
            Part::Flash => self.flash.as_ref(),
            Part::Log => self.log.as_ref(),
        }
    }
}

impl Builder {
    /// Uses a storage of your own for `part`: the trait [`Storage`](crate::storage::Storage), whose
    /// rules [`conformance`](crate::storage::conformance) tests. Its calls run on helper threads.
    ///
    /// - Home and log: both are storages. Finish with [`Builder::create_on_storage`],
    ///   [`Builder::open_on_storage`] or [`Builder::open_or_create_on_storage`].
    /// - Flash: beside such a home, or one that is a file, with [`Builder::create`] or
    ///   [`Builder::open`]. The tier is as large as the storage is.
    ///
    /// `Devices` takes any mixture: [`StorageDevice`](crate::storage::StorageDevice) is a device.
    ///
    /// What a storage does wrong counts as the failure of a device: an error names the storage
    /// ([`Storage::name`](crate::storage::Storage::name)), the call and the range; what was moved
    /// in part is completed; a call that does not return is given up after
    /// [`Builder::io_timeout_home`] and its like, and everything that does not need that storage
    /// goes on. The engine does not know whether another process uses the storage: see to that.
    /// Once the database is closed the engine has let go of the storage, but for calls that have
    /// not returned.
    #[must_use]
    pub fn storage(mut self, part: Part, storage: impl Storage) -> Builder {
        let storage: Option<Arc<dyn Storage>> = Some(Arc::new(storage));
        match part {
            Part::Home => self.storages.home = storage,
            Part::Flash => self.storages.flash = storage,
            Part::Log => self.storages.log = storage,
        }
        self
    }

    /// Creates a database on the storages given, which must be blank. The home grows to
    /// [`Builder::home_size`] at once, if it is shorter. A log of less than 1 MiB grows as a file
    /// does, up to [`Builder::log_max`], unless [`Builder::log_size`] is given; a longer one is
    /// used as it is, unless `log_max` is given.
    ///
    /// # Errors
    ///
    /// `Exists`, `InvalidOption`, also for a home without a length; `NoRoom` is told as `Device`;
    /// `Reentrant`.
    pub fn create_on_storage(mut self) -> Result<Database, Error> {
        self.check()?;
        self.check_writable()?;
        let flash = self.storage_of_flash()?;
        let devices = self.storage_devices(flash)?;
        lengthen(&*devices.home, Part::Home, self.home_bytes.unwrap_or(0))?;
        if devices.home.len() < HOME_BYTES_MIN {
            let what = "the storage of the home is shorter than 512 KiB: say how long it is to be";
            return Err(Error::InvalidOption { option: "home_size", what });
        }
        let log_bytes = devices.log.len();
        self.log_shape = match self.log_bytes {
            Some(bytes) => {
                lengthen(&*devices.log, Part::Log, bytes)?;
                LogShape::Fixed
            }
            None if log_bytes >= LOG_BYTES_AS_IT_IS && self.log_max.is_none() => LogShape::Fixed,
            None => {
                lengthen(&*devices.log, Part::Log, header::GROWING_BYTES_MIN)?;
                LogShape::Growing
            }
        };
        self.devices(devices).create_on_devices()
    }

    /// Opens the database on the storages given, and recovers it first if it was not closed.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open_on_storage(mut self) -> Result<Database, Error> {
        self.check()?;
        let flash = self.storage_of_flash_or_doubt();
        let devices = self.storage_devices(flash)?;
        for (part, device) in [(Part::Home, &devices.home), (Part::Log, &devices.log)] {
            if device.len() < HEADERS_BYTES {
                return Err(Error::Missing { part, path: None });
            }
        }
        self.devices(devices).open_on_devices()
    }

    /// Opens the database on the storages given, or creates it if the home is blank.
    ///
    /// # Errors
    ///
    /// As `open_on_storage` and `create_on_storage`.
    pub fn open_or_create_on_storage(self) -> Result<Database, Error> {
        self.check()?;
        let home = self.storage_device(Part::Home)?.ok_or(MISSING)?;
        if home.len() >= HEADERS_BYTES && crate::open::is_database(&*home)? {
            self.open_on_storage()
        } else {
            self.create_on_storage()
        }
    }

    fn storage_devices(&self, flash: Option<Arc<dyn Device>>) -> Result<Devices, Error> {
        let home = self.storage_device(Part::Home)?.ok_or(MISSING)?;
        let log = self.storage_device(Part::Log)?.ok_or(MISSING)?;
        Ok(Devices { home, flash, log })
    }

    /// The storage of the flash, as a device.
    pub(super) fn storage_of_flash(&self) -> Result<Option<Arc<dyn Device>>, Error> {
        self.storage_device(Part::Flash)
    }

    /// The same for an opening: a database that does not need its flash does without a storage that
    /// has failed, or does not answer (files.P3).
    pub(super) fn storage_of_flash_or_doubt(&mut self) -> Option<Arc<dyn Device>> {
        self.storage_of_flash().unwrap_or_else(|error| {
            let kind = match &error {
                Error::Device { source, .. } => source.kind(),
                _ => ErrorKind::Other,
            };
            self.flash_doubt = Some(ColdStart::Device(kind));
            None
        })
    }

    fn storage_device(&self, part: Part) -> Result<Option<Arc<dyn Device>>, Error> {
        let Some(storage) = self.storages.of(part) else { return Ok(None) };
        let opened = StorageDevice::open(Arc::clone(storage), self.storage_limit(part));
        let device = opened.map_err(Error::device(part, Action::Open))?;
        Ok(Some(Arc::new(device)))
    }

    fn storage_limit(&self, part: Part) -> Nanos {
        match part {
            Part::Home => self.io_timeouts.home,
            Part::Flash => self.io_timeouts.flash,
            Part::Log => self.io_timeouts.log,
        }
    }

    /// Beside files only the flash may be a storage.
    pub(super) fn check_storages_beside_files(&self) -> Result<(), Error> {
        match &self.storages {
            Storages { home: None, log: None, flash }
                if flash.is_none() || self.flash.is_none() =>
            {
                Ok(())
            }
            Storages { home: None, log: None, .. } => {
                let what = "the flash is a file or a storage, not both";
                Err(Error::InvalidOption { option: "storage", what })
            }
            _ => Err(MISSING),
        }
    }
}

/// A home has at least so much, as with files.
const HOME_BYTES_MIN: u64 = 64 * PAGE_SIZE as u64;
/// What is shorter holds neither a superblock nor the header of a log.
const HEADERS_BYTES: u64 = 2 * PAGE_SIZE as u64;
/// A log of a storage that is this long is taken as it is.
const LOG_BYTES_AS_IT_IS: u64 = 1 << 20;

const MISSING: Error = Error::InvalidOption {
    option: "storage",
    what: "home and log must both be storages, finished with create_on_storage or the like, or \
           both be files",
};

/// Makes it `bytes` long, in whole sectors, if it is shorter.
fn lengthen(device: &dyn Device, part: Part, bytes: u64) -> Result<(), Error> {
    let sector = SECTOR_SIZE as u64;
    device.grow(bytes / sector * sector).map_err(Error::device(part, Action::Grow))
}
