//! One connection: `connections.<conn>`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::auth::{AuthConfig, IdMatch, LocalAuth, RemoteAuth, SendCert};
use super::child::ChildConfig;
use super::numbers::InterfaceId;
use super::ppk::{PpkConfig, PpkId};
use super::proposal::{ProposalConfig, Selected};
use crate::crypto::Secret;
use crate::dataplane::Capabilities;
use crate::wire::payload::IdData;

/// Addresses of one end of a connection: an entry of `local_addrs` or `remote_addrs`. The caller resolves names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSpec {
    /// `%any`, `%any4` (`Some(false)`) or `%any6` (`Some(true)`).
    Any(Option<bool>),
    /// One address or a range, ends included.
    Range(IpAddr, IpAddr),
}

impl AddressSpec {
    /// Exactly one address.
    pub fn single(address: IpAddr) -> Self {
        Self::Range(address, address)
    }

    /// True if `address` is covered.
    pub fn contains(self, address: IpAddr) -> bool {
        match self {
            Self::Any(None) => true,
            Self::Any(Some(v6)) => address.is_ipv6() == v6,
            Self::Range(start, end) => {
                start.is_ipv4() == address.is_ipv4() && start <= address && address <= end
            }
        }
    }

    /// The address to initiate to or from, if the entry is a single address.
    pub fn host(self) -> Option<IpAddr> {
        match self {
            Self::Range(start, end) if start == end => Some(start),
            _ => None,
        }
    }
}

/// `fragmentation` (RFC 7383).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fragmentation {
    /// Announced, and used for messages over the fragment size.
    #[default]
    Yes,
    /// Announced and accepted, but not used for this end's messages.
    Accept,
    /// As `Yes`, and the first protected message of an initiator is always fragmented.
    Force,
    /// Neither announced nor accepted.
    No,
}

/// `childless` (RFC 6023).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Childless {
    /// Accepted as responder; not started as initiator.
    #[default]
    Allow,
    /// Started if the peer supports it.
    Prefer,
    /// Required in both roles.
    Force,
    /// Refused.
    Never,
}

/// `downgrade_prevention` (draft-ietf-ipsecme-ikev2-downgrade-prevention).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DowngradePrevention {
    /// Announced; used with peers that announce it too.
    #[default]
    Yes,
    /// Not announced.
    No,
    /// Peers that do not announce it are refused.
    Require,
}

/// `unique`: what a second IKE SA with the same peer identity causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unique {
    /// Only INITIAL_CONTACT replaces the old one.
    #[default]
    No,
    /// As `No`, and INITIAL_CONTACT is neither sent nor obeyed.
    Never,
    /// The new one is refused if it comes from another address.
    Keep,
    /// The old one is replaced.
    Replace,
}

/// `enable_tcp`, a word of libreswan's: whether an initiator uses IKE over TCP (RFC 9329).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TcpUse {
    /// Never.
    #[default]
    No,
    /// From the start.
    Yes,
    /// If the peer does not answer over UDP within this time.
    Fallback(Duration),
}

/// `separate_transports` (draft-ietf-ipsecme-ikev2-reliable-transport): IKE over TCP, ESP without TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeparateTransports {
    /// Neither requested nor accepted.
    No,
    /// Accepted as responder; not requested as initiator.
    #[default]
    Accept,
    /// Requested as initiator, too.
    Yes,
}

/// `encap`: ESP in UDP where there is no NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EspInUdp {
    /// If the peer agrees and it costs both data planes less.
    #[default]
    Auto,
    /// With every peer: this end pretends to be behind a NAT.
    Yes,
    /// Only if the data plane has no ESP over IP.
    No,
}

impl EspInUdp {
    /// True if this end pretends to be behind a NAT, so that each peer uses UDP.
    pub(crate) fn fakes_nat(self, plane: Capabilities) -> bool {
        self == Self::Yes || !plane.plain_esp
    }
}

/// A pre-shared key and the identities it belongs to: `secrets.ike<suffix>`.
#[derive(Debug)]
pub struct PreSharedKey {
    /// Identities; empty means any pair.
    pub ids: Vec<IdData>,
    /// The key.
    pub secret: Secret,
}

/// One connection configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionConfig {
    /// Name.
    pub name: String,
    /// `local_addrs`.
    pub local_addrs: Vec<AddressSpec>,
    /// `remote_addrs`.
    pub remote_addrs: Vec<AddressSpec>,
    /// `local_port`.
    pub local_port: u16,
    /// `remote_port`.
    pub remote_port: u16,
    /// `proposals`.
    pub proposals: Vec<ProposalConfig>,
    /// `local<suffix>`: how this end authenticates, round by round (RFC 4739). Without a round no IKE SA is
    /// possible.
    pub local: Vec<LocalAuth>,
    /// `remote<suffix>`: how the peer must authenticate, round by round.
    pub remote: Vec<RemoteAuth>,
    /// `send_cert`.
    pub send_cert: SendCert,
    /// `encap`.
    pub encap: EspInUdp,
    /// `dscp` of IKE messages over UDP: 6 bits.
    pub dscp: u8,
    /// `enable_tcp`.
    pub enable_tcp: TcpUse,
    /// `tcp_remoteport`: the peer's TCP port, 4500 by default.
    pub tcp_remote_port: u16,
    /// `separate_transports`.
    pub separate_transports: SeparateTransports,
    /// `mobike` (RFC 4555): announced, and used with peers that announce it too.
    pub mobike: bool,
    /// `qcd`: quick crash detection (RFC 6290). The peer gets a token, if the endpoint makes tokens, and the
    /// peer's token is accepted.
    pub qcd: bool,
    /// `dpd_delay`; zero turns liveness checks off.
    pub dpd_delay: Duration,
    /// `fragmentation`.
    pub fragmentation: Fragmentation,
    /// `childless`.
    pub childless: Childless,
    /// `downgrade_prevention`.
    pub downgrade_prevention: DowngradePrevention,
    /// `session_resumption` (RFC 5723): as initiator, tickets are requested and presented; as responder, they are
    /// given and accepted if there are keys for them ([`ResumptionConfig`](super::ResumptionConfig)).
    pub session_resumption: bool,
    /// A number for the credentials of this end that the engine does not have: private keys, certificates,
    /// settings and passwords of EAP. A ticket from a time with another number is not presented (RFC 5723 §6.2).
    pub credentials: u64,
    /// `ppk_id`, `ppk_required`, `ppk_exchange` and `ppk_rekey`.
    pub ppk: PpkConfig,
    /// `keyingtries`; 0 is for ever.
    pub keyingtries: u32,
    /// `unique`.
    pub unique: Unique,
    /// `rekey_time`; zero turns IKE rekeying off.
    pub rekey_time: Duration,
    /// `reauth_time`; zero turns reauthentication off.
    pub reauth_time: Duration,
    /// `over_time`: the IKE SA is deleted this long after a rekey was due and did not happen.
    pub over_time: Duration,
    /// `rand_time`: the most that is subtracted from `rekey_time` and `reauth_time` at random.
    pub rand_time: Duration,
    /// `vips`: virtual IPs that an initiator requests; an unspecified address requests any of its family.
    pub vips: Vec<IpAddr>,
    /// `pools`: the pools from which a responder gets addresses for peers, in order. With pools, a peer that
    /// requests no address gets no child.
    pub pools: Vec<String>,
    /// `if_id_in`.
    pub if_id_in: InterfaceId,
    /// `if_id_out`.
    pub if_id_out: InterfaceId,
    /// `children`, in order.
    pub children: Vec<Arc<ChildConfig>>,
}

impl ConnectionConfig {
    /// A connection with the defaults of swanctl.conf(5).
    pub fn new(name: impl Into<String>) -> Self {
        let rekey_time = Duration::from_secs(4 * 3600);
        Self {
            name: name.into(),
            local_addrs: vec![AddressSpec::Any(None)],
            remote_addrs: vec![AddressSpec::Any(None)],
            local_port: 500,
            remote_port: 500,
            proposals: ProposalConfig::default_ike(),
            local: vec![LocalAuth::new("local", AuthConfig::Psk)],
            remote: vec![RemoteAuth::new("remote", AuthConfig::Psk)],
            send_cert: SendCert::IfAsked,
            encap: EspInUdp::default(),
            dscp: 0,
            enable_tcp: TcpUse::No,
            tcp_remote_port: 4500,
            separate_transports: SeparateTransports::Accept,
            mobike: true,
            qcd: true,
            dpd_delay: Duration::ZERO,
            fragmentation: Fragmentation::Yes,
            childless: Childless::Allow,
            downgrade_prevention: DowngradePrevention::Yes,
            session_resumption: false,
            credentials: 0,
            ppk: PpkConfig::default(),
            keyingtries: 1,
            unique: Unique::No,
            rekey_time,
            reauth_time: Duration::ZERO,
            over_time: rekey_time / 10,
            rand_time: rekey_time / 10,
            vips: Vec::new(),
            pools: Vec::new(),
            if_id_in: InterfaceId::default(),
            if_id_out: InterfaceId::default(),
            children: Vec::new(),
        }
    }

    /// This end's configured identity, which is that of its first round.
    pub fn local_id(&self) -> Option<&IdData> {
        self.local.first()?.id.as_ref()
    }

    /// Sets [`local_id`](Self::local_id).
    pub fn set_local_id(&mut self, id: Option<IdData>) {
        if let Some(round) = self.local.first_mut() {
            round.id = id;
        }
    }

    /// Which identities the peer may assert in its first round.
    pub fn remote_id(&self) -> &IdMatch {
        self.remote.first().map_or(&IdMatch::Any, |round| &round.id)
    }

    /// Sets [`remote_id`](Self::remote_id).
    pub fn set_remote_id(&mut self, id: IdMatch) {
        if let Some(round) = self.remote.first_mut() {
            round.id = id;
        }
    }

    /// True if an IKE SA needs a PPK: by `ppk_required`, or because nothing else authenticates one end.
    pub fn requires_ppk(&self) -> bool {
        //= https://www.rfc-editor.org/rfc/rfc8784#section-5.2.3
        //# Using PPKs MUST be
        //# mandatory for the peers if they advertise support for PPKs in
        //# IKE_SA_INIT and use NULL Authentication.
        self.ppk.required || self.is_unproven() && !self.ppk.ids.is_empty()
    }

    /// True if a peer that begins may use the PPK `id`: it is in `ppk_id`, or there is no `ppk_id`. The initiator
    /// names the PPK, and a PPK authenticates no peer by itself. With NULL authentication at one end, a PPK must
    /// be in `ppk_id`.
    pub fn takes_ppk(&self, id: &PpkId) -> bool {
        self.ppk.covers(id) || self.ppk.ids.is_empty() && !self.is_unproven()
    }

    /// True if one end does not prove its identity (RFC 7619).
    fn is_unproven(&self) -> bool {
        let null = |auth: &AuthConfig| matches!(auth, AuthConfig::Null);
        self.local.iter().any(|round| null(&round.auth))
            || self.remote.iter().any(|round| null(&round.auth))
    }

    /// True if an IKE SA of this connection with the peer at `remote`, with the algorithms `selected`, could be one of
    /// `new` as well: both ends prove the same identities in the same way, and `new` takes the peer's address and the
    /// algorithms. The secrets are compared elsewhere. Settings that need no agreement do not count.
    pub(crate) fn could_be_of(&self, new: &Self, remote: IpAddr, selected: &Selected) -> bool {
        let takes_peer = || new.remote_addrs.iter().any(|spec| spec.contains(remote));
        self.local == new.local
            && self.remote == new.remote
            && self.credentials == new.credentials
            && self.ppk == new.ppk
            && self.downgrade_prevention == new.downgrade_prevention
            && self.pools == new.pools
            && (self.remote_addrs == new.remote_addrs || takes_peer())
            && selected.is_chosen_by(&new.proposals)
    }

    /// The child called `name`.
    pub fn child(&self, name: &str) -> Option<&Arc<ChildConfig>> {
        self.children.iter().find(|child| child.name == name)
    }
}
