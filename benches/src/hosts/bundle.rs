//! What both ends of a measurement share: a folder for each with its certificates, keys and secret, laid
//! out as `ike-daemon` and swanctl look for them, and a swanctl.conf for a strongSwan in its place.
//!
//! The folder of the initiator is what travels to the other host. It holds private keys and a secret, made
//! for measurements and for nothing else.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ike_daemon::config::{self, Config};
use ike_proto::crypto::{SecureRandom, SigningKey};
use ike_proto::wire::payload::IdData;
use pki::files;
use pki::issue::{self, Issuer, Template, default_scheme};
use pq_kem::sign::generate;
use zeroize::Zeroizing;

use super::suite::{Auth, SUITES, Suite};
use crate::links::rules::Rules;

/// The two folders of a bundle.
pub const ROLES: [&str; 2] = ["initiator", "responder"];

/// The responder's configuration for `ike-daemon run`, beside its swanctl.conf.
pub const TOML: &str = "ike.toml";

/// How long what is in it is valid.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// One end's folder.
#[derive(Clone)]
pub struct Bundle {
    folder: PathBuf,
    role: usize,
    psk: Zeroizing<String>,
    initiators: u32,
}

/// What one end's configuration depends on beside its folder.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The other end's host; the responder has none.
    pub peer: Option<String>,
    /// The other end's UDP port; 500 means IKE without the non-ESP marker.
    pub peer_port: u16,
    /// UDP port of this end's NAT-T socket; 0 lets the system choose.
    pub port: u16,
    /// How this end sends again.
    pub rules: Rules,
    /// Lines for `[charon]`.
    pub charon: String,
}

/// Makes a bundle for `suites` in `folder`, which must not be there yet. Initiators differ in identity and
/// certificate; those of a suite have one key, for RSA's take long to make.
pub fn make(folder: &Path, suites: &[&Suite], initiators: u32) -> Result<(), String> {
    let wrong = |error: &dyn fmt::Display| format!("{}: {error}", folder.display());
    if folder.exists() {
        return Err(wrong(&"is there already"));
    }
    let mut secret = [0; 32];
    pq_kem::os_random().fill(&mut secret);
    let secret = secret.iter().fold(String::new(), |text, octet| format!("{text}{octet:02x}"));
    for role in ROLES {
        let own = folder.join(role);
        write(&own, "psk", secret.as_bytes()).map_err(|e| wrong(&e))?;
        let names: Vec<_> = suites.iter().map(|suite| suite.name).collect();
        write(&own, "suites", names.join("\n").as_bytes()).map_err(|e| wrong(&e))?;
        let count = initiators.to_string();
        write(&own, "initiators", count.as_bytes()).map_err(|e| wrong(&e))?;
    }
    for suite in suites {
        if let Auth::Certificates { .. } = suite.auth {
            certificates(folder, suite, initiators).map_err(|e| wrong(&e))?;
        }
    }
    for (role, name) in ROLES.iter().enumerate() {
        let own = folder.join(name);
        write(&own, "swanctl.conf", swanctl(role, suites, &secret, initiators).as_bytes())
            .map_err(|e| wrong(&e))?;
    }
    let responder = Bundle::open(folder, ROLES[1])?;
    let settings = Settings {
        peer: None,
        peer_port: 0,
        port: super::PORT,
        rules: Rules::Ours,
        charon: super::charon(&[]),
    };
    let text = responder.text(suites, &settings);
    write(&responder.folder, TOML, text.as_bytes()).map_err(|e| wrong(&e))
}

impl Bundle {
    /// The folder of `role`, or of a bundle with both.
    pub fn open(folder: &Path, role: &str) -> Result<Self, String> {
        let inner = folder.join(role);
        let folder = if inner.is_dir() { inner } else { folder.to_path_buf() };
        let path = folder.join("psk");
        let psk = fs::read_to_string(&path).map(Zeroizing::new).map_err(|e| {
            format!(
                "{}: {e} (--bundle wants the folder that `ike-bench serve` made)",
                path.display()
            )
        })?;
        let role = ROLES.iter().position(|known| *known == role).unwrap_or_default();
        // A bundle of an older version has one.
        let count =
            fs::read_to_string(folder.join("initiators")).unwrap_or_else(|_| "1".to_owned());
        let initiators = count
            .trim()
            .parse()
            .map_err(|error| format!("{}: {error}", folder.join("initiators").display()))?;
        Ok(Self { folder, role, psk: Zeroizing::new(psk.trim().to_owned()), initiators })
    }

    /// The suites it has credentials for, of those `wanted` (none means all).
    pub fn suites(&self, wanted: &[String]) -> Result<Vec<&'static Suite>, String> {
        let path = self.folder.join("suites");
        let names =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let has = |suite: &&Suite| names.lines().any(|name| name == suite.name);
        if wanted.is_empty() {
            return Ok(SUITES.iter().filter(has).collect());
        }
        let found: Vec<_> =
            wanted.iter().map(|name| super::suite::find(name)).collect::<Result<_, _>>()?;
        match found.iter().find(|suite| !has(suite)) {
            None => Ok(found),
            Some(missing) => {
                Err(format!("{}: has nothing for {}", self.folder.display(), missing.name))
            }
        }
    }

    /// A configuration with a connection for each of `suites`. An initiator's has one for each initiator:
    /// beside that with the name of the suite, those with `-2` and so on behind it.
    pub fn config(&self, suites: &[&Suite], settings: &Settings) -> Result<Config, String> {
        let text = self.text(suites, settings);
        let mut config = config::parse(&text, &self.folder).map_err(|mistakes| {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        settings.rules.apply(&mut config.endpoint);
        Ok(config)
    }

    fn text(&self, suites: &[&Suite], settings: &Settings) -> Zeroizing<String> {
        let mut text = Zeroizing::new(format!(
            "[charon]\nport = 0\nport_nat_t = {}\n{}\n[secrets.ike-links]\nsecret = '0x{}'\n",
            settings.port,
            settings.charon,
            self.psk.as_str()
        ));
        let connections = if self.role == 0 { self.initiators } else { 1 };
        for suite in suites {
            for number in 1..=connections {
                self.connection(&mut text, suite, settings, number);
            }
        }
        text
    }

    fn connection(&self, text: &mut String, suite: &Suite, settings: &Settings, number: u32) {
        let Suite { ike, esp, .. } = suite;
        let [own_id, other_id] = identities(self.role, suite, self.initiators, number);
        let name = &numbered(suite, number);
        let _ = writeln!(text, "[connections.{name}]");
        if let Some(peer) = &settings.peer {
            let _ = writeln!(text, "remote_addrs = '{peer}'\nremote_port = {}", settings.peer_port);
        }
        let auth = if matches!(suite.auth, Auth::Psk) { "psk" } else { "pubkey" };
        let certs = match suite.auth {
            Auth::Psk => String::new(),
            Auth::Certificates { .. } => format!("certs = '{name}.pem'"),
        };
        let [local_ts, remote_ts] = networks(self.role);
        let _ = writeln!(
            text,
            "proposals = '{ike}'\nunique = 'never'\nsend_cert = 'always'
            [connections.{name}.local]\nauth = '{auth}'\nid = '{}'\n{certs}
            [connections.{name}.remote]\nauth = '{auth}'\nid = '{}'
            [connections.{name}.children.net]
            esp_proposals = '{esp}'\nlocal_ts = '{local_ts}'\nremote_ts = '{remote_ts}'\nrekey_time = 0",
            own_id, other_id,
        );
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle({:?})", self.folder)
    }
}

/// The networks behind this end and the other one; no packet of theirs is sent.
fn networks(role: usize) -> [&'static str; 2] {
    if role == 0 { ["10.1.0.0/16", "10.2.0.0/16"] } else { ["10.2.0.0/16", "10.1.0.0/16"] }
}

/// The name of a suite's connection and certificate for the initiator with this number, from 1.
fn numbered(suite: &Suite, number: u32) -> String {
    if number == 1 { suite.name.to_owned() } else { format!("{}-{number}", suite.name) }
}

fn identity(role: &str, suite: &Suite) -> String {
    format!("{role}.{}.links.example", suite.name)
}

/// The identity of the initiator with this number: alone it needs none.
fn initiator(suite: &Suite, initiators: u32, number: &str) -> String {
    let name = identity(ROLES[0], suite);
    if initiators == 1 { name } else { format!("{number}.{name}") }
}

/// What this end asserts, and what it expects of the other one.
fn identities(role: usize, suite: &Suite, initiators: u32, number: u32) -> [String; 2] {
    let responder = identity(ROLES[1], suite);
    if role == 0 {
        [initiator(suite, initiators, &number.to_string()), responder]
    } else {
        [responder, initiator(suite, initiators, "*")]
    }
}

/// The same for strongSwan, as far as it has the algorithms. An initiator's `remote_addrs` is to be filled
/// in.
fn swanctl(role: usize, suites: &[&Suite], secret: &str, initiators: u32) -> String {
    let [local_ts, remote_ts] = networks(role);
    let mut connections = String::new();
    for suite in suites.iter().filter(|suite| suite.strongswan) {
        let Suite { name, ike, esp, .. } = suite;
        let [own_id, other_id] = identities(role, suite, initiators, 1);
        let remote = if role == 0 { "        remote_addrs = RESPONDER\n" } else { "" };
        let (auth, certs) = match suite.auth {
            Auth::Psk => ("psk", String::new()),
            Auth::Certificates { .. } => ("pubkey", format!("            certs = {name}.pem\n")),
        };
        let _ = write!(
            connections,
            "    {name} {{\n        version = 2\n{remote}        proposals = {ike}\n        unique = never\n        \
             send_cert = always\n        local {{\n            auth = {auth}\n            id = {}\n{certs}        \
             }}\n        remote {{\n            auth = {auth}\n            id = {}\n        }}\n        \
             children {{\n            net {{\n                esp_proposals = {esp}\n                \
             local_ts = {local_ts}\n                remote_ts = {remote_ts}\n                \
             rekey_time = 0\n            }}\n        }}\n    }}\n",
            own_id, other_id,
        );
    }
    format!(
        "connections {{\n{connections}}}\nsecrets {{\n    ike-links {{\n        secret = 0x{secret}\n    }}\n}}\n"
    )
}

/// A root CA, and for each end a certificate below it, with CAs of its own between them.
fn certificates(
    folder: &Path,
    suite: &Suite,
    initiators: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let Auth::Certificates { key, intermediates } = suite.auth.clone() else { return Ok(()) };
    let pem = |certificate: &[u8]| files::to_pem("CERTIFICATE", certificate);
    let root_key = files::load_private_key(&generate(key.clone())?, None)?;
    let root_name = issue::distinguished_name(&format!("O=ike-bench, CN={} root", suite.name))?;
    let root = Template { subject: root_name.clone(), ca: true, ..template() };
    let root = issue::certificate(&root, root_key.public_key(), &issuer(&*root_key, &root_name)?)?;
    for (position, role) in ROLES.into_iter().enumerate() {
        let own = folder.join(role);
        let cas = own.join("x509ca");
        write(&cas, &format!("{}.pem", suite.name), pem(&root).as_bytes())?;
        let mut above = (Arc::clone(&root_key), root_name.clone());
        for level in 1..=intermediates {
            let ca_key = files::load_private_key(&generate(key.clone())?, None)?;
            let name = format!("O=ike-bench, CN={} {role} CA {level}", suite.name);
            let name = issue::distinguished_name(&name)?;
            let ca = Template { subject: name.clone(), ca: true, ..template() };
            let ca = issue::certificate(&ca, ca_key.public_key(), &issuer(&*above.0, &above.1)?)?;
            write(&cas, &format!("{}-{level}.pem", suite.name), pem(&ca).as_bytes())?;
            above = (ca_key, name);
        }
        let private = generate(key.clone())?;
        let public = files::load_private_key(&private, None)?.public_key().to_vec();
        let count = if position == 0 { initiators } else { 1 };
        for number in 1..=count {
            let [id, _] = identities(position, suite, initiators, number);
            let name = format!("O=ike-bench, CN={} {role} {number}", suite.name);
            let end = Template {
                subject: issue::distinguished_name(&name)?,
                names: vec![IdData::fqdn(id)],
                ..template()
            };
            let certificate = issue::certificate(&end, &public, &issuer(&*above.0, &above.1)?)?;
            let file = format!("{}.pem", numbered(suite, number));
            write(&own.join("x509"), &file, pem(&certificate).as_bytes())?;
        }
        let file = format!("{}.pem", suite.name);
        let private = Zeroizing::new(files::to_pem("PRIVATE KEY", &private));
        write(&own.join("private"), &file, private.as_bytes())?;
    }
    Ok(())
}

fn issuer<'a>(key: &'a dyn SigningKey, name: &'a [u8]) -> Result<Issuer<'a>, &'static str> {
    let scheme = default_scheme(key).ok_or("the CA's key cannot sign")?;
    Ok(Issuer { key, scheme, name })
}

/// Valid since a day ago, for clocks differ.
fn template() -> Template {
    let mut serial = vec![0; 16];
    pq_kem::os_random().fill(&mut serial);
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 3600);
    Template { serial, not_before: now - day, not_after: now + VALIDITY, ..Template::default() }
}

/// Writes a file that nobody else may read.
fn write(folder: &Path, name: &str, octets: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let path = folder.join(name);
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file?.write_all(octets)
}
