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
//! Why it is safe to believe the table after a power cut [violations A to D, S3 III-D]:
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
//! W1 to W5 do not depend on how the changes get on flash, as long as a form keeps its promises
//! (`form`): the journal above is one, FASC's chunks with log pages another. Over the journal,
//! fills of some slots need not be written at checkpoints, if an opening reads these slots
//! (`frontier`): FaCE's segments, CAC's zone.
//!
//! Modules in reading order, the lower ones first: `entry`, the bytes; `frontier`, what an opening
//! finds in the slots; `form`, what changes go through; `journal`, a form; `chunks`, another;
//! `kind`, which of them it is; `keeper`; `load`, what opening makes of it; `synthetic`, a table to
//! measure with.

mod chunks;
mod entry;
mod form;
mod frontier;
mod journal;
mod keeper;
mod kind;
mod load;
mod synthetic;

pub(super) use keeper::{Frontiers, Pace, Reach, TableKeeper};
pub(super) use kind::FormKind;
pub(super) use load::WarmTable;
pub use synthetic::write_synthetic_table;

use terrace_page::{PAGE_SIZE, PageBuf};

/// Bits of what home names that count what was written.
const POSITION_BITS: u32 = 40;

/// What home is to name for `position` of `table`: with a tag of the table. Until the first
/// checkpoint of a table that was begun anew, home names a position of the one before; where the
/// log is read from was found out with that one, so the new one must not be believed with it.
fn named(table: u64, position: u64) -> u64 {
    assert!(position >> POSITION_BITS == 0, "a table is written less often than that");
    // Stamps are numbers at random, but for their high half.
    let tag = table.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> POSITION_BITS;
    (tag << POSITION_BITS) | position
}

/// The position of `table` that home names with `name`, if it is one of that table.
fn position_of(table: u64, name: u64) -> Option<u64> {
    let position = name & ((1 << POSITION_BITS) - 1);
    (position > 0 && named(table, position) == name).then_some(position)
}

/// Where the keeper of a table goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resume {
    /// The stamp of the cold start at which the table was begun.
    pub table: u64,
    /// Where its form goes on; none if nothing was written.
    pub form: Option<kind::Resumed>,
    /// The policies' clock.
    pub now: u64,
    /// Slots whose copies the log contradicts.
    pub dropped: Vec<u32>,
    /// Slots whose pages home has too, as the log says and the table does not yet.
    pub cleaned: Vec<(u32, terrace_page::PageId)>,
    /// What the table does not tell and the slots do: slots, and what they are believed to hold
    /// unless they are among `dropped`.
    pub(super) found: Vec<(u32, entry::Entry)>,
    /// Slots of which something was told, where that matters.
    pub(super) known: Option<frontier::Known>,
}

/// For fuzzing: pages of any bytes, and the same with the right checksum, of the table and with the
/// number that they say.
pub(super) fn fuzz(bytes: &[u8]) {
    let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
    let len = bytes.len().min(PAGE_SIZE);
    page[..len].copy_from_slice(&bytes[..len]);
    for _ in 0..2 {
        let (table, number) = (entry::get(&page, 8), entry::get(&page, 16));
        entry::fuzz(&page, table, number);
        chunks::fuzz(&page, table, number);
        let checksum = crc32c::crc32c(&page[4..]);
        page[..4].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table was damaged, so that another was begun, and the power cut before its first
    /// checkpoint, when it had been written as often as the one before. The next opening believed
    /// it, and read the log from where the old table would have allowed.
    #[test]
    fn a_position_is_of_one_table() {
        for table in [1, 2, 77 << 32, u64::MAX] {
            let name = named(table, 3);
            assert_eq!(position_of(table, name), Some(3));
            assert_eq!(position_of(table ^ 4, name), None);
            assert_eq!(position_of(table, 3), None, "a name of no table");
            assert_eq!(position_of(table, named(table, 0)), None, "nothing was written");
        }
    }
}
