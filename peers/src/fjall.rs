//! fjall, whose journal is left to the operating system. Its reads are not transactions.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use crate::{Engine, Fault, Session, value_of};

pub fn open(folder: &Path, rows: u64, value: usize) -> Result<Box<dyn Engine>, Fault> {
    let db = Database::builder(folder).cache_size(4 << 30).open()?;
    let table = db.keyspace("rows", KeyspaceCreateOptions::default)?;
    for key in 0..rows {
        table.insert(key.to_be_bytes(), value_of(key, value))?;
    }
    Ok(Box::new(Fjall { db, table }))
}

struct Fjall {
    db: Database,
    table: Keyspace,
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault> {
        Ok(Box::new(Thread(self)))
    }
}

struct Thread<'a>(&'a Fjall);

impl Session for Thread<'_> {
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault> {
        let mut bytes = 0;
        for key in keys {
            bytes += self.0.table.get(key.to_be_bytes())?.map_or(0, |value| value.len());
        }
        Ok(bytes)
    }

    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault> {
        let mut batch = self.0.db.batch();
        for key in keys {
            batch.insert(&self.0.table, key.to_be_bytes(), value);
        }
        batch.commit()?;
        Ok(())
    }

    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault> {
        let mut bytes = 0;
        for row in self.0.table.range(first.to_be_bytes()..).take(count) {
            bytes += row.value()?.len();
        }
        Ok(bytes)
    }
}
