//! The keeper of the table: gathers changes of slots, and has its form write them.
//!
//! - G1: records are in the order in which the states changed.
//! - G2: one task writes at a time.
//! - G3: a retired slot is free once the record of the copy that replaced it is durable. Where
//!   flash is persistent, a slot that was cleaned stays pinned until then, too.
//! - Cost: no request waits for any of it, but a checkpoint; and whatever changes the table, where
//!   the pace is that.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::{Lsn, PageId};
use terrace_rt::{LeafMutex, Mutex, Signal};

use super::entry::{BLOCK_RECORDS, Entry, Record};
use super::form::{Form, OnFlash};
use super::frontier::{Frontier, Known};
use super::kind::FormKind;
use super::{Resume, named};
use crate::FlashLayout;
use crate::keeper::{Freed, Held, Keeper};
use crate::site::{Site, TableError, Waited};

/// One in this number of slots may be retired before the table is written for their sake.
const SLOTS_PER_RETIRED: u32 = 256;
const RETIRED_MIN: usize = 4;

/// When what was told is written, beside at a checkpoint, and when something waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// When it fills a block.
    Gathered,
    /// When this number of slots were filled: once for each block that FASC writes [sources.R16].
    Filled(usize),
    /// Fills when their part of the slots is full, and when a slot outside the frontier is to be
    /// written; the rest at checkpoints alone: FaCE's segments [sources.U1].
    KeptBack(Frontiers),
    /// Before whatever changed it goes on: FASC_T's map, which is right on flash at all times [S2
    /// 7.2]. What others told meanwhile goes along.
    AtOnce,
}

/// Which slots a frontier has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Two segments' worth from each rear on: FaCE [sources.U1].
    Rears,
    /// A zone of those that benefit least: CAC [sources.U2].
    Zone,
}

/// How far a frontier reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frontiers {
    pub reach: Reach,
    /// A segment, or a zone, is this fraction (one part in `parts`) of the slots.
    pub parts: u32,
    /// Slots that are written together, at most.
    pub group: u32,
}

/// The keeper.
pub(crate) struct TableKeeper {
    pace: Pace,
    layout: FlashLayout,
    table: u64,
    /// What is told of a slot that no longer holds its page.
    free: Entry,
    pending: LeafMutex<Pending>,
    /// Held by the task that writes (G2).
    form: Mutex<Box<dyn Form>>,
    /// Records that are durable.
    durable: AtomicU64,
    news: Signal,
    is_closing: AtomicBool,
    /// A write failed, and what it was to say is lost: there is no other, so that home names no
    /// later position. The first error.
    failure: LeafMutex<Option<Arc<io::Error>>>,
    /// No slot of the zone can be reused.
    is_exhausted: AtomicBool,
}

/// What is not written yet.
#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    /// Those of `records` that fill a slot.
    filled: usize,
    /// Records gathered so far, written or not.
    gathered: u64,
    /// The same when the frontier began.
    gathered_before: u64,
    /// Slots that wait until a number of records is durable, in the order of that number.
    waiting: Vec<(u64, u32, Waited)>,
    /// What may be kept back; nothing while a frontier is being written.
    frontier: Option<Frontier>,
    known: Known,
    /// By the first slot of each partition, how many it has, and which is written next.
    rears: BTreeMap<u32, (u32, u32)>,
}

/// What of that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush<'a> {
    /// Whole blocks.
    Blocks,
    /// All that must be durable.
    All,
    /// All there is, and a frontier with these slots begins.
    Frontier(&'a [u32]),
}

impl TableKeeper {
    /// A keeper that goes on at `resume`.
    pub fn new(layout: FlashLayout, kind: FormKind, resume: Resume, pace: Pace) -> TableKeeper {
        let free = match kind {
            FormKind::Frontier => Entry::DROPPED,
            FormKind::Journal | FormKind::Chunks => Entry::FREE,
        };
        let drop_slot = |slot: &u32| Record { slot: *slot, entry: free };
        let clean_slot =
            |&(slot, page): &(u32, PageId)| Record { slot, entry: Entry::cleaned(page) };
        let cleaned = resume.cleaned.iter().map(clean_slot);
        let found = resume.found.iter().map(|&(slot, entry)| Record { slot, entry });
        let dropped = resume.dropped.iter().map(drop_slot);
        let records: Vec<Record> = found.chain(dropped).chain(cleaned).collect();
        let gathered = records.len() as u64;
        let known = match (kind, resume.known) {
            (FormKind::Frontier, None) => Known::new(layout.slots),
            (_, known) => known.unwrap_or_default(),
        };
        TableKeeper {
            pace,
            layout,
            table: resume.table,
            free,
            pending: LeafMutex::new(Pending { records, gathered, known, ..Pending::default() }),
            form: Mutex::new(kind.open(&layout, resume.form)),
            durable: AtomicU64::new(0),
            news: Signal::new(),
            is_closing: AtomicBool::new(false),
            failure: LeafMutex::new(None),
            is_exhausted: AtomicBool::new(false),
        }
    }

    fn push(&self, slot: u32, entry: Entry, fills: bool) {
        let mut pending = self.pending.lock();
        pending.records.push(Record { slot, entry });
        pending.gathered += 1;
        pending.filled += usize::from(fills);
        let is_full = match self.pace {
            Pace::Filled(slots) => fills && pending.filled == slots,
            Pace::KeptBack(frontiers) => fills && pending.filled == self.segment(frontiers),
            Pace::Gathered | Pace::AtOnce => pending.records.len() == BLOCK_RECORDS,
        };
        drop(pending);
        if is_full {
            self.news.notify_all();
        }
    }

    /// Slots of a segment.
    fn segment(&self, frontiers: Frontiers) -> usize {
        let slots = self.layout.slots.div_ceil(frontiers.parts).max(frontiers.group);
        match frontiers.reach {
            Reach::Rears => slots as usize,
            // Before it is used up.
            Reach::Zone => slots.div_ceil(2) as usize,
        }
    }

    /// A zone begins; its slots, over all partitions.
    fn zone(&self, site: &dyn Site, what: Flush<'_>) -> Vec<u32> {
        let Pace::KeptBack(Frontiers { reach: Reach::Zone, parts, .. }) = self.pace else {
            return Vec::new();
        };
        let Flush::Frontier(_) = what else { return Vec::new() };
        self.is_exhausted.store(false, Ordering::Release);
        site.begin_zone(parts)
    }

    /// Writes of what is pending what `what` says.
    fn flush(
        &self,
        site: &dyn Site,
        form: &mut dyn Form,
        what: Flush<'_>,
    ) -> Result<(), TableError> {
        if let Some(first) = self.failure() {
            return Err(failed(first));
        }
        // What a frontier in force keeps of the journal must leave it room.
        let what = match what {
            Flush::All if form.is_crowded(&self.layout) => Flush::Frontier(&[]),
            what => what,
        };
        let zone = self.zone(site, what);
        let Taken { records, upto, frontier, keeps } = self.take(site, what, zone);
        // Home must name a position, if only one at which nothing is said.
        let is_nothing = records.is_empty() && frontier.is_none();
        let table = self.on_flash(site);
        let written = match (is_nothing, what) {
            (true, Flush::Blocks) => return Ok(()),
            (true, _) if form.position() > 0 && !keeps => return Ok(()),
            // frontier.N4.
            (true, _) if form.position() > 0 => table.flash.sync(),
            _ => form.write(&table, &records, frontier.as_ref()),
        };
        written.map_err(|error| self.fail(error))?;
        if frontier.is_some() {
            self.pending.lock().frontier = frontier;
        }
        self.durable.store(upto, Ordering::Release);
        self.release_waiting(site);
        Ok(())
    }

    /// What is to be written, and how many records are safe then.
    fn take(&self, site: &dyn Site, what: Flush<'_>, zone: Vec<u32>) -> Taken {
        let mut pending = self.pending.lock();
        let mut records = std::mem::take(&mut pending.records);
        let mut frontier = None;
        let mut upto = pending.gathered;
        match what {
            Flush::Blocks => {
                let whole = records.len() - records.len() % BLOCK_RECORDS;
                pending.records = records.split_off(whole);
                upto -= pending.records.len() as u64;
                pending.filled = 0;
            }
            Flush::All => {
                if let Pace::KeptBack(_) = self.pace {
                    let Pending { frontier, known, .. } = &mut *pending;
                    // Without one in force all is written.
                    let mut none = Frontier::default();
                    let frontier = frontier.as_mut().unwrap_or(&mut none);
                    (records, pending.records) = frontier.part(records, known);
                }
                if pending.frontier.is_none() {
                    pending.filled = 0;
                }
            }
            Flush::Frontier(slots) => {
                pending.frontier = None;
                pending.filled = 0;
                let (written, _) = Frontier::default().part(records, &mut pending.known);
                records = written;
                let since = Lsn(site.log().last_lsn().0 + 1);
                pending.gathered_before = upto;
                let ahead = self.slots_from_rears(&pending).into_iter().chain(zone);
                frontier = Some(Frontier::new(since, ahead.chain(slots.iter().copied())));
            }
        }
        Taken { records, upto, frontier, keeps: !pending.records.is_empty() }
    }

    /// From each rear on, two segments' worth of the partition's slots.
    fn slots_from_rears(&self, pending: &Pending) -> Vec<u32> {
        let Pace::KeptBack(frontiers) = self.pace else { return Vec::new() };
        let of_partition = |(&first, &(count, rear)): (&u32, &(u32, u32))| {
            let segment = count.div_ceil(frontiers.parts).max(frontiers.group);
            let ahead = (2 * segment).min(count);
            (0..ahead).map(move |at| first + (rear - first + at) % count)
        };
        pending.rears.iter().flat_map(of_partition).collect()
    }

    /// Notes that `slots` are about to be written. Whether the frontier has them.
    fn note_rears(&self, site: &dyn Site, slots: &[u32]) -> bool {
        let firsts: Vec<(u32, u32)> =
            slots.iter().map(|&slot| (slot, site.span_of(slot).start)).collect();
        let mut pending = self.pending.lock();
        for of_partition in firsts.chunk_by(|a, b| a.1 == b.1) {
            let first = of_partition[0].1;
            let count = site.span_of(first).len() as u32;
            let mut high = first;
            // Those behind the end of the ring, if it ends among them.
            let is_wrapped = of_partition.iter().any(|it| it.0 - first > count / 2)
                && of_partition.iter().any(|it| it.0 - first < count / 4);
            for slot in of_partition.iter().map(|it| it.0) {
                if !is_wrapped || slot - first < count / 2 {
                    high = high.max(slot);
                }
            }
            pending.rears.insert(first, (count, first + (high + 1 - first) % count));
        }
        let frontier = pending.frontier.as_ref();
        frontier.is_some_and(|frontier| slots.iter().all(|&slot| frontier.has(slot)))
    }

    fn on_flash<'a>(&'a self, site: &'a dyn Site) -> OnFlash<'a> {
        let (flash, now) = (site.flash(), site.now().0);
        OnFlash { flash, layout: &self.layout, table: self.table, now }
    }

    /// G3.
    fn release_waiting(&self, site: &dyn Site) {
        let durable = self.durable.load(Ordering::Acquire);
        let released: Vec<(u64, u32, Waited)> = {
            let mut pending = self.pending.lock();
            let upto = pending.waiting.partition_point(|&(upto, ..)| upto <= durable);
            pending.waiting.drain(..upto).collect()
        };
        for (_, slot, waited) in released {
            site.release(slot, waited);
        }
    }

    /// `slot` waits for all that was told so far.
    fn wait(&self, slot: u32, waited: Waited) {
        let mut pending = self.pending.lock();
        let upto = pending.gathered;
        pending.waiting.push((upto, slot, waited));
        let is_many = pending.waiting.len() == self.retired_max();
        drop(pending);
        if is_many {
            self.news.notify_all();
        }
    }

    fn retired_max(&self) -> usize {
        ((self.layout.slots / SLOTS_PER_RETIRED) as usize).max(RETIRED_MIN)
    }

    /// Whether something is to be written now, and what of it.
    fn work(&self) -> Option<Flush<'static>> {
        let pending = self.pending.lock();
        let waits = pending.waiting.len() >= self.retired_max();
        let is_block = pending.records.len() >= BLOCK_RECORDS;
        match self.pace {
            Pace::KeptBack(frontiers) if self.is_over(&pending, frontiers) => {
                Some(Flush::Frontier(&[]))
            }
            Pace::Filled(slots) if pending.filled >= slots => Some(Flush::All),
            _ if waits => Some(Flush::All),
            Pace::KeptBack(_) => None,
            _ => is_block.then_some(Flush::Blocks),
        }
    }

    /// Whether the frontier in force has served: a segment is full, or the zone used up. If nothing
    /// can be reused, little has to have changed for another zone to be worth a try.
    fn is_over(&self, pending: &Pending, frontiers: Frontiers) -> bool {
        let segment = self.segment(frontiers);
        let told = (pending.gathered - pending.gathered_before) as usize;
        let is_exhausted = self.is_exhausted.load(Ordering::Acquire);
        pending.filled >= segment || (is_exhausted && told * 4 >= segment)
    }

    fn write(&self, site: &dyn Site, what: Flush<'_>) -> Result<(), TableError> {
        let mut form = self.form.lock();
        self.flush(site, &mut **form, what)?;
        let tidied = form.tidy(&self.on_flash(site));
        tidied.map_err(|error| self.fail(error))
    }

    /// What the table was to say is lost.
    fn fail(&self, error: io::Error) -> TableError {
        failed(Arc::clone(self.failure.lock().get_or_insert_with(|| Arc::new(error))))
    }

    fn failure(&self) -> Option<Arc<io::Error>> {
        self.failure.lock().clone()
    }
}

/// What was taken to be written.
struct Taken {
    records: Vec<Record>,
    /// The number of records that are safe once the write is durable.
    upto: u64,
    /// What begins then.
    frontier: Option<Frontier>,
    /// Whether something is kept back.
    keeps: bool,
}

fn failed(source: Arc<io::Error>) -> TableError {
    TableError::Flash { source }
}

impl Keeper for TableKeeper {
    /// frontier.N1.
    fn before_writes(&self, site: &dyn Site, slots: &[u32]) -> Result<(), TableError> {
        let Pace::KeptBack(Frontiers { reach: Reach::Rears, .. }) = self.pace else {
            // What is written outside of a zone, in its page's own slot, is told at checkpoints.
            return Ok(());
        };
        if self.note_rears(site, slots) {
            return Ok(());
        }
        let mut form = self.form.lock();
        match self.note_rears(site, slots) {
            true => Ok(()),
            false => self.flush(site, &mut **form, Flush::Frontier(slots)),
        }
    }

    fn filled(&self, site: &dyn Site, held: &Held) {
        let history = held.history.unwrap_or_else(|| terrace_policy::History::once(site.now()));
        self.push(held.slot, Entry::of(held.page, held.lsn, held.newer, history, site.now()), true);
    }

    fn cleaned(&self, _site: &dyn Site, slot: u32, page: PageId) {
        self.push(slot, Entry::cleaned(page), false);
    }

    fn freed(&self, _site: &dyn Site, slot: u32, _page: PageId, _why: Freed) {
        self.push(slot, self.free, false);
    }

    fn wanted(&self) {
        if let Pace::KeptBack(Frontiers { reach: Reach::Zone, .. }) = self.pace {
            self.is_exhausted.store(true, Ordering::Release);
            self.news.notify_all();
        }
    }

    fn wants_unlogged(&self) -> bool {
        // The drop of the old copy may be lost with the last block.
        true
    }

    fn retired(&self, _site: &dyn Site, slot: u32) {
        self.push(slot, self.free, false);
        self.wait(slot, Waited::Retired);
    }

    fn unpin_later(&self, _site: &dyn Site, slot: u32) {
        self.wait(slot, Waited::Pinned);
    }

    fn harden(&self, site: &dyn Site, _slots: &[u32]) -> Result<(), TableError> {
        match self.pace {
            Pace::Gathered | Pace::Filled(_) | Pace::KeptBack(_) => Ok(()),
            Pace::AtOnce => self.checkpoint(site).map(drop),
        }
    }

    fn checkpoint(&self, site: &dyn Site) -> Result<u64, TableError> {
        let mut form = self.form.lock();
        self.flush(site, &mut **form, Flush::All)?;
        Ok(named(self.table, form.position()))
    }

    fn run(&self, site: &dyn Site) {
        while !self.is_closing.load(Ordering::Acquire) {
            let seen = self.news.seen();
            if let Some(what) = self.work().filter(|_| self.failure().is_none()) {
                // The table stays as it is; the next checkpoint fails too, and home disowns it.
                let _failed: Result<(), TableError> = self.write(site, what);
                continue;
            }
            self.news.wait(seen);
        }
    }

    fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.news.notify_all();
    }

    fn bytes(&self) -> usize {
        self.form.lock().bytes() + self.pending.lock().known.bytes()
    }
}
