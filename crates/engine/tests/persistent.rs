//! Flash as a part of the database: opening without it, with another, with an older copy of it, or
//! without the option is refused with the reason, leaves all as it was, and loses nothing.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use terrace::{
    Checkpoint, Checkpoints, ColdStart, Database, Devices, Durability, Error, FlashRole, TableDef,
};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_policy::{designs, restarts};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World, sleep};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROWS: u64 = 2_000;
const ROW_BYTES: usize = 700;
/// Time between checkpoints, and time for the background writer to do its work.
const CHECKPOINTS: Nanos = Nanos::from_millis(20);
const REST: Nanos = Nanos::from_millis(200);

/// The bytes of the three devices while no world is on.
#[derive(Clone)]
struct Rig {
    home: Store,
    flash: Store,
    log: Store,
}

/// How the database is opened.
#[derive(Clone, Copy)]
struct Options {
    design: &'static str,
    restart: &'static str,
    role: FlashRole,
    has_flash: bool,
    memory: u64,
}

const RIGHT: Options = Options {
    design: "face",
    restart: "warm",
    role: FlashRole::Persistent,
    has_flash: true,
    memory: 512 << 10,
};

impl Rig {
    fn blank() -> Rig {
        let store = |mebibytes: u64| Store::new(mebibytes << 20, Keep::Plain);
        Rig { home: store(32), flash: store(8), log: store(16) }
    }

    /// Runs `body` on the database, opened with `options`, and keeps what it leaves; the power is
    /// cut in the end unless `body` has closed it.
    fn session(
        &mut self,
        options: Options,
        body: impl FnOnce(Database) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
        let world = Virtual::new(config);
        let on = |store: &Store, world: World| {
            SimDevice::new(Preset::Nvme.spec().with_write_cache(), world, store.clone())
        };
        let [home, flash, log] =
            [&self.home, &self.flash, &self.log].map(|store| on(store, world.world()));
        let mut refused = None;
        let ran = world.run(|| {
            let devices = Devices {
                home: home.clone(),
                flash: options.has_flash.then(|| flash.clone() as Arc<dyn Device>),
                log: log.clone(),
            };
            let opened = Database::builder()
                .memory(options.memory)
                .design(designs::find(options.design).expect("a row"))
                .restart(restarts::find(options.restart).expect("a row"))
                .flash_role(options.role)
                .checkpoints(Checkpoints::Every(CHECKPOINTS))
                .devices(devices)
                .open_or_create_on_devices();
            match opened.and_then(body) {
                Ok(()) => world.cut_at_event(0),
                Err(error) => refused = Some(error),
            }
            sleep(Nanos(1));
        });
        let mut prng = Prng::from_seed(2);
        if ran.is_err() {
            for device in [&home, &flash, &log] {
                device.power_cut(&mut prng);
            }
        }
        *self = Rig { home: home.store(), flash: flash.store(), log: log.store() };
        refused.map_or(Ok(()), Err)
    }

    /// Why the database does not open so; its devices stay as they are.
    fn refusal(&self, options: Options) -> Option<ColdStart> {
        let mut copy = self.clone();
        match copy.session(options, |_| Ok(())) {
            Err(Error::FlashNeeded { why, .. }) => {
                assert_eq!(copy.bytes(), self.bytes(), "{why} leaves all as it was");
                Some(why)
            }
            Err(error) => panic!("another error: {error}"),
            Ok(()) => None,
        }
    }

    fn bytes(&self) -> [Vec<u8>; 3] {
        [&self.home, &self.flash, &self.log].map(|store| {
            let mut bytes = vec![0; store.len() as usize];
            store.read(0, &mut bytes).expect("a plain store keeps all");
            bytes
        })
    }
}

fn write(db: &Database, number: u8) -> Result<(), Error> {
    let row = [number; ROW_BYTES];
    for keys in (0..ROWS).collect::<Vec<_>>().chunks(100) {
        db.write_with(Durability::Durable, |txn| {
            let mut table = txn.open_table(TABLE)?;
            keys.iter().try_for_each(|&key| table.insert(key, &row[..]))
        })?;
    }
    Ok(())
}

fn holds(db: &Database, number: u8) -> Result<(), Error> {
    let txn = db.begin_read()?;
    let table = txn.open_table(TABLE)?;
    for key in 0..ROWS {
        let row = table.get(key)?.expect("a row");
        assert_eq!(row.value(), [number; ROW_BYTES], "row {key}");
    }
    Ok(())
}

/// Two days of a database whose flash is a part of it: the flash of the first day, and all of the
/// second, on which the log was cut past what home lacks.
fn two_days() -> (Rig, Rig) {
    let mut rig = Rig::blank();
    let day = |rig: &mut Rig, number| {
        rig.session(RIGHT, |db| {
            write(&db, number)?;
            sleep(REST);
            write(&db, number + 1)?;
            sleep(REST);
            assert!(db.stats().pool.slots_dirty > 0, "flash has what home lacks");
            Ok(())
        })
        .expect("it opens");
        rig.clone()
    };
    let first = day(&mut rig, 1);
    (first, day(&mut rig, 3))
}

#[test]
fn a_database_does_not_open_without_its_flash_and_loses_nothing_by_it() {
    let (first, second) = two_days();
    let with = |flash: Store| Rig { flash, ..second.clone() };
    let blank = Rig::blank().flash;
    assert_eq!(with(blank.clone()).refusal(RIGHT), Some(ColdStart::Blank));
    assert_eq!(with(first.flash.clone()).refusal(RIGHT), Some(ColdStart::OtherSession));
    let smaller = Store::new(4 << 20, Keep::Plain);
    assert_eq!(with(smaller).refusal(RIGHT), Some(ColdStart::Blank));
    let missing = Options { has_flash: false, role: FlashRole::Cache, ..RIGHT };
    let missing = Options { design: "no-ssd", restart: "forget", ..missing };
    assert_eq!(second.refusal(missing), Some(ColdStart::NoDevice));
    // As a cache it would be given up by a later loss.
    let cache = Options { role: FlashRole::Cache, ..RIGHT };
    assert_eq!(second.refusal(cache), Some(ColdStart::NotPersistent));
    let forgetful = Options { restart: "forget", ..cache };
    assert!(second.refusal(forgetful).is_some());
    // An older home with the newer flash.
    let older = Rig { flash: second.flash.clone(), ..first };
    assert_eq!(older.refusal(RIGHT), Some(ColdStart::OtherSession));
    let mut whole = second;
    whole.session(RIGHT, |db| holds(&db, 4)).expect("its own flash opens it");
}

#[test]
fn a_sharp_checkpoint_brings_all_home_and_the_flash_may_go() {
    let (_, mut rig) = two_days();
    rig.session(RIGHT, |db| {
        db.checkpoint(Checkpoint::Sharp)?;
        db.close()
    })
    .expect("it opens");
    rig.flash = Rig::blank().flash;
    let plain = Options { role: FlashRole::Cache, has_flash: false, ..RIGHT };
    let plain = Options { design: "no-ssd", restart: "forget", ..plain };
    rig.session(plain, |db| holds(&db, 4)).expect("home has it all");
}

/// The bug: partitions followed from memory, and with another size of it the database did not open,
/// or its cache was cold.
#[test]
fn another_size_of_memory_keeps_what_flash_has() {
    const LC: Options = Options { design: "lc", memory: 2 << 20, ..RIGHT };
    let mut rig = Rig::blank();
    let fill = |db: Database| {
        write(&db, 4)?;
        // Until flash has what home lacks.
        while db.stats().pool.slots_dirty == 0 {
            sleep(Nanos::from_millis(1));
        }
        Ok(())
    };
    rig.session(LC, fill).expect("it opens");
    for memory in [4, 16, 64].map(|mebibytes| mebibytes << 20) {
        let mut copy = rig.clone();
        copy.session(Options { memory, ..LC }, |db| holds(&db, 4)).expect("its flash counts");
        copy.session(LC, |db| holds(&db, 4)).expect("its flash counts");
    }
    // Four partitions want memory of their own each, and say so.
    let small = Options { memory: 1 << 20, ..LC };
    assert_eq!(rig.refusal(small), Some(ColdStart::Partitions(4)));
    let told = Error::FlashNeeded { path: None, why: ColdStart::Partitions(4) }.to_string();
    assert!(told.contains("2048 KiB"), "{told}");

    // A cache is warm with some more memory, and is divided anew for much more.
    let cache = Options { role: FlashRole::Cache, ..LC };
    let mut rig = Rig::blank();
    rig.session(cache, |db| write(&db, 4)).expect("it opens");
    let cold = |memory| {
        let mut cold = None;
        let opened = rig.clone().session(Options { memory, ..cache }, |db| {
            cold = db.cold_start();
            holds(&db, 4)
        });
        opened.expect("a cache may be cold");
        cold
    };
    assert_eq!([2 << 20, 6 << 20].map(cold), [None, None]);
    assert_eq!(cold(1 << 20), Some(ColdStart::Partitions(4)));
}

/// Without the option, losing the flash loses nothing.
#[test]
fn a_cache_may_vanish() {
    let cache = Options { role: FlashRole::Cache, ..RIGHT };
    let mut rig = Rig::blank();
    rig.session(cache, |db| {
        write(&db, 1)?;
        sleep(REST);
        write(&db, 2)
    })
    .expect("it opens");
    rig.flash = Rig::blank().flash;
    rig.session(cache, |db| holds(&db, 2)).expect("the log has it all");
}

/// The log need not keep what flash has: it is cut further, and opening reads less of it.
#[test]
fn the_log_is_cut_where_flash_has_what_home_lacks() {
    let kept = |role| {
        let mut kept = 0;
        Rig::blank()
            .session(Options { role, ..RIGHT }, |db| {
                for number in 0..6 {
                    write(&db, number)?;
                    sleep(REST);
                }
                kept = db.stats().log.used_bytes;
                Ok(())
            })
            .expect("it opens");
        kept
    };
    let (cache, persistent) = (kept(FlashRole::Cache), kept(FlashRole::Persistent));
    println!("log kept: {cache} bytes as a cache, {persistent} as a part of the database");
    assert!(persistent * 4 < cache, "{persistent} of {cache}");
}

/// Of each reason the error says what is wrong, and what to do.
#[test]
fn each_reason_to_need_flash_has_a_text_of_its_own() {
    let told = |why| Error::FlashNeeded { path: None, why }.to_string();
    let device = ColdStart::Device(io::ErrorKind::NotFound);
    let all = [ColdStart::Blank, ColdStart::NotPersistent, ColdStart::Partitions(4), device];
    let texts: BTreeSet<String> = all.into_iter().map(told).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
}

/// The bug: pages that the load of a process that died had taken, and never written, were reported
/// as damaged at home.
#[test]
fn a_load_that_was_interrupted_leaves_no_damage() {
    for finishes in [false, true] {
        let mut rig = Rig::blank();
        let options = Options { design: "lc", ..RIGHT };
        let loads = |db: Database| {
            write(&db, 1)?;
            let txn = db.begin_write()?;
            let mut loader = txn.bulk_load(TableDef::<u64, &[u8]>::new("loaded"))?;
            (0..2 * ROWS).try_for_each(|key| loader.push(key, &[3; ROW_BYTES]))?;
            if finishes {
                loader.finish()?;
            } else {
                std::mem::forget(loader);
            }
            db.flush()?;
            std::mem::forget(txn);
            Ok(())
        };
        rig.session(options, loads).expect("good devices");
        let looks = |db: Database| {
            assert_eq!(db.damaged_at_home()?, []);
            db.check()?;
            assert_eq!(db.damaged_at_home()?, []);
            holds(&db, 1)
        };
        rig.session(options, looks).expect("good devices");
    }
}
