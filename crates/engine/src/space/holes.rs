//! Holes: the room of free extents goes back to the file system.
//!
//! ```text
//!   unused()          free extents are listed; those given away from here on are noted
//!   (checkpoints)     neither superblock has redo begin before a change of one of their pages
//!   punch()           those that are free still, and were not given away meanwhile
//!   next promise      asks the device for their room again (space.S4)
//! ```
//!
//! - H1: an extent is punched only if no tree owned it from before a checkpoint until now, and the
//!   superblocks of home tell of that checkpoint durably. So redo, whichever of them it begins
//!   with, meets no record of its pages but such as come after: the first of those makes the page
//!   from nothing.
//! - H2: no page of it is newer in memory or on flash than at home: nothing writes there later.
//! - H3: its map is latched while the device is at work: no tree gets it meanwhile.

use std::collections::BTreeSet;
use std::ops::Range;

use terrace_page::Lsn;
use terrace_pool::Mutation;

use super::{EXTENT_PAGES, EXTENTS_PER_MAP, NOBODY, Space, entry, extent_page};
use crate::Error;

/// Extents that one call to the device gives back, while their map is latched: 64 MiB.
const PUNCHED_MAX: u64 = 256;

/// Free extents that may be punched once a checkpoint is behind them.
#[derive(Debug, Default)]
pub(crate) struct Unused {
    /// In ascending order, within one map each.
    pub(crate) runs: Vec<Range<u64>>,
    /// Where the log ended when they were known to be free.
    pub(crate) since: Lsn,
}

impl Space {
    /// Lists the free extents, and notes from now on which are given away. `end` tells where the
    /// log ends, afterwards.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn unused(&self, end: impl FnOnce() -> Lsn) -> Result<Unused, Error> {
        self.hints.lock().given = Some(BTreeSet::new());
        let mut runs: Vec<Range<u64>> = Vec::new();
        for group in 0..self.groups()? {
            let map = self.open_map(group)?;
            let mut run = 0..0;
            for extent in group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP {
                if entry(&map, extent).0 != NOBODY {
                    continue;
                }
                if extent != run.end || run.end - run.start == PUNCHED_MAX {
                    runs.push(std::mem::replace(&mut run, extent..extent));
                }
                run.end = extent + 1;
            }
            runs.push(run);
        }
        runs.retain(|run| !run.is_empty());
        Ok(Unused { runs, since: end() })
    }

    /// What is given away need not be noted any more.
    pub(crate) fn punched(&self) {
        self.hints.lock().given = None;
    }

    /// Gives back the room of those extents of `run`, one of `Unused::runs`, that are free still,
    /// now that a checkpoint is behind it (H1). Returns the bytes.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn punch(&self, run: Range<u64>) -> Result<u64, Error> {
        let map = self.open_map(run.start / EXTENTS_PER_MAP)?;
        let given = match &self.hints.lock().given {
            Some(given) => given.range(run.clone()).copied().collect(),
            None => BTreeSet::from_iter(run.clone()),
        };
        let may_go = |extent: u64| {
            let is_free = entry(&map, extent).0 == NOBODY && !given.contains(&extent);
            let first = extent_page(extent);
            let mut pages = (0..EXTENT_PAGES).map(|at| first.plus(at));
            let too_soon = self.pool.mutations().has(Mutation::PunchBeforeCheckpoint);
            is_free && (too_soon || !pages.any(|page| self.pool.is_newer_than_home(page)))
        };
        let (mut bytes, mut at) = (0, run.start);
        while let Some(start) = (at..run.end).find(|extent| may_go(*extent)) {
            let end = (start..run.end).find(|extent| !may_go(*extent)).unwrap_or(run.end);
            bytes += self.room.give_back(start..end);
            at = end;
        }
        Ok(bytes)
    }
}
