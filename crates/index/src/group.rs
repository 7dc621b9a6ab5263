//! psync I/O of whole pages: a group of requests goes to the device together, and its answers come
//! together.

use std::io;

use terrace_device::{Device, PsyncRead, PsyncWrite, psync_read, psync_write};

use crate::page::Page;

/// Consecutive pages that one request reads: the first byte on the device, and where they go.
pub(crate) type ReadRun = (u64, Vec<Page>);
/// Consecutive pages that one request writes.
pub(crate) type WriteRun<'a> = (u64, Vec<&'a Page>);

/// Reads all runs together.
pub(crate) fn read(device: &dyn Device, runs: &mut [ReadRun]) -> io::Result<()> {
    let len = |run: &ReadRun| run.1.iter().map(|page| page.bytes().len()).sum::<usize>();
    let mut longer: Vec<Vec<u8>> =
        runs.iter().filter(|run| run.1.len() > 1).map(|run| vec![0; len(run)]).collect();
    let mut group = Vec::with_capacity(runs.len());
    let mut buffers = longer.iter_mut();
    for (offset, pages) in runs.iter_mut() {
        let bytes = match &mut pages[..] {
            [page] => page.bytes_mut(),
            _ => buffers.next().expect("a buffer for each longer run"),
        };
        group.push(PsyncRead { offset: *offset, bytes });
    }
    psync_read(device, &mut group).map_err(|failure| failure.source)?;
    let mut buffers = longer.iter();
    for (_, pages) in runs.iter_mut().filter(|run| run.1.len() > 1) {
        let mut rest = &buffers.next().expect("a buffer for each longer run")[..];
        for page in pages {
            let (bytes, after) = rest.split_at(page.bytes().len());
            page.bytes_mut().copy_from_slice(bytes);
            rest = after;
        }
    }
    Ok(())
}

/// Writes all runs together.
pub(crate) fn write(device: &dyn Device, runs: &[WriteRun<'_>]) -> io::Result<()> {
    let gathered: Vec<Vec<u8>> = runs
        .iter()
        .filter(|run| run.1.len() > 1)
        .map(|run| run.1.iter().flat_map(|page| page.bytes()).copied().collect())
        .collect();
    let mut buffers = gathered.iter();
    let mut group = Vec::with_capacity(runs.len());
    for (offset, pages) in runs {
        let bytes = match &pages[..] {
            [page] => page.bytes(),
            _ => buffers.next().expect("a buffer for each longer run"),
        };
        group.push(PsyncWrite { offset: *offset, bytes });
    }
    psync_write(device, &group).map_err(|failure| failure.source)
}
