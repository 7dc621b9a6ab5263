//! Blocks of flash slots that are written whole and leave whole: the flash of FASC (Wang, Guo and
//! Meng, DASFAA 2015) [S2 5].
//!
//! - Idea: pages are written a block at a time, next to each other; so the device sees large
//!   writes, and what is remembered of use is remembered of blocks. A block that is seldom used,
//!   has many holes and little that home lacks gives way; but what was used recently is taken in
//!   again.
//! - The weight of a block is `frequency (1 + dirty) / (1 + holes)`; the lightest leaves. Without
//!   the ones, as published, it is zero or infinite for most blocks [sources.R12].
//! - A window is a fixed number of page requests. Two bitmaps say which slots were used in this
//!   window and in the one before, two Bloom filters which blocks: only in those are bits looked
//!   for. At the end of a window the frequency of each block in neither filter is halved.
//! - State: a bit for each slot and window; 12 bytes for each block.
//! - B1: slots are taken in order within a block, and a block after the other: one that is open is
//!   filled before the next is begun. A free block that has been free for longer goes first.
//! - B2: no slot of a block is taken again before the block has left whole.
//! - B3: a block leaves only if it can leave whole. A page that is being read is used: it is taken
//!   in again, whatever else gives way; so is a base.
//! - B4: of the used pages of a block those at its end are taken in again, up to the room that
//!   there is, and never all: each block that leaves frees a slot at least [sources.R14].
//! - B5: a page that is taken in counts as a use of its block, so that a new block is not the
//!   lightest at once; but not as a use of the page.
//! - Cost: a hit sets two bits and adds one; a victim is one look at each block.
//! - Not for: few blocks with long windows: each is used in every window then, and none ages.

use crate::structures::bloom::BloomFilter;
use crate::{Fronted, Leave, Tick};
use std::collections::VecDeque;
use std::ops::Range;
use terrace_page::SlotId;

/// Blocks with a slot in use that are passed over, at most, in one search.
const PASSED_OVER_MAX: usize = 8;
/// What is left of a frequency at the end of a window without use [sources.R13].
const KEPT: f32 = 0.5;
/// This number of windows without use leaves nothing of a frequency.
const WINDOWS_MAX: u64 = 150;

/// What can be chosen of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRules {
    /// Slots of a block.
    pub block_slots: u32,
    /// Page requests of a window.
    pub window_requests: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Held,
    Leaving,
}

#[derive(Clone, Copy)]
struct Block {
    frequency: f32,
    /// Slots that were taken and hold nothing any more.
    holes: u32,
    state: State,
}

/// Whether a page is to be taken in again, whatever else gives way (B3).
fn must_stay(held: Fronted) -> bool {
    matches!(held, Fronted::Read | Fronted::Base)
}

/// What was used in a window.
struct Window {
    slots: Box<[u64]>,
    blocks: BloomFilter,
}

impl Window {
    fn new(slots: u32, blocks: u32, requests: u64) -> Window {
        let words = slots.div_ceil(u64::BITS) as usize;
        let used_max = u64::from(blocks).min(requests) as u32;
        Window { slots: vec![0; words].into(), blocks: BloomFilter::new(used_max) }
    }

    fn has(&self, slot: u32, block: u32) -> bool {
        self.blocks.may_hold(block)
            && self.slots[(slot / u64::BITS) as usize] >> (slot % u64::BITS) & 1 == 1
    }

    fn set(&mut self, slot: u32, is_used: bool) {
        let (word, bit) = (&mut self.slots[(slot / u64::BITS) as usize], 1 << (slot % u64::BITS));
        if is_used {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }
}

/// The blocks of one partition.
pub struct SlotBlocks {
    slots: u32,
    rules: BlockRules,
    blocks: Box<[Block]>,
    /// Free blocks, in the order in which they are taken.
    free: VecDeque<u32>,
    free_slots: u32,
    leaving_slots: u32,
    /// The next slot of the block that is being filled.
    open: Option<u32>,
    /// Which window it is.
    window: u64,
    current: Window,
    previous: Window,
}

impl SlotBlocks {
    /// Free slots, numbered from zero, in blocks; the last block may be shorter.
    ///
    /// # Panics
    ///
    /// If there are no slots, or more than 2^31, or blocks or windows are of nothing.
    #[must_use]
    pub fn new(slots_count: u32, rules: BlockRules) -> SlotBlocks {
        assert!(slots_count > 0);
        assert!(slots_count <= 1 << 31);
        assert!(rules.block_slots > 0, "a block has slots");
        assert!(rules.window_requests > 0, "a window has requests");
        let count = slots_count.div_ceil(rules.block_slots);
        let block = Block { frequency: 0.0, holes: 0, state: State::Free };
        let window = || Window::new(slots_count, count, rules.window_requests);
        SlotBlocks {
            slots: slots_count,
            rules,
            blocks: vec![block; count as usize].into(),
            free: (0..count).collect(),
            free_slots: slots_count,
            leaving_slots: 0,
            open: None,
            window: 0,
            current: window(),
            previous: window(),
        }
    }

    /// Slots that can be taken now.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free_slots
    }

    /// Slots of blocks that are leaving.
    #[must_use]
    pub fn leaving(&self) -> u32 {
        self.leaving_slots
    }

    /// Slots that can be taken now and lie next to each other: the rest of the open block, or a
    /// free one (B1).
    #[must_use]
    pub fn room(&self) -> u32 {
        match (self.open, self.free.front()) {
            (Some(next), _) => self.range(self.block_of(next)).end - next,
            (None, Some(&block)) => self.range(block).len() as u32,
            (None, None) => 0,
        }
    }

    /// Takes a slot, if there is a free one, at `now` (B1, B5).
    pub fn take(&mut self, now: Tick) -> Option<SlotId> {
        self.enter(now);
        let slot = match self.open {
            Some(next) => next,
            None => {
                let block = self.free.pop_front()?;
                self.blocks[block as usize] =
                    Block { frequency: 0.0, holes: 0, state: State::Open };
                self.range(block).start
            }
        };
        let block = self.block_of(slot);
        self.free_slots -= 1;
        self.open = Some(slot + 1).filter(|&next| next < self.range(block).end);
        if self.open.is_none() {
            self.blocks[block as usize].state = State::Held;
        }
        self.blocks[block as usize].frequency += 1.0;
        self.current.blocks.insert(block);
        self.current.set(slot, false);
        self.previous.set(slot, false);
        Some(SlotId(slot))
    }

    /// The page in `slot` was asked for, at `now`.
    pub fn hit(&mut self, slot: SlotId, now: Tick) {
        self.enter(now);
        let block = self.block_of(slot.0);
        self.blocks[block as usize].frequency += 1.0;
        self.current.blocks.insert(block);
        self.current.set(slot.0, true);
    }

    /// `slot` holds nothing any more.
    pub fn emptied(&mut self, slot: SlotId) {
        self.blocks[self.block_of(slot.0) as usize].holes += 1;
    }

    /// Whether `slot` is in a block that is leaving.
    #[must_use]
    pub fn is_leaving(&self, slot: SlotId) -> bool {
        self.blocks[self.block_of(slot.0) as usize].state == State::Leaving
    }

    /// The slots that were taken and are not leaving, block by block.
    pub fn held(&self) -> impl Iterator<Item = SlotId> + '_ {
        (0..self.slots).filter(|&slot| self.is_held(slot)).map(SlotId)
    }

    fn is_held(&self, slot: u32) -> bool {
        match self.blocks[self.block_of(slot) as usize].state {
            State::Held => true,
            State::Open => self.open.is_some_and(|next| slot < next),
            State::Free | State::Leaving => false,
        }
    }

    /// Begins to let the lightest block leave that can, at `now`; `held` tells what its slots hold,
    /// `dirty_in` how many of a range home lacks. At most `room` pages are to be taken in again.
    /// Appends the slots of the block to `out`, in order; `left` must be told when they are done
    /// with. Says how many they are.
    pub fn leave(
        &mut self,
        room: u32,
        now: Tick,
        dirty_in: impl Fn(Range<u32>) -> u32,
        held: impl Fn(SlotId) -> Fronted,
        out: &mut Vec<(SlotId, Leave)>,
    ) -> u32 {
        self.enter(now);
        let begin = out.len();
        let mut passed_over = Vec::new();
        while passed_over.len() < PASSED_OVER_MAX {
            let Some(block) = self.lightest(&passed_over, &dirty_in) else { break };
            if self.answer(block, room, &held, out) {
                self.blocks[block as usize].state = State::Leaving;
                let slots = (out.len() - begin) as u32;
                self.leaving_slots += slots;
                return slots;
            }
            out.truncate(begin);
            passed_over.push(block);
        }
        0
    }

    /// The lightest block that is held and not one of those; of equals the first.
    fn lightest(&self, but: &[u32], dirty_in: impl Fn(Range<u32>) -> u32) -> Option<u32> {
        let mut lightest: Option<(f64, u32)> = None;
        for (at, block) in (0..).zip(&self.blocks) {
            if block.state != State::Held || but.contains(&at) {
                continue;
            }
            let dirty = f64::from(1 + dirty_in(self.range(at)));
            let weight = f64::from(block.frequency) * dirty / f64::from(1 + block.holes);
            if lightest.is_none_or(|(least, _)| weight < least) {
                lightest = Some((weight, at));
            }
        }
        lightest.map(|(_, block)| block)
    }

    /// What becomes of each slot of `block`. Whether it can leave (B3, B4).
    fn answer(
        &self,
        block: u32,
        room: u32,
        held: impl Fn(SlotId) -> Fronted,
        out: &mut Vec<(SlotId, Leave)>,
    ) -> bool {
        let begin = out.len();
        let mut read = 0;
        for slot in self.range(block) {
            let was_used = self.current.has(slot, block) || self.previous.has(slot, block);
            let slot = SlotId(slot);
            out.push(match held(slot) {
                Fronted::InUse => return false,
                Fronted::Hole => (slot, Leave::Dropped),
                Fronted::Read | Fronted::Base => {
                    read += 1;
                    (slot, Leave::Again)
                }
                Fronted::Clean | Fronted::Dirty if was_used => (slot, Leave::Again),
                Fronted::Clean => (slot, Leave::Dropped),
                Fronted::Dirty => (slot, Leave::Home),
            });
        }
        let slots = (out.len() - begin) as u32;
        let again = out[begin..].iter().filter(|(_, leave)| *leave == Leave::Again).count() as u32;
        let room = room.min(slots - 1);
        if read > room {
            return false;
        }
        let second = out[begin..]
            .iter_mut()
            .filter(|(slot, leave)| *leave == Leave::Again && !must_stay(held(*slot)));
        for (slot, leave) in second.take(again.saturating_sub(room) as usize) {
            *leave = if held(*slot) == Fronted::Dirty { Leave::Home } else { Leave::Dropped };
        }
        true
    }

    /// The block that begins with slot `first` is done with: its slots are free.
    ///
    /// # Panics
    ///
    /// If it is not leaving.
    pub fn left(&mut self, first: SlotId) {
        let block = self.block_of(first.0);
        assert_eq!(self.blocks[block as usize].state, State::Leaving, "block {block}");
        self.blocks[block as usize].state = State::Free;
        let slots = self.range(block).len() as u32;
        self.free_slots += slots;
        self.leaving_slots -= slots;
        self.free.push_back(block);
    }

    /// New blocks are filled with what was found. Blocks with a page are held, and a page counts as
    /// a use.
    ///
    /// # Panics
    ///
    /// If a slot was taken before.
    pub fn restore(&mut self, is_filled: impl Fn(SlotId) -> bool) {
        assert_eq!(self.free_slots, self.slots, "new blocks");
        self.free.clear();
        self.free_slots = 0;
        for block in 0..self.blocks.len() as u32 {
            let slots = self.range(block);
            let filled = slots.clone().filter(|&slot| is_filled(SlotId(slot))).count();
            if filled == 0 {
                self.free.push_back(block);
                self.free_slots += slots.len() as u32;
            } else {
                self.blocks[block as usize] = Block {
                    frequency: filled as f32,
                    holes: (slots.len() - filled) as u32,
                    state: State::Held,
                };
            }
        }
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let windows = [&self.current, &self.previous];
        let windows = windows.map(|it| size_of_val(&*it.slots) + it.blocks.bytes());
        size_of_val(&*self.blocks)
            + self.free.capacity() * size_of::<u32>()
            + windows.iter().sum::<usize>()
    }

    /// Asserts that slots and blocks are counted.
    pub fn check(&self) {
        let sum = |state: State| -> u32 {
            let those = (0..).zip(&self.blocks).filter(|(_, block)| block.state == state);
            those.map(|(at, _)| self.range(at).len() as u32).sum()
        };
        let rest = self.open.map_or(0, |next| self.range(self.block_of(next)).end - next);
        assert_eq!(self.free_slots, sum(State::Free) + rest);
        assert_eq!(self.leaving_slots, sum(State::Leaving));
        assert_eq!(sum(State::Open) > 0, self.open.is_some(), "one block is open");
        assert!(self.free.iter().all(|&at| self.blocks[at as usize].state == State::Free));
    }

    /// Time passes: windows end, and what was not used in two of them loses weight.
    fn enter(&mut self, now: Tick) {
        let window = now.0 / self.rules.window_requests;
        let ended = window.saturating_sub(self.window).min(WINDOWS_MAX);
        for _ in 0..ended {
            let (current, previous) = (&self.current.blocks, &self.previous.blocks);
            for (at, block) in (0..).zip(&mut self.blocks) {
                if !current.may_hold(at) && !previous.may_hold(at) {
                    block.frequency *= KEPT;
                }
            }
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.slots.fill(0);
            self.current.blocks.clear();
        }
        self.window = self.window.max(window);
    }

    fn block_of(&self, slot: u32) -> u32 {
        slot / self.rules.block_slots
    }

    fn range(&self, block: u32) -> Range<u32> {
        let start = block * self.rules.block_slots;
        start..start.saturating_add(self.rules.block_slots).min(self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use std::collections::{BTreeMap, BTreeSet};

    const SLOTS: u32 = 22;
    const BLOCK: u32 = 4;
    const WINDOW: u64 = 5;
    const BLOCKS: u32 = SLOTS.div_ceil(BLOCK);

    /// Blocks as lists of their slots.
    struct Model {
        free: VecDeque<Vec<u32>>,
        open: VecDeque<u32>,
        /// Blocks that were begun, by their first slots, and whether they are leaving.
        begun: BTreeMap<u32, (f32, bool)>,
        holes: BTreeMap<u32, u32>,
        content: [Fronted; SLOTS as usize],
        /// Window, slot or block.
        used: BTreeSet<(u64, u32)>,
        /// A filter says too much at times, and then the model does.
        filters: BTreeMap<u64, BloomFilter>,
        window: u64,
    }

    impl Model {
        fn new() -> Model {
            let blocks =
                (0..BLOCKS).map(|at| (at * BLOCK..((at + 1) * BLOCK).min(SLOTS)).collect());
            Model {
                free: blocks.collect(),
                open: VecDeque::new(),
                begun: BTreeMap::new(),
                holes: BTreeMap::new(),
                content: [Fronted::Hole; SLOTS as usize],
                used: BTreeSet::new(),
                filters: BTreeMap::new(),
                window: 0,
            }
        }

        fn filter(&mut self) -> &mut BloomFilter {
            let new = || BloomFilter::new(BLOCKS.min(WINDOW as u32));
            self.filters.entry(self.window).or_insert_with(new)
        }

        fn is_block_used(&self, window: Option<u64>, block: u32) -> bool {
            let filter = window.and_then(|window| self.filters.get(&window));
            filter.is_some_and(|filter| filter.may_hold(block))
        }

        fn enter(&mut self, now: u64) {
            while self.window < now / WINDOW {
                let windows = [Some(self.window), self.window.checked_sub(1)];
                for block in 0..BLOCKS {
                    let is_used = windows.iter().any(|&it| self.is_block_used(it, block));
                    if let Some(begun) = self.begun.get_mut(&(block * BLOCK)).filter(|_| !is_used) {
                        begun.0 /= 2.0;
                    }
                }
                self.window += 1;
            }
        }

        fn take(&mut self, content: Fronted, now: u64) -> Option<u32> {
            self.enter(now);
            if self.open.is_empty() {
                let block = self.free.pop_front()?;
                self.begun.insert(block[0], (0.0, false));
                self.holes.insert(block[0], 0);
                self.open = block.into();
            }
            let slot = self.open.pop_front()?;
            self.content[slot as usize] = content;
            self.begun.get_mut(&(slot / BLOCK * BLOCK)).unwrap().0 += 1.0;
            self.filter().insert(slot / BLOCK);
            self.used.retain(|&(_, used)| used != slot);
            Some(slot)
        }

        fn hit(&mut self, slot: u32, now: u64) {
            self.enter(now);
            self.begun.get_mut(&(slot / BLOCK * BLOCK)).unwrap().0 += 1.0;
            self.filter().insert(slot / BLOCK);
            self.used.insert((self.window, slot));
        }

        fn slots(first: u32) -> Range<u32> {
            first..(first + BLOCK).min(SLOTS)
        }

        fn weight(&self, first: u32) -> f64 {
            let dirty =
                Model::slots(first).filter(|&it| self.content[it as usize] == Fronted::Dirty);
            let holes = f64::from(self.holes[&first]);
            f64::from(self.begun[&first].0) * (1.0 + dirty.count() as f64) / (1.0 + holes)
        }

        fn leave(&mut self, room: u32, now: u64) -> Vec<(SlotId, Leave)> {
            self.enter(now);
            let mut blocks: Vec<u32> = self.begun.keys().copied().collect();
            blocks.retain(|first| !self.begun[first].1 && !self.is_open(*first));
            blocks.sort_by(|&a, &b| self.weight(a).total_cmp(&self.weight(b)));
            let answers = blocks.iter().find_map(|&first| self.answers(first, room));
            if let Some(answers) = &answers {
                self.begun.get_mut(&answers[0].0.0).unwrap().1 = true;
            }
            answers.unwrap_or_default()
        }

        fn is_open(&self, first: u32) -> bool {
            self.open.front().is_some_and(|slot| slot / BLOCK * BLOCK == first)
        }

        fn answers(&self, first: u32, room: u32) -> Option<Vec<(SlotId, Leave)>> {
            let content = |slot: u32| self.content[slot as usize];
            let slots = Model::slots(first);
            if slots.clone().any(|slot| content(slot) == Fronted::InUse) {
                return None;
            }
            let windows = [self.window, self.window.wrapping_sub(1)];
            let is_used = |slot: u32| windows.iter().any(|&it| self.used.contains(&(it, slot)));
            let read: Vec<u32> = slots.clone().filter(|&slot| must_stay(content(slot))).collect();
            let is_kept = |slot: &u32| {
                let is_there = matches!(content(*slot), Fronted::Clean | Fronted::Dirty);
                is_there && is_used(*slot)
            };
            let room = room.min(slots.len() as u32 - 1) as usize;
            let mut kept: VecDeque<u32> = slots.clone().filter(is_kept).collect();
            while read.len() + kept.len() > room {
                kept.pop_front()?;
            }
            let answer = |slot: u32| match content(slot) {
                Fronted::Read | Fronted::Base => Leave::Again,
                _ if kept.contains(&slot) => Leave::Again,
                Fronted::Dirty => Leave::Home,
                _ => Leave::Dropped,
            };
            Some(slots.map(|slot| (SlotId(slot), answer(slot))).collect())
        }
    }

    fn some_content(prng: &mut Rng) -> Fronted {
        match prng.u32(..13) {
            0 => Fronted::InUse,
            1 => Fronted::Read,
            12 => Fronted::Base,
            2..7 => Fronted::Clean,
            _ => Fronted::Dirty,
        }
    }

    #[test]
    fn blocks_agree_with_their_model() {
        let rules = BlockRules { block_slots: BLOCK, window_requests: WINDOW };
        for seed in 0..2_000 {
            let mut prng = Rng::with_seed(seed);
            let (mut blocks, mut model) = (SlotBlocks::new(SLOTS, rules), Model::new());
            let mut now = 1;
            for step in 0..200 {
                let context = format!("seed {seed} step {step}");
                let slot = prng.u32(..SLOTS);
                let holds = model.content[slot as usize] != Fronted::Hole;
                match prng.u32(..9) {
                    0..4 => {
                        let taken = model.take(some_content(&mut prng), now);
                        assert_eq!(blocks.take(Tick(now)), taken.map(SlotId), "{context}");
                    }
                    4 if holds => {
                        blocks.hit(SlotId(slot), Tick(now));
                        model.hit(slot, now);
                    }
                    5 if holds => {
                        model.content[slot as usize] = some_content(&mut prng);
                    }
                    6 if holds => {
                        model.content[slot as usize] = Fronted::Hole;
                        *model.holes.get_mut(&(slot / BLOCK * BLOCK)).unwrap() += 1;
                        blocks.emptied(SlotId(slot));
                    }
                    7 => {
                        let room = prng.u32(..6);
                        let mut out = Vec::new();
                        let content = model.content;
                        let held = |slot: SlotId| content[slot.0 as usize];
                        let is_dirty = |slot: &u32| content[*slot as usize] == Fronted::Dirty;
                        let dirty_in = |slots: Range<u32>| slots.filter(is_dirty).count() as u32;
                        blocks.leave(room, Tick(now), dirty_in, held, &mut out);
                        assert_eq!(out, model.leave(room, now), "{context}");
                    }
                    8 => {
                        let leaving = model.begun.iter().filter(|(_, it)| it.1);
                        let firsts: Vec<u32> = leaving.map(|(&first, _)| first).collect();
                        if let Some(&first) = firsts.first() {
                            model.begun.remove(&first);
                            Model::slots(first)
                                .for_each(|it| model.content[it as usize] = Fronted::Hole);
                            model.free.push_back(Model::slots(first).collect());
                            blocks.left(SlotId(first));
                        }
                    }
                    _ => now += prng.u64(..4),
                }
                blocks.check();
                let leaving =
                    |slot: u32| model.begun.get(&(slot / BLOCK * BLOCK)).is_some_and(|it| it.1);
                let is_leaving = |slot: u32| blocks.is_leaving(SlotId(slot));
                assert!((0..SLOTS).all(|slot| leaving(slot) == is_leaving(slot)), "{context}");
                let free = model.free.iter().map(Vec::len).sum::<usize>() + model.open.len();
                assert_eq!(blocks.free() as usize, free, "{context}");
                let next = model.free.front().map_or(0, Vec::len);
                let room = if model.open.is_empty() { next } else { model.open.len() };
                assert_eq!(blocks.room() as usize, room, "{context}");
                let held: Vec<u32> = (model.begun.iter().filter(|(_, it)| !it.1))
                    .flat_map(|(&first, _)| Model::slots(first))
                    .filter(|slot| !model.open.contains(slot))
                    .collect();
                assert_eq!(blocks.held().map(|it| it.0).collect::<Vec<_>>(), held, "{context}");
            }
        }
    }

    #[test]
    fn a_block_that_is_not_used_any_more_gives_way_to_those_that_are() {
        let rules = BlockRules { block_slots: 8, window_requests: 16 };
        let mut blocks = SlotBlocks::new(32, rules);
        (0..32).for_each(|_| assert!(blocks.take(Tick(1)).is_some()));
        // The first block was hot once; the others are used in each window.
        (0..100).for_each(|_| blocks.hit(SlotId(3), Tick(1)));
        for now in 2..200 {
            blocks.hit(SlotId(8 + now as u32 % 24), Tick(now));
        }
        let mut out = Vec::new();
        blocks.leave(8, Tick(200), |_| 0, |_| Fronted::Clean, &mut out);
        assert!(out.iter().all(|&(slot, leave)| slot.0 < 8 && leave == Leave::Dropped), "{out:?}");
    }

    #[test]
    fn blocks_with_a_page_are_held_after_a_restart() {
        let rules = BlockRules { block_slots: 8, window_requests: 16 };
        let mut blocks = SlotBlocks::new(30, rules);
        blocks.restore(|slot| slot.0 == 9 || slot.0 >= 24);
        blocks.check();
        assert_eq!(blocks.free(), 16);
        let mut out = Vec::new();
        let held = |slot: SlotId| match slot.0 == 9 || slot.0 >= 24 {
            true => Fronted::Clean,
            false => Fronted::Hole,
        };
        blocks.leave(0, Tick(1), |_| 0, held, &mut out);
        assert_eq!(out[0].0, SlotId(8), "the one with holes");
        blocks.left(SlotId(8));
        let first = blocks.take(Tick(1));
        assert_eq!(first, Some(SlotId(0)));
    }
}
