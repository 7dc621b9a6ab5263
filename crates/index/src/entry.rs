//! Keys, pointers and operations, and their bytes: an entry has 8 bytes, an operation 9.
//!
//! ```text
//! offset size entry      offset size operation
//!      0    4 key             0    4 key
//!      4    4 pointer         4    4 pointer; zero of a removal
//!                             8    1 change: 1 insert, 2 update, 3 remove
//! ```

use std::fmt::Debug;

/// What an index is searched by.
pub type Key = u32;
/// What an index answers: a record's place.
pub type Pointer = u32;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 8;
/// Bytes of an operation.
pub const OP_BYTES: usize = 9;

/// What an operation does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Puts the pointer; one that the key had is replaced.
    Insert,
    /// The same, for a key that the caller knows to be there: structures that do not look before
    /// they write cannot tell.
    Update,
    /// Takes the key out, if it is there.
    Remove,
}

/// One operation on an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Of which key.
    pub key: Key,
    /// The new pointer.
    pub pointer: Pointer,
    /// What is done.
    pub change: Change,
}

impl Op {
    /// Puts `pointer` under `key`.
    #[must_use]
    pub fn insert(key: Key, pointer: Pointer) -> Op {
        Op { key, pointer, change: Change::Insert }
    }

    /// Puts `pointer` under `key`, which is there.
    #[must_use]
    pub fn update(key: Key, pointer: Pointer) -> Op {
        Op { key, pointer, change: Change::Update }
    }

    /// Takes `key` out.
    #[must_use]
    pub fn remove(key: Key) -> Op {
        Op { key, pointer: 0, change: Change::Remove }
    }

    /// What a lookup of its key answers after it.
    #[must_use]
    pub fn answer(self) -> Option<Pointer> {
        (self.change != Change::Remove).then_some(self.pointer)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> [u8; OP_BYTES] {
        let mut bytes = [0; OP_BYTES];
        bytes[..4].copy_from_slice(&self.key.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pointer.to_le_bytes());
        bytes[8] = match self.change {
            Change::Insert => 1,
            Change::Update => 2,
            Change::Remove => 3,
        };
        bytes
    }

    /// The operation of `bytes`; `None` if they are none.
    #[must_use]
    pub fn decode(bytes: &[u8; OP_BYTES]) -> Option<Op> {
        let change = match bytes[8] {
            1 => Change::Insert,
            2 => Change::Update,
            3 => Change::Remove,
            _ => return None,
        };
        Some(Op { key: number(bytes, 0), pointer: number(bytes, 4), change })
    }
}

/// `entries` after `ops`, both in order of keys; of several operations on a key the last counts.
pub(crate) fn overlay(
    entries: impl Iterator<Item = (Key, Pointer)>,
    ops: &[Op],
) -> Vec<(Key, Pointer)> {
    let mut entries = entries.peekable();
    let mut result = Vec::with_capacity(entries.size_hint().0 + ops.len());
    for (at, op) in ops.iter().enumerate() {
        if ops.get(at + 1).is_some_and(|next| next.key == op.key) {
            continue;
        }
        while let Some(entry) = entries.next_if(|(key, _)| *key <= op.key) {
            if entry.0 < op.key {
                result.push(entry);
            }
        }
        result.extend(op.answer().map(|pointer| (op.key, pointer)));
    }
    result.extend(entries);
    result
}

/// The four bytes at `at` as a number.
pub(crate) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The eight bytes at `at` as a number.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Entries in the order of their keys that a bulk load takes, by their number: so that a load need
/// not hold them, and a page of it can be computed alone.
pub trait Source: Debug + Send + Sync {
    /// How many there are.
    fn len(&self) -> u64;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entry number `at`, which is below `len`.
    fn entry(&self, at: u64) -> (Key, Pointer);
}

impl Source for Vec<(Key, Pointer)> {
    fn len(&self) -> u64 {
        Vec::len(self) as u64
    }

    fn entry(&self, at: u64) -> (Key, Pointer) {
        self[at as usize]
    }
}

/// Entries at even distances, which need no memory.
#[derive(Clone, Copy, Debug)]
pub struct Spaced {
    /// How many.
    pub count: u64,
    /// Distance of the keys; the first is half of it.
    pub step: u32,
}

impl Source for Spaced {
    fn len(&self) -> u64 {
        self.count
    }

    fn entry(&self, at: u64) -> (Key, Pointer) {
        ((at * u64::from(self.step)) as u32 + self.step / 2, at as u32)
    }
}
