//! `terrace bench erp` on a small star: the same seed gives the same bytes, and what it prints
//! holds together.

use serde_json::Value;
use std::process::Command;

fn bench(more: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["bench", "erp", "--json", "-", "--facts", "5000", "--window", "100ms"])
        .args(["--dram", "64p", "--flash", "96p", "--streams", "1,3", "--indexes-on-flash"])
        .args(more)
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{more:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON on standard output, and nothing else")
}

/// What must not depend on the machine, as text.
fn without_host(mut value: Value) -> String {
    value.as_object_mut().expect("an object").remove("host");
    for run in value["runs"].as_array_mut().expect("runs") {
        run.as_object_mut().expect("an object").remove("host");
    }
    value.to_string()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let one = without_host(bench(&["--seed", "7", "--jobs", "1"]));
    assert_eq!(one, without_host(bench(&["--seed", "7", "--jobs", "2"])));
    assert_ne!(one, without_host(bench(&["--seed", "8"])));
}

#[test]
fn runs_are_compared_with_no_ssd_at_as_many_streams() {
    let bench = bench(&[]);
    let runs = bench["runs"].as_array().expect("runs");
    let named = |run: &Value| (run["streams"].as_u64(), run["design"].as_str().map(str::to_string));
    let names: Vec<_> = runs.iter().map(named).collect();
    let expected = [1, 3].into_iter().flat_map(|streams| {
        ["no-ssd", "tac", "no-ssd"].map(|design| (Some(streams), Some(design.to_string())))
    });
    assert_eq!(names, expected.collect::<Vec<_>>());
    for of_streams in runs.chunks(3) {
        let elapsed = |run: &Value| run["elapsed_s"].as_f64().expect("a time");
        for run in of_streams {
            assert_eq!(run["checks"]["consistency"], "ok");
            let ratio = elapsed(&of_streams[0]) / elapsed(run);
            assert!((run["speedup"].as_f64().expect("no-ssd ran") - ratio).abs() < 1e-4);
            let each = run["each"].as_array().expect("streams");
            assert_eq!(Some(each.len() as u64), run["streams"].as_u64());
            let slowest = each.iter().map(elapsed).fold(0.0, f64::max);
            assert_eq!(slowest, elapsed(run));
        }
        assert_eq!(of_streams[2]["indexes_on_flash"], true);
        assert!(of_streams[2]["placed_pages"].as_u64() >= Some(96));
        assert_eq!(of_streams[1]["flash"]["slots"], 96);
    }
}
