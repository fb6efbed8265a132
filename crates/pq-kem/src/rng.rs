//! The random source of a real endpoint.

use ike_proto::crypto::SecureRandom;

/// AWS-LC's generator, seeded by the operating system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OsRandom;

impl SecureRandom for OsRandom {
    fn fill(&mut self, out: &mut [u8]) {
        // AWS-LC aborts the process itself when the operating system has no entropy to give; going on
        // with predictable octets is not an option here either.
        aws_lc_rs::rand::fill(out).expect("the system's random source works");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_fill_everything() {
        let (mut a, mut b) = ([0u8; 64], [0u8; 64]);
        OsRandom.fill(&mut a);
        OsRandom.fill(&mut b);
        assert_ne!(a, b);
        // 16 octets in a row left at zero would be a fill that stopped early (chance 2^-128).
        assert!(a.chunks(16).chain(b.chunks(16)).all(|c| c.iter().any(|&o| o != 0)));
        OsRandom.fill(&mut []);
    }
}
