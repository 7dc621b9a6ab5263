//! What designs that go by benefit count of each page: nothing, for the others.

use terrace_page::{PageId, SlotId};

use super::SlotTable;
use crate::{Count, Shares, SlotOrder};

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// `page`, which has `slot` or none, was asked for.
    pub fn counted(&mut self, page: PageId, slot: Option<u32>, what: Count) {
        self.order.counted(page, slot.map(SlotId), what, &self.shares);
    }

    /// Whether counts are to be halved, once all is counted.
    pub fn is_period_over(&self) -> bool {
        self.order.is_period_over()
    }

    /// Forgets half of all counts.
    pub fn halve_counts(&mut self) {
        self.order.halve_counts();
    }

    /// Whether dirty slots are wanted clean ahead of need.
    pub fn wants_cleaning(&self) -> bool {
        self.order.wants_cleaning()
    }

    /// The page of slot `from` was written to slot `to`: what was counted of it goes along.
    pub fn carry(&mut self, from: u32, to: u32) {
        self.order.carried(SlotId(from), SlotId(to));
    }
}
