//! Loads a new database: dimensions, facts, the index of many parts, and then the single indexes,
//! those that the queries read most last.
//!
//! Leaves take extents in the order in which tables are loaded, so the indexes are the upper part
//! of home and the hottest of them its end, where a part of home can be put on another device.

use terrace::{Database, Durability, Key, TableDef, Value};
use terrace_page::PAGE_SIZE;
use terrace_rt::Prng;

use super::Config;
use super::rows::{Dimension, FACT, FACT_BYTES, Fact, MEMBER_BYTES, UNIQUE, UniqueKey};
use crate::Error;

/// How full tables are left, in percent, and indexes: so that sizes are as 3 to 2 [S4 Table 2].
const TABLE_FILL: u8 = 90;
const INDEX_FILL: u8 = 100;

/// Rows between two calls for progress.
const ROWS_PER_PROGRESS: u64 = 1 << 16;
/// Bytes of home for each fact with all that is said of it in indexes, at least.
const BYTES_PER_FACT: u64 = 400;

/// The single indexes, in the order in which they are loaded.
const INDEXES: [Dimension; 7] = [
    Dimension::DocumentType,
    Dimension::Channel,
    Dimension::Organisation,
    Dimension::Plant,
    Dimension::Material,
    Dimension::Customer,
    Dimension::Day,
];

/// Bytes of a home for all of it.
pub(super) fn home_bytes(config: &Config) -> u64 {
    const ROOM_BYTES: u64 = 64 << 20;
    (u64::from(config.facts) * BYTES_PER_FACT + ROOM_BYTES).next_multiple_of(PAGE_SIZE as u64)
}

/// Fills the empty database `db` with all that is no index.
///
/// # Errors
///
/// Those of the engine.
pub(super) fn populate_tables(
    db: &Database,
    config: &Config,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let mut load = Load::new(db, config, progress);
    let mut noise = Prng::from_seed(config.seed ^ 0x0D1_5EED);
    for dimension in Dimension::ALL {
        let members = dimension.members(config.facts);
        let mut row = [0; MEMBER_BYTES];
        load.table(dimension.table(), TABLE_FILL, |put| {
            (0..members).try_for_each(|number| {
                noise.fill(&mut row);
                dimension.member(number, members).put(&mut row);
                put(number, &row)
            })
        })?;
    }
    let mut row = [0; FACT_BYTES];
    load.table(FACT, TABLE_FILL, |put| {
        (0..config.facts).try_for_each(|number| {
            Fact::at(config, number).put(&mut row);
            put(number, &row)
        })
    })
}

/// Adds the indexes.
///
/// # Errors
///
/// Those of the engine.
pub(super) fn populate_indexes(
    db: &Database,
    config: &Config,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let mut load = Load::new(db, config, progress);
    load.done = u64::from(config.facts);
    let facts = || (0..config.facts).map(|number| (Fact::at(config, number), number));
    let mut unique: Vec<(UniqueKey, u32)> =
        facts().map(|(fact, number)| (fact.unique_key(), number)).collect();
    unique.sort_unstable();
    load.table(UNIQUE, INDEX_FILL, |put| {
        unique.iter().try_for_each(|(key, number)| put(*key, *number))
    })?;
    drop(unique);
    for dimension in INDEXES {
        let of = |(fact, number): (Fact, u32)| (fact.members[dimension as usize], number);
        let mut entries: Vec<(u16, u32)> = facts().map(of).collect();
        entries.sort_unstable();
        load.table(dimension.index(), INDEX_FILL, |put| {
            entries.iter().try_for_each(|entry| put(*entry, ()))
        })?;
    }
    (load.progress)(load.total, load.total);
    Ok(())
}

struct Load<'a> {
    db: &'a Database,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

/// Adds an entry.
type Put<'p, K, V> = dyn for<'v> FnMut(K, <V as Value>::View<'v>) -> Result<(), Error> + 'p;

impl<'a> Load<'a> {
    fn new(db: &'a Database, config: &Config, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        // The facts, the index of many parts, and the single ones.
        let total = u64::from(config.facts) * (2 + INDEXES.len() as u64);
        Load { db, done: 0, total, progress }
    }

    /// Loads one table with what `generate` puts, in the order of keys.
    fn table<K, V>(
        &mut self,
        table: TableDef<K, V>,
        fill: u8,
        generate: impl FnOnce(&mut Put<'_, K, V>) -> Result<(), Error>,
    ) -> Result<(), Error>
    where
        K: for<'k> Key<View<'k> = K>,
        V: Value,
    {
        let txn = self.db.begin_write()?;
        let mut loader = txn.bulk_load_filled(table, fill)?;
        generate(&mut |key, value| {
            loader.push(key, value)?;
            self.done += 1;
            if self.done.is_multiple_of(ROWS_PER_PROGRESS) {
                (self.progress)(self.done, self.total);
            }
            Ok(())
        })?;
        loader.finish()?;
        txn.commit(Durability::Buffered)?;
        Ok(())
    }
}
