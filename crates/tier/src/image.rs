//! What a slot holds, as it is told: by an opening that found it, and to a restart method that
//! keeps it.

use terrace_page::{Lsn, PageId};
use terrace_policy::History;

/// A slot that was found filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// The page whose copy it should be.
    pub page: PageId,
    /// The LSN that the copy should have, if the table tells.
    pub lsn: Option<Lsn>,
    /// Lower bound of the first change in the copy that home lacks, if it is newer than home.
    pub newer: Option<Lsn>,
    /// The uses of the page.
    pub history: History,
}

/// What a slot holds from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The slot, numbered over all partitions.
    pub slot: u32,
    /// The page.
    pub page: PageId,
    /// The LSN of the copy.
    pub lsn: Lsn,
    /// Lower bound of its first change that home lacks, if it is newer than home.
    pub newer: Option<Lsn>,
    /// The uses of the page, if they are known.
    pub history: Option<History>,
}

/// Why a slot no longer holds its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// The page is about to change in memory, or the copy is bad.
    Modified,
    /// Another page is about to be written into the slot.
    Reused,
}
