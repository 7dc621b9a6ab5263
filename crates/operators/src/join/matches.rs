//! What MiniJoin finds: pairs of RIDs, kept in memory or in blocks until Fetch gets their rows.

use std::sync::Arc;

use terrace_rt::LeafMutex;

use super::spec::{Consumer, Join, Side};
use crate::Error;
use crate::fetch::{Freshness, WANTED_BYTES, Wanted, fetch};
use crate::spill::{Block, HEADER_BYTES, Space, empty_block};
use crate::table::{Rid, Version};

/// A row of each table, with the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) value: i64,
    pub(super) build: (Rid, Version),
    pub(super) probe: (Rid, Version),
}

/// Bytes of a match on the device.
const STORED_BYTES: usize = 8 + 2 * (4 + 2 + 8);

impl Match {
    fn store(&self, out: &mut Vec<u8>) {
        out.extend(self.value.to_le_bytes());
        for (rid, version) in [self.build, self.probe] {
            out.extend(rid.page.to_le_bytes());
            out.extend(rid.slot.to_le_bytes());
            out.extend(version.to_le_bytes());
        }
    }

    fn stored(bytes: &[u8]) -> Match {
        let place = |at: usize| {
            let page = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let slot = u16::from_le_bytes(bytes[at + 4..at + 6].try_into().expect("two bytes"));
            let version = u64::from_le_bytes(bytes[at + 6..at + 14].try_into().expect("eight"));
            (Rid { page, slot }, version)
        };
        let value = i64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        Match { value, build: place(8), probe: place(22) }
    }
}

/// The matches of a join.
pub(super) struct Matches {
    /// How many are kept in memory.
    room: usize,
    state: LeafMutex<State>,
}

#[derive(Default)]
struct State {
    kept: Vec<Match>,
    blocks: Vec<Block>,
}

impl Matches {
    /// For as many as fit in a quarter of `bytes`: a list that grows has up to twice its length,
    /// and another one may be on its way to the device.
    pub(super) fn new(bytes: u64) -> Matches {
        let room = (bytes as usize / 4 / size_of::<Match>()).max(1);
        Matches { room, state: LeafMutex::default() }
    }

    /// Keeps matches.
    pub(super) fn add(&self, space: &Space, found: &mut Vec<Match>) -> Result<(), Error> {
        let full = {
            let mut state = self.state.lock();
            state.kept.append(found);
            (state.kept.len() >= self.room).then(|| std::mem::take(&mut state.kept))
        };
        let Some(full) = full else { return Ok(()) };
        let of_block = (space.block_bytes() as usize - HEADER_BYTES) / STORED_BYTES;
        let mut block = empty_block(space.block_bytes());
        for part in full.chunks(of_block) {
            part.iter().for_each(|found| found.store(&mut block));
            let block = space.write(&mut block)?;
            self.state.lock().blocks.push(block);
        }
        Ok(())
    }

    /// Fetches the rows of all matches, in batches of as many as `memory` has room for, and gives
    /// them to the caller.
    pub(super) fn fetch(
        &self,
        space: &Space,
        join: &Join,
        memory: u64,
        consumer: &dyn Consumer,
    ) -> Result<(u64, Freshness), Error> {
        let State { kept, blocks } = std::mem::take(&mut *self.state.lock());
        let bytes = [&join.build, &join.probe].map(|side| side.projection.bytes_max() as u64);
        let each = size_of::<Match>() as u64 + 2 * WANTED_BYTES + bytes[0] + bytes[1];
        let batch = ((memory / each) as usize).clamp(1, u32::MAX as usize);
        let mut rows = 0;
        let mut freshness = Freshness::default();
        let mut waiting = kept;
        let mut bytes = Vec::new();
        for block in blocks {
            let stored = space.read(block, &mut bytes)?;
            waiting.extend(stored.chunks_exact(STORED_BYTES).map(Match::stored));
            space.free(block);
            while waiting.len() >= batch {
                let rest = waiting.split_off(batch);
                rows += fetch_both(&waiting, join, consumer, &mut freshness)?;
                waiting = rest;
            }
        }
        for batch in waiting.chunks(batch) {
            rows += fetch_both(batch, join, consumer, &mut freshness)?;
        }
        Ok((rows, freshness))
    }
}

/// Fetches the rows of both tables, and tells how many pairs the caller got.
fn fetch_both(
    matches: &[Match],
    join: &Join,
    consumer: &dyn Consumer,
    freshness: &mut Freshness,
) -> Result<u64, Error> {
    let how = (&join.plan, &join.cpu);
    let of_side = |side: &Side, place: fn(&Match) -> (Rid, Version)| {
        let wanted = (0..).zip(matches).map(|(at, found): (u32, &Match)| {
            let (rid, version) = place(found);
            Wanted { rid, version, value: Some(found.value), at }
        });
        fetch(&side.input, &Arc::clone(&side.projection), how, wanted.collect())
    };
    let build = of_side(&join.build, |found| found.build)?;
    let probe = of_side(&join.probe, |found| found.probe)?;
    freshness.add(build.freshness);
    freshness.add(probe.freshness);
    let mut rows = 0;
    for (at, found) in matches.iter().enumerate() {
        if let (Some(build), Some(probe)) = (build.get(at), probe.get(at)) {
            consumer.take(found.value, build, probe)?;
            rows += 1;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_is_stored_whole() {
        let (build, probe) = (Rid { page: 1 << 30, slot: 77 }, Rid { page: 5, slot: 65_535 });
        let found = Match { value: -3, build: (build, 1 << 60), probe: (probe, 9) };
        let mut bytes = Vec::new();
        found.store(&mut bytes);
        assert_eq!(bytes.len(), STORED_BYTES);
        assert_eq!(Match::stored(&bytes), found);
    }
}
