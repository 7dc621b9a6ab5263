//! `terrace bench tpch` on few rows: the same seed gives the same bytes, what it prints holds
//! together, and what it records is what it counted.

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

const SMALL: [&str; 12] = [
    "bench",
    "tpch",
    "--scale",
    "0.01",
    "--queries",
    "30",
    "--widths",
    "10,2000",
    "--dram",
    "64p",
    "--flash",
    "128p",
];

fn bench(folder: &Path, more: &[&str]) -> Value {
    json(folder, &[&SMALL[..], more].concat())
}

/// What must not depend on the machine, as text.
fn without_host(mut value: Value) -> String {
    value.as_object_mut().expect("an object").remove("host");
    for run in value["runs"].as_array_mut().expect("runs") {
        run.as_object_mut().expect("an object").remove("host");
    }
    value.to_string()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let folder = folder();
    let shown = |more: &[&str]| without_host(bench(folder.path(), more));
    for workload in ["ods-tpch", "zipf-tpch"] {
        let workload = ["--workload", workload];
        let one = shown(&[&workload[..], &["--seed", "7", "--jobs", "1"]].concat());
        assert_eq!(one, shown(&[&workload[..], &["--seed", "7", "--jobs", "2"]].concat()));
        assert_ne!(one, shown(&[&workload[..], &["--seed", "8"]].concat()));
    }
}

#[test]
fn queries_add_up_to_their_kinds_and_to_the_run() {
    let folder = folder();
    for (workload, kinds) in [("ods-tpch", 5), ("zipf-tpch", 4)] {
        let bench = bench(folder.path(), &["--workload", workload]);
        let runs = bench["runs"].as_array().expect("runs");
        let names: Vec<&Value> = runs.iter().map(|run| &run["design"]).collect();
        assert_eq!(names, ["no-ssd", "tac"]);
        let elapsed = |run: &Value| run["elapsed_s"].as_f64().expect("a time");
        for run in runs {
            assert_eq!(run["checks"]["consistency"], "ok");
            let of = |list: &str, what: &str| -> f64 {
                let list = run[list].as_array().expect("a list").iter();
                list.map(|one| one[what].as_f64().expect("a number")).sum()
            };
            let total = |what: &str| run["total"][what].as_f64().expect("a number");
            assert_eq!(total("queries"), 30.0);
            assert_eq!(run["kinds"].as_array().expect("kinds").len(), kinds);
            for what in ["queries", "rows_read", "rows_answered", "references", "misses"] {
                assert_eq!(of("kinds", what), total(what), "{what}");
            }
            for what in ["rows_answered", "misses"] {
                assert_eq!(of("queries", what), total(what), "{what}");
            }
            assert!((of("queries", "elapsed_s") - elapsed(run)).abs() < 1e-3);
            let ratio = elapsed(&runs[0]) / elapsed(run);
            assert!((run["speedup"].as_f64().expect("no-ssd ran") - ratio).abs() < 1e-3);
        }
        let rows = |run: &Value| run["total"]["rows_read"].clone();
        assert_eq!(rows(&runs[0]), rows(&runs[1]), "a design changes no query");
    }
}

#[test]
fn what_queries_ask_for_and_lack_is_recorded() {
    let folder = folder();
    let recorded = |name: &str| {
        let info = json(folder.path(), &["trace", "info", name]);
        ["reads", "writes"].map(|what| info[what].as_f64().expect("a count"))
    };
    for workload in ["ods-tpch", "zipf-tpch"] {
        let bench = [&SMALL[..], &["--workload", workload, "--design", "no-ssd"]].concat();
        let plain = json(folder.path(), &bench);
        let total = |what: &str| plain["runs"][0]["total"][what].as_f64().expect("a count");
        let home = &plain["runs"][0]["devices"]["home"];
        let read_pages = home["read_bytes"].as_f64().expect("bytes") / 8192.0;
        // Leaves that are read ahead are lacked before they are asked for, and some in vain.
        for (name, at, counted, most) in [
            ("before", "references", total("references"), 1.02 * total("references")),
            ("behind", "misses", total("misses"), read_pages),
        ] {
            let record = ["--record", name, "--record-at", at, "--force"];
            let found = json(folder.path(), &[&bench[..], &record].concat());
            let [reads, writes] = recorded(name);
            assert_eq!(without_host(found), without_host(plain.clone()), "nothing is changed");
            assert_eq!(writes, 0.0, "queries change nothing");
            assert!(reads >= counted && reads <= most, "{workload} {name}: {reads}, {counted}");
            let again = std::fs::read(folder.path().join(name)).expect("a trace");
            json(folder.path(), &[&bench[..], &record].concat());
            assert_eq!(std::fs::read(folder.path().join(name)).expect("a trace"), again);
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let folder = folder();
    for (options, why) in [
        (&["--scale", "0"][..], "--scale has to be above 0"),
        (&["--widths", "0,5"], "--widths has to be"),
        (&["--zipf=-1", "--workload", "zipf-tpch"], "--zipf has to be"),
        (&["--scale", "1000"], "kept in memory"),
        (&["--record", "trace"], "these are 2"),
        (&["--queries", "0"], "--queries"),
    ] {
        let output = terrace(folder.path(), &[&["bench", "tpch"], options].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(why), "{options:?}: {said}");
    }
}
