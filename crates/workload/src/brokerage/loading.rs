//! Loads a new database, table by table, in key order.
//!
//! Every number is drawn from a generator that the seed and the account name, so that tables agree
//! without a look at each other.

use terrace::{Database, Durability, Key, Loader, TableDef};
use terrace_rt::Prng;

use super::Config;
use super::rows::{
    ACCOUNT, ACCOUNT_BYTES, ACCOUNTS_PER_CUSTOMER, Account, CUSTOMER, CUSTOMER_BYTES, HOLDING,
    HOLDING_BYTES, HOLDINGS_PER_ACCOUNT, Row, SECURITY, SECURITY_BYTES, TRADE, TRADE_BYTES,
    TRADES_PER_ACCOUNT, Trade, securities, set_holding_shares,
};
use crate::Error;

/// Rows between two calls for progress.
const ROWS_PER_PROGRESS: u64 = 1 << 16;
/// Bytes of a row in a page beside its value.
const ROW_OVERHEAD_BYTES: usize = 20;

/// Bytes at home of all rows; approximate.
pub(super) fn estimated_bytes(config: &Config) -> u64 {
    let row = |bytes: usize| (bytes + ROW_OVERHEAD_BYTES) as u64;
    let account = row(ACCOUNT_BYTES)
        + u64::from(HOLDINGS_PER_ACCOUNT) * row(HOLDING_BYTES)
        + u64::from(TRADES_PER_ACCOUNT) * row(TRADE_BYTES);
    let customer = row(CUSTOMER_BYTES) + u64::from(ACCOUNTS_PER_CUSTOMER) * account;
    let market = u64::from(securities(config.customers)) * row(SECURITY_BYTES);
    ((u64::from(config.customers) * customer + market) as f64 / config.fill) as u64
}

/// Fills the empty database `db`.
///
/// # Errors
///
/// Those of the engine.
pub(super) fn populate(
    db: &Database,
    config: &Config,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let accounts = u64::from(config.customers) * u64::from(ACCOUNTS_PER_CUSTOMER);
    let per_account = 1 + u64::from(HOLDINGS_PER_ACCOUNT) + u64::from(TRADES_PER_ACCOUNT);
    let securities = securities(config.customers);
    let total = accounts * per_account + u64::from(config.customers) + u64::from(securities);
    let fill = (config.fill * 100.0).round() as u8;
    let mut load = Load { db, fill, done: 0, total, progress };
    let mut noise = Prng::from_seed(config.seed ^ 0x0B0B_5EED);
    load.table(SECURITY, SECURITY_BYTES, &mut noise, |put| {
        (0..securities).try_for_each(|number| put(number, &|_| {}))
    })?;
    load.table(CUSTOMER, CUSTOMER_BYTES, &mut noise, |put| {
        (0..config.customers).try_for_each(|number| put(number, &|_| {}))
    })?;
    load.table(ACCOUNT, ACCOUNT_BYTES, &mut noise, |put| {
        each_account(config, |customer, account, trades| {
            let all = Account {
                trades: trades.len() as u64,
                cash: trades.iter().map(|trade| trade.cash).sum(),
                shares: trades.iter().map(|trade| trade.shares).sum(),
            };
            put((customer, account), &|row| all.put(row))
        })
    })?;
    load.table(HOLDING, HOLDING_BYTES, &mut noise, |put| {
        each_account(config, |customer, account, trades| {
            (0..HOLDINGS_PER_ACCOUNT).try_for_each(|holding| {
                let of = trades.iter().filter(|trade| trade.holding == holding);
                let shares = of.map(|trade| trade.shares).sum();
                put((customer, account, holding), &|row| set_holding_shares(row, shares))
            })
        })
    })?;
    load.table(TRADE, TRADE_BYTES, &mut noise, |put| {
        each_account(config, |customer, account, trades| {
            (0..).zip(trades).try_for_each(|(number, trade)| {
                put((customer, account, number), &|row| trade.put(row))
            })
        })
    })?;
    (load.progress)(total, total);
    Ok(())
}

/// Calls `each` with every account and the trades that it is loaded with.
fn each_account(
    config: &Config,
    mut each: impl FnMut(u32, u8, &[Trade]) -> Result<(), Error>,
) -> Result<(), Error> {
    for customer in 0..config.customers {
        for account in 0..ACCOUNTS_PER_CUSTOMER {
            let name = u64::from(customer) << 8 | u64::from(account);
            let mut prng = Prng::from_seed(config.seed ^ name << 20);
            let trades: Vec<Trade> =
                (0..TRADES_PER_ACCOUNT).map(|_| draw_trade(&mut prng)).collect();
            each(customer, account, &trades)?;
        }
    }
    Ok(())
}

/// A trade: a number of shares, bought or sold, at a price.
pub(super) fn draw_trade(prng: &mut Prng) -> Trade {
    let shares = prng.below(201) as i64 - 100;
    let price = 1 + prng.below(10_000) as i64;
    let holding = prng.below(u64::from(HOLDINGS_PER_ACCOUNT)) as u16;
    Trade { cash: -shares * price, shares, holding }
}

struct Load<'a> {
    db: &'a Database,
    /// How full pages are left, in percent.
    fill: u8,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

/// Adds a row with this key, after what it is given has filled in the columns.
type Put<'p, K> = dyn FnMut(K, &dyn Fn(&mut [u8])) -> Result<(), Error> + 'p;

impl Load<'_> {
    /// Loads one table with what `generate` puts; all else in its rows is noise.
    fn table<K: for<'k> Key<View<'k> = K>>(
        &mut self,
        table: TableDef<K, Row>,
        row_bytes: usize,
        noise: &mut Prng,
        generate: impl FnOnce(&mut Put<'_, K>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let txn = self.db.begin_write()?;
        let mut loader: Loader<'_, K, Row> = txn.bulk_load_filled(table, self.fill)?;
        let mut row = vec![0; row_bytes];
        generate(&mut |key, columns| {
            noise.fill(&mut row);
            columns(&mut row);
            loader.push(key, &row)?;
            self.done += 1;
            if self.done.is_multiple_of(ROWS_PER_PROGRESS) {
                (self.progress)(self.done, self.total);
            }
            Ok(())
        })?;
        loader.finish()?;
        txn.commit(Durability::Buffered)?;
        Ok(())
    }
}
