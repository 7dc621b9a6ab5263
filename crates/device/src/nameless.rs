//! Files without a name: they vanish with the process, however that ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file in `folder` that no other process can open.
///
/// # Errors
///
/// What the system says, with the folder.
pub(crate) fn file(folder: &Path) -> io::Result<File> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let named = || {
        // Not every file system has nameless files: make one, and take its name away.
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!(".terrace-{process}-{number}"));
        let file = options.clone().create_new(true).open(&path)?;
        std::fs::remove_file(&path).map(|()| file)
    };
    let made = options.clone().custom_flags(libc::O_TMPFILE).open(folder).or_else(|_| named());
    made.map_err(|source: io::Error| {
        let what = format!("{}: cannot make a temporary file: {source}", folder.display());
        io::Error::new(source.kind(), what)
    })
}
