//! Fields in columns that a header names, or the caller: CSV, and what `biosnoop`, libCacheSim and
//! `terrace trace head` print.
//!
//! - V1: columns are separated by the comma, semicolon, tab or bar that the first line has most of,
//!   or else by blanks. A field may stand between quotation marks.
//! - V2: the first line is a header if a number is wanted and it has none. Without columns from the
//!   caller it must be one.
//! - V3: one column says what is asked for: an id, a page, an address, a sector. Others may be
//!   missing: then all are reads, of one page each, of file 0, at time 0.
//! - V4: a time without a unit is in seconds, or in the first of ms, us and ns by which it lies
//!   before the year 2100.

use crate::error::{BadField, Problem};
use crate::fields::{decimal, whole};
use crate::files::FileNames;
use crate::lines::{ParseLine, is_preamble};
use crate::pages::{PageBytes, Paging};
use crate::request::{
    Addressing, Clock, Kind, Request, bytes_length, sectors_address, sectors_length,
};
use std::error::Error;
use std::fmt;
use std::str::FromStr;

const SECOND_NS: u64 = 1_000_000_000;
/// Columns that a line may have.
const COLUMNS_MAX: usize = 64;
/// Seconds from 1970 to 2100.
const YEAR_2100_S: u64 = 4_102_444_800;

/// What a column holds: its name, and what headers call it. `T` ends with a unit in some.
struct Meaning {
    name: &'static str,
    known: &'static [&'static str],
}

const TIME: usize = 0;
const ID: usize = 1;
const PAGE: usize = 2;
const ADDRESS: usize = 3;
const SECTOR: usize = 4;
const SIZE: usize = 5;
const SECTORS: usize = 6;
const OP: usize = 7;
const FILE: usize = 8;
const MEANINGS: [Meaning; 9] = [
    Meaning { name: "time", known: &["timestamp", "ts", "nsecs", "clock", "time_s", "ts_s"] },
    Meaning { name: "id", known: &["key", "object", "object_id", "obj", "obj_id", "item"] },
    Meaning { name: "page", known: &["page_id", "page_no", "pageno", "lpn", "block_no", "blkno"] },
    Meaning { name: "address", known: &["offset", "addr", "lba_bytes", "byte_offset"] },
    Meaning { name: "sector", known: &["lbn", "lba"] },
    Meaning {
        name: "size",
        known: &["length", "len", "bytes", "obj_size", "object_size", "nbytes"],
    },
    Meaning { name: "sectors", known: &["nr_sectors", "nr_sector"] },
    Meaning { name: "op", known: &["operation", "opcode", "rw", "rwbs", "type", "t"] },
    Meaning { name: "file", known: &["file_id", "device", "dev", "disk", "volume"] },
];
/// Those of which there is one (V3).
const ASKED: [usize; 4] = [ID, PAGE, ADDRESS, SECTOR];
/// Units that the name of a time may end with.
const UNITS: [(&str, u64); 4] = [("s", SECOND_NS), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Which column a meaning is in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// By number, from 0.
    At(usize),
    /// By what the header calls it.
    Called(String),
}

/// Which column holds what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    places: [Option<Place>; MEANINGS.len()],
    /// Nanoseconds of a unit of time, if that is known.
    unit_ns: Option<u64>,
    /// Bytes of what a page number counts.
    page_bytes: PageBytes,
}

/// Why columns make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadColumns(String);

impl fmt::Display for BadColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BadColumns {}

impl FromStr for Columns {
    type Err = BadColumns;

    /// Reads `time=1,page=3,op=4`: numbers from 1, or names of the header; a unit may follow the
    /// time: `time=1:us`.
    fn from_str(text: &str) -> Result<Columns, BadColumns> {
        let mut columns = Columns::none();
        for part in text.split(',') {
            let wrong = || BadColumns(format!("`{part}` is no column; write time=1 or time=ts"));
            let (name, place) = part.split_once('=').ok_or_else(wrong)?;
            let meaning = meaning(name.trim()).ok_or_else(|| unknown(name))?;
            let mut place = place.trim();
            if let (TIME, Some((column, unit))) = (meaning, place.split_once(':')) {
                let row = UNITS.iter().find(|row| row.0 == unit);
                let no_unit = || BadColumns(format!("`{unit}` is no unit; write s, ms, us or ns"));
                columns.unit_ns = Some(row.ok_or_else(no_unit)?.1);
                place = column;
            }
            let place = match place.parse::<usize>() {
                Ok(number) if (1..=COLUMNS_MAX).contains(&number) => Place::At(number - 1),
                Ok(_) => {
                    let most = COLUMNS_MAX;
                    return Err(BadColumns(format!("`{part}`: columns are 1 to {most}")));
                }
                Err(_) if place.is_empty() => return Err(wrong()),
                Err(_) => Place::Called(normal(place.as_bytes())),
            };
            if columns.places[meaning].replace(place).is_some() {
                return Err(BadColumns(format!("`{}` is named twice", MEANINGS[meaning].name)));
            }
        }
        match columns.asked_count() {
            1 => Ok(columns),
            _ => {
                Err(BadColumns("one of id, page, address and sector says what is asked for".into()))
            }
        }
    }
}

fn meaning(name: &str) -> Option<usize> {
    let name = normal(name.as_bytes());
    MEANINGS.iter().position(|meaning| meaning.name == name || meaning.known.contains(&&*name))
}

fn unknown(name: &str) -> BadColumns {
    let known: Vec<&str> = MEANINGS.iter().map(|meaning| meaning.name).collect();
    BadColumns(format!("unknown column `{name}`; known: {}", known.join(", ")))
}

/// A name of a header as it is compared: `TIME(s)` is `time_s`.
fn normal(name: &[u8]) -> String {
    let letter = |byte: &u8| if byte.is_ascii_alphanumeric() { char::from(*byte) } else { '_' };
    let name: String = name.iter().map(letter).collect();
    name.trim_matches('_').to_ascii_lowercase()
}

impl Columns {
    fn none() -> Columns {
        const NONE: Option<Place> = None;
        Columns { places: [NONE; MEANINGS.len()], unit_ns: None, page_bytes: PageBytes::DEFAULT }
    }

    /// A page in the first column.
    pub(crate) fn of_pages() -> Columns {
        let mut columns = Columns::none();
        columns.places[PAGE] = Some(Place::At(0));
        columns
    }

    /// The same, with pages of `page_bytes`.
    pub fn with_pages_of(self, page_bytes: PageBytes) -> Columns {
        Columns { page_bytes, ..self }
    }

    fn asked_count(&self) -> usize {
        ASKED.iter().filter(|meaning| self.places[**meaning].is_some()).count()
    }

    /// The columns that the header in `line` names, if it says what is asked for.
    fn of_header(line: &[u8]) -> Option<Columns> {
        let line = line.strip_prefix(b"#").unwrap_or(line);
        let mut columns = Columns::none();
        for (at, field) in Split::new(line, separator(line)).take(COLUMNS_MAX).enumerate() {
            let name = normal(field);
            let (bare, unit) = unit_of(&name);
            let found = meaning(&name)
                .or_else(|| meaning(bare).filter(|meaning| *meaning == TIME && unit.is_some()));
            let Some(found) = found else { continue };
            if columns.places[found].is_some() {
                continue;
            }
            if found == TIME {
                columns.unit_ns = if name == "nsecs" { Some(1) } else { unit };
            }
            columns.places[found] = Some(Place::At(at));
        }
        // A volume's blocks by id, or an id by page: the first of the list says what is asked for.
        let asked = ASKED.into_iter().find(|meaning| columns.places[*meaning].is_some())?;
        for other in ASKED.into_iter().filter(|meaning| *meaning != asked) {
            columns.places[other] = None;
        }
        Some(columns)
    }

    /// The columns of what begins with `head`, by its first line.
    pub(crate) fn of_head(head: &[u8]) -> Option<Columns> {
        let mut lines = head.split(|byte| *byte == b'\n');
        let line = lines.find(|line| !line.trim_ascii().is_empty() && !is_preamble(line))?;
        Columns::of_header(line.trim_ascii_end())
    }

    /// Whether a column has times.
    pub(crate) fn clock(&self) -> Clock {
        self.places[TIME].as_ref().map_or(Clock::Absent, |_| Clock::Kept)
    }

    /// What addresses are in these columns.
    pub(crate) fn addressing(&self) -> (Addressing, Paging) {
        match self.places[ID] {
            Some(_) => (Addressing::Objects, Paging::Whole),
            None => (Addressing::Bytes, Paging::Split(self.page_bytes)),
        }
    }
}

/// A name without the unit at its end, and the unit.
fn unit_of(name: &str) -> (&str, Option<u64>) {
    match name.rsplit_once('_') {
        Some((bare, unit)) => (bare, UNITS.iter().find(|row| row.0 == unit).map(|row| row.1)),
        None => (name, None),
    }
}

/// The separator of columns (V1).
fn separator(line: &[u8]) -> u8 {
    let count = |letter: u8| memchr::memchr_iter(letter, line).count();
    let most = [b',', b';', b'\t', b'|'].into_iter().rev().max_by_key(|letter| count(*letter));
    most.filter(|letter| count(*letter) > 0).unwrap_or(b' ')
}

/// The fields of a line.
struct Split<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Split<'a> {
    fn new(line: &'a [u8], separator: u8) -> Split<'a> {
        let line = if separator == b' ' { line.trim_ascii() } else { line };
        Split { rest: Some(line), separator }
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let is_end = |byte: &u8| {
            *byte == self.separator || self.separator == b' ' && byte.is_ascii_whitespace()
        };
        let quoted = rest.trim_ascii_start().strip_prefix(b"\"");
        let (field, from) = match quoted.and_then(|text| Some((text, memchr::memchr(b'"', text)?)))
        {
            Some((text, end)) => (&text[..end], &text[end + 1..]),
            None => {
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                (rest[..end].trim_ascii(), &rest[end..])
            }
        };
        if let Some(at) = from.iter().position(is_end) {
            let behind = &from[at + 1..];
            self.rest =
                Some(if self.separator == b' ' { behind.trim_ascii_start() } else { behind });
        }
        Some(field)
    }
}

/// How files are told apart.
enum Files {
    /// No file has come yet.
    Unknown,
    /// They are numbers.
    Numbers,
    /// They are names.
    Names(FileNames),
}

/// Lines with columns.
pub struct Csv {
    columns: Columns,
    /// The columns by number, known behind the first line.
    at: [Option<usize>; MEANINGS.len()],
    separator: Option<u8>,
    /// Fields of the header; more in a line between blanks are a shift of the columns.
    header_fields: Option<usize>,
    files: Files,
}

impl Csv {
    /// Lines with these `columns`.
    pub fn new(columns: Columns) -> Csv {
        let at = [None; MEANINGS.len()];
        Csv { columns, at, separator: None, header_fields: None, files: Files::Unknown }
    }

    /// Learns from the first line, and says whether it is a header (V2).
    fn begin(&mut self, line: &[u8]) -> Result<bool, BadField> {
        let separator = separator(line);
        self.separator = Some(separator);
        let names: Vec<String> =
            Split::new(line, separator).take(COLUMNS_MAX).map(normal).collect();
        let mut by_name = false;
        for (meaning, place) in self.columns.places.iter().enumerate() {
            self.at[meaning] = match place {
                None => None,
                Some(Place::At(at)) => Some(*at),
                Some(Place::Called(name)) => {
                    by_name = true;
                    let missing = BadField { field: "header", problem: Problem::Missing };
                    Some(names.iter().position(|other| other == name).ok_or(missing)?)
                }
            };
        }
        let is_word = |meaning: &usize| {
            let field = self.at[*meaning].and_then(|at| names.get(at));
            field.is_some_and(|name| match *meaning {
                ID => self::meaning(name) == Some(ID),
                _ => !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()),
            })
        };
        let is_header = by_name || [TIME, ID, PAGE, ADDRESS, SECTOR].iter().any(is_word);
        if is_header {
            self.header_fields = Some(names.len());
        }
        Ok(is_header)
    }

    fn fields<'a>(&self, line: &'a [u8]) -> Result<[&'a [u8]; MEANINGS.len()], BadField> {
        let separator = self.separator.unwrap_or(b',');
        let mut fields = [&b""[..]; MEANINGS.len()];
        let mut count = 0;
        for (number, field) in Split::new(line, separator).take(COLUMNS_MAX + 1).enumerate() {
            for (meaning, at) in self.at.iter().enumerate() {
                if *at == Some(number) {
                    fields[meaning] = field;
                }
            }
            count = number + 1;
        }
        let is_shifted = separator == b' ' && self.header_fields.is_some_and(|most| count > most);
        if is_shifted {
            return Err(BadField { field: "line", problem: Problem::Extra });
        }
        let missing = (0..MEANINGS.len()).find(|&meaning| {
            self.at[meaning].is_some() && meaning != OP && fields[meaning].is_empty()
        });
        missing.map_or(Ok(fields), |meaning| Err(bad(meaning, Problem::Missing)))
    }

    fn time_ns(&mut self, field: &[u8]) -> Result<u64, BadField> {
        let unit = match self.columns.unit_ns {
            Some(unit) => unit,
            None => {
                let seconds = decimal(field, 1).map_err(|problem| bad(TIME, problem))?;
                let fits = |row: &&(&str, u64)| seconds / (SECOND_NS / row.1) < YEAR_2100_S;
                let unit = UNITS.iter().find(fits).map_or(1, |row| row.1);
                *self.columns.unit_ns.insert(unit)
            }
        };
        decimal(field, unit).map_err(|problem| bad(TIME, problem))
    }

    fn file(&mut self, field: &[u8]) -> Result<u32, BadField> {
        let number = whole(field).ok().and_then(|number| u32::try_from(number).ok());
        if matches!(self.files, Files::Unknown) {
            self.files = match number {
                Some(_) => Files::Numbers,
                None => Files::Names(FileNames::default()),
            };
        }
        match &mut self.files {
            Files::Names(names) => names.number(&[field]),
            _ => number.ok_or(bad(FILE, Problem::NotANumber)),
        }
    }
}

fn bad(meaning: usize, problem: Problem) -> BadField {
    BadField { field: MEANINGS[meaning].name, problem }
}

impl ParseLine for Csv {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        if self.separator.is_none() && self.begin(line)? {
            return Ok(None);
        }
        let fields = self.fields(line)?;
        let has = |meaning: usize| self.at[meaning].is_some();
        let number = |meaning: usize| whole(fields[meaning]).map_err(|what| bad(meaning, what));
        let kind = match fields[OP] {
            b"" => Kind::Read,
            word => match operation(word)? {
                Some(kind) => kind,
                None => return Ok(None),
            },
        };
        let size = match (has(SIZE), has(SECTORS)) {
            (true, _) => Some(bytes_length(number(SIZE)?).map_err(|what| bad(SIZE, what.problem))?),
            (_, true) => Some(sectors_length(number(SECTORS)?)?),
            _ => None,
        };
        let page_bytes = self.columns.page_bytes.get();
        let (address, usual) = if has(ID) {
            (name_of(fields[ID]), 1)
        } else if has(PAGE) {
            let past_end = bad(PAGE, Problem::PastEnd);
            (number(PAGE)?.checked_mul(page_bytes).ok_or(past_end)?, page_bytes as u32)
        } else if has(SECTOR) {
            (sectors_address(number(SECTOR)?)?, 1)
        } else {
            (number(ADDRESS)?, 1)
        };
        let is_object = has(ID);
        let (has_time, has_file) = (has(TIME), has(FILE));
        let time_ns = if has_time { self.time_ns(fields[TIME])? } else { 0 };
        let file = if has_file { self.file(fields[FILE])? } else { 0 };
        let request = Request { time_ns, address, length: size.unwrap_or(usual), file, kind };
        if is_object { Ok(Some(request)) } else { request.checked().map(Some) }
    }
}

/// What a word of an operation means; none if it is no read, write or hint of reads to come.
fn operation(word: &[u8]) -> Result<Option<Kind>, BadField> {
    match word.to_ascii_lowercase().as_slice() {
        // Of block traces and fio, then SCSI's commands.
        b"0" | b"28" | b"88" | b"a8" | b"08" => Ok(Some(Kind::Read)),
        b"1" | b"2a" | b"8a" | b"aa" | b"0a" | b"2e" | b"8e" | b"ae" => Ok(Some(Kind::Write)),
        b"2" => Ok(None),
        [b'0'..=b'9', last] if last.is_ascii_hexdigit() => Ok(None),
        [b'r' | b'g' | b'l', ..] => Ok(Some(Kind::Read)),
        [b'w' | b's' | b'p' | b'u' | b'i' | b'a' | b'c', ..] => Ok(Some(Kind::Write)),
        [b'h', ..] => Ok(Some(Kind::Ahead)),
        [b'd' | b't' | b'f' | b'n', ..] => Ok(None),
        _ => Err(bad(OP, Problem::UnknownWord)),
    }
}

/// The number of an object: its own, or 64 bits of a hash of its name.
fn name_of(word: &[u8]) -> u64 {
    whole(word).unwrap_or_else(|_| {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for byte in word {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        hash ^ hash >> 32
    })
}

/// Lines of one id each: a number, or a name where the format is named.
#[derive(Default)]
pub struct Ids;

/// Lines of one number each.
#[derive(Default)]
pub struct NumberIds;

impl ParseLine for Ids {
    const PAGING: Paging = Paging::Whole;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        let word = line.trim_ascii();
        if word.is_empty() {
            return Ok(None);
        }
        if word.iter().any(u8::is_ascii_whitespace) {
            return Err(BadField { field: "id", problem: Problem::Extra });
        }
        let (time_ns, file, length) = (0, 0, 1);
        Ok(Some(Request { time_ns, address: name_of(word), length, file, kind: Kind::Read }))
    }
}

impl ParseLine for NumberIds {
    const PAGING: Paging = Paging::Whole;

    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        whole(line.trim_ascii()).map_err(|problem| BadField { field: "id", problem })?;
        Ids.parse(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(text: &str) -> Result<Columns, String> {
        text.parse::<Columns>().map_err(|bad| bad.to_string())
    }

    #[test]
    fn columns_are_named() {
        assert!(columns("time=1,page=3,op=4").is_ok());
        assert!(columns("time=ts:us, id=key").is_ok());
        for (text, said) in [
            ("", "`` is no column"),
            ("page", "`page` is no column"),
            ("pge=3", "unknown column `pge`; known: time, id, page"),
            ("page=0", "columns are 1 to 64"),
            ("page=65", "columns are 1 to 64"),
            ("time=1", "one of id, page, address and sector"),
            ("page=1,id=2", "one of id, page, address and sector"),
            ("page=1,page=2", "`page` is named twice"),
            ("time=1:h,page=2", "`h` is no unit"),
        ] {
            let error = columns(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn fields_are_split_as_their_line_is() {
        let fields = |line: &'static str| {
            let line = line.as_bytes();
            let fields = Split::new(line, separator(line)).map(|f| String::from_utf8_lossy(f));
            fields.collect::<Vec<_>>().join("/")
        };
        assert_eq!(fields("1, 2 ,,3"), "1/2//3");
        assert_eq!(fields("1;2,5;3"), "1/2,5/3");
        assert_eq!(fields("  1   22 3 "), "1/22/3");
        assert_eq!(fields("\"a,b\",c,\"\""), "a,b/c/");
        assert_eq!(fields(""), "");
    }

    #[test]
    fn headers_are_understood() {
        for header in [
            "version,time,op,size,lbn",
            "# time, object, size, next_access_vtime",
            "TIME(s)     COMM           PID    DISK      T SECTOR     BYTES  LAT(ms)",
            "time_ns,op,address,length,file",
            "ts;key;size",
        ] {
            assert!(Columns::of_header(header.as_bytes()).is_some(), "{header}");
        }
        for header in ["1,2,3", "hello", "a,b,c", "time,value", ""] {
            assert!(Columns::of_header(header.as_bytes()).is_none(), "{header}");
        }
    }
}
