//! The random source of a real endpoint.

use ipsec_types::crypto::SecureRandom;

/// The generator of the operating system itself: no octets and no state of a generator in this process's memory. Every
/// copy of a virtual machine would hand out what is there, as nonces, SPIs, IVs and keys that are the same; the kernel
/// is told of copies and draws anew. A call takes less than a microsecond.
pub(crate) struct OsRandom;

impl OsRandom {
    pub(crate) const fn new() -> Self {
        Self
    }
}

impl SecureRandom for OsRandom {
    fn fill(&mut self, out: &mut [u8]) {
        // Going on with predictable octets is not an option.
        getrandom::fill(out).expect("the system's random source works");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_fill_everything() {
        for len in [1, 16, 64, 128, 129, 1536] {
            let mut rng = OsRandom::new();
            let draws: Vec<Vec<u8>> = (0..40)
                .map(|_| {
                    let mut octets = vec![0; len];
                    rng.fill(&mut octets);
                    octets
                })
                .collect();
            for (at, draw) in draws.iter().enumerate().filter(|_| len >= 16) {
                assert!(!draws[..at].contains(draw), "{len} octets, drawn again");
                // 16 octets in a row left at zero would be a fill that stopped early (chance 2^-128).
                assert!(draw.chunks(16).filter(|c| c.len() == 16).all(|c| c != [0; 16]), "{len}");
            }
        }
        OsRandom::new().fill(&mut []);
    }

    /// A copy of this process, as a snapshot of a virtual machine makes one, has no octets that are still to come.
    ///
    /// Fault: draw 512 octets at once, and keep those that are not asked for.
    #[test]
    fn nothing_is_kept_ahead() {
        assert_eq!(size_of::<OsRandom>(), 0);
    }
}
