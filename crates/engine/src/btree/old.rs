//! How the undo of an update is stored, and what it makes of a record: a tag, then what it takes to
//! put the old record back.

use super::node::GHOST;
use crate::change::Change;
use crate::writer::Undo;

/// Flags and value follow.
pub(crate) const WHOLE: u8 = 0;
/// 2 at, 2 length of the bytes there now, the bytes that were there.
pub(crate) const PATCH: u8 = 1;

/// What `undo` puts in the place of `record`, flags first both; `None` if they do not fit.
pub(crate) fn restored(record: &[u8], undo: &Undo<'_>) -> Option<Vec<u8>> {
    let (&flags, value) = record.split_first()?;
    Some(match *undo {
        Undo::None => record.to_vec(),
        Undo::Insert { .. } => [&[flags | GHOST], value].concat(),
        Undo::Delete { .. } => [&[flags & !GHOST], value].concat(),
        Undo::Update { old, .. } => match restoring(0, (flags, value), old)?.0 {
            Change::LeafReplace { record, .. } => record.to_vec(),
            Change::LeafPatch { at, cut, bytes, .. } => {
                let front = value.get(..usize::from(at))?;
                let rest = value.get(usize::from(at) + usize::from(cut)..)?;
                [&[flags], front, bytes, rest].concat()
            }
            _ => return None,
        },
    })
}

/// The change that puts an old record back, and that record's length, flags included.
pub(super) fn restoring<'o>(
    slot: usize,
    (_, value): (u8, &[u8]),
    old: &'o [u8],
) -> Option<(Change<'o>, usize)> {
    let slot = slot as u16;
    match old {
        [WHOLE, record @ ..] if !record.is_empty() => {
            Some((Change::LeafReplace { slot, record }, record.len()))
        }
        [PATCH, a, b, c, d, bytes @ ..] => {
            let at = u16::from_le_bytes([*a, *b]);
            let cut = u16::from_le_bytes([*c, *d]);
            let rest = value.len().checked_sub(usize::from(at) + usize::from(cut))?;
            let len = 1 + usize::from(at) + bytes.len() + rest;
            Some((Change::LeafPatch { slot, at, cut, bytes }, len))
        }
        _ => None,
    }
}
