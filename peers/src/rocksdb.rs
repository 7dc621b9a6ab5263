//! RocksDB, whose log is left to the operating system: a batch for each transaction that writes, a
//! snapshot for each that reads, no compression. The cache holds all blocks, uncompressed.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, Direction, IteratorMode, Options, ReadOptions, WriteBatch,
    WriteOptions,
};

use crate::{Engine, Fault, Session, value_of};

/// Rows of a batch while it is loaded.
const LOADED_AT_ONCE: u64 = 10_000;

pub fn open(folder: &Path, rows: u64, value: usize) -> Result<Box<dyn Engine>, Fault> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(4 << 30));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(256 << 20);
    options.increase_parallelism(2);
    let db = DB::open(&options, folder)?;
    for first in (0..rows).step_by(LOADED_AT_ONCE as usize) {
        let mut batch = WriteBatch::default();
        for key in first..(first + LOADED_AT_ONCE).min(rows) {
            batch.put(key.to_be_bytes(), value_of(key, value));
        }
        db.write(batch)?;
    }
    db.flush()?;
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    Ok(Box::new(Rocks(db)))
}

struct Rocks(DB);

impl Engine for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault> {
        Ok(Box::new(Thread(&self.0)))
    }
}

struct Thread<'a>(&'a DB);

impl Session for Thread<'_> {
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault> {
        let snapshot = self.0.snapshot();
        let mut bytes = 0;
        for key in keys {
            let mut options = ReadOptions::default();
            options.set_snapshot(&snapshot);
            let value = self.0.get_pinned_opt(key.to_be_bytes(), &options)?;
            bytes += value.map_or(0, |value| value.len());
        }
        Ok(bytes)
    }

    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault> {
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.put(key.to_be_bytes(), value);
        }
        let mut options = WriteOptions::default();
        options.set_sync(false);
        self.0.write_opt(batch, &options)?;
        Ok(())
    }

    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault> {
        let first = first.to_be_bytes();
        let mut bytes = 0;
        for row in self.0.iterator(IteratorMode::From(&first, Direction::Forward)).take(count) {
            bytes += row?.1.len();
        }
        Ok(bytes)
    }
}
