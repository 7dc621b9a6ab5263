//! Log records of the restart methods: payloads of `Journal::log_flash`.
//!
//! ```text
//! offset size field
//!      0    1 kind
//!      1      by kind
//!
//! UNLOGGED        page 4: the page changes, or has changed, without a record of its own
//!
//! GIVEN_UP        table 8: nothing that was said of this table before is to be believed
//!
//! of LBR [S3 III-C2], each with the stamp of the cold start at which the table was begun:
//! CHKPT           table 8, slot 4, entries: of this slot and the next ones, at most 64
//! PRE_INVALIDATE  table 8, slot 4
//! POST_WRITE      table 8, slot 4, entry
//! LAZY_CLEANED    table 8, slot 4
//!
//! entry           page 4 (all ones: FREE), state 1 (0 FREE, 1 CLEAN, 2 DIRTY), last 8,
//!                 previous 8 (all ones: none)
//! ```

use terrace_page::{Lsn, PageId};
use terrace_policy::{History, Tick};

use terrace_tier::Image;

/// Most entries in a CHKPT record [S3 III-C2].
pub(super) const CHECKPOINT_ENTRIES: u32 = 64;

const UNLOGGED: u8 = 1;
const CHECKPOINT: u8 = 2;
const PRE_INVALIDATE: u8 = 3;
const POST_WRITE: u8 = 4;
const LAZY_CLEANED: u8 = 5;
const GIVEN_UP: u8 = 6;

const ENTRY_BYTES: usize = 21;
const FREE: u8 = 0;
const CLEAN: u8 = 1;
const DIRTY: u8 = 2;
const NO_PAGE: u32 = u32::MAX;
const NO_TICK: u64 = u64::MAX;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TierRecord {
    /// A page changes without a record of its own: every copy made before is old.
    Unlogged { page: PageId },
    /// Of the table that was begun at `table`, what was said so far is not to be believed: it could
    /// not be kept up to date.
    GivenUp { table: u64 },
    /// Something about slots of the table that was begun at `table`.
    Slots { table: u64, slot: u32, what: What },
}

/// What a record of LBR says of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// What it and its successors hold, at a checkpoint. Copies newer than home get their recLSN
    /// from analysis.
    Checkpoint(Vec<Option<Image>>),
    /// It is about to be overwritten.
    PreInvalidate,
    /// It was written.
    PostWrite(Image),
    /// Home has its page too.
    LazyCleaned,
}

impl TierRecord {
    pub fn encode(&self) -> Vec<u8> {
        let (table, slot, what) = match self {
            TierRecord::Unlogged { page } => {
                let mut bytes = vec![UNLOGGED];
                bytes.extend_from_slice(&(page.0 as u32).to_le_bytes());
                return bytes;
            }
            TierRecord::GivenUp { table } => {
                let mut bytes = vec![GIVEN_UP];
                bytes.extend_from_slice(&table.to_le_bytes());
                return bytes;
            }
            TierRecord::Slots { table, slot, what } => (table, slot, what),
        };
        let (kind, entries): (u8, &[Option<Image>]) = match what {
            What::Checkpoint(images) => (CHECKPOINT, images),
            What::PreInvalidate => (PRE_INVALIDATE, &[]),
            What::PostWrite(image) => (POST_WRITE, &[Some(*image)]),
            What::LazyCleaned => (LAZY_CLEANED, &[]),
        };
        let mut bytes = Vec::with_capacity(13 + entries.len() * ENTRY_BYTES);
        bytes.push(kind);
        bytes.extend_from_slice(&table.to_le_bytes());
        bytes.extend_from_slice(&slot.to_le_bytes());
        for image in entries {
            bytes.extend_from_slice(&encode_entry(image.as_ref()));
        }
        bytes
    }

    /// The record in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<TierRecord> {
        let (&kind, rest) = bytes.split_first()?;
        if kind == UNLOGGED {
            let page = u32::from_le_bytes(rest.try_into().ok()?);
            return Some(TierRecord::Unlogged { page: PageId(u64::from(page)) });
        }
        if kind == GIVEN_UP {
            return Some(TierRecord::GivenUp { table: u64::from_le_bytes(rest.try_into().ok()?) });
        }
        let (table, rest) = rest.split_first_chunk()?;
        let (slot, rest) = rest.split_first_chunk()?;
        let (entries, rest) = rest.as_chunks::<ENTRY_BYTES>();
        let what = match (kind, entries) {
            _ if !rest.is_empty() => return None,
            (CHECKPOINT, entries) if entries.len() <= CHECKPOINT_ENTRIES as usize => {
                What::Checkpoint(entries.iter().map(decode_entry).collect::<Option<_>>()?)
            }
            (POST_WRITE, [entry]) => What::PostWrite(decode_entry(entry)??),
            (PRE_INVALIDATE, []) => What::PreInvalidate,
            (LAZY_CLEANED, []) => What::LazyCleaned,
            _ => return None,
        };
        let (table, slot) = (u64::from_le_bytes(*table), u32::from_le_bytes(*slot));
        Some(TierRecord::Slots { table, slot, what })
    }
}

fn encode_entry(image: Option<&Image>) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    let page = image.map_or(NO_PAGE, |image| image.page.0 as u32);
    entry[..4].copy_from_slice(&page.to_le_bytes());
    if let Some(image) = image {
        entry[4] = if image.newer.is_some() { DIRTY } else { CLEAN };
        let previous = image.history.previous.map_or(NO_TICK, |tick| tick.0);
        entry[5..13].copy_from_slice(&image.history.last.0.to_le_bytes());
        entry[13..].copy_from_slice(&previous.to_le_bytes());
    }
    entry
}

/// The entry, or `None` if it is none.
fn decode_entry(entry: &[u8; ENTRY_BYTES]) -> Option<Option<Image>> {
    let page = u32::from_le_bytes(entry[..4].try_into().expect("four"));
    let u64_at = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight"));
    let newer = match (entry[4], page) {
        (FREE, NO_PAGE) => return Some(None),
        (_, NO_PAGE) => return None,
        (CLEAN, _) => None,
        (DIRTY, _) => Some(Lsn::ZERO),
        _ => return None,
    };
    let previous = (u64_at(13) != NO_TICK).then_some(Tick(u64_at(13)));
    let history = History { last: Tick(u64_at(5)), previous };
    Some(Some(Image { page: PageId(u64::from(page)), lsn: None, newer, history }))
}

/// The record of a page that changes without one.
#[must_use]
pub fn unlogged(page: PageId) -> Vec<u8> {
    TierRecord::Unlogged { page }.encode()
}

/// Decodes whatever is there; for fuzzing.
pub(super) fn fuzz(bytes: &[u8]) {
    if let Some(record) = TierRecord::decode(bytes) {
        assert_eq!(TierRecord::decode(&record.encode()), Some(record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    fn some_image(prng: &mut Prng) -> Image {
        let previous = prng.chance(2).then(|| Tick(prng.below(1 << 50)));
        Image {
            page: PageId(prng.below(u64::from(NO_PAGE))),
            lsn: None,
            newer: prng.chance(3).then_some(Lsn::ZERO),
            history: History { last: Tick(prng.below(1 << 50)), previous },
        }
    }

    fn some_record(prng: &mut Prng) -> TierRecord {
        let what = match prng.below(6) {
            5 => return TierRecord::GivenUp { table: prng.next_u64() },
            0 => return TierRecord::Unlogged { page: PageId(prng.below(1 << 32)) },
            1 => What::PreInvalidate,
            2 => What::PostWrite(some_image(prng)),
            3 => What::LazyCleaned,
            _ => {
                let count = prng.below(u64::from(CHECKPOINT_ENTRIES) + 1);
                let image = |_| (!prng.chance(3)).then(|| some_image(prng));
                What::Checkpoint((0..count).map(image).collect())
            }
        };
        TierRecord::Slots { table: prng.next_u64(), slot: prng.next_u64() as u32, what }
    }

    #[test]
    fn a_record_survives_and_a_shorter_one_is_none_of_its_kind() {
        let mut prng = Prng::from_seed(1);
        for _ in 0..2_000 {
            let record = some_record(&mut prng);
            let bytes = record.encode();
            assert_eq!(TierRecord::decode(&bytes), Some(record.clone()));
            let cut = prng.below(bytes.len() as u64) as usize;
            assert_ne!(TierRecord::decode(&bytes[..cut]), Some(record));
        }
    }

    #[test]
    fn garbage_is_survived() {
        let mut prng = Prng::from_seed(2);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..prng.below(80)).map(|_| prng.next_u64() as u8).collect();
            if let Some(kind) = bytes.first_mut() {
                *kind %= 7;
            }
            fuzz(&bytes);
        }
    }
}
