//! What a replay does around the table of a design that appends: the three of FaCE, the rotating
//! tier, HeteroDrive and FASC [S2].
//!
//! - L1: what is done is done in the pool's order: a front group is named, the group of victims
//!   gets slots behind the second chances, both are written, and then the front is free.
//! - L2: there is one partition; no task reads a slot while its group leaves.
//! - L3: a group whose pages are written home is gone when home has written them: all together, or
//!   of a block two batches at a time. Until then its slots are not free, what they hold is still
//!   found, and second chances have less room. If no slot is free and no group may leave, a client
//!   that needs a frame waits. Nothing else waits for a device.
//! - L4: a pool with few frames for its groups has one partition, with one log: then all clients
//!   wait for the same slots, and devices that have served what they have are idle meanwhile. Where
//!   the pool has several logs, clients that meet another one go on, and no device is idle.

use super::core_tier::{CoreTier, Now, candidate, number};
use super::queues::Moment;
use super::residents::Residents;
use super::shared::id;
use super::sweeps::Sweeps;
use super::{Allocated, FlashSetup, FlashTier, Held, Log, Memory, Traffic};
use crate::places::Places;
use terrace_page::{Lsn, SlotId};
use terrace_policy::{Batch, Cleaning as CleaningRule, Design, History, Tick};
use terrace_tier::{
    Appending, Candidate, Cleaned, Ended, Front, Goes, Gone, Leaver, LogRules, Moved, SlotOrder,
    SlotRules, UntilSync, Version,
};

/// The pool has as many frames, at least, in each partition for each page of a group.
const FRAMES_PER_GROUP: u32 = 64;

/// What is known beside the table of a design that appends.
pub struct Appends {
    batch: Batch,
    group: u32,
    migration: usize,
    /// Whether all clients wait for the same slots (L4).
    is_alone: bool,
    /// Groups on their way home (L3).
    homeward: Vec<Homeward>,
    sweeps: Option<Sweeps>,
}

/// A group on its way home.
struct Homeward {
    front: Front,
    /// Pages that are to be written home, and where they are until then.
    pages: Vec<(u32, u32)>,
    /// Pages that home is still to be sent, in batches, the last first.
    rest: Vec<Vec<u32>>,
    /// When each batch that was sent is written.
    sent: Vec<Moment>,
}

impl Homeward {
    /// When its next batch is written; at once, if there is none.
    fn next(&self) -> Moment {
        self.sent.iter().copied().min().unwrap_or(0)
    }
}

/// Slots that leave together, and where their pages go.
struct Leaves {
    front: Front,
    home: Vec<(u32, u32)>,
    again: Vec<Leaver>,
}

/// The rules of a table of `design`, and what is known beside it if it appends.
pub fn rules(design: Design, memory: &Memory, setup: &FlashSetup) -> (SlotRules, Option<Appends>) {
    let (slots, log) = (setup.slots, setup.log);
    let rules = SlotRules::of_cache(design, slots, setup.costs);
    let Some(batch) = design.batch() else { return (rules, None) };
    let frames = memory.policy.map_or(u32::MAX, |(_, frames)| frames);
    let sizes = log.sizes(batch, frames, slots);
    let appends = Appends {
        batch,
        group: sizes.group,
        migration: log.migration.max(1) as usize,
        is_alone: frames / FRAMES_PER_GROUP < log.asked(batch).saturating_mul(2),
        homeward: Vec::new(),
        sweeps: (design.cleaning == CleaningRule::Sweeps).then(|| Sweeps::new(setup.cleaning)),
    };
    (SlotRules { log: sizes, ..rules }, Some(appends))
}

impl Allocated for Appends {
    fn bytes(&self) -> usize {
        self.sweeps.as_ref().map_or(0, Sweeps::bytes)
    }
}

impl<O: SlotOrder> CoreTier<'_, O> {
    fn appends(&mut self) -> &mut Appends {
        self.appends.as_mut().expect("a design that appends")
    }

    /// A group begins to leave.
    fn begin_front(&mut self, mut front: Front, residents: &mut Residents) -> Leaves {
        let leavers = std::mem::take(&mut front.leavers);
        while let Some(displaced) = self.table.drop_next(&mut front) {
            self.lost(displaced);
        }
        let mut home = Vec::with_capacity(leavers.len());
        let mut again = Vec::with_capacity(leavers.len());
        for leaver in leavers {
            let page = number(leaver.page());
            match (leaver.goes(), residents.get_mut(page)) {
                (Goes::Home, Some(frame)) if self.table.rotates() => {
                    frame.dirty = true;
                    self.changes(page);
                }
                (Goes::Home, _) => home.push((page, leaver.slot())),
                (Goes::To(_), _) => again.push(leaver),
            }
        }
        Leaves { front, home, again }
    }

    /// What goes somewhere is read from flash, with one read, or of a block with one for each run.
    fn read_front(&mut self, leaves: &Leaves, io: &mut Traffic) {
        let mut slots = Vec::with_capacity(leaves.home.len() + leaves.again.len());
        slots.extend(leaves.home.iter().map(|row| row.1));
        slots.extend(leaves.again.iter().map(Leaver::slot));
        slots.sort_unstable();
        let is_block = self.appends().batch == Batch::Block;
        for run in slots.chunk_by(|a, b| !is_block || a + 1 == *b) {
            io.read_flash_run(run.len() as u64);
        }
    }

    /// The pages of the front go where they must; its slots are free when home has its own.
    fn let_front_go(&mut self, leaves: Leaves, io: &mut Traffic) {
        let Leaves { front, mut home, again } = leaves;
        for leaver in again {
            let page = number(leaver.page());
            let held = self.held(page);
            match self.table.moved(leaver, true) {
                Moved::On { to, .. } => self.books.copies.put(page, SlotId(to), held),
                other => unreachable!("page {page}: {other:?}"),
            }
        }
        home.sort_unstable_by_key(|&(page, _)| self.places.of(page));
        for &(page, slot) in &home {
            let claim = self.table.claim_leaver(slot);
            let ended = self.table.cleaned(claim, Cleaned::AtHome, UntilSync::Reusable);
            assert_eq!(ended, Ended::Clean, "page {page}");
            self.books.copies.set(page, Held::Clean);
        }
        let numbers: Vec<u32> = home.iter().map(|row| row.0).collect();
        let appends = self.appends();
        let at_once = if appends.batch == Batch::Block { appends.migration } else { usize::MAX };
        let rest = numbers.chunks(at_once).rev().map(<[u32]>::to_vec).collect();
        appends.homeward.push(Homeward { front, pages: home, rest, sent: Vec::new() });
        self.end_homeward(io);
    }

    /// Batches follow those that home has written, and groups are gone of which it has all.
    fn end_homeward(&mut self, io: &mut Traffic) {
        let places = self.places;
        let homeward = &mut self.appends().homeward;
        for group in homeward.iter_mut() {
            group.sent.retain(|&written| written > io.now());
            while group.sent.len() < LogRules::MIGRATIONS
                && let Some(batch) = group.rest.pop()
            {
                let written = write_home(&batch, places, io);
                group.sent.extend((written > io.now()).then_some(written));
            }
        }
        let gone: Vec<Homeward> = homeward.extract_if(.., |group| group.sent.is_empty()).collect();
        gone.into_iter().for_each(|group| self.end(group));
    }

    fn end(&mut self, Homeward { front, pages, .. }: Homeward) {
        for (page, slot) in pages {
            if let Some(displaced) = self.table.dropped(id(page), slot) {
                self.lost(displaced);
            }
        }
        assert_eq!(self.table.gone(front), Gone::Free);
    }

    /// The client that needs a slot waits until home has written something.
    fn wait(&mut self, io: &mut Traffic) {
        let next = self.appends().homeward.iter().map(Homeward::next).min();
        let next = next.expect("slots are free, or leave");
        match self.appends().is_alone {
            true => io.all_wait_until(next),
            false => io.wait_until(next),
        }
        self.end_homeward(io);
    }

    /// A page of memory is put at the rear, if there is room. Its slot.
    fn put(
        &mut self,
        appending: &mut Appending,
        page: u32,
        now: Tick,
        residents: &mut Residents,
    ) -> Option<u32> {
        let mut frame = residents.get_mut(page);
        let is_dirty = frame.as_ref().is_some_and(|frame| frame.dirty);
        let candidate = Candidate { is_dirty, ..candidate(page, self.books.copies.slot(page)) };
        let around = Now::of(&self.books, &self.table, now);
        let (writing, changed) = self.table.put(appending, &candidate, &around)?;
        let is_newer = changed.is_some_and(|changed| changed.newer.is_some());
        if changed.is_some() {
            self.books.copies.forget(page);
        }
        if let Some(frame) = frame.as_mut() {
            frame.dirty |= is_newer;
        }
        let newer = (is_dirty || is_newer).then_some(Lsn(now.0));
        let version = Version { lsn: Lsn::ZERO, newer, history: History::once(now) };
        Some(self.wrote(writing, &version).expect("a page that is put gets a slot"))
    }

    /// What is newer than home goes there, if a sweep begins or goes on.
    pub(super) fn sweep(&mut self, io: &mut Traffic) {
        let Some(mut sweeps) = self.appends.as_mut().and_then(|appends| appends.sweeps.take())
        else {
            return;
        };
        if sweeps.is_due(self.dirty_count(), self.table.count()) {
            sweeps.begin(self.table.cleanable_pages().map(number), self.places);
        }
        while let Some(page) = sweeps.next(io.now(), |page| self.held(page) == Held::Dirty) {
            let slot = self.books.copies.slot(page).expect("a dirty page has a slot");
            io.begin_batch();
            self.clean_around(slot.0, io);
            sweeps.sent(io.batch_written_at());
        }
        self.appends().sweeps = Some(sweeps);
    }
}

impl<O: SlotOrder> Log for CoreTier<'_, O> {
    fn group(&self) -> u32 {
        self.appends.as_ref().map_or(0, |appends| appends.group)
    }

    fn gathered_together(&self) -> u32 {
        match self.table.run_ahead() {
            0 => self.group(),
            run => run,
        }
    }

    fn wants(&self, page: u32, is_dirty: bool) -> bool {
        self.table.wants(is_dirty, self.held(page).has_slot())
    }

    fn append(
        &mut self,
        waiting: &[u32],
        now: Tick,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> usize {
        self.end_homeward(io);
        let around = Now::of(&self.books, &self.table, now);
        let mut appending = self.table.append(waiting.len() as u32, &around);
        let leaves = appending.front.take().map(|front| self.begin_front(front, residents));
        if leaves.is_none() && self.table.log().is_some_and(|log| log.free_and_leaving().0 == 0) {
            self.wait(io);
        }
        let again = leaves.as_ref().map_or(&[][..], |leaves| &leaves.again);
        let mut written = Vec::with_capacity(again.len() + waiting.len());
        written.extend(again.iter().filter_map(|leaver| match leaver.goes() {
            Goes::To(to) => to,
            Goes::Home => None,
        }));
        let moved = written.len();
        for &page in waiting {
            let Some(slot) = self.put(&mut appending, page, now, residents) else { break };
            written.push(slot);
        }
        let taken = written.len() - moved;
        if let Some(leaves) = &leaves {
            self.read_front(leaves, io);
        }
        written.sort_unstable();
        for run in written.chunk_by(|a, b| a + 1 == *b) {
            io.write_flash_run(run[0], run.len() as u64);
        }
        if let Some(leaves) = leaves {
            self.let_front_go(leaves, io);
        }
        self.sweep(io);
        taken
    }
}

/// Home is sent `batch`, neighbours together. When it has written all.
fn write_home(batch: &[u32], places: &Places, io: &mut Traffic) -> Moment {
    io.begin_batch();
    let next = |a: &u32, b: &u32| places.of(*a).plus(1) == places.of(*b);
    for run in batch.chunk_by(next) {
        io.write_home(run[0]);
        run[1..].iter().for_each(|&page| io.write_home_along(page));
    }
    io.batch_written_at()
}
