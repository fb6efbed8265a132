//! See [`ike_fuzz::endpoint_script`].
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    ike_fuzz::endpoint_script::run(octets);
});
