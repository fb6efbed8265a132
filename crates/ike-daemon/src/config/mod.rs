//! The configuration file: TOML in the vocabulary of swanctl.conf(5).
//!
//! All mistakes of a file are found in one reading, and a file with a mistake yields nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::pki::{Answerer, Authority, Certificate};
use ike_proto::config::{
    Action, AuthConfig, ChildConfig, ConnectionConfig, EndpointConfig, IdMatch, PostQuantumKey,
    SeparateTransports, TcpUse, TsSpec,
};
use ike_proto::dataplane::{Capabilities, Iptfs, Mode, TrafficSelector};
use ike_proto::wire::payload::IdData;
use toml::de::DeTable;
use zeroize::Zeroizing;

mod authorities;
mod charon;
mod child;
mod connection;
mod credentials;
mod demands;
mod diagnostic;
mod eap;
mod hash_and_url;
mod hosts;
mod layers;
pub(crate) mod loaded;
mod metrics;
mod nearest;
mod ocsp;
mod packets;
pub(crate) mod plugins;
mod pools;
mod qcd;
mod redirect;
mod remote_access;
mod resumption;
mod round;
mod sandbox;
pub(crate) mod secrets;
pub(crate) mod section;
mod settings;
mod tcp;
mod units;
mod values;
mod wipe;

pub use crate::net::Ports;
pub use crate::service::sandbox::SandboxOptions;
use charon::Work;
pub use charon::{PlaneOptions, TcpOptions};
pub use diagnostic::{ConfigError, Diagnostic};
pub use hosts::{Ends, HostSpec, Hosts};
pub use metrics::{MetricsListen, MetricsOptions};
pub use remote_access::{RemoteAccess, Resolve};
pub use resumption::make_ticket_key;

/// Reads a time as options write it: `30`, `30s`, `5m`, `4h`, `1d`.
pub use units::duration as parse_duration;
pub(crate) use units::seconds;

use crate::eap::EapBook;
use crate::files::readable_by_others;
use crate::lookup::LookupRules;
use crate::pools::{BY_RADIUS, PoolConfig};
use connection::Connection;
use credentials::Credentials;
use diagnostic::Report;
use loaded::Base;
use plugins::Plugins;
use secrets::Secrets;
use section::{Section, Unsupported};

use crate::signer::{KeySource, Local};

/// Octets a configuration file may have at most.
const LARGEST: u64 = 16 << 20;

/// Octets that a post-quantum preshared key should have at least (RFC 8784 §6).
const SHORT_PPK: usize = 32;

/// Sections of swanctl.conf(5) that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[("include", None)];

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
    /// The ends of each connection, by its name.
    pub hosts: BTreeMap<String, Hosts>,
    /// Private keys, certificates, and what peers are judged by.
    pub answerer: Answerer,
    /// Which certificates are fetched by hash and URL.
    pub lookup: LookupRules,
    /// Where private keys come from; a reload asks the same.
    pub keys: Arc<dyn KeySource>,
    /// What EAP does and with which passwords.
    pub eap: EapBook,
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

    /// A sentence for each option that a data plane with these capabilities could not honour.
    pub fn unmet(&self, plane: &Capabilities) -> Vec<String> {
        demands::unmet(&self.endpoint, plane)
    }
}

/// Reads the file at `path`, and private keys into this process.
///
/// # Errors
/// What is wrong with it.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    load_by(path, Arc::new(Local))
}

/// Reads the file at `path`; private keys are where `keys` has them.
///
/// # Errors
/// What is wrong with it.
pub fn load_by(path: &Path, keys: Arc<dyn KeySource>) -> Result<Config, ConfigError> {
    let text = read_text(path).map_err(|why| ConfigError::whole(path, why))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let parsed = match path.extension().is_some_and(|extension| extension == "conf") {
        true => take_settings(settings::read(path, text.clone()), folder, &keys),
        false => parse_by(&text, folder, &keys),
    };
    let mut config =
        parsed.map_err(|diagnostics| ConfigError { file: path.to_path_buf(), diagnostics })?;
    if readable_by_others(path) && text.contains("secret") {
        let warning = format!("{}: holds secrets and others may read it", path.display());
        config.warnings.push(warning);
    }
    Ok(config)
}

/// Reads `text`; a relative `secret_file` is looked for in `folder`.
pub fn parse(text: &str, folder: &Path) -> Result<Config, Vec<Diagnostic>> {
    let keys: Arc<dyn KeySource> = Arc::new(Local);
    parse_by(text, folder, &keys)
}

fn parse_by(
    text: &str,
    folder: &Path,
    keys: &Arc<dyn KeySource>,
) -> Result<Config, Vec<Diagnostic>> {
    let mut report = Report::new(text);
    let (mut document, syntax) = DeTable::parse_recoverable(text);
    let root = Section::new("", 0, document.get_ref());
    let (mut config, store) = read(root, folder, Origin::Folders(keys), &mut report);
    let diagnostics = report.finish(&syntax);
    if diagnostics.is_empty() {
        config.base = Some(Arc::new(Base::new(document.get_ref(), store, folder, true)));
    }
    wipe::wipe(document.get_mut());
    if diagnostics.is_empty() { Ok(config) } else { Err(diagnostics) }
}

/// Reads `text` in the syntax of swanctl.conf(5) and strongswan.conf(5); relative files are looked for in
/// `folder`.
pub fn parse_settings(text: &str, folder: &Path) -> Result<Config, Vec<Diagnostic>> {
    let keys: Arc<dyn KeySource> = Arc::new(Local);
    take_settings(settings::parse(text, folder), folder, &keys)
}

fn take_settings(
    settings: settings::Settings,
    folder: &Path,
    keys: &Arc<dyn KeySource>,
) -> Result<Config, Vec<Diagnostic>> {
    let settings::Settings { text, sources, mut table, mistakes } = settings;
    let mut report = Report::of_files(&text, &sources);
    let root = Section::new("", 0, &table);
    let (mut config, store) = read(root, folder, Origin::Folders(keys), &mut report);
    let diagnostics = settings::Settings::finish(report, mistakes);
    if diagnostics.is_empty() {
        config.base = Some(Arc::new(Base::new(&table, store, folder, false)));
    }
    wipe::wipe(&mut table);
    if diagnostics.is_empty() { Ok(config) } else { Err(diagnostics) }
}

/// Where keys and certificates come from.
#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    /// The folders beside the file; private keys are where this has them.
    Folders(&'a Arc<dyn KeySource>),
    /// They were read before.
    Kept(&'a Credentials),
}

/// Reads all sections. What the folders hold is given back as well, without `authorities`.
fn read(
    mut root: Section<'_>,
    folder: &Path,
    origin: Origin<'_>,
    report: &mut Report<'_>,
) -> (Config, Credentials) {
    let mut endpoint = EndpointConfig::default();
    let mut hosts = BTreeMap::new();
    let mut plane = PlaneOptions::default();
    let mut iptfs = Iptfs::default();
    let mut tcp = TcpOptions::default();
    let mut work = Work::default();
    let mut eap = EapBook::default();
    let mut plugins = Plugins::default();
    let mut remote_access = RemoteAccess::default();
    let (mut metrics, mut qcd_secret) = (None, None);
    let mut sandbox = SandboxOptions::default();
    let mut void_tickets = None;
    let mut lookup = LookupRules::default();
    let ports = match root.section("charon", report) {
        Some(mut section) => {
            plugins = plugins::read(&mut section, folder, &mut eap, &mut remote_access, report);
            remote_access::read(&mut section, &mut remote_access, report);
            metrics = metrics::read(&mut section, report);
            sandbox = sandbox::read(&mut section, report);
            qcd_secret = qcd::read(&mut section, report);
            (endpoint.resumption, void_tickets) = resumption::read(&mut section, folder, report);
            lookup = hash_and_url::read(&mut section, &mut endpoint, report);
            let (plane, work) = (&mut plane, &mut work);
            plane.bypass_lan = plugins.bypass_lan.unwrap_or(plane.bypass_lan);
            charon::read(section, &mut endpoint, plane, &mut tcp, &mut iptfs, work, report)
        }
        None => Ports::default(),
    };
    if ports.nat_t != 0 {
        endpoint.natt_port = ports.nat_t;
    }
    endpoint.accepts_tcp = tcp.listen;
    let secrets = match root.section("secrets", report) {
        Some(section) => secrets::read(section, &plugins.modules, folder, report),
        None => Secrets::default(),
    };
    endpoint.secrets = secrets.shared;
    endpoint.ppks = secrets.ppks;
    eap.secrets = Arc::new(secrets.eap);
    let kept = match origin {
        Origin::Folders(keys) => {
            let named = (secrets.key_files, secrets.tokens);
            Credentials::load(folder, Arc::clone(keys), named, plugins.modules, report)
        }
        Origin::Kept(store) => store.clone(),
    };
    let mut store = kept.clone();
    store.trust.set_cert_cache(work.cert_cache);
    let mut authorities = BTreeMap::new();
    if let Some(section) = root.section("authorities", report) {
        authorities = authorities::read(section, &mut store, report);
    }
    store.warn_of_loose_cas(report);
    let mut answerer = Answerer::new(store.trust.clone());
    let mut used: Vec<_> = store.all().iter().map(|loaded| Arc::clone(loaded.key())).collect();
    if let Some(mut connections) = root.section("connections", report) {
        for (name, section) in connections.subsections(report) {
            let Connection {
                mut config,
                hosts: ends,
                rounds,
                send_certreq,
                ocsp,
                shunts,
                negotiated,
            } = connection::read(name, section, ports, &store, report);
            endpoint.shunts.extend(shunts);
            if !negotiated {
                continue;
            }
            for child in &mut config.children {
                Arc::make_mut(&mut Arc::make_mut(child).processing).iptfs = iptfs;
            }
            used.extend(rounds.keys().map(Arc::clone));
            if config.session_resumption {
                config.credentials = credentials::fingerprint(&rounds, &store, &eap.secrets);
            }
            eap::collect(&rounds, &config.name, &mut eap, report);
            rounds.tell(&mut answerer, &mut config, send_certreq, ocsp);
            hosts.insert(config.name.clone(), ends);
            endpoint.connections.push(Arc::new(config));
        }
        connections.finish(&[], report);
    }
    let resumes = endpoint.connections.iter().any(|connection| connection.session_resumption);
    if resumes && endpoint.resumption.keys.is_empty() {
        endpoint.resumption.keys.push(resumption::of_this_run());
    }
    let pools = root.section("pools", report).map(|section| pools::read(section, report));
    let pools = pools.unwrap_or_default();
    root.finish(UNSUPPORTED, report);
    for file in store.unused_keys(&used) {
        let message = format!("{file}: no certificate in x509/ or public key in `pubkeys` fits it");
        report.warn(None, message);
    }
    let mut warnings = report.take_warnings();
    warnings.extend(self::warnings(&endpoint));
    warnings.extend(missing_pools(&endpoint, &pools, eap.radius.is_some()));
    let shards = work.shards;
    let trust = &store.trust;
    let ours = store.listed().map(|(one, _)| one);
    lookup.know(trust.cas().iter().chain(trust.intermediates()).chain(ours));
    let certificates = store.listed().map(|(one, key)| (Arc::clone(one), key)).collect();
    let base = None;
    let config = Config {
        endpoint,
        ports,
        plane,
        tcp,
        shards,
        vici: plugins.vici,
        vici_group: plugins.vici_group,
        vici_updown: plugins.vici_updown,
        metrics,
        sandbox,
        pools,
        remote_access,
        qcd_secret,
        void_tickets,
        hosts,
        answerer,
        eap,
        lookup,
        keys: Arc::clone(&store.keys_from),
        warnings,
        certificates,
        authorities,
        base,
    };
    (config, kept)
}

/// Pools that are named and not there.
fn missing_pools<'a>(
    endpoint: &'a EndpointConfig,
    pools: &[PoolConfig],
    radius: bool,
) -> Vec<String> {
    let known =
        |name: &str| name == BY_RADIUS && radius || pools.iter().any(|pool| pool.name == name);
    let missing = |c: &'a Arc<ConnectionConfig>| {
        c.pools.iter().filter(|name| !known(name)).map(|name| {
            format!(
                "connection {}: there is no [pools.{name}], so that no peer gets an address",
                c.name
            )
        })
    };
    endpoint.connections.iter().flat_map(|c| missing(c).collect::<Vec<_>>()).collect()
}

/// True if a connection offers this PPK, or a peer may ask for it. A connection that this end starts offers what `ppk_id`
/// names and nothing else.
fn is_ppk_used(endpoint: &EndpointConfig, key: &PostQuantumKey) -> bool {
    let starts = |connection: &ConnectionConfig| {
        connection.children.iter().any(|child| child.start_action == Action::Start)
    };
    let uses = |connection: &ConnectionConfig| {
        let named = || key.ids.iter().any(|id| connection.ppk.covers(id));
        named() || !starts(connection) && key.ids.iter().any(|id| connection.takes_ppk(id))
    };
    endpoint.connections.iter().any(|connection| uses(connection))
}

fn warnings(endpoint: &EndpointConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    for key in endpoint.ppks.iter().filter(|key| key.secret.len() < SHORT_PPK) {
        let id = key.ids.first().map(ToString::to_string).unwrap_or_default();
        warnings.push(format!("the secret of PPK '{id}' has less than {SHORT_PPK} octets"));
    }
    for key in endpoint.ppks.iter().filter(|key| !is_ppk_used(endpoint, key)) {
        let id = key.ids.first().map(ToString::to_string).unwrap_or_default();
        warnings.push(format!("PPK '{id}' is used by no connection: name it in a ppk_id"));
    }
    if endpoint.connections.is_empty() && endpoint.shunts.is_empty() {
        warnings.push("there is no [connections.<name>]".to_owned());
    }
    let named: HashSet<&IdData> = endpoint.secrets.iter().flat_map(|key| &key.ids).collect();
    let for_anybody = endpoint.secrets.iter().any(|key| key.ids.is_empty());
    for connection in &endpoint.connections {
        let name = &connection.name;
        let by_psk = |auth: &AuthConfig| *auth == AuthConfig::Psk;
        let mut needed: Vec<&IdMatch> = Vec::new();
        // A secret is looked up by the peer's identity, whoever uses it.
        if connection.local.iter().any(|round| by_psk(&round.auth)) {
            needed.push(connection.remote_id());
        }
        let remote = connection.remote.iter().filter(|round| by_psk(&round.auth));
        needed.extend(remote.map(|round| &round.id));
        let has_key = |id: &IdMatch| {
            for_anybody
                || match id {
                    IdMatch::Exact(exact) => named.contains(exact),
                    // Any of them may be asserted.
                    _ => !named.is_empty(),
                }
        };
        if !needed.into_iter().all(has_key) {
            warnings.push(format!(
                "connection {name}: no [secrets.ike-<suffix>] names the id of its remote"
            ));
        }
        let ppk = &connection.ppk;
        let found = endpoint.ppks.iter().flat_map(|key| &key.ids).any(|id| ppk.covers(id));
        if !ppk.ids.is_empty() && !found {
            warnings.push(format!(
                "connection {name}: no [secrets.ppk<suffix>] has an id that its ppk_id names"
            ));
        }
        warnings.extend(connection.children.iter().filter_map(|child| {
            let same = both_sides(child)?;
            Some(format!(
                "connection {name}: local_ts and remote_ts of child {} both have {same}, so that this host \
                 looks for its own network behind the peer: write the peer's network into remote_ts",
                child.name
            ))
        }));
        let shunts = || endpoint.shunts.iter().any(|shunt| shunt.connection == *name);
        if connection.children.is_empty() && !shunts() {
            warnings.push(format!("connection {name}: no [connections.{name}.children.<name>]"));
        }
    }
    warnings
}

/// A network that `child` has on both sides of its tunnel: as a rule one of them was copied from the peer's file and
/// not exchanged.
fn both_sides(child: &ChildConfig) -> Option<TrafficSelector> {
    let fixed = |list: &[TsSpec]| -> Vec<TrafficSelector> {
        let fixed = list.iter().filter_map(|ts| match ts {
            TsSpec::Fixed(ts) => Some(*ts),
            TsSpec::Dynamic { .. } => None,
        });
        fixed.collect()
    };
    // All addresses on both sides are for those whose routes or interfaces decide.
    let network = |ts: &TrafficSelector| ts.start != ts.end && ts.prefix_len() != Some(0);
    let tunnel = matches!(child.mode, Mode::Tunnel | Mode::Iptfs);
    let remote = fixed(&child.remote_ts);
    let mut local = fixed(&child.local_ts).into_iter().filter(|ts| tunnel && network(ts));
    local.find(|ts| remote.contains(ts))
}

fn read_text(path: &Path) -> Result<Zeroizing<String>, String> {
    let size =
        std::fs::metadata(path).map_err(|error| format!("cannot read the file: {error}"))?.len();
    if size > LARGEST {
        return Err(format!("the file has {size} bytes, more than {LARGEST}"));
    }
    // The buffer has its size from the start: one that grows leaves copies behind.
    let mut octets = Zeroizing::new(Vec::with_capacity(size as usize + 1));
    let file =
        std::fs::File::open(path).map_err(|error| format!("cannot read the file: {error}"))?;
    file.take(LARGEST + 1)
        .read_to_end(&mut octets)
        .map_err(|error| format!("cannot read the file: {error}"))?;
    match String::from_utf8(std::mem::take(&mut *octets)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            drop(Zeroizing::new(error.into_bytes()));
            Err(format!("the file is not UTF-8 text from byte {at} on"))
        }
    }
}
