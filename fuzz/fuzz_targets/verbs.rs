//! The parsers of what the verbs BTL publishes, says while it connects, sends and writes, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::verbs(bytes));
