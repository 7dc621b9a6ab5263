//! The header of a tree: what is true of the tree as a whole.
//!
//! ```text
//! offset size field
//!      0   24 (header)       see `terrace_page`; kind is Tree
//!     24    4 tree           number of the tree
//!     28    4 state          bit 0: being loaded, its nodes are not to be trusted; bit 1: pages of
//!                            blocks may be left over, see `blocks`
//!     32    8 pending_first  head of the first large value that waits to be freed, or 0
//!     40    8 pending_last   head of the last one, or 0
//!     48    2 longest_key    bytes of the longest key; zero until used, as all that follows
//!     50    6 reserved
//!     56    8 keys           how many
//!     64    8 pages          how many
//!     72    8 free_first     queue of pages to be given back: its first page
//!     80    8 free_last      its last
//! ```

use std::sync::Arc;

use terrace_page::{PageBuf, PageId, PageKind, kind};
use terrace_pool::{BufferPool, PageMut};

use super::Tree;
use super::cells::Cells;
use super::edit::Shape;
use crate::change::{BODY_AT, Change};
use crate::space::{Purpose, Space};
use crate::writer::{Undo, Writer};
use crate::{Error, TreeId};

const STATE_AT: usize = BODY_AT + 4;
const FIRST_AT: usize = STATE_AT + 4;
const LAST_AT: usize = FIRST_AT + 8;
const LOADING: u32 = 1;
const LEFT_OVER: u32 = 2;

const _: () = assert!(LAST_AT + 8 == 48);

/// The fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) tree: u32,
    pub(super) loading: bool,
    /// Pages of blocks may be left over.
    pub(super) left_over: bool,
    pub(super) pending_first: PageId,
    pub(super) pending_last: PageId,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.tree.to_le_bytes().to_vec();
        let left_over = if self.left_over { LEFT_OVER } else { 0 };
        let state = left_over | if self.loading { LOADING } else { 0 };
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(&self.pending_first.0.to_le_bytes());
        bytes.extend_from_slice(&self.pending_last.0.to_le_bytes());
        bytes
    }

    fn decode(page: &PageBuf) -> Header {
        let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four"));
        let page_at = |at: usize| {
            PageId(u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes")))
        };
        Header {
            tree: u32_at(BODY_AT),
            loading: u32_at(STATE_AT) & LOADING != 0,
            left_over: u32_at(STATE_AT) & LEFT_OVER != 0,
            pending_first: page_at(FIRST_AT),
            pending_last: page_at(LAST_AT),
        }
    }
}

impl Tree {
    /// Makes an empty tree, in an extent of its own: a nested action, so that a catalog entry made
    /// after it, and rolled back, leaves the extent to be freed by [`Tree::free`].
    ///
    /// # Errors
    ///
    /// `HomeFull`, those of the pool and of `Writer::change`.
    pub(crate) fn create<W: Writer>(
        w: &mut W,
        id: TreeId,
        pool: Arc<BufferPool>,
        space: Arc<Space>,
    ) -> Result<Tree, Error> {
        let mut reserved = space.reserve(w, id, PageId(0), 2, Purpose::Forward)?;
        let [header, root] = *reserved.pages() else { unreachable!("asked for two pages") };
        assert_eq!(root, header.plus(1), "the first pages of an extent");
        let mut header_page = pool.create(header)?;
        let mut root_page = pool.create(root)?;
        let nested = w.begin_nested();
        reserved.take(w)?;
        let fields = Header {
            tree: id.0,
            loading: false,
            left_over: false,
            pending_first: PageId(0),
            pending_last: PageId(0),
        };
        let change = Change::Page { kind: PageKind::Tree, bytes: &fields.encode() };
        w.change(&mut header_page, &change, Undo::None)?;
        w.change(&mut root_page, &empty_root(id), Undo::None)?;
        w.end_nested(nested)?;
        drop((header_page, root_page, reserved));
        Ok(Tree::open(id, header, pool, space))
    }

    /// The header, latched exclusively.
    pub(super) fn header_exclusive(&self) -> Result<(PageMut<'_>, Header), Error> {
        let page = self.pool.write(self.header)?;
        let fields = self.header_of(&page)?;
        Ok((page, fields))
    }

    /// The header's fields.
    pub(super) fn header_fields(&self) -> Result<Header, Error> {
        let page = self.pool.read(self.header)?;
        self.header_of(&page)
    }

    pub(super) fn header_of(&self, page: &PageBuf) -> Result<Header, Error> {
        let fields = Header::decode(page);
        if kind(page) != Some(PageKind::Tree) || fields.tree != self.id.0 {
            return Err(Tree::corrupt(self.header, "it should be the header of this tree"));
        }
        Ok(fields)
    }

    /// Sets the header's fields, within a nested action.
    pub(super) fn set_header<W: Writer>(
        &self,
        w: &mut W,
        page: &mut PageMut<'_>,
        fields: &Header,
    ) -> Result<(), Error> {
        let bytes = fields.encode();
        w.change(page, &Change::Bytes { at: BODY_AT as u16, bytes: &bytes }, Undo::None)
    }
}

/// Makes a page the root of an empty tree.
pub(super) fn empty_root(id: TreeId) -> Change<'static> {
    let shape = Shape {
        level: 0,
        tree: id.0,
        lower: b"",
        upper: None,
        right: PageId(0),
        first_child: PageId(0),
    };
    Change::Node { shape, cells: Cells(&[]) }
}
