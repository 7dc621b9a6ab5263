//! Superblocks: `cargo +nightly fuzz run superblock`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::superblock(bytes));
