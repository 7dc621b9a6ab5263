//! Compressed traces: `cargo +nightly fuzz run packed_trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace_trace::fuzz::packed_trace(bytes));
