//! Values that are read in parts: where they are is looked up once.

use terrace_page::PageId;

use super::node::{GHOST, Node, OVERFLOW};
use super::overflow::{DATA_AT, DATA_MAX};
use super::reference::{Form, Reference};
use super::runs::Located;
use super::{Tree, lock_or_wait};
use crate::versions::Record;
use crate::writer::{Reader, Step};
use crate::{Error, LockMode};

/// Where a value is. Its pages stay as long as the transaction that found it is open.
#[derive(Debug)]
pub(crate) enum Stored {
    /// Here.
    Bytes(Vec<u8>),
    /// In pages of which each leads to the next, and a tail.
    Chain {
        /// Bytes of the value, and those of the tail, which come last.
        len: u64,
        tail: Vec<u8>,
        stamp: u64,
        first: PageId,
        /// The page that was read last, and how many are before it.
        at: (u64, PageId),
    },
    /// In pages that are known.
    Pages(Located),
}

impl Stored {
    /// Bytes of the value.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Stored::Bytes(bytes) => bytes.len() as u64,
            Stored::Chain { len, .. } => *len,
            Stored::Pages(located) => located.len(),
        }
    }
}

impl Tree {
    /// Where the value of `key` is, locked as by `get`.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub(crate) fn find<R: Reader + ?Sized>(
        &self,
        r: &mut R,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Step<Option<Stored>>, Error> {
        let leaf = match mode {
            LockMode::Exclusive => self.leaf_read_first(r, key)?,
            _ => self.leaf_read(r, key)?,
        };
        if let Some(view) = r.snapshot() {
            let stored = self.look(&view, leaf, key, |leaf, record| self.stored(leaf, record));
            return if view.is_ended() { Err(view.why_ended()) } else { stored.map(Step::Done) };
        }
        let node = Node::again(&leaf);
        match node.search(key) {
            Ok(slot) => {
                lock_or_wait!(self, r, key, mode);
                let record = node.record(slot);
                if record.0 & GHOST != 0 {
                    self.note_ghosts(r, leaf.id(), &node, key);
                    return Ok(Step::Done(None));
                }
                self.stored(leaf.id(), record).map(Some).map(Step::Done)
            }
            Err(slot) => {
                let next = self.next_key(&node, slot)?;
                lock_or_wait!(self, r, &next, LockMode::GapScan);
                Ok(Step::Done(None))
            }
        }
    }

    fn stored(&self, leaf: PageId, (flags, value): Record<'_>) -> Result<Stored, Error> {
        if flags & OVERFLOW == 0 {
            return Ok(Stored::Bytes(value.to_vec()));
        }
        let (reference, parts) = Reference::with_parts(leaf, value)?;
        match reference.form {
            Form::Lists => return self.located(leaf, &reference).map(Stored::Pages),
            Form::Block => {
                let mut bytes = Vec::new();
                self.read_block(&reference, &parts, &mut bytes)?;
                return Ok(Stored::Bytes(bytes));
            }
            Form::Chain => {}
        }
        let tail = parts.tail;
        let Reference { len, stamp, first, .. } = reference;
        Ok(Stored::Chain { len, tail: tail.to_vec(), stamp, first, at: (0, first) })
    }

    /// Shows bytes of a value from `at` on, `most` at most; how many there were. There may be more:
    /// only at the end of the value there are none.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(crate) fn read_stored(
        &self,
        value: &mut Stored,
        at: u64,
        most: usize,
        mut show: impl FnMut(&[u8]),
    ) -> Result<u64, Error> {
        let end = value.len().min(at.saturating_add(most as u64));
        if at >= end {
            return Ok(0);
        }
        match value {
            Stored::Bytes(bytes) => show(&bytes[at as usize..end as usize]),
            Stored::Pages(located) => return self.read_located(located, at, end - at, show),
            Stored::Chain { len, tail, stamp, first, at: cursor } => {
                let chain_len = *len - tail.len() as u64;
                if at >= chain_len {
                    show(&tail[(at - chain_len) as usize..(end - chain_len) as usize]);
                    return Ok(end - at);
                }
                let (index, within) = (at / DATA_MAX as u64, (at % DATA_MAX as u64) as usize);
                if cursor.0 > index {
                    *cursor = (0, *first);
                }
                loop {
                    if cursor.1 == PageId(0) {
                        return Err(Tree::corrupt(*first, "a large value ends early"));
                    }
                    let page = self.pool.read(cursor.1)?;
                    let link = self.link_of(cursor.1, &page, *stamp)?;
                    if cursor.0 < index {
                        *cursor = (cursor.0 + 1, link.next);
                        continue;
                    }
                    let to = link.len.min(within + (end - at) as usize);
                    if to <= within {
                        return Err(Tree::corrupt(cursor.1, "a large value has another length"));
                    }
                    show(&page[DATA_AT + within..DATA_AT + to]);
                    return Ok((to - within) as u64);
                }
            }
        }
        Ok(end - at)
    }
}
