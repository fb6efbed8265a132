//! Fixtures, and a peer that shows them.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ike_proto::wire::payload::{Cert, IdData};
use ike_proto::wire::registry::CertEncoding;
use pki::{Certificate, PeerPolicy, PkiError, TrustStore, TrustedPeer, files, verify_peer};

thread_local! {
    static CLOCK: Cell<SystemTime> = Cell::new(UNIX_EPOCH + Duration::from_secs(1_906_502_400));
}

/// 2030-06-01: within the validity of everything that is not expired on purpose.
pub fn now() -> SystemTime {
    CLOCK.get()
}

/// Sets the time of this test to that of the machine. The fixtures are then not yet valid.
#[expect(
    clippy::disallowed_methods,
    reason = "other programs judge what the test makes by the machine's time"
)]
pub fn use_the_real_time() {
    CLOCK.set(SystemTime::now());
}

/// The content of a fixture.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The certificate in `NAME.pem`.
pub fn certificate(name: &str) -> Certificate {
    files::load_certificates(&fixture(&format!("{name}.pem"))).unwrap().remove(0)
}

pub fn shared(name: &str) -> Arc<Certificate> {
    Arc::new(certificate(name))
}

/// Trust in the named CAs.
pub fn trusting(cas: &[&str]) -> TrustStore {
    let mut trust = TrustStore::new();
    for ca in cas {
        trust.add_ca(certificate(ca)).unwrap();
    }
    trust
}

pub fn id(text: &str) -> IdData {
    IdData::parse(text).unwrap()
}

/// The verdict on a peer that asserts `identity` and shows the named certificates.
pub fn verdict(
    identity: &str,
    shown: &[&str],
    policy: &PeerPolicy,
    trust: &TrustStore,
) -> Result<TrustedPeer, PkiError> {
    verdict_at(identity, shown, policy, trust, now())
}

pub fn verdict_at(
    identity: &str,
    shown: &[&str],
    policy: &PeerPolicy,
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    let shown: Vec<Certificate> = shown.iter().map(|name| certificate(name)).collect();
    let payloads: Vec<Cert<'_>> = shown.iter().map(|shown| x509(shown.der())).collect();
    verify_peer(&id(identity), &payloads, policy, trust, now)
}

/// A CERT payload with an X.509 certificate.
pub fn x509(data: &[u8]) -> Cert<'_> {
    Cert { encoding: CertEncoding::X509_SIGNATURE, data }
}

/// The error of a verdict, as text.
pub fn refused(verdict: Result<TrustedPeer, PkiError>) -> String {
    verdict.expect_err("should have been refused").to_string()
}
