//! Files that the command writes, and what it knows of the machine.
//!
//! Places are tried before the work, so that a typing error does not cost the run.
//!
//! - O1: a file that is not empty is replaced only if it is a report that this command wrote, or if
//!   `--force` was given. A block device never is.

use crate::failure::Failure;
use crate::standard_output;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tempfile::NamedTempFile;

/// Whether `--force` was given.
static IS_FORCED: AtomicBool = AtomicBool::new(false);

/// Lets the outputs of this process replace any file (O1).
pub fn force() {
    IS_FORCED.store(true, Ordering::Relaxed);
}

/// Where a text goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// To standard output.
    Standard,
    /// To a file, which is replaced.
    File(PathBuf),
}

impl Sink {
    /// The sink called `path`: `-` is standard output.
    ///
    /// # Errors
    ///
    /// A file that cannot be written, or that holds what this command has not written.
    pub fn open(path: &Path) -> Result<Sink, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Sink::Standard);
        }
        check_replaceable(path, "a report of Terrace", is_report)?;
        let made = !path.exists();
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| Failure::failed(format!("cannot write {}", path.display()), error))?;
        if made {
            // Nothing is left behind should the work fail.
            let _ = fs::remove_file(path);
        }
        Ok(Sink::File(path.to_path_buf()))
    }

    /// Writes `text`. A file has all of it, or what it had before.
    ///
    /// # Errors
    ///
    /// A file that could not be written.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        match self {
            Sink::Standard => {
                standard_output::show(text);
                Ok(())
            }
            Sink::File(path) => replace(path, text).map_err(|error| {
                Failure::failed(format!("cannot write {}", path.display()), error)
            }),
        }
    }
}

/// Bytes that tell what a file holds.
const HEAD_BYTES: u64 = 512;

/// Whether a file that begins with `head` is a report of this command: an object of JSON whose
/// first field is the command, or a page whose title is.
fn is_report(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    match text.split_first() {
        Some((b'{', object)) => object.trim_ascii_start().starts_with(b"\"command\""),
        Some((b'<', _)) => memchr::memmem::find(text, b"<title>terrace ").is_some(),
        _ => false,
    }
}

/// Refuses to write to `path` if there is a file that is not empty and that `is_ours` does not know
/// by its first bytes (O1): a mistyped name must not destroy a database. Pipes and terminals may be
/// written to.
///
/// # Errors
///
/// Says that it is not `kind`.
pub fn check_replaceable(
    path: &Path,
    kind: &str,
    is_ours: fn(&[u8]) -> bool,
) -> Result<(), Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot write {}: {why}", path.display()))
    };
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    if found.file_type().is_block_device() {
        return Err(refused(&"it is a block device"));
    }
    if !found.is_file() || found.len() == 0 || IS_FORCED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut head = Vec::new();
    let file = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    file.map_err(|error| refused(&error))?;
    if is_ours(&head) {
        return Ok(());
    }
    Err(refused(&format_args!("it exists and is not {kind}: choose another name, or give --force")))
}

/// Refuses to write what is made of `input` over `input`.
///
/// # Errors
///
/// Both names lead to one file.
pub fn check_apart(input: &Path, output: &Path) -> Result<(), Failure> {
    let id = |path: &Path| {
        let found = fs::metadata(path).ok().filter(|found| found.is_file())?;
        Some((found.dev(), found.ino()))
    };
    match (id(input), id(output)) {
        (Some(input), Some(same)) if input == same => Err(Failure::usage(format!(
            "cannot write {}: it is the input; choose another name",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// Puts `text` in the place of what a file holds; a pipe or a terminal is written to.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // What a link leads to is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return fs::write(&path, text);
    }
    let mut file = beside(&path)?;
    file.write_all(text.as_bytes())?;
    file.persist(&path).map(drop).map_err(|failed| failed.error)
}

/// A new file in the folder of `path`, with the permissions of the file there, or else read by all,
/// as a file made in the usual way. It goes with its owner, unless it takes that file's place.
///
/// # Errors
///
/// Those of the file system.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    file.as_file().set_permissions(
        fs::metadata(path)
            .map_or_else(|_| fs::Permissions::from_mode(0o644), |found| found.permissions()),
    )?;
    Ok(file)
}

/// The sinks of one command.
pub struct Sinks {
    /// For JSON.
    pub json: Option<Sink>,
}

impl Sinks {
    /// Tries the places, standard output among them.
    ///
    /// # Errors
    ///
    /// A place that cannot be written.
    pub fn open(json: Option<&Path>) -> Result<Sinks, Failure> {
        standard_output::check()?;
        Ok(Sinks { json: json.map(Sink::open).transpose()? })
    }

    /// Shows `text` to people: on standard output, or on standard error if JSON goes there.
    pub fn show(&self, text: &str) {
        if self.json == Some(Sink::Standard) {
            eprint!("{text}");
        } else {
            standard_output::show(text);
        }
    }

    /// Writes `object` if JSON is asked for.
    ///
    /// # Errors
    ///
    /// A file that could not be written.
    pub fn write(&self, object: &impl Serialize) -> Result<(), Failure> {
        let Some(sink) = &self.json else { return Ok(()) };
        let mut text = serde_json::to_string_pretty(object).expect("results are numbers and names");
        text.push('\n');
        sink.write(&text)
    }
}

/// The place of a report. One that was not asked for is left out where it cannot be written.
///
/// # Errors
///
/// A place that was asked for and cannot be written.
pub fn report_sink(asked: Option<&Path>, refused: bool) -> Result<Option<Sink>, Failure> {
    const DEFAULT: &str = "report.html";
    match asked {
        Some(path) => Sink::open(path).map(Some),
        None if refused => Ok(None),
        None => Ok(Sink::open(Path::new(DEFAULT)).ok()),
    }
}

/// Measures what depends on the machine.
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Seconds since the start, by the millisecond.
    pub fn seconds(&self) -> f64 {
        (self.0.elapsed().as_secs_f64() * 1e3).round() / 1e3
    }
}

/// Most memory that this process had at once; zero where the system does not say.
pub fn peak_memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

/// Seconds that this thread has run on a processor; none where the system does not say. Unlike the
/// time that passes, it does not grow while others have the processor.
pub fn cpu_seconds() -> Option<f64> {
    let times = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let run_ns = times.split_whitespace().next()?.parse::<u64>().ok()?;
    (run_ns > 0).then_some(run_ns as f64 / 1e9)
}

/// Memory of this machine; none where the system does not say.
pub fn machine_memory_bytes() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Cores of the machine that this process may use.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

#[cfg(test)]
mod tests {
    use super::is_report;

    #[test]
    fn only_what_this_command_wrote_is_a_report() {
        assert!(is_report(b"{\n  \"command\": \"replay\","));
        assert!(is_report(b"{\"command\":\"replay\""));
        assert!(is_report(b"<!doctype html><html><head><title>terrace advise</title>"));
        // A page whose checksum begins with the byte of a brace, and texts of others.
        for other in [&b"{ \0\0\0\x01\0"[..], b"seed", b"", b"{}", b"[]", b"{ \"seed\": 1 }"] {
            assert!(!is_report(other));
        }
        assert!(!is_report(b"<!doctype html><title>my page</title>"));
    }
}
