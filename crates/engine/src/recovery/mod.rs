//! Recovery: ARIES, with the dirty pages found by analysis instead of logged [S3 II-A3].
//!
//! ```text
//!   superblock           analysis                 redo                    undo
//!   epoch + 1, durable   dirty pages and          from the least recLSN   losers, newest first,
//!   find the log's end   transactions at the end  every lost change       with CLRs and END
//! ```
//!
//! - V1: nothing is appended before the new epoch is durable, so that what the last opening left
//!   past its durable end is never taken for a record of this one (see `log_reader`).
//! - V2: a page is redone on exactly the version that its record was written on, or recovery stops
//!   with `RedoGap` and changes nothing more.
//! - V3: home is whole before redo: what a power cut tore was made good from the doublewrite area,
//!   and a page that was never written home is rebuilt from the change that formatted it.
//! - V4: recovery can be cut short anywhere and run again. Redo changes pages as the log says; undo
//!   appends CLRs, and never undoes the same record twice.
//! - V5: nested actions that never ended are undone first, in every transaction, then what is
//!   undone by key: so trees are whole when they are searched.
//! - V6: a page may not be newer than the log's end: then the log has lost its tail.
//! - V7: under the restart method `warm` nothing is redone before the database is open: pages are
//!   redone when they are read (`owed`), and undo reads pages too.

mod analysis;
mod lost;
mod not_undone;
mod owed;
mod redo;
mod undo;

pub(crate) use analysis::{Analysis, DirtyEntry, analyse};
pub(crate) use lost::LostPages;
pub(crate) use not_undone::NotUndone;
pub(crate) use owed::{OwedChanges, repair};
pub(crate) use redo::redo;
pub(crate) use undo::{resume_losers, undo_losers};
