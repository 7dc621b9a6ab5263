//! The changes that a log holds for pages that are redone when they are first read, gathered by
//! analysis, and the repair of a single page from the log.
//!
//! - O1: changes of a page are kept in the order of the log, from its recLSN on.
//! - O2: each is applied to the version that it was written on, or the page is refused, as in redo.
//! - O3: what is gathered has a bound. Past it nothing is kept, and the log is redone at once.
//! - Cost: the bytes of the changes, without their undo, until the page is read.

use std::collections::BTreeMap;

use terrace_page::{Lsn, PageBuf, PageId, lsn, set_lsn, set_page_id};
use terrace_pool::{PoolError, Redo};
use terrace_rt::LeafMutex;

use super::Analysis;
use crate::change::Change;
use crate::log::LogReader;
use crate::log::record::{Body, Pieces};

/// A change of a page.
#[derive(Clone, Copy, Debug)]
struct Step {
    lsn: Lsn,
    page_prev: Lsn,
    kind: StepKind,
    at: usize,
    len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepKind {
    Change,
    Restore,
}

/// The changes of the log, by page.
#[derive(Debug, Default)]
pub(crate) struct OwedChanges {
    bytes: Vec<u8>,
    pages: LeafMutex<BTreeMap<PageId, Vec<Step>>>,
    bytes_max: usize,
    end: Lsn,
    /// O3.
    is_too_much: bool,
}

impl OwedChanges {
    /// Room for about `bytes_max` bytes; none at zero.
    pub(crate) fn new(bytes_max: usize) -> OwedChanges {
        let is_too_much = bytes_max == 0;
        OwedChanges { bytes_max, is_too_much, ..OwedChanges::default() }
    }

    /// For a page that flash has lost: without a bound, and of a log that ends nowhere.
    pub(super) fn of_lost() -> OwedChanges {
        OwedChanges { end: Lsn::MAX, ..OwedChanges::new(usize::MAX) }
    }

    /// About the bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let steps: usize = self.pages.lock().values().map(Vec::len).sum();
        self.bytes.len() + steps * size_of::<Step>()
    }

    /// Keeps the change in a record, if it is one.
    pub(crate) fn note(&mut self, lsn: Lsn, body: &Body<'_>) {
        if self.is_too_much {
            return;
        }
        let (page, page_prev, kind, bytes) = match *body {
            Body::Update { page, page_prev, change, .. }
            | Body::Clr { page, page_prev, change, .. } => {
                (page, page_prev, StepKind::Change, change)
            }
            Body::Restore { page, page_prev, pieces, .. } => {
                (page, page_prev, StepKind::Restore, pieces.bytes())
            }
            _ => return,
        };
        let (at, len) = (self.bytes.len(), bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
        let step = Step { lsn, page_prev, kind, at, len };
        self.pages.lock().entry(page).or_default().push(step);
        self.is_too_much = self.bytes.len() > self.bytes_max;
    }

    /// Whether all that the log has could be kept.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_too_much
    }

    /// Drops what analysis found to be at home. The log ends at `end`.
    pub(crate) fn keep(&mut self, analysis: &Analysis, end: Lsn) {
        self.end = end;
        self.pages.lock().retain(|page, steps| {
            let Some(entry) = analysis.dirty.get(page) else { return false };
            steps.retain(|step| step.lsn >= entry.rec_lsn);
            true
        });
    }

    fn apply(&self, steps: &[Step], page: PageId, bytes: &mut PageBuf, is_whole: bool) -> Applied {
        if is_whole && lsn(bytes) >= self.end {
            return Err("it is newer than the end of the log, which has lost its tail");
        }
        let mut is_whole = is_whole;
        let mut applied = false;
        for step in steps {
            let change = &self.bytes[step.at..step.at + step.len as usize];
            let done = apply_step(page, step, change, bytes, &mut is_whole)?;
            applied |= done;
        }
        match is_whole {
            true => Ok(applied),
            false => Err("home has it damaged, and the log does not format it"),
        }
    }
}

type Applied = Result<bool, &'static str>;

/// Applies one change if `bytes` lack it.
fn apply_step(
    page: PageId,
    step: &Step,
    change: &[u8],
    bytes: &mut PageBuf,
    is_whole: &mut bool,
) -> Applied {
    if *is_whole && lsn(bytes) >= step.lsn {
        return Ok(false);
    }
    match step.kind {
        StepKind::Restore if !*is_whole => return Ok(false),
        StepKind::Restore => {
            check_base(step, bytes)?;
            let pieces = Pieces::decode(change).ok_or("a record of undo makes no sense")?;
            pieces.apply(bytes);
        }
        StepKind::Change => {
            let change = Change::decode(change).map_err(|_| "a change makes no sense")?;
            if change.formats() {
                if !*is_whole {
                    bytes.fill(0);
                    set_page_id(bytes, page);
                    *is_whole = true;
                }
            } else if *is_whole {
                check_base(step, bytes)?;
            } else {
                return Ok(false);
            }
            change.apply(bytes).map_err(|_| "a change does not fit its page")?;
        }
    }
    set_lsn(bytes, step.lsn);
    Ok(true)
}

fn check_base(step: &Step, bytes: &PageBuf) -> Result<(), &'static str> {
    match lsn(bytes) == step.page_prev {
        true => Ok(()),
        false => Err("a change was written on another version of the page"),
    }
}

impl Redo for OwedChanges {
    fn redo(&self, page: PageId, bytes: &mut PageBuf, is_whole: bool) -> Result<bool, PoolError> {
        let steps = self.pages.lock().get(&page).cloned().unwrap_or_default();
        self.apply(&steps, page, bytes, is_whole).map_err(|what| PoolError::Redo { page, what })
    }

    fn done(&self, page: PageId) {
        self.pages.lock().remove(&page);
    }
}

/// Brings `bytes`, home's version of `page`, up to date from what `reader` gives: the log from the
/// page's recLSN on. Without a whole version a change that formats the page must come first.
///
/// # Errors
///
/// `Redo` if the log cannot be read, or does not fit.
pub(crate) fn repair(
    reader: &mut LogReader<'_>,
    page: PageId,
    bytes: &mut PageBuf,
    is_whole: bool,
) -> Result<(), PoolError> {
    let mut changes = OwedChanges::of_lost();
    loop {
        let unread = |_| PoolError::Redo { page, what: "the log cannot be read" };
        let Some(stored) = reader.next().map_err(unread)? else { break };
        if stored.record.body.page() == Some(page) {
            changes.note(stored.lsn, &stored.record.body);
        }
    }
    changes.redo(page, bytes, is_whole).map(|_| ())
}
