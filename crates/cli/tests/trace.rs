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
        let make = ["trace", "make", "all", "--workload", workload, "--scale", "0.1", "--force"];
        said(folder.path(), &[&make[..], &["--queries", "8", "--widths", "10,500"]].concat());
        said(folder.path(), &["trace", "filter", "all", "left", "--memory", "100p", "--force"]);
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

/// The bug: `trace convert t t` emptied the trace that it was to read.
#[test]
fn a_trace_is_not_written_over_its_input() {
    let folder = folder();
    let path = folder.path().join("t");
    std::fs::copy(data("pg15.compact"), &path).expect("copied");
    std::os::unix::fs::symlink(&path, folder.path().join("link")).expect("a link");
    let before = std::fs::read(&path).expect("a file");
    for arguments in [
        &["trace", "convert", "t", "t"][..],
        &["trace", "convert", "t", "link", "--force"],
        &["trace", "convert", "./t", "t", "--force"],
        &["trace", "filter", "t", "t", "--memory", "1p", "--force"],
    ] {
        let said = refused(folder.path(), arguments, 2);
        assert!(said.contains("it is the input"), "{said}");
        assert_eq!(std::fs::read(&path).expect("a file"), before, "{arguments:?}");
    }
}

/// The bug: any compressed file, and any trace, was replaced without a word.
#[test]
fn nothing_is_overwritten_unasked_but_reports() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for (name, bytes) in [
        ("packed.zst", std::fs::read(data("pg15.csv.zst")).expect("a file")),
        ("trace", std::fs::read(data("pg15.compact")).expect("a file")),
        ("mine.json", b"{ \"mine\": 1 }".to_vec()),
        ("mine.html", b"<!doctype html><title>mine</title>".to_vec()),
    ] {
        std::fs::write(at(name), &bytes).expect("written");
        for arguments in [
            &["trace", "convert", &data("msr.csv"), name][..],
            &["trace", "make", name, "--ids", "9", "--requests", "9"],
            &["trace", "capture", "--out", name, "--", "true"],
            &["trace", "info", &data("msr.csv"), "--json", name],
            &["replay", &data("msr.csv"), "--curve", "--report", name],
        ] {
            let said = refused(folder.path(), arguments, 2);
            assert!(said.contains(name) && said.contains("--force"), "{said}");
            assert_eq!(std::fs::read(at(name)).expect("a file"), bytes, "{arguments:?}");
        }
        said(folder.path(), &["trace", "convert", &data("msr.csv"), name, "--force"]);
        assert_ne!(std::fs::read(at(name)).expect("a file"), bytes);
    }
    // What the command wrote itself is replaced.
    for _ in 0..2 {
        said(folder.path(), &["trace", "info", &data("msr.csv"), "--json", "ours.json"]);
    }
    said(folder.path(), &["--force", "trace", "info", &data("msr.csv"), "--json", "mine.json"]);
}

#[test]
fn a_trace_that_cannot_be_replaced_stays_as_it_was() {
    let folder = folder();
    let bad = "1,R,0,8192,1\n2,R,0,8192,1\nnonsense\n";
    std::fs::write(folder.path().join("bad.csv"), bad).expect("written");
    std::fs::copy(data("pg15.compact"), folder.path().join("out")).expect("copied");
    let before = std::fs::read(folder.path().join("out")).expect("a file");
    let said = refused(folder.path(), &["trace", "convert", "bad.csv", "out", "--force"], 1);
    assert!(said.contains("line 3"), "{said}");
    assert_eq!(std::fs::read(folder.path().join("out")).expect("a file"), before);
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 2);
}

/// The bug: a zstd file that is cut off was called empty.
#[test]
fn of_a_trace_that_is_cut_off_the_rest_is_used_and_the_message_says_how_much() {
    let folder = folder();
    let whole = std::fs::read(data("pg15-oltp-50k.compact.zst")).expect("a file");
    let path = folder.path().join("cut.zst");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    let output = terrace(folder.path(), &["trace", "info", "cut.zst", "--json", "info.json"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("damaged or cut off after") && text.contains("used: the "), "{text}");
    let info = std::fs::read_to_string(folder.path().join("info.json")).expect("a file");
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    let requests = info["requests"].as_u64().expect("a count");
    assert!((8_000..50_000).contains(&requests), "{requests}");
    assert_eq!(info["skipped"], 1);
    let output = terrace(folder.path(), &["replay", "cut.zst", "--policy", "lru"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("used: the "), "{said}");
    std::fs::write(&path, &whole[..30]).expect("written");
    let said = refused(folder.path(), &["trace", "info", "cut.zst"], 1);
    assert!(said.contains("damaged or cut off after 0 "), "{said}");
}

#[test]
fn traces_come_from_standard_input() {
    let folder = folder();
    let input = || std::fs::File::open(data("msr.csv")).expect("a file");
    for arguments in [
        &["trace", "info", "-"][..],
        &["trace", "head", "-"],
        &["trace", "convert", "-", "-"],
        &["replay", "-", "--policy", "lru", "--capacity", "5p"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(arguments).current_dir(folder.path()).stdin(input());
        let output = command.output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {said}");
    }
}

#[test]
fn columns_are_asked_for_and_answered_in_one_line() {
    let folder = folder();
    std::fs::write(folder.path().join("mine.txt"), "1;x;3;R\n2;y;4;W\n").expect("written");
    let named = ["trace", "head", "mine.txt", "--columns", "time=1:us,page=3,op=4"];
    let head = said(folder.path(), &named);
    assert_eq!(head.lines().nth(2), Some("2000,W,32768,8192,0"), "{head}");
    // What `head` prints is read again.
    std::fs::write(folder.path().join("head.csv"), &head).expect("written");
    assert_eq!(said(folder.path(), &["trace", "head", "head.csv"]), head);
    let replay = ["replay", "mine.txt", "--columns", "page=3", "--policy", "lru"];
    said(folder.path(), &[&replay[..], &["--capacity", "1p"]].concat());
    for (columns, status, why) in [
        ("page=0", 2, "columns are 1 to 64"),
        ("page=9", 1, "line 1: field `page` is missing"),
        ("pge=3", 2, "unknown column `pge`"),
        ("time=1", 2, "one of id, page, address and sector"),
    ] {
        let said =
            refused(folder.path(), &["trace", "head", "mine.txt", "--columns", columns], status);
        assert!(said.contains(why), "{said}");
    }
    let said = refused(folder.path(), &["trace", "info", "mine.txt"], 1);
    assert!(said.contains("`1;x;3;R`; nearest is ") && said.contains("--columns"), "{said}");
}

/// The bug: the log of a database counted as pages that a cache may keep, unless a list of files,
/// which nothing wrote, stood beside the trace.
#[test]
fn logs_are_left_out_where_paths_are_known() {
    let folder = folder();
    let call = |at: u32, path: &str, page: u32| {
        format!("7 1.00000{at} pwrite64(3<{path}>, \"\"..., 8192, {}) = 8192\n", page * 8192)
    };
    let text: String = (0..8)
        .map(|at| match at % 4 {
            0 => call(at, "/d/pg_wal/000000010000000000000001", at),
            1 => call(at, "/usr/lib/libc.so.6", at),
            _ => call(at, "/d/base/5/16384", at),
        })
        .collect();
    std::fs::write(folder.path().join("pg.strace"), text).expect("written");
    let json = |trace: &str, more: &[&str]| {
        let replay = ["replay", trace, "--policy", "lru", "--capacity", "2p", "--json", "-"];
        let said = said(folder.path(), &[&replay[..], more].concat());
        serde_json::from_str::<serde_json::Value>(&said).expect("JSON")
    };
    let check = |trace: &str| {
        let found = json(trace, &[]);
        assert_eq!(found["parameters"]["left_out_requests"], 4, "{trace}");
        assert_eq!(found["results"][0]["requests"], 4, "{trace}");
        assert_eq!(json(trace, &["--leave-out", "none"])["results"][0]["requests"], 8);
    };
    check("pg.strace");
    // The list goes with what is made of the trace.
    said(folder.path(), &["trace", "convert", "pg.strace", "pg.trace"]);
    let list = std::fs::read_to_string(folder.path().join("pg.files.csv")).expect("a list");
    assert!(list.contains("0,/d/pg_wal/000000010000000000000001\n"), "{list}");
    check("pg.trace");
    said(folder.path(), &["trace", "convert", "pg.trace", "second.trace.gz"]);
    check("second.trace.gz");
    assert_eq!(json("pg.trace", &["--leave-out", "pg_wal"])["results"][0]["requests"], 6);
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

/// Whether programs can be watched here.
fn can_watch() -> bool {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    works.is_ok_and(|output| output.status.success())
}

#[test]
fn capture_records_what_a_program_does_to_its_files() {
    if !can_watch() {
        return;
    }
    let folder = folder();
    let copy = "dd if=/dev/zero of=data/file bs=8192 count=5 2>/dev/null && \
                dd if=data/file of=/dev/null bs=8192 skip=2 count=2 2>/dev/null && \
                echo a > data/file-wal";
    std::fs::create_dir(folder.path().join("data")).expect("a folder");
    let capture = ["trace", "capture", "--under", "data", "--", "sh", "-c"];
    said(folder.path(), &[&capture[..], &[copy]].concat());
    let requests = |trace: &str| -> Vec<String> {
        let head = said(folder.path(), &["trace", "head", trace]);
        let lines = head.lines().skip(1);
        lines.map(|line| line.split_once(',').expect("a time").1.to_string()).collect()
    };
    let written = (0..5).map(|page| format!("W,{},8192,0", page * 8192));
    let read = (2..4).map(|page| format!("R,{},8192,0", page * 8192));
    let expected: Vec<String> = written.chain(read).collect();
    assert_eq!(requests("capture.trace"), expected, "without the log");
    let list = std::fs::read_to_string(folder.path().join("capture.files.csv")).expect("a list");
    let [header, file, log] = list.lines().collect::<Vec<_>>()[..] else { panic!("{list}") };
    assert_eq!(header, "file_id,file,role,relation,reads,read_bytes,writes,written_bytes");
    assert!(file.ends_with("/data/file,data,,2,16384,5,40960"), "{file}");
    assert!(log.ends_with("/data/file-wal,log,,0,0,1,2"), "{log}");
    // What is there is not replaced unasked.
    let said_so = refused(folder.path(), &[&capture[..], &["true"]].concat(), 2);
    assert!(said_so.contains("--force"), "{said_so}");
    let all = ["trace", "capture", "--under", "data", "--all-files", "--force", "--", "sh", "-c"];
    said(folder.path(), &[&all[..], &[copy]].concat());
    assert_eq!(requests("capture.trace").len(), expected.len() + 1);
    let said = refused_with_more(folder.path(), &["trace", "capture", "--force", "--", "false"]);
    assert!(said.contains("exit status: 1"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 3);
}

/// A process that writes pages of `data`, one each 20 ms, until it is dropped.
struct Writer(std::process::Child);

impl Writer {
    fn start(folder: &Path) -> Writer {
        let script = "i=0; exec 3<>data; while :; do \
                      dd if=/dev/zero of=data bs=8192 count=1 seek=$i conv=notrunc 2>/dev/null; \
                      echo >&3; i=$((i+1)); sleep 0.02; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder).stdin(Stdio::null());
        std::fs::write(folder.join("data"), "").expect("a file");
        Writer(command.spawn().expect("a shell"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_runs_is_captured_and_goes_on() {
    if !can_watch() {
        return;
    }
    let folder = folder();
    let mut writer = Writer::start(folder.path());
    let pid = writer.0.id().to_string();
    for with in ["strace", "tracepoints"] {
        let capture = ["trace", "capture", "--pid", &pid, "--for", "3s", "--with", with];
        let output = terrace(folder.path(), &[&capture[..], &["--force"]].concat());
        let said_so = String::from_utf8(output.stderr).expect("text");
        if with == "tracepoints" && said_so.contains("no tracepoints") {
            continue;
        }
        assert!(output.status.success(), "{with}: {said_so}");
        assert!(said_so.contains("MiB written"), "{said_so}");
        let list = std::fs::read_to_string(folder.path().join("capture.files.csv"));
        let list = list.expect("a list");
        assert!(list.contains("/data,data,"), "{with}: {list}");
        let found = info(folder.path(), "capture.trace", &[]);
        assert!(found["writes"].as_u64() > Some(3), "{with}: {found}");
        assert!(writer.0.try_wait().expect("asked").is_none(), "{with}: it goes on");
    }
    drop(writer);
    let said = refused(folder.path(), &["trace", "capture", "--pid", "999999999", "--out", "o"], 2);
    assert!(said.contains("no process"), "{said}");
    refused(folder.path(), &["trace", "capture"], 2);
}

/// Ctrl-C ends a capture, which keeps what it has.
#[test]
fn an_interrupted_capture_keeps_what_it_has() {
    if !can_watch() {
        return;
    }
    let folder = folder();
    let writer = Writer::start(folder.path());
    let pid = writer.0.id().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(["trace", "capture", "--pid", &pid, "--with", "strace"]);
    command.current_dir(folder.path()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{said}");
    assert!(info(folder.path(), "capture.trace", &[])["writes"].as_u64() > Some(3));
}

/// Runs the command, which must fail, and returns all it says.
fn refused_with_more(folder: &Path, arguments: &[&str]) -> String {
    let output = terrace(folder, arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}
