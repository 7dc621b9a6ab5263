//! `terrace trace capture`: runs a program below strace, and makes a trace of what it wrote.

use super::{Out, failed, skipped_text};
use crate::command::TraceCapture;
use crate::failure::Failure;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use terrace_trace::{BadInput, CompactHeader, Reader};

/// Everything that moves bytes of files, positions in them, or descriptors.
const CALLS: &str = "trace=open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,lseek,\
                     read,readv,pread64,preadv,preadv2,write,writev,pwrite64,pwritev,pwritev2,\
                     clone,clone3,fork,vfork";

/// Runs it.
///
/// # Errors
///
/// strace is missing or may not watch the program; the program cannot be run, or fails, of which
/// the trace is kept; a file that cannot be written.
pub fn capture(options: &TraceCapture) -> Result<(), Failure> {
    let under = match &options.under {
        Some(folder) => below(folder)?,
        None => Vec::new(),
    };
    let raw = Raw::new(&options.out);
    let status = run(&raw, options)?;
    let text = fs::metadata(&raw.0).map_or(0, |data| data.len());
    if text == 0 {
        return Err(Failure::Failed(format!(
            "strace recorded nothing ({status}): it may not watch programs here, or there is no \
             such program"
        )));
    }
    let mut reader = Reader::open_strace(&raw.0, &under, BadInput::Skip).map_err(failed)?;
    let header = CompactHeader {
        addressing: reader.addressing(),
        paging: reader.paging(),
        clock: reader.clock(),
    };
    let mut out = Out::begin(&options.out, header)?;
    let mut requests = 0_u64;
    for request in reader.by_ref() {
        out.write(request.map_err(failed)?)?;
        requests += 1;
    }
    out.finish()?;
    eprint!("{}", skipped_text(&reader));
    eprintln!(
        "{requests} requests in {}; mapped files, io_uring and libaio are not seen",
        options.out.display()
    );
    if status.success() {
        return Ok(());
    }
    let kept = options.out.display();
    Err(Failure::Failed(format!("the program ended with {status}; what it did is in {kept}")))
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

fn run(raw: &Raw, options: &TraceCapture) -> Result<ExitStatus, Failure> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-ttt", "-yy", "-a", "1", "-s", "0", "-e", "signal=none", "-e"]);
    strace.arg(CALLS).arg("-o").arg(&raw.0).arg("--").args(&options.command);
    strace.status().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Failed(
            "capture needs strace, which is not installed; install it, or record with blktrace or \
             fio, whose formats are read too"
                .to_string(),
        ),
        _ => Failure::failed("cannot run strace", error),
    })
}

/// What strace writes, which is gone when this is.
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
