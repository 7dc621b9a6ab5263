//! RocksDB, whose log is left to the operating system, without compression. Its reads are not
//! transactions.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options, ReadOptions,
    WriteBatch,
};

use crate::{Engine, Fault, Session, value_of};

/// Rows of a batch while it is filled.
const LOADED_TOGETHER: u64 = 1000;

pub fn open(folder: &Path, rows: u64, value: usize) -> Result<Box<dyn Engine>, Fault> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(4 << 30)?);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(256 << 20);
    let db = DB::open(&options, folder)?;
    for first in (0..rows).step_by(LOADED_TOGETHER as usize) {
        let mut batch = WriteBatch::default();
        for key in first..rows.min(first + LOADED_TOGETHER) {
            batch.put(key.to_be_bytes(), value_of(key, value));
        }
        db.write(batch)?;
    }
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    Ok(Box::new(RocksDb(db)))
}

struct RocksDb(DB);

impl Engine for RocksDb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault> {
        Ok(Box::new(Thread(&self.0)))
    }
}

struct Thread<'a>(&'a DB);

impl Session for Thread<'_> {
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault> {
        let mut bytes = 0;
        for key in keys {
            bytes += self.0.get_pinned(key.to_be_bytes())?.map_or(0, |value| value.len());
        }
        Ok(bytes)
    }

    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault> {
        let mut batch = WriteBatch::default();
        keys.iter().for_each(|key| batch.put(key.to_be_bytes(), value));
        self.0.write(batch)?;
        Ok(())
    }

    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault> {
        let from = first.to_be_bytes();
        let mode = IteratorMode::From(&from, Direction::Forward);
        let rows = self.0.iterator_opt(mode, ReadOptions::default());
        let mut bytes = 0;
        for row in rows.take(count) {
            bytes += row?.1.len();
        }
        Ok(bytes)
    }
}
