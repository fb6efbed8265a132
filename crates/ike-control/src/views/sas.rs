//! SAs in the vocabulary of VICI's list-sas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ike_proto::dataplane::{Encapsulation, HwOffload, Mark, Mode, TrafficSelector};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::{AuthMethod, IntegId, KeMethodId, PrfId};
use ike_proto::{Assignment, ChildState, IkeState, Transport, UsedAuth};
use ike_tokio::{ChildView, IkeView};
use serde::{Deserialize, Serialize};

/// An IKE SA. Times are in seconds unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct IkeSa {
    /// Connection.
    pub name: String,
    /// Unique number.
    pub uniqueid: u64,
    /// IKE version, 2.
    pub version: u8,
    /// `CONNECTING`, `ESTABLISHED`, `REKEYED` or `DELETING`.
    pub state: String,
    /// True if this end is the original initiator.
    pub initiator: bool,
    /// This end's address.
    pub local_host: String,
    /// This end's port.
    pub local_port: u16,
    /// What IKE travels in: `udp` or `tcp`.
    #[serde(default = "udp")]
    pub transport: String,
    /// This end's identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_id: Option<String>,
    /// The peer's address.
    pub remote_host: String,
    /// The peer's port.
    pub remote_port: u16,
    /// The peer's identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// How this end authenticated, round by round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_auth: Vec<Auth>,
    /// How the peer authenticated, round by round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remote_auth: Vec<Auth>,
    /// Initiator's SPI, 16 hexadecimal digits.
    pub initiator_spi: String,
    /// Responder's SPI, 16 hexadecimal digits.
    pub responder_spi: String,
    /// True if this end is behind a NAT.
    pub nat_local: bool,
    /// True if the peer is behind a NAT.
    pub nat_remote: bool,
    /// True if both ends have agreed to send ESP in UDP although there may be no NAT.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub esp_in_udp: bool,
    /// Virtual IPs of this end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_vips: Vec<String>,
    /// Virtual IPs of the peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remote_vips: Vec<String>,
    /// True if both ends have MOBIKE (RFC 4555).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mobike: bool,
    /// True if its keys depend on a post-quantum preshared key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ppk: bool,
    /// Which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppk_id: Option<String>,
    /// True if it was resumed by a ticket (RFC 5723), or is a rekey of one that was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// True if the peer was accepted although the status of a certificate was not known and URLs were asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// True if both ends authenticated both IKE_SA_INIT messages.
    #[serde(default)]
    pub downgrade_prevention: bool,
    /// Algorithms, once negotiated.
    #[serde(flatten)]
    pub algorithms: Algorithms,
    /// Since it was established.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub established: Option<u64>,
    /// Until it is rekeyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekey_time: Option<u64>,
    /// Until it is reauthenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reauth_time: Option<u64>,
    /// Milliseconds from the first message to established.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_time_ms: Option<f64>,
    /// Exchange of the request this end waits on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<String>,
    /// Children.
    pub child_sas: Vec<ChildSa>,
}

/// How one end authenticated in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// Its identity in this round.
    pub id: String,
    /// The signature scheme, or `PSK` or `NULL`, or EAP with method and identity.
    pub by: String,
    /// The subject of the peer's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

impl Auth {
    fn new(used: &UsedAuth) -> Self {
        let by = match (&used.eap, used.scheme.clone(), used.method) {
            (Some(eap), _, _) => eap.method.clone(),
            (None, Some(scheme), _) => scheme.to_string(),
            (None, None, AuthMethod::PSK) => "PSK".to_owned(),
            (None, None, AuthMethod::NULL) => "NULL".to_owned(),
            (None, None, other) => other.to_string(),
        };
        let shown = used.certificate.as_ref().filter(|shown| !shown.subject.is_empty());
        let certificate = shown.map(|shown| shown.subject.to_string());
        Self { id: used.id.to_string(), by, certificate }
    }
}

/// A Child SA. Times are in seconds unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChildSa {
    /// Child.
    pub name: String,
    /// Unique number.
    pub uniqueid: u64,
    /// Number of its policy, the same across rekeys.
    pub reqid: u64,
    /// `INSTALLING`, `INSTALLED`, `REKEYING`, `REKEYED` or `DELETING`.
    pub state: String,
    /// `TUNNEL`, `TRANSPORT` or `IPTFS`.
    pub mode: String,
    /// `ESP`.
    pub protocol: String,
    /// The CPU it is for, if there are several for the same traffic (RFC 9611).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Mark of inbound policies, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_in: Option<String>,
    /// Its mask, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_mask_in: Option<String>,
    /// Mark of outbound SAs and policies, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_out: Option<String>,
    /// Its mask, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_mask_out: Option<String>,
    /// XFRM interface of what arrives, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_id_in: Option<String>,
    /// XFRM interface of what leaves, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_id_out: Option<String>,
    /// True if ESP travels in UDP.
    pub encap: bool,
    /// True if ESP travels in TCP.
    #[serde(default)]
    pub tcp: bool,
    /// Inbound SPI, 8 hexadecimal digits.
    pub spi_in: String,
    /// Outbound SPI, 8 hexadecimal digits.
    pub spi_out: String,
    /// The post-quantum preshared key mixed into its own keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppk_id: Option<String>,
    /// Algorithms.
    #[serde(flatten)]
    pub algorithms: Algorithms,
    /// True for extended sequence numbers.
    pub esn: bool,
    /// Hardware offload of what arrives, as the kernel did it: `crypto` or `packet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hw_offload_in: Option<String>,
    /// The same of what leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hw_offload_out: Option<String>,
    /// Octets of the largest packet that the path to the peer takes, where ESP in user space knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u16>,
    /// Octets received.
    pub bytes_in: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Since the last packet was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_in: Option<u64>,
    /// Octets sent.
    pub bytes_out: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Since the last packet was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_out: Option<u64>,
    /// Until it is rekeyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekey_time: Option<u64>,
    /// Until its hard lifetime ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life_time: Option<u64>,
    /// Since it was installed.
    pub install_time: u64,
    /// Selectors of this side.
    pub local_ts: Vec<String>,
    /// Selectors of the peer's side.
    pub remote_ts: Vec<String>,
    /// Milliseconds from the first message of its exchange to installed.
    pub setup_time_ms: f64,
}

/// Negotiated algorithms; what does not apply is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Algorithms {
    /// Encryption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encr_alg: Option<String>,
    /// Its key length in bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encr_keysize: Option<u16>,
    /// Integrity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integ_alg: Option<String>,
    /// Pseudorandom function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prf_alg: Option<String>,
    /// First key exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_group: Option<String>,
    /// Additional key exchanges `ADDKE1` to `ADDKE7`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ke: Vec<String>,
}

impl Algorithms {
    fn new(selected: &ike_proto::config::proposal::Selected) -> Self {
        let suite = selected.suite;
        let method = |id: &KeMethodId| (*id != KeMethodId::NONE).then(|| id.to_string());
        Self {
            encr_alg: Some(suite.encr.to_string()),
            encr_keysize: (suite.key_bits != 0).then_some(suite.key_bits),
            integ_alg: (suite.integ != IntegId::NONE).then(|| suite.integ.to_string()),
            prf_alg: (selected.prf != PrfId(0)).then(|| selected.prf.to_string()),
            dh_group: method(&selected.ke),
            ke: selected.additional_ke.iter().filter_map(method).collect(),
        }
    }
}

fn is_unchecked(used: &UsedAuth) -> bool {
    used.certificate.as_ref().is_some_and(|certificate| certificate.unchecked)
}

/// The virtual IPs of one end.
fn vips(assignment: &Option<Arc<Assignment>>, ours: bool) -> Vec<String> {
    let own = assignment.iter().filter(|assignment| assignment.ours == ours);
    own.flat_map(|assignment| &assignment.addresses).map(ToString::to_string).collect()
}

impl IkeSa {
    /// From the engine's view.
    pub fn new(view: &IkeView) -> Self {
        let IkeView { status: s, children, at } = view;
        let text = |id: &Option<IdData>| id.as_ref().map(ToString::to_string);
        Self {
            name: s.connection.clone(),
            uniqueid: s.id.0,
            version: 2,
            state: ike_state(s.state).to_owned(),
            initiator: s.initiator,
            local_host: s.path.local.ip().to_string(),
            local_port: s.path.local.port(),
            transport: s.path.transport.protocol().to_owned(),
            local_id: text(&s.local_id),
            remote_host: s.path.remote.ip().to_string(),
            remote_port: s.path.remote.port(),
            remote_id: text(&s.remote_id),
            local_auth: s.local_auth.iter().map(Auth::new).collect(),
            remote_auth: s.remote_auth.iter().map(Auth::new).collect(),
            initiator_spi: format!("{:016x}", s.spi_i),
            responder_spi: format!("{:016x}", s.spi_r),
            nat_local: s.nat_local,
            nat_remote: s.nat_remote,
            esp_in_udp: s.esp_in_udp,
            mobike: s.mobike,
            ppk: s.ppk.is_some(),
            local_vips: vips(&s.assignment, true),
            remote_vips: vips(&s.assignment, false),
            ppk_id: s.ppk.as_ref().map(ToString::to_string),
            resumed: s.resumed,
            unchecked: s.remote_auth.iter().any(is_unchecked),
            downgrade_prevention: s.full_transcript,
            algorithms: s.algorithms.as_ref().map(Algorithms::new).unwrap_or_default(),
            established: s.established.map(|then| since(then, *at)),
            rekey_time: s.rekey_at.map(|then| since(*at, then)),
            reauth_time: s.reauth_at.map(|then| since(*at, then)),
            setup_time_ms: s.setup_time.map(millis),
            outstanding: s.outstanding.map(|exchange| exchange.to_string()),
            child_sas: children.iter().map(|child| ChildSa::new(child, *at)).collect(),
        }
    }
}

impl ChildSa {
    fn new(view: &ChildView, at: Instant) -> Self {
        let ChildView { status: s, inbound, outbound } = view;
        let selectors = |ts: &[TrafficSelector]| ts.iter().map(ToString::to_string).collect();
        let set = |number: u32, there: bool| there.then(|| format!("{number:08x}"));
        let mark = |mark: Mark| [mark.value, mark.mask].map(|number| set(number, mark.mask != 0));
        let [mark_in, mark_mask_in] = mark(s.processing.mark_in);
        let [mark_out, mark_mask_out] = mark(s.processing.mark_out);
        let if_id = |id: u32| set(id, id != 0);
        Self {
            name: s.name.clone(),
            uniqueid: s.id.0,
            reqid: match s.processing.reqid {
                0 => s.policy.0,
                fixed => fixed.into(),
            },
            state: child_state(s.state).to_owned(),
            mode: match s.mode {
                Mode::Tunnel => "TUNNEL".to_owned(),
                Mode::Transport => "TRANSPORT".to_owned(),
                Mode::Beet => "BEET".to_owned(),
                Mode::Iptfs => "IPTFS".to_owned(),
            },
            protocol: "ESP".to_owned(),
            cpu: s.cpu,
            mark_in,
            mark_mask_in,
            mark_out,
            mark_mask_out,
            if_id_in: if_id(s.processing.if_id_in),
            if_id_out: if_id(s.processing.if_id_out),
            encap: matches!(s.encap, Some(Encapsulation::Udp(_))),
            tcp: matches!(s.encap, Some(Encapsulation::Tcp(_))),
            spi_in: format!("{:08x}", s.inbound.spi),
            spi_out: format!("{:08x}", s.outbound.spi),
            ppk_id: s.ppk.as_ref().map(ToString::to_string),
            algorithms: Algorithms::new(&s.algorithms),
            esn: s.algorithms.esn,
            hw_offload_in: offload(inbound.offload),
            hw_offload_out: offload(outbound.offload),
            path_mtu: outbound.path_mtu,
            bytes_in: inbound.bytes,
            packets_in: inbound.packets,
            use_in: inbound.idle.map(|idle| idle.as_secs()),
            bytes_out: outbound.bytes,
            packets_out: outbound.packets,
            use_out: outbound.idle.map(|idle| idle.as_secs()),
            rekey_time: s.rekey_at.map(|then| since(at, then)),
            life_time: s.expires_at.map(|then| since(at, then)),
            install_time: since(s.installed, at),
            local_ts: selectors(&s.local_ts),
            remote_ts: selectors(&s.remote_ts),
            setup_time_ms: millis(s.setup_time),
        }
    }
}

fn offload(used: HwOffload) -> Option<String> {
    match used {
        HwOffload::Crypto => Some("crypto".to_owned()),
        HwOffload::Packet => Some("packet".to_owned()),
        HwOffload::No | HwOffload::Auto => None,
    }
}

/// What daemons spoke that did not say.
fn udp() -> String {
    Transport::Udp.protocol().to_owned()
}

fn ike_state(state: IkeState) -> &'static str {
    match state {
        IkeState::Connecting => "CONNECTING",
        IkeState::Established => "ESTABLISHED",
        IkeState::Rekeyed => "REKEYED",
        IkeState::Deleting => "DELETING",
    }
}

fn child_state(state: ChildState) -> &'static str {
    match state {
        ChildState::Installing => "INSTALLING",
        ChildState::Installed => "INSTALLED",
        ChildState::Rekeying => "REKEYING",
        ChildState::Rekeyed => "REKEYED",
        ChildState::Deleting => "DELETING",
    }
}

fn since(then: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(then).as_secs()
}

/// Milliseconds to the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
