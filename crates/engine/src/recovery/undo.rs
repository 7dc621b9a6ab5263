//! Undo of the transactions that a crash cut off.

use std::sync::Arc;

use terrace_page::Lsn;
use terrace_rt::LeafMutex;

use super::Analysis;
use crate::Error;
use crate::context::{Context, Past};
use crate::engine::Engine;
use crate::log::record::StoredUndo;

/// Resumes every transaction that had not ended, and undoes their nested actions that had not
/// ended: byte by byte, so that every tree is whole before anything is undone by key.
///
/// # Errors
///
/// Those of the pool and the log.
pub(crate) fn resume_losers(
    engine: &Arc<Engine>,
    analysis: &Analysis,
) -> Result<Vec<Context>, Error> {
    // All are registered first: a checkpoint taken meanwhile must know of each.
    let mut losers: Vec<Context> = analysis
        .losers
        .iter()
        .map(|(&txn, &(first, last))| Context::resume(engine, txn, first, last))
        .collect();
    for loser in &mut losers {
        undo_open_nested(loser)?;
    }
    Ok(losers)
}

/// Losers rolled back at a time: as deep a queue as the disks can use.
const UNDOS_MAX: usize = 16;

/// Rolls back what `resume_losers` resumed, side by side: trees are whole by then, and no two of
/// them changed the same row. A lock goes no earlier than its owner's COMMIT is in the log, before
/// any change by the next owner: if that one is a loser, the first is none. What one waits for on a
/// device does not hold up another.
///
/// # Errors
///
/// Those of the pool and the log; after one no other loser is begun.
pub(crate) fn undo_losers(losers: Vec<Context>) -> Result<(), Error> {
    let tasks = losers.len().min(UNDOS_MAX);
    let losers = Arc::new(LeafMutex::new(losers));
    let failed: Arc<LeafMutex<Option<Error>>> = Arc::default();
    let undo = |_| {
        let (losers, failed) = (Arc::clone(&losers), Arc::clone(&failed));
        terrace_rt::spawn("undo", move || {
            while failed.lock().is_none() {
                let Some(mut loser) = losers.lock().pop() else { return };
                if let Err(error) = loser.rollback() {
                    failed.lock().get_or_insert(error);
                }
            }
        })
    };
    let tasks: Vec<_> = (0..tasks).map(undo).collect();
    tasks.into_iter().for_each(terrace_rt::Task::join);
    let failed = failed.lock().take();
    failed.map_or(Ok(()), Err)
}

/// Undoes the newest records of `context` as long as they belong to nested actions that never
/// ended: those with an undo of bytes. The walk stops at the first record undone by key.
fn undo_open_nested(context: &mut Context) -> Result<(), Error> {
    let engine = Arc::clone(context.engine());
    let mut past = Past::new(&engine.log, context.last(), engine.log.end());
    while let Some(record) = past.next_after(Lsn::ZERO)? {
        let StoredUndo::Physical(pieces) = record.undo() else { break };
        context.restore(record.page, pieces, record.prev)?;
    }
    Ok(())
}
