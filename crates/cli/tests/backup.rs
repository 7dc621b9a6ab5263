//! Backups and restores, as users of the command meet them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use terrace::{Database, Error, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder);
    command
}

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn put(db: &Database, keys: std::ops::Range<u64>, byte: u8) {
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        keys.clone().try_for_each(|key| rows.insert(key, &[byte; 100]).map(drop))
    })
    .expect("room");
}

fn sum(path: &Path) -> u64 {
    let db = Database::open_read_only(path).expect("a database");
    db.check().expect("sound");
    db.read(|txn| {
        let mut sum = 0;
        for entry in txn.open_table(ROWS)?.range(..)? {
            sum += u64::from(entry?.value()[0]);
        }
        Ok::<u64, Error>(sum)
    })
    .expect("readable")
}

#[test]
fn a_database_is_backed_up_and_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let db = Database::builder().memory(1 << 20).create(at.join("db")).expect("made");
    put(&db, 0..1_000, 1);
    let beside = terrace(at, &["backup", "db", "whole"]);
    assert_eq!(beside.status.code(), Some(1), "another process has it open");
    assert!(text(&beside.stderr).contains("Database::backup"), "{beside:?}");
    assert!(!at.join("whole").exists() && !at.join("whole.part").exists());
    db.close().expect("closed");

    let done = terrace(at, &["backup", "db", "whole", "--json", "done", "--rate", "1GiB"]);
    assert!(done.status.success(), "{done:?}");
    let json = fs::read_to_string(at.join("done")).expect("written");
    assert!(json.contains("\"command\": \"backup\"") && json.contains("\"whole\": true"), "{json}");
    let before = fs::read(at.join("whole")).expect("written");
    for taken in ["whole", "db", "db.log"] {
        let refused = terrace(at, &["backup", "db", taken]);
        assert_eq!(refused.status.code(), Some(1), "{taken}");
        assert!(text(&refused.stderr).contains("already"), "{refused:?}");
    }
    assert_eq!(fs::read(at.join("whole")).expect("there"), before);

    let db = Database::open(at.join("db")).expect("its own");
    put(&db, 0..10, 3);
    db.close().expect("closed");
    let more = terrace(at, &["backup", "db", "more", "--since", "whole"]);
    assert!(more.status.success(), "{more:?}");
    let restored =
        terrace(at, &["restore", "whole", "copy", "--then", "more", "--json", "restored"]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!((sum(&at.join("copy")), sum(&at.join("db"))), (1_020, 1_020));
    let over = terrace(at, &["restore", "whole", "copy"]);
    assert_eq!(over.status.code(), Some(1), "{over:?}");
    assert_eq!(sum(&at.join("copy")), 1_020);
    let alone = terrace(at, &["restore", "more", "alone"]);
    assert!(text(&alone.stderr).contains("whole backup first"), "{alone:?}");
    let leftovers = ["alone", "alone.log", "alone.new", "alone.new.log", "alone.making"];
    assert!(leftovers.iter().all(|name| !at.join(name).exists()));
}

#[test]
fn a_backup_goes_through_pipes_and_one_that_is_cut_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let db = Database::builder().memory(1 << 20).create(at.join("db")).expect("made");
    put(&db, 0..2_000, 1);
    db.close().expect("closed");
    let mut backup =
        command(at, &["backup", "db", "-"]).stdout(Stdio::piped()).spawn().expect("starts");
    let pipe = backup.stdout.take().expect("piped");
    let restored = command(at, &["restore", "-", "copy"]).stdin(pipe).output().expect("starts");
    assert!(backup.wait().expect("waited for").success());
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(sum(&at.join("copy")), 2_000);
    let whole = terrace(at, &["backup", "db", "-"]);
    fs::write(at.join("cut"), &whole.stdout[..whole.stdout.len() / 2]).expect("room");
    let refused = terrace(at, &["restore", "cut", "other"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("ends too early"), "{refused:?}");
    assert!(!at.join("other").exists() && !at.join("other.new").exists());
    let since = terrace(at, &["backup", "db", "more", "--since", "cut"]);
    assert!(text(&since.stderr).contains("ends too early"), "{since:?}");
}

/// Kills the command at moments of its own choice: what it leaves is no backup and no database, and
/// it can be run again.
#[test]
fn backups_and_restores_that_are_killed_can_be_run_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let db = Database::builder().memory(1 << 20).create(at.join("db")).expect("made");
    put(&db, 0..30_000, 1);
    db.close().expect("closed");
    let whole = terrace(at, &["backup", "db", "whole"]);
    assert!(whole.status.success(), "{whole:?}");
    for pause in [0, 2, 5, 10, 20, 40] {
        let pause = std::time::Duration::from_millis(pause);
        let mut killed =
            command(at, &["backup", "db", "killed", "--rate", "8MiB"]).spawn().expect("starts");
        std::thread::sleep(pause);
        // It may have ended by itself.
        let _killed = killed.kill();
        killed.wait().expect("waited for");
        let _left = fs::remove_file(at.join("killed"));
        let mut killed = command(at, &["restore", "whole", "copy"]).spawn().expect("starts");
        std::thread::sleep(pause);
        let _killed = killed.kill();
        killed.wait().expect("waited for");
        if at.join("copy").exists() && !at.join("copy.making").exists() {
            assert_eq!(sum(&at.join("copy")), 30_000);
            fs::remove_file(at.join("copy")).expect("there");
            fs::remove_file(at.join("copy.log")).expect("there");
        }
    }
    let again = terrace(at, &["backup", "db", "killed"]);
    assert!(again.status.success(), "{again:?}");
    assert!(!at.join("killed.part").exists());
    let again = terrace(at, &["restore", "killed", "copy"]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(sum(&at.join("copy")), 30_000);
}
