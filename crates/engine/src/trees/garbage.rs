//! What the reclaim task does in trees: a piece at a time, each step a transaction of its own.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use terrace_page::PageId;

use super::{Trees, done};
use crate::btree::{Keep, Reclaimable};
use crate::catalog::garbage_key;
use crate::context::Context;
use crate::engine::Engine;
use crate::reclaim::{Progress, Work};
use crate::space::blocks_of;
use crate::{Error, TreeId};

/// Nested actions that one piece of the reclaim task spends on large values.
const CHAIN_STEPS: u32 = 64;
/// How often a sweep has one leaf share its rows: each time a page goes.
const SHARES_MAX: u32 = 16;
/// Bytes of a large value that one of them frees, if its pages lie together.
const CHAIN_STEP_BYTES: u64 = 64 << 10;

impl Trees {
    /// Purges the leaves from that of `least` to that of `greatest`, for the reclaim task: one, if
    /// it was not split since a transaction left removed keys in it.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log, `Corrupt`.
    pub(crate) fn purge_leaves(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        least: &[u8],
        greatest: &[u8],
    ) -> Result<Progress, Error> {
        let Some(tree) = self.find(tree) else { return Ok(Progress::Done) };
        let mut from = least.to_vec();
        loop {
            // Purging may move keys of the next leaf here.
            let next = if *from < *greatest { tree.fence_above(&from)? } else { None };
            let purged = self.alone_to_purge(engine, |context| tree.purge_leaf(context, &from))?;
            match next {
                Some(next) if purged == Progress::Done && *next <= *greatest => from = next,
                _ => return Ok(purged),
            }
        }
    }

    /// As `purge_leaves`, for a page that was a leaf when the log recorded removals in it.
    ///
    /// # Errors
    ///
    /// As `purge_leaves`.
    pub(crate) fn purge_page(&self, engine: &Arc<Engine>, page: PageId) -> Result<Progress, Error> {
        let mut before: Option<Reclaimable> = None;
        // What writers change meanwhile differs at each look, and tells of itself later.
        for _ in 0..SHARES_MAX {
            if engine.reclaim.is_held() {
                return Ok(Progress::More);
            }
            // A neighbour that it takes in may bring ghosts.
            let Some(leaf) = Reclaimable::of(&*engine.pool.read(page)?) else { break };
            let Some(tree) = self.find(leaf.tree) else { break };
            if before.as_ref() == Some(&leaf) {
                break;
            }
            self.alone_to_purge(engine, |context| tree.purge_recovered(context, &leaf.key))?;
            before = Some(leaf);
        }
        Ok(Progress::Done)
    }

    /// Purges the leaf of `key`; returns where the next leaf begins.
    ///
    /// # Errors
    ///
    /// As `purge_leaves`.
    pub(crate) fn sweep_leaf(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        key: &[u8],
    ) -> Result<Option<Box<[u8]>>, Error> {
        let Some(tree) = self.find(tree) else { return Ok(None) };
        let next = tree.fence_above(key)?;
        for _ in 0..SHARES_MAX {
            if self.alone_to_purge(engine, |context| tree.purge_leaf(context, key))?
                != Progress::More
            {
                break;
            }
        }
        Ok(next.map(Vec::into_boxed_slice))
    }

    /// Frees pages of large values of `tree` that no undo wants, a bounded number.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log, `Corrupt`.
    pub(crate) fn free_chains(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
    ) -> Result<Progress, Error> {
        let Some(tree) = self.find(tree) else { return Ok(Progress::Done) };
        for _ in 0..CHAIN_STEPS {
            let progress = self.alone(engine, |context| tree.free_chain(context))?;
            if progress != Progress::More {
                return Ok(progress);
            }
            // About what a step frees: the exact number does not matter.
            engine.reclaim.freed(CHAIN_STEP_BYTES);
        }
        Ok(Progress::More)
    }

    /// Sweeps the blocks of `tree`, or frees pages of them that no record refers to: a bounded
    /// number. When the database is being closed none is kept, and their tree marked as tidy.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log, `Corrupt`.
    pub(crate) fn tidy_blocks(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
    ) -> Result<Progress, Error> {
        let Some(tree) = self.find(tree) else { return Ok(Progress::Done) };
        let is_last = engine.is_closing() && !self.pool.needs_flash();
        let keep = if is_last { Keep::None } else { Keep::Some };
        for _ in 0..CHAIN_STEPS {
            if engine.reclaim.is_held() {
                return Ok(Progress::More);
            }
            let progress = self.alone(engine, |context| tree.tidy_blocks(context, keep))?;
            if progress != Progress::More {
                if keep == Keep::None {
                    self.alone(engine, |context| {
                        tree.end_blocks(context, |context| engine.is_alone(context.number()))
                    })?;
                }
                return Ok(progress);
            }
        }
        Ok(Progress::More)
    }

    /// Frees what `tree` keeps for its next blocks, as far as it can be now.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log, `Corrupt`.
    pub(crate) fn free_spare(&self, engine: &Arc<Engine>, tree: TreeId) -> Result<Progress, Error> {
        let Some(tree) = self.find(tree) else { return Ok(Progress::Done) };
        for _ in 0..tree.pieces_to_free() {
            let tidy = |context: &mut Context| tree.tidy_blocks(context, Keep::None);
            if engine.reclaim.is_held() || self.alone(engine, tidy)? != Progress::More {
                break;
            }
        }
        Ok(Progress::Done)
    }

    /// Frees a tree that is garbage for good, if it still is there (trees.N5).
    ///
    /// # Errors
    ///
    /// Those of the pool and the log: it stays garbage.
    pub(crate) fn free_dropped(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
    ) -> Result<Progress, Error> {
        let key = garbage_key(tree);
        if self.lookup(&key)?.is_none() {
            return Ok(Progress::Done);
        }
        let dropped_by = self.dropped.lock().get(&tree).copied();
        if let Some(txn) = dropped_by.filter(|txn| *txn >= engine.oldest_wanted()) {
            return Ok(Progress::Blocked(txn));
        }
        self.by_id.lock().remove(&tree);
        for owner in [blocks_of(tree), tree] {
            let mut from = Some(0);
            while let Some(extent) = from {
                if engine.reclaim.is_held() {
                    return Ok(Progress::More);
                }
                from =
                    self.alone(engine, |context| self.space.free_some(context, owner, extent))?;
            }
            self.space.forget(owner);
        }
        self.dropped.lock().remove(&tree);
        engine.counts.forget(tree);
        self.alone(engine, |context| self.catalog.remove(context, &key, None).map(done))?;
        Ok(Progress::Done)
    }

    /// The pages of large values that are not finished, or wait to be freed.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn waiting_runs(&self) -> Result<Vec<Range<u64>>, Error> {
        let mut runs = Vec::new();
        self.all().iter().try_for_each(|tree| tree.waiting_runs(&mut runs))?;
        Ok(runs)
    }

    /// Trees that are being loaded, or whose load was interrupted: nothing leads to their pages.
    pub(crate) fn unfinished(&self) -> BTreeSet<TreeId> {
        let all = self.all();
        all.iter().filter(|tree| tree.is_unfinished()).map(|tree| tree.id()).collect()
    }

    /// Looks through all trees for garbage.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`: the first, once all trees were looked at.
    pub(crate) fn survey(&self, mut offer: impl FnMut(Work)) -> Result<(), Error> {
        let mut surveyed = Ok(());
        for tree in self.all() {
            let mut look = || {
                if tree.has_pending()? {
                    offer(Work::Chains(tree.id()));
                }
                if tree.finds_left_over()? {
                    offer(Work::Blocks(tree.id()));
                }
                Ok(())
            };
            surveyed = surveyed.and(look());
        }
        surveyed
    }
}
