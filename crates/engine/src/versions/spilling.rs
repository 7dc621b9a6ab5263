//! What versions have to do with those that are spilled: taking rows out of the parts, and figures.

use std::sync::atomic::Ordering;

use terrace_page::Lsn;
use terrace_pool::Mutation;
use terrace_rt::{Nanos, yield_now};

use super::part::Taken;
use super::{VERSION_BYTES_MIN, Versions};
use crate::TreeId;

impl Versions {
    /// Bytes of spilled versions on disk, and the number of their runs.
    pub(crate) fn spilled(&self) -> (u64, u64) {
        self.spill.as_ref().map_or((0, 0), |spill| (spill.file_bytes(), spill.run_count()))
    }

    /// Whether versions go to disk for which memory has no room.
    pub(crate) fn spills(&self) -> bool {
        self.spill.is_some()
    }

    /// How long the oldest snapshot is open; zero if none is.
    pub(crate) fn oldest_age(&self) -> Nanos {
        self.snapshots.oldest_age()
    }

    /// The database closes: the tasks that spill are to end.
    pub(crate) fn wake_spilling(&self) {
        if let Some(spill) = &self.spill {
            spill.wake();
        }
    }

    /// The tasks that spill have ended.
    pub(crate) fn release_spill(&self) {
        if let Some(spill) = &self.spill {
            spill.release();
        }
    }

    /// Takes the rows out of a part whose changes are all of transactions that ended before `to`,
    /// and shows them to `put` while it is held; bytes of them.
    pub(super) fn take_ended(&self, number: usize, to: Lsn, put: impl FnOnce(Taken)) -> u64 {
        /// One part in this of their memory beyond the least says of which rows there are spilled
        /// versions.
        const ENDS_ONE_IN: u64 = 4;
        let more = self.bytes_max - VERSION_BYTES_MIN;
        let ends_bytes = (more / ENDS_ONE_IN / self.parts.len() as u64) as usize;
        let mut part = self.parts[number].0.lock();
        let forget = |tree: TreeId, key: &[u8]| self.forget_grave(tree, key);
        let taken = self.change(&mut part, |part| part.take_ended(to, ends_bytes, forget));
        let Some(taken) = taken else { return 0 };
        let bytes = Taken::memory(&taken) as u64;
        self.account(0, bytes as usize);
        put(taken);
        bytes
    }

    /// Drops what no snapshot needs, part by part: other tasks have their turns in between.
    pub(super) fn collect_in_turns(&self) {
        self.sort_in();
        for number in 0..self.parts.len() {
            let horizon = self.horizon();
            self.look_if_in_use(number, |part| self.collect(part, &horizon));
            yield_now();
        }
    }

    /// Bytes that were taken out of the parts are free.
    pub(super) fn release_frozen(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Drops spilled versions that no snapshot needs (spill.T4).
    pub(super) fn drop_seen_runs(&self) {
        let Some(spill) = &self.spill else { return };
        let first = match self.mutations.has(Mutation::DropNeededRuns) {
            true => self.log.end(),
            false => self.horizon().first(),
        };
        self.release_frozen(spill.drop_seen(first));
    }

    /// What `do_chores` is to be told of changes as versions are spilled.
    pub(super) fn set_chores_at(&self) {
        if let Some(spill) = &self.spill {
            let room = self.bytes_max.saturating_sub(spill.memory());
            self.chores_at.store(room.min(spill.spill_at()), Ordering::Relaxed);
        }
    }
}
