//! What a terminal asks for: the inputs of the five transactions (clauses 2.4.1 to 2.8.1, 5.2.3).
//!
//! Inputs are drawn before a transaction begins and are kept when it meets a conflict, so that a
//! transaction that runs again is the same one.

use terrace_rt::Prng;

use super::population::Scale;
use super::random::{Constants, customer_id, item_id, last_name, last_name_number, uniform};

/// The five transactions, in the order of clause 5.2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Enters an order.
    NewOrder,
    /// Takes a payment.
    Payment,
    /// Looks up a customer's last order.
    OrderStatus,
    /// Delivers the oldest new order of each district, deferred.
    Delivery,
    /// Counts recently sold items whose stock is low.
    StockLevel,
}

impl Kind {
    /// All five, in the order of their discriminants.
    pub const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Name for people and for `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new-order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order-status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock-level",
        }
    }
}

/// Shares of the five transactions, in percent (clause 5.2.3; 45/43/4/4/4 in [S4 5.2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix(pub [u8; 5]);

impl Mix {
    /// The mix of the papers: 45/43/4/4/4.
    pub const STANDARD: Mix = Mix([45, 43, 4, 4, 4]);

    /// Draws a transaction.
    ///
    /// # Panics
    ///
    /// If the shares do not add up to 100.
    pub fn draw(self, prng: &mut Prng) -> Kind {
        assert_eq!(self.0.iter().map(|&share| u32::from(share)).sum::<u32>(), 100);
        let mut left = prng.below(100) as u8;
        for (kind, share) in Kind::ALL.into_iter().zip(self.0) {
            if left < share {
                return kind;
            }
            left -= share;
        }
        unreachable!("shares add up to 100")
    }
}

/// A customer, by number or by name (clause 2.5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomerBy {
    /// By C_ID.
    Number(u32),
    /// By C_LAST: the middle one, by first name, of those who bear it.
    LastName([u8; 16]),
}

/// One line of an order to be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// OL_SUPPLY_W_ID.
    pub supply_warehouse: u32,
    /// OL_I_ID; beyond the last item in an order that is to be rolled back.
    pub item: u32,
    /// OL_QUANTITY, `1..=10`.
    pub quantity: u8,
}

/// Most lines of an order.
pub const LINES_MAX: usize = 15;

/// Inputs of New-Order (clause 2.4.1).
#[derive(Clone, Copy, Debug)]
pub struct NewOrder {
    /// W_ID.
    pub warehouse: u32,
    /// D_ID.
    pub district: u8,
    /// C_ID.
    pub customer: u32,
    lines: [Line; LINES_MAX],
    lines_count: u8,
}

impl NewOrder {
    /// The lines of the order, 5 to 15.
    pub fn lines(&self) -> &[Line] {
        &self.lines[..usize::from(self.lines_count)]
    }

    /// Whether every item comes from the order's own warehouse.
    pub fn is_all_local(&self) -> bool {
        self.lines().iter().all(|line| line.supply_warehouse == self.warehouse)
    }
}

/// Inputs of Payment (clause 2.5.1).
#[derive(Clone, Copy, Debug)]
pub struct Payment {
    /// W_ID.
    pub warehouse: u32,
    /// D_ID.
    pub district: u8,
    /// C_W_ID: another warehouse in 15 of 100 payments.
    pub customer_warehouse: u32,
    /// C_D_ID.
    pub customer_district: u8,
    /// The customer that pays.
    pub customer: CustomerBy,
    /// H_AMOUNT, in cents.
    pub amount: u32,
}

/// Inputs of Order-Status (clause 2.6.1).
#[derive(Clone, Copy, Debug)]
pub struct OrderStatus {
    /// W_ID.
    pub warehouse: u32,
    /// D_ID.
    pub district: u8,
    /// The customer of the order.
    pub customer: CustomerBy,
}

/// Inputs of Delivery (clause 2.7.1).
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// W_ID.
    pub warehouse: u32,
    /// O_CARRIER_ID, `1..=10`.
    pub carrier: u8,
}

/// Inputs of Stock-Level (clause 2.8.1).
#[derive(Clone, Copy, Debug)]
pub struct StockLevel {
    /// W_ID.
    pub warehouse: u32,
    /// D_ID.
    pub district: u8,
    /// Stocks below this count, `10..=20`.
    pub threshold: i16,
}

/// Inputs of any of the five.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Of New-Order.
    NewOrder(NewOrder),
    /// Of Payment.
    Payment(Payment),
    /// Of Order-Status.
    OrderStatus(OrderStatus),
    /// Of Delivery.
    Delivery(Delivery),
    /// Of Stock-Level.
    StockLevel(StockLevel),
}

/// Draws inputs for one terminal.
#[derive(Debug)]
pub struct Source {
    /// The terminal's generator.
    pub prng: Prng,
    scale: Scale,
    constants: Constants,
}

impl Source {
    /// Inputs on a database of `scale`, with the constants of the run.
    pub fn new(prng: Prng, scale: Scale, constants: Constants) -> Source {
        Source { prng, scale, constants }
    }

    /// Inputs of a `kind` for a terminal that stands in `warehouse`.
    pub fn draw(&mut self, kind: Kind, warehouse: u32) -> Input {
        match kind {
            Kind::NewOrder => Input::NewOrder(self.new_order(warehouse)),
            Kind::Payment => Input::Payment(self.payment(warehouse)),
            Kind::OrderStatus => {
                let (district, customer) = (self.district(), self.customer());
                Input::OrderStatus(OrderStatus { warehouse, district, customer })
            }
            Kind::Delivery => {
                let carrier = uniform(&mut self.prng, 1, 10) as u8;
                Input::Delivery(Delivery { warehouse, carrier })
            }
            Kind::StockLevel => {
                let threshold = uniform(&mut self.prng, 10, 20) as i16;
                Input::StockLevel(StockLevel { warehouse, district: self.district(), threshold })
            }
        }
    }

    /// Any warehouse.
    pub fn warehouse(&mut self) -> u32 {
        uniform(&mut self.prng, 1, u64::from(self.scale.warehouses)) as u32
    }

    fn district(&mut self) -> u8 {
        uniform(&mut self.prng, 1, u64::from(self.scale.districts)) as u8
    }

    /// Any warehouse but `warehouse`, if there is another.
    fn other_warehouse(&mut self, warehouse: u32) -> u32 {
        if self.scale.warehouses == 1 {
            return warehouse;
        }
        let other = uniform(&mut self.prng, 1, u64::from(self.scale.warehouses) - 1) as u32;
        other + u32::from(other >= warehouse)
    }

    /// By last name in 60 of 100 (clauses 2.5.1.2, 2.6.1.2).
    fn customer(&mut self) -> CustomerBy {
        let Source { prng, scale, constants } = self;
        match prng.below(100) < 60 {
            true => {
                let number = last_name_number(prng, *constants, scale.customers);
                CustomerBy::LastName(last_name(number))
            }
            false => CustomerBy::Number(customer_id(prng, *constants, scale.customers)),
        }
    }

    fn new_order(&mut self, warehouse: u32) -> NewOrder {
        let lines_count = uniform(&mut self.prng, 5, LINES_MAX as u64) as u8;
        let is_invalid = self.prng.below(100) == 0;
        let mut input = NewOrder {
            warehouse,
            district: self.district(),
            customer: customer_id(&mut self.prng, self.constants, self.scale.customers),
            lines: [Line { supply_warehouse: warehouse, item: 0, quantity: 0 }; LINES_MAX],
            lines_count,
        };
        for index in 0..usize::from(lines_count) {
            let is_remote = self.prng.below(100) == 0;
            input.lines[index] = Line {
                supply_warehouse: match is_remote {
                    true => self.other_warehouse(warehouse),
                    false => warehouse,
                },
                item: item_id(&mut self.prng, self.constants, self.scale.items),
                quantity: uniform(&mut self.prng, 1, 10) as u8,
            };
        }
        if is_invalid {
            input.lines[usize::from(lines_count) - 1].item = self.scale.items + 1;
        }
        input
    }

    fn payment(&mut self, warehouse: u32) -> Payment {
        let district = self.district();
        let (customer_warehouse, customer_district) = match self.prng.below(100) < 85 {
            true => (warehouse, district),
            false => (self.other_warehouse(warehouse), self.district()),
        };
        Payment {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: self.customer(),
            amount: uniform(&mut self.prng, 100, 500_000) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(warehouses: u32) -> Source {
        Source::new(Prng::from_seed(5), Scale::full(warehouses), Constants::load(5))
    }

    #[test]
    fn the_mix_is_drawn_as_given() {
        let mut prng = Prng::from_seed(1);
        let mut counts = [0u32; 5];
        for _ in 0..100_000 {
            counts[Mix::STANDARD.draw(&mut prng) as usize] += 1;
        }
        for (count, share) in counts.into_iter().zip(Mix::STANDARD.0) {
            assert!(count.abs_diff(u32::from(share) * 1000) < 500, "{counts:?}");
        }
    }

    #[test]
    fn one_order_in_a_hundred_is_invalid_and_one_line_remote() {
        let mut source = source(20);
        let (mut invalid, mut remote, mut lines) = (0, 0, 0);
        for _ in 0..50_000 {
            let order = source.new_order(4);
            invalid += order.lines().iter().filter(|line| line.item > 100_000).count();
            remote += order.lines().iter().filter(|line| line.supply_warehouse != 4).count();
            lines += order.lines().len();
        }
        assert!((400..600).contains(&invalid), "{invalid} invalid of 50000");
        assert!((4500..5500).contains(&remote), "{remote} remote of {lines}");
        assert!((495_000..505_000).contains(&lines));
    }

    #[test]
    fn fifteen_payments_in_a_hundred_are_remote_and_sixty_by_name() {
        let mut source = source(20);
        let (mut remote, mut by_name) = (0, 0);
        for _ in 0..50_000 {
            let payment = source.payment(20);
            assert!((1..=20).contains(&payment.customer_warehouse));
            remote += u32::from(payment.customer_warehouse != 20);
            by_name += u32::from(matches!(payment.customer, CustomerBy::LastName(_)));
        }
        assert!((7200..7800).contains(&remote), "{remote} remote of 50000");
        assert!((29_500..30_500).contains(&by_name), "{by_name} by name of 50000");
    }

    #[test]
    fn a_single_warehouse_has_no_other() {
        let mut source = source(1);
        for _ in 0..1000 {
            assert!(source.new_order(1).is_all_local());
            assert_eq!(source.payment(1).customer_warehouse, 1);
        }
    }
}
