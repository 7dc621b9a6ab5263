//! What LBR logs, and when.
//!
//! ```text
//! reuse a slot        before the write      after it                the page changes
//! freed(Reused) ----> PRE_INVALIDATE, ----> sync, then           -> freed(Modified); the UPDATE
//!   noted             forced in groups      POST_WRITE, if the      comes, its LSN is noted: the
//!                                           slot is still filled    log is forced to it before the
//!                                                                   next write into the slot
//! ```
//!
//! - T1: POST_WRITE, LAZY_CLEANED and CHKPT are appended under the lock of the slot's partition,
//!   and say what it holds then: so the log has them in the order of the states, and no UPDATE of
//!   the page lies between the state and its record [sources.D12].
//! - T2: no record says that a slot holds a page before the page is durable there.
//! - T3: a slot that was freed because its page changed may be given to another page before the
//!   UPDATE is appended: it is then invalidated like one that is reused.
//! - T4: a record that finds the log full is left out. Without CHKPT and POST_WRITE the slot is
//!   FREE after a restart; without LAZY_CLEANED it is written home once more.
//! - T5: a PRE_INVALIDATE that finds the log full gives up the table instead: a GIVEN_UP, in room
//!   that is kept for it, frees all slots in the eyes of an opening. Nothing more is logged, and
//!   nothing is owed, until the next checkpoint logs the table anew. Should not even that find
//!   room, the page id tells that the slot holds another page.
//! - T6: while recovery may redo pages, no record says what a slot holds. A page that is redone
//!   changes without a new record: its UPDATEs are in the log already, before any record that this
//!   opening could append, so a POST_WRITE of a version between two of them would never be
//!   contradicted. The CHKPTs at the end of recovery tell of these slots. For the same reason the
//!   LSN of a redone change is not noted: a slot that such a change freed is invalidated like one
//!   that is reused (T3).

use std::collections::{BTreeMap, BTreeSet};

use terrace_page::{Lsn, PageId};
use terrace_rt::LeafMutex;
use terrace_tier::{Mutation, Mutations};

use super::group::Group;
use crate::keeper::{Freed, Held, Keeper};
use crate::layout::FlashLayout;
use crate::records::{CHECKPOINT_ENTRIES, TierRecord, What};
use crate::settings::Settings;
use crate::site::{Site, TableError, TableEvent};

/// CHKPT records after which the log is forced, so that they do not pile up in memory: 700 KB.
const RECORDS_PER_FORCE: u32 = 512;

/// The table of an open pool: what of it the log does not say yet.
pub(crate) struct LoggedTable {
    layout: FlashLayout,
    table: u64,
    mutations: Mutations,
    group: Group,
    news: LeafMutex<News>,
    /// T5: the GIVEN_UP since the last checkpoint. Held while records are appended, so that none
    /// comes after it; the innermost lock.
    given_up: LeafMutex<Option<Lsn>>,
}

#[derive(Default)]
struct News {
    /// Filled slots without a POST_WRITE, and which filling it was.
    filled: BTreeMap<u32, u64>,
    fillings: u64,
    /// Slots that are given to another page, without a PRE_INVALIDATE.
    reused: BTreeSet<u32>,
    /// Slots that were freed by a change of their page, and the LSN of the change, if it is logged.
    freed: BTreeMap<u32, (PageId, Option<Lsn>)>,
    /// The pages of the slots whose change is not logged.
    changing: BTreeMap<PageId, u32>,
    /// Whether slots were filled of which the log says nothing until the next checkpoint (T6).
    keeps_back: bool,
}

/// Entries of `News::freed` above which those that are durable are dropped.
const FREED_MAX: usize = 4096;

impl LoggedTable {
    pub fn new(layout: FlashLayout, table: u64, settings: &Settings) -> LoggedTable {
        let (tuning, mutations) = (settings.tuning, settings.mutations);
        let group = Group::new(tuning.lbr_group, tuning.lbr_timeout);
        let (news, given_up) = (LeafMutex::default(), LeafMutex::default());
        LoggedTable { layout, table, mutations, group, news, given_up }
    }

    fn log(&self, site: &dyn Site, slot: u32, what: What) -> Option<Lsn> {
        let payload = TierRecord::Slots { table: self.table, slot, what }.encode();
        let given_up = self.given_up.lock();
        if given_up.is_some() {
            return None;
        }
        let lsn = site.log().append(&payload)?;
        drop(given_up);
        site.count(TableEvent::Logged, payload.len() as u64);
        Some(lsn)
    }

    /// Says of all slots that they are free (T5): where that is said. `None`, if not even this
    /// finds room.
    fn give_up(&self, site: &dyn Site) -> Option<Lsn> {
        let mut given_up = self.given_up.lock();
        if given_up.is_none() {
            let payload = TierRecord::GivenUp { table: self.table }.encode();
            *given_up = Some(site.log().append_kept(&payload)?);
            site.count(TableEvent::GivenUp, 1);
        }
        *given_up
    }

    /// What must be in the log before `slot` is overwritten.
    fn owed(&self, slot: u32) -> Owed {
        let mut news = self.news.lock();
        if news.reused.remove(&slot) {
            return Owed::TierRecord;
        }
        let Some((page, update)) = news.freed.remove(&slot) else { return Owed::Nothing };
        if news.changing.get(&page) == Some(&slot) {
            news.changing.remove(&page);
        }
        update.map_or(Owed::TierRecord, Owed::Force)
    }

    /// Logs what `slot` holds, if it is still what was filled as `filling`.
    fn log_filled(&self, site: &dyn Site, slot: u32, filling: u64) {
        site.images(slot..slot + 1, &mut |_, images| {
            let mut news = self.news.lock();
            if news.filled.get(&slot) != Some(&filling) {
                return;
            }
            news.filled.remove(&slot);
            drop(news);
            let image = images.into_iter().next().flatten();
            let image = image.expect("a filled slot is valid until it is freed");
            let _left_out_if_full = self.log(site, slot, What::PostWrite(image));
        });
    }

    /// Makes durable what recovery has filled: the checkpoint that follows tells of it (T6).
    fn end_keeping_back(&self, site: &dyn Site) {
        let kept_back = {
            let mut news = self.news.lock();
            if !std::mem::take(&mut news.keeps_back) {
                return;
            }
            news.filled.clone()
        };
        if site.flash().sync().is_err() {
            // As in `harden`.
            return site.count(TableEvent::Fault, 1);
        }
        let is_new = |slot: &u32, filling: &mut u64| kept_back.get(slot) != Some(filling);
        self.news.lock().filled.retain(is_new);
    }

    /// What `slots` hold that the log may say, one record for each partition.
    fn log_checkpoint(&self, site: &dyn Site, first: u32) -> Option<()> {
        let slots = first..(first + CHECKPOINT_ENTRIES).min(self.layout.slots);
        let mut has_room = true;
        site.images(slots, &mut |first, mut images| {
            let news = self.news.lock();
            for (slot, image) in (first..).zip(&mut images) {
                image.take_if(|_| news.filled.contains_key(&slot));
            }
            drop(news);
            has_room &= self.log(site, first, What::Checkpoint(images)).is_some();
        });
        has_room.then_some(())
    }
}

/// What a slot owes the log before it is overwritten.
enum Owed {
    Nothing,
    /// The log is to be durable up to here.
    Force(Lsn),
    /// A PRE_INVALIDATE, durable.
    TierRecord,
}

impl Keeper for LoggedTable {
    fn before_writes(&self, site: &dyn Site, slots: &[u32]) -> Result<(), TableError> {
        let (mut grouped, mut members, mut freed) = (Lsn::ZERO, 0, Lsn::ZERO);
        for &slot in slots {
            match self.owed(slot) {
                Owed::Nothing => {}
                Owed::Force(lsn) => freed = freed.max(lsn),
                Owed::TierRecord => {
                    let logged = self.log(site, slot, What::PreInvalidate);
                    let said = match self.mutations.has(Mutation::LbrNeverGivesUp) {
                        true => logged,
                        false => logged.or_else(|| self.give_up(site)),
                    };
                    if let Some(lsn) = said {
                        grouped = grouped.max(lsn);
                        members += 1;
                    }
                }
            }
        }
        if members > 0 && !self.mutations.has(Mutation::LbrWriteBeforeForce) {
            self.group.wait(site.log(), grouped, members)?;
        }
        if !self.mutations.has(Mutation::LbrWriteBeforeChange) && site.log().durable_lsn() < freed {
            site.log().make_durable(freed)?;
        }
        Ok(())
    }

    fn filled(&self, _site: &dyn Site, held: &Held) {
        let mut news = self.news.lock();
        news.fillings += 1;
        let filling = news.fillings;
        news.filled.insert(held.slot, filling);
    }

    fn cleaned(&self, site: &dyn Site, slot: u32, _page: PageId) {
        // A POST_WRITE that is still to come says it.
        if !self.news.lock().filled.contains_key(&slot) {
            let _left_out_if_full = self.log(site, slot, What::LazyCleaned);
        }
    }

    fn freed(&self, site: &dyn Site, slot: u32, page: PageId, why: Freed) {
        let mut news = self.news.lock();
        news.filled.remove(&slot);
        match why {
            Freed::Reused => drop(news.reused.insert(slot)),
            Freed::Modified if !self.mutations.has(Mutation::LbrWriteBeforeChange) => {
                news.freed.insert(slot, (page, None));
                news.changing.insert(page, slot);
            }
            Freed::Modified => {}
        }
        if news.freed.len() > FREED_MAX {
            let durable = site.log().durable_lsn();
            news.freed.retain(|_, (_, update)| update.is_none_or(|lsn| lsn > durable));
        }
    }

    fn changed(&self, page: PageId, lsn: Lsn) {
        let mut news = self.news.lock();
        let Some(slot) = news.changing.remove(&page) else { return };
        if let Some((_, update)) = news.freed.get_mut(&slot).filter(|freed| freed.0 == page) {
            *update = Some(lsn);
        }
    }

    fn harden(&self, site: &dyn Site, slots: &[u32]) -> Result<(), TableError> {
        let keeps_back = site.is_recovering() && !self.mutations.has(Mutation::LbrLogsRecovery);
        let fillings: Vec<(u32, u64)> = {
            let mut news = self.news.lock();
            if keeps_back {
                news.keeps_back = true;
                return Ok(());
            }
            slots.iter().filter_map(|slot| Some((*slot, *news.filled.get(slot)?))).collect()
        };
        if fillings.is_empty() {
            return Ok(());
        }
        let flash = site.flash();
        if !self.mutations.has(Mutation::LbrRecordBeforeSync) && flash.sync().is_err() {
            // They stay unknown to the log, and are free after a restart.
            site.count(TableEvent::Fault, 1);
            return Ok(());
        }
        for (slot, filling) in fillings {
            self.log_filled(site, slot, filling);
        }
        Ok(())
    }

    fn checkpoint(&self, site: &dyn Site) -> Result<u64, TableError> {
        // What follows says what all slots hold, but for those that are being written.
        *self.given_up.lock() = None;
        self.end_keeping_back(site);
        for (number, first) in
            (1..).zip((0..self.layout.slots).step_by(CHECKPOINT_ENTRIES as usize))
        {
            if self.log_checkpoint(site, first).is_none() {
                // The log is full: what is left out is FREE after a restart.
                break;
            }
            if u32::is_multiple_of(number, RECORDS_PER_FORCE) {
                site.log().make_durable(site.log().last_lsn())?;
            }
        }
        Ok(0)
    }

    fn follows_changes(&self) -> bool {
        true
    }

    fn wants_unlogged(&self) -> bool {
        true
    }
}
