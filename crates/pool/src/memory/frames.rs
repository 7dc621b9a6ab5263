//! Frames: memory for pages, and 64 bytes about each. All access to page bytes is here.
//!
//! - M1: bytes are read only under the frame's latch, and changed only under its exclusive mode.
//!   [`Shared`] and [`Exclusive`] are guards of that latch.
//! - M2: `page` changes only under the exclusive latch and the lock of the page's partition; so it
//!   can be trusted under either.
//! - M3: `rec_lsn` and `slot` change only under the lock of the page's partition, by a task that
//!   also holds the frame's latch, in either mode; the slot also when another page takes it
//!   over, or when the copy moves on in an append log.
//! - M4: a [`Peek`] reads without the latch, word by word as atomics, and what it read counts only
//!   if the latch's version says that no task had the exclusive mode meanwhile.
//! - M5: a frame is peeked only once a holder of its latch has said so (`let_peek`), and stays so
//!   for good, whatever page it holds: a reader that was interrupted may still be in it. The bytes
//!   of such a frame are changed word by word, as atomics ([`Exclusive::change`]); those of all
//!   others in place. So no plain write meets a peek. A device fills a frame from outside of the
//!   program, while no peek of it can be validated.
//! - Holding the latch is the pin: there is no count beside it.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_page::{FrameId, Lsn, PAGE_SIZE, PageBuf, PageId};
pub(crate) use terrace_page_io::Staging;
use terrace_page_io::{Memory, PageAhead, PagePlace, PageTarget};
use terrace_policy::{AccessClass, Tick, Touch};
use terrace_rt::{Latch, Nanos};

use crate::durability::ledger::DirtyLsns;

/// `Frame::page` of a frame without a page.
const NO_PAGE: u64 = u64::MAX;
/// `Frame::slot` of a page without a flash copy.
const NO_SLOT: u32 = u32::MAX;

/// What is known about one frame: a cache line.
#[repr(align(64))]
pub(crate) struct Frame {
    latch: Latch,
    page: AtomicU64,
    touch: AtomicU64,
    /// `Lsn::MAX` if the frame has no dirty entry.
    rec_lsn: AtomicU64,
    /// Valid only if the frame has a dirty entry.
    base_lsn: AtomicU64,
    slot: AtomicU32,
    class: AtomicU32,
    hits: AtomicU32,
    /// Not zero once the frame may be peeked (M5).
    peeked: AtomicU32,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    fn empty() -> Frame {
        Frame {
            latch: Latch::new(),
            page: AtomicU64::new(NO_PAGE),
            touch: AtomicU64::new(0),
            rec_lsn: AtomicU64::new(Lsn::MAX.0),
            base_lsn: AtomicU64::new(Lsn::MAX.0),
            slot: AtomicU32::new(NO_SLOT),
            class: AtomicU32::new(0),
            hits: AtomicU32::new(0),
            peeked: AtomicU32::new(0),
        }
    }

    pub fn page(&self) -> Option<PageId> {
        let page = self.page.load(Ordering::Relaxed);
        (page != NO_PAGE).then_some(PageId(page))
    }

    #[inline]
    pub fn holds(&self, page: PageId) -> bool {
        self.page.load(Ordering::Relaxed) == page.0
    }

    pub fn set_page(&self, page: Option<PageId>) {
        self.page.store(page.map_or(NO_PAGE, |page| page.0), Ordering::Relaxed);
    }

    pub fn touch(&self) -> Touch {
        Touch(self.touch.load(Ordering::Relaxed))
    }

    pub fn set_touch(&self, touch: Touch) {
        self.touch.store(touch.0, Ordering::Relaxed);
    }

    /// A page request found the page here, and is counted elsewhere.
    #[inline]
    pub fn used(&self, now: Tick) {
        let before = self.touch();
        let after = before.hit(now);
        if after != before {
            self.set_touch(after);
        }
    }

    /// A page request found the page here: at most two relaxed stores to a line that the latch has
    /// fetched already. Hits of two threads at the same instant may count as one.
    #[inline]
    pub fn hit(&self, now: Tick) {
        self.used(now);
        self.hits.store(self.hits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub fn hits(&self) -> u64 {
        u64::from(self.hits.load(Ordering::Relaxed))
    }

    pub fn take_hits(&self) -> u64 {
        u64::from(self.hits.swap(0, Ordering::Relaxed))
    }

    /// Lower bound of the first change that is neither at home nor on flash.
    #[inline]
    pub fn rec_lsn(&self) -> Option<Lsn> {
        let lsn = self.rec_lsn.load(Ordering::Relaxed);
        (lsn != Lsn::MAX.0).then_some(Lsn(lsn))
    }

    /// The dirty entry.
    pub fn dirty(&self) -> Option<DirtyLsns> {
        let base = Lsn(self.base_lsn.load(Ordering::Relaxed));
        self.rec_lsn().map(|rec| DirtyLsns { rec, base })
    }

    pub fn set_dirty(&self, lsns: Option<DirtyLsns>) {
        let lsns = lsns.unwrap_or(DirtyLsns::NONE);
        self.base_lsn.store(lsns.base.0, Ordering::Relaxed);
        self.rec_lsn.store(lsns.rec.0, Ordering::Relaxed);
    }

    /// The slot of the page's flash copy, numbered within the partition.
    pub fn slot(&self) -> Option<u32> {
        let slot = self.slot.load(Ordering::Relaxed);
        (slot != NO_SLOT).then_some(slot)
    }

    pub fn set_slot(&self, slot: Option<u32>) {
        self.slot.store(slot.unwrap_or(NO_SLOT), Ordering::Relaxed);
    }

    pub fn class(&self) -> AccessClass {
        match self.class.load(Ordering::Relaxed) {
            0 => AccessClass::Random,
            _ => AccessClass::Sequential,
        }
    }

    pub fn set_class(&self, class: AccessClass) {
        self.class.store(u32::from(class == AccessClass::Sequential), Ordering::Relaxed);
    }

    pub fn is_latched(&self) -> bool {
        self.latch.is_held()
    }

    /// Whether the frame may be peeked. Acquire: a task that finds that it may be has seen every
    /// change that was made in place.
    #[inline]
    fn is_peeked(&self) -> bool {
        self.peeked.load(Ordering::Acquire) != 0
    }

    /// From now on the frame may be peeked. Called by a holder of its latch: a task that changed it
    /// in place has released the latch before, and a task that takes it later sees this.
    #[inline]
    fn let_peek(&self) {
        if !self.is_peeked() {
            self.peeked.store(1, Ordering::Release);
        }
    }
}

/// Words of a page.
const WORDS: usize = PAGE_SIZE / 8;
const _: () = assert!(WORDS.is_power_of_two());

/// The bytes of a page that another task may be writing: what they say may be nonsense, and must
/// not be believed before the latch was asked. Nothing that is read here can do harm.
#[derive(Clone, Copy)]
pub struct Peek<'p> {
    words: NonNull<u64>,
    table: std::marker::PhantomData<&'p FrameTable>,
}

impl Peek<'_> {
    /// The eight bytes from offset `8 * index` on, little-endian; of the page's words modulo their
    /// number.
    #[inline]
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        // SAFETY: the word is within the page, aligned, and outlives `self`; it is read as an
        // atomic only (M4).
        let word = unsafe { AtomicU64::from_ptr(self.words.add(index % WORDS).as_ptr()) };
        u64::from_le(word.load(Ordering::Relaxed))
    }
}

/// All frames.
pub(crate) struct FrameTable {
    frames: Box<[Frame]>,
    memory: Memory,
    /// Waits for frames' latches.
    pub waits: Waits,
}

/// How often, and for how long, tasks have waited for latches.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub count: AtomicU64,
    pub ns: AtomicU64,
}

/// One request for a latch, which may have to wait.
struct Waiting<'a> {
    waits: &'a Waits,
    since: Cell<Option<Nanos>>,
}

impl Waiting<'_> {
    #[inline]
    fn new(waits: &Waits) -> Waiting<'_> {
        Waiting { waits, since: Cell::new(None) }
    }

    /// The latch was not free.
    fn starts(&self) -> bool {
        if self.since.get().is_none() {
            self.since.set(Some(terrace_rt::now()));
        }
        true
    }
}

impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(since) = self.since.get() {
            let span = terrace_rt::now().0.saturating_sub(since.0);
            self.waits.count.fetch_add(1, Ordering::Relaxed);
            self.waits.ns.fetch_add(span, Ordering::Relaxed);
        }
    }
}

impl FrameTable {
    /// `count` empty frames, or `None` if there is not enough memory.
    pub fn new(count: u32) -> Option<FrameTable> {
        let memory = Memory::new(count as usize)?;
        let frames = (0..count).map(|_| Frame::empty()).collect();
        Some(FrameTable { frames, memory, waits: Waits::default() })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter()
    }

    #[inline]
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// Tells the recLSN of a frame, if its page is dirty.
    pub fn rec_of(&self) -> impl Fn(FrameId) -> Option<Lsn> + '_ {
        |id| self.frame(id).rec_lsn()
    }

    /// Has the processor fetch what a page request will look at in frame `id`.
    #[inline]
    pub fn prefetch(&self, id: FrameId) {
        self.memory.prefetch(id.0 as usize);
    }

    /// Has the processor fetch all of frame `id`, as its caller says.
    #[inline]
    pub fn ahead(&self, id: FrameId) -> PageAhead<'_> {
        self.memory.ahead(id.0 as usize)
    }

    /// The exclusive latch of `id`, if that needs no waiting. Never switches tasks.
    pub fn try_exclusive(&self, id: FrameId) -> Option<Exclusive<'_>> {
        let taken = self.frame(id).latch.try_lock_exclusive();
        taken.then(|| Exclusive { table: self, id })
    }

    /// What `read` makes of `page` in frame `id`, if no task changes it meanwhile.
    #[inline]
    pub fn peek_if<T>(
        &self,
        id: FrameId,
        page: PageId,
        read: impl FnOnce(Peek<'_>) -> T,
    ) -> Option<T> {
        let frame = self.frame(id);
        let version = frame.latch.optimistic()?;
        if !frame.holds(page) || !frame.is_peeked() {
            return None;
        }
        let words = NonNull::new(self.memory.page(id.0 as usize).cast())?;
        let seen = read(Peek { words, table: std::marker::PhantomData });
        frame.latch.validate(version).then_some(seen)
    }

    /// The shared latch of `id`, while it holds `page`. `None` as soon as it does not.
    #[inline]
    pub fn shared_if(&self, id: FrameId, page: PageId) -> Option<Shared<'_>> {
        let frame = self.frame(id);
        let waiting = Waiting::new(&self.waits);
        if !frame.latch.lock_shared_while(|| waiting.starts() && frame.holds(page)) {
            return None;
        }
        let guard = Shared { table: self, id };
        frame.holds(page).then_some(guard)
    }

    /// The exclusive latch of `id`, while it holds `page`. `None` as soon as it does not.
    #[inline]
    pub fn exclusive_if(&self, id: FrameId, page: PageId) -> Option<Exclusive<'_>> {
        let frame = self.frame(id);
        let waiting = Waiting::new(&self.waits);
        if !frame.latch.lock_exclusive_while(|| waiting.starts() && frame.holds(page)) {
            return None;
        }
        let guard = Exclusive { table: self, id };
        frame.holds(page).then_some(guard)
    }
}

/// A frame, latched shared.
pub(crate) struct Shared<'p> {
    table: &'p FrameTable,
    id: FrameId,
}

/// A frame, latched exclusively.
pub(crate) struct Exclusive<'p> {
    table: &'p FrameTable,
    id: FrameId,
}

impl<'p> Shared<'p> {
    #[inline]
    pub fn id(&self) -> FrameId {
        self.id
    }

    pub fn frame(&self) -> &'p Frame {
        self.table.frame(self.id)
    }

    /// From now on the frame may be peeked (M5).
    #[inline]
    pub fn let_peek(&self) {
        self.frame().let_peek();
    }

    /// The exclusive latch, if `wanted` and no other task holds the frame; else the latch goes.
    pub fn try_upgrade_if(self, wanted: bool) -> Option<Exclusive<'p>> {
        if !wanted || !self.frame().latch.try_upgrade() {
            return None;
        }
        let guard = ManuallyDrop::new(self);
        Some(Exclusive { table: guard.table, id: guard.id })
    }
}

impl<'p> Exclusive<'p> {
    pub fn id(&self) -> FrameId {
        self.id
    }

    pub fn frame(&self) -> &'p Frame {
        self.table.frame(self.id)
    }

    /// Changes the bytes (M5).
    #[inline]
    pub fn change<T>(&mut self, change: impl FnOnce(&mut PageBuf) -> T) -> T {
        if self.frame().is_peeked() {
            return self.change_words(change);
        }
        // SAFETY: M1: the exclusive latch is held, and `self` is borrowed exclusively. No peek
        // reads the frame: it was not said to be peeked, and only a holder of the latch says so.
        change(unsafe { &mut *self.table.memory.page(self.id.0 as usize) })
    }

    /// Changes a copy, and stores the words that differ, while peeks may read them.
    #[cold]
    fn change_words<T>(&mut self, change: impl FnOnce(&mut PageBuf) -> T) -> T {
        let mut after: PageBuf = **self;
        let changed = change(&mut after);
        let words = self.table.memory.page(self.id.0 as usize).cast::<u64>();
        for (index, bytes) in after.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: word `index` is within the page, aligned, and changed as an atomic only (M5).
            let word = unsafe { AtomicU64::from_ptr(words.add(index)) };
            let new = u64::from_ne_bytes(*bytes);
            if word.load(Ordering::Relaxed) != new {
                word.store(new, Ordering::Relaxed);
            }
        }
        changed
    }

    /// Where a device puts the page's bytes.
    #[inline]
    pub fn target(&mut self) -> PageTarget<'_> {
        // SAFETY: the page lives as long as the table; this latch, exclusive until the target is
        // gone, keeps all others out but peeks, which read word by word as atomics (M4).
        unsafe { PageTarget::from_frame(self.table.memory.page(self.id.0 as usize)) }
    }

    pub fn downgrade(self) -> Shared<'p> {
        let guard = ManuallyDrop::new(self);
        guard.frame().latch.downgrade();
        Shared { table: guard.table, id: guard.id }
    }
}

// SAFETY: the page is that of the frame, which lives as long as the table; this latch, exclusive as
// long as the guard lives, keeps all others out but peeks, which read word by word as atomics (M4).
unsafe impl PagePlace for Exclusive<'_> {
    #[inline]
    fn bytes(&mut self) -> *mut PageBuf {
        self.table.memory.page(self.id.0 as usize)
    }
}

impl Deref for Shared<'_> {
    type Target = PageBuf;

    #[inline]
    fn deref(&self) -> &PageBuf {
        // SAFETY: M1: the shared latch is held, so no task changes the bytes.
        unsafe { &*self.table.memory.page(self.id.0 as usize) }
    }
}

impl Deref for Exclusive<'_> {
    type Target = PageBuf;

    #[inline]
    fn deref(&self) -> &PageBuf {
        // SAFETY: M1: the exclusive latch is held, and `self` is borrowed.
        unsafe { &*self.table.memory.page(self.id.0 as usize) }
    }
}

impl Drop for Shared<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame().latch.unlock_shared();
    }
}

impl Drop for Exclusive<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame().latch.unlock_exclusive();
    }
}

/// A count that each thread keeps on a cache line of its own.
#[derive(Default)]
pub(crate) struct Peeks([PeekLine; PEEK_LINES]);

/// Threads beyond this number share lines; then some of what they count at the same instant is
/// lost.
const PEEK_LINES: usize = 32;

#[derive(Default)]
#[repr(align(128))]
struct PeekLine(AtomicU64);

impl Peeks {
    /// Counts one.
    #[inline]
    pub fn count(&self) {
        let line = &self.0[terrace_rt::lane() % PEEK_LINES].0;
        line.store(line.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// All that was counted.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const FRAME: FrameId = FrameId(0);
    const PAGE: PageId = PageId(7);
    const CHANGES: u64 = if cfg!(miri) { 20 } else { 20_000 };

    fn table() -> FrameTable {
        let table = FrameTable::new(1).expect("memory for a page");
        table.frame(FRAME).set_page(Some(PAGE));
        table
    }

    fn exclusive(table: &FrameTable) -> Exclusive<'_> {
        table.exclusive_if(FRAME, PAGE).expect("the page is there")
    }

    fn first_and_last(page: Peek<'_>) -> (u64, u64) {
        (page.word(0), page.word(WORDS - 1))
    }

    #[test]
    fn a_frame_is_peeked_only_once_it_may_be() {
        let table = table();
        exclusive(&table).change(|bytes| bytes[..8].copy_from_slice(&3_u64.to_le_bytes()));
        assert_eq!(table.peek_if(FRAME, PAGE, first_and_last), None);
        table.shared_if(FRAME, PAGE).expect("free").let_peek();
        assert_eq!(table.peek_if(FRAME, PAGE, first_and_last), Some((3, 0)));
        let changed = exclusive(&table).change(|bytes| {
            bytes[PAGE_SIZE - 8..].copy_from_slice(&4_u64.to_le_bytes());
            bytes[0]
        });
        assert_eq!(changed, 3);
        assert_eq!(table.peek_if(FRAME, PAGE, first_and_last), Some((3, 4)));
        assert_eq!(table.peek_if(FRAME, PageId(8), first_and_last), None, "another page");
    }

    /// Once, changes were plain writes beside the atomic reads of a peek: a race that the language
    /// leaves undefined, which Miri and the thread sanitizer see in this test.
    #[test]
    fn peeks_beside_changes_see_whole_ones() {
        let table = table();
        let (is_over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if let Some((first, last)) = table.peek_if(FRAME, PAGE, first_and_last) {
                        assert_eq!(first, last, "half a change");
                        seen.fetch_max(first, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
            for number in 1..=CHANGES {
                exclusive(&table).change(|bytes| {
                    bytes[..8].copy_from_slice(&number.to_le_bytes());
                    bytes[PAGE_SIZE - 8..].copy_from_slice(&number.to_le_bytes());
                });
                if number == CHANGES / 4 {
                    table.shared_if(FRAME, PAGE).expect("free").let_peek();
                }
            }
            while seen.load(Ordering::Relaxed) < CHANGES {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
