//! A warehouse whose lines lie by the date of shipping: queries 1, 6, 14 and 15 over ranges of
//! dates of which recent ones are the likelier [VLDB 2010, 4.2].
//!
//! Both ends of a range are drawn by Zipf's law over the days before the last. That is one reading:
//! the paper says that the ranges were "generated using a Zipfian distribution", without exponent
//! or lengths.

use super::answer::{Answer, Group};
use super::row::{Part, Shipped, Supplier};
use super::sizes::DAYS;
use super::steps::Steps;
use crate::zipf::Zipf;
use fastrand::Rng;
use std::ops::Range;

/// The class of parts on promotion.
const PROMOTED: u64 = 0;

/// Days of a query, from the first on.
pub fn days(recency: &Zipf, random: &mut Rng) -> Range<u64> {
    let [one, other] = [(); 2].map(|()| DAYS - recency.sample(random));
    one.min(other)..one.max(other) + 1
}

/// Query 1: by flag: what lines were sold for, with tax, in ten-thousandths of cents.
pub fn pricing_summary<S: Steps>(steps: &mut S, days: Range<u64>) -> Result<Answer, S::Error> {
    let mut answer = Answer::default();
    steps.tally(days, |Shipped(line)| {
        answer.add(line.flag, line.revenue() * (100 + line.tax) as i64);
    })?;
    Ok(answer)
}

/// Query 6: what discounts of 5 to 7 percent on fewer than 24 were worth, in hundredths of cents.
pub fn forecasting_revenue_change<S: Steps>(
    steps: &mut S,
    days: Range<u64>,
) -> Result<Answer, S::Error> {
    let mut answer = Answer::default();
    steps.tally(days, |Shipped(line)| {
        if (5..=7).contains(&line.discount) && line.quantity < 24 {
            answer.add(0, (line.price * line.discount) as i64);
        }
    })?;
    Ok(answer)
}

/// Query 14: the revenue with parts on promotion (1) and with others (0).
pub fn promotion_effect<S: Steps>(steps: &mut S, days: Range<u64>) -> Result<Answer, S::Error> {
    let lines = steps.rows().shipped_on(&days);
    let class = |part: &Part| u64::from(part.class == PROMOTED);
    let mut answer = Answer::default();
    if !steps.scan_costs_less::<Part>(lines.end - lines.start) {
        let mut sold = Vec::new();
        steps.range(days, |Shipped(line)| sold.push((line.part, line.revenue())))?;
        let keys: Vec<u64> = sold.iter().map(|(part, _)| *part).collect();
        let parts: Vec<Part> = steps.join(&keys)?;
        sold.iter().zip(&parts).for_each(|((_, value), part)| answer.add(class(part), *value));
        return Ok(answer);
    }
    let mut sold = vec![Group::default(); steps.rows().sizes.parts as usize];
    steps.tally(days, |Shipped(line)| sold[line.part as usize].add(line.revenue()))?;
    steps.scan(|part: Part| answer.merge(class(&part), sold[part.key as usize]))?;
    Ok(answer)
}

/// Query 15: the supplier with most revenue, and how much that is.
pub fn top_supplier<S: Steps>(steps: &mut S, days: Range<u64>) -> Result<Answer, S::Error> {
    let mut sold = vec![Group::default(); steps.rows().sizes.suppliers as usize];
    steps.range(days, |Shipped(line)| sold[line.supplier as usize].add(line.revenue()))?;
    let most = sold.iter().map(|group| group.sum).max().unwrap_or_default();
    let is_top = |key: &u64| sold[*key as usize].rows > 0 && sold[*key as usize].sum == most;
    let keys: Vec<u64> = (0..sold.len() as u64).filter(is_top).collect();
    let mut answer = Answer::default();
    for supplier in steps.join::<Supplier>(&keys)? {
        answer.merge(supplier.key, sold[supplier.key as usize]);
    }
    Ok(answer)
}
