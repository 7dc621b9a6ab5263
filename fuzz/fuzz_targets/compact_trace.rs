//! Traces in our own format, with the right checksums: `cargo +nightly fuzz run compact_trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| terrace_trace::fuzz::compact_trace(bytes));
