//! The flash tier's flushed table: `cargo +nightly fuzz run flushed_table`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::flushed_table(bytes));
