//! The rows of the tables in a checkpoint: COUNTS records (see `counts`).

use terrace_page::Lsn;
use terrace_pool::Mutation;

use super::Engine;
use crate::counts::CountsHead;
use crate::log::Room;
use crate::log::record::{COUNTS_MAX, Draft, counts_bytes};
use crate::{Error, TreeId};

/// A checkpoint lists the rows of this number of tables at most, in this part of the log.
const COUNTED_MAX: usize = 1 << 16;
const COUNTS_ONE_IN: u64 = 64;

impl Engine {
    /// Appends the counts of the tables, of as many as a small part of the log has room for: in a
    /// checkpoint from which on recovery reads the log from `start` (counts.C6). Whether it did.
    ///
    /// # Errors
    ///
    /// `Failed`.
    pub(super) fn log_counts(&self, draft: &mut Draft, start: Lsn) -> Result<bool, Error> {
        let takes_slack = self.pool.mutations().has(Mutation::CountsTakeSlack);
        let is_needed = takes_slack || !self.counts.is_listed_since(start);
        if !is_needed || self.pool.mutations().has(Mutation::LogNoCounts) {
            return Ok(false);
        }
        let most = (self.log.capacity() / COUNTS_ONE_IN) as usize / size_of::<(TreeId, i64)>();
        let next_tree = || self.trees.next_number();
        let list = self.counts.checkpoint(|| self.log.end(), next_tree, most.min(COUNTED_MAX));
        let mut records: Vec<_> = list.rows.chunks(COUNTS_MAX).collect();
        if records.is_empty() {
            records.push(&[]);
        }
        let mut reserved = records.iter().map(|rows| counts_bytes(rows.len())).sum::<u64>();
        if takes_slack {
            reserved = 0;
        } else if !self.log.reserve_or_extend(reserved, Room::Forward)? {
            return Ok(false);
        }
        let head =
            CountsHead { at: list.at, next_tree: list.next_tree, records: records.len() as u32 };
        let mut appended = Ok(());
        for rows in records {
            draft.counts(head, rows);
            appended = appended.and_then(|()| self.log.append_reserved(draft, &mut reserved));
        }
        self.log.unreserve(reserved);
        appended.map(|()| true)
    }
}
