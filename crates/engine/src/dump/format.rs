//! The dump format: tables with their rows in one stream of bytes, as it goes through a pipe.
//!
//! ```text
//! dump:   head, frames (see `frames`), with the magic "TERRDUMP", version 1, and no salt
//!
//! kind       payload
//! 1 table    2 kind of table (0: typed), then each with its length in 4 bytes in front: name, name
//!            of the key's type, name of the value's type, schema (`schema.rs`; empty if none)
//! 2 rows     rows one after another: 2 key_len, 4 value_len, key, value
//! 3 large    8 value_len, key: a row whose value comes in pieces
//! 4 piece    bytes of that value
//! 5 rows_end 8 rows of the table, 1 state: 0 whole, 1 some were lost
//! 6 end      8 tables, 1 state: 0 whole, 1 something was lost
//!
//! dump  = head table* end         table = table (rows | large piece*)* rows_end
//! ```
//!
//! - D1: keys ascend within a table, and names ascend, so that equal tables have equal dumps: how
//!   rows are divided into frames depends on nothing else.
//! - D2: frames are as in frames.F1. A dump without `end` was cut short.
//! - D3: a reader takes memory for what it was sent, not for what a length claims.

use std::fmt;
use std::io::{self, Read, Write};

use crate::btree::VALUE_MAX;
use crate::frames::{FrameError, FrameReader, FrameWriter, StreamKind};
use crate::{Schema, TableInfo};

/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
const DUMP: StreamKind =
    StreamKind { magic: *b"TERRDUMP", version: VERSION, payload_max: FRAME_BYTES_MAX };
/// A frame of rows ends before it would be longer, and so does a piece.
const FRAME_BYTES: usize = 64 << 10;
/// No frame is longer.
const FRAME_BYTES_MAX: usize = 1 << 20;
const ROW_HEAD: usize = 6;
const KEY_LEN_MAX: usize = u16::MAX as usize;
/// The names of both types, which the catalog keeps with a zero between them.
const TYPES_LEN_MAX: usize = u16::MAX as usize - 1;

const TABLE: u8 = 1;
const ROWS: u8 = 2;
const LARGE: u8 = 3;
const PIECE: u8 = 4;
const ROWS_END: u8 = 5;
const END: u8 = 6;

/// Whether all is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All that the table, or the database, held.
    Whole,
    /// Something could not be read.
    Partial,
}

/// What a reader meets, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A table begins.
    Table(TableInfo),
    /// A row of it.
    Row {
        /// The encoded key.
        key: &'a [u8],
        /// The encoded value.
        value: &'a [u8],
    },
    /// The table ends.
    TableEnd(State),
    /// The dump ends.
    End(State),
}

/// Why a dump cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum DumpError {
    /// Reading it failed.
    Io(io::Error),
    /// It is something else.
    NotADump,
    /// It was written by a newer version. Use that one.
    Newer {
        /// The version found.
        found: u32,
    },
    /// It ends before its end. Copy it again.
    Cut {
        /// How many bytes there are.
        at: u64,
    },
    /// Its bytes are not what was written. Copy it again.
    Damaged {
        /// Where the frame begins.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpError::Io(source) => write!(f, "the dump cannot be read: {source}"),
            DumpError::NotADump => f.write_str("it is no dump of a database"),
            DumpError::Newer { found } => write!(
                f,
                "the dump has version {found}, this version reads up to {VERSION}: use a newer one"
            ),
            DumpError::Cut { at } => {
                write!(f, "the dump ends too early, after {at} bytes: copy it again")
            }
            DumpError::Damaged { at, what } => {
                write!(f, "the dump is damaged at byte {at}: {what}; copy it again")
            }
        }
    }
}

impl std::error::Error for DumpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DumpError::Io(source) => Some(source),
            _ => None,
        }
    }
}

impl From<FrameError> for DumpError {
    fn from(error: FrameError) -> DumpError {
        match error {
            FrameError::Io(source) => DumpError::Io(source),
            FrameError::Foreign => DumpError::NotADump,
            FrameError::Newer { found } => DumpError::Newer { found },
            FrameError::Cut { at } => DumpError::Cut { at },
            FrameError::Damaged { at, what } => DumpError::Damaged { at, what },
        }
    }
}

fn state_byte(state: State) -> u8 {
    match state {
        State::Whole => 0,
        State::Partial => 1,
    }
}

fn state_of(byte: u8) -> Option<State> {
    match byte {
        0 => Some(State::Whole),
        1 => Some(State::Partial),
        _ => None,
    }
}

/// Writes a dump.
pub struct Writer<W: Write> {
    frames: FrameWriter<W>,
    tables: u64,
    rows: u64,
    /// Rows that wait for their frame.
    waiting: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a dump.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(out: W) -> io::Result<Writer<W>> {
        let frames = FrameWriter::new(out, &DUMP)?;
        Ok(Writer { frames, tables: 0, rows: 0, waiting: Vec::new() })
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        self.frames.frame(kind, &[payload])
    }

    /// Begins a table, whose rows follow.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn table(&mut self, table: &TableInfo) -> io::Result<()> {
        let mut payload = vec![0; 2];
        let names = [&table.name, &table.key_type, &table.value_type].map(|name| name.as_bytes());
        let schema = table.schema.as_ref().map_or(Vec::new(), Schema::encode);
        for bytes in names.into_iter().chain([&schema[..]]) {
            payload.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            payload.extend_from_slice(bytes);
        }
        (self.tables, self.rows) = (self.tables + 1, 0);
        self.frame(TABLE, &payload)
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// Those of the output.
    ///
    /// # Panics
    ///
    /// If the key is longer than any key may be.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(key.len() <= KEY_LEN_MAX, "a key of {} bytes", key.len());
        self.rows += 1;
        let bytes = ROW_HEAD + key.len() + value.len();
        if self.waiting.len() + bytes > FRAME_BYTES {
            self.flush_rows()?;
        }
        if bytes <= FRAME_BYTES {
            self.waiting.extend_from_slice(&(key.len() as u16).to_le_bytes());
            self.waiting.extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.waiting.extend_from_slice(key);
            self.waiting.extend_from_slice(value);
            return Ok(());
        }
        let mut payload = (value.len() as u64).to_le_bytes().to_vec();
        payload.extend_from_slice(key);
        self.frame(LARGE, &payload)?;
        value.chunks(FRAME_BYTES).try_for_each(|piece| self.frame(PIECE, piece))
    }

    fn flush_rows(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut rows = std::mem::take(&mut self.waiting);
        let written = self.frame(ROWS, &rows);
        rows.clear();
        self.waiting = rows;
        written
    }

    /// Ends the table.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn end_table(&mut self, state: State) -> io::Result<()> {
        self.flush_rows()?;
        let mut payload = self.rows.to_le_bytes().to_vec();
        payload.push(state_byte(state));
        self.frame(ROWS_END, &payload)
    }

    /// Ends the dump.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn finish(mut self, state: State) -> io::Result<W> {
        let mut payload = self.tables.to_le_bytes().to_vec();
        payload.push(state_byte(state));
        self.frame(END, &payload)?;
        self.frames.out.flush()?;
        Ok(self.frames.out)
    }
}

/// Where a reader is in the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Dump,
    Table,
    Ended,
}

/// Reads a dump.
pub struct Reader<R: Read> {
    frames: FrameReader<R>,
    within: Within,
    tables: u64,
    rows: u64,
    name: Option<String>,
    /// Where the next row begins in a frame of rows.
    next_row: Option<usize>,
    /// A row in pieces.
    large_key: Vec<u8>,
    large_value: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// `Io`, `NotADump`, `Newer`, `Cut`, `Damaged`.
    pub fn new(input: R) -> Result<Reader<R>, DumpError> {
        Ok(Reader {
            frames: FrameReader::new(input, &DUMP)?,
            within: Within::Dump,
            tables: 0,
            rows: 0,
            name: None,
            next_row: None,
            large_key: Vec::new(),
            large_value: Vec::new(),
        })
    }

    fn damaged(&self, what: &'static str) -> DumpError {
        self.frames.damaged(what).into()
    }

    /// Reads the next frame and returns its kind.
    fn frame(&mut self) -> Result<u8, DumpError> {
        Ok(self.frames.next_frame()?)
    }

    fn payload(&self) -> &[u8] {
        self.frames.payload()
    }

    /// What comes next. After `End` there is nothing: it must not be asked again.
    ///
    /// # Errors
    ///
    /// `Io`, `Cut`, `Damaged`.
    ///
    /// # Panics
    ///
    /// After `End`.
    pub fn next_event(&mut self) -> Result<Event<'_>, DumpError> {
        assert!(self.within != Within::Ended, "a dump has one end");
        if let Some(at) = self.next_row {
            return self.row(at);
        }
        let kind = self.frame()?;
        match (kind, self.within) {
            (TABLE, Within::Dump) => self.table().map(Event::Table),
            (ROWS, Within::Table) if self.payload().is_empty() => {
                Err(self.damaged("a frame without rows"))
            }
            (ROWS, Within::Table) => self.row(0),
            (LARGE, Within::Table) => self.large(),
            (ROWS_END, Within::Table) => {
                let state = self.counted(self.rows)?;
                self.within = Within::Dump;
                Ok(Event::TableEnd(state))
            }
            (END, Within::Dump) => {
                let state = self.counted(self.tables)?;
                self.within = Within::Ended;
                self.frames.check_end()?;
                Ok(Event::End(state))
            }
            _ => Err(self.damaged("a frame that has no place here")),
        }
    }

    fn table(&mut self) -> Result<TableInfo, DumpError> {
        let bad = || self.damaged("a table's description makes no sense");
        let (kind, mut rest) = self.payload().split_first_chunk::<2>().ok_or_else(bad)?;
        if *kind != [0; 2] {
            return Err(self.damaged("a table of a kind that this version does not know"));
        }
        let mut field = || {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = after;
            Some(bytes.to_vec())
        };
        let mut text = || field().and_then(|bytes| String::from_utf8(bytes).ok());
        let names = (text(), text(), text());
        let (Some(name), Some(key_type), Some(value_type)) = names else { return Err(bad()) };
        let schema = field().filter(|_| rest.is_empty()).ok_or_else(bad)?;
        let schema = match &schema[..] {
            [] => None,
            bytes => Some(Schema::decode(bytes).ok_or_else(bad)?),
        };
        if key_type.len() + value_type.len() > TYPES_LEN_MAX {
            return Err(self.damaged("the names of a table's types are too long"));
        }
        if self.name.as_ref().is_some_and(|last| *last >= name) {
            return Err(self.damaged("its tables are not in the order of their names"));
        }
        self.name = Some(name.clone());
        (self.within, self.tables, self.rows) = (Within::Table, self.tables + 1, 0);
        Ok(TableInfo { name, key_type, value_type, schema, damage: None })
    }

    /// The row at `at` of the frame.
    fn row(&mut self, at: usize) -> Result<Event<'_>, DumpError> {
        let parts = |rest: &[u8]| {
            let (head, rest) = rest.split_first_chunk::<ROW_HEAD>()?;
            let key = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let value = u32::from_le_bytes(head[2..].try_into().expect("four bytes")) as usize;
            (rest.len() >= key.checked_add(value)?).then_some((key, value))
        };
        let Some((key_len, value_len)) = parts(&self.payload()[at..]) else {
            return Err(self.damaged("a row is longer than its frame"));
        };
        let key = at + ROW_HEAD;
        let (value, end) = (key + key_len, key + key_len + value_len);
        self.next_row = (end < self.payload().len()).then_some(end);
        self.rows += 1;
        Ok(Event::Row { key: &self.payload()[key..value], value: &self.payload()[value..end] })
    }

    /// A row in pieces, whose first frame was read.
    fn large(&mut self) -> Result<Event<'_>, DumpError> {
        let head = self.payload().split_first_chunk::<8>();
        let (len, key) = head.ok_or_else(|| self.damaged("a large row has no length"))?;
        let len = u64::from_le_bytes(*len);
        if len > VALUE_MAX as u64 || key.len() > KEY_LEN_MAX {
            return Err(self.damaged("a large row is too large"));
        }
        self.large_key = key.to_vec();
        self.large_value.clear();
        while (self.large_value.len() as u64) < len {
            let left = len - self.large_value.len() as u64;
            let kind = self.frame()?;
            if kind != PIECE || self.payload().is_empty() || self.payload().len() as u64 > left {
                return Err(self.damaged("a large row lacks a piece"));
            }
            self.large_value.extend_from_slice(self.frames.payload());
        }
        self.rows += 1;
        Ok(Event::Row { key: &self.large_key, value: &self.large_value })
    }

    /// The state, if the count before it is `expected`.
    fn counted(&self, expected: u64) -> Result<State, DumpError> {
        let bad = || self.damaged("its counts are wrong");
        let (count, state) = self.payload().split_first_chunk::<8>().ok_or_else(bad)?;
        match state {
            [state] if u64::from_le_bytes(*count) == expected => state_of(*state).ok_or_else(bad),
            _ => Err(bad()),
        }
    }
}

/// Reads any bytes as a dump, also with their checksums made right: it returns.
pub(crate) fn fuzz(bytes: &[u8]) {
    drain(bytes);
    let mut whole = FrameWriter::new(Vec::new(), &DUMP).expect("memory");
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([head[1], head[2]])) % 300;
        let payload = &after[..len.min(after.len())];
        whole.frame(head[0] % 8, &[payload]).expect("memory");
        rest = &after[payload.len()..];
    }
    drain(&whole.out);
}

fn drain(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    while !matches!(reader.next_event(), Ok(Event::End(_)) | Err(_)) {}
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    type Rows = Vec<(Vec<u8>, Vec<u8>)>;

    fn schema(prng: &mut Prng) -> Schema {
        let column = |at: u64| crate::Column {
            name: at.to_string(),
            type_name: "INT".into(),
            is_nullable: at % 2 == 1,
        };
        Schema::new((0..prng.below(5)).map(column).collect(), 0).expect("sound")
    }

    fn random_tables(prng: &mut Prng) -> Vec<(TableInfo, Rows, State)> {
        let tables = prng.below(4);
        (0..tables)
            .map(|number| {
                let info = TableInfo {
                    name: format!("table {number}"),
                    key_type: "u64".into(),
                    value_type: "&[u8]".into(),
                    schema: prng.chance(2).then(|| schema(prng)),
                    damage: None,
                };
                let rows = (0..prng.below(300))
                    .map(|key| {
                        let most = [20, 3_000, 200_000][prng.below(3) as usize];
                        let len = if prng.chance(20) { prng.below(most) } else { prng.below(40) };
                        (key.to_be_bytes().to_vec(), vec![prng.next_u64() as u8; len as usize])
                    })
                    .collect();
                let state = if prng.chance(4) { State::Partial } else { State::Whole };
                (info, rows, state)
            })
            .collect()
    }

    type Tables = Vec<(TableInfo, Rows, State)>;

    fn encode(tables: &[(TableInfo, Rows, State)], state: State) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).expect("memory");
        for (info, rows, state) in tables {
            writer.table(info).expect("memory");
            rows.iter().for_each(|(key, value)| writer.row(key, value).expect("memory"));
            writer.end_table(*state).expect("memory");
        }
        writer.finish(state).expect("memory")
    }

    fn decode(bytes: &[u8]) -> Result<(Tables, State), DumpError> {
        let mut reader = Reader::new(bytes)?;
        let mut tables = Tables::new();
        loop {
            match reader.next_event()? {
                Event::Table(info) => tables.push((info, Vec::new(), State::Whole)),
                Event::Row { key, value } => {
                    tables.last_mut().expect("one").1.push((key.to_vec(), value.to_vec()));
                }
                Event::TableEnd(state) => tables.last_mut().expect("one").2 = state,
                Event::End(state) => return Ok((tables, state)),
            }
        }
    }

    #[test]
    fn a_dump_comes_back_as_it_was() {
        for seed in 0..60 {
            let tables = random_tables(&mut Prng::from_seed(seed));
            let bytes = encode(&tables, State::Whole);
            let (read, state) = decode(&bytes).expect("whole");
            assert!(read == tables, "seed {seed}");
            assert_eq!(state, State::Whole);
            assert_eq!(encode(&read, state), bytes, "seed {seed}");
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_seen() {
        let mut prng = Prng::from_seed(3);
        for seed in 0..20 {
            let bytes = encode(&random_tables(&mut Prng::from_seed(seed)), State::Partial);
            for _ in 0..40 {
                let at = prng.below(bytes.len() as u64) as usize;
                assert!(decode(&bytes[..at]).is_err(), "seed {seed}: cut at {at}");
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << prng.below(8);
                assert!(decode(&flipped).is_err(), "seed {seed}: flipped at {at}");
            }
            let longer = [&bytes[..], b"x"].concat();
            assert!(matches!(decode(&longer), Err(DumpError::Damaged { .. })));
        }
    }

    #[test]
    fn what_is_no_dump_and_what_is_newer_is_told() {
        assert!(matches!(decode(b""), Err(DumpError::NotADump)));
        assert!(matches!(decode(b"CREATE TABLE"), Err(DumpError::NotADump)));
        let mut newer = encode(&[], State::Whole);
        newer[8] = 2;
        let sum = crc32c::crc32c(&newer[..16]);
        newer[16..20].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode(&newer), Err(DumpError::Newer { found: 2 })));
    }

    #[test]
    fn garbage_is_survived() {
        let mut prng = Prng::from_seed(9);
        for _ in 0..3_000 {
            let mut bytes = vec![0; prng.below(2_000) as usize];
            bytes.iter_mut().for_each(|byte| *byte = prng.next_u64() as u8 % 9);
            fuzz(&bytes);
        }
    }
}
