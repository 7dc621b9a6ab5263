//! The designs that append: the three of FaCE, the rotating tier, HeteroDrive and FASC, over the
//! same rings and blocks of slots as the pool [S2].
//!
//! - L1: what is done is done in the pool's order: a front group is named, the group of victims
//!   gets slots behind the second chances, both are written, and then the front is free.
//! - L2: a ring or the blocks are one partition; nobody reads a slot while its group leaves.
//! - L3: a page has one slot at most; a hole has no page.
//! - L4: a group whose pages go home is gone when home has written them: all together, or of a
//!   block two batches at a time. Until then its slots are not free, what they hold is still found,
//!   and second chances have less room. If no slot is free and no group may leave, whoever needs a
//!   frame waits. Nothing else waits for a device.

use super::copies::Copies;
use super::queues::Moment;
use super::residents::Residents;
use super::sweeps::Sweeps;
use super::{Allocated, FlashSetup, FlashTier, Held, Leaving, Log, Memory, Miss, Note, Traffic};
use crate::places::Places;
use terrace_page::SlotId;
use terrace_policy::{
    Batch, BlockRules, CleanLeave, Cleaning, Design, Fronted, History, Leave, Replacement,
    SlotBlocks, SlotFifo, Tick,
};

/// A group takes one of so many frames, at most, and one of so many slots.
const PLACES_PER_GROUP_MIN: u32 = 8;
/// Batches of a block on their way home at once.
const MIGRATIONS: usize = 2;
/// Slots that are kept free, at least.
const SLOTS_AHEAD_MIN: u32 = 32;

/// How much is appended together: what the pool has unless others are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogRules {
    /// Pages of a group of FaCE, at most.
    pub group: u32,
    /// Pages of a block of FASC, at most.
    pub block: u32,
    /// Misses of a window of FASC.
    pub window: u64,
    /// Share of the slots from which on a block of FASC leaves for each that is written.
    pub full: f64,
    /// Pages of a block that are written home at once.
    pub migration: u32,
}

impl Default for LogRules {
    fn default() -> LogRules {
        LogRules { group: 64, block: 128, window: 4096, full: 0.95, migration: 8 }
    }
}

/// In which order slots are taken, and leave.
enum Order {
    Fifo(SlotFifo),
    Blocks(SlotBlocks),
}

/// A log of pages.
pub struct LogTier<'a> {
    order: Order,
    batch: Batch,
    /// Whether a page that leaves memory is written even if it is here.
    anew: bool,
    /// Whether pages that never change are.
    takes_clean: bool,
    /// Whether what home lacks stays with a page in memory.
    rotates: bool,
    group: u32,
    ahead: u32,
    migration: usize,
    copies: Copies,
    /// How many slots are newer than home, by groups of slots.
    newer_counts: Vec<u32>,
    newer_count: u32,
    sweeps: Option<Sweeps>,
    /// Groups on their way home (L4).
    leaving: Vec<Leaver>,
    places: &'a Places,
}

/// A group on its way home.
struct Leaver {
    first: SlotId,
    /// Pages that go home, and where they are until then.
    pages: Vec<(u32, SlotId)>,
    /// Pages that home is still to be sent, in batches, the last first.
    rest: Vec<Vec<u32>>,
    /// When each batch that was sent is written.
    sent: Vec<Moment>,
}

impl Leaver {
    /// When its next batch is written; at once, if there is none.
    fn next(&self) -> Moment {
        self.sent.iter().copied().min().unwrap_or(0)
    }
}

/// Slots that leave together.
#[derive(Default)]
struct Front {
    first: Option<SlotId>,
    /// Pages that go home.
    home: Vec<u32>,
    /// Pages with a second chance, where they are and where they go.
    again: Vec<(u32, SlotId, SlotId)>,
}

impl<'a> LogTier<'a> {
    pub fn new(
        pages_count: u32,
        places: &'a Places,
        (design, batch): (Design, Batch),
        memory: &Memory,
        setup: &FlashSetup,
    ) -> LogTier<'a> {
        let frames = memory.policy.map(|(_, frames)| frames);
        let (slots, rules) = (setup.slots, setup.log);
        let asked = match batch {
            Batch::Page => 1,
            Batch::Group => rules.group,
            Batch::Block => rules.block,
        };
        let room = frames.unwrap_or(u32::MAX).min(slots) / PLACES_PER_GROUP_MIN;
        let group = asked.min(room).max(1);
        let ahead = match batch {
            Batch::Block => (2 * group).max((f64::from(slots) * (1.0 - rules.full)) as u32),
            _ => (2 * group).max(SLOTS_AHEAD_MIN).min(slots / PLACES_PER_GROUP_MIN).max(group),
        };
        let order = match design.replacement {
            Replacement::BlockWeight => {
                let rules = BlockRules { block_slots: group, window_requests: rules.window };
                Order::Blocks(SlotBlocks::new(slots, rules))
            }
            other => Order::Fifo(SlotFifo::new(slots, other == Replacement::FifoSecondChance)),
        };
        LogTier {
            order,
            batch,
            anew: design.clean_leave == CleanLeave::FlashAnew,
            takes_clean: design.takes_clean_pages(),
            rotates: design.replacement == Replacement::Rotating,
            group,
            ahead,
            migration: rules.migration.max(1) as usize,
            copies: Copies::new(pages_count, slots),
            newer_counts: vec![0; slots.div_ceil(group) as usize],
            newer_count: 0,
            sweeps: (design.cleaning == Cleaning::Sweeps).then(|| Sweeps::new(setup.cleaning)),
            leaving: Vec::new(),
            places,
        }
    }

    /// Begins to let slots leave, of which up to `room` may go to the rear.
    fn claim_front(&mut self, room: u32, now: Tick, residents: &mut Residents) -> Front {
        let mut answers = Vec::new();
        let (copies, counts, group) = (&self.copies, &self.newer_counts, self.group);
        let held = |slot: SlotId| match copies.page(slot).map(|page| copies.held(page)) {
            None => Fronted::Hole,
            Some(Held::Dirty) => Fronted::Dirty,
            Some(_) => Fronted::Clean,
        };
        match &mut self.order {
            Order::Fifo(fifo) => fifo.leave(group, room, held, &mut answers),
            Order::Blocks(blocks) => {
                let newer_in = |range: std::ops::Range<u32>| counts[(range.start / group) as usize];
                blocks.leave(room, now, newer_in, held, &mut answers)
            }
        };
        let mut front = Front { first: answers.first().map(|row| row.0), ..Front::default() };
        for (slot, leave) in answers {
            let Some(page) = self.copies.page(slot) else { continue };
            match leave {
                Leave::Dropped => self.forget(page),
                Leave::Home if self.rotates && residents.get(page).is_some() => {
                    residents.get_mut(page).expect("it is there").dirty = true;
                    self.forget(page);
                }
                Leave::Home => front.home.push(page),
                Leave::Again => match self.take(now) {
                    Some(to) => front.again.push((page, slot, to)),
                    // As much room as was said to be there.
                    None => unreachable!("a second chance without a slot"),
                },
            }
        }
        front
    }

    /// What goes somewhere is read from flash, with one read, or of a block with one for each run.
    fn read_front(&self, front: &Front, io: &mut Traffic) {
        let slot_of = |page: &u32| self.slot(*page).expect("what goes home has a slot").0;
        let home = front.home.iter().map(slot_of);
        let mut slots: Vec<u32> = home.chain(front.again.iter().map(|row| row.1.0)).collect();
        slots.sort_unstable();
        let is_run = |a: &u32, b: &u32| self.batch != Batch::Block || a + 1 == *b;
        for run in slots.chunk_by(is_run) {
            io.read_flash_run(run.len() as u64);
        }
    }

    /// The pages of the front go where they must; its slots are free.
    fn let_front_go(&mut self, mut front: Front, io: &mut Traffic) {
        for &(page, from, to) in &front.again {
            let held = self.held(page);
            debug_assert_eq!(self.slot(page), Some(from), "page {page}");
            self.forget(page);
            self.fill(page, to, held);
        }
        let Some(first) = front.first else { return };
        front.home.sort_unstable_by_key(|&page| self.places.of(page));
        let at_once = if self.batch == Batch::Block { self.migration } else { usize::MAX };
        let rest = front.home.chunks(at_once).rev().map(<[u32]>::to_vec).collect();
        let slot_of = |page| (page, self.slot(page).expect("what goes home has a slot"));
        let pages: Vec<_> = front.home.iter().map(|&page| slot_of(page)).collect();
        for &(page, slot) in &pages {
            self.count_newer(slot, self.held(page), Held::Clean);
            self.copies.set(page, Held::Clean);
        }
        self.leaving.push(Leaver { first, pages, rest, sent: Vec::new() });
        self.end_leaving(io);
    }

    /// Batches follow those that home has written, and groups are gone of which it has all.
    fn end_leaving(&mut self, io: &mut Traffic) {
        let places = self.places;
        for leaver in &mut self.leaving {
            leaver.sent.retain(|&written| written > io.now());
            while leaver.sent.len() < MIGRATIONS
                && let Some(batch) = leaver.rest.pop()
            {
                let written = write_home(&batch, places, io);
                leaver.sent.extend((written > io.now()).then_some(written));
            }
        }
        let (gone, leaving) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition(|leaver| leaver.sent.is_empty());
        self.leaving = leaving;
        Vec::into_iter(gone).for_each(|leaver| self.end(leaver));
    }

    /// Whoever needs a slot waits until home has written something.
    fn wait(&mut self, io: &mut Traffic) {
        let next = self.leaving.iter().map(Leaver::next).min();
        io.wait_until(next.expect("slots are free, or leave"));
        self.end_leaving(io);
    }

    fn end(&mut self, Leaver { first, pages, .. }: Leaver) {
        for (page, slot) in pages {
            if self.slot(page) == Some(slot) {
                self.forget(page);
            }
        }
        match &mut self.order {
            Order::Fifo(fifo) => fifo.left(first),
            Order::Blocks(blocks) => blocks.left(first),
        }
    }

    /// Slots of groups that are leaving.
    fn leaving(&self) -> u32 {
        match &self.order {
            Order::Fifo(fifo) => fifo.leaving(),
            Order::Blocks(blocks) => blocks.leaving(),
        }
    }

    fn slot(&self, page: u32) -> Option<SlotId> {
        self.copies.slot(page)
    }

    fn free(&self) -> u32 {
        match &self.order {
            Order::Fifo(fifo) => fifo.free(),
            Order::Blocks(blocks) => blocks.free(),
        }
    }

    /// Slots that can be taken as one run.
    fn run(&self) -> u32 {
        match &self.order {
            Order::Fifo(_) => self.group,
            Order::Blocks(blocks) => blocks.room().min(self.group),
        }
    }

    fn take(&mut self, now: Tick) -> Option<SlotId> {
        match &mut self.order {
            Order::Fifo(fifo) => fifo.take(),
            Order::Blocks(blocks) => blocks.take(now),
        }
    }

    fn fill(&mut self, page: u32, slot: SlotId, held: Held) {
        self.count_newer(slot, Held::Nothing, held);
        self.copies.put(page, slot, held);
    }

    /// What `slot` has becomes another.
    fn count_newer(&mut self, slot: SlotId, was: Held, is: Held) {
        let in_group = &mut self.newer_counts[(slot.0 / self.group) as usize];
        for count in [in_group, &mut self.newer_count] {
            *count = *count + u32::from(is == Held::Dirty) - u32::from(was == Held::Dirty);
        }
    }

    /// What is newer than home goes there, if a sweep begins or goes on.
    fn sweep(&mut self, io: &mut Traffic) {
        let Some(mut sweeps) = self.sweeps.take() else { return };
        if sweeps.is_due(self.newer_count, self.copies.slots_count()) {
            sweeps.begin(&self.copies, self.places);
        }
        while let Some(run) = sweeps.next_run(self.places, &mut self.copies, io) {
            for slot in run {
                self.count_newer(slot, Held::Dirty, Held::Clean);
            }
        }
        self.sweeps = Some(sweeps);
    }

    /// The copy of `page`, if there is one, is a hole.
    fn forget(&mut self, page: u32) {
        let was = self.held(page);
        let Some(slot) = self.copies.forget(page) else { return };
        self.count_newer(slot, was, Held::Nothing);
        if let Order::Blocks(blocks) = &mut self.order {
            blocks.emptied(slot);
        }
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

impl Log for LogTier<'_> {
    fn group(&self) -> u32 {
        self.group
    }

    fn gathered_together(&self) -> u32 {
        match self.run() {
            0 => self.group,
            run => run,
        }
    }

    fn wants(&self, page: u32, is_dirty: bool) -> bool {
        self.anew || is_dirty || (self.takes_clean && !self.held(page).has_slot())
    }

    fn append(
        &mut self,
        waiting: &[u32],
        now: Tick,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> usize {
        self.end_leaving(io);
        let run = self.run();
        let ahead = self.ahead + waiting.len() as u32;
        let front = match self.free() + self.leaving() < ahead {
            true => self.claim_front(self.free().min(run), now, residents),
            false => Front::default(),
        };
        if self.free() == 0 && front.first.is_none() {
            self.wait(io);
        }
        let mut written: Vec<u32> = front.again.iter().map(|(_, _, to)| to.0).collect();
        let mut taken = 0;
        for &page in waiting {
            if written.len() as u32 >= run {
                break;
            }
            let Some(slot) = self.take(now) else { break };
            let is_dirty = residents.get(page).is_some_and(|frame| frame.dirty);
            let is_newer = self.held(page) == Held::Dirty;
            self.forget(page);
            self.fill(page, slot, if is_dirty || is_newer { Held::Dirty } else { Held::Clean });
            if let Some(frame) = residents.get_mut(page) {
                frame.dirty |= is_newer;
            }
            written.push(slot.0);
            taken += 1;
        }
        self.read_front(&front, io);
        written.sort_unstable();
        for run in written.chunk_by(|a, b| a + 1 == *b) {
            io.write_flash_run(run[0], run.len() as u64);
        }
        self.let_front_go(front, io);
        self.sweep(io);
        taken
    }
}

impl Allocated for LogTier<'_> {
    fn bytes(&self) -> usize {
        let order = match &self.order {
            Order::Fifo(fifo) => fifo.bytes(),
            Order::Blocks(blocks) => blocks.bytes(),
        };
        let sweeps = self.sweeps.as_ref().map_or(0, Sweeps::bytes);
        order + 4 * self.newer_counts.capacity() + sweeps + self.copies.bytes()
    }
}

impl FlashTier for LogTier<'_> {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        let Some(slot) = self.slot(miss.page) else {
            io.read_home(miss.page);
            self.sweep(io);
            return None;
        };
        io.read_flash();
        self.sweep(io);
        match &mut self.order {
            Order::Fifo(fifo) => fifo.hit(slot),
            Order::Blocks(blocks) => blocks.hit(slot, miss.tick),
        }
        Some(History::once(miss.now))
    }

    fn note(&mut self, note: Note, _: &mut Traffic) {
        if let Note::Changes(page) = note {
            self.forget(page);
        }
    }

    /// A page that need not be appended: it is here already, or home has it, and that will do.
    fn leave(&mut self, leaving: &Leaving, _: &mut Traffic) {
        assert!(!self.wants(leaving.page, leaving.dirty), "page {} is lost", leaving.page);
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.copies.held(page)
    }

    fn log(&mut self) -> Option<&mut dyn Log> {
        Some(self)
    }
}
