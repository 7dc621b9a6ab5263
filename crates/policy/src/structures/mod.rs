//! What several policies are made of.

pub(crate) mod bits;
pub(crate) mod bloom;
pub(crate) mod free_stack;
pub(crate) mod heaps;
pub(crate) mod lazy_heap;
