//! Compaction of all trees: a step at a time, each in turn with the reclaim task and a transaction
//! of its own.
//!
//! ```text
//!   tighten   nodes that fit into the one before are merged: the leaves in key order, then each
//!             level above
//!   gather    pages leave the extents that are used least, for free pages of fuller ones
//!   punch     free extents give their room back, behind two checkpoints (`space::holes`)
//! ```

use std::cmp::Reverse;
use std::sync::Arc;

use terrace_pool::Mutation;
use terrace_rt::{Nanos, dead, sleep, yield_now};

use super::Trees;
use crate::btree::{Keep, Moved, Tightened, Tree};
use crate::engine::Engine;
use crate::reclaim::{Progress, may_pass};
use crate::space::{EXTENT_PAGES, Extent};
use crate::{Error, TreeId};

/// Extents with at least this many used pages keep them.
const KEPT_FROM: u32 = EXTENT_PAGES as u32 / 4 * 3;
/// How long a compaction pauses after an error that may pass, such as a full log.
const PAUSE: Nanos = Nanos::from_millis(20);
/// Errors in a row after which it is given up.
const ERRORS_MAX: u32 = 100;
/// Requests at home from which on it lets others go first, how long it does, and after how many
/// steps.
const BUSY_REQUESTS: usize = 8;
const BUSY_NAP: Nanos = Nanos::from_millis(1);
const BUSY_STEPS: u64 = 8;
/// How often checkpoints are taken until what is free is behind them: old pages may be held up.
const CHECKPOINTS_MAX: u32 = 4;
/// Steps of one level, at most, for each page of home: a tree that grows at its end has one.
const STEPS_PER_PAGE: u64 = 4;

/// What a compaction has done to trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tidied {
    /// Pages that merges have freed.
    pub(crate) merged: u64,
    /// Pages that have another place.
    pub(crate) moved: u64,
    steps: u64,
}

impl Trees {
    /// Merges and moves the pages of all trees.
    ///
    /// # Errors
    ///
    /// `Closed`; those of the pool and the log, `Corrupt`. What was done stays.
    pub(crate) fn compact(&self, engine: &Arc<Engine>) -> Result<Tidied, Error> {
        let mut tidied = Tidied::default();
        for tree in self.all() {
            self.tighten(engine, tree.id(), &mut tidied)?;
            self.gather(engine, tree.id(), &mut tidied)?;
            self.free_blocks(engine, tree.id(), &mut tidied)?;
        }
        Ok(tidied)
    }

    /// Runs a step in the tree, if it is there still and whole.
    fn step<T>(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        tidied: &mut Tidied,
        mut step: impl FnMut(&Tree) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        tidied.steps += 1;
        if tidied.steps.is_multiple_of(BUSY_STEPS) && engine.home.queued() >= BUSY_REQUESTS {
            sleep(BUSY_NAP);
        }
        for _ in 0..ERRORS_MAX {
            engine.check_beginning()?;
            let done = engine.reclaim.lend(|| match self.find(tree) {
                Some(tree) if !tree.is_unfinished() => step(&tree).map(Some),
                _ => Ok(None),
            });
            match done {
                // Such a step has waited for as long as a transaction does.
                Err(error @ Error::LogHeld { .. }) => return Err(error),
                Err(error) if may_pass(&error) && !dead() => sleep(PAUSE),
                done => {
                    yield_now();
                    return done;
                }
            }
        }
        engine.reclaim.lend(|| self.find(tree).map(|tree| step(&tree)).transpose())
    }

    fn tighten(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        tidied: &mut Tidied,
    ) -> Result<(), Error> {
        for level in 0..crate::btree::node::LEVEL_MAX {
            let mut key = Vec::new();
            for _ in 0..self.home_pages.saturating_mul(STEPS_PER_PAGE) {
                let done = self.step(engine, tree, tidied, |tree| {
                    self.alone_if(
                        engine,
                        |context| tree.after_dense(context, level, &key),
                        |context| tree.tighten(context, level, &key),
                    )
                })?;
                match done {
                    Some(Tightened::Merged) => tidied.merged += 1,
                    Some(Tightened::Next(next)) => key = next,
                    Some(Tightened::Last) => break,
                    Some(Tightened::TooHigh) | None => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Moves pages out of extents of which few are used.
    fn gather(&self, engine: &Arc<Engine>, tree: TreeId, tidied: &mut Tidied) -> Result<(), Error> {
        let Some(header) = self.find(tree).map(|tree| tree.header()) else { return Ok(()) };
        let holds_header =
            |extent: &Extent| extent.first.0 / EXTENT_PAGES == header.0 / EXTENT_PAGES;
        let mut extents = self.space.extents_of(tree)?;
        // The fullest first, the lowest of those that are as full: there pages go.
        extents.sort_by_key(|extent| {
            (Reverse((holds_header(extent), extent.used.count_ones())), extent.first)
        });
        let mut to = 0;
        for from in (0..extents.len()).rev() {
            let Extent { first, used } = extents[from];
            if used.count_ones() >= KEPT_FROM {
                break;
            }
            for page in (0..EXTENT_PAGES).filter(|bit| used & 1 << bit != 0) {
                let page = first.plus(page);
                while to < from {
                    let place = extents[to].first;
                    let moved = self.step(engine, tree, tidied, |tree| {
                        self.alone(engine, |context| tree.move_node(context, page, place))
                    })?;
                    match moved.unwrap_or(Moved::No) {
                        Moved::Yes => {
                            tidied.moved += 1;
                            break;
                        }
                        Moved::NoRoom => to += 1,
                        Moved::No => break,
                    }
                }
            }
            if to >= from {
                break;
            }
        }
        Ok(())
    }

    /// Frees the pages that the tree keeps for its next blocks.
    fn free_blocks(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        tidied: &mut Tidied,
    ) -> Result<(), Error> {
        let mut tidy = || {
            self.step(engine, tree, tidied, |tree| {
                self.alone(engine, |context| tree.tidy_blocks(context, Keep::None))
            })
        };
        while self.space.sweep_from(tree).is_some() && tidy()? == Some(Progress::More) {}
        let pieces = self.find(tree).map_or(0, |tree| tree.pieces_to_free());
        for _ in 0..pieces {
            if tidy()? != Some(Progress::More) {
                break;
            }
        }
        Ok(())
    }

    /// Gives the room of free extents back. Returns the bytes.
    ///
    /// # Errors
    ///
    /// `Closed`; those of the pool, the log and of checkpoints.
    pub(crate) fn punch(&self, engine: &Arc<Engine>) -> Result<u64, Error> {
        let punched = self.punch_unused(engine);
        self.space.punched();
        punched
    }

    fn punch_unused(&self, engine: &Arc<Engine>) -> Result<u64, Error> {
        let unused = self.space.unused(|| engine.log.end())?;
        let too_soon = engine.pool.mutations().has(Mutation::PunchBeforeCheckpoint);
        for _ in 0..CHECKPOINTS_MAX {
            engine.check_beginning()?;
            if too_soon || engine.checkpoint_past(unused.since)? {
                // One at a time, in turn with the reclaim task: closing the database waits for each
                // of them.
                let punched = unused.runs.into_iter().map(|run| {
                    engine.check_beginning()?;
                    engine.reclaim.lend(|| self.space.punch(run))
                });
                return punched.sum();
            }
        }
        Ok(0)
    }
}
