//! Log records of the flash tier: `cargo +nightly fuzz run flash_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace::fuzz::flash_record(bytes));
