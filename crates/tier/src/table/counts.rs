//! What designs that go by benefit count of each page: nothing, for the others.

use terrace_page::{PageId, SlotId};

use super::SlotTable;
use crate::Shares;
use crate::order::Ranks;

impl<S: Shares> SlotTable<S> {
    /// `page` is read from a device: from flash, if it has `slot`.
    pub fn count_read(&mut self, page: PageId, slot: Option<u32>) {
        if let Ranks::Benefit(ranks) = &mut self.ranks {
            ranks.read(page, slot.map(SlotId));
        }
    }

    /// `page` is written to a device.
    pub fn count_write(&mut self, page: PageId, slot: Option<u32>) {
        if let Ranks::Benefit(ranks) = &mut self.ranks {
            ranks.wrote(page, slot.map(SlotId));
        }
    }

    /// Memory was asked for `page` `logical` times, of which a device was `physical` times.
    pub fn count_in_memory(&mut self, page: PageId, slot: Option<u32>, reads: (u32, u32)) {
        if let Ranks::Benefit(ranks) = &mut self.ranks {
            let slot = slot.map(SlotId);
            self.shares.lend(|expansion| ranks.was_in_memory(page, slot, reads, expansion));
        }
    }

    /// Whether counts are to be halved, once all is counted.
    pub fn is_period_over(&self) -> bool {
        matches!(&self.ranks, Ranks::Benefit(ranks) if ranks.is_period_over())
    }

    /// Forgets half of all counts.
    pub fn halve_counts(&mut self) {
        if let Ranks::Benefit(ranks) = &mut self.ranks {
            ranks.halve();
        }
    }

    /// Whether dirty slots are wanted clean ahead of need.
    pub fn wants_cleaning(&self) -> bool {
        matches!(&self.ranks, Ranks::Benefit(ranks) if ranks.cleanings_wanted() > 0)
    }

    /// The cleaner has taken a slot, or found none.
    pub fn cleaning_begun(&mut self) {
        if let Ranks::Benefit(ranks) = &mut self.ranks {
            ranks.cleaning_begun();
        }
    }

    /// The page of slot `from` was written to slot `to`: what was counted of it goes along.
    pub fn carry(&mut self, from: u32, to: u32) {
        self.ranks.carry(from, to);
    }
}
