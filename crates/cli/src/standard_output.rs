//! Standard output: what is shown there, and that it was.
//!
//! - N1: a command that shows something has failed if standard output did not take it, unless it is
//!   a pipe whose reader has seen enough. All write here, and `main` asks at the end.
//! - N2: a closed one is reported before the work. Before `main` begins, Rust opens `/dev/null` in
//!   its place, which takes all that is written; so it is looked at before that.

#![allow(unsafe_code)]

use std::io::{self, ErrorKind, Stdout, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

const NUMBER: libc::c_int = 1;

/// Whether it was closed when the process began.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Why something was not shown (N1).
static NOT_SHOWN: OnceLock<String> = OnceLock::new();

extern "C" fn look() {
    // SAFETY: it asks for the flags of a file, by number, and touches no memory.
    let flags = unsafe { libc::fcntl(NUMBER, libc::F_GETFD) };
    IS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: the loader calls what this section points to, once, before `main`; `look` has the type
// that it wants, and needs nothing that Rust sets up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Standard output, for what is written piece by piece.
///
/// # Errors
///
/// It is closed (N2).
pub fn open() -> io::Result<Stdout> {
    if IS_CLOSED.load(Ordering::Relaxed) {
        return Err(io::Error::new(ErrorKind::NotFound, "standard output is closed"));
    }
    Ok(io::stdout())
}

/// Refuses to begin what has something to show if that has no place to go (N2).
///
/// # Errors
///
/// It is closed.
pub fn check() -> Result<(), Failure> {
    open().map(drop).map_err(|error| Failure::failed("cannot show anything", error))
}

/// Shows `text`.
pub fn show(text: &str) {
    note(open().and_then(|mut out| {
        out.write_all(text.as_bytes())?;
        out.flush()
    }));
}

/// Takes note of what became of something that was written to standard output (N1).
pub fn note(written: io::Result<()>) {
    match written {
        Err(error) if error.raw_os_error() != Some(libc::EPIPE) => {
            let _first = NOT_SHOWN.set(error.to_string());
        }
        _ => (),
    }
}

/// Whether all that was to be shown was (N1).
///
/// # Errors
///
/// The first error.
pub fn end() -> Result<(), Failure> {
    match NOT_SHOWN.get() {
        Some(error) => Err(Failure::failed("cannot write to standard output", error)),
        None => Ok(()),
    }
}
