//! Entry points for fuzzing: whatever a device holds, opening and using an index ends with answers
//! or with an error.
//!
//! Random bytes fail a checksum at once. So a small index is made, its bytes are changed where the
//! input says, and checksums are made to fit: what is left are the checks behind them.
//!
//! ```text
//!   input:  structure 1 | edits of 5 bytes: where 1, sector 1, offset 2, byte 1
//!           where:  0 superblock   1 journal   else pages
//! ```

use std::sync::Arc;

use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep as KeepBytes, Store, read, write};
use terrace_rt::{Virtual, VirtualConfig};

use crate::entry::{Key, Op, Pointer};
use crate::journal::{self, Replay};
use crate::page::{Page, PageNo};
use crate::pages::{Devices, Keep, Room};
use crate::superblock::{self, Kind, first_page};
use crate::{
    BTree, BTreeOptions, Bftl, BftlOptions, Error, FdOptions, FdTree, Fill, Index, LeafRead,
    PioOptions, PioTree,
};

const PAGE_BYTES: usize = 512;
const PAGES_BYTES: u64 = 256 << 10;
const JOURNAL_BYTES: u64 = 64 << 10;
const ENTRIES: Key = 600;
/// Edits that are made at most.
const EDITS_MAX: usize = 64;
const EDIT_BYTES: usize = 5;

/// Records of a journal's chunk.
pub fn journal(bytes: &[u8]) {
    let _taken = Replay::default().take(bytes, PAGE_BYTES);
}

/// A superblock, and a device of that length.
pub fn superblock(bytes: &[u8]) {
    let slot = superblock::fitting(bytes);
    let run = || {
        let devices = devices();
        write(&*devices.pages, 0, &slot).expect("a device without faults");
        Kind::ALL.into_iter().for_each(|kind| drop(open(kind, devices.clone()).map(use_it)));
    };
    world().run(run).expect("nothing stops it");
}

/// An index with edits.
pub fn index(bytes: &[u8]) {
    let Some((structure, edits)) = bytes.split_first() else { return };
    let kind = Kind::ALL[usize::from(*structure) % Kind::ALL.len()];
    let run = || {
        let devices = devices();
        let journal = devices.journal.clone().expect("it was made with one");
        made(kind, devices.clone()).expect("a device without faults");
        for edit in edits.chunks_exact(EDIT_BYTES).take(EDITS_MAX) {
            let offset = usize::from(u16::from_le_bytes([edit[2], edit[3]]));
            let sector = u64::from(edit[1]);
            match edit[0] {
                0 => edit_superblock(&*devices.pages, offset, edit[4]),
                1 => edit_journal(&*journal, sector, offset, edit[4]),
                _ => edit_page(&*devices.pages, sector, offset, edit[4]),
            }
        }
        if let Ok(index) = open(kind, devices) {
            use_it(index);
        }
    };
    world().run(run).expect("nothing stops it");
}

fn world() -> Virtual {
    Virtual::new(VirtualConfig::default())
}

/// Devices of a fixed length: a number that is read must not make them grow.
fn devices() -> Devices {
    let device = |bytes| {
        let spec = Preset::Sigmod2011Hdd.spec();
        let store = Store::new(bytes, KeepBytes::Plain);
        SimDevice::new(spec, terrace_rt::World::current(), store) as Arc<dyn Device>
    };
    Devices { pages: device(PAGES_BYTES), journal: Some(device(JOURNAL_BYTES)) }
}

fn room() -> Room {
    Room { page_bytes: PAGE_BYTES, memory_pages: 8, pio_max: 4, search_pages: 40 }
}

fn btree() -> BTreeOptions {
    BTreeOptions { room: room(), keep_leaves: Keep::Lru, fill: Fill(0.7) }
}

fn pio() -> PioOptions {
    PioOptions {
        room: room(),
        queue_pages: 1,
        sort_every: 10,
        batch_ops: 20,
        segments: 4,
        leaf_read: LeafRead::Segment { operations: 1 },
        keep_leaves: Keep::Not,
        fill: Fill(0.7),
    }
}

fn fd() -> FdOptions {
    FdOptions { room: room(), head_pages: 1, ratio: 3, keep_leaves: Keep::Not }
}

fn bftl() -> BftlOptions {
    BftlOptions { room: room(), buffer_units: 12, list_max: 3, fill: Fill(0.7) }
}

/// Loads, changes and leaves an index with operations in its journal.
fn made(kind: Kind, devices: Devices) -> Result<(), Error> {
    let source: Vec<(Key, Pointer)> = (0..ENTRIES).map(|at| (2 * at, at)).collect();
    let source = Arc::new(source);
    let mut index: Box<dyn Index> = match kind {
        Kind::BTree => Box::new(BTree::load(devices, source, btree())?),
        Kind::Pio => Box::new(PioTree::load(devices, source, pio())?),
        Kind::Fd => Box::new(FdTree::load(devices, source, fd())?),
        Kind::Bftl => Box::new(Bftl::load(devices, source, bftl())?),
    };
    for step in 0..150 {
        change(&mut *index, step)?;
        if step == 120 {
            index.flush()?;
        }
    }
    index.commit()
}

fn change(index: &mut dyn Index, step: u32) -> Result<(), Error> {
    let key = step.wrapping_mul(7_919) % (2 * ENTRIES);
    index.apply(if step.is_multiple_of(4) { Op::remove(key) } else { Op::insert(key, step) })
}

fn open(kind: Kind, devices: Devices) -> Result<Box<dyn Index>, Error> {
    Ok(match kind {
        Kind::BTree => Box::new(BTree::open(devices, btree())?),
        Kind::Pio => Box::new(PioTree::open(devices, pio())?),
        Kind::Fd => Box::new(FdTree::open(devices, fd())?),
        Kind::Bftl => Box::new(Bftl::open(devices, bftl())?),
    })
}

/// All that an index can be asked; what it answers is of no account.
fn use_it(mut index: Box<dyn Index>) {
    let keys: Vec<Key> = (0..2 * ENTRIES).step_by(13).collect();
    let _found: Vec<_> = keys.iter().map(|key| index.get(*key)).collect();
    let _found = index.get_many(&keys);
    let _found = index.range(300..500);
    for step in 0..60 {
        if change(&mut *index, 1_000 + step).is_err() {
            break;
        }
    }
    let _flushed = index.flush();
    let _found = index.range(0..Key::MAX);
}

fn edit_superblock(device: &dyn Device, offset: usize, byte: u8) {
    let mut slots = vec![0; superblock::SLOTS_BYTES];
    if read(device, 0, &mut slots).is_err() {
        return;
    }
    for slot in slots.chunks_mut(superblock::SLOTS_BYTES / 2) {
        let len = slot.len();
        slot[offset % len] = byte;
        slot.copy_from_slice(&superblock::fitting(slot));
    }
    write(device, 0, &slots).expect("a device without faults");
}

fn edit_journal(device: &dyn Device, chunk: u64, offset: usize, byte: u8) {
    let mut bytes = vec![0; JOURNAL_BYTES as usize];
    if read(device, 0, &mut bytes).is_err() {
        return;
    }
    journal::edit(&mut bytes, chunk as usize % 8, offset, byte);
    write(device, 0, &bytes).expect("a device without faults");
}

fn edit_page(device: &dyn Device, sector: u64, offset: usize, byte: u8) {
    let first = u64::from(first_page(PAGE_BYTES));
    let no = first + sector % (PAGES_BYTES / PAGE_BYTES as u64 - first);
    let mut page = Page::blank(PAGE_BYTES);
    if read(device, no * PAGE_BYTES as u64, page.bytes_mut()).is_err() {
        return;
    }
    page.bytes_mut()[offset % PAGE_BYTES] = byte;
    page.seal(no as PageNo);
    write(device, no * PAGE_BYTES as u64, page.bytes()).expect("a device without faults");
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    /// A small dose of what `fuzz/` does for hours.
    #[test]
    fn damaged_devices_are_survived() {
        let mut prng = Prng::from_seed(11);
        for round in 0..200_u32 {
            let mut bytes = vec![round as u8];
            for _ in 0..1 + prng.below(8) {
                let place = if prng.chance(4) { prng.below(2) as u8 } else { 2 };
                // Headers and the first entries more often than the rest.
                let offset = if prng.chance(2) { prng.below(80) } else { prng.below(512) } as u16;
                let byte = [0, 1, 2, 3, 5, 16, 128, 255, prng.below(256) as u8];
                let byte = byte[prng.below(9) as usize];
                bytes.extend([place, prng.below(100) as u8]);
                bytes.extend(offset.to_le_bytes());
                bytes.push(byte);
            }
            super::index(&bytes);
        }
    }

    #[test]
    fn random_superblocks_and_journals_are_survived() {
        let mut prng = Prng::from_seed(12);
        for _ in 0..300 {
            let mut bytes = vec![0; prng.below(700) as usize];
            let dense = prng.chance(2);
            for byte in &mut bytes {
                *byte = if dense || prng.chance(9) { prng.next_u64() as u8 } else { 0 };
            }
            for tag in bytes.iter_mut().step_by(10) {
                *tag = 1 + prng.below(3) as u8;
            }
            super::journal(&bytes);
            if let Some(kind) = bytes.get_mut(12) {
                *kind = 1 + prng.below(4) as u8;
            }
            super::superblock(&bytes);
        }
    }
}
