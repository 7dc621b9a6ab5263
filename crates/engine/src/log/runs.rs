//! Runs of bytes of a page that a record carries: those that differ.
//!
//! ```text
//! run: 2 at, 2 len, bytes       one after another, see `Pieces`
//! ```
//!
//! - U1: what is wanted is in a run, and a run begins and ends with what is wanted.
//! - U2: runs that are close together are joined, since each costs four bytes.

use terrace_page::{PAGE_SIZE, PageBuf};

/// Appends the runs where `now` differs from `before`, with the bytes of `before`. Runs that are
/// close together are joined, since each costs four bytes.
pub(crate) fn encode_difference(before: &PageBuf, now: &PageBuf, out: &mut Vec<u8>) {
    let (old, new) = (before.as_chunks::<8>().0, now.as_chunks::<8>().0);
    let differs = |at: usize| u64::from_le_bytes(old[at]) ^ u64::from_le_bytes(new[at]);
    let (old, new) = (before.as_chunks::<BLOCK>().0, now.as_chunks::<BLOCK>().0);
    encode_runs(before, differs, |block| old[block] == new[block], out);
}

/// Bytes that are passed at once where nothing is wanted.
const BLOCK: usize = 64;
const _: () = assert!(PAGE_SIZE.is_multiple_of(BLOCK));
/// A run ends where at least this many bytes are not wanted.
const JOIN_BELOW: usize = 12;

/// Appends runs of `bytes`: a byte is wanted if its place in the result of `wanted`, called with
/// the index of its eight bytes, is not zero. `is_blank` says of a block that none of it is.
fn encode_runs(
    bytes: &PageBuf,
    wanted: impl Fn(usize) -> u64,
    is_blank: impl Fn(usize) -> bool,
    out: &mut Vec<u8>,
) {
    // The checksum in memory means nothing.
    let mut at = 4;
    while at < PAGE_SIZE {
        if at.is_multiple_of(BLOCK) && is_blank(at / BLOCK) {
            at += BLOCK;
            continue;
        }
        let word = wanted(at / 8) >> (8 * (at % 8));
        if word == 0 {
            at = (at / 8 + 1) * 8;
            continue;
        }
        let start = at + word.trailing_zeros() as usize / 8;
        let end = run_end(start, &wanted);
        out.extend_from_slice(&(start as u16).to_le_bytes());
        out.extend_from_slice(&((end - start) as u16).to_le_bytes());
        out.extend_from_slice(&bytes[start..end]);
        at = end + JOIN_BELOW;
    }
}

/// Where the run ends that begins with the wanted byte at `start`: behind its last wanted byte.
fn run_end(start: usize, wanted: &impl Fn(usize) -> u64) -> usize {
    let (mut at, mut end) = (start, start + 1);
    while at < PAGE_SIZE && at < end + JOIN_BELOW {
        let within = at % 8;
        let word = wanted(at / 8) >> (8 * within);
        if word != 0 {
            if at + word.trailing_zeros() as usize / 8 >= end + JOIN_BELOW {
                break;
            }
            // Gaps within eight bytes are joined.
            end = at + 8 - word.leading_zeros() as usize / 8;
        }
        at += 8 - within;
    }
    end
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    /// The same, byte by byte.
    fn model(bytes: &PageBuf, wanted: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = 4;
        while at < PAGE_SIZE {
            if !wanted(at) {
                at += 1;
                continue;
            }
            let (start, mut end) = (at, at + 1);
            while at < PAGE_SIZE && at < end + JOIN_BELOW {
                if wanted(at) {
                    end = at + 1;
                }
                at += 1;
            }
            out.extend_from_slice(&(start as u16).to_le_bytes());
            out.extend_from_slice(&((end - start) as u16).to_le_bytes());
            out.extend_from_slice(&bytes[start..end]);
        }
        out
    }

    #[test]
    fn runs_are_those_of_a_walk_over_the_bytes() {
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let mut before = [0; PAGE_SIZE];
            let sparse = 1 + prng.below(40);
            for byte in &mut before {
                if prng.below(sparse) == 0 {
                    *byte = prng.below(256) as u8;
                }
            }
            let mut now = before;
            for _ in 0..prng.below(900) {
                now[prng.below(PAGE_SIZE as u64) as usize] ^= prng.below(4) as u8;
            }
            let mut differing = Vec::new();
            encode_difference(&before, &now, &mut differing);
            assert!(differing == model(&before, |at| before[at] != now[at]), "seed {seed}");
        }
    }
}
