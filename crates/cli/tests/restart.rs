//! `terrace bench restart` on small databases: the same seed gives the same bytes, what it prints
//! holds together, and what cannot be is refused.

use serde_json::Value;
use std::process::Command;
use terrace_policy::restarts::RESTARTS;

/// A few thousand transactions, with memory and flash for a part of the database.
const SMALL: [&str; 22] = [
    "--warehouses",
    "1",
    "--rows",
    "tiny",
    "--partitions",
    "1",
    "--clients",
    "6",
    "--flash",
    "40%",
    "--peak",
    "4s",
    "--after",
    "4s",
    "--averaged",
    "1s",
    "--window",
    "200ms",
    "--checkpoint",
    "1s",
    "--log",
    "64MiB",
];

fn bench(more: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["bench", "restart", "--json", "-"])
        .args(SMALL)
        .args(more)
        .current_dir(folder.path())
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{more:?}: {said}");
    assert_eq!(folder.path().join("report.html").exists(), !more.contains(&"--no-report"));
    serde_json::from_slice(&output.stdout).expect("JSON on standard output, and nothing else")
}

/// What must not depend on the machine, as text.
fn without_host(mut value: Value) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.remove("host");
                object.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    serde_json::to_string_pretty(&value).expect("JSON")
}

fn number(run: &Value, path: &str) -> f64 {
    run.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {run}"))
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let crash = ["--no-report", "--dram", "64p", "--event", "crash", "--seed", "7", "--jobs"];
    let one = without_host(bench(&[&crash[..], &["1"]].concat()));
    let two = without_host(bench(&[&crash[..], &["2"]].concat()));
    assert_eq!(one, two, "side by side or one after the other");
    let shutdown = ["--no-report", "--dram", "64p", "--seed", "7"];
    assert_ne!(one, without_host(bench(&shutdown)), "another event is another run");
}

#[test]
fn both_events_end_and_their_figures_agree() {
    for event in ["shutdown", "crash"] {
        let bench = bench(&["--design", "no-ssd,dw,lc", "--dram", "64p", "--event", event]);
        assert_eq!(bench["parameters"]["event"], event);
        for run in bench["runs"].as_array().expect("runs") {
            let design = run["design"].as_str().expect("a name");
            assert_eq!(run["restart"], "forget");
            assert_eq!(run["checks"]["consistency"], "ok", "{design}");
            assert!(number(run, "/tpmc") > 0.0 && number(run, "/before/tpmc") > 0.0);
            let parts = ["/shutdown_s", "/recovery_s", "/ramp_up_s"].map(|path| number(run, path));
            assert!(parts[1] > 0.0 && parts[2] > 0.0, "{design}: {parts:?}");
            assert_eq!(parts[0] > 0.0, event == "shutdown", "{design}");
            let sum: f64 = parts.iter().sum();
            assert!((number(run, "/peak_to_peak_s") - sum).abs() < 1e-5);
            if design == "no-ssd" {
                assert!(run["flash_pages_kept_share"].is_null());
            } else {
                assert!(number(run, "/before/flash/used_share") > 0.5, "{design}");
                assert_eq!(number(run, "/flash_pages_kept_share"), 0.0, "{design}");
            }
            assert_eq!(number(run, "/throughput_ratio"), 1.0, "forget over itself");
            assert_eq!(number(run, "/peak_to_peak_speedup"), 1.0);
            let kept = number(run, "/log/used_bytes");
            assert!(kept <= number(run, "/log/bytes") + 1e6, "{design}");
            one_axis(run["windows"].as_array().expect("windows"), event);
        }
    }
}

/// The windows ascend, and nothing is done while the database is down.
fn one_axis(windows: &[Value], event: &str) {
    let mut last = 0.0;
    let mut phases = Vec::new();
    for window in windows {
        let t_s = number(window, "/t_s");
        assert!(t_s > last, "{t_s} after {last}");
        last = t_s;
        let phase = window["phase"].as_str().expect("a name");
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
        if !["before", "after"].contains(&phase) {
            assert_eq!(number(window, "/tpmc"), 0.0);
        }
    }
    let expected: &[&str] = match event {
        "crash" => &["before", "recovery", "after"],
        _ => &["before", "stopping", "shutdown", "recovery", "after"],
    };
    assert_eq!(phases, expected);
}

#[test]
fn the_read_intensive_workload_runs_and_stays_consistent() {
    let more = ["--workload", "tpce-like", "--customers", "40", "--design", "lc", "--dram", "96p"];
    let bench = bench(&[&more[..], &["--event", "crash", "--seeds", "2"]].concat());
    let lc = &bench["runs"][0];
    assert_eq!(lc["checks"]["consistency"], "ok");
    assert!(lc.get("tpmc").is_none(), "there are no New-Orders");
    assert!(number(lc, "/transactions_per_s") > 0.0);
    assert_eq!(lc["seeds"], 2);
    assert!(number(lc, "/low/recovery_s") <= number(lc, "/high/recovery_s"));
}

#[test]
fn what_cannot_be_is_refused_before_the_work() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let refused = |command: &str, options: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args(["bench", command])
            .args(options)
            .current_dir(folder.path())
            .output()
            .expect("the command starts");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{options:?}: {said}");
        said
    };
    let said = refused("restart", &["--restart", "forget,mr"]);
    let known = RESTARTS.map(|restart| restart.name).join(", ");
    assert!(said.contains("`mr`") && said.contains(&format!("{known}, all")), "{said}");
    for command in ["restart", "tpcc"] {
        let said = refused(command, &["--design", "no-ssd", "--restart", "lvr"]);
        assert!(said.contains("no-ssd with lvr: ") && said.contains("`forget`"), "{said}");
    }
    let said = refused("restart", &["--home", "floppy"]);
    assert!(said.contains("icde2013-hdd"), "{said}");
    for options in [
        ["--peak", "0s"],
        ["--averaged", "300s"],
        ["--window", "1h"],
        ["--peak-share", "0%"],
        ["--event", "flood"],
        ["--workload", "tpch"],
        ["--customers", "0"],
        ["--log", "10%"],
        ["--log", "1p"],
        ["--dram", "1p"],
        ["--flash", "1p"],
    ] {
        refused("restart", &options);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}
