//! Leaves that share their rows while the log is nearly full.

use super::*;

/// Leaves that share their rows log more than other operations, and an opening that undoes one
/// of them in the middle logs it again: both find room in the smallest log, however full.
#[test]
fn leaves_share_their_rows_beside_a_full_log() {
    let names: TableDef<&[u8], &[u8]> = TableDef::new("names");
    let key = |number: u64| [&b"the same beginning "[..], &noise(number, 40)].concat();
    for seed in 0..12 {
        let first = world(300 + seed);
        let mut rig = Rig::blank(&first.world(), 1 << 20);
        let mut prng = terrace_rt::Prng::from_seed(seed);
        let stayed = |number: u64| number.is_multiple_of(4 + seed % 3);
        let work = || {
            let db = rig.open().expect("blank");
            for part in 0..60 {
                let load = |txn: &terrace::WriteTransaction| {
                    let mut rows = txn.open_table(names)?;
                    (part * 50..part * 50 + 50)
                        .try_for_each(|number| rows.insert(&key(number), &noise(number, 80)))
                };
                db.write(load).expect("room");
            }
            db.write(|txn| txn.open_table(OTHERS).map(drop)).expect("room");
            let idle = db.begin_write().expect("open");
            idle.open_table(OTHERS).expect("there").insert(1 << 40, &[1; 100]).expect("room");
            first.cut_at_event(first.world().events() + 200 + prng.below(1500));
            for number in (0..3000).filter(|number| !stayed(*number)) {
                let removed = db.write(|txn| txn.open_table(names)?.remove(&key(number)).map(drop));
                if let Err(error) = removed {
                    let is_told = error.is_transient() || matches!(error, Error::LogHeld { .. });
                    assert!(is_told, "seed {seed}: {error:?}");
                    break;
                }
            }
            sleep(Nanos::from_secs(1000));
        };
        first.run(work).expect_err("the power is cut");
        for device in [&rig.home, &rig.log] {
            device.power_cut(&mut prng);
        }
        let last = world(seed);
        rig = Rig { home: rig.home.reopen(last.world()), log: rig.log.reopen(last.world()) };
        let check = || {
            let db = rig.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            db.check().expect("sound");
            db.read(|txn| {
                let rows = txn.open_table(names)?;
                for number in (0..3000).filter(|number| stayed(*number)) {
                    assert!(rows.get(&key(number))?.is_some(), "seed {seed}: row {number}");
                }
                Ok::<_, Error>(())
            })
            .expect("readable");
        };
        last.run(check).expect("nobody waits for ever");
    }
}
