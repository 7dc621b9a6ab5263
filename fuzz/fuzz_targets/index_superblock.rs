//! Superblocks of indexes: `cargo +nightly fuzz run index_superblock`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace_index::fuzz::superblock(bytes));
