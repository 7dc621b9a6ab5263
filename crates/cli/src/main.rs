//! The `terrace` command.

#![forbid(unsafe_code)]

mod failure;
mod interval;
mod quantity;
mod report;
mod results;
mod table;

fn main() {}
