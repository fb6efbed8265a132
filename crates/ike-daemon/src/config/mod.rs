//! The configuration in force: settings with the keys and certificates that they name.
//!
//! Reading has two passes. `ike_config` reads a text into [`Settings`], which are plain data. This module then loads
//! what they name, and assembles the engine's configuration with the services beside it. All mistakes of both passes
//! are in one report, and a file with a mistake yields nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::pki::{Answerer, Authority, Certificate};
use ike_aaa::{EapConfig, EapSecrets, LookupRules};
use ike_config::{Connection, PoolConfig, Reading, Report, Settings, ViciOptions};
use ike_control::Configuration;
use ike_proto::config::{ConnectionConfig, EndpointConfig, SeparateTransports, TcpUse};
use ike_proto::crypto::CryptoProvider;
use ike_proto::dataplane::Capabilities;
use ike_tokio::Resolver;

mod authorities;
mod credentials;
mod eap;
pub(crate) mod loaded;
mod rounds;
mod ticket_keys;

pub use ike_config::{
    ConfigError, Diagnostic, Ends, HostSpec, Hosts, MetricsListen, MetricsOptions, PlaneOptions,
    RemoteAccess, Resolve, SandboxOptions, TcpOptions,
};
pub use ike_tokio::Ports;
pub use ticket_keys::make_ticket_key;

/// Reads a time as options write it: `30`, `30s`, `5m`, `4h`, `1d`.
pub use ike_config::duration as parse_duration;

use crate::files::{ThisHost, built_in};
use crate::parts::{self, Part, Parts};
use credentials::Credentials;
use loaded::Base;
use rounds::Rounds;

use crate::signer::{KeySource, Local};

/// A configuration without a mistake.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the engine gets. Host names are not in it until [`Config::hosts`] are resolved.
    pub endpoint: EndpointConfig,
    /// Ports to listen on.
    pub ports: Ports,
    /// What the data plane is to do; taken at the start.
    pub plane: PlaneOptions,
    /// Whether TCP connections are accepted; taken at the start.
    pub tcp: TcpOptions,
    /// `shards`: how many engines share the work, each on a thread of its own; taken at the start.
    pub shards: u8,
    /// Where the VICI socket is to be, if at all; taken at the start.
    pub vici: Option<PathBuf>,
    /// The group that may use it beside its owner.
    pub vici_group: Option<u32>,
    /// Metrics, if they are wanted; taken at the start.
    pub metrics: Option<MetricsOptions>,
    /// The privileges that the daemon drops; taken at the start.
    pub sandbox: SandboxOptions,
    /// `charon.plugins.vici.allow_updown`: connections that VICI clients load may have an `updown`. Taken at the start.
    pub vici_updown: bool,
    /// `[pools.<name>]`.
    pub pools: Vec<PoolConfig>,
    /// What is done about what peers assign to this host; taken at the start.
    pub remote_access: RemoteAccess,
    /// `qcd_secret`: the file of the secret that tokens are made from (RFC 6290); taken at the start.
    pub qcd_secret: Option<PathBuf>,
    /// `void_tickets`: the file that says which tickets are void (RFC 5723); taken at the start.
    pub void_tickets: Option<PathBuf>,
    /// The file with the last addresses of host names. No option names it; taken at the start.
    pub names: Option<PathBuf>,
    /// Looks host names up, in place of the C library's resolver in this process; taken at the start.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// The ends of each connection, by its name.
    pub hosts: BTreeMap<String, Hosts>,
    /// Private keys, certificates, and what peers are judged by.
    pub answerer: Answerer,
    /// Which certificates are fetched by hash and URL.
    pub lookup: LookupRules,
    /// Where private keys come from; a reload asks the same.
    pub keys: Arc<dyn KeySource>,
    /// The algorithms; a reload reads for the same.
    pub crypto: Arc<CryptoProvider>,
    /// What EAP does and with which passwords.
    pub eap: EapConfig,
    /// What is allowed but hardly meant.
    pub warnings: Vec<String>,
    /// The end-entity certificates there are, and whether there is a private key for each.
    pub certificates: Vec<(Arc<Certificate>, bool)>,
    /// The CAs that `[authorities]` names, by the names of their sections.
    pub authorities: BTreeMap<String, Authority>,
    /// What the file had, for what is loaded beside it.
    pub(crate) base: Option<Arc<Base>>,
}

impl Config {
    /// The TCP ports of peers that this end may open connections to, in order.
    pub fn tcp_remote_ports(&self) -> Vec<u16> {
        let over_tcp = |c: &&Arc<ConnectionConfig>| {
            c.enable_tcp != TcpUse::No || c.separate_transports == SeparateTransports::Yes
        };
        let connections = self.endpoint.connections.iter().filter(over_tcp);
        let ports: BTreeSet<u16> = connections.map(|c| c.tcp_remote_port).collect();
        ports.into_iter().collect()
    }

    /// Whether the daemon may have to start another program: an `updown`, also of connections to come, or resolvconf(8).
    pub fn starts_programs(&self) -> bool {
        let children = self.endpoint.connections.iter().flat_map(|c| &c.children);
        let resolvconf = matches!(self.remote_access.resolve, Some(Resolve::Resolvconf { .. }));
        self.vici_updown || resolvconf || children.into_iter().any(|child| child.updown.is_some())
    }

    /// The part that an operator puts in force.
    pub fn configuration(&self) -> Configuration {
        Configuration { endpoint: self.endpoint.clone(), hosts: self.hosts.clone() }
    }

    /// The engine's configuration as it is before any host name is resolved.
    pub fn unresolved(&self) -> EndpointConfig {
        self.configuration().unresolved(self.ports)
    }

    /// A sentence for each option that a data plane with these capabilities could not honour.
    pub fn unmet(&self, plane: &Capabilities) -> Vec<String> {
        ike_control::unmet(&self.endpoint, plane)
    }
}

/// Reads the file at `path` for the algorithms of ike-pq-kem, and private keys into this process.
///
/// # Errors
/// What is wrong with it.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    load_by(path, Arc::new(Local::default()), built_in())
}

/// Reads the file at `path` for the algorithms of `crypto`; private keys are where `keys` has them.
///
/// # Errors
/// What is wrong with it.
pub fn load_by(
    path: &Path,
    keys: Arc<dyn KeySource>,
    crypto: &Arc<CryptoProvider>,
) -> Result<Config, ConfigError> {
    let reading = ike_config::read_file(path, &ThisHost { crypto })?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let assembled = assemble_file(reading, folder, &keys, crypto);
    assembled.map_err(|diagnostics| ConfigError { file: path.to_path_buf(), diagnostics })
}

/// Reads `text`; a relative `secret_file` is looked for in `folder`.
///
/// # Errors
/// All mistakes, in the order of the text.
pub fn parse(text: &str, folder: &Path) -> Result<Config, Vec<Diagnostic>> {
    let keys: Arc<dyn KeySource> = Arc::new(Local::default());
    let crypto = built_in();
    let reading = ike_config::read_toml(text, folder, &ThisHost { crypto });
    assemble_file(reading, folder, &keys, crypto)
}

/// Reads `text` in the syntax of swanctl.conf(5) and strongswan.conf(5); relative files are looked for in
/// `folder`.
///
/// # Errors
/// All mistakes, in the order of the text.
pub fn parse_settings(text: &str, folder: &Path) -> Result<Config, Vec<Diagnostic>> {
    let keys: Arc<dyn KeySource> = Arc::new(Local::default());
    let crypto = built_in();
    let reading = ike_config::read_conf(text, folder, &ThisHost { crypto });
    assemble_file(reading, folder, &keys, crypto)
}

/// Assembles the configuration of a file, with the keys and certificates of the folders beside it.
fn assemble_file(
    reading: Reading,
    folder: &Path,
    keys: &Arc<dyn KeySource>,
    crypto: &Arc<CryptoProvider>,
) -> Result<Config, Vec<Diagnostic>> {
    let Reading { settings, mut report, document } = reading;
    let origin = Origin::Folders(folder, keys, crypto);
    let (mut config, credentials) = assemble(settings, origin, &mut report);
    let mistakes = report.finish();
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    config.base = document.map(|document| Arc::new(Base { document, credentials }));
    Ok(config)
}

/// Where keys and certificates come from.
#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    /// The folders beside the file; private keys are where this has them, and of these algorithms.
    Folders(&'a Path, &'a Arc<dyn KeySource>, &'a Arc<CryptoProvider>),
    /// They were read before.
    Kept(&'a Credentials),
}

/// Assembles a configuration from `settings`. The content of the folders is returned as well, without `authorities`.
fn assemble(
    mut settings: Settings,
    origin: Origin<'_>,
    report: &mut Report,
) -> (Config, Credentials) {
    let unlikely = settings.warnings();
    let pkcs12 = match origin {
        Origin::Folders(folder, keys, _) if !Parts::BUILT.has(Part::Pkcs12) => {
            keys.names(&folder.join("pkcs12")).unwrap_or_else(|why| {
                report.about_file(format!("cannot read the folder pkcs12: {why}"));
                Vec::new()
            })
        }
        _ => Vec::new(),
    };
    parts::refuse(&mut settings, &pkcs12, Parts::BUILT, report);
    let kept = match origin {
        Origin::Folders(folder, keys, crypto) => {
            keys.answer_within(settings.credentials.signer_timeout);
            let named = (settings.key_files, settings.tokens);
            let sources = (Arc::clone(keys), Arc::clone(crypto));
            Credentials::load(folder, sources, named, settings.modules, report)
        }
        Origin::Kept(store) => store.clone(),
    };
    let mut store = kept.clone();
    store.trust.set_cert_cache(settings.credentials.cert_cache);
    let authorities = authorities::load(settings.authorities, &mut store, report);
    store.warn_of_loose_cas(report);
    let mut eap = EapConfig {
        secrets: Arc::new(EapSecrets(settings.eap.secrets)),
        options: settings.eap.tls,
        radius: settings.eap.radius.and_then(eap::radius),
        ..EapConfig::default()
    };
    let mut answerer = Answerer::new(store.trust.clone());
    let mut used: Vec<_> = store.all().iter().map(|loaded| Arc::clone(loaded.key())).collect();
    let mut hosts = BTreeMap::new();
    let endpoint = &mut settings.endpoint;
    for connection in settings.connections {
        let Connection {
            mut config,
            hosts: ends,
            local,
            remote,
            send_certreq,
            ocsp,
            revocation_live,
        } = connection;
        answerer.set_ends_live(&config.name, revocation_live);
        let rounds = Rounds::load(local, remote, &store, report);
        config.local = rounds.local.iter().map(|round| round.auth.clone()).collect();
        config.remote = rounds.remote.iter().map(|round| round.auth.clone()).collect();
        used.extend(rounds.keys().map(Arc::clone));
        if config.session_resumption {
            config.credentials = credentials::fingerprint(&rounds, &store, &eap.secrets);
        }
        eap::collect(&rounds, &config.name, &mut eap, report);
        eap::admit(&rounds, &config.name, &*store.keys_from, report);
        rounds.tell(&mut answerer, &mut config, send_certreq, ocsp);
        hosts.insert(config.name.clone(), ends);
        endpoint.connections.push(Arc::new(config));
    }
    let resumes = endpoint.connections.iter().any(|connection| connection.session_resumption);
    if resumes && endpoint.resumption.keys.is_empty() {
        endpoint.resumption.keys.push(ticket_keys::of_this_run());
    }
    for file in store.unused_keys(&used) {
        let message = format!("{file}: no certificate in x509/ or public key in `pubkeys` fits it");
        report.warn(None, message);
    }
    let mut warnings = report.take_warnings();
    warnings.extend(unlikely);
    let mut lookup = settings.hash_and_url.map(LookupRules::new).unwrap_or_default();
    let trust = &store.trust;
    let ours = store.listed().map(|(one, _)| one);
    lookup.know(trust.cas().iter().chain(trust.intermediates()).chain(ours));
    let certificates = store.listed().map(|(one, key)| (Arc::clone(one), key)).collect();
    let (vici, vici_group, vici_updown) = match settings.vici {
        Some(ViciOptions { socket, group, allow_updown }) => {
            // Clients say which connections use EAP. Without a start, the next `admit_tls` for a key says what is lacking.
            let _ = store.keys_from.admit_tls(None);
            (Some(socket), group, allow_updown)
        }
        None => (None, None, false),
    };
    let config = Config {
        endpoint: settings.endpoint,
        ports: settings.ports,
        plane: settings.plane,
        tcp: settings.tcp,
        shards: settings.shards,
        vici,
        vici_group,
        vici_updown,
        metrics: settings.metrics,
        sandbox: settings.sandbox,
        pools: settings.pools,
        remote_access: settings.remote_access,
        qcd_secret: settings.qcd_secret,
        void_tickets: settings.void_tickets,
        names: None,
        resolver: None,
        hosts,
        answerer,
        eap,
        lookup,
        keys: Arc::clone(&store.keys_from),
        crypto: Arc::clone(&store.crypto),
        warnings,
        certificates,
        authorities,
        base: None,
    };
    (config, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `assemble_file`, return the mistakes of the first pass before `assemble`.
    #[test]
    fn mistakes_of_both_passes_are_in_one_report() {
        let text = "[connections.c]\nlocal = { auth = 'pubkey', certs = ['none.pem'] }\n\
                    remote = { auth = 'psk', id = 'b' }\nchildren.net = {}\n[charon]\nport = 'x'\n";
        let mistakes = parse(text, Path::new("/nonexistent")).expect_err("two mistakes");
        let told: Vec<_> = mistakes.iter().map(|one| (one.line, one.to_string())).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].0 == 2 && told[0].1.contains("`connections.c.local.certs`"), "{told:?}");
        assert!(told[1].0 == 6 && told[1].1.contains("`charon.port` cannot be"), "{told:?}");
    }
}
