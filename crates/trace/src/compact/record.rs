//! The requests of a block as bytes.
//!
//! ```text
//! unit of time      1 byte    index into UNITS_NS: all times are multiples of it
//! address shift     1 byte    all addresses are multiples of 2 to this
//! then for each request
//! tag               1 byte
//! time              varint    zigzag of the step from the last time, in units   unless SAME_STEP
//! file              varint                                                      unless SAME_FILE
//! length            varint    bytes                                             unless SAME_LENGTH
//! address           varint    zigzag of the step from the last address, shifted unless SEQUENTIAL
//! ```
//!
//! Before the first request of a block all of these are zero. A varint is LEB128: seven bits a
//! byte, low ones first, at most ten bytes.
//!
//! - E1: steps wrap at 64 bits, so that any times and addresses can be written.
//! - E2: times that reach 2^63 have the unit of one nanosecond, so that steps are multiples of it.

use crate::error::{BadField, Problem};
use crate::request::{Addressing, Kind, Request};

const WRITE: u8 = 1;
/// The length is that of the request before.
const SAME_LENGTH: u8 = 2;
/// The file is that of the request before.
const SAME_FILE: u8 = 4;
/// The request begins where the one before ended.
const SEQUENTIAL: u8 = 8;
/// As much time has passed as before the request before.
const SAME_STEP: u8 = 16;
/// The request announces reads. It does not write.
const AHEAD: u8 = 32;
const TAG_END: u8 = 64;

/// Units of time, largest first.
const UNITS_NS: [u64; 5] = [1_000_000_000, 1_000_000, 1_000, 100, 1];
const SHIFT_MAX: u8 = 63;

/// What a request is written relative to.
#[derive(Clone, Copy)]
struct Before {
    time_ns: u64,
    step_ns: u64,
    file: u32,
    length: u32,
    address: u64,
}

const NOTHING: Before = Before { time_ns: 0, step_ns: 0, file: 0, length: 0, address: 0 };

impl Before {
    fn end(&self) -> u64 {
        self.address.wrapping_add(u64::from(self.length))
    }
}

/// Appends `requests` to `bytes`.
pub fn encode(requests: &[Request], bytes: &mut Vec<u8>) {
    let unit = unit_of(requests);
    let shift = requests.iter().map(|request| request.address.trailing_zeros()).min();
    let shift = shift.unwrap_or_default().min(u32::from(SHIFT_MAX)) as u8;
    bytes.extend([unit as u8, shift]);
    let mut before = NOTHING;
    for request in requests {
        before = encode_one(request, before, UNITS_NS[unit], shift, bytes);
    }
}

/// The largest unit that all times are multiples of.
fn unit_of(requests: &[Request]) -> usize {
    let mut unit = 0;
    for request in requests {
        if request.time_ns >= 1 << 63 {
            return UNITS_NS.len() - 1;
        }
        while !request.time_ns.is_multiple_of(UNITS_NS[unit]) {
            unit += 1;
        }
    }
    unit
}

fn encode_one(
    request: &Request,
    before: Before,
    unit_ns: u64,
    shift: u8,
    bytes: &mut Vec<u8>,
) -> Before {
    let step_ns = request.time_ns.wrapping_sub(before.time_ns);
    let mut tag = 0;
    let mut set = |flag, holds| tag |= if holds { flag } else { 0 };
    set(WRITE, request.kind == Kind::Write);
    set(AHEAD, request.kind == Kind::Ahead);
    set(SAME_LENGTH, request.length == before.length);
    set(SAME_FILE, request.file == before.file);
    set(SEQUENTIAL, request.address == before.end());
    set(SAME_STEP, step_ns == before.step_ns);
    bytes.push(tag);
    if tag & SAME_STEP == 0 {
        put_varint(bytes, zigzag(step_ns as i64 / unit_ns as i64));
    }
    if tag & SAME_FILE == 0 {
        put_varint(bytes, u64::from(request.file));
    }
    if tag & SAME_LENGTH == 0 {
        put_varint(bytes, u64::from(request.length));
    }
    if tag & SEQUENTIAL == 0 {
        put_varint(bytes, zigzag(request.address.wrapping_sub(before.address) as i64 >> shift));
    }
    let Request { time_ns, address, length, file, .. } = *request;
    Before { time_ns, step_ns, file, length, address }
}

/// Appends the `count` requests in `bytes` to `requests`.
///
/// # Errors
///
/// The field that is wrong; the requests before it have been appended.
pub fn decode(
    bytes: &[u8],
    count: u32,
    addressing: Addressing,
    requests: &mut Vec<Request>,
) -> Result<(), BadField> {
    let [unit, shift, rest @ ..] = bytes else {
        return Err(BadField { field: "unit of time", problem: Problem::Missing });
    };
    let Some(unit_ns) = UNITS_NS.get(usize::from(*unit)) else {
        return Err(BadField { field: "unit of time", problem: Problem::TooLarge });
    };
    if *shift > SHIFT_MAX {
        return Err(BadField { field: "address shift", problem: Problem::TooLarge });
    }
    let mut bytes = Varints { rest };
    let mut before = NOTHING;
    for _ in 0..count {
        let (request, step_ns) = decode_one(&mut bytes, before, *unit_ns, *shift)?;
        let request = match addressing {
            Addressing::Bytes => request.checked()?,
            Addressing::Objects => request,
        };
        let Request { time_ns, address, length, file, .. } = request;
        before = Before { time_ns, step_ns, file, length, address };
        requests.push(request);
    }
    if bytes.rest.is_empty() {
        Ok(())
    } else {
        Err(BadField { field: "requests", problem: Problem::Extra })
    }
}

#[inline]
fn decode_one(
    bytes: &mut Varints<'_>,
    before: Before,
    unit_ns: u64,
    shift: u8,
) -> Result<(Request, u64), BadField> {
    let tag = bytes.byte("tag")?;
    if tag >= TAG_END {
        return Err(BadField { field: "tag", problem: Problem::TooLarge });
    }
    let step_ns = if tag & SAME_STEP != 0 {
        before.step_ns
    } else {
        (unzigzag(bytes.varint("time")?) as u64).wrapping_mul(unit_ns)
    };
    let file = if tag & SAME_FILE != 0 { before.file } else { bytes.small("file")? };
    let length = if tag & SAME_LENGTH != 0 { before.length } else { bytes.small("length")? };
    let address = if tag & SEQUENTIAL != 0 {
        before.end()
    } else {
        before.address.wrapping_add((unzigzag(bytes.varint("address")?) as u64) << shift)
    };
    let time_ns = before.time_ns.wrapping_add(step_ns);
    let kind = match (tag & WRITE != 0, tag & AHEAD != 0) {
        (false, false) => Kind::Read,
        (true, false) => Kind::Write,
        (false, true) => Kind::Ahead,
        (true, true) => return Err(BadField { field: "tag", problem: Problem::UnknownWord }),
    };
    Ok((Request { time_ns, address, length, file, kind }, step_ns))
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Bytes that are taken off piece by piece.
struct Varints<'a> {
    rest: &'a [u8],
}

impl Varints<'_> {
    #[inline]
    fn byte(&mut self, field: &'static str) -> Result<u8, BadField> {
        let missing = BadField { field, problem: Problem::Missing };
        let (byte, rest) = self.rest.split_first().ok_or(missing)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    fn varint(&mut self, field: &'static str) -> Result<u64, BadField> {
        let mut value = 0;
        for at in 0..10 {
            let byte = self.byte(field)?;
            if at == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BadField { field, problem: Problem::TooLarge })
    }

    #[inline]
    fn small(&mut self, field: &'static str) -> Result<u32, BadField> {
        let value = self.varint(field)?;
        u32::try_from(value).map_err(|_| BadField { field, problem: Problem::TooLarge })
    }
}
