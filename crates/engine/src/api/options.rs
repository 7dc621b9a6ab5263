//! The answers that some options of the builder take.

use terrace_rt::Nanos;

/// Whether a full image of a page is logged before its first change after it was clean.
///
/// Images repair home pages that a power cut has torn. Without them such a page is seen (by its
/// checksum) and refused, not repaired: only for devices that write 8 KiB atomically.
///
/// # Examples
///
/// ```
/// let builder = terrace::Database::builder().full_images(terrace::FullImages::Off);
/// # let _ = builder;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullImages {
    /// Images are logged.
    On,
    /// Images are not logged.
    Off,
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
