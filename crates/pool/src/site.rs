//! The pool as a restart method sees it, and the calls that tell it what becomes of the slots.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use terrace_device::{Device, Operation};
use terrace_page::Lsn;
use terrace_policy::{History, Tick};

use crate::memory::{Partition, partition_of};
use crate::shares::SlotTable;
use crate::{BufferPool, PoolConfig, PoolError};
use terrace_restart::{Image, Site, TableError, TableEvent, TableLog, Waited};

impl Site for BufferPool {
    fn flash(&self) -> &dyn Device {
        self.devices.flash()
    }

    fn log(&self) -> &dyn TableLog {
        self
    }

    fn now(&self) -> Tick {
        self.memory.now()
    }

    fn is_recovering(&self) -> bool {
        self.restart.is_recovering()
    }

    fn is_closing(&self) -> bool {
        self.background.is_closing()
    }

    fn images(&self, slots: Range<u32>, see: &mut dyn FnMut(u32, Vec<Option<Image>>)) {
        let after = self.memory.partitions.partition_point(|part| part.first_slot <= slots.start);
        for partition in &self.memory.partitions[after.saturating_sub(1)..] {
            let first = partition.first_slot;
            if first >= slots.end {
                break;
            }
            let books = partition.books.lock();
            let table = &books.slots;
            let part = slots.start.max(first) - first..(slots.end - first).min(table.count());
            if !part.is_empty() {
                see(first + part.start, part.map(|slot| image_of(table, slot)).collect());
            }
        }
    }

    fn span_of(&self, slot: u32) -> Range<u32> {
        let partition = self.memory.partition_of_slot(slot);
        partition.first_slot..partition.first_slot + partition.slots_count
    }

    fn release(&self, slot: u32, waited: Waited) {
        let partition = self.memory.partition_of_slot(slot);
        let mut books = partition.books.lock();
        let (slots, slot) = (&mut books.slots, slot - partition.first_slot);
        match waited {
            Waited::Retired => slots.release_retired(slot),
            Waited::Pinned if slots.is_pinned(slot) => drop(slots.unpin(slot)),
            Waited::Pinned => {}
        }
    }

    fn begin_zone(&self, parts: u32) -> Vec<u32> {
        let of_partition = |partition: &Partition| {
            let slots = partition.books.lock().slots.begin_zone(parts);
            slots.into_iter().map(|slot| partition.first_slot + slot).collect::<Vec<u32>>()
        };
        self.memory.partitions.iter().flat_map(of_partition).collect()
    }

    fn count(&self, what: TableEvent, by: u64) {
        let mut stats = self.devices.counts.lock();
        match what {
            TableEvent::Written => stats.table_writes += by,
            TableEvent::Logged => stats.table_log_bytes += by,
            TableEvent::GivenUp => stats.tables_given_up += by,
            TableEvent::Fault => stats.flash_faults += by,
        }
    }

    fn stop(&self, source: io::Error) -> TableError {
        let flash = self.devices.flash();
        of_pool(self.durability.stop_for_flash(flash, Operation::Write, source))
    }
}

impl TableLog for BufferPool {
    fn last_lsn(&self) -> Lsn {
        self.durability.journal.last_lsn()
    }

    fn durable_lsn(&self) -> Lsn {
        self.durability.journal.durable_lsn()
    }

    fn make_durable(&self, upto: Lsn) -> Result<(), TableError> {
        self.durability.journal.make_durable(upto).map_err(of_pool)
    }

    fn append(&self, payload: &[u8]) -> Option<Lsn> {
        self.durability.journal.log_flash(payload)
    }

    fn append_kept(&self, payload: &[u8]) -> Option<Lsn> {
        self.durability.journal.log_flash_kept(payload)
    }
}

/// An error of the pool, on its way through a restart method.
fn of_pool(error: PoolError) -> TableError {
    TableError::Pool { cause: Arc::new(error) }
}

/// What `slot` of a table holds now. Transitions under way count as what a restart method may rely
/// on: READY and WRITING as nothing, READING as what is read, LAZYCLEANING as newer than home
/// [sources.R20].
fn image_of(slots: &SlotTable, slot: u32) -> Option<Image> {
    if !slots.is_valid(slot) {
        return None;
    }
    Some(Image {
        page: slots.page(slot).expect("a valid slot has a page"),
        lsn: slots.version(slot),
        newer: slots.newer(slot),
        history: slots.history(slot).unwrap_or(History::once(Tick(1))),
    })
}

impl PoolConfig {
    /// Divides the pool as the flash tier of `database` on `flash` is, if there is one: what it has
    /// is found by partition. `is_needed` says whether the database needs it, so that it counts for
    /// more than many partitions.
    pub fn divide_as(&mut self, flash: &dyn Device, database: u128, is_needed: bool) {
        if let Some(found) = terrace_restart::partitions_of(flash, database) {
            self.keep_partitions(found, is_needed);
        }
    }

    /// Writes a table as [`terrace_restart::write_synthetic_table`] does, of a tier that is divided
    /// as this pool is.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn write_synthetic_table(
        &self,
        flash: &dyn Device,
        database: u128,
        stamp: u64,
    ) -> io::Result<u64> {
        let settings = self.of_restart();
        let of = |page| partition_of(page, settings.partitions as usize) as u32;
        terrace_restart::write_synthetic_table(&settings, &of, flash, database, stamp)
    }
}
