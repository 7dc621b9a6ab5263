//! How many rows the tables of TPC-H have.
//!
//! Source: TPC Benchmark H, revision 2, clauses 4.2.3 and 4.2.5.

/// Suppliers of each part.
pub const SUPPLIERS_PER_PART: u64 = 4;
/// Nations, of which a region has a fifth.
pub const NATIONS: u64 = 25;
/// Regions.
pub const REGIONS: u64 = 5;
/// Of the numbers that orders may have, one in this number is used (clause 4.2.3).
pub const ORDER_KEY_STEP: u64 = 4;
/// Days of shipping: 2 January 1992 to 1 December 1998.
pub const DAYS: u64 = 2_526;

/// The lines of an order are 1 to 7: of seven orders, 28.
pub(super) const ORDERS_PER_ROUND: u64 = 7;
/// This number of lines has `ORDERS_PER_ROUND` orders.
pub(super) const LINES_PER_ROUND: u64 = 28;

/// Rows of each table whose rows grow with the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of SUPPLIER.
    pub suppliers: u64,
    /// Of PART; of PARTSUPP there are four times as many.
    pub parts: u64,
    /// Of CUSTOMER.
    pub customers: u64,
    /// Of ORDERS.
    pub orders: u64,
    /// Of LINEITEM.
    pub lines: u64,
}

impl Sizes {
    /// Of a database of `scale` GB of rows.
    #[must_use]
    pub fn at_scale(scale: f64) -> Sizes {
        let count = |per_scale: f64| ((per_scale * scale) as u64).max(1);
        let rounds = count(1_500_000.0).div_ceil(ORDERS_PER_ROUND);
        Sizes {
            suppliers: count(10_000.0).max(SUPPLIERS_PER_PART),
            parts: count(200_000.0),
            customers: count(150_000.0),
            orders: rounds * ORDERS_PER_ROUND,
            lines: rounds * LINES_PER_ROUND,
        }
    }
}
