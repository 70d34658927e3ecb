//! The parser of modex records, which processes publish, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::modex(bytes));
