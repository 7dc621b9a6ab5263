//! Databases of older formats, which stand compressed in `fixtures`, and what `terrace upgrade`
//! makes of them.
//!
//! - `format-1`: closed in good order. Tables of several types, values of up to 45,000 bytes, rows
//!   and a table that were deleted.
//! - `format-1-crashed`: the same without its last changes at home.
//! - `format-2`: the same with persistent flash, which has what home lacks.
//! - `format-3`: today's, as its first version wrote it, home and log.
//! - `format-3-crashed`: the same with a transaction open, and its last changes not at home.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

use terrace::{Database, Error, TableDef};

const NUMBERS: TableDef<u64, &[u8]> = TableDef::new("numbers");
const PAIRS: TableDef<(u32, &str), &str> = TableDef::new("pairs");
const LARGE: TableDef<&[u8], &[u8]> = TableDef::new("large");
const EMPTY: TableDef<i16, i64> = TableDef::new("empty");
const SIZES: [&str; 2] = ["--home-size=8MiB", "--log-size=8MiB"];

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder).env_remove("RUST_BACKTRACE");
    command.output().expect("the command starts")
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let packed = fs::File::open(path).expect("there");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("whole");
    bytes
}

/// Unpacks a fixture as `db`, with something as its log.
fn unpack(name: &str, folder: &Path) -> Vec<u8> {
    let home = fixture(name);
    fs::write(folder.join("db"), &home).expect("room");
    fs::write(folder.join("db.log"), "the old log").expect("room");
    home
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

/// Checks the rows of the fixtures by their types.
fn check_rows(path: &Path) {
    let db = Database::open(path).expect("opens");
    db.check().expect("sound");
    let checked = db.read(|txn| {
        assert_eq!(txn.table_names()?, ["empty", "large", "numbers", "pairs"]);
        assert_eq!(txn.open_table(EMPTY)?.range(..)?.count(), 0);
        let mut expected = BTreeMap::new();
        for key in (0..600_u64).filter(|key| key % 4 != 0) {
            let len = if key % 50 == 0 { 2048 } else { (key % 90) as usize };
            expected.insert(key * 3, vec![key as u8; len]);
        }
        let mut found = BTreeMap::new();
        for entry in txn.open_table(NUMBERS)?.range(..)? {
            let entry = entry?;
            found.insert(entry.key(), entry.value().to_vec());
        }
        assert!(found == expected);
        let pairs = txn.open_table(PAIRS)?;
        for key in 0..100_u32 {
            let value = pairs.get((key % 4, &*format!("pair {key}")))?.expect("there");
            assert_eq!(value.value().len(), key as usize);
        }
        let large = txn.open_table(LARGE)?;
        for key in 0..6_u8 {
            let value = large.get(&[b'k', key])?.map(|value| value.value().to_vec());
            let expected = match key {
                1 => None,
                2 => Some(vec![22; 30_000]),
                _ => Some(vec![key; 5_000 + 20_000 * usize::from(key % 3)]),
            };
            assert!(value == expected, "large value {key}");
        }
        Ok::<_, Error>(())
    });
    checked.expect("readable");
}

#[test]
fn a_database_of_format_1_is_converted_in_its_place_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let old = unpack("format-1.gz", folder);
    let upgraded = terrace(folder, &["upgrade", "db", SIZES[0], SIZES[1]]);
    assert!(upgraded.status.success(), "{}", said(&upgraded));
    assert_eq!(names(folder), ["db", "db.log", "db.old", "db.old.log"]);
    assert!(fs::read(folder.join("db.old")).expect("kept") == old);
    assert_eq!(fs::read(folder.join("db.old.log")).expect("kept"), b"the old log");
    check_rows(&folder.join("db"));
    // What is new is not converted again, and is no reason to miss room for the old one.
    let again = terrace(folder, &["upgrade", "db"]);
    assert!(again.status.success());
    assert!(said(&again).contains("format 3"), "{}", said(&again));
    assert_eq!(names(folder), ["db", "db.log", "db.old", "db.old.log"]);
}

/// A second upgrade was refused, since what the first had left was in its way.
#[test]
fn an_upgrade_that_was_killed_is_brought_to_its_end() {
    let made = tempfile::tempdir().expect("a folder");
    let old = unpack("format-1.gz", made.path());
    assert!(terrace(made.path(), &["upgrade", "db", SIZES[0], SIZES[1]]).status.success());
    let bytes = |file: &str| fs::read(made.path().join(file)).expect("there");
    let (new, new_log, old_log) = (bytes("db"), bytes("db.log"), &b"the old log"[..]);
    let half = new[..new.len() / 2].to_vec();
    let (making, put) = (("db.making", &b"making"[..]), ("db.making", &b"put\n"[..]));
    let (at_new, at_new_log) = (("db.new", &new[..]), ("db.new.log", &new_log[..]));
    let (kept, kept_log) = (("db.old", &old[..]), ("db.old.log", old_log));
    let steps: [Vec<(&str, &[u8])>; 9] = [
        vec![("db", &old), ("db.log", old_log), making],
        vec![("db", &old), ("db.log", old_log), making, ("db.new", &half)],
        vec![("db", &old), ("db.log", old_log), put, at_new, at_new_log],
        vec![("db", &old), kept, ("db.log", old_log), put, at_new, at_new_log],
        // A file system without second names.
        vec![kept, ("db.log", old_log), put, at_new, at_new_log],
        vec![("db", &old), kept, kept_log, put, at_new, at_new_log],
        vec![("db", &old), kept, kept_log, put, at_new, ("db.log", &new_log)],
        vec![kept, kept_log, put, at_new, ("db.log", &new_log)],
        vec![kept, kept_log, put, ("db", &new), ("db.log", &new_log)],
    ];
    for (step, left) in steps.iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        left.iter().for_each(|(file, bytes)| fs::write(folder.join(file), bytes).expect("room"));
        let upgraded = terrace(folder, &["upgrade", "db", SIZES[0], SIZES[1]]);
        assert!(upgraded.status.success(), "step {step}: {}", said(&upgraded));
        assert_eq!(names(folder), ["db", "db.log", "db.old", "db.old.log"], "step {step}");
        assert!(fs::read(folder.join("db.old")).expect("kept") == old, "step {step}");
        assert_eq!(fs::read(folder.join("db.old.log")).expect("kept"), old_log, "step {step}");
        check_rows(&folder.join("db"));
    }
}

#[test]
fn a_database_of_format_1_is_converted_beside_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let old = unpack("format-1.gz", folder);
    let upgraded = terrace(folder, &["upgrade", "db", "--to", "new", SIZES[0], SIZES[1]]);
    assert!(upgraded.status.success(), "{}", said(&upgraded));
    assert_eq!(names(folder), ["db", "db.log", "new", "new.log"]);
    assert!(fs::read(folder.join("db")).expect("there") == old);
    check_rows(&folder.join("new"));
}

#[test]
fn what_was_not_closed_or_has_changes_on_flash_is_refused_and_left_alone() {
    for fixture in ["format-1-crashed.gz", "format-2.gz"] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let old = unpack(fixture, folder);
        let refused = terrace(folder, &["upgrade", "db"]);
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(names(folder), ["db", "db.log"]);
        assert!(fs::read(folder.join("db")).expect("there") == old);
    }
}

/// What is written today must be read by every later version that calls it format 3.
#[test]
fn a_database_of_format_3_opens_whether_it_was_closed_or_not() {
    for name in ["format-3", "format-3-crashed"] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        fs::write(folder.join("db"), fixture(&format!("{name}.gz"))).expect("room");
        fs::write(folder.join("db.log"), fixture(&format!("{name}.log.gz"))).expect("room");
        let dumped = terrace(folder, &["dump", "db"]);
        assert!(dumped.status.success(), "{name}: {}", said(&dumped));
        fs::write(folder.join("rows"), &dumped.stdout).expect("room");
        check_rows(&folder.join("db"));
        let loaded = terrace(folder, &["load", "rows", "again", SIZES[0], SIZES[1]]);
        assert!(loaded.status.success(), "{name}: {}", said(&loaded));
        check_rows(&folder.join("again"));
        let again = terrace(folder, &["dump", "again"]);
        assert!(again.stdout == dumped.stdout, "{name}: it came back as another");
    }
}

/// Every page of an old database damaged in turn: converted whole, or refused and left alone.
#[test]
fn a_damaged_old_database_is_never_converted_in_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let old = unpack("format-1.gz", folder);
    let pages = old.chunks(8192).enumerate().filter(|(_, page)| page.iter().any(|&byte| byte != 0));
    let (mut refused, mut converted) = (0, 0);
    for (page, _) in pages.step_by(5) {
        let mut damaged = old.clone();
        damaged[page * 8192 + 100 + page] ^= 1;
        fs::write(folder.join("db"), &damaged).expect("room");
        let output = terrace(folder, &["upgrade", "db", "--to", "new", SIZES[0], SIZES[1]]);
        match output.status.code() {
            Some(0) => {
                check_rows(&folder.join("new"));
                fs::remove_file(folder.join("new")).expect("there");
                fs::remove_file(folder.join("new.log")).expect("there");
                converted += 1;
            }
            Some(1) => {
                assert_eq!(names(folder), ["db", "db.log"], "page {page}");
                refused += 1;
            }
            other => panic!("page {page}: {other:?}: {}", said(&output)),
        }
    }
    assert!(refused > 5, "{refused} refused, {converted} converted");
}
