//! Blocks of a run: entries in the order of tree, key and end, each key with what it shares with
//! the one before left out.
//!
//! ```text
//! offset size field
//!      0    4 checksum   CRC-32C of bytes 4..used
//!      4    4 used       bytes of header and entries
//!      8    8 run        catches a misdirected read or write
//!     16    8 block      its number in the run
//!     24      entries:   shared, rest_len, rest, ended, kind, [len, record]
//! ```
//!
//! Numbers in entries are LEB128; `kind` is a byte, 0 for a row that was absent. A key begins with
//! the 4 bytes of its tree, the greatest first.

use std::io;

use terrace_page::Lsn;

use crate::TreeId;
use crate::btree::node::KEY_MAX;
use crate::log::Aligned;

const USED_AT: usize = 4;
const RUN_AT: usize = 8;
const BLOCK_AT: usize = 16;
pub(super) const ENTRIES_AT: usize = 24;
const _: () = assert!(BLOCK_AT + 8 == ENTRIES_AT);

/// Bytes of a number, at most.
const NUMBER_BYTES: usize = 10;
/// Bytes of an entry beside its whole key and its record, at most: two lengths of a key, the end,
/// the kind, the length of the record.
pub(super) const ENTRY_BYTES: usize = 2 + 2 + NUMBER_BYTES + 1 + 2;
/// Bytes of the tree ahead of a key.
pub(super) const TREE_BYTES: usize = 4;
/// Bytes of a key, its tree included, at most.
pub(super) const WHOLE_KEY_MAX: usize = TREE_BYTES + KEY_MAX;
/// Numbers that have two bytes.
const TWO_BYTES: usize = 1 << 14;
const _: () = assert!(WHOLE_KEY_MAX < TWO_BYTES && terrace_page::PAGE_SIZE < TWO_BYTES);

/// The least bytes of a block: the largest entry fits.
pub(super) const BLOCK_MIN: usize = 16 << 10;
/// The most.
pub(super) const BLOCK_MAX: usize = 64 << 10;
const _: () = {
    let largest = ENTRY_BYTES + WHOLE_KEY_MAX + terrace_page::PAGE_SIZE;
    assert!(ENTRIES_AT + WHOLE_KEY_MAX + largest < BLOCK_MIN);
};

/// A key as runs order it.
pub(super) fn whole_key(tree: TreeId, key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&tree.0.to_be_bytes());
    out.extend_from_slice(key);
}

/// The tree and the key.
pub(super) fn parts_of(whole: &[u8]) -> (TreeId, &[u8]) {
    let (tree, key) = whole.split_at(TREE_BYTES);
    (TreeId(u32::from_be_bytes(tree.try_into().expect("4 bytes"))), key)
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A block that is being filled.
#[derive(Debug)]
pub(super) struct BlockWriter {
    size: usize,
    entries: Vec<u8>,
    last: Vec<u8>,
    entry: Vec<u8>,
}

impl BlockWriter {
    pub(super) fn new(size: usize) -> BlockWriter {
        BlockWriter { size, entries: Vec::new(), last: Vec::new(), entry: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends an entry; whether it had room.
    pub(super) fn push(&mut self, key: &[u8], ended: Lsn, before: Option<&[u8]>) -> bool {
        let shared = self.last.iter().zip(key).take_while(|(one, other)| one == other).count();
        self.entry.clear();
        put_number(&mut self.entry, shared as u64);
        put_number(&mut self.entry, (key.len() - shared) as u64);
        self.entry.extend_from_slice(&key[shared..]);
        put_number(&mut self.entry, ended.0);
        self.entry.push(u8::from(before.is_some()));
        if let Some(record) = before {
            put_number(&mut self.entry, record.len() as u64);
            self.entry.extend_from_slice(record);
        }
        if ENTRIES_AT + self.entries.len() + self.entry.len() > self.size {
            return false;
        }
        self.entries.extend_from_slice(&self.entry);
        self.last.clear();
        self.last.extend_from_slice(key);
        true
    }

    /// Puts the block to `out`, which is as long as it, and begins the next one; bytes of its
    /// entries.
    pub(super) fn finish(&mut self, run: u64, block: u64, out: &mut [u8]) -> usize {
        let used = ENTRIES_AT + self.entries.len();
        out[USED_AT..RUN_AT].copy_from_slice(&(used as u32).to_le_bytes());
        out[RUN_AT..BLOCK_AT].copy_from_slice(&run.to_le_bytes());
        out[BLOCK_AT..ENTRIES_AT].copy_from_slice(&block.to_le_bytes());
        out[ENTRIES_AT..used].copy_from_slice(&self.entries);
        out[used..].fill(0);
        let checksum = crc32c::crc32c(&out[USED_AT..used]);
        out[..USED_AT].copy_from_slice(&checksum.to_le_bytes());
        self.entries.clear();
        self.last.clear();
        used - ENTRIES_AT
    }
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A block that was read and verified.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Aligned,
    used: usize,
}

/// An entry of a block, beside its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'b> {
    pub(super) ended: Lsn,
    pub(super) before: Option<&'b [u8]>,
}

impl Block {
    /// # Errors
    ///
    /// `InvalidData` if it is not block `block` of `run`, as it was written.
    pub(super) fn verified(bytes: Aligned, run: u64, block: u64) -> io::Result<Block> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let used = word(USED_AT) as usize;
        if !(ENTRIES_AT..=bytes.len()).contains(&used) {
            return Err(bad("a block of old row versions has no length"));
        }
        if word(0) != crc32c::crc32c(&bytes[USED_AT..used]) {
            return Err(bad("a block of old row versions has another checksum"));
        }
        if (number(RUN_AT), number(BLOCK_AT)) != (run, block) {
            return Err(bad("a block of old row versions is another one"));
        }
        Ok(Block { bytes, used })
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Its entries from the first on.
    pub(super) fn cursor(&self) -> Cursor {
        Cursor { at: ENTRIES_AT, key: Vec::new() }
    }
}

/// A place in a block, and the key of the entry before it.
#[derive(Debug)]
pub(super) struct Cursor {
    at: usize,
    key: Vec<u8>,
}

impl Cursor {
    /// The key of the entry that came last.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The next entry of `block`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if there is none where one begins: the block was written so.
    pub(super) fn next<'b>(&mut self, block: &'b Block) -> io::Result<Option<Item<'b>>> {
        let bytes = &block.bytes[..block.used];
        if self.at == block.used {
            return Ok(None);
        }
        let shared = self.number(bytes)? as usize;
        let rest = self.number(bytes)? as usize;
        let rest = self.take(bytes, rest)?;
        if shared > self.key.len() {
            return Err(bad("a key of old row versions is too short"));
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        if self.key.len() < TREE_BYTES {
            return Err(bad("a key of old row versions has no tree"));
        }
        let ended = Lsn(self.number(bytes)?);
        let before = match self.take(bytes, 1)? {
            [0] => None,
            _ => {
                let len = self.number(bytes)? as usize;
                Some(self.take(bytes, len)?)
            }
        };
        Ok(Some(Item { ended, before }))
    }

    fn take<'b>(&mut self, bytes: &'b [u8], len: usize) -> io::Result<&'b [u8]> {
        let end = self.at.checked_add(len).filter(|&end| end <= bytes.len());
        let end = end.ok_or_else(|| bad("an entry of old row versions ends early"))?;
        let taken = &bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let mut number = 0;
        for shift in (0..7 * NUMBER_BYTES as u32).step_by(7) {
            let byte = self.take(bytes, 1)?[0];
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(bad("a number of old row versions does not end"))
    }
}
