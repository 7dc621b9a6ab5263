//! Blocks of runs that were read last: each has one place.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt::LeafMutex;

use super::block::{BLOCK_MAX, Block};

/// A block: its run and its number there.
type Name = (u64, usize);

#[derive(Default)]
struct Place(LeafMutex<Option<(Name, Arc<Block>)>>);

/// The cache. With too little memory it has no places.
pub(super) struct Cache {
    places: Vec<Place>,
    bytes: AtomicU64,
}

impl Cache {
    /// One of at most `bytes`.
    pub(super) fn new(bytes: u64) -> Cache {
        const COUNT_MAX: u64 = 4096;
        let count = (bytes / BLOCK_MAX as u64).min(COUNT_MAX);
        Cache { places: (0..count).map(|_| Place::default()).collect(), bytes: AtomicU64::new(0) }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn place(&self, (run, block): Name) -> Option<&Place> {
        let hash = (run << 32 ^ block as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (!self.places.is_empty()).then(|| &self.places[hash as usize % self.places.len()])
    }

    /// The block of this name, read if it is not here.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub(super) fn block(
        &self,
        name: Name,
        read: impl FnOnce() -> io::Result<Block>,
    ) -> io::Result<Arc<Block>> {
        let Some(place) = self.place(name) else { return read().map(Arc::new) };
        if let Some((there, block)) = &*place.0.lock()
            && *there == name
        {
            return Ok(Arc::clone(block));
        }
        let block = Arc::new(read()?);
        self.bytes.fetch_add(block.memory() as u64, Ordering::Relaxed);
        let before = place.0.lock().replace((name, Arc::clone(&block)));
        self.forget(before);
        Ok(block)
    }

    fn forget(&self, before: Option<(Name, Arc<Block>)>) {
        let bytes = before.map_or(0, |(_, block)| block.memory() as u64);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        for place in &self.places {
            let before = place.0.lock().take();
            self.forget(before);
        }
    }
}
