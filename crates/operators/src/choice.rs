//! The plan that suits a device: its domains where they can be told from timing, or else what reads
//! faster in a short trial.
//!
//! ```text
//!  detect: striped ------------------> a task for each domain
//!    | no domains
//!  race: LANES requests at once -----> lanes: as if they were domains, of large chunks
//!    | not GAIN_MIN times as fast
//!  ordinary scan                       a disk is here
//! ```
//!
//! - H1: nothing is written.
//! - H2: the race takes both ways in turns, each time where nothing has been read, and goes on
//!   until one of them is ahead beyond chance: see `race`.

use std::ops::Range;
use std::sync::Arc;

use terrace_device::inside::{Inside, Search, bytes_min, detect, timed};
use terrace_device::{Device, read};
use terrace_rt::{LeafMutex, Nanos, now};

use crate::Error;
use crate::feed::Feed;
use crate::plan::{Plan, degree};
use crate::race::{ROUNDS_MAX, ROUNDS_MIN, Race, Winner};
use crate::team;

/// Requests at once on a device that shows no domains.
const LANES: u32 = 4;
/// Bytes of each of them.
const LANE_BYTES: u64 = 1 << 20;
/// Bytes that one way reads in a turn of the race, and the fewest on a small device.
const TURN_BYTES: u64 = 32 << 20;
const TURN_BYTES_MIN: u64 = 8 << 20;
/// Speed of the lanes over the ordinary scan above which they are taken.
const GAIN_MIN: f64 = 1.05;
/// The shortest of the longest strides for which it is worth to look for domains.
const STRIDE_MIN: u64 = 256 << 10;

/// What a device turned out to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found {
    /// Chunks over domains.
    Domains {
        /// Domains.
        domains: u32,
        /// Bytes of a chunk.
        chunk_bytes: u64,
    },
    /// No domains, but several requests at once are faster.
    Lanes {
        /// As many times.
        gain: f64,
    },
    /// One request at a time does as well.
    Ordinary {
        /// Speed of several at once over that; nothing for a device too small to try.
        gain: Option<f64>,
    },
}

/// A plan, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How to scan.
    pub plan: Plan,
    /// Why.
    pub found: Found,
}

/// Looks into the first `len` bytes of a device that takes `queue` requests at once, for a
/// processor of `threads`. It reads some MiB at random places.
///
/// # Errors
///
/// What the device says; a queue or a processor of none.
pub fn choose(
    device: &Arc<dyn Device>,
    len: u64,
    search: &Search,
    (queue, threads): (u32, u32),
) -> Result<Choice, Error> {
    let stride_max = search.stride_max.min(len / bytes_min(1) / 4096 * 4096);
    if stride_max >= STRIDE_MIN {
        let search = Search { stride_max, ..*search };
        let inside = detect(len, &search, &mut timed(&**device))?;
        if let Inside::Striped { domains, chunk_bytes, .. } = inside {
            let plan = Plan::striped(domains, chunk_bytes, queue, threads)?;
            return Ok(Choice { plan, found: Found::Domains { domains, chunk_bytes } });
        }
    }
    // Lanes wait for the device, so a thread serves all of them.
    let lanes = Plan::striped(LANES, LANE_BYTES, queue, LANES)?;
    let ordinary = Choice { plan: Plan::ordinary(), found: Found::Ordinary { gain: None } };
    if degree(LANES, queue, LANES) < 2 {
        return Ok(ordinary);
    }
    let Some(race) = race(device, len, [Plan::ordinary(), lanes])? else { return Ok(ordinary) };
    let gain = race.median();
    if race.winner(GAIN_MIN, 0) == Some(Winner::Second) {
        return Ok(Choice { plan: lanes, found: Found::Lanes { gain } });
    }
    Ok(Choice { found: Found::Ordinary { gain: Some(gain) }, ..ordinary })
}

/// A race of two plans over the first `len` bytes; `None` if they are too few.
fn race(device: &Arc<dyn Device>, len: u64, plans: [Plan; 2]) -> Result<Option<Race>, Error> {
    let fewest = 2 * ROUNDS_MIN as u64;
    let bytes = (len / fewest).min(TURN_BYTES) / LANE_BYTES * LANE_BYTES;
    if bytes < TURN_BYTES_MIN {
        return Ok(None);
    }
    let rounds = (len / (2 * bytes)).min(ROUNDS_MAX as u64);
    let apart = len / (2 * rounds) / LANE_BYTES * LANE_BYTES;
    let mut race = Race::default();
    for round in 0..rounds {
        let order = if race.leads() == Winner::First { [0, 1] } else { [1, 0] };
        let mut times = [Nanos(0); 2];
        for (turn, way) in order.into_iter().enumerate() {
            let from = (2 * round + turn as u64) * apart;
            times[way] = time(device, from..from + bytes, &plans[way])?;
        }
        race.add(times[0].0 as f64 / times[1].0.max(1) as f64);
        if race.winner(GAIN_MIN, rounds as usize).is_some() {
            break;
        }
    }
    Ok(Some(race))
}

/// Time to read a part of the device.
fn time(device: &Arc<dyn Device>, part: Range<u64>, plan: &Plan) -> Result<Nanos, Error> {
    let (bytes, tasks) = (plan.chunk_bytes(), u64::from(plan.domains()));
    let lane = |at: u64| (part.start + at * bytes..part.end).step_by((tasks * bytes) as usize);
    let feed = Arc::new(Feed::new((0..tasks).map(lane)));
    let device = Arc::clone(device);
    // Not zeroes, which the system would make when they are first touched.
    let memory = |_| LeafMutex::new(vec![1; bytes as usize + 4096]);
    let buffers: Vec<_> = (0..plan.degree()).map(memory).collect();
    let begin = now();
    team::run(plan.degree(), move |task, _| {
        let mut memory = std::mem::take(&mut *buffers[task as usize].lock());
        let start = memory.as_ptr().align_offset(4096);
        let memory = &mut memory[start..start + bytes as usize];
        while let Some((lane, offset)) = feed.take() {
            read(&*device, offset, memory)?;
            feed.give(lane);
        }
        Ok(())
    })?;
    Ok(now().saturating_sub(begin))
}
