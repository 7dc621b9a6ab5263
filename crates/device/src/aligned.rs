//! Memory that direct I/O can use, and that requests own until their device has answered.

use std::alloc::{self, Layout};
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use crate::IoBuf;

/// Memory that begins at a multiple of its alignment, of which nothing is known at first.
pub(crate) struct Aligned {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, as a `Box` does.
unsafe impl Send for Aligned {}

impl Aligned {
    pub(crate) fn new(len: usize, align: usize) -> Aligned {
        let layout = Layout::from_size_align(len, align).expect("a sound layout");
        assert!(len > 0);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc::alloc(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Aligned { start, layout }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    /// Whether it is what `new` would make.
    pub(crate) fn is(&self, len: usize, align: usize) -> bool {
        self.layout.size() == len && self.layout.align() == align
    }

    /// Copies what is in `bufs`, whose lengths sum up to that of this memory.
    pub(crate) fn gather(&self, bufs: &[IoBuf]) {
        let mut at = self.start.as_ptr();
        for buf in bufs {
            // SAFETY: the lengths sum up to that of the copy, and the caller's memory is valid
            // (`Device::submit`) and cannot overlap memory allocated here.
            unsafe {
                at.copy_from_nonoverlapping(buf.ptr(), buf.len());
                at = at.add(buf.len());
            }
        }
    }

    /// The opposite.
    pub(crate) fn scatter(&self, bufs: &[IoBuf]) {
        let mut at = self.start.as_ptr();
        for buf in bufs {
            // SAFETY: as in `gather`; the caller's memory stays lent until the request is finished.
            unsafe {
                buf.ptr().copy_from_nonoverlapping(at, buf.len());
                at = at.add(buf.len());
            }
        }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// The same, initialised: so it can be lent as bytes.
pub(crate) struct Zeroed(Aligned);

impl Zeroed {
    pub(crate) fn new(len: usize, align: usize) -> Zeroed {
        let memory = Aligned::new(len, align);
        // SAFETY: allocated with this length just now.
        unsafe { memory.start().write_bytes(0, len) };
        Zeroed(memory)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this length, initialised, and lent for as long as `self` is.
        unsafe { slice::from_raw_parts(self.0.start(), self.0.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, exclusively.
        unsafe { slice::from_raw_parts_mut(self.0.start(), self.0.len()) }
    }
}

impl Deref for Zeroed {
    type Target = Aligned;

    fn deref(&self) -> &Aligned {
        &self.0
    }
}
