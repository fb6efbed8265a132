//! See [`ike_fuzz::message`].
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| ike_fuzz::message::run(octets));
