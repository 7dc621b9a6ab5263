//! `terrace torture --world real`: that it runs, counts, and says what it found.

use std::process::Command;

use serde_json::Value;

/// The JSON of a torture that finds nothing.
fn tortured(options: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["torture", "--world", "real", "--json", "-"])
        .args(options)
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON alone")
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {object}"))
}

/// What the command says of options that it refuses.
fn refused(options: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .arg("torture")
        .args(options)
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(2), "{options:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn options_that_would_be_ignored_are_refused() {
    for (options, of) in [
        (&["--world", "real", "--matrix", "--script", "front"][..], "--matrix"),
        (&["--world", "real", "--clean-age", "64KiB"], "--clean-age"),
        (&["--world", "real", "--histories", "--seeds", "3"], "--seeds"),
        (&["--world", "real", "--histories", "--persistent-flash"], "--persistent-flash"),
        (&["--histories"], "--histories"),
        (&["--folder", "/tmp"], "--folder"),
        (&["--full-disk", "/tmp"], "--full-disk"),
    ] {
        let said = refused(options);
        assert!(said.contains(&format!("{of} ")), "{options:?}: {said}");
    }
}

#[test]
fn processes_that_are_killed_and_devices_that_fail_lose_nothing() {
    let found = tortured(&["--seed", "7000", "--seeds", "12"]);
    assert!(number(&found, "kills") > 3 && number(&found, "faults") > 60, "{found}");
    assert!(number(&found, "verified") * 2 > number(&found, "lives"), "{found}");
    for what in ["losses", "wrong_answers", "hangs", "panics", "stopped", "changed"] {
        assert_eq!(number(&found, what), 0, "{found}");
    }
    let kinds = found["by_kind"].as_object().expect("by kind");
    for kind in ["kill -9", "device: ", "damage: home ", "damage: log "] {
        assert!(kinds.keys().any(|name| name.starts_with(kind)), "no {kind} in {found}");
    }
}

#[test]
fn histories_of_threads_are_checked_while_pages_move_through_flash() {
    for design in ["lc", "face"] {
        let found = tortured(&["--histories", "--design", design, "--seed", "2"]);
        assert!(number(&found, "transactions") > 10_000, "{found}");
        for what in ["anomalies", "hangs", "errors"] {
            assert_eq!(number(&found, what), 0, "{found}");
        }
        let of_design = &found["designs"][0];
        assert!(number(of_design, "dependencies") > number(of_design, "transactions"), "{found}");
        assert!(number(of_design, "flash_hits_dirty") > 1_000, "pages must move: {found}");
    }
}
