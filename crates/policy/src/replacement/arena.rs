//! Lists of keys that share one array of nodes: what most policies of this folder are made of.
//!
//! ```text
//! nodes: | node of key 0 | node of key 1 | ... | end of list 0 | end of list 1 | ... |
//! node:  | newer | older | word | list | mark |     16 bytes: a hit touches one cache line
//! ```
//!
//! - A1: a key is in at most one list; its node says in which.
//! - A2: each list is a ring through its end, whose `older` is the newest key and whose `newer` is
//!   the oldest, so that no link is ever missing and no operation branches on the ends.
//! - Cost: every operation is O(1); 16 bytes per key.
//! - Not for: keys that are not dense.

/// In no list.
const NOWHERE: u8 = u8::MAX;

#[derive(Clone, Copy)]
#[repr(align(16))]
struct Node {
    newer: u32,
    older: u32,
    word: u32,
    list: u8,
    mark: u8,
}

const _: () = assert!(size_of::<Node>() == 16);

/// `LISTS` lists over the keys below `keys_count`.
pub struct Arena<const LISTS: usize> {
    nodes: Vec<Node>,
    lens: [u32; LISTS],
    keys_count: u32,
}

impl<const LISTS: usize> Arena<LISTS> {
    /// Empty lists.
    pub fn new(keys_count: u32) -> Arena<LISTS> {
        assert!(keys_count < u32::MAX - LISTS as u32, "keys are 32 bits wide");
        let nowhere = Node { newer: 0, older: 0, word: 0, list: NOWHERE, mark: 0 };
        let mut nodes = vec![nowhere; keys_count as usize];
        for list in 0..LISTS as u32 {
            let end = keys_count + list;
            nodes.push(Node { newer: end, older: end, ..nowhere });
        }
        Arena { nodes, lens: [0; LISTS], keys_count }
    }

    /// How many keys `list` holds.
    #[inline]
    pub fn len(&self, list: u8) -> u32 {
        self.lens[list as usize]
    }

    /// The list that `key` is in.
    #[inline]
    pub fn list(&self, key: u32) -> Option<u8> {
        let list = self.nodes[key as usize].list;
        (list != NOWHERE).then_some(list)
    }

    /// Whether `key` is in `list`.
    #[inline]
    pub fn is_in(&self, list: u8, key: u32) -> bool {
        self.nodes[key as usize].list == list
    }

    /// The mark of `key`: a small number that stays with it until `set_mark`.
    #[inline]
    pub fn mark(&self, key: u32) -> u8 {
        self.nodes[key as usize].mark
    }

    #[inline]
    pub fn set_mark(&mut self, key: u32, mark: u8) {
        self.nodes[key as usize].mark = mark;
    }

    /// A number that stays with `key` until `set_word`.
    #[inline]
    pub fn word(&self, key: u32) -> u32 {
        self.nodes[key as usize].word
    }

    #[inline]
    pub fn set_word(&mut self, key: u32, word: u32) {
        self.nodes[key as usize].word = word;
    }

    /// Puts `key`, which is in no list, at the newest end of `list`.
    #[inline]
    pub fn push(&mut self, list: u8, key: u32) {
        debug_assert!(self.list(key).is_none(), "A1: key {key}");
        self.link(list, key);
        self.lens[list as usize] += 1;
    }

    /// Takes `key` out of its list.
    #[inline]
    pub fn remove(&mut self, key: u32) {
        let list = self.nodes[key as usize].list;
        self.unlink(key);
        self.nodes[key as usize].list = NOWHERE;
        self.lens[list as usize] -= 1;
    }

    /// Takes `key` out of its list and puts it at the newest end of `list`, maybe the same.
    #[inline]
    pub fn renew(&mut self, list: u8, key: u32) {
        let from = self.nodes[key as usize].list;
        self.lens[from as usize] -= 1;
        self.lens[list as usize] += 1;
        self.unlink(key);
        self.link(list, key);
    }

    /// The oldest key of `list`.
    #[inline]
    pub fn oldest(&self, list: u8) -> Option<u32> {
        self.key_at(self.nodes[self.end(list) as usize].newer)
    }

    /// The key that came to `key`'s list just after it.
    #[inline]
    pub fn newer(&self, key: u32) -> Option<u32> {
        self.key_at(self.nodes[key as usize].newer)
    }

    /// The oldest key of `list` that satisfies `wanted`.
    #[inline]
    pub fn oldest_that(&self, list: u8, mut wanted: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut next = self.oldest(list);
        while let Some(key) = next {
            if wanted(key) {
                return Some(key);
            }
            next = self.newer(key);
        }
        None
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    fn key_at(&self, at: u32) -> Option<u32> {
        (at < self.keys_count).then_some(at)
    }

    fn end(&self, list: u8) -> u32 {
        self.keys_count + u32::from(list)
    }

    #[inline]
    fn link(&mut self, list: u8, key: u32) {
        let end = self.end(list);
        let newest = std::mem::replace(&mut self.nodes[end as usize].older, key);
        self.nodes[newest as usize].newer = key;
        let node = &mut self.nodes[key as usize];
        node.newer = end;
        node.older = newest;
        node.list = list;
    }

    #[inline]
    fn unlink(&mut self, key: u32) {
        let Node { newer, older, .. } = self.nodes[key as usize];
        self.nodes[newer as usize].older = older;
        self.nodes[older as usize].newer = newer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const KEYS: u32 = 12;

    #[test]
    fn lists_agree_with_deques() {
        for seed in 0..300 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut arena: Arena<2> = Arena::new(KEYS);
            let mut model: [VecDeque<u32>; 2] = Default::default();
            for step in 0..200 {
                let (key, list) = (prng.u32(..KEYS), prng.u8(..2));
                let from = (0..2).find(|&at| model[at].contains(&key));
                assert_eq!(arena.list(key), from.map(|at| at as u8));
                match (from, prng.u8(..3)) {
                    (None, _) => arena.push(list, key),
                    (Some(_), 0) => arena.remove(key),
                    (Some(_), _) => arena.renew(list, key),
                }
                if let Some(at) = from {
                    model[at].retain(|&other| other != key);
                }
                if arena.list(key).is_some() {
                    model[list as usize].push_back(key);
                }
                for list in 0..2u8 {
                    let expected = &model[list as usize];
                    let mut seen = VecDeque::new();
                    arena.oldest_that(list, |key| {
                        seen.push_back(key);
                        false
                    });
                    assert_eq!(&seen, expected, "seed {seed} step {step}");
                    assert_eq!(arena.len(list) as usize, expected.len());
                }
            }
        }
    }
}
