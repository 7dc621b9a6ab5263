//! Stock-Level (clause 2.8): how many items of the last twenty orders of a district are short.
//!
//! Clause 2.8.2.3 lets it see committed data that changes meanwhile, and lets it be split. In one
//! transaction it is serializable as all others, and holds the locks on 200 stocks until the last
//! of them is read.

use terrace::ReadTransaction;

use super::{Scratch, missing};
use crate::Error;
use crate::tpcc::input::{LINES_MAX, StockLevel};
use crate::tpcc::rows::{District, OrderLine, Stock};
use crate::tpcc::schema::{DISTRICT, ORDER_LINE, STOCK};

/// Orders that are looked at.
const ORDERS_RECENT: u32 = 20;

/// Counts the low stocks in one transaction.
///
/// # Errors
///
/// Those of the engine; missing or malformed rows.
pub fn stock_level(
    txn: &ReadTransaction,
    input: &StockLevel,
    scratch: &mut Scratch,
) -> Result<u32, Error> {
    let items = recent_items(txn, input, scratch)?;
    count_low(txn, input, &items, scratch)
}

/// The items of the last twenty orders, each once and in order.
///
/// # Errors
///
/// Those of the engine; missing or malformed rows.
pub fn recent_items(
    txn: &ReadTransaction,
    input: &StockLevel,
    scratch: &mut Scratch,
) -> Result<Vec<u32>, Error> {
    let StockLevel { warehouse, district, .. } = *input;
    if !txn.open_table(DISTRICT)?.get_into((warehouse, district), &mut scratch.row)? {
        return Err(missing("district"));
    }
    let next = District::check(&scratch.row)?.next_order();
    let first = next.saturating_sub(ORDERS_RECENT);
    let recent = (warehouse, district, first, 0)..(warehouse, district, next, 0);
    let mut items = Vec::with_capacity(ORDERS_RECENT as usize * LINES_MAX);
    for entry in txn.open_table(ORDER_LINE)?.range(recent)? {
        items.push(OrderLine::check(entry?.value())?.item());
    }
    items.sort_unstable();
    items.dedup();
    Ok(items)
}

/// How many of `items` have a stock below the threshold.
///
/// # Errors
///
/// Those of the engine; missing or malformed rows.
pub fn count_low(
    txn: &ReadTransaction,
    input: &StockLevel,
    items: &[u32],
    scratch: &mut Scratch,
) -> Result<u32, Error> {
    let stocks = txn.open_table(STOCK)?;
    let mut low = 0;
    for &item in items {
        if !stocks.get_into((input.warehouse, item), &mut scratch.row)? {
            return Err(missing("stock"));
        }
        low += u32::from(Stock::check(&scratch.row)?.quantity() < input.threshold);
    }
    Ok(low)
}
