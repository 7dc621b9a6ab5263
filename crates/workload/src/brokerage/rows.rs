//! What is stored: tables by their keys, and rows in place.
//!
//! ```text
//! CUSTOMER  c          400 bytes  all of them padding
//! ACCOUNT   c, a       200 bytes  0 trades u64, 8 cash i64, 16 shares i64, padding
//! HOLDING   c, a, h    100 bytes  0 shares i64, padding
//! TRADE     c, a, t    220 bytes  0 cash i64, 8 shares i64, 16 holding u64, padding
//! SECURITY  s          300 bytes  padding
//! ```
//!
//! An account's trades are numbered from zero; its shares are spread over its holdings.

use terrace::TableDef;

use crate::Error;

/// A stored row.
pub(super) type Row = &'static [u8];

/// CUSTOMER, by number.
pub(super) const CUSTOMER: TableDef<u32, Row> = TableDef::new("customer");
/// ACCOUNT.
pub(super) const ACCOUNT: TableDef<AccountKey, Row> = TableDef::new("account");
/// HOLDING.
pub(super) const HOLDING: TableDef<HoldingKey, Row> = TableDef::new("holding");
/// TRADE.
pub(super) const TRADE: TableDef<TradeKey, Row> = TableDef::new("trade");
/// SECURITY, by number.
pub(super) const SECURITY: TableDef<u32, Row> = TableDef::new("security");

/// Customer and account.
pub(super) type AccountKey = (u32, u8);
/// Customer, account and holding.
pub(super) type HoldingKey = (u32, u8, u16);
/// Customer, account and trade.
pub(super) type TradeKey = (u32, u8, u32);

/// Accounts of a customer.
pub const ACCOUNTS_PER_CUSTOMER: u8 = 5;
/// Holdings of an account.
pub(super) const HOLDINGS_PER_ACCOUNT: u16 = 20;
/// Trades of an account when it is loaded.
pub const TRADES_PER_ACCOUNT: u32 = 48;
/// Customers for one security.
pub(super) const CUSTOMERS_PER_SECURITY: u32 = 40;

/// Bytes of the rows.
pub(super) const CUSTOMER_BYTES: usize = 400;
pub(super) const ACCOUNT_BYTES: usize = 200;
pub(super) const HOLDING_BYTES: usize = 100;
pub(super) const TRADE_BYTES: usize = 220;
pub(super) const SECURITY_BYTES: usize = 300;

/// Securities of a market with `customers`.
pub(super) fn securities(customers: u32) -> u32 {
    customers / CUSTOMERS_PER_SECURITY + 20
}

/// What an account says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) trades: u64,
    pub(super) cash: i64,
    pub(super) shares: i64,
}

impl Account {
    /// Reads the row of an account.
    ///
    /// # Errors
    ///
    /// `MalformedRow`.
    pub(super) fn of(row: &[u8]) -> Result<Account, Error> {
        check(row, ACCOUNT_BYTES, "account")?;
        Ok(Account { trades: number(row, 0) as u64, cash: number(row, 8), shares: number(row, 16) })
    }

    /// Writes it into its row.
    pub(super) fn put(self, row: &mut [u8]) {
        set(row, 0, self.trades as i64);
        set(row, 8, self.cash);
        set(row, 16, self.shares);
    }
}

/// What a trade says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trade {
    pub(super) cash: i64,
    pub(super) shares: i64,
    pub(super) holding: u16,
}

impl Trade {
    /// Reads the row of a trade.
    ///
    /// # Errors
    ///
    /// `MalformedRow`.
    pub(super) fn of(row: &[u8]) -> Result<Trade, Error> {
        check(row, TRADE_BYTES, "trade")?;
        let holding = number(row, 16) as u16;
        Ok(Trade { cash: number(row, 0), shares: number(row, 8), holding })
    }

    /// Writes it into its row.
    pub(super) fn put(self, row: &mut [u8]) {
        set(row, 0, self.cash);
        set(row, 8, self.shares);
        set(row, 16, i64::from(self.holding));
    }
}

/// The shares in the row of a holding.
///
/// # Errors
///
/// `MalformedRow`.
pub(super) fn holding_shares(row: &[u8]) -> Result<i64, Error> {
    check(row, HOLDING_BYTES, "holding")?;
    Ok(number(row, 0))
}

/// Writes the shares into the row of a holding.
pub(super) fn set_holding_shares(row: &mut [u8], shares: i64) {
    set(row, 0, shares);
}

fn check(row: &[u8], bytes: usize, table: &'static str) -> Result<(), Error> {
    if row.len() == bytes { Ok(()) } else { Err(Error::MalformedRow { table }) }
}

fn number(row: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"))
}

fn set(row: &mut [u8], at: usize, number: i64) {
    row[at..at + 8].copy_from_slice(&number.to_le_bytes());
}
