//! Four threads move money between accounts. Transactions are serializable, so nothing is lost.
//!
//! `Database::write` runs a transaction again when another one stood in its way, so the code below
//! says what a transfer is and nothing about other transfers at the same time.
//!
//! Run with `cargo run --release --package terrace --example bank`.

use terrace::{Database, Durability, TableDef};

const ACCOUNTS: TableDef<u64, u64> = TableDef::new("accounts");
const ACCOUNTS_COUNT: u64 = 100;
const START: u64 = 1_000;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::create(folder.path().join("bank.terrace"))?;
    db.write(|txn| {
        let mut accounts = txn.open_table(ACCOUNTS)?;
        (0..ACCOUNTS_COUNT).try_for_each(|account| accounts.insert(account, START))
    })?;

    std::thread::scope(|scope| {
        let db = &db;
        let clients: Vec<_> =
            (1..=THREADS).map(|client| scope.spawn(move || transfers(db, client))).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no client panics"))
    })?;
    // Transfers were acknowledged before they were on the device; this waits for all of them.
    db.flush()?;

    let mut total = 0;
    db.read(|txn| {
        total = 0;
        for account in txn.open_table(ACCOUNTS)?.range(..)? {
            total += account?.value();
        }
        Ok::<_, terrace::Error>(())
    })?;
    let stats = db.stats().transactions;
    println!("{} commits, {} conflicts, {total} in all accounts", stats.commits, stats.conflicts);
    assert_eq!(total, ACCOUNTS_COUNT * START);
    db.close()?;
    Ok(())
}

fn transfers(db: &Database, client: u64) -> Result<(), terrace::Error> {
    let mut draw = client;
    for _ in 0..TRANSFERS {
        // A small generator: the example is about transfers.
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, to) = ((draw >> 33) % ACCOUNTS_COUNT, (draw >> 48) % ACCOUNTS_COUNT);
        db.write_with(Durability::Buffered, |txn| transfer(txn, from, to, draw >> 60))?;
    }
    Ok(())
}

/// Moves `amount`, or all there is if that is less.
fn transfer(
    txn: &terrace::WriteTransaction,
    from: u64,
    to: u64,
    amount: u64,
) -> Result<(), terrace::Error> {
    let mut accounts = txn.open_table(ACCOUNTS)?;
    let rich = accounts.get_for_update(from)?.expect("accounts stay").value();
    let amount = amount.min(rich);
    accounts.insert(from, rich - amount)?;
    let poor = accounts.get_for_update(to)?.expect("accounts stay").value();
    accounts.insert(to, poor + amount)
}
