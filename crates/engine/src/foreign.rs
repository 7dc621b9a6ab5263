//! Keys and values of other crates' types, each behind a feature of the crate's name.
//!
//! ```text
//! type                    bytes of the key              bytes of the value
//! uuid::Uuid              its 16, as it shows them      the same
//! time::OffsetDateTime    seconds since 1970 as an i64, the same
//! chrono::DateTime<Utc>   nanoseconds as a u32
//! Postcard<T>             -                             as the crate postcard serializes a T
//! ```
//!
//! A moment comes back as one in UTC: the offset of an `OffsetDateTime` is not stored, as its order
//! does not depend on it.

/// A key and value that is copied, and stored as a value of another type.
#[cfg(any(feature = "chrono", feature = "time", feature = "uuid"))]
macro_rules! stored_as {
    ($type:ty, $name:literal, $as:ty, $to:expr, $from:expr) => {
        impl crate::Key for $type {
            type View<'a> = $type;
            fn type_name() -> String {
                $name.into()
            }
            fn encode(view: &$type, out: &mut Vec<u8>) {
                <$as as crate::Key>::encode(&$to(view), out);
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                <$as as crate::Key>::decode(bytes).and_then($from)
            }
        }
        impl crate::KeyPart for $type {
            fn encode_part(view: &$type, out: &mut Vec<u8>) {
                <$type as crate::Key>::encode(view, out);
            }
            fn decode_part(bytes: &[u8]) -> Option<($type, &[u8])> {
                let (stored, rest) = <$as as crate::KeyPart>::decode_part(bytes)?;
                Some(($from(stored)?, rest))
            }
        }
        impl crate::KeyField for $type {
            fn as_view(&self) -> $type {
                *self
            }
            fn from_view(view: $type) -> $type {
                view
            }
        }
        impl crate::Value for $type {
            type View<'a> = $type;
            fn type_name() -> String {
                $name.into()
            }
            fn encode(view: &$type, out: &mut Vec<u8>) {
                <$type as crate::Key>::encode(view, out);
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                <$type as crate::Key>::decode(bytes)
            }
            fn encoded_len() -> Option<usize> {
                <$as as crate::Value>::encoded_len()
            }
        }
        impl crate::ValueField for $type {
            fn as_view(&self) -> $type {
                *self
            }
            fn from_view(view: $type) -> $type {
                view
            }
        }
    };
}

#[cfg(feature = "uuid")]
mod of_uuid {
    use uuid::Uuid;

    stored_as!(Uuid, "uuid", [u8; 16], |uuid: &Uuid| uuid.into_bytes(), |bytes| {
        Some(Uuid::from_bytes(bytes))
    });
}

#[cfg(feature = "time")]
mod of_time {
    use time::{Duration, OffsetDateTime};

    fn parts(moment: &OffsetDateTime) -> (i64, u32) {
        (moment.unix_timestamp(), moment.nanosecond())
    }

    fn moment((seconds, nanoseconds): (i64, u32)) -> Option<OffsetDateTime> {
        let second = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
        let is_in_it = nanoseconds < 1_000_000_000;
        is_in_it.then(|| second.checked_add(Duration::nanoseconds(nanoseconds.into()))).flatten()
    }

    stored_as!(OffsetDateTime, "moment", (i64, u32), parts, moment);
}

#[cfg(feature = "chrono")]
mod of_chrono {
    use chrono::{DateTime, Utc};

    fn parts(moment: &DateTime<Utc>) -> (i64, u32) {
        (moment.timestamp(), moment.timestamp_subsec_nanos())
    }

    fn moment((seconds, nanoseconds): (i64, u32)) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(seconds, nanoseconds)
    }

    stored_as!(DateTime<Utc>, "moment", (i64, u32), parts, moment);
}

/// A value of any type that serde can serialize, stored in the format of the crate `postcard`.
///
/// A table remembers the last part of the type's path, without its parameters, and nothing of its
/// fields: postcard stores no names, so a `T` with other fields may decode bytes of an older one to
/// something wrong.
///
/// # Panics
///
/// Storing a value panics if it cannot be serialized: its own `Serialize` fails, or it has a
/// sequence or map of a length that is not known in advance.
///
/// # Examples
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use terrace::{Postcard, TableDef};
///
/// #[derive(Serialize, Deserialize, Debug, PartialEq)]
/// enum Event {
///     Login { user: String },
///     Payment(u64),
/// }
///
/// const EVENTS: TableDef<u64, Postcard<Event>> = TableDef::new("events");
///
/// # let db = terrace::doc_test::database();
/// db.write(|txn| txn.open_table(EVENTS)?.insert(1, Event::Login { user: "ann".into() }))?;
/// let first = db.read(|txn| txn.open_table(EVENTS)?.get(1))?.expect("just inserted");
/// assert_eq!(first.value(), Event::Login { user: "ann".into() });
/// # Ok::<(), terrace::Error>(())
/// ```
#[cfg(feature = "serde")]
pub struct Postcard<T>(std::marker::PhantomData<fn() -> T>);

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned + 'static> crate::Value for Postcard<T> {
    type View<'a> = T;
    fn type_name() -> String {
        let path = std::any::type_name::<T>();
        let whole = path.split('<').next().unwrap_or(path);
        format!("postcard {}", whole.rsplit("::").next().unwrap_or(whole))
    }
    fn encode(view: &T, out: &mut Vec<u8>) {
        let written = postcard::to_extend(view, std::mem::take(out));
        *out = written.unwrap_or_else(|error| {
            panic!("a {} cannot be serialized: {error}", std::any::type_name::<T>())
        });
    }
    fn decode(bytes: &[u8]) -> Option<T> {
        let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use terrace_rt::Prng;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use crate::key::sorts_like_ord;
    use crate::{Key, Postcard, Value};

    /// Seconds near 1970 and far from it, on both sides.
    fn parts(prng: &mut Prng) -> (i64, u32) {
        let seconds = [-62_000_000_000, -1, 0, 1, 1_764_000_000][prng.below(5) as usize];
        (seconds, [0, 1, 999_999_999][prng.below(3) as usize])
    }

    #[test]
    fn moments_and_uuids_sort_like_their_values() {
        sorts_like_ord(|prng| Uuid::from_u64_pair(prng.below(3), prng.next_u64()));
        sorts_like_ord(|prng| {
            let (seconds, nanoseconds) = parts(prng);
            DateTime::from_timestamp(seconds, nanoseconds).expect("in range")
        });
        sorts_like_ord(|prng| {
            let (seconds, nanoseconds) = parts(prng);
            let nanoseconds = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
            OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).expect("in range")
        });
    }

    #[test]
    fn foreign_bytes_are_no_moments() {
        let mut bytes = Vec::new();
        <(i64, u32) as Key>::encode(&(7, 3_000_000_000), &mut bytes);
        assert_eq!(<OffsetDateTime as Key>::decode(&bytes), None);
        assert_eq!(<DateTime<Utc> as Key>::decode(&bytes), None);
        bytes.clear();
        <(i64, u32) as Key>::encode(&(i64::MAX, 0), &mut bytes);
        assert_eq!(<OffsetDateTime as Key>::decode(&bytes), None);
        assert_eq!(<DateTime<Utc> as Key>::decode(&bytes), None);
    }

    #[test]
    fn what_serde_stores_comes_back_whole_or_not_at_all() {
        type Stored = Postcard<(String, Option<u32>, Vec<i64>)>;
        let row = ("ann".to_owned(), Some(7), vec![-1, 500]);
        let mut bytes = Vec::new();
        Stored::encode(&row, &mut bytes);
        assert_eq!(Stored::decode(&bytes), Some(row));
        assert_eq!(Stored::decode(&bytes[..bytes.len() - 1]), None);
        bytes.push(0);
        assert_eq!(Stored::decode(&bytes), None);
        assert_eq!(Postcard::<Vec<std::time::Duration>>::type_name(), "postcard Vec");
    }
}
