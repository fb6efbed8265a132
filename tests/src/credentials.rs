//! Certification authorities, keys and certificates made on the spot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use ike_proto::config::{AuthConfig, IdMatch, LocalAuth, RemoteAuth};
use ike_proto::crypto::{SignatureScheme, SigningKey};
use ike_proto::wire::payload::IdData;
use pki::issue::{self, CertificateStatus, Issuer, RevokedEntry, Template};
use pki::{Certificate, Credential, PeerPolicy};
use pq_kem::sign::{KeyType, generate, load_private_key};

use crate::setup::{Side, identity};
use crate::world::World;

/// A certification authority.
pub struct Authority {
    key: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    name: Vec<u8>,
    /// Its own certificate.
    pub certificate: Arc<Certificate>,
}

impl Authority {
    /// A self-signed root called `name`, with the `n`-th key of its type.
    pub fn root(name: &str, key_type: KeyType, n: u8) -> Self {
        Self::make(name, key(key_type, n), n, None)
    }

    /// A CA that this one has certified.
    pub fn intermediate(&self, name: &str, key_type: KeyType, n: u8) -> Self {
        Self::make(name, key(key_type, n), n, Some(self))
    }

    /// As [`root`](Self::root), with this key.
    pub fn root_with(name: &str, key: Arc<dyn SigningKey>, n: u8) -> Self {
        Self::make(name, key, n, None)
    }

    /// As [`intermediate`](Self::intermediate), with this key.
    pub fn intermediate_with(&self, name: &str, key: Arc<dyn SigningKey>, n: u8) -> Self {
        Self::make(name, key, n, Some(self))
    }

    /// The same CA, whose private key is replaced by one with the same public key.
    pub fn signing_by(&self, key: Arc<dyn SigningKey>) -> Self {
        let (scheme, name) = (self.scheme.clone(), self.name.clone());
        Self { key, scheme, name, certificate: Arc::clone(&self.certificate) }
    }

    fn make(name: &str, key: Arc<dyn SigningKey>, n: u8, issuer: Option<&Self>) -> Self {
        let name = issue::distinguished_name(&format!("CN={name}")).expect("a name");
        let scheme = issue::default_scheme(&*key).expect("a scheme");
        let template = Template { ca: true, subject: name.clone(), ..template(90 + n) };
        let signer = match issuer {
            Some(issuer) => issuer.issuer(),
            None => Issuer { key: &*key, scheme: scheme.clone(), name: &name },
        };
        let der = issue::certificate(&template, key.public_key(), &signer).expect("a certificate");
        let certificate = Arc::new(Certificate::from_der(&der).expect("a certificate"));
        Self { key, scheme, name, certificate }
    }

    fn issuer(&self) -> Issuer<'_> {
        Issuer { key: &*self.key, scheme: self.scheme.clone(), name: &self.name }
    }

    /// A certificate of `key` for `id`, changed by `change`. Its serial number is `serial`.
    pub fn issue(
        &self,
        key: &dyn SigningKey,
        id: &IdData,
        serial: u8,
        change: impl FnOnce(&mut Template),
    ) -> Arc<Certificate> {
        let mut template = Template { names: vec![id.clone()], ..template(serial) };
        change(&mut template);
        let der = issue::certificate(&template, key.public_key(), &self.issuer());
        let der = der.expect("a certificate");
        Arc::new(Certificate::from_der(&der).expect("a certificate"))
    }

    /// A revocation list with these serial numbers, current when worlds begin.
    pub fn revocation_list(&self, serials: &[u8]) -> Vec<u8> {
        let at = World::dawn() - Duration::from_secs(3600);
        let entry = |serial: &u8| RevokedEntry { serial: vec![*serial], at, reason: None };
        let revoked: Vec<_> = serials.iter().map(entry).collect();
        let next = World::dawn() + Duration::from_secs(86_400);
        issue::revocation_list(&self.issuer(), at, next, 1, &revoked).expect("a list")
    }

    /// An OCSP response about a certificate of this CA, current when worlds begin.
    pub fn ocsp_response(&self, certificate: &Certificate, revoked: bool) -> Vec<u8> {
        let at = World::dawn() - Duration::from_secs(3600);
        let next = World::dawn() + Duration::from_secs(86_400);
        let revoked = revoked.then_some(at);
        let status = CertificateStatus { certificate, issuer: &self.certificate, revoked };
        issue::ocsp_response(&self.issuer(), None, &[status], at, Some(next)).expect("a response")
    }
}

/// The `n`-th key of a type in this process.
pub fn key(key_type: KeyType, n: u8) -> Arc<dyn SigningKey> {
    type Keys = HashMap<(String, u8), Arc<dyn SigningKey>>;
    static KEYS: OnceLock<Mutex<Keys>> = OnceLock::new();
    let keys = KEYS.get_or_init(Mutex::default);
    let mut keys = keys.lock().expect("no panic while it was held");
    let made = keys.entry((format!("{key_type:?}"), n)).or_insert_with(|| {
        let der = generate(key_type).expect("a key");
        Arc::from(load_private_key(&der).expect("the key"))
    });
    Arc::clone(made)
}

/// The key type of `scheme`.
pub fn key_type(scheme: SignatureScheme) -> KeyType {
    if scheme.is_rsa() { KeyType::Rsa2048 } else { KeyType::Scheme(scheme) }
}

/// A key of this type with a certificate of `ca` for the host with this number.
pub fn credential(ca: &Authority, key_type: KeyType, host: u8) -> Credential {
    credential_for(ca, key_type, host, &identity(host))
}

/// The same with another identity.
pub fn credential_for(ca: &Authority, key_type: KeyType, host: u8, id: &IdData) -> Credential {
    let key = key(key_type, host);
    let certificate = ca.issue(&*key, id, host, |_| {});
    Credential::new(key, certificate, &[]).expect("key and certificate belong together")
}

impl Side {
    /// Authenticates by `credential`, in the one round "local".
    pub fn show(&mut self, credential: Credential) {
        self.show_in("local", AuthConfig::pubkey(), credential);
    }

    /// Makes `name` by `auth` and `credential` a round of this end: the first call replaces what was
    /// there if `name` is that of the first round.
    pub fn show_in(&mut self, name: &str, auth: AuthConfig, credential: Credential) {
        let id = credential.identity(self.connection.local_id()).ok();
        let id = id.or_else(|| credential.identity(None).ok());
        let id = id.or_else(|| self.connection.local_id().cloned());
        let round = LocalAuth { id, ..LocalAuth::new(name, auth) };
        match self.connection.local.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = round,
            None => self.connection.local.push(round),
        }
        self.answerer.add_credential("ab", name, credential);
    }

    /// Wants the peer to authenticate by `auth` with a certificate of `ca`, in the one round "remote".
    pub fn want(&mut self, auth: &str, ca: &Authority) {
        let id = self.connection.remote_id().clone();
        self.want_in("remote", auth, id, ca);
    }

    /// Makes `name` a round of the peer.
    ///
    /// # Panics
    ///
    /// If `auth` cannot be parsed.
    pub fn want_in(&mut self, name: &str, auth: &str, id: IdMatch, ca: &Authority) {
        let auth = AuthConfig::parse(auth).expect("auth");
        let trust = self.answerer.trust_mut();
        let certificate = Certificate::from_der(ca.certificate.der()).expect("a certificate");
        trust.add_ca(certificate).expect("a CA");
        self.answerer.set_policy("ab", name, PeerPolicy::default());
        let certreqs = self.answerer.certreqs("ab", name);
        let round = RemoteAuth { id, certreqs, ..RemoteAuth::new(name, auth) };
        match self.connection.remote.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = round,
            None => self.connection.remote.push(round),
        }
    }
}

/// A certificate valid when worlds begin.
fn template(serial: u8) -> Template {
    Template {
        serial: vec![serial],
        not_before: World::dawn() - Duration::from_secs(86_400),
        not_after: World::dawn() + Duration::from_secs(10 * 365 * 86_400),
        ..Template::default()
    }
}

/// Some time before worlds begin.
pub fn yesterday() -> SystemTime {
    World::dawn() - Duration::from_secs(3600)
}
