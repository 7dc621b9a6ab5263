//! Building the partitions of a pool, and filling their slots with what opening found.
//!
//! - B1: partitions share nothing while they are built. With many slots each is built by a task of
//!   its own, so that the threads of a real world share the work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use terrace_page::{FrameId, PageId};
use terrace_policy::{FramePolicy, MemoryPolicy, Temperatures, Tick};
use terrace_rt::{LeafMutex, Signal, Task, World};

use crate::PoolConfig;
use crate::directory::{Directory, PageHash};
use crate::partition::{Books, Partition};
use crate::restart::{self, FlashLayout, FlashRecovery, Image};
use crate::slots::{Gauges, SlotRules, SlotTable};

/// With so many slots, partitions are built side by side.
const SIDE_BY_SIDE_SLOTS: u32 = 1 << 20;

/// What partitions are built from.
pub(crate) struct Plan {
    frames: u32,
    layout: FlashLayout,
    policy: MemoryPolicy,
    rules: SlotRules,
    partitions: u32,
    temperatures: Arc<LeafMutex<Temperatures>>,
    gauges: Arc<Gauges>,
    recovery: Option<Arc<FlashRecovery>>,
}

/// A partition, and the slots, over all partitions, whose copies gave way to newer ones.
type Built = (Partition, Vec<(u32, PageId)>);

impl Plan {
    pub fn new(
        config: &PoolConfig,
        layout: &FlashLayout,
        temperatures: &Arc<LeafMutex<Temperatures>>,
        gauges: &Arc<Gauges>,
        recovery: Option<&Arc<FlashRecovery>>,
    ) -> Plan {
        Plan {
            frames: config.frames,
            layout: *layout,
            policy: config.memory_policy,
            rules: SlotRules {
                replacement: config.design.replacement,
                order: config.cleaner_order,
                keeps_dirty: config.design.keeps_dirty_on_flash(),
                versions: restart::version_bits(config.restart.kind),
                tac_rule: config.tac.rule,
            },
            partitions: config.partitions_count(),
            temperatures: Arc::clone(temperatures),
            gauges: Arc::clone(gauges),
            recovery: recovery.map(Arc::clone),
        }
    }

    /// All partitions in order, and the slots whose copies gave way to newer ones.
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

    fn partition(&self, at: u32) -> Built {
        let (frames_count, first_frame) = self.share(self.frames, at);
        let (slots_count, first_slot) = self.share(self.layout.slots, at);
        // The lowest frame is on top of the stack.
        let free = (first_frame..first_frame + frames_count).rev().map(FrameId).collect();
        let policy = FramePolicy::new(self.policy, frames_count);
        let table = (slots_count > 0)
            .then(|| SlotTable::new(slots_count, &self.rules, &self.temperatures, &self.gauges));
        let partition = Partition {
            directory: Directory::new(frames_count + slots_count),
            first_frame,
            frames_count,
            first_slot,
            first_slot_page: self.layout.first_slot + u64::from(first_slot),
            books: LeafMutex::new(Books::new(free, policy, table)),
            room: Signal::new(),
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
    /// newer copy counts; the other is free, and returned.
    fn restore(
        &self,
        partition: &Partition,
        at: u32,
        slots: u32,
        recovery: &FlashRecovery,
    ) -> BTreeMap<u32, PageId> {
        let mut older = BTreeMap::new();
        let mut books = partition.books.lock();
        let Some(table) = books.slots.as_mut().filter(|_| recovery.cold().is_none()) else {
            return older;
        };
        let count = self.partitions as usize;
        let found = |slot: u32| {
            // A page that hashes to another partition was never here.
            let is_here = |image: &Image| PageHash::of(image.page).partition(count) == at as usize;
            let image = recovery.image(partition.first_slot + slot).filter(is_here);
            // Another design may have left pages that this one cannot keep; the log has them.
            image.filter(|image| image.newer.is_none() || self.rules.keeps_dirty)
        };
        table.begin_restore(Tick(recovery.clock()));
        for slot in 0..slots {
            let Some(image) = found(slot) else { continue };
            match partition.find_slot(image.page, |other| table.holds(other, image.page)) {
                None => partition.restore_slot(image.page, slot),
                Some(other) if found(other).and_then(|found| found.lsn) < image.lsn => {
                    partition.move_slot(image.page, other, slot);
                    table.unfound(other);
                    older.insert(other, image.page);
                }
                Some(_) => {
                    older.insert(slot, image.page);
                    continue;
                }
            }
            table.found(slot, &image);
        }
        table.end_restore();
        older
    }
}
