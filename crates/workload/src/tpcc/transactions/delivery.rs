//! Delivery (clause 2.7): the oldest new order of each district leaves the house.
//!
//! A terminal only queues the request. Each district is a transaction of its own, which clause
//! 2.7.4.2 allows, so that the locks of one are not held while the next is read.

use terrace::WriteTransaction;

use super::{Scratch, missing};
use crate::Error;
use crate::tpcc::input::LINES_MAX;
use crate::tpcc::rows::{Customer, Order, OrderLine};
use crate::tpcc::schema::{CUSTOMER, NEW_ORDER, ORDER, ORDER_LINE};

/// Whether a district had an order to deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// This one.
    Order(u32),
    /// It had none: the district is skipped.
    Nothing,
}

/// Delivers the oldest new order of a district by `carrier` at the date `now`.
///
/// # Errors
///
/// Those of the engine; missing or malformed rows.
pub fn deliver(
    txn: &WriteTransaction,
    (warehouse, district): (u32, u8),
    carrier: u8,
    now: u64,
    scratch: &mut Scratch,
) -> Result<Delivered, Error> {
    let all = (warehouse, district, 0)..=(warehouse, district, u32::MAX);
    let Some(oldest) = txn.open_table(NEW_ORDER)?.pop_first(all)? else {
        return Ok(Delivered::Nothing);
    };
    let order = oldest.key().2;

    let row = &mut scratch.row;
    let mut orders = txn.open_table(ORDER)?;
    if !orders.get_into_for_update((warehouse, district, order), row)? {
        return Err(missing("order"));
    }
    let mut changed = Order::change(row)?;
    let customer = changed.customer();
    changed.set_carrier(carrier);
    orders.update((warehouse, district, order), row)?;

    let sum = deliver_lines(txn, (warehouse, district, order), now)?;
    let key = (warehouse, district, customer);
    let mut customers = txn.open_table(CUSTOMER)?;
    if !customers.get_into_for_update(key, row)? {
        return Err(missing("customer"));
    }
    let mut changed = Customer::change(row)?;
    changed.set_balance(changed.balance() + sum);
    changed.set_deliveries(changed.deliveries() + 1);
    customers.update(key, row)?;
    Ok(Delivered::Order(order))
}

/// Dates the lines of an order and returns the sum of their amounts, in cents.
fn deliver_lines(
    txn: &WriteTransaction,
    (warehouse, district, order): (u32, u8, u32),
    now: u64,
) -> Result<i64, Error> {
    let mut order_lines = txn.open_table(ORDER_LINE)?;
    let all = (warehouse, district, order, 0)..=(warehouse, district, order, u8::MAX);
    let mut rows = [[0; OrderLine::<()>::SIZE]; LINES_MAX];
    let mut rows_count = 0;
    let mut sum = 0;
    for entry in order_lines.range_for_update(all)? {
        let entry = entry?;
        let row = rows.get_mut(rows_count).ok_or(missing("order_line"))?;
        sum += i64::from(OrderLine::check(entry.value())?.amount());
        row.copy_from_slice(entry.value());
        OrderLine::change(row)?.set_delivery_date(now);
        rows_count += 1;
    }
    for (index, row) in rows[..rows_count].iter().enumerate() {
        order_lines.update((warehouse, district, order, index as u8 + 1), row)?;
    }
    Ok(sum)
}
