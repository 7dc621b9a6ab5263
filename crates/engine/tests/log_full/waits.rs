//! Waits for room in the log that would last until their time limits.

use super::*;

const NEW: TableDef<u64, &[u8]> = TableDef::new("new");

/// The bug: the oldest transaction waited for a lock of another one, which waited for the log that
/// the oldest one keeps. The cycle was not found before the time limits had passed.
#[test]
fn who_keeps_a_full_log_is_told_where_it_waits_for_a_lock() {
    let world = world(4);
    let rig = Rig::blank(&world.world(), 2 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        db.write(|txn| txn.open_table(ROWS)?.insert(0, &[0; 10])).expect("room");
        write_others(&db, 0, 10).expect("room");
        let oldest = db.begin_write().expect("open");
        oldest.open_table(ROWS).expect("there").insert(1, &[1; 100]).expect("room");
        let (others, is_told) = (db.clone(), Arc::new(AtomicU64::new(0)));
        let seen = Arc::clone(&is_told);
        let filler = spawn("filler", move || {
            let second = others.begin_write().expect("open");
            second.open_table(ROWS).expect("there").insert(2, &[2; 100]).expect("room");
            sleep(Nanos::from_millis(2));
            let filled = (0..).find_map(|number| match seen.load(Ordering::Relaxed) {
                0 => write_others(&others, number, 3000).err().map(Err),
                _ => Some(Ok(())),
            });
            assert!(matches!(filled, Some(Ok(()))), "{filled:?}");
        });
        sleep(Nanos::from_millis(1));
        let began = now();
        let told = oldest.open_table(ROWS).expect("there").insert(2, &[3; 100]);
        is_told.store(1, Ordering::Relaxed);
        assert!(matches!(told, Err(Error::HoldsLog { .. })), "{told:?}");
        assert!(now() - began < Nanos::from_secs(5), "it took {}", now() - began);
        oldest.rollback().expect("room is kept");
        filler.join();
        db.check().expect("whole");
    };
    world.run(work).expect("nobody waits for ever");
}

/// The bug: the log was full of what several transactions had written and reserved, none of them
/// most of it. They all waited for each other until their time limits.
#[test]
fn transactions_that_have_filled_the_log_together_do_not_stand_still() {
    const CLIENTS: u64 = 3;
    const EACH: u64 = 260;
    let world = world(5);
    let rig = Rig::blank(&world.world(), 2 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        // A rollback needs as much of the log again as the changes that it undoes.
        for first in (0..CLIENTS * EACH).step_by(EACH as usize / 4) {
            let rows = first..first + EACH / 4;
            let write = |txn: &terrace::WriteTransaction| {
                let mut table = txn.open_table(ROWS)?;
                rows.clone().try_for_each(|row| table.insert(row, &noise(row, 1000)))
            };
            db.write(write).expect("room");
        }
        let began = now();
        let client = |me: u64| {
            let db = db.clone();
            spawn("client", move || {
                let write = |txn: &terrace::WriteTransaction| {
                    let mut rows = txn.open_table(ROWS)?;
                    let mut own = me * EACH..(me + 1) * EACH;
                    own.try_for_each(|row| rows.insert(row, &noise(row + 7, 900)))
                };
                db.write_with(Durability::Durable, write).expect("each by itself has room");
            })
        };
        (0..CLIENTS).map(client).collect::<Vec<_>>().into_iter().for_each(Task::join);
        assert!(now() - began < Nanos::from_secs(5), "it took {}", now() - began);
        db.check().expect("whole");
    };
    world.run(work).expect("nobody waits for ever");
}

/// The bug: what makes a table waited for room in the log until its time limit where the
/// transaction that it is made for kept the log from being cut.
#[test]
fn a_transaction_that_makes_a_table_does_not_wait_for_itself() {
    let world = world(6);
    let rig = Rig::blank(&world.world(), 2 << 20);
    let work = || {
        let db = rig.open().expect("blank");
        db.write(|txn| txn.open_table(ROWS)?.insert(0, &[0; 10])).expect("room");
        let oldest = db.begin_write().expect("open");
        oldest.open_table(ROWS).expect("there").insert(1, &[1; 100]).expect("room");
        let others = db.clone();
        let filler = spawn("filler", move || {
            let refused = (0..9_000).find_map(|number| write_others(&others, number, 100).err());
            assert!(refused.is_none(), "{refused:?}");
        });
        // The log is full, and the filler waits for the oldest transaction.
        sleep(Nanos::from_millis(100));
        let began = now();
        let told = oldest.open_table(NEW).map(drop);
        assert!(matches!(told, Err(Error::HoldsLog { .. })), "{told:?}");
        assert!(now() - began < Nanos::from_secs(1), "it took {}", now() - began);
        oldest.rollback().expect("room is kept");
        filler.join();
        db.check().expect("whole");
    };
    world.run(work).expect("nobody waits for ever");
}
