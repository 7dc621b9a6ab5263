//! Compaction of all trees: a step at a time, each in turn with the reclaim task and a transaction
//! of its own.
//!
//! ```text
//!   tighten   nodes that fit into the one before are merged: the leaves in key order, then each
//!             level above
//!   gather    nodes leave the extents that are used least, for free pages of fuller ones
//!   rewrite   so do values of some pages: each is put again in a transaction that locks its row
//!   punch     free extents give their room back, behind two checkpoints (`space::holes`)
//! ```

use std::cmp::Reverse;
use std::sync::Arc;

use terrace_pool::Mutation;
use terrace_rt::{Nanos, dead, maybe_switch, sleep, yield_now};

use super::{CATALOG, Trees};
use crate::api::Durability;
use crate::btree::{Keep, Moved, Put, Tightened, ToVacate, Tree};
use crate::context::{Context, Locking};
use crate::engine::Engine;
use crate::reclaim::{Progress, may_pass};
use crate::space::{EXTENT_PAGES, Extent, KEPT_FROM, Vacated, blocks_of};
use crate::writer::Step;
use crate::{Error, TreeId};

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
/// Steps of a walk over a tree, at most, for each page that the tree had when the walk began, and
/// how many more: a walk in key order does not run after writers that split leaves ahead of it.
const STEPS_PER_PAGE: u64 = 3;
const STEPS_MIN: u64 = 64;

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
            if self.rewrite(engine, tree.id(), &mut tidied)? {
                self.free_chains_of(engine, tree.id(), &mut tidied)?;
                self.free_blocks(engine, tree.id(), &mut tidied)?;
            }
            for owner in [blocks_of(tree.id()), tree.id()] {
                self.free_unused(engine, tree.id(), owner, &mut tidied)?;
            }
        }
        Ok(tidied)
    }

    /// Counts a step, and lets others go first if home is busy.
    fn count_step(engine: &Engine, tidied: &mut Tidied) {
        tidied.steps += 1;
        if tidied.steps.is_multiple_of(BUSY_STEPS) && engine.home.queued() >= BUSY_REQUESTS {
            sleep(BUSY_NAP);
        }
    }

    /// Runs a step in the tree, if it is there still and whole.
    fn step<T>(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        tidied: &mut Tidied,
        mut step: impl FnMut(&Tree) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        Trees::count_step(engine, tidied);
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

    /// How many steps a walk over the tree may take that begins now.
    fn steps_of(&self, tree: TreeId) -> Result<u64, Error> {
        let extents = self.space.extents_of(tree)?;
        let pages: u64 = extents.iter().map(|extent| u64::from(extent.used.count_ones())).sum();
        Ok(STEPS_MIN + pages * STEPS_PER_PAGE)
    }

    fn tighten(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        tidied: &mut Tidied,
    ) -> Result<(), Error> {
        let steps = self.steps_of(tree)?;
        for level in 0..crate::btree::node::LEVEL_MAX {
            let mut key = Vec::new();
            for _ in 0..steps {
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

    /// Moves values out of extents of which few pages are used. Whether any was moved.
    fn rewrite(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        tidied: &mut Tidied,
    ) -> Result<bool, Error> {
        let Some(found) = self.find(tree).filter(|_| tree != CATALOG) else { return Ok(false) };
        let extents = ToVacate {
            blocks: Vacated::of(self.space.extents_of(blocks_of(tree))?, |_| false),
            own: Vacated::of(self.space.extents_of(tree)?, |extent| found.stays_in(extent)),
        };
        if extents.is_empty() {
            return Ok(false);
        }
        let _vacating = [
            self.space.vacate(blocks_of(tree), &extents.blocks),
            self.space.vacate(tree, &extents.own),
        ];
        let before = tidied.moved;
        let mut from = Some(Vec::new());
        for _ in 0..self.steps_of(tree)? {
            let Some(key) = from else { break };
            let look = |tree: &Tree| tree.values_in(&key, &extents);
            let Some(candidates) = self.step(engine, tree, tidied, look)? else { break };
            for key in candidates.keys {
                Trees::count_step(engine, tidied);
                tidied.moved += self.move_value(engine, &found, &key, &extents)?;
                yield_now();
            }
            from = candidates.next;
        }
        Ok(tidied.moved > before)
    }

    /// Puts a value again, elsewhere, if nobody has locked its row. How many pages it has then.
    fn move_value(
        &self,
        engine: &Arc<Engine>,
        tree: &Tree,
        key: &[u8],
        extents: &ToVacate,
    ) -> Result<u64, Error> {
        engine.check_beginning()?;
        let mut context = Context::begin(engine, Locking::On)?;
        // See rewrite.R1.
        context.set_lock_timeout(Nanos::ZERO);
        let moved = self.put_again(&mut context, tree, key, extents);
        match moved {
            Ok(pages) => context.commit(Durability::None).map(|()| pages),
            Err(error) => {
                let error = context.first_cause(error);
                context.rollback()?;
                let stays = may_pass(&error) || matches!(error, Error::LockTimeout(_));
                if stays { Ok(0) } else { Err(error) }
            }
        }
    }

    fn put_again(
        &self,
        context: &mut Context,
        tree: &Tree,
        key: &[u8],
        extents: &ToVacate,
    ) -> Result<u64, Error> {
        context.lock_to_write(tree.id())?;
        // It was dropped, or is being made.
        if tree.is_unfinished() || self.name_of(tree.id()).is_none() {
            return Ok(0);
        }
        let locks = !context.engine().pool.mutations().has(Mutation::MoveUnlocked);
        let look = |context: &mut Context| tree.value_to_move(context, key, extents);
        let found = if locks { look(context) } else { context.without_locks(look) };
        let Step::Done(Some(found)) = found? else { return Ok(0) };
        context.begin_operation(key.len() + found.value.len())?;
        // What others do now they do to other rows: this one is locked.
        maybe_switch();
        let put = |context: &mut Context| tree.put(context, key, &found.value, Put::Update, None);
        let put = if locks { put(context) } else { context.without_locks(put) };
        context.end_operation();
        Ok(if matches!(put?, Step::Done(true)) { found.pages } else { 0 })
    }

    /// Frees the pages of large values that were given up.
    fn free_chains_of(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        tidied: &mut Tidied,
    ) -> Result<(), Error> {
        // Writers give up more meanwhile, which may go on for ever.
        for _ in 0..=tidied.moved {
            let free = |tree: &Tree| self.alone(engine, |context| tree.free_chain(context));
            if self.step(engine, tree, tidied, free)? != Some(Progress::More) {
                break;
            }
        }
        Ok(())
    }

    /// Frees extents that the tree was given ahead.
    fn free_unused(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        owner: TreeId,
        tidied: &mut Tidied,
    ) -> Result<(), Error> {
        let mut from = Some(0);
        while let Some(extent) = from {
            let free = |_: &Tree| {
                self.alone(engine, |context| self.space.free_unused(context, owner, extent))
            };
            from = self.step(engine, tree, tidied, free)?.flatten();
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
