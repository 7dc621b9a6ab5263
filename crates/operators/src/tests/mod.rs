//! The operators beside naive models, on random tables.

mod tables;

mod aggregates;
mod fetches;
mod joins;
mod scans;
mod sorts;
mod threads;
