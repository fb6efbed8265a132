//! The suites of the demonstration, from classical to paranoid.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use ike_proto::crypto::{SecureRandom, SignatureScheme};
use ike_proto::wire::payload::IdData;
use pki::files;
use pki::issue::{self, Issuer, Template, default_scheme};
use pq_kem::sign::{KeyType, generate};

/// A set of algorithms for both daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Suite {
    /// X25519, and ECDSA P-256 certificates
    Classical,
    /// X25519 with ML-KEM-768, and ECDSA P-256 certificates
    #[default]
    Hybrid,
    /// P-384 with ML-KEM-1024, and ML-DSA-87 certificates
    Cnsa2,
    /// X25519 with ML-KEM-1024, FrodoKEM-976 and a post-quantum preshared key, and ML-DSA-87
    /// certificates
    Paranoid,
}

impl Suite {
    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Classical => "classical",
            Self::Hybrid => "hybrid",
            Self::Cnsa2 => "cnsa2",
            Self::Paranoid => "paranoid",
        }
    }

    /// Key exchange methods, as in proposals.
    pub(super) fn methods(self) -> &'static str {
        match self {
            Self::Classical => "x25519",
            Self::Hybrid => "x25519-ke1_mlkem768",
            Self::Cnsa2 => "ecp384-ke1_mlkem1024",
            Self::Paranoid => "x25519-ke1_mlkem1024-ke2_frodoa3",
        }
    }

    /// Key exchanges of an initial IKE SA, and those of a rekey.
    pub(super) fn key_exchanges(self) -> usize {
        self.methods().split('-').count()
    }

    /// True if a PPK is mixed in, at the start and in rekeys.
    pub(super) fn has_ppk(self) -> bool {
        self == Self::Paranoid
    }

    fn signature(self) -> SignatureScheme {
        match self {
            Self::Classical | Self::Hybrid => SignatureScheme::EcdsaP256Sha256,
            Self::Cnsa2 | Self::Paranoid => SignatureScheme::MlDsa87,
        }
    }
}

/// A folder for each end with its certificate, its key and the CA, as a configuration finds them. Gone
/// when dropped.
pub(super) struct Folders(PathBuf);

impl Folders {
    /// Makes a CA, and a certificate for each of `names`.
    pub(super) fn make(suite: Suite, names: [&str; 2]) -> Result<Self, String> {
        let mut octets = [0; 8];
        pq_kem::os_random().fill(&mut octets);
        let unique = u64::from_be_bytes(octets);
        let this = Self(std::env::temp_dir().join(format!("ike-daemon-demo-{unique:016x}")));
        this.fill(suite, names)
            .map_err(|why| format!("certificates for the demonstration: {why}"))?;
        Ok(this)
    }

    /// The folder of the end `name`.
    pub(super) fn of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn fill(&self, suite: Suite, names: [&str; 2]) -> Result<(), Box<dyn std::error::Error>> {
        let key_type = KeyType::Scheme(suite.signature());
        let ca_key = files::load_private_key(&generate(key_type.clone())?, None)?;
        let ca_name = issue::distinguished_name("O=demo, CN=CA")?;
        let ca = Template { subject: ca_name.clone(), ca: true, ..template() };
        let scheme = default_scheme(&*ca_key).ok_or("the CA's key cannot sign")?;
        let issuer = Issuer { key: &*ca_key, scheme, name: &ca_name };
        let ca = issue::certificate(&ca, ca_key.public_key(), &issuer)?;
        for name in names {
            let folder = self.of(name);
            let key = generate(key_type.clone())?;
            let spki = files::load_private_key(&key, None)?.public_key().to_vec();
            let own = Template {
                subject: issue::distinguished_name(&format!("O=demo, CN={name}"))?,
                names: vec![IdData::fqdn(format!("{name}.example.org"))],
                ..template()
            };
            let certificate = issue::certificate(&own, &spki, &issuer)?;
            write(&folder, "private", &key)?;
            write(&folder, "x509", &certificate)?;
            write(&folder, "x509ca", &ca)?;
        }
        Ok(())
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // Nobody can do anything about it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Valid for a day, since an hour ago.
fn template() -> Template {
    let mut serial = vec![0; 16];
    pq_kem::os_random().fill(&mut serial);
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    let now = SystemTime::now();
    let hour = Duration::from_secs(3600);
    Template { serial, not_before: now - hour, not_after: now + 24 * hour, ..Template::default() }
}

/// Writes a file that nobody else may read.
fn write(folder: &Path, kind: &str, octets: &[u8]) -> io::Result<()> {
    let folder = folder.join(kind);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let path = folder.join("demo.der");
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file?.write_all(octets)
}
