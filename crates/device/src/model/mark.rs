//! Instants that a device records, for tests that cut the power at each.

/// What a recorded mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A write was submitted.
    WriteSubmitted,
    /// A write completed.
    WriteCompleted,
    /// A barrier completed.
    Synced,
}

/// An instant at which a crash test may cut: see `SimDevice::record_writes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What happened.
    pub kind: MarkKind,
    /// `World::events` when it happened, for `Virtual::cut_at_event`.
    pub event: u64,
}
