//! The B+-tree: pages of sorted cells, and how they change.

pub(crate) mod cells;
pub(crate) mod edit;
pub(crate) mod node;
