//! Keys: types whose encoded bytes sort like their values.
//!
//! ```text
//! type              bytes
//! u8..u64           big-endian
//! i8..i64           big-endian, sign bit flipped
//! bool              0 or 1
//! [u8; N]           as they are
//! &[u8], &str       as they are: the whole key, or the last part of a tuple
//! Vec<u8>, String   0 becomes 0 255, the end is 0 0: anywhere in a tuple
//! (), tuples        their parts, one after the other
//! ```
//!
//! - K1: `a < b` exactly when the bytes of `a` sort before those of `b`.
//! - K2: the encoding of a `KeyPart` is no proper prefix of another's, so tuples keep K1.

use std::borrow::Cow;

/// A type that a table may have as its key.
///
/// | type | key as it is passed (`View`) |
/// |---|---|
/// | `u8` to `u64`, `i8` to `i64`, `bool`, `[u8; N]`, `()` | itself |
/// | `&str`, `&[u8]` | itself; in a tuple the last part only |
/// | `String`, `Vec<u8>` | `Cow<str>`, `Cow<[u8]>`; anywhere in a tuple |
/// | tuples of one to six | tuples of the parts' views |
///
/// A `TableDef<(&str, u64), V>` does not compile, since nothing would tell where the text ends:
/// `(String, u64)` does, or `(u64, &str)`. No keys are of floating-point or of 128 bits; an
/// encoded key has at most 1,024 bytes. For a type of your own, `encode` must keep the order: the
/// table is sorted by the encoded bytes.
///
/// # Examples
///
/// Text in front of a tuple:
///
/// ```
/// use std::borrow::Cow;
/// use terrace::TableDef;
///
/// # let db = terrace::doc_test::database();
/// const VISITS: TableDef<(String, u64), u32> = TableDef::new("visits");
/// db.write(|txn| {
///     let mut visits = txn.open_table(VISITS)?;
///     visits.insert((Cow::Borrowed("front page"), 7), 1)?;
///     assert_eq!(visits.first()?.expect("just inserted").key().0, "front page");
///     Ok::<_, terrace::Error>(())
/// })?;
/// # Ok::<(), terrace::Error>(())
/// ```
///
/// What is stored:
///
/// ```
/// use terrace::Key;
///
/// let (mut small, mut large) = (Vec::new(), Vec::new());
/// <(u32, &str)>::encode(&(7, "ab"), &mut small);
/// <(u32, &str)>::encode(&(256, "aa"), &mut large);
/// assert!(small < large);
/// assert_eq!(<(u32, &str)>::decode(&small), Some((7, "ab")));
/// ```
pub trait Key: 'static {
    /// The key as callers pass it and get it back, borrowing from stored bytes where it can.
    type View<'a>;

    /// Names the encoding. A table remembers it, and refuses to be opened with another.
    fn type_name() -> String;

    /// Appends the encoded key to `out`.
    fn encode(view: &Self::View<'_>, out: &mut Vec<u8>);

    /// The key that `bytes` encode, or `None` if they encode none.
    fn decode(bytes: &[u8]) -> Option<Self::View<'_>>;
}

/// A key that may stand anywhere in a tuple, since its encoding shows where it ends.
///
/// # Examples
///
/// ```
/// use terrace::KeyPart;
///
/// let mut bytes = Vec::new();
/// u16::encode_part(&7, &mut bytes);
/// bytes.push(99);
/// assert_eq!(u16::decode_part(&bytes), Some((7, &[99][..])));
/// ```
pub trait KeyPart: Key {
    /// Appends the encoded key to `out`.
    fn encode_part(view: &Self::View<'_>, out: &mut Vec<u8>);

    /// The key that `bytes` begin with, and the rest of them.
    fn decode_part(bytes: &[u8]) -> Option<(Self::View<'_>, &[u8])>;
}

fn whole<T>((value, rest): (T, &[u8])) -> Option<T> {
    rest.is_empty().then_some(value)
}

macro_rules! integer_key {
    ($($type:ty, $flip:expr, $as:ty;)*) => {$(
        impl Key for $type {
            type View<'a> = $type;
            fn type_name() -> String {
                stringify!($type).into()
            }
            fn encode(view: &$type, out: &mut Vec<u8>) {
                out.extend_from_slice(&((*view as $as) ^ $flip).to_be_bytes());
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                Self::decode_part(bytes).and_then(whole)
            }
        }
        impl KeyPart for $type {
            fn encode_part(view: &$type, out: &mut Vec<u8>) {
                Self::encode(view, out);
            }
            fn decode_part(bytes: &[u8]) -> Option<($type, &[u8])> {
                let (head, rest) = bytes.split_first_chunk()?;
                Some(((<$as>::from_be_bytes(*head) ^ $flip) as $type, rest))
            }
        }
    )*};
}

integer_key! {
    u8, 0, u8;
    u16, 0, u16;
    u32, 0, u32;
    u64, 0, u64;
    i8, 1 << 7, u8;
    i16, 1 << 15, u16;
    i32, 1 << 31, u32;
    i64, 1 << 63, u64;
}

impl Key for bool {
    type View<'a> = bool;
    fn type_name() -> String {
        "bool".into()
    }
    fn encode(view: &bool, out: &mut Vec<u8>) {
        out.push(u8::from(*view));
    }
    fn decode(bytes: &[u8]) -> Option<bool> {
        Self::decode_part(bytes).and_then(whole)
    }
}

impl KeyPart for bool {
    fn encode_part(view: &bool, out: &mut Vec<u8>) {
        Self::encode(view, out);
    }
    fn decode_part(bytes: &[u8]) -> Option<(bool, &[u8])> {
        match bytes {
            [0, rest @ ..] => Some((false, rest)),
            [1, rest @ ..] => Some((true, rest)),
            _ => None,
        }
    }
}

impl<const N: usize> Key for [u8; N] {
    type View<'a> = [u8; N];
    fn type_name() -> String {
        format!("[u8;{N}]")
    }
    fn encode(view: &[u8; N], out: &mut Vec<u8>) {
        out.extend_from_slice(view);
    }
    fn decode(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

impl<const N: usize> KeyPart for [u8; N] {
    fn encode_part(view: &[u8; N], out: &mut Vec<u8>) {
        out.extend_from_slice(view);
    }
    fn decode_part(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
        let (head, rest) = bytes.split_first_chunk()?;
        Some((*head, rest))
    }
}

impl Key for &'static [u8] {
    type View<'a> = &'a [u8];
    fn type_name() -> String {
        "bytes".into()
    }
    fn encode(view: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(view);
    }
    fn decode(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }
}

impl Key for &'static str {
    type View<'a> = &'a str;
    fn type_name() -> String {
        "str".into()
    }
    fn encode(view: &&str, out: &mut Vec<u8>) {
        out.extend_from_slice(view.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Option<&str> {
        std::str::from_utf8(bytes).ok()
    }
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(255);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// The text that `bytes` begin with and the rest; borrowed unless it holds a zero byte.
fn unescape(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let first = bytes.iter().position(|&byte| byte == 0)?;
    if *bytes.get(first + 1)? == 0 {
        return Some((Cow::Borrowed(&bytes[..first]), &bytes[first + 2..]));
    }
    let mut text = bytes[..first].to_vec();
    let mut at = first;
    loop {
        match (*bytes.get(at)?, bytes.get(at + 1)) {
            (0, Some(0)) => return Some((Cow::Owned(text), &bytes[at + 2..])),
            (0, Some(255)) => {
                text.push(0);
                at += 2;
            }
            (0, _) => return None,
            (byte, _) => {
                text.push(byte);
                at += 1;
            }
        }
    }
}

impl Key for Vec<u8> {
    type View<'a> = Cow<'a, [u8]>;
    fn type_name() -> String {
        "escaped bytes".into()
    }
    fn encode(view: &Cow<'_, [u8]>, out: &mut Vec<u8>) {
        escape(view, out);
    }
    fn decode(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        Self::decode_part(bytes).and_then(whole)
    }
}

impl KeyPart for Vec<u8> {
    fn encode_part(view: &Cow<'_, [u8]>, out: &mut Vec<u8>) {
        escape(view, out);
    }
    fn decode_part(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
        unescape(bytes)
    }
}

impl Key for String {
    type View<'a> = Cow<'a, str>;
    fn type_name() -> String {
        "escaped str".into()
    }
    fn encode(view: &Cow<'_, str>, out: &mut Vec<u8>) {
        escape(view.as_bytes(), out);
    }
    fn decode(bytes: &[u8]) -> Option<Cow<'_, str>> {
        Self::decode_part(bytes).and_then(whole)
    }
}

impl KeyPart for String {
    fn encode_part(view: &Cow<'_, str>, out: &mut Vec<u8>) {
        escape(view.as_bytes(), out);
    }
    fn decode_part(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
        match unescape(bytes)? {
            (Cow::Borrowed(text), rest) => {
                Some((Cow::Borrowed(std::str::from_utf8(text).ok()?), rest))
            }
            (Cow::Owned(text), rest) => Some((Cow::Owned(String::from_utf8(text).ok()?), rest)),
        }
    }
}

impl Key for () {
    type View<'a> = ();
    fn type_name() -> String {
        "()".into()
    }
    fn encode((): &(), _out: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Option<()> {
        bytes.is_empty().then_some(())
    }
}

macro_rules! tuple_key {
    ($($part:ident $at:tt),*; $last:ident $last_at:tt) => {
        impl<$($part: KeyPart,)* $last: Key> Key for ($($part,)* $last,) {
            type View<'a> = ($($part::View<'a>,)* $last::View<'a>,);
            fn type_name() -> String {
                let parts = [$($part::type_name(),)* $last::type_name()];
                format!("({})", parts.join(","))
            }
            fn encode(view: &Self::View<'_>, out: &mut Vec<u8>) {
                $($part::encode_part(&view.$at, out);)*
                $last::encode(&view.$last_at, out);
            }
            #[allow(non_snake_case)]
            fn decode(bytes: &[u8]) -> Option<Self::View<'_>> {
                $(let ($part, bytes) = $part::decode_part(bytes)?;)*
                Some(($($part,)* $last::decode(bytes)?,))
            }
        }
        impl<$($part: KeyPart,)* $last: KeyPart> KeyPart for ($($part,)* $last,) {
            fn encode_part(view: &Self::View<'_>, out: &mut Vec<u8>) {
                $($part::encode_part(&view.$at, out);)*
                $last::encode_part(&view.$last_at, out);
            }
            #[allow(non_snake_case)]
            fn decode_part(bytes: &[u8]) -> Option<(Self::View<'_>, &[u8])> {
                $(let ($part, bytes) = $part::decode_part(bytes)?;)*
                let ($last, bytes) = $last::decode_part(bytes)?;
                Some((($($part,)* $last,), bytes))
            }
        }
    };
}

tuple_key!(; A 0);
tuple_key!(A 0; B 1);
tuple_key!(A 0, B 1; C 2);
tuple_key!(A 0, B 1, C 2; D 3);
tuple_key!(A 0, B 1, C 2, D 3; E 4);
tuple_key!(A 0, B 1, C 2, D 3, E 4; F 5);

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<K: Key>(view: K::View<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        K::encode(&view, &mut out);
        out
    }

    #[test]
    fn integers_sort_like_their_bytes() {
        let values = [i64::MIN, -5_000_000_000, -1, 0, 1, 77, i64::MAX];
        for pair in values.windows(2) {
            assert!(bytes::<i64>(pair[0]) < bytes::<i64>(pair[1]), "{pair:?}");
            assert_eq!(i64::decode(&bytes::<i64>(pair[0])), Some(pair[0]));
        }
    }

    #[test]
    fn text_in_the_middle_keeps_the_order_and_its_zeroes() {
        let texts = ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "ab", "b"];
        let mut last: Option<Vec<u8>> = None;
        for text in texts {
            for number in [0_u8, 255] {
                let now = bytes::<(String, u8)>((Cow::Borrowed(text), number));
                assert!(last.as_ref().is_none_or(|last| *last < now), "{text:?} {number}");
                assert_eq!(
                    <(String, u8)>::decode(&now),
                    Some((Cow::Borrowed(text), number)),
                    "{text:?}",
                );
                last = Some(now);
            }
        }
    }

    #[test]
    fn foreign_bytes_decode_to_nothing() {
        assert_eq!(u32::decode(&[1, 2, 3]), None);
        assert_eq!(<(u8, bool)>::decode(&[1, 2]), None);
        assert_eq!(String::decode(&[65, 0, 7]), None);
        assert_eq!(String::decode(&[65]), None);
        assert_eq!(<&str>::decode(&[255]), None);
        assert_eq!(<()>::decode(&[0]), None);
    }
}
