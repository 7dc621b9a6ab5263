//! What a table of slots shares with its driver, in plain cells, since a replay has one task:
//! counts of slots, TAC's temperatures and CAC's expansion factors.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use terrace_page::PageId;
use terrace_policy::{Expansion, ExpansionRule, Replacement, Temperatures};
use terrace_tier::{Gauge, Lend, Shares};

use super::FlashSetup;
use crate::places::Places;

/// What the table calls a page: its number in the trace.
#[inline]
pub fn id(page: u32) -> PageId {
    PageId(u64::from(page))
}

/// What one table shares. Clones share the same.
#[derive(Clone)]
pub struct Shared(Rc<Cells>);

struct Cells {
    temperatures: RefCell<Temperatures>,
    expansion: RefCell<Expansion>,
    counts: [Cell<u32>; 4],
    /// Pages numbered by extents, of a design that asks for temperatures.
    by_extents: Vec<PageId>,
}

impl Shared {
    /// Cold extents, and the expansion factors of slots that are reused by `replacement`.
    pub fn new(replacement: Replacement, places: &Places, setup: &FlashSetup) -> Shared {
        let aging = if setup.tac_aging == 0 { u64::from(setup.slots) } else { setup.tac_aging };
        let rule = match replacement {
            Replacement::AnticipatedBenefit => ExpansionRule::Estimated,
            _ => ExpansionRule::One,
        };
        let by_extents = match replacement {
            Replacement::Temperature => places.by_extents(),
            _ => Vec::new(),
        };
        Shared(Rc::new(Cells {
            temperatures: RefCell::new(Temperatures::new(setup.saved, aging)),
            expansion: RefCell::new(Expansion::new(rule, &setup.costs)),
            counts: Default::default(),
            by_extents,
        }))
    }

    /// A page, which the table calls by its number in the trace, as numbered by extents.
    #[inline]
    pub fn by_extents(&self, page: PageId) -> PageId {
        self.0.by_extents[page.0 as usize]
    }

    /// How many slots are `what`.
    #[inline]
    pub fn count(&self, what: Gauge) -> u32 {
        self.0.counts[what as usize].get()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let by_extents = self.0.by_extents.capacity() * size_of::<PageId>();
        self.0.temperatures.borrow().bytes() + self.0.expansion.borrow().bytes() + by_extents
    }
}

impl Lend<Temperatures> for Shared {
    fn lend<R>(&self, use_it: impl FnOnce(&mut Temperatures) -> R) -> R {
        use_it(&mut self.0.temperatures.borrow_mut())
    }
}

impl Lend<Expansion> for Shared {
    fn lend<R>(&self, use_it: impl FnOnce(&mut Expansion) -> R) -> R {
        use_it(&mut self.0.expansion.borrow_mut())
    }
}

impl Shares for Shared {
    #[inline]
    fn counted(&self, what: Gauge, by: i32) {
        let count = &self.0.counts[what as usize];
        count.set(count.get().wrapping_add_signed(by));
    }
}
