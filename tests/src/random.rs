//! Octets that repeat with their seed.

use ike_proto::crypto::SecureRandom;

/// splitmix64. Good enough to drive simulations, and no secret is safe with it.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True with this probability in thousandths.
    pub fn chance(&mut self, thousandths: u32) -> bool {
        self.below(1000) < u64::from(thousandths)
    }

    /// One of these; `None`, and no number drawn, if there is none.
    pub fn any<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let count = u64::try_from(all.len()).unwrap_or_default();
        if count == 0 {
            return None;
        }
        all.get(usize::try_from(self.below(count)).unwrap_or_default()).copied()
    }

    /// A number from 0 up to, but not, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn with_probability(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// A number of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.fraction(), std::f64::consts::TAU * self.fraction());
        (-2.0 * radius.ln()).sqrt() * angle.cos()
    }

    /// Another stream, which depends on this one and on nothing else.
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }
}

impl SecureRandom for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let octets = self.number().to_be_bytes();
            chunk.copy_from_slice(&octets[..chunk.len()]);
        }
    }
}
