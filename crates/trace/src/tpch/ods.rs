//! An operational data store: queries 2, 5, 9, 11 and 17 with a range of keys added to each
//! [VLDB 2010, 4.2].
//!
//! The paper gives one such range, of orders for query 5. The others get theirs where the query
//! begins: 9 on orders, which joins most tables; 2, 11 and 17 on parts. A range also holds for a
//! table that is joined on its key, so that lines are read by the range of their orders.
//!
//! Simpler: a correlated subquery, which asks again for the pages that its outer row has just asked
//! for, is not repeated; nations and regions, a page each, are left out.

use super::plan::Plan;
use super::rows::{Column, NATIONS, REGIONS};
use super::shape::SUPPLIERS_PER_PART;
use std::ops::Range;

/// Its queries.
pub const QUERIES: [Query; 5] = [Query::Q2, Query::Q5, Query::Q9, Query::Q11, Query::Q17];

/// A query, by its number in the benchmark.
#[derive(Clone, Copy, Debug)]
pub enum Query {
    Q2,
    Q5,
    Q9,
    Q11,
    Q17,
}

/// Of a hundred thousand parts: of one size of 50 and one metal of 5.
const WANTED: u64 = 400;
/// Of a hundred thousand parts: five words of 92, one of which is green.
const GREEN: u64 = 5_435;
/// Of a hundred thousand parts: one brand of 25 in one container of 40.
const BOXED: u64 = 100;
/// Of a hundred thousand orders: those since 1993, of the years 1992 to August 1998.
const SINCE_1993: u64 = 84_788;

impl Query {
    /// How many values the attribute has that its range is of: of the numbers of orders, one in
    /// four is used (clause 4.2.3).
    pub fn domain(self, plan: &Plan<'_>) -> u64 {
        match self {
            Query::Q5 | Query::Q9 => 4 * plan.shape.orders.rows,
            Query::Q2 | Query::Q11 | Query::Q17 => plan.shape.part.rows,
        }
    }

    /// Asks for its pages.
    pub fn run(self, plan: &mut Plan<'_>, keys: Range<u64>) {
        match self {
            Query::Q2 => minimum_cost_supplier(plan, keys),
            Query::Q5 => local_supplier_volume(plan, orders(&keys)),
            Query::Q9 => product_type_profit(plan, orders(&keys)),
            Query::Q11 => important_stock(plan, keys),
            Query::Q17 => small_quantity_revenue(plan, keys),
        }
    }
}

fn orders(keys: &Range<u64>) -> Range<u64> {
    keys.start.div_ceil(4)..keys.end.div_ceil(4)
}

/// Q2: parts of a size and metal, and their suppliers in a region.
fn minimum_cost_supplier(plan: &mut Plan<'_>, parts: Range<u64>) {
    let (shape, rows) = (plan.shape, plan.rows);
    plan.range(&shape.part_key, &shape.part, parts.clone());
    let wanted = parts.filter(|&part| rows.holds(Column::PartIsWanted, part, WANTED));
    let offers: Vec<(u64, u64)> =
        wanted.flat_map(|part| (0..SUPPLIERS_PER_PART).map(move |place| (part, place))).collect();
    let keys: Vec<u64> =
        offers.iter().map(|(part, place)| part * SUPPLIERS_PER_PART + place).collect();
    plan.join(&shape.partsupp_key, &shape.partsupp, &keys);
    let suppliers: Vec<u64> =
        offers.iter().map(|&(part, place)| rows.supplier_of(part, place)).collect();
    plan.join(&shape.supplier_key, &shape.supplier, &suppliers);
}

/// Q5: lines of orders by customers of a region, from suppliers of the customer's nation.
fn local_supplier_volume(plan: &mut Plan<'_>, orders: Range<u64>) {
    let (shape, rows) = (plan.shape, plan.rows);
    plan.range(&shape.orders_key, &shape.orders, orders.clone());
    let dated =
        orders.clone().filter(|&order| rows.holds(Column::OrderIsInYears, order, SINCE_1993));
    let dated: Vec<u64> = dated.collect();
    let customers: Vec<u64> = dated.iter().map(|&order| rows.customer_of(order)).collect();
    plan.join(&shape.customer_key, &shape.customer, &customers);
    lines_of_range(plan, &orders);
    let of_region = dated.iter().zip(&customers).filter(|&(_, &customer)| {
        rows.draw(Column::CustomerNation, customer, NATIONS).is_multiple_of(REGIONS)
    });
    let suppliers: Vec<u64> = of_region
        .flat_map(|(&order, _)| rows.lines_of(order))
        .map(|line| rows.supplier_of(rows.part_of(line), rows.place_of(line)))
        .collect();
    plan.join(&shape.supplier_key, &shape.supplier, &suppliers);
}

/// Q9: lines of green parts, with what they cost their supplier.
fn product_type_profit(plan: &mut Plan<'_>, orders: Range<u64>) {
    let (shape, rows) = (plan.shape, plan.rows);
    plan.range(&shape.orders_key, &shape.orders, orders.clone());
    let lines = lines_of_range(plan, &orders);
    let parts: Vec<u64> = lines.clone().map(|line| rows.part_of(line)).collect();
    plan.join(&shape.part_key, &shape.part, &parts);
    let green: Vec<(u64, u64)> = lines
        .zip(parts)
        .filter(|&(_, part)| rows.holds(Column::PartIsGreen, part, GREEN))
        .map(|(line, part)| (part, rows.place_of(line)))
        .collect();
    let keys: Vec<u64> =
        green.iter().map(|(part, place)| part * SUPPLIERS_PER_PART + place).collect();
    plan.join(&shape.partsupp_key, &shape.partsupp, &keys);
    let suppliers: Vec<u64> =
        green.iter().map(|&(part, place)| rows.supplier_of(part, place)).collect();
    plan.join(&shape.supplier_key, &shape.supplier, &suppliers);
}

/// Q11: the stock of suppliers of a nation, once by part and once in all.
fn important_stock(plan: &mut Plan<'_>, parts: Range<u64>) {
    let (shape, rows) = (plan.shape, plan.rows);
    let suppliers: Vec<u64> = parts
        .clone()
        .flat_map(|part| (0..SUPPLIERS_PER_PART).map(move |place| rows.supplier_of(part, place)))
        .collect();
    let stock = parts.start * SUPPLIERS_PER_PART..parts.end * SUPPLIERS_PER_PART;
    for _ in ["the sum of all", "the sum of each part"] {
        plan.range(&shape.partsupp_key, &shape.partsupp, stock.clone());
        plan.join(&shape.supplier_key, &shape.supplier, &suppliers);
    }
}

/// Q17: the lines of parts of a brand in a container.
fn small_quantity_revenue(plan: &mut Plan<'_>, parts: Range<u64>) {
    let (shape, rows) = (plan.shape, plan.rows);
    plan.range(&shape.part_key, &shape.part, parts.clone());
    for part in parts.filter(|&part| rows.holds(Column::PartIsBoxed, part, BOXED)) {
        let (index, table) = (&shape.lineitem_part, &shape.lineitem);
        plan.scattered(index, table, rows.entries_of(part), |entry| rows.line_at(entry));
    }
}

/// The lines of a range of orders, by their own key.
fn lines_of_range(plan: &mut Plan<'_>, orders: &Range<u64>) -> Range<u64> {
    if orders.is_empty() {
        return 0..0;
    }
    let rows = plan.rows;
    let lines = rows.lines_of(orders.start).start..rows.lines_of(orders.end - 1).end;
    plan.range(&plan.shape.lineitem_key, &plan.shape.lineitem, lines.clone());
    lines
}
