//! The `terrace` command.

#![forbid(unsafe_code)]

fn main() {}
