//! The parsers of what Open MPI's openib publishes, says while it connects, and sends, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::openib(bytes));
