//! Memory for pages: aligned for direct I/O, zeroed by the system as it is touched, and in huge
//! pages where there is much of it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use terrace_page::{PAGE_SIZE, PageBuf};

/// Alignment that direct I/O asks for, in bytes.
const MEMORY_ALIGN: usize = 4096;
/// Large memory is aligned for huge pages of this size: a miss of the TLB costs as much as a miss
/// of the cache, and random page requests would have both.
const HUGE_ALIGN: usize = 2 << 20;
/// Bytes of a line of the cache.
const LINE_BYTES: usize = 64;
/// Lines that a page request asks for: header, fences and the first slots.
const PREFETCHED_LINES: usize = 10;
/// Lines that a step of `PageAhead` asks for.
const LINES_A_STEP: usize = 3;

/// Page-sized, aligned memory, zeroed at first.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    /// The first aligned address in it.
    start: NonNull<PageBuf>,
    pages: usize,
}

// SAFETY: `Memory` owns its allocation as a `Box` would; which task may touch which page is decided
// by the code that takes its address (latches, for frames), or by `&mut` (`Staging`).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Room for `pages` pages, or `None` if there is not enough memory.
    ///
    /// # Panics
    ///
    /// If `pages` is zero.
    #[must_use]
    pub fn new(pages: usize) -> Option<Memory> {
        let bytes = pages.checked_mul(PAGE_SIZE)?;
        assert!(bytes > 0);
        let align = if bytes >= 2 * HUGE_ALIGN { HUGE_ALIGN } else { MEMORY_ALIGN };
        // More than is needed, and aligned by hand: an allocator asked for an alignment would write
        // the zeroes itself, where the system gives zeroed memory as it is touched.
        let layout = Layout::from_size_align(bytes.checked_add(align)?, align_of::<u64>()).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skipped = base.as_ptr().align_offset(align);
        assert!(skipped <= align);
        // SAFETY: `skipped + bytes` bytes are within the allocation.
        let start: NonNull<PageBuf> = unsafe { base.add(skipped) }.cast();
        if align == HUGE_ALIGN {
            advise_huge(start.as_ptr().cast(), bytes);
        }
        Some(Memory { base, layout, start, pages })
    }

    /// The address of page `at`. The caller decides which task may read or write there.
    ///
    /// # Panics
    ///
    /// If `at` is not less than the number of pages.
    #[inline]
    #[must_use]
    pub fn page(&self, at: usize) -> *mut PageBuf {
        assert!(at < self.pages);
        // SAFETY: `at` is within the allocation.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Has the processor fetch the first bytes of a page, where its header and its slots are: all
    /// at once, and while it waits for the frame's latch, not one after the other.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        for line in 0..PREFETCHED_LINES {
            // SAFETY: the address is within the page.
            prefetch_line(unsafe { self.page(at).cast::<u8>().add(line * LINE_BYTES) });
        }
    }

    /// Has the processor fetch a whole page, as its caller says.
    #[inline]
    #[must_use]
    pub fn ahead(&self, at: usize) -> PageAhead<'_> {
        PageAhead { page: self.page(at).cast(), at: 0, memory: std::marker::PhantomData }
    }
}

/// A page of `Memory` that the processor fetches, a part at a time, while its caller does other
/// work.
#[derive(Debug)]
pub struct PageAhead<'m> {
    page: *const u8,
    at: usize,
    memory: std::marker::PhantomData<&'m Memory>,
}

impl PageAhead<'_> {
    /// Has the processor fetch the next bytes of the page, a few lines.
    #[inline]
    pub fn step(&mut self) {
        for _line in 0..LINES_A_STEP {
            if self.at >= PAGE_SIZE {
                return;
            }
            // SAFETY: the address is within the page.
            prefetch_line(unsafe { self.page.add(self.at) });
            self.at += LINE_BYTES;
        }
    }
}

/// Has the processor fetch `bytes` of a page from offset `at` on, as far as they are in it: for a
/// caller that has something else to do before it reads them.
#[inline]
pub fn prefetch(page: &PageBuf, at: usize, bytes: usize) {
    let wanted = page.get(at..(at + bytes).min(PAGE_SIZE)).unwrap_or_default();
    wanted.iter().step_by(LINE_BYTES).for_each(|byte| prefetch_line(byte));
}

/// Has the processor fetch the line of memory at `address`, and does not wait for it.
#[inline]
pub fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for huge pages; the kernel may not have them, which costs speed only.
#[cfg(target_os = "linux")]
fn advise_huge(start: *mut u8, bytes: usize) {
    // SAFETY: the range is an allocation of ours, and the advice changes none of its bytes.
    let _refused = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_start: *mut u8, _bytes: usize) {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nothing else frees it.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Pages of memory for one task: what is read and must not, or cannot, go into a frame.
pub struct Staging {
    memory: Memory,
    pages: usize,
}

impl Staging {
    /// Room for `pages` pages, at least one.
    ///
    /// # Panics
    ///
    /// If there is no memory, as any allocation does.
    #[must_use]
    pub fn new(pages: usize) -> Staging {
        Staging { memory: Memory::new(pages.max(1)).expect("memory for a few pages"), pages }
    }

    /// The pages.
    #[must_use]
    pub fn pages(&self) -> &[PageBuf] {
        // SAFETY: `pages` initialised pages, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts(self.memory.page(0), self.pages) }
    }

    /// The pages, to be changed.
    pub fn pages_mut(&mut self) -> &mut [PageBuf] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.page(0), self.pages) }
    }
}
