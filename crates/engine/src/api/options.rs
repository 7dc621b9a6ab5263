//! The answers that some options of the builder take.

use std::sync::Arc;

use terrace_rt::Nanos;

use crate::{Builder, Devices};

/// Puts devices over those of the files.
pub(crate) type Wrap = Arc<dyn Fn(Devices) -> Devices + Send + Sync>;

/// What is done about pages that a power cut tears as they are written home.
///
/// # Examples
///
/// ```
/// let builder = terrace::Database::builder().torn_pages(terrace::TornPages::Off);
/// # let _ = builder;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornPages {
    /// Pages are copied to an area beside the log before they go home, and made good from there at
    /// the next opening.
    Doublewrite,
    /// Nothing: such a page is seen (by its checksum) and refused, not repaired. Only for homes
    /// that write 8 KiB whole or not at all.
    Off,
}

/// How long a device may be silent before a wait for it fails. Zero: for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoTimeouts {
    pub(crate) home: Nanos,
    pub(crate) flash: Nanos,
    pub(crate) log: Nanos,
}

impl Default for IoTimeouts {
    fn default() -> IoTimeouts {
        let (long, short) = (Nanos::from_secs(60), Nanos::from_secs(5));
        IoTimeouts { home: long, flash: short, log: long }
    }
}

impl Builder {
    /// How long the flash may be silent, with requests waiting for it, before it is given up: 5 s
    /// by default. The database goes on without it, unless flash is a part of it
    /// ([`Builder::flash_role`]): then the engine stops. Zero waits for ever. Time in which the
    /// process was stopped does not count. `open` waits as long for the file system of the flash.
    #[must_use]
    pub fn io_timeout_flash(mut self, limit: Nanos) -> Builder {
        self.io_timeouts.flash = limit;
        self
    }

    /// How long the home may be silent, with requests waiting for it, before they fail: 60 s by
    /// default. A read fails with `Device`, a write stops the engine. Zero waits for ever.
    #[must_use]
    pub fn io_timeout_home(mut self, limit: Nanos) -> Builder {
        self.io_timeouts.home = limit;
        self
    }

    /// The same for the log: the engine stops.
    #[must_use]
    pub fn io_timeout_log(mut self, limit: Nanos) -> Builder {
        self.io_timeouts.log = limit;
        self
    }

    /// Has `wrap` put devices over those of the files, once they are open: for tests with devices
    /// that fail.
    #[doc(hidden)]
    #[must_use]
    pub fn wrap_devices(
        mut self,
        wrap: impl Fn(Devices) -> Devices + Send + Sync + 'static,
    ) -> Builder {
        self.wrap = Some(Arc::new(wrap));
        self
    }

    pub(crate) fn on_files(self, devices: Devices) -> Builder {
        let devices = match &self.wrap {
            Some(wrap) => wrap(devices),
            None => devices,
        };
        self.devices(devices)
    }
}

/// When checkpoints are taken.
///
/// # Examples
///
/// ```
/// use terrace::{Checkpoints, Nanos};
///
/// let often = Checkpoints::Every(Nanos::from_secs(5));
/// let builder = terrace::Database::builder().checkpoints(often);
/// # let _ = builder;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoints {
    /// Only when asked for, when the log runs full, and when the database is closed.
    Off,
    /// Indirect ones whenever this much time has passed, and when the log runs full.
    Every(Nanos),
}

/// Whether files are used that have no direct I/O.
///
/// Without it the operating system keeps copies in its page cache: they cost memory, and a read
/// that they serve says nothing of the device. Nothing is less durable.
///
/// # Examples
///
/// ```
/// let builder = terrace::Database::builder().direct_io(terrace::DirectIo::Required);
/// # let _ = builder;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Where a file system has no direct I/O, the page cache is used, and [`Stats::cached`] says
    /// so: the default.
    ///
    /// [`Stats::cached`]: crate::Stats::cached
    Preferred,
    /// What cannot be opened so is refused: for measurements.
    Required,
}
