//! The five transactions (clauses 2.4 to 2.8), each one function on an open transaction of the
//! engine.
//!
//! They take locks in one order, the slow and rarely wanted ones first: stocks (sorted), customer,
//! district, warehouse. So a warehouse row is held for as short as can be, and two New-Orders or a
//! Payment between them do not deadlock. The specification leaves the order to the implementation
//! (clause 2.4.2.2).
//!
//! Rows are read into buffers that are used again and changed in place.

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

use terrace::{Table, Transaction};

pub use delivery::{Delivered, deliver};
pub use new_order::new_order;
pub use order_status::order_status;
pub use payment::payment;
pub use stock_level::{count_low, recent_items, stock_level};

use super::schema::{self, FULL_NAME_SIZE, NameKey};
use crate::Error;

/// How a transaction wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Commit.
    Commit,
    /// Roll back: the order names an item that is not for sale (clause 2.4.1.4).
    RollBack,
}

/// Buffers that transactions of one terminal use again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    row: Vec<u8>,
    items: Vec<u32>,
}

/// What must be there is not.
fn missing(table: &'static str) -> Error {
    Error::MissingRow { table }
}

/// The C_ID of the customer that `last` names in a district: the middle one by first name of those
/// who bear it, rounded up (clause 2.5.2.2).
fn customer_by_name<T: Transaction>(
    by_name: &Table<'_, NameKey, (), T>,
    warehouse: u32,
    district: u8,
    last: &[u8; 16],
    found: &mut Vec<u32>,
) -> Result<u32, Error> {
    let mut low = [0; FULL_NAME_SIZE];
    let mut high = [0xFF; FULL_NAME_SIZE];
    low[..16].copy_from_slice(last);
    high[..16].copy_from_slice(last);
    found.clear();
    for entry in by_name.range((warehouse, district, low)..=(warehouse, district, high))? {
        found.push(schema::customer_of(&entry?.key().2));
    }
    let middle = found.len().div_ceil(2);
    found.get(middle.wrapping_sub(1)).copied().ok_or(missing("customer_by_name"))
}
