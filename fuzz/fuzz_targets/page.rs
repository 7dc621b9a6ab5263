//! Pages, and nodes of trees: `cargo +nightly fuzz run page`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::page(bytes));
