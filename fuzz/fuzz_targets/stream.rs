//! See [`ike_fuzz::stream`].
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    ike_fuzz::stream::run(octets);
});
