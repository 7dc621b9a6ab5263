//! Payment (clause 2.5): a customer pays, and the amount is added to the totals of the district and
//! the warehouse.

use std::io::Write;

use terrace::WriteTransaction;

use super::{Scratch, customer_by_name, missing};
use crate::Error;
use crate::tpcc::input::{CustomerBy, Payment};
use crate::tpcc::rows::{Customer, District, History, Warehouse};
use crate::tpcc::schema::{CUSTOMER, CUSTOMER_BY_NAME, CustomerKey, DISTRICT, HISTORY, WAREHOUSE};

/// Bytes of C_DATA.
const DATA_SIZE: usize = 500;

/// Takes the payment `input` at the date `now`, which must be unique among the payments of
/// `terminal`.
///
/// # Errors
///
/// Those of the engine; missing or malformed rows.
pub fn payment(
    txn: &WriteTransaction,
    input: &Payment,
    terminal: u16,
    now: u64,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let Payment { warehouse, district, amount, .. } = *input;
    let customer = pay(txn, input, scratch)?;
    let row = &mut scratch.row;

    let mut districts = txn.open_table(DISTRICT)?;
    if !districts.get_into_for_update((warehouse, district), row)? {
        return Err(missing("district"));
    }
    let mut changed = District::change(row)?;
    changed.set_ytd(changed.ytd() + i64::from(amount));
    // H_DATA: W_NAME, four blanks, D_NAME.
    let mut data = [b' '; 24];
    let district_name = changed.name();
    data[14..14 + district_name.len()].copy_from_slice(district_name);
    let data_end = 14 + district_name.len();
    districts.update((warehouse, district), row)?;

    let mut warehouses = txn.open_table(WAREHOUSE)?;
    if !warehouses.get_into_for_update(warehouse, row)? {
        return Err(missing("warehouse"));
    }
    let mut changed = Warehouse::change(row)?;
    changed.set_ytd(changed.ytd() + i64::from(amount));
    let warehouse_name = changed.name();
    let data_start = 10 - warehouse_name.len();
    data[data_start..10].copy_from_slice(warehouse_name);
    warehouses.update(warehouse, row)?;

    let mut history = History::new();
    history.set_customer_warehouse(input.customer_warehouse);
    history.set_customer_district(input.customer_district);
    history.set_customer(customer);
    history.set_amount(amount);
    history.set_data(&data[data_start..data_end]);
    let key = (warehouse, district, now, terminal);
    txn.open_table(HISTORY)?.insert(key, history.bytes())?;
    Ok(())
}

/// Changes the customer's row, and returns its number.
fn pay(txn: &WriteTransaction, input: &Payment, scratch: &mut Scratch) -> Result<u32, Error> {
    let (warehouse, district) = (input.customer_warehouse, input.customer_district);
    let customer = match input.customer {
        CustomerBy::Number(customer) => customer,
        CustomerBy::LastName(last) => {
            let by_name = txn.open_table(CUSTOMER_BY_NAME)?;
            customer_by_name(&by_name, warehouse, district, &last, &mut scratch.items)?
        }
    };
    let key = (warehouse, district, customer);
    let row = &mut scratch.row;
    let mut customers = txn.open_table(CUSTOMER)?;
    if !customers.get_into_for_update(key, row)? {
        return Err(missing("customer"));
    }
    let mut changed = Customer::change(row)?;
    changed.set_balance(changed.balance() - i64::from(input.amount));
    changed.set_ytd_payment(changed.ytd_payment() + i64::from(input.amount));
    changed.set_payments(changed.payments() + 1);
    if changed.credit() == b"BC" {
        note_bad_credit(changed, key, input);
    }
    customers.update(key, row)?;
    Ok(customer)
}

/// Puts the payment at the front of C_DATA, whose end falls off (clause 2.5.2.2).
fn note_bad_credit(mut row: Customer<&mut [u8]>, key: CustomerKey, input: &Payment) {
    let mut data = [0; DATA_SIZE];
    let mut rest = &mut data[..];
    let Payment { warehouse, district, amount, .. } = *input;
    let (dollars, cents) = (amount / 100, amount % 100);
    let (c_warehouse, c_district, customer) = key;
    write!(
        rest,
        "{customer} {c_district} {c_warehouse} {district} {warehouse} {dollars}.{cents:02} "
    )
    .expect("a short text in 500 bytes");
    let old = row.data();
    let length = rest.len().min(old.len());
    rest[..length].copy_from_slice(&old[..length]);
    row.set_data(&data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_credit_pushes_old_data_out() {
        let mut row = Customer::new();
        row.set_data(&[b'x'; 500]);
        let mut bytes = row.bytes().to_vec();
        let input = Payment {
            warehouse: 3,
            district: 4,
            customer_warehouse: 5,
            customer_district: 6,
            customer: CustomerBy::Number(77),
            amount: 123_405,
        };
        note_bad_credit(Customer::change(&mut bytes).unwrap(), (5, 6, 77), &input);
        let row = Customer::check(&bytes).unwrap();
        assert!(row.data().starts_with(b"77 6 5 4 3 1234.05 xxx"));
        assert_eq!(row.data().len(), 500);
    }
}
