//! What is measured: algorithms for the IKE SA, and how both ends authenticate.

use std::sync::Arc;

use ike_proto::crypto::SignatureScheme;
use ike_proto::wire::registry::ProtocolId;
use ike_tests::credentials::{Authority, key};
use ike_tests::setup::{Side, identity, proposals, side};
use pki::Credential;
use pq_kem::sign::KeyType;

use super::recorder::RecordedSigner;

/// A set of algorithms.
#[derive(Debug, Clone)]
pub struct Suite {
    /// Name.
    pub name: &'static str,
    /// The proposal for the IKE SA.
    pub proposal: &'static str,
    /// Keys of the ends and of the CA that has certified both; `None` is a pre-shared key.
    pub key: Option<KeyType>,
}

const fn psk(name: &'static str, proposal: &'static str) -> Suite {
    Suite { name, proposal, key: None }
}

const fn by(name: &'static str, proposal: &'static str, scheme: SignatureScheme) -> Suite {
    Suite { name, proposal, key: Some(KeyType::Scheme(scheme)) }
}

/// All of them.
pub const SUITES: &[Suite] = &[
    psk("psk-x25519", "aes256gcm16-prfsha256-x25519"),
    psk("psk-mlkem768", "aes256gcm16-prfsha256-x25519-ke1_mlkem768"),
    by("ecdsa", "aes256gcm16-prfsha256-x25519", SignatureScheme::EcdsaP256Sha256),
    by(
        "ecdsa-mlkem768",
        "aes256gcm16-prfsha256-x25519-ke1_mlkem768",
        SignatureScheme::EcdsaP256Sha256,
    ),
    Suite {
        name: "rsa-2048",
        proposal: "aes256gcm16-prfsha256-x25519",
        key: Some(KeyType::Rsa2048),
    },
    by("ed25519", "aes256gcm16-prfsha256-x25519", SignatureScheme::Ed25519),
    by("mldsa65-mlkem768", "aes256gcm16-prfsha256-x25519-ke1_mlkem768", SignatureScheme::MlDsa65),
    by("mldsa87-mlkem1024", "aes256gcm16-prfsha384-ecp384-ke1_mlkem1024", SignatureScheme::MlDsa87),
    by(
        "frodo976-ecdsa",
        "aes256gcm16-prfsha256-x25519-ke1_frodoa3",
        SignatureScheme::EcdsaP256Sha256,
    ),
];

impl Suite {
    /// The suite called `name`.
    pub fn named(name: &str) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// Both ends.
    pub fn sides(&self) -> [Side; 2] {
        let mut sides = [side(1, 2), side(2, 1)];
        for side in &mut sides {
            side.connection.proposals = proposals(ProtocolId::IKE, &[self.proposal]);
        }
        let Some(key_type) = self.key.clone() else { return sides };
        let ca = Authority::root("ca", key_type.clone(), 9);
        for (host, side) in (1..).zip(&mut sides) {
            let own = key(key_type.clone(), host);
            let certificate = ca.issue(&*own, &identity(host), host, |_| {});
            let signer = Arc::new(RecordedSigner(own));
            let credential = Credential::new(signer, certificate, &[]);
            side.show(credential.expect("key and certificate belong together"));
            side.want("pubkey", &ca);
            // Each handshake is to be a peer's first visit, as the floor is.
            side.answerer.trust_mut().set_cert_cache(false);
        }
        sides
    }
}
