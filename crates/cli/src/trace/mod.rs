//! `terrace trace`: looks into traces, converts them, makes them up, records them; and what
//! benches record.

mod capture;
mod filter;
mod info;
mod make;
mod record;

pub use capture::capture;
pub use filter::run as filter;
pub use info::info;
pub use make::{make, wrong};
pub use record::Recorder;

use crate::command::{TraceConvert, TraceFile, TraceHead};
use crate::failure::Failure;
use crate::output::check_replaceable;
use crate::standard_output;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_trace::{
    BadInput, CompactHeader, CompactWriter, Kind, Packing, Paging, ReadOptions, Reader, Request,
    TraceError, is_compact,
};

/// Bytes that are written at a time.
const OUT_BYTES: usize = 1 << 18;

/// Opens a trace.
///
/// # Errors
///
/// It cannot be opened, or its format is unknown.
pub fn open(file: &TraceFile) -> Result<Reader, Failure> {
    let bad_input = if file.skip_bad { BadInput::Skip } else { BadInput::Refuse };
    let options = ReadOptions { format: file.format, bad_input };
    let reader = if file.trace.as_os_str() == "-" {
        let name: Arc<Path> = Arc::from(Path::new("standard input"));
        Reader::from_read(name, Box::new(io::stdin()), &options)
    } else {
        Reader::open(&file.trace, &options)
    };
    reader.map_err(failed)
}

/// What a trace that cannot be read is to the command.
pub fn failed(error: TraceError) -> Failure {
    let hint = match &error {
        TraceError::UnknownFormat { .. } | TraceError::Empty { .. } => "; name it with --format",
        TraceError::Bad { .. } | TraceError::Packed { .. } => {
            " (--skip-bad leaves out what is bad, and counts it)"
        }
        _ => "",
    };
    Failure::Failed(format!("{error}{hint}"))
}

/// What was left out, for people; nothing if nothing was.
pub fn skipped_text(reader: &Reader) -> String {
    let tally = reader.tally();
    match &tally.first_skipped {
        Some(first) => format!("{} bad left out; the first: {first}\n", tally.skipped),
        None => String::new(),
    }
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
    Ok(())
}

/// A trace that is being written. Should the work fail, the file is left without its trailer, so
/// that its readers report that it is cut off.
struct Out {
    path: PathBuf,
    writer: CompactWriter<Box<dyn Write + Send>>,
}

impl Out {
    fn begin(path: &Path, header: CompactHeader) -> Result<Out, Failure> {
        check_replaceable(path, "a trace in Terrace's format", is_trace)?;
        let begun = sink(path).and_then(|sink| CompactWriter::new(sink, header));
        match begun {
            Ok(writer) => Ok(Out { path: path.to_path_buf(), writer }),
            Err(error) => Err(cannot_write(path, &error)),
        }
    }

    fn write(&mut self, request: Request) -> Result<(), Failure> {
        self.writer.write(request).map_err(|error| cannot_write(&self.path, &error))
    }

    fn finish(self) -> Result<(), Failure> {
        let path = self.path;
        let ended = self.writer.finish().and_then(|mut sink| sink.flush());
        ended.map_err(|error| cannot_write(&path, &error))
    }
}

fn sink(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufWriter::with_capacity(OUT_BYTES, standard_output::open()?)));
    }
    let file = BufWriter::with_capacity(OUT_BYTES, File::create(path)?);
    if path.extension().is_some_and(|extension| extension == "gz") {
        return Ok(Box::new(GzEncoder::new(file, Compression::default())));
    }
    Ok(Box::new(file))
}

/// Whether a file that begins with `head` is a trace of ours, packed or not.
fn is_trace(head: &[u8]) -> bool {
    is_compact(head) || Packing::of(head) != Packing::Plain
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
