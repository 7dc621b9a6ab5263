//! An operational data store: queries 2, 5, 9, 11 and 17 with a range of keys added to each
//! [VLDB 2010, 4.2].
//!
//! The paper gives one such range, of orders for query 5. The others get theirs where the query
//! begins: 9 on orders, which joins most tables; 2, 11 and 17 on parts. A range also holds for a
//! table that is joined on its key, so that lines are read by the range of their orders.
//!
//! Simpler: a correlated subquery, which asks again for the pages that its outer row has just asked
//! for, is not repeated; what a query asks for (a size, a region) is the same each time.

use super::answer::Answer;
use super::row::{Customer, Line, Nation, Offer, Order, Part, Region, Row, Supplier};
use super::sizes::SUPPLIERS_PER_PART;
use super::steps::Steps;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Names below this have the word green: five words of 92.
const GREEN: u64 = 5_435;
/// Orders younger than this are since 1993, of the years 1992 to August 1998.
const SINCE_1993: u64 = 84_788;
/// Years of orders.
const YEARS: u64 = 7;
/// The region of queries 2 and 5.
const REGION: Region = Region { key: 0 };
/// The nation of query 11.
const NATION: u64 = 0;

/// Query 2: parts of a size and metal, and the suppliers of a region that offer them cheapest. By
/// part: the cost.
pub fn minimum_cost_supplier<S: Steps>(
    steps: &mut S,
    parts: Range<u64>,
) -> Result<Answer, S::Error> {
    let nations = nations_of(steps, REGION)?;
    let mut wanted = Vec::new();
    steps.range(parts, |part: Part| {
        if (part.size, part.metal) == (0, 0) {
            wanted.push(part.key);
        }
    })?;
    let offers = offers_of(steps, &wanted)?;
    let suppliers: Vec<Supplier> = steps.join(&keys(&offers, |offer| offer.supplier))?;
    let is_near = |supplier: &Supplier| nations.contains(&supplier.nation);
    let near: Vec<&Offer> = offers
        .iter()
        .zip(&suppliers)
        .filter_map(|(offer, supplier)| is_near(supplier).then_some(offer))
        .collect();
    let mut answer = Answer::default();
    for offer in &near {
        let of_part = near.iter().filter(|other| other.part == offer.part);
        if of_part.map(|other| other.cost).min() == Some(offer.cost) {
            answer.add(offer.part, offer.cost as i64);
        }
    }
    Ok(answer)
}

/// Query 5: lines of orders since 1993 by customers of a region, from suppliers of the customer's
/// nation. By nation: the revenue.
pub fn local_supplier_volume<S: Steps>(
    steps: &mut S,
    orders: Range<u64>,
) -> Result<Answer, S::Error> {
    let nations = nations_of(steps, REGION)?;
    let mut dated = Vec::new();
    steps.range(orders.clone(), |order: Order| {
        if order.age < SINCE_1993 {
            dated.push(order);
        }
    })?;
    let customers: Vec<Customer> = steps.join(&keys(&dated, |order| order.customer))?;
    let of_region: BTreeMap<u64, u64> = dated
        .iter()
        .zip(&customers)
        .filter(|(_, customer)| nations.contains(&customer.nation))
        .map(|(order, customer)| (order.key, customer.nation))
        .collect();
    let mut lines = Vec::new();
    steps.range(orders, |line: Line| {
        if let Some(&nation) = of_region.get(&line.order) {
            lines.push((line, nation));
        }
    })?;
    let suppliers: Vec<Supplier> = steps.join(&keys(&lines, |(line, _)| line.supplier))?;
    let mut answer = Answer::default();
    for ((line, nation), supplier) in lines.iter().zip(&suppliers) {
        if supplier.nation == *nation {
            answer.add(*nation, line.revenue());
        }
    }
    Ok(answer)
}

/// Query 9: lines of green parts, less what they cost their supplier. By the supplier's nation and
/// the order's year: the profit.
pub fn product_type_profit<S: Steps>(
    steps: &mut S,
    orders: Range<u64>,
) -> Result<Answer, S::Error> {
    let mut years = BTreeMap::new();
    steps.range(orders.clone(), |order: Order| {
        years.insert(order.key, order.age * YEARS / 100_000);
    })?;
    let mut lines = Vec::new();
    steps.range(orders, |line: Line| lines.push(line))?;
    let parts: Vec<Part> = steps.join(&keys(&lines, |line| line.part))?;
    let mut places = parts.iter().map(|part| part.name < GREEN);
    lines.retain(|_| places.next().expect("a part of each line"));
    let offer_keys = keys(&lines, |line| Offer::key_of(line.part, line.supplier));
    let offers: Vec<Offer> = steps.join(&offer_keys)?;
    let suppliers: Vec<Supplier> = steps.join(&keys(&lines, |line| line.supplier))?;
    let mut answer = Answer::default();
    for ((line, offer), supplier) in lines.iter().zip(&offers).zip(&suppliers) {
        let profit = line.revenue() - (100 * offer.cost * line.quantity) as i64;
        answer.add(supplier.nation * YEARS + years[&line.order], profit);
    }
    Ok(answer)
}

/// Query 11: the stock of suppliers of a nation, once in all and once by part. By part: its value,
/// if that is more than the specification's share of all, for the number of parts of the range.
pub fn important_stock<S: Steps>(steps: &mut S, parts: Range<u64>) -> Result<Answer, S::Error> {
    let in_all: i64 = stock(steps, parts.clone())?.iter().map(|(_, value)| value).sum();
    let mut values = Answer::default();
    for (part, value) in stock(steps, parts.clone())? {
        values.add(part, value);
    }
    // Of 200,000 parts each has a ten-thousandth.
    let count = (parts.end - parts.start) as i64;
    values.0.retain(|_, group| group.sum * count > in_all * 20);
    Ok(values)
}

/// What each part of a range is worth that a supplier of the nation has.
fn stock<S: Steps>(steps: &mut S, parts: Range<u64>) -> Result<Vec<(u64, i64)>, S::Error> {
    let mut offers = Vec::new();
    steps.range(parts, |offer: Offer| offers.push(offer))?;
    let suppliers: Vec<Supplier> = steps.join(&keys(&offers, |offer| offer.supplier))?;
    let of_nation = offers.iter().zip(&suppliers).filter(|(_, who)| who.nation == NATION);
    Ok(of_nation.map(|(offer, _)| (offer.part, (offer.cost * offer.quantity) as i64)).collect())
}

/// Query 17: lines of parts of a brand in a container that are of less than a fifth of the part's
/// mean quantity. By part: their price.
pub fn small_quantity_revenue<S: Steps>(
    steps: &mut S,
    parts: Range<u64>,
) -> Result<Answer, S::Error> {
    let mut boxed = Vec::new();
    steps.range(parts, |part: Part| {
        if (part.brand, part.container) == (0, 0) {
            boxed.push(part.key);
        }
    })?;
    let mut answer = Answer::default();
    for part in boxed {
        let lines = steps.lines_of_part(part)?;
        let quantity: u64 = lines.iter().map(|line| line.quantity).sum();
        let is_small = |line: &&Line| 5 * line.quantity * (lines.len() as u64) < quantity;
        lines.iter().filter(is_small).for_each(|line| answer.add(part, line.price as i64));
    }
    Ok(answer)
}

/// The nations of a region.
fn nations_of<S: Steps>(steps: &mut S, region: Region) -> Result<BTreeSet<u64>, S::Error> {
    let region: Region = steps.look_up(region.key())?;
    let mut nations = BTreeSet::new();
    steps.scan(|nation: Nation| {
        if nation.region == region.key {
            nations.insert(nation.key);
        }
    })?;
    Ok(nations)
}

/// The offers of parts: for each part a range of its own, or a scan.
fn offers_of<S: Steps>(steps: &mut S, parts: &[u64]) -> Result<Vec<Offer>, S::Error> {
    let mut offers = Vec::new();
    if steps.scan_costs_less::<Offer>(parts.len() as u64 * SUPPLIERS_PER_PART) {
        let wanted: BTreeSet<u64> = parts.iter().copied().collect();
        steps.scan(|offer: Offer| {
            if wanted.contains(&offer.part) {
                offers.push(offer);
            }
        })?;
        return Ok(offers);
    }
    for &part in parts {
        steps.range(part..part + 1, |offer| offers.push(offer))?;
    }
    Ok(offers)
}

/// What each row is joined by.
fn keys<T>(rows: &[T], key: impl Fn(&T) -> u64) -> Vec<u64> {
    rows.iter().map(key).collect()
}
