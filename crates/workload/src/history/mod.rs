//! Random transactions, and the checker that says whether what they saw was serializable.

pub mod checker;
