//! Transaction locks: what is asked for, and under which modes.
//!
//! A resource is a key of a tree, by its 64-bit hash: two keys with one hash share a lock, which
//! costs concurrency and never correctness. Each resource has two parts with modes of their own:
//! the record, and the gap between it and the key before it (next-key locking).
//!
//! ```text
//! record   Shared Exclusive        gap      Scan  Insert  Delete
//! Shared     ok       -            Scan      ok     -       -
//! Exclusive   -       -            Insert     -     ok      -
//!                                  Delete     -     -       -
//! ```
//!
//! - point hit: record Shared. Point miss: gap Scan on the next key.
//! - scan: record Shared and gap Scan on each key met, gap Scan on the key past the end.
//! - insert k: gap Insert on the next key (needed for an instant only), record Exclusive on k; own
//!   gap locks on the next key are inherited by k, since k splits that gap.
//! - delete k: record Exclusive and gap Delete on k, gap Delete on the next key, till the end.
//! - undo of an insert: the gap locks of others on k pass to the next key, since the gaps merge.

/// A tree: a table, or the catalog of tables. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

impl std::fmt::Display for TreeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tree {}", self.0)
    }
}

/// A key of a tree, as locks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// The pseudo key past every key of a tree.
    pub(crate) const END: KeyHash = KeyHash(u64::MAX);

    /// The hash of `key`, the same in every run.
    pub(crate) fn of(key: &[u8]) -> KeyHash {
        let hash = rapidhash::v3::rapidhash_v3_seeded(key, &SECRETS);
        KeyHash(if hash == u64::MAX { 0 } else { hash })
    }

    /// The number itself.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

const SECRETS: rapidhash::v3::RapidSecrets = rapidhash::v3::RapidSecrets::seed_cpp(0x7e44_ace0);

/// A mode in which a key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum LockMode {
    /// The record is read.
    Shared = 1,
    /// The record is written.
    Exclusive = 2,
    /// The gap before the key was seen to be empty.
    GapScan = 4,
    /// A key is put into the gap before the key. Granted for an instant only.
    GapInsert = 8,
    /// The gap before the key holds a key deleted and not yet committed.
    GapDelete = 16,
}

/// What a tree asks for while it holds page latches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockRequest {
    /// The tree of the key.
    pub(crate) tree: TreeId,
    /// The key.
    pub(crate) key: KeyHash,
    /// How.
    pub(crate) mode: LockMode,
}

/// The answer to a `LockRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum LockOutcome {
    /// Held, now and (but for `GapInsert`) until the transaction ends.
    Granted,
    /// Held by another. Drop every latch, let the caller wait for this request, start over.
    Busy,
}
