//! The answers that some options of the builder take.

use std::sync::Arc;

use terrace_rt::Nanos;

use crate::{Builder, Devices};

/// Puts devices over those of the files.
pub(crate) type Wrap = Arc<dyn Fn(Devices) -> Devices + Send + Sync>;

/// How pages are handled that a power cut tears while they are written home.
///
/// # Examples
///
/// ```
/// let builder = terrace::Database::builder().torn_pages(terrace::TornPages::Off);
/// # let _ = builder;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TornPages {
    /// Each page is written to the doublewrite area beside the log before it is written home, and
    /// restored from there at the next opening.
    Doublewrite,
    /// The kernel and the drive write each page whole (Linux 6.13 and newer, `RWF_ATOMIC`; what a
    /// file offers is `stx_atomic_write_unit_max` of `statx`), so that no page is written twice.
    /// Opening is refused with `InvalidOption` where home does not offer 8 KiB.
    Atomic,
    /// Torn pages are detected by their checksum and reported as `Corrupt`, not repaired. Only for
    /// a home that writes 8 KiB atomically.
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
    /// How long the flash may leave requests unanswered before it is given up: 5 s by default. The
    /// database then goes on without it; if flash is a part of the database
    /// ([`Builder::flash_role`]), the engine stops. Zero means no limit. Time in which the process
    /// is stopped does not count. `open` waits as long for the file system of the flash.
    #[must_use]
    pub fn io_timeout_flash(mut self, limit: Nanos) -> Builder {
        self.io_timeouts.flash = limit;
        self
    }

    /// How long the home may leave requests unanswered before they fail: 60 s by default. A read
    /// then fails with `Device`; a failed write stops the engine. Zero means no limit.
    #[must_use]
    pub fn io_timeout_home(mut self, limit: Nanos) -> Builder {
        self.io_timeouts.home = limit;
        self
    }

    /// How long the log may leave requests unanswered before the engine stops: 60 s by default.
    /// Zero means no limit.
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
    /// Only by [`Database::checkpoint`](crate::Database::checkpoint), when a transaction finds the
    /// log full, and at closing.
    Off,
    /// Also whenever this much time has passed, and when the log is half full: indirect ones, which
    /// block nothing.
    Every(Nanos),
}

/// Whether files that do not support direct I/O may be used.
///
/// Without direct I/O the page cache of the operating system holds pages a second time, and
/// measurements show its speed, not that of the device. Durability is the same.
///
/// # Examples
///
/// ```
/// let builder = terrace::Database::builder().direct_io(terrace::DirectIo::Required);
/// # let _ = builder;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Use the page cache if the file system does not support direct I/O: the default.
    /// [`Stats::cached`](crate::Stats::cached) tells.
    Preferred,
    /// Refuse files that do not support direct I/O: for measurements.
    Required,
}
