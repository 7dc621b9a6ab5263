//! `terrace bench tpcc` on a small database: the same seed gives the same bytes, and what it prints
//! holds together.

use serde_json::Value;
use std::process::Command;

/// A few hundred transactions on a database of half a megabyte, with memory for a part of it.
const SMALL: [&str; 14] = [
    "--warehouses",
    "2",
    "--rows",
    "tiny",
    "--duration",
    "8s",
    "--clients",
    "6",
    "--dram",
    "64p",
    "--flash",
    "40%",
    "--partitions",
    "1",
];

fn bench(more: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["bench", "tpcc", "--json", "-"])
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

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let one = without_host(bench(&["--no-report", "--seed", "7", "--jobs", "1"]));
    let two = without_host(bench(&["--no-report", "--seed", "7", "--jobs", "2"]));
    assert_eq!(one, two, "side by side or one after the other");
    let other = without_host(bench(&["--no-report", "--seed", "8"]));
    assert_ne!(one, other, "another seed is another run");
}

#[test]
fn every_design_runs_and_its_figures_agree() {
    let bench = bench(&["--design", "all"]);
    let runs = bench["runs"].as_array().expect("runs");
    let names: Vec<_> = runs.iter().map(|run| run["design"].as_str().expect("a name")).collect();
    let known: Vec<_> = terrace_policy::DESIGNS.iter().map(|design| design.name).collect();
    assert_eq!(names, known);
    for run in runs {
        assert_eq!(run["checks"]["consistency"], "ok", "{}", run["design"]);
        assert!(run["tpmc"].as_f64() > Some(0.0), "{}", run["design"]);
        let share = |path: &str| run.pointer(path).and_then(Value::as_f64).expect(path);
        for path in ["/memory/hit_ratio", "/flash/hit_ratio", "/flash/used_share"] {
            assert!((0.0..=1.0).contains(&share(path)), "{}: {path}", run["design"]);
        }
        let uses_flash = !["no-ssd", "ssd-only"].contains(&run["design"].as_str().unwrap());
        // Exactly the number of slots that was asked for.
        let asked =
            if uses_flash { bench["parameters"]["flash_pages"].as_f64() } else { Some(0.0) };
        assert_eq!(Some(share("/flash/slots")), asked, "{}", run["design"]);
        assert_eq!(share("/devices/flash/writes") > 0.0, uses_flash, "{}", run["design"]);
        let bytes = share("/flash/metadata_bytes_per_slot");
        assert!(bytes <= 32.0 || share("/flash/slots") < 10_000.0, "{bytes} bytes for a slot");
        assert_eq!(run["windows"].as_array().expect("windows").len(), 100);
    }
    let speedup = runs[3]["speedup"].as_f64().expect("no-ssd ran");
    let ratio = runs[3]["tpmc"].as_f64().unwrap() / runs[0]["tpmc"].as_f64().unwrap();
    assert!((speedup - ratio).abs() < 1e-5);
}

#[test]
fn several_seeds_give_intervals() {
    let bench = bench(&["--no-report", "--design", "no-ssd,lc", "--seeds", "3"]);
    let lc = &bench["runs"][1];
    assert_eq!(lc["seeds"], 3);
    assert!(lc["low"]["tpmc"].as_f64() <= lc["mean"]["tpmc"].as_f64());
    assert!(lc["mean"]["speedup"].as_f64() <= lc["high"]["speedup"].as_f64());
    assert_eq!(bench["pairs"][0]["design"], "lc");
}

#[test]
fn a_run_is_recorded_before_memory_and_behind_it() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    let info = |name: &str| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args(["trace", "info", &path(name), "--json", "-"])
            .output()
            .expect("the command starts");
        serde_json::from_slice(&output.stdout).expect("JSON on standard output")
    };
    let run = ["--no-report", "--design", "lc", "--averaged", "100%", "--no-check", "--record"];
    let plain = without_host(bench(&run[..6]));
    let (one, two) = (path("before"), path("behind"));
    let before = bench(&[&run[..], &[&one]].concat());
    assert_eq!(without_host(before), plain, "recording changes nothing");
    let behind = bench(&[&run[..], &[&two, "--record-at", "misses"]].concat());
    let [references, misses] = ["before", "behind"].map(info);
    let count = |info: &Value, what: &str| info[what].as_f64().expect("a count");
    let ratio = 1.0 - count(&misses, "reads") / count(&references, "requests");
    let hits = behind["runs"][0]["memory"]["hit_ratio"].as_f64().expect("a ratio");
    // Neighbours are read along at first, and tasks go on for a moment after the average.
    assert!((ratio - hits).abs() < 0.03, "{ratio} for {hits}");
    assert!(count(&misses, "writes") > 0.0);
    assert!(count(&misses, "writes") < count(&references, "writes"));
    let refused = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["bench", "tpcc", "--design", "lc,dw", "--record", &path("both")])
        .output()
        .expect("the command starts");
    assert_eq!(refused.status.code(), Some(2));
    assert!(!folder.path().join("both").exists());
}

#[test]
fn the_books_of_the_flash_tier_are_taken_from_memory_if_they_are_charged() {
    let run = ["--no-report", "--design", "no-ssd,lc", "--no-check"];
    let (free, charged) = (bench(&run), bench(&[&run[..], &["--charge-metadata", "on"]].concat()));
    let frames = |bench: &Value, at: usize| bench["runs"][at]["memory"]["frames"].as_u64();
    assert_eq!((frames(&free, 0), frames(&free, 1)), (Some(64), Some(64)));
    assert_eq!(frames(&charged, 0), Some(64), "nothing to pay for");
    let flash = &charged["runs"][1]["flash"];
    let bytes =
        flash["slots"].as_u64().unwrap() * flash["metadata_bytes_per_slot"].as_u64().unwrap();
    let taken = 64 - frames(&charged, 1).expect("frames");
    assert!(taken > 0 && taken.abs_diff(bytes / 8192) <= 1, "{taken} frames for {bytes} bytes");
    assert_eq!(charged["parameters"]["charge_metadata"], "on");
}

#[test]
fn pages_are_compared_with_themselves_and_the_run_is_the_same() {
    let run = ["--no-report", "--design", "cac", "--no-check"];
    let plain = bench(&run);
    assert!(plain["runs"][0].get("page_rates").is_none());
    let mut watched = bench(&[&run[..], &["--page-rates", "50"]].concat());
    let rates = watched["runs"][0].as_object_mut().expect("a run").remove("page_rates");
    let rates = rates.expect("what was asked for");
    let count = |path: &str| rates.pointer(path).and_then(Value::as_u64).expect("a count");
    assert!((1..=50).contains(&count("/pages")), "{rates}");
    for what in ["reads", "misses", "writes"] {
        let [on, off] = ["higher_on_flash", "higher_elsewhere"];
        let different = count(&format!("/{what}/{on}")) + count(&format!("/{what}/{off}"));
        assert!(different <= count("/pages"), "{what}: {rates}");
    }
    assert_eq!(without_host(watched), without_host(plain), "watching changes nothing");
}
