//! Which errors say no more than that the engine was closed meanwhile.

use terrace_device::DeviceError;

use crate::Error;

/// Whether `error` says no more than that the engine was closed meanwhile.
pub(crate) fn is_of_closing(error: &Error) -> bool {
    match error {
        Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
            is_of_closing(cause)
        }
        Error::Device { source, .. } => {
            DeviceError::of(source).is_some_and(DeviceError::is_released)
        }
        error => matches!(error, Error::Closed),
    }
}
