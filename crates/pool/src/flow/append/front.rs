//! The front of an append log: what leaves, in groups.
//!
//! ```text
//!             claim_front         stage_front            move_on               let_go
//!  Dropped:   slot FREE
//!  Again:                         read, verified         new slot, old FREE
//!  Home:      LAZYCLEANING        read, verified                               home, slot FREE
//!                                                                              the group has left
//! ```
//!
//! - F1: a second chance that cannot be taken goes home, if home lacks the page, or is dropped.
//! - F2: a page whose bytes on flash are bad is rebuilt from home and the log, which has what home
//!   lacks. If the log cannot, its slot stays as it is, and so does the group: the ring
//!   takes no more pages, and those that leave memory go home.
//! - F3: a slot that somebody reads is let go when the read has ended.
//! - F4: of a persistent tier a slot may be the only place of its page, or the base of changes that
//!   are nowhere else. So a base moves on like a page with a second chance; a slot that is moved
//!   from stays as it is until the table says durably where its page went; what went home was
//!   synced there; and only then the table says, durably, that the group is free, and its slots are
//!   overwritten [sources.D8].
//! - F5: a page that changes in memory while its group leaves keeps the group, with its base. If it
//!   is asked for often it does not leave memory, and the ring would stand still until the next
//!   checkpoint. So it is written home at once, and the base is free when home was synced.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::{Damage, Lsn, PageBuf, PageId, lsn, verify};
use terrace_rt::{LeafGuard, Nanos, dead, sleep};
use terrace_tier::{
    Claim, Cleaned, Front as Group, Goes, Gone, Leaver as Moving, LogRules, Moved, Mutation, Run,
};

use crate::durability::dirty::Logged;
use crate::flow::cleaner::register;
use crate::flow::homeward::home_runs;
use crate::io::{self, PageIo};
use crate::memory::frames::Staging;
use crate::memory::loading::first_cause;
use crate::memory::{Books, Partition, Place};
use crate::{BufferPool, PageEvent, PoolError, Tier};

/// How long one waits for the read of a slot to end, before looking again.
const READ_NAP: Nanos = Nanos(20_000);

/// A group that is leaving.
pub(super) struct Front {
    /// Until it is gone.
    group: Option<Group>,
    /// Its pages that go somewhere, in order.
    pub leavers: Vec<Leaver>,
}

/// A page that leaves its slot.
#[derive(Debug)]
pub(super) struct Leaver {
    page: PageId,
    slot: u32,
    goes: Goes,
    /// Its way to the rear, until it has ended.
    moving: Option<Moving>,
    /// Its claim, if it is on its way home.
    claim: Option<Claim>,
    /// Its place in the staging.
    at: usize,
    /// Its bytes are there.
    pub is_whole: bool,
    lsn: Lsn,
}

impl Leaver {
    /// Its bytes.
    pub fn staged<'a>(&self, staging: &'a Staging) -> &'a PageBuf {
        &staging.pages()[self.at]
    }

    /// Where a second chance is written.
    pub fn to(&self) -> Option<u32> {
        match self.goes {
            Goes::To(to) => to,
            Goes::Home => None,
        }
    }
}

impl Front {
    /// One read of the slots from `from` on, or two where the ring ends.
    fn read_of_all<'a>(
        &self,
        partition: &Partition,
        from: u32,
        staging: &'a mut Staging,
    ) -> Vec<PageIo<'a>> {
        // Where slot numbers begin anew.
        let wrapped = self.leavers.iter().find(|leaver| leaver.slot < from);
        let span = staging.pages().len();
        let before = wrapped.map_or(span, |leaver| leaver.at - leaver.slot as usize);
        let (head, tail) = staging.pages_mut().split_at_mut(before);
        let mut ios = vec![PageIo::read(partition.slot_page(from), head)];
        if !tail.is_empty() {
            ios.push(PageIo::read(partition.slot_page(0), tail));
        }
        ios
    }

    /// A read for each run of pages that go somewhere: of a block they are few.
    fn reads_of_leavers<'a>(
        &self,
        partition: &Partition,
        staging: &'a mut Staging,
    ) -> Vec<PageIo<'a>> {
        let mut pages: Vec<Option<&mut PageBuf>> =
            staging.pages_mut().iter_mut().map(Some).collect();
        let runs = self.leavers.chunk_by(|a, b| a.at + 1 == b.at);
        let read = |run: &[Leaver]| {
            let bytes = run.iter().filter_map(|leaver| pages[leaver.at].take());
            PageIo::read(partition.slot_page(run[0].slot), bytes.collect::<Vec<_>>())
        };
        runs.map(read).collect()
    }
}

impl BufferPool {
    /// A group begins to leave: who goes where is written down.
    pub(super) fn claim_front(
        &self,
        partition: &Partition,
        books: &mut Books,
        mut group: Group,
    ) -> Front {
        if self.config.mutations.has(Mutation::ReuseFrontTooSoon) {
            books.slots.give_away(&mut group);
        }
        while let Some(displaced) = books.slots.drop_next(&mut group) {
            self.displaced(partition, books, displaced);
        }
        let leaving = std::mem::take(&mut group.leavers).into_iter();
        let leavers = leaving.filter_map(|leaver| self.claim_leaver(partition, books, leaver));
        let mut leavers: Vec<Leaver> = leavers.collect();
        let from = leavers.first().map_or(0, |leaver: &Leaver| leaver.slot);
        for leaver in &mut leavers {
            // The ring may end within the group.
            leaver.at = leaver.slot.wrapping_sub(from) as usize;
            if leaver.slot < from {
                leaver.at = (leaver.slot + books.slots.count() - from) as usize;
            }
        }
        let mut front = Front { group: Some(group), leavers };
        let run = front.group.as_ref().map(Group::run);
        if front.leavers.is_empty() && run.is_some_and(|run| books.slots.is_free_run(run)) {
            self.end_front(partition, books, front.group.take());
        }
        front
    }

    fn claim_leaver(
        &self,
        partition: &Partition,
        books: &mut Books,
        leaving: Moving,
    ) -> Option<Leaver> {
        let (page, slot, goes) = (leaving.page(), leaving.slot(), leaving.goes());
        let (at, is_whole, lsn) = (0, false, Lsn::ZERO);
        let (moving, claim) = match goes {
            Goes::Home if self.stays_in_memory(partition, books, page) => return None,
            Goes::Home => {
                let claim = books.slots.claim_leaver(slot);
                (None, Some(register(books, claim)))
            }
            Goes::To(_)
                if self.config.mutations.has(Mutation::DropBasesAtFront)
                    && books.slots.keeps_base(slot) =>
            {
                let moved = books.slots.moved(leaving, false);
                assert_eq!(moved, Moved::Stays, "a base is not dropped");
                books.slots.release_base(slot);
                partition.detach_slot(books, &self.memory.frames, page, slot);
                self.memory.observe(page, PageEvent::SlotLost);
                return None;
            }
            Goes::To(_) => (Some(leaving), None),
        };
        Some(Leaver { page, slot, goes, moving, claim, at, is_whole, lsn })
    }

    /// The rotating tier drops a page that is in memory without a write: its frame takes over what
    /// home lacks [S0 5]. Whether it did.
    fn stays_in_memory(&self, partition: &Partition, books: &mut Books, page: PageId) -> bool {
        if !books.slots.rotates() {
            return false;
        }
        let Place::Memory(id) = partition.find(books, &self.memory.frames, page) else {
            return false;
        };
        let Some(guard) = self.memory.frames.try_exclusive(id) else { return false };
        let slot = guard.frame().slot().expect("what leaves the log has a slot");
        let changed = books.slots.changes(slot, self.restart.any_base());
        self.taken_back(partition, books, &guard, changed);
        true
    }

    /// Groups that could not leave do, if their bad pages were rebuilt elsewhere.
    fn end_stuck(&self, partition: &Partition) {
        if partition.books.lock().slots.end_stuck() {
            partition.room.notify_all();
        }
    }

    /// The group has left, or waits for slots that still hold something.
    fn end_front(&self, partition: &Partition, books: &mut Books, group: Option<Group>) {
        let gone = group.map(|group| books.slots.gone(group));
        if gone == Some(Gone::Free) {
            partition.room.notify_all();
        }
    }

    /// Reads the front group; what that does not give is read one by one.
    pub(super) fn stage_front(&self, partition: &Partition, front: &mut Front) -> Staging {
        let span = front.leavers.last().map_or(0, |leaver| leaver.at + 1);
        let mut staging = Staging::new(span);
        let Some(from) = front.leavers.first().map(|leaver| leaver.slot) else { return staging };
        let flash = self.devices.flash();
        let ios = match self.traffic.appends.and_then(|appends| appends.migration) {
            Some(_) => front.reads_of_leavers(partition, &mut staging),
            None => front.read_of_all(partition, from, &mut staging),
        };
        if io::run(flash, ios).is_err() {
            self.devices.count_fault();
            for leaver in &front.leavers {
                let bytes = &mut staging.pages_mut()[leaver.at];
                bytes.fill(0);
                let io = PageIo::read(partition.slot_page(leaver.slot), [&mut *bytes]);
                // Bytes that could not be read are no page.
                let _failed = io::run(flash, vec![io]);
            }
        }
        for leaver in &mut front.leavers {
            let bytes = &staging.pages()[leaver.at];
            leaver.is_whole = self.config.mutations.has(Mutation::SkipVerify)
                || self.is_copy_of(leaver.page, leaver.slot, bytes);
            leaver.lsn = lsn(bytes);
        }
        staging
    }

    /// The lock of the partition, when nobody reads `slot` (F3). `None` in a world that is dead.
    fn books_unread<'p>(
        &self,
        partition: &'p Partition,
        slot: u32,
    ) -> Option<LeafGuard<'p, Books>> {
        loop {
            let books = partition.books.lock();
            if !books.slots.is_read(slot) {
                return Some(books);
            }
            drop(books);
            sleep(READ_NAP);
            if dead() {
                return None;
            }
        }
    }

    /// The second chances are `written`: their pages move on. Returns the slots, over all
    /// partitions.
    pub(super) fn move_on(
        &self,
        partition: &Partition,
        front: &mut Front,
        written: bool,
    ) -> Vec<u32> {
        let mut slots = Vec::new();
        for leaver in &mut front.leavers {
            let Some(moving) = leaver.moving.take() else { continue };
            let Some(mut books) = self.books_unread(partition, leaver.slot) else { break };
            match books.slots.moved(moving, written && leaver.is_whole) {
                Moved::On { to, newer, is_base } => {
                    match is_base {
                        true => books.ledger.kept_moved(leaver.slot, to),
                        false => books.stats.second_chances += 1,
                    }
                    self.copy_moved(partition, (leaver.page, leaver.lsn), (leaver.slot, to), newer);
                    slots.push(partition.first_slot + to);
                }
                // F1.
                Moved::Home(claim) => leaver.claim = Some(register(&mut books, claim)),
                Moved::Dropped(displaced) => self.displaced(partition, &books, displaced),
                // A base that cannot move keeps its group.
                Moved::Stays => {}
            }
        }
        slots
    }

    /// Brings home what must go there, in a task of its own, and then lets the group go.
    pub(super) fn let_go(&self, partition: &Partition, front: Front, staging: Staging) {
        let Some(run) = front.group.as_ref().map(Group::run) else { return };
        if front.leavers.iter().all(|leaver| leaver.claim.is_none()) {
            let mut books = partition.books.lock();
            if !self.restart.rules.keeps_bases || books.slots.is_free_run(run) {
                return self.end_front(partition, &mut books, front.group);
            }
        }
        let Some(pool) = self.background.pool() else {
            return self.bring_home(partition, front, staging);
        };
        self.cleaning.runs.fetch_add(1, Ordering::Relaxed);
        let slot = partition.first_slot;
        self.background.spawn("front group", pool, move |pool| {
            pool.bring_home(pool.memory.partition_of_slot(slot), front, staging);
            pool.cleaning.runs.fetch_sub(1, Ordering::Relaxed);
            pool.cleaning.news.notify_all();
            pool.cleaning.run_ended.notify_all();
        });
    }

    fn bring_home(&self, partition: &Partition, front: Front, mut staging: Staging) {
        let Front { group, leavers } = front;
        let run = group.as_ref().map(Group::run);
        let mut homeward: Vec<(Leaver, Claim)> = leavers
            .into_iter()
            .filter_map(|mut leaver| leaver.claim.take().map(|claim| (leaver, claim)))
            .collect();
        homeward.sort_unstable_by_key(|(leaver, _)| leaver.page);
        for (leaver, claim) in &mut homeward {
            let bytes = &mut staging.pages_mut()[leaver.at];
            leaver.is_whole = leaver.is_whole || self.rebuild(partition, claim, bytes).is_ok();
        }
        let (homeward, mut claims): (Vec<Leaver>, Vec<Claim>) = homeward.into_iter().unzip();
        let slots: Vec<u32> =
            homeward.iter().map(|leaver| partition.first_slot + leaver.slot).collect();
        if self.config.mutations.has(Mutation::FrontCleanBeforeHome) {
            claims.drain(..).for_each(|claim| self.end_claim(claim, Cleaned::AtHome));
        }
        let at_home = self.write_home(&homeward, &staging).is_ok();
        let outcome = |leaver: &Leaver| match (leaver.is_whole, at_home) {
            (true, true) => Cleaned::AtHome,
            (false, _) => Cleaned::Damaged,
            (true, false) => Cleaned::NotYet,
        };
        for (claim, leaver) in claims.into_iter().zip(&homeward) {
            self.end_claim(claim, outcome(leaver));
        }
        if self.restart.rules.keeps_bases && self.settle_front(partition, &homeward).is_err() {
            // What is not durable elsewhere stays; the next writer is told why.
            return self.end_front(partition, &mut partition.books.lock(), group);
        }
        for leaver in &homeward {
            let Some(mut books) = self.books_unread(partition, leaver.slot) else { return };
            if outcome(leaver) == Cleaned::AtHome
                && let Some(displaced) = books.slots.dropped(leaver.page, leaver.slot)
            {
                self.displaced(partition, &books, displaced);
            }
        }
        self.restart.harden(self, &slots);
        self.end_front(partition, &mut partition.books.lock(), group);
        // A failure stops the pool, and the next writer reports it.
        let _failed: Result<(), PoolError> =
            self.free_bases(partition, run).and_then(|()| self.log_buf_writes(Logged::Full));
    }

    /// F5. The group counts as stuck meanwhile: whoever has a page latched that this waits for may
    /// wait for room itself, and is told that there is none.
    fn free_bases(&self, partition: &Partition, group: Option<Run>) -> Result<(), PoolError> {
        let bases: Vec<PageId> = {
            let books = partition.books.lock();
            group.into_iter().flat_map(|run| books.slots.bases_in(run)).collect()
        };
        if bases.is_empty() || !self.restart.rules.keeps_bases {
            return Ok(());
        }
        for page in bases {
            self.flush_page(partition, page)?;
        }
        self.sync_home()?;
        if !self.config.mutations.has(Mutation::ReuseBeforeTable) {
            self.harden_table()?;
        }
        self.end_stuck(partition);
        Ok(())
    }

    /// F4: home has durably what was written there, and the table on flash knows it, and where the
    /// others went.
    fn settle_front(&self, partition: &Partition, homeward: &[Leaver]) -> Result<(), PoolError> {
        let mutations = self.config.mutations;
        if !homeward.is_empty() && !mutations.has(Mutation::ReuseBeforeHomeSync) {
            self.sync_home()?;
        }
        if !mutations.has(Mutation::ReuseBeforeTable) {
            self.harden_table()?;
        }
        if mutations.has(Mutation::ReuseBeforeHomeSync) {
            let mut books = partition.books.lock();
            for leaver in homeward {
                books.ledger.keep_no_longer(leaver.slot);
                books.slots.unpin(leaver.slot);
            }
        }
        Ok(())
    }

    /// Writes the whole pages home, neighbours together. `homeward` is in page order. Pages of a
    /// block go in small batches, one of which is filled while another is written [S2 3.1].
    fn write_home(&self, homeward: &[Leaver], staging: &Staging) -> Result<(), PoolError> {
        let whole = homeward.iter().filter(|leaver| leaver.is_whole);
        let whole: Vec<(PageId, &PageBuf)> =
            whole.map(|leaver| (leaver.page, leaver.staged(staging))).collect();
        let migration = self.traffic.appends.and_then(|appends| appends.migration);
        let at_once = migration.unwrap_or(whole.len().max(1));
        self.devices.count_cleaning(&whole, at_once);
        self.durability.write_shielded(&whole, |part| {
            let batches: Vec<Vec<PageIo<'_>>> = part.chunks(at_once).map(home_runs).collect();
            io::run_in_turn(&*self.devices.home, &batches, LogRules::MIGRATIONS)
        })
    }

    /// F2. What is rebuilt may be newer than the copy was, so the log goes first.
    fn rebuild(
        &self,
        partition: &Partition,
        claim: &Claim,
        bytes: &mut PageBuf,
    ) -> Result<(), PoolError> {
        self.devices.count_fault();
        let read = io::run(&*self.devices.home, vec![PageIo::read(claim.page().0, [&mut *bytes])]);
        let (tier, page) = (Tier::Home, claim.page());
        let read = read.map_err(|source| PoolError::Read { tier, page, source: Arc::new(source) });
        let is_whole = read.is_ok() && verify(bytes, page).is_ok();
        let is_same = is_whole
            && self.config.restart.kind.is_journalled()
            && partition.books.lock().slots.may_be(claim.slot(), lsn(bytes));
        if !is_same {
            if self.restart.rules.is_persistent {
                // As in `rescue`: the log need not have it, and home, whole but old, would pass.
                let tier = Tier::Flash;
                return Err(PoolError::Damaged { tier, page, damage: Damage::Checksum });
            }
            let repaired = self.durability.journal.repair(page, claim.rec_lsn(), bytes, is_whole);
            repaired.map_err(|error| first_cause(read, error))?;
            terrace_page::seal(bytes);
        }
        self.durability.write_ahead(lsn(bytes))
    }
}
