//! Redo: every change that home may lack, in the order of the log, read ahead in batches.

use std::collections::BTreeMap;

use terrace_page::{Lsn, PageId, lsn};
use terrace_pool::{BufferPool, PageMut, Recovered, Tier};

use super::{Analysis, DirtyEntry};
use crate::change::Change;
use crate::journal::LogJournal;
use crate::log::LogReader;
use crate::log::record::{Body, Pieces};
use crate::{Error, Part};

/// Pages fetched together, at most: a small part of the smallest pool.
const PREFETCH_PAGES: usize = 64;
/// Log records looked at for that, at most.
const PREFETCH_RECORDS: usize = 4096;

/// A change to be redone, in the batch's bytes.
#[derive(Clone, Copy)]
struct Step<'a> {
    lsn: Lsn,
    page: PageId,
    work: Work<'a>,
}

#[derive(Clone, Copy)]
enum Work<'a> {
    Change { page_prev: Lsn, change: &'a [u8] },
    Restore { page_prev: Lsn, pieces: Pieces<'a> },
}

/// Redoes what lies between `analysis.redo_start()` and `end`.
///
/// `reader` fetches the records, `ahead` reads the same range a batch earlier, to name the pages.
///
/// # Errors
///
/// `RedoGap`, `Corrupt`, `CorruptLog`; those of the pool.
pub(crate) fn redo(
    pool: &BufferPool,
    journal: &LogJournal,
    analysis: &Analysis,
    reader: &mut LogReader<'_>,
    ahead: &mut LogReader<'_>,
    end: Lsn,
) -> Result<(), Error> {
    let mut named_to = Lsn::ZERO;
    let mut damaged = BTreeMap::new();
    while let Some(stored) = reader.next()? {
        if stored.lsn >= named_to {
            named_to = prefetch(pool, analysis, ahead)?;
        }
        let Some(step) = step_of(stored.lsn, stored.record.body) else { continue };
        let Some(entry) = analysis.dirty.get(&step.page) else { continue };
        if entry.rec_lsn <= step.lsn {
            // Its new dirty entry must hold the log as the old one did.
            journal.redo_at(entry.rec_lsn);
            redo_step(pool, journal, entry, step, end, &mut damaged)?;
        }
    }
    match damaged.first_key_value() {
        None => Ok(()),
        Some((&page, &tier)) => {
            let what = "it is damaged there, and the log does not format it";
            Err(Error::corrupt(tier.into(), page, what))
        }
    }
}

/// Fetches the pages of the next batch of records; returns where that batch ends.
fn prefetch(
    pool: &BufferPool,
    analysis: &Analysis,
    ahead: &mut LogReader<'_>,
) -> Result<Lsn, Error> {
    let mut pages = Vec::with_capacity(PREFETCH_PAGES);
    for _ in 0..PREFETCH_RECORDS {
        let Some(stored) = ahead.next()? else { break };
        let Some(step) = step_of(stored.lsn, stored.record.body) else { continue };
        let wanted = analysis.dirty.get(&step.page).is_some_and(|e| e.rec_lsn <= step.lsn);
        if wanted && !pages.contains(&step.page) {
            pages.push(step.page);
            if pages.len() == PREFETCH_PAGES {
                break;
            }
        }
    }
    pool.prefetch(&pages);
    Ok(ahead.end().position)
}

fn step_of(lsn: Lsn, body: Body<'_>) -> Option<Step<'_>> {
    let (page, work) = match body {
        Body::Update { page, page_prev, change, .. }
        | Body::Clr { page, page_prev, change, .. } => (page, Work::Change { page_prev, change }),
        Body::Restore { page, page_prev, pieces, .. } => {
            (page, Work::Restore { page_prev, pieces })
        }
        _ => return None,
    };
    Some(Step { lsn, page, work })
}

/// Redoes one change. A page that is `damaged` is passed by until a change formats it: the area
/// beside the log has no copy of it if nothing was ever written there.
fn redo_step(
    pool: &BufferPool,
    journal: &LogJournal,
    entry: &DirtyEntry,
    step: Step<'_>,
    end: Lsn,
    damaged: &mut BTreeMap<PageId, Tier>,
) -> Result<(), Error> {
    let bad = |what| Error::corrupt_log(step.lsn, what);
    let change = match step.work {
        Work::Change { change, .. } => {
            Some(Change::decode(change).map_err(|_| bad("a change makes no sense"))?)
        }
        _ => None,
    };
    let formats = change.as_ref().is_some_and(Change::formats);
    let mut page: PageMut<'_> = match pool.read_damaged_ok(step.page)? {
        Recovered::Whole(page) => {
            if lsn(&page) >= end {
                let what = "it is newer than the end of the log, which has lost its tail";
                return Err(Error::corrupt(Part::Home, step.page, what));
            }
            if lsn(&page) >= step.lsn {
                journal.redo_at(entry.rebuilt_from);
                owe_home(page);
                return Ok(());
            }
            page
        }
        Recovered::Damaged(page, tier, _) => match step.work {
            Work::Change { .. } if formats => {
                damaged.remove(&step.page);
                page
            }
            _ => {
                damaged.insert(step.page, tier);
                return Ok(());
            }
        },
    };
    let expected = match step.work {
        Work::Change { page_prev, .. } | Work::Restore { page_prev, .. } => page_prev,
    };
    let found = lsn(&page);
    if !formats && found != expected {
        return Err(Error::RedoGap { page: step.page, record: step.lsn, expected, found });
    }
    page.dirty();
    let mut applied = Ok(());
    page.apply(step.lsn, |bytes| match (step.work, &change) {
        (Work::Restore { pieces, .. }, _) => pieces.apply(bytes),
        (_, Some(change)) => applied = change.apply(bytes),
        (_, None) => unreachable!("a change was decoded"),
    });
    applied.map_err(|_| bad("a change does not fit its page"))
}

/// A copy on flash has the change already. If it counts as clean, home may have lost the write that
/// made it so: the page is dirty until it is written there again.
fn owe_home(mut page: PageMut<'_>) {
    if page.is_clean_copy() {
        page.dirty();
    }
}
