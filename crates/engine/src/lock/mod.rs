//! Transaction locks: what is asked for, and under which modes.
//!
//! A resource is a key of a tree, by its 64-bit hash: two keys with one hash share a lock, which
//! costs concurrency and never correctness. Each resource has two parts with modes of their own:
//! the record, and the gap between it and the key before it (next-key locking).
//!
//! ```text
//! record   Shared Exclusive        gap      Scan  Insert
//! Shared     ok       -            Scan      ok     -
//! Exclusive   -       -            Insert     -     ok
//! ```
//!
//! - point hit: record Shared. Point miss: gap Scan on the next key.
//! - scan: record Shared and gap Scan on each key met, gap Scan on the key past the end.
//! - insert k: gap Insert on the next key (needed for an instant only), record Exclusive on k; an
//!   owner that has the gap of the next key locks that of k, too, since k splits it.
//! - remove k: record Exclusive on k, which stays as a ghost.
//! - ghost: the key is there, for locks. A transaction that meets one locks it as a key, and then
//!   knows that it is absent; an insertion over it is like an update. It goes when it has no lock
//!   (`btree::purge`).
//!
//! An owner gets only locks that it has requested: a waiting owner gets what it waits for and
//! nothing else, and only a request can close a cycle.

mod held;
mod lock_table;
mod part;

pub(crate) use held::Held;
pub(crate) use lock_table::{LockTable, Owner, Refused};

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
#[repr(u16)]
pub(crate) enum LockMode {
    /// The record is read.
    Shared = 1,
    /// The record is written.
    Exclusive = 2,
    /// The gap before the key was seen to be empty.
    GapScan = 4,
    /// A key is put into the gap before the key. Granted for an instant only.
    GapInsert = 8,
    /// `Shared` and `GapScan`: a scan reads the record.
    SharedScan = 1 | 4,
    /// `Exclusive` and `GapScan`: a scan reads the record for a change.
    ExclusiveScan = 1 | 2 | 4,
}

impl LockMode {
    /// The mode of a record that a scan meets, which locks records in this mode.
    pub(crate) fn scanned(self) -> LockMode {
        match self {
            LockMode::Shared => LockMode::SharedScan,
            LockMode::Exclusive => LockMode::ExclusiveScan,
            other => unreachable!("no scan locks records in {other:?}"),
        }
    }
}

/// A set of modes, among them those of whole tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes(u16);

impl Modes {
    /// No mode at all.
    pub(crate) const NONE: Modes = Modes(0);
    const SHARED: Modes = Modes(LockMode::Shared as u16);
    const EXCLUSIVE: Modes = Modes(LockMode::Exclusive as u16);
    /// A gap that was seen to be empty.
    pub(crate) const GAP_SCAN: Modes = Modes(LockMode::GapScan as u16);
    /// What only a transaction that writes the whole table holds.
    pub(crate) const TABLE_WRITES: Modes = Modes(256);
    /// Some keys of the table are read.
    pub(crate) const TABLE_INTENT_READ: Modes = Modes(32);
    /// Some keys of the table are written.
    pub(crate) const TABLE_INTENT_WRITE: Modes = Modes(32 | 64);
    /// The whole table is read.
    pub(crate) const TABLE_READ: Modes = Modes(32 | 128);
    /// The whole table is written.
    pub(crate) const TABLE_WRITE: Modes = Modes(32 | 64 | 128 | 256);

    /// Each mode, and those that others may not hold beside it.
    const CONFLICTS: [(u16, u16); 8] = [
        (LockMode::Shared as u16, 2),
        (LockMode::Exclusive as u16, 1 | 2),
        (LockMode::GapScan as u16, 8),
        (LockMode::GapInsert as u16, 4),
        (32, 256),
        (64, 128 | 256),
        (128, 64 | 256),
        (256, 32 | 64 | 128 | 256),
    ];

    /// These and those.
    pub(crate) const fn and(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }

    /// Those of these that are among `other`.
    pub(crate) const fn within(self, other: Modes) -> Modes {
        Modes(self.0 & other.0)
    }

    /// Whether all of `other` are among these.
    pub(crate) const fn covers(self, other: Modes) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether there is none.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The modes that another transaction may not hold beside these.
    #[inline]
    pub(crate) fn conflicts(self) -> Modes {
        Modes(CONFLICTS_OF[self.0 as usize])
    }

    /// Whether two transactions may not hold these and `other`.
    pub(crate) fn conflict_with(self, other: Modes) -> bool {
        !self.conflicts().within(other).is_none()
    }
}

impl std::fmt::Display for Modes {
    /// In the field's letters: S and X of a record, its gap; IS, IX, S, SIX and X of a table.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Modes::TABLE_WRITE, "X on the table"),
            (Modes::TABLE_READ.and(Modes::TABLE_INTENT_WRITE), "SIX on the table"),
            (Modes::TABLE_READ, "S on the table"),
            (Modes::TABLE_INTENT_WRITE, "IX on the table"),
            (Modes::TABLE_INTENT_READ, "IS on the table"),
            (LockMode::Exclusive.into(), "X"),
            (Modes::SHARED, "S"),
            (Modes::GAP_SCAN, "gap"),
            (LockMode::GapInsert.into(), "insert into the gap"),
        ];
        let (mut left, mut parted) = (*self, "");
        for (modes, name) in names {
            if left.covers(modes) {
                write!(f, "{parted}{name}")?;
                left = Modes(left.0 & !modes.0);
                parted = ", ";
            }
        }
        if parted.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

/// For each set of modes, those that conflict with one of it.
static CONFLICTS_OF: [u16; 512] = {
    let mut table = [0; 512];
    let mut set = 0;
    while set < table.len() {
        let mut at = 0;
        while at < Modes::CONFLICTS.len() {
            let (mode, with) = Modes::CONFLICTS[at];
            if set as u16 & mode != 0 {
                table[set] |= with;
            }
            at += 1;
        }
        set += 1;
    }
    table
};

impl From<LockMode> for Modes {
    /// The mode, with the weaker ones that it stands for.
    fn from(mode: LockMode) -> Modes {
        match mode {
            LockMode::Exclusive => Modes::EXCLUSIVE.and(Modes::SHARED),
            mode => Modes(mode as u16),
        }
    }
}

/// What is locked: a key of a tree with the gap before it, or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    key: u64,
    tree: u32,
    /// Made of the others once: three tables look a lock up.
    hash: u32,
}

impl Resource {
    /// A key.
    #[inline]
    pub(crate) fn key(tree: TreeId, key: KeyHash) -> Resource {
        assert!(tree.0 < TABLE_BIT, "{tree} is no tree");
        Resource::new(key.number(), tree.0)
    }

    /// A whole table.
    pub(crate) fn table(tree: TreeId) -> Resource {
        assert!(tree.0 < TABLE_BIT, "{tree} is no tree");
        Resource::new(u64::from(tree.0), tree.0 | TABLE_BIT)
    }

    /// The tree that it belongs to.
    pub(crate) fn tree(self) -> TreeId {
        TreeId(self.tree & !TABLE_BIT)
    }

    /// Whether it is a whole table.
    pub(crate) fn is_table(self) -> bool {
        self.tree & TABLE_BIT != 0
    }

    #[inline]
    fn new(key: u64, tree: u32) -> Resource {
        let mixed = (key ^ u64::from(tree).rotate_left(40)).wrapping_mul(MIX);
        Resource { key, tree, hash: (mixed >> 32) as u32 }
    }

    /// A well-mixed number.
    #[inline]
    fn hash(self) -> usize {
        self.hash as usize
    }
}

const _: () = assert!(size_of::<Resource>() == 16);

const TABLE_BIT: u32 = 1 << 31;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

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
