//! The parser of cards, which processes publish of themselves, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::card(bytes));
