//! What an opening finds in a doublewrite area, and home made whole with it (`doublewrite.D3` to
//! `D7`).

use std::collections::BTreeMap;
use std::io;

use terrace_device::{Device, Operation};
use terrace_page::{Lsn, PAGE_SIZE, PageId, lsn, verify};

use super::{
    BLOCK, CHECKSUM_AT, COUNT_AT, DATABASE_AT, DoublewritePlace, ENTRIES_AT, ENTRIES_MAX,
    ENTRY_BYTES, EPOCH_AT, GENERATION_AT, HALVES, MAGIC, SEQUENCE_AT, checksum,
};
use crate::io::{PageIo, run};
use crate::memory::frames::Staging;

/// Home pages looked at together when an area is restored.
const LOOK_PAGES: usize = 64;

/// Which device failed while torn pages were made good.
#[derive(Debug)]
pub enum RestoreError {
    /// The log's, which has the copies, could not be read.
    Log(io::Error),
    /// Home could not be written or synced.
    Home(Operation, io::Error),
}

/// A batch as found on the device.
struct Found<'a> {
    /// `doublewrite.D3` and `doublewrite.D4`: epoch, generation, sequence.
    age: (u32, u64, u64),
    entries: &'a [u8],
    /// Its pages.
    at: u64,
}

fn decode<'a>(block: &'a [u8], at: u64, database: u128) -> Option<Found<'a>> {
    let array = |at: usize| -> [u8; 8] { block[at..at + 8].try_into().expect("eight bytes") };
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
    let is_ours = block[..8] == MAGIC
        && word(CHECKSUM_AT) == checksum(block)
        && block[DATABASE_AT..COUNT_AT] == database.to_le_bytes();
    let count = word(COUNT_AT) as usize;
    (is_ours && count <= ENTRIES_MAX).then(|| Found {
        age: (
            word(EPOCH_AT),
            u64::from_le_bytes(array(GENERATION_AT)),
            u64::from_le_bytes(array(SEQUENCE_AT)),
        ),
        entries: &block[ENTRIES_AT..ENTRIES_AT + count * ENTRY_BYTES],
        at: at + BLOCK,
    })
}

/// A copy that counts.
#[derive(Clone, Copy)]
struct Copy {
    sequence: u64,
    lsn: Lsn,
    crc: u32,
    at: u64,
}

/// What `restore_torn` found.
#[derive(Debug, PartialEq, Eq)]
pub struct Restored {
    /// The pages that were torn, and are whole now.
    pub pages: Vec<PageId>,
    /// Copies that the log does not reach: `Doublewrite::disown` them before it grows
    /// (`doublewrite.D6`).
    pub ahead: Ahead,
}

/// Where the headers of batches are that have copies which the log does not reach.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ahead(pub(super) Vec<u64>);

impl Ahead {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Overwrites each page that a power cut `may_have_torn`, and that `home` does not have whole, with
/// its newest whole copy in the area that the log, which ends at `end`, reaches, and syncs home if
/// it did. Call it before home is read for redo.
///
/// # Errors
///
/// Those of the devices.
pub fn restore_torn(
    device: &dyn Device,
    home: &dyn Device,
    place: DoublewritePlace,
    (database, end): (u128, Lsn),
    may_have_torn: &dyn Fn(PageId) -> bool,
) -> Result<Restored, RestoreError> {
    let (copies, ahead) = copies(device, place, database, end).map_err(RestoreError::Log)?;
    let home_pages = home.len() / PAGE_SIZE as u64;
    let is_wanted = |page: &PageId| page.0 < home_pages && may_have_torn(*page);
    let pages: Vec<PageId> = copies.keys().copied().filter(is_wanted).collect();
    let mut torn = Vec::new();
    for batch in pages.chunks(LOOK_PAGES) {
        let versions = crate::home_versions(home, batch);
        let damaged = batch.iter().zip(versions).filter(|(_, version)| version.is_none());
        torn.extend(damaged.map(|(&page, _)| page));
    }
    let mut staging = Staging::new(1);
    let mut restored = Vec::new();
    for page in torn {
        for copy in &copies[&page] {
            let bytes = &mut staging.pages_mut()[0];
            let read = run(device, vec![PageIo::read_from(copy.at, [&mut *bytes])]);
            read.map_err(RestoreError::Log)?;
            let is_copy = crc32c::crc32c(&bytes[..]) == copy.crc
                && verify(bytes, page).is_ok()
                && lsn(bytes) == copy.lsn;
            // One that is not whole was not durable: its home write had not begun, and the write
            // that was torn is that of the copy before.
            if is_copy {
                run(home, vec![PageIo::write(page.0, [&staging.pages()[0]])])
                    .map_err(|source| RestoreError::Home(Operation::Write, source))?;
                restored.push(page);
                break;
            }
        }
    }
    if !restored.is_empty() {
        home.sync().map_err(|source| RestoreError::Home(Operation::Sync, source))?;
    }
    Ok(Restored { pages: restored, ahead })
}

/// The copies of each page that count and that the log reaches, the newest first; and the batches
/// with copies which it does not reach, whether they count or not.
fn copies(
    device: &dyn Device,
    place: DoublewritePlace,
    database: u128,
    end: Lsn,
) -> io::Result<(BTreeMap<PageId, Vec<Copy>>, Ahead)> {
    let pages = (HALVES as u64 * place.half_bytes / PAGE_SIZE as u64) as usize;
    let mut staging = Staging::new(pages);
    let io = PageIo::read_from(place.at, staging.pages_mut().iter_mut());
    run(device, vec![io])?;
    let blocks = staging.pages().iter().flat_map(|page| page.chunks_exact(BLOCK as usize));
    let found: Vec<Found<'_>> = (0..)
        .map(|index| place.at + index * BLOCK)
        .zip(blocks)
        .filter_map(|(at, block)| decode(block, at, database))
        .collect();
    let newest = found.iter().map(|batch| (batch.age.0, batch.age.1)).max().unwrap_or_default();
    let mut copies: BTreeMap<PageId, Vec<Copy>> = BTreeMap::new();
    let mut ahead = Ahead::default();
    for batch in found {
        let (epoch, generation, sequence) = batch.age;
        let counts = epoch == newest.0 && generation.saturating_add(1) >= newest.1;
        let mut is_ahead = false;
        for (index, entry) in batch.entries.as_chunks::<ENTRY_BYTES>().0.iter().enumerate() {
            let number = |at: usize| -> u64 {
                u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"))
            };
            let (page, lsn) = (PageId(number(0)), Lsn(number(8)));
            let crc = u32::from_le_bytes(entry[16..].try_into().expect("four bytes"));
            let at = batch.at + (index * PAGE_SIZE) as u64;
            let is_inside = at + PAGE_SIZE as u64 <= place.at + HALVES as u64 * place.half_bytes;
            let copy = Copy { sequence, lsn, crc, at };
            is_ahead |= lsn >= end;
            if counts && is_inside && lsn < end {
                copies.entry(page).or_default().push(copy);
            }
        }
        if is_ahead {
            ahead.0.push(batch.at - BLOCK);
        }
    }
    for of_page in copies.values_mut() {
        of_page.sort_unstable_by_key(|copy| std::cmp::Reverse(copy.sequence));
    }
    Ok((copies, ahead))
}
