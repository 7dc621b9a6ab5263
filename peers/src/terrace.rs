//! Terrace, called from plain threads, as the others are.

use std::path::Path;

use terrace::{Database, Durability, TableDef};

use crate::{Engine, Fault, Session, value_of};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

pub fn open(folder: &Path, rows: u64, value: usize) -> Result<Box<dyn Engine>, Fault> {
    let memory = rows * (value as u64 + 24) * 2;
    let db = Database::builder().memory(memory.max(64 << 20)).create(folder.join("rows"))?;
    let txn = db.begin_write()?;
    let mut loader = txn.bulk_load(ROWS)?;
    for key in 0..rows {
        loader.push(key, &value_of(key, value))?;
    }
    loader.finish()?;
    txn.commit(Durability::Buffered)?;
    db.read(|txn| txn.open_table(ROWS)?.range(..)?.try_for_each(|row| row.map(drop)))?;
    Ok(Box::new(Terrace(db)))
}

struct Terrace(Database);

impl Engine for Terrace {
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault> {
        Ok(Box::new(Thread { db: &self.0, value: Vec::new() }))
    }
}

struct Thread<'a> {
    db: &'a Database,
    value: Vec<u8>,
}

impl Session for Thread<'_> {
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault> {
        let mut bytes = 0;
        let txn = self.db.begin_read()?;
        let rows = txn.open_table(ROWS)?;
        for key in keys {
            rows.get_into(*key, &mut self.value)?;
            bytes += self.value.len();
        }
        Ok(bytes)
    }

    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault> {
        self.db.write_with(Durability::None, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            keys.iter().try_for_each(|key| rows.insert(*key, value))
        })?;
        Ok(())
    }

    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault> {
        let txn = self.db.begin_read()?;
        let mut bytes = 0;
        for row in txn.open_table(ROWS)?.range(first..)?.take(count) {
            bytes += row?.value_bytes().len();
        }
        Ok(bytes)
    }

    fn scan_in_batches(&mut self, first: u64, count: usize) -> Result<Option<usize>, Fault> {
        let txn = self.db.begin_read()?;
        let (mut bytes, mut left) = (0, count);
        let table = txn.open_table(ROWS)?;
        let mut range = table.range(first..)?;
        while left > 0
            && let Some(rows) = range.next_rows()?
        {
            let rows = rows.take(left);
            left -= rows.len();
            for row in rows {
                bytes += row?.1.len();
            }
        }
        Ok(Some(bytes))
    }
}
