//! SQLite by rusqlite: WAL, `synchronous = OFF`, prepared statements, a connection for each thread.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use crate::{Engine, Fault, Session, value_of};

pub fn open(folder: &Path, rows: u64, value: usize) -> Result<Box<dyn Engine>, Fault> {
    let path = folder.join("rows");
    let mut db = connect(&path)?;
    let txn = db.transaction()?;
    txn.execute("CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB)", ())?;
    {
        let mut insert = txn.prepare("INSERT INTO rows VALUES (?, ?)")?;
        for key in 0..rows {
            insert.execute((key as i64, value_of(key, value)))?;
        }
    }
    txn.commit()?;
    db.pragma_update(None, "wal_checkpoint", "TRUNCATE").ok();
    Ok(Box::new(Sqlite(path)))
}

fn connect(path: &Path) -> Result<Connection, Fault> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(10))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "OFF")?;
    db.pragma_update(None, "cache_size", -(4 << 20))?;
    db.pragma_update(None, "mmap_size", 8_i64 << 30)?;
    Ok(db)
}

struct Sqlite(PathBuf);

impl Engine for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>, Fault> {
        Ok(Box::new(Thread(connect(&self.0)?)))
    }
}

struct Thread(Connection);

impl Session for Thread {
    fn read(&mut self, keys: &[u64]) -> Result<usize, Fault> {
        let txn = self.0.transaction()?;
        let mut bytes = 0;
        {
            let mut select = txn.prepare_cached("SELECT value FROM rows WHERE key = ?")?;
            for key in keys {
                bytes +=
                    select.query_row([*key as i64], |row| Ok(row.get_ref(0)?.as_blob()?.len()))?;
            }
        }
        txn.commit()?;
        Ok(bytes)
    }

    fn update(&mut self, keys: &[u64], value: &[u8]) -> Result<(), Fault> {
        let txn = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut update = txn.prepare_cached("UPDATE rows SET value = ? WHERE key = ?")?;
            for key in keys {
                update.execute((value, *key as i64))?;
            }
        }
        txn.commit()?;
        Ok(())
    }

    fn scan(&mut self, first: u64, count: usize) -> Result<usize, Fault> {
        let sql = "SELECT value FROM rows WHERE key >= ? ORDER BY key LIMIT ?";
        let mut select = self.0.prepare_cached(sql)?;
        let mut rows = select.query((first as i64, count as i64))?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(0)?.as_blob()?.len();
        }
        Ok(bytes)
    }
}
