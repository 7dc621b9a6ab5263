//! `terrace replay` as its users meet it: on the small trace that ships, and on input that makes
//! no sense.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use terrace_policy::replacement::REPLACEMENTS;

fn small_trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay/tests/data/mixed.lis")
}

fn replay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.arg("replay").args(arguments).env_remove("RUST_BACKTRACE");
    command.output().expect("the command starts")
}

fn json_of(arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["--json", "-"]);
    let output = replay(&all);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

fn refused(arguments: &[&str], status: i32) -> String {
    let output = replay(arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    said
}

#[test]
fn the_shipped_trace_gives_the_shipped_figures() {
    let trace = small_trace();
    let object = json_of(&[trace.to_str().expect("text"), "--capacity", "150p,40p"]);
    let results = object["results"].as_array().expect("results");
    let figures = include_str!("../../replay/tests/data/mixed.figures.csv");
    let mut lines: Vec<String> = results
        .iter()
        .map(|result| {
            let policy = result["policy"].as_str().expect("a name");
            let [capacity, misses] = ["capacity_pages", "misses"].map(|name| &result[name]);
            assert_eq!(result["requests"], 4000);
            let ratio = misses.as_f64().expect("a number") / 4000.0;
            assert!((result["miss_ratio"].as_f64().expect("a number") - ratio).abs() < 1e-6);
            assert!(result["host"]["requests_per_s"].as_f64().expect("a rate") > 0.0);
            format!("{policy},{capacity},{misses}")
        })
        .collect();
    lines.insert(0, "policy,capacity,misses".into());
    lines.retain(|line| !line.starts_with("tac,") && !line.starts_with("tac-bands,"));
    assert_eq!(lines, figures.lines().collect::<Vec<_>>());
}

#[test]
fn the_same_seed_gives_the_same_bytes_outside_host() {
    let trace = small_trace();
    let run = || {
        let mut object =
            json_of(&[trace.to_str().expect("text"), "--policy", "lecar,lru", "--seed", "9"]);
        without_host(&mut object);
        object.to_string()
    };
    assert_eq!(run(), run());
}

fn without_host(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("host");
            fields.values_mut().for_each(without_host);
        }
        Value::Array(values) => values.iter_mut().for_each(without_host),
        _ => {}
    }
}

#[test]
fn curves_end_where_only_first_uses_miss() {
    let trace = small_trace();
    let options = ["--curve", "--policy", "lru,sieve", "--sample", "100%", "--errors"];
    let mut arguments = vec![trace.to_str().expect("text")];
    arguments.extend(options);
    let object = json_of(&arguments);
    let curves = object["curves"].as_array().expect("curves");
    assert_eq!(curves.len(), 4, "LRU by three methods, SIEVE by one");
    for curve in curves {
        let points = curve["points"].as_array().expect("points");
        let last = points.last().expect("a point");
        assert_eq!(last["capacity_pages"], 1849);
        assert!((last["miss_ratio"].as_f64().expect("a number") - 1849.0 / 4000.0).abs() < 1e-6);
        let is_exact = curve["method"] == "exact";
        assert_eq!(curve["error_max"].is_null(), is_exact, "what is exact has no error: {curve}");
        let error = curve["error_max"].as_f64().unwrap_or_default();
        assert!(error < 1e-6, "a sample of everything is exact: {curve}");
    }
}

/// A hundredth of a small trace is a few pages: curves were off by 20 points, and nothing said so.
#[test]
fn a_curve_of_a_small_trace_is_not_from_a_handful_of_pages() {
    let trace = small_trace();
    let trace = trace.to_str().expect("text");
    let curve = [trace, "--curve", "--policy", "lru,sieve"];
    let object = json_of(&[&curve[..], &["--errors"]].concat());
    for one in object["curves"].as_array().expect("curves") {
        assert!(one["error_max"].as_f64().unwrap_or_default() < 0.02, "{one}");
    }
    let said = |more: &[&str]| {
        let output = replay(&[&curve[..], more].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(said(&["--sample", "1%"]).contains("the samples have 18 pages, and may be off"));
    assert!(!said(&[]).contains("may be off"));
}

#[test]
fn a_trace_that_is_read_twice_gives_the_same_misses() {
    let trace = small_trace();
    let trace = trace.to_str().expect("text");
    let sizes = ["--capacity", "150p,400p"];
    let kept = json_of(&[&[trace][..], &sizes].concat());
    let streamed = json_of(&[&[trace, "--stream"][..], &sizes].concat());
    assert_eq!(streamed["trace"], kept["trace"]);
    let misses = |object: &Value| -> Vec<(String, u64, u64)> {
        let results = object["results"].as_array().expect("results").iter();
        let number = |one: &Value, name: &str| one[name].as_u64().expect("a number");
        let row = |one: &Value| {
            let name = one["policy"].as_str().expect("a name").to_string();
            (name, number(one, "capacity_pages"), number(one, "misses"))
        };
        let is_online =
            |row: &(String, u64, u64)| !row.0.starts_with("opt") && !row.0.starts_with("tac");
        results.map(row).filter(is_online).collect()
    };
    assert_eq!(misses(&streamed), misses(&kept));
    assert!(streamed["host"]["bytes_per_page"].as_f64().expect("a number") > 0.0);
    let said = refused(&[trace, "--stream", "--policy", "opt"], 2);
    assert!(said.contains("opt"), "{said}");
    let kept = json_of(&[trace, "--curve", "--policy", "lru"]);
    let streamed = json_of(&[trace, "--stream", "--curve"]);
    assert_eq!(streamed["curves"][0]["points"], kept["curves"][0]["points"]);
    refused(&[trace, "--stream", "--curve", "--policy", "arc"], 2);
}

#[test]
fn two_tiers_that_are_told_of_a_trace_read_twice_count_the_same() {
    let trace = small_trace();
    let trace = trace.to_str().expect("text");
    let tiers = ["--flash", "150p,300p", "--memory", "60p", "--design", "all", "--policy", "lru"];
    let kept = json_of(&[&[trace][..], &tiers].concat());
    let streamed = json_of(&[&[trace, "--stream"][..], &tiers].concat());
    assert_eq!(streamed["trace"], kept["trace"]);
    assert_eq!(streamed["parameters"]["tiers"], kept["parameters"]["tiers"]);
    let results = |object: &Value| {
        let results = object["results"].as_array().expect("results").clone();
        let without_host = |mut one: Value| {
            one["host"].take();
            one
        };
        results.into_iter().map(without_host).collect::<Vec<_>>()
    };
    assert!(results(&kept).len() > 20, "every design and a policy, of two sizes");
    assert_eq!(results(&streamed), results(&kept));
    for one in streamed["results"].as_array().expect("results") {
        assert!(one["host"]["bytes_per_page"].as_f64().expect("a number") > 4.0, "{one}");
    }
    let said = |more: &[&str]| {
        let output = replay(&[&[trace], more, &tiers].concat());
        String::from_utf8(output.stdout).expect("text").contains("bytes/page")
    };
    assert!(said(&["--stream"]) && !said(&[]), "the text has them, too, where they are known");
    refused(&[trace, "--stream", "--flash", "150p", "--no-memory", "--policy", "opt"], 2);
    refused(&[trace, "--stream", "--flash", "150p", "--timed"], 2);
}

#[test]
fn the_report_of_curves_is_one_page_and_the_same_each_time() {
    let trace = small_trace();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("curves.html");
    let arguments = [
        trace.to_str().expect("text"),
        "--curve",
        "--sample",
        "100%",
        "--report",
        path.to_str().expect("text"),
    ];
    let page = || {
        assert!(replay(&arguments).status.success());
        fs::read_to_string(&path).expect("a report")
    };
    let one = page();
    assert_eq!(one.matches("<svg").count(), 2, "all capacities, and the small ones");
    assert!(!one.contains("src=") && !one.contains("NaN") && !one.contains("inf"));
    for policy in terrace_replay::Policy::all() {
        let label = format!("{{&quot;label&quot;:&quot;{}&quot;", policy.name());
        assert!(one.contains(&label), "{}", policy.name());
    }
    assert!(one.contains("SHARDS, fixed size") && one.contains("misses"));
    assert_eq!(one, page());
    refused(&[arguments[0], "--report", arguments[5]], 2);
}

#[test]
fn speed_is_measured_on_requests_made_in_memory() {
    let options = ["--bench", "--requests", "20000", "--ids", "1000", "--rounds", "2"];
    let object = json_of(&options);
    let results = object["results"].as_array().expect("results");
    assert!(results.len() > 10);
    for result in results {
        assert_eq!(result["capacity_pages"], 10);
        assert!(result["requests_per_s"].as_f64().expect("a rate") > 0.0);
    }
}

#[test]
fn memory_over_flash_says_what_each_tier_served() {
    let trace = small_trace();
    let trace = trace.to_str().expect("text");
    let tiers = ["--memory", "40p", "--flash", "150p,300p", "--policy", "all", "--design", "all"];
    let mut arguments = vec![trace, "--memory-policy", "lru"];
    arguments.extend(tiers);
    let object = json_of(&arguments);
    let results = object["results"].as_array().expect("results");
    // LRU in memory misses as often as it does alone.
    let missed = 3302;
    let number = |result: &Value, name: &str| result[name].as_u64().expect("a number");
    for result in results.iter().filter(|result| !result["flash_writes"].is_null()) {
        if ["face", "face-gr", "fasc", "hetero", "ssd-only"]
            .iter()
            .any(|name| result["design"] == *name)
        {
            // Pages that wait for their group stay in memory; a home on flash has none below.
            continue;
        }
        assert_eq!(result["memory_hit_ratio"], f64::from(4000 - missed) / 4000.0, "{result}");
        let flash_hits = u64::from(missed as u32) - number(result, "misses");
        assert_eq!(number(result, "flash_reads"), flash_hits, "no page is dirty: {result}");
        assert_eq!(number(result, "home_reads"), number(result, "misses"), "{result}");
        assert_eq!(number(result, "home_writes"), 0, "{result}");
        let served = result["flash_hit_ratio"].as_f64().expect("a ratio");
        assert!((served - flash_hits as f64 / f64::from(missed)).abs() < 1e-6, "{result}");
    }
    let named = |kind: &str, name: &str| results.iter().filter(|r| r[kind] == name).count();
    assert_eq!((named("design", "no-ssd"), named("design", "lc")), (2, 2));
    for design in terrace_policy::DESIGNS {
        assert_eq!(named("design", design.name), 2, "{}", design.name);
    }
    assert_eq!((named("policy", "arc"), named("policy", "opt-bypass")), (2, 2));
}

#[test]
fn a_filtered_trace_needs_no_memory() {
    let trace = small_trace();
    let trace = trace.to_str().expect("text");
    let object =
        json_of(&[trace, "--no-memory", "--flash", "150p", "--policy", "lru", "--covers", "24h"]);
    let result = &object["results"][0];
    assert_eq!((&result["misses"], &result["memory_hit_ratio"]), (&2691.into(), &0.0.into()));
    let writes = result["flash_writes"].as_f64().expect("a number");
    let per_day = result["drive_writes_per_day"].as_f64().expect("a number");
    assert!((per_day - writes / 150.0).abs() < 1e-5, "{per_day} for {writes} pages of 150");
}

#[test]
fn requests_are_timed_where_they_go() {
    let trace = small_trace();
    let trace = trace.to_str().expect("text");
    let timed = ["--no-memory", "--flash", "150p", "--timed", "--home", "hdd-7200"];
    let tried = ["--design", "no-ssd,tac", "--policy", "lru,opt,tac-bands", "--bands", "8,32"];
    let mut arguments = vec![trace];
    arguments.extend(timed.iter().chain(&tried));
    let (object, again) = (json_of(&arguments), json_of(&arguments));
    let results = object["results"].as_array().expect("results");
    let names: Vec<&str> = results
        .iter()
        .map(|row| row["design"].as_str().or(row["policy"].as_str()).expect("a name"))
        .collect();
    assert_eq!(names, ["no-ssd", "tac", "lru", "opt", "tac-bands 8", "tac-bands 32"]);
    let home = |at: usize| results[at]["home_time_s"].as_f64().expect("a time");
    assert!(home(0) > home(2) && home(2) > home(3), "{} {} {}", home(0), home(2), home(3));
    assert_eq!((&results[2]["misses"], &results[3]["misses"]), (&2691.into(), &1973.into()));
    assert_eq!(object["results"][1]["home_time_s"], again["results"][1]["home_time_s"]);
    refused(&[trace, "--timed"], 2);
    refused(&[trace, "--flash", "9p", "--bands", "0"], 2);
}

#[test]
fn writes_alone_gain_from_flash() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let trace = folder.path().join("made.trace");
    let trace = trace.to_str().expect("text");
    let make = ["trace", "make", trace, "--ids", "5000", "--requests", "3000", "--writes", "50%"];
    let mut terrace = Command::new(env!("CARGO_BIN_EXE_terrace"));
    assert!(terrace.args(make).status().expect("the command starts").success());
    let alone = ["--write-back-only", "--flash", "100p,1000p", "--home", "hdd-7200"];
    let mut arguments = vec![trace];
    arguments.extend(alone);
    let object = json_of(&arguments);
    let time = |at: usize| object["results"][at]["time_s"].as_f64().expect("a time");
    assert!(time(0) > time(1) && time(1) > time(2), "{} {} {}", time(0), time(1), time(2));
    assert_eq!(object["results"][0]["capacity_pages"], 0);
    let small = small_trace();
    let said = refused(&[small.to_str().expect("text"), "--write-back-only", "--flash", "9p"], 2);
    assert!(said.contains("no writes"), "{said}");
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let trace = small_trace();
    let trace = trace.to_str().expect("text");
    let said = refused(&[trace, "--policy", "mru"], 2);
    let known: Vec<&str> = REPLACEMENTS.iter().map(|row| row.name).collect();
    assert!(said.contains("`mru`") && said.contains(&known.join(", ")), "{said}");
    for size in ["0p", "0.0001%", "ten"] {
        let said = refused(&[trace, "--capacity", size], 2);
        assert!(said.contains("--capacity"), "{said}");
    }
    refused(&[trace, "--page", "1000"], 2);
    refused(&[trace, "--format", "papyrus"], 2);
    refused(&[trace, "--leave-out", "pg_wal"], 2);
    refused(&[trace, "--memory", "10%"], 2);
    refused(&[trace, "--flash", "10%", "--capacity", "10%"], 2);
    refused(&[trace, "--flash", "0p"], 2);
    let said = refused(&[trace, "--flash", "10%", "--memory-policy", "mru"], 2);
    assert!(said.contains("`mru`") && said.contains("gd2l"), "{said}");
    refused(&[trace, "--flash", "10%", "--home", "abacus"], 2);
    refused(&[], 2);
    refused(&["/no/such/trace"], 1);
}

#[test]
fn bad_lines_are_named_or_counted() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("bad.lis");
    let mut text: String = (0..50).map(|at| format!("{} 1 0 {at}\n", at % 7)).collect();
    text += "seven 1 0 50\n";
    fs::write(&path, text).expect("a trace");
    let path = path.to_str().expect("text");
    let said = refused(&[path, "--capacity", "3p"], 1);
    assert!(said.contains("bad.lis") && said.contains("51"), "file and line: {said}");
    let object = json_of(&[path, "--capacity", "3p", "--policy", "lru", "--skip-bad"]);
    assert_eq!(object["parameters"]["skipped"], 1);
    assert_eq!(object["results"][0]["misses"], 50);
    let empty = folder.path().join("empty.lis");
    fs::write(&empty, "").expect("a file");
    refused(&[empty.to_str().expect("text")], 1);
}
