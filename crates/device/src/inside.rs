//! The inside of a drive from timing alone: how many domains it has, and how long a chunk is.
//!
//! A drive that stripes chunks over domains serves requests to one domain one after the other, and
//! to several at the same time. After Chen, Lee and Zhang, "Essential roles of exploiting internal
//! parallelism of flash memory based solid state drives in high-speed data processing" (HPCA 2011),
//! whose method Fan et al. use (IEEE Data Engineering Bulletin, June 2014, 3.2); groups of reads
//! (psync) take the place of their threads.
//!
//! ```text
//!  stride   groups at random multiples of a stride: those of the period, chunk x domains, meet in
//!           one domain and take longest; a part of it or anything else spreads
//!  chunk    half a group at random multiples of the period, half of it behind those by a shift: as
//!           many shifts as a chunk has units take as long as a whole group in one domain
//! ```
//!
//! - V1: nothing is written.
//! - V2: a stride counts as the period if its groups take `ALIKE` of the longest ones; a drive in
//!   which the longest do not take `CONTRAST_MIN` times those at random places shows no domains.
//! - Not for: chunks below `UNIT`, periods above the longest stride. A translation layer that puts
//!   any page anywhere, a cache that has the pages, or a host that slows requests down to what was
//!   paid for show nothing, and that is then what is said.

use std::collections::BTreeSet;
use std::io;

use terrace_rt::{Nanos, Prng, now};

use crate::{Device, PsyncRead, psync_read};

/// Bytes of a read, and the smallest chunk that is told from a larger one.
pub const UNIT: u64 = 4_096;
/// Reads of a group.
const GROUP: usize = 16;
/// Groups of each stride in the first round, of which the median counts.
const ROUGH: usize = 3;
/// Groups of each stride or shift that is looked at closely.
const CLOSE: usize = 31;
/// As many times more where the answer is close to the border.
const CLOSER: usize = 4;
/// Share of the longest time from which on a group counts as one of a single domain. Two domains
/// that share a channel come close to it.
const ALIKE: f64 = 0.9;
/// How near to the border is too near for `CLOSE` groups.
const DOUBT: f64 = 0.06;
/// Share of the longest time in the first round from which on a stride is looked at closely.
const PROMISING: f64 = 0.7;
/// What the longest groups take over those at random places, at least.
const CONTRAST_MIN: f64 = 1.4;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inside {
    /// Chunks are striped over domains.
    Striped {
        /// Domains.
        domains: u32,
        /// Bytes of a chunk.
        chunk_bytes: u64,
        /// Time of a group in one domain over that of one at random places.
        contrast: f64,
    },
    /// No stride is slower than random places.
    Even {
        /// The longest stride that was tried, in bytes.
        stride_max: u64,
        /// The most that a stride took over random places.
        contrast: f64,
    },
    /// Some strides are slower, but not as chunks over domains would be.
    Irregular {
        /// The shortest slow stride, in bytes.
        stride: u64,
        /// Time of its groups over that of those at random places.
        contrast: f64,
    },
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Decides the places that are read.
    pub seed: u64,
    /// The longest stride in bytes: periods above it are not found.
    pub stride_max: u64,
}

impl Default for Search {
    fn default() -> Search {
        Search { seed: 1, stride_max: 4 << 20 }
    }
}

/// How long a group of reads of `UNIT` bytes at these places took.
pub type Time<'a> = dyn FnMut(&[u64]) -> io::Result<Nanos> + 'a;

/// Times groups of reads of `device`, by the clock of the world.
pub fn timed(device: &dyn Device) -> impl FnMut(&[u64]) -> io::Result<Nanos> {
    let mut memory = vec![0; (GROUP + 1) * UNIT as usize];
    move |places| {
        let start = memory.as_ptr().align_offset(UNIT as usize);
        let pages = memory[start..].chunks_exact_mut(UNIT as usize);
        let reads = places.iter().zip(pages);
        let mut group: Vec<_> =
            reads.map(|(offset, bytes)| PsyncRead { offset: *offset, bytes }).collect();
        let begin = now();
        psync_read(device, &mut group).map_err(|failure| failure.source)?;
        Ok(now().saturating_sub(begin))
    }
}

/// The fewest bytes of a device for which strides up to `stride_max` can be tried.
#[must_use]
pub fn bytes_min(stride_max: u64) -> u64 {
    4 * GROUP as u64 * stride_max
}

/// Looks into a device of `len` bytes.
///
/// # Errors
///
/// What `time` says.
///
/// # Panics
///
/// If `len` is below `bytes_min`, or a stride is not whole units.
pub fn detect(len: u64, search: &Search, time: &mut Time<'_>) -> io::Result<Inside> {
    assert!(len >= bytes_min(search.stride_max), "too few bytes for these strides");
    assert!(search.stride_max.is_multiple_of(UNIT), "strides of whole units");
    let mut look = Look { units: len / UNIT, prng: Prng::from_seed(search.seed), time };
    let strides = search.stride_max / UNIT;
    let random = look.median(CLOSE * CLOSER, |look| look.anywhere())?;
    let rough = (1..=strides).map(|stride| look.median(ROUGH, |look| look.strided(stride)));
    let rough = rough.collect::<io::Result<Vec<f64>>>()?;
    let mut sorted = rough.clone();
    sorted.sort_by(f64::total_cmp);
    // Not the longest: that may be one that something else delayed.
    let long = sorted[sorted.len() - 1 - sorted.len() / 256];
    let mut close = Vec::new();
    for (stride, time) in (1..=strides).zip(rough) {
        if time >= PROMISING * long {
            close.push((stride, look.median(CLOSE, |look| look.strided(stride))?));
        }
    }
    let alone = longest(&close);
    let contrast = alone / random;
    if contrast < CONTRAST_MIN {
        return Ok(Inside::Even { stride_max: search.stride_max, contrast });
    }
    let mut period = None;
    for (stride, time) in close {
        if look.is_alike(time, alone, |look| look.strided(stride))? {
            period = Some(stride);
            break;
        }
    }
    let period = period.expect("the longest are like themselves");
    let irregular = Inside::Irregular { stride: period * UNIT, contrast };
    Ok(match look.chunk(period, alone)? {
        Some(chunk) if period.is_multiple_of(chunk) && period > chunk => Inside::Striped {
            domains: (period / chunk) as u32,
            chunk_bytes: chunk * UNIT,
            contrast,
        },
        _ => irregular,
    })
}

/// The middle of the times that are like the longest one.
fn longest(close: &[(u64, f64)]) -> f64 {
    let most = close.iter().map(|(_, time)| *time).fold(0.0, f64::max);
    let near = close.iter().map(|(_, time)| *time).filter(|time| *time >= ALIKE * most);
    median(near.collect())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A search under way; places are in units.
struct Look<'a, 'b> {
    units: u64,
    prng: Prng,
    time: &'a mut Time<'b>,
}

impl Look<'_, '_> {
    /// The median time of `groups` groups.
    fn median(
        &mut self,
        groups: usize,
        mut places: impl FnMut(&mut Self) -> Vec<u64>,
    ) -> io::Result<f64> {
        let mut times = Vec::with_capacity(groups);
        for _ in 0..groups {
            let places: Vec<u64> = places(self).into_iter().map(|unit| unit * UNIT).collect();
            times.push((self.time)(&places)?.0 as f64);
        }
        Ok(median(times))
    }

    /// Whether groups that took `time` take as long as those `alone` in one domain.
    fn is_alike(
        &mut self,
        time: f64,
        alone: f64,
        places: impl FnMut(&mut Self) -> Vec<u64>,
    ) -> io::Result<bool> {
        let share = time / alone;
        if (share - ALIKE).abs() > DOUBT {
            return Ok(share >= ALIKE);
        }
        Ok(self.median(CLOSE * CLOSER, places)? / alone >= ALIKE)
    }

    fn anywhere(&mut self) -> Vec<u64> {
        self.multiples(1, GROUP)
    }

    /// A group at multiples of a stride, from a random place on.
    fn strided(&mut self, stride: u64) -> Vec<u64> {
        let base = self.prng.below(stride);
        let multiples = self.multiples(stride, GROUP);
        multiples.into_iter().map(|unit| base + unit).collect()
    }

    /// `count` multiples of a stride, none twice, so that the last stride of the device is free.
    fn multiples(&mut self, stride: u64, count: usize) -> Vec<u64> {
        let room = self.units / stride - 1;
        let mut multiples = BTreeSet::new();
        while multiples.len() < count {
            multiples.insert(self.prng.below(room) * stride);
        }
        let mut multiples: Vec<u64> = multiples.into_iter().collect();
        self.prng.shuffle(&mut multiples);
        multiples
    }

    /// Units of a chunk, if the shifts that meet the unshifted half in its domain are one run.
    fn chunk(&mut self, period: u64, alone: f64) -> io::Result<Option<u64>> {
        let mut alike = Vec::with_capacity(period as usize);
        for shift in 0..period {
            let places = |look: &mut Self| {
                let mut places = look.multiples(period, GROUP);
                places[GROUP / 2..].iter_mut().for_each(|unit| *unit += shift);
                places
            };
            let time = self.median(CLOSE, places)?;
            alike.push(self.is_alike(time, alone, places)?);
        }
        let chunk = alike.iter().filter(|is| **is).count() as u64;
        // The shifts are those of a ring: a run that crosses its end is one.
        let before = alike.iter().cycle().skip(alike.len() - 1);
        let runs = alike.iter().zip(before).filter(|(is, before)| **is && !**before).count();
        Ok((runs == 1 && alike[0]).then_some(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MemberSpec, Preset, build};
    use crate::{Keep, Store};
    use terrace_rt::{Virtual, VirtualConfig, World};

    const SEARCH: Search = Search { seed: 1, stride_max: 1 << 20 };

    /// Looks into a preset in a virtual world; `noise` of each time, and now and then much more.
    fn look(preset: &'static str, seed: u64, noise: f64) -> Inside {
        let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
        let found = Virtual::new(config).run(move || {
            let len = bytes_min(SEARCH.stride_max);
            let preset: Preset = preset.parse().expect("a preset");
            let device = build(preset, World::current(), Store::new(len, Keep::Plain));
            let mut prng = Prng::from_seed(seed);
            let mut clean = timed(&*device);
            let mut time = |places: &[u64]| {
                let time = clean(places)?.0 as f64;
                let share = prng.below(1 << 20) as f64 / f64::from(1 << 20);
                let stall = if prng.chance(50) { 5.0 } else { 1.0 };
                Ok(Nanos((time * (1.0 + noise * (2.0 * share - 1.0)) * stall) as u64))
            };
            let search = Search { seed, ..SEARCH };
            if noise == 0.0 {
                detect(len, &search, &mut timed(&*device))
            } else {
                detect(len, &search, &mut time)
            }
        });
        found.expect("it ends").expect("it reads")
    }

    fn domains_of(preset: &str) -> (u32, u64) {
        let preset: Preset = preset.parse().expect("a preset");
        let MemberSpec::Nand(nand) = preset.spec().member else { panic!("a flash drive") };
        nand.domains().expect("striped")
    }

    #[test]
    fn domains_and_chunks_of_the_models_are_found_exactly_with_noise_too() {
        for preset in ["ssd-s", "ssd-m", "p300", "iodrive-geometry"] {
            for (seed, noise) in [(1, 0.0), (2, 0.1), (3, 0.2)] {
                let Inside::Striped { domains, chunk_bytes, contrast } = look(preset, seed, noise)
                else {
                    panic!("{preset}: no domains seen");
                };
                println!("{preset}, noise {noise}: {domains} of {chunk_bytes}, {contrast:.2}");
                assert_eq!((domains, chunk_bytes), domains_of(preset), "{preset} {seed} {noise}");
            }
        }
    }

    #[test]
    fn drives_that_place_anywhere_and_disks_show_no_domains() {
        for preset in ["dc-nvme", "consumer-sata", "nvme", "hdd-7200"] {
            let found = look(preset, 1, 0.0);
            assert!(matches!(found, Inside::Even { .. }), "{preset}: {found:?}");
        }
    }

    #[test]
    fn a_drive_that_fails_is_not_measured() {
        let mut reads = 0;
        let mut time = |_: &[u64]| {
            reads += 1;
            if reads > 200 { Err(io::ErrorKind::NotConnected.into()) } else { Ok(Nanos(1_000)) }
        };
        let failed = detect(bytes_min(SEARCH.stride_max), &SEARCH, &mut time);
        assert_eq!(failed.expect_err("it has gone").kind(), io::ErrorKind::NotConnected);
    }
}
