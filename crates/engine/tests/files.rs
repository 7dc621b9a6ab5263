//! Databases in files: what is opened, what is refused, and that nothing refused is changed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use terrace::{Builder, Database, Devices, DirectIo, Error, FlashLayout, Part, TableDef};
use terrace_device::{FileDevice, FileOptions};
use terrace_policy::{Restart, RestartKind};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(4 << 20).log_size(2 << 20)
}

fn make(path: &Path) {
    let db = small().create(path).expect("a good place");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, 2)).expect("room");
    db.close().expect("a good place");
}

#[test]
fn a_database_in_files_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    make(&path);
    let db = small().open(&path).expect("there");
    assert!(matches!(small().open(&path), Err(Error::AlreadyOpen { .. })));
    assert!(matches!(small().create(&path), Err(Error::Exists { .. })));
    // Dropped, not closed by name.
    drop(db);
    let db = small().open_or_create(&path).expect("there");
    assert_eq!(db.read(|txn| txn.open_table(ROWS)?.get(1)).expect("it").expect("it").value(), 2);
    assert_eq!(db.check().expect("whole").entries, 2);
}

#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let missing =
        |part| move |error: Error| matches!(error, Error::Missing { part: p, .. } if p == part);
    assert!(small().open(&path).is_err_and(missing(Part::Home)));
    let nowhere = folder.path().join("no").join("db");
    assert!(small().create(&nowhere).is_err());
    make(&path);
    fs::rename(folder.path().join("db.log"), folder.path().join("elsewhere")).expect("renamed");
    assert!(small().open(&path).is_err_and(missing(Part::Log)));
    let db = small().log(folder.path().join("elsewhere")).open(&path).expect("found");
    db.close().expect("a good place");
}

#[test]
fn what_is_not_a_database_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes");
    let notes = "not a database\n".repeat(5_000);
    fs::write(&path, &notes).expect("written");
    assert!(matches!(
        small().open(&path),
        Err(Error::NotADatabase { part: Part::Home, .. })
            | Err(Error::Missing { part: Part::Log, .. })
    ));
    assert!(matches!(small().create(&path), Err(Error::Exists { .. })));
    assert!(small().open_or_create(&path).is_err());
    let other = folder.path().join("db");
    assert!(matches!(
        small().log(&path).create(&other),
        Err(Error::Exists { part: Part::Log, .. })
    ));
    assert!(small().open(folder.path()).is_err());
    assert_eq!(fs::read_to_string(&path).expect("there"), notes);
}

#[test]
fn a_foreign_log_a_newer_format_and_a_corrupt_header_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    make(&one);
    make(&two);
    let foreign = small().log(folder.path().join("two.log")).open(&one);
    assert!(matches!(foreign, Err(Error::NotADatabase { part: Part::Log, .. })), "{foreign:?}");

    let mut bytes = fs::read(&one).expect("there");
    for page in bytes[..2 * 8192].chunks_mut(8192) {
        page[3000] ^= 1;
    }
    fs::write(&one, &bytes).expect("written");
    let corrupt = small().open(&one);
    assert!(matches!(corrupt, Err(Error::Corrupt { part: Part::Home, .. })), "{corrupt:?}");
    assert_eq!(fs::read(&one).expect("there"), bytes, "nothing was written");

    let mut bytes = fs::read(&two).expect("there");
    for (id, page) in bytes[..2 * 8192].chunks_mut(8192).enumerate() {
        page[40] = 9;
        let mut sealed: terrace_page::PageBuf = (&*page).try_into().expect("a page");
        terrace_page::set_page_id(&mut sealed, terrace_page::PageId(id as u64));
        terrace_page::seal(&mut sealed);
        page.copy_from_slice(&sealed);
    }
    fs::write(&two, &bytes).expect("written");
    let newer = small().open(&two);
    assert!(matches!(newer, Err(Error::NewerFormat { found: 9, .. })), "{newer:?}");
    assert_eq!(fs::read(&two).expect("there"), bytes, "nothing was written");
}

#[test]
fn what_lies_in_the_page_cache_is_said_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name, direct| {
        let options =
            FileOptions { size: Some(2 << 20), create: true, direct, ..Default::default() };
        FileDevice::open(folder.path().join(name), &options).map(|device| Arc::new(device) as _)
    };
    let (home, log) = (file("home", false).expect("a file"), file("log", false).expect("a file"));
    let devices = Devices { home, flash: None, log };
    let db = Database::builder().devices(devices).create_on_devices().expect("good files");
    let cached = db.stats().cached;
    assert!(cached.home && cached.log && !cached.flash, "{cached:?}");
    db.close().expect("good files");
    // A file of the kernel's own has no direct I/O, wherever the test runs.
    let path = folder.path().join("db");
    let refused = small().log("/proc/self/comm").direct_io(DirectIo::Required).create(&path);
    let said = refused.map(drop).expect_err("no direct I/O").to_string();
    assert!(said.contains("refuses direct I/O"), "{said}");
    assert!(!path.exists(), "what was made before is taken away");
}

#[test]
fn a_flash_that_holds_something_else_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
    let photo = vec![0xd8; 3 << 20];
    fs::write(&flash, &photo).expect("written");
    let with_flash = |bytes| small().flash(&flash, bytes);
    let refused = with_flash(1 << 20).create(&path);
    assert!(matches!(refused, Err(Error::NotADatabase { part: Part::Flash, .. })), "{refused:?}");
    assert_eq!(fs::read(&flash).expect("there"), photo);
    assert!(!path.exists(), "what was made before is taken away");
    // Its own flash it knows again, larger and smaller, whatever the slots hold.
    fs::remove_file(&flash).expect("there");
    for bytes in [1 << 20, 3 << 20, 2 << 20, 3 << 20] {
        let db = with_flash(bytes).open_or_create(&path).expect("its own");
        db.close().expect("good files");
        let mut file = fs::read(&flash).expect("there");
        file[..1 << 20].fill(0xd8);
        fs::write(&flash, file).expect("written");
    }
}

#[test]
fn a_flash_file_has_the_slots_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    for slots in [100, 1000] {
        let bytes = FlashLayout::new(slots, RestartKind::Forget).bytes();
        let builder = small().restart(Restart::forget()).flash(folder.path().join("flash"), bytes);
        let db = builder.open_or_create(folder.path().join("db")).expect("its own");
        assert_eq!(db.stats().pool.slots, u64::from(slots));
        db.close().expect("good files");
    }
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let builders = [
        small().memory(0),
        small().memory(u64::MAX),
        small().log_size(0),
        small().home_size(1),
        small().flash(folder.path().join("flash"), 0),
        small().lock_escalation(0),
    ];
    for builder in builders {
        let refused = builder.create(&path);
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
