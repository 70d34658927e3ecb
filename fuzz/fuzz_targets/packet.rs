//! The parser of packets, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::packet(bytes));
