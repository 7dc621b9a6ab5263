//! `terrace bench parascan` on small tables: the same seed gives the same bytes, and what it prints
//! holds together.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts")
}

const SMALL: [&str; 8] =
    ["bench", "parascan", "--drives", "ssd-s,hdd-7200", "--divisor", "1000", "--json", "-"];

fn bench(folder: &Path, more: &[&str]) -> Value {
    let output = terrace(folder, &[&SMALL[..], more].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{more:?}: {said}");
    let mut value: Value = serde_json::from_slice(&output.stdout).expect("JSON, and nothing else");
    value.as_object_mut().expect("an object").remove("host");
    value
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_figures_follow_from_the_runs() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let one = bench(folder.path(), &["--jobs", "1", "--report", "parascan.html"]);
    assert_eq!(one, bench(folder.path(), &["--jobs", "2"]));
    let page = std::fs::read_to_string(folder.path().join("parascan.html")).expect("a report");
    assert!(page.contains("ParaHashJoin") && page.ends_with("</html>"));

    let runs = &one["runs"];
    assert_eq!(runs["drives"][0]["found"], "20 domains of 4096 bytes");
    assert_eq!(runs["drives"][0]["chosen"]["threads"], 4);
    assert_eq!(runs["drives"][1]["chosen"]["threads"], 1, "a disk is scanned as usual");
    assert_eq!(runs["joins"].as_array().map(Vec::len), Some(64));
    let scans = runs["drives"][0]["scans"].as_array().expect("scans");
    let seconds = |at: usize| scans[at]["seconds"].as_f64().expect("a time");
    let best = (1..scans.len()).map(|at| seconds(0) / seconds(at)).fold(0.0, f64::max);

    let figures = one["figures"].as_array().expect("figures");
    let ids: Vec<&str> = figures.iter().filter_map(|figure| figure["id"].as_str()).collect();
    for id in ["E10", "E11", "E12", "E13"] {
        assert!(ids.contains(&id), "{id} of {ids:?}");
    }
    let gain = figures[0]["measured"].as_f64().expect("a number");
    assert!((gain - best).abs() < 1e-3 * best, "{gain} of {best}");
}

#[test]
fn a_file_is_scanned_and_steps_are_measured() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(folder.path().join("file"), vec![7; 1 << 20]).expect("it writes");
    for (options, table) in [(&["--file", "file"][..], "scans"), (&["--steps"], "steps")] {
        let output =
            terrace(folder.path(), &[&["bench", "parascan", "--json", "-"], options].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {said}");
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON, and nothing else");
        assert!(value["host"][table].as_array().is_some_and(|rows| rows.len() > 2), "{value}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(folder.path().join("small"), [0; 512]).expect("it writes");
    for (options, code, said) in [
        (&["--drives", "floppy"][..], 2, "no device \"floppy\""),
        (&["--full", "--divisor", "10"], 2, "cannot be used with"),
        (&["--divisor", "0"], 2, "0 is not in 1..=10000"),
        (&["--record", "x.trace"], 2, "--record: bench parascan has pages of its own"),
        (&["--file", "small"], 1, "it has no page of 8192 bytes to scan"),
        (&["--file", "nowhere"], 1, "cannot scan nowhere"),
    ] {
        let output = terrace(folder.path(), &[&["bench", "parascan"], options].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {error}");
        assert!(error.contains(said), "{options:?}: {error}");
    }
}
