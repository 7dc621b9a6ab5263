//! New-Order (clause 2.4): enters an order of 5 to 15 lines, half of all transactions.

use terrace::WriteTransaction;

use super::{Ending, Scratch, missing};
use crate::Error;
use crate::tpcc::input::{LINES_MAX, Line, NewOrder};
use crate::tpcc::random::ORIGINAL;
use crate::tpcc::rows::Warehouse;
use crate::tpcc::rows::{Customer, DISTRICT_INFO_SIZE, District, Item, Order, OrderLine, Stock};
use crate::tpcc::schema::{
    CUSTOMER, DISTRICT, ITEM, NEW_ORDER, ORDER, ORDER_BY_CUSTOMER, ORDER_LINE, STOCK, WAREHOUSE,
};

/// A row of ORDER-LINE in the making.
type NewLine = OrderLine<[u8; OrderLine::<()>::SIZE]>;

/// What the terminal displays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entered {
    /// O_ID.
    pub order: u32,
    /// Sum of the lines after discount and with taxes, in cents.
    pub total: u64,
    /// Lines whose item and stock are both `ORIGINAL`: shown as `B`, the others as `G`.
    pub brand_lines: u32,
}

/// What the stocks gave.
struct Taken {
    /// Sum of the lines' amounts, in cents.
    sum: u64,
    brand_lines: u32,
}

/// Enters the order `input` at the date `now`.
///
/// # Errors
///
/// Those of the engine; missing or malformed rows.
pub fn new_order(
    txn: &WriteTransaction,
    input: &NewOrder,
    now: u64,
    scratch: &mut Scratch,
) -> Result<(Ending, Entered), Error> {
    let NewOrder { warehouse, district, customer, .. } = *input;
    let mut lines = [OrderLine::new(); LINES_MAX];
    let Some(Taken { sum, brand_lines }) = take_stocks(txn, input, &mut lines, scratch)? else {
        return Ok((Ending::RollBack, Entered::default()));
    };
    let row = &mut scratch.row;

    if !txn.open_table(CUSTOMER)?.get_into((warehouse, district, customer), row)? {
        return Err(missing("customer"));
    }
    let discount = u64::from(Customer::check(row)?.discount());

    let mut districts = txn.open_table(DISTRICT)?;
    if !districts.get_into_for_update((warehouse, district), row)? {
        return Err(missing("district"));
    }
    let mut changed = District::change(row)?;
    let (order, district_tax) = (changed.next_order(), u64::from(changed.tax()));
    changed.set_next_order(order + 1);
    districts.update((warehouse, district), row)?;

    let mut head = Order::new();
    head.set_customer(customer);
    head.set_entry_date(now);
    head.set_lines(input.lines().len() as u8);
    head.set_all_local(u8::from(input.is_all_local()));
    txn.open_table(ORDER)?.insert((warehouse, district, order), head.bytes())?;
    txn.open_table(ORDER_BY_CUSTOMER)?.insert((warehouse, district, customer, order), ())?;
    txn.open_table(NEW_ORDER)?.insert((warehouse, district, order), ())?;
    let mut order_lines = txn.open_table(ORDER_LINE)?;
    for (index, line) in lines[..input.lines().len()].iter().enumerate() {
        order_lines.insert((warehouse, district, order, index as u8 + 1), line.bytes())?;
    }

    if !txn.open_table(WAREHOUSE)?.get_into(warehouse, row)? {
        return Err(missing("warehouse"));
    }
    let taxes = 10_000 + u64::from(Warehouse::check(row)?.tax()) + district_tax;
    let total = sum * (10_000 - discount) / 10_000 * taxes / 10_000;
    Ok((Ending::Commit, Entered { order, total, brand_lines }))
}

/// Looks up the items and takes them from the stocks, in the order of the stocks' keys; fills in
/// the lines and returns what they come to, or nothing if an item is not for sale.
fn take_stocks(
    txn: &WriteTransaction,
    input: &NewOrder,
    lines: &mut [NewLine; LINES_MAX],
    scratch: &mut Scratch,
) -> Result<Option<Taken>, Error> {
    let items = txn.open_table(ITEM)?;
    let mut stocks = txn.open_table(STOCK)?;
    let mut places: [usize; LINES_MAX] = std::array::from_fn(|index| index);
    let places = &mut places[..input.lines().len()];
    places.sort_unstable_by_key(|&place| input.lines()[place]);
    let row = &mut scratch.row;
    let mut taken = Taken { sum: 0, brand_lines: 0 };
    for &mut place in places {
        let wanted = input.lines()[place];
        if !items.get_into(wanted.item, row)? {
            return Ok(None);
        }
        let item = Item::check(row)?;
        let (price, is_original) = (item.price(), is_original(item.data()));
        let key = (wanted.supply_warehouse, wanted.item);
        if !stocks.get_into_for_update(key, row)? {
            return Err(missing("stock"));
        }
        let amount = price * u32::from(wanted.quantity);
        let is_remote = wanted.supply_warehouse != input.warehouse;
        take_stock(Stock::change(row)?, wanted, is_remote);
        stocks.update(key, row)?;
        let at = usize::from(input.district - 1) * DISTRICT_INFO_SIZE;
        let line = &mut lines[place];
        line.set_item(wanted.item);
        line.set_supply_warehouse(wanted.supply_warehouse);
        line.set_quantity(wanted.quantity);
        line.set_amount(amount);
        let stock = Stock::check(row)?;
        line.set_district_info(&stock.districts()[at..at + DISTRICT_INFO_SIZE]);
        taken.brand_lines += u32::from(is_original && self::is_original(stock.data()));
        taken.sum += u64::from(amount);
    }
    Ok(Some(taken))
}

fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|window| window == ORIGINAL)
}

/// Takes one line's quantity from a stock, and fills the stock up when it runs low (clause
/// 2.4.2.2).
fn take_stock(mut stock: Stock<&mut [u8]>, line: Line, is_remote: bool) {
    const LOW: i16 = 10;
    const REFILL: i16 = 91;
    let left = stock.quantity() - i16::from(line.quantity);
    stock.set_quantity(if left >= LOW { left } else { left + REFILL });
    stock.set_ytd(stock.ytd() + u32::from(line.quantity));
    stock.set_orders(stock.orders() + 1);
    stock.set_remote_orders(stock.remote_orders() + u32::from(is_remote));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_is_filled_up_before_it_falls_below_ten() {
        for (before, quantity, after) in [(20, 10, 10), (19, 10, 100), (10, 1, 100), (50, 3, 47)] {
            let mut row = Stock::new();
            row.set_quantity(before);
            let mut bytes = row.bytes().to_vec();
            let line = Line { supply_warehouse: 1, item: 1, quantity };
            take_stock(Stock::change(&mut bytes).unwrap(), line, true);
            let row = Stock::check(&bytes).unwrap();
            assert_eq!((row.quantity(), row.ytd()), (after, u32::from(quantity)));
            assert_eq!((row.orders(), row.remote_orders()), (1, 1));
        }
    }
}
