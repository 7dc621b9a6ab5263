//! prange: the inner nodes that a long scan will need are in memory before it gets there.

use terrace_page::PageId;
use terrace_rt::{Nanos, sleep};

use super::*;
use crate::btree::node::Node;

/// The inner nodes above the leaves, in the order of their keys.
fn parents(bench: &Bench, tree: &Tree, rows: u64) -> Vec<PageId> {
    let mut found = Vec::new();
    for number in 0..rows {
        let key = number.to_be_bytes();
        let node = tree.node_shared(Seek::Key(&key), 1).expect("no error").expect("a level 1");
        assert_eq!(Node::open(&node).map(|node| node.level()), Some(1));
        if found.last() != Some(&node.id()) {
            found.push(node.id());
        }
    }
    assert!(found.len() >= 4 && found.iter().all(|page| bench.pool.is_in_memory(*page)));
    found
}

#[test]
fn a_long_scan_has_the_next_inner_nodes_read_before_it_needs_them() {
    const ROWS: u64 = 14_000;
    for direction in [Direction::Forward, Direction::Backward] {
        in_world(1, 0, || {
            let bench = Bench::new(here(), 60_000, 300);
            let tree = filled(&bench, ROWS, 1_900);
            let mut order = parents(&bench, &tree, ROWS);
            if direction == Direction::Backward {
                order.reverse();
            }
            let other = bench.tree(4);
            let mut txn = bench.begin();
            for number in 0..4_000_u64 {
                let value = vec![1; 1_900];
                done(other.put(&mut txn, &number.to_be_bytes(), &value, Put::InsertNew, None));
            }
            txn.commit();
            let away = |page: &PageId| !bench.pool.is_in_memory(*page);
            assert!(order[1..].iter().all(away), "what was not used has left memory");

            let mut reader = bench.begin();
            let mut scan = Scan::new(Unbounded, Unbounded, direction, LockMode::Shared);
            let mut batch = Batch::default();
            let mut met = 0;
            // A tenth of the first inner node's leaves.
            while met < 200 {
                done(scan.next_batch(&tree, &mut reader, 16, &mut batch));
                met += batch.len();
                sleep(Nanos(1_000_000));
            }
            assert!(order[1..4].iter().all(|page| !away(page)), "{direction:?}");
            reader.commit();
        });
    }
}
