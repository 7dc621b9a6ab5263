//! Which format a line of an unknown format looks most like: by edits between the shapes of the
//! line and of an example of each format.
//!
//! - K1: a shape has one letter for a run of digits, as many as it has for a run of letters, but at
//!   most four, one blank for a run of blanks, and every other byte as it is.

use crate::lines::is_remark;

/// Bytes of a line that are compared.
const LINE_BYTES: usize = 200;
/// Letters of a run that are compared.
const LETTERS_MAX: usize = 4;
/// Bytes of a line that are shown.
const SHOWN_BYTES: usize = 80;

/// What a file begins with, for people: its first line, or its first bytes.
pub fn beginning(head: &[u8]) -> String {
    let line = first_line(head);
    if !is_text(line) {
        let bytes: Vec<String> = head.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        return format!("bytes {}", bytes.join(" "));
    }
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]).into_owned();
    if line.len() > SHOWN_BYTES { format!("`{text}...`") } else { format!("`{text}`") }
}

/// A format: its name, and a line of it.
pub type Example = (&'static str, &'static str);

/// The one of `formats` that `head` looks most like; none of what is no text.
pub fn nearest(head: &[u8], formats: impl Iterator<Item = Example>) -> Option<Example> {
    let line = first_line(head);
    if line.is_empty() || !is_text(line) {
        return None;
    }
    let own = shape(line);
    let edits = |line: &str| strsim::generic_levenshtein(&own, &shape(line.as_bytes()));
    formats.min_by_key(|(_, example)| edits(example))
}

fn first_line(head: &[u8]) -> &[u8] {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.find(|line| !is_remark(line)).unwrap_or_default()
}

fn is_text(line: &[u8]) -> bool {
    line.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t')
        && std::str::from_utf8(&line[..line.len().min(SHOWN_BYTES)])
            .map_or_else(|error| error.error_len().is_none(), |_| true)
}

fn shape(line: &[u8]) -> Vec<u8> {
    let mut shape = Vec::new();
    for byte in line.iter().take(LINE_BYTES) {
        let kind = match byte {
            b'0'..=b'9' => b'9',
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => b'a',
            other => *other,
        };
        let most = match kind {
            b'9' | b' ' => 1,
            b'a' => LETTERS_MAX,
            _ => usize::MAX,
        };
        if shape.iter().rev().take(most).take_while(|last| **last == kind).count() < most {
            shape.push(kind);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::examples;

    #[test]
    fn a_line_is_nearest_to_the_format_that_it_almost_is() {
        for (line, name) in [
            ("128166372003061629,usr,0,Read,7014609920,24576", "msr"),
            ("0;20941264;8192;W;0.551706", "spc"),
            ("8,0 3 1 0.000000000 697 Q W 223490 - 8 [kjournald]", "blkparse"),
            ("fio version 4 iolog", "fio"),
            ("0, 23454, 0, 8192, 0", "fio-log"),
        ] {
            assert_eq!(nearest(line.as_bytes(), examples()).map(|row| row.0), Some(name), "{line}");
        }
        assert_eq!(nearest(b"\x00\x01\x02", examples()), None);
        assert_eq!(beginning(b"\x00\x01\xff"), "bytes 00 01 ff");
        assert_eq!(beginning(b"hello\nworld"), "`hello`");
    }
}
