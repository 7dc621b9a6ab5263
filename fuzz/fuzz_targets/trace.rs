//! Traces in every format: `cargo +nightly fuzz run trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace_trace::fuzz::trace(bytes));
