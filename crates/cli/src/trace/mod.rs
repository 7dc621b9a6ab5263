//! `terrace trace`: looks into traces, converts them, makes them up, records them; and what
//! benches record.

mod capture;
mod filter;
mod info;
pub mod list;
mod make;
mod record;

pub use capture::capture;
pub use filter::run as filter;
pub use info::info;
pub use make::{make, wrong};
pub use record::Recorder;

use crate::command::{TraceConvert, TraceFile, TraceHead};
use crate::failure::Failure;
use crate::output::{beside, check_apart, check_replaceable};
use crate::standard_output;
use crate::table::thousands;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempPath;
use terrace_trace::{
    BadInput, CompactHeader, CompactWriter, Kind, Packing, Paging, ReadOptions, Reader, Request,
    TraceError,
};

/// Bytes that are written at a time.
const OUT_BYTES: usize = 1 << 18;

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
        TraceError::Bad { .. } | TraceError::Packed { .. } => {
            " (--skip-bad leaves out what is bad, and counts it)"
        }
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
        let op = if kind == Kind::Write { 'W' } else { 'R' };
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

/// A trace that is being written. Should the work fail, a new file is left without its trailer, so
/// that its readers report that it is cut off, and a file that was to be replaced stays as it was.
struct Out {
    path: PathBuf,
    writer: CompactWriter<Box<dyn Write + Send>>,
    /// Takes the place of the file there in the end.
    replacement: Option<Replacement>,
}

impl Out {
    fn begin(path: &Path, header: CompactHeader) -> Result<Out, Failure> {
        // No trace is replaced unasked: a capture of an hour cannot be made again.
        check_replaceable(path, "empty", |_| false)?;
        let begun = sink(path).and_then(|(sink, replacement)| {
            let writer = CompactWriter::new(sink, header)?;
            Ok(Out { path: path.to_path_buf(), writer, replacement })
        });
        begun.map_err(|error| cannot_write(path, &error))
    }

    fn write(&mut self, request: Request) -> Result<(), Failure> {
        self.writer.write(request).map_err(|error| cannot_write(&self.path, &error))
    }

    fn finish(self) -> Result<(), Failure> {
        let Out { path, writer, replacement } = self;
        let ended = writer.finish().and_then(|mut sink| sink.flush());
        let placed = ended.and_then(|()| match replacement {
            Some((file, place)) => file.persist(place).map_err(|failed| failed.error),
            None => Ok(()),
        });
        placed.map_err(|error| cannot_write(&path, &error))
    }
}

type Writer = Box<dyn Write + Send>;
/// A file, and the place that it takes.
type Replacement = (TempPath, PathBuf);

/// What a trace at `path` is written to, and the file that replaces the one there, if one is.
fn sink(path: &Path) -> io::Result<(Writer, Option<Replacement>)> {
    if path.as_os_str() == "-" {
        let out = BufWriter::with_capacity(OUT_BYTES, standard_output::open()?);
        return Ok((Box::new(out), None));
    }
    let is_replaced = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    let (file, replacement) = if is_replaced {
        // What a link leads to is replaced, not the link.
        let place = fs::canonicalize(path)?;
        let (file, temporary) = beside(&place)?.into_parts();
        (file, Some((temporary, place)))
    } else {
        (File::create(path)?, None)
    };
    let file = BufWriter::with_capacity(OUT_BYTES, file);
    if path.extension().is_some_and(|extension| extension == "gz") {
        return Ok((Box::new(GzEncoder::new(file, Compression::default())), replacement));
    }
    Ok((Box::new(file), replacement))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}", path.display()), error)
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
