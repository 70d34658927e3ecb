//! The parsers of endpoints' names, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::endpoint(bytes));
