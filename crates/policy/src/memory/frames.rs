//! The frames of memory, as a policy sees them.

use terrace_page::FrameId;

use crate::Touch;

/// What else there is of a page in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// It has a place on flash, and would be read from there again.
    pub is_on_flash: bool,
    /// Home has an older version only.
    pub is_ahead_of_home: bool,
}

/// The frames, as a policy sees them. The pool owns words, pins and latches.
pub trait Frames {
    /// How many frames there are; they are numbered from zero.
    fn count(&self) -> u32;
    /// The touch word of `frame`.
    fn touch(&self, frame: FrameId) -> Touch;
    /// Stores the touch word of `frame` (CLOCK takes marks away).
    fn set_touch(&self, frame: FrameId, touch: Touch);
    /// Whether the page in `frame` may leave now: there is one, unpinned, and no I/O on it.
    fn evictable(&self, frame: FrameId) -> bool;
    /// What else there is of the page in `frame`, if there is a page.
    fn standing(&self, frame: FrameId) -> Option<Standing>;
}
