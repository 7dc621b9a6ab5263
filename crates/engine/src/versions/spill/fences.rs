//! The first key of each block of a segment.

/// The fences, in order.
#[derive(Debug, Default)]
pub(super) struct Fences {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Fences {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn key(&self, block: usize) -> &[u8] {
        let from = block.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[from..self.ends[block] as usize]
    }

    /// How many blocks begin with a key that is `before` something.
    pub(super) fn count(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if before(self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The block that `key` is in, if it is in any, at the earliest.
    pub(super) fn first_with(&self, key: &[u8]) -> usize {
        self.count(|fence| fence < key).saturating_sub(1)
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}
