//! `terrace trace`: looks into traces, converts them, makes them up, records them; and what
//! benches record.

mod capture;
mod filter;
mod info;
pub mod list;
mod make;
mod out;
mod record;

pub use capture::capture;
pub use filter::run as filter;
pub use info::info;
pub use make::{make, wrong};
pub use record::Recorder;

use crate::command::{TraceConvert, TraceFile, TraceHead};
use crate::failure::Failure;
use crate::output::check_apart;
use crate::standard_output;
use crate::table::thousands;
use out::Out;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use terrace_trace::{
    BadInput, CompactHeader, Kind, Packing, Paging, ReadOptions, Reader, Request, TraceError,
};

/// Opens a trace.
///
/// # Errors
///
/// It cannot be opened, or its format is unknown.
pub fn open(file: &TraceFile) -> Result<Reader, Failure> {
    let bad_input = bad_input(file.skip_bad);
    let options = ReadOptions { format: file.format, bad_input, columns: file.columns.clone() };
    open_as(&file.trace, &options).map_err(failed)
}

/// What becomes of bad input: compressed bytes that break off end the trace in any case, and
/// [`skipped_text`] says so.
pub fn bad_input(skips: bool) -> BadInput {
    if skips { BadInput::Skip } else { BadInput::Shorten }
}

/// Opens the trace at `path`; `-` is standard input.
///
/// # Errors
///
/// It cannot be opened, or its format is unknown.
pub fn open_as(path: &Path, options: &ReadOptions) -> Result<Reader, TraceError> {
    if path.as_os_str() == "-" {
        let name: Arc<Path> = Arc::from(Path::new("standard input"));
        return Reader::from_read(name, Box::new(io::stdin()), options);
    }
    Reader::open(path, options)
}

/// What a trace that cannot be read is to the command.
pub fn failed(error: TraceError) -> Failure {
    let hint = match &error {
        TraceError::Empty { .. } => "; name it with --format",
        TraceError::UnknownFormat { .. } => {
            "; name it with --format, or say with --columns what its columns are"
        }
        TraceError::Bad { .. } => " (--skip-bad leaves out what is bad, and counts it)",
        _ => "",
    };
    Failure::Failed(format!("{error}{hint}"))
}

/// What was left out, for people, a line each; nothing if nothing was.
pub fn skipped_text(reader: &Reader) -> String {
    let tally = reader.tally();
    let mut text = String::new();
    if let Some(first) = &tally.first_skipped {
        let bad = tally.skipped - u64::from(tally.broken_off.is_some());
        text += &format!("{bad} bad left out; the first: {first}\n");
    }
    if let Some(error) = &tally.broken_off {
        let requests = thousands(tally.requests as f64);
        text += &format!("{error}; used: the {requests} requests before\n");
    }
    text
}

/// Prints the first requests.
///
/// # Errors
///
/// The trace cannot be read.
pub fn head(options: &TraceHead) -> Result<(), Failure> {
    let mut reader = open(&options.file)?;
    standard_output::check()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = writeln!(out, "time_ns,op,address,length,file");
    for _ in 0..options.requests {
        let Some(request) = reader.next() else { break };
        let Request { time_ns, address, length, file, kind } = match request {
            Ok(request) => request,
            Err(error) => {
                standard_output::note(out.flush());
                return Err(failed(error));
            }
        };
        let op = match kind {
            Kind::Read => 'R',
            Kind::Write => 'W',
            Kind::Ahead => 'H',
        };
        written = written.and_then(|()| writeln!(out, "{time_ns},{op},{address},{length},{file}"));
        if written.is_err() {
            break;
        }
    }
    standard_output::note(written.and_then(|()| out.flush()));
    Ok(())
}

/// Writes a trace in Terrace's format.
///
/// # Errors
///
/// The trace cannot be read, or the file not written.
pub fn convert(options: &TraceConvert) -> Result<(), Failure> {
    check_apart(&options.file.trace, &options.out)?;
    let mut reader = open(&options.file)?;
    let header = CompactHeader {
        addressing: reader.addressing(),
        paging: reader.paging(),
        clock: reader.clock(),
    };
    let most = options.requests.unwrap_or(u64::MAX);
    let mut out = Out::begin(&options.out, header)?;
    let mut requests = 0;
    while requests < most {
        let Some(request) = reader.next() else { break };
        out.write(request.map_err(failed)?)?;
        requests += 1;
    }
    out.finish()?;
    eprint!("{}", skipped_text(&reader));
    list::carry(&options.file.trace, &reader, &options.out)
}

/// How requests are split, in words.
pub fn paging_name(paging: Paging) -> String {
    match paging {
        Paging::Split(bytes) => format!("{} bytes", bytes.get()),
        Paging::Whole => "one page per request".to_string(),
    }
}

/// How a trace is compressed, behind its format.
pub fn packing_name(packing: Packing) -> &'static str {
    match packing {
        Packing::Plain => "not compressed",
        packed => packed.name(),
    }
}
