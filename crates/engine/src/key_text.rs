//! Keys as messages show them: decoded by the type's name in the catalog, which is all that an
//! error about a lock or a damaged page has of the type.
//!
//! - T1: what has no known name, or does not decode, is shown as its stored bytes, in hex.
//! - T2: long keys are cut, at a length that says so.

use std::borrow::Cow;

use crate::{Key, KeyPart};

/// Bytes of a part of a key that are shown.
const SHOWN: usize = 48;

/// `key`, which is of the type that the catalog calls `type_name`.
pub(crate) fn key_text(type_name: &str, key: &[u8]) -> String {
    match part(type_name, key, true) {
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
fn part<'b>(type_name: &str, bytes: &'b [u8], last: bool) -> Option<(String, &'b [u8])> {
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
        "i8" => number::<i8>(bytes),
        "i16" => number::<i16>(bytes),
        "i32" => number::<i32>(bytes),
        "i64" => number::<i64>(bytes),
        "bool" => number::<bool>(bytes),
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
        _ => match array_len(type_name) {
            Some(len) => bytes.split_at_checked(len).map(|(value, rest)| (hex(value), rest)),
            None => tuple(type_name, bytes, last),
        },
    }
}

/// Of `[u8;N]`, the `N`.
fn array_len(type_name: &str) -> Option<usize> {
    type_name.strip_prefix("[u8;")?.strip_suffix(']')?.parse().ok()
}

fn tuple<'b>(type_name: &str, mut bytes: &'b [u8], last: bool) -> Option<(String, &'b [u8])> {
    let mut names = type_name.strip_prefix('(')?.strip_suffix(')')?;
    let mut texts = Vec::new();
    while !names.is_empty() {
        let (name, others) = first_name(names);
        let (text, rest) = part(name, bytes, last && others.is_empty())?;
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

    #[test]
    fn long_keys_are_cut() {
        assert!(shown::<&str>(&"ä".repeat(300)).ends_with("... (600 bytes)"));
        assert!(shown::<&[u8]>(&[7; 300]).len() < 220);
        assert!(key_text("?", &[7; 300]).ends_with("... (300 bytes) (as stored)"));
    }
}
