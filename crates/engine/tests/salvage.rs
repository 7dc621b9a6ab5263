//! Dumps of databases that came to harm, against a ledger; dumps that came to harm themselves; and
//! random databases through a dump and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use terrace::dump::{Event, Loss, Reader, Saved, State, load};
use terrace::{Builder, Checkpoint, Database, Durability, Error, TableDef};
use terrace_rt::Prng;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 600;
/// The version of rows that were never committed.
const NEVER: u64 = u64::MAX;
const SECTOR: usize = 512;
const PAGE: usize = 8192;

fn small() -> Builder {
    Database::builder().memory(512 << 10).home_size(4 << 20).log_size(2 << 20)
}

fn roomy() -> Builder {
    small().home_size(32 << 20).log_size(8 << 20)
}

/// A value that says which version it is.
fn value(key: u64, version: u64) -> Vec<u8> {
    let len = if key.is_multiple_of(23) { 10_000 } else { 100 + (key as usize * 7) % 300 };
    let mut value = version.to_le_bytes().to_vec();
    value.resize(len, key as u8);
    value
}

/// The rows of a dump by key, with their versions, and the dump's state.
fn versions(bytes: &[u8]) -> BTreeMap<u64, u64> {
    let mut reader = Reader::new(bytes).expect("a dump");
    let mut found = BTreeMap::new();
    loop {
        match reader.next_event().expect("whole frames") {
            Event::Row { key, value: bytes } => {
                let key = u64::from_be_bytes(key.try_into().expect("a key"));
                let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
                assert!(bytes == value(key, version), "the value of {key} is made up");
                assert!(found.insert(key, version).is_none(), "{key} is there twice");
            }
            Event::Table(_) | Event::TableEnd(_) => {}
            Event::End(_) => return found,
        }
    }
}

struct Salvaged {
    rows: BTreeMap<u64, u64>,
    state: State,
    told: Vec<String>,
    is_home_alone: bool,
}

fn salvage(path: &Path) -> Option<Salvaged> {
    let saved = Saved::salvage(small(), path).ok()?;
    let is_home_alone = saved.losses().iter().any(|loss| matches!(loss, Loss::Unrecovered(_)));
    let mut told: Vec<String> = saved.losses().iter().map(Loss::to_string).collect();
    let mut out = Vec::new();
    let dumped = saved.dump(&[], &mut out, &mut |loss| told.push(loss.to_string()));
    let (_, state) = dumped.expect("memory takes it");
    Some(Salvaged { rows: versions(&out), state, told, is_home_alone })
}

/// The bytes of a crashed database, and the committed versions of each row, oldest first. A version
/// of zero is a row that is not there.
struct Ledger {
    home: Vec<u8>,
    log: Vec<u8>,
    committed: BTreeMap<u64, Vec<u64>>,
}

fn crashed(seed: u64) -> Ledger {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("made");
    let mut prng = Prng::from_seed(seed);
    let mut committed: BTreeMap<u64, Vec<u64>> = (0..KEYS).map(|key| (key, vec![0])).collect();
    for version in 1..30 {
        let mut changes: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..60 {
            let is_removed = prng.chance(6);
            changes.insert(prng.below(KEYS), if is_removed { 0 } else { version });
        }
        write(&db, &changes).expect("room");
        changes.into_iter().for_each(|(key, to)| committed.get_mut(&key).expect("a key").push(to));
        match version {
            10 => db.checkpoint(Checkpoint::Sharp).expect("room"),
            20 => db.checkpoint(Checkpoint::Indirect).expect("room"),
            _ => {}
        }
    }
    // One is open, and some of what it has changed is at home.
    let open = db.begin_write().expect("open");
    let changed = (0..KEYS).step_by(3).try_for_each(|key| {
        let mut rows = open.open_table(ROWS)?;
        if key.is_multiple_of(5) {
            rows.remove(key).map(drop)
        } else {
            rows.insert(key, &value(key, NEVER))
        }
    });
    changed.expect("room");
    db.checkpoint(Checkpoint::Sharp).expect("room");
    db.flush().expect("written");
    let [home, log] = ["db", "db.log"].map(|file| fs::read(folder.path().join(file)));
    let (home, log) = (home.expect("there"), log.expect("there"));
    open.rollback().expect("undone");
    db.close().expect("closed");
    Ledger { home, log, committed }
}

fn write(db: &Database, changes: &BTreeMap<u64, u64>) -> Result<(), Error> {
    db.write_with(Durability::Durable, |txn| {
        let mut rows = txn.open_table(ROWS)?;
        for (&key, &version) in changes {
            match version {
                0 => drop(rows.remove(key)?),
                _ => rows.insert(key, &value(key, version))?,
            }
        }
        Ok(())
    })
}

/// Damages some places, the first pages and what is in use more often than others.
fn damage(bytes: &mut [u8], used: &[usize], prng: &mut Prng) {
    let page = used[prng.below(used.len() as u64) as usize];
    let at = page * PAGE + prng.below((PAGE / SECTOR) as u64) as usize * SECTOR;
    match prng.below(4) {
        0 => bytes[at + prng.below(SECTOR as u64) as usize] ^= 1 << prng.below(8),
        1 => bytes[at..at + SECTOR].fill(0),
        2 => bytes[page * PAGE..(page + 1) * PAGE].fill(prng.next_u64() as u8),
        // A misdirected write: a whole page of somewhere else.
        _ => {
            let from = used[prng.below(used.len() as u64) as usize] * PAGE;
            bytes.copy_within(from..from + PAGE, page * PAGE);
        }
    }
}

fn used_pages(bytes: &[u8]) -> Vec<usize> {
    let pages = bytes.chunks(PAGE).enumerate();
    pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0)).map(|(at, _)| at).collect()
}

/// No row that was never committed without a word, none that is older than what home had, none that
/// is made up; and a dump that says that it is whole is whole.
#[test]
fn what_is_saved_of_a_damaged_database_was_committed_and_is_not_older_than_home() {
    salvage_at_random(3, 80);
}

fn salvage_at_random(databases: u64, cases: u64) {
    let mut never = 0;
    let (mut alone, mut whole, mut partial, mut nothing) = (0, 0, 0, 0);
    for seed in 0..databases {
        let ledger = crashed(seed);
        let folder = tempfile::tempdir().expect("a folder");
        let (path, log_path) = (folder.path().join("db"), folder.path().join("db.log"));
        // What home has by itself, as index of its version.
        fs::write(&path, &ledger.home).expect("room");
        let home = salvage(&path).expect("home is whole");
        assert!(home.is_home_alone && home.state == State::Partial);
        never += home.rows.values().filter(|version| **version == NEVER).count();
        let at_home: BTreeMap<u64, Option<usize>> = ledger
            .committed
            .iter()
            .map(|(key, versions)| {
                let version = home.rows.get(key).copied().unwrap_or(0);
                (*key, versions.iter().rposition(|known| *known == version))
            })
            .collect();
        let (home_used, log_used) = (used_pages(&ledger.home), used_pages(&ledger.log));
        for case in 0..cases {
            let mut prng = Prng::from_seed(seed * 10_000 + case);
            let (mut home, mut log) = (ledger.home.clone(), ledger.log.clone());
            let (hits_home, hits_log) = (case % 3 != 1, case % 3 != 0);
            for _ in 0..1 + prng.below(3) {
                if hits_home {
                    damage(&mut home, &home_used, &mut prng)
                }
                if hits_log {
                    damage(&mut log, &log_used, &mut prng)
                }
            }
            fs::write(&path, &home).expect("room");
            match case % 11 {
                0 => fs::remove_file(&log_path).map_or((), drop),
                _ => fs::write(&log_path, &log).expect("room"),
            }
            let is_log_whole = !hits_log && case % 11 != 0;
            let name = format!("database {seed}, case {case}");
            let Some(found) = salvage(&path) else {
                nothing += 1;
                continue;
            };
            judge(&found, &ledger, &at_home, is_log_whole, &name);
            assert!(fs::read(&path).expect("there") == home, "{name}: home was changed");
            alone += u64::from(found.is_home_alone);
            match found.state {
                State::Whole => whole += 1,
                State::Partial => partial += 1,
            }
        }
    }
    println!("{whole} whole, {partial} in part ({alone} of home alone), {nothing} not at all");
    let enough = databases * cases / 20;
    assert!(
        whole > enough && alone > enough && partial > alone,
        "{whole} {partial} {alone} {nothing}"
    );
    assert!(never > 0, "home has nothing that was never committed");
    assert!(nothing < 2 * enough, "{nothing} not at all");
}

/// Holds what was found against the ledger, and what home has by itself.
fn judge(
    found: &Salvaged,
    ledger: &Ledger,
    at_home: &BTreeMap<u64, Option<usize>>,
    is_log_whole: bool,
    name: &str,
) {
    let latest: BTreeMap<u64, u64> = ledger
        .committed
        .iter()
        .map(|(key, versions)| (*key, *versions.last().expect("one")))
        .filter(|(_, version)| *version != 0)
        .collect();
    let is_doubtful = found.told.iter().any(|line| line.contains("doubtful"));
    for (key, version) in &found.rows {
        if *version == NEVER {
            assert!(found.is_home_alone, "{name}: {key} was never committed");
            continue;
        }
        let index = ledger.committed[key].iter().rposition(|known| known == version);
        assert!(index.is_some(), "{name}: version {version} of {key} is made up");
        let is_old = index < at_home[key];
        assert!(!is_old || is_doubtful, "{name}: {key} is older than home: {:?}", found.told);
        if is_log_whole && !found.is_home_alone && !is_doubtful {
            assert_eq!(latest.get(key), Some(version), "{name}: {key} is old");
        }
    }
    let is_all = found.rows == latest;
    if found.state == State::Whole && is_log_whole {
        assert!(is_all, "{name}: lost without a word");
    }
    assert!(found.state == State::Whole || !found.told.is_empty(), "{name}: nothing is told");
}

/// A dump with damage is reported, and never makes `load` panic.
#[test]
fn a_dump_that_came_to_harm_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("made");
    let rows: BTreeMap<u64, u64> = (0..KEYS).map(|key| (key, 1 + key % 3)).collect();
    write(&db, &rows).expect("room");
    db.close().expect("closed");
    let mut whole = Vec::new();
    let saved = Saved::open(small(), &path).expect("opens");
    saved.dump(&[], &mut whole, &mut |loss| panic!("{loss}")).expect("memory");
    drop(saved);
    let len = whole.len() as u64;
    let mut told = 0;
    for case in 0..300 {
        let mut prng = Prng::from_seed(case);
        let mut bytes = whole.clone();
        let most = if prng.chance(2) { 200 } else { len };
        let at = prng.below(most) as usize;
        match prng.below(6) {
            0 => bytes[at] ^= 1 << prng.below(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..(at + 1 + prng.below(500) as usize).min(whole.len()))),
            3 => drop(bytes.splice(at..at, (0..prng.below(40)).map(|byte| byte as u8))),
            4 => bytes[at..].iter_mut().for_each(|byte| *byte = prng.next_u64() as u8),
            _ => bytes = (0..prng.below(3_000)).map(|_| prng.next_u64() as u8).collect(),
        }
        let target = folder.path().join(format!("target {case}"));
        let db = small().create(&target).expect("made");
        match load(&db, &bytes[..]) {
            Err(error) => {
                told += 1;
                assert!(!error.to_string().is_empty());
            }
            // What was put in may be what was there, or stand behind the end.
            Ok(loaded) => assert_eq!((loaded.rows, loaded.state), (KEYS, State::Whole), "{case}"),
        }
        drop(db);
        for file in ["", ".log"] {
            fs::remove_file(folder.path().join(format!("target {case}{file}"))).expect("there");
        }
    }
    assert!(told > 250, "{told} of 300 told");
}

/// Random databases, closed or not, come back from a dump as they were.
#[test]
fn random_databases_go_through_a_dump_and_back() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let db = roomy().create(&first).expect("made");
        let mut prng = Prng::from_seed(seed);
        for table in 0..1 + prng.below(12) {
            let name: &'static str = String::leak(format!("table \u{7f}{table}\n"));
            let filled = db.write(|txn| {
                let mut rows = txn.open_table(TableDef::<&[u8], &[u8]>::new(name))?;
                for _ in 0..prng.below(200) {
                    let key: Vec<u8> = (0..prng.below(40)).map(|_| prng.next_u64() as u8).collect();
                    let len = if prng.chance(30) { 40_000 } else { prng.below(400) };
                    rows.insert(&key, &vec![prng.next_u64() as u8; len as usize])?;
                    if prng.chance(4) {
                        rows.remove(&key)?;
                    }
                }
                Ok::<_, Error>(())
            });
            filled.expect("room");
        }
        db.close().expect("closed");
        let dump = |path: &Path| {
            let mut out = Vec::new();
            let saved = Saved::open(roomy(), path).expect("opens");
            let dumped = saved.dump(&[], &mut out, &mut |loss| panic!("{loss}"));
            assert_eq!(dumped.expect("memory").1, State::Whole);
            out
        };
        let bytes = dump(&first);
        let db = roomy().create(&second).expect("made");
        load(&db, &bytes[..]).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        db.check().expect("sound");
        db.close().expect("closed");
        assert!(dump(&second) == bytes, "seed {seed}");
    }
}
