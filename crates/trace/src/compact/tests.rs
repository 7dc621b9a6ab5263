//! What is written is read back, and damage costs what it hits.

use super::layout::{BLOCK_REQUESTS_MAX, CompactHeader, HEADER_BYTES};
use super::writer::CompactWriter;
use crate::error::{BadField, Place, Problem, TraceError};
use crate::pages::{PageBytes, Paging};
use crate::reader::{ReadOptions, Reader};
use crate::request::{Addressing, Clock, Kind, Request};
use crate::tally::BadInput;

const BYTES: CompactHeader = CompactHeader {
    addressing: Addressing::Bytes,
    paging: Paging::Split(PageBytes::DEFAULT),
    clock: Clock::Kept,
};
const OBJECTS: CompactHeader =
    CompactHeader { addressing: Addressing::Objects, paging: Paging::Whole, clock: Clock::Absent };
const BLOCK: usize = BLOCK_REQUESTS_MAX as usize;

fn written(header: CompactHeader, requests: &[Request]) -> Vec<u8> {
    let mut writer = CompactWriter::new(Vec::new(), header).expect("a vector");
    for request in requests {
        writer.write(*request).expect("a vector");
    }
    writer.finish().expect("a vector")
}

fn reader(bytes: &[u8], bad_input: BadInput) -> Result<Reader, TraceError> {
    Reader::from_bytes("test", bytes, &ReadOptions { bad_input, ..ReadOptions::default() })
}

fn read(bytes: &[u8], bad_input: BadInput) -> (Vec<Request>, Option<TraceError>, u64) {
    let mut reader = reader(bytes, bad_input).expect("the format is told");
    let mut requests = Vec::new();
    let mut failure = None;
    for request in reader.by_ref() {
        match request {
            Ok(request) => requests.push(request),
            Err(error) => failure = Some(error),
        }
    }
    (requests, failure, reader.tally().skipped)
}

/// Requests in many styles: steady and jumping times, sequential, near and far addresses.
fn random_requests(random: &mut fastrand::Rng, count: usize, limit: u64) -> Vec<Request> {
    let unit = random.choice([1, 100, 1_000, 1_000_000_000]).expect("one of four");
    let (mut time_ns, mut address) = (random.u64(..1 << 30) * unit, 0_u64);
    let mut requests: Vec<Request> = Vec::new();
    for _ in 0..count {
        let before = requests.last().copied();
        time_ns = match random.u8(..8) {
            0 => random.u64(..),
            1 => time_ns,
            2 => time_ns.wrapping_sub(random.u64(..1000) * unit),
            _ => time_ns.wrapping_add(7 * unit),
        };
        let length = match (random.u8(..4), before) {
            (0, _) | (_, None) => {
                let bits = random.u32(0..32);
                random.u32(..1 << bits)
            }
            (_, Some(before)) => before.length,
        };
        address = match (random.u8(..4), before) {
            (0, Some(before)) => before.end(),
            (1, _) => random.u64(..limit),
            _ => address.wrapping_add(8192 * random.u64(..50)),
        };
        address = address.min(limit - u64::from(length));
        let kind = [Kind::Read, Kind::Write, Kind::Ahead][random.usize(..3)];
        let file = if random.u8(..9) == 0 { random.u32(..) } else { 3 };
        requests.push(Request { time_ns, address, length, file, kind });
    }
    requests
}

#[test]
fn what_is_written_is_read_back() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (header, limit) = if seed % 2 == 0 { (BYTES, 1 << 63) } else { (OBJECTS, u64::MAX) };
        let count = random.usize(..if seed < 20 { 3 * BLOCK } else { 300 });
        let requests = random_requests(&mut random, count, limit);
        let bytes = written(header, &requests);
        let reader = reader(&bytes, BadInput::Refuse).expect("the format is told");
        assert_eq!((reader.addressing(), reader.paging()), (header.addressing, header.paging));
        let back: Result<Vec<Request>, _> = reader.collect();
        assert_eq!(back.expect("whole"), requests, "seed {seed}");
    }
}

#[test]
fn an_empty_trace_is_two_headers() {
    let bytes = written(BYTES, &[]);
    assert_eq!(bytes.len(), 2 * HEADER_BYTES);
    let (requests, failure, skipped) = read(&bytes, BadInput::Refuse);
    assert!(requests.is_empty() && failure.is_none() && skipped == 0);
}

fn three_blocks() -> (Vec<Request>, Vec<u8>, usize) {
    let requests = random_requests(&mut fastrand::Rng::with_seed(7), 2 * BLOCK + 100, 1 << 40);
    let bytes = written(BYTES, &requests);
    let first = written(BYTES, &requests[..BLOCK]).len() - HEADER_BYTES;
    (requests, bytes, first)
}

#[test]
fn damage_costs_the_block_that_it_hits() {
    let (requests, bytes, second_at) = three_blocks();
    for damaged_at in [second_at + HEADER_BYTES + 1_000, second_at + 9, second_at] {
        let mut damaged = bytes.clone();
        damaged[damaged_at] ^= 0x10;
        let (before, failure, _) = read(&damaged, BadInput::Refuse);
        assert_eq!(before, requests[..BLOCK]);
        let Some(TraceError::Bad { place, what, .. }) = failure else { panic!("{failure:?}") };
        assert_eq!(place, Place::Block { number: 2, offset: second_at as u64 });
        assert_eq!(what.problem, Problem::Checksum);
        let (rest, failure, skipped) = read(&damaged, BadInput::Skip);
        assert!(failure.is_none());
        assert_eq!(skipped, 1);
        assert_eq!(rest, [&requests[..BLOCK], &requests[2 * BLOCK..]].concat());
    }
}

#[test]
fn a_file_that_is_cut_off_says_so_wherever_the_cut() {
    let (requests, bytes, second_at) = three_blocks();
    let cuts = [second_at, second_at + 1, second_at + HEADER_BYTES, bytes.len() - HEADER_BYTES];
    for cut in cuts.into_iter().chain([bytes.len() - 1, second_at + 5_000]) {
        let (before, failure, _) = read(&bytes[..cut], BadInput::Refuse);
        assert!(requests.starts_with(&before));
        let Some(TraceError::Bad { what, .. }) = failure else { panic!("{cut}: {failure:?}") };
        assert_eq!(what.problem, Problem::Missing, "{cut}");
        let (again, failure, skipped) = read(&bytes[..cut], BadInput::Skip);
        assert!(failure.is_none() && skipped == 1 && again == before, "{cut}");
    }
}

#[test]
fn a_block_that_is_missing_is_noticed() {
    let (requests, bytes, second_at) = three_blocks();
    let third_at = written(BYTES, &requests[..2 * BLOCK]).len() - HEADER_BYTES;
    let without = [&bytes[..second_at], &bytes[third_at..]].concat();
    let (_, failure, _) = read(&without, BadInput::Refuse);
    let Some(TraceError::Bad { what, .. }) = failure else { panic!("{failure:?}") };
    assert_eq!(what, BadField { field: "first request", problem: Problem::Contradiction });
    let last = [&bytes[..third_at], &bytes[bytes.len() - HEADER_BYTES..]].concat();
    let (_, failure, _) = read(&last, BadInput::Refuse);
    let Some(TraceError::Bad { what, .. }) = failure else { panic!("{failure:?}") };
    assert_eq!(what, BadField { field: "trailer", problem: Problem::Contradiction });
}

#[test]
fn a_later_version_is_refused() {
    let mut bytes = written(BYTES, &[]);
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let Err(TraceError::Bad { what, .. }) = reader(&bytes, BadInput::Skip).map(|_| ()) else {
        panic!("it is refused")
    };
    assert_eq!(what.problem, Problem::Version);
}
