//! See [`ike_fuzz::configuration`].
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| _ = ike_fuzz::configuration::run(octets));
