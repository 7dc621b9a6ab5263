//! LVR, the lazy verification restart [S3 III-D]: a table beside the slots that a flusher hardens
//! in passes, whenever it may; recovery finds out what of it is true.
//!
//! Modules in reading order: `entry`, the table's bytes; `flusher`, how they get there; `images`,
//! what an opening believes.
//!
//! | what could go wrong | cure | taken out by |
//! |---|---|---|
//! | A: an entry names another page than the slot holds | page id of what is read | `checks_page_id` |
//! | B: an entry has another version than the slot holds | LSN of what is read | `checks_lsn` |
//! | C: the slot is newer than home, its old entry says clean | the same | `checks_lsn` |
//! | D: the page changed, was written home past the flash, the log was cut; the old copy looks current | step 3 | `lvr_shallow` |
//! | Pitfall 1: a BUF_WRITE lets redo skip what an old copy lacks | step 7 | `lvr_buf_write_frees` |
//! | Pitfall 2: the cleaner copies an old version over home's | it starts after recovery | the order of opening |
//! | Pitfall 3: after a checkpoint no entry is newer than the log's start | a full pass in each checkpoint | `lvr_checkpoint_waits` |
//!
//! - V1: after a shutdown in good order slots are verified when they are first read, by redo, a
//!   transaction or the cleaner; after a crash before redo, all of them. Either way a slot that is
//!   not what its entry says is dropped, without reading it again [S3 III-D4].
//! - V2: analysis begins where the log begins, not at the oldest dirty page: an old copy may lack a
//!   change from before it [sources.D11]. Of such a change home has the result, and a copy
//!   without it is freed like one that a BUF_WRITE names.
//! - V3: a page that changes without a record (bulk loads) leaves a record of that.
//! - Cost: in memory 8 bytes a slot, the LSN; no write to flash waits for the table.
//! - Not for: tiers that are to be warm at once after a power cut. All of it is read first.

mod entry;
mod flusher;
mod images;

pub(super) use entry::fuzz;
pub(super) use flusher::Flusher;
pub(super) use images::FlushedImages;
