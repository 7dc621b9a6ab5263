//! Order-Status (clause 2.6): the state of a customer's last order.

use terrace::ReadTransaction;

use super::{Scratch, customer_by_name, missing};
use crate::Error;
use crate::tpcc::input::{CustomerBy, OrderStatus};
use crate::tpcc::rows::{Customer, Order, OrderLine};
use crate::tpcc::schema::{CUSTOMER, CUSTOMER_BY_NAME, ORDER, ORDER_BY_CUSTOMER, ORDER_LINE};

/// What the terminal displays, in short.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// C_ID.
    pub customer: u32,
    /// C_BALANCE, in cents.
    pub balance: i64,
    /// O_ID of the last order.
    pub order: u32,
    /// Lines of it.
    pub lines: u32,
    /// Lines of it that are delivered.
    pub delivered: u32,
}

/// Looks up the last order of a customer.
///
/// # Errors
///
/// Those of the engine; missing or malformed rows.
pub fn order_status(
    txn: &ReadTransaction,
    input: &OrderStatus,
    scratch: &mut Scratch,
) -> Result<Status, Error> {
    let OrderStatus { warehouse, district, .. } = *input;
    let customer = match input.customer {
        CustomerBy::Number(customer) => customer,
        CustomerBy::LastName(last) => {
            let by_name = txn.open_table(CUSTOMER_BY_NAME)?;
            customer_by_name(&by_name, warehouse, district, &last, &mut scratch.items)?
        }
    };
    let row = &mut scratch.row;
    if !txn.open_table(CUSTOMER)?.get_into((warehouse, district, customer), row)? {
        return Err(missing("customer"));
    }
    let balance = Customer::check(row)?.balance();

    let all = (warehouse, district, customer, 0)..=(warehouse, district, customer, u32::MAX);
    let by_customer = txn.open_table(ORDER_BY_CUSTOMER)?;
    let last = by_customer.range(all)?.next_back().ok_or(missing("order_by_customer"))??;
    let order = last.key().3;
    if !txn.open_table(ORDER)?.get_into((warehouse, district, order), row)? {
        return Err(missing("order"));
    }
    Order::check(row)?;

    let mut status = Status { customer, balance, order, ..Status::default() };
    let lines = (warehouse, district, order, 0)..=(warehouse, district, order, u8::MAX);
    for entry in txn.open_table(ORDER_LINE)?.range(lines)? {
        let entry = entry?;
        let line = OrderLine::check(entry.value())?;
        status.lines += 1;
        status.delivered += u32::from(line.delivery_date() != 0);
    }
    Ok(status)
}
