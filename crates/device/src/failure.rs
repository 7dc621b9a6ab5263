//! Errors of devices: which device, what it was asked, where, and the system's error behind it.

use std::error::Error;
use std::fmt;
use std::io;

/// What a device was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To make completed writes durable.
    Sync,
    /// To promise room.
    Reserve,
    /// To become longer.
    Grow,
    /// To give room back.
    Punch,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Sync => "sync",
            Operation::Reserve => "reserve",
            Operation::Grow => "grow",
            Operation::Punch => "punch",
        })
    }
}

/// What devices put into an [`io::Error`]: [`DeviceError::of`] finds it there.
#[derive(Debug)]
pub struct DeviceError {
    /// The name of the device: its path, if it has one.
    pub device: String,
    /// What it was asked.
    pub operation: Operation,
    /// The first byte of the request, and how many they were; of a sync, none.
    pub range: Option<(u64, u64)>,
    /// What went wrong.
    pub source: io::Error,
}

/// A request came after its device was released.
#[derive(Debug)]
pub(crate) struct Released;

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it was closed")
    }
}

impl std::error::Error for Released {}

impl Released {
    pub(crate) fn error() -> io::Error {
        io::Error::new(io::ErrorKind::NotConnected, Released)
    }
}

impl DeviceError {
    /// Whether nothing is wrong with the device: it was released before it was asked.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.source.get_ref().is_some_and(|source| source.is::<Released>())
    }

    /// An error of the same kind as `source` that says where it happened.
    #[must_use]
    pub fn wrap(
        device: String,
        operation: Operation,
        range: Option<(u64, u64)>,
        source: io::Error,
    ) -> io::Error {
        io::Error::new(source.kind(), DeviceError { device, operation, range, source })
    }

    /// What a device has said of `error`, if one has.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&DeviceError> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.operation)?;
        if let Some((offset, len)) = self.range {
            write!(f, " of {len} bytes at {offset}")?;
        }
        write!(f, ": {}", self.source)
    }
}

impl Error for DeviceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Another error that says what `error` does, for later callers: of the same kind, with what a
/// device has said of it, and the system's number.
#[must_use]
pub fn said_again(error: &io::Error) -> io::Error {
    match (DeviceError::of(error), error.raw_os_error()) {
        (Some(told), _) => {
            let DeviceError { device, operation, range, source } = told;
            DeviceError::wrap(device.clone(), *operation, *range, said_again(source))
        }
        (None, Some(code)) => io::Error::from_raw_os_error(code),
        (None, None) => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The number of the operating system's error behind `error`, whatever was added to it;
/// `ETIMEDOUT` if a device has not answered in time.
#[must_use]
pub fn errno(error: &io::Error) -> Option<i32> {
    /// No error of a device is wrapped more often.
    const DEPTH_MAX: usize = 8;
    let kind = error.kind();
    let mut error = error;
    for _ in 0..DEPTH_MAX {
        if let Some(code) = error.raw_os_error() {
            return Some(code);
        }
        let below = error.get_ref().and_then(|it| it.source()?.downcast_ref());
        match below {
            Some(below) => error = below,
            None => break,
        }
    }
    (kind == io::ErrorKind::TimedOut).then_some(libc::ETIMEDOUT)
}

/// Whether the operating system tells by `error` that the device or its file system has failed, is
/// gone, or takes no writes any more: not that it was asked for what cannot be.
#[must_use]
pub fn has_failed(error: &io::Error) -> bool {
    const FAILURES: [i32; 11] = [
        libc::EIO,
        libc::ENXIO,
        libc::ENODEV,
        libc::ENOMEDIUM,
        libc::EREMOTEIO,
        libc::EROFS,
        libc::EUCLEAN,
        libc::EBADMSG,
        libc::ESTALE,
        libc::ENOTCONN,
        libc::ETIMEDOUT,
    ];
    errno(error).is_some_and(|code| FAILURES.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_to_an_error_keeps_its_kind_and_its_number() {
        let bare = || io::Error::from_raw_os_error(5);
        let error = DeviceError::wrap("/dev/x".into(), Operation::Write, Some((512, 1024)), bare());
        assert_eq!((errno(&error), error.kind()), (Some(5), bare().kind()));
        assert!(error.to_string().starts_with("/dev/x: write of 1024 bytes at 512: "), "{error}");
        let found = DeviceError::of(&error).expect("just wrapped");
        assert_eq!((found.operation, found.range), (Operation::Write, Some((512, 1024))));
        assert_eq!(errno(&io::Error::other("no system")), None);
        for error in [error, bare(), io::Error::other("no system")] {
            let again = said_again(&error);
            assert_eq!((again.kind(), errno(&again)), (error.kind(), errno(&error)));
            assert_eq!(again.to_string(), error.to_string());
            assert_eq!(DeviceError::of(&again).is_some(), DeviceError::of(&error).is_some());
        }
    }
}
