//! The leaf of each tree that a transaction was in last: found again without a descent.
//!
//! A task that reads a row often writes it next; one that inserts often goes on with the next key.
//! The leaf's number, its frame and its fences are remembered, so that a key that is not in it
//! costs a comparison of words at hand, and no look at the page.
//!
//! - H1: what is remembered is a hint, like the way through inner nodes: the leaf is latched and
//!   checked by tree, level and fences before it is believed. A leaf that is merged away is marked
//!   free under its latch, so it does not pass.
//! - H2: a tree that is emptied as a whole leaves its pages as they are. It does so while its name
//!   changes: the hints are of one version of the names, and gone with it.
//! - H3: fences of more than `FENCE_MAX` bytes are not remembered.

use terrace_page::{FrameId, PageId};

use super::node::Node;
use super::short::first_eight;
use crate::TreeId;

/// Trees share a place if their numbers are the same modulo this.
const PLACES: usize = 16;
const FENCE_MAX: usize = 16;

/// Bytes that sort as such: the first of them as numbers, and their length. Exact against others of
/// at most `FENCE_MAX` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u64, u64, usize);

impl Rank {
    /// Above all keys.
    const END: Rank = Rank(u64::MAX, u64::MAX, usize::MAX);

    #[inline]
    fn of(bytes: &[u8]) -> Rank {
        let rest = match bytes.get(8..) {
            None | Some([]) => 0,
            Some(rest) => first_eight(rest),
        };
        Rank(first_eight(bytes), rest, bytes.len())
    }
}

/// A leaf that was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    tree: TreeId,
    frame: FrameId,
    page: PageId,
    lower: Rank,
    upper: Rank,
}

/// The hints of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    version: u64,
    seen: [Option<Seen>; PLACES],
}

impl Leaves {
    /// Forgets what was seen under another version of the names (H2).
    #[inline]
    pub(crate) fn keep_to(&mut self, version: u64) {
        if self.version != version {
            *self = Leaves { version, ..Leaves::default() };
        }
    }

    /// The leaf of `tree` that had `key` between its fences, and its frame.
    #[inline]
    pub(super) fn find(&self, tree: TreeId, key: &[u8]) -> Option<(PageId, FrameId)> {
        let seen = self.seen[tree.0 as usize % PLACES].as_ref()?;
        if seen.tree != tree {
            return None;
        }
        let key = Rank::of(key);
        (seen.lower <= key && key < seen.upper).then_some((seen.page, seen.frame))
    }

    /// Remembers a leaf.
    #[inline]
    pub(super) fn note(&mut self, tree: TreeId, (page, frame): (PageId, FrameId), leaf: &Node<'_>) {
        let (lower, upper) = (leaf.lower(), leaf.upper());
        let is_short = |fence: &[u8]| fence.len() <= FENCE_MAX;
        self.seen[tree.0 as usize % PLACES] =
            (is_short(lower) && upper.is_none_or(is_short)).then(|| Seen {
                tree,
                frame,
                page,
                lower: Rank::of(lower),
                upper: upper.map_or(Rank::END, Rank::of),
            });
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    #[test]
    fn short_fences_stand_to_keys_as_their_ranks_do() {
        let mut prng = Prng::from_seed(1);
        let mut bytes = |len_max: u64| {
            let len = prng.below(len_max + 1);
            (0..len).map(|_| [0, 0, 1, 255][prng.below(4) as usize]).collect::<Vec<u8>>()
        };
        for _ in 0..200_000 {
            let (fence, key) = (bytes(FENCE_MAX as u64), bytes(FENCE_MAX as u64 + 8));
            let expected = fence.cmp(&key);
            assert_eq!(Rank::of(&fence).cmp(&Rank::of(&key)), expected, "{fence:?} {key:?}");
            assert!(Rank::of(&key) < Rank::END);
        }
    }
}
