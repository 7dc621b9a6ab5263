//! Groups of pages that are appended together: victims of memory, and pages of the front that get
//! a second chance.

use std::cell::RefCell;

use terrace_page::{FrameId, PageBuf, PageId};
use terrace_policy::Touch;

use terrace_tier::{Appending, Changed, Freed, Outcome, Purpose, Writing};

use super::front::Front;
use crate::durability::ledger::DirtyLsns;
use crate::flow::around::candidate;
use crate::flow::written::{Job, Transfer};
use crate::io::{self, PageIo};
use crate::memory::frames::{Exclusive, Staging};
use crate::memory::{Books, Partition, PolicyFrames};
use crate::{BufferPool, PoolError};

/// A page that waits in its frame: a victim, or one that is to be brought to flash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    /// The frame, numbered within the partition.
    pub frame: FrameId,
    pub page: PageId,
    /// As it was when the frame was named.
    pub touch: Touch,
}

/// What can be appended now.
pub(super) enum Claimed<'p> {
    /// Nothing has to be, or others are at it: their slots will be free soon.
    Nothing,
    /// Nothing, since the front cannot leave.
    Blocked,
    Group(Group<'p>),
}

/// Slots, and what is to be written into them; and the front group that makes room for it.
pub(super) struct Group<'p> {
    partition: &'p Partition,
    jobs: Vec<Job<'p>>,
    front: Option<Front>,
    purpose: Purpose,
}

impl BufferPool {
    /// Names victims until `wanted` frames are free or a group is gathered; frees those that need
    /// no write. Returns how many.
    pub(super) fn gather_group(
        &self,
        partition: &Partition,
        books: &mut Books,
        wanted: usize,
    ) -> usize {
        // Without a free slot to write into, as many as are written at once.
        let group = match books.slots.run_ahead() {
            0 => self.traffic.appends.map_or(1, |appends| appends.group),
            run => run as usize,
        };
        let is_waiting = |it: &Gathered| {
            let frame = self.memory.frames.frame(partition.frame_at(it.frame.0));
            frame.holds(it.page) && frame.touch() == it.touch
        };
        books.gathered.retain(is_waiting);
        let frames = PolicyFrames {
            partition,
            frames: &self.memory.frames,
            takes_dirty: true,
            passed_over: RefCell::new(books.gathered.iter().map(|it| it.frame).collect()),
        };
        let mut freed = 0;
        while freed < wanted && books.gathered.len() < group {
            let Some(victim) = books.name_victim(&frames, self.memory.now()) else { break };
            let guard = self.memory.frames.try_exclusive(partition.frame_at(victim.0));
            let guard = guard.filter(|guard| guard.frame().page().is_some());
            let Some(guard) = guard else {
                frames.passed_over.borrow_mut().push(victim);
                continue;
            };
            let frame = guard.frame();
            if books.slots.wants(frame.rec_lsn().is_some(), frame.slot().is_some()) {
                let page = guard.frame().page().expect("a victim has a page");
                let touch = guard.frame().touch();
                books.gathered.push(Gathered { frame: victim, page, touch });
                frames.passed_over.borrow_mut().push(victim);
            } else {
                books.stats.evictions += 1;
                partition.uninstall(books, &self.memory.frames, guard);
                freed += 1;
            }
        }
        freed
    }

    /// Takes slots for what was gathered, and begins to let a front group leave if few are left.
    pub(super) fn claim_group<'p>(
        &'p self,
        partition: &'p Partition,
        books: &mut Books,
    ) -> Claimed<'p> {
        let mut gathered = std::mem::take(&mut books.gathered);
        let claimed = self.claim_slots(partition, books, &mut gathered, Purpose::Evict);
        books.gathered = gathered;
        claimed
    }

    /// The same for `gathered`, of which it leaves those for which there is no slot now.
    pub(super) fn claim_slots<'p>(
        &'p self,
        partition: &'p Partition,
        books: &mut Books,
        gathered: &mut Vec<Gathered>,
        purpose: Purpose,
    ) -> Claimed<'p> {
        if gathered.is_empty() {
            return Claimed::Nothing;
        }
        let waiting = gathered.len() as u32;
        let Books { slots, ledger, .. } = &mut *books;
        let mut appending = slots.append(waiting, &self.around(partition, ledger, None));
        if appending.has_freed {
            partition.room.notify_all();
        }
        let group = appending.front.take();
        let front = group.map(|group| self.claim_front(partition, books, group));
        let mut jobs = Vec::new();
        let mut done = 0;
        for victim in gathered.iter() {
            if appending.room() == 0 {
                break;
            }
            done += 1;
            // One that is in use now will be named again.
            let guard = self.memory.frames.try_exclusive(partition.frame_at(victim.frame.0));
            let Some(guard) = guard.filter(|guard| guard.frame().holds(victim.page)) else {
                continue;
            };
            let Some(writing) = self.put(partition, books, &mut appending, &guard) else {
                done -= 1;
                break;
            };
            jobs.push(Job { partition, page: victim.page, guard, writing });
        }
        gathered.drain(..done);
        match (&front, jobs.is_empty()) {
            (None, true) if appending.is_blocked() => Claimed::Blocked,
            (None, true) => Claimed::Nothing,
            _ => Claimed::Group(Group { partition, jobs, front, purpose }),
        }
    }

    /// The page in a latched frame gets the next slot at the rear, if there is one.
    fn put(
        &self,
        partition: &Partition,
        books: &mut Books,
        appending: &mut Appending,
        guard: &Exclusive<'_>,
    ) -> Option<Writing> {
        let frame = guard.frame();
        let Books { slots, ledger, .. } = &mut *books;
        let around = self.around(partition, ledger, Some(frame));
        let (writing, changed) = slots.put(appending, &candidate(frame), &around)?;
        if let Some(changed) = changed {
            self.taken_back(partition, books, guard, changed);
        }
        Some(writing)
    }

    /// The copy of the page in a latched frame was forgotten, as `changed` says: what it had that
    /// home lacks is the frame's to keep, as if the page had changed.
    pub(super) fn taken_back(
        &self,
        partition: &Partition,
        books: &mut Books,
        guard: &Exclusive<'_>,
        changed: Changed,
    ) {
        let frame = guard.frame();
        let slot = frame.slot().expect("a page with a copy has a slot");
        let page = frame.page().expect("a page with a copy");
        if let Some(rec_lsn) = changed.newer {
            books.set_dirty(&self.memory.frames, guard, DirtyLsns::at(rec_lsn));
        }
        self.copy_changed(partition, (page, frame), slot, (changed, Freed::Reused));
    }

    /// Reads the front group, writes the group at the rear, and lets the front group go. Returns
    /// how many frames became free.
    pub(super) fn append(&self, group: Group<'_>) -> Result<usize, PoolError> {
        let _at_work = self.memory.at_work();
        let Group { partition, jobs, mut front, purpose } = group;
        let staging = front.as_mut().map(|front| self.stage_front(partition, front));
        let transfers: Vec<Transfer<'_>> = jobs.into_iter().map(Transfer::seal).collect();
        self.clear_too_soon(&transfers);
        let written = self.write_group(partition, &transfers, front.as_ref(), staging.as_ref());
        let mut freed = 0;
        let mut slots: Vec<u32> = transfers.iter().filter_map(Transfer::slot_number).collect();
        let outcome = Outcome { home: false, flash: written.is_ok() };
        for transfer in transfers {
            freed += usize::from(self.complete(transfer, purpose, outcome));
        }
        if let (Some(mut front), Some(staging)) = (front, staging) {
            slots.extend(self.move_on(partition, &mut front, written.is_ok()));
            self.let_go(partition, front, staging);
        }
        self.harden(&slots);
        match written {
            Ok(()) | Err(None) => Ok(freed),
            Err(Some(error)) => Err(error),
        }
    }

    /// One write, or two where the ring ends. `Err(None)` if the device failed.
    fn write_group(
        &self,
        partition: &Partition,
        transfers: &[Transfer<'_>],
        front: Option<&Front>,
        staging: Option<&Staging>,
    ) -> Result<(), Option<PoolError>> {
        let mut pages: Vec<(u32, &PageBuf)> =
            transfers.iter().filter_map(Transfer::to_slot).collect();
        if let (Some(front), Some(staging)) = (front, staging) {
            let moves = front.leavers.iter().filter(|leaver| leaver.is_whole);
            let moves = moves.filter_map(|leaver| Some((leaver.to()?, leaver.bytes(staging))));
            pages.extend(moves);
        }
        if pages.is_empty() {
            return Ok(());
        }
        self.write_ahead(transfers).map_err(Some)?;
        pages.sort_unstable_by_key(|&(slot, _)| slot);
        let numbers: Vec<u32> = pages.iter().map(|(slot, _)| partition.first_slot + slot).collect();
        self.before_slot_writes(&numbers).map_err(Some)?;
        let runs = pages.chunk_by(|a, b| a.0 + 1 == b.0);
        let ios = runs.map(|run| {
            PageIo::write(partition.slot_page(run[0].0), run.iter().map(|&(_, bytes)| bytes))
        });
        let flash = self.devices.flash.as_deref().expect("a slot is on flash");
        let written = io::run(flash, ios.collect());
        self.flash_was_written(written.is_ok());
        self.stats.lock().flash_writes += pages.len() as u64;
        written.map_err(|_| None)
    }
}
