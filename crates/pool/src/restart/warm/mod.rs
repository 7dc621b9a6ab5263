//! A restart that finds the flash as it was, whatever ended the session, and reads no slot for it.
//!
//! The table of slots is kept on flash as a base copy and a journal of changes since. Changes are
//! gathered in memory and written a block at a time, so a slot's write costs 20 bytes more; the
//! last block may be lost. What is found is verified when it is first used: page id, LSN, checksum.
//!
//! ```text
//!  fill, drop, clean        block full, or checkpoint            journal half full
//!  ----------------> pending ------------------------> journal ---------------------> base copy
//!                    memory      sync, write, sync     a ring     base + journal        the other
//!                                                                                       of two
//! ```
//!
//! Why it is safe to believe the table after a power cut [SPEC 8.4, violations A to D]:
//!
//! - W1: a slot whose bytes are another page, another version or torn is found out when it is read
//!   (A, B, C): its entry has the page's id and LSN. Home, or the log, serves instead.
//! - W2: a copy that was given up because its page changed is known to be old (D): either the drop
//!   is in the journal, or the change is in the log that analysis reads. A checkpoint hardens the
//!   journal after it has taken the oldest dirty LSNs and before home names them.
//! - W3: analysis begins at the oldest change that neither home nor flash has (`oldest_base`), not
//!   at the oldest that home lacks: pages that are dirty on flash need no redo. So the copy on
//!   which a change was made is kept until a newer one is durable, and the journal says so: INVALID
//!   while the page is in memory, RETIRED until the journal has the newer copy.
//!   A copy that is bad, or being cleaned when its page changes, is kept likewise: nothing else
//!   tells a later opening how far back home lacks changes.
//! - W4: a copy counts as clean only when home was synced; until then it is PINNED, not reused.
//!   What is written of a page to flash meanwhile tells of all that home would lack without that
//!   sync. A BUF_WRITE in the log says that home was synced, where the journal does not yet.
//! - W5: the log is kept from the oldest change that home lacks, as ever. So a flash that is gone,
//!   or a dirty copy that is bad, costs a longer redo, and no commit.
//!
//! Modules in reading order: `entry`, the bytes; `load`, what opening reads; `journal`, the keeper;
//! `merge`, the base copy; `synthetic`, a table to measure with.

mod entry;
mod journal;
mod load;
mod merge;
mod synthetic;

pub(super) use entry::fuzz;
pub(super) use journal::{Journalled, Pace};
pub(super) use load::WarmTable;
pub use synthetic::write_synthetic_table;

/// Where the journal of a table goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The stamp of the cold start at which the table was begun.
    pub table: u64,
    /// The number of the next block.
    pub next: u64,
    /// The first block that the base copy does not cover.
    pub tail: u64,
    /// The checksum of the block before `next`.
    pub before: u32,
    /// Which base copy it is: the nth, or none yet.
    pub base: u64,
    /// The policies' clock.
    pub now: u64,
    /// Slots whose copies the log contradicts.
    pub dropped: Vec<u32>,
    /// Slots whose pages home has too, as the log says and the table does not yet.
    pub cleaned: Vec<(u32, terrace_page::PageId)>,
}
