//! What the steps of the operators cost on this machine: the source of [`COSTS`](crate::COSTS).
//!
//! Each operator runs over pages in memory, once with a step and once without it; the least of some
//! turns counts. A comparison is that of a sort in memory. A request is not measured here.

use std::hint::black_box;
use std::sync::Arc;

use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store, write};
use terrace_rt::{Nanos, Prng, World, now};

use super::tables::number;
use crate::table::Pages;
use crate::{
    Attribute, Carry, Cpu, Error, Fields, Function, Input, Join, Plan, RowPages, Side, Spill, Step,
    Table, aggregate, hash_join, scan,
};

const PAGES: u32 = 4_096;
const ROW_BYTES: u16 = 144;
/// Turns of each measurement.
const TURNS: usize = 7;

/// The least time of some turns.
fn least(mut turn: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut least = Nanos(u64::MAX);
    for _ in 0..TURNS {
        let begin = now();
        turn()?;
        least = least.min(now().saturating_sub(begin));
    }
    Ok(least.0 as f64)
}

/// The costs of the steps in ns, as far as they can be measured here. For the real world.
///
/// # Errors
///
/// None, in memory.
pub fn measure() -> Result<Vec<(Step, f64)>, Error> {
    let world = World::current();
    let bytes = u64::from(PAGES) * 4096 * 2;
    let device: Arc<dyn Device> = build(Preset::Ram, world, Store::new(bytes, Keep::Plain));
    let pages = RowPages::new(4096, ROW_BYTES)?;
    let mut page_bytes = [0; 4096];
    let per_page = u64::from(pages.rows_max());
    for page in 0..PAGES {
        pages.fill(page, 1, pages.rows_max(), &mut page_bytes, |slot, row| {
            let key = u64::from(page) * per_page + u64::from(slot);
            row[..8].copy_from_slice(&key.to_le_bytes());
        });
        write(&*device, u64::from(page) * 4096, &page_bytes)?;
    }
    let table = Table::new(Arc::clone(&device), Arc::new(pages), 0, PAGES)?;
    let rows = (u64::from(PAGES) * per_page) as f64;
    let (plan, cpu) = (Plan::ordinary(), Cpu::free());
    let attribute = Attribute { column: Arc::new(|row: &[u8]| number(row, 0)), bytes: 4 };
    let all = Input { table, attribute, predicate: Some(Arc::new(|_: &[u8]| true)) };
    let none = Input { predicate: Some(Arc::new(|_: &[u8]| false)), ..all.clone() };

    let check = least(|| {
        for _ in 0..PAGES {
            black_box(pages.check(black_box(PAGES - 1), black_box(&page_bytes)));
        }
        Ok(())
    })?;
    let bare = least(|| scan(&all.table, &plan, &cpu, |_| (), |(), _, _| Ok(())).map(drop))?;
    let looked = least(|| aggregate(&none, &[Function::Sum], &plan, &cpu).map(drop))?;
    let summed = least(|| aggregate(&all, &[Function::Sum], &plan, &cpu).map(drop))?;
    let spill = Spill { device, first_byte: bytes / 2, bytes: bytes / 2 };
    let join = |build: &Input, probe: &Input| {
        let side = |input: &Input| Side {
            input: input.clone(),
            projection: Arc::new(Fields(std::iter::once(0..8).collect())),
        };
        let join = Join {
            build: side(build),
            probe: side(probe),
            carry: Carry::Rids,
            plan,
            cpu: cpu.clone(),
            memory: 64 << 20,
            buckets: None,
            spill: spill.clone(),
        };
        hash_join(&join, Arc::new(|_, _: &[u8], _: &[u8]| Ok(()))).map(drop)
    };
    // Values that no row of the first table has.
    let mut others = all.clone();
    others.attribute.column = Arc::new(|row: &[u8]| number(row, 0).map(|value| value + (1 << 25)));
    let neither = least(|| join(&none, &none))?;
    let inserted = least(|| join(&all, &none))?;
    let probed = least(|| join(&all, &others))?;
    let joined = least(|| join(&all, &all))?;
    let (compared, comparisons) = sorted()?;
    Ok(vec![
        (Step::Page, check / f64::from(PAGES)),
        (Step::Row, (looked - bare) / rows),
        (Step::Insert, (inserted - neither) / rows),
        (Step::Probe, (probed - inserted) / rows),
        (Step::Aggregate, (summed - looked) / rows),
        (Step::Compare, compared / comparisons),
        // Two rows of a pair.
        (Step::Fetch, (joined - probed) / (2.0 * rows)),
    ])
}

/// Time of a sort in memory, and its comparisons.
fn sorted() -> Result<(f64, f64), Error> {
    const ENTRIES: usize = 1 << 18;
    let mut prng = Prng::from_seed(1);
    let entries: Vec<(Option<i64>, u64, u64)> =
        (0..ENTRIES as u64).map(|at| (Some(prng.next_u64() as i64), at, 1)).collect();
    let copied = least(|| {
        black_box(entries.clone());
        Ok(())
    })?;
    let all = least(|| {
        let mut entries = entries.clone();
        entries.sort_unstable();
        black_box(entries);
        Ok(())
    })?;
    Ok((all - copied, ENTRIES as f64 * f64::from(ENTRIES.ilog2())))
}
