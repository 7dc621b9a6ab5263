//! The inner nodes that a long scan will need, read level by level ahead of it (prange: Roh et al.,
//! "B+-tree Index Optimization by Exploiting Internal Parallelism of Flash-based Solid State
//! Drives", VLDB 2012).
//!
//! ```text
//!   level 2        |   n   |   n   |          each names the nodes of level 1 that come next
//!   level 1     | p   p   p   p | p   p   p   p |
//!                 ^ leaves are asked for here
//!                               ^ again: from here on more are asked for
//!                                               ^ asked: so far they are asked for
//! ```
//!
//! - N1: of each level, the nodes that the next `HALF` to twice `HALF` steps of the scan lead to
//!   are in memory or on their way, so that the scan waits for none of them.
//! - N2: only scans that have shown to be long ask, and they ask for no node beyond their range.

use super::Scan;
use super::{Direction, runs};
use crate::Error;
use crate::btree::Tree;

/// Nodes of a level that are asked for at once.
const HALF: usize = 4;
/// Levels that are looked at: a tree of 8 KiB pages has fewer.
const LEVELS_MAX: usize = 16;

/// How far the inner nodes of a level were asked for.
pub(super) enum Asked {
    /// From the fence `again` on, more are asked for, those behind the fence `so_far`.
    To { again: Vec<u8>, so_far: Option<Vec<u8>> },
    /// There are no more.
    All,
}

impl Scan {
    /// Asks for the inner nodes behind those that the leaves from `from` on belong to.
    pub(super) fn inner_ahead(&mut self, tree: &Tree, from: &[u8]) -> Result<(), Error> {
        for at in 0..LEVELS_MAX {
            // The nodes of level 1 are the children of level 2.
            let level = at as u8 + 2;
            let asked = match self.inner.get(at) {
                Some(Asked::All) => continue,
                Some(Asked::To { again, .. }) if !self.has_reached(from, again) => continue,
                Some(Asked::To { so_far: None, .. }) => Asked::All,
                Some(Asked::To { so_far: Some(fence), .. }) => {
                    let again = fence.clone();
                    let so_far = self.ask_inner(tree, level, &again)?;
                    Asked::To { again, so_far }
                }
                None => match self.ask_inner(tree, level, from)? {
                    Some(again) => {
                        let so_far = self.ask_inner(tree, level, &again)?;
                        Asked::To { again, so_far }
                    }
                    None => Asked::All,
                },
            };
            let is_top = self.inner.len() == at && matches!(asked, Asked::All);
            match self.inner.get_mut(at) {
                Some(known) => *known = asked,
                None => self.inner.push(asked),
            }
            // Above a level whose nodes all lie in one parent there is nothing to ask for.
            if is_top {
                self.inner.resize_with(LEVELS_MAX, || Asked::All);
            }
        }
        Ok(())
    }

    fn has_reached(&self, from: &[u8], fence: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => from >= fence,
            Direction::Backward => from <= fence,
        }
    }

    /// Asks for up to `HALF` children of the node of `level` that `from` leads to; where those
    /// begin that were not asked for, `None` if there are no more.
    fn ask_inner(&self, tree: &Tree, level: u8, from: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut pages = Vec::with_capacity(HALF);
        let next = self.nodes_behind(tree, level, from, HALF, &mut pages)?;
        for (first, count) in runs(&pages) {
            tree.pool.read_ahead(first, count);
        }
        Ok(next)
    }
}
