//! A trace as an iterator over its requests, whatever its format and compression.
//!
//! - R1: memory is constant: a window of bytes and a batch of requests, however long the trace.
//! - R2: requests come in the order of the file, whatever their times.
//! - R3: an error comes after all requests before it, and is the last item.
//!
//! ```
//! use terrace_trace::{Kind, Reader, ReadOptions};
//!
//! let text = "ts_us,op,lba_bytes,size,file\n7,W,8192,8192,3\n9,R,0,8192,3\n";
//! let reader = Reader::from_bytes("example.csv", text, &ReadOptions::default())?;
//! let kinds: Vec<Kind> = reader.map(|request| request.map(|r| r.kind)).collect::<Result<_, _>>()?;
//! assert_eq!(kinds, [Kind::Write, Kind::Read]);
//! # Ok::<(), terrace_trace::TraceError>(())
//! ```

use crate::error::TraceError;
use crate::files::FileNames;
use crate::format::{self, Format};
use crate::lines::{LineDecoder, ParseLine};
use crate::pages::Paging;
use crate::request::{Addressing, Clock, Request};
use crate::tally::{BadInput, Tally};
use crate::text::{Columns, Strace};
use crate::unpack::{Packing, unpack};
use crate::window::Window;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Requests that are decoded at a time.
pub const BATCH_REQUESTS: usize = 4096;

/// How a trace is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Its format; none to tell it from the content.
    pub format: Option<Format>,
    /// What becomes of bad input.
    pub bad_input: BadInput,
    /// Which columns of lines hold what; without a format they make it [`Format::Csv`].
    pub columns: Option<Columns>,
}

/// Whether a decoder has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// Perhaps.
    Yes,
    /// The trace has ended.
    No,
}

/// Makes requests of bytes, a batch at a time.
pub(crate) trait Decode {
    /// Appends to `batch`, an empty one, and stops when it has [`BATCH_REQUESTS`] or is at a good
    /// place to stop. On an error the requests before it are in `batch`.
    ///
    /// # Errors
    ///
    /// The file cannot be read; bad input that `tally` does not skip.
    fn decode(&mut self, batch: &mut Vec<Request>, tally: &mut Tally) -> Result<More, TraceError>;

    /// The paths of the files of the requests so far, where the trace has paths.
    fn paths(&self) -> Option<&FileNames> {
        None
    }
}

/// What a format makes of a file.
pub(crate) struct Opened {
    pub decoder: Box<dyn Decode>,
    pub addressing: Addressing,
    pub paging: Paging,
    pub clock: Clock,
}

/// The requests of a trace.
pub struct Reader {
    path: Arc<Path>,
    format: Format,
    packing: Packing,
    opened: Opened,
    tally: Tally,
    batch: Vec<Request>,
    /// The next of `batch`.
    next: usize,
    more: More,
    /// What comes after `batch`.
    failure: Option<TraceError>,
}

impl Reader {
    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be opened or read; its format is unknown.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Reader, TraceError> {
        let name: Arc<Path> = Arc::from(path);
        match File::open(path) {
            Ok(file) => Reader::from_read(name, Box::new(file), options),
            Err(source) => Err(TraceError::Open { path: name, source }),
        }
    }

    /// Reads from `source`, which errors will call `path`.
    ///
    /// # Errors
    ///
    /// It cannot be read; its format is unknown.
    pub fn from_read(
        path: Arc<Path>,
        source: Box<dyn Read>,
        options: &ReadOptions,
    ) -> Result<Reader, TraceError> {
        let (packing, unpacked) = unpack(source).map_err(|source| TraceError::Read {
            path: path.clone(),
            offset: 0,
            source,
        })?;
        let mut window = Window::new(path.clone(), packing, unpacked);
        let tally = Tally::new(options.bad_input);
        window.look_ahead(format::HEAD_BYTES);
        let format = match (options.format, &options.columns) {
            (Some(format), _) => format,
            (None, Some(_)) => Format::Csv,
            (None, None) => {
                // Bytes of which nothing could be unpacked say why; a file without bytes is empty.
                window.fill(1)?;
                format::recognise(&path, window.available())?
            }
        };
        let opened = format.open(window, options)?;
        Ok(Reader::new(path, format, packing, opened, tally))
    }

    fn new(
        path: Arc<Path>,
        format: Format,
        packing: Packing,
        opened: Opened,
        tally: Tally,
    ) -> Reader {
        let batch = Vec::with_capacity(BATCH_REQUESTS);
        let more = More::Yes;
        Reader { path, format, packing, opened, tally, batch, next: 0, more, failure: None }
    }

    /// Reads what `strace -f -ttt -yy` wrote to the file at `path`, of files whose path begins with
    /// `under`.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn open_strace(
        path: &Path,
        under: &[u8],
        bad_input: BadInput,
    ) -> Result<Reader, TraceError> {
        let name: Arc<Path> = Arc::from(path);
        let file =
            File::open(path).map_err(|source| TraceError::Open { path: name.clone(), source })?;
        let window = Window::new(name.clone(), Packing::Plain, Box::new(file));
        let decoder = Box::new(LineDecoder::new(window, Strace::under(under.to_vec())));
        let (addressing, paging, clock) = (Addressing::Bytes, Strace::PAGING, Strace::CLOCK);
        let opened = Opened { decoder, addressing, paging, clock };
        let tally = Tally::new(bad_input);
        Ok(Reader::new(name, Format::Strace, Packing::Plain, opened, tally))
    }

    /// Reads `bytes`, which errors will call `name`.
    ///
    /// # Errors
    ///
    /// The format is unknown.
    pub fn from_bytes(
        name: &str,
        bytes: impl Into<Vec<u8>>,
        options: &ReadOptions,
    ) -> Result<Reader, TraceError> {
        let source = Box::new(io::Cursor::new(bytes.into()));
        Reader::from_read(Arc::from(Path::new(name)), source, options)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How it is compressed.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// What its addresses are.
    pub fn addressing(&self) -> Addressing {
        self.opened.addressing
    }

    /// How its requests are best split into pages, unless the caller knows better.
    pub fn paging(&self) -> Paging {
        self.opened.paging
    }

    /// Whether its files have paths.
    pub fn has_paths(&self) -> bool {
        self.opened.decoder.paths().is_some()
    }

    /// The path of a file whose requests have come, where the trace has paths.
    pub fn file_path(&self, number: u32) -> Option<&[u8]> {
        self.opened.decoder.paths()?.name(number)
    }

    /// What the times of its requests are.
    pub fn clock(&self) -> Clock {
        self.opened.clock
    }

    /// What was met besides requests, up to now: requests are decoded ahead of their reader.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Decodes until there is a request, or an error, or the end.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<Result<Request, TraceError>> {
        self.batch.clear();
        self.next = 0;
        while self.batch.is_empty() {
            if let Some(error) = self.failure.take() {
                return Some(Err(error));
            }
            if self.more == More::No {
                return None;
            }
            match self.opened.decoder.decode(&mut self.batch, &mut self.tally) {
                Ok(more) => {
                    self.more = more;
                    self.tally.requests += self.batch.len() as u64;
                }
                Err(error) => {
                    self.tally.requests += self.batch.len() as u64;
                    self.more = More::No;
                    // The rest of a stream that breaks off cannot be read: it counts as one thing
                    // skipped.
                    self.failure = self.tally.bad(error).err();
                }
            }
        }
        self.next = 1;
        Some(Ok(self.batch[0]))
    }
}

impl Iterator for Reader {
    type Item = Result<Request, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        match self.batch.get(self.next) {
            Some(request) => {
                self.next += 1;
                Some(Ok(*request))
            }
            None => self.refill(),
        }
    }
}
