//! The receive path of an engine whose packets are protected: the bytes are a script, as of `receive`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::sealed(bytes));
