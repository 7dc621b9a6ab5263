//! Which task reads what next: groups in a queue, each held by one task at a time.
//!
//! - F1: a group is scanned by one task at a time, so its domains serve one request at a time.
//! - F2: groups come in turn. One task alone reads the units of a table in the order of their
//!   addresses, which is the ordinary scan; as many tasks as groups read one each.

use std::collections::VecDeque;

use terrace_rt::LeafMutex;

/// Groups that wait for a task.
pub(crate) struct Feed<G>(LeafMutex<VecDeque<G>>);

impl<G: Iterator> Feed<G> {
    pub(crate) fn new(groups: impl IntoIterator<Item = G>) -> Feed<G> {
        Feed(LeafMutex::new(groups.into_iter().collect()))
    }

    /// The next group that has something to read, and that; nothing if there is none, or all that
    /// are left have a task.
    pub(crate) fn take(&self) -> Option<(G, G::Item)> {
        let mut waiting = self.0.lock();
        while let Some(mut group) = waiting.pop_front() {
            if let Some(item) = group.next() {
                return Some((group, item));
            }
        }
        None
    }

    /// Gives a group back.
    pub(crate) fn give(&self, group: G) {
        self.0.lock().push_back(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_goes_through_the_groups_in_turn() {
        let feed = Feed::new([vec![0, 3, 6], vec![1, 4], vec![2, 5]].map(Vec::into_iter));
        let mut seen = Vec::new();
        while let Some((group, item)) = feed.take() {
            seen.push(item);
            feed.give(group);
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
    }
}
