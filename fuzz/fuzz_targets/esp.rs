//! See [`ike_fuzz::esp`].
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    ike_fuzz::esp::run(octets);
});
