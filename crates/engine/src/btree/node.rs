//! A node of the B+-tree: sorted cells in a slotted page, with fences and a common prefix.
//!
//! ```text
//! offset size field
//!      0    6 (header)      checksum and kind, see `terrace_page`; kind is Leaf or Inner
//!      6    1 level         0 in leaves, a parent has its children's level plus one
//!      7    1 flags         bit 0: no upper fence, the node reaches to the end of the tree
//!      8   16 (header)      page LSN, page id
//!     24    4 tree          number of the tree that the node belongs to
//!     28    2 slot_count
//!     30    2 cells_start   first byte of the cell area
//!     32    8 right         the next node of the level, 0 if there is none
//!     40    8 first_child   inner: the child left of all separators; leaf: 0
//!     48    2 lower_len     bytes of the lower fence
//!     50    2 upper_len     bytes of the upper fence
//!     52    2 prefix_len    bytes that all keys of the node begin with
//!     54    2 slots_at      first byte of the slots
//!     56    2 holes         bytes in the cell area that no cell uses
//!     58    2 last_insert   leaf: slot of the newest key
//!     60    2 run           leaf: how many keys before it came in ascending order, in a row
//!     62    2 ghosts        leaf: how many of its cells are ghosts
//!
//! 0        64                        slots_at                cells_start    PAGE_SIZE
//! +--------+-------+-------+--------+---+-------+-------------+--------------+
//! | header | lower | upper | prefix | 0 | slots >    free     | < cells      |
//! +--------+-------+-------+--------+---+-------+-------------+--------------+
//!
//! slot, 64 bits from the top: 32 head, 3 class, 5 zero, 11 key_len, 13 offset of the cell
//! leaf cell:   1 flags, 2 value_len, key without prefix, value
//! inner cell:  8 child, key without prefix
//! ```
//!
//! The head is the first four bytes of the key after the prefix, the class is that key's length or
//! 5 if it is longer: so the upper 35 bits of a slot order short keys exactly, and a search reads
//! no cell until it has found one (heads: Graefe, "Modern B-Tree Techniques", 2011; the layout is
//! akin to LeanStore's).
//!
//! Of a leaf cell's flags, bit 0 says that the value is an overflow reference, bit 1 that the cell
//! is a ghost: its key was removed, and stays until no lock can be on it (its value until no undo
//! can want it); bit 7 is kept for a pointer to older versions.
//!
//! - N1: keys ascend, without duplicates. In a leaf they lie in `lower <= key < upper`; separators
//!   of an inner node lie strictly between its fences, child `i` has its keys below separator `i`.
//! - N2: `slots_at + 8 * slot_count <= cells_start <= PAGE_SIZE`.
//! - N3: cells lie in `cells_start..PAGE_SIZE`, do not overlap, and leave `holes` bytes.
//!
//! Accessors never panic, whatever the bytes: what lies outside of the page reads as empty.
//! [`check`] tells whether the bytes are a node.

use std::ops::Range;

use terrace_page::{HEADER_SIZE, PAGE_SIZE, PageBuf, PageId, PageKind, kind};

pub(crate) use super::short::common_prefix;
use super::short::{compare, equal, first_four, starts_with};

pub(crate) const LEVEL_AT: usize = 6;
pub(crate) const FLAGS_AT: usize = 7;
pub(crate) const TREE_AT: usize = 24;
pub(crate) const COUNT_AT: usize = 28;
pub(crate) const CELLS_AT: usize = 30;
pub(crate) const RIGHT_AT: usize = HEADER_SIZE;
pub(crate) const FIRST_CHILD_AT: usize = RIGHT_AT + 8;
pub(crate) const LOWER_LEN_AT: usize = FIRST_CHILD_AT + 8;
pub(crate) const UPPER_LEN_AT: usize = LOWER_LEN_AT + 2;
pub(crate) const PREFIX_LEN_AT: usize = UPPER_LEN_AT + 2;
pub(crate) const SLOTS_AT_AT: usize = PREFIX_LEN_AT + 2;
pub(crate) const HOLES_AT: usize = SLOTS_AT_AT + 2;
pub(crate) const LAST_INSERT_AT: usize = HOLES_AT + 2;
pub(crate) const RUN_AT: usize = LAST_INSERT_AT + 2;
pub(crate) const GHOSTS_AT: usize = RUN_AT + 2;
/// Bytes before the fences.
pub(crate) const NODE_HEADER: usize = GHOSTS_AT + 2;

const _: () = assert!(NODE_HEADER == 64 && NODE_HEADER.is_multiple_of(8));
const _: () = assert!(PAGE_SIZE == 1 << 13, "offsets have 13 bits");

/// Bytes of a slot.
pub(crate) const SLOT: usize = 8;
/// Bytes of a leaf cell beside key and value.
pub(crate) const LEAF_CELL: usize = 3;
/// Bytes of an inner cell beside the key.
pub(crate) const INNER_CELL: usize = 8;
/// Node flag: there is no upper fence.
pub(crate) const NO_UPPER: u8 = 1;
/// Record flag: the value is an overflow reference.
pub(crate) const OVERFLOW: u8 = 1;
/// Record flag: the key was removed.
pub(crate) const GHOST: u8 = 2;

/// The longest key, in bytes. With two fences of this length a page still holds five separators.
pub(crate) const KEY_MAX: usize = 1024;
/// The largest leaf cell with its slot, in bytes: what is larger has its value, or all but the tail
/// of it, in overflow pages. Two fit between fences of up to 48 bytes in all: with more, a leaf
/// would hold one key. One always fits between two fences of `KEY_MAX`, and a split always makes
/// room for it: see split.rs.
pub(crate) const CELL_MAX: usize = 4040;
/// No tree is higher: two children per node already reach every page.
pub(crate) const LEVEL_MAX: u8 = 48;

/// Bytes of a cell that are asked of the memory before its key is locked: the two take as long.
const CELL_AHEAD: usize = 256;

const KEY_BITS: u32 = 11;
const OFFSET_BITS: u32 = 13;
const CLASS_AT: u32 = 29;

const _: () = assert!(KEY_MAX < 1 << KEY_BITS);
const _: () = assert!(KEY_BITS + OFFSET_BITS <= CLASS_AT);
const _: () = assert!(NODE_HEADER + 48 + 2 * CELL_MAX <= PAGE_SIZE);

/// What orders keys after the prefix: exact for keys of up to four bytes.
#[inline]
pub(crate) fn rank(suffix: &[u8]) -> u64 {
    u64::from(first_four(suffix)) << 3 | suffix.len().min(5) as u64
}

/// The slot of a cell at `offset` whose key, after the prefix, has rank `rank` and length `len`.
pub(crate) fn slot_of(rank: u64, len: usize, offset: usize) -> u64 {
    rank << CLASS_AT | (len as u64) << OFFSET_BITS | offset as u64
}

#[inline]
pub(crate) fn slot_rank(slot: u64) -> u64 {
    slot >> CLASS_AT
}

/// The least of all slots with a rank of `rank` or more.
#[inline]
pub(crate) fn slots_from(rank: u64) -> u64 {
    rank << CLASS_AT
}

#[inline]
pub(crate) fn slot_key_len(slot: u64) -> usize {
    (slot >> OFFSET_BITS) as usize & ((1 << KEY_BITS) - 1)
}

#[inline]
pub(crate) fn slot_offset(slot: u64) -> usize {
    slot as usize & ((1 << OFFSET_BITS) - 1)
}

#[inline]
pub(crate) fn u16_at(page: &PageBuf, at: usize) -> usize {
    usize::from(u16::from_le_bytes([page[at], page[at + 1]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        None => 0,
    }
}

/// The shortest key that separates `left` from `right`: above the one, at most the other.
pub(crate) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    &right[..(common_prefix(left, right) + 1).min(right.len())]
}

/// Two runs of bytes, put together without an allocation if they are short: a key of its prefix
/// and suffix, a record of its flags and value.
pub(crate) struct Joined {
    short: [u8; Joined::SHORT],
    len: usize,
    long: Vec<u8>,
}

impl Joined {
    const SHORT: usize = 64;

    #[inline]
    pub(crate) fn new(first: &[u8], second: &[u8]) -> Joined {
        let len = first.len() + second.len();
        let mut joined = Joined { short: [0; Joined::SHORT], len, long: Vec::new() };
        if len <= Joined::SHORT {
            joined.short[..first.len()].copy_from_slice(first);
            joined.short[first.len()..len].copy_from_slice(second);
        } else {
            joined.long.reserve_exact(len);
            joined.long.extend_from_slice(first);
            joined.long.extend_from_slice(second);
        }
        joined
    }
}

impl std::ops::Deref for Joined {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.len <= Joined::SHORT { &self.short[..self.len] } else { &self.long }
    }
}

/// A cell of a leaf.
pub(crate) struct LeafCell<'a> {
    pub(crate) flags: u8,
    /// The key without the prefix.
    pub(crate) suffix: &'a [u8],
    /// Where in the page the value is.
    pub(crate) value_at: usize,
    pub(crate) value_len: usize,
}

/// A page read as a node.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    page: &'a PageBuf,
    slots: &'a [[u8; SLOT]],
}

impl<'a> Node<'a> {
    /// The node in `page`, or `None` if it holds none: cheap, for every read. See [`check`].
    #[inline]
    pub(crate) fn open(page: &'a PageBuf) -> Option<Node<'a>> {
        let level = page[LEVEL_AT];
        match kind(page)? {
            PageKind::Leaf if level == 0 => {}
            PageKind::Inner if level != 0 && level <= LEVEL_MAX => {}
            _ => return None,
        }
        let slots_at = u16_at(page, SLOTS_AT_AT);
        let slots_end = slots_at + SLOT * u16_at(page, COUNT_AT);
        let fences = NODE_HEADER
            + u16_at(page, LOWER_LEN_AT)
            + u16_at(page, UPPER_LEN_AT)
            + u16_at(page, PREFIX_LEN_AT);
        let cells_start = u16_at(page, CELLS_AT);
        if fences > slots_at || slots_end > cells_start || cells_start > PAGE_SIZE {
            return None;
        }
        Some(Node { page, slots: page[slots_at..slots_end].as_chunks().0 })
    }

    /// The node in a page of which `open` has said that it is one, and that is latched since.
    #[inline]
    pub(crate) fn again(page: &'a PageBuf) -> Node<'a> {
        let slots_at = u16_at(page, SLOTS_AT_AT);
        let slots_end = slots_at + SLOT * u16_at(page, COUNT_AT);
        Node { page, slots: page[slots_at..slots_end].as_chunks().0 }
    }

    pub(crate) fn level(&self) -> u8 {
        self.page[LEVEL_AT]
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// Number of the tree that it belongs to.
    pub(crate) fn tree(&self) -> u32 {
        u32::from_le_bytes(self.page[TREE_AT..TREE_AT + 4].try_into().expect("four bytes"))
    }

    /// How many keys or separators it has.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The next node of its level, `PageId(0)` if there is none.
    pub(crate) fn right(&self) -> PageId {
        PageId(u64_at(self.page, RIGHT_AT))
    }

    /// No key of it is below this.
    pub(crate) fn lower(&self) -> &'a [u8] {
        &self.page[NODE_HEADER..NODE_HEADER + u16_at(self.page, LOWER_LEN_AT)]
    }

    /// All keys of it are below this. `None`: it reaches to the end of the tree.
    pub(crate) fn upper(&self) -> Option<&'a [u8]> {
        let at = NODE_HEADER + u16_at(self.page, LOWER_LEN_AT);
        let upper = &self.page[at..at + u16_at(self.page, UPPER_LEN_AT)];
        (self.page[FLAGS_AT] & NO_UPPER == 0).then_some(upper)
    }

    /// What all its keys begin with.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        let at = NODE_HEADER + u16_at(self.page, LOWER_LEN_AT) + u16_at(self.page, UPPER_LEN_AT);
        &self.page[at..at + u16_at(self.page, PREFIX_LEN_AT)]
    }

    /// Whether keys like `key` belong here.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        compare(self.lower(), key).is_le()
            && self.upper().is_none_or(|upper| compare(key, upper).is_lt())
    }

    /// Whether the keys just below `key` belong here.
    pub(crate) fn covers_below(&self, key: &[u8]) -> bool {
        self.lower() < key && self.upper().is_none_or(|upper| key <= upper)
    }

    #[inline]
    fn slot(&self, index: usize) -> u64 {
        self.slots.get(index).map_or(0, |slot| u64::from_le_bytes(*slot))
    }

    /// Key `index` without the prefix.
    #[inline]
    pub(crate) fn suffix(&self, index: usize) -> &'a [u8] {
        let slot = self.slot(index);
        let at = slot_offset(slot) + if self.is_leaf() { LEAF_CELL } else { INNER_CELL };
        self.page.get(at..at + slot_key_len(slot)).unwrap_or_default()
    }

    /// Key `index`.
    #[inline]
    pub(crate) fn key(&self, index: usize) -> Joined {
        Joined::new(self.prefix(), self.suffix(index))
    }

    /// Appends key `index` to `out`.
    #[inline]
    pub(crate) fn push_key(&self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(index));
    }

    /// Leaf: the flags and the value of key `index`.
    #[inline]
    pub(crate) fn record(&self, index: usize) -> (u8, &'a [u8]) {
        match self.leaf_cell(index) {
            Some(cell) => (cell.flags, &self.page[cell.value_at..cell.value_at + cell.value_len]),
            None => (0, &[]),
        }
    }

    /// Leaf: all of cell `index` at once. `None` if it is none.
    #[inline]
    pub(crate) fn leaf_cell(&self, index: usize) -> Option<LeafCell<'a>> {
        let slot = self.slot(index);
        let (at, key_len) = (slot_offset(slot), slot_key_len(slot));
        let (head, rest) = self.page.get(at..)?.split_first_chunk::<LEAF_CELL>()?;
        let [flags, low, high] = *head;
        let (suffix, rest) = rest.split_at_checked(key_len)?;
        let value_len = usize::from(u16::from_le_bytes([low, high]));
        let value_at = at + LEAF_CELL + key_len;
        (value_len <= rest.len()).then_some(LeafCell { flags, suffix, value_at, value_len })
    }

    /// Leaf: where in the page the value of key `index` lies.
    #[inline]
    pub(crate) fn value_at(&self, index: usize) -> Range<usize> {
        self.leaf_cell(index).map_or(0..0, |cell| cell.value_at..cell.value_at + cell.value_len)
    }

    /// The page that it is in.
    pub(crate) fn page(&self) -> &'a PageBuf {
        self.page
    }

    /// Leaf: whether key `index` was removed.
    #[inline]
    pub(crate) fn is_ghost(&self, index: usize) -> bool {
        self.page.get(self.cell_at(index)).is_some_and(|flags| flags & GHOST != 0)
    }

    /// Leaf: how many of its keys were removed.
    #[inline]
    pub(crate) fn ghosts(&self) -> usize {
        u16_at(self.page, GHOSTS_AT)
    }

    /// Inner: child `index`; there is one more than separators.
    pub(crate) fn child(&self, index: usize) -> PageId {
        match index.checked_sub(1) {
            None => PageId(u64_at(self.page, FIRST_CHILD_AT)),
            Some(slot) => PageId(u64_at(self.page, slot_offset(self.slot(slot)))),
        }
    }

    /// Has the processor fetch cell `index`, for a caller that locks its key first.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        terrace_pool::prefetch(self.page, self.cell_at(index), CELL_AHEAD);
    }

    /// Slot `index`, as stored.
    pub(crate) fn slot_bytes(&self, index: usize) -> [u8; SLOT] {
        self.slot(index).to_le_bytes()
    }

    /// Where the cells begin.
    pub(crate) fn cells_start(&self) -> usize {
        u16_at(self.page, CELLS_AT)
    }

    /// Offset of cell `index`.
    pub(crate) fn cell_at(&self, index: usize) -> usize {
        slot_offset(self.slot(index))
    }

    /// Bytes of cell `index`, without its slot.
    pub(crate) fn cell_len(&self, index: usize) -> usize {
        let key_len = slot_key_len(self.slot(index));
        if self.is_leaf() {
            LEAF_CELL + key_len + self.record(index).1.len()
        } else {
            INNER_CELL + key_len
        }
    }

    /// Bytes between slots and cells.
    pub(crate) fn gap(&self) -> usize {
        u16_at(self.page, CELLS_AT) - u16_at(self.page, SLOTS_AT_AT) - SLOT * self.len()
    }

    /// Bytes that no fence, slot or cell uses.
    pub(crate) fn free(&self) -> usize {
        self.gap() + u16_at(self.page, HOLES_AT)
    }

    /// Bytes of slots and cells.
    pub(crate) fn used(&self) -> usize {
        (PAGE_SIZE - u16_at(self.page, SLOTS_AT_AT)).saturating_sub(self.free())
    }

    /// Leaf: the slot of the newest key, and how many before it came in ascending order.
    pub(crate) fn last_insert(&self) -> (usize, usize) {
        (u16_at(self.page, LAST_INSERT_AT), u16_at(self.page, RUN_AT))
    }

    /// Where `key` is, or where it would be.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        if !starts_with(key, prefix) {
            return Err(if key < prefix { 0 } else { self.len() });
        }
        let suffix = &key[prefix.len()..];
        let wanted = rank(suffix);
        let first = self.first_at_least(wanted);
        match self.slots.get(first) {
            Some(slot) if slot_rank(u64::from_le_bytes(*slot)) == wanted => {}
            _ => return Err(first),
        }
        if suffix.len() <= 4 || equal(self.suffix(first), suffix) {
            return Ok(first);
        }
        self.search_cells(first, suffix, wanted)
    }

    /// The first slot with a rank of `wanted` or more. Without branches that data decide.
    fn first_at_least(&self, wanted: u64) -> usize {
        let bound = slots_from(wanted);
        let below = |slot: &[u8; SLOT]| u64::from_le_bytes(*slot) < bound;
        let mut base = 0;
        let mut size = self.slots.len();
        if size == 0 {
            return 0;
        }
        while size > 1 {
            let half = size / 2;
            base = if below(&self.slots[base + half]) { base + half } else { base };
            size -= half;
        }
        base + usize::from(below(&self.slots[base]))
    }

    /// Among the keys of rank `wanted` from slot `first` on, which differ after the head only.
    fn search_cells(&self, first: usize, suffix: &[u8], wanted: u64) -> Result<usize, usize> {
        let mut low = first;
        let mut high = first + 1;
        // Mostly there is one: gallop instead of halving what is left of the node.
        let mut step = 1;
        while high < self.len() && slot_rank(self.slot(high)) == wanted {
            if compare(self.suffix(high), suffix).is_ge() {
                break;
            }
            low = high;
            high = (high + step).min(self.len());
            step *= 2;
        }
        high = high.min(self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let by_rank = slot_rank(self.slot(middle)).cmp(&wanted);
            match by_rank.then_with(|| compare(self.suffix(middle), suffix)) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        let is_next = low < self.len()
            && slot_rank(self.slot(low)) == wanted
            && equal(self.suffix(low), suffix);
        if is_next {
            return Ok(low);
        }
        Err(low)
    }

    /// Inner: which child `key` belongs to.
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(index) => index + 1,
            Err(index) => index,
        }
    }

    /// Inner: which child the keys just below `key` belong to.
    pub(crate) fn child_below(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(index) | Err(index) => index,
        }
    }
}

/// Checks N1 to N3 on any bytes, and that every cell is whole. Never panics.
///
/// # Errors
///
/// What is wrong.
pub(crate) fn check(page: &PageBuf) -> Result<(), &'static str> {
    let node = Node::open(page).ok_or("not a node, or its areas overlap")?;
    check_fences(page, &node)?;
    check_cells(page, &node)?;
    let mut last: Option<Joined> = None;
    for index in 0..node.len() {
        let key = node.key(index);
        if last.as_deref().is_some_and(|last| *last >= *key) {
            return Err("keys do not ascend");
        }
        let inside = if node.is_leaf() { node.lower() <= &*key } else { node.lower() < &*key };
        if !inside || node.upper().is_some_and(|upper| &*key >= upper) {
            return Err("a key lies outside of the fences");
        }
        last = Some(key);
    }
    Ok(())
}

fn check_fences(page: &PageBuf, node: &Node<'_>) -> Result<(), &'static str> {
    let len = node.lower().len() + u16_at(page, UPPER_LEN_AT) + node.prefix().len();
    if u16_at(page, SLOTS_AT_AT) != (NODE_HEADER + len).next_multiple_of(SLOT) {
        return Err("slots do not follow the fences");
    }
    if node.lower().len() > KEY_MAX || node.upper().is_some_and(|upper| upper.len() > KEY_MAX) {
        return Err("a fence is longer than a key");
    }
    if node.upper().is_some_and(|upper| node.lower() >= upper) {
        return Err("the fences do not ascend");
    }
    if page[FLAGS_AT] & !NO_UPPER != 0 || (node.upper().is_none() && u16_at(page, UPPER_LEN_AT) > 0)
    {
        return Err("unknown flags");
    }
    if node.is_leaf() == (u64_at(page, FIRST_CHILD_AT) != 0) {
        return Err("a leaf with a child, or an inner node without");
    }
    Ok(())
}

fn check_cells(page: &PageBuf, node: &Node<'_>) -> Result<(), &'static str> {
    let ghosts = (0..node.len()).filter(|index| node.is_leaf() && node.is_ghost(*index));
    if ghosts.count() != node.ghosts() {
        return Err("ghosts are not accounted for");
    }
    let cells_start = u16_at(page, CELLS_AT);
    let fixed = if node.is_leaf() { LEAF_CELL } else { INNER_CELL };
    let mut cells: Vec<(usize, usize)> = Vec::with_capacity(node.len());
    for index in 0..node.len() {
        let slot = node.slot(index);
        let (at, key_len) = (slot_offset(slot), slot_key_len(slot));
        let mut end = at + fixed + key_len;
        if at < cells_start || end > PAGE_SIZE {
            return Err("a cell lies outside of the cell area");
        }
        if node.is_leaf() {
            end += u16_at(page, at + 1);
        }
        if end > PAGE_SIZE {
            return Err("a value lies outside of the page");
        }
        if node.prefix().len() + key_len > KEY_MAX {
            return Err("a key is too long");
        }
        if slot != slot_of(rank(node.suffix(index)), key_len, at) {
            return Err("a slot does not match its key");
        }
        cells.push((at, end));
    }
    cells.sort_unstable();
    if cells.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err("cells overlap");
    }
    let used: usize = cells.iter().map(|(at, end)| end - at).sum();
    if PAGE_SIZE - cells_start - used != u16_at(page, HOLES_AT) {
        return Err("holes are not accounted for");
    }
    Ok(())
}
