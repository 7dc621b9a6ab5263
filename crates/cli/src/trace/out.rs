//! A trace that a command writes.

use crate::failure::Failure;
use crate::output::{beside, check_replaceable};
use crate::standard_output;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::TempPath;
use terrace_trace::{CompactHeader, CompactWriter, Request};

/// Bytes that are written at a time.
const OUT_BYTES: usize = 1 << 18;

/// A trace that is being written. Should the work fail, a new file is left without its trailer, so
/// that its readers report that it is cut off, and a file that was to be replaced stays as it was.
pub(super) struct Out {
    pub(super) path: PathBuf,
    writer: CompactWriter<Box<dyn Write + Send>>,
    /// Takes the place of the file there in the end.
    replacement: Option<Replacement>,
}

impl Out {
    pub(super) fn begin(path: &Path, header: CompactHeader) -> Result<Out, Failure> {
        // No trace is replaced unasked: a capture of an hour cannot be made again.
        check_replaceable(path, "empty", |_| false)?;
        let begun = sink(path).and_then(|(sink, replacement)| {
            let writer = CompactWriter::new(sink, header)?;
            Ok(Out { path: path.to_path_buf(), writer, replacement })
        });
        begun.map_err(|error| cannot_write(path, &error))
    }

    pub(super) fn write(&mut self, request: Request) -> Result<(), Failure> {
        self.writer.write(request).map_err(|error| cannot_write(&self.path, &error))
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
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
