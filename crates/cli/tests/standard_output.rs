//! What becomes of results that standard output does not take.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use terrace::{Database, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

/// Each command that shows something, or that writes there what it makes.
const COMMANDS: [&str; 14] = [
    "dump db",
    "dump db --salvage",
    "dump db --table rows",
    "stat db",
    "stat db --json -",
    "check db",
    "check db --json -",
    "placement --json -",
    "bench reads --rows 100 --duration 10ms --json -",
    "torture --seeds 1 --json -",
    "trace make --requests 100 -",
    "trace head trace",
    "trace info trace --json -",
    "replay trace --json -",
];

fn terrace(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(line.split(' ')).current_dir(folder);
    command
}

fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::builder().create(folder.path().join("db")).expect("a good place");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, &[7; 100])).expect("room");
    db.close().expect("good files");
    let trace = terrace(folder.path(), "trace make --requests 100 trace").output();
    assert!(trace.expect("it starts").status.success());
    folder
}

/// Fails with one line, beside what a command tells while it runs.
fn fails(line: &str, output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}: {said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("terrace: cannot ") && last.contains(why), "{line}: {said}");
}

/// Rust opens `/dev/null` where standard output is closed, and a dump that was lost was a success.
#[test]
fn a_closed_standard_output_is_told_before_the_work() {
    let folder = made();
    for line in COMMANDS.into_iter().chain(["--help", "--version"]) {
        let mut closed = Command::new("sh");
        closed.current_dir(folder.path()).args(["-c", "exec \"$0\" \"$@\" >&-"]);
        closed.arg(env!("CARGO_BIN_EXE_terrace")).args(line.split(' '));
        let output = closed.output().expect("it starts");
        fails(line, &output, "standard output is closed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
    }
}

#[test]
fn a_standard_output_without_room_is_told() {
    let folder = made();
    for line in COMMANDS.into_iter().chain(["--help", "--version"]) {
        let full = File::options().write(true).open("/dev/full").expect("there");
        let output = terrace(folder.path(), line).stdout(full).stderr(Stdio::piped()).output();
        fails(line, &output.expect("it starts"), "No space left on device");
    }
}

/// A user who throws the results away wants the exit status, however `/dev/null` was opened.
#[test]
fn results_may_be_thrown_away() {
    let folder = made();
    for line in COMMANDS {
        let null = File::options().read(true).write(true).open("/dev/null").expect("there");
        let output = terrace(folder.path(), line).stdout(null).output().expect("it starts");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
