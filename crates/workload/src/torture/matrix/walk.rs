//! One client that takes the steps of a script, each noted in the ledger.

use std::ops::Range;
use std::sync::Arc;

use terrace::{Checkpoint, Database, Durability, Error, WriteTransaction};
use terrace_rt::{Nanos, sleep};

use super::super::Shared;
use super::super::client::{MARKERS, ROWS};
use super::super::ledger::{Entry, Failure, Promise, RowPlace, Stamp};

/// Bytes of a row: four to a page.
const ROW_BYTES: u32 = 1_900;
/// Bytes of the row of a further table: a block, that is a page and a tail.
const FURTHER_ROW_BYTES: u32 = 8_192;
/// Bytes of a large row of a further table, which goes home before its record.
const LARGE_ROW_BYTES: u32 = (1 << 20) + 5_000;
/// Rows of one transaction that loads.
const LOADED_TOGETHER: u32 = 20;

/// What the client of a script does.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Reads every second of the rows: every page of them once or twice.
    Read(Range<u32>),
    /// Replaces the rows, in one transaction.
    Write(Range<u32>, Promise),
    /// Replaces the rows, in a transaction that stays open.
    Hold(Range<u32>),
    /// Rolls back what is held.
    RollBack,
    /// Removes the rows, in one transaction.
    Remove(Range<u32>),
    /// Removes three of four rows, in one transaction.
    Thin(Range<u32>),
    /// Replaces the first row of a further table, which is made for it if it is not there.
    Make(u8),
    /// As `Make`, with a row so large that its pages go home first.
    MakeLarge(u8),
    /// The same, rolled back.
    Abandon(u8),
    /// As `Make`, rolled back.
    AbandonBlock(u8),
    /// Removes the first row of a further table.
    Empty(u8),
    /// Puts rows of so many bytes into a further table.
    Fill(u8, Range<u32>, u32),
    /// Removes seven of eight rows of a further table, in one transaction.
    ThinOut(u8, Range<u32>),
    /// Drops a further table.
    Drop(u8),
    /// Takes a checkpoint.
    Checkpoint(Checkpoint),
    /// Compacts the database.
    Compact,
    /// Compacts the database, which moves pages.
    Gather,
    /// Lets the background work.
    Rest(Nanos),
    /// Closes the database.
    Close,
}

/// The client.
pub(super) struct Walker {
    db: Option<Database>,
    shared: Arc<Shared>,
    held: Option<(WriteTransaction, Entry)>,
}

fn place(key: u32) -> RowPlace {
    RowPlace { table: 0, key }
}

impl Walker {
    pub fn new(db: Database, shared: Arc<Shared>) -> Walker {
        Walker { db: Some(db), shared, held: None }
    }

    /// The database, until it is closed.
    pub fn db(&self) -> Option<&Database> {
        self.db.as_ref()
    }

    fn open_db(&self) -> &Database {
        self.db.as_ref().expect("no step follows the closing")
    }

    /// Takes the steps in order.
    ///
    /// # Errors
    ///
    /// Those of the engine: there is no other transaction to conflict with.
    pub fn walk(&mut self, steps: &[Step]) -> Result<(), Error> {
        steps.iter().try_for_each(|step| self.take(step))
    }

    fn take(&mut self, step: &Step) -> Result<(), Error> {
        match step.clone() {
            Step::Read(keys) => self.read(keys),
            Step::Write(keys, promise) => {
                let (txn, entry) = self.replace(keys)?;
                self.commit(txn, entry, promise)
            }
            Step::Hold(keys) => {
                self.held = Some(self.replace(keys)?);
                Ok(())
            }
            Step::RollBack => self.roll_back(),
            Step::Remove(keys) => self.remove(keys),
            Step::Thin(keys) => self.remove(keys.filter(|key| !key.is_multiple_of(4))),
            Step::Make(table) => self.make(table, FURTHER_ROW_BYTES),
            Step::MakeLarge(table) => self.make(table, LARGE_ROW_BYTES),
            Step::Abandon(table) => {
                self.held = Some(self.fill(table, LARGE_ROW_BYTES)?);
                self.roll_back()
            }
            Step::AbandonBlock(table) => {
                self.held = Some(self.fill(table, FURTHER_ROW_BYTES)?);
                self.roll_back()
            }
            Step::Empty(table) => self.empty(table),
            Step::Fill(table, keys, length) => self.fill_rows(table, keys, length),
            Step::ThinOut(table, keys) => self.thin_out(table, keys),
            Step::Drop(table) => self.drop_table(table),
            Step::Checkpoint(kind) => self.open_db().checkpoint(kind),
            Step::Compact => self.open_db().compact().map(drop),
            Step::Gather => {
                let compacted = self.open_db().compact()?;
                assert!(compacted.pages_moved > 0, "{compacted:?}");
                Ok(())
            }
            Step::Rest(span) => {
                sleep(span);
                Ok(())
            }
            Step::Close => {
                self.roll_back()?;
                self.db.take().expect("closed once").close()
            }
        }
    }

    /// Fills the rows `keys`, a few in each transaction.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn load(&mut self, keys: Range<u32>) -> Result<(), Error> {
        for first in keys.clone().step_by(LOADED_TOGETHER as usize) {
            let (txn, entry) = self.replace(first..keys.end.min(first + LOADED_TOGETHER))?;
            self.commit(txn, entry, Promise::Durable)?;
        }
        Ok(())
    }

    fn read(&self, keys: Range<u32>) -> Result<(), Error> {
        let entry = self.shared.ledger().begin();
        let txn = self.open_db().begin_read()?;
        let table = txn.open_table(ROWS[0])?;
        for key in keys.step_by(2) {
            let found = table.get(key)?;
            let found = found.as_ref().map(|row| row.value());
            let checked = self.shared.ledger().check_read(entry, place(key), found);
            if let Err(failure) = checked {
                self.shared.fail(failure);
            }
        }
        Ok(())
    }

    fn begin(&self) -> Result<(WriteTransaction, Entry), Error> {
        let entry = self.shared.ledger().begin();
        let txn = self.open_db().begin_write()?;
        txn.open_table(MARKERS)?.insert(entry.0, ())?;
        Ok((txn, entry))
    }

    fn replace(&self, keys: Range<u32>) -> Result<(WriteTransaction, Entry), Error> {
        let (txn, entry) = self.begin()?;
        for key in keys {
            let stamp = Stamp { transaction: entry.0, write: key, length: ROW_BYTES };
            txn.open_table(ROWS[0])?.insert(key, &stamp.value(place(key)))?;
            self.shared.ledger().wrote(entry, place(key), Some(stamp));
        }
        Ok((txn, entry))
    }

    fn remove(&self, keys: impl Iterator<Item = u32>) -> Result<(), Error> {
        let (txn, entry) = self.begin()?;
        for key in keys {
            txn.open_table(ROWS[0])?.remove(key)?;
            self.shared.ledger().wrote(entry, place(key), None);
        }
        self.commit(txn, entry, Promise::Durable)
    }

    fn make(&self, table: u8, length: u32) -> Result<(), Error> {
        let (txn, entry) = self.fill(table, length)?;
        self.commit(txn, entry, Promise::Durable)
    }

    fn fill(&self, table: u8, length: u32) -> Result<(WriteTransaction, Entry), Error> {
        let (txn, entry) = self.begin()?;
        let place = RowPlace { table, key: 0 };
        let stamp = Stamp { transaction: entry.0, write: 0, length };
        txn.open_table(ROWS[usize::from(table)])?.insert(0, &stamp.value(place))?;
        self.shared.ledger().wrote(entry, place, Some(stamp));
        Ok((txn, entry))
    }

    fn fill_rows(&self, table: u8, keys: Range<u32>, length: u32) -> Result<(), Error> {
        for key in keys {
            let (txn, entry) = self.begin()?;
            let place = RowPlace { table, key };
            let stamp = Stamp { transaction: entry.0, write: 0, length };
            txn.open_table(ROWS[usize::from(table)])?.insert(key, &stamp.value(place))?;
            self.shared.ledger().wrote(entry, place, Some(stamp));
            self.commit(txn, entry, Promise::Buffered)?;
        }
        Ok(())
    }

    fn thin_out(&self, table: u8, keys: Range<u32>) -> Result<(), Error> {
        let (txn, entry) = self.begin()?;
        for key in keys.filter(|key| !key.is_multiple_of(8)) {
            txn.open_table(ROWS[usize::from(table)])?.remove(key)?;
            self.shared.ledger().wrote(entry, RowPlace { table, key }, None);
        }
        self.commit(txn, entry, Promise::Durable)
    }

    fn empty(&self, table: u8) -> Result<(), Error> {
        let (txn, entry) = self.begin()?;
        txn.open_table(ROWS[usize::from(table)])?.remove(0)?;
        self.shared.ledger().wrote(entry, RowPlace { table, key: 0 }, None);
        self.commit(txn, entry, Promise::Durable)
    }

    fn drop_table(&self, table: u8) -> Result<(), Error> {
        let (txn, entry) = self.begin()?;
        txn.delete_table(ROWS[usize::from(table)].name())?;
        self.shared.ledger().wrote(entry, RowPlace { table, key: 0 }, None);
        self.commit(txn, entry, Promise::Durable)
    }

    fn commit(&self, txn: WriteTransaction, entry: Entry, promise: Promise) -> Result<(), Error> {
        let durability = match promise {
            Promise::Durable => Durability::Durable,
            Promise::Buffered => Durability::Buffered,
        };
        self.shared.ledger().ask(entry);
        txn.commit(durability)?;
        self.shared.ledger().acknowledge(entry, promise);
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        let Some((txn, entry)) = self.held.take() else { return Ok(()) };
        self.shared.ledger().set_calling(entry, true);
        let outcome = txn.rollback();
        self.shared.ledger().give_up(entry);
        outcome
    }
}

/// Holds all that the database contains against the ledger, and walks its trees.
///
/// # Errors
///
/// Those of the engine.
pub(super) fn verify(db: &Database, shared: &Shared) -> Result<(), Error> {
    let found = super::super::client::read_all(db)?;
    let failures: Vec<Failure> = shared.ledger().verify(&found);
    failures
        .into_iter()
        .chain(super::super::contradiction(db))
        .for_each(|failure| shared.fail(failure));
    db.check()?;
    Ok(())
}
