//! What control clients have loaded, beside the configuration file: sections, which are an [`Overlay`] over those of the
//! file, and keys and certificates.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::pki::{Certificate, Crl, ca_hash, files};
use aws_lc_rs::digest::{SHA256, digest};
use ike_config::{Blobs, Document, KeptSecrets, Kind, Overlay, Reading, remember};
use ike_proto::crypto::SigningKey;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use toml::de::DeTable;

use super::credentials::Credentials;
use super::{Config, Diagnostic, Origin, assemble};
use crate::files::ThisHost;
use crate::signer::{self, KeySource, LoadRequest, Passphrase};

/// All that was loaded. Never prints a secret.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    overlay: Mutex<Overlay>,
    credentials: Mutex<LoadedCredentials>,
}

/// Keys and certificates.
#[derive(Debug, Default, Clone)]
struct LoadedCredentials {
    keys: BTreeMap<String, Arc<dyn SigningKey>>,
    certificates: Vec<Arc<Certificate>>,
    cas: Vec<Arc<Certificate>>,
    crls: Vec<Arc<Crl>>,
    /// The identifiers of the file's keys, where its format is swanctl.conf's.
    of_file: BTreeSet<String>,
    /// The names of keys, certificates and revocation lists that it has had ([`remember`]), as [`Credentials::names`] has
    /// them.
    had: BTreeSet<String>,
    /// Those of the file's that a client has unloaded.
    hidden: BTreeSet<String>,
    /// A client has unloaded all keys and certificates of the file.
    cleared: bool,
}

/// What was loaded at one time, to be put back: keys, certificates, revocation lists and secrets.
#[derive(Debug)]
pub(crate) struct Kept {
    secrets: KeptSecrets,
    credentials: LoadedCredentials,
}

/// What the file had, to be read again with what is loaded over it.
#[derive(Debug)]
pub(crate) struct Base {
    /// Its sections.
    pub(crate) document: Document,
    /// Keys and certificates of the folders, without `authorities`.
    pub(crate) credentials: Credentials,
}

impl Base {
    fn host(&self) -> ThisHost<'_> {
        ThisHost { crypto: &self.credentials.crypto }
    }
}

impl Loaded {
    /// Sections and shared secrets.
    pub(crate) fn overlay(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn credentials(&self) -> MutexGuard<'_, LoadedCredentials> {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let LoadedCredentials { keys, certificates, cas, crls, hidden, cleared, .. } =
            &*self.credentials();
        self.overlay().is_empty()
            && hidden.is_empty()
            && !cleared
            && keys.is_empty()
            && certificates.is_empty()
            && cas.is_empty()
            && crls.is_empty()
    }

    /// What `base` has is in force. If swanctl reads the same file, that is `swanctl --load-all --clear`: what a client
    /// has unloaded is there again. What a client has loaded is gone, but for what no file has had by its name.
    pub(crate) fn adopt(&self, base: &Base) {
        if !base.document.is_for_swanctl() {
            return;
        }
        self.overlay().adopt(&base.document);
        self.credentials().adopt(&base.credentials);
    }

    /// The keys, certificates, revocation lists and secrets as they are, for [`Self::put_back`].
    pub(crate) fn keep_credentials(&self) -> Kept {
        let secrets = self.overlay().keep_secrets();
        Kept { secrets, credentials: self.credentials().clone() }
    }

    /// All of them are again as they were.
    pub(crate) fn put_back(&self, kept: Kept) {
        self.overlay().put_back_secrets(kept.secrets);
        *self.credentials() = kept.credentials;
    }

    /// Adds a private key. The error says what is wrong with it.
    pub(crate) fn add_key(
        &self,
        keys: &dyn KeySource,
        octets: &[u8],
        kind: &str,
    ) -> Result<String, String> {
        let octets = Passphrase::copy_from(octets);
        let loaded = keys.load(&LoadRequest::Octets(&octets)).map_err(|why| why.to_string())?;
        let key = loaded.keys.into_iter().next().ok_or("no private key")?;
        if !signer::is_of_kind(&*key, kind) {
            return Err(format!("this is no key of type {kind}"));
        }
        let id = key_id(key.public_key());
        self.credentials().keys.insert(id.clone(), key);
        Ok(id)
    }

    /// Adds a private key in a token, by what `[secrets.token]` would say of it. The error says what is wrong.
    pub(crate) fn add_token(&self, base: &Base, table: DeTable<'static>) -> Result<String, String> {
        let (modules, folder) = (&base.credentials.modules, &base.document.folder);
        let token = ike_config::read_token(table, modules, folder, &base.host())?;
        let request = LoadRequest::Token { key: token.key, pin: token.pin.as_ref() };
        let loaded = base.credentials.keys_from.load(&request).map_err(|why| why.to_string())?;
        let key = loaded.keys.into_iter().next().ok_or("no private key")?;
        let id = key_id(key.public_key());
        self.credentials().keys.insert(id.clone(), key);
        Ok(id)
    }

    /// Takes a private key away, also the file's where swanctl reads the same file; false if there is none.
    pub(crate) fn remove_key(&self, id: &str) -> bool {
        let loaded = &mut *self.credentials();
        let hides = loaded.shows(id) && loaded.hidden.insert(id.to_owned());
        loaded.keys.remove(id).is_some() || hides
    }

    /// The identifiers of the private keys that [`Self::remove_key`] takes.
    pub(crate) fn key_ids(&self) -> Vec<String> {
        let loaded = self.credentials();
        let of_file = loaded.of_file.iter().filter(|id| loaded.shows(id));
        let all: BTreeSet<_> = loaded.keys.keys().chain(of_file).cloned().collect();
        all.into_iter().collect()
    }

    /// Adds certificates, of CAs or not. The error says what is wrong with them.
    pub(crate) fn add_certificates(&self, octets: &[u8], ca: bool) -> Result<(), String> {
        let found = files::load_certificates(octets).map_err(|why| why.to_string())?;
        if ca && let Some(other) = found.iter().find(|certificate| !certificate.is_ca()) {
            return Err(format!("{} is no CA", other.subject_text()));
        }
        let mut loaded = self.credentials();
        let place = if ca { &mut loaded.cas } else { &mut loaded.certificates };
        for certificate in found {
            if !place.iter().any(|known| known.der() == certificate.der()) {
                place.push(Arc::new(certificate));
            }
        }
        Ok(())
    }

    /// Adds a revocation list. The error says what is wrong with it.
    pub(crate) fn add_crl(&self, base: &Base, octets: &[u8]) -> Result<(), String> {
        let crl = base.credentials.trust.revocation.read_crl(octets);
        let crl = crl.map_err(|why| why.to_string())?;
        let crls = &mut self.credentials().crls;
        if !crls.iter().any(|known| known.is_same_as(&crl)) {
            crls.push(Arc::new(crl));
        }
        Ok(())
    }

    /// Takes away all keys, secrets, certificates and revocation lists, also the file's where swanctl reads the same
    /// file.
    pub(crate) fn clear_credentials(&self, base: &Base) {
        self.overlay().clear_shared();
        let loaded = &mut *self.credentials();
        let (of_file, had) = (std::mem::take(&mut loaded.of_file), std::mem::take(&mut loaded.had));
        let cleared = base.document.is_for_swanctl();
        *loaded = LoadedCredentials { of_file, had, cleared, ..LoadedCredentials::default() };
    }

    /// What one section is by itself: its mistakes, as a sentence.
    pub(crate) fn check(&self, base: &Base, kind: Kind, name: &str) -> Result<Config, String> {
        let read = self.overlay().read_section(&base.document, kind, name, &base.host());
        let (reading, blobs) = read.ok_or_else(|| format!("there is no {name}"))?;
        let store = self.credentials().over(base, blobs);
        over(reading, &store)
    }

    /// The same for a secret.
    pub(crate) fn check_shared(&self, base: &Base, key: &str) -> Result<(), String> {
        let reading = self.overlay().read_shared(&base.document, key, &base.host());
        over(reading, &base.credentials).map(drop)
    }

    /// The configuration of `base` with all that is loaded; of a file that was read `anew`, with what of the loaded
    /// [`Self::adopt`] would keep.
    pub(crate) fn merged(&self, base: &Arc<Base>, anew: bool) -> Result<Config, String> {
        let mut config = match anew && base.document.is_for_swanctl() {
            true => {
                let (reading, blobs) = self.overlay().read_anew(&base.document, &base.host());
                let mut loaded = self.credentials().clone();
                loaded.adopt(&base.credentials);
                over(reading, &loaded.over(base, blobs))?
            }
            false => {
                let (reading, blobs) = self.overlay().read(&base.document, &base.host());
                let store = self.credentials().over(base, blobs);
                over(reading, &store)?
            }
        };
        config.base = Some(Arc::clone(base));
        Ok(config)
    }
}

impl LoadedCredentials {
    /// What `file` has is in force. What was loaded stays if no file has had it.
    fn adopt(&mut self, file: &Credentials) {
        self.of_file = file.key_ids().collect();
        remember(&mut self.had, &file.names().collect());
        let had = &self.had;
        self.keys.retain(|id, _| !had.contains(id));
        self.certificates.retain(|certificate| !had.contains(&certificate_name(certificate)));
        self.cas.retain(|ca| !had.contains(&certificate_name(ca)));
        self.crls.retain(|crl| !had.contains(&crl_name(crl)));
        (self.hidden, self.cleared) = (BTreeSet::new(), false);
    }

    /// The file's credentials and those that were loaded.
    fn over(&self, base: &Base, blobs: Blobs) -> Credentials {
        let mut store = match self.cleared {
            true => base.credentials.without_files(),
            false => base.credentials.without_keys(&self.hidden),
        };
        for ca in &self.cas {
            // It was looked at when it came.
            let _ = store.add_ca(Certificate::clone(ca));
        }
        for crl in &self.crls {
            store.trust.revocation.load_crl(Arc::clone(crl));
        }
        let keys = self.keys.iter().map(|(id, key)| (format!("key {id}"), Arc::clone(key)));
        let blobs: HashMap<_, _> = blobs.into_iter().collect();
        store.add_loaded(keys, self.certificates.iter().cloned(), blobs);
        store
    }

    /// True if the file has this key, and no client has unloaded it.
    fn shows(&self, id: &str) -> bool {
        self.of_file.contains(id) && !self.hidden.contains(id) && !self.cleared
    }
}

/// What tells a certificate from every other one.
pub(crate) fn certificate_name(certificate: &Certificate) -> String {
    hex(digest(&SHA256, certificate.der()).as_ref())
}

/// The same of a revocation list. Of a long one there is no encoding to hash.
pub(crate) fn crl_name(crl: &Crl) -> String {
    hex(digest(&SHA256, &[crl.issuer(), crl.signature()].concat()).as_ref())
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// What charon names a key by: the SHA-1 of the public key, in hexadecimal digits.
pub(crate) fn key_id(spki: &[u8]) -> String {
    let key = SubjectPublicKeyInfo::parse(spki).map_or(spki, |parsed| parsed.key);
    hex(&ca_hash(key))
}

/// Assembles a configuration with the keys and certificates of `store`. The error has its mistakes, as a sentence.
fn over(reading: Reading, store: &Credentials) -> Result<Config, String> {
    let Reading { settings, mut report, .. } = reading;
    let (config, _) = assemble(settings, Origin::Kept(store), &mut report);
    let mistakes = report.finish();
    if mistakes.is_empty() { Ok(config) } else { Err(sentence(&mistakes)) }
}

/// Mistakes in one line.
fn sentence(mistakes: &[Diagnostic]) -> String {
    let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    mistakes.join("; ")
}
