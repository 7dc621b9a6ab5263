//! What counts take of the log, and what is given back of it.

use super::*;

/// Each checkpoint listed the rows of all tables, in the room of the log that the checkpoints after
/// it need: once a transaction held the log, it was full after some, and so for good.
fn checkpoints_of_a_held_log(mutations: Mutations) -> Result<(), Error> {
    const TABLES: u64 = 1_000;
    let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    let world = Virtual::new(config);
    let rig = Rig::with(&world.world(), 600 << 20, 1 << 20);
    let ran = world.run(|| {
        let db = open(&rig, mutations)?;
        for number in 0..TABLES {
            let name = format!("table {number}");
            db.write_with(Durability::None, |txn| {
                txn.open_table(TableDef::<u64, u64>::new(&name))?.insert(number, number)
            })?;
        }
        db.write(|txn| txn.open_table(NUMBERS)?.insert(0, 0))?;
        let pinned = db.begin_write()?;
        pinned.open_table(NUMBERS)?.insert(1, 1)?;
        let before = db.stats().log.bytes;
        for _ in 0..100 {
            db.checkpoint(Checkpoint::Indirect)?;
        }
        // One list, and what checkpoints need themselves.
        let logged = db.stats().log.bytes - before;
        assert!(logged < 64 << 10, "{logged} bytes");
        db.write(|txn| txn.open_table(table("apples"))?.insert(1, b"row"))?;
        pinned.commit(Durability::Durable)?;
        db.check()?;
        db.close()?;
        let db = open(&rig, mutations)?;
        let stats = db.table_stats()?;
        assert_eq!(stats.len() as u64, TABLES + 2);
        // So small a log lists a part of them; no other one is guessed.
        assert!(stats.values().all(|table| table.rows != Some(0)));
        assert!(stats.values().filter(|table| table.rows.is_some()).count() > 500);
        assert_eq!(db.read(|txn| txn.open_table(NUMBERS)?.len())?, 2);
        db.close()
    });
    ran.expect("nobody waits for ever")
}

#[test]
fn checkpoints_go_on_while_a_transaction_holds_the_log() {
    checkpoints_of_a_held_log(Mutations::NONE).expect("room");
    let full = checkpoints_of_a_held_log(Mutation::CountsTakeSlack.into());
    assert!(matches!(full, Err(Error::LogFull { .. } | Error::HoldsLog { .. })), "{full:?}");
}

/// A transaction holds the log, so that recovery reads from its first record on: checkpoints list
/// the rows once, and all are known after a crash.
#[test]
fn a_list_that_recovery_reads_anyway_is_not_made_again() {
    let first = world(3);
    let rig = Rig::blank(&first.world());
    let ran = first.run(|| {
        let db = open(&rig, Mutations::NONE)?;
        db.write(|txn| txn.open_table(table("apples"))?.insert(0, b"row"))?;
        let held = db.begin_write()?;
        held.open_table(NUMBERS)?.insert(0, 0)?;
        for key in 1..40 {
            db.write(|txn| txn.open_table(table("apples"))?.insert(key, b"row"))?;
            db.checkpoint(Checkpoint::Sharp)?;
        }
        std::mem::forget(held);
        std::mem::forget(db);
        Ok::<_, Error>(())
    });
    ran.expect("nobody waits for ever").expect("room");
    rig.cut(&mut Prng::from_seed(3));
    let last = world(3);
    let rig = rig.in_world(&last.world());
    let ran = last.run(|| {
        let db = open(&rig, Mutations::NONE)?;
        let stats = db.table_stats()?;
        assert_eq!((stats.len(), stats["apples"].rows), (1, Some(40)));
        db.check()?;
        db.close()
    });
    ran.expect("nobody waits for ever").expect("sound");
}

/// Loads that a rollback took back stood in COMMIT, which had no room for them.
#[test]
fn a_load_that_is_taken_back_is_not_counted() -> Result<(), Error> {
    // No task runs beside the commit.
    let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    let world = Virtual::new(config);
    let rig = Rig::blank(&world.world());
    let ran = world.run(|| {
        let db = open(&rig, Mutations::NONE)?;
        db.write(|txn| txn.open_table(table("apples"))?.insert(1, b"row"))?;
        let txn = db.begin_write()?;
        txn.open_table(table("apples"))?.insert(2, b"row")?;
        for _ in 0..20 {
            let savepoint = txn.savepoint()?;
            let mut loader = txn.bulk_load(NUMBERS)?;
            (0..9).try_for_each(|number| loader.push(number, number))?;
            loader.finish()?;
            assert_eq!(txn.open_table(NUMBERS)?.len()?, 9);
            txn.rollback_to(&savepoint)?;
        }
        let mut loader = txn.bulk_load(NUMBERS)?;
        (0..5).try_for_each(|number| loader.push(number, number))?;
        loader.finish()?;
        // What is undone behind a load leaves it counted.
        let savepoint = txn.savepoint()?;
        txn.open_table(NUMBERS)?.remove(3)?;
        txn.delete_table("numbers")?;
        txn.rollback_to(&savepoint)?;
        assert_eq!(txn.open_table(NUMBERS)?.len()?, 5);
        let before = db.stats().log.bytes;
        txn.commit(Durability::None)?;
        // A COMMIT, with two tables.
        let logged = db.stats().log.bytes - before;
        assert!(logged < 200, "{logged} bytes");
        let stats = db.table_stats()?;
        assert_eq!((stats["apples"].rows, stats["numbers"].rows), (Some(2), Some(5)));
        db.check()?;
        db.close()
    });
    ran.expect("nobody waits for ever")
}

/// COMMIT had room for the rows of two tables.
#[test]
fn a_commit_has_room_for_all_its_tables() -> Result<(), Error> {
    const TABLES: u64 = 120;
    let world = world(5);
    let rig = Rig::with(&world.world(), 96 << 20, 1 << 20);
    let ran = world.run(|| {
        let db = open(&rig, Mutations::NONE)?;
        let names: Vec<String> = (0..TABLES).map(|number| format!("table {number}")).collect();
        let put = |txn: &WriteTransaction, name: &str, key| {
            txn.open_table(TableDef::<u64, u64>::new(name))?.insert(key, key)
        };
        for name in &names {
            db.write_with(Durability::None, |txn| put(txn, name, 0))?;
        }
        // What others have reserved lets each operation give back what it does not need.
        let others: Vec<WriteTransaction> =
            (0..3).map(|_| db.begin_write()).collect::<Result<_, _>>()?;
        for (key, txn) in (1..).zip(&others) {
            put(txn, &names[0], 10 * key)?;
        }
        let txn = db.begin_write()?;
        names.iter().try_for_each(|name| put(&txn, name, 1))?;
        txn.commit(Durability::Durable)?;
        others.into_iter().try_for_each(|txn| txn.commit(Durability::None))?;
        let stats = db.table_stats()?;
        assert_eq!((stats[&names[0]].rows, stats[&names[9]].rows), (Some(5), Some(2)));
        db.check()?;
        db.close()
    });
    ran.expect("nobody waits for ever")
}
