//! The formats that traces are in: one list from which recognition, the command and its help are
//! made.
//!
//! - F1: a format is recognized by the content: binary formats by their first bytes, formats of
//!   lines by reading the first lines as each of them. The one is taken that finds most requests
//!   more than bad lines, if any does; among equals the first of the list.
//! - F2: an unknown format lists the known.

use crate::binary::{OracleGeneral, Vscsi};
use crate::compact;
use crate::error::TraceError;
use crate::lines::{LineDecoder, ParseLine};
use crate::pages::{PageBytes, Paging};
use crate::reader::Opened;
use crate::records::{ParseRecord, RecordDecoder};
use crate::request::{Addressing, Clock};
use crate::tally::Tally;
use crate::text::{
    self, Alibaba, Blkparse, Disksim, Fio, Mqsim, Msr, Pg15, Spc, Strace, Tectonic, Tencent,
};
use crate::window::Window;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes at the start of a file that its format is recognized by.
pub(crate) const HEAD_BYTES: usize = 1 << 16;
/// Lines at the start of a file that its format is recognized by.
const HEAD_LINES: usize = 64;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Terrace's own.
    Compact,
    /// `ts_us,op,lba_bytes,size,file`.
    Pg15,
    /// The ARC paper's.
    Arc,
    /// MSR Cambridge.
    Msr,
    /// The Storage Performance Council's: UMass Financial and WebSearch.
    Spc,
    /// MQSim's.
    Mqsim,
    /// DiskSim's in ASCII.
    Disksim,
    /// fio's I/O logs, versions 2 and 3.
    Fio,
    /// What `blkparse` prints.
    Blkparse,
    /// Alibaba's block traces.
    Alibaba,
    /// Tencent's block traces.
    Tencent,
    /// CacheLib's block traces of Tectonic.
    Tectonic,
    /// What `strace` writes of a program's files.
    Strace,
    /// CloudPhysics' virtual SCSI, versions 1 and 2.
    Vscsi,
    /// libCacheSim's records of 24 bytes.
    OracleGeneral,
}

/// What is known of a format.
pub struct FormatRow {
    /// The format.
    pub format: Format,
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    told: Told,
    open: fn(Window, &mut Tally) -> Result<Opened, TraceError>,
}

/// How a format is recognized.
enum Told {
    /// By its first bytes.
    Bytes(fn(&[u8]) -> bool),
    /// By its first bytes, if no other format is: they have no magic.
    Guess(fn(&[u8]) -> bool),
    /// By how many of its first lines are read as requests.
    Lines(fn(&[u8]) -> Lines),
}

/// What a format made of the first lines of a file.
struct Lines {
    requests: usize,
    bad: usize,
}

/// The known formats.
pub const FORMATS: [FormatRow; 15] = [
    FormatRow {
        format: Format::Compact,
        name: "compact",
        what: "Terrace's own",
        told: Told::Bytes(compact::is_compact),
        open: compact::open,
    },
    lines::<Alibaba>(
        Format::Alibaba,
        "alibaba",
        "Alibaba block traces: device, opcode, offset, length, time",
    ),
    lines::<Pg15>(Format::Pg15, "pg15", "CSV with the header ts_us,op,lba_bytes,size,file"),
    lines::<text::Arc>(Format::Arc, "arc", "the ARC paper: block, blocks, ignored, number"),
    lines::<Msr>(
        Format::Msr,
        "msr",
        "MSR Cambridge: time, host, disk, type, offset, size, response time",
    ),
    lines::<Spc>(
        Format::Spc,
        "spc",
        "UMass Financial and WebSearch: unit, block, size, opcode, time",
    ),
    lines::<Mqsim>(Format::Mqsim, "mqsim", "MQSim: time, device, sector, sectors, type"),
    lines::<Disksim>(
        Format::Disksim,
        "disksim",
        "DiskSim in ASCII: time, device, block, blocks, flags",
    ),
    lines::<Fio>(Format::Fio, "fio", "fio I/O log, version 2 or 3"),
    lines::<Blkparse>(Format::Blkparse, "blkparse", "what blkparse prints by default"),
    lines::<Tencent>(
        Format::Tencent,
        "tencent",
        "Tencent block traces: time, offset, size, type, volume",
    ),
    lines::<Tectonic>(Format::Tectonic, "tectonic", "CacheLib block traces: CSV with a header"),
    lines::<Strace>(Format::Strace, "strace", "what strace -f -ttt -yy writes of files"),
    FormatRow {
        format: Format::Vscsi,
        name: "vscsi",
        what: "CloudPhysics virtual SCSI, version 1 or 2, binary",
        told: Told::Bytes(Vscsi::looks_like),
        open: |window, _| {
            let parser = Vscsi::of(window.available());
            Ok(open_records(window, parser, Addressing::Bytes))
        },
    },
    FormatRow {
        format: Format::OracleGeneral,
        name: "oracle-general",
        what: "libCacheSim's oracleGeneral, binary: requests to objects",
        told: Told::Guess(OracleGeneral::looks_like),
        open: |window, _| Ok(open_records(window, OracleGeneral, Addressing::Objects)),
    },
];

/// The row of a format of lines.
const fn lines<P: ParseLine + Default + 'static>(
    format: Format,
    name: &'static str,
    what: &'static str,
) -> FormatRow {
    let told = Told::Lines(read_lines::<P>);
    FormatRow { format, name, what, told, open: open_lines::<P> }
}

impl Format {
    fn row(self) -> &'static FormatRow {
        FORMATS.iter().find(|row| row.format == self).expect("every format has a row")
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Makes a decoder of what is in `window`.
    pub(crate) fn open(self, window: Window, tally: &mut Tally) -> Result<Opened, TraceError> {
        (self.row().open)(window, tally)
    }
}

fn open_lines<P: ParseLine + Default + 'static>(
    window: Window,
    _: &mut Tally,
) -> Result<Opened, TraceError> {
    let decoder = Box::new(LineDecoder::new(window, P::default()));
    Ok(Opened { decoder, addressing: Addressing::Bytes, paging: P::PAGING, clock: P::CLOCK })
}

fn open_records<P: ParseRecord + 'static>(
    window: Window,
    parser: P,
    addressing: Addressing,
) -> Opened {
    let paging = match addressing {
        Addressing::Bytes => Paging::Split(PageBytes::DEFAULT),
        Addressing::Objects => Paging::Whole,
    };
    let decoder = Box::new(RecordDecoder::new(window, parser));
    Opened { decoder, addressing, paging, clock: Clock::Kept }
}

/// The names of the known formats, as a list.
pub fn known_names() -> String {
    FORMATS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormatName(pub String);

impl fmt::Display for UnknownFormatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown format `{}`; known: {}", self.0, known_names())
    }
}

impl Error for UnknownFormatName {}

impl FromStr for Format {
    type Err = UnknownFormatName;

    fn from_str(name: &str) -> Result<Format, UnknownFormatName> {
        let row = FORMATS.iter().find(|row| row.name == name);
        row.map(|row| row.format).ok_or_else(|| UnknownFormatName(name.to_string()))
    }
}

/// Tells the format of the file at `path` that begins with `head`.
///
/// # Errors
///
/// There is nothing to tell it by, or it is none of the known.
pub(crate) fn recognise(path: &Arc<Path>, head: &[u8]) -> Result<Format, TraceError> {
    if head.is_empty() {
        return Err(TraceError::Empty { path: path.clone(), known: known_names() });
    }
    let mut best: Option<(usize, Format)> = None;
    for row in &FORMATS {
        match row.told {
            Told::Bytes(told) if told(head) => return Ok(row.format),
            Told::Bytes(_) | Told::Guess(_) => {}
            Told::Lines(read) => {
                let lines = read(head);
                let surplus = lines.requests.saturating_sub(lines.bad);
                if surplus > best.map_or(0, |best| best.0) {
                    best = Some((surplus, row.format));
                }
            }
        }
    }
    let guess = || FORMATS.iter().find(|row| matches!(row.told, Told::Guess(told) if told(head)));
    let format = best.map(|best| best.1).or_else(|| guess().map(|row| row.format));
    let unknown = || TraceError::UnknownFormat { path: path.clone(), known: known_names() };
    format.ok_or_else(unknown)
}

/// Reads the first whole lines of `head` as those of `P`.
fn read_lines<P: ParseLine + Default>(head: &[u8]) -> Lines {
    let mut parser = P::default();
    let mut lines = Lines { requests: 0, bad: 0 };
    // A line that is cut off by the end of the head says nothing, unless it is all there is.
    let whole = match memchr::memrchr(b'\n', head) {
        Some(at) if head.len() >= HEAD_BYTES => &head[..at],
        _ => head,
    };
    for line in whole.split(|byte| *byte == b'\n').take(HEAD_LINES) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if matches!(line.first(), None | Some(b'#')) {
            continue;
        }
        match parser.parse(line) {
            Ok(Some(_)) => lines.requests += 1,
            Ok(None) => {}
            Err(_) => lines.bad += 1,
        }
    }
    lines
}
