//! `--record` of every bench whose clients ask for pages.

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

/// What a command prints as JSON.
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = terrace(folder, &[arguments, &["--json", "-"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON on standard output, and nothing else")
}

/// Reads and writes of the trace `name`.
fn recorded(folder: &Path, name: &str) -> (f64, f64) {
    let info = json(folder, &["trace", "info", name]);
    let count = |what: &str| info[what].as_f64().expect("a count");
    (count("reads"), count("writes"))
}

/// What must not depend on the machine.
fn without_host(mut value: Value) -> Value {
    value.as_object_mut().expect("an object").remove("host");
    for run in value["runs"].as_array_mut().expect("runs") {
        run.as_object_mut().expect("an object").remove("host");
    }
    value
}

/// Runs `bench` without a record, and with one before memory and one behind it, which must change
/// nothing. What it found.
fn recorded_twice(folder: &Path, bench: &[&str]) -> Value {
    let plain = without_host(json(folder, bench));
    let before = json(folder, &[bench, &["--record", "before"]].concat());
    let behind = ["--record", "behind", "--record-at", "misses"];
    let behind = json(folder, &[bench, &behind].concat());
    assert_eq!(without_host(before), plain, "recording changes nothing");
    assert_eq!(without_host(behind), plain, "recording changes nothing");
    plain
}

#[test]
fn a_steady_run_is_recorded_as_it_was_counted() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let bench = ["bench", "steady", "--design", "dw", "--customers", "60", "--clients", "8"];
    let sizes = ["--dram", "64p", "--flash", "128p", "--duration", "4s", "--averaged", "100%"];
    let found = recorded_twice(folder.path(), &[&bench[..], &sizes].concat());
    let (reads, writes) = recorded(folder.path(), "before");
    let (missed, written) = recorded(folder.path(), "behind");
    assert!(writes > 0.0 && written > 0.0 && written < writes, "{writes} and {written}");
    let hits = found["runs"][0]["memory"]["hit_ratio"].as_f64().expect("a ratio");
    let ratio = 1.0 - missed / (reads + writes);
    // Neighbours are read along at first, and tasks go on for a moment after the average.
    assert!((ratio - hits).abs() < 0.03, "{ratio} for {hits}");
}

#[test]
fn what_streams_of_queries_lack_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let bench = ["bench", "erp", "--design", "tac", "--facts", "5000", "--window", "100ms"];
    let sizes = ["--dram", "64p", "--flash", "96p", "--streams", "2"];
    let found = recorded_twice(folder.path(), &[&bench[..], &sizes].concat());
    let (asked, changed) = recorded(folder.path(), "before");
    let (missed, written) = recorded(folder.path(), "behind");
    let run = &found["runs"][0];
    let fetched = |what: &str| run[what].as_f64().expect("a count");
    let opening = fetched("fetched_of_tables") + fetched("fetched_of_indexes") - missed;
    assert!((0.0..10.0).contains(&opening), "{opening} pages were read by opening");
    assert_eq!((changed, written), (0.0, 0.0), "queries change nothing");
    assert!(asked > missed);
}

#[test]
fn the_engine_at_its_own_speed_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for name in ["reads", "updates", "scan"] {
        let rows = ["bench", name, "--rows", "20000", "--path", "db", "--dram", "100p"];
        let record = ["--duration", "200ms", "--record", name];
        let found = json(folder.path(), &[&rows[..], &record].concat());
        let operations = found["runs"][0]["operations"].as_f64().expect("a count");
        let (reads, writes) = recorded(folder.path(), name);
        // Most operations touch a page of their own; what is done before and after the measured
        // time is recorded, too.
        assert!(reads + writes > operations / 2.0, "{name}: {reads}, {writes} for {operations}");
        assert_eq!(writes > 0.0, name == "updates", "{name}: {writes} writes");
    }
    let found = json(folder.path(), &["replay", "reads", "--policy", "lru", "--capacity", "100p"]);
    assert!(found["results"][0]["misses"].as_f64() > Some(0.0));
}

#[test]
fn what_asks_for_no_page_or_is_several_runs_is_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for (bench, why) in [
        (&["flash-table", "--path", "table"][..], "asks for no page"),
        (&["trace", "some", "--home", "home"], "a record already"),
        (&["erp", "--design", "tac", "--streams", "1,2"], "these are 2"),
        (&["erp", "--design", "tac", "--streams", "1", "--indexes-on-flash"], "these are 2"),
        (&["steady", "--design", "lc,dw"], "these are 2"),
        (&["restart", "--design", "lc", "--restart", "forget,warm"], "these are 2"),
    ] {
        let output = terrace(folder.path(), &[&["bench"], bench, &["--record", "trace"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{bench:?}: {said}");
        assert!(said.contains(why), "{bench:?}: {said}");
        assert!(!folder.path().join("trace").exists(), "{bench:?}");
    }
    let alone = ["bench", "reads", "--record-at", "misses"];
    assert_eq!(terrace(folder.path(), &alone).status.code(), Some(2), "without --record");
}

/// What is replayed through memory and flash by `replay` is asked of the pool on real files.
#[test]
fn a_trace_is_replayed_through_the_pool_on_real_files() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let make = ["trace", "make", "some.trace", "--uniform", "--ids", "600", "--requests", "6000"];
    let made = terrace(folder.path(), &[&make[..], &["--writes", "20%"]].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bench = ["bench", "trace", "some.trace", "--home", "home", "--flash-device", "slots"];
    let sizes = ["--memory", "100p", "--flash", "300p", "--page", "8KiB"];
    let found = json(folder.path(), &[&bench[..], &sizes].concat());
    let runs = found["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["references"].as_f64(), Some(3000.0));
        let hits = run["memory"]["hit_ratio"].as_f64().expect("a ratio");
        assert!((0.1..0.25).contains(&hits), "a sixth of the pages are in memory: {hits}");
    }
    let flash = |at: usize| runs[at]["flash"]["hit_ratio"].as_f64().expect("a ratio");
    assert_eq!(flash(0), 0.0);
    assert!(flash(1) > 0.4, "{}", flash(1));
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 1, "files are gone");
    std::fs::write(folder.path().join("home"), "mine").expect("written");
    let refused = terrace(folder.path(), &[&bench[..], &sizes].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(std::fs::read(folder.path().join("home")).expect("read"), b"mine");
}
