//! `terrace bench index` on few entries: the same seed gives the same bytes, and what it prints
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
    ["bench", "index", "--drives", "p300", "--divisor", "10000", "--json", "-"];

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
    let one = bench(folder.path(), &["--jobs", "1", "--report", "index.html"]);
    assert_eq!(one, bench(folder.path(), &["--jobs", "2"]));
    let page = std::fs::read_to_string(folder.path().join("index.html")).expect("a report");
    assert!(page.contains("PIO B-tree") && page.ends_with("</html>"));

    let run = &one["runs"][0];
    assert_eq!(run["drive"], "p300");
    assert_eq!(run["mixes"].as_array().map(Vec::len), Some(5));
    for mix in run["mixes"].as_array().expect("mixes") {
        let structures = mix["structures"].as_array().expect("structures");
        assert_eq!(structures.len(), 5, "the PIO B-tree has two rows");
        let time = |at: usize| structures[at]["op_ns"].as_f64().expect("a time");
        // The B+-tree stands first, the PIO B-tree second.
        let gain = structures[0]["pio_gain"].as_f64().expect("a gain");
        assert!((gain - time(0) / time(1)).abs() < 1e-9, "{gain}");
    }
    let figures = one["figures"].as_array().expect("figures");
    let ids: Vec<&str> = figures.iter().filter_map(|figure| figure["id"].as_str()).collect();
    for id in ["E04", "E05", "E06", "E07", "E08", "beyond"] {
        assert!(ids.contains(&id), "{id} of {ids:?}");
    }
    for figure in figures {
        let measured = figure["measured"].as_f64().expect("a number");
        let (low, high) = (figure["band"][0].as_f64(), figure["band"][1].as_f64());
        let verdict = match (low, high) {
            (Some(low), _) if measured < low => "below",
            (_, Some(high)) if measured > high => "above",
            _ => "inside",
        };
        assert_eq!(figure["verdict"], verdict, "{figure}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for (options, said) in [
        (&["--drives", "floppy"][..], "no device \"floppy\""),
        (&["--full", "--divisor", "10"], "cannot be used with"),
        (&["--divisor", "0"], "0 is not in 1..=10000"),
        (&["--record", "x.trace"], "--record: bench index has pages of its own"),
    ] {
        let output = terrace(folder.path(), &[&["bench", "index"], options].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
        assert!(error.contains(said), "{options:?}: {error}");
    }
}
