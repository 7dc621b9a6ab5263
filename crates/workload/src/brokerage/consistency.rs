//! What must hold: every account has the trades, the cash and the shares that it says, and every
//! holding the shares that its trades moved.

use terrace::Database;

use super::rows::{
    ACCOUNT, ACCOUNTS_PER_CUSTOMER, Account, HOLDING, HOLDINGS_PER_ACCOUNT, TRADE, Trade,
    holding_shares,
};
use crate::Error;
use crate::clients::Consistency;

/// Violations reported at most.
const VIOLATIONS_MAX: usize = 20;

/// Checks the accounts of `customers`, one after the other.
///
/// # Errors
///
/// Those of the engine; malformed rows.
pub(super) fn check(db: &Database, customers: u32) -> Result<Consistency, Error> {
    let txn = db.begin_read()?;
    let (accounts, holdings, trades) =
        (txn.open_table(ACCOUNT)?, txn.open_table(HOLDING)?, txn.open_table(TRADE)?);
    let mut all_holdings = holdings.range(..)?;
    let mut all_trades = trades.range(..)?.peekable();
    let (mut found, mut count) = (Vec::new(), 0u64);
    for entry in accounts.range(..)? {
        let entry = entry?;
        let (key, says) = (entry.key(), Account::of(entry.value())?);
        let mut sums = Account::default();
        let mut moved = [0; HOLDINGS_PER_ACCOUNT as usize];
        while let Some(entry) = all_trades.next_if(|entry| {
            entry.as_ref().map_or(true, |entry| (entry.key().0, entry.key().1) == key)
        }) {
            let entry = entry?;
            let trade = Trade::of(entry.value())?;
            if u64::from(entry.key().2) != sums.trades {
                found.push(format!("account {key:?} has no trade {}", sums.trades));
            }
            sums.trades = u64::from(entry.key().2) + 1;
            sums.cash += trade.cash;
            sums.shares += trade.shares;
            if let Some(moved) = moved.get_mut(usize::from(trade.holding)) {
                *moved += trade.shares;
            }
        }
        if sums != says {
            found.push(format!("account {key:?} says {says:?}, its trades {sums:?}"));
        }
        for (holding, moved) in (0..).zip(moved) {
            let Some(entry) = all_holdings.next() else {
                found.push(format!("account {key:?} lacks holdings"));
                break;
            };
            let entry = entry?;
            let shares = holding_shares(entry.value())?;
            if entry.key() != (key.0, key.1, holding) || shares != moved {
                found.push(format!("holding {:?} has {shares}, not {moved}", entry.key()));
            }
        }
        count += 1;
        if found.len() >= VIOLATIONS_MAX {
            break;
        }
    }
    let expected = u64::from(customers) * u64::from(ACCOUNTS_PER_CUSTOMER);
    if found.is_empty() && count != expected {
        found.push(format!("{count} accounts, not {expected}"));
    }
    if found.is_empty() && all_trades.next().is_some() {
        found.push("a trade belongs to no account".into());
    }
    Ok(if found.is_empty() { Consistency::Ok } else { Consistency::Broken(found) })
}
