//! What the clients of a tortured database do, and how to tell from the rows whether all of it is
//! there.
//!
//! Each client counts its transactions. Transaction `n` of client `c` leaves, in one commit:
//!
//! ```text
//! groups     rows c * GROUP .. (c + 1) * GROUP: the number n, then bytes that n decides
//! queue-c    keys n - QUEUE + 1 ..= n
//! scratch-c  a table that is deleted and made anew when n is a multiple of SCRATCH_EACH: one row
//! accounts   an amount moved from one account to another: the sum stays zero
//! ```
//!
//! - O1: after any crash the rows of a client are those of one number, and that number is not
//!   below the last acknowledged as durable, nor above the last begun.
//! - O2: the sum of the accounts is zero, whatever the order of the clients.

use terrace::{Database, Durability, Error, TableDef, WriteTransaction};
use terrace_rt::Prng;

/// Clients, each a thread.
pub const CLIENTS: u64 = 3;
const GROUP: u64 = 8;
const QUEUE: u64 = 20;
const SCRATCH_EACH: u64 = 16;
const ACCOUNTS: u64 = 12;
const LARGE_BYTES: u64 = 20_000;
const VALUE_BYTES: u64 = 1_200;

type Rows = TableDef<'static, u64, &'static [u8]>;
const GROUPS: Rows = TableDef::new("groups");
const BALANCES: TableDef<u64, i64> = TableDef::new("accounts");
const QUEUES: [Rows; CLIENTS as usize] =
    [TableDef::new("queue-0"), TableDef::new("queue-1"), TableDef::new("queue-2")];
const SCRATCHES: [Rows; CLIENTS as usize] =
    [TableDef::new("scratch-0"), TableDef::new("scratch-1"), TableDef::new("scratch-2")];

/// What `check` found wrong.
#[derive(Debug)]
pub enum Flaw {
    /// The engine returned an error.
    Told(Error),
    /// The rows are not what some number of the client leaves.
    Wrong(String),
}

impl From<Error> for Flaw {
    fn from(error: Error) -> Flaw {
        Flaw::Told(error)
    }
}

fn wrong<T>(what: String) -> Result<T, Flaw> {
    Err(Flaw::Wrong(what))
}

/// The value of row `row` in transaction `number`.
fn value(number: u64, row: u64) -> Vec<u8> {
    let mut prng = Prng::from_seed(number.wrapping_mul(1_000_003) ^ row);
    let most = if prng.chance(25) { LARGE_BYTES } else { VALUE_BYTES };
    let mut bytes = number.to_le_bytes().to_vec();
    let (filler, len) = (prng.next_u64() as u8, prng.below(most));
    bytes.resize(8 + len as usize, filler);
    bytes
}

fn number_of(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Runs transaction `number` of `client`.
///
/// # Errors
///
/// Those of the engine; the caller runs it again after one that may pass.
pub fn transact(
    db: &Database,
    client: u64,
    number: u64,
    prng: &mut Prng,
    durability: Durability,
) -> Result<(), Error> {
    db.write_with(durability, |txn| {
        if prng.chance(4) {
            detour(txn, client, prng)?;
        }
        change_group(txn, client, number)?;
        change_queue(txn, client, number)?;
        if number.is_multiple_of(SCRATCH_EACH) {
            let scratch = SCRATCHES[client as usize];
            txn.delete_table(scratch.name())?;
            txn.open_table(scratch)?.insert(0, &value(number, 0))?;
        }
        move_amount(txn, prng)
    })
}

/// Changes that a savepoint takes back.
fn detour(txn: &WriteTransaction, client: u64, prng: &mut Prng) -> Result<(), Error> {
    let before = txn.savepoint()?;
    let mut table = txn.open_table(GROUPS)?;
    for _ in 0..=prng.below(6) {
        let row = client * GROUP + prng.below(GROUP);
        match prng.chance(2) {
            true => drop(table.remove(row)?),
            false => table.insert(row, &vec![0xee; prng.below(3_000) as usize])?,
        }
    }
    drop(table);
    txn.rollback_to(&before)
}

fn change_group(txn: &WriteTransaction, client: u64, number: u64) -> Result<(), Error> {
    let mut table = txn.open_table(GROUPS)?;
    for row in client * GROUP..(client + 1) * GROUP {
        table.insert(row, &value(number, row))?;
    }
    Ok(())
}

fn change_queue(txn: &WriteTransaction, client: u64, number: u64) -> Result<(), Error> {
    let mut table = txn.open_table(QUEUES[client as usize])?;
    table.insert(number, &value(number, u64::MAX))?;
    if number > QUEUE {
        table.remove(number - QUEUE)?;
    }
    Ok(())
}

fn move_amount(txn: &WriteTransaction, prng: &mut Prng) -> Result<(), Error> {
    let (from, to) = (prng.below(ACCOUNTS), prng.below(ACCOUNTS));
    let amount = 1 + prng.below(100) as i64;
    let mut table = txn.open_table(BALANCES)?;
    for (account, amount) in [(from, -amount), (to, amount)] {
        let before = table.get_for_update(account)?.map_or(0, |balance| balance.value());
        table.insert(account, before + amount)?;
    }
    Ok(())
}

/// Which number each client has come to, if all pages and rows are as they must be.
///
/// # Errors
///
/// What the engine returned, or what is wrong.
pub fn check(db: &Database) -> Result<[u64; CLIENTS as usize], Flaw> {
    db.check()?;
    numbers(db)
}

/// The same, by the rows alone.
///
/// # Errors
///
/// What the engine returned, or what is wrong.
pub fn numbers(db: &Database) -> Result<[u64; CLIENTS as usize], Flaw> {
    let mut numbers = [0; CLIENTS as usize];
    for client in 0..CLIENTS {
        let number = check_group(db, client)?;
        check_queue(db, client, number)?;
        check_scratch(db, client, number)?;
        numbers[client as usize] = number;
    }
    let sum = read(db, BALANCES, |table| {
        table.range(..)?.try_fold(0, |sum, row| Ok::<_, Error>(sum + row?.value()))
    })?;
    match sum {
        None | Some(0) => Ok(numbers),
        Some(sum) => wrong(format!("the accounts have {sum} in all, and began with nothing")),
    }
}

/// What `look` makes of a table, or none if there is no such table.
fn read<K: terrace::Key, V: terrace::Value, T>(
    db: &Database,
    table: TableDef<K, V>,
    look: impl Fn(&terrace::ReadTable<'_, K, V>) -> Result<T, Error>,
) -> Result<Option<T>, Flaw> {
    let seen = db.read(|txn| look(&txn.open_table(table)?));
    match seen {
        Ok(seen) => Ok(Some(seen)),
        Err(Error::NoSuchTable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn rows(
    db: &Database,
    table: Rows,
    keys: std::ops::Range<u64>,
) -> Result<Vec<(u64, Vec<u8>)>, Flaw> {
    let all = read(db, table, |table| {
        let row = |row: Result<terrace::Entry<u64, &'static [u8]>, Error>| {
            row.map(|row| (row.key(), row.value().to_vec()))
        };
        table.range(keys.clone())?.map(row).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(all.unwrap_or_default())
}

fn check_group(db: &Database, client: u64) -> Result<u64, Flaw> {
    let keys = client * GROUP..(client + 1) * GROUP;
    let found = rows(db, GROUPS, keys.clone())?;
    let Some((_, first)) = found.first() else { return Ok(0) };
    let number = number_of(first);
    let wanted: Vec<_> = keys.map(|row| (row, value(number, row))).collect();
    if found == wanted {
        return Ok(number);
    }
    let numbers: Vec<_> = found.iter().map(|(row, value)| (row, number_of(value))).collect();
    wrong(format!("the group of client {client} is not of one transaction: {numbers:?}"))
}

fn check_queue(db: &Database, client: u64, number: u64) -> Result<(), Flaw> {
    let found = rows(db, QUEUES[client as usize], 0..u64::MAX)?;
    let first = number.saturating_sub(QUEUE - 1).max(1);
    let wanted: Vec<_> = (first..=number).map(|key| (key, value(key, u64::MAX))).collect();
    if found == wanted {
        return Ok(());
    }
    let keys: Vec<_> = found.iter().map(|(key, _)| key).collect();
    wrong(format!("the queue of client {client}, at {number}, has {keys:?} or other values"))
}

fn check_scratch(db: &Database, client: u64, number: u64) -> Result<(), Flaw> {
    let found = rows(db, SCRATCHES[client as usize], 0..u64::MAX)?;
    let made = number / SCRATCH_EACH * SCRATCH_EACH;
    let wanted = if made == 0 { Vec::new() } else { vec![(0, value(made, 0))] };
    if found == wanted {
        return Ok(());
    }
    let rows: Vec<_> = found.iter().map(|(key, value)| (key, number_of(value))).collect();
    wrong(format!("the scratch table of client {client}, at {number}, has {rows:?}"))
}
