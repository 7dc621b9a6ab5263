//! Where a backup is restored to.

use std::path::Path;
use std::sync::Arc;

use terrace_device::Device;
use terrace_pool::Mutations;
use terrace_rt::World;

use super::{Builder, Sizes};
use crate::api::Devices;
use crate::api::files::{Made, Overwrite};
use crate::error::Places;
use crate::log::{LogShape, header};
use crate::{Action, Error, Part, open};

/// Blank devices for a database that is restored, and what else that needs.
pub(crate) struct RestoreParts {
    pub(crate) home: Arc<dyn Device>,
    pub(crate) log: Arc<dyn Device>,
    pub(crate) log_shape: LogShape,
    pub(crate) identity: Option<u128>,
    pub(crate) world: World,
    pub(crate) mutations: Mutations,
    places: Places,
}

impl RestoreParts {
    /// The error with the paths of the parts.
    pub(crate) fn explain(&self, error: Error) -> Error {
        self.places.explain(error)
    }
}

impl Builder {
    /// Makes the files of a database whose home has `home_bytes`, unless another size was given.
    ///
    /// # Errors
    ///
    /// Those of `create`.
    pub(crate) fn restore_files(
        mut self,
        path: &Path,
        home_bytes: u64,
    ) -> Result<(RestoreParts, Made), Error> {
        self.check()?;
        self.check_writable()?;
        self.flash = None;
        let files = self.files(path, Overwrite::No)?;
        self.places = files.places();
        let sizes = Sizes { home: self.home_bytes, log: self.log_bytes };
        let (devices, shape, made) = files.create(&sizes, &self.create_step)?;
        self.log_shape = shape;
        let has_size = self.home_bytes.is_some() || devices.home.len() >= home_bytes;
        let grown = if has_size { Ok(()) } else { devices.home.grow(home_bytes) };
        if let Err(source) = grown {
            made.take_away();
            let error = Error::device(Part::Home, Action::Grow)(source);
            return Err(self.places.explain(error));
        }
        let wrapped = match &self.wrap {
            Some(wrap) => wrap(devices),
            None => devices,
        };
        let devices = wrapped.within(self.io_timeouts);
        Ok((self.restore_parts(devices), made))
    }

    /// The devices given, which must be blank.
    ///
    /// # Errors
    ///
    /// `Exists`, `NotADatabase`, `Device`, `InvalidOption`.
    pub(crate) fn restore_devices(self) -> Result<RestoreParts, Error> {
        self.check_writable()?;
        let devices = self.given()?;
        if open::is_database(&*devices.home)? {
            return Err(Error::Exists { part: Part::Home, path: None });
        }
        if !header::is_free(&*devices.log)? {
            return Err(Error::Exists { part: Part::Log, path: None });
        }
        Ok(self.restore_parts(devices))
    }

    fn restore_parts(self, devices: Devices) -> RestoreParts {
        RestoreParts {
            home: devices.home,
            log: devices.log,
            log_shape: self.log_shape,
            identity: self.identity,
            world: self.world.unwrap_or_else(World::current),
            mutations: self.pool.mutations,
            places: self.places,
        }
    }
}
