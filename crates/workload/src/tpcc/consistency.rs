//! The twelve consistency conditions of clause 3.3.2, and that the two indexes agree with their
//! tables.
//!
//! ```text
//!  1  W_YTD = sum of D_YTD                          7  OL_DELIVERY_D is null iff O_CARRIER_ID is
//!  2  D_NEXT_O_ID - 1 = max O_ID = max NO_O_ID      8  W_YTD = sum of H_AMOUNT
//!  3  NO_O_IDs of a district have no gaps           9  D_YTD = sum of H_AMOUNT
//!  4  sum of O_OL_CNT = number of ORDER-LINEs      10  C_BALANCE = delivered amounts - H_AMOUNTs
//!  5  O_CARRIER_ID is null iff in NEW-ORDER        11  ORDERs - NEW-ORDERs = delivered orders
//!  6  O_OL_CNT = number of the order's lines       12  C_BALANCE + C_YTD_PAYMENT = delivered
//! ```
//!
//! Condition 2 says nothing of NEW-ORDER in a district without new orders. Condition 11 as printed
//! holds only before the first delivery: the 2,100 orders delivered at first, and those that
//! C_DELIVERY_CNT counts since.
//!
//! - C1: every table is scanned once, in one read transaction; memory is 16 bytes for each
//!   customer.
//! - C2: STOCK and ITEM are not read: no condition names them.

use terrace::{Database, ReadTransaction};

use super::population::Scale;
use super::rows::{Customer, District, History, Order, OrderLine, Warehouse};
use super::schema::{
    self, CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, NEW_ORDER, ORDER, ORDER_BY_CUSTOMER,
    ORDER_LINE, OrderKey, WAREHOUSE,
};
use crate::Error;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Clause 3.3.2.n, `1..=12`.
    Clause(u8),
    /// The index by name holds each customer once and nothing else.
    NameIndex,
    /// The index by customer holds each order once and nothing else.
    OrderIndex,
    /// A row belongs to a warehouse, district or customer that there is none of.
    Stray,
}

/// One place where a condition does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What should hold.
    pub condition: Condition,
    /// The warehouse.
    pub warehouse: u32,
    /// The district; zero if the condition is of the warehouse.
    pub district: u8,
    /// The customer or order; zero if the condition is of the district.
    pub row: u32,
    /// One side.
    pub left: i64,
    /// The other side, which should be the same.
    pub right: i64,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.condition {
            Condition::Clause(number) => write!(f, "condition {number}")?,
            other => write!(f, "{other:?}")?,
        }
        let Violation { warehouse, district, row, left, right, .. } = self;
        write!(f, " at warehouse {warehouse} district {district} row {row}: {left} != {right}")
    }
}

/// Violations reported at most.
pub const VIOLATIONS_MAX: usize = 20;

/// Checks the database `db`, which has the warehouses, districts and customers of `scale`.
///
/// # Errors
///
/// Those of the engine; malformed rows. A violation is no error.
pub fn check(db: &Database, scale: Scale) -> Result<Vec<Violation>, Error> {
    let txn = db.begin_read()?;
    let mut books = Books::new(scale);
    books.read_districts(&txn)?;
    books.read_histories(&txn)?;
    books.read_new_orders(&txn)?;
    books.read_orders(&txn)?;
    books.read_customers(&txn)?;
    books.read_indexes(&txn)?;
    books.check_districts();
    Ok(books.violations)
}

/// Sums of a district.
#[derive(Clone, Default)]
struct DistrictBook {
    ytd: i64,
    paid: i64,
    next_order: u32,
    new_orders: Vec<u32>,
    orders_count: u32,
    order_max: u32,
    lines_promised: u64,
    lines_count: u64,
    deliveries: u64,
    /// Sums over rows and over index entries, which agree if the two hold the same.
    names: (u64, u64),
    customers_of_orders: (u64, u64),
}

/// Sums of a customer, in cents.
#[derive(Clone, Copy, Default)]
struct CustomerBook {
    delivered: i64,
    paid: i64,
}

struct Books {
    scale: Scale,
    warehouses_ytd: Vec<i64>,
    districts: Vec<DistrictBook>,
    customers: Vec<CustomerBook>,
    violations: Vec<Violation>,
}

impl Books {
    fn new(scale: Scale) -> Books {
        let districts = scale.warehouses as usize * usize::from(scale.districts);
        Books {
            scale,
            warehouses_ytd: vec![0; scale.warehouses as usize],
            districts: vec![DistrictBook::default(); districts],
            customers: vec![CustomerBook::default(); districts * scale.customers as usize],
            violations: Vec::new(),
        }
    }

    fn expect(&mut self, condition: Condition, place: OrderKey, left: i64, right: i64) {
        if left != right && self.violations.len() < VIOLATIONS_MAX {
            let (warehouse, district, row) = place;
            self.violations.push(Violation { condition, warehouse, district, row, left, right });
        }
    }

    /// Place of a district in the books; a violation if there is no such district.
    fn district_index(&mut self, warehouse: u32, district: u8) -> Option<usize> {
        let Scale { warehouses, districts, .. } = self.scale;
        if !(1..=warehouses).contains(&warehouse) || !(1..=districts).contains(&district) {
            self.expect(Condition::Stray, (warehouse, district, 0), 0, 1);
            return None;
        }
        Some((warehouse as usize - 1) * usize::from(districts) + usize::from(district) - 1)
    }

    fn customer_index(&mut self, warehouse: u32, district: u8, customer: u32) -> Option<usize> {
        let index = self.district_index(warehouse, district)?;
        if !(1..=self.scale.customers).contains(&customer) {
            self.expect(Condition::Stray, (warehouse, district, customer), 0, 1);
            return None;
        }
        Some(index * self.scale.customers as usize + customer as usize - 1)
    }

    fn read_districts(&mut self, txn: &ReadTransaction) -> Result<(), Error> {
        for entry in txn.open_table(WAREHOUSE)?.range(..)? {
            let entry = entry?;
            let (warehouse, row) = (entry.key(), Warehouse::check(entry.value())?);
            if self.district_index(warehouse, 1).is_some() {
                self.warehouses_ytd[warehouse as usize - 1] = row.ytd();
            }
        }
        for entry in txn.open_table(DISTRICT)?.range(..)? {
            let entry = entry?;
            let ((warehouse, district), row) = (entry.key(), District::check(entry.value())?);
            if let Some(index) = self.district_index(warehouse, district) {
                self.districts[index].ytd = row.ytd();
                self.districts[index].next_order = row.next_order();
            }
        }
        Ok(())
    }

    fn read_histories(&mut self, txn: &ReadTransaction) -> Result<(), Error> {
        for entry in txn.open_table(HISTORY)?.range(..)? {
            let entry = entry?;
            let (warehouse, district, ..) = entry.key();
            let row = History::check(entry.value())?;
            let amount = i64::from(row.amount());
            if let Some(index) = self.district_index(warehouse, district) {
                self.districts[index].paid += amount;
            }
            let (warehouse, district) = (row.customer_warehouse(), row.customer_district());
            if let Some(index) = self.customer_index(warehouse, district, row.customer()) {
                self.customers[index].paid += amount;
            }
        }
        Ok(())
    }

    fn read_new_orders(&mut self, txn: &ReadTransaction) -> Result<(), Error> {
        for entry in txn.open_table(NEW_ORDER)?.range(..)? {
            let (warehouse, district, order) = entry?.key();
            if let Some(index) = self.district_index(warehouse, district) {
                self.districts[index].new_orders.push(order);
            }
        }
        Ok(())
    }

    /// ORDER and ORDER-LINE side by side: conditions 5, 6 and 7, and sums for 4, 10, 11 and 12.
    fn read_orders(&mut self, txn: &ReadTransaction) -> Result<(), Error> {
        let lines = txn.open_table(ORDER_LINE)?;
        let mut lines = lines.range(..)?;
        let mut next = lines.next().transpose()?;
        for entry in txn.open_table(ORDER)?.range(..)? {
            let entry = entry?;
            let (key, row) = (entry.key(), Order::check(entry.value())?);
            let (mut count, mut undated, mut sum) = (0, 0, 0);
            while let Some(line) = &next {
                let (warehouse, district, order, _) = line.key();
                let line_of = (warehouse, district, order);
                if line_of > key {
                    break;
                }
                if line_of < key {
                    self.expect(Condition::Clause(6), line_of, 0, 1);
                } else {
                    let line = OrderLine::check(line.value())?;
                    count += 1;
                    undated += i64::from(line.delivery_date() == 0);
                    sum += i64::from(line.amount());
                }
                next = lines.next().transpose()?;
            }
            self.enter_order(key, row, (count, undated, sum));
        }
        if let Some(line) = next {
            let (warehouse, district, order, _) = line.key();
            self.expect(Condition::Clause(6), (warehouse, district, order), 0, 1);
        }
        Ok(())
    }

    fn enter_order(&mut self, key: OrderKey, row: Order<&[u8]>, lines: (i64, i64, i64)) {
        let (count, undated, sum) = lines;
        let (warehouse, district, order) = key;
        let is_new = row.carrier() == 0;
        self.expect(Condition::Clause(6), key, i64::from(row.lines()), count);
        self.expect(Condition::Clause(7), key, undated, if is_new { count } else { 0 });
        let Some(index) = self.district_index(warehouse, district) else { return };
        let book = &mut self.districts[index];
        book.orders_count += 1;
        book.order_max = book.order_max.max(order);
        book.lines_promised += u64::from(row.lines());
        book.lines_count += count as u64;
        let of_customer = &mut book.customers_of_orders.0;
        *of_customer = of_customer.wrapping_add(mixed(&[row.customer(), order]));
        let is_listed = book.new_orders.binary_search(&order).is_ok();
        self.expect(Condition::Clause(5), key, i64::from(is_new), i64::from(is_listed));
        let customer = self.customer_index(warehouse, district, row.customer());
        if let (Some(index), false) = (customer, is_new) {
            self.customers[index].delivered += sum;
        }
    }

    /// Conditions 10 and 12.
    fn read_customers(&mut self, txn: &ReadTransaction) -> Result<(), Error> {
        for entry in txn.open_table(CUSTOMER)?.range(..)? {
            let entry = entry?;
            let (key, row) = (entry.key(), Customer::check(entry.value())?);
            let (warehouse, district, customer) = key;
            let Some(index) = self.customer_index(warehouse, district, customer) else { continue };
            let CustomerBook { delivered, paid } = self.customers[index];
            self.expect(Condition::Clause(10), key, row.balance(), delivered - paid);
            let both = row.balance() + row.ytd_payment();
            self.expect(Condition::Clause(12), key, both, delivered);
            let name = schema::full_name(row.last(), row.first(), customer);
            let book = &mut self.districts[index / self.scale.customers as usize];
            book.deliveries += u64::from(row.deliveries());
            book.names.0 = book.names.0.wrapping_add(mixed_name(&name));
        }
        Ok(())
    }

    fn read_indexes(&mut self, txn: &ReadTransaction) -> Result<(), Error> {
        for entry in txn.open_table(CUSTOMER_BY_NAME)?.range(..)? {
            let (warehouse, district, name) = entry?.key();
            if let Some(index) = self.district_index(warehouse, district) {
                let sum = &mut self.districts[index].names.1;
                *sum = sum.wrapping_add(mixed_name(&name));
            }
        }
        for entry in txn.open_table(ORDER_BY_CUSTOMER)?.range(..)? {
            let (warehouse, district, customer, order) = entry?.key();
            if let Some(index) = self.district_index(warehouse, district) {
                let sum = &mut self.districts[index].customers_of_orders.1;
                *sum = sum.wrapping_add(mixed(&[customer, order]));
            }
        }
        Ok(())
    }

    /// Conditions 1, 2, 3, 4, 8, 9, 11, and the indexes.
    fn check_districts(&mut self) {
        let districts = usize::from(self.scale.districts);
        for warehouse in 0..self.scale.warehouses {
            let first = warehouse as usize * districts;
            let books = self.districts[first..first + districts].to_vec();
            let ytd = self.warehouses_ytd[warehouse as usize];
            let place = (warehouse + 1, 0, 0);
            let sum = books.iter().map(|book| book.ytd).sum();
            self.expect(Condition::Clause(1), place, ytd, sum);
            let sum = books.iter().map(|book| book.paid).sum();
            self.expect(Condition::Clause(8), place, ytd, sum);
            for (index, book) in books.iter().enumerate() {
                self.check_district((warehouse + 1, index as u8 + 1, 0), book);
            }
        }
    }

    fn check_district(&mut self, place: OrderKey, book: &DistrictBook) {
        use Condition::Clause;
        let last = i64::from(book.next_order) - 1;
        let new_orders_count = book.new_orders.len() as i64;
        self.expect(Clause(2), place, last, i64::from(book.order_max));
        if let (Some(&min), Some(&max)) = (book.new_orders.first(), book.new_orders.last()) {
            self.expect(Clause(2), place, last, i64::from(max));
            self.expect(Clause(3), place, i64::from(max) - i64::from(min) + 1, new_orders_count);
        }
        self.expect(Clause(4), place, book.lines_promised as i64, book.lines_count as i64);
        self.expect(Clause(9), place, book.ytd, book.paid);
        let delivered = i64::from(self.scale.delivered_orders()) + book.deliveries as i64;
        let old_orders = i64::from(book.orders_count) - new_orders_count;
        self.expect(Clause(11), place, old_orders, delivered);
        let (left, right) = book.names;
        self.expect(Condition::NameIndex, place, left as i64, right as i64);
        let (left, right) = book.customers_of_orders;
        self.expect(Condition::OrderIndex, place, left as i64, right as i64);
    }
}

/// A hash whose sum over a set tells one set from another.
fn mixed(words: &[u32]) -> u64 {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    for &word in words {
        state = (state ^ u64::from(word)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        state ^= state >> 32;
    }
    state
}

fn mixed_name(name: &[u8; schema::FULL_NAME_SIZE]) -> u64 {
    let mut words = [0; schema::FULL_NAME_SIZE / 4];
    for (word, bytes) in words.iter_mut().zip(name.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    mixed(&words)
}
