//! The block traces of CacheLib, from Meta's Tectonic: CSV with a header that names the columns.
//!
//! Used are `op_time` in seconds, `block_id`, `rs_shard_id`, `io_offset` and `io_size` in bytes,
//! `op_name`, which begins with `getChunkData` or `putChunk`, and `op_count`, how often the request
//! was made; other operations are no requests. Only the time, the shard and the count may be
//! missing. Without a header the columns are those of the published files.
//!
//! A block's shard is a file of its own, but there are more of them than file numbers. So file and
//! the upper bits of the address are 56 bits of a hash of block and shard, and the lower 38 bits of
//! the address the offset: among a million blocks two share their pages once in 130,000 traces.
//! Source: CacheLib, `cachebench/workload/BlockChunkReplayGenerator.h`.

use crate::error::{BadField, Problem};
use crate::fields::{Commas, decimal, whole};
use crate::lines::ParseLine;
use crate::request::{Kind, Request, bytes_length};

const SECOND_NS: u64 = 1_000_000_000;
const OFFSET_BITS: u32 = 38;
const BLOCK_BITS: u32 = 24;
/// How often one line says at most that its request was made.
const TIMES_MAX: u64 = 1_000;

/// The columns that are used.
const COLUMNS: [&str; 7] =
    ["op_time", "block_id", "rs_shard_id", "io_offset", "io_size", "op_name", "op_count"];
const TIME: usize = 0;
const BLOCK: usize = 1;
const SHARD: usize = 2;
const OFFSET: usize = 3;
const SIZE: usize = 4;
const OPERATION: usize = 5;
const COUNT: usize = 6;
/// Those that must be there.
const NEEDED: [usize; 4] = [BLOCK, OFFSET, SIZE, OPERATION];
/// Where they are in the published files.
const PUBLISHED: [Option<usize>; 7] =
    [Some(0), Some(1), Some(10), Some(4), Some(3), Some(7), Some(8)];
/// Columns that a line may have.
const LINE_COLUMNS_MAX: usize = 64;

/// Lines of such a file.
pub struct Tectonic {
    /// Where each column is.
    columns: [Option<usize>; 7],
    times: usize,
}

impl Default for Tectonic {
    fn default() -> Tectonic {
        Tectonic { columns: PUBLISHED, times: 1 }
    }
}

impl ParseLine for Tectonic {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        if is_header(line) {
            self.columns = columns(line)?;
            return Ok(None);
        }
        let words = self.words(line)?;
        let kind = match words[OPERATION] {
            operation if operation.starts_with(b"getChunkData") => Kind::Read,
            operation if operation.starts_with(b"putChunk") => Kind::Write,
            _ => return Ok(None),
        };
        let time_ns = match words[TIME] {
            b"" => 0,
            time => decimal(time, SECOND_NS).map_err(|problem| bad(TIME, problem))?,
        };
        let number = |column: usize| whole(words[column]).map_err(|problem| bad(column, problem));
        let offset = number(OFFSET)?;
        let length = bytes_length(number(SIZE)?)?;
        let times = if words[COUNT].is_empty() { 1 } else { number(COUNT)? };
        if times > TIMES_MAX {
            return Err(bad(COUNT, Problem::TooLarge));
        }
        if offset + u64::from(length) > 1 << OFFSET_BITS {
            return Err(bad(OFFSET, Problem::PastEnd));
        }
        self.times = times as usize;
        let block = hash(words[BLOCK], words[SHARD]);
        let file = (block >> 32) as u32;
        let address = (block & ((1 << BLOCK_BITS) - 1)) << OFFSET_BITS | offset;
        Request { time_ns, address, length, file, kind }.checked().map(Some)
    }

    fn times(&self) -> usize {
        self.times
    }
}

impl Tectonic {
    /// The words of the columns that are used; empty for those that are not there.
    fn words<'a>(&self, line: &'a [u8]) -> Result<[&'a [u8]; 7], BadField> {
        let mut words = [&b""[..]; 7];
        for (at, word) in line.split(|byte| *byte == b',').take(LINE_COLUMNS_MAX).enumerate() {
            if let Some(column) = self.columns.iter().position(|place| *place == Some(at)) {
                words[column] = word.trim_ascii();
            }
        }
        let missing = NEEDED.into_iter().find(|column| words[*column].is_empty());
        missing.map_or(Ok(words), |column| Err(bad(column, Problem::Missing)))
    }
}

fn bad(column: usize, problem: Problem) -> BadField {
    BadField { field: COLUMNS[column], problem }
}

fn is_header(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b',');
    words.any(|word| word.trim_ascii() == COLUMNS[BLOCK].as_bytes())
}

/// Where the columns are, by a header.
fn columns(header: &[u8]) -> Result<[Option<usize>; 7], BadField> {
    let mut fields = Commas::new(header);
    let mut found = [None; 7];
    for at in 0..LINE_COLUMNS_MAX {
        let Ok(word) = fields.word("header") else { break };
        if let Some(column) = COLUMNS.iter().position(|name| name.as_bytes() == word) {
            found[column] = Some(at);
        }
    }
    let missing = NEEDED.into_iter().find(|column| found[*column].is_none());
    missing.map_or(Ok(found), |column| Err(bad(column, Problem::Missing)))
}

/// FNV-1a of both words, mixed once more.
fn hash(block: &[u8], shard: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in block.iter().chain(b",").chain(shard) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    }
    hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash ^ hash >> 32
}
