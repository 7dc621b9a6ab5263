//! `terrace advise` as its users meet it: on a trace that is made up for it, and on input that
//! makes no sense.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;
use terrace_policy::DESIGNS;

/// A made-up trace of 60,000 pages, of which a third of the requests write.
struct Trace {
    folder: TempDir,
}

impl Trace {
    fn new() -> Trace {
        let trace = Trace { folder: tempfile::tempdir().expect("a folder for the test") };
        let path = trace.path("a.trace");
        let made = terrace(&[
            "trace",
            "make",
            path.to_str().expect("text"),
            "--zipf",
            "0.9",
            "--ids",
            "60000",
            "--requests",
            "400000",
            "--writes",
            "30%",
            "--interval",
            "1ms",
        ]);
        assert!(made.status.success());
        trace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn advise(&self, more: &[&str]) -> Output {
        let path = self.path("a.trace");
        terrace(&[&["advise", path.to_str().expect("text")], more].concat())
    }

    fn json(&self, more: &[&str]) -> Value {
        let output = self.advise(&[more, &["--json", "-"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{more:?}: {said}");
        serde_json::from_slice(&output.stdout).expect("JSON on standard output")
    }
}

fn terrace(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).env_remove("RUST_BACKTRACE").output().expect("the command starts")
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} of {value}"))
}

const FEW: [&str; 4] = ["--flash", "2%,10%,30%,60%", "--design", "dw,lc"];

#[test]
fn more_flash_serves_more_and_the_advice_is_one_of_the_results() {
    let trace = Trace::new();
    let object = trace.json(&FEW);
    let results = object["results"].as_array().expect("results");
    assert_eq!(results.len(), 8);
    for design in results.chunks(4) {
        let ratios = design.iter().map(|one| number(one, "flash_hit_ratio")).collect::<Vec<_>>();
        assert!(ratios.is_sorted(), "{ratios:?}");
        assert!(design.iter().all(|one| number(one, "throughput_gain_error") == 0.0));
    }
    let take = &object["advice"]["take"];
    let is_taken = |one: &&Value| {
        one["design"] == take["design"] && one["capacity_pages"] == take["capacity_pages"]
    };
    let taken = results.iter().find(is_taken).expect("the advice is one of them");
    let best = results.iter().map(|one| number(one, "throughput_gain")).fold(0.0, f64::max);
    assert!(number(taken, "throughput_gain") >= 0.93 * best, "{taken}");
    let sentence = object["advice"]["sentence"].as_str().expect("a sentence");
    assert!(sentence.ends_with('.'), "{sentence}");
    let text = String::from_utf8(trace.advise(&FEW).stdout).expect("text");
    assert!(text.starts_with(sentence), "the sentence is at the top: {text}");
}

#[test]
fn every_design_is_advised_and_a_home_on_flash_is_no_advice() {
    let trace = Trace::new();
    let object = trace.json(&["--flash", "20%", "--design", "all"]);
    let results = object["results"].as_array().expect("results");
    let names: Vec<&str> = results.iter().filter_map(|one| one["design"].as_str()).collect();
    assert_eq!(names.len(), DESIGNS.len() - 1, "all but no-ssd: {names:?}");
    for one in results {
        let hits = number(one, "flash_hit_ratio");
        assert!(number(one, "throughput_gain") > 1.0 && hits > 0.1, "{one}");
        let is_home = one["design"] == "ssd-only";
        assert_eq!(hits == 1.0, is_home, "{one}");
        assert_eq!(number(one, "home_time_us") == 0.0, is_home, "{one}");
    }
    assert_ne!(object["advice"]["take"]["design"], "ssd-only");
    assert!(object["parameters"]["memory_policy"].is_string());
    let of = |name: &str| results.iter().find(|one| one["design"] == name).expect("a row");
    assert_eq!(of("cac")["memory_policy"], "gd2l");
    assert_eq!(of("lc")["memory_policy"], object["parameters"]["memory_policy"]);
    // Of many rows those are shown that matter; all of them are in the JSON.
    let text =
        String::from_utf8(trace.advise(&["--flash", "2%,5%,10%,20%,40%"]).stdout).expect("text");
    assert!(text.lines().count() < 50, "{text}");
}

/// The engine's own hits, and those that a replay of what it asked for gives.
#[test]
fn a_replay_hits_as_often_as_the_engine_that_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    let (trace, ran, said) = (path("a.trace"), path("ran.json"), path("said.json"));
    let object = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
    };
    // docs/ADVICE.md says how far FaCE is off.
    let designs =
        [("lc", 2.0), ("tac", 2.0), ("exclusive", 2.0), ("face", 3.0), ("fasc", 2.0), ("cac", 2.0)];
    for (design, points) in designs.into_iter().chain([("auto", 2.0)]) {
        let tiers = ["--flash", "2500p", "--design", design, "--clients", "20"];
        let load = ["--warehouses", "1", "--dram", "500p", "--duration", "20s"];
        let kept = ["--averaged", "50%", "--no-report", "--no-check"];
        let out = ["--record", &trace, "--json", &ran, "--force"];
        let bench = ["bench", "tpcc"];
        assert!(terrace(&[&bench[..], &load, &tiers, &kept, &out].concat()).status.success());
        let all = ["advise", &trace, "--memory", "500p", "--sample", "100%", "--json", &said];
        // The engine's own policy, unless one goes with the design.
        let memory: &[&str] = match design {
            "fasc" | "cac" | "auto" => &[],
            _ => &["--memory-policy", "lru-2"],
        };
        assert!(terrace(&[&all[..], &tiers, memory].concat()).status.success());
        let engine = number(&object(&ran)["runs"][0]["flash"], "hit_ratio");
        let replay = number(&object(&said)["results"][0], "flash_hit_ratio");
        let off = 100.0 * (replay - engine);
        assert!(off.abs() < points, "{design}: {off:.1} points off, {replay} for {engine}");
    }
}

#[test]
fn samples_come_near_and_say_how_near() {
    let trace = Trace::new();
    let sampled = ["--sample", "60%", "--errors", "--flash", "10%,30%", "--design", "dw,tac"];
    let object = trace.json(&sampled);
    assert_eq!(object["parameters"]["samples"], 4);
    for one in object["results"].as_array().expect("results") {
        for (what, full, points) in [
            ("throughput_gain", "full_throughput_gain", 0.03),
            ("flash_hit_ratio", "full_flash_hit_ratio", 0.01),
        ] {
            let error = number(one, &format!("{what}_error"));
            let off = (number(one, what) - number(one, full)).abs();
            assert!(error > 0.0, "{what} of {one}");
            assert!(off <= error + points, "{what} off by {off}, said {error}: {one}");
        }
    }
    let worst = number(&object["sampling_error_max"], "flash_hit_ratio");
    assert!(worst < 0.02, "{worst}");
}

#[test]
fn endurance_and_prices_are_told_where_they_are_known() {
    let trace = Trace::new();
    let plain = trace.json(&FEW);
    assert!(
        plain["results"][0]["years"].is_null() && plain["results"][0]["cost_per_month"].is_null()
    );
    let rated =
        ["--drive-writes-per-day", "3", "--drive", "1GiB", "--warranty", "4", "--covers", "1h"];
    let prices = ["--price-flash", "2", "--price-iops", "0.5"];
    let object = trace.json(&[&FEW[..], &rated, &prices].concat());
    for one in object["results"].as_array().expect("results") {
        let bytes = number(one, "flash_bytes_per_day");
        let per_day = bytes / f64::from(1 << 30);
        assert!((number(one, "drive_writes_per_day") / per_day - 1.0).abs() < 1e-3);
        let years = 3.0 * 4.0 / per_day;
        assert!((number(one, "years") / years - 1.0).abs() < 1e-3, "{years} {one}");
        assert!(number(one, "years_least") <= number(one, "years"), "{one}");
        let gib = number(one, "capacity_bytes") / f64::from(1 << 30);
        let cost = 2.0 * gib + 0.5 * number(one, "home_iops");
        assert!((number(one, "cost_per_month") - cost).abs() < 0.01, "{cost} {one}");
    }
    // Of a drive whose sizes are known a small tier takes a part.
    let hour = ["--covers", "1h"];
    let part = trace.json(&[&FEW[..], &["--flash-device", "dc-nvme"], &hour].concat());
    let one = &part["results"][0];
    let all = number(one, "drive_writes_per_day") * 960e9;
    assert!((all / number(one, "flash_bytes_per_day") - 1.0).abs() < 0.01, "{one}");
    // A thousandth of that drive is worn out in days: there is nothing to advise.
    let worn = ["--drive-writes-per-day", "0.01", "--drive", "64MiB"];
    let object = trace.json(&[&FEW[..], &worn, &hour].concat());
    assert!(object["advice"]["take"].is_null() && object["advice"]["wears_out"] == true);
    let sentence = object["advice"]["sentence"].as_str().expect("a sentence");
    assert!(sentence.starts_with("No size of iodrive lasts for 5 years"), "{sentence}");
}

/// Numbers of requests were read as nanoseconds: billions of references a second, and a drive that
/// lasts a day. A trace of .14 s was as good as a day's.
#[test]
fn a_trace_without_a_clock_or_of_a_moment_tells_nothing_of_wear() {
    let arc = concat!(env!("CARGO_MANIFEST_DIR"), "/../replay/tests/data/mixed.lis");
    let rated = ["--flash-device", "dc-nvme", "--drive", "64MiB", "--price-iops", "1"];
    let said = |path: &str, more: &[&str]| {
        let output = terrace(&[&["advise", path, "--json", "-"], &rated[..], more].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let object = said(arc, &[]);
    assert!(object["trace"]["span_s"].is_null(), "{}", object["trace"]);
    assert!(object["parameters"]["references_per_s"].is_null());
    let trace = Trace::new();
    let path = trace.path("a.trace");
    // 400 s, and with the clock that the user vouches for .14 s.
    for more in [&[][..], &["--covers", "140ms"]] {
        let short = said(path.to_str().expect("text"), &[&FEW[..], more].concat());
        for one in object["results"]
            .as_array()
            .expect("results")
            .iter()
            .chain(short["results"].as_array().expect("results"))
        {
            for name in ["years", "years_least", "drive_writes_per_day", "home_iops"] {
                assert!(one[name].is_null(), "{name}: {one}");
            }
        }
        let sentence = short["advice"]["sentence"].as_str().expect("a sentence");
        assert!(!sentence.contains("wears"), "{sentence}");
        assert!(sentence.contains("60 minutes are needed"), "{sentence}");
    }
    let day = said(path.to_str().expect("text"), &[&FEW[..], &["--covers", "24h"]].concat());
    assert!(day["results"][0]["years_least"].is_number());
}

#[test]
fn devices_are_presets_or_figures() {
    let trace = Trace::new();
    let figures = ["--home", "iops=3000,latency=700us,bandwidth=125MiB"];
    let [preset, figures] = [&["--home", "gp3"][..], &figures].map(|home| {
        let object = trace.json(&[&FEW[..], home].concat());
        object["results"][3]["throughput_gain"].as_f64().expect("a gain")
    });
    assert!((preset / figures - 1.0).abs() < 0.01, "{preset} {figures}");
    for (home, said) in [
        ("iops=0,latency=1ms,bandwidth=1MiB", "iops has to be above zero"),
        ("iops=10,latency=1ms,bandwidth=0MiB", "bandwidth has to be above zero"),
        ("iops=10", "iops, latency and bandwidth"),
    ] {
        let output = trace.advise(&["--home", home]);
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{home}: {stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{home}: {stderr}");
    }
}

#[test]
fn advice_from_the_first_half_is_tried_on_the_second() {
    let trace = Trace::new();
    let object = trace.json(&FEW);
    let check = &object["advice"]["from_first_half"];
    assert!(check["take"]["design"].is_string(), "{check}");
    let [first, second] =
        ["throughput_gain", "throughput_gain_on_second_half"].map(|name| number(check, name));
    // The load does not change.
    assert!((first / second - 1.0).abs() < 0.1, "{check}");
    let text = String::from_utf8(trace.advise(&FEW).stdout).expect("text");
    assert!(text.contains("check: from its first half alone"), "{text}");
}

#[test]
fn the_report_is_one_page_and_the_same_for_the_same_seed() {
    let trace = Trace::new();
    let path = trace.path("a.html");
    let report = ["--report", path.to_str().expect("text"), "--covers", "1h"];
    assert!(trace.advise(&[&FEW[..], &report].concat()).status.success());
    let page = fs::read_to_string(&path).expect("a report");
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(!page.contains("src=") && !page.contains("NaN") && !page.contains("inf"));
    assert!(page.contains("MiB"));
    assert!(trace.advise(&[&FEW[..], &report].concat()).status.success());
    assert_eq!(page, fs::read_to_string(&path).expect("a report"));
}

#[test]
fn nonsense_is_refused_in_a_line() {
    let trace = Trace::new();
    for (more, said) in [
        (&["--flash", "0p"][..], "--flash"),
        (&["--memory", "0.00001%"], "--memory"),
        (&["--design", "no-ssd"], "all designs are compared with it"),
        (&["--home", "floppy"], "floppy"),
        (&["--warm-up", "100%"], "--warm-up"),
        (&["--sample", "0%"], "--sample"),
        (&["--drive-writes-per-day", "-1"], "-1"),
        (&["--no-memory", "--memory", "5%"], "--memory"),
        (&["--price-flash", "-1"], "-1"),
        (&["--price-iops", "nan"], "nan"),
        (&["--covers=-3s"], "-3s"),
        (&["--covers", "0s"], "`0s` is no time above 0"),
        (&["--flash", "-5MiB"], "--flash: `-5MiB` is below zero"),
        (&["--warm-up", "-5%"], "--warm-up: `-5%` is below zero"),
    ] {
        let output = trace.advise(more);
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{more:?}: {stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{more:?}: {stderr}");
    }
    let missing = terrace(&["advise", "no-such.trace"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such.trace"));
}

#[test]
fn a_database_tells_what_it_missed() {
    const ROWS: terrace::TableDef<u64, &str> = terrace::TableDef::new("rows");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("db");
    let misses = folder.path().join("db.misses");
    let builder = || terrace::Database::builder().memory(64 * 8192).home_size(32 << 20);
    let db = builder().create(&path).expect("a database");
    let value = "x".repeat(1_000);
    db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..3_000).try_for_each(|row| rows.insert(row, &*value).map(drop))
    })
    .expect("rows");
    db.close().expect("closed");
    let path = path.to_str().expect("text");
    let without = terrace(&["advise", path]);
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(!without.status.success() && said.contains("keep_misses"), "{said}");

    let db = builder().keep_misses(&misses).open(path).expect("the database");
    for at in 0..12_000u64 {
        let row = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let read = |txn: &terrace::ReadTransaction| {
            txn.open_table(ROWS)?.get(row % 3_000).map(|found| assert!(found.is_some()))
        };
        db.read(read).expect("a row");
    }
    let counted = db.misses();
    db.close().expect("closed");
    assert!(misses.exists());
    for given in [path, misses.to_str().expect("text")] {
        let output = terrace(&["advise", given, "--flash", "30%,100%", "--json", "-"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(number(&object["trace"], "misses") >= counted.curve.misses() as f64);
        let ratios = [0, 1].map(|at| number(&object["results"][at], "flash_hit_ratio"));
        // Rows are read alike: a tier of a share of the pages has that share, and the first misses.
        assert!((ratios[0] - 0.3).abs() < 0.08 && ratios[1] > 0.85, "{ratios:?}");
    }
    let whole = fs::read_to_string(&misses).expect("a text");
    fs::write(&misses, &whole[..whole.len() / 2]).expect("a shorter text");
    let said = String::from_utf8(terrace(&["advise", path]).stderr).expect("text");
    assert!(said.contains("db.misses") && said.lines().count() == 1, "{said}");
}
