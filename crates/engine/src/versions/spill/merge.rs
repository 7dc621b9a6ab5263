//! The task that merges runs of about a size, so that a look for a row looks into few of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::Lsn;
use terrace_rt::{dead, maybe_switch};

use super::Spill;
use super::block::Item;
use super::run::{Run, RunReader, RunSize, RunWriter};
use crate::versions::Versions;
use crate::versions::horizon::Horizon;

/// Runs of a size are merged once they are this many.
const FAN: usize = 8;
/// Runs are of a size if the larger is at most this many times as long.
const SIZE_STEP: u64 = 4;
/// Merging waits while the file uses more than 3/4 of its limit with what it would write.
const LIMIT_PARTS: (u64, u64) = (3, 4);
/// Entries between two looks whether the database is closed.
const BETWEEN_LOOKS: u64 = 512;

/// The runs that are to be merged, if any are.
fn choice(runs: &[Arc<Run>]) -> Option<Vec<Arc<Run>>> {
    let mut sound: Vec<&Arc<Run>> =
        runs.iter().filter(|run| !run.is_bad.load(Ordering::Relaxed)).collect();
    sound.sort_by_key(|run| (run.len(), run.number));
    sound.windows(FAN).find(|some| some[FAN - 1].len() <= some[0].len() * SIZE_STEP).map(|some| {
        let end = some[0].len() * SIZE_STEP;
        let first = some[0].number;
        let from = sound.iter().position(|run| run.number == first).expect("one of them");
        sound[from..].iter().take_while(|run| run.len() <= end).copied().cloned().collect()
    })
}

/// The next entry of each run, the first in their order on top.
struct Sources {
    readers: Vec<RunReader>,
    /// Key, end, and the number of the reader.
    heap: BinaryHeap<Reverse<(Vec<u8>, Lsn, usize)>>,
    /// What the row was, of the next entry of each.
    befores: Vec<(Vec<u8>, bool)>,
}

impl Sources {
    fn new(runs: &[Arc<Run>]) -> io::Result<Sources> {
        let readers = runs.iter().map(RunReader::new).collect();
        let befores = runs.iter().map(|_| (Vec::new(), false)).collect();
        let mut sources = Sources { readers, heap: BinaryHeap::new(), befores };
        (0..runs.len()).try_for_each(|number| sources.refill(number, Vec::new()))?;
        Ok(sources)
    }

    fn refill(&mut self, number: usize, mut key: Vec<u8>) -> io::Result<()> {
        let (before, is_there) = &mut self.befores[number];
        if let Some((ended, has_before)) = self.readers[number].next(&mut key, before)? {
            *is_there = has_before;
            self.heap.push(Reverse((key, ended, number)));
        }
        Ok(())
    }

    /// Shows each entry in turn, until one fails or `each` has had enough.
    fn each(mut self, mut each: impl FnMut(&[u8], Item<'_>) -> io::Result<bool>) -> io::Result<()> {
        while let Some(Reverse((key, ended, number))) = self.heap.pop() {
            let (before, is_there) = &self.befores[number];
            let before = is_there.then_some(&before[..]);
            if !each(&key, Item { ended, before })? {
                return Ok(());
            }
            self.refill(number, key)?;
        }
        Ok(())
    }
}

impl Spill {
    /// Writes what snapshots may see of `runs` to one run; `None` if there is no room for it, or
    /// the task is over.
    fn merged(
        &self,
        runs: &[Arc<Run>],
        horizon: &Horizon,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Option<Option<Run>>> {
        let size = runs.iter().fold(RunSize::default(), |size, run| size.and(run.size));
        let memory = self.memory_for_run();
        let Some(mut writer) = RunWriter::new(self.number(), &self.room, size, memory)? else {
            return Ok(None);
        };
        let (mut count, mut goes_on) = (0_u64, true);
        // The key of the last entry, and where its change ended.
        let mut last: (Vec<u8>, Lsn) = (Vec::new(), Lsn::ZERO);
        Sources::new(runs)?.each(|key, item| {
            count += 1;
            if count.is_multiple_of(BETWEEN_LOOKS) {
                maybe_switch();
                goes_on = !is_over() && !dead();
            }
            if last.0 != key {
                last.0.clear();
                last.0.extend_from_slice(key);
                last.1 = Lsn::ZERO;
            }
            if horizon.may_see(last.1, item.ended) {
                writer.push(key, item)?;
            }
            last.1 = item.ended;
            Ok(goes_on)
        })?;
        if goes_on { writer.finish().map(Some) } else { Ok(None) }
    }

    /// The merged run takes the place of those that it was made of (spill.T1), as far as they are
    /// there.
    fn replace(&self, merged: &[Arc<Run>], run: Option<Run>) {
        self.hold(|held| {
            let is_merged = |one: &Arc<Run>| merged.iter().any(|other| other.number == one.number);
            if !held.runs.iter().any(is_merged) {
                return;
            }
            let rest = held.runs.iter().filter(|run| !is_merged(run)).cloned();
            held.runs = Arc::new(rest.chain(run.map(Arc::new)).collect());
        });
        self.wanted.notify_all();
    }
}

impl Versions {
    /// The task: returns once `is_over`.
    pub(crate) fn merge_runs_until(&self, is_over: impl Fn() -> bool) {
        let Some(spill) = &self.spill else { return };
        loop {
            let seen = spill.merge_wanted.seen();
            if is_over() || dead() {
                return;
            }
            let is_done = self.merge_some(spill, &is_over);
            if !is_done {
                spill.merge_wanted.wait(seen);
            }
        }
    }

    /// Merges runs, if some are to be; whether it did.
    fn merge_some(&self, spill: &Spill, is_over: &dyn Fn() -> bool) -> bool {
        let Some(runs) = choice(&spill.held().runs) else { return false };
        let bytes: u64 = runs.iter().map(|run| run.len()).sum();
        let (part, of) = LIMIT_PARTS;
        if spill.room.used() + bytes > spill.room.limit() / of * part {
            return false;
        }
        let horizon = self.horizon();
        match spill.merged(&runs, &horizon, is_over) {
            Ok(Some(run)) => {
                spill.replace(&runs, run);
                true
            }
            // They stay as they are. A run that cannot be read is not tried again, and readers that
            // need it see why.
            Ok(None) => false,
            Err(_) => runs.iter().any(|run| run.is_bad.load(Ordering::Relaxed)),
        }
    }
}
