//! What the tables of all partitions share, and how a table reaches it. The driver keeps it: the
//! pool behind locks and in atomic counters, a replay, which has one task, in plain cells.

use terrace_policy::{Expansion, Temperatures};

/// Lends a `T` that several tables use, for as long as `use_it` takes. Nothing waits meanwhile, and
/// nothing else is lent.
pub trait Lend<T> {
    /// Calls `use_it` with the `T`.
    fn lend<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R;
}

/// What a driver keeps for all of its tables.
pub trait Shares: Clone + Lend<Temperatures> + Lend<Expansion> {
    /// `by` more slots of a table are `what` now, or fewer. For a driver of several tables: each
    /// counts its own.
    fn counted(&self, _what: Gauge, _by: i32) {}
}

/// Nothing: for a table whose order borrows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unshared;

impl<T> Lend<T> for Unshared {
    /// # Panics
    ///
    /// Always: there is nothing to lend.
    fn lend<R>(&self, _use_it: impl FnOnce(&mut T) -> R) -> R {
        panic!("nothing is shared of {}", std::any::type_name::<T>())
    }
}

impl Shares for Unshared {}

/// What is counted of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Slots that are not free.
    Used,
    /// Slots with NEWER.
    Dirty,
    /// Of these, those being cleaned or damaged: the cleaner cannot take them.
    Unavailable,
    /// Slots in INVALID.
    Invalid,
}

/// How many gauges there are.
pub(crate) const GAUGES: usize = Gauge::Invalid as usize + 1;
