//! Databases on storages of the user's own: whole, cut short, failing, silent, and without power
//! from every call on.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use terrace::storage::{Punched, Storage, conformance};
use terrace::{Action, Builder, ColdStart, Database, Durability, Error, Nanos, Part, TableDef};
use terrace_rt::{Prng, Virtual, VirtualConfig};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

/// The power of a machine: it goes at one of its calls.
#[derive(Default)]
struct Power {
    calls: AtomicU64,
    /// The call at which it goes; zero: never.
    cut_at: AtomicU64,
}

impl Power {
    fn spend(&self) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let cut_at = self.cut_at.load(Ordering::Relaxed);
        let is_off = cut_at > 0 && call >= cut_at;
        if is_off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }
}

/// A storage with a volatile cache. A clone is the same storage.
#[derive(Clone, Default)]
struct Disk {
    held: Arc<Mutex<Held>>,
    power: Arc<Power>,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    /// What was before each write since the last sync, the oldest first.
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Default)]
struct Faults {
    fails_writes: AtomicBool,
    fails_reads: AtomicBool,
    hangs: AtomicBool,
    moves_parts: AtomicBool,
    is_full: AtomicBool,
    free: (Mutex<()>, Condvar),
}

impl Faults {
    fn begin(&self) {
        let mut waits = self.free.0.lock().expect("no panic");
        while self.hangs.load(Ordering::Acquire) {
            waits = self.free.1.wait(waits).expect("no panic");
        }
    }

    fn end_hang(&self) {
        let _one = self.free.0.lock().expect("no panic");
        self.hangs.store(false, Ordering::Release);
        self.free.1.notify_all();
    }

    fn part(&self, len: usize) -> usize {
        // Whole sectors, as the rules have it.
        match self.moves_parts.load(Ordering::Relaxed) {
            true => len.div_ceil(3).next_multiple_of(512).min(len),
            false => len,
        }
    }
}

impl Disk {
    fn with(power: &Arc<Power>) -> Disk {
        Disk { power: Arc::clone(power), ..Disk::default() }
    }

    /// The power is back: of what was not synced a part is there.
    fn restart(&self, prng: &mut Prng) {
        let mut held = self.held.lock().expect("no panic");
        let Held { bytes, unsynced } = &mut *held;
        for (offset, before) in unsynced.drain(..).rev() {
            for (at, sector) in before.chunks(512).enumerate() {
                if prng.chance(2) {
                    bytes[offset + at * 512..][..sector.len()].copy_from_slice(sector);
                }
            }
        }
    }
}

impl Storage for Disk {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.faults.begin();
        if self.faults.fails_reads.load(Ordering::Relaxed) {
            return Err(io::Error::other("a bad block"));
        }
        let held = self.held.lock().expect("no panic");
        let rest = held.bytes.get(offset as usize..).unwrap_or_default();
        let len = self.faults.part(rest.len().min(bytes.len()));
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.faults.begin();
        self.power.spend()?;
        if self.faults.fails_writes.load(Ordering::Relaxed) {
            return Err(io::Error::other("a broken cable"));
        }
        let len = self.faults.part(bytes.len());
        let mut held = self.held.lock().expect("no panic");
        let range = offset as usize..offset as usize + len;
        let before = held.bytes[range.clone()].to_vec();
        held.unsynced.push((range.start, before));
        held.bytes[range].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.begin();
        self.power.spend()?;
        self.held.lock().expect("no panic").unsynced.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.faults.begin();
        Ok(self.held.lock().expect("no panic").bytes.len() as u64)
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.power.spend()?;
        if self.faults.is_full.load(Ordering::Relaxed) {
            return Err(ErrorKind::StorageFull.into());
        }
        let mut held = self.held.lock().expect("no panic");
        let len = held.bytes.len().max(len as usize);
        held.bytes.resize(len, 0);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        self.power.spend()?;
        let mut held = self.held.lock().expect("no panic");
        let range = offset as usize..(offset + len) as usize;
        // Neither what was there nor the zeroes need survive.
        held.bytes[range.clone()].fill(0);
        held.unsynced.retain(|(at, before)| at + before.len() <= range.start || range.end <= *at);
        Ok(Punched::Freed { bytes: len })
    }

    fn name(&self) -> String {
        String::from("disk of the test")
    }
}

/// Runs `test` on a thread, and fails if it does not come to an end.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        send.send(()).expect("somebody waits");
    });
    match receive.recv_timeout(Duration::from_secs(120)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().expect("it has not failed"),
    }
}

fn builder(home: &Disk, log: &Disk) -> Builder {
    let builder = Database::builder().memory(256 << 10).home_size(4 << 20).log_max(4 << 20);
    builder.storage(Part::Home, home.clone()).storage(Part::Log, log.clone())
}

fn contents(db: &Database) -> BTreeMap<u64, Vec<u8>> {
    let read = db.read(|txn| {
        let table = txn.open_table(ROWS)?;
        table.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value().to_vec()))).collect()
    });
    match read {
        Err(Error::NoSuchTable { .. }) => BTreeMap::new(),
        read => read.expect("readable"),
    }
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 100 + (number as usize * 97) % 900]
}

fn fill(db: &Database, rows: std::ops::Range<u64>) -> Result<(), Error> {
    rows.into_iter()
        .try_for_each(|number| db.write(|txn| txn.open_table(ROWS)?.insert(number, &value(number))))
}

#[test]
fn the_storage_of_these_tests_keeps_the_rules() {
    let disk = Disk::default();
    conformance(|| disk.clone()).expect("it keeps them");
    disk.faults.moves_parts.store(true, Ordering::Relaxed);
    conformance(|| disk.clone()).expect("parts are allowed");
}

#[test]
fn a_database_on_storages_is_one_as_on_files() {
    watched(|| {
        let [home, log, flash] = [(); 3].map(|()| Disk::default());
        for disk in [&home, &log, &flash] {
            disk.faults.moves_parts.store(true, Ordering::Relaxed);
        }
        flash.grow(2 << 20).expect("memory");
        let with_flash = || builder(&home, &log).storage(Part::Flash, flash.clone());
        let db = with_flash().open_or_create_on_storage().expect("blank");
        fill(&db, 0..2000).expect("room");
        assert!(db.stats().pool.slots > 0);
        db.close().expect("good storages");
        // Nothing has a share in them any more.
        assert!(matches!(with_flash().create_on_storage(), Err(Error::Exists { .. })));
        let db = with_flash().open_or_create_on_storage().expect("closed");
        assert!(db.was_closed());
        db.check().expect("whole");
        assert_eq!(contents(&db).len(), 2000);
        db.close().expect("good storages");
        let db = builder(&home, &log).read_only().open_on_storage().expect("closed");
        assert_eq!(contents(&db)[&7], value(7));
    });
}

#[test]
fn storages_that_lack_something_are_refused() {
    let (home, log) = (Disk::default(), Disk::default());
    let blank = || Database::builder().memory(256 << 10).storage(Part::Home, home.clone());
    let refused = |answer: Result<Database, Error>, expected: &str| match answer {
        Err(Error::InvalidOption { option, .. }) => assert_eq!(option, expected),
        answer => panic!("{expected}: {answer:?}"),
    };
    refused(blank().create_on_storage(), "storage");
    refused(blank().open_on_storage(), "storage");
    let both = || blank().storage(Part::Log, log.clone());
    refused(both().create_on_storage(), "home_size");
    let missing = both().open_on_storage();
    assert!(matches!(missing, Err(Error::Missing { part: Part::Home, .. })), "{missing:?}");
    let db = both().home_size(1 << 20).log_size(2 << 20).create_on_storage().expect("blank");
    fill(&db, 0..10).expect("room");
    db.close().expect("good storages");
    assert_eq!((home.len().expect("known"), log.len().expect("known")), (1 << 20, 2 << 20));
    let lost = blank().storage(Part::Log, Disk::default()).open_on_storage();
    assert!(matches!(lost, Err(Error::Missing { part: Part::Log, .. })), "{lost:?}");
}

#[test]
fn a_storage_may_be_the_flash_of_files() {
    watched(|| {
        let folder = tempfile::tempdir().expect("a place for files");
        let path = folder.path().join("db");
        let flash = Disk::default();
        flash.grow(2 << 20).expect("memory");
        let builder = || {
            let builder = Database::builder().memory(256 << 10).home_size(8 << 20);
            builder.log_size(2 << 20).storage(Part::Flash, flash.clone())
        };
        let db = builder().create(&path).expect("a place for files");
        fill(&db, 0..2000).expect("room");
        db.close().expect("good devices");
        let both = builder().flash(folder.path().join("flash"), 1 << 20).open(&path);
        assert!(matches!(both, Err(Error::InvalidOption { option: "storage", .. })));
        let home = builder().storage(Part::Home, Disk::default()).open(&path);
        assert!(matches!(home, Err(Error::InvalidOption { option: "storage", .. })));
        let db = builder().io_timeout_flash(Nanos::from_millis(100)).open(&path).expect("closed");
        assert_eq!(contents(&db).len(), 2000);
        // A silent flash is given up, and nothing is lost.
        flash.faults.hangs.store(true, Ordering::Release);
        fill(&db, 2000..3000).expect("it is a cache");
        assert_eq!(contents(&db).len(), 3000);
        db.check().expect("whole");
        db.close().expect("it is a cache");
        let db = builder().io_timeout_flash(Nanos::from_millis(100)).open(&path).expect("a cache");
        assert_eq!(db.cold_start(), Some(ColdStart::Device(ErrorKind::TimedOut)));
        db.close().expect("it is a cache");
        flash.faults.end_hang();
        let db = builder().open(&path).expect("closed");
        assert_eq!(contents(&db).len(), 3000);
    });
}

#[test]
fn a_failing_storage_is_told_with_its_name_and_place() {
    watched(|| {
        let (home, log) = (Disk::default(), Disk::default());
        let db = builder(&home, &log).create_on_storage().expect("blank");
        fill(&db, 0..2000).expect("room");
        home.faults.fails_reads.store(true, Ordering::Relaxed);
        let error = db.read(|txn| {
            let rows = txn.open_table(ROWS)?;
            rows.range(..)?.try_for_each(|entry| entry.map(drop))
        });
        let error = error.expect_err("most of it is at home");
        let told = error.device_error().expect("a device").to_string();
        assert!(told.starts_with("disk of the test: read of "), "{told}");
        assert!(told.ends_with("a bad block"), "{told}");
        home.faults.fails_reads.store(false, Ordering::Relaxed);
        log.faults.fails_writes.store(true, Ordering::Relaxed);
        // A row that it does not have: one that stays as it was is not logged.
        let error = fill(&db, 2000..2001).expect_err("no log");
        let Error::Failed { cause: Some(cause) } = &error else { panic!("{error}") };
        assert!(matches!(**cause, Error::Device { part: Part::Log, action: Action::Write, .. }));
        assert!(cause.to_string().contains("a broken cable"), "{cause}");
        db.close().expect_err("no log");
        log.faults.fails_writes.store(false, Ordering::Relaxed);
        let db = builder(&home, &log).open_on_storage().expect("it recovers");
        assert_eq!(contents(&db).len(), 2000);
        // A log that may not grow is full, and not failed.
        log.faults.is_full.store(true, Ordering::Relaxed);
        let full = db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..3000).try_for_each(|key| rows.insert(key, &[7; 900]))
        });
        assert!(matches!(full, Err(Error::LogFull { is_device_full: true, .. })), "{full:?}");
        fill(&db, 0..10).expect("others go on");
    });
}

#[test]
fn a_silent_home_stops_what_needs_it_and_nothing_else() {
    watched(|| {
        let (home, log) = (Disk::default(), Disk::default());
        let limit = Nanos::from_millis(300);
        let db = builder(&home, &log).io_timeout_home(limit).create_on_storage().expect("blank");
        fill(&db, 0..2000).expect("room");
        db.checkpoint(terrace::Checkpoint::Sharp).expect("good storages");
        let hot = || db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.get(1999)?.is_some()));
        assert!(hot().expect("in memory"));
        home.faults.hangs.store(true, Ordering::Release);
        thread::scope(|threads| {
            let waits = threads
                .spawn(|| db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.get(0)?.is_some())));
            // What is in memory, and the log, are used meanwhile.
            for number in 0..20 {
                let committed = db.write_with(Durability::Durable, |txn| {
                    txn.open_table(ROWS)?.insert(1999, &value(number))
                });
                committed.expect("it needs no home");
                assert!(hot().expect("in memory"));
            }
            let error = waits.join().expect("no panic").expect_err("home is silent");
            assert!(matches!(error, Error::Device { part: Part::Home, .. }), "{error}");
            let told = error.device_error().expect("a device").to_string();
            assert!(told.contains("disk of the test") && told.contains("not answered"), "{told}");
        });
        home.faults.end_hang();
    });
}

/// A history on storages in the virtual world, whose power goes at call `at`; false if it ended.
fn cut_at(at: u64) -> bool {
    let world = |seed| {
        let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
        Virtual::new(config)
    };
    let power = Arc::<Power>::default();
    let (home, log) = (Disk::with(&power), Disk::with(&power));
    power.cut_at.store(at, Ordering::Relaxed);
    let durable = AtomicU64::new(0);
    let ended = world(at).run(|| -> Result<(), Error> {
        let db = builder(&home, &log).create_on_storage()?;
        for number in 0..60 {
            fill(&db, number..number + 1)?;
            durable.store(number + 1, Ordering::Relaxed);
            match number {
                20 => db.checkpoint(terrace::Checkpoint::Sharp)?,
                30 => drop(db.compact()?),
                45 => db.checkpoint(terrace::Checkpoint::Indirect)?,
                _ => (),
            }
        }
        db.close()
    });
    let is_whole = ended.expect("nobody waits for ever").is_ok();
    power.cut_at.store(0, Ordering::Relaxed);
    let mut prng = Prng::from_seed(at);
    home.restart(&mut prng);
    log.restart(&mut prng);
    let found = world(at + 1).run(|| {
        let db = match builder(&home, &log).open_or_create_on_storage() {
            // A creation that was cut short, and whose log had come.
            Err(Error::Missing { .. }) => return None,
            db => db.unwrap_or_else(|error| panic!("call {at}: {error}")),
        };
        db.check().expect("whole");
        Some(contents(&db))
    });
    let found = found.expect("nobody waits for ever").unwrap_or_default();
    let durable = durable.load(Ordering::Relaxed);
    let count = found.len() as u64;
    assert!(count == durable || count == durable + 1, "call {at}: {count} rows of {durable}");
    assert!(found.iter().all(|(number, row)| *row == value(*number)), "call {at}");
    !is_whole
}

#[test]
fn a_power_cut_at_every_call_of_the_storages_loses_nothing() {
    let mut at = 1;
    while cut_at(at) {
        at += 1 + at / 150;
    }
    assert!(at > 100, "the history makes only {at} calls");
}
