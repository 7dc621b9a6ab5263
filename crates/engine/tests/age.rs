//! A bound on the age of changes bounds what the log keeps, and what recovery reads of it.

use std::sync::Arc;

use terrace::{Checkpoint, Checkpoints, Database, Devices, Durability, Error, TableDef, World};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_policy::{designs, restarts};
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig, sleep};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROWS: u64 = 2_000;
const ROW_BYTES: usize = 700;
const TRANSACTIONS: u64 = 3_000;
/// Bytes of the doublewrite area of such a log.
const BESIDE: u64 = 2 << 20;
/// What opening reads behind the log's end, to tell a torn tail from damage: 4 MiB as a whole, then
/// samples of 256 KiB, a sixteenth farther each, to the end of a ring of 64 MiB.
const BEHIND: u64 = 17 << 20;
const CLEAN_AGE: u64 = 1 << 20;
/// Beside the bound: what open transactions and pages under way hold, and the checkpoint itself.
const MORE: u64 = 128 << 10;

struct Rig {
    home: Arc<SimDevice>,
    flash: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World) -> Rig {
        let device = |bytes| {
            let spec = Preset::Nvme.spec();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(32 << 20), flash: device(32 << 20), log: device(64 << 20) }
    }

    fn in_world(&self, world: &World) -> Rig {
        let again = |device: &Arc<SimDevice>| device.reopen(world.clone());
        Rig { home: again(&self.home), flash: again(&self.flash), log: again(&self.log) }
    }

    fn cut(&self, prng: &mut Prng) {
        for device in [&self.home, &self.flash, &self.log] {
            device.power_cut(prng);
        }
    }

    /// The lazy cleaner alone never has a reason to bring anything home.
    fn open(&self, restart: &str, clean_age: Option<u64>) -> Result<Database, Error> {
        let devices = Devices {
            home: self.home.clone(),
            flash: Some(self.flash.clone()),
            log: self.log.clone(),
        };
        let builder = Database::builder()
            .memory(512 << 10)
            .design(designs::find("lc").expect("a row"))
            .restart(restarts::find(restart).expect("a row"))
            .tune(|tier| tier.lambda = 1.0)
            .checkpoints(Checkpoints::Off)
            .devices(devices);
        let builder = match clean_age {
            Some(bytes) => builder.clean_age(bytes),
            None => builder,
        };
        builder.open_or_create_on_devices()
    }
}

/// Replaces rows, few of them often and the others now and then.
fn work(db: &Database) -> Result<u64, Error> {
    let mut prng = Prng::from_seed(7);
    let mut used_max = 0;
    for number in 0..TRANSACTIONS {
        let spread = if prng.chance(10) { ROWS } else { ROWS / 50 };
        let row = vec![number as u8; ROW_BYTES];
        db.write_with(Durability::Buffered, |txn| {
            txn.open_table(TABLE)?.insert(prng.below(spread), &row[..])
        })?;
        sleep(Nanos(200_000));
        if number % 500 == 499 {
            db.checkpoint(Checkpoint::Indirect)?;
            used_max = used_max.max(db.stats().log.used_bytes);
        }
    }
    Ok(used_max)
}

/// What the log kept at a checkpoint, at most, and what opening read of it after a power cut.
fn kept_and_read(restart: &str, clean_age: Option<u64>) -> (u64, u64) {
    let virtual_world = |seed| {
        Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 })
    };
    let first = virtual_world(1);
    let rig = Rig::blank(&first.world());
    let mut kept = 0;
    let ran: Result<Result<(), Error>, Stopped> = first.run(|| {
        let db = rig.open(restart, clean_age)?;
        let row = [0; ROW_BYTES];
        db.write(|txn| (0..ROWS).try_for_each(|key| txn.open_table(TABLE)?.insert(key, &row[..])))?;
        db.checkpoint(Checkpoint::Sharp)?;
        kept = work(&db)?;
        first.cut_at_event(0);
        sleep(Nanos(1));
        Ok(())
    });
    assert!(matches!(ran, Err(Stopped::PowerCut { .. })), "{ran:?}");
    rig.cut(&mut Prng::from_seed(3));
    let second = virtual_world(2);
    let again = rig.in_world(&second.world());
    let read = second.run(|| {
        let db = again.open(restart, clean_age)?;
        let read = again.log.counters().read_bytes;
        let rows =
            db.read(|txn| Ok::<_, Error>(txn.open_table(TABLE)?.range(..)?.count() as u64))?;
        assert_eq!(rows, ROWS);
        db.close()?;
        Ok::<_, Error>(read)
    });
    (kept, read.expect("the power stays").expect("it opens"))
}

#[test]
fn the_log_and_recovery_keep_to_the_bound() {
    for restart in ["forget", "warm"] {
        let (kept, read) = kept_and_read(restart, Some(CLEAN_AGE));
        let (kept_freely, read_freely) = kept_and_read(restart, None);
        println!("{restart}: {kept} kept, {read} read; without: {kept_freely}, {read_freely}");
        assert!(kept <= CLEAN_AGE + MORE, "{restart}: {kept} kept");
        assert!(kept_freely > 2 * CLEAN_AGE, "{restart}: {kept_freely} kept without a bound");
        // Analysis reads it once, redo twice: to name the pages, and to change them.
        // So is what lies beside the log, copies of pages that were on their way home, and what
        // lies behind its end.
        assert!(read <= 3 * (CLEAN_AGE + MORE) + MORE + BESIDE + BEHIND, "{restart}: {read} read");
        assert!(read <= read_freely, "{restart}: {read} read, {read_freely} without a bound");
    }
}
