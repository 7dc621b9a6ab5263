//! Changes of transactions that a crash cut off, taken back as rows are read, and nowhere else: how
//! a database is saved that cannot roll them back.
//!
//! - N1: no two of these transactions changed the same row, since each had it locked. So the undos
//!   of one row are those of one transaction, and are applied newest first.
//! - N2: the row is where its tree has the key, as a ghost if it was removed: nothing purges it
//!   while the transaction has not ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace_page::{Lsn, TxnId};

use crate::btree::restored;
use crate::context::{Context, Past};
use crate::log::Level;
use crate::log::record::{StoredUndo, decode_undo};
use crate::writer::Undo;
use crate::{Error, TreeId};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NotUndone {
    transactions: Vec<TxnId>,
    /// By row, the encoded undos of its changes, newest first.
    undos: BTreeMap<(TreeId, Vec<u8>), Vec<Vec<u8>>>,
}

impl NotUndone {
    /// The changes of `losers`, whose nested actions are undone, as the log has them. Nothing of
    /// them is rolled back.
    ///
    /// # Errors
    ///
    /// Those of the log.
    pub(crate) fn of(losers: Vec<Context>) -> Result<NotUndone, Error> {
        let mut found = NotUndone::default();
        let mut told = Ok(());
        for loser in losers {
            told = told.and_then(|()| found.add(&loser));
            loser.leave();
        }
        told.map(|()| found)
    }

    fn add(&mut self, loser: &Context) -> Result<(), Error> {
        let engine = Arc::clone(loser.engine());
        let end = engine.log.end();
        engine.log.force(end, Level::Written)?;
        self.transactions.push(loser.number());
        let mut past = Past::new(&engine.log, loser.last(), end);
        while let Some(record) = past.next_after(Lsn::ZERO)? {
            let StoredUndo::Logical(undo) = record.undo() else {
                let what = "a nested action is to be undone that was undone before";
                return Err(Error::corrupt_log(record.lsn, what));
            };
            if let Some(row) = row_of(&undo) {
                self.undos.entry(row).or_default().push(record.encoded);
            }
        }
        Ok(())
    }

    /// The transactions.
    pub(crate) fn transactions(&self) -> &[TxnId] {
        &self.transactions
    }

    /// How many rows they changed.
    pub(crate) fn rows(&self) -> u64 {
        self.undos.len() as u64
    }

    /// What stood in the place of `record`, flags first, before these transactions changed it:
    /// `None` if that is not known.
    pub(crate) fn before(&self, tree: TreeId, key: &[u8], record: Vec<u8>) -> Option<Vec<u8>> {
        let Some(undos) = self.undos.get(&(tree, key.to_vec())) else { return Some(record) };
        undos.iter().try_fold(record, |record, undo| match decode_undo(undo) {
            Some(StoredUndo::Logical(undo)) => restored(&record, &undo),
            _ => None,
        })
    }
}

fn row_of(undo: &Undo<'_>) -> Option<(TreeId, Vec<u8>)> {
    match *undo {
        Undo::None => None,
        Undo::Insert { tree, key }
        | Undo::Delete { tree, key, .. }
        | Undo::Update { tree, key, .. } => Some((tree, key.to_vec())),
    }
}
