//! Undo from the log: of transactions that a crash cut off, and of those whose list in memory grew
//! too long.

use std::sync::Arc;

use terrace_page::Lsn;

use super::Analysis;
use crate::Error;
use crate::context::Context;
use crate::engine::Engine;
use crate::log::record::{Body, StoredUndo};
use crate::log::{Level, LogReader};

/// What a record tells the undo to do.
enum Task {
    /// Go on at this record.
    Skip(Lsn),
    /// Undo it, by key or byte by byte, then go on at the record before.
    Undo { encoded: Vec<u8>, page: terrace_page::PageId, prev: Lsn },
}

/// Rolls back every transaction that had not ended, the newest first.
///
/// # Errors
///
/// Those of the pool and the log.
pub(crate) fn undo_losers(engine: &Arc<Engine>, analysis: &Analysis) -> Result<(), Error> {
    // All are registered first: a checkpoint taken meanwhile must know of each.
    let mut losers: Vec<Context> = analysis
        .losers
        .iter()
        .map(|(&txn, &(first, last))| Context::resume(engine, txn, first, last))
        .collect();
    while let Some(mut loser) = losers.pop() {
        loser.rollback()?;
    }
    Ok(())
}

/// Undoes the records of `context` after `stop`, newest first, as the log has them.
///
/// # Errors
///
/// Those of the pool and the log.
pub(crate) fn undo_from_log(context: &mut Context, stop: Lsn) -> Result<(), Error> {
    let engine = Arc::clone(context.engine());
    let (ring, device) = engine.log.place();
    let mut at = context.last();
    let mut reader = None;
    while at > stop {
        let held_to = reader.as_ref().map_or(Lsn::ZERO, |(_, end)| *end);
        if at >= held_to {
            // What is undone was written before the undo began; its own records are never read.
            let end = engine.log.end();
            engine.log.force(end, Level::Written)?;
            reader = Some((LogReader::for_single_records(&**device, ring, end), end));
        }
        let (reader, _) = reader.as_mut().expect("just opened");
        match task_of(reader, at)? {
            Task::Skip(next) => at = next,
            Task::Undo { encoded, page, prev } => {
                match crate::log::record::decode_undo(&encoded) {
                    Some(StoredUndo::Logical(undo)) => context.undo_one(undo, prev)?,
                    Some(StoredUndo::Physical(pieces)) => context.restore(page, pieces, prev)?,
                    None => unreachable!("decoded once already"),
                }
                at = prev;
            }
        }
    }
    Ok(())
}

fn task_of(reader: &mut LogReader<'_>, at: Lsn) -> Result<Task, Error> {
    let stored = reader.at(at)?;
    let prev = stored.record.prev;
    let next = match stored.record.body {
        Body::Update { page, undo, undo_bytes, .. } => {
            if undo.is_none() {
                prev
            } else {
                return Ok(Task::Undo { encoded: undo_bytes.to_vec(), page, prev });
            }
        }
        Body::Clr { undo_next, .. }
        | Body::Restore { undo_next, .. }
        | Body::NestedEnd { undo_next } => undo_next,
        _ => {
            let what = "a record that no transaction writes stands in its chain";
            return Err(Error::CorruptLog { lsn: at, what });
        }
    };
    if next >= at {
        return Err(Error::CorruptLog { lsn: at, what: "a record names a later one as its past" });
    }
    Ok(Task::Skip(next))
}
