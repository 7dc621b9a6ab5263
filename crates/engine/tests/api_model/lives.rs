//! Databases from opening to closing, or to a power cut, and on with what is left.

use terrace::{Checkpoint, Database, Durability, Error, Nanos, PoolConfig, TableDef};
use terrace_pool::Mutations;
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig};

use super::rig::Rig;
use super::rows::{Bytes, Rows, Shape, same};
use super::{LONG, Modelled, Run, States, Tables, all_durable, compare, found, modelled};

/// Bytes of the rig's log.
const LOG_BYTES: u64 = 4 << 20;

fn open(rig: &Rig, mutations: Mutations) -> Result<Database, Error> {
    let tune = |pool: &mut PoolConfig| pool.mutations = mutations;
    rig.open(Database::builder().memory(1 << 20).tune(tune))
}

/// What goes on from life to life of a database.
struct Life<'l> {
    rig: &'l Rig,
    states: &'l States,
    mutations: Mutations,
    what: &'l str,
}

impl Life<'_> {
    /// Opens the database, finds one of the states that there may be, goes on from there, and
    /// closes it.
    fn run(&self, prng: &mut Prng, transactions: u64) {
        let Life { states, what, .. } = self;
        let open = || open(self.rig, self.mutations);
        let mut db = open().unwrap_or_else(|error| panic!("{what}: {error}"));
        let there = found(&db).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut committed = {
            let mut states = states.lock();
            let is_it = |state: &Tables| modelled(state) == there;
            // The last, since two may be equal but for the numbers of their tables.
            let at = states.iter().rposition(is_it);
            let at = at.unwrap_or_else(|| panic!("{what}: no state of {}", states.len()));
            let committed = states.swap_remove(at);
            *states = vec![committed.clone()];
            committed
        };
        compare(&db, &committed, what);
        let (mut made, mut foreign) = (0, None);
        if committed.is_empty() {
            let long = Modelled {
                number: 1 << 40,
                shape: Shape::Numbers,
                schema: None,
                rows: Rows::new(),
            };
            committed.insert("long", long);
            states.lock().push(committed.clone());
            same(what, db.write(|txn| txn.open_table(LONG).map(drop)), Ok(()));
            all_durable(states);
        }
        for number in 0..transactions {
            let what = format!("{what} transaction {number}");
            // Numbers of tables go up from life to life.
            let highest = committed.values().map(|table| table.number).filter(|n| *n < 1 << 40);
            made = made.max(highest.max().unwrap_or(0));
            let run = Run {
                db: &db,
                prng,
                tables: committed.clone(),
                committed: &mut committed,
                made: &mut made,
                foreign: &mut foreign,
                states,
                savepoints: Vec::new(),
                is_unfinished: false,
                has_dropped: false,
                what: what.clone(),
            };
            foreign = run.transaction().or(foreign);
            match prng.below(12) {
                0 | 1 => compare(&db, &committed, &what),
                2 => doomed(&db, &what),
                3 => {
                    close(db, &what);
                    all_durable(states);
                    db = open().expect("it was closed");
                    compare(&db, &committed, &what);
                }
                4 => terrace_rt::sleep(Nanos::from_millis(500)),
                _ => (),
            }
        }
        compare(&db, &committed, what);
        close(db, what);
        all_durable(states);
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 5, cores: 1, stack_bytes: 256 << 10 })
}

pub fn life(seed: u64, mutations: Mutations, transactions: u64) {
    let world = world(seed);
    let rig = Rig::blank(&world.world());
    let (states, what) = (LeafMutex::new(vec![Tables::new()]), format!("seed {seed}"));
    let life = Life { rig: &rig, states: &states, mutations, what: &what };
    let ran = world.run(|| life.run(&mut Prng::from_seed(seed), transactions));
    ran.expect("nobody waits for ever");
}

/// Lives of one database, each but the last cut off by a power cut at a random event. Returns how
/// many were.
pub fn lives(seed: u64, mutations: Mutations) -> u64 {
    let (mut prng, mut cuts) = (Prng::from_seed(seed), 0);
    let states = LeafMutex::new(vec![Tables::new()]);
    let first = world(seed);
    let (mut rig, mut now) = (Rig::blank(&first.world()), first);
    for number in 0..4 {
        if number > 0 {
            now = world(seed + 1_000 * number);
            rig = rig.in_world(&now.world());
        }
        if number < 3 {
            let most = if prng.chance(3) { 300 } else { 6_000 };
            now.cut_at_event(1 + prng.below(most));
        }
        let what = format!("seed {seed} life {number}");
        let life = Life { rig: &rig, states: &states, mutations, what: &what };
        match now.run(|| life.run(&mut Prng::from_seed(seed ^ (number << 20)), 12)) {
            Ok(()) => {}
            Err(Stopped::PowerCut { .. }) => {
                rig.cut(&mut prng);
                cuts += 1;
            }
            Err(stopped) => panic!("{what}: {stopped:?}"),
        }
    }
    cuts
}

/// An operation for which the log is too small dooms its transaction, whatever comes then.
fn doomed(db: &Database, what: &str) {
    let txn = db.begin_write().expect("open");
    let mut table = txn.open_table(TableDef::<u64, Bytes>::new("doomed")).expect("room");
    // Larger ones are not logged.
    let large = vec![7; 900_000];
    let full = (0..2 * LOG_BYTES / 900_000).try_for_each(|key| table.insert(key, &large));
    same(what, full, Err("LogFull"));
    same(what, table.insert(1, b"small"), Err("Doomed"));
    same(what, table.get(1).map(drop), Err("Doomed"));
    same(what, txn.savepoint().map(drop), Err("Doomed"));
    same(what, txn.table_names(), Err("Doomed"));
    drop(table);
    same(what, txn.commit(Durability::Durable), Err("Doomed"));
}

/// Closes the database while the caller has a transaction and a table open.
fn close(db: Database, what: &str) {
    let other = db.clone();
    let txn = db.begin_write().expect("open");
    let mut table = txn.open_table(TableDef::<u64, u64>::new("never")).expect("room");
    same(what, table.insert(1, 1), Ok(()));
    let savepoint = txn.savepoint().expect("sound");
    same(what, db.close(), Ok(()));
    same(what, table.insert(2, 2), Err("Closed"));
    same(what, table.get(1).map(drop), Err("Closed"));
    same(what, txn.rollback_to(&savepoint), Err("Closed"));
    same(what, txn.open_table(LONG).map(drop), Err("Closed"));
    drop(table);
    same(what, txn.commit(Durability::Durable), Err("Closed"));
    same(what, other.begin_read().map(drop), Err("Closed"));
    same(what, other.begin_write().map(drop), Err("Closed"));
    same(what, other.checkpoint(Checkpoint::Sharp), Err("Closed"));
    same(what, other.flush(), Err("Closed"));
    same(what, other.check().map(drop), Err("Closed"));
}
