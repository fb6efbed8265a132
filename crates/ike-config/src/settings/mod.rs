//! The settings that a configuration means: plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ike_proto::config::EndpointConfig;
pub use ike_proto::config::Ports;
pub use ike_proto::dataplane::RouteOptions;
use ike_proto::wire::payload::Attribute;

mod connection;
mod credentials;
mod eap;
mod hosts;
mod range;
mod url;

pub use connection::{
    Connection, EapRound, LocalRound, NamedFile, NamedFiles, OcspOptions, RemoteRound, Revocation,
};
pub use credentials::{Authority, Holds, KeyFile, TokenKey, TokenKeyOption};
pub use eap::{
    AccountingConfig, DaeConfig, EapId, EapMethod, EapOptions, EapSecret, GroupSources,
    RadiusOptions, RadiusServer, TlsLimits, TlsOptions, Way,
};
pub(crate) use hosts::HOST;
pub use hosts::{Ends, HostSpec, Hosts};
pub use range::Range;
pub use url::{UrlParts, UrlPrefix};
pub(crate) use url::{is_http_url, is_uri_base};

/// A pool name in `pools` of a connection: the addresses that a RADIUS server grants.
pub const BY_RADIUS: &str = "radius";

/// The settings of a configuration file. Of the files that it names, only secrets and ticket keys are loaded.
#[derive(Debug)]
pub struct Settings {
    /// The configuration of the engine. Its connections are in [`connections`](Self::connections), because they need
    /// credentials first.
    pub endpoint: EndpointConfig,
    /// `[connections.<conn>]` that are negotiated with a peer.
    pub connections: Vec<Connection>,
    /// Ports to listen on.
    pub ports: Ports,
    /// Options of the data plane; taken at the start.
    pub plane: PlaneOptions,
    /// Options of TCP encapsulation; taken at the start.
    pub tcp: TcpOptions,
    /// `shards`: how many engines share the work, each on a thread of its own; taken at the start.
    pub shards: u8,
    /// Options of certificates and private keys.
    pub credentials: CredentialOptions,
    /// `[charon.plugins.vici]`, if there is the section; taken at the start.
    pub vici: Option<ViciOptions>,
    /// `[charon.metrics]`, if there is the section; taken at the start.
    pub metrics: Option<MetricsOptions>,
    /// The privileges that the daemon drops; taken at the start.
    pub sandbox: SandboxOptions,
    /// `[pools.<name>]`.
    pub pools: Vec<PoolConfig>,
    /// Options for what peers assign to this host; taken at the start.
    pub remote_access: RemoteAccess,
    /// `qcd_secret`: the file of the secret that tokens are made from (RFC 6290); taken at the start.
    pub qcd_secret: Option<PathBuf>,
    /// `void_tickets`: the file that says which tickets are void (RFC 5723); taken at the start.
    pub void_tickets: Option<PathBuf>,
    /// `hash_and_url_from`: the URLs that certificates are fetched from; none: any public one. `None` without
    /// `hash_and_url`.
    pub hash_and_url: Option<Vec<UrlPrefix>>,
    /// `[charon.plugins.pkcs11.modules]`: PKCS#11 modules, by name.
    pub modules: Modules,
    /// Private keys in files that `[secrets]` names.
    pub key_files: Vec<KeyFile>,
    /// Private keys in tokens that `[secrets]` names.
    pub tokens: Vec<TokenKeyOption>,
    /// Options and passwords of EAP.
    pub eap: EapOptions,
    /// `[authorities.<name>]`.
    pub authorities: Vec<Authority>,
}

/// The settings of a file without options.
impl Default for Settings {
    fn default() -> Self {
        Self {
            endpoint: EndpointConfig::default(),
            connections: Vec::new(),
            ports: Ports::default(),
            plane: PlaneOptions::default(),
            tcp: TcpOptions::default(),
            shards: 1,
            credentials: CredentialOptions::default(),
            vici: None,
            metrics: None,
            sandbox: SandboxOptions::default(),
            pools: Vec::new(),
            remote_access: RemoteAccess::default(),
            qcd_secret: None,
            void_tickets: None,
            hash_and_url: None,
            modules: Modules::new(),
            key_files: Vec::new(),
            tokens: Vec::new(),
            eap: EapOptions::default(),
            authorities: Vec::new(),
        }
    }
}

/// The paths of PKCS#11 modules, by their names in `[charon.plugins.pkcs11.modules]`.
pub type Modules = BTreeMap<String, PathBuf>;

/// TCP encapsulation (RFC 9329) for the whole daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions {
    /// `listen_tcp`, as libreswan has it: whether connections are accepted.
    pub listen: bool,
    /// `tcp_port`: on which port; 0 lets the system choose one.
    pub port: u16,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { listen: false, port: 4500 }
    }
}

impl TcpOptions {
    /// The port to listen on; `None` if connections are not accepted.
    pub fn listens_on(&self) -> Option<u16> {
        self.listen.then_some(self.port)
    }
}

/// Settings of the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneOptions {
    /// `overlapip`, as libreswan has it: whether two peers may have children whose traffic selectors
    /// overlap. If not, the later one is refused.
    pub overlap: bool,
    /// `icmp_too_big`: whether ESP in user space believes ICMP messages that its packets were too big.
    pub icmp_too_big: bool,
    /// `install_routes`: whether traffic is led to the data plane by routes.
    pub install_routes: bool,
    /// `routing_table`, `routing_table_prio` and `fwmark`.
    pub routes: RouteOptions,
    /// `plugins.bypass-lan.load`: whether this host's own networks stay reachable beside a full tunnel.
    pub bypass_lan: bool,
    /// `tun_queues`: queues of the TUN device of ESP in user space, each with a worker; taken at the start.
    pub tun_queues: u8,
}

impl Default for PlaneOptions {
    fn default() -> Self {
        let routes = RouteOptions::default();
        Self {
            overlap: true,
            icmp_too_big: true,
            install_routes: true,
            routes,
            bypass_lan: true,
            tun_queues: 1,
        }
    }
}

/// `[charon.plugins.vici]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViciOptions {
    /// `socket`: its path.
    pub socket: PathBuf,
    /// `group`: the number of the group that may use it beside its owner.
    pub group: Option<u32>,
    /// `allow_updown`: connections that clients load may have an `updown`.
    pub allow_updown: bool,
}

/// The address of the metrics endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsListen {
    /// `listen = "127.0.0.1:9500"`.
    Tcp(SocketAddr),
    /// `listen = "unix:///run/ike-metrics.sock"`.
    Unix(PathBuf),
}

impl Default for MetricsListen {
    fn default() -> Self {
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9500))
    }
}

impl fmt::Display for MetricsListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// `[charon.metrics]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsOptions {
    /// `listen`.
    pub listen: MetricsListen,
    /// `connections`: how many have a label of their own; the others are counted together.
    pub connections: usize,
}

/// Options of certificates and private keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialOptions {
    /// `cert_cache`: whether signatures on certificates that were found good are remembered.
    pub cert_cache: bool,
    /// `signer_timeout`: how long a question to the signer waits for its answer.
    pub signer_timeout: Duration,
}

impl Default for CredentialOptions {
    fn default() -> Self {
        Self { cert_cache: true, signer_timeout: Duration::from_secs(30) }
    }
}

/// `[charon.sandbox]`: the privileges that the daemon drops at its start and cannot regain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxOptions {
    /// The file has the section: each step must succeed. Without it the daemon drops what the configuration
    /// does not need, and a step that this kernel lacks is a warning.
    pub demanded: bool,
    /// `capabilities`: keep only those that sockets and data planes need.
    pub capabilities: bool,
    /// `landlock`: open only files of the system and of the configuration.
    pub landlock: bool,
    /// `seccomp`: refuse system calls that this program never makes.
    pub seccomp: bool,
    /// `programs`: other programs may be started. `None` allows them if the configuration names one.
    pub programs: Option<bool>,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        Self { demanded: false, capabilities: true, landlock: true, seccomp: true, programs: None }
    }
}

/// `[pools.<name>]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Name.
    pub name: String,
    /// `addrs`.
    pub range: Range,
    /// Attributes for peers with an address out of it.
    pub attributes: Vec<Attribute>,
}

/// Settings of the whole daemon about what peers assign to it; taken at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAccess {
    /// `install_virtual_ip`.
    pub install_virtual_ip: bool,
    /// `install_virtual_ip_on`: the interface; `None` for the one that the IKE SA goes by.
    pub install_virtual_ip_on: Option<String>,
    /// `leases`: the file that leases are kept in; `None` forgets them at the end.
    pub leases: Option<PathBuf>,
    /// `[charon.plugins.resolve]`: what is done about name servers; nothing without the section.
    pub resolve: Option<Resolve>,
}

impl Default for RemoteAccess {
    fn default() -> Self {
        Self { install_virtual_ip: true, install_virtual_ip_on: None, leases: None, resolve: None }
    }
}

/// `[charon.plugins.resolve]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolve {
    /// `file`: name servers are written in front of what is in it.
    File(PathBuf),
    /// `resolvconf.path`: that program is told; `resolvconf.iface` is the prefix of the names it gets.
    Resolvconf {
        /// The program.
        path: PathBuf,
        /// Prefix of interface names.
        iface: String,
    },
}
