//! The list of files beside a trace: `a.files.csv` for `a.csv.zst`. It says what the numbers of
//! files stand for, and so which of them are logs.
//!
//! ```text
//! file_id,file[,more columns]
//! 7,/var/lib/postgresql/15/main/base/5/16384
//! ```
//!
//! - L1: what is read is the number and the name; both stand first. A name with a comma or a
//!   quotation mark stands between quotation marks, and those in it are doubled.

use crate::failure::Failure;
use crate::output::check_replaceable;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use terrace_trace::{FileRole, Packing, Reader};

/// The first columns.
const HEADER: &str = "file_id,file";

/// The names of a trace's files by number.
#[derive(Default)]
pub struct FileList(BTreeMap<u32, String>);

impl FileList {
    /// The list beside `trace`; empty if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn beside(trace: &Path) -> Result<FileList, Failure> {
        let Some(text) = text_beside(trace)? else { return Ok(FileList::default()) };
        let row = |line: &str| {
            let (number, rest) = line.split_once(',')?;
            Some((number.trim().parse().ok()?, unquoted(rest)))
        };
        Ok(FileList(text.lines().filter_map(row).collect()))
    }

    /// Whether there is no list, or nothing on it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The files with `name`: of a whole path, or of one of its folders.
    pub fn numbers_of(&self, name: &str) -> Vec<u32> {
        let is_called = |file: &&String| *file == name || file.split('/').any(|part| part == name);
        self.0.iter().filter(|(_, file)| is_called(file)).map(|(number, _)| *number).collect()
    }

    /// The files that are not data.
    pub fn beside_data(&self) -> Vec<u32> {
        let is_other = |file: &String| FileRole::of(file.as_bytes()) != FileRole::Data;
        self.0.iter().filter(|(_, file)| is_other(file)).map(|(number, _)| *number).collect()
    }
}

/// Where the list of a new `trace` is written.
pub fn path_of(trace: &Path) -> PathBuf {
    let name = trace.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let packed = [Packing::Gzip, Packing::Zstd, Packing::Xz];
    let plain = packed.iter().find_map(|packing| {
        let ending = packing.ending();
        name.strip_suffix(ending)
    });
    let plain = plain.unwrap_or(&name);
    let stem = plain.rsplit_once('.').map_or(plain, |(stem, _)| stem);
    trace.with_file_name(format!("{stem}.files.csv"))
}

/// Where a list may be: beside, or under the name up to the first dot.
fn places(trace: &Path) -> [PathBuf; 2] {
    let name = trace.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    [path_of(trace), trace.with_file_name(format!("{stem}.files.csv"))]
}

fn text_beside(trace: &Path) -> Result<Option<String>, Failure> {
    for list in places(trace) {
        match fs::read(&list) {
            Ok(bytes) => return Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::failed(format!("cannot read {}", list.display()), error));
            }
        }
    }
    Ok(None)
}

/// The field that `text` begins with (L1).
fn unquoted(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"') else {
        return text.split(',').next().unwrap_or_default().trim().to_string();
    };
    let mut name = String::new();
    let mut letters = quoted.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if letters.next_if_eq(&'"').is_none() => break,
            letter => name.push(letter),
        }
    }
    name
}

/// `name` as a field (L1).
pub fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n']) {
        return format!("\"{}\"", name.replace('"', "\"\"").replace('\n', " "));
    }
    name.to_string()
}

/// Writes the list of the new trace at `trace`: `columns` behind number and name, and `rows`.
///
/// # Errors
///
/// There is something else in its place; it cannot be written.
pub fn write(trace: &Path, columns: &str, rows: &[String]) -> Result<PathBuf, Failure> {
    let path = path_of(trace);
    check_replaceable(&path, "a list of files", is_list)?;
    let text = format!("{HEADER}{columns}\n{}", rows.concat());
    fs::write(&path, text)
        .map_err(|error| Failure::failed(format!("cannot write {}", path.display()), error))?;
    Ok(path)
}

fn is_list(head: &[u8]) -> bool {
    head.starts_with(HEADER.as_bytes())
}

/// Gives the new trace at `out`, which has the files of the trace `from`, its list: that of `from`,
/// or the names that `reader` knows.
///
/// # Errors
///
/// A list that cannot be read or written.
pub fn carry(from: &Path, reader: &Reader, out: &Path) -> Result<(), Failure> {
    if out.as_os_str() == "-" {
        return Ok(());
    }
    if reader.has_paths() {
        let name = |number: u32| reader.file_path(number).map(|name| (number, name));
        let rows: Vec<String> = (0..)
            .map_while(name)
            .map(|(number, name)| format!("{number},{}\n", quoted(&String::from_utf8_lossy(name))))
            .collect();
        return write(out, "", &rows).map(drop);
    }
    let (Some(text), path) = (text_beside(from)?, path_of(out)) else { return Ok(()) };
    if places(from).contains(&path) {
        return Ok(());
    }
    check_replaceable(&path, "a list of files", is_list)?;
    fs::write(&path, text)
        .map_err(|error| Failure::failed(format!("cannot write {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_name_of_its_trace() {
        for (trace, list) in [
            ("d/a.csv.zst", "d/a.files.csv"),
            ("capture.trace", "capture.files.csv"),
            ("my.first.trace.gz", "my.first.files.csv"),
            ("trace", "trace.files.csv"),
        ] {
            assert_eq!(path_of(Path::new(trace)), Path::new(list), "{trace}");
        }
    }

    #[test]
    fn names_survive_the_list() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let trace = folder.path().join("a.trace");
        let names = ["/d/base/5/16384", "/d/pg_wal/01", "/d/a, \"b\"", "/lib/libc.so.6"];
        let rows: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(number, name)| format!("{number},{},data,7\n", quoted(name)))
            .collect();
        write(&trace, ",role,reads", &rows).expect("written");
        let list = FileList::beside(&trace).expect("a list");
        assert_eq!(list.0.values().collect::<Vec<_>>(), names);
        assert_eq!(list.beside_data(), [1, 3]);
        assert_eq!(list.numbers_of("pg_wal"), [1]);
        assert_eq!(list.numbers_of("/d/base/5/16384"), [0]);
        assert_eq!(FileList::beside(&folder.path().join("b.trace")).expect("none").0.len(), 0);
    }
}
