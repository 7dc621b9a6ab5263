//! A trace as it is asked for on the command line: which file, in which pages, without what.

use crate::command::TraceSource;
use crate::failure::Failure;
use crate::output::Stopwatch;
use crate::table::thousands;
use crate::trace::{self, list, list::FileList};
use serde_json::{Value, json};
use std::path::Path;
use terrace_replay::References;
use terrace_trace::{
    Clock, FileRole, PageBytes, Paging, Popularity, ReadOptions, Reader, Request, Synthetic,
    SyntheticOptions, TraceError,
};

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
        let Opened { reader, left_out, without, times_back, .. } = opened;
        if references.pages().is_empty() {
            return Err(Failure::Failed(format!("{}: no requests for pages", path.display())));
        }
        eprint!("{}", trace::skipped_text(&reader));
        let skipped = reader.tally().skipped;
        let mut about = about(path, reader.format().name(), &references, paging);
        if without > 0 {
            about += &format!(", without {} requests left out", thousands(without as f64));
        }
        if skipped > 0 {
            about +=
                &format!(", {} bad lines, records or blocks skipped", thousands(skipped as f64));
        }
        if times_back > 0 {
            about += &format!(", {} times run backwards", thousands(times_back as f64));
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
    /// Numbers of the files whose requests are left out, in ascending order.
    pub left_out: Vec<u32>,
    /// Requests that were.
    pub without: u64,
    /// Requests whose time is before that of the request before.
    pub times_back: u64,
    latest_ns: u64,
    /// Of a trace with paths: those of these numbers were looked at. None if the files to leave out
    /// are known by number.
    looked_at: Option<u32>,
}

impl Opened {
    /// The trace at `path`, before its first request.
    ///
    /// # Errors
    ///
    /// What the reader met; a name of a file that no list has.
    pub fn new(path: &Path, options: &TraceSource) -> Result<Opened, Failure> {
        let bad_input = trace::bad_input(options.skip_bad);
        let columns = options.columns.clone().map(|columns| match options.page {
            Some(Paging::Split(page_bytes)) => columns.with_pages_of(page_bytes),
            _ => columns,
        });
        let read = ReadOptions { format: options.format, bad_input, columns };
        let reader = trace::open_as(path, &read).map_err(trace::failed)?;
        let list = FileList::beside(path)?;
        let left_out = left_out(path, &list, &options.leave_out)?;
        let paging = options.page.unwrap_or(reader.paging());
        let is_by_path = options.leave_out.is_empty() && list.is_empty() && reader.has_paths();
        Ok(Opened {
            reader,
            paging,
            left_out,
            without: 0,
            times_back: 0,
            latest_ns: 0,
            looked_at: is_by_path.then_some(0),
        })
    }

    /// The requests that count.
    pub fn requests(&mut self) -> impl Iterator<Item = Result<Request, TraceError>> + '_ {
        std::iter::from_fn(|| {
            loop {
                match self.reader.next()? {
                    Ok(request) if self.is_left_out(request.file) => self.without += 1,
                    Ok(request) => {
                        self.times_back += u64::from(request.time_ns < self.latest_ns);
                        self.latest_ns = request.time_ns;
                        return Some(Ok(request));
                    }
                    error => return Some(error),
                }
            }
        })
    }

    fn is_left_out(&mut self, file: u32) -> bool {
        while let Some(number) = self.looked_at.filter(|number| *number <= file) {
            let path = self.reader.file_path(number);
            if path.is_some_and(|path| FileRole::of(path) != FileRole::Data) {
                self.left_out.push(number);
            }
            self.looked_at = Some(number + 1);
        }
        self.left_out.binary_search(&file).is_ok()
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

/// Numbers of the files whose requests are left out, in ascending order.
fn left_out(trace: &Path, list: &FileList, asked: &[String]) -> Result<Vec<u32>, Failure> {
    if asked.is_empty() {
        return Ok(list.beside_data());
    }
    let mut numbers = Vec::new();
    for name in asked.iter().filter(|name| *name != NOTHING) {
        if let Ok(number) = name.parse() {
            numbers.push(number);
            continue;
        }
        let found = list.numbers_of(name);
        if found.is_empty() {
            let list = list::path_of(trace);
            let list = list.display();
            return Err(Failure::usage(format!("--leave-out: {list} has no file `{name}`")));
        }
        numbers.extend(found);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
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
        let left_out = |asked: &[&str]| {
            let list = FileList::beside(&trace).expect("read");
            let asked: Vec<String> = asked.iter().map(|name| name.to_string()).collect();
            super::left_out(&trace, &list, &asked)
        };
        assert_eq!(left_out(&[]).expect("no list"), Vec::<u32>::new());
        let list = "file_id,file,base_bytes,extent_bytes\n0,base/1,0,8192\n7,pg_wal,8192,8192\n";
        std::fs::write(folder.path().join("a.files.csv"), list).expect("a list");
        assert_eq!(left_out(&[]).expect("a list"), [7]);
        assert_eq!(left_out(&["none"]).expect("nothing"), Vec::<u32>::new());
        assert_eq!(left_out(&["3", "base/1"]).expect("names and numbers"), [0, 3]);
        assert!(left_out(&["base/2"]).is_err());
    }
}
