//! The parser of entries of mailboxes, over any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hawser::sim::fuzz::mailbox(bytes));
