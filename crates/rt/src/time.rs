//! Time as a number: nanoseconds since the start of the world.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

const PER_SECOND: u64 = 1_000_000_000;
const PER_MILLI: u64 = 1_000_000;
const PER_MICRO: u64 = 1_000;

/// An instant (since the world's start) or a span, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all, and the instant at which a world starts.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than every instant a world reaches.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Nanos {
        Nanos(seconds * PER_SECOND)
    }

    /// A span of seconds, rounded to the nanosecond; negative spans are zero.
    pub fn from_secs_f64(seconds: f64) -> Nanos {
        Nanos((seconds * PER_SECOND as f64).round() as u64)
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * PER_MILLI)
    }

    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * PER_MICRO)
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PER_SECOND as f64
    }

    /// The span from `earlier` to `self`, zero if `earlier` is later.
    pub const fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The sum, or [`Nanos::MAX`] where it would overflow.
    pub const fn saturating_add(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Nanos) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0 * times)
    }
}

impl Div<u64> for Nanos {
    type Output = Nanos;
    fn div(self, parts: u64) -> Nanos {
        Nanos(self.0 / parts)
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(spans: I) -> Nanos {
        Nanos(spans.map(|span| span.0).sum())
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.9}s", self.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_agree() {
        assert_eq!(Nanos::from_secs(2), Nanos::from_millis(2_000));
        assert_eq!(Nanos::from_millis(3), Nanos::from_micros(3_000));
        assert_eq!(Nanos::from_secs_f64(0.25), Nanos(250_000_000));
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos(1_500_000_000).to_string(), "1.500000000s");
    }
}
