//! The rows of a new database (clause 4.3.3), table by table in the order of their keys.
//!
//! Every part (a table of a warehouse or of a district) has a generator of its own, made from the
//! seed and the part's name. So tables that must agree (ORDER, ORDER-LINE, the index by customer)
//! are generated one after another, each in key order for a bulk load, and still agree.
//!
//! - P1: the same seed and scale give the same rows.
//! - P2: rows are passed to `emit` in strictly ascending order of their keys.
//! - P3: sums agree as clause 3.3.2 wants, at any scale: year-to-date amounts follow from the
//!   customers.

use terrace_rt::Prng;

use super::random::{
    Constants, LAST_NAMES, alphanumeric, brand_data, fill_alphanumeric, fill_digits, last_name,
    last_name_number, state, uniform, zip,
};
use super::rows::{Customer, District, History, Item, Order, OrderLine, Stock, Warehouse};
use super::schema::{
    self, CustomerKey, DistrictKey, HistoryKey, NameKey, OrderKey, OrderLineKey, OrderOfKey,
    StockKey,
};

/// How large a database is. The specification fixes all but the warehouses; tests shrink the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses, numbered from 1.
    pub warehouses: u32,
    /// Districts of a warehouse: 10.
    pub districts: u8,
    /// Customers of a district, and its orders at first: 3,000.
    pub customers: u32,
    /// Items, and stocks of a warehouse: 100,000.
    pub items: u32,
}

impl Scale {
    /// The specification's database of `warehouses`.
    pub const fn full(warehouses: u32) -> Scale {
        Scale { warehouses, districts: 10, customers: 3000, items: 100_000 }
    }

    /// A database for tests: about 300 KiB a warehouse, with the shape of the whole.
    pub const fn tiny(warehouses: u32) -> Scale {
        Scale { warehouses, districts: 10, customers: 12, items: 200 }
    }

    /// The first order of a district that is not delivered yet: 2,101 of 3,000.
    pub const fn first_new_order(&self) -> u32 {
        self.customers * 7 / 10 + 1
    }

    /// Orders of a district that are delivered at first: 2,100.
    pub const fn delivered_orders(&self) -> u32 {
        self.first_new_order() - 1
    }
}

/// Date of all rows of a new database: 2026-01-01, in nanoseconds since 1970.
pub const LOAD_DATE: u64 = 1_767_225_600 * 1_000_000_000;

/// What each customer has paid at first, in cents (clause 4.3.3.1).
const FIRST_PAYMENT: i64 = 1000;

/// Which generator: a table's part has its own.
#[derive(Clone, Copy)]
enum Part {
    Item,
    Warehouse,
    District,
    Stock,
    Names,
    Customer,
    History,
    Orders,
    Permutation,
    OrderLines,
}

/// Generates the rows of one database.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    scale: Scale,
    seed: u64,
    constants: Constants,
}

impl Population {
    /// The database of `scale` that `seed` decides.
    pub fn new(scale: Scale, seed: u64) -> Population {
        Population { scale, seed, constants: Constants::load(seed) }
    }

    fn prng(&self, part: Part, warehouse: u32, district: u8) -> Prng {
        let place = u64::from(warehouse) << 16 | u64::from(district) << 8 | part as u64;
        Prng::from_seed(self.seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn places(&self) -> impl Iterator<Item = (u32, u8)> + use<> {
        let Scale { warehouses, districts, .. } = self.scale;
        (1..=warehouses).flat_map(move |w| (1..=districts).map(move |d| (w, d)))
    }

    /// ITEM.
    pub fn items<E>(&self, mut emit: impl FnMut(u32, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut prng = self.prng(Part::Item, 0, 0);
        let mut row = Item::new();
        for item in 1..=self.scale.items {
            row.set_image(uniform(&mut prng, 1, 10_000) as u32);
            row.set_price(uniform(&mut prng, 100, 10_000) as u32);
            row.set_name(&alphanumeric::<24>(&mut prng, 14, 24));
            row.set_data(&brand_data(&mut prng));
            emit(item, row.bytes())?;
        }
        Ok(())
    }

    /// WAREHOUSE.
    pub fn warehouses<E>(
        &self,
        mut emit: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let payments = i64::from(self.scale.districts) * i64::from(self.scale.customers);
        for warehouse in 1..=self.scale.warehouses {
            let mut prng = self.prng(Part::Warehouse, warehouse, 0);
            let mut row = Warehouse::new();
            row.set_ytd(payments * FIRST_PAYMENT);
            row.set_tax(uniform(&mut prng, 0, 2000) as u16);
            row.set_name(&alphanumeric::<10>(&mut prng, 6, 10));
            row.set_street_1(&alphanumeric::<20>(&mut prng, 10, 20));
            row.set_street_2(&alphanumeric::<20>(&mut prng, 10, 20));
            row.set_city(&alphanumeric::<20>(&mut prng, 10, 20));
            row.set_state(&state(&mut prng));
            row.set_zip(&zip(&mut prng));
            emit(warehouse, row.bytes())?;
        }
        Ok(())
    }

    /// DISTRICT.
    pub fn districts<E>(
        &self,
        mut emit: impl FnMut(DistrictKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (warehouse, district) in self.places() {
            let mut prng = self.prng(Part::District, warehouse, district);
            let mut row = District::new();
            row.set_ytd(i64::from(self.scale.customers) * FIRST_PAYMENT);
            row.set_next_order(self.scale.customers + 1);
            row.set_tax(uniform(&mut prng, 0, 2000) as u16);
            row.set_name(&alphanumeric::<10>(&mut prng, 6, 10));
            row.set_street_1(&alphanumeric::<20>(&mut prng, 10, 20));
            row.set_street_2(&alphanumeric::<20>(&mut prng, 10, 20));
            row.set_city(&alphanumeric::<20>(&mut prng, 10, 20));
            row.set_state(&state(&mut prng));
            row.set_zip(&zip(&mut prng));
            emit((warehouse, district), row.bytes())?;
        }
        Ok(())
    }

    /// STOCK.
    pub fn stocks<E>(
        &self,
        mut emit: impl FnMut(StockKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut row = Stock::new();
        for warehouse in 1..=self.scale.warehouses {
            let mut prng = self.prng(Part::Stock, warehouse, 0);
            for item in 1..=self.scale.items {
                let mut districts = [0; 240];
                fill_alphanumeric(&mut prng, &mut districts);
                row.set_quantity(uniform(&mut prng, 10, 100) as i16);
                row.set_districts(&districts);
                row.set_data(&brand_data(&mut prng));
                emit((warehouse, item), row.bytes())?;
            }
        }
        Ok(())
    }

    /// The last and the first name of each customer of a district, in the order of C_ID.
    fn names(&self, warehouse: u32, district: u8) -> impl Iterator<Item = ([u8; 16], [u8; 16])> {
        let mut prng = self.prng(Part::Names, warehouse, district);
        let Population { scale, constants, .. } = *self;
        (0..scale.customers).map(move |index| {
            let number = match u64::from(index) < LAST_NAMES {
                true => index,
                false => last_name_number(&mut prng, constants, scale.customers),
            };
            (last_name(number), alphanumeric(&mut prng, 8, 16))
        })
    }

    /// CUSTOMER.
    pub fn customers<E>(
        &self,
        mut emit: impl FnMut(CustomerKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (warehouse, district) in self.places() {
            let mut prng = self.prng(Part::Customer, warehouse, district);
            for (index, (last, first)) in self.names(warehouse, district).enumerate() {
                let row = new_customer(&mut prng, &last, &first);
                emit((warehouse, district, index as u32 + 1), row.bytes())?;
            }
        }
        Ok(())
    }

    /// The index of CUSTOMER by last and first name.
    pub fn customers_by_name<E>(
        &self,
        mut emit: impl FnMut(NameKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (warehouse, district) in self.places() {
            let mut names: Vec<_> = (1..=self.scale.customers)
                .zip(self.names(warehouse, district))
                .map(|(customer, (last, first))| schema::full_name(&last, &first, customer))
                .collect();
            names.sort_unstable();
            for name in names {
                emit((warehouse, district, name), &[])?;
            }
        }
        Ok(())
    }

    /// HISTORY: one row for each customer.
    pub fn histories<E>(
        &self,
        mut emit: impl FnMut(HistoryKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut row = History::new();
        for (warehouse, district) in self.places() {
            let mut prng = self.prng(Part::History, warehouse, district);
            for customer in 1..=self.scale.customers {
                row.set_customer_warehouse(warehouse);
                row.set_customer_district(district);
                row.set_customer(customer);
                row.set_amount(FIRST_PAYMENT as u32);
                row.set_data(&alphanumeric::<24>(&mut prng, 12, 24));
                emit((warehouse, district, LOAD_DATE + u64::from(customer), 0), row.bytes())?;
            }
        }
        Ok(())
    }

    /// The customer of each order of a district: a permutation, in the order of O_ID.
    fn customers_of_orders(&self, warehouse: u32, district: u8) -> Vec<u32> {
        let mut customers: Vec<u32> = (1..=self.scale.customers).collect();
        self.prng(Part::Permutation, warehouse, district).shuffle(&mut customers);
        customers
    }

    /// O_CARRIER_ID and O_OL_CNT of each order of a district, in the order of O_ID.
    fn order_heads(&self, warehouse: u32, district: u8) -> impl Iterator<Item = (u32, u8, u8)> {
        let mut prng = self.prng(Part::Orders, warehouse, district);
        let first_new = self.scale.first_new_order();
        (1..=self.scale.customers).map(move |order| {
            let carrier = uniform(&mut prng, 1, 10) as u8;
            let lines = uniform(&mut prng, 5, 15) as u8;
            (order, if order < first_new { carrier } else { 0 }, lines)
        })
    }

    /// ORDER.
    pub fn orders<E>(
        &self,
        mut emit: impl FnMut(OrderKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut row = Order::new();
        row.set_entry_date(LOAD_DATE);
        row.set_all_local(1);
        for (warehouse, district) in self.places() {
            let customers = self.customers_of_orders(warehouse, district);
            for (order, carrier, lines) in self.order_heads(warehouse, district) {
                row.set_customer(customers[order as usize - 1]);
                row.set_carrier(carrier);
                row.set_lines(lines);
                emit((warehouse, district, order), row.bytes())?;
            }
        }
        Ok(())
    }

    /// The index of ORDER by customer.
    pub fn orders_by_customer<E>(
        &self,
        mut emit: impl FnMut(OrderOfKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut orders = vec![0; self.scale.customers as usize];
        for (warehouse, district) in self.places() {
            for (index, customer) in
                self.customers_of_orders(warehouse, district).into_iter().enumerate()
            {
                orders[customer as usize - 1] = index as u32 + 1;
            }
            for (index, &order) in orders.iter().enumerate() {
                emit((warehouse, district, index as u32 + 1, order), &[])?;
            }
        }
        Ok(())
    }

    /// NEW-ORDER.
    pub fn new_orders<E>(
        &self,
        mut emit: impl FnMut(OrderKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (warehouse, district) in self.places() {
            for order in self.scale.first_new_order()..=self.scale.customers {
                emit((warehouse, district, order), &[])?;
            }
        }
        Ok(())
    }

    /// ORDER-LINE.
    pub fn order_lines<E>(
        &self,
        mut emit: impl FnMut(OrderLineKey, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut row = OrderLine::new();
        for (warehouse, district) in self.places() {
            let mut prng = self.prng(Part::OrderLines, warehouse, district);
            row.set_supply_warehouse(warehouse);
            row.set_quantity(5);
            for (order, carrier, lines) in self.order_heads(warehouse, district) {
                for number in 1..=lines {
                    let amount = uniform(&mut prng, 1, 999_999) as u32;
                    row.set_item(uniform(&mut prng, 1, u64::from(self.scale.items)) as u32);
                    row.set_delivery_date(if carrier == 0 { 0 } else { LOAD_DATE });
                    row.set_amount(if carrier == 0 { amount } else { 0 });
                    row.set_district_info(&alphanumeric::<24>(&mut prng, 24, 24));
                    emit((warehouse, district, order, number), row.bytes())?;
                }
            }
        }
        Ok(())
    }
}

fn new_customer(
    prng: &mut Prng,
    last: &[u8],
    first: &[u8],
) -> Customer<[u8; Customer::<()>::SIZE]> {
    let mut row = Customer::new();
    row.set_balance(-FIRST_PAYMENT);
    row.set_ytd_payment(FIRST_PAYMENT);
    row.set_payments(1);
    row.set_credit_limit(5_000_000);
    row.set_discount(uniform(prng, 0, 5000) as u16);
    row.set_credit(if prng.below(10) == 0 { b"BC" } else { b"GC" });
    row.set_last(last);
    row.set_first(first);
    row.set_middle(b"OE");
    row.set_street_1(&alphanumeric::<20>(prng, 10, 20));
    row.set_street_2(&alphanumeric::<20>(prng, 10, 20));
    row.set_city(&alphanumeric::<20>(prng, 10, 20));
    row.set_state(&state(prng));
    row.set_zip(&zip(prng));
    let mut phone = [0; 16];
    fill_digits(prng, &mut phone);
    row.set_phone(&phone);
    row.set_since(LOAD_DATE);
    row.set_data(&alphanumeric::<500>(prng, 300, 500));
    row
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn collect<K: Ord + Copy>(
        run: impl FnOnce(&mut dyn FnMut(K, &[u8]) -> Result<(), Infallible>),
    ) -> Vec<(K, Vec<u8>)> {
        let mut rows: Vec<(K, Vec<u8>)> = Vec::new();
        run(&mut |key, row| {
            assert!(rows.last().is_none_or(|last| last.0 < key));
            rows.push((key, row.to_vec()));
            Ok(())
        });
        rows
    }

    fn full() -> Population {
        Population::new(Scale::full(1), 7)
    }

    #[test]
    fn orders_and_lines_follow_clause_4_3_3() {
        let orders = collect(|emit| full().orders(emit).unwrap());
        let lines = collect(|emit| full().order_lines(emit).unwrap());
        let new_orders = collect(|emit| full().new_orders(emit).unwrap());
        assert_eq!((orders.len(), new_orders.len()), (30_000, 9_000));
        assert_eq!(new_orders[0].0, (1, 1, 2101));
        let mut next = lines.iter();
        for (key, row) in &orders {
            let row = Order::check(row).unwrap();
            assert!((5..=15).contains(&row.lines()));
            assert_eq!(row.carrier() == 0, key.2 >= 2101);
            for number in 1..=row.lines() {
                let (line_key, line) = next.next().expect("a line for each count");
                let line = OrderLine::check(line).unwrap();
                assert_eq!(*line_key, (key.0, key.1, key.2, number));
                assert_eq!(line.delivery_date() == 0, key.2 >= 2101);
                assert_eq!(line.amount() == 0, key.2 < 2101);
            }
        }
        assert!(next.next().is_none());
    }

    #[test]
    fn each_customer_has_one_order_and_the_index_agrees() {
        let orders = collect(|emit| full().orders(emit).unwrap());
        let index = collect(|emit| full().orders_by_customer(emit).unwrap());
        let mut expected: Vec<OrderOfKey> = orders
            .iter()
            .map(|(key, row)| (key.0, key.1, Order::check(row).unwrap().customer(), key.2))
            .collect();
        expected.sort_unstable();
        assert!(index.iter().map(|(key, _)| *key).eq(expected));
    }

    #[test]
    fn customers_and_the_index_by_name_agree() {
        let mut expected = Vec::new();
        let mut bad = 0;
        full()
            .customers(|key, row| {
                let row = Customer::check(row).unwrap();
                bad += u32::from(row.credit() == b"BC");
                if key.2 <= 1000 {
                    assert_eq!(
                        row.last(),
                        last_name(key.2 - 1).split(|&byte| byte == 0).next().unwrap()
                    );
                }
                expected.push((key.0, key.1, schema::full_name(row.last(), row.first(), key.2)));
                Ok::<_, Infallible>(())
            })
            .unwrap();
        expected.sort_unstable();
        let mut index = Vec::new();
        full()
            .customers_by_name(|(w, d, name), _| {
                index.push((w, d, name));
                Ok::<_, Infallible>(())
            })
            .unwrap();
        assert_eq!(index, expected);
        assert!((2700..3300).contains(&bad), "{bad} of 30000 with bad credit");
    }

    #[test]
    fn the_rest_has_its_counts() {
        let items = collect(|emit| full().items(emit).unwrap());
        let stocks = collect(|emit| full().stocks(emit).unwrap());
        let histories = collect(|emit| full().histories(emit).unwrap());
        let districts = collect(|emit| full().districts(emit).unwrap());
        assert_eq!((items.len(), stocks.len()), (100_000, 100_000));
        assert_eq!((histories.len(), districts.len()), (30_000, 10));
        assert_eq!(District::check(&districts[0].1).unwrap().next_order(), 3001);
    }
}
