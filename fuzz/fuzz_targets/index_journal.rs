//! The journal of an index: `cargo +nightly fuzz run index_journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace_index::fuzz::journal(bytes));
