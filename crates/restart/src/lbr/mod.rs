//! LBR, the log-based restart [S3 III-C]: the table of slots is in the log, whole at each
//! checkpoint, and change by change in between.
//!
//! Modules in reading order: `table`, what is logged and when; `group`, forces that are shared;
//! `images`, what analysis makes of it. The records are in `records`, since not all are LBR's.
//!
//! | record | when | forced |
//! |---|---|---|
//! | CHKPT, 64 slots | the whole table, between BEGIN_CHKPT and END_CHKPT | no |
//! | PRE_INVALIDATE | before a slot that holds a page is overwritten | yes, in groups of eight |
//! | POST_WRITE | after a slot was written, and home, if both are | no: without it the slot is FREE |
//! | LAZY_CLEANED | after home got the page of a DIRTY slot | no: without it the slot stays DIRTY |
//!
//! - L1: a page that changes needs no record: its UPDATE frees the slot. Pages that change without
//!   one (bulk loads) leave an UNLOGGED. What is redone changes without a new one, too: until
//!   recovery is over no record says that a slot holds a page (table.T6).
//! - L2: every record names the stamp of the cold start at which the table was begun: what the log
//!   says of a device that was replaced since is not believed of the new one.
//! - L3: the table takes 1.4 KB of log for 64 slots at each checkpoint: a log that has no room for
//!   it keeps a part, and the tier starts part cold.
//! - Cost: no memory per slot; sixty bytes of log for a page that goes to flash, about as much
//!   again and a force if its slot held another.
//! - Not for: knowing an old copy of a page from the right one; see `mmr`.

mod group;
mod images;
mod table;

pub(super) use images::LoggedImages;
pub(super) use table::LoggedTable;
