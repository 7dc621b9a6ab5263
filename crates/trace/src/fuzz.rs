//! What the fuzzer feeds: bytes to every reader of traces.
//!
//! - Z1: no bytes make a reader panic, or give a request past the end of addresses.
//! - Z2: what skips bad input gives at least what refuses it gives, and begins with the same.
//! - Z3: what was read can be written in our own format, and is read back the same.

use crate::compact::{CompactHeader, CompactWriter, file_of};
use crate::format::{FORMATS, Format};
use crate::pages::Paging;
use crate::reader::{ReadOptions, Reader};
use crate::request::{Addressing, Clock, Request};
use crate::tally::BadInput;

/// Requests that are read at most: a few packed bytes may be very many.
const REQUESTS_MAX: usize = 50_000;

/// Reads `bytes` in the format that the first of them chooses, or in whatever they look like.
pub fn trace(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let format = FORMATS.get(usize::from(*first)).map(|row| row.format);
    read(rest, format);
}

/// Reads `bytes` as our own format: its checksums are made right first, as a fuzzer does not.
pub fn compact_trace(bytes: &[u8]) {
    for addressing in [Addressing::Bytes, Addressing::Objects] {
        let Some((count, records)) = bytes.split_first() else { return };
        let header = CompactHeader { addressing, paging: Paging::Whole, clock: Clock::Kept };
        let file = file_of(header, u32::from(*count), records);
        read(&file, Some(Format::Compact));
    }
    read(bytes, Some(Format::Compact));
}

/// Reads `bytes` as a file of lines, compressed in whatever way its first bytes say.
pub fn packed_trace(bytes: &[u8]) {
    read(bytes, Some(Format::Spc));
}

fn read(bytes: &[u8], format: Option<Format>) {
    let whole = requests(bytes, format, BadInput::Refuse);
    let skipped = requests(bytes, format, BadInput::Skip);
    let (Some((addressing, whole)), Some((_, skipped))) = (whole, skipped) else { return };
    assert!(skipped.starts_with(&whole), "Z2");
    if addressing == Addressing::Bytes {
        assert!(skipped.iter().all(|request| request.checked() == Ok(*request)), "Z1");
    }
    let header = CompactHeader { addressing, paging: Paging::Whole, clock: Clock::Kept };
    let mut writer = CompactWriter::new(Vec::new(), header).expect("a vector takes it");
    for request in &skipped {
        writer.write(*request).expect("a vector takes it");
    }
    let written = writer.finish().expect("a vector takes it");
    let back = requests(&written, Some(Format::Compact), BadInput::Refuse);
    assert_eq!(back, Some((addressing, skipped)), "Z3");
}

fn requests(
    bytes: &[u8],
    format: Option<Format>,
    bad_input: BadInput,
) -> Option<(Addressing, Vec<Request>)> {
    let options = ReadOptions { format, bad_input, ..ReadOptions::default() };
    let reader = Reader::from_bytes("fuzz", bytes, &options).ok()?;
    let addressing = reader.addressing();
    let requests = reader.take(REQUESTS_MAX).map_while(Result::ok).collect();
    Some((addressing, requests))
}

#[cfg(test)]
mod tests {
    /// A small dose of what `fuzz/` does for hours: random bytes, and bytes of lines.
    #[test]
    fn readers_take_any_bytes() {
        let alphabet = b"0123456789,. -RWrwaddopenQD+\n\n<>()=/";
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes = vec![0; random.usize(..400)];
            random.fill(&mut bytes);
            super::compact_trace(&bytes);
            super::packed_trace(&bytes);
            if seed % 2 == 0 {
                for byte in bytes.iter_mut().skip(1) {
                    *byte = alphabet[usize::from(*byte) % alphabet.len()];
                }
            }
            super::trace(&bytes);
        }
    }
}
