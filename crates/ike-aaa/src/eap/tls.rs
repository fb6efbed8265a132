//! TLS for EAP by the keys and the trust of IKE.

use std::fmt;
use std::sync::Arc;

use ::eap::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use ::eap::rustls::client::{ResolvesClientCert, Resumption};
use ::eap::rustls::crypto::{self, CryptoProvider};
use ::eap::rustls::pki_types::{CertificateDer, IpAddr, ServerName, UnixTime};
use ::eap::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use ::eap::rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use ::eap::rustls::sign::{CertifiedKey, Signer, SigningKey};
use ::eap::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureAlgorithm, SignatureScheme, SupportedProtocolVersion, version,
};
use ::eap::{TlsClient, TlsLimits};
use ::pki::Credential;
use ike_proto::crypto as crypto_key;

use ike_config::TlsOptions;

use super::{Seen, lock};

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<CryptoProvider>> = std::sync::OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(crypto::aws_lc_rs::default_provider())))
}

fn versions(options: TlsOptions) -> Vec<&'static SupportedProtocolVersion> {
    let both = [(&version::TLS13, options.no_tls13), (&version::TLS12, options.no_tls12)];
    both.into_iter().filter(|(_, no)| !no).map(|(version, _)| version).collect()
}

/// The configuration of a peer that shows `own`, if anything.
pub(super) fn client(
    own: Option<Arc<CertifiedKey>>,
    judge: Judge,
    options: TlsOptions,
    limits: TlsLimits,
) -> Result<TlsClient, String> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions(options))
        .map_err(|error| format!("TLS: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(judge));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(Own(own))),
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    // Nobody reads it: the judge knows whom it must be.
    let name = ServerName::IpAddress(IpAddr::V4([0, 0, 0, 0].into()));
    Ok(TlsClient { config: Arc::new(config), name, limits })
}

/// The configuration of a server; with a `judge` the peer must show a certificate.
pub(super) fn server(
    own: &Arc<CertifiedKey>,
    judge: Option<Judge>,
    options: TlsOptions,
) -> Result<Arc<ServerConfig>, String> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions(options))
        .map_err(|error| format!("TLS: {error}"))?;
    let builder = match judge {
        Some(judge) => builder.with_client_cert_verifier(Arc::new(judge)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Own(Arc::clone(own))));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The first credential that TLS can use. `seen` has the place of the thread that signs with it.
pub(super) fn own_key(
    credentials: &[Credential],
    seen: &Seen,
) -> Result<Arc<CertifiedKey>, String> {
    let usable = credentials.iter().find_map(|credential| {
        let first = credential.certificate()?;
        let key = Key(Arc::clone(credential.key()), Arc::clone(seen));
        key.schemes().next()?;
        let chain = std::iter::once(first).chain(credential.chain());
        let mut certs: Vec<_> =
            chain.map(|cert| CertificateDer::from(cert.der().to_vec())).collect();
        certs.dedup();
        Some(Arc::new(CertifiedKey::new(certs, Arc::new(key))))
    });
    usable.ok_or_else(|| "no certificate with a key of RSA, ECDSA or Ed25519 for TLS".to_owned())
}

#[derive(Debug)]
struct Own(Arc<CertifiedKey>);

impl ResolvesServerCert for Own {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl ResolvesClientCert for Own {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A key of IKE.
#[derive(Debug)]
struct Key(Arc<dyn crypto_key::SigningKey>, Seen);

impl Key {
    fn schemes(&self) -> impl Iterator<Item = (SignatureScheme, crypto_key::SignatureScheme)> {
        self.0.schemes().iter().filter_map(|scheme| {
            use crypto_key::SignatureScheme as S;
            let tls = match scheme {
                S::EcdsaP256Sha256 => SignatureScheme::ECDSA_NISTP256_SHA256,
                S::EcdsaP384Sha384 => SignatureScheme::ECDSA_NISTP384_SHA384,
                S::EcdsaP521Sha512 => SignatureScheme::ECDSA_NISTP521_SHA512,
                S::Ed25519 => SignatureScheme::ED25519,
                S::RsaPssSha256 => SignatureScheme::RSA_PSS_SHA256,
                S::RsaPssSha384 => SignatureScheme::RSA_PSS_SHA384,
                S::RsaPssSha512 => SignatureScheme::RSA_PSS_SHA512,
                S::RsaPkcs1Sha256 => SignatureScheme::RSA_PKCS1_SHA256,
                S::RsaPkcs1Sha384 => SignatureScheme::RSA_PKCS1_SHA384,
                S::RsaPkcs1Sha512 => SignatureScheme::RSA_PKCS1_SHA512,
                _ => return None,
            };
            Some((tls, scheme.clone()))
        })
    }
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let (tls, own) = self.schemes().find(|(tls, _)| offered.contains(tls))?;
        let (key, seen) = (Arc::clone(&self.0), Arc::clone(&self.1));
        Some(Box::new(Signing { key, seen, tls, own }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.schemes().next() {
            Some((SignatureScheme::ED25519, _)) => SignatureAlgorithm::ED25519,
            Some((_, own)) if own.is_rsa() => SignatureAlgorithm::RSA,
            _ => SignatureAlgorithm::ECDSA,
        }
    }
}

#[derive(Debug)]
struct Signing {
    key: Arc<dyn crypto_key::SigningKey>,
    seen: Seen,
    tls: SignatureScheme,
    own: crypto_key::SignatureScheme,
}

impl Signer for Signing {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let sign = || self.key.sign(&self.own, message);
        let seat = lock(&self.seen).seat.upgrade();
        let signed = match seat {
            Some(seat) if self.key.is_elsewhere() => seat.leave(sign),
            _ => sign(),
        };
        signed.map_err(|error| Error::General(error.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.tls
    }
}

/// Judges certificates, the own one first.
type Verdict = dyn Fn(&[&[u8]]) -> Result<(), String> + Send + Sync;

/// Verifies the other end: its certificates by the rules of IKE, its signature by rustls.
pub(super) struct Judge(Box<Verdict>);

impl Judge {
    pub(super) fn new(
        verdict: impl Fn(&[&[u8]]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(verdict))
    }

    fn judge(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        let certs: Vec<&[u8]> = std::iter::once(first).chain(others).map(|cert| &**cert).collect();
        (self.0)(&certs).map_err(|why| {
            tracing::info!(%why, "certificate refused in EAP");
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
        })
    }

    fn tls12(
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        crypto::verify_tls12_signature(message, cert, dss, &algorithms)
    }

    fn tls13(
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn schemes() -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(first, others).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}

impl ClientCertVerifier for Judge {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(first, others).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Semaphore;
    use tokio::task::spawn_blocking;

    use super::super::{InTls, Seat};
    use super::*;

    /// A key that tells how many places are free while it signs.
    #[derive(Debug)]
    struct Watching(Arc<Semaphore>, bool);

    impl crypto_key::SigningKey for Watching {
        fn schemes(&self) -> &[crypto_key::SignatureScheme] {
            &[crypto_key::SignatureScheme::Ed25519]
        }
        fn public_key(&self) -> &[u8] {
            &[]
        }
        fn sign(
            &self,
            _: &crypto_key::SignatureScheme,
            _: &[u8],
        ) -> Result<Vec<u8>, crypto_key::CryptoError> {
            Ok(vec![u8::try_from(self.0.available_permits()).unwrap()])
        }
        fn is_elsewhere(&self) -> bool {
            self.1
        }
    }

    /// Faults, each by itself: in `Seat::leave`, keep the place; take none afterwards; in `Signing::sign`, leave it for every
    /// key.
    #[tokio::test]
    async fn a_place_among_the_processors_is_free_while_a_key_elsewhere_signs() {
        let places = Arc::new(Semaphore::new(1));
        for elsewhere in [true, false] {
            let seat = Arc::new(Seat::take(&places).await.unwrap());
            let in_tls = InTls { seat: Arc::downgrade(&seat), ..InTls::default() };
            let key = Key(
                Arc::new(Watching(Arc::clone(&places), elsewhere)),
                Arc::new(Mutex::new(in_tls)),
            );
            let signer = key.choose_scheme(&[SignatureScheme::ED25519]).unwrap();
            let signed = spawn_blocking(move || signer.sign(b"message").unwrap()).await.unwrap();
            assert_eq!(signed, [u8::from(elsewhere)]);
            assert_eq!(places.available_permits(), 0, "it has the place again");
            drop(seat);
            assert_eq!(places.available_permits(), 1);
        }
    }
}
