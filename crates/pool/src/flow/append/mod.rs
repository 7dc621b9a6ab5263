//! The append layout: the flash is a log of pages, written in order, round and round [S2 2; S0 5].
//! FaCE and its variants write groups; the rotating tier writes page by page; FASC writes blocks
//! [S2 5].
//!
//! ```text
//!  victims                 one write            the ring of a partition's slots           one read
//!  of memory --gather--> group --append--> rear [ newest ............ oldest | leaving ] front --+
//!                          ^                                                                     |
//!                          +---------------------- second chance -------------------------------<+
//!                                                                    home <----------------------+
//! ```
//!
//! - Each partition has a log of its own, over its own run of slots: nothing is shared by appends
//!   of two partitions. A device meets a few sequential streams, each in large writes; they go
//!   round at the same pace, as pages are spread by their hash, so that what was written together
//!   is stale together. Partitions are fewer where memory is small, since each gathers a group.
//! - P1: victims that wait for their group stay in their frames, with their entries, and can be
//!   used: a page that was, or left otherwise, is no victim any more. So no buffer beside memory
//!   has to be looked into, and the write-ahead rule and the order of entries are those of
//!   `write_out`.
//! - P2: what the policy chose is done in this order: the front group is read, with one read; the
//!   group is written at the rear, with one write, second chances first; frames and entries move
//!   on; what must be written home is written; then the slots of the front group are free.
//!   `LogSizes::ahead` slots are kept free, or leaving, so that the rear never meets a page that is
//!   on its way.
//! - P3: a page that is newer than home counts as dirty all the while: in its old slot until its
//!   new one is written, or until home has it. Redo stays in the log until home was synced, so the
//!   slots may be overwritten before that, and the flash may vanish at any instant.
//! - P4: a page at the front that cannot leave now (a task reads it, or it is still to be redone)
//!   ends the group. If nothing can leave, victims are written home as if there were no flash.
//! - P5: FASC's log is of blocks, in any order: a group is what the open block has room for, and
//!   the front is the lightest block. Its pages are written home in small batches [S2 3.1].
//! - P6: where flash is a part of the database, changed pages are appended and stay in memory, so
//!   that the log can be cut: FaCE's checkpoint flushes to flash [sources.U1]. A page is appended
//!   once more than it would be if it waited to leave; its slot before is a base, and free when the
//!   table names the new one. What finds no slot is written home, as always.
//!
//! What leaves is the business of `front`.

mod front;

use std::cell::RefCell;

use terrace_page::{FrameId, Lsn, PageBuf, PageId};
use terrace_policy::{Batch, Touch};
use terrace_rt::{Nanos, now};
use terrace_tier::{Appending, LogSizes, Outcome, Purpose, Writing};

use crate::flow::slots::candidate;
use crate::flow::write_out::{Job, Transfer, Transfers};
use crate::io::{self, PageIo};
use crate::memory::Section;
use crate::memory::frames::Exclusive;
use crate::memory::{Partition, PolicyFrames};
use crate::{BufferPool, PoolError};
use front::Front;

/// How long one waits for slots that are leaving, before looking again.
const SLOTS_NAP: Nanos = Nanos(1_000_000);
/// How often a task looks for free slots before it writes its pages home instead.
const LOOKS_MAX: u32 = 100;

/// How pages are appended.
#[derive(Clone, Copy)]
pub(crate) struct Appends {
    /// Pages of a group, or of a block, at most.
    group: usize,
    /// Pages of a block that leaves, which are written home at once; `None` where a group leaves.
    migration: Option<usize>,
}

impl Appends {
    /// In a log of such batches, of this size.
    pub fn of(batch: Batch, sizes: &LogSizes, migration_pages: u32) -> Appends {
        let migration = (batch == Batch::Block).then_some(migration_pages as usize);
        Appends { group: sizes.group as usize, migration }
    }
}

/// What came of an attempt to make room by appending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// The number of frames that became free; if zero, other tasks are appending, and will tell.
    Freed(usize),
    /// Nothing can be appended now: victims are written home.
    Blocked,
}

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
enum Claimed<'p> {
    /// Nothing has to be, or other tasks do it: their slots will be free soon.
    Nothing,
    /// Nothing, since the front cannot leave.
    Blocked,
    Group(Group<'p>),
}

/// Slots, and what is to be written into them; and the front group that makes room for it.
struct Group<'p> {
    pool: &'p BufferPool,
    partition: &'p Partition,
    jobs: Vec<Job<'p>>,
    front: Option<Front>,
    purpose: Purpose,
}

/// Whether victims are appended now: not during a sharp checkpoint [S0 3.2] or a bulk load, nor
/// after a failure.
pub(crate) fn appends(pool: &BufferPool) -> bool {
    let BufferPool { traffic, devices, durability, .. } = pool;
    traffic.appends.is_some()
        && devices.is_usable()
        && !devices.is_over_budget()
        && !durability.wants_home()
        && !durability.is_stopped()
}

/// Frees frames of one partition, until `wanted` are free, or a group was written.
pub(crate) fn append_victims(
    pool: &BufferPool,
    partition: &Partition,
    wanted: usize,
) -> Result<Appended, PoolError> {
    let (freed, claimed) = {
        let mut section = Section::enter(pool, partition);
        let freed = section.gather_group(wanted);
        let claimed = if freed < wanted {
            let mut gathered = std::mem::take(&mut section.books.gathered);
            let claimed = section.claim_slots(&mut gathered, Purpose::Evict);
            section.books.gathered = gathered;
            claimed
        } else {
            Claimed::Nothing
        };
        (freed, claimed)
    };
    if freed > 0 {
        partition.room.notify_all();
    }
    match claimed {
        Claimed::Nothing => Ok(Appended::Freed(freed)),
        Claimed::Blocked if freed == 0 => {
            if pool.restart.rules.is_persistent {
                // What only waits for home to be synced, or for the table, can leave the front
                // after this. The next writer gets the error of a failure.
                let _failed = pool.sync_home().and_then(|()| pool.harden_table());
            }
            Ok(Appended::Blocked)
        }
        Claimed::Blocked => Ok(Appended::Freed(freed)),
        Claimed::Group(group) => match group.append() {
            Ok(written) => Ok(Appended::Freed(freed + written)),
            // What is free already is worth more than an error that others will report too.
            Err(_) if freed > 0 => Ok(Appended::Freed(freed)),
            Err(error) => Err(error),
        },
    }
}

/// Groups of victims.
impl<'p> Section<'p> {
    /// Names victims until `wanted` frames are free or a group is gathered; frees those that need
    /// no write. Returns how many.
    fn gather_group(&mut self, wanted: usize) -> usize {
        let Section { pool, partition, books } = self;
        let memory = &pool.memory;
        // Without a free slot to write into, the number that is written at once.
        let group = match books.slots.run_ahead() {
            0 => pool.traffic.appends.map_or(1, |appends| appends.group),
            run => run as usize,
        };
        let is_waiting = |it: &Gathered| {
            let frame = memory.frames.frame(partition.frame_at(it.frame.0));
            frame.holds(it.page) && frame.touch() == it.touch
        };
        books.gathered.retain(is_waiting);
        let frames = PolicyFrames {
            partition,
            frames: &memory.frames,
            takes_dirty: true,
            passed_over: RefCell::new(books.gathered.iter().map(|it| it.frame).collect()),
        };
        let mut freed = 0;
        while freed < wanted && books.gathered.len() < group {
            let Some(victim) = books.name_victim(&frames, memory.now()) else { break };
            let Some(guard) = memory.try_victim(partition, victim) else {
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
                partition.uninstall(books, &memory.frames, guard);
                freed += 1;
            }
        }
        freed
    }

    /// Takes slots for what was `gathered`, of which it leaves those for which there is no slot
    /// now, and begins to let a front group leave if few are left.
    fn claim_slots(&mut self, gathered: &mut Vec<Gathered>, purpose: Purpose) -> Claimed<'p> {
        let (pool, partition) = (self.pool, self.partition);
        // Asked again under the lock: a load that begins takes it before it fills a page.
        if gathered.is_empty() || pool.durability.wants_home() {
            return Claimed::Nothing;
        }
        let (slots, around) = self.slots_around(None);
        let mut appending = slots.append(gathered.len() as u32, &around);
        if appending.has_freed {
            partition.room.notify_all();
        }
        let front = appending.front.take().map(|group| self.claim_front(group));
        let mut jobs = Vec::new();
        let mut done = 0;
        for victim in gathered.iter() {
            if appending.room() == 0 {
                break;
            }
            done += 1;
            // One that is in use now will be named again.
            let guard = pool.memory.frames.try_exclusive(partition.frame_at(victim.frame.0));
            let Some(guard) = guard.filter(|guard| guard.frame().holds(victim.page)) else {
                continue;
            };
            let Some(writing) = self.put(&mut appending, &guard) else {
                done -= 1;
                break;
            };
            jobs.push(Job { partition, page: victim.page, guard, writing });
        }
        gathered.drain(..done);
        match (&front, jobs.is_empty()) {
            (None, true) if appending.is_blocked() => Claimed::Blocked,
            (None, true) => Claimed::Nothing,
            _ => Claimed::Group(Group { pool, partition, jobs, front, purpose }),
        }
    }

    /// The page in a latched frame gets the next slot at the rear, if there is one.
    fn put(&mut self, appending: &mut Appending, guard: &Exclusive<'_>) -> Option<Writing> {
        let (slots, around) = self.slots_around(Some(guard.frame()));
        let (writing, changed) = slots.put(appending, &candidate(guard.frame()), &around)?;
        if let Some(changed) = changed {
            self.taken_back(guard, changed);
        }
        Some(writing)
    }
}

impl Group<'_> {
    /// Reads the front group, writes the group at the rear, and lets the front group go. Returns
    /// how many frames became free.
    fn append(self) -> Result<usize, PoolError> {
        let Group { pool, partition, jobs, mut front, purpose } = self;
        let _at_work = pool.memory.at_work();
        if let Some(front) = &mut front {
            front.stage(pool, partition);
        }
        let transfers = Transfers::seal(pool, jobs, purpose);
        transfers.clear_too_soon();
        let written = write_group(pool, partition, &transfers, front.as_ref());
        let mut slots = transfers.slots();
        let freed = transfers.complete(Outcome { home: false, flash: written.is_ok() });
        if let Some(mut front) = front {
            slots.extend(front.move_on(pool, partition, written.is_ok()));
            front.let_go(pool, partition);
        }
        pool.restart.harden(pool, &slots);
        match written {
            Ok(()) | Err(None) => Ok(freed),
            Err(Some(error)) => Err(error),
        }
    }
}

/// One write, or two where the ring ends. `Err(None)` if the device failed.
fn write_group(
    pool: &BufferPool,
    partition: &Partition,
    transfers: &Transfers<'_>,
    front: Option<&Front>,
) -> Result<(), Option<PoolError>> {
    let BufferPool { devices, durability, restart, .. } = pool;
    let mut pages: Vec<(u32, &PageBuf)> =
        transfers.all.iter().filter_map(Transfer::to_slot).collect();
    pages.extend(front.into_iter().flat_map(Front::moves));
    if pages.is_empty() {
        return Ok(());
    }
    transfers.write_ahead().map_err(Some)?;
    pages.sort_unstable_by_key(|&(slot, _)| slot);
    let numbers: Vec<u32> = pages.iter().map(|(slot, _)| partition.first_slot + slot).collect();
    restart.before_writes(pool, &numbers).map_err(Some)?;
    let runs = pages.chunk_by(|a, b| a.0 + 1 == b.0);
    let ios = runs.map(|run| {
        PageIo::write(partition.slot_page(run[0].0), run.iter().map(|&(_, bytes)| bytes))
    });
    let written = io::run(devices.flash(), ios.collect());
    devices.flash_was_written(durability, written.is_ok());
    devices.counts.lock().flash_writes += pages.len() as u64;
    written.map_err(|_| None)
}

/// P6: whether changed pages are appended to bring flash up to date, not written home.
pub(crate) fn brings_to_flash(pool: &BufferPool) -> bool {
    pool.restart.rules.is_persistent && appends(pool)
}

/// P6: appends those of `batch` that still have changes from before `below` that are nowhere else.
///
/// # Errors
///
/// `Stopped` or `Journal`.
pub(crate) fn bring_to_flash(
    pool: &BufferPool,
    batch: &[(Lsn, FrameId)],
    below: Lsn,
) -> Result<(), PoolError> {
    for partition in &pool.memory.partitions {
        let waits = |&(_, id): &(Lsn, FrameId)| {
            let at = id.0.checked_sub(partition.first_frame)?;
            let frame = pool.memory.frames.frame(id);
            let (page, touch) = (frame.page()?, frame.touch());
            let is_waiting = at < partition.frames_count && frame.dirty()?.base < below;
            is_waiting.then_some(Gathered { frame: FrameId(at), page, touch })
        };
        append_all(pool, partition, batch.iter().filter_map(waits).collect())?;
    }
    Ok(())
}

fn append_all(
    pool: &BufferPool,
    partition: &Partition,
    mut waiting: Vec<Gathered>,
) -> Result<(), PoolError> {
    let mut looks = 0;
    while !waiting.is_empty() && looks < LOOKS_MAX && brings_to_flash(pool) {
        pool.durability.check_writable()?;
        let seen = partition.room.seen();
        let claimed =
            Section::enter(pool, partition).claim_slots(&mut waiting, Purpose::Checkpoint);
        match claimed {
            Claimed::Group(group) => drop(group.append()?),
            Claimed::Nothing => {
                looks += 1;
                partition.room.wait_until(seen, now() + SLOTS_NAP);
            }
            Claimed::Blocked => return Ok(()),
        }
    }
    Ok(())
}
