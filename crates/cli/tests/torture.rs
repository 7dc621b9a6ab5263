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
