//! A page as its difference from another one: what is copied from there, and what is new.
//!
//! Made for pages of indexes, in which an entry that is inserted moves those behind it: bytes that
//! moved by any distance are copies. Blocks of the old page are found by their bytes, as rsync does
//! (Tridgell and Mackerras, "The rsync algorithm", 1996), and matches grow in both directions.
//!
//! ```text
//! a step    copied bytes, new bytes, and where the copy begins in the old page; the new follow it
//! ```
//!
//! - E1: `page` after `of` gives the bytes back, whatever both pages hold.
//! - E2: it never takes more than the page and one step.

use std::collections::HashMap;

use crate::slab::{IMAGE_SIZE, ImageBytes};

/// Bytes that are looked for at once; a shorter match is not worth a step.
const BLOCK: usize = 16;
const _: () = assert!(IMAGE_SIZE < 1 << 16, "offsets and lengths fit");

/// Copies `copied` bytes from `from`, then takes `new` bytes of its own.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: u16,
    copied: u16,
    new: u16,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    steps: Box<[Step]>,
    new: Box<[u8]>,
}

impl Difference {
    /// What leads from `old` to `page`; none if they are equal.
    pub(crate) fn of(old: &ImageBytes, page: &ImageBytes) -> Option<Difference> {
        if old == page {
            return None;
        }
        let (mut steps, mut new) = (Vec::new(), Vec::new());
        let mut blocks = None;
        // What is written of the page, and where the last copy ended in the old one.
        let (mut at, mut expected) = (0, 0);
        while at < IMAGE_SIZE {
            let begin = at;
            let (start, from) = next_match(old, page, (at, expected), &mut blocks);
            let copied = common(&old[from..], &page[start..]);
            if start > begin || steps.is_empty() {
                push(&mut steps, &mut new, &page[begin..start]);
            }
            if copied > 0 {
                steps.push(Step { from: from as u16, copied: copied as u16, new: 0 });
            }
            (at, expected) = (start + copied, from + copied);
        }
        let (steps, new) = (steps.into_boxed_slice(), new.into_boxed_slice());
        Some(Difference { steps, new })
    }

    /// Makes of the old page the new one.
    pub(crate) fn page(&self, old: &ImageBytes, page: &mut ImageBytes) {
        let (mut at, mut used) = (0, 0);
        for step in &self.steps {
            let [from, copied, new] = [step.from, step.copied, step.new].map(usize::from);
            page[at..at + copied].copy_from_slice(&old[from..from + copied]);
            at += copied;
            page[at..at + new].copy_from_slice(&self.new[used..used + new]);
            (at, used) = (at + new, used + new);
        }
        assert_eq!(at, IMAGE_SIZE, "a difference gives a whole page");
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Difference>() + size_of_val(&*self.steps) + self.new.len()
    }
}

/// Adds new bytes to the last step.
fn push(steps: &mut Vec<Step>, new: &mut Vec<u8>, bytes: &[u8]) {
    if steps.is_empty() {
        steps.push(Step { from: 0, copied: 0, new: 0 });
    }
    if let Some(last) = steps.last_mut() {
        last.new += bytes.len() as u16;
    }
    new.extend_from_slice(bytes);
}

type Blocks = HashMap<[u8; BLOCK], usize>;

/// Where the next bytes of `page` that are copied begin, at `at` or behind, and where they are in
/// `old`: first where the last copy ended, or as far behind as the page is, then anywhere.
fn next_match(
    old: &ImageBytes,
    page: &ImageBytes,
    (at, expected): (usize, usize),
    blocks: &mut Option<Blocks>,
) -> (usize, usize) {
    let is_match =
        |from: usize, at: usize| from < IMAGE_SIZE && common(&old[from..], &page[at..]) >= BLOCK;
    for start in at..IMAGE_SIZE.saturating_sub(BLOCK - 1) {
        for from in [expected, expected + (start - at), start] {
            if is_match(from, start) {
                return (start, from);
            }
        }
        let blocks = blocks.get_or_insert_with(|| {
            let (whole, _) = old.as_chunks::<BLOCK>();
            whole.iter().zip((0..).step_by(BLOCK)).map(|(block, from)| (*block, from)).collect()
        });
        let Some(wanted) = page[start..].first_chunk::<BLOCK>() else { break };
        if let Some(found) = blocks.get(wanted) {
            // Bytes before a block may be the same, too.
            let before = page[at..start].iter().rev().zip(old[..*found].iter().rev());
            let before = before.take_while(|(one, other)| one == other).count();
            return (start - before, found - before);
        }
    }
    (IMAGE_SIZE, IMAGE_SIZE)
}

/// Bytes at the front of both that are equal.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    fn back(old: &ImageBytes, page: &ImageBytes) -> Option<usize> {
        let difference = Difference::of(old, page)?;
        let mut found = [0xEE; IMAGE_SIZE];
        difference.page(old, &mut found);
        assert!(found == *page);
        assert!(difference.bytes() <= IMAGE_SIZE + 2 * size_of::<Difference>());
        Some(difference.bytes())
    }

    fn random(prng: &mut Prng) -> ImageBytes {
        let mut page = [0; IMAGE_SIZE];
        page.iter_mut().for_each(|byte| *byte = prng.next_u64() as u8);
        page
    }

    #[test]
    fn differences_give_pages_back() {
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let old = random(&mut prng);
            let mut page = if prng.chance(10) { random(&mut prng) } else { old };
            for _ in 0..prng.below(12) {
                let at = prng.below(IMAGE_SIZE as u64) as usize;
                let len = 1 + prng.below((IMAGE_SIZE - at).min(300) as u64) as usize;
                match prng.below(4) {
                    0 => page[at..at + len].fill(prng.below(3) as u8),
                    1 => page[at..].rotate_right(len.min(IMAGE_SIZE - at)),
                    2 => page[at..].rotate_left(len.min(IMAGE_SIZE - at)),
                    _ => page[at] ^= 1,
                }
            }
            back(&old, &page);
        }
    }

    #[test]
    fn an_entry_that_moves_those_behind_it_is_what_is_kept() {
        let mut prng = Prng::from_seed(5);
        let old = random(&mut prng);
        let mut page = old;
        page.copy_within(2_000..IMAGE_SIZE - 16, 2_016);
        page[2_000..2_016].fill(7);
        assert!(back(&old, &page).expect("they differ") < 100);
        assert!(Difference::of(&old, &old).is_none());
    }

    #[test]
    fn pages_of_nothing_in_common_take_their_own_bytes() {
        let (old, page) = ([1; IMAGE_SIZE], [2; IMAGE_SIZE]);
        assert!(back(&old, &page).expect("they differ") >= IMAGE_SIZE);
    }
}
