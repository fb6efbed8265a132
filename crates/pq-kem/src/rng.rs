//! The random source of a real endpoint.

#[cfg(not(target_os = "linux"))]
use std::process;

use ike_proto::crypto::SecureRandom;
use zeroize::Zeroize;

#[cfg(target_os = "linux")]
use crate::ffi::process;

/// AWS-LC's generator, seeded by the operating system. A call of it costs about the same for few octets
/// as for hundreds, and a handshake draws a dozen times: so it is asked for many at a time. Octets are
/// wiped here as they are handed out.
pub(crate) struct OsRandom {
    ahead: [u8; AHEAD],
    /// How many of them, the last ones, are left.
    left: usize,
    /// The process that drew them: after a fork both would hand out the same.
    process: u32,
}

/// Octets drawn at once.
const AHEAD: usize = 512;
/// More than this is not worth keeping.
const LONG: usize = AHEAD / 4;

impl OsRandom {
    pub(crate) const fn new() -> Self {
        Self { ahead: [0; AHEAD], left: 0, process: 0 }
    }
}

impl SecureRandom for OsRandom {
    fn fill(&mut self, out: &mut [u8]) {
        if out.len() > LONG {
            return draw(out);
        }
        let process = process::id();
        if self.left < out.len() || self.process != process {
            draw(&mut self.ahead);
            self.left = AHEAD;
            self.process = process;
        }
        let taken = self.ahead.iter_mut().skip(AHEAD - self.left).take(out.len());
        for (octet, ahead) in out.iter_mut().zip(taken) {
            *octet = *ahead;
            *ahead = 0;
        }
        self.left -= out.len();
    }
}

impl Drop for OsRandom {
    fn drop(&mut self) {
        self.ahead.zeroize();
    }
}

fn draw(out: &mut [u8]) {
    // AWS-LC aborts the process itself when the operating system has no entropy to give; going on with
    // predictable octets is not an option here either.
    aws_lc_rs::rand::fill(out).expect("the system's random source works");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_fill_everything() {
        for len in [1, 16, 64, LONG, LONG + 1, 3 * AHEAD] {
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

    #[test]
    fn what_was_handed_out_is_wiped() {
        let mut rng = OsRandom::new();
        rng.fill(&mut [0; 32]);
        assert_eq!(rng.left, AHEAD - 32);
        assert_eq!(rng.ahead[..32], [0; 32]);
        assert_ne!(rng.ahead[32..64], [0; 32]);
    }

    #[test]
    fn another_process_draws_its_own() {
        let mut rng = OsRandom::new();
        rng.fill(&mut [0; 32]);
        let parents = rng.ahead;
        rng.process = rng.process.wrapping_add(1);
        let mut drawn = [0; 32];
        rng.fill(&mut drawn);
        assert_ne!(drawn, parents[32..64]);
        assert_eq!((rng.left, rng.process), (AHEAD - 32, std::process::id()));
    }
}
