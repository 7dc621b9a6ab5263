//! A trace as it is asked for on the command line: which file, in which pages, without what.

use crate::command::TraceSource;
use crate::failure::Failure;
use crate::output::Stopwatch;
use crate::table::thousands;
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use terrace_replay::References;
use terrace_trace::{
    BadInput, Clock, PageBytes, Paging, Popularity, ReadOptions, Reader, Request, Synthetic,
    SyntheticOptions, TraceError,
};

/// What is left out if a trace's list of files has it.
const LOG_FILE: &str = "pg_wal";
/// What leaves nothing out.
const NOTHING: &str = "none";

/// A trace that was read.
pub struct Source {
    /// Its references.
    pub references: References,
    /// What its pages are.
    pub paging: Paging,
    /// What its times are.
    pub clock: Clock,
    /// Time to read it.
    pub read_s: f64,
    /// What it is and what was done to it, for people.
    pub about: String,
    /// The same as parameters.
    pub parameters: Value,
}

impl Source {
    /// Reads the trace at `path`.
    ///
    /// # Errors
    ///
    /// What the reader met; a name of a file that no list has; no requests at all.
    pub fn read(path: &Path, options: &TraceSource) -> Result<Source, Failure> {
        let watch = Stopwatch::start();
        let mut opened = Opened::new(path, options)?;
        let paging = opened.paging;
        let references = References::read(opened.requests(), paging).map_err(failed)?;
        let Opened { reader, left_out, without, .. } = opened;
        if references.pages().is_empty() {
            return Err(Failure::Failed(format!("{}: no requests for pages", path.display())));
        }
        let skipped = reader.tally().skipped;
        let mut about = about(path, reader.format().name(), &references, paging);
        if without > 0 {
            about += &format!(", without {} requests left out", thousands(without as f64));
        }
        if skipped > 0 {
            about +=
                &format!(", {} bad lines, records or blocks skipped", thousands(skipped as f64));
        }
        let parameters = json!({
            "trace": path.display().to_string(),
            "format": reader.format().name(),
            "page": paging_name(paging),
            "left_out_files": left_out,
            "left_out_requests": without,
            "skipped": skipped,
        });
        let (clock, read_s) = (reader.clock(), watch.seconds());
        Ok(Source { references, paging, clock, read_s, about, parameters })
    }

    /// How much there is of it.
    pub fn scope(&self) -> Scope {
        let Source { references, paging, .. } = self;
        Scope { paging: *paging, pages: references.pages_count(), span_s: self.span_s() }
    }

    /// Seconds from the earliest request to the latest, if the trace has a clock.
    pub fn span_s(&self) -> Option<f64> {
        span_s(self.clock, self.references.span_s())
    }
}

/// How much there is of a trace.
#[derive(Clone, Copy)]
pub struct Scope {
    /// What its pages are.
    pub paging: Paging,
    /// Distinct pages.
    pub pages: u32,
    /// Seconds from the earliest request to the latest, if the trace has a clock.
    pub span_s: Option<f64>,
}

/// A span of `seconds`, if `clock` counts seconds, and some have passed.
pub fn span_s(clock: Clock, seconds: f64) -> Option<f64> {
    (clock == Clock::Kept && seconds > 0.0).then_some(seconds)
}

/// A trace that is open.
pub struct Opened {
    /// Its reader.
    pub reader: Reader,
    /// What its pages are.
    pub paging: Paging,
    /// Numbers of the files whose requests are left out.
    pub left_out: Vec<u32>,
    /// Requests that were.
    pub without: u64,
}

impl Opened {
    /// The trace at `path`, before its first request.
    ///
    /// # Errors
    ///
    /// What the reader met; a name of a file that no list has.
    pub fn new(path: &Path, options: &TraceSource) -> Result<Opened, Failure> {
        let bad_input = if options.skip_bad { BadInput::Skip } else { BadInput::Refuse };
        let read = ReadOptions { format: options.format, bad_input };
        let reader = Reader::open(path, &read).map_err(failed)?;
        let left_out = left_out(path, &options.leave_out)?;
        let paging = options.page.unwrap_or(reader.paging());
        Ok(Opened { reader, paging, left_out, without: 0 })
    }

    /// The requests that count.
    pub fn requests(&mut self) -> impl Iterator<Item = Result<Request, TraceError>> + '_ {
        let (left_out, without) = (&self.left_out, &mut self.without);
        self.reader.by_ref().filter(move |request| match request {
            Ok(request) if left_out.contains(&request.file) => {
                *without += 1;
                false
            }
            _ => true,
        })
    }
}

/// The trace could not be read.
pub fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed("cannot read the trace", error)
}

/// The size of pages as it is written on the command line.
pub fn paging_name(paging: Paging) -> Value {
    match paging {
        Paging::Split(bytes) => json!(bytes.get()),
        Paging::Whole => json!("request"),
    }
}

fn about(path: &Path, format: &str, references: &References, paging: Paging) -> String {
    let pages = match paging {
        Paging::Split(bytes) => format!("pages of {} bytes", thousands(bytes.get() as f64)),
        Paging::Whole => "objects".to_string(),
    };
    format!(
        "{} ({format}): {} references ({} writes) to {} {pages}",
        path.display(),
        thousands(references.pages().len() as f64),
        thousands(references.writes_count() as f64),
        thousands(f64::from(references.pages_count())),
    )
}

/// Numbers of the files whose requests are left out.
fn left_out(trace: &Path, asked: &[String]) -> Result<Vec<u32>, Failure> {
    let list = list_path(trace);
    if asked.is_empty() {
        return Ok(numbers_of(&list, LOG_FILE)?.unwrap_or_default());
    }
    let mut numbers = Vec::new();
    for name in asked.iter().filter(|name| *name != NOTHING) {
        if let Ok(number) = name.parse() {
            numbers.push(number);
            continue;
        }
        let found = numbers_of(&list, name)?.unwrap_or_default();
        if found.is_empty() {
            let list = list.display();
            return Err(Failure::usage(format!("--leave-out: {list} has no file `{name}`")));
        }
        numbers.extend(found);
    }
    Ok(numbers)
}

/// The list of files beside a trace: `a.files.csv` for `a.csv.zst`.
fn list_path(trace: &Path) -> PathBuf {
    let name = trace.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    trace.with_file_name(format!("{stem}.files.csv"))
}

/// Numbers of the files called `name`, none if there is no list: lines of number, name and more.
fn numbers_of(list: &Path, name: &str) -> Result<Option<Vec<u32>>, Failure> {
    let text = match fs::read_to_string(list) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::failed(format!("cannot read {}", list.display()), error));
        }
    };
    let numbers = text.lines().filter_map(|line| {
        let mut fields = line.split(',');
        let number = fields.next()?.parse().ok()?;
        (fields.next()? == name).then_some(number)
    });
    Ok(Some(numbers.collect()))
}

/// Requests for ids by Zipf's law, made in memory.
pub fn made(requests: u32, ids: u32, alpha: f64, seed: u64) -> Source {
    let options = SyntheticOptions {
        popularity: Popularity::Zipf(alpha),
        ids: u64::from(ids),
        requests: u64::from(requests),
        seed,
        writes: 0.0,
        working_set: None,
        scans: None,
        page_bytes: PageBytes::DEFAULT,
        interval_ns: 0,
    };
    let made = Synthetic::new(options).expect("the options were checked when they were read");
    let numbers: Vec<u64> =
        made.map(|request| request.address / options.page_bytes.get()).collect();
    // Making requests is not reading them.
    let watch = Stopwatch::start();
    let references = References::of_reads(numbers);
    let read_s = watch.seconds();
    let about = format!(
        "Zipf({alpha}): {} references to {} of {} ids",
        thousands(f64::from(requests)),
        thousands(f64::from(references.pages_count())),
        thousands(f64::from(ids)),
    );
    let parameters = json!({
        "trace": format!("zipf({alpha})"),
        "requests": requests,
        "ids": ids,
    });
    let paging = Paging::Split(PageBytes::DEFAULT);
    Source { references, paging, clock: Clock::Absent, read_s, about, parameters }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_left_out_where_a_list_names_it() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let trace = folder.path().join("a.csv.zst");
        assert_eq!(left_out(&trace, &[]).expect("no list"), Vec::<u32>::new());
        let list = "file_id,file,base_bytes,extent_bytes\n0,base/1,0,8192\n7,pg_wal,8192,8192\n";
        fs::write(folder.path().join("a.files.csv"), list).expect("a list");
        assert_eq!(left_out(&trace, &[]).expect("a list"), [7]);
        assert_eq!(left_out(&trace, &["none".into()]).expect("nothing"), Vec::<u32>::new());
        let both = ["base/1".to_string(), "3".to_string()];
        assert_eq!(left_out(&trace, &both).expect("names and numbers"), [0, 3]);
        assert!(left_out(&trace, &["base/2".into()]).is_err());
    }
}
