//! Indexes with damaged pages, journals and superblocks: `cargo +nightly fuzz run index`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace_index::fuzz::index(bytes));
