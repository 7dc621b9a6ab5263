//! LIRS: the page with the longest time between its last two uses leaves (Jiang and Zhang,
//! SIGMETRICS 2002).
//!
//! ```text
//! stack  newest use first: pages of low recency (LIR, cached), of high recency (HIR), ghosts
//! queue  the cached HIR pages, 1% of the cache: the oldest leaves
//!
//!   miss ---> HIR, on the stack and in the queue ---> ghost if on the stack, else forgotten
//!              | used while on the stack                | missed while on the stack
//!              v                                        v
//!             LIR <-------------------------------------+    the LIR at the bottom becomes HIR
//! ```
//!
//! - L1: the bottom of the stack is LIR: what is below the last LIR is pruned.
//! - L2: there are at most `lirs_max` LIR pages; while there are fewer, newcomers become LIR.
//! - L3: the stack holds at most twice the capacity: ghosts go in the order in which they left. The
//!   paper sets no bound; without one a scan makes ghosts without end.
//! - Cost: a hit on a LIR moves a node, others move up to four; pruning is paid by the pushes.
//! - Not for: caches that must be small beside their metadata: two nodes per key.

use super::arena::Arena;
use super::replace::{Forgotten, Key, Look, NoneMayLeave, Replace, Setup, share};
use terrace_page::PageId;

/// The list of `stack`.
const STACK: u8 = 0;
/// The lists of `others`.
const QUEUE: u8 = 0;
const GHOSTS: u8 = 1;
/// Marks of keys in `stack`.
const HIR: u8 = 0;
const LIR: u8 = 1;

/// Share of the cache for HIR pages, in percent [Jiang and Zhang, 5].
const HIR_PERCENT: u32 = 1;
/// Entries of the stack for each page of the cache.
const STACK_PER_PAGE: u32 = 2;

/// The state of LIRS.
pub struct Lirs {
    stack: Arena<1>,
    others: Arena<2>,
    lirs: u32,
    lirs_max: u32,
    capacity: u32,
    forgotten: Forgotten,
}

impl Lirs {
    pub(super) fn new(setup: Setup) -> Lirs {
        assert!(setup.capacity > 0, "a cache holds a page");
        Lirs {
            stack: Arena::new(setup.keys_count),
            others: Arena::new(setup.keys_count),
            lirs: 0,
            lirs_max: setup.capacity - share(setup.capacity, HIR_PERCENT),
            capacity: setup.capacity,
            forgotten: Forgotten::new(setup.forgetting),
        }
    }

    pub(super) fn ghosts_max(capacity: u32) -> u32 {
        STACK_PER_PAGE.saturating_mul(capacity)
    }

    fn is_lir(&self, key: u32) -> bool {
        self.stack.mark(key) == LIR
    }

    /// A key on top of the stack becomes LIR; the LIR at the bottom gives way if there are too
    /// many.
    fn promote(&mut self, key: u32) {
        self.stack.set_mark(key, LIR);
        self.lirs += 1;
        self.prune();
        if self.lirs > self.lirs_max {
            let bottom = self.stack.oldest(STACK).expect("there are LIR pages");
            self.stack.remove(bottom);
            self.stack.set_mark(bottom, HIR);
            self.lirs -= 1;
            self.others.push(QUEUE, bottom);
        }
    }

    /// Restores L1.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.oldest(STACK) {
            if self.is_lir(bottom) {
                return;
            }
            self.stack.remove(bottom);
            if self.others.is_in(GHOSTS, bottom) {
                self.others.remove(bottom);
                self.forgotten.push(bottom);
            }
        }
    }

    /// Restores L3.
    fn limit(&mut self) {
        while self.stack.len(STACK) > STACK_PER_PAGE.saturating_mul(self.capacity) {
            let Some(ghost) = self.others.oldest(GHOSTS) else { return };
            self.others.remove(ghost);
            self.stack.remove(ghost);
            self.forgotten.push(ghost);
        }
    }

    fn settle(&mut self) {
        self.prune();
        self.limit();
    }

    /// Takes out the oldest of the queue, or a LIR page if none of the queue may leave.
    fn retire(&mut self, mut may_leave: impl FnMut(Key) -> bool) -> Option<u32> {
        if let Some(victim) = self.others.oldest_that(QUEUE, |key| may_leave(Key(key))) {
            if self.stack.is_in(STACK, victim) {
                self.others.renew(GHOSTS, victim);
            } else {
                self.others.remove(victim);
                self.forgotten.push(victim);
            }
            return Some(victim);
        }
        let stack = &self.stack;
        let is_victim = |key: u32| stack.mark(key) == LIR && may_leave(Key(key));
        let victim = stack.oldest_that(STACK, is_victim)?;
        self.stack.set_mark(victim, HIR);
        self.lirs -= 1;
        self.others.push(GHOSTS, victim);
        Some(victim)
    }
}

impl Replace for Lirs {
    #[inline]
    fn hit(&mut self, key: Key) -> bool {
        let key = key.0;
        if self.is_lir(key) {
            let was_bottom = self.stack.oldest(STACK) == Some(key);
            self.stack.renew(STACK, key);
            if was_bottom {
                self.prune();
            }
            return true;
        }
        if !self.others.is_in(QUEUE, key) {
            return false;
        }
        if self.stack.is_in(STACK, key) {
            self.stack.renew(STACK, key);
            self.others.remove(key);
            self.promote(key);
        } else {
            self.stack.push(STACK, key);
            self.others.renew(QUEUE, key);
        }
        self.settle();
        true
    }

    fn insert(
        &mut self,
        key: Key,
        _page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave> {
        let mut victim = None;
        if self.lirs + self.others.len(QUEUE) >= self.capacity {
            victim = Some(Key(self.retire(may_leave).ok_or(NoneMayLeave)?));
        }
        let key = key.0;
        if self.others.is_in(GHOSTS, key) {
            self.others.remove(key);
            self.stack.renew(STACK, key);
            self.promote(key);
        } else {
            self.stack.push(STACK, key);
            if self.lirs < self.lirs_max {
                self.promote(key);
            } else {
                self.others.push(QUEUE, key);
            }
        }
        self.settle();
        Ok(victim)
    }

    fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
        let victim = self.retire(may_leave)?;
        self.settle();
        Some(Key(victim))
    }

    fn remove(&mut self, key: Key) {
        let key = key.0;
        if self.is_lir(key) {
            self.stack.set_mark(key, HIR);
            self.lirs -= 1;
        }
        if self.stack.list(key).is_some() {
            self.stack.remove(key);
        }
        if self.others.list(key).is_some() {
            self.others.remove(key);
        }
        self.prune();
    }

    fn forgotten(&mut self) -> &mut Vec<Key> {
        &mut self.forgotten.keys
    }
}

impl Look for Lirs {
    #[inline]
    fn is_cached(&self, key: Key) -> bool {
        self.is_lir(key.0) || self.others.is_in(QUEUE, key.0)
    }

    fn bytes(&self) -> usize {
        self.stack.bytes() + self.others.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{self, Model};

    #[test]
    fn lirs_agrees_with_its_model() {
        models::compare("lirs", |capacity, _| LirsModel {
            capacity,
            hirs: (capacity / 100).max(1),
            ..LirsModel::default()
        });
    }

    /// Bottom of the stack first; the queue and the ghosts oldest first.
    #[derive(Default)]
    struct LirsModel {
        capacity: usize,
        hirs: usize,
        stack: Vec<u32>,
        lir: Vec<u32>,
        queue: Vec<u32>,
        ghosts: Vec<u32>,
    }

    fn drop_from(list: &mut Vec<u32>, key: u32) -> bool {
        let at = list.iter().position(|&other| other == key);
        at.map(|at| list.remove(at)).is_some()
    }

    impl LirsModel {
        fn lift(&mut self, key: u32) {
            drop_from(&mut self.stack, key);
            self.stack.push(key);
        }

        fn make_lir(&mut self, key: u32) {
            self.lir.push(key);
            self.prune();
            if self.lir.len() > self.capacity - self.hirs {
                let bottom = self.stack.remove(0);
                drop_from(&mut self.lir, bottom);
                self.queue.push(bottom);
            }
        }

        fn prune(&mut self) {
            while self.stack.first().is_some_and(|key| !self.lir.contains(key)) {
                let bottom = self.stack.remove(0);
                drop_from(&mut self.ghosts, bottom);
            }
        }

        fn settle(&mut self) {
            self.prune();
            while self.stack.len() > 2 * self.capacity && !self.ghosts.is_empty() {
                let ghost = self.ghosts.remove(0);
                drop_from(&mut self.stack, ghost);
            }
        }
    }

    impl Model for LirsModel {
        fn hit(&mut self, key: u32) -> bool {
            if self.lir.contains(&key) {
                self.lift(key);
                self.prune();
                return true;
            }
            if !drop_from(&mut self.queue, key) {
                return false;
            }
            let was_on_stack = self.stack.contains(&key);
            self.lift(key);
            if was_on_stack {
                self.make_lir(key);
            } else {
                self.queue.push(key);
            }
            self.settle();
            true
        }

        fn is_full(&self) -> bool {
            self.lir.len() + self.queue.len() == self.capacity
        }

        fn victim(&mut self, key: Option<u32>, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
            let of_queue = self.queue.iter().copied().find(|&key| may_leave(key));
            let is_lir = |key: &u32| self.lir.contains(key) && may_leave(*key);
            let victim = of_queue.or_else(|| self.stack.iter().copied().find(is_lir))?;
            drop_from(&mut self.queue, victim);
            drop_from(&mut self.lir, victim);
            if self.stack.contains(&victim) {
                self.ghosts.push(victim);
            }
            if key.is_none() {
                self.settle();
            }
            Some(victim)
        }

        fn enter(&mut self, key: u32) {
            let was_ghost = drop_from(&mut self.ghosts, key);
            self.lift(key);
            if was_ghost || self.lir.len() < self.capacity - self.hirs {
                self.make_lir(key);
            } else {
                self.queue.push(key);
            }
            self.settle();
        }

        fn remove(&mut self, key: u32) {
            for list in [&mut self.stack, &mut self.lir, &mut self.queue, &mut self.ghosts] {
                drop_from(list, key);
            }
            self.prune();
        }

        fn known(&self) -> Vec<u32> {
            [&self.lir[..], &self.queue, &self.ghosts].concat()
        }
    }
}
