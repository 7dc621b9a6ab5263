//! Values: types that a table stores.

/// A type that a table may have as its value: integers of 8 to 128 bits, `f32` and `f64`, `()`,
/// `[u8; N]`, `&[u8]`, `&str`, and your own. `String`, `Vec<u8>`, `bool` and tuples are keys only:
/// encode a row of several fields with a type of your own, or with a serialization library into
/// `&[u8]`.
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
}

macro_rules! number_value {
    ($($type:ty)*) => {$(
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
        }
    )*};
}

number_value! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }

impl Value for () {
    type View<'a> = ();
    fn type_name() -> String {
        "()".into()
    }
    fn encode((): &(), _out: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Option<()> {
        bytes.is_empty().then_some(())
    }
}

impl<const N: usize> Value for [u8; N] {
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
    fn as_encoded(view: &[u8; N]) -> Option<&[u8]> {
        Some(view)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let mut out = Vec::new();
        f64::encode(&-2.5, &mut out);
        assert_eq!(f64::decode(&out), Some(-2.5));
        assert_eq!(u32::decode(&out), None);
        assert_eq!(<&str>::as_encoded(&"ab"), Some(&b"ab"[..]));
        assert_eq!(<&str>::decode(&[255]), None);
    }
}
