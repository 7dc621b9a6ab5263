//! What a memory asks its storage for: the requests that are left of a trace behind it.
//!
//! - F1: a page that memory misses is read, one that is written whole too, as an engine does.
//! - F2: a changed page that leaves is written, before the page is read that takes its frame.
//! - F3: pages that are dirty at the end stay so: their writes are not there.

use crate::References;
use terrace_page::PageId;
use terrace_policy::replacement::{
    Forgetting, Key, Replace, ReplacementPolicy, ReplacementRow, Setup,
};
use terrace_trace::Kind;

/// Runs `references` through `frames` pages of memory under `policy`; `ask` hears of each request:
/// which reference made it, for which page, and what.
///
/// # Panics
///
/// If memory has no frame.
pub fn filter(
    references: &References,
    policy: ReplacementRow,
    frames: u32,
    seed: u64,
    mut ask: impl FnMut(usize, u32, Kind),
) {
    let keys_count = references.pages_count();
    let setup = Setup { capacity: frames, keys_count, forgetting: Forgetting::Silent, seed };
    let mut memory = ReplacementPolicy::new(policy.kind, setup);
    let mut dirty = vec![false; keys_count as usize];
    for (at, &page) in references.pages().iter().enumerate() {
        if !memory.hit(Key(page)) {
            let left = memory.insert(Key(page), PageId(u64::from(page)), |_| true);
            if let Some(Key(victim)) = left.expect("any page may leave")
                && std::mem::take(&mut dirty[victim as usize])
            {
                ask(at, victim, Kind::Write);
            }
            ask(at, page, Kind::Read);
        }
        dirty[page as usize] |= references.is_write(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Places;
    use crate::tiers::{Flash, FlashSetup, Memory, MemoryRule, replay};
    use terrace_policy::{designs, replacement};
    use terrace_trace::{PageKey, PageRequest};

    #[test]
    fn what_is_left_is_what_home_is_asked_for_without_flash() {
        let mut prng = fastrand::Rng::with_seed(4);
        let mut references = References::default();
        for _ in 0..8_000 {
            let number = prng.u64(..300).min(prng.u64(..300));
            let kind = if prng.u8(..3) == 0 { Kind::Write } else { Kind::Read };
            let page = PageKey { file: 0, number };
            references.push(PageRequest { time_ns: 0, page, kind });
        }
        let places = Places::new(&references);
        let none = FlashSetup::new(Flash::Design(designs::find("no-ssd").unwrap()), 1, 1);
        for name in ["lru", "clock", "arc"] {
            let row = replacement::find(name).expect("a policy");
            let policy = Some((MemoryRule::Policy(row), 40));
            let memory =
                Memory { policy, near_is_sequential: false, outstanding: 0, counted_from: 0 };
            let expected = replay(&references, &places, memory, &none).home;
            let (mut reads, mut writes) = (0, 0);
            filter(&references, row, 40, 1, |_, _, kind| match kind {
                Kind::Read => reads += 1,
                Kind::Write => writes += 1,
                Kind::Ahead => unreachable!("a memory announces nothing"),
            });
            assert_eq!((reads, writes), (expected.reads, expected.writes), "{name}");
            assert!(writes > 100, "{name}");
        }
    }
}
