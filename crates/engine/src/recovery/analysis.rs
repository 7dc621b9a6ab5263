//! Analysis: which pages may lack changes at home, and which transactions had not ended.
//!
//! - A1: an UPDATE, CLR, RESTORE or IMAGE makes a dirty entry of its page, or moves its lastLSN.
//! - A2: a BUF_WRITE drops the entries of its pages whose lastLSN is at most its EOL [S3 II-A3].
//! - A3: a TXN_TABLE tells of transactions that wrote nothing since. It was taken after the
//!   checkpoint began, and appended later; one that ended meanwhile stays ended.
//! - A4: records below `oldest_dirty` make no entries: those pages are at home.
//! - A5: where images are logged, and none of a page is met, its home copy was synced between its
//!   image and where analysis began, though no BUF_WRITE that covers its last change says so. Home
//!   is asked, and a BUF_WRITE tells of what it has. Otherwise the page could count as dirty, its
//!   next change log no image, and a torn home write would be past repair.

use std::collections::{BTreeMap, BTreeSet};

use terrace_device::Device;
use terrace_page::{Lsn, PageId, TxnId};
use terrace_pool::{FlashRecovery, home_versions};

use crate::Error;
use crate::change::Change;
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
    ended: BTreeSet<TxnId>,
}

/// Bytes between two of `Analysis::places`.
const PLACE_BYTES: u64 = 16 << 10;

/// A page that may lack changes at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirtyEntry {
    /// The first change that home may lack.
    pub(crate) rec_lsn: Lsn,
    /// The last one.
    pub(crate) last_lsn: Lsn,
    /// The version that the first of them was written on, if it tells.
    pub(crate) base: Option<Lsn>,
    /// From where on the log has all that rebuilds the page, its image first: where the log is kept
    /// from, if analysis began after the image.
    pub(crate) rebuilt_from: Lsn,
    /// Whether the log has, from `rec_lsn` on, what rebuilds it from nothing: an image, or a change
    /// that formats it.
    pub(crate) has_image: bool,
}

/// Reads the log from `reader`'s place to its end.
///
/// # Errors
///
/// `CorruptLog` if it ends before the last checkpoint did; `Device`.
pub(crate) fn analyse(
    reader: &mut LogReader<'_>,
    boot: &Superblock,
    flash: &mut FlashRecovery,
    owed: &mut OwedChanges,
) -> Result<(Analysis, End), Error> {
    let mut analysis = Analysis { next_txn: boot.next_txn.0, ..Analysis::default() };
    let floor = boot.redo_floor();
    while let Some(stored) = reader.next()? {
        if analysis.places.last().is_none_or(|place| stored.lsn.0 - place.0 >= PLACE_BYTES) {
            analysis.places.push(stored.lsn);
        }
        analysis.note(stored.lsn, &stored.record, floor);
        show(flash, stored.lsn, &stored.record, floor);
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

    /// Pages of which no image was met and every change is at `home`, which was synced (A5). What
    /// is not older than `end` is left to redo, which refuses it: the log has lost its tail.
    pub(crate) fn at_home(&self, home: &dyn Device, end: Lsn) -> Vec<PageId> {
        let without = self.dirty.iter().filter(|(_, entry)| !entry.has_image);
        let pages: Vec<PageId> = without.map(|(&page, _)| page).collect();
        let versions = home_versions(home, &pages);
        let is_whole = |page: &PageId, version: Option<Lsn>| {
            version.is_some_and(|version| (self.dirty[page].last_lsn..end).contains(&version))
        };
        let both = pages.iter().zip(versions);
        both.filter(|&(page, version)| is_whole(page, version)).map(|(&page, _)| page).collect()
    }

    /// Home has `page` with every change up to `eol` (A2).
    pub(crate) fn written(&mut self, page: PageId, eol: Lsn) {
        if self.dirty.get(&page).is_some_and(|entry| entry.last_lsn <= eol) {
            self.dirty.remove(&page);
        }
    }

    fn changed(&mut self, page: PageId, lsn: Lsn, base: Option<Lsn>, oldest_dirty: Lsn) {
        if oldest_dirty == Lsn::MAX || lsn >= oldest_dirty {
            let rebuilt_from = lsn.min(oldest_dirty);
            let entry =
                DirtyEntry { rec_lsn: lsn, last_lsn: lsn, base, rebuilt_from, has_image: false };
            let entry = self.dirty.entry(page).or_insert(entry);
            entry.last_lsn = lsn;
            if base.is_none() {
                // It is an image.
                entry.rebuilt_from = entry.rec_lsn;
                entry.has_image = true;
            }
            entry.base = entry.base.or(base);
        }
    }

    /// A change that formats its page is as good as an image.
    fn rebuilt_by(&mut self, page: PageId, change: &[u8]) {
        if let Some(entry) = self.dirty.get_mut(&page).filter(|entry| !entry.has_image) {
            entry.has_image = Change::decode(change).is_ok_and(|change| change.formats());
        }
    }

    fn note(&mut self, lsn: Lsn, record: &Record<'_>, oldest_dirty: Lsn) {
        if record.txn != TxnId(0) {
            self.next_txn = self.next_txn.max(record.txn.0 + 1);
            if matches!(record.body, Body::Commit | Body::End) {
                self.losers.remove(&record.txn);
                self.ended.insert(record.txn);
            } else {
                self.losers.entry(record.txn).or_insert((lsn, lsn)).1 = lsn;
            }
        }
        match record.body {
            Body::Update { page, page_prev, change, .. }
            | Body::Clr { page, page_prev, change, .. } => {
                self.changed(page, lsn, Some(page_prev), oldest_dirty);
                self.rebuilt_by(page, change);
            }
            Body::Restore { page, page_prev, .. } => {
                self.changed(page, lsn, Some(page_prev), oldest_dirty);
            }
            Body::Image { page, .. } => self.changed(page, lsn, None, oldest_dirty),
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
            Body::NestedEnd { .. }
            | Body::Commit
            | Body::End
            | Body::BeginCheckpoint
            | Body::Flash { .. }
            | Body::EndCheckpoint { .. } => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store, write};
    use terrace_page::{PAGE_SIZE, seal, set_lsn, set_page_id};
    use terrace_rt::{Virtual, VirtualConfig, World};

    const PAGE: PageId = PageId(7);
    const OLDEST_DIRTY: Lsn = Lsn(1_000);

    fn put(home: &dyn Device, page: PageId, version: Lsn) {
        let mut bytes = Box::new([0; PAGE_SIZE]);
        set_page_id(&mut bytes, page);
        set_lsn(&mut bytes, version);
        seal(&mut bytes);
        write(home, page.0 * PAGE_SIZE as u64, &bytes[..]).expect("a device that does not fail");
    }

    /// The entry after changes, each at an LSN and on a version; `None` is an image.
    fn entry(changes: &[(u64, Option<u64>)]) -> DirtyEntry {
        let mut analysis = Analysis::default();
        for &(lsn, base) in changes {
            analysis.changed(PAGE, Lsn(lsn), base.map(Lsn), OLDEST_DIRTY);
        }
        analysis.dirty[&PAGE]
    }

    /// Analysis may begin after the image of a page: its entry then told of no image at all, and a
    /// home write that was torn after the next checkpoint could not be made good.
    #[test]
    fn a_page_whose_image_was_not_met_is_rebuilt_from_where_the_log_is_kept() {
        let changed = entry(&[(5_000, Some(900)), (6_000, Some(5_000))]);
        assert_eq!((changed.rec_lsn, changed.rebuilt_from), (Lsn(5_000), OLDEST_DIRTY));
        let imaged = entry(&[(5_000, None), (5_100, Some(900))]);
        assert_eq!((imaged.rec_lsn, imaged.rebuilt_from), (Lsn(5_000), Lsn(5_000)));
        // A later image covers all that comes before it, too.
        let both = entry(&[(5_000, Some(900)), (6_000, None)]);
        assert_eq!((both.rec_lsn, both.rebuilt_from), (Lsn(5_000), Lsn(5_000)));
        assert_eq!([changed, imaged, both].map(|entry| entry.has_image), [false, true, true]);
    }

    #[test]
    fn home_is_asked_about_pages_without_an_image_alone() {
        let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
        Virtual::new(config).run(ask_home).expect("nobody waits for ever");
    }

    fn ask_home() {
        let store = Store::new(8 * PAGE_SIZE as u64, Keep::Plain);
        let home = build(Preset::Ram, World::current(), store);
        let (mut analysis, end) = (Analysis::default(), Lsn(9_000));
        // Page, version that its first change was written on, version at home.
        for (page, base, at_home) in [
            (1, Some(900), Some(5_000)),
            (2, Some(900), Some(4_999)),
            (3, None, Some(5_000)),
            (4, Some(900), Some(9_000)),
            (5, Some(900), None),
            // The home ends before it.
            (8, Some(900), None),
        ] {
            analysis.changed(PageId(page), Lsn(5_000), base.map(Lsn), OLDEST_DIRTY);
            if let Some(lsn) = at_home {
                put(&*home, PageId(page), Lsn(lsn));
            }
        }
        assert_eq!(analysis.at_home(&*home, end), [PageId(1)]);
        analysis.written(PageId(1), Lsn(4_999));
        assert!(analysis.dirty.contains_key(&PageId(1)), "an EOL before its last change");
        analysis.written(PageId(1), Lsn(5_000));
        assert!(!analysis.dirty.contains_key(&PageId(1)));
    }
}
