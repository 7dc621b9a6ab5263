//! Which few edges close a circle: those that lead up again in the order of its files that leaves
//! the fewest calls leading up.
//!
//! To find the best order is NP-hard; the search here begins with several orders and moves one file
//! at a time while that helps, which finds the best one in circles of some thirty files.

use std::collections::BTreeMap;

use crate::calls::Edges;
use crate::circles::circles;

/// Orders with which the search begins.
const STARTS: u64 = 60;

/// An edge that closes a circle.
pub struct BackEdge {
    pub from: usize,
    pub to: usize,
    /// Files of the largest circle that is left without this edge and those before it.
    pub leaves: usize,
}

/// The edges of `circle` that lead up, the one first whose removal leaves the smallest circles.
pub fn back_edges(circle: &[usize], edges: &Edges) -> Vec<BackEdge> {
    let local: BTreeMap<usize, usize> =
        circle.iter().enumerate().map(|(at, &file)| (file, at)).collect();
    let mut weights = vec![vec![0; circle.len()]; circle.len()];
    for (&(from, to), names) in edges {
        if let (Some(&from), Some(&to)) = (local.get(&from), local.get(&to)) {
            weights[from][to] = names.len();
        }
    }
    let order = best_order(&weights);
    let place = |file: usize| order.iter().position(|&it| it == local[&file]);
    let is_inside = |file: &usize| local.contains_key(file);
    let mut left: Edges = edges
        .iter()
        .filter(|((from, to), _)| is_inside(from) && is_inside(to))
        .map(|(&edge, names)| (edge, names.clone()))
        .collect();
    let mut up: Vec<(usize, usize)> =
        left.keys().copied().filter(|&(from, to)| place(from) > place(to)).collect();
    let files = circle.iter().max().map_or(0, |last| last + 1);
    let mut found = Vec::new();
    while !up.is_empty() {
        let without = |edge: &(usize, usize)| {
            let mut fewer = left.clone();
            fewer.remove(edge);
            let sizes: Vec<usize> = circles(files, &fewer).iter().map(Vec::len).collect();
            let first = sizes.first().copied().unwrap_or(0);
            (first, sizes.iter().map(|size| size * size).sum::<usize>())
        };
        let sizes: Vec<(usize, usize)> = up.iter().map(without).collect();
        let at = (0..up.len()).min_by_key(|&at| sizes[at]).expect("not empty");
        let (from, to) = up.remove(at);
        left.remove(&(from, to));
        found.push(BackEdge { from, to, leaves: sizes[at].0 });
    }
    found
}

/// An order of the nodes for which the weights of edges that lead up sum up to the least found.
fn best_order(weights: &[Vec<usize>]) -> Vec<usize> {
    let count = weights.len();
    // A fixed sequence of numbers, so that every run says the same.
    let mut seed: u64 = 1;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    let mut best: Option<(usize, Vec<usize>)> = None;
    for _ in 0..STARTS {
        let mut order: Vec<usize> = (0..count).collect();
        (1..count).rev().for_each(|at| order.swap(at, below(at + 1)));
        while improve(&mut order, weights) {}
        let cost = cost_of(&order, weights);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, order));
        }
    }
    best.map(|(_, order)| order).unwrap_or_default()
}

fn cost_of(order: &[usize], weights: &[Vec<usize>]) -> usize {
    let ups = |at: usize| order[..at].iter().map(|&to| weights[order[at]][to]).sum::<usize>();
    (0..order.len()).map(ups).sum()
}

/// Moves one node to where it costs least. Whether that helped.
fn improve(order: &mut Vec<usize>, weights: &[Vec<usize>]) -> bool {
    for at in 0..order.len() {
        let node = order.remove(at);
        // The cost of the node before all others, and then behind one more at a time.
        let mut cost: usize = order.iter().map(|&other| weights[other][node]).sum();
        let mut costs = vec![cost];
        for &other in order.iter() {
            cost = cost + weights[node][other] - weights[other][node];
            costs.push(cost);
        }
        let least = (0..costs.len()).min_by_key(|&to| costs[to]).expect("not empty");
        if costs[least] < costs[at] {
            order.insert(least, node);
            return true;
        }
        order.insert(at, node);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(list: &[(usize, usize, usize)]) -> Edges {
        let names = |count: usize| (0..count).map(|name| name.to_string()).collect();
        list.iter().map(|&(from, to, count)| ((from, to), names(count))).collect()
    }

    #[test]
    fn the_edge_with_the_fewest_calls_closes_a_circle() {
        let ring = edges(&[(0, 1, 3), (1, 2, 2), (2, 3, 1), (3, 0, 2), (5, 0, 9), (3, 5, 1)]);
        let found = back_edges(&[0, 1, 2, 3], &ring);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].from, found[0].to, found[0].leaves), (2, 3, 0));
    }

    #[test]
    fn the_order_found_is_the_best_of_all_orders() {
        let mut seed: u64 = 7;
        for _ in 0..40 {
            let mut weights = vec![vec![0; 6]; 6];
            for (from, row) in weights.iter_mut().enumerate() {
                for (to, weight) in row.iter_mut().enumerate() {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
                    *weight = if from == to { 0 } else { (seed >> 40) as usize % 4 };
                }
            }
            let least = orders(6).iter().map(|order| cost_of(order, &weights)).min();
            assert_eq!(Some(cost_of(&best_order(&weights), &weights)), least);
        }
    }

    fn orders(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let longer = |order: Vec<usize>| {
            (0..count).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, count - 1);
                longer
            })
        };
        orders(count - 1).into_iter().flat_map(longer).collect()
    }
}
