//! LMDB by heed, without syncs (`MDB_NOSYNC`).

use std::path::Path;

use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use crate::{Engine, Fault, Session, value_of};

type Rows = Database<U64<BigEndian>, Bytes>;

pub fn open(folder: &Path, rows: u64, value: usize) -> Result<Box<dyn Engine>, Fault> {
    let mut options = EnvOpenOptions::new();
    options.map_size(16 << 30);
    // SAFETY: nobody else has this folder, so that the map changes by this program only.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(folder)? };
    let mut txn = env.write_txn()?;
    let table: Rows = env.create_database(&mut txn, None)?;
    for key in 0..rows {
        table.put(&mut txn, &key, &value_of(key, value))?;
    }
    txn.commit()?;
    Ok(Box::new(Lmdb { env, table }))
}

struct Lmdb {
    env: Env,
    table: Rows,
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault> {
        Ok(Box::new(Thread(self)))
    }
}

struct Thread<'a>(&'a Lmdb);

impl Session for Thread<'_> {
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault> {
        let txn = self.0.env.read_txn()?;
        let mut bytes = 0;
        for key in keys {
            bytes += self.0.table.get(&txn, key)?.map_or(0, <[u8]>::len);
        }
        Ok(bytes)
    }

    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault> {
        let mut txn = self.0.env.write_txn()?;
        for key in keys {
            self.0.table.put(&mut txn, key, value)?;
        }
        txn.commit()?;
        Ok(())
    }

    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault> {
        let txn = self.0.env.read_txn()?;
        let mut bytes = 0;
        for row in self.0.table.range(&txn, &(first..))?.take(count) {
            bytes += row?.1.len();
        }
        Ok(bytes)
    }
}
