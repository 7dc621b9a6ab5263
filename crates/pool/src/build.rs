//! Building the partitions of a pool, and filling their slots with what opening found.
//!
//! - B1: partitions share nothing while they are built. With many slots each is built by a task of
//!   its own, so that the threads of a real world share the work.
//! - B2: slots are filled in batches: first what was found of each is read, and the place of its
//!   page in the directory looked at; then they are entered, one after the other. A large
//!   directory is in no cache, and the looks of a batch wait for memory together.
//!
//! What the books of a flash tier will take of memory can be asked before (`Metadata`).
//!
//! - Idea: directory, slots, orders, ghosts and tables are memory that could have been frames. The
//!   tier of 2011 took 88 bytes for each page of flash, a hundredth of it, and its comparisons left
//!   that out; the FASC paper charges it [S2 7.3].
//! - M1: what is charged is what an open pool of this configuration allocates, rounded up to whole
//!   frames. The structures of one partition, the largest, are built for it, and asked.
//! - M2: what comes and goes is not in it: the bytes of runs on their way home, and the records of
//!   a table that are still to be written.
//! - M3: TAC's temperatures count as if every extent of home had been asked for.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use terrace_page::{FrameId, PAGE_SIZE, PageId};
use terrace_policy::{
    Costs, Filling, FramePolicy, MemoryPolicy, QueueRules, Replacement, Temperatures, Tick,
};
use terrace_rt::{LeafMutex, Signal, Task, World};
use terrace_tier::{AnyOrder, Image, SlotRules};

use crate::flow::choosing::Choosing;
use crate::flow::cleaning::Sweep;
use crate::memory::directory::{Directory, PageHash};
use crate::memory::evict::Waiting;
use crate::memory::partition_bytes;
use crate::memory::{Books, Partition};
use crate::shares::{SlotTable, TierShares};
use crate::{PoolConfig, PoolError};
use terrace_restart::{FlashLayout, FlashRecovery, keeper_of};

/// From this number of slots on, partitions are built in parallel.
const SIDE_BY_SIDE_SLOTS: u32 = 1 << 20;
/// Slots of a batch (B2): more than memory serves at once, less than the cache nearest holds.
const BATCH_SLOTS: u32 = 64;

/// Where the memory that the books of the flash tier take comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// It is in addition to the frames, as in all but one of the papers' comparisons.
    Free,
    /// The frames: there are fewer, and together they take what was asked for.
    Charged,
}

/// Fewer frames than this are not left: one task's splits and evictions may latch them all.
const FRAMES_LEFT_MIN: u64 = 16;

/// What partitions are built from.
pub(crate) struct Plan {
    frames: u32,
    layout: FlashLayout,
    policy: MemoryPolicy,
    costs: Costs,
    queues: QueueRules,
    rules: SlotRules,
    partitions: u32,
    shares: TierShares,
    recovery: Option<Arc<FlashRecovery>>,
}

/// A slot that was found filled.
struct Found {
    slot: u32,
    hash: PageHash,
    image: Image,
}

/// A partition, and the slots, over all partitions, whose copies newer ones replaced.
type Built = (Partition, Vec<(u32, PageId)>);

impl Plan {
    pub fn new(
        config: &PoolConfig,
        layout: &FlashLayout,
        shares: &TierShares,
        recovery: Option<&Arc<FlashRecovery>>,
        costs: &Costs,
    ) -> Plan {
        let copies = config.copy_rules();
        Plan {
            frames: config.frames,
            layout: *layout,
            policy: config.memory_policy_in_use(),
            costs: *costs,
            queues: config.fasc.queues,
            rules: SlotRules {
                design: config.design,
                order: config.order_of_cleaner(),
                versions: terrace_restart::version_bits(config.restart.kind),
                tac_rule: config.tac.rule,
                costs: *costs,
                tier_slots: layout.slots,
                sketch_one_in: SlotRules::usual_sketch(&config.design),
                log: config.log_sizes(),
                keeps_bases: copies.keeps_bases,
                is_persistent: copies.is_persistent,
                waits_for_table: copies.waits_for_table,
            },
            partitions: config.partitions_count(),
            shares: shares.clone(),
            recovery: recovery.map(Arc::clone),
        }
    }

    /// All partitions in order, and the slots whose copies newer ones replaced, or which cannot be
    /// kept.
    pub fn build(self: Arc<Plan>, world: &World) -> (Box<[Partition]>, Vec<(u32, PageId)>) {
        let is_large = self.recovery.is_some() && self.layout.slots >= SIDE_BY_SIDE_SLOTS;
        let built: Vec<Built> = if is_large {
            self.build_side_by_side(world)
        } else {
            (0..self.partitions).map(|at| self.partition(at)).collect()
        };
        let mut doubled = Vec::new();
        let partitions = built.into_iter().map(|(partition, older)| {
            doubled.extend(older);
            partition
        });
        (partitions.collect(), doubled)
    }

    fn build_side_by_side(self: &Arc<Plan>, world: &World) -> Vec<Built> {
        let built: Arc<LeafMutex<BTreeMap<u32, Built>>> = Arc::default();
        let tasks: Vec<Task> = (0..self.partitions)
            .map(|at| {
                let (plan, built) = (Arc::clone(self), Arc::clone(&built));
                world.spawn("partition", move || {
                    let partition = plan.partition(at);
                    built.lock().insert(at, partition);
                })
            })
            .collect();
        tasks.into_iter().for_each(Task::join);
        let built = std::mem::take(&mut *built.lock());
        built.into_values().collect()
    }

    /// How many of `total` belong to partition `at`, and the first: the first partitions get one
    /// more if the count is not a multiple.
    fn share(&self, total: u32, at: u32) -> (u32, u32) {
        let (each, more) = (total / self.partitions, total % self.partitions);
        (each + u32::from(at < more), each * at + at.min(more))
    }

    /// Bytes of all that is kept for each slot of the largest partition.
    fn largest_bytes(&self) -> usize {
        let ((slots, _), (frames, _)) =
            (self.share(self.layout.slots, 0), self.share(self.frames, 0));
        let table = self.table((slots, frames));
        partition_bytes(frames, &table)
    }

    /// The table of a partition; `counts` are its slots and frames.
    fn table(&self, counts: (u32, u32)) -> SlotTable {
        let order = AnyOrder::new(counts, &self.rules, &self.shares);
        SlotTable::new(counts.0, order, &self.rules, &self.shares)
    }

    fn partition(&self, at: u32) -> Built {
        let (frames_count, first_frame) = self.share(self.frames, at);
        let (slots_count, first_slot) = self.share(self.layout.slots, at);
        // The lowest frame is on top of the stack.
        let free = (first_frame..first_frame + frames_count).rev().map(FrameId).collect();
        let policy = FramePolicy::new(self.policy, frames_count, &self.costs, &self.queues);
        let table = self.table((slots_count, frames_count));
        let partition = Partition {
            directory: Directory::new(frames_count + slots_count),
            first_frame,
            frames_count,
            first_slot,
            slots_count,
            first_slot_page: self.layout.first_slot + u64::from(first_slot),
            books: LeafMutex::new(Books::new(free, policy, table)),
            room: Signal::new(),
            waiting: Waiting::default(),
            home_write_ended: Signal::new(),
            retired_hits: AtomicU64::new(0),
        };
        let older = match &self.recovery {
            Some(recovery) => self.restore(&partition, at, slots_count, recovery),
            None => BTreeMap::new(),
        };
        let older = older.into_iter().map(|(slot, page)| (first_slot + slot, page));
        (partition, older.collect())
    }

    /// Fills the slots of a new partition with what was found. Of two slots with one page the
    /// newer copy counts; the other is free, and returned, as are those that cannot be kept.
    fn restore(
        &self,
        partition: &Partition,
        at: u32,
        slots: u32,
        recovery: &FlashRecovery,
    ) -> BTreeMap<u32, PageId> {
        let mut older = BTreeMap::new();
        let mut books = partition.books.lock();
        if slots == 0 || recovery.cold().is_some() {
            return older;
        }
        let table = &mut books.slots;
        table.begin_restore(Tick(recovery.clock()));
        let mut batch = Vec::with_capacity(BATCH_SLOTS as usize);
        for first in (0..slots).step_by(BATCH_SLOTS as usize) {
            for slot in first..slots.min(first + BATCH_SLOTS) {
                match self.found(partition, at, slot, recovery) {
                    Some(Ok(found)) => batch.push(found),
                    Some(Err(page)) => drop(older.insert(slot, page)),
                    None => {}
                }
            }
            // Nothing else is in this loop, so that many looks are under way at once.
            let peek = |seen, found: &Found| seen | partition.directory.peek(found.hash);
            black_box(batch.iter().fold(0, peek));
            for Found { slot, hash, image } in batch.drain(..) {
                let is_it = |other| table.holds(other, image.page);
                if let Some(other) = partition.restore_slot(hash, slot, is_it) {
                    let others = recovery.image(partition.first_slot + other);
                    if others.and_then(|image| image.lsn) >= image.lsn {
                        older.insert(slot, image.page);
                        continue;
                    }
                    partition.move_slot(image.page, other, slot);
                    table.unfound(other);
                    older.insert(other, image.page);
                }
                table.found(slot, &image);
            }
        }
        table.end_restore();
        older
    }

    /// What is believed of `slot` of partition `at`, or the page of a copy that cannot be kept.
    fn found(
        &self,
        partition: &Partition,
        at: u32,
        slot: u32,
        recovery: &FlashRecovery,
    ) -> Option<Result<Found, PageId>> {
        let image = recovery.image(partition.first_slot + slot)?;
        let hash = PageHash::of(image.page);
        // A page that hashes to another partition was never here.
        let is_here = hash.partition(self.partitions as usize) == at as usize;
        // Another design may have left pages that this one cannot keep; the log has them. The table
        // must not go on to name them: they change, and no event would tell it.
        let may_be = image.newer.is_none() || self.rules.design.keeps_dirty_on_flash();
        let is_kept = is_here && may_be;
        Some(if is_kept { Ok(Found { slot, hash, image }) } else { Err(image.page) })
    }
}

impl PoolConfig {
    /// Bytes that the books of the flash tier will take (M1), over a home of the given number of
    /// pages.
    #[must_use]
    pub fn metadata_bytes(&self, home_pages: u64) -> u64 {
        let slots = if self.design.uses_flash() { self.flash_slots } else { 0 };
        if slots == 0 {
            return 0;
        }
        // Sizes do not depend on what requests cost.
        let costs = Costs::PUBLISHED;
        let layout = FlashLayout::new(slots, self.restart.kind);
        let replacement = self.design.replacement;
        let shares = TierShares::new(
            replacement,
            Temperatures::new(self.tac.costs, 1),
            Filling::new(slots, 1.0),
            &costs,
        );
        let plan = Plan::new(self, &layout, &shares, None, &costs);
        let of_partitions = plan.largest_bytes() as u64 * u64::from(self.partitions_count());
        let of_temperatures = match replacement {
            Replacement::Temperature => Temperatures::bytes_for(home_pages) as u64,
            _ => shares.bytes() as u64,
        };
        let of_choosing = Choosing::new(self, &costs).map_or(0, |choosing| choosing.bytes());
        let of_keeper =
            keeper_of(&self.of_restart(), &layout, None).map_or(0, |keeper| keeper.bytes());
        let of_sweep = Sweep::of(self.design.cleaning, slots, self.lambda).bytes();
        let of_others = of_choosing + of_keeper + of_sweep;
        of_partitions + of_temperatures + of_others as u64
    }

    /// Takes the books of the flash tier from the frames, if they are charged for them: to be
    /// called once, when all else is set, for a home of the given number of pages.
    ///
    /// # Errors
    ///
    /// `Config` if the books take all of the memory.
    pub fn charge(&mut self, home_pages: u64) -> Result<(), PoolError> {
        if self.metadata == Metadata::Free {
            return Ok(());
        }
        let frames = self.metadata_bytes(home_pages).div_ceil(PAGE_SIZE as u64);
        let left =
            u64::from(self.frames).checked_sub(frames).filter(|&left| left >= FRAMES_LEFT_MIN);
        let what = "the books of the flash tier take all of the memory: a smaller flash, or more \
                    memory, or leave them uncharged";
        self.frames = left.ok_or(PoolError::Config { option: "metadata", what })? as u32;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Place;
    use crate::memory::frames::FrameTable;
    use terrace_page::Lsn;
    use terrace_policy::{History, designs, restarts};
    use terrace_rt::{Prng, Virtual, VirtualConfig};
    use terrace_tier::Gauge;

    const FRAMES: u32 = 256;
    const PAGES: u64 = 700;

    fn some_image(prng: &mut Prng) -> Option<Image> {
        let (page, lsn) = (PageId(prng.below(PAGES)), Lsn(4096 * (1 + prng.below(5))));
        let last = 1 + prng.below(1000);
        let previous = prng.chance(2).then(|| Tick(1 + prng.below(last)));
        let history = History { last: Tick(last), previous };
        let newer = prng.chance(3).then_some(lsn);
        (!prng.chance(5)).then_some(Image { page, lsn: Some(lsn), newer, history })
    }

    /// The slot of each page that counts, and the slots that gave way: of the copies that lie in
    /// their page's partition and may be kept, the newest, and of these the first.
    fn expected(
        partitions: &[Partition],
        images: &[Option<Image>],
        keeps_dirty: bool,
    ) -> (BTreeMap<PageId, u32>, BTreeMap<u32, PageId>) {
        let (mut current, mut older) = (BTreeMap::new(), BTreeMap::new());
        for (slot, image) in (0..).zip(images) {
            let here = partitions.iter().rposition(|part| part.first_slot <= slot).unwrap();
            let is_here =
                |image: &&Image| PageHash::of(image.page).partition(partitions.len()) == here;
            let Some(image) = image else { continue };
            if !is_here(&image) || (!keeps_dirty && image.newer.is_some()) {
                older.insert(slot, image.page);
                continue;
            }
            let other = current.get(&image.page).copied();
            let others = other.map(|other: u32| images[other as usize].unwrap().lsn);
            match other {
                Some(_) if others >= Some(image.lsn) => drop(older.insert(slot, image.page)),
                _ => {
                    current.insert(image.page, slot);
                    older.extend(other.map(|other| (other, image.page)));
                }
            }
        }
        (current, older)
    }

    #[test]
    fn slots_are_filled_as_a_naive_model_fills_them() {
        for seed in 0..40 {
            let mut prng = Prng::from_seed(seed);
            let slots = 100 + prng.below(900) as u32;
            let design =
                designs::find(["lc", "dw", "tac", "cac"][seed as usize % 4]).expect("a row");
            let config = PoolConfig {
                frames: FRAMES,
                design,
                restart: restarts::find("warm").expect("a row"),
                flash_slots: slots,
                partitions: 1 << prng.below(3),
                ..PoolConfig::default()
            };
            let images: Vec<_> = (0..slots).map(|_| some_image(&mut prng)).collect();
            let recovery = Arc::new(FlashRecovery::of_images(&config.of_restart(), images.clone()));
            let layout = FlashLayout::new(slots, config.restart.kind);
            let costs = Costs::PUBLISHED;
            let (temperatures, filling) =
                (Temperatures::new(config.tac.costs, 1000), Filling::new(slots, 1.0));
            let shares = TierShares::new(design.replacement, temperatures, filling, &costs);
            let plan = Plan::new(&config, &layout, &shares, Some(&recovery), &costs);
            let world = Virtual::new(VirtualConfig::default());
            let (partitions, doubled) = Arc::new(plan).build(&world.world());
            let (current, older) = expected(&partitions, &images, design.keeps_dirty_on_flash());
            assert_eq!(doubled.into_iter().collect::<BTreeMap<_, _>>(), older, "seed {seed}");
            let frames = FrameTable::new(FRAMES).expect("memory");
            for page in (0..PAGES).map(PageId) {
                let at = PageHash::of(page).partition(partitions.len());
                let books = partitions[at].books.lock();
                let found = match partitions[at].find(&books, &frames, page) {
                    Place::Flash(slot) => Some(partitions[at].first_slot + slot),
                    Place::Memory(_) | Place::Nowhere => None,
                };
                assert_eq!(found, current.get(&page).copied(), "seed {seed}, {page}");
                let Some(slot) = found else { continue };
                let (table, image) = (&books.slots, images[slot as usize]);
                let image = image.unwrap();
                assert_eq!(table.newer(slot - partitions[at].first_slot), image.newer);
            }
            for partition in &partitions {
                partition.books.lock().slots.check();
            }
            let is_dirty = |slot: &&u32| images[**slot as usize].unwrap().newer.is_some();
            let dirty = current.values().filter(is_dirty).count();
            assert_eq!(shares.gauge(Gauge::Used) as usize, current.len());
            assert_eq!(shares.gauge(Gauge::Dirty) as usize, dirty);
        }
    }
}
