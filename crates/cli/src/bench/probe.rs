//! What a file itself gives: pages read at random by the same number of tasks, with nothing in
//! between.
//!
//! It goes the same way to the device as the engine does, in the same run, so that the two rates
//! may be compared. fio with `--rw=randread --bs=8k --direct=1 --iodepth=TASKS` gives the same.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_device::{Device, FileDevice, FileOptions, read};
use terrace_rt::{Nanos, Prng, Real, now, spawn};

const PAGE_BYTES: usize = 8192;
/// What direct I/O wants of memory, at most.
const ALIGNMENT: usize = 4096;
/// The unit in which a file system counts what it stores; a block device stores none of its own.
const BLOCK_BYTES: u64 = 512;

/// Reads pages of `path` at random for `span`, and returns how many per second.
///
/// # Errors
///
/// What the file or its device says.
pub fn reads_per_s(path: &Path, tasks: usize, threads: usize, span: Nanos) -> std::io::Result<f64> {
    let real = Real::new(threads);
    let device = Arc::new(FileDevice::open(path, &FileOptions::default())?);
    let bytes = stored_bytes(path, device.len())?;
    let pages = bytes / PAGE_BYTES as u64;
    assert!(pages > 0, "a database has pages");
    let done = Arc::new(AtomicU64::new(0));
    let begin = now();
    let count = Arc::clone(&done);
    real.run(move || {
        let tasks: Vec<_> = (0..tasks as u64)
            .map(|seed| {
                let (device, done) = (Arc::clone(&device), Arc::clone(&count));
                spawn("probe", move || {
                    let mut prng = Prng::from_seed(seed);
                    let mut memory = vec![0; PAGE_BYTES + ALIGNMENT];
                    let start = memory.as_ptr().align_offset(ALIGNMENT);
                    let buffer = &mut memory[start..start + PAGE_BYTES];
                    while now() < begin + span {
                        let offset = prng.below(pages) * PAGE_BYTES as u64;
                        if read(&*device, offset, buffer).is_err() {
                            return;
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(terrace_rt::Task::join);
    });
    let seconds = (now() - begin).as_secs_f64();
    Ok(done.load(Ordering::Relaxed) as f64 / seconds)
}

/// Of the `len` bytes of `path` those that are stored: the home of a database is sparse, and a hole
/// past its last page reads at the speed of memory.
///
/// # Errors
///
/// What the system says of the file.
pub fn stored_bytes(path: &Path, len: u64) -> std::io::Result<u64> {
    let stored = std::fs::metadata(path)?.blocks() * BLOCK_BYTES;
    Ok(if stored == 0 { len } else { stored.min(len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_at_some_rate() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 64 * PAGE_BYTES]).expect("a file");
        match reads_per_s(&path, 8, 1, Nanos::from_millis(50)) {
            Ok(rate) => assert!(rate > 0.0),
            // A file system in memory may refuse direct I/O; that is said, not ignored.
            Err(error) => assert!(error.to_string().contains("direct"), "{error}"),
        }
    }
}
