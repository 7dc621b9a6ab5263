//! `terrace replay --stream`: the trace is read twice, and none of its references is kept.

use super::CAPACITY_DEFAULT;
use super::source::{Opened, failed, paging_name};
use crate::command::{CacheSize, Replay};
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::results::Host;
use crate::table::{Table, thousands};
use serde_json::{Value, json};
use std::path::Path;
use terrace_policy::replacement::ReplacementRow;
use terrace_replay::{Following, Numbered, Policy};
use terrace_trace::Paging;

/// A policy of some capacity.
struct Tried {
    row: ReplacementRow,
    capacity: u32,
    following: Following,
}

/// Runs it.
///
/// # Errors
///
/// A trace that cannot be read, or not twice; a policy that needs the future; sizes that make no
/// sense; a file that cannot be written.
pub fn stream(
    options: &Replay,
    path: &Path,
    sinks: &Sinks,
    watch: &Stopwatch,
) -> Result<(), Failure> {
    let rows = rows(options)?;
    if path.as_os_str() == "-" {
        return Err(Failure::usage("--stream reads the trace twice: give a file"));
    }
    let mut opened = Opened::new(path, &options.source)?;
    let paging = opened.paging;
    let numbered = Numbered::read(opened.requests(), paging).map_err(failed)?;
    if numbered.references() == 0 {
        return Err(Failure::Failed(format!("{}: no requests for pages", path.display())));
    }
    let read_s = watch.seconds();
    let mut tried = tried(options, &rows, paging, &numbered)?;
    let mut again = Opened::new(path, &options.source)?;
    let feed = |pages: &[u32]| tried.iter_mut().for_each(|one| one.following.feed(pages));
    numbered.replay(again.requests(), paging, feed).map_err(failed)?;
    let replay_s = watch.seconds() - read_s;
    let out = Outcome { path, opened: &opened, paging, numbered: &numbered, tried: &tried };
    sinks.show(&out.text());
    let mut object = out.json(options.seed);
    object["host"] = json!(Host::of(watch, 0.0));
    object["host"]["bytes"] = json!(numbered.bytes());
    object["host"]["bytes_per_page"] = json!(rounded(out.each(numbered.bytes())));
    object["host"]["read_s"] = json!(rounded(read_s));
    object["host"]["replay_s"] = json!(rounded(replay_s));
    sinks.write(&object)
}

/// What came out.
struct Outcome<'a> {
    path: &'a Path,
    opened: &'a Opened,
    paging: Paging,
    numbered: &'a Numbered,
    tried: &'a [Tried],
}

impl Outcome<'_> {
    fn each(&self, bytes: usize) -> f64 {
        bytes as f64 / f64::from(self.numbered.pages_count())
    }

    fn miss_ratio(&self, one: &Tried) -> f64 {
        one.following.misses() as f64 / self.numbered.references() as f64
    }

    fn text(&self) -> String {
        let numbered = self.numbered;
        let mut table = Table::new(["policy", "capacity", "misses", "miss ratio", "bytes/page"]);
        for one in self.tried {
            table.row([
                one.row.name.into(),
                thousands(f64::from(one.capacity)),
                thousands(one.following.misses() as f64),
                format!("{:.4}", self.miss_ratio(one)),
                format!("{:.1}", self.each(one.following.bytes())),
            ]);
        }
        format!(
            "{} ({}), read twice: {} references ({} writes) to {} pages, {:.1} bytes for each \
             beside the policies\n\n{}",
            self.path.display(),
            self.opened.reader.format().name(),
            thousands(numbered.references() as f64),
            thousands(numbered.writes() as f64),
            thousands(f64::from(numbered.pages_count())),
            self.each(numbered.bytes()),
            table.text(),
        )
    }

    fn json(&self, seed: u64) -> Value {
        let (numbered, opened) = (self.numbered, self.opened);
        let results = self.tried.iter().map(|one| {
            json!({
                "policy": one.row.name,
                "capacity_pages": one.capacity,
                "requests": numbered.references(),
                "misses": one.following.misses(),
                "miss_ratio": rounded(self.miss_ratio(one)),
                "host": { "bytes_per_page": rounded(self.each(one.following.bytes())) },
            })
        });
        json!({
            "command": "replay",
            "version": env!("CARGO_PKG_VERSION"),
            "seed": seed,
            "parameters": {
                "trace": self.path.display().to_string(),
                "format": opened.reader.format().name(),
                "page": paging_name(self.paging),
                "left_out_files": opened.left_out,
                "left_out_requests": opened.without,
                "skipped": opened.reader.tally().skipped,
                "stream": true,
            },
            "trace": {
                "references": numbered.references(),
                "writes": numbered.writes(),
                "pages": numbered.pages_count(),
                "span_s": numbered.span_s(),
            },
            "host": {},
            "results": results.collect::<Vec<_>>(),
        })
    }
}

/// The policies asked for, which know the past alone.
fn rows(options: &Replay) -> Result<Vec<ReplacementRow>, Failure> {
    let asked = super::policies(options);
    let is_asked = options.policy.is_some();
    let mut rows = Vec::new();
    for policy in asked {
        match policy {
            Policy::Online(row) => rows.push(row),
            other if is_asked => {
                let name = other.name();
                return Err(Failure::usage(format!(
                    "--stream: {name} wants more of a reference than its page; replay it without"
                )));
            }
            _ => {}
        }
    }
    Ok(rows)
}

fn tried(
    options: &Replay,
    rows: &[ReplacementRow],
    paging: Paging,
    numbered: &Numbered,
) -> Result<Vec<Tried>, Failure> {
    let default = [CAPACITY_DEFAULT];
    let asked: &[CacheSize] =
        if options.capacity.is_empty() { &default } else { &options.capacity };
    let count = numbered.pages_count();
    let mut tried = Vec::new();
    for size in asked {
        let capacity = size.pages(paging, count);
        let capacity = capacity.map_err(|wrong| Failure::usage(format!("--capacity {wrong}")))?;
        tried.extend(rows.iter().map(|&row| {
            let following = Following::new(row, capacity, count, options.seed);
            Tried { row, capacity, following }
        }));
    }
    Ok(tried)
}
