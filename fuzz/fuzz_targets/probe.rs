//! The parser of the agents' datagrams, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::probe(bytes));
