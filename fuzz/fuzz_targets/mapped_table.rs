//! The flash tier's memory-mapped table: `cargo +nightly fuzz run mapped_table`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::mapped_table(bytes));
