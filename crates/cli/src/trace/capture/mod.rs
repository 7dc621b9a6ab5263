//! `terrace trace capture`: makes a trace of what programs do to their files, and a list of these.
//!
//! - P1: whatever watches writes lines like those of `strace -f -ttt -yy` to a file, of which the
//!   trace is made in the end: one reader knows what calls mean.
//! - P2: files that are not data are left out of the trace, and are on the list all the same.

mod end;
mod postgres;
mod processes;
mod strace;
mod tracepoints;

use super::{Out, failed, list, skipped_text};
use crate::command::{TraceCapture, Watcher};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::check_replaceable;
use crate::table::{Table, thousands};
use end::End;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use terrace_trace::{BadInput, CompactHeader, FileRole, Kind, Reader, Request};

/// What to do about requests by io_uring, which nothing here sees.
const NO_URING: &str = "have the program do without io_uring (MariaDB: innodb_use_native_aio=0), \
                        or record with blktrace";
/// Files with most traffic that are shown.
const SHOWN_FILES: usize = 10;

/// Runs it.
///
/// # Errors
///
/// Nothing here may watch the program; the program cannot be run, or fails, of which the trace is
/// kept; a file that cannot be written.
pub fn capture(options: &TraceCapture) -> Result<(), Failure> {
    let under = match &options.under {
        Some(folder) => below(folder)?,
        None => Vec::new(),
    };
    if options.span.is_some_and(|span| span.0 <= 0.0) {
        return Err(Failure::usage("--for has to be above zero"));
    }
    // Before the work: a capture of an hour must have a place to go.
    check_replaceable(&options.out, "empty", |_| false)?;
    let raw = Raw::new(&options.out);
    let interrupt = Interrupt::watch()?;
    let end = End::of(options, &interrupt);
    let trouble = if options.pid.is_empty() {
        strace::run(&raw.0, &options.command, &end)?
    } else {
        let processes = processes::with_children(&options.pid)?;
        let is_by_tracepoints = match options.with {
            Watcher::Auto => tracepoints::are_there(),
            Watcher::Strace => false,
            Watcher::Tracepoints => true,
        };
        if is_by_tracepoints {
            tracepoints::watch(&raw.0, &processes, &end)?
        } else {
            strace::attach(&raw.0, &processes, &end)?
        }
    };
    let text = fs::metadata(&raw.0).map_or(0, |data| data.len());
    if text == 0 {
        let why = trouble.unwrap_or_else(|| "no call was seen".to_string());
        return Err(Failure::Failed(format!("nothing was recorded: {why}")));
    }
    let mut reader = Reader::open_strace(&raw.0, &under, BadInput::Skip).map_err(failed)?;
    let files = write(&mut reader, options)?;
    eprint!("{}", skipped_text(&reader));
    show(&files, options)?;
    match trouble {
        Some(trouble) => {
            let kept = options.out.display();
            Err(Failure::Failed(format!("{trouble}; what was recorded is in {kept}")))
        }
        None => Ok(()),
    }
}

/// What was done to a file.
#[derive(Default)]
struct Traffic {
    path: String,
    /// What the catalog of the database calls it.
    relation: Option<String>,
    role: Option<FileRole>,
    requests: [u64; 2],
    bytes: [u64; 2],
}

impl Traffic {
    fn count(&mut self, request: &Request) {
        let kind = usize::from(request.kind == Kind::Write);
        self.requests[kind] += 1;
        self.bytes[kind] += u64::from(request.length);
    }

    fn is_left_out(&self, options: &TraceCapture) -> bool {
        !options.all_files && self.role.is_some_and(|role| role != FileRole::Data)
    }
}

/// Writes the trace and its list.
fn write(reader: &mut Reader, options: &TraceCapture) -> Result<BTreeMap<u32, Traffic>, Failure> {
    let header = CompactHeader {
        addressing: reader.addressing(),
        paging: reader.paging(),
        clock: reader.clock(),
    };
    let mut out = Out::begin(&options.out, header)?;
    let mut files: BTreeMap<u32, Traffic> = BTreeMap::new();
    while let Some(request) = reader.next() {
        let request = request.map_err(failed)?;
        let file = files.entry(request.file).or_insert_with(|| {
            let path = reader.file_path(request.file).unwrap_or_default();
            let role = Some(FileRole::of(path));
            let path = String::from_utf8_lossy(path).into_owned();
            Traffic { path, role, ..Traffic::default() }
        });
        file.count(&request);
        if !file.is_left_out(options) {
            out.write(request)?;
        }
    }
    out.finish()?;
    if let Some(connection) = &options.catalogue {
        postgres::name_relations(&mut files, connection)?;
    }
    if options.out.as_os_str() != "-" {
        let rows: Vec<String> = files.iter().map(|(number, file)| row(*number, file)).collect();
        let columns = ",role,relation,reads,read_bytes,writes,written_bytes";
        list::write(&options.out, columns, &rows)?;
    }
    Ok(files)
}

fn row(number: u32, file: &Traffic) -> String {
    let ([reads, writes], [read, written]) = (file.requests, file.bytes);
    format!(
        "{number},{},{},{},{reads},{read},{writes},{written}\n",
        list::quoted(&file.path),
        file.role.map_or("", FileRole::name),
        list::quoted(file.relation.as_deref().unwrap_or("")),
    )
}

/// Says what was recorded, and of which files.
fn show(files: &BTreeMap<u32, Traffic>, options: &TraceCapture) -> Result<(), Failure> {
    let count = |left_out: bool| {
        let chosen = files.values().filter(|file| file.is_left_out(options) == left_out);
        let counts = chosen.map(|file| (1, file.requests.iter().sum::<u64>()));
        counts.fold((0_u64, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let ((kept_files, kept), (other_files, other)) = (count(false), count(true));
    let mut most: Vec<&Traffic> = files.values().collect();
    most.sort_by_key(|file| std::cmp::Reverse(file.bytes.iter().sum::<u64>()));
    let mut table = Table::new(["file", "role", "reads", "MiB read", "writes", "MiB written"]);
    for file in most.iter().take(SHOWN_FILES) {
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / 1_048_576.0);
        let name = file.relation.clone().unwrap_or_else(|| tail(&file.path));
        let count = |number: u64| thousands(number as f64);
        table.row([
            name,
            file.role.map_or("", FileRole::name).to_string(),
            count(file.requests[0]),
            mib(file.bytes[0]),
            count(file.requests[1]),
            mib(file.bytes[1]),
        ]);
    }
    let place = match options.out.as_os_str() == "-" {
        true => "standard output".to_string(),
        false => options.out.display().to_string(),
    };
    eprintln!(
        "{} requests to {kept_files} files in {place}; left out: {} to {other_files} files of \
         logs, temporary data and libraries (--all-files keeps them)",
        thousands(kept as f64),
        thousands(other as f64),
    );
    if !files.is_empty() {
        eprint!("{}", table.text());
    }
    Ok(())
}

/// The end of a path, which tells files apart.
fn tail(path: &str) -> String {
    const LETTERS_MAX: usize = 48;
    let letters = path.chars().count();
    if letters <= LETTERS_MAX {
        return path.to_string();
    }
    let end: String = path.chars().skip(letters - LETTERS_MAX + 3).collect();
    format!("...{end}")
}

/// The beginning of all paths in `folder`.
fn below(folder: &Path) -> Result<Vec<u8>, Failure> {
    let folder = fs::canonicalize(folder)
        .map_err(|error| Failure::failed(format!("cannot open {}", folder.display()), error))?;
    let mut begin = folder.as_os_str().as_bytes().to_vec();
    if !begin.ends_with(b"/") {
        begin.push(b'/');
    }
    Ok(begin)
}

/// The lines of what watches, which are gone when this is.
struct Raw(PathBuf);

impl Raw {
    fn new(out: &Path) -> Raw {
        let name = if out.as_os_str() == "-" { "capture".as_ref() } else { out.as_os_str() };
        let mut raw = name.to_os_string();
        raw.push(format!(".{}.strace", std::process::id()));
        Raw(PathBuf::from(raw))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
