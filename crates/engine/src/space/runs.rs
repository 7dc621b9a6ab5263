//! Runs of free extents: what was in use before comes first, and home grows if there is none
//! (space.S5).

use std::ops::Range;

use terrace_pool::PageMut;

use super::{EXTENTS_PER_MAP, NOBODY, Purpose, SEARCHES_MAX, Space, entry, extent_page};
use crate::Error;

impl Space {
    /// A run of free extents, at most `length`: the first one as long as that among those that were
    /// in use before, else the longest there, else one behind them (space.S5).
    fn free_run(
        &self,
        length: u64,
        purpose: Purpose,
    ) -> Result<Option<(PageMut<'_>, Range<u64>)>, Error> {
        let limit = self.extents(purpose);
        for _ in 0..SEARCHES_MAX {
            let used_end = self.used_end()?.min(limit);
            let (start, frees) = {
                let hints = self.hints.lock();
                (hints.free, hints.frees)
            };
            let (mut found, mut lowest) = self.longest_run(start..used_end, length)?;
            if found.is_none() {
                let (behind, free) = self.longest_run(start.max(used_end)..limit, length)?;
                (found, lowest) = (behind, lowest.or(free));
            }
            let Some(run) = found else { return Ok(None) };
            self.move_free(frees, lowest.unwrap_or(run.start));
            let map = self.open_map(run.start / EXTENTS_PER_MAP)?;
            // Another task may have taken it meanwhile, or a part.
            let left = run.clone().take_while(|at| entry(&map, *at).0 == NOBODY).count() as u64;
            if left > 0 {
                return Ok(Some((map, run.start..run.start + left)));
            }
        }
        Ok(None)
    }

    /// The first run of `length` free extents in a part of home, or the longest of the shorter
    /// ones; and the lowest free extent, if there is one.
    fn longest_run(
        &self,
        part: Range<u64>,
        length: u64,
    ) -> Result<(Option<Range<u64>>, Option<u64>), Error> {
        let (mut longest, mut lowest): (Range<u64>, _) = (0..0, None);
        let groups = self.groups()?;
        for group in part.start / EXTENTS_PER_MAP..groups.min(part.end.div_ceil(EXTENTS_PER_MAP)) {
            let map = self.open_map(group)?;
            let mut run = 0;
            let first = (group * EXTENTS_PER_MAP).max(part.start);
            for extent in first..((group + 1) * EXTENTS_PER_MAP).min(part.end) {
                let is_free = entry(&map, extent).0 == NOBODY;
                lowest = lowest.or(is_free.then_some(extent));
                run = if is_free { run + 1 } else { 0 };
                if run > longest.end - longest.start {
                    longest = extent + 1 - run..extent + 1;
                }
                if run == length {
                    return Ok((Some(longest), lowest));
                }
            }
        }
        Ok(((!longest.is_empty()).then_some(longest), lowest))
    }

    /// Where the part of home ends that was in use since the database was opened, or before.
    fn used_end(&self) -> Result<u64, Error> {
        let known = self.hints.lock().used_end;
        if let Some(end) = known {
            return Ok(end);
        }
        let mut end = 0;
        for group in (0..self.groups()?).rev() {
            let map = self.open_map(group)?;
            let all = group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP;
            if let Some(last) = all.rev().find(|extent| entry(&map, *extent).0 != NOBODY) {
                end = last + 1;
                break;
            }
        }
        let mut hints = self.hints.lock();
        let end = hints.used_end.unwrap_or(0).max(end);
        hints.used_end = Some(end);
        Ok(end)
    }

    /// A run of free extents, at most `length`, that the device has room for.
    pub(super) fn promised_run(
        &self,
        length: u64,
        purpose: Purpose,
    ) -> Result<Option<(PageMut<'_>, Range<u64>)>, Error> {
        self.promise_used()?;
        let Some((map, run)) = self.free_run(length, purpose)? else { return Ok(None) };
        match self.room.promise(run.clone()) {
            Ok(()) => Ok(Some((map, run))),
            // The device may have room for one.
            Err(Error::HomeFull { .. }) if run.end - run.start > 1 => {
                self.room.promise(run.start..run.start + 1)?;
                Ok(Some((map, run.start..run.start + 1)))
            }
            Err(error) => Err(error),
        }
    }

    /// Has the device promise room for all extents that are in use, once: before home grows for the
    /// first time, since a power cut may have taken promises back.
    fn promise_used(&self) -> Result<(), Error> {
        if self.hints.lock().is_promised {
            return Ok(());
        }
        for group in 0..self.groups()? {
            let map = self.open_map(group)?;
            let all = group * EXTENTS_PER_MAP..(group + 1) * EXTENTS_PER_MAP;
            let used: Vec<u64> =
                all.filter(|extent| !matches!(entry(&map, *extent).0, NOBODY)).collect();
            drop(map);
            self.room.promise_pages(used.into_iter().map(extent_page))?;
        }
        self.hints.lock().is_promised = true;
        Ok(())
    }

    /// Below `to` there is no free extent, unless one was freed since.
    fn move_free(&self, frees: u64, to: u64) {
        let mut hints = self.hints.lock();
        if hints.frees == frees {
            hints.free = hints.free.max(to);
        }
    }
}
