//! `terrace trace` as its users meet it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder).env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).output().expect("the command starts")
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = terrace(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs the command, which must refuse with `status`, and returns its one line.
fn refused(folder: &Path, arguments: &[&str], status: i32) -> String {
    let output = terrace(folder, arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    said
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

fn data(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../trace/tests/data", name].iter().collect();
    path.to_string_lossy().into_owned()
}

fn info(folder: &Path, trace: &str, more: &[&str]) -> serde_json::Value {
    let said = said(folder, &[&["trace", "info", trace, "--json", "info.json"], more].concat());
    assert!(said.contains("requests"), "{said}");
    let text = std::fs::read_to_string(folder.join("info.json")).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn info_tells_what_is_in_the_trace_of_postgresql() {
    let folder = folder();
    let found = info(folder.path(), &data("pg15-oltp-50k.compact.zst"), &[]);
    assert_eq!(found["format"], "compact");
    assert_eq!(found["packing"], "zstd");
    assert_eq!(found["requests"], 50_000);
    assert_eq!(found["reads"].as_u64().unwrap() + found["writes"].as_u64().unwrap(), 50_000);
    assert_eq!(found["page_bytes"], 8192);
    assert_eq!(found["skipped"], 0);
    let whole = info(folder.path(), &data("pg15-oltp-50k.compact.zst"), &["--page", "request"]);
    assert_eq!(whole["references"], 50_000);
    assert!(whole["pages"].as_u64() < found["references"].as_u64());
}

#[test]
fn what_is_converted_is_the_same_trace() {
    let folder = folder();
    let before = said(folder.path(), &["trace", "head", &data("msr.csv")]);
    assert!(
        before.starts_with("time_ns,op,address,length,file\n12816637200306162900,R,383496192,")
    );
    for out in ["out.trace", "out.trace.gz"] {
        said(folder.path(), &["trace", "convert", &data("msr.csv"), out]);
        assert_eq!(said(folder.path(), &["trace", "head", out]), before);
    }
    said(folder.path(), &["trace", "convert", &data("msr.csv"), "two", "--requests", "2"]);
    assert_eq!(said(folder.path(), &["trace", "head", "two"]).lines().count(), 3);
    assert_eq!(said(folder.path(), &["trace", "head", "out.trace", "-n", "1"]).lines().count(), 2);
}

#[test]
fn a_trace_is_made_by_its_seed() {
    let folder = folder();
    let make = |out: &str, seed: &str| {
        let options = ["--ids", "500", "--requests", "30000", "--writes", "30%", "--seed", seed];
        said(folder.path(), &[&["trace", "make", out], &options[..]].concat());
        std::fs::read(folder.path().join(out)).expect("a file")
    };
    let first = make("a", "1");
    assert_eq!(first, make("b", "1"));
    assert_ne!(first, make("c", "2"));
    let found = info(folder.path(), "a", &[]);
    assert_eq!(found["requests"], 30_000);
    assert_eq!(found["pages"], 500);
    // The most popular of 500 has 1 / H(500) = 14.7%.
    let top = found["references_to_top_page"].as_f64().unwrap() / 30_000.0;
    assert!((0.137..0.157).contains(&top), "{top}");
    let looped = ["trace", "make", "loop", "--loop", "--ids", "7", "--requests", "20"];
    said(folder.path(), &looped);
    assert_eq!(info(folder.path(), "loop", &[])["references_to_top_page"], 3);
}

#[test]
fn queries_are_made_and_filtered_by_a_memory() {
    let folder = folder();
    for workload in ["ods-tpch", "zipf-tpch"] {
        let make = ["trace", "make", "all", "--workload", workload, "--scale", "0.1"];
        said(folder.path(), &[&make[..], &["--queries", "8", "--widths", "10,500"]].concat());
        said(folder.path(), &["trace", "filter", "all", "left", "--memory", "100p"]);
        let [all, left] = ["all", "left"].map(|name| info(folder.path(), name, &[]));
        assert_eq!((&all["writes"], &left["writes"]), (&0.into(), &0.into()), "{workload}");
        let requests = [&all, &left].map(|found| found["requests"].as_u64().expect("a number"));
        assert!(requests[1] < requests[0], "{workload}: {requests:?}");
        assert_eq!(left["pages"], all["pages"], "{workload}: each page is missed once");
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let folder = folder();
    for options in [
        &["--ids", "0"][..],
        &["--zipf", "nan"],
        &["--zipf", "-1"],
        &["--uniform", "--loop"],
        &["--scan", "100%"],
        &["--scan", "1%", "--scan-pages", "0"],
        &["--working-set", "0"],
        &["--page", "1000"],
        &["--writes", "101%"],
        &["--workload", "ods-tpch", "--widths", "7"],
        &["--workload", "ods-tpch", "--uniform"],
        &["--workload", "zipf-tpch", "--scale", "0"],
        &["--scale", "1"],
    ] {
        refused(folder.path(), &[&["trace", "make", "out"], options].concat(), 2);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    let said = refused(folder.path(), &["trace", "info", "x", "--format", "lru"], 2);
    assert!(said.contains("`lru`") && said.contains(&terrace_trace::known_names()), "{said}");
}

#[test]
fn bad_input_is_named_and_can_be_skipped() {
    let folder = folder();
    let path = folder.path().join("bad.csv");
    let text = "ts_us,op,lba_bytes,size,file\n1,R,0,8192,1\n2,R,oops,8192,1\n3,W,0,8192,1\n";
    std::fs::write(&path, text).expect("a file");
    let said = refused(folder.path(), &["trace", "info", "bad.csv"], 1);
    assert!(said.contains("bad.csv, line 3:") && said.contains("`lba_bytes`"), "{said}");
    assert!(said.contains("--skip-bad"), "{said}");
    let found = info(folder.path(), "bad.csv", &["--skip-bad"]);
    assert_eq!((&found["requests"], &found["skipped"]), (&2.into(), &1.into()));
    let output = terrace(folder.path(), &["trace", "head", "bad.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).expect("text").lines().count(), 2);
    std::fs::write(&path, "nothing of the kind\n").expect("a file");
    let said = refused(folder.path(), &["trace", "info", "bad.csv"], 1);
    assert!(said.contains(&terrace_trace::known_names()), "{said}");
    std::fs::write(&path, "").expect("a file");
    let said = refused(folder.path(), &["trace", "info", "bad.csv"], 1);
    assert!(said.contains("bad.csv"), "{said}");
    assert_eq!(info(folder.path(), "bad.csv", &["--format", "spc"])["requests"], 0);
    refused(folder.path(), &["trace", "info", "missing"], 1);
}

#[test]
fn capture_without_strace_says_what_to_do() {
    let folder = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(["trace", "capture", "--", "true"]).current_dir(folder.path()).env("PATH", "");
    let output = command.output().expect("the command starts");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("strace"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn capture_records_what_a_program_does_to_its_files() {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        // Nothing to test where programs cannot be watched.
        return;
    }
    let folder = folder();
    let copy = "dd if=/dev/zero of=data/file bs=8192 count=5 2>/dev/null && \
                dd if=data/file of=/dev/null bs=8192 skip=2 count=2 2>/dev/null";
    std::fs::create_dir(folder.path().join("data")).expect("a folder");
    let capture = ["trace", "capture", "--under", "data", "--", "sh", "-c"];
    said(folder.path(), &[&capture[..], &[copy]].concat());
    let head = said(folder.path(), &["trace", "head", "capture.trace"]);
    let requests: Vec<&str> =
        head.lines().skip(1).map(|line| line.split_once(',').expect("a time").1).collect();
    let written = (0..5).map(|page| format!("W,{},8192,0", page * 8192));
    let read = (2..4).map(|page| format!("R,{},8192,0", page * 8192));
    assert_eq!(requests, written.chain(read).collect::<Vec<_>>());
    let said = refused_with_more(folder.path(), &["trace", "capture", "--", "false"]);
    assert!(said.contains("exit status: 1"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 2);
}

/// Runs the command, which must fail, and returns all it says.
fn refused_with_more(folder: &Path, arguments: &[&str]) -> String {
    let output = terrace(folder, arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}
