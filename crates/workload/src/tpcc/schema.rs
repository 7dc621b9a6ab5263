//! The nine tables of clause 1.3 and two indexes, by their keys.
//!
//! `rows` says which columns a key holds and what the row beside it holds. The indexes have empty
//! rows: what they lead to is the end of their key.

use terrace::TableDef;

/// A stored row: its bytes, which `rows` reads in place.
pub type Row = &'static [u8];

/// WAREHOUSE, by W_ID.
pub const WAREHOUSE: TableDef<u32, Row> = TableDef::new("warehouse");
/// DISTRICT.
pub const DISTRICT: TableDef<DistrictKey, Row> = TableDef::new("district");
/// CUSTOMER.
pub const CUSTOMER: TableDef<CustomerKey, Row> = TableDef::new("customer");
/// The index of CUSTOMER by name.
pub const CUSTOMER_BY_NAME: TableDef<NameKey, ()> = TableDef::new("customer_by_name");
/// HISTORY.
pub const HISTORY: TableDef<HistoryKey, Row> = TableDef::new("history");
/// NEW-ORDER.
pub const NEW_ORDER: TableDef<OrderKey, ()> = TableDef::new("new_order");
/// ORDER.
pub const ORDER: TableDef<OrderKey, Row> = TableDef::new("order");
/// The index of ORDER by customer.
pub const ORDER_BY_CUSTOMER: TableDef<OrderOfKey, ()> = TableDef::new("order_by_customer");
/// ORDER-LINE.
pub const ORDER_LINE: TableDef<OrderLineKey, Row> = TableDef::new("order_line");
/// ITEM, by I_ID.
pub const ITEM: TableDef<u32, Row> = TableDef::new("item");
/// STOCK.
pub const STOCK: TableDef<StockKey, Row> = TableDef::new("stock");

/// D_W_ID, D_ID.
pub type DistrictKey = (u32, u8);
/// C_W_ID, C_D_ID, C_ID.
pub type CustomerKey = (u32, u8, u32);
/// C_W_ID, C_D_ID, then C_LAST, C_FIRST and C_ID as `full_name` puts them together.
pub type NameKey = (u32, u8, [u8; FULL_NAME_SIZE]);
/// H_W_ID, H_D_ID, H_DATE, and the terminal that took the payment.
pub type HistoryKey = (u32, u8, u64, u16);
/// O_W_ID, O_D_ID, O_ID.
pub type OrderKey = (u32, u8, u32);
/// O_W_ID, O_D_ID, O_C_ID, O_ID.
pub type OrderOfKey = (u32, u8, u32, u32);
/// OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER.
pub type OrderLineKey = (u32, u8, u32, u8);
/// S_W_ID, S_I_ID.
pub type StockKey = (u32, u32);

/// Bytes of the names and the number of a customer in the index by name.
pub const FULL_NAME_SIZE: usize = 16 + 16 + 4;

/// C_LAST, C_FIRST and C_ID: sorts by last name, then first name, then number.
pub fn full_name(last: &[u8], first: &[u8], customer: u32) -> [u8; FULL_NAME_SIZE] {
    let mut name = [0; FULL_NAME_SIZE];
    name[..last.len()].copy_from_slice(last);
    name[16..16 + first.len()].copy_from_slice(first);
    name[32..].copy_from_slice(&customer.to_be_bytes());
    name
}

/// The C_ID at the end of a full name.
pub fn customer_of(name: &[u8; FULL_NAME_SIZE]) -> u32 {
    u32::from_be_bytes(name[32..].try_into().expect("four bytes"))
}
