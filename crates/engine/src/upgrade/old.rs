//! A reader of databases of the formats 1 and 2, which were closed in good order: what `upgrade`
//! converts. It knows no more of them than it takes to find all rows.
//!
//! ```text
//! superblock (pages 0, 1; the higher sequence counts), after the header of 32 bytes:
//!     32  8 magic   40  4 version   44  4 page_size   64  8 sequence   76  4 flags (1: clean)
//!     80  8 oldest_dirty   88  8 oldest_txn           both all ones: home has everything
//! header of a tree: 24 tree (4), 28 state (4; 0 ready); its root is the next page
//! node: 6 level (1), 24 tree (4), 28 slot_count (2), 40 first_child (8), 48 lower_len (2),
//!       50 upper_len (2), 52 prefix_len (2), 54 slots_at (2); at 64 lower, upper, prefix
//! slot: 8, of which the low 13 bits are the offset of the cell, the next 11 the length of its key
//! leaf cell:  1 flags (1: the value is a reference), 2 value_len, key without prefix, value
//! inner cell: 8 child, key without prefix
//! reference:  8 first page, 8 length         part of a value: 24 next (8), 32 len (2),
//!                                            36 tree (4), 64 the bytes
//! catalog (its header is page 32): key 'T' name; value 1 state (1: live), 4 tree, 8 header, types
//! ```
//!
//! - O1: every page is checked by its checksum, its id, its tree and the order of its keys: what
//!   does not fit ends the conversion.
//! - O2: the keys of a tree ascend over all of its leaves, and a walk reads each page of home once
//!   at most: so it ends, whatever the bytes.

use std::sync::Arc;

use terrace_device::{Device, read};
use terrace_page::{PAGE_SIZE, PageBuf, PageId, PageKind, kind, verify};

use super::UpgradeError;
use crate::TableInfo;
use crate::btree::VALUE_MAX;

/// Takes the rows of a table, one at a time: key and value.
type RowSink<'s> = dyn FnMut(&[u8], &[u8]) -> Result<(), UpgradeError> + 's;

const MAGIC: [u8; 8] = *b"TERRACE\0";
const MAGIC_AT: usize = 32;
const VERSION_AT: usize = 40;
const SEQUENCE_AT: usize = 64;
const FLAGS_AT: usize = 76;
const OLDEST_AT: usize = 80;
const CLEAN: u32 = 1;
/// Versions that this reader knows.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;

const CATALOG_HEADER: PageId = PageId(32);
const LEVEL_AT: usize = 6;
const TREE_AT: usize = 24;
const STATE_AT: usize = 28;
const NODE_AT: usize = 64;
const SLOT: usize = 8;
const OVERFLOW: u8 = 1;
const DATA_AT: usize = 64;
const LIVE: u8 = 1;

/// A database of an older format.
pub(super) struct Old {
    home: Arc<dyn Device>,
    pages: u64,
    pub(super) version: u32,
}

/// A table of it.
pub(super) struct OldTable {
    pub(super) info: TableInfo,
    tree: u32,
    header: PageId,
}

fn u16_at(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([page[at], page[at + 1]]))
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

fn corrupt(page: PageId, what: &'static str) -> UpgradeError {
    UpgradeError::Damaged { page, what }
}

/// A node, of which all that is read lies within the page.
struct Node<'p> {
    page: &'p PageBuf,
    prefix: &'p [u8],
    slots: &'p [[u8; SLOT]],
}

impl<'p> Node<'p> {
    fn open(page: &'p PageBuf, tree: u32) -> Option<Node<'p>> {
        let level = page[LEVEL_AT];
        let fits = match kind(page)? {
            PageKind::Leaf => level == 0,
            PageKind::Inner => level > 0,
            _ => false,
        };
        let prefix_at = NODE_AT + u16_at(page, 48) + u16_at(page, 50);
        let prefix = page.get(prefix_at..prefix_at + u16_at(page, 52))?;
        let (slots_at, count) = (u16_at(page, 54), u16_at(page, 28));
        let slots = page.get(slots_at..slots_at + SLOT * count)?.as_chunks().0;
        (fits && u32_at(page, TREE_AT) == tree).then_some(Node { page, prefix, slots })
    }

    /// The cell of slot `index` up to its key, the whole key, and what follows it.
    fn cell(&self, index: usize, head: usize) -> Option<(&'p [u8], Vec<u8>, &'p [u8])> {
        let slot = u64::from_le_bytes(self.slots[index]);
        let (at, key_len) = (slot as usize & 0x1fff, (slot >> 13) as usize & 0x7ff);
        let (head, rest) = self.page.get(at..)?.split_at_checked(head)?;
        let (suffix, rest) = rest.split_at_checked(key_len)?;
        Some((head, [self.prefix, suffix].concat(), rest))
    }
}

impl Old {
    /// Looks at a home. `None` if it is no database of these formats.
    ///
    /// # Errors
    ///
    /// `NotClosed`, `OnFlash`.
    pub(super) fn open(home: Arc<dyn Device>) -> Result<Option<Old>, UpgradeError> {
        let mut old = Old { pages: home.len() / PAGE_SIZE as u64, home, version: 0 };
        let copies = [PageId(0), PageId(1)].map(|id| old.page(id).ok());
        let is_ours = |page: &PageBuf| -> bool {
            page[MAGIC_AT..VERSION_AT] == MAGIC && VERSIONS.contains(&u32_at(&page[..], VERSION_AT))
        };
        let copies = copies.into_iter().flatten().filter(|page| is_ours(page));
        let newest = copies.max_by_key(|page| u64_at(&page[..], SEQUENCE_AT));
        let Some(page) = newest else { return Ok(None) };
        old.version = u32_at(&page[..], VERSION_AT);
        if u32_at(&page[..], FLAGS_AT) & CLEAN == 0 {
            return Err(UpgradeError::NotClosed);
        }
        if u64_at(&page[..], OLDEST_AT) != u64::MAX || u64_at(&page[..], OLDEST_AT + 8) != u64::MAX
        {
            return Err(UpgradeError::OnFlash);
        }
        Ok(Some(old))
    }

    fn page(&self, id: PageId) -> Result<Box<PageBuf>, UpgradeError> {
        if id.0 >= self.pages {
            return Err(corrupt(id, "it is referred to, and lies beyond the end of home"));
        }
        let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        let read = read(&*self.home, id.0 * PAGE_SIZE as u64, &mut page[..]);
        read.map_err(|source| UpgradeError::Read { page: id, source })?;
        verify(&page, id).map_err(|_| corrupt(id, "its bytes are not the page"))?;
        Ok(page)
    }

    /// Its tables, in the order of their names.
    ///
    /// # Errors
    ///
    /// `Damaged`, `Read`.
    pub(super) fn tables(&self) -> Result<Vec<OldTable>, UpgradeError> {
        let mut tables = Vec::new();
        let bad = || corrupt(CATALOG_HEADER, "an entry of the catalog makes no sense");
        self.walk(0, CATALOG_HEADER, &mut |key, value| {
            let Some(name) = key.strip_prefix(b"T") else { return Ok(()) };
            let (head, types) = value.split_first_chunk::<13>().ok_or_else(bad)?;
            if head[0] != LIVE {
                return Ok(());
            }
            let name = std::str::from_utf8(name).map_err(|_| bad())?;
            let types = std::str::from_utf8(types).map_err(|_| bad())?;
            let (key_type, value_type) = types.split_once('\0').ok_or_else(bad)?;
            let info = TableInfo {
                name: name.to_string(),
                key_type: key_type.to_string(),
                value_type: value_type.to_string(),
                schema: None,
                damage: None,
            };
            let (tree, header) = (u32_at(head, 1), PageId(u64_at(head, 5)));
            tables.push(OldTable { info, tree, header });
            Ok(())
        })?;
        Ok(tables)
    }

    /// Hands all rows of a table to `row`, in order.
    ///
    /// # Errors
    ///
    /// `Damaged`, `Read`; what `row` returns.
    pub(super) fn rows(&self, table: &OldTable, row: &mut RowSink<'_>) -> Result<(), UpgradeError> {
        self.walk(table.tree, table.header, row)
    }

    fn walk(&self, tree: u32, header: PageId, row: &mut RowSink<'_>) -> Result<(), UpgradeError> {
        let page = self.page(header)?;
        if kind(&page) != Some(PageKind::Tree)
            || u32_at(&page[..], TREE_AT) != tree
            || u32_at(&page[..], STATE_AT) != 0
        {
            return Err(corrupt(header, "it should be the header of a tree that is ready"));
        }
        let (mut last, mut seen): (Option<Vec<u8>>, u64) = (None, 0);
        // Depth first, left to right: the rightmost waits at the bottom.
        let mut stack = vec![(header.plus(1), None)];
        while let Some((id, level)) = stack.pop() {
            seen += 1;
            let page = self.page(id)?;
            let bad = || corrupt(id, "it should be a node of this tree");
            let node = Node::open(&page, tree).ok_or_else(bad)?;
            if seen > self.pages || level.is_some_and(|level| level != page[LEVEL_AT]) {
                return Err(corrupt(id, "it is not where its tree has it"));
            }
            if page[LEVEL_AT] == 0 {
                self.leaf(id, &node, tree, &mut last, row)?;
                continue;
            }
            let below = Some(page[LEVEL_AT] - 1);
            for index in (0..node.slots.len()).rev() {
                let (child, ..) = node.cell(index, 8).ok_or_else(bad)?;
                stack.push((PageId(u64_at(child, 0)), below));
            }
            stack.push((PageId(u64_at(&page[..], 40)), below));
        }
        Ok(())
    }

    fn leaf(
        &self,
        id: PageId,
        node: &Node<'_>,
        tree: u32,
        last: &mut Option<Vec<u8>>,
        row: &mut RowSink<'_>,
    ) -> Result<(), UpgradeError> {
        for index in 0..node.slots.len() {
            let bad = || corrupt(id, "a row makes no sense");
            let (head, key, rest) = node.cell(index, 3).ok_or_else(bad)?;
            let value = rest.get(..u16_at(head, 1)).ok_or_else(bad)?;
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(corrupt(id, "its keys do not ascend"));
            }
            match head[0] {
                0 => row(&key, value)?,
                OVERFLOW if value.len() == 16 => row(&key, &self.large(id, tree, value)?)?,
                _ => return Err(bad()),
            }
            *last = Some(key);
        }
        Ok(())
    }

    /// The value that a reference leads to.
    fn large(&self, leaf: PageId, tree: u32, reference: &[u8]) -> Result<Vec<u8>, UpgradeError> {
        let (mut next, len) = (PageId(u64_at(reference, 0)), u64_at(reference, 8));
        if len > VALUE_MAX as u64 {
            return Err(corrupt(leaf, "a large value is too large"));
        }
        let mut value = Vec::new();
        while (value.len() as u64) < len {
            let page = self.page(next)?;
            let (part, left) = (u16_at(&page[..], 32), len - value.len() as u64);
            let fits = part > 0 && part <= PAGE_SIZE - DATA_AT && part as u64 <= left;
            let is_part = kind(&page) == Some(PageKind::Overflow) && u32_at(&page[..], 36) == tree;
            if !fits || !is_part {
                return Err(corrupt(next, "it should be a part of a large value of this tree"));
            }
            value.extend_from_slice(&page[DATA_AT..DATA_AT + part]);
            next = PageId(u64_at(&page[..], 24));
        }
        Ok(value)
    }
}
