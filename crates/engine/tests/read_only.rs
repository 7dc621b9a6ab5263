//! Databases that are opened to be read only: nothing below changes, whatever recovery does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use terrace::{Builder, Database, Devices, Durability, Error, TableDef};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Prng, Stopped, Virtual, VirtualConfig, World};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");

type Contents = BTreeMap<u64, Vec<u8>>;

fn contents(db: &Database) -> Contents {
    let read = db.read(|txn| {
        let mut all = Contents::new();
        for table in [ROWS, LARGE] {
            let table = match txn.open_table(table) {
                Err(Error::NoSuchTable { .. }) => continue,
                table => table?,
            };
            for entry in table.range(..)? {
                let entry = entry?;
                all.insert(entry.key(), entry.value().to_vec());
            }
        }
        Ok::<_, Error>(all)
    });
    read.expect("readable")
}

/// Rows come, change and go; one transaction stays open, another is rolled back.
fn work(db: &Database) -> Result<(), Error> {
    for round in 0..12 {
        let txn = db.begin_write()?;
        for row in 0..20 {
            let key = (round * 37 + row * 11) % 150;
            if (round + row) % 5 == 0 {
                txn.open_table(ROWS)?.remove(key)?;
            } else {
                txn.open_table(ROWS)?.insert(key, &vec![round as u8; 30 + 40 * row as usize])?;
            }
        }
        txn.open_table(LARGE)?.insert(1000 + round % 3, &vec![round as u8; 20_000])?;
        match round % 4 {
            3 => txn.rollback()?,
            _ => txn.commit(Durability::Durable)?,
        }
    }
    let open = db.begin_write()?;
    open.open_table(ROWS)?.insert(7, b"never committed")?;
    db.flush()?;
    db.write(|txn| txn.open_table(LARGE)?.remove(1001).map(drop))?;
    drop(open);
    Ok(())
}

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(4 << 20), log: device(2 << 20) }
    }

    fn in_world(&self, world: &World) -> Rig {
        Rig { home: self.home.reopen(world.clone()), log: self.log.reopen(world.clone()) }
    }

    fn builder(&self) -> Builder {
        let (home, log) = (Arc::clone(&self.home), Arc::clone(&self.log));
        let devices = Devices { home, flash: None, log };
        Database::builder().memory(256 << 10).devices(devices)
    }

    /// Writes and barriers so far.
    fn changes(&self) -> [u64; 2] {
        [self.home.counters(), self.log.counters()].map(|count| count.writes + count.syncs)
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 })
}

/// Cuts the power at event `at`; looks, and looks again after the ordinary recovery. Returns false
/// if the history ended before.
fn cut_at(at: u64) -> bool {
    let first = world(at);
    let rig = Rig::blank(&first.world());
    first.cut_at_event(at);
    match first.run(|| work(&rig.builder().open_or_create_on_devices()?)) {
        Ok(ran) => {
            ran.expect("good devices");
            return false;
        }
        Err(Stopped::PowerCut { .. }) => {
            let mut prng = Prng::from_seed(at);
            rig.home.power_cut(&mut prng);
            rig.log.power_cut(&mut prng);
        }
        Err(stopped) => panic!("{stopped:?} at event {at}"),
    }
    let next = world(at);
    let rig = rig.in_world(&next.world());
    let found = next.run(|| {
        let before = rig.changes();
        // Now and then in memory, now and then in the temporary file.
        let reader = rig.builder().read_only().read_only_memory(at % 3 * (64 << 10));
        let looked = match reader.open_on_devices() {
            Ok(db) => {
                assert!(matches!(db.begin_write(), Err(Error::ReadOnly)));
                db.check().expect("whole");
                let found = contents(&db);
                db.close().expect("nothing to write");
                Some(found)
            }
            Err(Error::Missing { .. }) => None,
            Err(error) => panic!("event {at}: {error}"),
        };
        assert_eq!(rig.changes(), before, "event {at}: looking wrote something");
        let db = rig.builder().open_or_create_on_devices().expect("recovers");
        (looked, contents(&db))
    });
    let (looked, recovered) = found.expect("nobody waits for ever");
    assert!(looked.unwrap_or_default() == recovered, "event {at}: a reader saw something else");
    true
}

#[test]
fn a_reader_sees_after_any_cut_what_recovery_would_leave_and_writes_nothing() {
    let mut at = 5;
    while cut_at(at) {
        at += 2;
    }
    assert!(at > 200, "the history has only {at} events");
}

/// Bytes and times of all files of a folder.
fn files(folder: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("text");
            let time = entry.metadata().and_then(|found| found.modified()).expect("a time");
            (name, (fs::read(entry.path()).expect("readable"), time))
        })
        .collect()
}

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(8 << 20).log_size(2 << 20)
}

/// As the files were the moment the process died.
fn crash(from: &Path, to: &Path) {
    for (name, (bytes, _)) in files(from) {
        fs::write(to.join(name), bytes).expect("room");
    }
}

/// `terrace stat` opened, recovered and closed the database: the log was written anew, and the
/// flash tier was cold afterwards.
#[test]
fn looking_at_files_changes_no_byte_of_them() {
    let (folder, crashed) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("one"));
    let path = folder.path().join("db");
    let flash = |builder: Builder, at: &Path| builder.flash(at.join("flash"), 4 << 20);
    let db = flash(small(), folder.path()).create(&path).expect("made");
    work(&db).expect("room");
    let expected = contents(&db);
    crash(folder.path(), crashed.path());
    db.close().expect("closed");
    for folder in [folder.path(), crashed.path()] {
        let before = files(folder);
        let path = folder.join("db");
        for limit in [64 << 20, 0] {
            let reader = small().read_only().read_only_memory(limit);
            let with_flash = flash(reader.clone(), folder).open(&path).expect("opens");
            let without = reader.open(&path).expect("readers share it");
            for db in [with_flash, without] {
                assert!(contents(&db) == expected);
                db.check().expect("whole");
                assert!(matches!(db.begin_write(), Err(Error::ReadOnly)));
            }
        }
        assert!(files(folder) == before, "looking has changed a file");
        let db = flash(small(), folder).open(&path).expect("opens");
        assert_eq!(db.cold_start(), None, "looking has made the flash tier cold");
        assert!(contents(&db) == expected);
    }
}

#[test]
fn a_reader_and_a_writer_exclude_each_other_and_are_told_who_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let writer = small().create(&path).expect("made");
    let own = terrace::Holder::Process { pid: std::process::id() };
    let refused = |opened: Result<Database, Error>| match opened {
        Err(Error::AlreadyOpen { path: found, holder, .. }) => {
            assert!(found.as_deref() == Some(&path), "{found:?}");
            assert!(*holder == own || *holder == terrace::Holder::Unknown, "{holder:?}");
        }
        other => panic!("{other:?}"),
    };
    refused(small().read_only().open(&path));
    writer.close().expect("closed");
    let reader = Database::open_read_only(&path).expect("free");
    refused(small().open(&path));
    assert!(matches!(reader.checkpoint(terrace::Checkpoint::Sharp), Err(Error::ReadOnly)));
    drop(reader);
    small().open(&path).expect("free").close().expect("closed");
    assert!(matches!(small().read_only().create(&path), Err(Error::InvalidOption { .. })));
    let nothing = folder.path().join("nothing");
    assert!(matches!(Database::open_read_only(&nothing), Err(Error::Missing { .. })));
    assert!(!nothing.exists());
}

/// Files without write permission could not even be looked at.
#[test]
fn a_database_without_write_permission_can_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("made");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, b"one")).expect("room");
    db.close().expect("closed");
    for file in ["db", "db.log"] {
        let read_only = fs::Permissions::from_mode(0o400);
        fs::set_permissions(folder.path().join(file), read_only).expect("owned");
    }
    let db = small().read_only().open(&path).expect("readable");
    assert_eq!(contents(&db), Contents::from([(1, b"one".to_vec())]));
}

/// The bug: a database whose cache had vanished opened for writing, and could not be looked at.
#[test]
fn a_cache_that_is_gone_is_left_out() {
    for design in terrace_policy::DESIGNS.iter().filter(|design| design.uses_flash()) {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
        let builder = small().flash(&flash, 1 << 20).design(*design);
        let db = builder.clone().create(&path).expect("made");
        db.write(|txn| txn.open_table(ROWS)?.insert(1, b"one")).expect("room");
        db.close().expect("closed");
        fs::remove_file(&flash).expect("a file");
        let expected = Contents::from([(1, b"one".to_vec())]);
        for reader in [builder.clone(), small().design(*design)] {
            let db = reader.read_only().open(&path);
            let db = db.unwrap_or_else(|error| panic!("{}: {error}", design.name));
            assert_eq!(contents(&db), expected, "{}", design.name);
            db.close().expect("closed");
            assert!(!flash.exists(), "{}", design.name);
        }
        // Opening for writing must say where the flash is.
        let error = small().design(*design).open(&path).expect_err("no flash");
        assert!(matches!(error, Error::InvalidOption { option: "flash", .. }), "{error}");
    }
}
