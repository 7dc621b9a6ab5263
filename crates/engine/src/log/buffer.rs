//! Memory for direct I/O: aligned to blocks, growing as needed.

use std::ops::{Deref, DerefMut};

use super::BLOCK;

/// Bytes whose first one lies on a block boundary of memory, as direct I/O wants it.
#[derive(Debug)]
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeroes.
    pub(crate) fn zeroed(len: usize) -> Aligned {
        let memory = vec![0; len + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        assert!(start <= BLOCK, "memory cannot be aligned");
        Aligned { memory, start, len }
    }

    /// Makes it `len` bytes long; what stood there stays, new bytes are zero.
    pub(crate) fn grow(&mut self, len: usize) {
        if len > self.len {
            let mut larger = Aligned::zeroed(len.next_power_of_two());
            larger[..self.len].copy_from_slice(self);
            *self = larger;
        }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
