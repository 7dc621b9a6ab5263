//! What a table of slots shares with its driver, in plain cells, since a replay has one task: TAC's
//! temperatures and CAC's expansion factors.

use std::cell::RefCell;
use std::rc::Rc;
use terrace_page::PageId;
use terrace_policy::{Expansion, ExpansionRule, Replacement, Temperatures};
use terrace_tier::{Lend, Shares};

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
            by_extents,
        }))
    }

    /// A page, which the table calls by its number in the trace, as numbered by extents.
    #[inline]
    pub fn by_extents(&self, page: PageId) -> PageId {
        self.0.by_extents[page.0 as usize]
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

impl Shares for Shared {}
