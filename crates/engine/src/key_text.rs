//! Keys as messages show them: decoded by the type's name in the catalog, which is all that an
//! error about a lock or a damaged page has of the type.
//!
//! - T1: what has no known name, or does not decode, is shown as its stored bytes, in hex.
//! - T2: long keys are cut, at a length that says so.
//! - T3: names of types may be any text: their depth, and the length of arrays, is bounded.

use std::borrow::Cow;

use crate::{Key, KeyPart};

/// Bytes of a part of a key that are shown.
const SHOWN: usize = 48;
/// Types within types of a key that is shown (T3).
const DEPTH_MAX: u32 = 16;
/// Parts of an array that is shown.
const ARRAY_MAX: usize = 64;

/// `key`, which is of the type that the catalog calls `type_name`.
pub(crate) fn key_text(type_name: &str, key: &[u8]) -> String {
    match part(type_name, key, (true, 0)) {
        Some((text, [])) => text,
        _ => format!("{} (as stored)", hex(key)),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}{}", cut(bytes.len()))
}

fn cut(len: usize) -> String {
    if len > SHOWN { format!("... ({len} bytes)") } else { String::new() }
}

fn bytes_text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    format!("b\"{}\"{}", shown.escape_ascii(), cut(bytes.len()))
}

fn str_text(text: &str) -> String {
    let shown = &text[..text.floor_char_boundary(SHOWN)];
    format!("\"{}\"{}", shown.escape_debug(), cut(text.len()))
}

/// One part that `bytes` begin with, or, if it is the `last`, are; and the rest of them.
fn part<'b>(
    type_name: &str,
    bytes: &'b [u8],
    (last, depth): (bool, u32),
) -> Option<(String, &'b [u8])> {
    fn number<K: KeyPart>(bytes: &[u8]) -> Option<(String, &[u8])>
    where
        for<'a> K::View<'a>: ToString,
    {
        K::decode_part(bytes).map(|(value, rest)| (value.to_string(), rest))
    }
    match type_name {
        "u8" => number::<u8>(bytes),
        "u16" => number::<u16>(bytes),
        "u32" => number::<u32>(bytes),
        "u64" => number::<u64>(bytes),
        "u128" => number::<u128>(bytes),
        "i8" => number::<i8>(bytes),
        "i16" => number::<i16>(bytes),
        "i32" => number::<i32>(bytes),
        "i64" => number::<i64>(bytes),
        "i128" => number::<i128>(bytes),
        "bool" => number::<bool>(bytes),
        "char" => char::decode_part(bytes).map(|(value, rest)| (format!("{value:?}"), rest)),
        "bytes" if last => Some((bytes_text(bytes), &[])),
        "str" if last => <&str>::decode(bytes).map(|text| (str_text(text), &[][..])),
        "escaped bytes" => {
            let (value, rest): (Cow<'_, [u8]>, _) = Vec::<u8>::decode_part(bytes)?;
            Some((bytes_text(&value), rest))
        }
        "escaped str" => {
            let (value, rest): (Cow<'_, str>, _) = String::decode_part(bytes)?;
            Some((str_text(&value), rest))
        }
        "()" => Some(("()".into(), bytes)),
        _ if depth == DEPTH_MAX => None,
        _ => match type_name.strip_suffix('?') {
            Some(inner) => option(inner, bytes, (last, depth + 1)),
            None if type_name.starts_with('[') => array(type_name, bytes, depth + 1),
            None => tuple(type_name, bytes, (last, depth + 1)),
        },
    }
}

fn option<'b>(type_name: &str, bytes: &'b [u8], place: (bool, u32)) -> Option<(String, &'b [u8])> {
    match bytes {
        [0, rest @ ..] => Some(("None".into(), rest)),
        [1, rest @ ..] => {
            let (text, rest) = part(type_name, rest, place)?;
            Some((format!("Some({text})"), rest))
        }
        _ => None,
    }
}

fn array<'b>(type_name: &str, mut bytes: &'b [u8], depth: u32) -> Option<(String, &'b [u8])> {
    let (inner, len) = type_name.strip_prefix('[')?.strip_suffix(']')?.rsplit_once(';')?;
    let len: usize = len.parse().ok()?;
    if inner == "u8" {
        return bytes.split_at_checked(len).map(|(value, rest)| (hex(value), rest));
    }
    if len > ARRAY_MAX {
        return None;
    }
    let mut texts = Vec::new();
    for _ in 0..len {
        let (text, rest) = part(inner, bytes, (false, depth))?;
        texts.push(text);
        bytes = rest;
    }
    Some((format!("[{}]", texts.join(", ")), bytes))
}

fn tuple<'b>(
    type_name: &str,
    mut bytes: &'b [u8],
    (last, depth): (bool, u32),
) -> Option<(String, &'b [u8])> {
    let mut names = type_name.strip_prefix('(')?.strip_suffix(')')?;
    let mut texts = Vec::new();
    while !names.is_empty() {
        let (name, others) = first_name(names);
        let (text, rest) = part(name, bytes, (last && others.is_empty(), depth))?;
        texts.push(text);
        (names, bytes) = (others, rest);
    }
    Some((format!("({})", texts.join(", ")), bytes))
}

/// The first of names that commas part, and the others.
fn first_name(names: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, char) in names.char_indices() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return (&names[..at], &names[at + 1..]),
            _ => (),
        }
    }
    (names, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<K: Key>(key: K::View<'_>) -> String {
        let mut bytes = Vec::new();
        K::encode(&key, &mut bytes);
        key_text(&K::type_name(), &bytes)
    }

    #[test]
    fn keys_are_shown_as_they_were_given() {
        assert_eq!(shown::<u64>(7), "7");
        assert_eq!(shown::<i16>(-7), "-7");
        assert_eq!(shown::<(u64, &str)>((7, "x")), "(7, \"x\")");
        assert_eq!(
            shown::<(u8, (bool, u16), &[u8])>((1, (true, 2), b"\0a")),
            "(1, (true, 2), b\"\\x00a\")"
        );
        let text = Cow::Borrowed("a\0b");
        assert_eq!(shown::<(String, i64)>((text, -1)), "(\"a\\0b\", -1)");
        assert_eq!(shown::<[u8; 3]>([1, 2, 255]), "0x0102ff");
        assert_eq!(shown::<()>(()), "()");
        assert_eq!(shown::<(i128, u128, char)>((-7, 7, 'x')), "(-7, 7, 'x')");
        assert_eq!(shown::<(Option<u8>, Option<&str>)>((None, Some("a"))), "(None, Some(\"a\"))");
        assert_eq!(shown::<Option<(u8, bool)>>(Some((1, true))), "Some((1, true))");
        assert_eq!(shown::<[u16; 3]>([1, 2, 3]), "[1, 2, 3]");
        assert_eq!(
            shown::<([(u8, bool); 2], u8)>(([(1, true), (2, false)], 3)),
            "([(1, true), (2, false)], 3)"
        );
        assert_eq!(shown::<&str>("line\nfeed\u{1b}"), "\"line\\nfeed\\u{1b}\"");
    }

    #[test]
    fn what_does_not_decode_is_shown_as_it_is_stored() {
        assert_eq!(key_text("point", &[1, 2]), "0x0102 (as stored)");
        assert_eq!(key_text("u64", &[1, 2]), "0x0102 (as stored)");
        assert_eq!(key_text("u8", &[1, 2]), "0x0102 (as stored)");
        assert_eq!(key_text("str", &[255]), "0xff (as stored)");
        assert_eq!(key_text("(str,u64)", b"abc"), "0x616263 (as stored)");
        for broken in ["(", ")", "(u8", "u8)", "((u8)", "[u8;", "[u8;x]", "[u8;99999]", ""] {
            assert_eq!(key_text(broken, &[1]), "0x01 (as stored)", "{broken}");
        }
    }

    /// Any text may be the name of a type, since raw tables are made of them.
    #[test]
    fn names_of_types_without_end_are_not_followed() {
        let deep = |open: &str, close: &str| format!("{}u8{}", open.repeat(900), close.repeat(900));
        for name in [deep("(", ")"), deep("[", ";1]"), deep("", "?")] {
            assert!(key_text(&name, &[1; 1_000]).starts_with("0x0101"), "{name}");
        }
        assert_eq!(key_text("[();99999999999]", &[]), "0x (as stored)");
        assert_eq!(key_text("[?;2]", &[1, 1]), "0x0101 (as stored)");
    }

    #[test]
    fn long_keys_are_cut() {
        assert!(shown::<&str>(&"ä".repeat(300)).ends_with("... (600 bytes)"));
        assert!(shown::<&[u8]>(&[7; 300]).len() < 220);
        assert!(key_text("?", &[7; 300]).ends_with("... (300 bytes) (as stored)"));
    }
}
