//! The whole receive path: the bytes are a script of what a hostile peer that has the key sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::receive(bytes));
