//! One request of a trace: when, what, where, how much.
//!
//! - R1: a request to bytes ends at or before [`ADDRESS_END`], so its end never overflows.
//! - R2: the address of a request to an object is the object's name, and may be any number.

use crate::error::{BadField, Problem};

/// Addresses of bytes, and the ends of requests, are at most this: 2^63.
pub const ADDRESS_END: u64 = 1 << 63;
/// Bytes of the sectors that block traces count in.
pub const SECTOR_BYTES: u64 = 512;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It announces reads: a scan will soon want these bytes. It reads nothing by itself.
    Ahead,
}

/// What the address of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// A byte of a file or device: a request covers the bytes from there on.
    Bytes,
    /// The name of an object, which a request takes whole.
    Objects,
}

/// Whether the times of a trace are times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// They count nanoseconds.
    Kept,
    /// They order the requests and say nothing else: numbers of requests, say. No span, pace or
    /// rate follows from them.
    Absent,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// When it came, in nanoseconds from whatever the trace counts from.
    pub time_ns: u64,
    /// The first byte, or the name of the object.
    pub address: u64,
    /// Bytes; may be zero.
    pub length: u32,
    /// Which file or device.
    pub file: u32,
    /// Whether it reads, writes, or announces reads.
    pub kind: Kind,
}

impl Request {
    /// The byte after its last; of an object no more than a number.
    pub fn end(&self) -> u64 {
        self.address.wrapping_add(u64::from(self.length))
    }

    /// Checks R1.
    ///
    /// # Errors
    ///
    /// The field `address`, if the request reaches past [`ADDRESS_END`].
    pub fn checked(self) -> Result<Request, BadField> {
        match self.address.checked_add(u64::from(self.length)) {
            Some(end) if end <= ADDRESS_END => Ok(self),
            _ => Err(BadField { field: "address", problem: Problem::PastEnd }),
        }
    }
}

/// Bytes of the given number of sectors.
///
/// # Errors
///
/// The field `address`, past [`ADDRESS_END`].
pub fn sectors_address(sectors: u64) -> Result<u64, BadField> {
    sectors
        .checked_mul(SECTOR_BYTES)
        .filter(|address| *address <= ADDRESS_END)
        .ok_or(BadField { field: "address", problem: Problem::PastEnd })
}

/// Bytes of the given number of sectors, as a length.
///
/// # Errors
///
/// The field `length`, if it is 4 GiB or more.
pub fn sectors_length(sectors: u64) -> Result<u32, BadField> {
    bytes_length(sectors.saturating_mul(SECTOR_BYTES))
}

/// `bytes` as a length.
///
/// # Errors
///
/// The field `length`, if it is 4 GiB or more.
pub fn bytes_length(bytes: u64) -> Result<u32, BadField> {
    u32::try_from(bytes).map_err(|_| BadField { field: "length", problem: Problem::TooLarge })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_below_the_limit() {
        let last =
            Request { time_ns: 0, address: ADDRESS_END - 1, length: 1, file: 0, kind: Kind::Read };
        assert_eq!(last.checked(), Ok(last));
        for (address, length) in [(ADDRESS_END, 1), (u64::MAX, 1), (ADDRESS_END - 1, 2)] {
            let error = Request { address, length, ..last }.checked().unwrap_err();
            assert_eq!(error, BadField { field: "address", problem: Problem::PastEnd });
        }
    }

    #[test]
    fn sectors_are_bytes() {
        assert_eq!(sectors_address(3), Ok(1536));
        assert_eq!(sectors_address(ADDRESS_END / 512), Ok(ADDRESS_END));
        assert!(sectors_address(ADDRESS_END / 512 + 1).is_err());
        assert!(sectors_address(u64::MAX).is_err());
        assert_eq!(sectors_length(16), Ok(8192));
        assert!(sectors_length(8_388_608).is_err());
        assert!(sectors_length(u64::MAX).is_err());
    }
}
