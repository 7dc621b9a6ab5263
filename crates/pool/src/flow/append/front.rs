//! The front of an append log: what leaves, in groups.
//!
//! ```text
//!             claim_front         stage                  move_on               let_go
//!  Dropped:   slot FREE
//!  Again:                         read, verified         new slot, old FREE
//!  Home:      LAZYCLEANING        read, verified                               home, slot FREE
//!                                                                              the group has left
//! ```
//!
//! - F1: a page that cannot get its second chance is written home, if home lacks it, or is dropped.
//! - F2: a page whose bytes on flash are bad is rebuilt from home and the log, which has what home
//!   lacks. If the log cannot, its slot stays as it is, and so does the group: the ring takes no
//!   more pages, and those that leave memory are written home.
//! - F3: a slot that a task reads is released when the read has ended.
//! - F4: of a persistent tier a slot may be the only place of its page, or the base of changes that
//!   are nowhere else. So a base moves on like a page with a second chance; a slot that is moved
//!   from stays as it is until the table says durably where its page went; what was written home
//!   was synced there; and only then the table says, durably, that the group is free, and its slots
//!   are overwritten [sources.D8].
//! - F5: a page that changes in memory while its group leaves keeps the group, with its base. If it
//!   is asked for often it does not leave memory, and the ring would stand still until the next
//!   checkpoint. So it is written home at once, and the base is free when home was synced.

use std::sync::Arc;

use terrace_page::{Damage, Lsn, PageBuf, PageId, lsn, verify};
use terrace_rt::{Nanos, dead, sleep};
use terrace_tier::{
    Claim, Cleaned, Front as Group, Goes, Gone, Leaver as Moving, Moved, Mutation, Run,
};

use crate::durability::dirty::Logged;
use crate::flow::cleaner::{end_claim, is_copy_of, register, spawn_run};
use crate::flow::homeward::{bring_home, read_copies};
use crate::flow::write_out::Flush;
use crate::io::{self, PageIo};
use crate::memory::Section;
use crate::memory::frames::Staging;
use crate::memory::loading::first_cause;
use crate::memory::{Partition, Place};
use crate::{BufferPool, PoolError, Tier};

/// How long one waits for the read of a slot to end, before looking again.
const READ_NAP: Nanos = Nanos(20_000);

/// A group that is leaving.
pub(super) struct Front {
    /// Until it is gone.
    group: Option<Group>,
    /// Its pages that go somewhere, in order.
    leavers: Vec<Leaver>,
    /// Their bytes, once they are read.
    staging: Staging,
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
    is_whole: bool,
    lsn: Lsn,
}

/// A group begins to leave, or has left.
impl Section<'_> {
    /// A group begins to leave: the destination of each page is recorded.
    pub(super) fn claim_front(&mut self, mut group: Group) -> Front {
        if self.pool.config.mutations.has(Mutation::ReuseFrontTooSoon) {
            self.books.slots.give_away(&mut group);
        }
        while let Some(displaced) = self.books.slots.drop_next(&mut group) {
            self.displaced(displaced);
        }
        let leaving = std::mem::take(&mut group.leavers).into_iter();
        let mut leavers: Vec<Leaver> =
            leaving.filter_map(|leaver| self.claim_leaver(leaver)).collect();
        let from = leavers.first().map_or(0, |leaver: &Leaver| leaver.slot);
        for leaver in &mut leavers {
            // The ring may end within the group.
            leaver.at = leaver.slot.wrapping_sub(from) as usize;
            if leaver.slot < from {
                leaver.at = (leaver.slot + self.books.slots.count() - from) as usize;
            }
        }
        let is_free = leavers.is_empty() && self.books.slots.is_free_run(group.run());
        let mut group = Some(group);
        if is_free {
            self.end_front(group.take());
        }
        Front { group, leavers, staging: Staging::new(0) }
    }

    fn claim_leaver(&mut self, leaving: Moving) -> Option<Leaver> {
        let (page, slot, goes) = (leaving.page(), leaving.slot(), leaving.goes());
        let (at, is_whole, lsn) = (0, false, Lsn::ZERO);
        let (moving, claim) = match goes {
            Goes::Home if self.stays_in_memory(page) => return None,
            Goes::Home => {
                let claim = self.books.slots.claim_leaver(slot);
                (None, Some(register(&mut self.books, claim)))
            }
            Goes::To(_)
                if self.pool.config.mutations.has(Mutation::DropBasesAtFront)
                    && self.books.slots.keeps_base(slot) =>
            {
                let moved = self.books.slots.moved(leaving, false);
                assert_eq!(moved, Moved::Stays, "a base is not dropped");
                self.books.slots.release_base(slot);
                self.detach(page, slot);
                return None;
            }
            Goes::To(_) => (Some(leaving), None),
        };
        Some(Leaver { page, slot, goes, moving, claim, at, is_whole, lsn })
    }

    /// The rotating tier drops a page that is in memory without a write: its frame takes over what
    /// home lacks [S0 5]. Whether it did.
    fn stays_in_memory(&mut self, page: PageId) -> bool {
        let frames = &self.pool.memory.frames;
        if !self.books.slots.rotates() {
            return false;
        }
        let Place::Memory(id) = self.partition.find(&self.books, frames, page) else {
            return false;
        };
        let Some(guard) = frames.try_exclusive(id) else { return false };
        let slot = guard.frame().slot().expect("what leaves the log has a slot");
        let changed = self.books.slots.changes(slot, self.pool.restart.any_base());
        self.taken_back(&guard, changed);
        true
    }

    /// The group has left, or waits for slots that still hold something.
    fn end_front(&mut self, group: Option<Group>) {
        let gone = group.map(|group| self.books.slots.gone(group));
        if gone == Some(Gone::Free) {
            self.partition.room.notify_all();
        }
    }
}

/// A section in which no task reads `slot` (F3). `None` in a world that is dead.
fn enter_unread<'p>(
    pool: &'p BufferPool,
    partition: &'p Partition,
    slot: u32,
) -> Option<Section<'p>> {
    loop {
        let section = Section::enter(pool, partition);
        if !section.books.slots.is_read(slot) {
            return Some(section);
        }
        drop(section);
        sleep(READ_NAP);
        if dead() {
            return None;
        }
    }
}

impl Front {
    /// The second chances: where each is written, and its bytes.
    pub fn moves(&self) -> impl Iterator<Item = (u32, &PageBuf)> {
        self.leavers.iter().filter(|leaver| leaver.is_whole).filter_map(|leaver| {
            let Goes::To(to) = leaver.goes else { return None };
            Some((to?, &self.staging.pages()[leaver.at]))
        })
    }

    /// Reads the group; what that does not give is read one by one.
    pub fn stage(&mut self, pool: &BufferPool, partition: &Partition) {
        let span = self.leavers.last().map_or(0, |leaver| leaver.at + 1);
        let mut staging = Staging::new(span);
        let Some(from) = self.leavers.first().map(|leaver| leaver.slot) else { return };
        let migration = pool.traffic.appends.and_then(|appends| appends.migration);
        let place = |leaver: &Leaver| (leaver.at, partition.slot_page(leaver.slot));
        let places = self.leavers.iter().map(place);
        read_copies(pool, &mut staging, places, |staging| match migration {
            Some(_) => self.reads_of_leavers(partition, staging),
            None => self.read_of_all(partition, from, staging),
        });
        for leaver in &mut self.leavers {
            let bytes = &staging.pages()[leaver.at];
            leaver.is_whole = pool.config.mutations.has(Mutation::SkipVerify)
                || is_copy_of(pool, leaver.page, leaver.slot, bytes);
            leaver.lsn = lsn(bytes);
        }
        self.staging = staging;
    }

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

    /// The second chances are `written`: their pages move on. Returns the slots, over all
    /// partitions.
    pub fn move_on(&mut self, pool: &BufferPool, partition: &Partition, written: bool) -> Vec<u32> {
        let mut slots = Vec::new();
        for leaver in &mut self.leavers {
            let Some(moving) = leaver.moving.take() else { continue };
            let Some(mut section) = enter_unread(pool, partition, leaver.slot) else { break };
            let books = &mut section.books;
            match books.slots.moved(moving, written && leaver.is_whole) {
                Moved::On { to, newer, is_base } => {
                    match is_base {
                        true => books.ledger.kept_moved(leaver.slot, to),
                        false => books.stats.second_chances += 1,
                    }
                    section.copy_moved((leaver.page, leaver.lsn), (leaver.slot, to), newer);
                    slots.push(section.number(to));
                }
                // F1.
                Moved::Home(claim) => leaver.claim = Some(register(books, claim)),
                Moved::Dropped(displaced) => section.displaced(displaced),
                // A base that cannot move keeps its group.
                Moved::Stays => {}
            }
        }
        slots
    }

    /// Brings home what must go there, in a task of its own, and then lets the group go.
    pub fn let_go(self, pool: &BufferPool, partition: &Partition) {
        let Some(run) = self.group.as_ref().map(Group::run) else { return };
        if self.leavers.iter().all(|leaver| leaver.claim.is_none()) {
            let mut section = Section::enter(pool, partition);
            if !pool.restart.rules.keeps_bases || section.books.slots.is_free_run(run) {
                return section.end_front(self.group);
            }
        }
        let slot = partition.first_slot;
        spawn_run(pool, "front group", move |pool| {
            Homeward::of(pool, pool.memory.partition_of_slot(slot), self).bring();
        });
    }
}

/// The pages of a group that are written home, in page order.
struct Homeward<'p> {
    pool: &'p BufferPool,
    partition: &'p Partition,
    group: Option<Group>,
    leavers: Vec<Leaver>,
    staging: Staging,
}

impl<'p> Homeward<'p> {
    fn of(pool: &'p BufferPool, partition: &'p Partition, front: Front) -> Homeward<'p> {
        let Front { group, mut leavers, staging } = front;
        leavers.retain(|leaver| leaver.claim.is_some());
        leavers.sort_unstable_by_key(|leaver| leaver.page);
        Homeward { pool, partition, group, leavers, staging }
    }

    fn bring(mut self) {
        let BufferPool { config, restart, .. } = self.pool;
        let (pool, partition) = (self.pool, self.partition);
        let run = self.group.as_ref().map(Group::run);
        let take = |leaver: &mut Leaver| leaver.claim.take().expect("who goes home has a claim");
        let mut claims: Vec<Claim> = self.leavers.iter_mut().map(take).collect();
        for (leaver, claim) in self.leavers.iter_mut().zip(&claims) {
            let bytes = &mut self.staging.pages_mut()[leaver.at];
            leaver.is_whole = leaver.is_whole || rebuild(pool, partition, claim, bytes).is_ok();
        }
        if config.mutations.has(Mutation::FrontCleanBeforeHome) {
            claims.drain(..).for_each(|claim| end_claim(pool, claim, Cleaned::AtHome));
        }
        let at_home = self.write().is_ok();
        let outcome = |leaver: &Leaver| match (leaver.is_whole, at_home) {
            (true, true) => Cleaned::AtHome,
            (false, _) => Cleaned::Damaged,
            (true, false) => Cleaned::NotYet,
        };
        for (claim, leaver) in claims.into_iter().zip(&self.leavers) {
            end_claim(pool, claim, outcome(leaver));
        }
        if restart.rules.keeps_bases && self.settle().is_err() {
            // What is not durable elsewhere stays; the next writer gets the error.
            return Section::enter(pool, partition).end_front(self.group);
        }
        for leaver in &self.leavers {
            let Some(mut section) = enter_unread(pool, partition, leaver.slot) else { return };
            if outcome(leaver) == Cleaned::AtHome
                && let Some(displaced) = section.books.slots.dropped(leaver.page, leaver.slot)
            {
                section.displaced(displaced);
            }
        }
        let number = |leaver: &Leaver| partition.first_slot + leaver.slot;
        restart.harden(pool, &self.leavers.iter().map(number).collect::<Vec<u32>>());
        Section::enter(pool, partition).end_front(self.group);
        // A failure stops the pool, and the next writer reports it.
        let freed = free_bases(pool, partition, run);
        let _failed = freed.and_then(|()| pool.log_buf_writes(Logged::Full));
    }

    /// Writes the whole pages home, neighbours together. Pages of a block go in small batches, one
    /// of which is filled while another is written [S2 3.1].
    fn write(&self) -> Result<(), PoolError> {
        let whole = self.leavers.iter().filter(|leaver| leaver.is_whole);
        let whole: Vec<(PageId, &PageBuf)> =
            whole.map(|leaver| (leaver.page, &self.staging.pages()[leaver.at])).collect();
        let migration = self.pool.traffic.appends.and_then(|appends| appends.migration);
        bring_home(self.pool, &whole, migration.unwrap_or(whole.len().max(1)))
    }

    /// F4: home has durably what was written there, and the table on flash knows it, and where the
    /// others went.
    fn settle(&self) -> Result<(), PoolError> {
        let mutations = self.pool.config.mutations;
        if !self.leavers.is_empty() && !mutations.has(Mutation::ReuseBeforeHomeSync) {
            self.pool.sync_home()?;
        }
        if !mutations.has(Mutation::ReuseBeforeTable) {
            self.pool.harden_table()?;
        }
        if mutations.has(Mutation::ReuseBeforeHomeSync) {
            let mut books = self.partition.books.lock();
            for leaver in &self.leavers {
                books.ledger.keep_no_longer(leaver.slot);
                books.slots.unpin(leaver.slot);
            }
        }
        Ok(())
    }
}

/// F5. The group counts as stuck meanwhile: a task that has a page latched that this waits for may
/// wait for room itself, and gets the answer that there is none.
fn free_bases(
    pool: &BufferPool,
    partition: &Partition,
    group: Option<Run>,
) -> Result<(), PoolError> {
    let bases: Vec<PageId> = {
        let books = partition.books.lock();
        group.into_iter().flat_map(|run| books.slots.bases_in(run)).collect()
    };
    if bases.is_empty() || !pool.restart.rules.keeps_bases {
        return Ok(());
    }
    for page in bases {
        Flush { pool, below: Lsn::MAX }.page(page)?;
    }
    pool.sync_home()?;
    if !pool.config.mutations.has(Mutation::ReuseBeforeTable) {
        pool.harden_table()?;
    }
    // Groups that could not leave do, if their bad pages were rebuilt elsewhere.
    if partition.books.lock().slots.end_stuck() {
        partition.room.notify_all();
    }
    Ok(())
}

/// F2. What is rebuilt may be newer than the copy was, so the log goes first.
fn rebuild(
    pool: &BufferPool,
    partition: &Partition,
    claim: &Claim,
    bytes: &mut PageBuf,
) -> Result<(), PoolError> {
    let BufferPool { devices, durability, .. } = pool;
    devices.counts.lock().flash_faults += 1;
    let read = io::run(&*devices.home, vec![PageIo::read(claim.page().0, [&mut *bytes])]);
    let (tier, page) = (Tier::Home, claim.page());
    let read = read.map_err(|source| PoolError::Read { tier, page, source: Arc::new(source) });
    let is_whole = read.is_ok() && verify(bytes, page).is_ok();
    let is_same = is_whole
        && pool.config.restart.kind.is_journalled()
        && partition.books.lock().slots.may_be(claim.slot(), lsn(bytes));
    if !is_same {
        if pool.restart.rules.is_persistent {
            // As in `rescue`: the log need not have it, and home, whole but old, would pass.
            let tier = Tier::Flash;
            return Err(PoolError::Damaged { tier, page, damage: Damage::Checksum });
        }
        let repaired = pool.repair_from_log(page, claim.rec_lsn(), bytes, is_whole);
        repaired.map_err(|error| first_cause(read, error))?;
        terrace_page::seal(bytes);
    }
    durability.write_ahead(lsn(bytes))
}
