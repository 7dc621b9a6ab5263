//! Compacting a database, as users of the command meet it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use terrace::{Database, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder).output().expect("the command starts")
}

/// Bytes of the file's blocks.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").blocks() * 512
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn a_database_that_was_emptied_is_compacted() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let db = Database::builder().memory(1 << 20).create(at.join("db")).expect("made");
    let large = vec![7; 3 << 20];
    db.write(|txn| txn.open_table(ROWS)?.insert(6_000, &large)).expect("room");
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..7_000).try_for_each(|key| rows.remove(key).map(drop))
    })
    .expect("no room is needed");
    let beside = terrace(at, &["compact", "db"]);
    assert_eq!(beside.status.code(), Some(1), "another process has it open");
    db.close().expect("closed");
    let before = allocated(&at.join("db"));
    let done = terrace(at, &["compact", "db", "--json", "done"]);
    assert!(done.status.success(), "{done:?}");
    assert!(text(&done.stdout).starts_with("db: home had "), "{done:?}");
    let json = fs::read_to_string(at.join("done")).expect("written");
    assert!(json.contains("\"command\": \"compact\""), "{json}");
    assert!(allocated(&at.join("db")) < before / 2, "{before} bytes before: {json}");
    let found = terrace(at, &["check", "db"]);
    assert!(found.status.success(), "{found:?}");
    let missing = terrace(at, &["compact", "no-such-file"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(!at.join("no-such-file").exists());
}
