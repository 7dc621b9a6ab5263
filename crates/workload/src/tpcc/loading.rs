//! Loads a new database, table by table, in key order.
//!
//! Each table is one bulk load in one transaction. Tables that the run appends to come last, so
//! that the pages of a table stay together; the engine reserves room for their growth.

use terrace::{Database, Durability, Key, Loader, TableDef, Value};

use super::config::Config;
use super::population::{Population, Scale};
use super::schema::{
    CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDER, ORDER_BY_CUSTOMER,
    ORDER_LINE, STOCK, WAREHOUSE,
};
use crate::Error;

/// Rows between two calls for progress.
const ROWS_PER_PROGRESS: u64 = 1 << 16;

/// Rows of a new database of `scale`; those of ORDER-LINE as expected, ten for each order.
pub fn rows_count(scale: Scale) -> u64 {
    let warehouses = u64::from(scale.warehouses);
    let customers = u64::from(scale.districts) * u64::from(scale.customers);
    let new_orders =
        u64::from(scale.districts) * u64::from(scale.customers - scale.delivered_orders());
    let per_warehouse =
        1 + u64::from(scale.districts) + u64::from(scale.items) + 15 * customers + new_orders;
    u64::from(scale.items) + warehouses * per_warehouse
}

/// Bytes at home of ITEM on pages filled to `fill`; approximate.
pub fn estimated_item_bytes(scale: Scale, fill: f64) -> u64 {
    const ROW_BYTES: u64 = 4 + 82 + 6;
    ((ROW_BYTES * u64::from(scale.items)) as f64 / fill) as u64
}

/// Bytes at home of all rows on pages filled to `fill`; approximate.
pub fn estimated_bytes(scale: Scale, fill: f64) -> u64 {
    const WAREHOUSE_BYTES_FULL: u64 = 105 << 20;
    const CUSTOMERS_FULL: u64 = 30_000;
    const ITEMS_FULL: u64 = 100_000;
    let customers = u64::from(scale.districts) * u64::from(scale.customers);
    // Two fifths of a warehouse are its stock, the rest follows its customers.
    let stock = WAREHOUSE_BYTES_FULL * 2 / 5 * u64::from(scale.items) / ITEMS_FULL;
    let other = WAREHOUSE_BYTES_FULL * 3 / 5 * customers / CUSTOMERS_FULL;
    let at_70_percent = u64::from(scale.warehouses) * (stock + other);
    estimated_item_bytes(scale, fill) + (at_70_percent as f64 * 0.7 / fill) as u64
}

/// Fills the empty database `db`. `progress` is called with rows loaded and rows in all.
///
/// # Errors
///
/// Those of the engine.
pub fn populate(
    db: &Database,
    config: &Config,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let population = Population::new(config.scale, config.seed);
    let fill = (config.fill * 100.0).round() as u8;
    let mut load = Load { db, fill, done: 0, total: rows_count(config.scale), progress };
    load.table(ITEM, |to| population.items(|key, row| to.push(key, row)))?;
    load.table(WAREHOUSE, |to| population.warehouses(|key, row| to.push(key, row)))?;
    load.table(DISTRICT, |to| population.districts(|key, row| to.push(key, row)))?;
    load.table(STOCK, |to| population.stocks(|key, row| to.push(key, row)))?;
    load.table(CUSTOMER, |to| population.customers(|key, row| to.push(key, row)))?;
    load.table(CUSTOMER_BY_NAME, |to| population.customers_by_name(|key, _| to.push(key, ())))?;
    load.table(ORDER, |to| population.orders(|key, row| to.push(key, row)))?;
    load.table(ORDER_BY_CUSTOMER, |to| population.orders_by_customer(|key, _| to.push(key, ())))?;
    load.table(NEW_ORDER, |to| population.new_orders(|key, _| to.push(key, ())))?;
    load.table(ORDER_LINE, |to| population.order_lines(|key, row| to.push(key, row)))?;
    load.table(HISTORY, |to| population.histories(|key, row| to.push(key, row)))?;
    (load.progress)(load.total, load.total);
    Ok(())
}

struct Load<'a> {
    db: &'a Database,
    /// How full pages are left, in percent.
    fill: u8,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Load<'_> {
    /// Loads one table with what `generate` pushes.
    fn table<K: Key, V: Value>(
        &mut self,
        table: TableDef<K, V>,
        generate: impl FnOnce(&mut Target<'_, '_, K, V>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let txn = self.db.begin_write()?;
        let loader = txn.bulk_load_filled(table, self.fill)?;
        let Load { done, total, progress, .. } = self;
        let mut target = Target { loader, done, total: *total, progress };
        generate(&mut target)?;
        target.loader.finish()?;
        txn.commit(Durability::Buffered)?;
        Ok(())
    }
}

/// A table that is being loaded, and the count of all rows.
struct Target<'a, 't, K: Key, V: Value> {
    loader: Loader<'t, K, V>,
    done: &'a mut u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<K: Key, V: Value> Target<'_, '_, K, V> {
    fn push(&mut self, key: K::View<'_>, row: V::View<'_>) -> Result<(), Error> {
        self.loader.push(key, row)?;
        *self.done += 1;
        if self.done.is_multiple_of(ROWS_PER_PROGRESS) {
            (self.progress)((*self.done).min(self.total), self.total);
        }
        Ok(())
    }
}
