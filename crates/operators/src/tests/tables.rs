//! Random tables, in memory and on a device.

use std::sync::Arc;

use terrace_device::model::{Faults, Preset, SimDevice};
use terrace_device::{Device, Keep, Store, write};
use terrace_rt::{Prng, World};

use crate::{Attribute, Fields, Input, PageNo, Plan, Projection, Rid, RowPages, Spill, Table};

/// A row of the tables: null or not, a key, a number of its own.
const ROW_BYTES: u16 = 17;

/// What the keys of a table are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// No row at all.
    None,
    /// Few doubles.
    Spread,
    /// Half of the rows have one of three keys.
    Skewed,
    /// All rows have the same.
    Equal,
    /// A third is null.
    Nulls,
}

impl Keys {
    pub(super) const ALL: [Keys; 5] =
        [Keys::None, Keys::Spread, Keys::Skewed, Keys::Equal, Keys::Nulls];

    fn draw(self, prng: &mut Prng, span: u64) -> Option<i64> {
        let key = prng.below(span) as i64 - span as i64 / 2;
        match self {
            Keys::None | Keys::Spread => Some(key),
            Keys::Skewed => Some(if prng.chance(2) { key % 2 } else { key }),
            Keys::Equal => Some(7),
            Keys::Nulls => (!prng.chance(3)).then_some(key),
        }
    }
}

/// A row as a model has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) key: Option<i64>,
    pub(super) rid: Rid,
    pub(super) id: u64,
}

/// A table and its rows.
pub(super) struct Made {
    pub(super) input: Input,
    pub(super) rows: Vec<Row>,
}

pub(super) fn key(row: &[u8]) -> Option<i64> {
    let bytes: [u8; 8] = row[1..9].try_into().expect("eight bytes");
    (row[0] == 0).then_some(i64::from_le_bytes(bytes))
}

pub(super) fn id(row: &[u8]) -> u64 {
    u64::from_le_bytes(row[9..17].try_into().expect("eight bytes"))
}

/// A device of a preset with `len` bytes, in the current world.
pub(super) fn device(preset: Preset, len: u64, faults: Faults) -> Arc<SimDevice> {
    let store = Store::new(len, Keep::Plain);
    SimDevice::with_faults(preset.spec(), World::current(), store, faults)
}

/// What is drawn of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) keys: Keys,
    pub(super) rows: u64,
    /// Different keys, about.
    pub(super) span: u64,
    pub(super) page_bytes: u16,
}

/// Writes page `page` of `rows` to a device.
pub(super) fn put(
    device: &dyn Device,
    pages: RowPages,
    (first_byte, page, version): (u64, PageNo, u64),
    rows: &[Row],
) {
    let page_bytes = crate::Pages::page_bytes(&pages);
    let mut bytes = vec![0; page_bytes];
    pages.fill(page, version, rows.len() as u16, &mut bytes, |slot, out| {
        let row = rows[usize::from(slot)];
        out[0] = u8::from(row.key.is_none());
        out[1..9].copy_from_slice(&row.key.unwrap_or_default().to_le_bytes());
        out[9..17].copy_from_slice(&row.id.to_le_bytes());
    });
    write(device, first_byte + u64::from(page) * page_bytes as u64, &bytes).expect("it writes");
}

/// Makes a table from `first_byte` on; pages are filled at random, some not at all.
pub(super) fn make(device: &Arc<dyn Device>, first_byte: u64, wish: Wish, prng: &mut Prng) -> Made {
    let pages = RowPages::new(wish.page_bytes, ROW_BYTES).expect("whole sectors");
    let count = if wish.keys == Keys::None { 0 } else { wish.rows };
    let (mut rows, mut page) = (Vec::new(), 0);
    while (rows.len() as u64) < count {
        let most = u64::from(crate::Pages::rows_max(&pages)).min(count - rows.len() as u64);
        let here = prng.below(most + 1) as u16;
        let id = rows.len() as u64;
        let row = |slot: u16, prng: &mut Prng| Row {
            key: wish.keys.draw(prng, wish.span),
            rid: Rid { page, slot },
            id: id + u64::from(slot),
        };
        let new: Vec<Row> = (0..here).map(|slot| row(slot, prng)).collect();
        put(&**device, pages, (first_byte, page, 1), &new);
        rows.extend(new);
        page += 1;
    }
    let table = Table::new(Arc::clone(device), Arc::new(pages), first_byte, page);
    let table = table.expect("it is on the device");
    let attribute = Attribute { column: Arc::new(key), bytes: 8 };
    Made { input: Input { table, attribute, predicate: None }, rows }
}

/// The number of a row, as it is fetched.
pub(super) fn ids() -> Arc<dyn Projection> {
    Arc::new(Fields(std::iter::once(9..17).collect()))
}

/// A number that was fetched.
pub(super) fn fetched(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Room for what does not fit in memory, behind the tables.
pub(super) fn spill(device: &Arc<dyn Device>, first_byte: u64) -> Spill {
    let bytes = device.len() - first_byte;
    Spill { device: Arc::clone(device), first_byte, bytes }
}

/// A plan of any kind.
pub(super) fn plan(prng: &mut Prng) -> Plan {
    if prng.chance(4) {
        return Plan::ordinary();
    }
    let chunk = 512 << prng.below(6);
    let (domains, threads) = (2 + prng.below(20) as u32, 1 + prng.below(24) as u32);
    Plan::striped(domains, chunk, 32, threads).expect("it has domains")
}

/// A wish of any kind, of up to `rows` rows.
pub(super) fn wish(prng: &mut Prng, rows: u64) -> Wish {
    Wish {
        keys: Keys::ALL[prng.below(5) as usize],
        rows: prng.below(rows + 1),
        span: 1 + prng.below(rows * 2),
        page_bytes: 512 << prng.below(3),
    }
}
