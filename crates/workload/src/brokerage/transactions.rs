//! The five kinds of transactions. An access is a point read, a range read, or a write of a row.
//!
//! | kind | share | reads of customers' rows | writes | stands for TPC-E's |
//! |---|---|---|---|---|
//! | position | 25% | customer; accounts; holdings of one | - | Customer-Position |
//! | status | 25% | account; its last 30 trades | - | Trade-Status |
//! | lookup | 30% | 8 trades of 8 customers | - | Trade-Lookup |
//! | market | 6% | 20 securities (not counted) | - | Market-Watch, Security-Detail |
//! | order | 14% | customer; account; holding | account; holding; trade | Trade-Order, -Result |
//!
//! An order looks up a security too, which is not counted. That is 0.25 * 3 + 0.25 * 2 + 0.30 * 8 +
//! 0.14 * 3 = 4.07 reads and 0.14 * 3 = 0.42 writes: 9.7 to one.

use terrace::{Database, Durability, Table, Transaction};
use terrace_rt::Prng;

use super::loading::draw_trade;
use super::rows::{
    ACCOUNT, ACCOUNTS_PER_CUSTOMER, Account, CUSTOMER, HOLDING, HOLDINGS_PER_ACCOUNT, Row,
    SECURITY, TRADE, TRADE_BYTES, TRADES_PER_ACCOUNT, Trade, holding_shares, securities,
    set_holding_shares,
};
use super::{Phase, draw_customer};
use crate::Error;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All that a customer has.
    Position,
    /// What happened to an account lately.
    Status,
    /// Trades of long ago.
    Lookup,
    /// Prices.
    Market,
    /// A trade.
    Order,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] =
        [Kind::Position, Kind::Status, Kind::Lookup, Kind::Market, Kind::Order];

    /// Its share of the transactions, in percent.
    pub const fn percent(self) -> u64 {
        [25, 25, 30, 6, 14][self as usize]
    }

    /// Its reads and writes of customers' rows.
    #[cfg(test)]
    const fn accesses(self) -> (u64, u64) {
        [(3, 0), (2, 0), (TRADES_LOOKED_UP as u64, 0), (0, 0), (3, 3)][self as usize]
    }

    /// Draws one. While most clients trade, six of ten do.
    fn draw(prng: &mut Prng, phase: Phase) -> Kind {
        if phase.trades() && prng.below(100) < TRADING_PERCENT {
            return Kind::Order;
        }
        let mut left = prng.below(100);
        for kind in Kind::ALL {
            if left < kind.percent() {
                return kind;
            }
            left -= kind.percent();
        }
        unreachable!("the shares are all of them")
    }
}

/// Clients that trade in any case, in a phase in which most do, in percent.
const TRADING_PERCENT: u64 = 55;
/// Trades that a status shows.
const TRADES_SHOWN: u64 = 30;
/// Trades that a lookup finds.
const TRADES_LOOKED_UP: usize = 8;
/// Customers whose trades are read together: 2.6 MB.
pub(super) const CUSTOMERS_SCANNED: u32 = 50;
/// Securities that are watched.
const SECURITIES_WATCHED: usize = 20;

/// A transaction with all that is drawn for it, to be run again after a conflict.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    customer: u32,
    account: u8,
    trade: Trade,
    /// Customer, account and number of trades.
    lookups: [(u32, u8, u32); TRADES_LOOKED_UP],
    securities: [u32; SECURITIES_WATCHED],
}

impl Request {
    /// Draws one for a market of `customers`.
    pub(super) fn draw(prng: &mut Prng, customers: u32, phase: Phase) -> Request {
        let market = u64::from(securities(customers));
        let account = |prng: &mut Prng| prng.below(u64::from(ACCOUNTS_PER_CUSTOMER)) as u8;
        Request {
            kind: Kind::draw(prng, phase),
            customer: draw_customer(prng, customers, phase),
            account: account(prng),
            trade: draw_trade(prng),
            lookups: std::array::from_fn(|_| {
                let number = prng.below(u64::from(TRADES_PER_ACCOUNT)) as u32;
                (draw_customer(prng, customers, phase), account(prng), number)
            }),
            securities: std::array::from_fn(|_| prng.below(market) as u32),
        }
    }

    /// Runs it once.
    ///
    /// # Errors
    ///
    /// Those of the engine, conflicts among them; rows that are not there.
    pub(super) fn run(&self, db: &Database, row: &mut Vec<u8>) -> Result<(), Error> {
        match self.kind {
            Kind::Position => self.position(db, row),
            Kind::Status => self.status(db, row),
            Kind::Lookup => self.lookup(db, row),
            Kind::Market => self.market(db, row),
            Kind::Order => self.order(db, row),
        }
    }

    /// Reads the trades of a few customers in order, from `first` on.
    ///
    /// # Errors
    ///
    /// Those of the engine; malformed rows.
    pub(super) fn scan(db: &Database, first: u32) -> Result<(), Error> {
        let txn = db.begin_read()?;
        let mut cash = 0;
        let end = first.saturating_add(CUSTOMERS_SCANNED);
        for trade in txn.open_table(TRADE)?.range((first, 0, 0)..(end, 0, 0))? {
            cash += Trade::of(trade?.value())?.cash;
        }
        std::hint::black_box(cash);
        Ok(())
    }

    fn position(&self, db: &Database, row: &mut Vec<u8>) -> Result<(), Error> {
        let (txn, customer) = (db.begin_read()?, self.customer);
        must(txn.open_table(CUSTOMER)?.get_into(customer, row)?, "customer")?;
        let accounts = txn.open_table(ACCOUNT)?;
        let mut cash = 0;
        for account in accounts.range((customer, 0)..=(customer, ACCOUNTS_PER_CUSTOMER))? {
            cash += Account::of(account?.value())?.cash;
        }
        let holdings = txn.open_table(HOLDING)?;
        let last = (customer, self.account, HOLDINGS_PER_ACCOUNT);
        let mut shares = 0;
        for holding in holdings.range((customer, self.account, 0)..=last)? {
            shares += holding_shares(holding?.value())?;
        }
        std::hint::black_box((cash, shares));
        Ok(())
    }

    fn status(&self, db: &Database, row: &mut Vec<u8>) -> Result<(), Error> {
        let (txn, customer, account) = (db.begin_read()?, self.customer, self.account);
        let trades = self.account(&txn.open_table(ACCOUNT)?, row)?.trades;
        let first = (customer, account, trades.saturating_sub(TRADES_SHOWN) as u32);
        let mut cash = 0;
        for trade in txn.open_table(TRADE)?.range(first..(customer, account, trades as u32))? {
            cash += Trade::of(trade?.value())?.cash;
        }
        std::hint::black_box(cash);
        Ok(())
    }

    fn lookup(&self, db: &Database, row: &mut Vec<u8>) -> Result<(), Error> {
        let txn = db.begin_read()?;
        let trades = txn.open_table(TRADE)?;
        for key in self.lookups {
            must(trades.get_into(key, row)?, "trade")?;
        }
        Ok(())
    }

    fn market(&self, db: &Database, row: &mut Vec<u8>) -> Result<(), Error> {
        let txn = db.begin_read()?;
        let securities = txn.open_table(SECURITY)?;
        for number in self.securities {
            must(securities.get_into(number, row)?, "security")?;
        }
        Ok(())
    }

    fn order(&self, db: &Database, row: &mut Vec<u8>) -> Result<(), Error> {
        let (txn, customer, trade) = (db.begin_write()?, self.customer, self.trade);
        must(txn.open_table(CUSTOMER)?.get_into(customer, row)?, "customer")?;
        must(txn.open_table(SECURITY)?.get_into(self.securities[0], row)?, "security")?;
        let mut accounts = txn.open_table(ACCOUNT)?;
        let key = (customer, self.account);
        must(accounts.get_into_for_update(key, row)?, "account")?;
        let before = Account::of(row)?;
        let after = Account {
            trades: before.trades + 1,
            cash: before.cash + trade.cash,
            shares: before.shares + trade.shares,
        };
        after.put(row);
        accounts.update(key, row)?;
        let mut holdings = txn.open_table(HOLDING)?;
        let key = (customer, self.account, trade.holding);
        must(holdings.get_into_for_update(key, row)?, "holding")?;
        let shares = holding_shares(row)? + trade.shares;
        set_holding_shares(row, shares);
        holdings.update(key, row)?;
        row.clear();
        row.resize(TRADE_BYTES, b'.');
        trade.put(row);
        let key = (customer, self.account, before.trades as u32);
        txn.open_table(TRADE)?.insert(key, row)?;
        Ok(txn.commit(Durability::Durable)?)
    }

    fn account<T: Transaction>(
        &self,
        accounts: &Table<'_, (u32, u8), Row, T>,
        row: &mut Vec<u8>,
    ) -> Result<Account, Error> {
        must(accounts.get_into((self.customer, self.account), row)?, "account")?;
        Account::of(row)
    }
}

fn must(is_there: bool, table: &'static str) -> Result<(), Error> {
    if is_there { Ok(()) } else { Err(Error::MissingRow { table }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brokerage::READS_PER_WRITE;

    #[test]
    fn the_mix_reads_and_writes_as_stated() {
        assert_eq!(Kind::ALL.iter().map(|kind| kind.percent()).sum::<u64>(), 100);
        let weighed = |of: fn((u64, u64)) -> u64| {
            Kind::ALL.iter().map(|kind| kind.percent() * of(kind.accesses())).sum::<u64>() as f64
        };
        let ratio = weighed(|(reads, _)| reads) / weighed(|(_, writes)| writes);
        assert!((ratio - READS_PER_WRITE).abs() < 0.05, "{ratio}");
    }
}
