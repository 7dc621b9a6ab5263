//! Analysis: which pages may lack changes at home, and which transactions had not ended.
//!
//! - A1: an UPDATE, CLR or RESTORE makes a dirty entry of its page, or moves its lastLSN.
//! - A2: a BUF_WRITE drops the entries of its pages whose lastLSN is at most its EOL [S3 II-A3].
//! - A3: a TXN_TABLE tells of transactions that wrote nothing since. It was taken after the
//!   checkpoint began, and appended later; one that ended meanwhile stays ended.
//! - A4: records below `oldest_dirty` make no entries: those pages are at home.
//! - A5: a change that renews pages drops their entries, and all copies of them on flash that are
//!   older: what they were before is of no use to anybody, and what they are is at home, or nothing
//!   refers to it (pool's `straight`).

use std::collections::{BTreeMap, BTreeSet};

use terrace_page::{Lsn, PageId, TxnId};
use terrace_pool::{FlashRecovery, Mutation, Mutations};

use crate::Error;
use crate::change::Change;
use crate::counts::LoggedCounts;
use crate::log::record::{Body, Record};
use crate::log::{End, LogReader};
use crate::recovery::OwedChanges;
use crate::superblock::Superblock;

/// What analysis found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Analysis {
    /// Page: recLSN and lastLSN.
    pub(crate) dirty: BTreeMap<PageId, DirtyEntry>,
    /// Transactions to undo: first and last record.
    pub(crate) losers: BTreeMap<TxnId, (Lsn, Lsn)>,
    /// Greater than every transaction seen.
    pub(crate) next_txn: u64,
    /// Where records begin, some way apart.
    pub(crate) places: Vec<Lsn>,
    /// Leaves that had keys removed: the crash may have come before the reclaim task.
    pub(crate) thinned: BTreeSet<PageId>,
    /// The rows of the tables, as far as the log tells.
    pub(crate) counts: LoggedCounts,
    ended: BTreeSet<TxnId>,
    mutations: Mutations,
}

/// Bytes between two of `Analysis::places`.
const PLACE_BYTES: u64 = 16 << 10;

/// The most leaves that are looked at for work that the reclaim task had not done.
const THINNED_MAX: usize = 1 << 16;

/// A page that may lack changes at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirtyEntry {
    /// The first change that home may lack.
    pub(crate) rec_lsn: Lsn,
    /// The last one.
    pub(crate) last_lsn: Lsn,
    /// The version that the first of them was written on.
    pub(crate) base: Lsn,
    /// From where on the log may have changes that home lacks, if a write home was lost that flash
    /// takes for done: where the log is kept from.
    pub(crate) rebuilt_from: Lsn,
}

/// Reads the log from `reader`'s place to its end, after what `earlier` reads.
///
/// # Errors
///
/// `CorruptLog` if it ends before the last checkpoint did; `Device`.
pub(crate) fn analyse(
    (earlier, reader): (Option<LogReader<'_>>, &mut LogReader<'_>),
    (boot, mutations): (&Superblock, Mutations),
    flash: &mut FlashRecovery,
    owed: &mut OwedChanges,
) -> Result<(Analysis, End), Error> {
    let mut analysis = Analysis { next_txn: boot.next_txn.0, mutations, ..Analysis::default() };
    if let Some(mut earlier) = earlier {
        analysis.look_before(&mut earlier)?;
    }
    let floor = boot.redo_floor();
    while let Some(stored) = reader.next()? {
        if analysis.places.last().is_none_or(|place| stored.lsn.0 - place.0 >= PLACE_BYTES) {
            analysis.places.push(stored.lsn);
        }
        analysis.note(stored.lsn, &stored.record, floor);
        show(flash, stored.lsn, &stored.record, floor);
        if let Body::Update { change, .. } = stored.record.body
            && let Some(pages) = Change::renewed(change)
        {
            analysis.renewed(pages, stored.lsn, flash);
        }
        owed.note(stored.lsn, &stored.record.body);
    }
    let end = reader.end();
    if end.position < boot.end_checkpoint {
        let what = "it ends before its last checkpoint did";
        return Err(Error::corrupt_log(end.position, what));
    }
    Ok((analysis, end))
}

/// Shows a record to the flash tier, which may have copies that it speaks of. Of a change before
/// `oldest_dirty` home has the result (A4).
fn show(flash: &mut FlashRecovery, lsn: Lsn, record: &Record<'_>, oldest_dirty: Lsn) {
    match record.body {
        Body::Update { page, .. } | Body::Clr { page, .. } | Body::Restore { page, .. } => {
            flash.updated(page, lsn);
            if oldest_dirty != Lsn::MAX && lsn < oldest_dirty {
                flash.written(page, lsn);
            }
        }
        Body::BufWrite { eol, pages } => pages.iter().for_each(|page| flash.written(page, eol)),
        Body::BeginCheckpoint => flash.checkpoint_began(lsn),
        Body::Flash { payload } => flash.record(lsn, payload),
        _ => {}
    }
}

impl Analysis {
    /// The least recLSN: where redo begins.
    pub(crate) fn redo_start(&self) -> Option<Lsn> {
        self.dirty.values().map(|entry| entry.rec_lsn).min()
    }

    /// Home has `page` with every change up to `eol` (A2).
    pub(crate) fn written(&mut self, page: PageId, eol: Lsn) {
        if self.dirty.get(&page).is_some_and(|entry| entry.last_lsn <= eol) {
            self.dirty.remove(&page);
        }
    }

    fn changed(&mut self, page: PageId, lsn: Lsn, base: Lsn, oldest_dirty: Lsn) {
        if oldest_dirty == Lsn::MAX || lsn >= oldest_dirty {
            let rebuilt_from = lsn.min(oldest_dirty);
            let entry = DirtyEntry { rec_lsn: lsn, last_lsn: lsn, base, rebuilt_from };
            self.dirty.entry(page).or_insert(entry).last_lsn = lsn;
        }
    }

    /// A5.
    fn renewed(&mut self, (first, count): (PageId, u32), lsn: Lsn, flash: &mut FlashRecovery) {
        let pages = (0..u64::from(count)).map(|at| first.plus(at));
        if !self.mutations.has(Mutation::KeepCopiesOfTaken) {
            for page in pages {
                flash.updated(page, lsn);
                flash.written(page, lsn);
            }
        }
        if !self.mutations.has(Mutation::RedoBelowValues) {
            let old = self.dirty.range(first..first.plus(u64::from(count)));
            let old: Vec<PageId> = old.map(|(page, _)| *page).collect();
            for page in old {
                self.dirty.remove(&page);
            }
        }
    }

    /// Looks through records before those that analysis reads for leaves that had keys removed, and
    /// for counts.
    ///
    /// # Errors
    ///
    /// `CorruptLog`, `Device`.
    fn look_before(&mut self, earlier: &mut LogReader<'_>) -> Result<(), Error> {
        while let Some(stored) = earlier.next()? {
            self.note_counts(stored.lsn, &stored.record.body);
            if let Body::Update { page, change, .. } = stored.record.body {
                self.note_thinned(page, change);
            }
        }
        Ok(())
    }

    fn note_thinned(&mut self, page: PageId, change: &[u8]) {
        if Change::thins(change) && self.thinned.len() < THINNED_MAX {
            self.thinned.insert(page);
        }
    }

    fn note_counts(&mut self, lsn: Lsn, body: &Body<'_>) {
        match *body {
            Body::Commit { rows } => self.counts.commit(lsn, rows.iter()),
            Body::BeginCheckpoint => self.counts.begin(),
            Body::Counts { head, rows } => self.counts.counts((head, self.mutations), rows.iter()),
            Body::EndCheckpoint { .. } => self.counts.end(),
            _ => {}
        }
    }

    fn note(&mut self, lsn: Lsn, record: &Record<'_>, oldest_dirty: Lsn) {
        if record.txn != TxnId(0) {
            self.next_txn = self.next_txn.max(record.txn.0 + 1);
            if matches!(record.body, Body::Commit { .. } | Body::End) {
                self.losers.remove(&record.txn);
                self.ended.insert(record.txn);
            } else {
                self.losers.entry(record.txn).or_insert((lsn, lsn)).1 = lsn;
            }
        }
        match record.body {
            Body::Update { page, page_prev, change, .. }
            | Body::Clr { page, page_prev, change, .. } => {
                self.note_thinned(page, change);
                self.changed(page, lsn, page_prev, oldest_dirty);
            }
            Body::Restore { page, page_prev, .. } => {
                self.changed(page, lsn, page_prev, oldest_dirty);
            }
            Body::BufWrite { eol, pages } => {
                pages.iter().for_each(|page| self.written(page, eol));
            }
            Body::TxnTable { entries } => {
                for (txn, first, last) in entries.iter() {
                    self.next_txn = self.next_txn.max(txn.0 + 1);
                    if !self.ended.contains(&txn) {
                        let known = self.losers.entry(txn).or_insert((first, last));
                        *known = (known.0.min(first), known.1.max(last));
                    }
                }
            }
            ref body => self.note_counts(lsn, body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageId = PageId(7);
    const OLDEST_DIRTY: Lsn = Lsn(1_000);

    #[test]
    fn an_entry_spans_its_changes_and_goes_with_the_last_of_them() {
        let mut analysis = Analysis::default();
        analysis.changed(PAGE, Lsn(900), Lsn(800), OLDEST_DIRTY);
        assert!(analysis.dirty.is_empty(), "A4");
        analysis.changed(PAGE, Lsn(5_000), Lsn(900), OLDEST_DIRTY);
        analysis.changed(PAGE, Lsn(6_000), Lsn(5_000), OLDEST_DIRTY);
        let entry = analysis.dirty[&PAGE];
        assert_eq!((entry.rec_lsn, entry.last_lsn), (Lsn(5_000), Lsn(6_000)));
        assert_eq!((entry.base, entry.rebuilt_from), (Lsn(900), OLDEST_DIRTY));
        analysis.written(PAGE, Lsn(5_999));
        assert!(analysis.dirty.contains_key(&PAGE), "an EOL before its last change");
        analysis.written(PAGE, Lsn(6_000));
        assert!(!analysis.dirty.contains_key(&PAGE), "A2");
    }
}
