//! The rows of the tables in a checkpoint: COUNTS records (see `counts`).

use terrace_pool::Mutation;

use super::Engine;
use crate::counts::CountsHead;
use crate::log::record::{COUNTS_MAX, Draft};
use crate::{Error, TreeId};

/// A checkpoint lists the rows of this number of tables at most, in this part of the log.
const COUNTED_MAX: usize = 1 << 16;
const COUNTS_ONE_IN: u64 = 64;

impl Engine {
    /// Appends the counts of the tables: of as many as a small part of the log has room for.
    pub(super) fn log_counts(&self, draft: &mut Draft) -> Result<(), Error> {
        if self.pool.mutations().has(Mutation::LogNoCounts) {
            return Ok(());
        }
        let most = (self.log.capacity() / COUNTS_ONE_IN) as usize / size_of::<(TreeId, i64)>();
        // Before the counts: a tree that is made meanwhile is in both, or in none.
        let next_tree = self.trees.next_number();
        let (at, rows) = self.counts.checkpoint(|| self.log.end(), most.min(COUNTED_MAX));
        let mut records: Vec<_> = rows.chunks(COUNTS_MAX).collect();
        if records.is_empty() {
            records.push(&[]);
        }
        let head = CountsHead { at, next_tree, records: records.len() as u32 };
        for rows in records {
            draft.counts(head, rows);
            self.log.append_growing(draft)?;
        }
        Ok(())
    }
}
