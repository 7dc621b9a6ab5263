//! Fields of a line of text: words and numbers between separators, parsed from bytes.
//!
//! - F1: nothing is allocated, and no byte is looked at more than twice.
//! - F2: a separator of blank stands for any number of blanks and tabs; any other stands for
//!   itself, and blanks around a field are no part of it.

use crate::error::{BadField, Problem};
use crate::request::Kind;

/// What remains of a line, split at `SEPARATOR`.
pub struct Fields<'a, const SEPARATOR: u8> {
    /// None behind the last field.
    rest: Option<&'a [u8]>,
}

/// Fields between commas.
pub type Commas<'a> = Fields<'a, b','>;
/// Fields between blanks.
pub type Blanks<'a> = Fields<'a, b' '>;

impl<'a, const SEPARATOR: u8> Fields<'a, SEPARATOR> {
    /// The fields of `line`.
    pub fn new(line: &'a [u8]) -> Self {
        Fields { rest: Some(line) }
    }

    const fn separates(byte: u8) -> bool {
        byte == SEPARATOR || SEPARATOR == b' ' && byte == b'\t'
    }

    /// The next word.
    ///
    /// # Errors
    ///
    /// [`Problem::Missing`] if it is not there, or empty.
    pub fn word(&mut self, field: &'static str) -> Result<&'a [u8], BadField> {
        let missing = BadField { field, problem: Problem::Missing };
        let rest = self.rest.take().ok_or(missing)?.trim_ascii_start();
        let word = match rest.iter().position(|byte| Self::separates(*byte)) {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                &rest[..at]
            }
            None => rest,
        };
        let word = word.trim_ascii_end();
        if word.is_empty() { Err(missing) } else { Ok(word) }
    }

    /// The next number, without sign or fraction.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn number(&mut self, field: &'static str) -> Result<u64, BadField> {
        // The common case in one pass: digits, and then the separator or the end.
        if let Some(rest) = self.rest {
            let mut value = 0_u64;
            let mut digits = 0;
            for byte in rest.iter().take(SAFE_DIGITS) {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    break;
                }
                value = value * 10 + u64::from(digit);
                digits += 1;
            }
            match rest.get(digits) {
                Some(byte) if digits > 0 && Self::separates(*byte) => {
                    self.rest = Some(&rest[digits + 1..]);
                    return Ok(value);
                }
                None if digits > 0 => {
                    self.rest = None;
                    return Ok(value);
                }
                _ => {}
            }
        }
        whole(self.word(field)?).map_err(|problem| BadField { field, problem })
    }

    /// The next number, of at most 32 bits.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn small(&mut self, field: &'static str) -> Result<u32, BadField> {
        let number = self.number(field)?;
        u32::try_from(number).map_err(|_| BadField { field, problem: Problem::TooLarge })
    }

    /// The next number as a time: `unit_ns` nanoseconds each, with a fraction or without.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn time_ns(&mut self, field: &'static str, unit_ns: u64) -> Result<u64, BadField> {
        decimal(self.word(field)?, unit_ns).map_err(|problem| BadField { field, problem })
    }

    /// The next word as read or write: the word begins with one of `letters`, upper or lower case.
    ///
    /// # Errors
    ///
    /// A word that does not.
    pub fn kind(&mut self, field: &'static str) -> Result<Kind, BadField> {
        match self.word(field)?[0] {
            b'R' | b'r' => Ok(Kind::Read),
            b'W' | b'w' => Ok(Kind::Write),
            _ => Err(BadField { field, problem: Problem::UnknownWord }),
        }
    }

    /// Makes sure that nothing follows but blanks.
    ///
    /// # Errors
    ///
    /// [`Problem::Extra`] after `field`, the last that the format has.
    pub fn end(&self, field: &'static str) -> Result<(), BadField> {
        match self.rest {
            Some(rest) if !(SEPARATOR == b' ' && rest.trim_ascii().is_empty()) => {
                Err(BadField { field, problem: Problem::Extra })
            }
            _ => Ok(()),
        }
    }
}

/// A number of this many digits fits in 64 bits.
const SAFE_DIGITS: usize = 19;

/// A whole number.
///
/// # Errors
///
/// What is wrong with it.
pub fn whole(word: &[u8]) -> Result<u64, Problem> {
    let mut value = 0_u64;
    for byte in word {
        if !byte.is_ascii_digit() {
            return Err(no_number(word));
        }
        let digit = u64::from(byte - b'0');
        value = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(digit))
            .ok_or(Problem::TooLarge)?;
    }
    if word.is_empty() { Err(Problem::Missing) } else { Ok(value) }
}

/// A number with a fraction or without, in units of `unit`; what is finer is cut off.
///
/// # Errors
///
/// What is wrong with it.
pub fn decimal(word: &[u8], unit: u64) -> Result<u64, Problem> {
    let (before, after) = match memchr::memchr(b'.', word) {
        Some(at) => (&word[..at], &word[at + 1..]),
        None => (word, &[][..]),
    };
    if word.starts_with(b"-") {
        return Err(no_number(word));
    }
    let units = if before.is_empty() && !after.is_empty() { 0 } else { whole(before)? };
    let mut value = units.checked_mul(unit).ok_or(Problem::TooLarge)?;
    let mut place = unit;
    for byte in after {
        if !byte.is_ascii_digit() {
            return Err(Problem::NotANumber);
        }
        place /= 10;
        let digit = u64::from(byte - b'0');
        value = value.checked_add(digit * place).ok_or(Problem::TooLarge)?;
    }
    Ok(value)
}

/// Why `word`, which is no number of ours, is none.
fn no_number(word: &[u8]) -> Problem {
    match word.strip_prefix(b"-") {
        Some(number) if number.first().is_some_and(u8::is_ascii_digit) => Problem::Negative,
        _ => Problem::NotANumber,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_between_separators() {
        let mut fields = Commas::new(b"12, Read ,7.5,-3");
        assert_eq!(fields.number("a"), Ok(12));
        assert_eq!(fields.kind("b"), Ok(Kind::Read));
        assert_eq!(fields.time_ns("c", 1_000), Ok(7_500));
        assert!(fields.end("c").is_err());
        let negative = fields.number("d").unwrap_err();
        assert_eq!(negative, BadField { field: "d", problem: Problem::Negative });
        assert_eq!(fields.end("d"), Ok(()));
        assert_eq!(fields.word("e").unwrap_err().problem, Problem::Missing);

        let mut fields = Blanks::new(b"  1 \t 22  x ");
        assert_eq!((fields.number("a"), fields.number("b")), (Ok(1), Ok(22)));
        assert_eq!(fields.word("c"), Ok(&b"x"[..]));
        assert_eq!(fields.end("c"), Ok(()));
    }

    #[test]
    fn numbers_that_are_none_say_why() {
        let number = |text: &'static [u8]| Commas::new(text).number("n").map_err(|bad| bad.problem);
        assert_eq!(number(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(number(b"00000000000000000000000012"), Ok(12));
        assert_eq!(number(b"18446744073709551616"), Err(Problem::TooLarge));
        assert_eq!(number(b"99999999999999999999999"), Err(Problem::TooLarge));
        assert_eq!(number(b"-1"), Err(Problem::Negative));
        for text in [&b"1x"[..], b"x", b"-", b"--1", b"1.5", b"0x10", b"\xff"] {
            assert_eq!(number(text), Err(Problem::NotANumber), "{text:?}");
        }
        assert_eq!(number(b""), Err(Problem::Missing));
        assert_eq!(number(b",1"), Err(Problem::Missing));
        assert_eq!(Commas::new(b"4294967296").small("n").unwrap_err().problem, Problem::TooLarge);
    }

    #[test]
    fn fractions_are_exact() {
        const SECOND: u64 = 1_000_000_000;
        assert_eq!(decimal(b"0.551706", SECOND), Ok(551_706_000));
        assert_eq!(decimal(b".5", SECOND), Ok(SECOND / 2));
        assert_eq!(decimal(b"3.", SECOND), Ok(3 * SECOND));
        assert_eq!(decimal(b"1.0000000019", SECOND), Ok(SECOND + 1));
        assert_eq!(decimal(b"-0.1", SECOND), Err(Problem::Negative));
        assert_eq!(decimal(b"99999999999", SECOND), Err(Problem::TooLarge));
        for text in [&b"."[..], b"1.x", b"1e5", b"nan", b"1.-5"] {
            assert!(decimal(text, SECOND).is_err(), "{text:?}");
        }
    }
}
