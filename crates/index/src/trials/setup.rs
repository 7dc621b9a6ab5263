//! A structure with its parameters, loaded on a modelled drive.

use std::fmt;
use std::sync::Arc;

use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Computed, IMAGE_SIZE, Keep as KeepBytes, Store};
use terrace_rt::{Virtual, VirtualConfig};

use super::drives::Drive;
use crate::entry::Spaced;
use crate::load::TreeLayout;
use crate::page::{Page, PageNo};
use crate::{
    BTree, BTreeOptions, Bftl, BftlOptions, Devices, Error, FdLayout, FdOptions, FdTree, Index,
    Keep, Kind, LeafRead, PioOptions, PioTree, Room,
};

/// Distance of loaded keys; the keys between are inserted.
pub(super) const KEY_STEP: u32 = 4;
/// Bytes of a page in the papers.
const PAGE_BYTES: usize = 4096;
/// Entries that the papers load.
const PAPER_ENTRIES: u64 = 1_000_000_000;
/// Pages of memory that the papers' indexes have.
const PAPER_MEMORY_PAGES: u64 = 4096;
/// Requests that go together.
const PIO_MAX: usize = 32;
/// Levels for which a search has memory, beside that of the index.
const HEIGHT_MAX: usize = 8;
/// Bytes of the drive over those of a load: a merge writes a second copy.
const DRIVE_OVER_LOAD: u64 = 3;
/// Entries of a load that is kept in memory, at most.
pub const KEPT_ENTRIES_MAX: u64 = 50_000_000;
/// Least pages of a drive.
const DRIVE_PAGES_MIN: u64 = 16 << 10;

/// How large everything is, beside the papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The papers' sizes are divided by this.
    pub divisor: u64,
}

impl Scale {
    /// Entries that are loaded.
    #[must_use]
    pub fn entries(self) -> u64 {
        PAPER_ENTRIES / self.divisor
    }

    /// Operations where the papers have `count`.
    #[must_use]
    pub fn ops(self, count: u64) -> u64 {
        (count / self.divisor).max(1)
    }

    /// Pages where the papers have `count` of their 4,096 pages of memory.
    #[must_use]
    pub fn pages(self, count: u64) -> usize {
        let all = (PAPER_MEMORY_PAGES as f64 / self.divisor as f64).round().max(4.0);
        let pages = all * count as f64 / PAPER_MEMORY_PAGES as f64;
        (pages.round() as usize).max(1)
    }

    /// Memory of each index, and its groups.
    #[must_use]
    pub fn room(self) -> Room {
        Room {
            page_bytes: PAGE_BYTES,
            memory_pages: self.pages(PAPER_MEMORY_PAGES),
            pio_max: PIO_MAX,
            search_pages: PIO_MAX * HEIGHT_MAX,
        }
    }

    fn source(self) -> Arc<Spaced> {
        Arc::new(Spaced { count: self.entries(), step: KEY_STEP })
    }
}

/// A structure with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setup {
    /// The B+-tree.
    BTree(BTreeOptions),
    /// The PIO B-tree.
    Pio(PioOptions),
    /// The FD-tree.
    Fd(FdOptions),
    /// BFTL.
    Bftl(BftlOptions),
}

enum Layout {
    Tree(TreeLayout),
    Fd(FdLayout),
}

impl Layout {
    fn of(setup: &Setup, scale: Scale) -> Layout {
        let source = scale.source();
        match setup {
            Setup::BTree(options) => Layout::Tree(BTree::layout(source, options)),
            Setup::Pio(options) => Layout::Tree(PioTree::layout(source, options)),
            Setup::Fd(options) => Layout::Fd(FdTree::layout(source, options)),
            Setup::Bftl(options) => Layout::Tree(Bftl::layout(source, options)),
        }
    }

    fn end(&self) -> PageNo {
        match self {
            Layout::Tree(layout) => layout.end(),
            Layout::Fd(layout) => layout.end(),
        }
    }

    fn page(&self, no: PageNo) -> Option<Page> {
        match self {
            Layout::Tree(layout) => layout.page(no),
            Layout::Fd(layout) => layout.page(no),
        }
    }
}

/// A load that is computed when it is read.
struct Image {
    layout: Layout,
    page_bytes: usize,
}

impl Computed for Image {
    fn page(&self, page: u64, bytes: &mut [u8; IMAGE_SIZE]) {
        let begin = page * IMAGE_SIZE as u64;
        let part = self.page_bytes.min(IMAGE_SIZE);
        for (at, bytes) in bytes.chunks_mut(part).enumerate() {
            let offset = begin + (at * part) as u64;
            let no = (offset / self.page_bytes as u64) as PageNo;
            let within = (offset % self.page_bytes as u64) as usize;
            if let Some(node) = self.layout.page(no) {
                bytes.copy_from_slice(&node.bytes()[within..within + part]);
            }
        }
    }
}

impl Setup {
    /// Which structure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Setup::BTree(_) => Kind::BTree,
            Setup::Pio(_) => Kind::Pio,
            Setup::Fd(_) => Kind::Fd,
            Setup::Bftl(_) => Kind::Bftl,
        }
    }

    fn page_bytes(&self) -> usize {
        match self {
            Setup::BTree(options) => options.room.page_bytes,
            Setup::Pio(options) => options.room.page_bytes,
            Setup::Fd(options) => options.room.page_bytes,
            Setup::Bftl(options) => options.room.page_bytes,
        }
    }

    fn load(&self, devices: Devices, scale: Scale) -> Result<Box<dyn Index>, Error> {
        let source = scale.source();
        Ok(match *self {
            Setup::BTree(options) => Box::new(BTree::load(devices, source, options)?),
            Setup::Pio(options) => Box::new(PioTree::load(devices, source, options)?),
            Setup::Fd(options) => Box::new(FdTree::load(devices, source, options)?),
            Setup::Bftl(options) => Box::new(Bftl::load(devices, source, options)?),
        })
    }

    fn adopt(&self, devices: Devices, layout: &Layout) -> Result<Box<dyn Index>, Error> {
        Ok(match (*self, layout) {
            (Setup::BTree(options), Layout::Tree(layout)) => {
                Box::new(BTree::adopt(devices, layout, options)?)
            }
            (Setup::Pio(options), Layout::Tree(layout)) => {
                Box::new(PioTree::adopt(devices, layout, options)?)
            }
            (Setup::Bftl(options), Layout::Tree(layout)) => {
                Box::new(Bftl::adopt(devices, layout, options)?)
            }
            (Setup::Fd(options), Layout::Fd(layout)) => {
                Box::new(FdTree::adopt(devices, layout, options)?)
            }
            _ => unreachable!("a layout is of its structure"),
        })
    }

    /// What the bytes of a load depend on.
    fn shape(&self, scale: Scale) -> (Kind, usize, u32, u64, PageNo) {
        let end = Layout::of(self, scale).end();
        let (segments, fill) = match self {
            Setup::BTree(options) => (1, options.fill.0),
            Setup::Pio(options) => (options.segments, options.fill.0),
            Setup::Bftl(options) => (1, options.fill.0),
            Setup::Fd(_) => (1, 1.0),
        };
        (self.kind(), self.page_bytes(), segments, fill.to_bits(), end)
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = |keep: Keep| if keep == Keep::Lru { "leaves kept" } else { "leaves not kept" };
        match self {
            Setup::BTree(options) => {
                write!(
                    f,
                    "nodes of {} bytes, {}",
                    options.room.page_bytes,
                    kept(options.keep_leaves)
                )
            }
            Setup::Pio(options) => {
                write!(
                    f,
                    "leaves of {} pages, queue of {} pages, {}",
                    options.segments,
                    options.queue_pages,
                    kept(options.keep_leaves)
                )?;
                match options.leaf_read {
                    LeafRead::Whole => Ok(()),
                    LeafRead::Segment { operations } => {
                        write!(f, ", read by segments, {operations} of them for operations")
                    }
                }
            }
            Setup::Fd(options) => write!(
                f,
                "head of {} pages, ratio {}, {}",
                options.head_pages,
                options.ratio,
                kept(options.keep_leaves)
            ),
            Setup::Bftl(options) => write!(
                f,
                "buffer of {} units, lists of {} pages",
                options.buffer_units, options.list_max
            ),
        }
    }
}

/// The bytes of a load, to be used again by runs that load the same.
pub struct Loaded {
    scale: Scale,
    shape: (Kind, usize, u32, u64, PageNo),
    store: Store,
}

impl Loaded {
    /// Loads for `setup`, into memory unless there are too many entries.
    ///
    /// # Errors
    ///
    /// None but of the model's own.
    pub fn new(setup: &Setup, scale: Scale) -> Result<Loaded, Error> {
        if scale.entries() > KEPT_ENTRIES_MAX {
            return Ok(Loaded::computed(setup, scale));
        }
        let store = Store::new(Loaded::bytes(setup, scale), KeepBytes::Plain);
        let world = Virtual::new(VirtualConfig::default());
        let device = SimDevice::new(Preset::Ram.spec(), world.world(), store);
        let devices = Devices { pages: device.clone(), journal: None };
        world.run(|| setup.load(devices, scale)).expect("nothing stops it")?;
        Ok(Loaded { scale, shape: setup.shape(scale), store: device.store() })
    }

    /// A load whose pages are computed until they are written.
    #[must_use]
    pub fn computed(setup: &Setup, scale: Scale) -> Loaded {
        let image = Image { layout: Layout::of(setup, scale), page_bytes: setup.page_bytes() };
        let keep = KeepBytes::Difference(Arc::new(image));
        let store = Store::new(Loaded::bytes(setup, scale), keep);
        Loaded { scale, shape: setup.shape(scale), store }
    }

    /// Bytes of the drive.
    fn bytes(setup: &Setup, scale: Scale) -> u64 {
        let end = u64::from(Layout::of(setup, scale).end());
        (end * DRIVE_OVER_LOAD).max(DRIVE_PAGES_MIN) * setup.page_bytes() as u64
    }

    /// Whether a load for `setup` would be the same.
    #[must_use]
    pub fn is_for(&self, setup: &Setup) -> bool {
        self.shape == setup.shape(self.scale)
    }

    /// How large everything is.
    #[must_use]
    pub fn scale(&self) -> Scale {
        self.scale
    }

    pub(super) fn device(&self, drive: &Drive, world: &Virtual) -> Arc<SimDevice> {
        SimDevice::new(drive.spec.clone(), world.world(), self.store.clone())
    }

    pub(super) fn open(
        &self,
        setup: &Setup,
        device: Arc<SimDevice>,
    ) -> Result<Box<dyn Index>, Error> {
        let devices = Devices { pages: device, journal: None };
        setup.adopt(devices, &Layout::of(setup, self.scale))
    }
}
