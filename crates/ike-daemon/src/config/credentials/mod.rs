//! Certificates, keys and revocation lists from the folders beside the configuration file, which have
//! the names and the meaning of swanctl's.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ::pki::{Certificate, Credential, Crl, LoadError, MAX_LIST, TrustStore, files};
use ike_proto::crypto::{CryptoProvider, SigningKey};

use ike_config::{Content, KeyFile, Modules, NamedFile, Place, Report, TokenKeyOption, nearest};

use crate::config::loaded::{certificate_name, crl_name, key_id};
use crate::files::load_file;
use crate::signer::KeySource;

mod fingerprint;
mod folder;
mod keys;

pub(crate) use fingerprint::fingerprint;

use folder::{Entry, entries};

/// End-entity certificates.
pub(crate) const X509: &str = "x509";
/// CA certificates.
pub(crate) const X509CA: &str = "x509ca";
/// Revocation lists.
const X509CRL: &str = "x509crl";
/// Certificates of OCSP responders.
const X509OCSP: &str = "x509ocsp";
/// Raw public keys.
pub(crate) const PUBKEY: &str = "pubkey";

/// Folders of swanctl that are of no use here.
const UNUSED: [&str; 3] = ["bliss", "x509aa", "x509ac"];

/// What the files hold.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    folder: PathBuf,
    pub(crate) keys_from: Arc<dyn KeySource>,
    /// The algorithms of the program.
    pub(crate) crypto: Arc<CryptoProvider>,
    /// Where tokens are.
    pub(crate) modules: Modules,
    keys: Vec<LoadedKey>,
    /// End-entity certificates, each with what else is in its file.
    certificates: Vec<LoadedCertificate>,
    /// CAs and revocation lists.
    pub(crate) trust: TrustStore,
    now: SystemTime,
    /// What the file may name that is in no file.
    blobs: HashMap<String, Arc<[u8]>>,
}

#[derive(Debug, Clone)]
struct LoadedKey {
    key: Arc<dyn SigningKey>,
    /// The file as messages show it.
    shown: String,
}

#[derive(Debug, Clone)]
struct LoadedCertificate {
    certificate: Arc<Certificate>,
    /// Its chain, or part of it.
    others: Vec<Arc<Certificate>>,
}

impl Credentials {
    /// Loads every file of the folders in `folder`, and the private keys that `[secrets]` names, which
    /// `keys_from` holds, of the algorithms of `crypto`. Clients may name more of them, in `modules`.
    pub(crate) fn load(
        folder: &Path,
        (keys_from, crypto): (Arc<dyn KeySource>, Arc<CryptoProvider>),
        (key_files, tokens): (Vec<KeyFile>, Vec<TokenKeyOption>),
        modules: Modules,
        report: &mut Report,
    ) -> Self {
        for module in modules.values() {
            if let Err(why) = keys_from.admit(module) {
                report.about_file(format!("the signer: {why}"));
            }
        }
        let mut this = Self {
            folder: folder.to_path_buf(),
            keys_from,
            trust: TrustStore::with_schemes(&crypto.schemes),
            crypto,
            modules,
            keys: Vec::new(),
            certificates: Vec::new(),
            now: SystemTime::now(),
            blobs: HashMap::new(),
        };
        keys::load(&mut this, key_files, report);
        keys::open(&mut this, tokens, report);
        for entry in entries(folder, X509CA, report) {
            this.ca_file(&entry, report);
        }
        for entry in entries(folder, X509, report) {
            this.certificate_file(&entry, report);
        }
        for entry in entries(folder, X509CRL, report) {
            this.crl_file(&entry, report);
        }
        for entry in entries(folder, X509OCSP, report) {
            this.responder_file(&entry, report);
        }
        for unused in UNUSED {
            if let Some(first) = entries(folder, unused, report).first() {
                report.warn(None, format!("{}: files of {unused}/ are not used", first.shown));
            }
        }
        for entry in entries(folder, PUBKEY, report) {
            if let Some(Err(why)) =
                entry.read(report).map(|content| files::load_public_key(&content))
            {
                entry.wrong(why, "a public key, PEM or DER", report);
            }
        }
        this
    }

    /// Self-signed CAs are trusted, others link a certificate to one that is.
    fn ca_file(&mut self, entry: &Entry, report: &mut Report) {
        for ca in entry.certificates(report) {
            self.check_validity(&ca, &entry.shown, None, report);
            if let Err(why) = self.add_ca(ca) {
                entry.wrong(why, CA, report);
            }
        }
    }

    /// OCSP responders that are trusted whoever has certified them.
    fn responder_file(&mut self, entry: &Entry, report: &mut Report) {
        for responder in entry.certificates(report) {
            self.check_validity(&responder, &entry.shown, None, report);
            if let Err(why) = self.trust.revocation.add_responder(Arc::new(responder)) {
                entry.wrong(why, "a certificate with extendedKeyUsage OCSPSigning", report);
            }
        }
    }

    /// Trusts `ca`, if it is self-signed, or takes it as a link.
    pub(crate) fn add_ca(&mut self, ca: Certificate) -> Result<(), LoadError> {
        self.trust.add(ca)
    }

    /// Warns of CAs that no trust anchor is above: the certificates that they issued are not trusted.
    pub(crate) fn warn_of_loose_cas(&self, report: &mut Report) {
        for ca in self.trust.loose(&[]) {
            report.warn(None, loose(ca));
        }
    }

    fn certificate_file(&mut self, entry: &Entry, report: &mut Report) {
        let loaded = entry.certificates(report);
        if let Some(first) = loaded.first() {
            self.check_validity(first, &entry.shown, None, report);
        }
        self.add_certificates(loaded.into_iter().map(Arc::new).collect());
    }

    /// Takes a certificate with its chain.
    fn add_certificates(&mut self, mut chain: Vec<Arc<Certificate>>) {
        if chain.is_empty() {
            return;
        }
        let certificate = chain.remove(0);
        self.certificates.push(LoadedCertificate { certificate, others: chain });
    }

    /// A list that cannot be read is named, and the rest loads: a CA's program may replace its list at any time, and
    /// the other lists count meanwhile.
    fn crl_file(&mut self, entry: &Entry, report: &mut Report) {
        let content = match load_file(&entry.path, MAX_LIST) {
            Ok(content) => content,
            Err(why) => return report.warn(None, format!("{why}; this list is left out")),
        };
        let crl = match self.trust.revocation.read_crl(&content) {
            Ok(crl) => crl,
            Err(why) => {
                let expected = "expected a revocation list, PEM or DER";
                let message = format!("{}: {why}: {expected}; this list is left out", entry.shown);
                return report.warn(None, message);
            }
        };
        if let Some(due) = crl.next_update().filter(|due| *due < self.now) {
            let due = ::pki::issue::date_text(due);
            report.warn(None, format!("{}: a newer list was due on {due}", entry.shown));
        } else if !self.is_ours(&crl) {
            let issuer = crl.issuer_text();
            let message = format!("{}: no CA in x509ca/ signed it, {issuer:?} did", entry.shown);
            report.warn(None, message);
        } else if self.has_namesake(&crl) {
            let message = format!(
                "{}: CAs with different keys have the name {:?}: about certificates of the others, this list counts only \
                 if they name its URL",
                entry.shown,
                crl.issuer_text()
            );
            report.warn(None, message);
        }
        if !crl.is_understood() {
            let message = format!(
                "{}: it has a version or a critical extension that is not known: certificates on it are revoked, and \
                 it calls none good",
                entry.shown
            );
            report.warn(None, message);
        }
        self.trust.revocation.load_crl(Arc::new(crl));
    }

    fn is_ours(&self, crl: &Crl) -> bool {
        let mut cas = self.trust.cas().iter().chain(self.trust.intermediates());
        cas.any(|ca| crl.is_signed_by(ca))
    }

    /// True if another trust anchor has the name of the issuer of `crl`.
    fn has_namesake(&self, crl: &Crl) -> bool {
        let mut named = self.trust.cas().iter().filter(|ca| ca.subject() == crl.issuer());
        named.any(|ca| !crl.is_signed_by(ca))
    }

    /// The certificates in the file that an option names; the first is the one that is meant.
    pub(crate) fn certificates_named(
        &self,
        file: &NamedFile,
        kind: &'static str,
        report: &mut Report,
    ) -> Option<Vec<Arc<Certificate>>> {
        let content = self.named(file, kind, report)?;
        match files::load_certificates(&content) {
            Ok(loaded) => {
                let first = loaded.first()?;
                self.check_validity(first, &file.name, Some((file.place, &file.option)), report);
                Some(loaded.into_iter().map(Arc::new).collect())
            }
            Err(why) => {
                let message = format!("`{}`, {:?}: {why}", file.option, file.name);
                report.expected(file.place, message, "X.509 certificates, PEM or DER");
                None
            }
        }
    }

    /// The public key in the file that an option names: DER SubjectPublicKeyInfo.
    pub(crate) fn public_key_named(
        &self,
        file: &NamedFile,
        report: &mut Report,
    ) -> Option<(Vec<u8>, Option<Arc<Certificate>>)> {
        let content = self.named(file, PUBKEY, report)?;
        match files::load_public_key(&content) {
            Ok(spki) => {
                let first = files::load_certificates(&content).ok();
                let first = first.and_then(|all| all.into_iter().next());
                Some((spki, first.map(Arc::new)))
            }
            Err(why) => {
                let message = format!("`{}`, {:?}: {why}", file.option, file.name);
                report.expected(file.place, message, "a public key, PEM or DER");
                None
            }
        }
    }

    fn named(&self, file: &NamedFile, kind: &'static str, report: &mut Report) -> Option<Content> {
        if let Some(blob) = self.blobs.get(&file.name) {
            return Some(Content::new(blob.to_vec()));
        }
        let path = self.folder.join(kind).join(&file.name);
        match load_file(&path, folder::LARGEST) {
            Ok(content) => Some(content),
            Err(why) => {
                let known = folder::names(&self.folder, kind);
                let message = format!("`{}`: {why}", file.option);
                let expected =
                    format!("a file in {kind}/ beside the configuration file, or an absolute path");
                report.expected(file.place, message, expected).suggestion =
                    nearest(&file.name, known.iter().map(String::as_str)).map(str::to_owned);
                None
            }
        }
    }

    /// Adds what came without a file: private keys, end-entity certificates, and what options name.
    pub(crate) fn add_loaded(
        &mut self,
        keys: impl Iterator<Item = (String, Arc<dyn SigningKey>)>,
        certificates: impl Iterator<Item = Arc<Certificate>>,
        blobs: HashMap<String, Arc<[u8]>>,
    ) {
        self.keys.extend(keys.map(|(shown, key)| LoadedKey { key, shown }));
        for certificate in certificates {
            self.add_certificates(vec![certificate]);
        }
        self.blobs.extend(blobs);
    }

    /// The identifiers of the private keys.
    pub(crate) fn key_ids(&self) -> impl Iterator<Item = String> {
        self.keys.iter().map(|loaded| key_id(loaded.key.public_key()))
    }

    /// What tells the private keys, certificates and revocation lists from all others.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let own = self.certificates.iter();
        let own = own.flat_map(|loaded| std::iter::once(&loaded.certificate).chain(&loaded.others));
        let all = own.chain(self.trust.cas()).chain(self.trust.intermediates());
        let certificates = all.map(|certificate| certificate_name(certificate));
        let crls = self.trust.revocation.crls().map(|crl| crl_name(crl));
        self.key_ids().chain(certificates).chain(crls)
    }

    /// The same without the private keys that have these identifiers.
    pub(crate) fn without_keys(&self, hidden: &BTreeSet<String>) -> Self {
        let mut this = self.clone();
        if !hidden.is_empty() {
            this.keys.retain(|loaded| !hidden.contains(&key_id(loaded.key.public_key())));
        }
        this
    }

    /// The same without what the files hold.
    pub(crate) fn without_files(&self) -> Self {
        let (folder, keys_from) = (self.folder.clone(), Arc::clone(&self.keys_from));
        Self {
            folder,
            keys_from,
            crypto: Arc::clone(&self.crypto),
            modules: self.modules.clone(),
            keys: Vec::new(),
            certificates: Vec::new(),
            trust: TrustStore::with_schemes(&self.crypto.schemes),
            now: self.now,
            blobs: HashMap::new(),
        }
    }

    /// The end-entity certificates, and whether there is a private key for each.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (&Arc<Certificate>, bool)> {
        self.certificates.iter().map(|loaded| {
            let spki = loaded.certificate.spki();
            (&loaded.certificate, self.keys.iter().any(|key| key.key.public_key() == spki))
        })
    }

    /// `certificate` with its private key and chain, if there is a key for it.
    pub(crate) fn credential(
        &self,
        certificate: &Arc<Certificate>,
        others: &[Arc<Certificate>],
    ) -> Option<Credential> {
        let loaded = self.certificates.iter();
        let others: Vec<_> = others
            .iter()
            .chain(loaded.flat_map(|loaded| &loaded.others))
            .chain(self.trust.intermediates())
            .map(Arc::clone)
            .collect();
        let fit = |loaded: &LoadedKey| {
            Credential::new(Arc::clone(&loaded.key), Arc::clone(certificate), &others).ok()
        };
        self.keys.iter().find_map(fit)
    }

    /// The private key of a raw public key.
    pub(crate) fn raw_credential(&self, spki: &[u8]) -> Option<Credential> {
        let key = self.keys.iter().find(|loaded| loaded.key.public_key() == spki)?;
        Some(Credential::raw(Arc::clone(&key.key)))
    }

    /// Every certificate there is a private key for.
    pub(crate) fn all(&self) -> Vec<Credential> {
        let all = self.certificates.iter();
        all.filter_map(|loaded| self.credential(&loaded.certificate, &loaded.others)).collect()
    }

    /// The files of private keys that are not in `used`: with nothing to show, they are of no use.
    pub(crate) fn unused_keys(&self, used: &[Arc<dyn SigningKey>]) -> Vec<&str> {
        let unused = self
            .keys
            .iter()
            .filter(|loaded| !used.iter().any(|key| key.public_key() == loaded.key.public_key()));
        unused.map(|loaded| loaded.shown.as_str()).collect()
    }

    /// Warns of a certificate that is not valid now. It is no mistake: it may be now what it will not
    /// be tomorrow, and the other connections go on.
    fn check_validity(
        &self,
        certificate: &Certificate,
        shown: &str,
        option: Option<(Place, &str)>,
        report: &mut Report,
    ) {
        let date = ::pki::issue::date_text;
        let what = if self.now > certificate.not_after() {
            format!("expired on {}", date(certificate.not_after()))
        } else if self.now < certificate.not_before() {
            let clock = ::pki::wrong_clock(self.now).map(|clock| format!("; {clock}"));
            let from = date(certificate.not_before());
            format!("is not valid before {from}{}", clock.unwrap_or_default())
        } else {
            return;
        };
        let subject = certificate.subject_text();
        let message = match option {
            Some((_, option)) => format!("`{option}`: certificate {subject:?} in {shown} {what}"),
            None => format!("{shown}: certificate {subject:?} {what}"),
        };
        report.warn(option.map(|(offset, _)| offset), message);
    }
}

/// The warning about a CA that no trust anchor is above.
pub(crate) fn loose(ca: &Certificate) -> String {
    format!(
        "the CA {:?} has no self-signed CA above it, so the certificates that it issued are not trusted: put {:?} into \
         x509ca/, or set `trust_anchor = true` in a section of `authorities` with this `cacert`",
        ca.subject_text(),
        ca.issuer_text()
    )
}

/// What a CA certificate is, for messages.
pub(crate) const CA: &str =
    "a CA certificate: basicConstraints with CA:TRUE, and keyCertSign if it has keyUsage";
