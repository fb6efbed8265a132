//! What an operator asks of the program around it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use ike_config::{Connection, Difference, Ends, Hosts, Kind, Overlay, Settings};
use ike_proto::UsedAuth;
use ike_proto::config::EndpointConfig;
use ike_proto::crypto::CryptoProvider;
use ike_proto::dataplane::Capabilities;
use ike_tokio::{Ports, Resolver, SystemResolver};
use toml::de::DeTable;

use crate::demands;
use crate::error::OperatorError;
use crate::views::Pool;

/// The configuration of an operator: the engine's, and the ends of its connections.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// The engine's configuration. Addresses, ports and host names are filled in by [`Self::resolved`].
    pub endpoint: EndpointConfig,
    /// The ends of each connection, by its name. A connection without an entry is not initiated.
    pub hosts: BTreeMap<String, Hosts>,
}

impl Configuration {
    /// The engine's configuration with the ports in use, and with the addresses of each connection that is in `ends`.
    pub fn resolved(&self, ports: Ports, ends: &BTreeMap<String, Ends>) -> EndpointConfig {
        let mut endpoint = self.endpoint.clone();
        endpoint.natt_port = ports.nat_t;
        for connection in &mut endpoint.connections {
            let connection = Arc::make_mut(connection);
            connection.local_port = ports.ike;
            if let Some(ends) = ends.get(&connection.name) {
                connection.local_addrs.clone_from(&ends.local);
                connection.remote_addrs.clone_from(&ends.remote);
            }
        }
        endpoint
    }

    /// The engine's configuration before any host name is resolved. Connections with names match no peer yet.
    pub fn unresolved(&self, ports: Ports) -> EndpointConfig {
        let ends = self.hosts.iter().map(|(name, hosts)| (name.clone(), hosts.known()));
        self.resolved(ports, &ends.collect())
    }

    /// A sentence for each option that a data plane with these capabilities could not honour.
    pub fn unmet(&self, plane: &Capabilities) -> Vec<String> {
        demands::unmet(&self.endpoint, plane)
    }
}

/// The configuration of a file without the keys and certificates that it names: enough for peers with pre-shared keys.
impl From<Settings> for Configuration {
    fn from(settings: Settings) -> Self {
        let mut this = Self { endpoint: settings.endpoint, hosts: BTreeMap::new() };
        for connection in settings.connections {
            let Connection { mut config, hosts, local, remote, .. } = connection;
            config.local = local.into_iter().map(|round| round.auth).collect();
            config.remote = remote.into_iter().map(|round| round.auth).collect();
            this.hosts.insert(config.name.clone(), hosts);
            this.endpoint.connections.push(Arc::new(config));
        }
        this
    }
}

/// A configuration that can be put in force.
pub struct Candidate {
    /// The part that the operator gives to the engine.
    pub configuration: Configuration,
    /// What is allowed in it but hardly meant, each a sentence. The operator logs the sentences once the configuration is
    /// in force, and answers with them.
    pub warnings: Vec<String>,
    /// What takes effect at the next start only, in the same way.
    pub delayed: Vec<String>,
    /// Puts the program's own part in force. The operator calls it before the engine gets its part, because the engine
    /// then asks for credentials of the new configuration.
    pub adopt: Box<dyn FnOnce() + Send>,
}

impl Candidate {
    /// A configuration without warnings, and without a part of the program's own.
    pub fn new(configuration: Configuration) -> Self {
        let (warnings, delayed) = (Vec::new(), Vec::new());
        Self { configuration, warnings, delayed, adopt: Box::new(|| ()) }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("configuration", &self.configuration).finish()
    }
}

/// The names that a program shows to control clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The program.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The cryptographic backend.
    pub backend: &'static str,
}

/// What could not be learned about the revocation of peers' certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RevocationCounts {
    /// Peers that were accepted although no URL told the status of a certificate.
    pub unchecked: u64,
    /// Lists and OCSP responses that were fetched and called no certificate good.
    pub unusable: u64,
    /// IKE SAs that are up, and whose peer was accepted like that.
    pub unchecked_sas: usize,
    /// IKE SAs that were ended because a certificate of their peer was revoked.
    pub ended: u64,
}

/// What a new configuration has of the certificate, the key or the password by which a peer was authenticated. What comes
/// later leaves the peer less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Evidence {
    /// The same, or nothing is known of it.
    #[default]
    Same,
    /// Another password of the same identity, a trust anchor of the same name and with another key, or another key in
    /// `certs` or `pubkeys` for the same identity.
    Replaced,
    /// No password of this identity.
    PasswordRemoved,
    /// `auth` does not name a signature scheme of its path.
    SchemeRemoved,
    /// No trust anchor of this name.
    AnchorRemoved,
    /// No key in `certs` or `pubkeys` for this identity.
    PinRemoved,
}

/// A certificate or a revocation list that a control client may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateView {
    /// What it is.
    pub kind: CertificateKind,
    /// The subject, or the issuer of a revocation list.
    pub subject: String,
    /// True if the program has the private key.
    pub has_private_key: bool,
    /// The DER encoding.
    pub der: Vec<u8>,
}

/// The kinds of [`CertificateView`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateKind {
    /// An X.509 certificate of an end entity.
    EndEntity,
    /// An X.509 certificate of a CA.
    Ca,
    /// An X.509 revocation list.
    Crl,
}

/// A CA that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityView {
    /// Its name in the configuration.
    pub name: String,
    /// The subject of its certificate.
    pub subject: String,
    /// Places of revocation lists.
    pub crl_uris: Vec<String>,
    /// OCSP responders.
    pub ocsp_uris: Vec<String>,
    /// The beginning of the URLs of its certificates.
    pub cert_uri_base: Option<String>,
}

/// The program around an operator. Every method has an answer for a program that has no such part, so
/// [`()`](unit) is a program: its configuration stays as it is.
///
/// The operator calls methods on any thread. [`Self::read`] and the methods of a [`Loader`] are called one at a time.
pub trait Program: Send + Sync {
    /// The names that control clients see.
    fn about(&self) -> About {
        About { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION"), backend: "ike" }
    }

    /// Why packets that the data plane protects may leave in clear while another program has changed it: there is no second
    /// line behind the data plane. `None` if there is one, or is to be none.
    fn without_second_line(&self) -> Option<String> {
        None
    }

    /// The algorithms that `get-algorithms` of VICI lists. None by default.
    fn provider(&self) -> Option<CryptoProvider> {
        None
    }

    /// The pools of virtual IPs, or the one called `name`. They have their leases if `leases` is true.
    fn pools(&self, name: Option<&str>, leases: bool) -> Vec<Pool> {
        let _ = (name, leases);
        Vec::new()
    }

    /// Whether the configuration that has just come in force still has the trust anchor, the key or the password by which a
    /// peer was authenticated as `used` says, for the round of that name of a connection of that name. The engine answers this
    /// for pre-shared keys.
    fn evidence(&self, (connection, round): (&str, &str), used: &UsedAuth) -> Evidence {
        let _ = (connection, round, used);
        Evidence::Same
    }

    /// True if the file is in swanctl.conf's format: a reload then leaves IKE SAs up whatever it removes, as charon does.
    fn follows_charon(&self) -> bool {
        false
    }

    /// The certificates and revocation lists in force.
    fn certificates(&self) -> Vec<CertificateView> {
        Vec::new()
    }

    /// The CAs that the configuration names.
    fn authorities(&self) -> Vec<AuthorityView> {
        Vec::new()
    }

    /// The groups, one of which a peer must be in at the authentication round called `round`.
    fn groups(&self, connection: &str, round: &str) -> Vec<String> {
        let _ = (connection, round);
        Vec::new()
    }

    /// What could not be learned about the revocation of peers' certificates, since the start.
    fn revocation(&self) -> RevocationCounts {
        RevocationCounts::default()
    }

    /// Forgets fetched revocation lists (`lists`) and OCSP responses (`responses`).
    fn flush(&self, lists: bool, responses: bool) {
        let _ = (lists, responses);
    }

    /// Looks host names up. Asked once, by the operator when it is made.
    fn resolver(&self) -> Arc<dyn Resolver> {
        Arc::new(SystemResolver)
    }

    /// Reads the configuration file at `file`, and what control clients have loaded over it. Nothing changes until
    /// the operator calls [`Candidate::adopt`].
    ///
    /// # Errors
    /// The reason, [`OperatorError::Mistakes`] for mistakes in the file.
    fn read(&self, file: &Path) -> Result<Candidate, OperatorError> {
        let _ = file;
        Err(OperatorError::NoFile)
    }

    /// The operator begins to read the configuration file again.
    fn reloading(&self) {}

    /// The reload has ended, and the configuration of the file is in force if `in_force` is true.
    fn reloaded(&self, in_force: bool) {
        let _ = in_force;
    }

    /// Takes what control clients load. `None` if they can load nothing.
    fn loader(&self) -> Option<&dyn Loader> {
        None
    }
}

/// A program without parts of its own.
impl Program for () {}

/// The part of a [`Program`] that takes sections, keys and certificates from control clients.
///
/// A change shows in [`Self::merged`], and is in force once the operator has adopted that configuration. If this fails,
/// the operator takes the change back.
pub trait Loader: Sync {
    /// The sections and shared secrets that are loaded.
    fn overlay(&self) -> MutexGuard<'_, Overlay>;

    /// The difference between `table` and the section of this name that is in force. `None` if there is no such
    /// section.
    fn difference(&self, kind: Kind, name: &str, table: &DeTable<'_>) -> Option<Difference>;

    /// Assembles a loaded section by itself.
    ///
    /// # Errors
    /// The mistakes in it, as a sentence.
    fn check_section(&self, kind: Kind, name: &str) -> Result<Configuration, OperatorError>;

    /// Checks a loaded shared secret by itself. `key` is from [`Overlay::put_shared`].
    ///
    /// # Errors
    /// The mistakes in it, as a sentence.
    fn check_shared(&self, key: &str) -> Result<(), OperatorError>;

    /// Assembles the configuration of the file with everything that is loaded. Its warnings are those that are new
    /// by what is loaded.
    ///
    /// # Errors
    /// The mistakes in it, as a sentence.
    fn merged(&self) -> Result<Candidate, OperatorError>;

    /// True if a connection may have an `updown` program. Whoever may use a control socket could then run any program
    /// as the user of this process.
    fn allows_updown(&self) -> bool {
        false
    }

    /// A name for octets that stand in a section in place of a file. Two contents have different names.
    fn content_name(&self, octets: &[u8]) -> String;

    /// Keeps the keys, certificates, revocation lists and shared secrets as they are, loaded and unloaded. What it
    /// returns puts them back.
    fn keep_credentials(&self) -> Box<dyn FnOnce() + Send + '_>;

    /// Adds a private key of the type `kind`, or of `any` type, and returns its identifier.
    ///
    /// # Errors
    /// What is wrong with the key.
    fn add_key(&self, octets: &[u8], kind: &str) -> Result<String, OperatorError>;

    /// Adds a private key in a token, by a section `token` of `[secrets]`, and returns its identifier.
    ///
    /// # Errors
    /// What is wrong with the section or the token.
    fn add_token(&self, table: DeTable<'static>) -> Result<String, OperatorError>;

    /// Removes a private key. False if there is none.
    fn remove_key(&self, id: &str) -> bool;

    /// The identifiers of private keys.
    fn key_ids(&self) -> Vec<String>;

    /// Adds the certificates in `octets`, which are all of CAs if `ca` is true.
    ///
    /// # Errors
    /// What is wrong with them.
    fn add_certificates(&self, octets: &[u8], ca: bool) -> Result<(), OperatorError>;

    /// Adds a revocation list.
    ///
    /// # Errors
    /// What is wrong with it.
    fn add_crl(&self, octets: &[u8]) -> Result<(), OperatorError>;

    /// Removes keys, certificates, revocation lists and shared secrets.
    ///
    /// # Errors
    /// [`OperatorError::NoLoader`].
    fn clear_credentials(&self) -> Result<(), OperatorError>;
}
