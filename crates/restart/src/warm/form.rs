//! How changes of the table get on flash: the difference between the restart methods here.
//!
//! What an entry says, when a slot may be used again and what the log contradicts is one code for
//! all (`entry`, `keeper`, `load`). A form promises these, on which warm.W1 to warm.W5 rest:
//!
//! - F1: records reach flash in their order. A power cut within `write` leaves all of them up to
//!   some point and none after it, and nothing of what was written before is lost.
//! - F2: a record is durable only after the flash was synced, so that the bytes it speaks of are.
//! - F3: home names `position` at each checkpoint. A table that reads as one of an earlier position
//!   has lost records, and is refused; so is one of which any page that counts is damaged.

use std::io;

use terrace_device::Device;

use super::entry::{Entry, Record};
use super::frontier::Frontier;
use crate::FlashLayout;

/// A table on its device.
pub(super) struct OnFlash<'a> {
    pub flash: &'a dyn Device,
    pub layout: &'a FlashLayout,
    /// The stamp of the cold start at which the table was begun.
    pub table: u64,
    /// The policies' clock.
    pub now: u64,
}

/// A form, while the database is open. One task at a time asks it.
pub(super) trait Form: Send {
    /// Makes `records` durable; none only where nothing was ever written, or a frontier begins:
    /// `frontier`, from when all of it is durable.
    fn write(
        &mut self,
        on_flash: &OnFlash<'_>,
        records: &[Record],
        frontier: Option<&Frontier>,
    ) -> io::Result<()>;

    /// Makes room before it is needed, if that is better.
    fn tidy(&mut self, _site: &OnFlash<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Whether a frontier is to begin before more is written: what is read since the last takes up
    /// too much of the room.
    fn is_crowded(&self, _layout: &FlashLayout) -> bool {
        false
    }

    /// How far the table reaches: what home is to name. Zero: nothing was written yet.
    fn position(&self) -> u64;

    /// Bytes of memory.
    fn bytes(&self) -> usize {
        0
    }
}

/// What was read.
pub(super) struct Loaded<At> {
    pub entries: Vec<Entry>,
    /// The policies' clock, as of which the entries' ages are.
    pub now: u64,
    /// Where the form goes on.
    pub at: At,
    /// The frontier in force, if there is one.
    pub frontier: Option<Frontier>,
}

impl<At> Loaded<At> {
    /// The same, where the form is one of several.
    pub fn map<To>(self, to: impl FnOnce(At) -> To) -> Loaded<To> {
        let Loaded { entries, now, at, frontier } = self;
        Loaded { entries, now, at: to(at), frontier }
    }
}

/// What a form says of a table that it has written and cannot read.
pub(super) fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the flash table's {what} is damaged"))
}
