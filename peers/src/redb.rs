//! redb, without a sync at commit.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use crate::{Engine, Fault, Session, value_of};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");

pub fn open(folder: &Path, rows: u64, value: usize) -> Result<Box<dyn Engine>, Fault> {
    let db = Database::builder().set_cache_size(4 << 30).create(folder.join("rows"))?;
    let txn = db.begin_write()?;
    {
        let mut table = txn.open_table(ROWS)?;
        for key in 0..rows {
            table.insert(key, &*value_of(key, value))?;
        }
    }
    txn.commit()?;
    Ok(Box::new(Redb(db)))
}

struct Redb(Database);

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault> {
        Ok(Box::new(Thread(&self.0)))
    }
}

struct Thread<'a>(&'a Database);

impl Session for Thread<'_> {
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault> {
        let table = self.0.begin_read()?.open_table(ROWS)?;
        let mut bytes = 0;
        for key in keys {
            bytes += table.get(key)?.map_or(0, |value| value.value().len());
        }
        Ok(bytes)
    }

    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault> {
        let mut txn = self.0.begin_write()?;
        txn.set_durability(Durability::None)?;
        {
            let mut table = txn.open_table(ROWS)?;
            for key in keys {
                table.insert(key, value)?;
            }
        }
        txn.commit()?;
        Ok(())
    }

    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault> {
        let table = self.0.begin_read()?.open_table(ROWS)?;
        let mut bytes = 0;
        for row in table.range(first..)?.take(count) {
            bytes += row?.1.value().len();
        }
        Ok(bytes)
    }
}
