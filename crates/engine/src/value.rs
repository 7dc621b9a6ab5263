//! Values: types that a table stores.
//!
//! ```text
//! type              bytes
//! numbers           little-endian
//! bool              0 or 1
//! char              its code point as a u32
//! &[u8], &str       as they are
//! Vec<u8>, String   as they are
//! Option<V>         0, or 1 and the value
//! tuples, [V; N]    their parts, one after the other: in front of each part but the last its
//!                   length, if its type does not tell that
//! a length          LEB128: seven bits a byte, the lowest first, the high bit on all but the last
//! ```

/// A type that a table may have as its value.
///
/// | type | value as it is passed (`View`) |
/// |---|---|
/// | integers of 8 to 128 bits, `f32`, `f64`, `bool`, `char`, `()` | itself |
/// | `&str`, `&[u8]` | itself |
/// | `String`, `Vec<u8>` | `&str`, `&[u8]` |
/// | `Option<V>`, tuples of one to eight, `[V; N]` | the same of the parts' views |
/// | with features: `uuid::Uuid`, `time::OffsetDateTime`, `chrono::DateTime<Utc>` | itself |
/// | with the feature `serde`: `Postcard<T>` | `T` |
/// | with the feature `derive`: structs that derive `Value` | itself |
///
/// A value has at most 1 GiB. Values of 1 MiB and more are written to their pages first; the log
/// has only where they are. Shorter ones are logged.
///
/// A value that with its key and 11 bytes has more than 4,040 bytes, and at most some 12,100, is a
/// *block*: one page of 8 KiB, and a tail beside its key. It is overwritten without reading the old
/// one, which stays for rollbacks and snapshots, and is logged once: 8 KiB take 1.035 times their
/// bytes of log. So a `Table<u64, [u8; 8192]>` is a volume of blocks.
/// [`insert`](crate::Table::insert), [`insert_new`](crate::Table::insert_new) and
/// [`update`](crate::Table::update) do not read it; [`replace`](crate::Table::replace) and
/// [`modify`](crate::Table::modify) do.
///
/// [`Table::writer`](crate::Table::writer) and [`Table::reader`](crate::Table::reader) write and
/// read large values in parts.
///
/// # Examples
///
/// A row of several fields:
///
/// ```
/// use terrace::TableDef;
///
/// # let db = terrace::doc_test::database();
/// /// Name, age if it is known, balance.
/// const PEOPLE: TableDef<u64, (String, Option<u8>, i64)> = TableDef::new("people");
/// db.write(|txn| txn.open_table(PEOPLE)?.insert(7, ("Ada", Some(36), -120)))?;
/// let ada = db.read(|txn| txn.open_table(PEOPLE)?.get(7))?.expect("just inserted");
/// assert_eq!(ada.value(), ("Ada", Some(36), -120));
/// # Ok::<(), terrace::Error>(())
/// ```
///
/// A value type of your own:
///
/// ```
/// use terrace::Value;
///
/// struct Point;
/// impl Value for Point {
///     type View<'a> = (f64, f64);
///     fn type_name() -> String {
///         "point".into()
///     }
///     fn encode(view: &(f64, f64), out: &mut Vec<u8>) {
///         out.extend_from_slice(&view.0.to_le_bytes());
///         out.extend_from_slice(&view.1.to_le_bytes());
///     }
///     fn decode(bytes: &[u8]) -> Option<(f64, f64)> {
///         let (x, y) = bytes.split_first_chunk()?;
///         Some((f64::from_le_bytes(*x), f64::from_le_bytes(y.try_into().ok()?)))
///     }
/// }
/// # let mut bytes = Vec::new();
/// # Point::encode(&(1.0, 2.0), &mut bytes);
/// # assert_eq!(Point::decode(&bytes), Some((1.0, 2.0)));
/// ```
pub trait Value: 'static {
    /// The value as callers pass it and get it back, borrowing from stored bytes where it can.
    type View<'a>;

    /// Names the encoding. A table remembers it, and refuses to be opened with another.
    fn type_name() -> String;

    /// Appends the encoded value to `out`.
    fn encode(view: &Self::View<'_>, out: &mut Vec<u8>);

    /// The value that `bytes` encode, or `None` if they encode none.
    fn decode(bytes: &[u8]) -> Option<Self::View<'_>>;

    /// The encoded value itself, if the view already is that: spares a copy.
    fn as_encoded<'a>(_view: &'a Self::View<'_>) -> Option<&'a [u8]> {
        None
    }

    /// The length in bytes of every encoded value, if they all have the same: such a value stands
    /// in a tuple without a length in front of it.
    fn encoded_len() -> Option<usize> {
        None
    }

    /// The encoded array of these values, if it is in memory as it is encoded.
    #[doc(hidden)]
    fn array_as_encoded<'a>(_views: &'a [Self::View<'_>]) -> Option<&'a [u8]> {
        None
    }
}

/// An owned value that can be a field of a struct that derives [`Value`]: it can be seen as the
/// view that callers of its type pass, and be made of one.
pub trait ValueField: Value {
    /// The field as its view.
    fn as_view(&self) -> Self::View<'_>;

    /// The field that `view` shows.
    fn from_view(view: Self::View<'_>) -> Self;
}

/// Appends the value of a part, and in front of it its length unless its type tells that.
#[doc(hidden)]
pub fn encode_part<V: Value>(view: &V::View<'_>, out: &mut Vec<u8>) {
    if V::encoded_len().is_some() {
        return V::encode(view, out);
    }
    let at = out.len();
    out.push(0);
    V::encode(view, out);
    let mut len = out.len() - at - 1;
    if len < 128 {
        out[at] = len as u8;
        return;
    }
    let mut prefix = [0; LEN_BYTES_MAX];
    let mut used = 0;
    loop {
        let is_last = len < 128;
        prefix[used] = len as u8 & 127 | u8::from(!is_last) << 7;
        used += 1;
        if is_last {
            break;
        }
        len >>= 7;
    }
    out.splice(at..=at, prefix[..used].iter().copied());
}

/// The most bytes that a length takes: those of values of 1 GiB take five.
const LEN_BYTES_MAX: usize = 10;

/// The part that `bytes` begin with, and the rest of them.
#[doc(hidden)]
pub fn decode_part<V: Value>(bytes: &[u8]) -> Option<(V::View<'_>, &[u8])> {
    let (len, bytes) = match V::encoded_len() {
        Some(len) => (len, bytes),
        None => decode_len(bytes)?,
    };
    let (part, rest) = bytes.split_at_checked(len)?;
    Some((V::decode(part)?, rest))
}

/// The length that `bytes` begin with, in as few bytes as it takes, and the rest of them.
fn decode_len(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut len = 0_usize;
    for (at, &byte) in bytes.iter().enumerate().take(LEN_BYTES_MAX - 1) {
        len |= usize::from(byte & 127) << (7 * at);
        if byte & 128 == 0 {
            let is_shortest = byte != 0 || at == 0;
            return is_shortest.then(|| (len, &bytes[at + 1..]));
        }
    }
    None
}

/// A field whose view is itself.
macro_rules! copied_field {
    ($type:ty) => {
        impl ValueField for $type {
            fn as_view(&self) -> $type {
                *self
            }
            fn from_view(view: $type) -> $type {
                view
            }
        }
    };
}

macro_rules! number_value {
    ($($type:ident { $($array:tt)* })*) => {$(
        impl Value for $type {
            type View<'a> = $type;
            fn type_name() -> String {
                stringify!($type).into()
            }
            fn encode(view: &$type, out: &mut Vec<u8>) {
                out.extend_from_slice(&view.to_le_bytes());
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                Some(<$type>::from_le_bytes(bytes.try_into().ok()?))
            }
            fn encoded_len() -> Option<usize> {
                Some(size_of::<$type>())
            }
            $($array)*
        }
        copied_field!($type);
    )*};
}

number_value! {
    u8 {
        fn array_as_encoded(views: &[u8]) -> Option<&[u8]> {
            Some(views)
        }
    }
    u16 {} u32 {} u64 {} u128 {} i8 {} i16 {} i32 {} i64 {} i128 {} f32 {} f64 {}
}

impl Value for bool {
    type View<'a> = bool;
    fn type_name() -> String {
        "bool".into()
    }
    fn encode(view: &bool, out: &mut Vec<u8>) {
        out.push(u8::from(*view));
    }
    fn decode(bytes: &[u8]) -> Option<bool> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
    fn encoded_len() -> Option<usize> {
        Some(1)
    }
}

copied_field!(bool);

impl Value for char {
    type View<'a> = char;
    fn type_name() -> String {
        "char".into()
    }
    fn encode(view: &char, out: &mut Vec<u8>) {
        u32::encode(&u32::from(*view), out);
    }
    fn decode(bytes: &[u8]) -> Option<char> {
        u32::decode(bytes).and_then(char::from_u32)
    }
    fn encoded_len() -> Option<usize> {
        <u32 as Value>::encoded_len()
    }
}

copied_field!(char);

impl Value for () {
    type View<'a> = ();
    fn type_name() -> String {
        "()".into()
    }
    fn encode((): &(), _out: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Option<()> {
        bytes.is_empty().then_some(())
    }
    fn encoded_len() -> Option<usize> {
        Some(0)
    }
}

impl<V: Value, const N: usize> Value for [V; N] {
    type View<'a> = [V::View<'a>; N];
    fn type_name() -> String {
        format!("[{};{N}]", V::type_name())
    }
    fn encode(view: &Self::View<'_>, out: &mut Vec<u8>) {
        match (V::array_as_encoded(view), view.split_last()) {
            (Some(bytes), _) => out.extend_from_slice(bytes),
            (None, Some((last, parts))) => {
                for part in parts {
                    encode_part::<V>(part, out);
                }
                V::encode(last, out);
            }
            (None, None) => {}
        }
    }
    fn decode(mut bytes: &[u8]) -> Option<Self::View<'_>> {
        let parts: [Option<V::View<'_>>; N] = std::array::from_fn(|at| {
            let (part, rest) = match at + 1 == N {
                true => (V::decode(bytes)?, &[][..]),
                false => decode_part::<V>(bytes)?,
            };
            bytes = rest;
            Some(part)
        });
        if !bytes.is_empty() || parts.iter().any(Option::is_none) {
            return None;
        }
        Some(parts.map(|part| part.expect("looked at above")))
    }
    fn as_encoded<'a>(view: &'a Self::View<'_>) -> Option<&'a [u8]> {
        V::array_as_encoded(view)
    }
    fn encoded_len() -> Option<usize> {
        V::encoded_len().map(|len| len * N)
    }
}

impl<V: ValueField, const N: usize> ValueField for [V; N] {
    fn as_view(&self) -> Self::View<'_> {
        std::array::from_fn(|at| self[at].as_view())
    }
    fn from_view(view: Self::View<'_>) -> [V; N] {
        view.map(V::from_view)
    }
}

impl<V: Value> Value for Option<V> {
    type View<'a> = Option<V::View<'a>>;
    fn type_name() -> String {
        format!("{}?", V::type_name())
    }
    fn encode(view: &Self::View<'_>, out: &mut Vec<u8>) {
        out.push(u8::from(view.is_some()));
        if let Some(view) = view {
            V::encode(view, out);
        }
    }
    fn decode(bytes: &[u8]) -> Option<Self::View<'_>> {
        match bytes {
            [0] => Some(None),
            [1, rest @ ..] => V::decode(rest).map(Some),
            _ => None,
        }
    }
}

impl<V: ValueField> ValueField for Option<V> {
    fn as_view(&self) -> Self::View<'_> {
        self.as_ref().map(V::as_view)
    }
    fn from_view(view: Self::View<'_>) -> Option<V> {
        view.map(V::from_view)
    }
}

macro_rules! tuple_value {
    ($($part:ident $at:tt),*; $last:ident $last_at:tt) => {
        impl<$($part: Value,)* $last: Value> Value for ($($part,)* $last,) {
            type View<'a> = ($($part::View<'a>,)* $last::View<'a>,);
            fn type_name() -> String {
                let parts = [$($part::type_name(),)* $last::type_name()];
                format!("({})", parts.join(","))
            }
            fn encode(view: &Self::View<'_>, out: &mut Vec<u8>) {
                $(encode_part::<$part>(&view.$at, out);)*
                $last::encode(&view.$last_at, out);
            }
            #[allow(non_snake_case)]
            fn decode(bytes: &[u8]) -> Option<Self::View<'_>> {
                $(let ($part, bytes) = decode_part::<$part>(bytes)?;)*
                Some(($($part,)* $last::decode(bytes)?,))
            }
            fn encoded_len() -> Option<usize> {
                let parts = 0 $(+ $part::encoded_len()?)*;
                Some(parts + $last::encoded_len()?)
            }
        }
        impl<$($part: ValueField,)* $last: ValueField> ValueField for ($($part,)* $last,) {
            fn as_view(&self) -> Self::View<'_> {
                ($(self.$at.as_view(),)* self.$last_at.as_view(),)
            }
            fn from_view(view: Self::View<'_>) -> Self {
                ($($part::from_view(view.$at),)* $last::from_view(view.$last_at),)
            }
        }
    };
}

tuple_value!(; A 0);
tuple_value!(A 0; B 1);
tuple_value!(A 0, B 1; C 2);
tuple_value!(A 0, B 1, C 2; D 3);
tuple_value!(A 0, B 1, C 2, D 3; E 4);
tuple_value!(A 0, B 1, C 2, D 3, E 4; F 5);
tuple_value!(A 0, B 1, C 2, D 3, E 4, F 5; G 6);
tuple_value!(A 0, B 1, C 2, D 3, E 4, F 5, G 6; H 7);

impl Value for &'static [u8] {
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
    fn as_encoded<'a>(view: &'a &[u8]) -> Option<&'a [u8]> {
        Some(view)
    }
}

impl Value for &'static str {
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
    fn as_encoded<'a>(view: &'a &str) -> Option<&'a [u8]> {
        Some(view.as_bytes())
    }
}

/// Bytes and text that a field owns are stored as borrowed ones are.
macro_rules! owned_value {
    ($type:ty, $view:ty) => {
        impl Value for $type {
            type View<'a> = &'a $view;
            fn type_name() -> String {
                <&$view>::type_name()
            }
            fn encode(view: &&$view, out: &mut Vec<u8>) {
                <&$view>::encode(view, out);
            }
            fn decode(bytes: &[u8]) -> Option<&$view> {
                <&$view>::decode(bytes)
            }
            fn as_encoded<'a>(view: &'a &$view) -> Option<&'a [u8]> {
                <&$view>::as_encoded(view)
            }
        }
        impl ValueField for $type {
            fn as_view(&self) -> &$view {
                self
            }
            fn from_view(view: &$view) -> $type {
                view.to_owned()
            }
        }
    };
}

owned_value!(Vec<u8>, [u8]);
owned_value!(String, str);

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    fn bytes<V: Value>(view: V::View<'_>) -> Vec<u8> {
        let mut out = vec![9];
        V::encode(&view, &mut out);
        out.split_off(1)
    }

    #[test]
    fn values_come_back() {
        let mut out = Vec::new();
        f64::encode(&-2.5, &mut out);
        assert_eq!(f64::decode(&out), Some(-2.5));
        assert_eq!(u32::decode(&out), None);
        assert_eq!(<&str>::as_encoded(&"ab"), Some(&b"ab"[..]));
        assert_eq!(<&str>::decode(&[255]), None);
        assert_eq!(<[u8; 2]>::as_encoded(&[1, 2]), Some(&[1, 2][..]));
        assert_eq!(<[u16; 2]>::as_encoded(&[1, 2]), None);
        assert_eq!(char::decode(&bytes::<char>('ä')), Some('ä'));
        assert_eq!(char::decode(&[0, 0xd8, 0, 0]), None);
        assert_eq!(bytes::<(char, &str)>(('a', "b")), b"a\0\0\0b");
    }

    type Row = (String, Option<Vec<u8>>, (bool, [String; 3]), u16, [i32; 2], String);

    /// Lengths around those where a length takes another byte.
    fn text(prng: &mut Prng) -> String {
        let len = [0, 1, 126, 127, 128, 129, 16_383, 16_384][prng.below(8) as usize];
        "x".repeat(len)
    }

    #[test]
    fn rows_of_random_fields_come_back() {
        let mut prng = Prng::from_seed(3);
        for _ in 0..500 {
            let row: Row = (
                text(&mut prng),
                prng.chance(2).then(|| text(&mut prng).into_bytes()),
                (prng.chance(2), std::array::from_fn(|_| text(&mut prng))),
                prng.next_u64() as u16,
                [prng.next_u64() as i32, -1],
                text(&mut prng),
            );
            let stored = bytes::<Row>(row.as_view());
            assert_eq!(Row::decode(&stored).map(Row::from_view), Some(row));
        }
    }

    #[test]
    fn no_bytes_make_rows_panic_and_none_are_believed_that_say_something_else() {
        let mut prng = Prng::from_seed(4);
        let parts = (true, ["a", "", "bc"]);
        let whole = bytes::<Row>(("one", Some(b"two"), parts, 7, [1, 2], "three"));
        let mut believed = 0;
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=prng.below(3) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << prng.below(8);
            }
            bytes.truncate(prng.below(2 * bytes.len() as u64) as usize);
            if let Some(row) = Row::decode(&bytes) {
                let mut again = Vec::new();
                Row::encode(&row, &mut again);
                assert_eq!(again, bytes);
                believed += 1;
            }
        }
        assert!(believed > 100, "{believed} decoded");
    }

    #[test]
    fn parts_of_one_length_take_no_length() {
        assert_eq!(bytes::<(u8, (u16, bool), &str)>((1, (2, true), "ab")), b"\x01\x02\0\x01ab");
        assert_eq!(bytes::<(&str, &str)>(("ab", "cd")), b"\x02abcd");
        assert_eq!(<(u8, [u16; 3])>::encoded_len(), Some(7));
        assert_eq!(<(&str, u8)>::encoded_len(), None);
        assert_eq!(<[u64; 0]>::decode(&[1]), None);
        assert_eq!(<[u64; 0]>::decode(&[]), Some([]));
    }
}
