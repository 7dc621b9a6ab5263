//! The task that merges runs of about a size, so that a look for a row looks into few of them, and
//! runs that may have what no snapshot needs, if the file has no room.
//!
//! ```text
//! inputs   ######## | ..........       read | left
//! output   #####    |                  written, without what no snapshot needs
//!                 place
//! ```
//!
//! - G1: a merge goes on in steps. A step writes a segment of the output; then, at once, the output
//!   has that segment, and the inputs begin where it ended (segment.N2). So at any moment each
//!   entry that a snapshot may need is in one run.
//! - G2: before that a step takes a segment's extents at most, and an input keeps at most one
//!   extent of which it needs only the rest: that is the reserve which room.R2 leaves. So merges go
//!   on in a file that is full.
//! - G3: a merge may end between any two steps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_page::Lsn;
use terrace_rt::{Nanos, dead, now, yield_now};

use super::frozen::BETWEEN_TURNS;
use super::reader::Sources;
use super::room::{MERGED_MAX, Purpose};
use super::run::{Run, Squeezed};
use super::segment::Segment;
use super::write::{REST, REST_MAX};
use super::writer::{Pushed, SegmentWriter};
use super::{Spill, sums_of};
use crate::versions::Versions;
use crate::versions::horizon::Horizon;

/// Runs of a size are merged once they are this many.
const FAN: usize = MERGED_MAX;
/// Runs are of a size if the larger is at most this many times as long.
const SIZE_STEP: u64 = 4;
/// Runs are squeezed for room if those that may have what is not needed have one part in this of
/// the file, at least: so no more than this many bytes are written for one that is freed.
const SQUEEZED_ONE_IN: u64 = 16;

fn sound_by_size(runs: &[Arc<Run>]) -> Vec<&Arc<Run>> {
    let mut sound: Vec<&Arc<Run>> = runs.iter().filter(|run| !run.sums().is_bad).collect();
    sound.sort_by_key(|run| (run.sums().file_bytes, run.number));
    sound
}

/// Runs of a size that are to be merged, if there are any.
fn similar(runs: &[Arc<Run>]) -> Option<Vec<Arc<Run>>> {
    let sound = sound_by_size(runs);
    let is_similar = |some: &&[&Arc<Run>]| {
        some[FAN - 1].sums().file_bytes <= some[0].sums().file_bytes * SIZE_STEP
    };
    sound.windows(FAN).find(is_similar).map(|some| some.iter().copied().cloned().collect())
}

/// Runs that are to be merged for the room of what no snapshot needs any more, where the file may
/// have `file_bytes`.
fn squeezable(runs: &[Arc<Run>], file_bytes: u64) -> Option<Vec<Arc<Run>>> {
    let sound = sound_by_size(runs);
    let largest = sound.iter().rposition(|run| run.is_squeezed.load(Ordering::SeqCst));
    let rest = (0..sound.len()).filter(|&at| Some(at) != largest);
    let bytes: u64 = rest.map(|at| sound[at].sums().file_bytes).sum();
    if bytes == 0 || bytes < file_bytes / SQUEEZED_ONE_IN {
        return None;
    }
    Some(sound.into_iter().take(FAN).cloned().collect())
}

/// A merge that is under way.
struct Merge {
    /// The numbers of the runs that are read.
    inputs: Vec<u64>,
    sources: Sources,
    output: Run,
    /// Entries that are left, and their bytes.
    left: (u64, u64),
    /// The key of the last entry, and where its change ended.
    last: (Vec<u8>, Lsn),
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    GoesOn,
    Done,
    /// The file has no room, or the task is over, or the runs are gone.
    Stopped,
}

impl Merge {
    fn new(runs: &[Arc<Run>], output: Run) -> io::Result<Merge> {
        let sums = sums_of(runs);
        Ok(Merge {
            inputs: runs.iter().map(|run| run.number).collect(),
            sources: Sources::new(runs)?,
            output,
            left: (sums.entries, sums.entry_bytes),
            last: (Vec::new(), Lsn::ZERO),
        })
    }

    /// Goes on to the next entry.
    fn pass(&mut self) -> io::Result<()> {
        if let Some((key, item)) = self.sources.first() {
            if self.last.0 != key {
                self.last.0.clear();
                self.last.0.extend_from_slice(key);
            }
            self.last.1 = item.ended;
            let bytes = (key.len() + item.before.map_or(0, <[u8]>::len)) as u64;
            self.left.0 = self.left.0.saturating_sub(1);
            self.left.1 = self.left.1.saturating_sub(bytes);
        }
        self.sources.pass()
    }

    /// Whether a snapshot may need the entry that comes next.
    fn is_needed(&self, horizon: &Horizon) -> bool {
        self.sources.first().is_some_and(|(key, item)| {
            let older = if self.last.0 == key { self.last.1 } else { Lsn::ZERO };
            horizon.may_see(older, item.ended)
        })
    }

    /// Passes entries, and writes those that are needed, until `writer` is full; whether the task
    /// is to go on.
    fn fill(
        &mut self,
        writer: &mut SegmentWriter,
        horizon: &Horizon,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let mut count = 0_u64;
        while let Some((key, item)) = self.sources.first() {
            count += 1;
            if count.is_multiple_of(BETWEEN_TURNS) {
                yield_now();
                if is_over() || dead() {
                    return Ok(false);
                }
            }
            if self.is_needed(horizon) && writer.push(key, item)? == Pushed::Full {
                break;
            }
            self.pass()?;
        }
        Ok(true)
    }
}

impl Spill {
    /// Whether merges may free room in the file.
    pub(super) fn may_free_room(&self) -> bool {
        // In this order: a merge that ends in between has said what it has freed.
        let is_merging = self.merging.lock().is_some();
        is_merging || self.choice().is_some()
    }

    /// Whether one of these runs cannot be read.
    fn is_any_bad(&self, runs: &[u64]) -> bool {
        let held = self.held();
        held.runs.iter().any(|run| runs.contains(&run.number) && run.sums().is_bad)
    }

    /// The runs that are to be merged, if any are.
    fn choice(&self) -> Option<Vec<Arc<Run>>> {
        let runs = self.held().runs;
        similar(&runs).or_else(|| {
            let is_pressed = self.is_pressed.load(Ordering::SeqCst);
            let squeezed = || squeezable(&runs, self.room.spill_bytes());
            is_pressed.then(squeezed).flatten()
        })
    }

    /// Merges some more of what is left (G1).
    fn step(
        &self,
        merge: &mut Merge,
        horizon: &Horizon,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Step> {
        let runs = self.held().runs;
        let own = |run: &&Arc<Run>| merge.inputs.contains(&run.number);
        let merged: Vec<Arc<Run>> = runs.iter().filter(own).cloned().collect();
        let memory = self.memory_for_segment(merge.left, sums_of(&merged));
        drop((runs, merged));
        let writer = SegmentWriter::new(&self.room, Purpose::Merge, memory)?;
        let Some(mut writer) = writer else { return Ok(Step::Stopped) };
        if !merge.fill(&mut writer, horizon, is_over)? {
            return Ok(Step::Stopped);
        }
        let segment = writer.finish()?;
        if !self.replace(merge, segment) {
            return Ok(Step::Stopped);
        }
        merge.sources.release();
        Ok(if merge.sources.first().is_some() { Step::GoesOn } else { Step::Done })
    }

    /// The output gets a segment, and the inputs begin where it ended (G1), as far as they are
    /// there; whether any is.
    fn replace(&self, merge: &mut Merge, segment: Option<Segment>) -> bool {
        let place = merge.sources.first().map(|(key, item)| (key, item.ended));
        let (output, inputs) = (&mut merge.output, &merge.inputs);
        let is_there = self.hold(|held| {
            if !held.runs.iter().any(|run| inputs.contains(&run.number)) {
                return false;
            }
            // What was dropped of the output since is not needed.
            let own = held.runs.iter().find(|run| run.number == output.number);
            *output = own.map_or(&*output, |run| &**run).with(segment);
            let mut runs = Vec::with_capacity(held.runs.len() + 1);
            for run in held.runs.iter().filter(|run| run.number != output.number) {
                if !inputs.contains(&run.number) {
                    runs.push(Arc::clone(run));
                } else if let Some(place) = place {
                    runs.extend(run.from(place).map(Arc::new));
                }
            }
            if !output.segments().is_empty() {
                runs.push(Arc::new(output.clone()));
            }
            held.runs = Arc::new(runs);
            true
        });
        // The extents of the output are those that `held` has.
        *output = Run::new(output.number, Arc::clone(&output.is_squeezed), Vec::new());
        self.want();
        is_there
    }
}

impl Versions {
    /// The task: returns once `is_over`.
    pub(crate) fn merge_runs_until(&self, is_over: impl Fn() -> bool) {
        let Some(spill) = &self.spill else { return };
        let mut rest = REST;
        loop {
            let seen = spill.merge_wanted.seen();
            if is_over() || dead() {
                return;
            }
            let Some(runs) = spill.choice() else {
                spill.merge_wanted.wait(seen);
                continue;
            };
            let inputs: Vec<u64> = runs.iter().map(|run| run.number).collect();
            match self.merge(spill, runs, &is_over) {
                Ok(Step::Done) => {
                    *spill.failure.lock() = None;
                    rest = REST;
                    continue;
                }
                // A run that cannot be read is not tried again, and readers that need it see why.
                Err(_) if spill.is_any_bad(&inputs) => continue,
                Err(error) => *spill.failure.lock() = Some(Arc::new(error)),
                Ok(_) => (),
            }
            let _waited = spill.merge_wanted.wait_until(seen, now().saturating_add(rest));
            rest = Nanos((rest.0 * 2).min(REST_MAX.0));
        }
    }

    /// Merges runs, step by step.
    fn merge(
        &self,
        spill: &Spill,
        runs: Vec<Arc<Run>>,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Step> {
        let is_squeezed = Squeezed::new(AtomicBool::new(true));
        *spill.merging.lock() = Some(Arc::clone(&is_squeezed));
        let output = Run::new(spill.number(), is_squeezed, Vec::new());
        let merge = Merge::new(&runs, output);
        // Only the merge itself keeps what it reads (G2).
        drop(runs);
        let merged = self.merge_to(spill, merge, is_over);
        *spill.merging.lock() = None;
        if let Ok(Step::Done) = merged {
            spill.want();
        }
        merged
    }

    fn merge_to(
        &self,
        spill: &Spill,
        merge: io::Result<Merge>,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Step> {
        let mut merge = merge?;
        loop {
            let step = spill.step(&mut merge, &self.horizon(), is_over)?;
            if step != Step::GoesOn {
                return Ok(step);
            }
            yield_now();
        }
    }
}
