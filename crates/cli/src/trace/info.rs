//! `terrace trace info`: what is in a trace.

use super::{failed, open, packing_name, paging_name, skipped_text};
use crate::command::TraceInfo;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::results::Host;
use crate::table::{percent, thousands};
use serde_json::{Value, json};
use terrace_trace::{Addressing, Clock, Findings, Paging, Reader, Summary};

/// Runs it.
///
/// # Errors
///
/// The trace cannot be read; a file that cannot be written.
pub fn info(options: &TraceInfo) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let mut reader = open(&options.file)?;
    let paging = options.page.unwrap_or(reader.paging());
    let mut summary = Summary::new(paging);
    for request in reader.by_ref() {
        summary.add(request.map_err(failed)?);
    }
    let found = summary.findings();
    sinks.show(&text(&reader, paging, &found));
    let mut object = object(&reader, paging, &found);
    object["command"] = json!("trace info");
    object["version"] = json!(env!("CARGO_PKG_VERSION"));
    object["host"] = json!(Host::of(&watch, 0.0));
    sinks.write(&object)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn text(reader: &Reader, paging: Paging, found: &Findings) -> String {
    let requests = found.reads + found.writes;
    let count = |number: u64| thousands(number as f64);
    let mib = |bytes: u64| format!("{} MiB", thousands(bytes as f64 / 1_048_576.0));
    let row = reader.format();
    let mut text = format!(
        "{}: {}, {}\n",
        reader.path().display(),
        row.name(),
        packing_name(reader.packing())
    );
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12}{value}\n"));
    line("requests", count(requests));
    let part = |part| percent(share(part, requests));
    let (reads, writes) = (found.reads, found.writes);
    line("reads", format!("{}, {}, {}", count(reads), part(reads), mib(found.read_bytes)));
    line("writes", format!("{}, {}, {}", count(writes), part(writes), mib(found.written_bytes)));
    if found.ahead > 0 {
        line("announced", format!("{} reads of scans, ahead of need", count(found.ahead)));
    }
    line("files", count(found.files));
    let span = |seconds: f64| format!("{seconds} s");
    line("span", span_s(reader, found).map_or("unknown: no clock".into(), span));
    line("sequential", format!("{} of requests", part(found.sequential)));
    let footprint = match paging {
        Paging::Split(bytes) => format!(", {}", mib(found.pages * bytes.get())),
        Paging::Whole => String::new(),
    };
    line("pages", format!("{} of {}{footprint}", count(found.pages), paging_name(paging)));
    line("references", format!("{}, {} writes", count(found.references), count(found.page_writes)));
    let once = percent(share(found.pages_once, found.pages));
    line("skew", format!("{} most to one page; {once} of pages once", count(found.references_max)));
    for skew in &found.skew {
        let (pages, references) = (percent(skew.pages), percent(skew.references));
        line("", format!("{references} of references to {pages} of pages"));
    }
    if found.times_back > 0 {
        line(
            "times",
            format!("{} go back; kept in the order of the file", count(found.times_back)),
        );
    }
    if found.without_bytes > 0 {
        line("empty", format!("{} of zero bytes touch no page", count(found.without_bytes)));
    }
    if reader.tally().other_events > 0 {
        line(
            "besides",
            format!("{} lines or records about else", count(reader.tally().other_events)),
        );
    }
    text + &skipped_text(reader)
}

/// Nanoseconds as seconds, if the trace has a clock.
fn clocked(reader: &Reader, ns: u64) -> Option<f64> {
    (reader.clock() == Clock::Kept).then_some(ns as f64 / 1e9)
}

fn span_s(reader: &Reader, found: &Findings) -> Option<f64> {
    clocked(reader, found.last_ns - found.first_ns)
}

fn object(reader: &Reader, paging: Paging, found: &Findings) -> Value {
    let requests = found.reads + found.writes;
    let skew: Vec<Value> = found
        .skew
        .iter()
        .map(|skew| {
            json!({
                "pages_share": skew.pages,
                "pages": skew.pages_count,
                "references_share": rounded(skew.references),
            })
        })
        .collect();
    json!({
        "command": Value::Null,
        "version": Value::Null,
        "trace": reader.path(),
        "format": reader.format().name(),
        "packing": reader.packing().name(),
        "addressing": match reader.addressing() {
            Addressing::Bytes => "bytes",
            Addressing::Objects => "objects",
        },
        "page_bytes": match paging {
            Paging::Split(bytes) => json!(bytes.get()),
            Paging::Whole => Value::Null,
        },
        "requests": requests,
        "reads": found.reads,
        "writes": found.writes,
        "announced": found.ahead,
        "read_bytes": found.read_bytes,
        "written_bytes": found.written_bytes,
        "files": found.files,
        "first_s": clocked(reader, found.first_ns),
        "span_s": span_s(reader, found),
        "sequential_share": rounded(share(found.sequential, requests)),
        "pages": found.pages,
        "references": found.references,
        "page_writes": found.page_writes,
        "references_to_top_page": found.references_max,
        "pages_once": found.pages_once,
        "skew": skew,
        "times_back": found.times_back,
        "zero_length": found.without_bytes,
        "other_events": reader.tally().other_events,
        "skipped": reader.tally().skipped,
    })
}
