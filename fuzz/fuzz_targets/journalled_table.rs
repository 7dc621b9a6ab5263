//! The flash tier's header and journalled table: `cargo +nightly fuzz run journalled_table`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::journalled_table(bytes));
