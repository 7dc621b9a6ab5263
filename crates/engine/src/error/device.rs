//! What a device has said, behind whatever was made of it.

use terrace_device::{DeviceError, errno};

use crate::Error;

impl Error {
    /// Of the device that failed, at once or as the cause of a stop: its name, what it was asked to
    /// do, and where. `None` for other errors, and for devices that do not tell.
    ///
    /// ```
    /// # use terrace::Error;
    /// assert!(Error::Closed.device_error().is_none());
    /// ```
    #[must_use]
    pub fn device_error(&self) -> Option<&DeviceError> {
        match self {
            Error::Device { source, .. } => DeviceError::of(source),
            Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
                cause.device_error()
            }
            _ => None,
        }
    }

    /// The number of the operating system's error behind this one, if there is one.
    ///
    /// ```
    /// # use terrace::Error;
    /// assert_eq!(Error::Closed.errno(), None);
    /// ```
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Device { source, .. } => errno(source),
            Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
                cause.errno()
            }
            _ => None,
        }
    }
}
