//! The parser of announcements between members of a communicator, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::announcement(bytes));
