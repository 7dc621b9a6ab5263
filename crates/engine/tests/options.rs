//! Databases that are opened with other options each time, at random: design, restart, the role of
//! the flash and whether there is one, memory. Sessions are cut, or closed; flash devices grow, and
//! home and log are put back to an earlier day.

use std::sync::Arc;

use terrace::{
    Checkpoint, Checkpoints, ColdStart, Database, Devices, Durability, Error, FlashRole, TableDef,
};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_policy::{designs, restarts};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World, sleep};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROWS: u64 = 1_500;
const ROW_BYTES: usize = 700;
const DESIGNS: [&str; 16] = [
    "auto",
    "lc",
    "dw",
    "cw",
    "tac",
    "cac",
    "cc",
    "lazy",
    "exclusive",
    "inclusive",
    "hetero",
    "face",
    "face-gr",
    "face-base",
    "rotating",
    "fasc",
];
const RESTARTS: [&str; 9] =
    ["warm", "warm", "warm", "map-log", "map-chunks", "map-segments", "map-zone", "lvr", "mmr"];

#[derive(Clone)]
struct Rig {
    home: Store,
    flash: Store,
    log: Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    ClosedSharp,
    RestedCut,
    Cut,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    design: &'static str,
    restart: &'static str,
    role: FlashRole,
    has_flash: bool,
    memory: u64,
    checkpoints: Nanos,
    end: End,
}

fn one_of<T: Copy>(prng: &mut Prng, all: &[T]) -> T {
    all[prng.below(all.len() as u64) as usize]
}

impl Options {
    /// Restart and role mostly stay as they were.
    fn draw(prng: &mut Prng, before: Option<Options>) -> Options {
        let stays = |prng: &mut Prng| before.filter(|_| prng.below(4) > 0);
        let role = one_of(prng, &[FlashRole::Cache, FlashRole::Persistent]);
        Options {
            design: one_of(prng, &DESIGNS),
            restart: stays(prng).map_or(one_of(prng, &RESTARTS), |before| before.restart),
            role: stays(prng).map_or(role, |before| before.role),
            has_flash: !prng.chance(12),
            memory: one_of(prng, &[256 << 10, 512 << 10, 1 << 20]),
            checkpoints: Nanos::from_millis(one_of(prng, &[20, 500])),
            end: Options::end(prng),
        }
    }

    fn end(prng: &mut Prng) -> End {
        one_of(prng, &[End::Closed, End::ClosedSharp, End::RestedCut, End::Cut])
    }

    fn open(&self, devices: Devices) -> Result<Database, Error> {
        let without = ("no-ssd", "forget", FlashRole::Cache);
        let with = (self.design, self.restart, self.role);
        let (design, restart, role) = if self.has_flash { with } else { without };
        Database::builder()
            .memory(self.memory)
            .design(designs::find(design).expect("a row"))
            .restart(restarts::find(restart).expect("a row"))
            .flash_role(role)
            .checkpoints(Checkpoints::Every(self.checkpoints))
            .devices(devices)
            .open_or_create_on_devices()
    }
}

/// Runs `body` on the database, and ends as `options` say. What is left, and what came of it.
fn session<T>(
    rig: &Rig,
    options: Options,
    seed: u64,
    body: impl FnOnce(&Database, &mut Prng) -> Result<T, Error>,
) -> (Rig, Result<T, Error>) {
    let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    let world = Virtual::new(config);
    let spec = || Preset::Nvme.spec().with_write_cache();
    let on = |store: &Store, world: World| SimDevice::new(spec(), world, store.clone());
    let [home, flash, log] =
        [&rig.home, &rig.flash, &rig.log].map(|store| on(store, world.world()));
    let mut prng = Prng::from_seed(seed);
    let mut result = None;
    let ran = world.run(|| {
        let devices = Devices {
            home: home.clone(),
            flash: options.has_flash.then(|| flash.clone() as Arc<dyn Device>),
            log: log.clone(),
        };
        result = Some(options.open(devices).and_then(|db| {
            let done = body(&db, &mut prng)?;
            match options.end {
                End::Closed => db.close()?,
                End::ClosedSharp => {
                    db.checkpoint(Checkpoint::Sharp)?;
                    db.close()?;
                }
                end => {
                    sleep(Nanos::from_millis(if end == End::RestedCut { 300 } else { 0 }));
                    world.cut_at_event(0);
                    std::mem::forget(db);
                }
            }
            Ok(done)
        }));
        sleep(Nanos(1));
    });
    if ran.is_err() {
        for device in [&home, &flash, &log] {
            device.power_cut(&mut prng);
        }
    }
    let left = Rig { home: home.store(), flash: flash.store(), log: log.store() };
    (left, result.expect("it was opened, or not"))
}

/// Holds the database against `rows`, and changes some of both.
fn look_and_write(
    db: &Database,
    rows: &mut [u8],
    number: u8,
    prng: &mut Prng,
) -> Result<(u64, Option<ColdStart>), Error> {
    let mut wrong = 0;
    if rows[0] != 0 {
        let txn = db.begin_read()?;
        let table = txn.open_table(TABLE)?;
        for (key, &expected) in (0..).zip(&*rows) {
            let found = table.get(key)?.map_or(0, |row| row.value()[0]);
            wrong += u64::from(found != expected);
        }
    }
    db.check()?;
    for _ in 0..1 + prng.below(3) {
        let step = if rows[0] == 0 { 1 } else { one_of(prng, &[1, 3, 7, 50, 400]) };
        let first = prng.below(step);
        let keys: Vec<u64> = (first..ROWS).step_by(step as usize).collect();
        for keys in keys.chunks(60) {
            db.write_with(Durability::Durable, |txn| {
                let mut table = txn.open_table(TABLE)?;
                keys.iter().try_for_each(|&key| table.insert(key, &[number; ROW_BYTES][..]))
            })?;
            keys.iter().for_each(|&key| rows[key as usize] = number);
        }
        match prng.below(4) {
            0 => sleep(Nanos::from_millis(100)),
            1 => {
                for _ in 0..300 {
                    let txn = db.begin_read()?;
                    txn.open_table(TABLE)?.get(prng.below(ROWS))?;
                }
            }
            2 => db.checkpoint(Checkpoint::Indirect)?,
            _ => {}
        }
    }
    Ok((wrong, db.cold_start()))
}

/// What a session left, the rows that were durable, and how it was opened.
#[derive(Clone)]
struct Day {
    rig: Rig,
    rows: Vec<u8>,
    options: Option<Options>,
}

impl Day {
    /// The next one: `befallen` is this one, with what happened since; `whole_flash` is what the
    /// database had last, in case that it cannot do without.
    fn next(&self, whole_flash: &Store, number: u8, (seed, prng): (u64, &mut Prng)) -> Day {
        let mut rig = self.rig.clone();
        let mut options = Options::draw(prng, self.options);
        loop {
            let mut rows = self.rows.clone();
            let work = |db: &Database, prng: &mut Prng| look_and_write(db, &mut rows, number, prng);
            let (left, found) = session(&rig, options, seed * 10 + u64::from(number), work);
            match found {
                // Some do not go together.
                Err(Error::InvalidOption { .. }) => options = Options::draw(prng, self.options),
                Err(Error::FlashNeeded { .. }) => {
                    rig = Rig { flash: whole_flash.clone(), ..left };
                    let as_before = self.options.expect("nothing is needed by what is new");
                    options = Options { end: Options::end(prng), ..as_before };
                }
                Ok((0, why)) => {
                    let is_broken =
                        matches!(why, Some(ColdStart::Contradicted | ColdStart::LogLost));
                    assert!(!is_broken, "seed {seed}, opening {number}: {why:?}, {options:?}");
                    return Day { rig: left, rows, options: Some(options) };
                }
                wrong => {
                    let wrong = wrong.map_err(|error| error.to_string());
                    let before = self.options;
                    panic!("seed {seed}, opening {number}: {wrong:?}, {options:?} after {before:?}")
                }
            }
        }
    }
}

/// Runs a database through seven openings.
fn run(seed: u64) {
    let mut prng = Prng::from_seed(seed);
    let store = |mebibytes: u64| Store::new(mebibytes << 20, Keep::Plain);
    let flash = store(one_of(&mut prng, &[2, 8]));
    let rig = Rig { home: store(32), flash, log: store(16) };
    let mut days = vec![Day { rig, rows: vec![0; ROWS as usize], options: None }];
    for number in 1..8_u8 {
        let mut day = days[days.len() - 1].clone();
        let mut whole_flash = day.rig.flash.clone();
        match prng.below(8) {
            0 => day.rig.flash.grow(day.rig.flash.len() + ((1 + prng.below(3)) << 20)),
            1 if days.len() > 2 => {
                // Home and log of then, flash of now.
                let then = days[1 + prng.below(days.len() as u64 - 1) as usize].clone();
                let now = std::mem::replace(&mut whole_flash, then.rig.flash.clone());
                day = Day { rig: Rig { flash: now, ..then.rig.clone() }, ..then };
            }
            _ => {}
        }
        days.push(day.next(&whole_flash, number, (seed, &mut prng)));
    }
}

/// The bugs: `switched` has one. The other: what was a cache when the power was cut, and then a
/// part of the database, was trusted to have all that its table named, and nothing opened so again.
#[test]
fn options_that_change_at_each_opening_lose_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let first = number("TERRACE_TEST_FIRST_SEED").unwrap_or(0);
    let seeds = first..first + number("TERRACE_TEST_SEEDS").unwrap_or(60);
    // The last ones met the other.
    seeds.chain([160, 730, 1340]).for_each(run);
}
