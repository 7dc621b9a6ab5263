//! The answers by looking at every row of every table, against what the queries say.

use super::row::{Customer, Line, Nation, Offer, Order, Part, Row, Shipped, Supplier};
use super::rows::Rows;
use super::{Answer, Answers, Computed, Queries, Query, QueryName, Shape, TpchWorkload};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Every row of all tables.
struct All<'a> {
    rows: &'a Rows,
    lines: Vec<Line>,
}

impl All<'_> {
    fn each<R: Row>(&self) -> impl Iterator<Item = R> {
        (0..R::count(&self.rows.sizes)).map(|number| R::at(self.rows, number))
    }

    fn one<R: Row>(&self, key: u64) -> R {
        self.each().find(|row: &R| row.key() == key).expect("a row that there is")
    }

    fn offer(&self, line: &Line) -> Offer {
        let mut offers = (4 * line.part..4 * line.part + 4).map(|at| Offer::at(self.rows, at));
        offers.find(|offer| offer.supplier == line.supplier).expect("one of four")
    }

    fn answer(&self, query: &Query) -> Answer {
        let is_in = |key: u64| query.range.contains(&key);
        let is_near = |nation: u64| self.one::<Nation>(nation).region == 0;
        let nation_of = |supplier: u64| Supplier::at(self.rows, supplier).nation;
        let mut answer = Answer::default();
        let lines = || self.lines.iter().filter(|line| is_in(line.day));
        match query.name {
            QueryName::Q1 => lines().for_each(|line| {
                let price = line.price * (100 - line.discount) * (100 + line.tax);
                answer.add(line.flag, price as i64);
            }),
            QueryName::Q6 => lines().for_each(|line| {
                if line.quantity < 24 && [5, 6, 7].contains(&line.discount) {
                    answer.add(0, (line.price * line.discount) as i64);
                }
            }),
            QueryName::Q14 => lines().for_each(|line| {
                let is_promoted = Part::at(self.rows, line.part).class == 0;
                answer.add(is_promoted.into(), line.revenue());
            }),
            QueryName::Q15 => {
                lines().for_each(|line| answer.add(line.supplier, line.revenue()));
                let most = answer.0.values().map(|group| group.sum).max();
                answer.0.retain(|_, group| Some(group.sum) == most);
            }
            QueryName::Q2 => {
                for part in self.each::<Part>().filter(|part| is_in(part.key)) {
                    let is_wanted = part.size == 0 && part.metal == 0;
                    let offers = || {
                        let of_part = (0..4).map(|at| Offer::at(self.rows, 4 * part.key + at));
                        of_part.filter(|offer| is_wanted && is_near(nation_of(offer.supplier)))
                    };
                    let least = offers().map(|offer| offer.cost).min();
                    let cheapest = offers().filter(|offer| Some(offer.cost) == least);
                    cheapest.for_each(|offer| answer.add(part.key, offer.cost as i64));
                }
            }
            QueryName::Q11 => self.important_stock(query, &mut answer),
            QueryName::Q17 => {
                for part in self.each::<Part>().filter(|part| is_in(part.key)) {
                    let of_part = || self.lines.iter().filter(|line| line.part == part.key);
                    let mean = of_part().map(|line| line.quantity as f64).sum::<f64>()
                        / of_part().count() as f64;
                    let is_small = |line: &&Line| (line.quantity as f64) < 0.2 * mean;
                    if part.brand == 0 && part.container == 0 {
                        let small = of_part().filter(is_small);
                        small.for_each(|line| answer.add(part.key, line.price as i64));
                    }
                }
            }
            QueryName::Q5 | QueryName::Q9 => {
                for line in self.lines.iter().filter(|line| is_in(line.order)) {
                    self.line_of_order(query.name, line, &mut answer);
                }
            }
        }
        answer
    }

    fn important_stock(&self, query: &Query, answer: &mut Answer) {
        let mut all = 0;
        for offer in self.each::<Offer>().filter(|offer| query.range.contains(&offer.part)) {
            if Supplier::at(self.rows, offer.supplier).nation == 0 {
                let value = (offer.cost * offer.quantity) as i64;
                answer.add(offer.part, value);
                all += value;
            }
        }
        let share = 0.0001 * 200_000.0 / (query.range.end - query.range.start) as f64;
        answer.0.retain(|_, group| group.sum as f64 > all as f64 * share);
    }

    fn line_of_order(&self, name: QueryName, line: &Line, answer: &mut Answer) {
        let order = Order::at(self.rows, line.order / 4);
        let supplier = Supplier::at(self.rows, line.supplier);
        if name == QueryName::Q5 {
            let nation = Customer::at(self.rows, order.customer).nation;
            let is_near = self.one::<Nation>(nation).region == 0;
            if order.age < 84_788 && is_near && supplier.nation == nation {
                answer.add(nation, line.revenue());
            }
        } else if Part::at(self.rows, line.part).name < 5_435 {
            let cost = 100 * self.offer(line).cost * line.quantity;
            let year = order.age * 7 / 100_000;
            answer.add(supplier.nation * 7 + year, line.revenue() - cost as i64);
        }
    }
}

#[test]
fn queries_answer_as_every_row_says() {
    let ods = TpchWorkload::Ods { narrowest: 100, widest: 40_000 };
    for workload in [ods, TpchWorkload::Dates(0.7)] {
        let (rows, queries) = Queries::new(workload, 0.02, 5).expect("options that make sense");
        let lines = (0..rows.sizes.lines).map(|line| Shipped::at(&rows, line).0).collect();
        let all = All { rows: &rows, lines };
        let shape = Shape::new(&rows.sizes, 8 << 10);
        let mut answered = BTreeMap::<QueryName, u64>::new();
        for query in queries.take(60) {
            let mut steps = Computed::new(&shape, &rows, Answers::Wanted);
            let Ok::<_, Infallible>(answer) = query.run(&mut steps);
            assert_eq!(answer, all.answer(&query), "{query:?}");
            *answered.entry(query.name).or_default() += answer.rows();
        }
        assert!(answered.len() >= 4 && answered.values().all(|&rows| rows > 0), "{answered:?}");
    }
}
