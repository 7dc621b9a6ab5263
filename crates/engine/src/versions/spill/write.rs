//! The task that spills: it takes rows out of the parts, writes them to a run, and gives room back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::Lsn;
use terrace_pool::Mutation;
use terrace_rt::{Nanos, dead, now, yield_now};

use super::block::Item;
use super::room::{Purpose, REST_MAX};
use super::run::{Run, Squeezed, Sums};
use super::segment::Segment;
use super::writer::{Pushed, SegmentWriter};
use super::{FROZEN_ONE_IN, FULL_ONE_IN, Frozen, GROW_ONE_IN, LEFT_ONE_IN, SPILL_ONE_IN, Spill};
use crate::versions::Versions;

/// How long the tasks rest after the file has failed, at first; then twice as long each time.
pub(super) const REST: Nanos = Nanos::from_millis(50);
/// Batches of a round: each takes rows out of a part that none before it has looked at.
const BATCHES_MAX: u32 = 1 << 16;

/// How an attempt to write what is frozen ended.
enum Written {
    Run(Run),
    /// The file has no room for it.
    NoRoom,
    /// No snapshot needs it any more, or the task is over.
    NotNeeded,
}

/// Why writing stops.
enum Stop {
    Failed(io::Error),
    NoRoom,
    NotNeeded,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Failed(error)
    }
}

/// What a round of the task came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Nothing is to be done before the task is called.
    Idle,
    /// Snapshots were ended.
    Ended,
    Failed,
}

/// The segments of what is frozen, one after the other.
struct Writer<'s> {
    spill: &'s Spill,
    /// Entries that are left, and their bytes.
    left: (u64, u64),
    segments: Vec<Arc<Segment>>,
    open: Option<SegmentWriter>,
}

impl Writer<'_> {
    fn push(&mut self, key: &[u8], item: Item<'_>) -> Result<(), Stop> {
        for _ in 0..2 {
            if self.open.is_none() {
                let memory = self.spill.memory_for_segment(self.left, Sums::default());
                self.open = SegmentWriter::new(&self.spill.room, Purpose::Spill, memory)?;
            }
            let open = self.open.as_mut().ok_or(Stop::NoRoom)?;
            if open.push(key, item)? == Pushed::Done {
                self.left.0 = self.left.0.saturating_sub(1);
                let bytes = (key.len() + item.before.map_or(0, <[u8]>::len)) as u64;
                self.left.1 = self.left.1.saturating_sub(bytes);
                return Ok(());
            }
            self.end_segment()?;
        }
        Err(Stop::NoRoom)
    }

    fn end_segment(&mut self) -> io::Result<()> {
        let segment = self.open.take().map(SegmentWriter::finish).transpose()?;
        self.segments.extend(segment.flatten().map(Arc::new));
        Ok(())
    }
}

impl Spill {
    /// A number for a run.
    pub(super) fn number(&self) -> u64 {
        self.next_run.fetch_add(1, Ordering::Relaxed)
    }

    fn is_current(&self, frozen: &Arc<Frozen>) -> bool {
        self.held.lock().frozen.as_ref().is_some_and(|held| Arc::ptr_eq(held, frozen))
    }

    /// Writes what is frozen to a run.
    fn write(&self, frozen: &Arc<Frozen>, is_over: &dyn Fn() -> bool) -> io::Result<Written> {
        let size = frozen.size();
        if !self.room.fits(size.1) {
            return Ok(Written::NoRoom);
        }
        let mut writer = Writer { spill: self, left: size, segments: Vec::new(), open: None };
        let mut count = 0_u64;
        let done = frozen.each(|key, old| {
            const BETWEEN_LOOKS: u64 = 32;
            let is_look_due = count.is_multiple_of(BETWEEN_LOOKS);
            count += 1;
            if is_look_due && (!self.is_current(frozen) || dead() || is_over()) {
                return Err(Stop::NotNeeded);
            }
            writer.push(key, Item { ended: old.ended, before: old.before })
        });
        match done {
            Ok(()) => writer.end_segment()?,
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::NoRoom) => return Ok(Written::NoRoom),
            Err(Stop::NotNeeded) => return Ok(Written::NotNeeded),
        }
        Ok(Written::Run(Run::new(self.number(), Squeezed::default(), writer.segments)))
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

    /// Gives room back to the file system: some is kept while there are runs, to be used again.
    fn give_room_back(&self) {
        let is_empty = self.held.lock().runs.is_empty();
        self.room.punch(if is_empty { 0 } else { self.room.segment_extents() });
    }

    /// Says whether what is frozen has no room.
    fn set_pressed(&self, is_pressed: bool) {
        let was_pressed = self.is_pressed.swap(is_pressed, Ordering::SeqCst);
        if is_pressed && !was_pressed {
            self.merge_wanted.notify_all();
        }
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
            match self.spill_round(spill, &is_over) {
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

    /// Drops what is not needed, and spills what is too much for memory, a batch after the other.
    fn spill_round(&self, spill: &Spill, is_over: &dyn Fn() -> bool) -> Round {
        let (mut round, mut parts_left) = (Round::Idle, self.parts.len());
        for _ in 0..BATCHES_MAX {
            self.drop_seen_runs();
            spill.give_room_back();
            if is_over() || dead() {
                return round;
            }
            let frozen =
                spill.held().frozen.or_else(|| self.freeze(spill, &mut parts_left, is_over));
            let Some(frozen) = frozen else {
                spill.set_pressed(false);
                // What is in memory has room there.
                *spill.failure.lock() = None;
                break;
            };
            match spill.write(&frozen, is_over) {
                Ok(Written::Run(run)) => {
                    *spill.failure.lock() = None;
                    spill.set_pressed(false);
                    self.release_frozen(spill.install(&frozen, Some(run)));
                    spill.merge_wanted.notify_all();
                    self.await_growth(spill);
                }
                Ok(Written::NotNeeded) => spill.set_pressed(false),
                Ok(Written::NoRoom) => {
                    spill.set_pressed(true);
                    if !self.end_for_room(spill) {
                        break;
                    }
                    round = Round::Ended;
                }
                Err(error) => {
                    *spill.failure.lock() = Some(Arc::new(error));
                    self.await_growth(spill);
                    return Round::Failed;
                }
            }
        }
        // Its last snapshot may have been closed meanwhile.
        self.drop_seen_runs();
        spill.give_room_back();
        round
    }

    /// The file has no room for what is frozen: ends the oldest snapshot for that, if it must
    /// (spill.T3). If not, the task waits until merges have freed some, or versions take more
    /// memory.
    fn end_for_room(&self, spill: &Spill) -> bool {
        let full_at = self.bytes_max / FULL_ONE_IN;
        if !spill.may_free_room() && self.bytes() > full_at {
            self.give_up_ends();
        }
        if spill.may_free_room() || self.bytes() <= full_at {
            let at = full_at.max(self.own_bytes() + self.bytes_max / GROW_ONE_IN);
            spill.spill_at.store(at.saturating_sub(spill.memory()), Ordering::Relaxed);
            self.set_chores_at();
            return false;
        }
        if !self.end_oldest() {
            self.release_frozen(spill.clear());
        }
        true
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

    /// Takes a batch of rows out of the parts that are left of this round, if versions take more
    /// memory than they are to. They are found in what is frozen from then on.
    fn freeze(
        &self,
        spill: &Spill,
        parts_left: &mut usize,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Arc<Frozen>> {
        let is_first = *parts_left == self.parts.len();
        let most = match is_first {
            true => spill.spill_at(),
            false => self.bytes_max.saturating_sub(spill.memory()) / LEFT_ONE_IN,
        };
        if self.own_bytes() <= most || !self.is_any_snapshot_open() {
            self.await_more(spill);
            return None;
        }
        if is_first {
            self.collect_in_turns(is_over);
            if self.own_bytes() <= most {
                self.await_more(spill);
                return None;
            }
        }
        let to = self.backlog.sorted_to();
        let frozen = Arc::new(Frozen::new(self.parts.len()));
        if !self.mutations.has(Mutation::ShowFrozenLate) {
            spill.hold(|held| {
                held.frozen = Some(Arc::clone(&frozen));
                // spill.T7.
                held.frozen_to = to;
            });
        }
        let mut bytes = 0;
        let bytes_max = spill.room.spill_bytes() / FROZEN_ONE_IN;
        while *parts_left > 0 && bytes < bytes_max && !is_over() {
            *parts_left -= 1;
            let number = spill.next_part.fetch_add(1, Ordering::Relaxed) % self.parts.len();
            bytes += self.take_ended(number, to, |taken| frozen.put(number, taken));
            yield_now();
        }
        let end = frozen.last_end();
        spill.hold(|held| {
            held.frozen = Some(Arc::clone(&frozen));
            (held.frozen_bytes, held.frozen_end, held.frozen_to) = (bytes, end, end);
        });
        if end == Lsn::ZERO {
            self.release_frozen(spill.install(&frozen, None));
            self.await_growth(spill);
            return None;
        }
        Some(frozen)
    }
}
