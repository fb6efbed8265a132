//! Cryptography that costs little, the same on every machine, and protects nothing.

use std::sync::Arc;

use ike_proto::crypto::{
    CipherKey, CipherLengths, CipherProvider, CipherSuite, CryptoError, CryptoProvider, Frame, Prf,
    Secret,
};
use ike_proto::wire::registry::PrfId;
use ike_tests::cheap;
use pq_kem::sym::Ciphers;

/// Every algorithm a stand-in.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        prf: vec![&StandIn],
        ciphers: &StandIn,
        sha1,
        ..CryptoProvider::clone(&cheap::post_quantum())
    })
}

/// A PRF, and the cipher suites of `pq-kem` by their lengths.
#[derive(Debug)]
struct StandIn;

impl Prf for StandIn {
    fn id(&self) -> PrfId {
        PrfId::HMAC_SHA2_256
    }

    fn output_len(&self) -> usize {
        32
    }

    fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        let sum = parts.iter().fold(fold(1, key), |sum, part| fold(sum, part));
        Secret::new((1..=4).flat_map(|n| mixed(sum, n).to_be_bytes()).collect())
    }
}

impl CipherProvider for StandIn {
    fn lengths(&self, suite: CipherSuite) -> Option<CipherLengths> {
        Ciphers.lengths(suite)
    }

    fn key(
        &self,
        _: CipherSuite,
        encr: &[u8],
        integ: &[u8],
    ) -> Result<Box<dyn CipherKey>, CryptoError> {
        Ok(Box::new(Key(fold(fold(2, encr), integ))))
    }
}

/// Leaves the plaintext as it is.
struct Key(u64);

impl Key {
    fn check(&self, frame: Frame<'_>, data: &[u8], icv: &mut [u8]) {
        let sum = fold(fold(fold(self.0, frame.iv), frame.aad), data);
        for (n, chunk) in (1..).zip(icv.chunks_mut(8)) {
            let octets = mixed(sum, n).to_be_bytes();
            chunk.copy_from_slice(&octets[..chunk.len()]);
        }
    }
}

impl CipherKey for Key {
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError> {
        self.check(frame, data, icv);
        Ok(())
    }

    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError> {
        let mut right = vec![0; icv.len()];
        self.check(frame, data, &mut right);
        if right == icv { Ok(()) } else { Err(CryptoError::Integrity) }
    }
}

fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let sum = parts.iter().fold(3, |sum, part| fold(sum, part));
    let mut out = [0; 20];
    for (n, chunk) in (1..).zip(out.chunks_mut(4)) {
        chunk.copy_from_slice(&mixed(sum, n).to_be_bytes()[..4]);
    }
    out
}

/// Eight octets at a time.
fn fold(sum: u64, octets: &[u8]) -> u64 {
    octets.chunks(8).fold(mixed(sum, octets.len() as u64), |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mixed(sum, u64::from_be_bytes(word))
    })
}

fn mixed(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
