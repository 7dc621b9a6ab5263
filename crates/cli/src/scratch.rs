//! Folders for files that are needed while the command runs.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that goes with its owner, unless it is kept.
pub struct Scratch {
    path: PathBuf,
    is_kept: bool,
}

impl Scratch {
    /// A new folder in `parent`, or else where the system keeps temporary files.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn make(parent: Option<&Path>) -> io::Result<Scratch> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let parent = parent.map_or_else(env::temp_dir, Path::to_path_buf);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("terrace-torture-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Scratch { path, is_kept: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it behind when its owner goes.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_kept {
            // What is left behind is found by name, and harms nothing.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
