//! See [`ike_fuzz::fragments`].
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    ike_fuzz::fragments::run(octets);
});
