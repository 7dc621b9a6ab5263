//! What tables share, in plain cells: what a driver without threads has.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use terrace_policy::{Costs, Expansion, ExpansionRule, SavedCosts, Temperatures};
use terrace_tier::{Gauge, Lend, Shares};

const COSTS: SavedCosts = SavedCosts { random_ms: 8.0, sequential_ms: 1.0 };

/// What tables share, where there is one task.
#[derive(Clone)]
pub struct Plain(Rc<Kept>);

struct Kept {
    temperatures: RefCell<Temperatures>,
    expansion: RefCell<Expansion>,
    gauges: [Cell<i32>; 4],
}

impl Plain {
    pub fn new() -> Plain {
        Plain(Rc::new(Kept {
            temperatures: RefCell::new(Temperatures::new(COSTS, 1000)),
            expansion: RefCell::new(Expansion::new(ExpansionRule::One, &Costs::PUBLISHED)),
            gauges: Default::default(),
        }))
    }

    pub fn gauge(&self, what: Gauge) -> usize {
        usize::try_from(self.0.gauges[what as usize].get()).expect("no fewer than none")
    }
}

impl Lend<Temperatures> for Plain {
    fn lend<R>(&self, use_it: impl FnOnce(&mut Temperatures) -> R) -> R {
        use_it(&mut self.0.temperatures.borrow_mut())
    }
}

impl Lend<Expansion> for Plain {
    fn lend<R>(&self, use_it: impl FnOnce(&mut Expansion) -> R) -> R {
        use_it(&mut self.0.expansion.borrow_mut())
    }
}

impl Shares for Plain {
    fn counted(&self, what: Gauge, by: i32) {
        let gauge = &self.0.gauges[what as usize];
        gauge.set(gauge.get() + by);
    }
}
