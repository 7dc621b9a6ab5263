//! The formats that traces are in: one list from which recognition, the command and its help are
//! made.
//!
//! - F1: a format is recognized by the content: binary formats by their first bytes, formats of
//!   lines by reading the first lines as each of them. The one is taken that finds most requests
//!   more than bad lines, if any does; among equals the first of the list.
//! - F2: an unknown format lists the known, and the one whose lines look most like the first line.

use crate::binary::{Blktrace, Numbers, OracleGeneral, Vscsi};
use crate::compact;
use crate::error::{BadField, Place, Problem, TraceError};
use crate::lines::{LineDecoder, ParseLine, is_remark};
use crate::nearest;
use crate::pages::{PageBytes, Paging};
use crate::reader::{Decode, Opened, ReadOptions};
use crate::records::{ParseRecord, RecordDecoder};
use crate::request::{Addressing, Clock};
use crate::text::{
    self, Alibaba, Blkparse, Columns, Csv, Disksim, Fio, FioLog, Ftrace, Ids, Mqsim, Msr,
    NumberIds, Pg15, Spc, Strace, Tectonic, Tencent,
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
    /// The block tracepoints of Linux, as text.
    Ftrace,
    /// fio's logs of latencies with addresses.
    FioLog,
    /// What `blktrace` writes.
    Blktrace,
    /// Columns that a header or the caller names.
    Csv,
    /// An id a line.
    Ids,
    /// An array of ids of 32 bits.
    U32,
    /// An array of ids of 64 bits.
    U64,
}

/// What is known of a format.
pub struct FormatRow {
    /// The format.
    pub format: Format,
    /// Its name on the command line.
    pub name: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// What it is.
    pub what: &'static str,
    /// A line of it; none of a binary format.
    pub example: &'static str,
    told: Told,
    open: fn(Window, &ReadOptions) -> Result<Opened, TraceError>,
}

/// How a format is recognized.
enum Told {
    /// By its first bytes.
    Bytes(fn(&[u8]) -> bool),
    /// By its first bytes, if no other format is: they have no magic.
    Guess(fn(&[u8]) -> bool),
    /// By how many of its first lines are read as requests.
    Lines(fn(&[u8]) -> Lines),
    /// By nothing: it has to be named.
    Named,
}

/// What a format made of the first lines of a file.
struct Lines {
    requests: usize,
    bad: usize,
}

/// The known formats.
pub const FORMATS: [FormatRow; 22] = [
    FormatRow {
        format: Format::Compact,
        name: "compact",
        aliases: &["terrace"],
        what: "Terrace's own",
        example: "",
        told: Told::Bytes(compact::is_compact),
        open: compact::open,
    },
    FormatRow {
        what: "Alibaba block traces: device, opcode, offset, length, time",
        ..lines::<Alibaba>(Format::Alibaba, "alibaba", "419,W,8792731648,16384,1577808144360767")
    },
    FormatRow {
        aliases: &["pg"],
        what: "CSV with the header ts_us,op,lba_bytes,size,file",
        ..lines::<Pg15>(Format::Pg15, "pg15", "4559,R,16384,8192,3")
    },
    FormatRow {
        aliases: &["lis"],
        what: "the ARC paper: block, blocks, ignored, number",
        ..lines::<text::Arc>(Format::Arc, "arc", "249168 512 0 0")
    },
    FormatRow {
        what: "MSR Cambridge: time, host, disk, type, offset, size, response time",
        ..lines::<Msr>(Format::Msr, "msr", "128166372003061629,usr,0,Read,383496192,32768,413")
    },
    FormatRow {
        aliases: &["umass"],
        what: "UMass Financial and WebSearch: unit, block, size, opcode, time",
        ..lines::<Spc>(Format::Spc, "spc", "0,20941264,8192,W,0.551706")
    },
    FormatRow {
        what: "MQSim: time, device, sector, sectors, type",
        ..lines::<Mqsim>(Format::Mqsim, "mqsim", "11413000 0 657728 16 1")
    },
    FormatRow {
        what: "DiskSim in ASCII: time, device, block, blocks, flags",
        ..lines::<Disksim>(Format::Disksim, "disksim", "1.250000 0 2064 16 1")
    },
    FormatRow {
        aliases: &["iolog"],
        what: "fio I/O log, version 2 or 3 (--write_iolog)",
        ..lines::<Fio>(Format::Fio, "fio", "fio version 3 iolog")
    },
    FormatRow {
        what: "what blkparse prints by default",
        ..lines::<Blkparse>(
            Format::Blkparse,
            "blkparse",
            "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]",
        )
    },
    FormatRow {
        what: "Tencent block traces: time, offset, size, type, volume",
        ..lines::<Tencent>(Format::Tencent, "tencent", "1538323200,12910952,128,0,1063")
    },
    FormatRow {
        aliases: &["cachelib"],
        what: "CacheLib block traces: CSV with a header",
        ..lines::<Tectonic>(
            Format::Tectonic,
            "tectonic",
            "op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name",
        )
    },
    FormatRow {
        what: "what strace -f -ttt -yy writes of files",
        ..lines::<Strace>(
            Format::Strace,
            "strace",
            "13096 1795323550.512550 pread64(3</tmp/data>, \"\"..., 8192, 16384) = 8192",
        )
    },
    FormatRow {
        what: "what trace_pipe, trace-cmd report and perf script print of block_bio_queue, \
               block_rq_issue",
        aliases: &["perf", "trace-cmd"],
        ..lines::<Ftrace>(
            Format::Ftrace,
            "ftrace",
            "fio-812 [001] d..1. 1234.567890: block_bio_queue: 259,0 RS 1024 + 8 [fio]",
        )
    },
    FormatRow {
        what: "fio's --write_lat_log with --log_offset=1",
        ..lines::<FioLog>(Format::FioLog, "fio-log", "12, 84210, 0, 4096, 1048576, 0")
    },
    FormatRow {
        format: Format::Csv,
        name: "csv",
        aliases: &["libcachesim", "biosnoop", "bpftrace"],
        what: "columns that a header names, or --columns: libCacheSim's CSV, biosnoop, trace head",
        example: "time,op,size,lbn",
        told: Told::Lines(read_csv),
        open: open_csv,
    },
    FormatRow {
        aliases: &["txt", "text"],
        what: "one id a line; names are read, too, if the format is named",
        told: Told::Lines(|head| read_lines(NumberIds, head)),
        open: |window, _| Ok(open_ids(Box::new(LineDecoder::new(window, Ids)))),
        ..lines::<NumberIds>(Format::Ids, "ids", "42932745")
    },
    FormatRow {
        format: Format::Vscsi,
        name: "vscsi",
        aliases: &["cloudphysics"],
        what: "CloudPhysics virtual SCSI, version 1 or 2, binary",
        example: "",
        told: Told::Bytes(Vscsi::looks_like),
        open: |window, _| {
            let parser = Vscsi::of(window.available());
            Ok(open_records(window, parser, Addressing::Bytes))
        },
    },
    FormatRow {
        format: Format::Blktrace,
        name: "blktrace",
        aliases: &[],
        what: "what blktrace writes, of one processor or with -o -, binary",
        example: "",
        told: Told::Bytes(Blktrace::looks_like),
        open: |window, _| Ok(open_records(window, Blktrace::default(), Addressing::Bytes)),
    },
    FormatRow {
        format: Format::OracleGeneral,
        name: "oracle-general",
        aliases: &["oraclegeneral", "oracle_general"],
        what: "libCacheSim's oracleGeneral, binary: requests to objects",
        example: "",
        told: Told::Guess(OracleGeneral::looks_like),
        open: |window, _| Ok(open_records(window, OracleGeneral, Addressing::Objects)),
    },
    FormatRow {
        what: "an array of ids of 32 bits, little-endian",
        ..numbers::<4>(Format::U32, "u32")
    },
    FormatRow {
        what: "an array of ids of 64 bits, little-endian",
        ..numbers::<8>(Format::U64, "u64")
    },
];

/// The row of a format of lines.
const fn lines<P: ParseLine + Default + 'static>(
    format: Format,
    name: &'static str,
    example: &'static str,
) -> FormatRow {
    let told = Told::Lines(|head| read_lines(P::default(), head));
    let open = open_lines::<P>;
    FormatRow { format, name, aliases: &[], what: "", example, told, open }
}

/// The row of an array of numbers.
const fn numbers<const BYTES: usize>(format: Format, name: &'static str) -> FormatRow {
    FormatRow {
        format,
        name,
        aliases: &[],
        what: "",
        example: "",
        told: Told::Named,
        open: |window, _| Ok(open_records(window, Numbers::<BYTES>, Addressing::Objects)),
    }
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
    pub(crate) fn open(self, window: Window, options: &ReadOptions) -> Result<Opened, TraceError> {
        (self.row().open)(window, options)
    }
}

fn open_lines<P: ParseLine + Default + 'static>(
    window: Window,
    _: &ReadOptions,
) -> Result<Opened, TraceError> {
    let decoder = Box::new(LineDecoder::new(window, P::default()));
    Ok(Opened { decoder, addressing: Addressing::Bytes, paging: P::PAGING, clock: P::CLOCK })
}

fn open_ids(decoder: Box<dyn Decode>) -> Opened {
    let (addressing, paging, clock) = (Addressing::Objects, Paging::Whole, Clock::Absent);
    Opened { decoder, addressing, paging, clock }
}

fn open_csv(window: Window, options: &ReadOptions) -> Result<Opened, TraceError> {
    let columns = options.columns.clone();
    let columns = match columns.or_else(|| Columns::of_head(window.available())) {
        Some(columns) => columns,
        None if window.available().is_empty() => Columns::of_pages(),
        None => {
            let what = BadField { field: "header", problem: Problem::UnknownWord };
            return Err(window.bad(Place::Line(1), what));
        }
    };
    let (addressing, paging) = columns.addressing();
    let clock = columns.clock();
    let decoder = Box::new(LineDecoder::new(window, Csv::new(columns)));
    Ok(Opened { decoder, addressing, paging, clock })
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

/// The formats of lines, with a line of each.
pub(crate) fn examples() -> impl Iterator<Item = nearest::Example> {
    FORMATS.iter().filter(|row| !row.example.is_empty()).map(|row| (row.name, row.example))
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
        let lower = name.to_ascii_lowercase();
        let is_called =
            |row: &&FormatRow| row.name == lower || row.aliases.contains(&lower.as_str());
        let row = FORMATS.iter().find(is_called);
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
            Told::Bytes(_) | Told::Guess(_) | Told::Named => {}
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
    // A header tells, even if no line below it can be read.
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let header = || Columns::of_head(head).filter(|_| first.contains(&b',')).map(|_| Format::Csv);
    let format = best.map(|best| best.1).or_else(|| guess().map(|row| row.format)).or_else(header);
    format.ok_or_else(|| TraceError::UnknownFormat {
        path: path.clone(),
        begins: nearest::beginning(head),
        nearest: nearest::nearest(head, examples()),
        known: known_names(),
    })
}

/// Reads the first whole lines of `head` as those of the columns that its header names.
fn read_csv(head: &[u8]) -> Lines {
    match Columns::of_head(head) {
        Some(columns) => read_lines(Csv::new(columns), head),
        None => Lines { requests: 0, bad: 0 },
    }
}

/// Reads the first whole lines of `head` with `parser`.
fn read_lines<P: ParseLine>(mut parser: P, head: &[u8]) -> Lines {
    let mut lines = Lines { requests: 0, bad: 0 };
    // A line that is cut off by the end of the head says nothing, unless it is all there is.
    let whole = match memchr::memrchr(b'\n', head) {
        Some(at) if head.len() >= HEAD_BYTES => &head[..at],
        _ => head,
    };
    for line in whole.split(|byte| *byte == b'\n').take(HEAD_LINES) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if is_remark(line) {
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
