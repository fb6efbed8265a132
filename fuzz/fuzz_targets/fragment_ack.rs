//! See [`ike_fuzz::fragment_ack`].
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    ike_fuzz::fragment_ack::run(octets);
});
