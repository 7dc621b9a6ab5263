//! The flash tier in files: what is taken, what starts cold, what is refused and left alone.

use std::fs;
use std::path::Path;

use terrace::{
    Builder, ColdStart, CopyFlaw, Database, Error, FlashLayout, FlashRole, Part, TableDef,
};
use terrace_policy::{Restart, RestartKind};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const WITH_FLASH: u64 = 1 << 20;

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(4 << 20).log_size(2 << 20)
}

fn make(path: &Path) {
    let db = small().create(path).expect("a good place");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, 2)).expect("room");
    db.close().expect("a good place");
}

fn holds_a_row(db: &Database) -> bool {
    db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.get(1)?.is_some_and(|row| row.value() == 2)))
        .expect("a sound database")
}

#[test]
fn a_flash_that_holds_something_else_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
    let photo = vec![0xd8; 3 << 20];
    fs::write(&flash, &photo).expect("written");
    let with_flash = |bytes| small().flash(&flash, bytes);
    let refused = with_flash(1 << 20).create(&path);
    assert!(matches!(refused, Err(Error::NotBlank { part: Part::Flash, .. })), "{refused:?}");
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

/// A flash file that was cut short, or whose last page was damaged, kept the database from opening.
#[test]
fn a_flash_file_that_is_not_whole_starts_cold() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
    let builder = || small().log_size(16 << 20).flash(&flash, WITH_FLASH);
    let db = builder().create(&path).expect("room");
    let rows = |txn: &terrace::WriteTransaction| {
        let mut table = txn.open_table(ROWS)?;
        (1..20_000).try_for_each(|key| table.insert(key, 2))
    };
    db.write(|txn| rows(txn)).expect("room");
    db.close().expect("room");
    let db = builder().open(&path).expect("its own");
    assert_eq!(db.cold_start(), None, "or the test shows nothing");
    db.read(|txn| txn.open_table(ROWS)?.range(..)?.try_for_each(|row| row.map(drop))).expect("all");
    db.close().expect("room");
    let whole = fs::read(&flash).expect("there");
    let cut = |len: usize| (whole[..len].to_vec(), ColdStart::CutShort);
    let mut unlabelled = whole.clone();
    let label = whole.len() - 8192;
    unlabelled[label] ^= 1;
    let mut headless = unlabelled.clone();
    headless[..512].fill(0xee);
    let mut cut_and_headless = headless.clone();
    cut_and_headless.truncate(whole.len() / 2);
    let mut overwritten = whole.clone();
    overwritten[..8192].fill(0x55);
    let cases = [
        cut(whole.len() - 1),
        cut(whole.len() - 8192),
        cut(whole.len() / 2 + 77),
        cut(8192),
        cut(512),
        (Vec::new(), ColdStart::Blank),
        (unlabelled, ColdStart::Label),
        (headless, ColdStart::Label),
        (cut_and_headless, ColdStart::CutShort),
        (overwritten, ColdStart::Header),
        (vec![0; whole.len()], ColdStart::Blank),
        (vec![0; whole.len() / 3], ColdStart::Blank),
    ];
    for (at, (bytes, why)) in cases.into_iter().enumerate() {
        fs::write(&flash, bytes).expect("room");
        let db = builder().open(&path).unwrap_or_else(|error| panic!("case {at}: {error}"));
        assert_eq!(db.cold_start(), Some(why), "case {at}");
        assert!(holds_a_row(&db));
        db.close().expect("room");
        let db = builder().open(&path).expect("its own");
        assert_eq!(db.cold_start(), None, "case {at}: whole again");
        assert_eq!(db.check().expect("sound").entries, 20_000);
        db.close().expect("room");
        assert_eq!(fs::metadata(&flash).expect("there").len(), whole.len() as u64);
    }
    // What is no flash tier is no cache of ours, cut short or not.
    fs::write(&flash, "some notes of somebody else, not to be lost").expect("room");
    let refused = builder().open(&path);
    assert!(matches!(refused, Err(Error::NotBlank { part: Part::Flash, .. })), "{refused:?}");
}

/// Where flash is a part of the database, nothing of it may change before it is believed.
#[test]
fn a_flash_file_that_is_needed_and_not_whole_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
    let design = terrace_policy::designs::find("lc").expect("a row of the table");
    let builder = || {
        let builder = Database::builder().memory(1 << 20).home_size(32 << 20).log_size(16 << 20);
        builder.flash(&flash, 8 << 20).design(design).flash_role(FlashRole::Persistent)
    };
    let db = builder().create(&path).expect("room");
    for round in 0..40 {
        let rows = |txn: &terrace::WriteTransaction| {
            let mut table = txn.open_table(ROWS)?;
            (0..2_000).try_for_each(|key| table.insert(key * 40 + round, 2))
        };
        db.write(|txn| rows(txn)).expect("room");
    }
    db.close().expect("room");
    let before = (fs::read(&path).expect("there"), fs::read(&flash).expect("there"));
    let cut = before.1[..before.1.len() / 2].to_vec();
    for (bytes, why) in [(Some(cut), ColdStart::CutShort), (None, ColdStart::NoDevice)] {
        match &bytes {
            Some(bytes) => fs::write(&flash, bytes).expect("room"),
            None => fs::remove_file(&flash).expect("there"),
        }
        let refused = builder().open(&path);
        let told = matches!(&refused, Err(Error::FlashNeeded { why: found, .. }) if *found == why);
        assert!(told, "{refused:?}, {why:?}");
        assert!(fs::read(&path).expect("there") == before.0, "home was changed");
        assert!(fs::read(&flash).ok() == bytes, "flash was changed");
    }
    // The label alone is nothing that the database needs.
    let mut unlabelled = before.1;
    let label = unlabelled.len() - 8192;
    unlabelled[label..label + 16].fill(0);
    fs::write(&flash, unlabelled).expect("room");
    // The bug: no error was reported, and no opening wrote it anew.
    let told = |db: &Database| -> Vec<_> {
        db.bad_copies().iter().map(|bad| (bad.part, bad.offset, bad.flaw)).collect()
    };
    let bad = [(Part::Flash, label as u64, CopyFlaw::Blank)];
    let reader = builder().read_only().open(&path).expect("whole but for its label");
    assert_eq!(told(&reader), bad);
    drop(reader);
    assert_eq!(fs::read(&flash).expect("there")[label..label + 16], [0; 16], "only read");
    let db = builder().open(&path).expect("whole but for its label");
    assert_eq!(db.check().expect("sound").entries, 80_001);
    assert_eq!(told(&db), bad);
    db.close().expect("room");
    let db = builder().read_only().open(&path).expect("whole");
    assert_eq!(told(&db), []);
}

/// Another database took it for free, and the one that it is a part of never opened again.
#[test]
fn a_flash_that_is_part_of_another_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, flash) = (folder.path().join("first"), folder.path().join("flash"));
    let design = terrace_policy::designs::find("lc").expect("a row of the table");
    let builder = || small().flash(&flash, 8 << 20).design(design);
    let first_builder = || builder().flash_role(FlashRole::Persistent);
    let db = first_builder().create(&first).expect("room");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, 2)).expect("room");
    db.close().expect("room");
    let before = fs::read(&flash).expect("there");
    let second = folder.path().join("second");
    let is_refused = |opened: Result<Database, Error>| {
        let refused = opened.map(drop).expect_err("it is another's");
        let says = refused.to_string();
        assert!(matches!(refused, Error::NotBlank { part: Part::Flash, .. }), "{says}");
        assert!(fs::read(&flash).expect("there") == before, "flash was changed");
    };
    is_refused(builder().create(&second));
    is_refused(builder().open_or_create(&second));
    make(&second);
    is_refused(builder().open(&second));
    is_refused(builder().open_or_create(&second));
    let db = first_builder().open(&first).expect("its flash is as it was");
    assert_eq!(db.check().expect("sound").entries, 2);
    db.close().expect("room");
    // Said on purpose.
    let db = builder().overwrite(true).open(&second).expect("it may be destroyed");
    db.close().expect("room");
    // A cache may be overwritten, whichever database it belonged to.
    let db = builder().open(&second).expect("its own");
    db.close().expect("room");
    let third = folder.path().join("third");
    builder().create(&third).expect("a cache of another").close().expect("room");
}

/// An opening failed with `NoRoom` when the file system of its cache was full.
#[test]
fn a_cache_without_room_is_done_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
    make(&path);
    // No file system here has this much room.
    let too_much = || small().flash(&flash, 1 << 52);
    for cut_short in [false, true] {
        if cut_short {
            small().flash(&flash, WITH_FLASH).open(&path).expect("room").close().expect("room");
        }
        let db = too_much().open(&path).expect("a cache is not needed");
        assert_eq!(db.cold_start(), Some(ColdStart::NoRoom));
        assert_eq!(db.stats().pool.slots, 0);
        assert!(holds_a_row(&db));
        db.close().expect("good files");
        assert_eq!(flash.exists(), cut_short, "a file is made only if it has room");
    }
    let db = small().flash(&flash, WITH_FLASH).open(&path).expect("room");
    assert!(holds_a_row(&db) && db.stats().pool.slots > 0);
    db.close().expect("good files");
    // As a part of the database it is needed, and the error says so.
    let part = too_much().design(terrace::designs::find("lc").expect("a design"));
    let refused = part.flash_role(FlashRole::Persistent).open(&path);
    let why = matches!(refused, Err(Error::FlashNeeded { why: ColdStart::NoRoom, .. }));
    assert!(why, "{refused:?}");
    // Creating a database fails at once.
    let refused = too_much().create(folder.path().join("other"));
    assert!(matches!(refused, Err(Error::NoRoom { part: Part::Flash, .. })), "{refused:?}");
}

/// An opening that was refused because of home or log left a flash file as large as was asked for.
#[test]
fn an_opening_that_is_refused_leaves_no_new_flash() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
    make(&path);
    let log = folder.path().join("db.log");
    let whole = fs::read(&log).expect("there");
    fs::write(&log, vec![0; whole.len()]).expect("written");
    let refused = small().flash(&flash, WITH_FLASH).open(&path);
    assert!(refused.is_err(), "{refused:?}");
    assert!(!flash.exists(), "it was made for an opening that was refused");
    fs::write(&log, whole).expect("written");
    let db = small().flash(&flash, WITH_FLASH).open(&path).expect("whole again");
    assert!(holds_a_row(&db) && flash.exists());
    db.close().expect("good files");
}
