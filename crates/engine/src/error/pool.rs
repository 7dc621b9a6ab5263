//! Errors of the pool as errors of the database.

use std::sync::Arc;

use terrace_device::DeviceError;
use terrace_page::Damage;
use terrace_pool::{PoolError, Tier};
use terrace_rt::dead;

use crate::{Action, Error, Part};

/// The error of a pool that stopped for `cause`: what the engine's journal has made of it.
fn stopped(cause: &(dyn std::error::Error + 'static)) -> Error {
    match cause.downcast_ref::<Error>() {
        Some(failed @ Error::Failed { .. }) => failed.clone(),
        cause => Error::Failed { cause: cause.cloned().map(Arc::new) },
    }
}

/// Memory has no file: what it lost is home's.
impl From<Tier> for Part {
    fn from(tier: Tier) -> Part {
        match tier {
            Tier::Flash => Part::Flash,
            Tier::Home | Tier::Memory => Part::Home,
        }
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Error {
        match error {
            PoolError::AllPinned => Error::AllPinned,
            PoolError::Damaged { tier: Tier::Home, page, damage: Damage::Version } => {
                let what = "it is newer than the end of the log, which has lost its tail";
                Error::corrupt(Part::Home, page, what)
            }
            PoolError::Damaged { tier, page, .. } => {
                Error::corrupt(tier.into(), page, "its bytes are not the page")
            }
            PoolError::Read { tier, page, source } => {
                // Some of what is read of flash cannot be since a table there was not written.
                let told = DeviceError::of(&source).map(|told| told.operation);
                let action = told.map_or(Action::Read, Action::from);
                let page = (action == Action::Read).then_some(page);
                Error::Device { part: tier.into(), path: None, action, page, source }
            }
            PoolError::Redo { page, what } => Error::corrupt(Part::Home, page, what),
            PoolError::OutOfRange { page } => {
                Error::corrupt(Part::Home, page, "it lies beyond the end of home")
            }
            PoolError::Config { option, what } => Error::InvalidOption { option, what },
            PoolError::NoMemory => {
                let what = "the system does not have that much memory";
                Error::InvalidOption { option: "memory", what }
            }
            _ if dead() => Error::Closed,
            PoolError::Stopped { cause } => stopped(&*cause),
            PoolError::Journal { source } => stopped(&*source),
            _ => Error::STOPPED,
        }
    }
}
