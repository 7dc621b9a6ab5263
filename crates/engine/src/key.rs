//! Keys: types whose encoded bytes sort like their values.
//!
//! ```text
//! type              bytes
//! u8..u128          big-endian
//! i8..i128          big-endian, sign bit flipped
//! bool              0 or 1
//! char              its code point as a u32
//! &[u8], &str       as they are: the whole key, or the last part of a tuple
//! Vec<u8>, String   0 becomes 0 255, the end is 0 0: anywhere in a tuple
//! Option<K>         0, or 1 and the key
//! (), tuples, [K;N] their parts, one after the other
//! ```
//!
//! - K1: `a < b` exactly when the bytes of `a` sort before those of `b`.
//! - K2: the encoding of a `KeyPart` is no proper prefix of another's, so tuples keep K1.

use std::borrow::Cow;

/// A type that a table may have as its key.
///
/// | type | key as it is passed (`View`) |
/// |---|---|
/// | `u8` to `u128`, `i8` to `i128`, `bool`, `char`, `()` | itself |
/// | `&str`, `&[u8]` | itself; in a tuple the last part only |
/// | `String`, `Vec<u8>` | `Cow<str>`, `Cow<[u8]>`; anywhere in a tuple |
/// | `Option<K>` | `Option` of the view; `None` sorts first |
/// | tuples of one to six, `[K; N]` | tuples and arrays of the parts' views |
/// | with features: `uuid::Uuid`, `time::OffsetDateTime`, `chrono::DateTime<Utc>` | itself |
/// | with the feature `derive`: structs that derive `Key` | itself |
///
/// Keys sort as Rust's `Ord` sorts their values. A `TableDef<(&str, u64), V>` does not compile,
/// since nothing would tell where the text ends: `(String, u64)` does, or `(u64, &str)`. No keys
/// are of floating-point; an encoded key has at most 1,024 bytes. For a type of your own, `encode`
/// must keep the order: the table is sorted by the encoded bytes.
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

    /// Appends the parts of an array: for `u8` in one copy.
    #[doc(hidden)]
    fn encode_array(views: &[Self::View<'_>], out: &mut Vec<u8>) {
        for view in views {
            Self::encode_part(view, out);
        }
    }

    /// The array that `bytes` begin with, and the rest of them.
    #[doc(hidden)]
    fn decode_array<const N: usize>(mut bytes: &[u8]) -> Option<([Self::View<'_>; N], &[u8])> {
        let parts: [Option<Self::View<'_>>; N] = std::array::from_fn(|_| {
            let (part, rest) = Self::decode_part(bytes)?;
            bytes = rest;
            Some(part)
        });
        if parts.iter().any(Option::is_none) {
            return None;
        }
        Some((parts.map(|part| part.expect("looked at above")), bytes))
    }
}

/// An owned key that can be a field of a struct that derives [`Key`]: it can be seen as the view
/// that callers of its type pass, and be made of one.
pub trait KeyField: KeyPart {
    /// The field as its view.
    fn as_view(&self) -> Self::View<'_>;

    /// The field that `view` shows.
    fn from_view(view: Self::View<'_>) -> Self;
}

fn whole<T>((value, rest): (T, &[u8])) -> Option<T> {
    rest.is_empty().then_some(value)
}

macro_rules! integer_key {
    ($($type:ty, $flip:expr, $as:ident { $($array:tt)* };)*) => {$(
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
            $($array)*
        }
        copied_field!($type);
    )*};
}

/// A field whose view is itself.
macro_rules! copied_field {
    ($type:ty) => {
        impl KeyField for $type {
            fn as_view(&self) -> $type {
                *self
            }
            fn from_view(view: $type) -> $type {
                view
            }
        }
    };
}

integer_key! {
    u8, 0, u8 {
        fn encode_array(views: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(views);
        }
        fn decode_array<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
            let (head, rest) = bytes.split_first_chunk()?;
            Some((*head, rest))
        }
    };
    u16, 0, u16 {};
    u32, 0, u32 {};
    u64, 0, u64 {};
    u128, 0, u128 {};
    i8, 1 << 7, u8 {};
    i16, 1 << 15, u16 {};
    i32, 1 << 31, u32 {};
    i64, 1 << 63, u64 {};
    i128, 1 << 127, u128 {};
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

copied_field!(bool);

impl Key for char {
    type View<'a> = char;
    fn type_name() -> String {
        "char".into()
    }
    fn encode(view: &char, out: &mut Vec<u8>) {
        u32::encode(&u32::from(*view), out);
    }
    fn decode(bytes: &[u8]) -> Option<char> {
        Self::decode_part(bytes).and_then(whole)
    }
}

impl KeyPart for char {
    fn encode_part(view: &char, out: &mut Vec<u8>) {
        Self::encode(view, out);
    }
    fn decode_part(bytes: &[u8]) -> Option<(char, &[u8])> {
        let (point, rest) = u32::decode_part(bytes)?;
        Some((char::from_u32(point)?, rest))
    }
}

copied_field!(char);

impl<K: KeyPart, const N: usize> Key for [K; N] {
    type View<'a> = [K::View<'a>; N];
    fn type_name() -> String {
        format!("[{};{N}]", K::type_name())
    }
    fn encode(view: &Self::View<'_>, out: &mut Vec<u8>) {
        K::encode_array(view, out);
    }
    fn decode(bytes: &[u8]) -> Option<Self::View<'_>> {
        K::decode_array(bytes).and_then(whole)
    }
}

impl<K: KeyPart, const N: usize> KeyPart for [K; N] {
    fn encode_part(view: &Self::View<'_>, out: &mut Vec<u8>) {
        K::encode_array(view, out);
    }
    fn decode_part(bytes: &[u8]) -> Option<(Self::View<'_>, &[u8])> {
        K::decode_array(bytes)
    }
}

impl<K: KeyField, const N: usize> KeyField for [K; N] {
    fn as_view(&self) -> Self::View<'_> {
        std::array::from_fn(|at| self[at].as_view())
    }
    fn from_view(view: Self::View<'_>) -> [K; N] {
        view.map(K::from_view)
    }
}

impl<K: Key> Key for Option<K> {
    type View<'a> = Option<K::View<'a>>;
    fn type_name() -> String {
        format!("{}?", K::type_name())
    }
    fn encode(view: &Self::View<'_>, out: &mut Vec<u8>) {
        out.push(u8::from(view.is_some()));
        if let Some(view) = view {
            K::encode(view, out);
        }
    }
    fn decode(bytes: &[u8]) -> Option<Self::View<'_>> {
        match bytes {
            [0] => Some(None),
            [1, rest @ ..] => K::decode(rest).map(Some),
            _ => None,
        }
    }
}

impl<K: KeyPart> KeyPart for Option<K> {
    fn encode_part(view: &Self::View<'_>, out: &mut Vec<u8>) {
        out.push(u8::from(view.is_some()));
        if let Some(view) = view {
            K::encode_part(view, out);
        }
    }
    fn decode_part(bytes: &[u8]) -> Option<(Self::View<'_>, &[u8])> {
        match bytes {
            [0, rest @ ..] => Some((None, rest)),
            [1, rest @ ..] => K::decode_part(rest).map(|(key, rest)| (Some(key), rest)),
            _ => None,
        }
    }
}

impl<K: KeyField> KeyField for Option<K> {
    fn as_view(&self) -> Self::View<'_> {
        self.as_ref().map(K::as_view)
    }
    fn from_view(view: Self::View<'_>) -> Option<K> {
        view.map(K::from_view)
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

impl KeyField for Vec<u8> {
    fn as_view(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
    fn from_view(view: Cow<'_, [u8]>) -> Vec<u8> {
        view.into_owned()
    }
}

impl KeyField for String {
    fn as_view(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
    fn from_view(view: Cow<'_, str>) -> String {
        view.into_owned()
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
        impl<$($part: KeyField,)* $last: KeyField> KeyField for ($($part,)* $last,) {
            fn as_view(&self) -> Self::View<'_> {
                ($(self.$at.as_view(),)* self.$last_at.as_view(),)
            }
            fn from_view(view: Self::View<'_>) -> Self {
                ($($part::from_view(view.$at),)* $last::from_view(view.$last_at),)
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

/// Pairs of random keys sort as their bytes do, and come back from them.
#[cfg(test)]
pub(crate) fn sorts_like_ord<K: KeyField + Ord + std::fmt::Debug>(
    make: impl Fn(&mut terrace_rt::Prng) -> K,
) {
    let mut prng = terrace_rt::Prng::from_seed(8);
    let bytes = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        bytes
    };
    for _ in 0..3_000 {
        let (one, other) = (make(&mut prng), make(&mut prng));
        let a = bytes(&|out| K::encode(&one.as_view(), out));
        let b = bytes(&|out| K::encode(&other.as_view(), out));
        assert_eq!(one.cmp(&other), a.cmp(&b), "{one:?} {other:?}");
        assert_eq!(K::decode(&a).map(K::from_view).as_ref(), Some(&one));
        let (a, b) = ((one, 7_u8), (other, 7_u8));
        let one = bytes(&|out| <(K, u8)>::encode(&a.as_view(), out));
        let other = bytes(&|out| <(K, u8)>::encode(&b.as_view(), out));
        assert_eq!(a.cmp(&b), one.cmp(&other), "{a:?} {b:?}");
        assert_eq!(<(K, u8)>::decode(&one).map(<(K, u8)>::from_view), Some(a));
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

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

    /// Values near one another, so that comparisons are decided anywhere.
    fn small(prng: &mut Prng) -> u64 {
        [0, 1, 127, 128, 255, 256, u64::MAX / 2, u64::MAX][prng.below(8) as usize]
    }

    fn letters(prng: &mut Prng) -> Vec<u8> {
        (0..prng.below(4)).map(|_| [0, 1, 97, 255][prng.below(4) as usize]).collect()
    }

    #[test]
    fn keys_of_every_type_sort_like_their_values() {
        sorts_like_ord(|prng| small(prng) as u8);
        sorts_like_ord(|prng| small(prng) as i8);
        sorts_like_ord(|prng| small(prng) as u16);
        sorts_like_ord(|prng| small(prng) as i16);
        sorts_like_ord(|prng| small(prng) as u32);
        sorts_like_ord(|prng| small(prng) as i32);
        sorts_like_ord(small);
        sorts_like_ord(|prng| small(prng) as i64);
        sorts_like_ord(|prng| u128::from(small(prng)) << 64 | u128::from(small(prng)));
        sorts_like_ord(|prng| i128::from(small(prng)) << 64 | i128::from(small(prng)));
        sorts_like_ord(|prng| prng.chance(2));
        sorts_like_ord(|prng| char::from_u32(small(prng) as u32 % 0xd800).expect("no surrogate"));
        sorts_like_ord(letters);
        sorts_like_ord(|prng| String::from_utf8_lossy(&letters(prng)).into_owned());
        sorts_like_ord(|prng| prng.chance(2).then(|| small(prng)));
        sorts_like_ord(|prng| prng.chance(2).then(|| prng.chance(2).then(|| letters(prng))));
        sorts_like_ord(|prng| (letters(prng), small(prng) as i8, prng.chance(2)));
        sorts_like_ord(|prng| [small(prng) as u8, small(prng) as u8, small(prng) as u8]);
        sorts_like_ord(|prng| [letters(prng), letters(prng)]);
        sorts_like_ord(|prng| (letters(prng),));
        sorts_like_ord(|prng| (prng.chance(2), letters(prng)));
        sorts_like_ord(|prng| (letters(prng), letters(prng), small(prng), prng.chance(2)));
        sorts_like_ord(|prng| {
            (small(prng) as u8, letters(prng), prng.chance(2), small(prng) as i16, letters(prng))
        });
        sorts_like_ord(|prng| {
            let some = prng.chance(2).then(|| (letters(prng), small(prng) as i32));
            (some, small(prng), letters(prng), prng.chance(2), small(prng) as i8, letters(prng))
        });
        sorts_like_ord(|prng| [(letters(prng), prng.chance(2)), (letters(prng), prng.chance(2))]);
        sorts_like_ord(|prng| [small(prng) as i16, small(prng) as i16]);
    }

    /// Borrowed text and bytes, which stand last.
    #[test]
    fn borrowed_keys_sort_like_their_values() {
        let mut prng = Prng::from_seed(9);
        for _ in 0..3_000 {
            let (one, other) = (letters(&mut prng), letters(&mut prng));
            assert_eq!(one.cmp(&other), bytes::<&[u8]>(&one).cmp(&bytes::<&[u8]>(&other)));
            let (a, b) = ((prng.chance(2), &one[..]), (prng.chance(2), &other[..]));
            assert_eq!(a.cmp(&b), bytes::<(bool, &[u8])>(a).cmp(&bytes::<(bool, &[u8])>(b)));
            let [one, other] = [&one, &other].map(|text| String::from_utf8_lossy(text));
            assert_eq!(one.cmp(&other), bytes::<&str>(&one).cmp(&bytes::<&str>(&other)));
            let (a, b) = ((1_u8, Some(&*one)), (1, Some(&*other)));
            let [a_bytes, b_bytes] = [a, b].map(bytes::<(u8, Option<&str>)>);
            assert_eq!(a.cmp(&b), a_bytes.cmp(&b_bytes));
        }
        assert!(bytes::<()>(()).is_empty());
    }

    #[test]
    fn foreign_bytes_decode_to_nothing() {
        assert_eq!(u32::decode(&[1, 2, 3]), None);
        assert_eq!(<(u8, bool)>::decode(&[1, 2]), None);
        assert_eq!(String::decode(&[65, 0, 7]), None);
        assert_eq!(String::decode(&[65]), None);
        assert_eq!(<&str>::decode(&[255]), None);
        assert_eq!(<()>::decode(&[0]), None);
        assert_eq!(char::decode(&[0, 0, 0xd8, 0]), None);
        assert_eq!(<Option<u8>>::decode(&[1]), None);
        assert_eq!(<Option<u8>>::decode(&[0, 1]), None);
        assert_eq!(<[u16; 2]>::decode(&[0, 1, 2]), None);
        assert_eq!(<[u16; 2]>::decode(&[0, 1, 2, 3, 4]), None);
    }
}
