//! Backups: `cargo +nightly fuzz run backup`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::backup(bytes));
