//! Devices that fall silent: a flash is given up and the database goes on; home and log stop it.

use std::io::ErrorKind;
use std::sync::Arc;

use terrace::{Checkpoints, Database, Devices, Error, FlashRole, Nanos, Part, TableDef, World};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Keep, Store};
use terrace_policy::{DESIGNS, RESTARTS};
use terrace_rt::{Prng, Virtual, VirtualConfig, now};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 500;
const ROUNDS: u64 = 60;
/// What no test here takes in virtual time, unless something waits for each page.
const LONG: Nanos = Nanos::from_secs(40);

struct Rig {
    home: Arc<SimDevice>,
    flash: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn new() -> Rig {
        let device = |bytes| build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain));
        Rig { home: device(16 << 20), flash: device(4 << 20), log: device(16 << 20) }
    }

    fn builder(&self) -> terrace::Builder {
        let devices = Devices {
            home: self.home.clone(),
            flash: Some(self.flash.clone()),
            log: self.log.clone(),
        };
        let every = Checkpoints::Every(Nanos::from_millis(200));
        Database::builder().memory(256 << 10).devices(devices).checkpoints(every)
    }
}

fn in_world<T>(seed: u64, run: impl FnOnce() -> T) -> T {
    let config = VirtualConfig { seed, switch_one_in: 5, cores: 1, stack_bytes: 256 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever")
}

fn row(key: u64, round: u64) -> Vec<u8> {
    vec![(key * 31 + round) as u8; 900]
}

/// Changes and reads rows at random; `model` says what round each row is of.
fn work(db: &Database, prng: &mut Prng, round: u64, model: &mut [u64]) -> Result<(), Error> {
    let keys: Vec<u64> = (0..20).map(|_| prng.below(KEYS)).collect();
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        keys.iter().try_for_each(|key| rows.insert(*key, &row(*key, round)))
    })?;
    keys.iter().for_each(|key| model[*key as usize] = round);
    db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        for _ in 0..40 {
            let key = prng.below(KEYS);
            let found = rows.get(key)?.map(|value| value.value().to_vec());
            assert_eq!(found, Some(row(key, model[key as usize])), "row {key} in round {round}");
        }
        Ok(())
    })
}

fn check(db: &Database, model: &[u64]) {
    db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        for (key, round) in (0..).zip(model) {
            let found = rows.get(key)?.map(|value| value.value().to_vec());
            assert_eq!(found, Some(row(key, *round)), "row {key}");
        }
        Ok::<_, Error>(())
    })
    .expect("readable");
    db.check().expect("whole");
}

fn fill(db: &Database) -> Vec<u64> {
    for keys in (0..KEYS).collect::<Vec<_>>().chunks(50) {
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            keys.iter().try_for_each(|key| rows.insert(*key, &row(*key, 0)))
        })
        .expect("room");
    }
    vec![0; KEYS as usize]
}

#[test]
fn a_flash_that_falls_silent_costs_no_row_and_no_hang() {
    // A flash device that never answered was waited for for ever.
    let mut runs = 0;
    for (number, design) in (0..).zip(DESIGNS.iter().filter(|design| design.uses_flash())) {
        for (other, restart) in (0..).zip(&RESTARTS) {
            let seed = number * 100 + other;
            let name = format!("{} {}", design.name, restart.name);
            runs += u32::from(in_world(seed, || {
                let (rig, mut prng) = (Rig::new(), Prng::from_seed(seed));
                let builder = rig.builder().design(*design).restart(*restart);
                let Ok(db) = builder.clone().create_on_devices() else { return false };
                let mut model = fill(&db);
                let falls_silent = prng.below(ROUNDS);
                let began = now();
                for round in 1..ROUNDS {
                    rig.flash.set_silent(round >= falls_silent);
                    let worked = work(&db, &mut prng, round, &mut model);
                    worked.unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                check(&db, &model);
                db.close().unwrap_or_else(|error| panic!("{name}: {error}"));
                // Once with a flash that still does not answer, and once with one that does.
                check(&builder.clone().open_on_devices().expect("cold"), &model);
                rig.flash.set_silent(false);
                check(&builder.open_on_devices().expect("it is back"), &model);
                assert!(now() - began < LONG, "{name} took {:?}", now() - began);
                true
            }));
        }
    }
    assert!(runs > 50, "{runs} designs and restarts go together");
}

#[test]
fn a_flash_that_is_a_part_of_the_database_stops_it_when_it_falls_silent() {
    in_world(1, || {
        let (rig, mut prng) = (Rig::new(), Prng::from_seed(1));
        let builder = rig.builder().flash_role(FlashRole::Persistent);
        let builder = builder.design(terrace_policy::designs::find("lc").expect("a row"));
        let db = builder.clone().create_on_devices().expect("memory");
        let mut model = fill(&db);
        for round in 1..20 {
            work(&db, &mut prng, round, &mut model).expect("memory");
        }
        let began = now();
        rig.flash.set_silent(true);
        let error = (20..ROUNDS)
            .find_map(|round| work(&db, &mut prng, round, &mut model).err())
            .expect("flash is needed");
        match &error {
            Error::Failed { cause: Some(cause) } => match &**cause {
                Error::Device { part, .. } => assert_eq!(*part, Part::Flash),
                cause => panic!("{cause}"),
            },
            Error::Device { part, .. } => assert_eq!(*part, Part::Flash),
            error => panic!("{error}"),
        }
        drop(db);
        assert!(now() - began < LONG);
    });
}

#[test]
fn home_and_log_that_fall_silent_are_told_and_waited_for_no_longer() {
    for is_log in [true, false] {
        in_world(2, || {
            let (rig, mut prng) = (Rig::new(), Prng::from_seed(2));
            let limit = Nanos::from_secs(2);
            let builder = rig.builder().io_timeout_home(limit).io_timeout_log(limit);
            let db = builder.clone().create_on_devices().expect("memory");
            let mut model = fill(&db);
            let device = if is_log { &rig.log } else { &rig.home };
            let part = if is_log { Part::Log } else { Part::Home };
            device.set_silent(true);
            let began = now();
            let error = (1..ROUNDS)
                .find_map(|round| work(&db, &mut prng, round, &mut model).err())
                .or_else(|| db.checkpoint(terrace::Checkpoint::Sharp).err())
                .expect("it does not answer");
            let cause = match &error {
                Error::Failed { cause: Some(cause) } => cause,
                error => error,
            };
            let Error::Device { part: found, source, .. } = cause else { panic!("{error}") };
            assert_eq!((*found, source.kind()), (part, ErrorKind::TimedOut));
            drop(db);
            assert!(now() - began < LONG);
            device.set_silent(false);
            builder.open_on_devices().expect("recovers").check().expect("whole");
        });
    }
}
