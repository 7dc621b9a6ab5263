//! What a transaction keeps in memory, most of it for a later one to use again.
//!
//! - B1: buffers go from hand to hand as one pointer, and are cleared when they are given back: a
//!   transaction that begins allocates nothing.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::{Lsn, PageBuf, PageId};

use super::tables::Tables;
use crate::btree::{Batch, Leaves};
use crate::leaf_room::RowHash;
use crate::lock::Held;
use crate::log::record::Draft;
use crate::opened::Opened;
use crate::versions::Writing;
use crate::{Error, SavepointFlaw, TreeId};

/// Bytes of encoded undo, keys and values that are kept for later transactions.
const BYTES_KEPT: usize = 1 << 16;

/// Memory of a transaction, used again by a later one.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(super) held: Held,
    pub(super) tables: Tables,
    /// Tables that this transaction or an earlier one has opened.
    pub(super) opened: Opened,
    /// Where this transaction or an earlier one has found keys.
    pub(super) leaves: Leaves,
    /// The key whose lock was busy last.
    pub(super) busy_key: Vec<u8>,
    /// Leaves with ghosts, and a key of each.
    pub(super) met: Vec<(TreeId, PageId, Box<[u8]>)>,
    /// Rows that its updates have made shorter, and by how many bytes: see `leaf_room`.
    pub(super) kept_rows: Vec<(RowHash, u32)>,
    pub(super) chain: Option<Arc<Writing>>,
    /// An encoded undo, while it is carried out.
    pub(super) undo: Vec<u8>,
    pub(super) draft: Draft,
    pub(super) page: Option<Box<PageBuf>>,
    /// Memory of scans.
    pub(crate) batches: Vec<Arc<Batch>>,
    /// An encoded key, and an encoded value, while no operation has them.
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// Names whose catalog entries the transaction has changed.
    pub(super) touched: Vec<String>,
    /// Trees that it has made or dropped: garbage, if they have no name in the end.
    pub(super) unnamed: Vec<TreeId>,
    /// Those that it has made.
    pub(super) made: Vec<TreeId>,
    /// Trees of which large values wait to be freed, and their bytes.
    pub(super) gave_up: Vec<(TreeId, u64)>,
    /// Trees of which pages of blocks are to be freed.
    pub(super) gave_up_blocks: Vec<TreeId>,
    /// How many rows of each table it has added, or removed.
    pub(super) counts: Vec<(TreeId, i64)>,
    /// Of these, what loads have added, which no undo of a row takes back: the tree, the rows, and
    /// the last record before they counted.
    pub(super) loaded: Vec<(TreeId, i64, Lsn)>,
    pub(super) marks: Marks,
}

impl Buffers {
    /// Forgets what the last transaction left.
    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.tables.clear();
        self.met.clear();
        self.kept_rows.clear();
        if self.kept_rows.capacity() * size_of::<(RowHash, u32)>() > BYTES_KEPT {
            self.kept_rows = Vec::new();
        }
        for bytes in [&mut self.undo, &mut self.key, &mut self.value] {
            if bytes.capacity() > BYTES_KEPT {
                *bytes = Vec::new();
            }
        }
        self.touched.clear();
        self.unnamed.clear();
        self.made.clear();
        self.gave_up.clear();
        self.gave_up_blocks.clear();
        self.counts.clear();
        self.loaded.clear();
        self.marks.clear();
    }
}

/// The buffers of a transaction, which go back to the engine.
pub(super) struct Borrowed(pub(super) Option<Box<Buffers>>);

impl Deref for Borrowed {
    type Target = Buffers;

    #[inline]
    fn deref(&self) -> &Buffers {
        self.0.as_deref().expect("kept until the transaction is dropped")
    }
}

impl DerefMut for Borrowed {
    #[inline]
    fn deref_mut(&mut self) -> &mut Buffers {
        self.0.as_deref_mut().expect("kept until the transaction is dropped")
    }
}

/// A place in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The transaction's `Marks::identity`.
    identity: u64,
    /// How many the transaction has made, this one included.
    sequence: u64,
    pub(super) last: Lsn,
}

/// The marks that a transaction has made.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Tells its marks from those of all other transactions. Zero until it makes one.
    identity: u64,
    made: u64,
    /// Marks that are gone, in ascending order: those after the first number, up to the second.
    gone: Vec<(u64, u64)>,
}

impl Marks {
    pub(super) fn make(&mut self, last: Lsn) -> Mark {
        static IDENTITIES: AtomicU64 = AtomicU64::new(1);
        if self.identity == 0 {
            self.identity = IDENTITIES.fetch_add(1, Ordering::Relaxed);
        }
        self.made += 1;
        Mark { identity: self.identity, sequence: self.made, last }
    }

    /// For the next transaction.
    fn clear(&mut self) {
        self.identity = 0;
        self.made = 0;
        self.gone.clear();
    }

    /// # Errors
    ///
    /// `Savepoint` if `mark` is another transaction's, or gone.
    pub(super) fn check(&self, mark: Mark) -> Result<(), Error> {
        if mark.identity != self.identity {
            return Err(Error::Savepoint { flaw: SavepointFlaw::OtherTransaction });
        }
        let at = self.gone.partition_point(|(_, to)| *to < mark.sequence);
        match self.gone.get(at) {
            Some((from, _)) if *from < mark.sequence => {
                Err(Error::Savepoint { flaw: SavepointFlaw::RolledBack })
            }
            _ => Ok(()),
        }
    }

    /// All marks made after `mark` are gone.
    pub(super) fn rolled_back_to(&mut self, mark: Mark) {
        while self.gone.last().is_some_and(|(from, _)| *from >= mark.sequence) {
            self.gone.pop();
        }
        if mark.sequence < self.made {
            self.gone.push((mark.sequence, self.made));
        }
    }
}
