//! What a responder cannot avoid: its public-key operations in a handshake, by the same library, each alone.

use std::time::{Duration, Instant};

use ike_proto::crypto::CryptoError;
use pq_kem::sign::{KeyType, generate, load_private_key};

use crate::hosts::suite::{Auth, Suite};
use crate::operations::key_exchanges;

/// Runs of each operation; the fastest counts, for everything else that runs on this machine only adds.
const RUNS: u32 = 200;
/// Octets that are signed in IKE_AUTH, more or less.
const MESSAGE: usize = 800;

/// The responder's part of every key exchange; with certificates its own signature, the initiator's and
/// those of the initiator's certificates.
///
/// # Errors
/// The library has something of `suite` not.
pub fn floor(suite: &Suite) -> Result<Duration, CryptoError> {
    let mut sum = Duration::ZERO;
    for word in suite.ike.split('-') {
        // As `ke1_mlkem768`.
        let word = word.split_once('_').map_or(word, |(_, method)| method);
        let name = match word {
            "x25519" => "CURVE_25519".to_owned(),
            _ => word.replace("mlkem", "ML_KEM_").replace("modp", "MODP_").to_uppercase(),
        };
        let found = key_exchanges().into_iter().find(|e| e.method.id().to_string() == name);
        if let Some(exchange) = found {
            let mut rng = pq_kem::os_random();
            let pending = exchange.method.initiate(&mut rng)?;
            sum += fastest(|| {
                exchange.method.respond(pending.public(), &mut pq_kem::os_random()).map(drop)
            })?;
        }
    }
    if let Auth::Certificates { key, intermediates } = suite.auth.clone() {
        sum += signatures(key, intermediates)?;
    }
    Ok(sum)
}

fn signatures(key: KeyType, intermediates: usize) -> Result<Duration, CryptoError> {
    let key = load_private_key(&generate(key)?).map_err(|_| CryptoError::Backend)?;
    let scheme = pki::issue::default_scheme(&*key).ok_or(CryptoError::Backend)?;
    let verifiers = pq_kem::provider().verifiers;
    let verifier = verifiers.iter().find(|verifier| verifier.schemes().contains(&scheme));
    let verifier = verifier.ok_or(CryptoError::Backend)?;
    let message = [0x5a; MESSAGE];
    let signed = key.sign(&scheme, &message)?;
    let sign = fastest(|| key.sign(&scheme, &message).map(drop))?;
    let verify = fastest(|| verifier.verify(&scheme, key.public_key(), &message, &signed))?;
    // The AUTH payload, the certificate of the end, and those between it and the root.
    Ok(sign + verify * (2 + u32::try_from(intermediates).unwrap_or(u32::MAX)))
}

fn fastest(mut run: impl FnMut() -> Result<(), CryptoError>) -> Result<Duration, CryptoError> {
    let mut least = Duration::MAX;
    for _ in 0..RUNS {
        let begin = Instant::now();
        run()?;
        least = least.min(begin.elapsed());
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::suite::find;

    #[test]
    fn more_work_has_a_higher_floor() {
        let floor =
            |name: &str| find(name).ok().and_then(|suite| floor(suite).ok()).unwrap_or_default();
        let (psk, hybrid) = (floor("psk-x25519"), floor("psk-mlkem768"));
        assert!(psk > Duration::ZERO && hybrid > psk, "{psk:?} {hybrid:?}");
        assert!(floor("ecdsa-x25519") > psk);
    }
}
