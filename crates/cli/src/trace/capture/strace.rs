//! Watches by strace: a program that it runs, or processes that run already.

use super::end::{End, POLL};
use super::processes::{self, Process};
use crate::failure::Failure;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;

/// Everything that moves bytes of files, positions in them, or descriptors.
const CALLS: &str = "trace=open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,lseek,\
                     read,readv,pread64,preadv,preadv2,write,writev,pwrite64,pwritev,pwritev2,\
                     io_submit,io_uring_enter,clone,clone3,fork,vfork";
/// The requests of an `io_submit` are shown, one for one; the rest is not needed in full.
const SHOWN: &str = "abbrev=!io_submit";

fn command(raw: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-ttt", "-yy", "-a", "1", "-s", "0", "-e", "signal=none", "-e"]);
    strace.arg(CALLS).args(["-e", SHOWN, "-A", "-o"]).arg(raw);
    strace
}

fn start(strace: &mut Command) -> Result<Child, Failure> {
    strace.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Failed(
            "capture needs strace, which is not installed; install it, or record with blktrace, \
             perf or fio, whose formats are read too"
                .to_string(),
        ),
        _ => Failure::failed("cannot run strace", error),
    })
}

/// Runs `program` until it ends, or `end` has come. What went wrong with it.
///
/// # Errors
///
/// strace is missing.
pub fn run(raw: &Path, program: &[OsString], end: &End) -> Result<Option<String>, Failure> {
    // Not blocked: it passes the signal that ends it on to the program.
    let mut child = start(command(raw).args(["-I", "2", "--"]).args(program))?;
    let (status, is_stopped) = wait(&mut child, end)?;
    report_unseen(raw);
    let is_fine = status.success() || is_stopped;
    Ok((!is_fine).then(|| {
        format!("the program ended with {status}, or it is not there or may not be watched")
    }))
}

/// Watches `processes` and their children until they end, or `end` has come; they go on. What went
/// wrong.
///
/// # Errors
///
/// strace is missing; the file cannot be written.
pub fn attach(raw: &Path, processes: &[Process], end: &End) -> Result<Option<String>, Failure> {
    let positions = processes::positions(processes);
    let file = OpenOptions::new().create(true).append(true).open(raw);
    file.and_then(|mut file| file.write_all(positions.as_bytes()))
        .map_err(|error| Failure::failed(format!("cannot write {}", raw.display()), error))?;
    let mut strace = command(raw);
    for process in processes {
        strace.arg("-p").arg(process.number.to_string());
    }
    let mut child = start(strace.stderr(Stdio::piped()))?;
    let errors = child.stderr.take();
    let (status, is_stopped) = wait(&mut child, end)?;
    report_unseen(raw);
    let mut said = String::new();
    if let Some(mut errors) = errors {
        let _ = io::Read::read_to_string(&mut errors, &mut said);
    }
    if status.success() || is_stopped && !said.contains("Operation not permitted") {
        return Ok(None);
    }
    let why = said.lines().next().unwrap_or("strace failed").to_string();
    Ok(Some(format!("{why} ({status}); watching needs the rights of the process's owner or root")))
}

/// Says how many requests were not seen: of `io_uring_enter` strace shows no file.
fn report_unseen(raw: &Path) {
    let lines = File::open(raw).map(|file| BufReader::new(file).split(b'\n'));
    let is_unseen = |line: &Vec<u8>| memchr::memmem::find(line, b" io_uring_enter(").is_some();
    let count = lines.map_or(0, |lines| lines.map_while(Result::ok).filter(is_unseen).count());
    if count > 0 {
        let instead = super::NO_URING;
        eprintln!("{count} calls of io_uring_enter are not in the trace; {instead}");
    }
}

/// Waits for strace to end, or stops it when `end` has come. Whether it was stopped.
fn wait(child: &mut Child, end: &End) -> Result<(ExitStatus, bool), Failure> {
    let failed = |error| Failure::failed("cannot wait for strace", error);
    let mut is_stopped = false;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok((status, is_stopped || end.interrupt.is_asked()));
        }
        if !is_stopped && end.has_come() {
            // It detaches from processes that it did not start, and ends those that it did.
            crate::interrupt::ask_to_end(child.id());
            is_stopped = true;
        }
        sleep(POLL);
    }
}
