//! The pages of an index in memory: LRU, as the index papers have it.
//!
//! The order is `policy`'s; this keeps the bytes. A page that was changed and not written is dirty,
//! and is handed out when it must leave.

use std::sync::Arc;

use rapidhash::RapidHashMap;
use terrace_page::PageId;
use terrace_policy::replacement::{
    self, Forgetting, Key as Frame, Replace, ReplacementPolicy, Setup,
};

use crate::page::{Page, PageNo};

struct Held {
    no: PageNo,
    page: Arc<Page>,
    is_dirty: bool,
}

/// The pages in memory.
pub(crate) struct Pool {
    order: ReplacementPolicy,
    frames: Vec<Option<Held>>,
    free: Vec<u32>,
    /// Pages that it may have now.
    limit: usize,
    by_number: RapidHashMap<PageNo, u32>,
}

impl Pool {
    /// Room for `pages` pages, at least one.
    pub(crate) fn new(pages: usize) -> Pool {
        let limit = pages.max(1);
        let capacity = limit as u32;
        let lru = replacement::find("lru").expect("LRU is in the table").kind;
        let forgetting = Forgetting::Silent;
        let setup = Setup { capacity, keys_count: capacity, forgetting, seed: 0 };
        Pool {
            order: ReplacementPolicy::new(lru, setup),
            frames: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            limit,
            by_number: RapidHashMap::default(),
        }
    }

    /// The page, if it is here; it becomes the one used last.
    pub(crate) fn get(&mut self, no: PageNo) -> Option<Arc<Page>> {
        let frame = *self.by_number.get(&no)?;
        assert!(self.order.hit(Frame(frame)), "a page in memory is in the order");
        Some(Arc::clone(&self.held(frame).page))
    }

    fn held(&self, frame: u32) -> &Held {
        self.frames[frame as usize].as_ref().expect("a frame that is in use")
    }

    /// Whether the page is here.
    pub(crate) fn has(&self, no: PageNo) -> bool {
        self.by_number.contains_key(&no)
    }

    /// Puts a page, and gives the dirty one that left for it, if one did.
    pub(crate) fn put(
        &mut self,
        no: PageNo,
        page: Arc<Page>,
        is_dirty: bool,
    ) -> Option<(PageNo, Arc<Page>)> {
        if let Some(frame) = self.by_number.get(&no) {
            self.order.hit(Frame(*frame));
            let held = self.frames[*frame as usize].as_mut().expect("a frame that is in use");
            held.is_dirty |= is_dirty;
            held.page = page;
            return None;
        }
        let left = if self.by_number.len() == self.limit { self.evict() } else { None };
        let frame = self.free.pop().expect("a frame for each page");
        let page_id = PageId(u64::from(no));
        let victim = self.order.insert(Frame(frame), page_id, |_| false);
        assert!(victim == Ok(None), "there is room");
        self.by_number.insert(no, frame);
        self.frames[frame as usize] = Some(Held { no, page, is_dirty });
        left
    }

    /// Takes out the page used longest ago, and gives it if it is dirty.
    fn evict(&mut self) -> Option<(PageNo, Arc<Page>)> {
        let frame = self.order.evict(|_| true)?.0;
        let left = self.frames[frame as usize].take().expect("a frame that is in use");
        self.by_number.remove(&left.no);
        self.free.push(frame);
        left.is_dirty.then_some((left.no, left.page))
    }

    /// It may have `pages` pages from now on, at least one and no more than at first; gives dirty
    /// ones that leave.
    pub(crate) fn set_limit(&mut self, pages: usize) -> Vec<(PageNo, Arc<Page>)> {
        self.limit = pages.clamp(1, self.frames.len());
        let over = self.by_number.len().saturating_sub(self.limit);
        (0..over).filter_map(|_| self.evict()).collect()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// A newer version was written: the page, if it is here, is that and clean.
    pub(crate) fn written(&mut self, no: PageNo, page: &Arc<Page>) {
        if let Some(frame) = self.by_number.get(&no) {
            let held = self.frames[*frame as usize].as_mut().expect("a frame that is in use");
            (held.page, held.is_dirty) = (Arc::clone(page), false);
        }
    }

    /// Forgets the page, whose bytes nothing wants any more.
    pub(crate) fn forget(&mut self, no: PageNo) {
        if let Some(frame) = self.by_number.remove(&no) {
            self.order.remove(Frame(frame));
            self.frames[frame as usize] = None;
            self.free.push(frame);
        }
    }

    /// All dirty pages by number; they stay, and are clean now.
    pub(crate) fn take_dirty(&mut self) -> Vec<(PageNo, Arc<Page>)> {
        let dirty = self.frames.iter_mut().flatten().filter(|held| held.is_dirty);
        let mut taken: Vec<_> = dirty
            .map(|held| {
                held.is_dirty = false;
                (held.no, Arc::clone(&held.page))
            })
            .collect();
        taken.sort_unstable_by_key(|(no, _)| *no);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageKind;
    use terrace_rt::Prng;

    /// Pages, least recently used first.
    #[derive(Default)]
    struct Model {
        order: Vec<(PageNo, bool)>,
    }

    impl Model {
        fn touch(&mut self, no: PageNo, dirty: Option<bool>) -> bool {
            let Some(at) = self.order.iter().position(|(other, _)| *other == no) else {
                return false;
            };
            let (_, was) = self.order.remove(at);
            self.order.push((no, was || dirty == Some(true)));
            true
        }
    }

    #[test]
    fn the_pool_agrees_with_its_model() {
        let page = Arc::new(Page::new(512, PageKind::Node, 0));
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let most = 1 + prng.below(8) as usize;
            let mut capacity = most;
            let (mut pool, mut model) = (Pool::new(capacity), Model::default());
            for step in 0..300 {
                let no = prng.below(12) as PageNo;
                let at = format!("seed {seed} step {step}");
                match prng.below(8) {
                    0..3 => assert_eq!(pool.get(no).is_some(), model.touch(no, None), "{at}"),
                    3..6 => {
                        let dirty = prng.chance(2);
                        let left = pool.put(no, Arc::clone(&page), dirty).map(|left| left.0);
                        let mut wanted = None;
                        if !model.touch(no, Some(dirty)) {
                            model.order.push((no, dirty));
                            if model.order.len() > capacity {
                                let (no, was) = model.order.remove(0);
                                wanted = was.then_some(no);
                            }
                        }
                        assert_eq!(left, wanted, "{at}");
                    }
                    6 if prng.chance(10) => {
                        capacity = 1 + prng.below(most as u64) as usize;
                        let left = pool.set_limit(capacity);
                        let over = model.order.len().saturating_sub(capacity);
                        let gone = model.order.drain(..over);
                        let wanted = gone.filter(|(_, dirty)| *dirty).map(|(no, _)| no);
                        assert!(left.into_iter().map(|left| left.0).eq(wanted), "{at}");
                    }
                    6 => {
                        pool.forget(no);
                        model.order.retain(|(other, _)| *other != no);
                    }
                    _ => {
                        let taken: Vec<_> = pool.take_dirty().into_iter().map(|t| t.0).collect();
                        let dirty = model.order.iter().filter(|(_, dirty)| *dirty);
                        let mut wanted: Vec<_> = dirty.map(|(no, _)| *no).collect();
                        wanted.sort_unstable();
                        assert_eq!(taken, wanted, "{at}");
                        model.order.iter_mut().for_each(|(_, dirty)| *dirty = false);
                    }
                }
            }
        }
    }
}
