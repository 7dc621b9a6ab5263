//! The pages in memory, and what is known of each.
//!
//! - F1: a page is in one frame at most, and `places` says in which.
//! - F2: a frame without a page is free, and free frames are taken before new ones are made.
//! - F3: of a page that has left, `places` says whether it was changed while it was here.
//! - Cost: 4 bytes for each page of the trace, 32 for each frame.

use super::FlashTier;
use std::cell::Cell;
use terrace_page::FrameId;
use terrace_policy::{AccessClass, Frames, Standing, Touch};

/// No frame, and no page.
const NONE: u32 = u32::MAX;
/// No frame: the page was changed while it had one (F3).
const LEFT_CHANGED: u32 = u32::MAX - 1;

/// What is known of a page in memory.
#[derive(Clone, Default)]
pub struct Frame {
    pub touch: Cell<Touch>,
    /// Home has an older version only, and flash none.
    pub dirty: bool,
    /// It was changed since it came.
    pub changed: bool,
    pub class: AccessClass,
    /// Hits since they were counted last.
    pub hits: u32,
    /// It is to be appended to flash with others, and was not used since.
    pub waits: bool,
    /// It is read ahead of need, and not there yet: it stays.
    pub in_flight: bool,
}

/// The frames.
pub struct Residents {
    /// The frame of each page, or `NONE`, or `LEFT_CHANGED`.
    places: Vec<u32>,
    frames: Vec<Frame>,
    /// The page of each frame, or `NONE`.
    pages: Vec<u32>,
    free: Vec<u32>,
    /// Hits of pages that have left.
    pub retired_hits: u64,
    /// What a read from home is worth in reads of flash now, if the flash tier says: for memory
    /// that goes by prices.
    pub price_ratio: Option<f64>,
}

impl Residents {
    /// No page of `pages_count` is here.
    pub fn new(pages_count: u32) -> Residents {
        let places = vec![NONE; pages_count as usize];
        Residents {
            places,
            frames: Vec::new(),
            pages: Vec::new(),
            free: Vec::new(),
            retired_hits: 0,
            price_ratio: None,
        }
    }

    /// Pages that are here.
    pub fn count(&self) -> u32 {
        (self.frames.len() - self.free.len()) as u32
    }

    #[inline]
    pub fn get(&self, page: u32) -> Option<&Frame> {
        self.frames.get(self.places[page as usize] as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, page: u32) -> Option<&mut Frame> {
        self.frames.get_mut(self.places[page as usize] as usize)
    }

    /// `page` comes.
    pub fn put(&mut self, page: u32, frame: Frame) {
        assert!(self.places[page as usize] >= LEFT_CHANGED, "page {page} is in memory already");
        let at = match self.free.pop() {
            Some(at) => {
                self.frames[at as usize] = frame;
                self.pages[at as usize] = page;
                at
            }
            None => {
                self.frames.push(frame);
                self.pages.push(page);
                self.frames.len() as u32 - 1
            }
        };
        self.places[page as usize] = at;
    }

    /// `page` goes.
    ///
    /// # Panics
    ///
    /// If it is not here.
    pub fn take_out(&mut self, page: u32) -> Frame {
        let at = self.places[page as usize] as usize;
        self.pages[at] = NONE;
        self.free.push(at as u32);
        let frame = std::mem::take(&mut self.frames[at]);
        self.places[page as usize] = if frame.changed { LEFT_CHANGED } else { NONE };
        self.retired_hits += u64::from(frame.hits);
        frame
    }

    /// Whether `page` was here, was changed, and has left (F3).
    #[inline]
    pub fn left_changed(&self, page: u32) -> bool {
        self.places[page as usize] == LEFT_CHANGED
    }

    /// The page in frame `at`.
    pub fn page_in(&self, at: FrameId) -> u32 {
        self.pages[at.0 as usize]
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let numbers = self.places.capacity() + self.pages.capacity() + self.free.capacity();
        4 * numbers + self.frames.capacity() * size_of::<Frame>()
    }

    /// Every page that is here, by frames.
    pub fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.pages.iter().copied().filter(|&page| page != NONE)
    }
}

/// The frames as a memory policy of the pool sees them: with what the flash has of their pages.
pub struct View<'a, F> {
    frames: &'a [Frame],
    pages: &'a [u32],
    flash: &'a F,
    frames_count: u32,
}

impl<'a, F> View<'a, F> {
    /// Of `frames_count` frames, once all are made.
    pub fn new(residents: &'a Residents, flash: &'a F, frames_count: u32) -> View<'a, F> {
        View { frames: &residents.frames, pages: &residents.pages, flash, frames_count }
    }
}

impl<F: FlashTier> Frames for View<'_, F> {
    fn count(&self) -> u32 {
        self.frames_count
    }

    #[inline]
    fn touch(&self, frame: FrameId) -> Touch {
        self.frames.get(frame.0 as usize).map_or(Touch::default(), |it| it.touch.get())
    }

    fn set_touch(&self, frame: FrameId, touch: Touch) {
        if let Some(frame) = self.frames.get(frame.0 as usize) {
            frame.touch.set(touch);
        }
    }

    #[inline]
    fn evictable(&self, frame: FrameId) -> bool {
        let at = frame.0 as usize;
        self.pages.get(at).is_some_and(|&page| page != NONE)
            && !(self.frames[at].waits | self.frames[at].in_flight)
    }

    #[inline]
    fn standing(&self, frame: FrameId) -> Option<Standing> {
        let page = *self.pages.get(frame.0 as usize)?;
        if page == NONE {
            return None;
        }
        let held = self.flash.held(page);
        let is_dirty = self.frames[frame.0 as usize].dirty;
        Some(Standing {
            is_on_flash: held.has_slot(),
            is_ahead_of_home: is_dirty | (held == super::Held::Dirty),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_policy::Tick;

    #[test]
    fn frames_agree_with_a_map() {
        for seed in 0..50 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let mut residents = Residents::new(40);
            let mut model: BTreeMap<u32, Touch> = BTreeMap::new();
            for step in 0..500 {
                let page = prng.u32(..40);
                let touch = Touch::first(Tick(1 + step));
                match model.remove(&page) {
                    Some(expected) => assert_eq!(residents.take_out(page).touch.get(), expected),
                    None => {
                        let frame = Frame { touch: Cell::new(touch), ..Frame::default() };
                        residents.put(page, frame);
                        model.insert(page, touch);
                    }
                }
                assert_eq!(residents.count() as usize, model.len());
                let mut pages: Vec<u32> = residents.pages().collect();
                pages.sort_unstable();
                assert!(pages.iter().eq(model.keys()), "seed {seed}");
                for page in 0..40 {
                    let touch = residents.get(page).map(|frame| frame.touch.get());
                    assert_eq!(touch, model.get(&page).copied(), "seed {seed}");
                }
            }
        }
    }
}
