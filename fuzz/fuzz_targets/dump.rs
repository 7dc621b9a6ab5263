//! Dumps: `cargo +nightly fuzz run dump`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::dump(bytes));
