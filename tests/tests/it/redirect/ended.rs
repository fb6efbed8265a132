//! The IKE SA whose gateway redirects its client ends before the redirect is followed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ike_proto::RequestId;
use ike_proto::config::RedirectPolicy;
use ike_proto::crypto::{
    CipherKey, CipherLengths, CipherProvider, CipherSuite, CryptoError, CryptoProvider, Frame,
};
use ike_tests::{A, cheap};

use super::{B, C, MINUTE, SECOND, assert_served_by, three, to};

/// Ciphers that cannot encrypt the second message: the Delete by which a client leaves its gateway.
struct Failing {
    real: &'static dyn CipherProvider,
    sealed: Arc<AtomicU32>,
}

struct FailingKey(Box<dyn CipherKey>, Arc<AtomicU32>);

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failing")
    }
}

impl CipherProvider for Failing {
    fn lengths(&self, suite: CipherSuite) -> Option<CipherLengths> {
        self.real.lengths(suite)
    }

    fn key(
        &self,
        suite: CipherSuite,
        encr_key: &[u8],
        integ_key: &[u8],
    ) -> Result<Box<dyn CipherKey>, CryptoError> {
        let real = self.real.key(suite, encr_key, integ_key)?;
        Ok(Box::new(FailingKey(real, Arc::clone(&self.sealed))))
    }
}

impl CipherKey for FailingKey {
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError> {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            1 => Err(CryptoError::Backend),
            _ => self.0.seal(frame, data, icv),
        }
    }

    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError> {
        self.0.open(frame, data, icv)
    }
}

/// A client whose gateway redirects it at the end of IKE_AUTH, and which cannot encrypt the Delete.
fn stranded(seed: u64) -> super::Pair {
    three(seed, |host, setup| {
        if host == B {
            setup.b.settings.redirect = RedirectPolicy { in_auth: true, ..to(&[3]) };
            let cheap = cheap::provider();
            let ciphers = Failing { real: cheap.ciphers, sealed: Arc::default() };
            let ciphers = Box::leak(Box::new(ciphers));
            setup.a.crypto = Arc::new(CryptoProvider { ciphers, ..(*cheap).clone() });
        }
    })
}

/// The command is answered, and the child that it wants is made at the other gateway.
///
/// Fault: in `follow_redirect`, return at once if `established(ike)` is `None`.
#[test]
fn what_was_wanted_is_made_at_the_other_gateway() {
    let mut pair = stranded(41);
    let request: RequestId = pair.initiate(A, Some("net"));
    pair.run_for(10 * SECOND);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    // The first gateway has had no Delete, and finds out by itself.
    pair.run_for(10 * MINUTE);
    assert_served_by(&pair, C);
}
