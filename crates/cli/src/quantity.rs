//! Sizes, shares and times as they are written on the command line.
//!
//! ```text
//! size   64MiB  64M  1.5GiB (2^30)  10GB (10^9)  300p (pages of 8 KiB)
//!        10%  0.1 (of the loaded database)
//! share  50%  0.5
//! time   90s  3.6s  250ms  6min  1h
//! ```
//!
//! Units are read whatever their case.

use std::fmt;
use std::str::FromStr;

/// Bytes in a page.
const PAGE_BYTES: f64 = 8192.0;

/// A size: of its own, or relative to the loaded database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Pages of 8 KiB.
    Pages(u64),
    /// Share of the loaded database.
    OfDatabase(f64),
}

impl Size {
    /// In bytes, if it is a size of its own.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Size::Pages(pages) => Some(pages * PAGE_BYTES as u64),
            Size::OfDatabase(_) => None,
        }
    }

    /// In pages, rounded down, for a database of `database_pages`.
    pub fn pages(self, database_pages: u64) -> u64 {
        match self {
            Size::Pages(pages) => pages,
            Size::OfDatabase(share) => (share * database_pages as f64) as u64,
        }
    }
}

/// Units of sizes, in lower case; of two that a text may end with, the longer first.
const SIZES: [(&str, f64); 15] = [
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("k", 1024.0),
    ("m", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("t", 1_099_511_627_776.0),
    ("b", 1.0),
    ("pages", PAGE_BYTES),
    ("p", PAGE_BYTES),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || format!("`{text}` is no size; write 64MiB, 10GB, 25600p (pages) or 10%");
        if let Some(share) = share_of_all(text) {
            return Ok(Size::OfDatabase(share));
        }
        let bytes = number_with_unit(text, &SIZES).ok_or_else(wrong)?;
        let pages = (bytes / PAGE_BYTES).floor();
        if pages >= f64::from(u32::MAX) {
            return Err(format!("`{text}` is more than a tier can hold (32 TiB)"));
        }
        Ok(Size::Pages(pages as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Size::OfDatabase(share) => Share(share).fmt(f),
            Size::Pages(pages) if pages % 128 == 0 => write!(f, "{}MiB", pages / 128),
            Size::Pages(pages) => write!(f, "{pages}p"),
        }
    }
}

/// A size that is a share of all: `10%`, or a bare fraction below 1.
pub fn share_of_all(text: &str) -> Option<f64> {
    let share = text.parse::<Share>().ok()?.0;
    (text.ends_with('%') || share > 0.0 && share < 1.0).then_some(share)
}

/// A share between 0 and 1, written `50%` or `0.5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let (number, unit) = match text.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        let share = number.trim().parse::<f64>().map(|number| number / unit).unwrap_or(f64::NAN);
        if (0.0..=1.0).contains(&share) {
            Ok(Share(share))
        } else {
            Err(format!("`{text}` is no share; write 50% or 0.5, at most 100%"))
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded as far as a share is ever written, so that 0.07 does not become
        // 7.000000000000001.
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

/// A span of time in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span(pub f64);

const TIMES: [(&str, f64); 5] =
    [("ms", 1e-3), ("us", 1e-6), ("min", 60.0), ("s", 1.0), ("h", 3_600.0)];
/// A year: longer is a slip.
const SPAN_SECONDS_MAX: f64 = 3.2e7;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let seconds = number_with_unit(text, &TIMES)
            .ok_or_else(|| format!("`{text}` is no time; write 90s, 250ms, 6min or 1h"))?;
        if seconds > SPAN_SECONDS_MAX {
            return Err(format!("`{text}` is longer than a year"));
        }
        Ok(Span(seconds))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0.0 && self.0 < 1.0 {
            write!(f, "{}ms", (self.0 * 1e6).round() / 1e3)
        } else {
            write!(f, "{}s", self.0)
        }
    }
}

/// Bytes, written like `64MiB`; none if that is no size of its own, or 2^63 or more.
pub fn bytes(text: &str) -> Option<u64> {
    let units = SIZES.iter().filter(|unit| !unit.0.starts_with('p')).copied().collect::<Vec<_>>();
    let bytes = number_with_unit(text, &units)?;
    (bytes < 9.2e18).then_some(bytes as u64)
}

/// A number that is not negative, times the first unit that `text` ends with.
fn number_with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.to_ascii_lowercase();
    let (number, unit) =
        units.iter().find_map(|(unit, value)| Some((text.strip_suffix(unit)?, *value)))?;
    let number = number.trim().parse::<f64>().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!("64MiB".parse(), Ok(Size::Pages(8_192)));
        assert_eq!("1.5GiB".parse(), Ok(Size::Pages(196_608)));
        assert_eq!("183501p".parse(), Ok(Size::Pages(183_501)));
        assert_eq!("10%".parse(), Ok(Size::OfDatabase(0.1)));
        assert_eq!("0.1".parse(), Ok(Size::OfDatabase(0.1)));
        for text in ["8GiB", "8gib", "8G", "8g", "8192MiB", "8192m"] {
            assert_eq!(text.parse(), Ok(Size::Pages(1 << 20)), "{text}");
        }
        assert_eq!((bytes("10GB"), bytes("10gb")), (Some(10_000_000_000), Some(10_000_000_000)));
        assert_eq!(
            (bytes("10K"), bytes("10kB"), bytes("7b")),
            (Some(10_240), Some(10_000), Some(7))
        );
        assert_eq!((bytes("10p"), bytes("10"), bytes("G")), (None, None, None));
        assert_eq!("10%".parse::<Size>().unwrap().pages(999), 99);
        for text in ["64MiB", "183501p", "12.5%"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in
            ["", "64", "1", "1.0", "0", "MiB", "-1MiB", "NaNMiB", "1e300GiB", "x%", "64 parsecs"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_and_times_are_read_and_written() {
        assert_eq!("50%".parse(), Ok(Share(0.5)));
        assert_eq!("0.25".parse(), Ok(Share(0.25)));
        assert_eq!(Share(0.07).to_string(), "7%");
        assert_eq!(Share(0.0001).to_string(), "0.01%");
        for text in ["101%", "-1%", "half", "nan", ""] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert_eq!("90s".parse(), Ok(Span(90.0)));
        assert_eq!("6min".parse(), Ok(Span(360.0)));
        assert_eq!("250ms".parse(), Ok(Span(0.25)));
        assert_eq!("250ms".parse::<Span>().unwrap().to_string(), "250ms");
        assert_eq!("3.6s".parse::<Span>().unwrap().to_string(), "3.6s");
        for text in ["90", "-1s", "s", "9e9h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
