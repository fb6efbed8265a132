//! EAP, RADIUS and their secrets.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ike_proto::crypto::Secret;
use zeroize::Zeroizing;

/// An EAP method that `auth` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EapMethod {
    /// MD5-Challenge.
    Md5,
    /// Generic Token Card.
    Gtc,
    /// EAP-TLS (RFC 5216, RFC 9190).
    Tls,
    /// EAP-TTLS (RFC 5281).
    Ttls,
    /// EAP-MSCHAPv2.
    Mschapv2,
}

impl EapMethod {
    /// True if the method authenticates both ends, makes a key, and withstands guessing of passwords. Only such a
    /// method may stand alone in IKEv2 (RFC 5998 §4).
    pub fn is_safe_alone(self) -> bool {
        matches!(self, Self::Tls | Self::Ttls)
    }
}

impl fmt::Display for EapMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5 => "md5",
            Self::Gtc => "gtc",
            Self::Tls => "tls",
            Self::Ttls => "ttls",
            Self::Mschapv2 => "mschapv2",
        })
    }
}

/// The meaning of `auth = "eap-…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// `eap`: whatever method the other end asks for.
    Any,
    /// One method.
    One(EapMethod),
    /// `eap-dynamic`: every method there is, as the peer prefers.
    Dynamic,
    /// `eap-radius`: a server decides.
    Radius,
}

/// `eap_id` and `aaa_id`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EapId {
    /// `%any`: it is asked for, or may be anything.
    Any,
    /// This one.
    Exact(String),
}

/// Options and passwords of EAP.
#[derive(Debug, Default)]
pub struct EapOptions {
    /// `[secrets.eap<suffix>]`.
    pub secrets: Vec<EapSecret>,
    /// Options of the TLS methods.
    pub tls: TlsOptions,
    /// `[charon.plugins.eap-radius]`, if there is the section.
    pub radius: Option<RadiusOptions>,
}

/// A password. Wiped when it is dropped.
#[derive(Clone)]
pub struct EapSecret {
    /// The identities that it is for; none: on this end as peer, every identity.
    pub ids: Vec<Vec<u8>>,
    /// The password.
    pub password: Zeroizing<Vec<u8>>,
}

/// Never prints the password.
impl fmt::Debug for EapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EapSecret({} identities)", self.ids.len())
    }
}

/// Limits of a TLS method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsLimits {
    /// `fragment_size`: octets of TLS data in a packet.
    pub fragment_size: usize,
    /// `max_message_count`: packets taken; 0 is no limit but the conversation's.
    pub max_messages: u32,
}

impl Default for TlsLimits {
    fn default() -> Self {
        Self { fragment_size: 1024, max_messages: 32 }
    }
}

/// Settings of the TLS methods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `[charon.plugins.eap-tls]`.
    pub tls: TlsLimits,
    /// `[charon.plugins.eap-ttls]`.
    pub ttls: TlsLimits,
    /// `phase2_method` of eap-ttls.
    pub phase2: Option<EapMethod>,
    /// `version_min` of `[charon.tls]` is above 1.2.
    pub no_tls12: bool,
    /// `version_max` of `[charon.tls]` is below 1.3.
    pub no_tls13: bool,
}

/// `[charon.plugins.eap-radius]`.
#[derive(Debug)]
pub struct RadiusOptions {
    /// In order of preference.
    pub servers: Vec<RadiusServer>,
    /// `retransmit_tries`.
    pub retransmit_tries: u32,
    /// `retransmit_timeout`.
    pub retransmit_timeout: Duration,
    /// `retransmit_base`.
    pub retransmit_base: f64,
    /// `id_prefix`: before the identity.
    pub id_prefix: String,
    /// What servers hear of sessions, if anything.
    pub accounting: Option<AccountingConfig>,
    /// `class_group` and `filter_id`.
    pub groups: GroupSources,
    /// Whether servers may ask about sessions.
    pub dae: Option<DaeConfig>,
}

impl Default for RadiusOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            retransmit_tries: 4,
            retransmit_timeout: Duration::from_secs(2),
            retransmit_base: 1.4,
            id_prefix: String::new(),
            accounting: None,
            groups: GroupSources::default(),
            dae: None,
        }
    }
}

/// A RADIUS server.
pub struct RadiusServer {
    /// The name of its section.
    pub name: String,
    /// Where authentication goes.
    pub address: SocketAddr,
    /// Where accounting goes.
    pub accounting: SocketAddr,
    /// `secret`.
    pub secret: Secret,
    /// `nas_identifier`.
    pub nas_identifier: String,
}

impl fmt::Debug for RadiusServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({} at {})", self.name, self.address)
    }
}

/// `accounting` and its like.
#[derive(Debug, Clone)]
pub struct AccountingConfig {
    /// `accounting_interval`; none: no interim updates.
    pub interval: Option<Duration>,
    /// `accounting_close_on_timeout`.
    pub close_on_timeout: bool,
    /// `accounting_requires_vip`.
    pub requires_vip: bool,
    /// `accounting_send_class`.
    pub send_class: bool,
}

/// `class_group` and `filter_id`: what tells of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupSources {
    /// `class_group`.
    pub class: bool,
    /// `filter_id`.
    pub filter_id: bool,
}

impl GroupSources {
    /// True if a peer may be in a group at all.
    pub fn any(self) -> bool {
        self.class || self.filter_id
    }
}

/// `[charon.plugins.eap-radius.dae]`, if it is enabled.
pub struct DaeConfig {
    /// `listen` and `port`; taken at the start.
    pub listen: SocketAddr,
    /// `secret`.
    pub secret: Secret,
    /// `clients`: addresses that may send requests, besides the servers.
    pub clients: Vec<IpAddr>,
    /// `require_message_authenticator`.
    pub demanded: bool,
    /// `require_event_timestamp`.
    pub stamped: bool,
}

impl fmt::Debug for DaeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DaeConfig(at {})", self.listen)
    }
}
