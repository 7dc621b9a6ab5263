//! Whichever device fails, and however: every call returns which one, what was requested of it, and
//! the number of the system's error, for as long as the database is not opened again.

use std::sync::Arc;

use terrace::{
    Checkpoint, Checkpoints, Database, Devices, Durability, Error, FlashRole, Nanos, Part,
    TableDef, World,
};
use terrace_device::model::{Preset, build};
use terrace_device::{FaultPlan, FaultyDevice, Keep, Store};
use terrace_rt::{Virtual, VirtualConfig, now};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 400;
const ROUNDS: u64 = 400;
const LIMIT: Nanos = Nanos::from_secs(3);

const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ETIMEDOUT: i32 = 110;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Reads,
    Writes,
    Syncs,
    Dead,
    Silent,
}

impl Fault {
    const ALL: [Fault; 5] = [Fault::Reads, Fault::Writes, Fault::Syncs, Fault::Dead, Fault::Silent];

    fn befalls(self, device: &FaultyDevice) {
        let mut plan = FaultPlan::default();
        match self {
            Fault::Reads => plan.read_error_one_in = 1,
            Fault::Writes => plan.write_error_one_in = 1,
            Fault::Syncs => plan.sync_error_one_in = 1,
            Fault::Dead => return device.set_dead(true),
            Fault::Silent => return device.set_silent(true),
        }
        device.set_plan(plan);
    }

    fn errno(self) -> i32 {
        match self {
            Fault::Reads | Fault::Writes | Fault::Syncs => EIO,
            Fault::Dead => ENODEV,
            Fault::Silent => ETIMEDOUT,
        }
    }
}

fn in_world(seed: u64, run: impl FnOnce()) {
    let config = VirtualConfig { seed, switch_one_in: 5, cores: 1, stack_bytes: 256 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever");
}

struct Rig {
    home: Arc<FaultyDevice>,
    flash: Arc<FaultyDevice>,
    log: Arc<FaultyDevice>,
}

impl Rig {
    fn new() -> Rig {
        let device = |bytes| {
            let memory = build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain));
            FaultyDevice::new(memory, FaultPlan::default())
        };
        Rig { home: device(16 << 20), flash: device(4 << 20), log: device(64 << 20) }
    }

    fn device(&self, part: Part) -> &FaultyDevice {
        match part {
            Part::Home => &self.home,
            Part::Flash => &self.flash,
            _ => &self.log,
        }
    }

    fn create(&self) -> Database {
        let devices = Devices {
            home: self.home.clone(),
            flash: Some(self.flash.clone()),
            log: self.log.clone(),
        };
        let builder = Database::builder().memory(256 << 10).devices(devices);
        let builder = builder.checkpoints(Checkpoints::Every(Nanos::from_millis(200)));
        let builder = builder.io_timeout_home(LIMIT).io_timeout_log(LIMIT).io_timeout_flash(LIMIT);
        let builder = builder.flash_role(FlashRole::Persistent);
        let design = terrace_policy::designs::find("lc").expect("a row");
        builder.design(design).create_on_devices().expect("memory")
    }
}

fn change(db: &Database, round: u64) -> Result<(), Error> {
    let row = vec![round as u8; 900];
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..7).try_for_each(|key| rows.insert((round * 31 + key * 57) % KEYS, &row))
    })?;
    db.read(|txn| txn.open_table(ROWS)?.get(round * 13 % KEYS).map(drop))
}

/// What `error` says of the device.
#[track_caller]
fn tells(error: &Error, part: Part, fault: Fault) {
    let cause = match error {
        Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => cause,
        error => error,
    };
    let what = || format!("{part:?} {fault:?}: {error}; {error:?}");
    assert!(matches!(cause, Error::Device { part: found, .. } if *found == part), "{}", what());
    let told = error.device_error().unwrap_or_else(|| panic!("{}", what()));
    assert_eq!(told.device, "a modelled device", "{}", what());
    assert_eq!(error.errno(), Some(fault.errno()), "{}", what());
}

/// The error of a stopped engine.
#[track_caller]
fn failed<T>(answer: Result<T, Error>) -> Error {
    match answer {
        Err(error @ Error::Failed { .. }) => error,
        Err(error) => panic!("{error}; {error:?}"),
        Ok(_) => panic!("a stopped engine went on"),
    }
}

/// What a stopped engine answers to all that can be asked of `db`, and of transactions that were
/// open before.
fn all_answers(db: Database, open: [terrace::WriteTransaction; 2]) -> Vec<Error> {
    let [first, second] = open;
    let mut answers = vec![
        failed(db.begin_write()),
        failed(db.begin_read()),
        failed(db.read(|_| Ok::<_, Error>(()))),
        failed(db.write(|_| Ok::<_, Error>(()))),
        failed(db.check()),
        failed(db.flush()),
        failed(db.checkpoint(Checkpoint::Indirect)),
        failed(db.checkpoint(Checkpoint::Sharp)),
        failed(first.open_table(ROWS)),
        failed(first.delete_table("rows")),
        failed(first.table_names()),
        failed(first.savepoint()),
        failed(first.rollback()),
        failed(second.commit(Durability::Buffered)),
    ];
    answers.push(failed(db.close()));
    answers
}

fn fails(part: Part, fault: Fault) {
    let rig = Rig::new();
    let db = rig.create();
    for keys in (0..=KEYS).collect::<Vec<_>>().chunks(50) {
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            keys.iter().try_for_each(|key| rows.insert(*key, &[1; 900]))
        })
        .expect("healthy devices");
    }
    (0..300).for_each(|round| change(&db, round).expect("healthy devices"));
    let open = [db.begin_write().expect("open"), db.begin_write().expect("open")];
    for (key, txn) in (KEYS + 1..).zip(&open) {
        txn.open_table(ROWS).expect("there").insert(key, &[1]).expect("room");
    }
    fault.befalls(rig.device(part));
    let mut errors = 0;
    for round in 0..ROUNDS {
        let began = now();
        let is_checkpoint = round % 50 == 49;
        let worked = match is_checkpoint {
            true => db.checkpoint(Checkpoint::Sharp),
            false => change(&db, round),
        };
        let Err(error) = worked else { continue };
        assert!(now() - began < LIMIT * 2, "{part:?} {fault:?} took {:?}: {error}", now() - began);
        tells(&error, part, fault);
        if matches!(error, Error::Failed { .. }) {
            for answer in all_answers(db, open) {
                assert_eq!(answer.to_string(), error.to_string());
                tells(&answer, part, fault);
            }
            return;
        }
        errors += 1;
    }
    // Reads fail one by one; without writes to flash there is no checkpoint.
    let is_borne = fault == Fault::Reads || (part == Part::Flash && errors > 0);
    assert!(is_borne, "{part:?} {fault:?}: nothing came of it");
}

#[test]
fn every_call_after_a_failure_tells_the_device_and_the_number_of_the_error() {
    // A log that fell silent was "an earlier write failed", after twice its limit; of a home that
    // did, the error named neither the device nor a number.
    for part in [Part::Home, Part::Log, Part::Flash] {
        for (seed, fault) in (0..).zip(Fault::ALL) {
            in_world(seed, || fails(part, fault));
        }
    }
}
