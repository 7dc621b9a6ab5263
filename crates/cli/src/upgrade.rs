//! `terrace upgrade`: a database of an older format, converted.
//!
//! ```text
//!   OLD --read--> OLD.new --verified--> OLD.old (a second name of OLD), OLD.log -> OLD.old.log
//!                                       OLD.new.log -> OLD.log, then OLD.new -> OLD
//! ```
//!
//! Cut short before the last step, OLD is what it was, or its log is at OLD.old.log: whatever
//! happens, OLD.old with OLD.old.log is the old database from the moment that anything is renamed.

use crate::command::Upgrade;
use crate::dump::{NewPlace, new_builder, rows_of_tables, with_suffix};
use crate::failure::Failure;
use std::fs;
use std::io;
use std::path::Path;

/// A home whose size nobody named grows to this.
const HOME_BYTES: u64 = 64 << 30;

/// Converts a database.
///
/// # Errors
///
/// A database that is not of an older format or was not closed in good order; a place that is
/// taken. Then the old one is as it was.
pub fn upgrade(options: &Upgrade) -> Result<(), Failure> {
    let old = &options.path;
    let failed = |error: &dyn std::fmt::Display| Failure::failed(old.display(), error);
    let found = fs::metadata(old).map_err(|error| failed(&error))?;
    if options.to.is_none() && !found.is_file() {
        return Err(failed(&"it is no file: name a place for the new one with --to"));
    }
    let mut builder = new_builder(&options.made)?;
    if options.made.home_size.is_none() && found.len() > HOME_BYTES {
        builder = builder.home_size(found.len());
    }
    let place = match &options.to {
        Some(to) => NewPlace::at(to)?,
        None => {
            for kept in [".old", ".old.log"].map(|suffix| with_suffix(old, suffix)) {
                if fs::symlink_metadata(&kept).is_ok() {
                    let what = "something is there, where the old database is to be kept: move it";
                    return Err(Failure::failed(kept.display(), what));
                }
            }
            NewPlace::instead_of(old)?
        }
    };
    let upgraded = terrace::upgrade::upgrade(builder, old, place.home());
    let upgraded = upgraded.map_err(|error| failed(&error))?;
    let kept = match &options.to {
        Some(_) => old.clone(),
        None => keep(old).map(|()| with_suffix(old, ".old")).map_err(|error| failed(&error))?,
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

/// Gives the old database a second name, and its log another one.
fn keep(old: &Path) -> io::Result<()> {
    let kept = with_suffix(old, ".old");
    fs::hard_link(old, &kept).or_else(|_| {
        // No second names on this file system: for a moment there is nothing at the old one.
        fs::rename(old, &kept)
    })?;
    let log = with_suffix(old, ".log");
    if fs::symlink_metadata(&log).is_ok() {
        fs::rename(log, with_suffix(&kept, ".log"))?;
    }
    Ok(())
}
