//! The parser of datagrams about connections of the provider, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::datagram(bytes));
