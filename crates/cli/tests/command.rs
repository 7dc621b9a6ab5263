//! The command as its users meet it: what it refuses, and how it says so.
//!
//! Whatever is wrong is one line on standard error, with exit status 2 for what makes no sense and
//! 1 for what did not work; and nothing is written that was not asked for.

use std::path::Path;
use std::process::{Command, Output};

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder).env_remove("RUST_BACKTRACE");
    command.output().expect("the command starts")
}

/// Runs the command, which must refuse with `status`, and returns its one line.
fn refused(folder: &Path, arguments: &[&str], status: i32) -> String {
    let output = terrace(folder, arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("terrace: "), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    said
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

#[test]
fn unknown_names_are_answered_with_the_known() {
    let folder = folder();
    let said = refused(folder.path(), &["bench", "tpcc", "--design", "lc,lx"], 2);
    assert!(said.contains("unknown design `lx`; known: no-ssd, cw, dw, lc, tac"), "{said}");
    let said = refused(folder.path(), &["bench", "tpcc", "--memory-policy", "mru"], 2);
    assert!(said.contains("known: lru-2, clock, lru"), "{said}");
    let said = refused(folder.path(), &["bench", "tpcc", "--world", "dream"], 2);
    assert!(said.contains("virtual, real"), "{said}");
    refused(folder.path(), &["bench", "tpcx"], 2);
    refused(folder.path(), &["bench", "tpcc", "--no-such-option"], 2);
}

#[test]
fn sizes_and_shares_that_make_no_sense_are_refused() {
    let folder = folder();
    for options in [
        ["--dram", "0MiB"],
        ["--dram", "100"],
        ["--dram", "-1GiB"],
        ["--dram", "900000TiB"],
        ["--flash", "1p"],
        ["--flash", "0%"],
        ["--lambda", "150%"],
        ["--tau", "nan"],
        ["--fill", "0%"],
        ["--warehouses", "0"],
        ["--warehouses", "99999999"],
        ["--clients", "0"],
        ["--duration", "0s"],
        ["--duration", "yesterday"],
        ["--window", "1h"],
        ["--averaged", "0%"],
        ["--seeds", "0"],
        ["--partitions", "0"],
    ] {
        refused(folder.path(), &["bench", "tpcc", options[0], options[1]], 2);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn the_real_world_needs_its_places() {
    let folder = folder();
    let said = refused(folder.path(), &["bench", "tpcc", "--world", "real"], 2);
    assert!(said.contains("--home"), "{said}");
    let home = ["bench", "tpcc", "--world", "real", "--home", "h", "--log-device", "l"];
    let said = refused(folder.path(), &home, 2);
    assert!(said.contains("--flash-device"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn places_that_cannot_be_written_are_found_before_the_work() {
    let folder = folder();
    for option in ["--json", "--report"] {
        let said = refused(folder.path(), &["bench", "tpcc", option, "missing/file"], 1);
        assert!(said.contains("missing/file"), "{said}");
    }
}

#[test]
fn help_is_no_failure() {
    let folder = folder();
    for arguments in [&["--help"][..], &["bench", "tpcc", "--help"], &["--version"]] {
        let output = terrace(folder.path(), arguments);
        assert!(output.status.success());
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
    assert_eq!(terrace(folder.path(), &[]).status.code(), Some(2));
}
