//! The task that spills: it takes rows out of the parts, writes them to a run, and gives room back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::Lsn;
use terrace_pool::Mutation;
use terrace_rt::{Nanos, dead, maybe_switch, now};

use super::block::Item;
use super::run::{Run, RunWriter};
use super::{BUFFER_MAX, BUFFER_ONE_IN, FILTERS_ONE_IN, Frozen, GROW_ONE_IN, SPILL_ONE_IN, Spill};
use crate::versions::{PARTS, Versions};

/// How long the task rests after the file has failed, at first; then twice as long each time.
const REST: Nanos = Nanos::from_millis(50);
const REST_MAX: Nanos = Nanos::from_secs(5);

/// How an attempt to write what is frozen ended.
enum Written {
    Run(Option<Run>),
    /// The file has no room for it.
    NoRoom,
    /// No snapshot needs it any more.
    NotNeeded,
}

/// What a round of the task came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Idle,
    /// Snapshots were ended.
    Ended,
    Failed,
}

impl Spill {
    /// Memory for the filter and the buffer of a new run.
    pub(super) fn memory_for_run(&self) -> (u64, u64) {
        let used: usize = self.held().runs.iter().map(|run| run.filter_memory()).sum();
        let filter = (self.bytes_max / FILTERS_ONE_IN).saturating_sub(used as u64);
        (filter, (self.bytes_max / BUFFER_ONE_IN).min(BUFFER_MAX))
    }

    pub(super) fn number(&self) -> u64 {
        self.next_run.fetch_add(1, Ordering::Relaxed)
    }

    fn is_current(&self, frozen: &Arc<Frozen>) -> bool {
        self.held.lock().frozen.as_ref().is_some_and(|held| Arc::ptr_eq(held, frozen))
    }

    /// Writes what is frozen to a run.
    fn write(&self, frozen: &Arc<Frozen>) -> io::Result<Written> {
        self.room.punch();
        let memory = self.memory_for_run();
        let writer = RunWriter::new(self.number(), &self.room, frozen.size(), memory)?;
        let Some(mut writer) = writer else { return Ok(Written::NoRoom) };
        let mut is_needed = true;
        let mut count = 0_u64;
        frozen.each(|key, old| {
            count += 1;
            const BETWEEN_LOOKS: u64 = 512;
            if count.is_multiple_of(BETWEEN_LOOKS) {
                is_needed &= self.is_current(frozen) && !dead();
                maybe_switch();
            }
            if is_needed {
                writer.push(key, Item { ended: old.ended, before: old.before })
            } else {
                Ok(())
            }
        })?;
        if !is_needed {
            return Ok(Written::NotNeeded);
        }
        writer.finish().map(Written::Run)
    }

    /// The run takes the place of what was frozen (spill.T1), if that is still needed. Bytes that
    /// this frees.
    fn install(&self, frozen: &Arc<Frozen>, run: Option<Run>) -> u64 {
        self.hold(|held| {
            let is_current = held.frozen.as_ref().is_some_and(|held| Arc::ptr_eq(held, frozen));
            if !is_current {
                return 0;
            }
            if let Some(run) = run {
                let runs = held.runs.iter().cloned().chain([Arc::new(run)]);
                held.runs = Arc::new(runs.collect());
            }
            held.thaw()
        })
    }
}

impl Versions {
    /// The task: returns once `is_over`. `has_ended` is told when snapshots were ended.
    pub(crate) fn spill_until(&self, is_over: impl Fn() -> bool, has_ended: impl Fn()) {
        let Some(spill) = &self.spill else { return };
        let mut rest = REST;
        loop {
            let seen = spill.wanted.seen();
            if is_over() || dead() {
                return;
            }
            match self.spill_round(spill) {
                Round::Failed => {
                    let _waited = spill.wanted.wait_until(seen, now().saturating_add(rest));
                    rest = Nanos((rest.0 * 2).min(REST_MAX.0));
                    continue;
                }
                Round::Ended => has_ended(),
                Round::Idle => (),
            }
            rest = REST;
            spill.wanted.wait(seen);
        }
    }

    /// Drops what is not needed, and spills what is too much for memory.
    fn spill_round(&self, spill: &Spill) -> Round {
        self.drop_seen_runs();
        spill.room.punch();
        let frozen = spill.held().frozen.or_else(|| self.freeze(spill));
        let Some(frozen) = frozen else { return Round::Idle };
        let mut round = Round::Idle;
        loop {
            match spill.write(&frozen) {
                Ok(Written::Run(run)) => {
                    *spill.failure.lock() = None;
                    self.release_frozen(spill.install(&frozen, run));
                    spill.merge_wanted.notify_all();
                    break;
                }
                Ok(Written::NotNeeded) => break,
                // spill.T3, spill.T4: the oldest snapshot ends, and what only it needs goes.
                Ok(Written::NoRoom) => {
                    if !self.end_oldest() {
                        self.release_frozen(spill.clear());
                        break;
                    }
                    round = Round::Ended;
                    if !spill.is_current(&frozen) {
                        break;
                    }
                }
                Err(error) => {
                    *spill.failure.lock() = Some(Arc::new(error));
                    self.await_growth(spill);
                    return Round::Failed;
                }
            }
        }
        self.await_growth(spill);
        // Its last snapshot may have been closed meanwhile.
        self.drop_seen_runs();
        spill.room.punch();
        round
    }

    /// What versions are to take before they are spilled, if they take what they do now after that
    /// was done: some may not be spilled yet.
    fn grown(&self, spill: &Spill) -> u64 {
        let room = self.bytes_max.saturating_sub(spill.memory());
        (self.own_bytes() + self.bytes_max / GROW_ONE_IN).max(room / SPILL_ONE_IN)
    }

    /// The next spilling comes once versions have grown.
    fn await_growth(&self, spill: &Spill) {
        spill.spill_at.store(self.grown(spill), Ordering::Relaxed);
        self.set_chores_at();
    }

    /// Versions need not be spilled now. If they have become less, the next spilling comes sooner.
    fn await_more(&self, spill: &Spill) {
        spill.spill_at.fetch_min(self.grown(spill), Ordering::Relaxed);
        self.set_chores_at();
    }

    /// Takes rows out of the parts, if versions take more memory than they are to. They are found
    /// in what is frozen from then on.
    fn freeze(&self, spill: &Spill) -> Option<Arc<Frozen>> {
        if self.own_bytes() <= spill.spill_at() || !self.is_any_snapshot_open() {
            self.await_more(spill);
            return None;
        }
        self.collect_all();
        if self.own_bytes() <= spill.spill_at() {
            self.await_more(spill);
            return None;
        }
        let to = self.backlog.sorted_to();
        let frozen = Arc::new(Frozen::new(PARTS));
        if !self.mutations.has(Mutation::ShowFrozenLate) {
            spill.hold(|held| held.frozen = Some(Arc::clone(&frozen)));
        }
        let bytes = self.take_ended(to, |part, taken| {
            frozen.put(part, taken);
        });
        let end = frozen.last_end();
        spill.hold(|held| {
            held.frozen = Some(Arc::clone(&frozen));
            (held.frozen_bytes, held.frozen_end) = (bytes, end);
        });
        if end == Lsn::ZERO {
            self.release_frozen(spill.install(&frozen, None));
            self.await_growth(spill);
            return None;
        }
        Some(frozen)
    }
}
