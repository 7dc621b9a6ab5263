//! Log records and the changes in them: `cargo +nightly fuzz run record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::record(bytes));
