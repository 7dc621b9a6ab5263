//! Psync I/O: a group of requests submitted together, its results taken together.
//!
//! After Roh et al., "MPSearch: Multi-Path Search for Tree-based Indexes to Exploit Internal
//! Parallelism of Flash SSDs" (IEEE Data Engineering Bulletin, June 2014), 2.3: the unit is an
//! array of requests, the caller blocks until all of them are done, and the next group starts only
//! then.
//!
//! - P1: a group is never split: a file with io_uring hands it over and waits for all of it with
//!   one system call. A file without io_uring does one request after the other.
//! - P2: on a file the thread waits, on an executor too: its other tasks wait with it. A caller
//!   that wants them to go on submits a batch and waits for its ticket ([`Device::submit`]).
//! - P3: requests of one group have no order (device.D2): none overlaps another, unless both read.

use crate::{Device, IoBuf, IoFailure, Op, Request, persist};

/// The most requests of a group.
pub const PSYNC_GROUP_MAX: usize = 1024;

/// One read of a group.
#[derive(Debug)]
pub struct PsyncRead<'a> {
    /// First byte on the device, a multiple of `SECTOR_SIZE`.
    pub offset: u64,
    /// Where it goes; its length is a multiple of `SECTOR_SIZE`, and not zero. Direct I/O copies
    /// what is not aligned to 4,096 bytes.
    pub bytes: &'a mut [u8],
}

/// One write of a group.
#[derive(Clone, Copy, Debug)]
pub struct PsyncWrite<'a> {
    /// First byte on the device, a multiple of `SECTOR_SIZE`.
    pub offset: u64,
    /// What is written; as of [`PsyncRead`].
    pub bytes: &'a [u8],
}

/// Reads a whole group; an empty one at once.
///
/// # Errors
///
/// The first request that failed, once reads were tried again as `read` does; the bytes of all are
/// then undefined, though initialised.
///
/// # Panics
///
/// As [`Device::submit`], and for more than [`PSYNC_GROUP_MAX`] requests.
pub fn psync_read(device: &dyn Device, group: &mut [PsyncRead<'_>]) -> Result<(), IoFailure> {
    let parts = group.iter_mut().map(|it| (it.offset, IoBuf::from_mut(it.bytes))).collect();
    // SAFETY: the memory is borrowed exclusively, each piece once, until this function returns.
    unsafe { run(device, Op::Read, parts) }
}

/// Writes a whole group; an empty one at once. Durable only after a `sync`.
///
/// # Errors
///
/// The first request that failed; the ranges of all then hold any mixture of old and new sectors.
///
/// # Panics
///
/// As [`Device::submit`], and for more than [`PSYNC_GROUP_MAX`] requests.
pub fn psync_write(device: &dyn Device, group: &[PsyncWrite<'_>]) -> Result<(), IoFailure> {
    let parts = group.iter().map(|it| (it.offset, IoBuf::from_ref(it.bytes))).collect();
    // SAFETY: the memory is borrowed until this function returns, so no task changes it.
    unsafe { run(device, Op::Write, parts) }
}

/// # Safety
///
/// The memory of `parts` may be used as `op` says until this returns.
unsafe fn run(device: &dyn Device, op: Op, parts: Vec<(u64, IoBuf)>) -> Result<(), IoFailure> {
    assert!(parts.len() <= PSYNC_GROUP_MAX, "a group of {} requests", parts.len());
    if parts.is_empty() {
        return Ok(());
    }
    let requests: Vec<_> = parts
        .iter()
        .map(|(offset, buf)| Request {
            op,
            offset: *offset,
            bufs: std::slice::from_ref(buf),
            owner: None,
        })
        .collect();
    // SAFETY: the caller's promise; `psync` and `persist` return when the memory is free again.
    unsafe {
        let done = device.psync(&requests);
        persist(device, &requests, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Preset, build};
    use crate::{Keep, Store};
    use terrace_rt::{Prng, Virtual, VirtualConfig, World, now};

    const PAGE: usize = 4_096;
    const BYTES: u64 = 256 << 20;
    const REQUESTS: usize = 4_096;

    /// Requests of 4 KiB a second, in groups, at random places.
    fn rate(preset: &'static str, op: Op, group: usize) -> f64 {
        let config = VirtualConfig { seed: 1, switch_one_in: 0, ..VirtualConfig::default() };
        let run = move || {
            let preset: Preset = preset.parse().expect("a preset");
            let store = Store::new(BYTES, Keep::Recent { pages: 64 });
            let device = build(preset, World::current(), store);
            let mut prng = Prng::from_seed(1);
            let mut memory = vec![0; group * PAGE];
            let mut begin = now();
            // The first half fills what buffers there are.
            for done in (0..2 * REQUESTS).step_by(group) {
                if done < REQUESTS + group && done >= REQUESTS {
                    begin = now();
                }
                let mut place = || prng.below(BYTES / PAGE as u64) * PAGE as u64;
                let pages = memory.chunks_exact_mut(PAGE);
                match op {
                    Op::Read => {
                        let reads = pages.map(|bytes| PsyncRead { offset: place(), bytes });
                        psync_read(&*device, &mut reads.collect::<Vec<_>>()).expect("read");
                    }
                    Op::Write => {
                        let writes = pages.map(|bytes| PsyncWrite { offset: place(), bytes });
                        psync_write(&*device, &writes.collect::<Vec<_>>()).expect("written");
                    }
                }
            }
            REQUESTS as f64 / (now() - begin).as_secs_f64()
        };
        Virtual::new(config).run(run).expect("it ends")
    }

    /// Six drives: rates one at a time and at most, by their sheets, if those are of
    /// random requests. The rates of two ends say only that nothing else is in the way.
    #[test]
    fn groups_gain_what_the_drive_has_inside() {
        let sheets = [
            ("iodrive-geometry", Op::Read, Some((20_000.0, 88_000.0))),
            ("iodrive-geometry", Op::Write, Some((20_000.0, 88_000.0))),
            ("p300", Op::Read, Some((1e3 / 0.154, 44_000.0))),
            ("p300", Op::Write, Some((1e3 / 0.424, 16_000.0))),
            ("ssd-s", Op::Read, None),
            ("ssd-s", Op::Write, None),
            ("ssd-m", Op::Read, None),
            ("ssd-m", Op::Write, None),
            ("consumer-sata", Op::Read, None),
            ("consumer-sata", Op::Write, None),
            ("dc-nvme", Op::Read, None),
            ("dc-nvme", Op::Write, None),
        ];
        for (preset, op, sheet) in sheets {
            let rates = [1, 2, 4, 8, 16, 32, 64].map(|group| rate(preset, op, group));
            let gains: Vec<_> = rates.iter().map(|it| format!("{:.2}", it / rates[0])).collect();
            println!("{preset} {op:?}: {:.0}/s, gains {}", rates[0], gains.join(" "));
            if let Some((alone, most)) = sheet {
                assert!((rates[0] / alone - 1.0).abs() < 0.05, "{preset} {op:?}: {}", rates[0]);
                assert!(rates[6] <= most * 1.01, "{preset} {op:?}: {}", rates[6]);
            }
            let falls = rates.windows(2).any(|pair| pair[1] < pair[0] * 0.95);
            // How writes go depends on where garbage collection stands.
            assert!(op == Op::Write || !falls, "{preset}: a larger group is no slower");
        }
    }

    #[test]
    fn a_drive_of_one_server_gains_nothing() {
        let alone = rate("iodrive", Op::Read, 1);
        assert!((rate("iodrive", Op::Read, 32) / alone - 1.0).abs() < 0.01);
    }
}
