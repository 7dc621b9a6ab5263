//! The bytes of a modelled device: a table of page images, cloned by copying on write.
//!
//! ```text
//! store --> [ chunk | chunk | none | chunk ]      none: 4 MiB of zeroes
//!                |        \
//!                |         +--> shared with a clone until one of them writes
//!                v
//!           [ image | none | image | ... ]        512 pages; none: a page of zeroes
//! ```
//!
//! - T1: a store reads as zeroes where nothing was written.
//! - T2: writing to a store never changes what another store reads, its clones included.
//! - Sector ranges may be written and read; whole pages are the fast way.
//!
//! Four ways to keep bytes: shared by content in a slab (databases and flash), plain (a log, whose
//! pages are never equal), timed only (a log that is written in a benchmark, never restarted
//! from): it keeps the first pages, where a header stands, and the most recently written ones, and
//! answers others with an error. And computed (an index that is too large to be stored): a page
//! that was not written is made when it is read, and one that was is kept as its difference; there
//! "zeroes" in T1 and in the picture is what is computed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::SECTOR_SIZE;
use crate::difference::Difference;
use crate::slab::{IMAGE_SIZE, Image, ImageBytes, Slab};

/// Pages in a chunk.
const CHUNK_PAGES: usize = 512;
/// Pages at the front of a store that `Keep::Recent` never drops.
const HEAD_PAGES: u64 = 2;
/// Sectors in a page.
pub(crate) const PAGE_SECTORS: usize = IMAGE_SIZE / SECTOR_SIZE;
const _: () = assert!(PAGE_SECTORS == 16, "a page's sectors are the bits of a u16");

/// How a store keeps its bytes.
#[derive(Clone)]
pub enum Keep {
    /// Page images shared by content with all stores on the same slab.
    Shared(Arc<Slab>),
    /// Page images of its own.
    Plain,
    /// The `pages` written last, and the first two, where formats keep their headers; see the
    /// module.
    Recent {
        /// Pages to keep.
        pages: usize,
    },
    /// What each page differs in from the one that is computed.
    Difference(Arc<dyn Computed>),
}

/// What a store holds where nothing was written.
pub trait Computed: Send + Sync {
    /// Fills `bytes` with those of page `page`, which is always the same: of `IMAGE_SIZE` bytes from
    /// `page * IMAGE_SIZE` on. `bytes` are zeroes before.
    fn page(&self, page: u64, bytes: &mut ImageBytes);
}

/// The page was written, and a store that keeps recent pages only has dropped it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped;

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a timed-only store has dropped this page")
    }
}

impl std::error::Error for Dropped {}

#[derive(Clone)]
enum Kept {
    /// Or, in a store whose pages are computed, that page.
    Zeroes,
    Image(Arc<Image>),
    Difference(Arc<Difference>),
    Dropped,
}

impl Kept {
    fn of(image: Option<Arc<Image>>) -> Kept {
        image.map_or(Kept::Zeroes, Kept::Image)
    }
}

type Chunk = [Kept; CHUNK_PAGES];

/// Bytes on their way to a store, captured when a write is submitted.
#[derive(Clone)]
pub(crate) enum Piece {
    /// A whole page; `None` is zeroes.
    Page { page: u64, image: Option<Arc<Image>> },
    /// Some sectors, within one page.
    Sectors { offset: u64, bytes: Box<[u8]> },
}

impl Piece {
    /// First byte on the device.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Piece::Page { page, .. } => page * IMAGE_SIZE as u64,
            Piece::Sectors { offset, .. } => *offset,
        }
    }

    /// Sectors of the piece.
    pub(crate) fn sectors(&self) -> usize {
        match self {
            Piece::Page { .. } => PAGE_SECTORS,
            Piece::Sectors { bytes, .. } => bytes.len() / SECTOR_SIZE,
        }
    }

    /// The page that the piece lies in.
    pub(crate) fn page(&self) -> u64 {
        self.offset() / IMAGE_SIZE as u64
    }

    /// The same bytes `distance` bytes further on, in whole pages.
    pub(crate) fn moved_to(&self, page: u64) -> Piece {
        match self {
            Piece::Page { image, .. } => Piece::Page { page, image: image.clone() },
            Piece::Sectors { offset, bytes } => {
                let within = offset % IMAGE_SIZE as u64;
                Piece::Sectors { offset: page * IMAGE_SIZE as u64 + within, bytes: bytes.clone() }
            }
        }
    }
}

/// The bytes of a device. Cloning is cheap, and clones are independent (T2).
#[derive(Clone)]
pub struct Store {
    len: u64,
    keep: Keep,
    chunks: Vec<Option<Arc<Chunk>>>,
    /// Pages kept by `Keep::Recent`, in order of first write.
    recent: VecDeque<u64>,
}

impl Store {
    /// A store of `len` zero bytes.
    ///
    /// # Panics
    ///
    /// If `len` is not a positive multiple of `SECTOR_SIZE`.
    #[must_use]
    pub fn new(len: u64, keep: Keep) -> Store {
        assert!(len > 0, "an empty store");
        assert!(len.is_multiple_of(SECTOR_SIZE as u64), "{len} bytes are not whole sectors");
        let chunk_bytes = (CHUNK_PAGES * IMAGE_SIZE) as u64;
        let chunks = vec![None; len.div_ceil(chunk_bytes) as usize];
        Store { len, keep, chunks, recent: VecDeque::new() }
    }

    /// Capacity in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no store is empty")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Lengthens the device by zeroes, to `len` bytes.
    ///
    /// # Panics
    ///
    /// If that would shorten it, or is not whole sectors.
    pub fn grow(&mut self, len: u64) {
        assert!(len >= self.len, "a store does not shrink");
        assert!(len.is_multiple_of(SECTOR_SIZE as u64), "{len} bytes are not whole sectors");
        self.len = len;
        let chunk_bytes = (CHUNK_PAGES * IMAGE_SIZE) as u64;
        self.chunks.resize(len.div_ceil(chunk_bytes) as usize, None);
    }

    /// Reads `bytes.len()` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `Dropped`, from a store that keeps recent pages only.
    ///
    /// # Panics
    ///
    /// If the range is not on the device.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Dropped> {
        assert!(offset + bytes.len() as u64 <= self.len, "a read past the end");
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = (at % IMAGE_SIZE as u64) as usize;
            let run = rest.len().min(IMAGE_SIZE - within);
            let (head, tail) = rest.split_at_mut(run);
            match self.kept(at / IMAGE_SIZE as u64) {
                _ if let Some(made) = self.made(at / IMAGE_SIZE as u64) => {
                    head.copy_from_slice(&made[within..within + run]);
                }
                Kept::Zeroes => head.fill(0),
                Kept::Image(image) => head.copy_from_slice(&image.bytes()[within..within + run]),
                Kept::Difference(_) => unreachable!("of a store whose pages are computed"),
                Kept::Dropped => return Err(Dropped),
            }
            at += run as u64;
            rest = tail;
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Panics
    ///
    /// If the range is not on the device.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.len, "a write past the end");
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = (at % IMAGE_SIZE as u64) as usize;
            let (head, tail) = rest.split_at(rest.len().min(IMAGE_SIZE - within));
            let page = at / IMAGE_SIZE as u64;
            match head.try_into() {
                Ok(whole) => {
                    let image = self.image(whole);
                    self.set(page, image);
                }
                Err(_) => self.write_within(page, within, head),
            }
            at += head.len() as u64;
            rest = tail;
        }
    }

    /// Makes a piece, to be applied later, of a whole page.
    pub(crate) fn capture_page(&self, page: u64, bytes: &ImageBytes) -> Piece {
        Piece::Page { page, image: self.image(bytes) }
    }

    /// Makes pieces, to be applied later, of `len` bytes for `offset`; `fill` is called for one run
    /// of bytes after the other.
    pub(crate) fn capture(
        &self,
        offset: u64,
        len: u64,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(1);
        let mut at = offset;
        while at < offset + len {
            let within = at % IMAGE_SIZE as u64;
            let run = (IMAGE_SIZE as u64 - within).min(offset + len - at) as usize;
            pieces.push(if run == IMAGE_SIZE {
                let mut bytes = [0; IMAGE_SIZE];
                fill(&mut bytes);
                self.capture_page(at / IMAGE_SIZE as u64, &bytes)
            } else {
                let mut bytes = vec![0; run].into_boxed_slice();
                fill(&mut bytes);
                Piece::Sectors { offset: at, bytes }
            });
            at += run as u64;
        }
        pieces
    }

    /// Writes a captured piece.
    pub(crate) fn apply(&mut self, piece: &Piece) {
        match piece {
            Piece::Page { page, image } => self.set(*page, image.clone()),
            Piece::Sectors { offset, bytes } => self.write(*offset, bytes),
        }
    }

    /// Writes those sectors of a captured piece whose bit is set in `mask`.
    pub(crate) fn apply_torn(&mut self, piece: &Piece, mask: u16) {
        for sector in (0..piece.sectors()).filter(|sector| mask >> sector & 1 == 1) {
            let bytes = match piece {
                Piece::Page { image, .. } => sector_of(image.as_deref(), sector),
                Piece::Sectors { bytes, .. } => {
                    let (sectors, _) = bytes.as_chunks::<SECTOR_SIZE>();
                    sectors[sector]
                }
            };
            self.write(piece.offset() + (sector * SECTOR_SIZE) as u64, &bytes);
        }
    }

    /// What a page is now, to be put back by `restore`.
    pub(crate) fn page_image(&self, page: u64) -> Option<Arc<Image>> {
        match self.kept(page) {
            Kept::Image(image) => Some(Arc::clone(image)),
            Kept::Difference(_) => self.made(page).map(|made| Image::unshared(*made)),
            Kept::Zeroes | Kept::Dropped => None,
        }
    }

    /// Makes a page what `page_image` said it was.
    pub(crate) fn restore(&mut self, page: u64, image: Option<Arc<Image>>) {
        self.set(page, image);
    }

    fn kept(&self, page: u64) -> &Kept {
        let (chunk, slot) = (page as usize / CHUNK_PAGES, page as usize % CHUNK_PAGES);
        self.chunks[chunk].as_ref().map_or(&Kept::Zeroes, |pages| &pages[slot])
    }

    fn image(&self, bytes: &ImageBytes) -> Option<Arc<Image>> {
        match &self.keep {
            Keep::Shared(slab) => slab.intern(bytes),
            Keep::Plain | Keep::Recent { .. } | Keep::Difference(_) => {
                Some(Image::unshared(*bytes))
            }
        }
    }

    fn set(&mut self, page: u64, image: Option<Arc<Image>>) {
        self.note_recent(page);
        let kept = match (&self.keep, image) {
            (Keep::Difference(computed), Some(image)) => {
                let difference = Difference::of(&made(&**computed, page), image.bytes());
                difference.map_or(Kept::Zeroes, |it| Kept::Difference(Arc::new(it)))
            }
            (_, image) => Kept::of(image),
        };
        *self.slot(page) = kept;
    }

    /// A page of a store whose pages are computed.
    fn made(&self, page: u64) -> Option<Box<ImageBytes>> {
        let Keep::Difference(computed) = &self.keep else { return None };
        let old = made(&**computed, page);
        let Kept::Difference(difference) = self.kept(page) else { return Some(old) };
        let mut whole = Box::new([0; IMAGE_SIZE]);
        difference.page(&old, &mut whole);
        Some(whole)
    }

    /// A store in which nothing was written, for pages of this one.
    pub(crate) fn blank(&self) -> Store {
        let keep = match &self.keep {
            Keep::Difference(computed) => Keep::Difference(Arc::clone(computed)),
            Keep::Shared(_) | Keep::Plain | Keep::Recent { .. } => Keep::Plain,
        };
        Store::new(self.len, keep)
    }

    /// Memory that the differences of a store with computed pages take, in bytes.
    #[must_use]
    pub fn difference_bytes(&self) -> u64 {
        let pages = self.chunks.iter().flatten().flat_map(|chunk| chunk.iter());
        let bytes = pages.map(|kept| match kept {
            Kept::Difference(difference) => difference.bytes() as u64,
            _ => 0,
        });
        bytes.sum()
    }

    fn slot(&mut self, page: u64) -> &mut Kept {
        let (chunk, slot) = (page as usize / CHUNK_PAGES, page as usize % CHUNK_PAGES);
        let empty = || Arc::new([const { Kept::Zeroes }; CHUNK_PAGES]);
        &mut Arc::make_mut(self.chunks[chunk].get_or_insert_with(empty))[slot]
    }

    fn write_within(&mut self, page: u64, within: usize, bytes: &[u8]) {
        if let Kept::Image(image) = self.slot(page)
            && let Some(own) = Arc::get_mut(image).and_then(Image::bytes_mut)
        {
            own[within..within + bytes.len()].copy_from_slice(bytes);
            return;
        }
        let mut whole = match self.kept(page) {
            _ if let Some(made) = self.made(page) => *made,
            Kept::Image(image) => *image.bytes(),
            Kept::Zeroes | Kept::Difference(_) | Kept::Dropped => [0; IMAGE_SIZE],
        };
        whole[within..within + bytes.len()].copy_from_slice(bytes);
        let image = self.image(&whole);
        self.set(page, image);
    }

    /// Makes room in a store that keeps recent pages only.
    fn note_recent(&mut self, page: u64) {
        let Keep::Recent { pages } = self.keep else {
            return;
        };
        if page < HEAD_PAGES {
            return;
        }
        if matches!(self.kept(page), Kept::Image(_)) {
            return;
        }
        self.recent.push_back(page);
        if self.recent.len() > pages {
            let oldest = self.recent.pop_front().expect("longer than the bound");
            *self.slot(oldest) = Kept::Dropped;
        }
    }
}

fn made(computed: &dyn Computed, page: u64) -> Box<ImageBytes> {
    let mut bytes = Box::new([0; IMAGE_SIZE]);
    computed.page(page, &mut bytes);
    bytes
}

fn sector_of(image: Option<&Image>, sector: usize) -> [u8; SECTOR_SIZE] {
    image.map_or([0; SECTOR_SIZE], |image| image.bytes().as_chunks::<SECTOR_SIZE>().0[sector])
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    const LEN: u64 = 40 * IMAGE_SIZE as u64 + 1024;

    /// Fills a range with few patterns, so that pages are often equal.
    fn scribble(prng: &mut Prng, store: &mut Store, model: &mut [u8]) {
        let sectors = LEN / SECTOR_SIZE as u64;
        let (start, pattern) = (prng.below(sectors), prng.below(3) as u8);
        let (start, count) = if prng.chance(2) {
            (start / 16 * 16, 16.min(sectors - start / 16 * 16))
        } else {
            (start, 1 + prng.below((sectors - start).min(40)))
        };
        let at = start as usize * SECTOR_SIZE;
        let bytes = vec![pattern; count as usize * SECTOR_SIZE];
        store.write(at as u64, &bytes);
        model[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    fn agrees(store: &Store, model: &[u8], seed: u64) {
        let mut all = vec![0xEE; LEN as usize];
        store.read(0, &mut all).expect("nothing is dropped");
        assert!(all == model, "seed {seed}");
    }

    #[test]
    fn stores_and_their_clones_agree_with_plain_memory() {
        let slab = Slab::new();
        for seed in 0..60 {
            let mut prng = Prng::from_seed(seed);
            let keep = if prng.chance(2) { Keep::Plain } else { Keep::Shared(Arc::clone(&slab)) };
            let mut pairs = vec![(Store::new(LEN, keep), vec![0; LEN as usize])];
            for _ in 0..120 {
                let at = prng.below(pairs.len() as u64) as usize;
                if prng.chance(40) && pairs.len() < 4 {
                    let copy = pairs[at].clone();
                    pairs.push(copy);
                }
                let (store, model) = &mut pairs[at];
                scribble(&mut prng, store, model);
            }
            pairs.iter().for_each(|(store, model)| agrees(store, model, seed));
        }
        assert_eq!(slab.images(), 0, "all images went with their stores");
    }

    /// Pages of their numbers, in runs as an index has them.
    struct Numbered;

    impl Computed for Numbered {
        fn page(&self, page: u64, bytes: &mut ImageBytes) {
            let (words, _) = bytes.as_chunks_mut::<8>();
            for (word, at) in words.iter_mut().zip(0u64..) {
                *word = (page * 1_000 + at).to_le_bytes();
            }
        }
    }

    #[test]
    fn computed_stores_and_their_clones_agree_with_plain_memory() {
        for seed in 0..60 {
            let mut prng = Prng::from_seed(seed);
            let store = Store::new(LEN, Keep::Difference(Arc::new(Numbered)));
            let mut model = vec![0; LEN as usize];
            store.read(0, &mut model).expect("nothing is dropped");
            let first = model.clone();
            let mut pairs = vec![(store, model)];
            for _ in 0..120 {
                let at = prng.below(pairs.len() as u64) as usize;
                if prng.chance(40) && pairs.len() < 4 {
                    let copy = pairs[at].clone();
                    pairs.push(copy);
                }
                let (store, model) = &mut pairs[at];
                scribble(&mut prng, store, model);
                if prng.chance(4) {
                    let page = prng.below(40);
                    let image = store.page_image(page);
                    store.write(page * IMAGE_SIZE as u64, &[9; IMAGE_SIZE]);
                    store.restore(page, image);
                }
            }
            pairs.iter().for_each(|(store, model)| agrees(store, model, seed));
            let (store, _) = &mut pairs[0];
            assert!(store.difference_bytes() > 0);
            store.write(0, &first);
            agrees(store, &first, seed);
            assert_eq!(store.blank().difference_bytes(), 0);
            agrees(&store.blank(), &first, seed);
            // All but the last page, which is not whole, is as computed again.
            assert!(store.difference_bytes() < IMAGE_SIZE as u64);
        }
    }

    #[test]
    fn equal_pages_of_two_stores_are_one_image() {
        let slab = Slab::new();
        let mut home = Store::new(LEN, Keep::Shared(Arc::clone(&slab)));
        let mut flash = Store::new(LEN, Keep::Shared(Arc::clone(&slab)));
        home.write(3 * IMAGE_SIZE as u64, &[5; IMAGE_SIZE]);
        flash.write(0, &[5; IMAGE_SIZE]);
        flash.write(8 * IMAGE_SIZE as u64, &[0; IMAGE_SIZE]);
        assert_eq!(slab.images(), 1);
    }

    #[test]
    fn a_timed_only_store_keeps_what_was_written_last() {
        let mut store = Store::new(LEN, Keep::Recent { pages: 2 });
        for page in 0..6u64 {
            store.write(page * IMAGE_SIZE as u64, &[page as u8 + 1; IMAGE_SIZE]);
        }
        let mut bytes = [0; SECTOR_SIZE];
        for page in [2, 3] {
            assert_eq!(store.read(page * IMAGE_SIZE as u64, &mut bytes), Err(Dropped));
        }
        for page in [0, 1, 4, 5u8] {
            assert_eq!(store.read(u64::from(page) * IMAGE_SIZE as u64, &mut bytes), Ok(()));
            assert_eq!(bytes, [page + 1; SECTOR_SIZE]);
        }
        assert_eq!(store.read(9 * IMAGE_SIZE as u64, &mut bytes), Ok(()), "never written");
    }

    #[test]
    fn a_torn_page_keeps_its_other_sectors() {
        let mut store = Store::new(LEN, Keep::Plain);
        store.write(0, &[1; IMAGE_SIZE]);
        let piece = Piece::Page { page: 0, image: Some(Image::unshared([2; IMAGE_SIZE])) };
        store.apply_torn(&piece, 0b101);
        let mut bytes = [0; 4 * SECTOR_SIZE];
        store.read(0, &mut bytes).expect("kept");
        let firsts = [0, 1, 2, 3].map(|sector| bytes[sector * SECTOR_SIZE]);
        assert_eq!(firsts, [2, 1, 2, 1]);
    }
}
