//! What an opening has made of files, and how that is undone if it is refused.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::Device;

use super::{PAGE, Plain};
use crate::superblock;

/// What a file was before it was made, or made longer, or labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Was {
    Missing,
    Shorter {
        bytes: u64,
    },
    /// As long as it is, and blank where its label is.
    Blank {
        at: u64,
        bytes: usize,
    },
}

/// Files that were not there before, or not as long, open and so locked.
#[derive(Default)]
pub(crate) struct Made(pub(super) Vec<(PathBuf, Was, Arc<dyn Device>)>);

impl Made {
    /// Removes them, or makes them as short as they were: what they were made for has failed.
    pub(crate) fn take_away(self) {
        for (path, was, device) in self.0 {
            // The caller gets the error for which the rest failed; what is left behind is blank.
            let _undone = match was {
                Was::Missing => fs::remove_file(path),
                Was::Shorter { bytes } => shorten(&path, bytes, device.len()),
                Was::Blank { at, bytes } => blank(&path, at, bytes),
            };
        }
    }
}

/// Makes a file as short as it was, unless its home has got longer with it: a recovery that was
/// refused late may have written that.
fn shorten(path: &Path, bytes: u64, grown: u64) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let told = superblock::pages_told(&Plain(file.try_clone()?))?;
    if told.is_some_and(|pages| pages * PAGE > bytes) || file.metadata()?.len() < grown {
        return Ok(());
    }
    file.set_len(bytes)
}

fn blank(path: &Path, at: u64, bytes: usize) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all_at(&vec![0; bytes], at)
}
