//! Pages that a flash has lost: the log has what home lacks of them, and one reading of it serves
//! many of them.
//!
//! - G1: what is gathered has a bound. The page that is asked for is kept whatever it takes, and
//!   then the pages that follow it, which are asked for next if all are repaired in their order.
//! - G2: what was gathered of a page serves one repair. A page that is repaired, or changed in
//!   memory, is on no flash any more: the one that was lost takes no page again.
//! - G3: the log may be cut while it is read, up to the first change of the page that is asked for:
//!   other pages may come home meanwhile. Nothing of a reading that ends early is used.
//! - Cost: the log is read as often as the changes of all lost pages are larger than the bound, or
//!   once for each page if they are asked for in no order and do not fit.

use std::collections::BTreeMap;

use terrace_page::{Lsn, PageBuf, PageId};
use terrace_pool::{PoolError, Redo};

use super::owed::OwedChanges;
use crate::Error;
use crate::log::LogReader;
use crate::log::record::{Body, RECORD_MAX};

/// Changes of lost pages, each with the LSN since which its changes are wanted.
#[derive(Debug, Default)]
pub(crate) struct LostPages {
    pages: BTreeMap<PageId, (Lsn, OwedChanges)>,
    bytes: usize,
}

impl LostPages {
    /// Nothing yet of the pages in `wanted`, of which the log has all since the LSN that is given
    /// with each.
    fn of(wanted: &BTreeMap<PageId, Lsn>) -> LostPages {
        let fresh = |(page, rec): (&PageId, &Lsn)| (*page, (*rec, OwedChanges::of_lost()));
        LostPages { pages: wanted.iter().map(fresh).collect(), bytes: 0 }
    }

    /// Reads the changes of the pages in `wanted`; keeps those of `asked`, and up to `bytes_max` in
    /// all (G1). `None` if the reading does not come to `end`, where the log ended when it began
    /// (G3).
    ///
    /// # Errors
    ///
    /// `CorruptLog`, `Device`.
    pub(crate) fn gather(
        reader: &mut LogReader<'_>,
        end: Lsn,
        asked: PageId,
        wanted: &BTreeMap<PageId, Lsn>,
        bytes_max: usize,
    ) -> Result<Option<LostPages>, Error> {
        let mut gathered = LostPages::of(wanted);
        while let Some(stored) = reader.next()? {
            gathered.note(stored.lsn, &stored.record.body);
            gathered.bound(asked, bytes_max);
        }
        Ok((reader.end().position == end).then_some(gathered))
    }

    /// Keeps the change in a record, if it is one of a page that is wanted.
    fn note(&mut self, lsn: Lsn, body: &Body<'_>) {
        let page = body.page().and_then(|page| self.pages.get_mut(&page));
        let Some((rec, changes)) = page else { return };
        // The record that a recLSN lies in began before it.
        if lsn.0 + RECORD_MAX as u64 > rec.0 {
            let before = changes.bytes();
            changes.note(lsn, body);
            self.bytes += changes.bytes() - before;
        }
    }

    /// G1: drops the pages that would be asked for last.
    fn bound(&mut self, asked: PageId, bytes_max: usize) {
        while self.bytes > bytes_max {
            let before = self.pages.range(..asked).next_back();
            let last = before.or_else(|| self.pages.last_key_value()).map(|(page, _)| *page);
            let Some(last) = last.filter(|last| *last != asked) else { return };
            self.remove(last);
        }
    }

    fn remove(&mut self, page: PageId) -> Option<OwedChanges> {
        let (_, changes) = self.pages.remove(&page)?;
        self.bytes -= changes.bytes();
        Some(changes)
    }

    /// Brings `bytes`, home's version of `page`, up to date, if its changes were gathered; `None`
    /// if not.
    ///
    /// # Errors
    ///
    /// `Redo` if they do not fit.
    pub(crate) fn repair(
        &mut self,
        page: PageId,
        bytes: &mut PageBuf,
        is_whole: bool,
    ) -> Option<Result<(), PoolError>> {
        let changes = self.remove(page)?;
        Some(changes.redo(page, bytes, is_whole).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use terrace_page::{PAGE_SIZE, lsn, set_lsn};
    use terrace_rt::Prng;

    use super::*;
    use crate::change::Change;

    const PAGES: u64 = 40;
    const RECORDS: u64 = 600;
    /// Apart, so that a recLSN within a record is told from one behind it.
    const LSNS: u64 = RECORD_MAX as u64;

    /// A log of changes of single bytes, and each page as all of them leave it.
    struct Model {
        log: Vec<(Lsn, PageId, Lsn, Vec<u8>)>,
        pages: Vec<PageBuf>,
    }

    fn model(prng: &mut Prng) -> Model {
        let mut pages = vec![[0; PAGE_SIZE]; PAGES as usize];
        let mut log = Vec::new();
        for record in 1..=RECORDS {
            let (page, now) = (prng.below(PAGES), Lsn(record * LSNS));
            let bytes = &mut pages[page as usize];
            let (at, byte) = (1_000 + prng.below(5_000) as u16, [prng.below(256) as u8]);
            let mut change = Vec::new();
            Change::Bytes { at, bytes: &byte }.encode(&mut change);
            log.push((now, PageId(page), lsn(bytes), change));
            bytes[usize::from(at)] = byte[0];
            set_lsn(bytes, now);
        }
        Model { log, pages }
    }

    /// A reading of the log from the least LSN that is wanted.
    fn gather(
        model: &Model,
        asked: PageId,
        wanted: &BTreeMap<PageId, Lsn>,
        max: usize,
    ) -> LostPages {
        let mut gathered = LostPages::of(wanted);
        let since = wanted.values().min().expect("a page");
        for (now, page, page_prev, change) in &model.log {
            let (page, page_prev, undo_next) = (*page, *page_prev, Lsn::ZERO);
            if *now >= *since {
                gathered.note(*now, &Body::Clr { page, page_prev, change, undo_next });
                gathered.bound(asked, max);
            }
        }
        gathered
    }

    /// Home as it was before a change of the page, and the LSN of that change.
    fn at_home(model: &Model, page: PageId, prng: &mut Prng) -> Option<(PageBuf, Lsn)> {
        let of_page = || model.log.iter().filter(|(_, of, ..)| *of == page);
        let first = prng.below(of_page().count() as u64 + 1) as usize;
        let mut home = [0; PAGE_SIZE];
        for (now, .., change) in of_page().take(first) {
            Change::decode(change).expect("encoded").apply(&mut home).expect("it fits");
            set_lsn(&mut home, *now);
        }
        of_page().nth(first).map(|(now, ..)| (home, *now))
    }

    #[test]
    fn lost_pages_are_as_if_each_was_repaired_alone_and_in_bounded_memory() {
        let mut readings = 0;
        for seed in 0..60 {
            let mut prng = Prng::from_seed(seed);
            let model = model(&mut prng);
            let mut homes = BTreeMap::new();
            for page in (0..PAGES).map(PageId) {
                homes.extend(at_home(&model, page, &mut prng).map(|home| (page, home)));
            }
            let mut order: Vec<PageId> = homes.keys().copied().collect();
            if seed % 2 == 0 {
                prng.shuffle(&mut order);
            }
            let max = [500, 4_000, usize::MAX][seed as usize % 3];
            let mut gathered = LostPages::default();
            for page in order {
                let (mut bytes, _) = homes[&page];
                let repaired = gathered.repair(page, &mut bytes, true).unwrap_or_else(|| {
                    readings += 1;
                    let wanted = homes.iter().map(|(page, (_, rec))| (*page, *rec)).collect();
                    gathered = gather(&model, page, &wanted, max);
                    gathered.repair(page, &mut bytes, true).expect("what is asked for is kept")
                });
                repaired.expect("the changes fit");
                assert_eq!(bytes, model.pages[page.0 as usize], "seed {seed}, {page}");
                assert!(gathered.bytes <= max, "seed {seed}");
                let kept = gathered.pages.values().map(|(_, changes)| changes.bytes());
                assert_eq!(gathered.bytes, kept.sum::<usize>(), "seed {seed}");
                homes.remove(&page);
            }
        }
        assert!(readings < 60 * PAGES / 2, "{readings} readings");
    }
}
