//! What versions have to do with those that are spilled: taking rows out of the parts, and figures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::Lsn;
use terrace_pool::Mutation;
use terrace_rt::{Nanos, maybe_switch, yield_now};

use super::ends::Ends;
use super::part::Taken;
use super::{VERSION_BYTES_MIN, Versions};

impl Versions {
    /// Bytes of spilled versions on disk, and the number of their runs.
    pub(crate) fn spilled(&self) -> (u64, u64) {
        self.spill.as_ref().map_or((0, 0), |spill| (spill.file_bytes(), spill.run_count()))
    }

    /// Reads and writes of the file of spilled versions that have failed.
    pub(crate) fn spill_failures(&self) -> u64 {
        self.spill.as_ref().map_or(0, |spill| spill.failures())
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
        let ends = self.ends_to_note();
        if self.mutations.has(Mutation::ForgetGravesEarly) {
            let graves = self.parts[number].0.lock().graves_of_ended(to);
            graves.iter().for_each(|(tree, key)| self.forget_grave(*tree, key));
            (0..8).for_each(|_| maybe_switch());
        }
        let mut part = self.parts[number].0.lock();
        let taken = self.change(&mut part, |part| part.take_ended(to, &ends));
        let Some(mut taken) = taken else { return 0 };
        let graves = taken.take_graves();
        let bytes = Taken::memory(&taken) as u64;
        self.account(0, bytes as usize);
        put(taken);
        // frozen.Z2.
        graves.iter().for_each(|(tree, key)| self.forget_grave(*tree, key));
        bytes
    }

    /// Where it is noted of which rows there are spilled versions: it takes its memory now, unless
    /// it has.
    fn ends_to_note(&self) -> Arc<Ends> {
        /// One part in this of their memory beyond the least.
        const ONE_IN: u64 = 4;
        let mut ends = self.ends.lock();
        if ends.is_empty() && !self.is_without_ends.load(Ordering::Relaxed) {
            *ends = Arc::new(Ends::new((self.bytes_max - VERSION_BYTES_MIN) / ONE_IN));
            self.account(0, ends.memory());
        }
        Arc::clone(&ends)
    }

    /// Forgets it: nothing is spilled.
    pub(super) fn forget_ends(&self) {
        self.give_up_ends();
        self.is_without_ends.store(false, Ordering::Relaxed);
    }

    /// Forgets it, so that versions have its memory: before a snapshot ends for want of room.
    pub(super) fn give_up_ends(&self) {
        let mut ends = self.ends.lock();
        self.is_without_ends.store(true, Ordering::Relaxed);
        self.account(std::mem::take(&mut *ends).memory(), 0);
    }

    /// Drops what no snapshot needs, part by part, until `is_over`: other tasks have their turns in
    /// between.
    pub(super) fn collect_in_turns(&self, is_over: &dyn Fn() -> bool) {
        self.sort_in();
        for number in 0..self.parts.len() {
            if is_over() {
                return;
            }
            let needs = self.needs();
            self.look_if_in_use(number, |part| self.collect(part, &needs));
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
