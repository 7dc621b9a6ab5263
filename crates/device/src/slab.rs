//! Page images shared by content: equal pages of all devices, clones and worlds are stored once.
//!
//! - S1: of all live images of a slab, no two have equal bytes. Exceptions cost memory, nothing
//!   else: two threads that intern one page at one instant, and a page whose hash collides.
//! - S2: an image leaves the slab with its last owner; a page of zeroes is no image at all.
//! - Cost: a hash of some of the page to intern it, and about 40 bytes beside the page. A reference
//!   is 8 bytes.
//! - Not for: data that is never equal, such as a log (`Store` keeps those images unshared).
//!
//! Hashes come from rapidhash, seeded with a constant, of the first bytes of a page and of samples
//! of the rest: pages that differ mostly differ in their header, and a hash of all was most of what
//! a modelled write cost. A match is believed only after comparing the bytes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};

use terrace_rt::LeafMutex;

/// Bytes in an image; the page size of the engine, which this crate does not otherwise know.
pub const IMAGE_SIZE: usize = 8192;

/// The bytes of an image.
pub type ImageBytes = [u8; IMAGE_SIZE];

/// Parts of the table, each with its own mutex, so that two worlds seldom meet.
const SHARDS: usize = 64;
const _: () = assert!(SHARDS.is_power_of_two());

/// The content of a page that is not all zeroes.
pub struct Image {
    bytes: ImageBytes,
    /// Where to take it off the books; none if it was never shared.
    home: Option<(Weak<Slab>, u64)>,
}

impl Image {
    /// An image that is on no books.
    pub(crate) fn unshared(bytes: ImageBytes) -> Arc<Image> {
        Arc::new(Image { bytes, home: None })
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &ImageBytes {
        &self.bytes
    }

    /// The content, to change it, unless the image is on a slab's books.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut ImageBytes> {
        self.home.is_none().then_some(&mut self.bytes)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Some((slab, hash)) = &self.home
            && let Some(slab) = slab.upgrade()
        {
            slab.forget(*hash, self);
        }
    }
}

/// Keys are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Shard = HashMap<u64, Weak<Image>, BuildHasherDefault<Identity>>;

/// The books of all shared images. Clone the `Arc` into every store that may share.
pub struct Slab {
    shards: Vec<LeafMutex<Shard>>,
}

impl Slab {
    /// Empty books.
    #[must_use]
    pub fn new() -> Arc<Slab> {
        let shards = (0..SHARDS).map(|_| LeafMutex::new(Shard::default())).collect();
        Arc::new(Slab { shards })
    }

    /// The image of `bytes`: the one that exists, or a new one. `None` if all are zero.
    #[must_use]
    pub fn intern(self: &Arc<Slab>, bytes: &ImageBytes) -> Option<Arc<Image>> {
        if is_zero(bytes) {
            return None;
        }
        let hash = hash(bytes);
        if let Some(image) = self.find(hash) {
            if image.bytes == *bytes {
                return Some(image);
            }
            return Some(Image::unshared(*bytes));
        }
        let home = Some((Arc::downgrade(self), hash));
        let image = Arc::new(Image { bytes: *bytes, home });
        // Replaces at most an image on its way out, or one that another thread made this instant.
        self.shard(hash).lock().insert(hash, Arc::downgrade(&image));
        Some(image)
    }

    /// Images on the books, for statistics.
    #[must_use]
    pub fn images(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// The image with `hash`, if one lives. The mutex is free again when the caller has it, since
    /// dropping an image takes the mutex.
    fn find(&self, hash: u64) -> Option<Arc<Image>> {
        self.shard(hash).lock().get(&hash).and_then(Weak::upgrade)
    }

    fn forget(&self, hash: u64, image: &Image) {
        if let Entry::Occupied(entry) = self.shard(hash).lock().entry(hash)
            && std::ptr::eq(entry.get().as_ptr(), image)
        {
            entry.remove();
        }
    }

    fn shard(&self, hash: u64) -> &LeafMutex<Shard> {
        // The map uses the low bits and the top seven.
        &self.shards[(hash >> 40) as usize & (SHARDS - 1)]
    }
}

/// A hash of the first `HEAD` bytes and of eight out of each `STRIDE`.
fn hash(bytes: &ImageBytes) -> u64 {
    const HEAD: usize = 64;
    const STRIDE: usize = 128;
    const SAMPLE: usize = 8;
    let mut seen = [0; HEAD + SAMPLE * (IMAGE_SIZE / STRIDE)];
    let (head, samples) = seen.split_at_mut(HEAD);
    head.copy_from_slice(&bytes[..HEAD]);
    let strides = bytes.as_chunks::<STRIDE>().0;
    for (sample, stride) in samples.as_chunks_mut::<SAMPLE>().0.iter_mut().zip(strides) {
        sample.copy_from_slice(&stride[STRIDE - SAMPLE..]);
    }
    rapidhash::v3::rapidhash_v3(&seen)
}

/// Whether all bytes are zero.
fn is_zero(bytes: &ImageBytes) -> bool {
    bytes.as_chunks::<64>().0.iter().all(|chunk| *chunk == [0; 64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pages_are_one_image_until_the_last_owner_leaves() {
        let slab = Slab::new();
        let page = [7; IMAGE_SIZE];
        let one = slab.intern(&page).expect("not zero");
        let two = slab.intern(&page).expect("not zero");
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(slab.images(), 1);
        drop(one);
        assert_eq!(slab.images(), 1);
        drop(two);
        assert_eq!(slab.images(), 0);
    }

    #[test]
    fn zeroes_are_no_image() {
        assert!(Slab::new().intern(&[0; IMAGE_SIZE]).is_none());
    }

    #[test]
    fn an_image_may_outlive_its_slab() {
        let slab = Slab::new();
        let image = slab.intern(&[1; IMAGE_SIZE]).expect("not zero");
        drop(slab);
        assert_eq!(image.bytes()[5], 1);
    }
}
