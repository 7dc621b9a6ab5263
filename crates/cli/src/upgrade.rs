//! `terrace upgrade`: a database of an older format, converted.
//!
//! ```text
//!   OLD --read--> OLD.new --verified--> OLD.old (a second name of OLD), OLD.log -> OLD.old.log
//!                                       OLD.new.log -> OLD.log, then OLD.new -> OLD
//! ```
//!
//! Cut short, it begins again, or is brought to its end (`new_place`). Until then OLD is what it
//! was, or its log is at OLD.old.log: whatever happens, OLD.old with OLD.old.log is the old
//! database from the moment that anything is renamed.

use crate::command::Upgrade;
use crate::dump::{HOME_BYTES, new_builder, rows_of_tables};
use crate::failure::Failure;
use crate::new_place::{Begun, NewPlace, with_suffix};
use std::fs;
use terrace::upgrade::{UpgradeError, old_version};

/// Converts a database.
///
/// # Errors
///
/// A database that is not of an older format or was not closed in good order; a place that is
/// taken. Then the old one is as it was.
pub fn upgrade(options: &Upgrade) -> Result<(), Failure> {
    let old = &options.path;
    let failed = |error: &dyn std::fmt::Display| Failure::failed(old.display(), error);
    let found = fs::metadata(old);
    if options.to.is_none() && found.as_ref().is_ok_and(|found| !found.is_file()) {
        return Err(failed(&"it is no file: name a place for the new one with --to"));
    }
    let mut builder = new_builder(&options.made)?;
    let todays = |version: u32| {
        eprintln!("{}: it has format {version} already: nothing to do", old.display());
        Ok(())
    };
    // Else an earlier upgrade was cut short, and is brought to its end.
    if !with_suffix(old, ".making").exists()
        && let Err(UpgradeError::Todays { version }) = old_version(&builder, old)
    {
        return todays(version);
    }
    // Before it is missed: cut short, an upgrade may have left it without its name.
    let place = match &options.to {
        Some(to) => NewPlace::at(to)?,
        None => match NewPlace::instead_of(old)? {
            Begun::New(place) => place,
            Begun::Ended => {
                let kept = with_suffix(old, ".old");
                eprintln!(
                    "{}: converted before, and put in its place now; the old database is {}",
                    old.display(),
                    kept.display()
                );
                return Ok(());
            }
        },
    };
    let found = found.map_err(|error| failed(&error))?;
    if options.made.home_size.is_none() && found.len() > HOME_BYTES {
        builder = builder.home_size(found.len());
    }
    let upgraded = match terrace::upgrade::upgrade(builder, old, &place.home()) {
        Err(UpgradeError::Todays { version }) => return todays(version),
        upgraded => upgraded.map_err(|error| failed(&error))?,
    };
    let kept = match &options.to {
        Some(_) => old.clone(),
        None => with_suffix(old, ".old"),
    };
    place.put().map_err(|error| failed(&error))?;
    eprintln!(
        "{}: {} converted from format {}; the old database is {}",
        options.to.as_ref().unwrap_or(old).display(),
        rows_of_tables(upgraded.rows, upgraded.tables),
        upgraded.version,
        kept.display(),
    );
    Ok(())
}
