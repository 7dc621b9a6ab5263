//! The dirty ledger of a partition: which changes are not durable at home, and what must stay on
//! flash until they are. Pure bookkeeping under the partition's lock: it waits for nothing and
//! knows no device, latch or frame.
//!
//! ```text
//!  owed ------------> frames ---------> unsynced -------> syncing ------> (none)
//!        `redone`  ^          written_home   ^  sync_begins   |  sync_ended
//!                  |                         +----------------+
//!        frame_dirtied                           sync_failed
//! ```
//!
//! - D1: the entry of a dirty frame is the frame's own; the heap only finds the oldest. A heap
//!   entry whose frame has another recLSN by now is stale, and is skipped.
//! - D2: an entry that was written home counts in `unsynced`, or in `syncing` of the sync under
//!   way, until home was synced; where copies on flash are bases, page by page.
//! - D3: a slot that is kept until home was synced is kept with its page. If the page is written
//!   home once more while a sync is under way, that sync does not release the slot.
//! - D4: the minimum over the ledger, the dirty frames and the dirty slots is a lower bound of all
//!   changes that home may lack (dirty.E1, dirty.E2).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use terrace_page::{FrameId, Lsn, PageId};

/// Stale heap entries, beside one for each dirty frame, from which on they are dropped.
const STALE_ENTRIES_MAX: usize = 64;

/// From where on the log has what a page lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirtyLsns {
    /// The first change that home lacks.
    pub rec: Lsn,
    /// The first change that home lacks and that no copy on flash has which is kept as a base: the
    /// same as `rec`, or later.
    pub base: Lsn,
}

impl DirtyLsns {
    /// Of no page.
    pub const NONE: DirtyLsns = DirtyLsns { rec: Lsn::MAX, base: Lsn::MAX };

    /// Home alone counts.
    pub fn at(rec: Lsn) -> DirtyLsns {
        DirtyLsns { rec, base: rec }
    }

    pub fn min(self, other: DirtyLsns) -> DirtyLsns {
        DirtyLsns { rec: self.rec.min(other.rec), base: self.base.min(other.base) }
    }
}

/// What home writes that one sync covers leave to be remembered until it has ended.
struct Written {
    /// The least of their entries.
    lsns: DirtyLsns,
    /// Each page, and the first change that home lacks if a power cut takes those writes back.
    pages: BTreeMap<PageId, Lsn>,
    /// Slots that are bases, or pinned, with their pages.
    slots: BTreeMap<u32, PageId>,
}

impl Default for Written {
    fn default() -> Written {
        Written { lsns: DirtyLsns::NONE, pages: BTreeMap::new(), slots: BTreeMap::new() }
    }
}

/// The ledger.
pub(crate) struct Ledger {
    /// Dirty frames by recLSN, and stale entries (D1).
    frames: BinaryHeap<Reverse<(Lsn, u32)>>,
    frames_count: u32,
    /// Pages with a home write outstanding, whichever task issued it [sources.D3].
    home_writes: Vec<PageId>,
    /// Pages that are to be redone when they are first read, by recLSN.
    owed: BTreeMap<PageId, Lsn>,
    /// Written home since the last sync began.
    unsynced: Written,
    /// Covered by the sync under way.
    syncing: Written,
    /// Pages that were lost with the flash: the log alone has them.
    lost: Lsn,
    /// Dirty copies on flash whose recLSN is below this are kept as bases when their page changes:
    /// analysis may begin here, so it does not see what home lacks of them.
    base_floor: Lsn,
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger {
            frames: BinaryHeap::new(),
            frames_count: 0,
            home_writes: Vec::new(),
            owed: BTreeMap::new(),
            unsynced: Written::default(),
            syncing: Written::default(),
            lost: Lsn::MAX,
            base_floor: Lsn::MAX,
        }
    }

    // Dirty frames. `rec_of` tells the recLSN of a frame, if it is dirty.

    /// A frame was made dirty at `rec`.
    pub fn frame_dirtied(
        &mut self,
        id: FrameId,
        rec: Lsn,
        rec_of: impl Fn(FrameId) -> Option<Lsn>,
    ) {
        self.frames_count += 1;
        self.frames.push(Reverse((rec, id.0)));
        if self.frames.len() > 2 * self.frames_count as usize + STALE_ENTRIES_MAX {
            self.frames.retain(|&Reverse((rec, id))| rec_of(FrameId(id)) == Some(rec));
        }
    }

    /// A frame is no longer dirty.
    pub fn frame_cleaned(&mut self) {
        self.frames_count -= 1;
    }

    pub fn dirty_frames(&self) -> u32 {
        self.frames_count
    }

    /// The least recLSN of dirty frames, with its frame.
    pub fn oldest_frame(
        &mut self,
        rec_of: impl Fn(FrameId) -> Option<Lsn>,
    ) -> Option<(Lsn, FrameId)> {
        while let Some(&Reverse((rec, id))) = self.frames.peek() {
            if rec_of(FrameId(id)) == Some(rec) {
                return Some((rec, FrameId(id)));
            }
            self.frames.pop();
        }
        None
    }

    /// Appends the dirty frames with a recLSN below `lsn` to `out`, oldest first, at most `max`.
    pub fn frames_below(
        &mut self,
        lsn: Lsn,
        max: usize,
        rec_of: impl Fn(FrameId) -> Option<Lsn>,
        out: &mut Vec<(Lsn, FrameId)>,
    ) {
        let first = out.len();
        while let Some((rec, id)) = self.oldest_frame(&rec_of) {
            if rec >= lsn || out.len() - first == max {
                break;
            }
            self.frames.pop();
            if out[first..].last() != Some(&(rec, id)) {
                out.push((rec, id));
            }
        }
        // They stay dirty until they are written.
        self.frames.extend(out[first..].iter().map(|&(rec, id)| Reverse((rec, id.0))));
    }

    // Home writes.

    /// Whether a home write of `page` is outstanding.
    pub fn is_going_home(&self, page: PageId) -> bool {
        self.home_writes.contains(&page)
    }

    /// A home write of `page` is about to be issued.
    pub fn home_write_begins(&mut self, page: PageId) {
        self.home_writes.push(page);
    }

    /// The home write of `page` is no longer outstanding.
    pub fn home_write_ends(&mut self, page: PageId) {
        let at = self.home_writes.iter().position(|&other| other == page);
        self.home_writes.swap_remove(at.expect("a home write that is registered"));
    }

    /// Whether the copy of `page` on flash may be written home: no other home write of it is
    /// outstanding, and the copy lacks nothing that is owed.
    pub fn may_go_home(&self, page: PageId) -> bool {
        !self.is_going_home(page) && !self.is_owed(page)
    }

    // What is owed.

    /// The log has changes of `page` from `rec` on that no copy has.
    pub fn owe(&mut self, page: PageId, rec: Lsn) {
        let before = self.owed.insert(page, rec);
        assert!(before.is_none(), "{page} is owed once");
    }

    /// The page that is owed turned out to lack changes from `rec` on, too.
    pub fn owe_from(&mut self, page: PageId, rec: Lsn) {
        let owed = self.owed.get_mut(&page).expect("only what is owed fails to be redone");
        *owed = rec.min(*owed);
    }

    pub fn is_owed(&self, page: PageId) -> bool {
        self.owed.contains_key(&page)
    }

    /// From where on changes of `page` are owed, if they are.
    pub fn owed_from(&self, page: PageId) -> Option<Lsn> {
        self.owed.get(&page).copied()
    }

    /// The page is up to date.
    pub fn redone(&mut self, page: PageId) {
        self.owed.remove(&page);
    }

    /// Pages that are owed, in their order.
    pub fn owed(&self) -> impl Iterator<Item = PageId> + '_ {
        self.owed.keys().copied()
    }

    // What waits for a sync of home.

    /// The page of an entry was written home: the entry counts until home was synced.
    pub fn written_home(&mut self, lsns: DirtyLsns) {
        self.unsynced.lsns = self.unsynced.lsns.min(lsns);
    }

    /// Home lacks changes of `page` from `rec` on if a power cut takes its home write back. Told
    /// where an opening may find copies on flash that home lacks.
    pub fn at_risk_until_sync(&mut self, page: PageId, rec: Lsn) {
        let least = self.unsynced.pages.entry(page).or_insert(rec);
        *least = rec.min(*least);
    }

    /// The first change of `page` that home lacks if a power cut takes back what was not synced.
    pub fn at_risk(&self, page: PageId) -> Option<Lsn> {
        let both = [self.unsynced.pages.get(&page), self.syncing.pages.get(&page)];
        both.into_iter().flatten().min().copied()
    }

    /// The copy of `page` in `slot` stays until what was written home by now was synced.
    pub fn keep_until_sync(&mut self, slot: u32, page: PageId) {
        self.unsynced.slots.insert(slot, page);
    }

    /// The copy of `page` in `slot` stays as long as the page is `at_risk`.
    pub fn keep_while_at_risk(&mut self, slot: u32, page: PageId) {
        match self.unsynced.pages.contains_key(&page) {
            true => self.unsynced.slots.insert(slot, page),
            false => self.syncing.slots.insert(slot, page),
        };
    }

    /// What `slot` was kept for has gone to slot `to`.
    pub fn kept_moved(&mut self, from: u32, to: u32) {
        for written in [&mut self.unsynced, &mut self.syncing] {
            if let Some(page) = written.slots.remove(&from) {
                written.slots.insert(to, page);
            }
        }
    }

    /// No sync is waited for to release `slot`.
    pub fn keep_no_longer(&mut self, slot: u32) {
        self.unsynced.slots.remove(&slot);
        self.syncing.slots.remove(&slot);
    }

    pub fn has_unsynced(&self) -> bool {
        self.unsynced.lsns.min(self.syncing.lsns) != DirtyLsns::NONE
    }

    /// A sync of home is about to be issued: it covers what was written by now.
    pub fn sync_begins(&mut self) {
        assert_eq!(self.syncing.lsns, DirtyLsns::NONE, "one sync at a time");
        self.syncing = std::mem::take(&mut self.unsynced);
    }

    /// What the sync covered may be lost, and counts as before.
    pub fn sync_failed(&mut self) {
        self.unsynced.lsns = self.unsynced.lsns.min(self.syncing.lsns);
        self.syncing.lsns = DirtyLsns::NONE;
    }

    /// What the sync covered is durable at home. Returns the slots that were kept for it, but those
    /// whose page was written home once more (D3).
    pub fn sync_ended(&mut self) -> Vec<(u32, PageId)> {
        let mut slots = std::mem::take(&mut self.syncing).slots;
        slots.retain(|slot, _| !self.unsynced.slots.contains_key(slot));
        slots.into_iter().collect()
    }

    // The whole.

    /// Only the log has changes from `rec` on.
    pub fn lost(&mut self, rec: Lsn) {
        self.lost = self.lost.min(rec);
    }

    /// The least entry that is neither in a frame nor in a slot.
    pub fn oldest(&self) -> DirtyLsns {
        let owed = self.owed.values().min().copied().unwrap_or(Lsn::MAX);
        let log_alone = DirtyLsns::at(owed.min(self.lost));
        self.unsynced.lsns.min(self.syncing.lsns).min(log_alone)
    }

    pub fn base_floor(&self) -> Lsn {
        self.base_floor
    }

    pub fn set_base_floor(&mut self, floor: Lsn) {
        self.base_floor = floor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    const FRAMES: u64 = 8;
    const SLOTS: u64 = 6;
    const PAGES: u64 = 10;

    /// A page that was written home: to be synced, or being synced.
    struct Entry {
        page: PageId,
        lsns: DirtyLsns,
        is_syncing: bool,
    }

    /// The ledger as plain lists.
    #[derive(Default)]
    struct Model {
        frames: BTreeMap<u32, Lsn>,
        written: Vec<Entry>,
        kept: Vec<(u32, PageId, bool)>,
        owed: BTreeMap<PageId, Lsn>,
        going_home: Vec<PageId>,
        lost: Option<Lsn>,
    }

    impl Model {
        fn oldest_frames(&self) -> Vec<(Lsn, FrameId)> {
            let mut all: Vec<_> =
                self.frames.iter().map(|(&id, &rec)| (rec, FrameId(id))).collect();
            all.sort_unstable();
            all
        }

        fn keep(&mut self, slot: u32, page: PageId, is_syncing: bool) {
            self.kept.retain(|&(kept, _, of)| (kept, of) != (slot, is_syncing));
            self.kept.push((slot, page, is_syncing));
        }

        fn at_risk(&self, page: PageId) -> Option<Lsn> {
            let of_page = self.written.iter().filter(|entry| entry.page == page);
            of_page.map(|entry| entry.lsns.rec).min()
        }

        fn oldest(&self) -> DirtyLsns {
            let alone = self.owed.values().chain(&self.lost).map(|&rec| DirtyLsns::at(rec));
            let all = self.written.iter().map(|entry| entry.lsns).chain(alone);
            all.fold(DirtyLsns::NONE, DirtyLsns::min)
        }

        fn sync_ended(&mut self) -> Vec<(u32, PageId)> {
            let (mut kept, again): (Vec<_>, Vec<_>) = self.kept.drain(..).partition(|row| row.2);
            kept.retain(|row| again.iter().all(|other| other.0 != row.0));
            self.kept = again;
            self.written.retain(|entry| !entry.is_syncing);
            kept.sort_unstable();
            kept.into_iter().map(|(slot, page, _)| (slot, page)).collect()
        }
    }

    fn step(prng: &mut Prng, ledger: &mut Ledger, model: &mut Model, is_syncing: &mut bool) {
        let (page, slot) = (PageId(prng.below(PAGES)), prng.below(SLOTS) as u32);
        let rec = Lsn(1 + prng.below(1_000));
        let frame = prng.below(FRAMES) as u32;
        match prng.below(11) {
            0 | 1 => {
                if let std::collections::btree_map::Entry::Vacant(entry) = model.frames.entry(frame)
                {
                    entry.insert(rec);
                    let rec_of = |id: FrameId| model.frames.get(&id.0).copied();
                    ledger.frame_dirtied(FrameId(frame), rec, rec_of);
                }
            }
            2 if model.frames.remove(&frame).is_some() => ledger.frame_cleaned(),
            3 => {
                let lsns = DirtyLsns { rec, base: Lsn(rec.0 + prng.below(9)) };
                model.written.push(Entry { page, lsns, is_syncing: false });
                ledger.written_home(lsns);
                ledger.at_risk_until_sync(page, rec);
            }
            4 => {
                model.keep(slot, page, false);
                ledger.keep_until_sync(slot, page);
            }
            5 if model.at_risk(page).is_some() => {
                let mut entries = model.written.iter();
                let is_new = entries.any(|entry| entry.page == page && !entry.is_syncing);
                model.keep(slot, page, !is_new);
                ledger.keep_while_at_risk(slot, page);
            }
            6 => {
                model.kept.retain(|row| row.0 != slot);
                ledger.keep_no_longer(slot);
            }
            7 if *is_syncing => {
                assert_eq!(ledger.sync_ended(), model.sync_ended());
                *is_syncing = false;
            }
            7 => {
                model.written.iter_mut().for_each(|entry| entry.is_syncing = true);
                model.kept.iter_mut().for_each(|row| row.2 = true);
                ledger.sync_begins();
                *is_syncing = true;
            }
            8 => match model.owed.remove(&page) {
                Some(_) => ledger.redone(page),
                None => {
                    model.owed.insert(page, rec);
                    ledger.owe(page, rec);
                }
            },
            9 => match model.going_home.iter().position(|&other| other == page) {
                Some(at) => {
                    model.going_home.remove(at);
                    ledger.home_write_ends(page);
                }
                None => {
                    model.going_home.push(page);
                    ledger.home_write_begins(page);
                }
            },
            _ if prng.below(50) == 0 => {
                model.lost = Some(model.lost.unwrap_or(rec).min(rec));
                ledger.lost(rec);
            }
            _ => {}
        }
    }

    #[test]
    fn ledger_agrees_with_plain_lists() {
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let (mut ledger, mut model, mut is_syncing) = (Ledger::new(), Model::default(), false);
            for _ in 0..200 {
                step(&mut prng, &mut ledger, &mut model, &mut is_syncing);
                let oldest = model.oldest_frames();
                let rec_of = |id: FrameId| model.frames.get(&id.0).copied();
                assert_eq!(ledger.dirty_frames() as usize, oldest.len(), "seed {seed}");
                assert_eq!(ledger.oldest_frame(rec_of), oldest.first().copied(), "seed {seed}");
                let (below, max) = (Lsn(prng.below(1_001)), prng.below(FRAMES) as usize);
                let mut some = Vec::new();
                ledger.frames_below(below, max, rec_of, &mut some);
                let older = oldest.into_iter().filter(|&(rec, _)| rec < below).take(max);
                assert_eq!(some, older.collect::<Vec<_>>(), "seed {seed}");
                assert_eq!(ledger.oldest(), model.oldest(), "seed {seed}");
                assert_eq!(ledger.has_unsynced(), !model.written.is_empty(), "seed {seed}");
                for page in (0..PAGES).map(PageId) {
                    assert_eq!(ledger.at_risk(page), model.at_risk(page), "seed {seed}");
                    assert_eq!(ledger.owed_from(page), model.owed.get(&page).copied());
                    let is_free = !model.going_home.contains(&page);
                    let may = is_free && !model.owed.contains_key(&page);
                    assert_eq!(ledger.may_go_home(page), may, "seed {seed}");
                }
            }
        }
    }
}
