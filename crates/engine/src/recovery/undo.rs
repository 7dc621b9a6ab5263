//! Undo from the log: of transactions that a crash cut off, and of those whose list in memory grew
//! too long.

use std::sync::Arc;

use terrace_page::Lsn;
use terrace_rt::LeafMutex;

use super::Analysis;
use crate::Error;
use crate::change::Change;
use crate::context::{Context, undo_room};
use crate::engine::Engine;
use crate::log::record::{Body, StoredUndo, decode_undo};
use crate::log::{Level, LogReader};

/// What a record tells the undo to do.
pub(super) enum Task {
    /// Go on at this record.
    Skip(Lsn),
    /// Undo it, by key or byte by byte, then go on at the record before.
    Undo { encoded: Vec<u8>, page: terrace_page::PageId, prev: Lsn, room: u64 },
}

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
    let (map, device) = engine.log.place();
    let mut reader = LogReader::for_single_records(&**device, map, engine.log.end());
    let mut at = context.last();
    while at > Lsn::ZERO {
        match task_of(&mut reader, at)? {
            Task::Skip(next) => at = next,
            Task::Undo { encoded, page, prev, .. } => {
                let Some(StoredUndo::Physical(pieces)) = decode_undo(&encoded) else { break };
                context.restore(page, pieces, prev)?;
                at = prev;
            }
        }
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
    let mut at = context.last();
    let mut reader = None;
    while at > stop {
        let held_to = reader.as_ref().map_or(Lsn::ZERO, |(_, end)| *end);
        if at >= held_to {
            // What is undone was written before the undo began; its own records are never read.
            let end = engine.log.end();
            engine.log.force(end, Level::Written)?;
            let (map, device) = engine.log.place();
            reader = Some((LogReader::for_single_records(&**device, map, end), end));
        }
        let (reader, _) = reader.as_mut().expect("just opened");
        match task_of(reader, at)? {
            Task::Skip(next) => at = next,
            Task::Undo { encoded, page, prev, room } => {
                match decode_undo(&encoded) {
                    Some(StoredUndo::Logical(undo)) => context.undo_one(undo, prev, room)?,
                    Some(StoredUndo::Physical(pieces)) => context.restore(page, pieces, prev)?,
                    None => unreachable!("decoded once already"),
                }
                at = prev;
            }
        }
    }
    Ok(())
}

pub(super) fn task_of(reader: &mut LogReader<'_>, at: Lsn) -> Result<Task, Error> {
    let stored = reader.at(at)?;
    let prev = stored.record.prev;
    let next = match stored.record.body {
        Body::Update { undo, .. } if undo.is_none() => prev,
        Body::Update { page, change, undo, undo_bytes, .. } => {
            let room = match (undo, Change::decode(change)) {
                (StoredUndo::Logical(undo), Ok(change)) => undo_room(&change, &undo),
                _ => 0,
            };
            return Ok(Task::Undo { encoded: undo_bytes.to_vec(), page, prev, room });
        }
        Body::Clr { undo_next, .. }
        | Body::Restore { undo_next, .. }
        | Body::NestedEnd { undo_next } => undo_next,
        _ => {
            let what = "a record that no transaction writes stands in its chain";
            return Err(Error::corrupt_log(at, what));
        }
    };
    if next >= at {
        return Err(Error::corrupt_log(at, "a record names a later one as its past"));
    }
    Ok(Task::Skip(next))
}
