//! The rows as types: what stands in them, their keys, and how they are stored where they are.
//!
//! - W1: rows of a table are in the order of their numbers in that of their keys, but for the four
//!   suppliers of a part.
//! - W2: `number(rows, row.key())` is the number that `row` was computed for.
//! - W3: `of(row.key(), row.columns())` is `row`.
//! - Columns that no query reads are left out; a stored row has their width all the same.
//!
//! Source: TPC Benchmark H, revision 2, clauses 1.4 and 4.2.5 (columns and widths).

use super::rows::{Column, Rows};
use super::shape::{Index, Shape, Table};
use super::sizes::{NATIONS, ORDER_KEY_STEP, REGIONS, SUPPLIERS_PER_PART, Sizes};

/// Columns of a row beside its key, each a number of four bytes, at most.
pub const COLUMNS_MAX: usize = 8;
/// Bytes of a column of a key, by the specification.
pub(super) const KEY_COLUMN_BYTES: u64 = 4;

/// A row of a table, clustered by a key.
pub trait Row: Copy + 'static {
    /// The name of its table.
    const TABLE: &'static str;
    /// Bytes of all columns, in the mean.
    const WIDTH: u64;
    /// How many of them are its key's.
    const KEY_COLUMNS: u64 = 1;

    /// Rows of the table.
    fn count(sizes: &Sizes) -> u64;

    /// Row `number` in the order of the table.
    fn at(rows: &Rows, number: u64) -> Self;

    /// Its key.
    fn key(&self) -> u64;

    /// The least key whose leading column is `leading`.
    fn first_key(leading: u64) -> u64 {
        leading
    }

    /// How many rows have a lesser leading column.
    fn before(rows: &Rows, leading: u64) -> u64 {
        leading.min(Self::count(&rows.sizes))
    }

    /// The number of the row with a key that there is.
    fn number(rows: &Rows, key: u64) -> u64 {
        Self::before(rows, key)
    }

    /// Where the table lies, and its index by the key; none of a table that has no place.
    fn place(shape: &Shape) -> Option<(&Index, &Table)>;

    /// What is beside its key.
    fn columns(&self) -> [u32; COLUMNS_MAX];

    /// The row with this key and these columns.
    fn of(key: u64, columns: [u32; COLUMNS_MAX]) -> Self;
}

/// Some columns, and zeroes for the rest.
fn columns<const N: usize>(some: [u64; N]) -> [u32; COLUMNS_MAX] {
    let mut all = [0; COLUMNS_MAX];
    for (column, value) in all.iter_mut().zip(some) {
        *column = u32::try_from(value).expect("columns have four bytes");
    }
    all
}

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its number.
    pub key: u64,
}

impl Row for Region {
    const TABLE: &'static str = "region";
    const WIDTH: u64 = 124;

    fn count(_: &Sizes) -> u64 {
        REGIONS
    }

    fn at(_: &Rows, key: u64) -> Region {
        Region { key }
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn place(_: &Shape) -> Option<(&Index, &Table)> {
        None
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        columns([])
    }

    fn of(key: u64, _: [u32; COLUMNS_MAX]) -> Region {
        Region { key }
    }
}

/// A nation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nation {
    /// Its number.
    pub key: u64,
    /// Its region.
    pub region: u64,
}

impl Row for Nation {
    const TABLE: &'static str = "nation";
    const WIDTH: u64 = 128;

    fn count(_: &Sizes) -> u64 {
        NATIONS
    }

    fn at(_: &Rows, key: u64) -> Nation {
        Nation { key, region: key % REGIONS }
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn place(_: &Shape) -> Option<(&Index, &Table)> {
        None
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        columns([self.region])
    }

    fn of(key: u64, [region, ..]: [u32; COLUMNS_MAX]) -> Nation {
        Nation { key, region: region.into() }
    }
}

/// A supplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supplier {
    /// Its number.
    pub key: u64,
    /// Where it is.
    pub nation: u64,
}

impl Row for Supplier {
    const TABLE: &'static str = "supplier";
    const WIDTH: u64 = 159;

    fn count(sizes: &Sizes) -> u64 {
        sizes.suppliers
    }

    fn at(rows: &Rows, key: u64) -> Supplier {
        Supplier { key, nation: rows.draw(Column::SupplierNation, key, NATIONS) }
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn place(shape: &Shape) -> Option<(&Index, &Table)> {
        Some((&shape.supplier_key, &shape.supplier))
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        columns([self.nation])
    }

    fn of(key: u64, [nation, ..]: [u32; COLUMNS_MAX]) -> Supplier {
        Supplier { key, nation: nation.into() }
    }
}

/// A customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Customer {
    /// Its number.
    pub key: u64,
    /// Where it is.
    pub nation: u64,
}

impl Row for Customer {
    const TABLE: &'static str = "customer";
    const WIDTH: u64 = 179;

    fn count(sizes: &Sizes) -> u64 {
        sizes.customers
    }

    fn at(rows: &Rows, key: u64) -> Customer {
        Customer { key, nation: rows.draw(Column::CustomerNation, key, NATIONS) }
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn place(shape: &Shape) -> Option<(&Index, &Table)> {
        Some((&shape.customer_key, &shape.customer))
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        columns([self.nation])
    }

    fn of(key: u64, [nation, ..]: [u32; COLUMNS_MAX]) -> Customer {
        Customer { key, nation: nation.into() }
    }
}

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub key: u64,
    /// One of 50.
    pub size: u64,
    /// The last word of its type, one of 5.
    pub metal: u64,
    /// The first word of its type, one of 6.
    pub class: u64,
    /// One of 25.
    pub brand: u64,
    /// One of 40.
    pub container: u64,
    /// Which words its name has, as a number below a hundred thousand.
    pub name: u64,
}

/// Metals of a size, and containers of a brand.
const METALS: u64 = 5;
const CONTAINERS: u64 = 40;

impl Row for Part {
    const TABLE: &'static str = "part";
    const WIDTH: u64 = 155;

    fn count(sizes: &Sizes) -> u64 {
        sizes.parts
    }

    fn at(rows: &Rows, key: u64) -> Part {
        let made = rows.draw(Column::PartSizeAndMetal, key, 50 * METALS);
        let packed = rows.draw(Column::PartBrandAndContainer, key, 25 * CONTAINERS);
        Part {
            key,
            size: made / METALS,
            metal: made % METALS,
            class: rows.draw(Column::PartClass, key, 6),
            brand: packed / CONTAINERS,
            container: packed % CONTAINERS,
            name: rows.draw(Column::PartName, key, 100_000),
        }
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn place(shape: &Shape) -> Option<(&Index, &Table)> {
        Some((&shape.part_key, &shape.part))
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        columns([self.size, self.metal, self.class, self.brand, self.container, self.name])
    }

    fn of(key: u64, stored: [u32; COLUMNS_MAX]) -> Part {
        let [size, metal, class, brand, container, name, ..] = stored.map(u64::from);
        Part { key, size, metal, class, brand, container, name }
    }
}

/// What a supplier has of a part: a row of PARTSUPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The part.
    pub part: u64,
    /// The supplier.
    pub supplier: u64,
    /// How many are there.
    pub quantity: u64,
    /// What one costs, in cents.
    pub cost: u64,
}

impl Offer {
    /// The key of a supplier's offer of a part.
    #[must_use]
    pub fn key_of(part: u64, supplier: u64) -> u64 {
        Offer::first_key(part) | supplier
    }
}

impl Row for Offer {
    const TABLE: &'static str = "partsupp";
    const WIDTH: u64 = 144;
    const KEY_COLUMNS: u64 = 2;

    fn count(sizes: &Sizes) -> u64 {
        sizes.parts * SUPPLIERS_PER_PART
    }

    fn at(rows: &Rows, number: u64) -> Offer {
        let part = number / SUPPLIERS_PER_PART;
        Offer {
            part,
            supplier: rows.supplier_of(part, number % SUPPLIERS_PER_PART),
            quantity: 1 + rows.draw(Column::OfferQuantity, number, 9_999),
            cost: 100 + rows.draw(Column::OfferCost, number, 99_901),
        }
    }

    fn key(&self) -> u64 {
        Offer::key_of(self.part, self.supplier)
    }

    fn first_key(part: u64) -> u64 {
        part << 32
    }

    fn before(rows: &Rows, part: u64) -> u64 {
        part.min(rows.sizes.parts) * SUPPLIERS_PER_PART
    }

    fn number(rows: &Rows, key: u64) -> u64 {
        let (part, supplier) = (key >> 32, key & u64::from(u32::MAX));
        let is_there = |place: &u64| rows.supplier_of(part, *place) == supplier;
        let place = (0..SUPPLIERS_PER_PART).find(is_there).expect("a key that there is");
        part * SUPPLIERS_PER_PART + place
    }

    fn place(shape: &Shape) -> Option<(&Index, &Table)> {
        Some((&shape.partsupp_key, &shape.partsupp))
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        columns([self.quantity, self.cost])
    }

    fn of(key: u64, [quantity, cost, ..]: [u32; COLUMNS_MAX]) -> Offer {
        let (quantity, cost) = (quantity.into(), cost.into());
        Offer { part: key >> 32, supplier: key & u64::from(u32::MAX), quantity, cost }
    }
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number, one of four that there could be.
    pub key: u64,
    /// The customer that owns it.
    pub customer: u64,
    /// When, in hundred-thousandths of the years that there are, from the last day back.
    pub age: u64,
}

impl Row for Order {
    const TABLE: &'static str = "orders";
    const WIDTH: u64 = 104;

    fn count(sizes: &Sizes) -> u64 {
        sizes.orders
    }

    fn at(rows: &Rows, number: u64) -> Order {
        Order {
            key: number * ORDER_KEY_STEP,
            customer: rows.customer_of(number),
            age: rows.draw(Column::OrderDate, number, 100_000),
        }
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn before(rows: &Rows, key: u64) -> u64 {
        key.div_ceil(ORDER_KEY_STEP).min(rows.sizes.orders)
    }

    fn place(shape: &Shape) -> Option<(&Index, &Table)> {
        Some((&shape.orders_key, &shape.orders))
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        columns([self.customer, self.age])
    }

    fn of(key: u64, [customer, age, ..]: [u32; COLUMNS_MAX]) -> Order {
        Order { key, customer: customer.into(), age: age.into() }
    }
}

/// A line of an order: a row of LINEITEM, which lies by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The key of its order.
    pub order: u64,
    /// Which line of the order it is, from 0.
    pub line: u64,
    /// The part.
    pub part: u64,
    /// Its supplier.
    pub supplier: u64,
    /// 1 to 50.
    pub quantity: u64,
    /// Of all of them, in cents.
    pub price: u64,
    /// In percent, up to 10.
    pub discount: u64,
    /// In percent, up to 8.
    pub tax: u64,
    /// Whether it was returned and is closed, one of four.
    pub flag: u64,
    /// When it was shipped: a day from the first.
    pub day: u64,
}

/// Bits of a key that say which line of its order it is.
const LINE_BITS: u32 = 3;

impl Line {
    /// The price less the discount, in hundredths of cents.
    #[must_use]
    pub fn revenue(&self) -> i64 {
        (self.price * (100 - self.discount)) as i64
    }
}

impl Row for Line {
    const TABLE: &'static str = "lineitem";
    const WIDTH: u64 = 112;
    const KEY_COLUMNS: u64 = 2;

    fn count(sizes: &Sizes) -> u64 {
        sizes.lines
    }

    fn at(rows: &Rows, number: u64) -> Line {
        let (order, line) = rows.order_of(number);
        let part = rows.part_of(number);
        // Four columns of one draw, which is a number of four digits.
        let sale = rows.draw(Column::LineSale, number, 50 * 11 * 9 * 4);
        let quantity = 1 + sale % 50;
        // What a part is sold for (clause 4.2.3).
        let each = 90_000 + (part / 10) % 20_001 + 100 * (part % 1_000);
        Line {
            order: order * ORDER_KEY_STEP,
            line,
            part,
            supplier: rows.supplier_of(part, rows.place_of(number)),
            quantity,
            price: quantity * each,
            discount: sale / 50 % 11,
            tax: sale / (50 * 11) % 9,
            flag: sale / (50 * 11 * 9),
            day: rows.day_of(number),
        }
    }

    fn key(&self) -> u64 {
        Line::first_key(self.order) | self.line
    }

    fn first_key(order: u64) -> u64 {
        order << LINE_BITS
    }

    fn before(rows: &Rows, order: u64) -> u64 {
        rows.lines_of(Order::before(rows, order)).start
    }

    fn number(rows: &Rows, key: u64) -> u64 {
        Line::before(rows, key >> LINE_BITS) + key % (1 << LINE_BITS)
    }

    fn place(shape: &Shape) -> Option<(&Index, &Table)> {
        Some((&shape.lineitem_key, &shape.lineitem))
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        let Line { part, supplier, quantity, price, discount, tax, flag, day, .. } = *self;
        columns([part, supplier, quantity, price, discount, tax, flag, day])
    }

    fn of(key: u64, stored: [u32; COLUMNS_MAX]) -> Line {
        let [part, supplier, quantity, price, discount, tax, flag, day] = stored.map(u64::from);
        let (order, line) = (key >> LINE_BITS, key % (1 << LINE_BITS));
        Line { order, line, part, supplier, quantity, price, discount, tax, flag, day }
    }
}

/// The same row in a LINEITEM that lies by the date of shipping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped(pub Line);

/// Bits of a key below the day: those of the line's own, for 2^37 orders.
const DAY_SHIFT: u32 = 40;

impl Row for Shipped {
    const TABLE: &'static str = "lineitem_by_date";
    const WIDTH: u64 = Line::WIDTH;
    const KEY_COLUMNS: u64 = 2;

    fn count(sizes: &Sizes) -> u64 {
        sizes.lines
    }

    fn at(rows: &Rows, number: u64) -> Shipped {
        Shipped(Line::at(rows, number))
    }

    fn key(&self) -> u64 {
        Shipped::first_key(self.0.day) | self.0.key()
    }

    fn first_key(day: u64) -> u64 {
        day << DAY_SHIFT
    }

    fn before(rows: &Rows, day: u64) -> u64 {
        rows.shipped_on(&(day..day)).start
    }

    fn number(rows: &Rows, key: u64) -> u64 {
        Line::number(rows, key % (1 << DAY_SHIFT))
    }

    fn place(shape: &Shape) -> Option<(&Index, &Table)> {
        Some((&shape.lineitem_shipdate, &shape.lineitem))
    }

    fn columns(&self) -> [u32; COLUMNS_MAX] {
        self.0.columns()
    }

    fn of(key: u64, stored: [u32; COLUMNS_MAX]) -> Shipped {
        Shipped(Line::of(key % (1 << DAY_SHIFT), stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use std::fmt::Debug;

    fn holds_together<R: Row + PartialEq + Debug>(rows: &Rows) {
        let mut before = None;
        for number in 0..R::count(&rows.sizes) {
            let row = R::at(rows, number);
            assert_eq!(R::number(rows, row.key()), number, "{row:?}");
            assert_eq!(R::of(row.key(), row.columns()), row);
            assert!(R::TABLE == Offer::TABLE || before < Some(row.key()), "{row:?}");
            before = Some(row.key());
        }
        assert!(R::KEY_COLUMNS * KEY_COLUMN_BYTES + 4 * COLUMNS_MAX as u64 <= R::WIDTH);
    }

    #[test]
    fn rows_are_found_by_their_keys_and_are_what_they_were_stored_as() {
        let rows = Rows::new(Sizes::at_scale(0.01), &mut Rng::with_seed(3));
        holds_together::<Region>(&rows);
        holds_together::<Nation>(&rows);
        holds_together::<Supplier>(&rows);
        holds_together::<Customer>(&rows);
        holds_together::<Part>(&rows);
        holds_together::<Offer>(&rows);
        holds_together::<Order>(&rows);
        holds_together::<Line>(&rows);
        holds_together::<Shipped>(&rows);
    }

    #[test]
    fn a_range_of_keys_has_the_rows_in_it() {
        let rows = Rows::new(Sizes::at_scale(0.01), &mut Rng::with_seed(3));
        for keys in [0..9, 5..6, 7..8, 100..1_001] {
            let found = Line::before(&rows, keys.start)..Line::before(&rows, keys.end);
            let is_in = |number: &u64| keys.contains(&Line::at(&rows, *number).order);
            let expected: Vec<u64> = (0..rows.sizes.lines).filter(is_in).collect();
            assert_eq!(found.collect::<Vec<_>>(), expected, "{keys:?}");
        }
    }
}
