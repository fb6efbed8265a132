//! Configuration payloads (RFC 7296 §2.19): virtual IPs and further attributes, in IKE_AUTH from the first request
//! to the last response.
//!
//! ```text
//!    HDR, SK {IDi, ..., AUTH, CP(CFG_REQUEST), SAi2, TSi, TSr}  -->
//!                  <--  HDR, SK {IDr, ..., AUTH, CP(CFG_REPLY), SAr2, TSi, TSr}
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use super::Payloads;
use super::auth::rounds::AuthReply;
use crate::channel::Channel;
use crate::child::selectors::narrow;
use crate::config::{ChildConfig, ConnectionConfig, TsSpec, Unique};
use crate::dataplane::{Mode, TrafficSelector};
use crate::event::{Event, Path, Ticket};
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, ExpectAuthRequest, State};
use crate::keys::epoch::Opened;
use crate::question::{Answer, Assignment, Lease, LeaseRequest, Question};
use crate::wire::decode_inner_payloads;
use crate::wire::payload::{Attribute, Config, ConfigAttribute, Payload};
use crate::wire::registry::{AuthMethod, CfgAttribute, CfgType, NotifyType, PayloadType};

/// Addresses that one peer may request.
const MAX_ADDRESSES: usize = 8;
/// Hash algorithms for ENCDNS_DIGEST_INFO (RFC 9464 §5): SHA2-256, SHA2-384 and SHA2-512.
const DIGESTS: [u16; 3] = [2, 3, 4];

/// The [`Assignment`] in force, if there is one: what one end has got from the other. The last of the SAs that share it
/// gives it back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assigned(Option<Arc<Shared>>);

/// Two or more SAs have it while one of them replaces another.
#[derive(Debug)]
struct Shared(Arc<Assignment>);

impl Assigned {
    /// For the first SA of `assignment`.
    pub(crate) fn of(assignment: Arc<Assignment>) -> Self {
        Self(Some(Arc::new(Shared(assignment))))
    }

    /// The assignment.
    pub(crate) fn get(&self) -> Option<&Arc<Assignment>> {
        self.0.as_deref().map(|shared| &shared.0)
    }

    /// What this end has given to the peer.
    pub(crate) fn given(&self) -> Option<&Arc<Assignment>> {
        self.get().filter(|assignment| !assignment.ours)
    }

    /// Initiator: an offer in IKE_AUTH was made before the virtual IPs were known. Narrows the peer's answer to
    /// them.
    pub(crate) fn narrow_to_own(
        &self,
        channel: &Channel,
        config: &ChildConfig,
        mode: Mode,
        local_ts: Vec<TrafficSelector>,
    ) -> Vec<TrafficSelector> {
        if channel.connection().vips.is_empty() || mode == Mode::Transport {
            return local_ts;
        }
        let own = resolve(config, channel.route().path(), true, self.virtual_ips(true));
        narrow(&own, &local_ts)
    }

    /// Reports what an established SA has got or given.
    pub(crate) fn tell(&self, ctx: &mut Context<'_>) {
        if let Some(assigned) = &self.0 {
            ctx.io.event(Event::Assigned(Arc::clone(&assigned.0)));
        }
    }

    /// Gives the assignment back when this SA ends, unless another SA continues with it.
    pub(crate) fn give_back(&mut self, ctx: &mut Context<'_>) {
        let last = self.0.take().and_then(Arc::into_inner);
        if let Some(Shared(assignment)) = last {
            ctx.io.event(Event::Unassigned(assignment));
        }
    }

    /// The virtual IPs of one end.
    pub(crate) fn virtual_ips(&self, local: bool) -> &[IpAddr] {
        match &self.0 {
            Some(assigned) if assigned.0.ours == local => &assigned.0.addresses,
            _ => &[],
        }
    }

    /// The virtual IPs of this end and of the peer, for an offer of a child.
    pub(crate) fn dynamic(&self) -> [Vec<IpAddr>; 2] {
        [self.virtual_ips(true).to_vec(), self.virtual_ips(false).to_vec()]
    }

    /// The answer to a CP payload in an INFORMATIONAL request, if it has one.
    pub(crate) fn answer(&self, payloads: &Payloads<'_, '_>) -> Option<OwnedConfig> {
        if attributes(payloads.0, CfgType::SET).is_some() {
            return Some(OwnedConfig::new(CfgType::ACK, []));
        }
        let asked = attributes(payloads.0, CfgType::REQUEST)?;
        let mut given = Vec::new();
        if let Some(assigned) = self.given() {
            let own = assigned.addresses.iter().copied().map(Attribute::for_address);
            given = own.chain(assigned.attributes.iter().cloned()).collect();
        }
        given.retain(|attribute| asked.iter().any(|one| one.kind() == attribute.kind()));
        if asked.iter().any(|one| one.kind() == CfgAttribute::APPLICATION_VERSION) {
            // RFC 7296 §3.15.3: an end that does not want to tell its version returns an empty string.
            given.push(Attribute::ApplicationVersion(Vec::new()));
        }
        Some(OwnedConfig::new(CfgType::REPLY, &given))
    }
}

/// A responder that waits for addresses; the peer is authenticated.
pub(crate) struct AwaitLease {
    pub(crate) ticket: Ticket,
    pub(crate) waiting: Box<ExpectAuthRequest>,
    /// The first request.
    first: Opened,
    pub(crate) auth: AuthReply,
    pub(crate) ppk: Option<Vec<u8>>,
    request: LeaseRequest,
}

/// A CP payload that owns its data.
#[derive(Debug)]
pub(crate) struct OwnedConfig {
    kind: CfgType,
    attributes: Vec<(CfgAttribute, Vec<u8>)>,
}

impl OwnedConfig {
    fn new<'a>(kind: CfgType, attributes: impl IntoIterator<Item = &'a Attribute>) -> Self {
        let encoded = attributes.into_iter().map(|one| (one.kind(), one.value())).collect();
        Self { kind, attributes: encoded }
    }

    /// The attributes of an initiator's request. `None` without a virtual IP to request.
    pub(crate) fn request(vips: &[IpAddr]) -> Option<Self> {
        if vips.is_empty() {
            return None;
        }
        let mut asked: Vec<_> = vips.iter().copied().map(Attribute::for_address).collect();
        let (v4, v6) = (vips.iter().any(IpAddr::is_ipv4), vips.iter().any(IpAddr::is_ipv6));
        asked.extend(v4.then_some(Attribute::Ip4Dns(None)));
        asked.extend(v6.then_some(Attribute::Ip6Dns(None)));
        asked.push(Attribute::DnsDomain(None));
        asked.extend(v4.then_some(Attribute::EncDns(false, None)));
        asked.extend(v6.then_some(Attribute::EncDns(true, None)));
        let mut request = Self::new(CfgType::REQUEST, &asked);
        let mut digests = vec![DIGESTS.len() as u8, 0];
        digests.extend(DIGESTS.iter().flat_map(|hash| hash.to_be_bytes()));
        request.attributes.push((CfgAttribute::ENCDNS_DIGEST_INFO, digests));
        Some(request)
    }

    fn reply(assignment: &Assignment) -> Self {
        let addresses: Vec<_> =
            assignment.addresses.iter().copied().map(Attribute::for_address).collect();
        Self::new(CfgType::REPLY, addresses.iter().chain(&assignment.attributes))
    }

    /// The payload.
    pub(crate) fn payload(&self) -> Payload<'_> {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(kind, value)| ConfigAttribute { kind: *kind, value });
        Payload::Config(Config { kind: self.kind, attributes: attributes.collect() })
    }
}

/// The attributes of the first CP payload of `kind`, malformed ones left out; `None` without one.
fn attributes(payloads: &[Payload<'_>], kind: CfgType) -> Option<Vec<Attribute>> {
    let mut found = payloads.iter().filter_map(|payload| match payload {
        Payload::Config(config) if config.kind == kind => Some(config),
        _ => None,
    });
    let config = found.next()?;
    Some(config.attributes.iter().filter_map(Attribute::decode).collect())
}

/// The addresses of `attributes`, no more than one peer may have, and none twice except unspecified ones.
fn addresses(attributes: &[Attribute]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for address in attributes.iter().filter_map(Attribute::address) {
        if addresses.len() < MAX_ADDRESSES
            && (address.is_unspecified() || !addresses.contains(&address))
        {
            addresses.push(address);
        }
    }
    addresses
}

/// True for an address that a host can have on an inner interface.
fn is_usable(address: &IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || broadcast)
}

/// True if a chain that decodes has a CP payload.
fn has_config(first: PayloadType, octets: &[u8]) -> bool {
    let (mut kind, mut rest) = (first, octets);
    while kind != PayloadType::CP {
        let [next, _, high, low, ..] = *rest else { return false };
        let length = usize::from(u16::from_be_bytes([high, low])).max(4);
        (kind, rest) = (PayloadType(next), rest.get(length..).unwrap_or_default());
    }
    true
}

impl Established {
    /// Reads from the last IKE_AUTH response what was requested as `vips`, which has at least one address.
    pub(crate) fn take_configuration(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        vips: &[IpAddr],
        payloads: &[Payload<'_>],
    ) {
        let ike = stem.channel.link().id();
        let Some(given) = attributes(payloads, CfgType::REPLY) else {
            return tracing::debug!(?ike, "configuration: requested, and the peer has sent none");
        };
        let mut wanted: Vec<_> = vips.iter().map(IpAddr::is_ipv4).collect();
        let mut own: Vec<IpAddr> = Vec::new();
        for address in addresses(&given).into_iter().filter(is_usable) {
            // One address for each that was requested.
            if let Some(at) = wanted.iter().position(|v4| *v4 == address.is_ipv4()) {
                wanted.swap_remove(at);
                own.push(address);
            }
        }
        let unproven =
            self.identity.authenticated().remote.iter().all(|r| r.method == AuthMethod::NULL);
        let others = given.into_iter().filter(|attribute| match attribute {
            //= https://www.rfc-editor.org/rfc/rfc9464#section-6
            //# If the IKEv2 responder has used the NULL Authentication method
            //# [RFC7619] to authenticate itself, the initiator MUST NOT use returned
            //# ENCDNS_IP* resolvers configuration
            Attribute::EncDns(..) | Attribute::EncDigest(_) => !unproven,
            Attribute::Ip4Address(_) | Attribute::Ip6Address(_) => false,
            //= https://www.rfc-editor.org/rfc/rfc8598#section-6
            //# IKE clients willing to accept INTERNAL_DNSSEC_TA attributes MUST use
            //# a whitelist of one or more domains that can be updated out of band.
            // There is no such list.
            Attribute::DnssecTa(_) => false,
            _ => true,
        });
        let assignment = Arc::new(Assignment {
            ike: stem.channel.link().id(),
            connection: stem.channel.connection().name.clone(),
            ours: true,
            pools: Vec::new(),
            peer: self.identity.remote_id().clone(),
            path: stem.channel.route().path(),
            addresses: own,
            attributes: others.collect(),
        });
        stem.peer.assign(Assigned::of(assignment));
        stem.peer.assigned().tell(ctx);
    }
}

impl ExpectAuthRequest {
    /// Continues when the peer is authenticated and this end's AUTH is made: asks for the peer's addresses if it
    /// is to have any, and continues with the answer.
    pub(crate) fn configure_peer(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        auth: AuthReply,
        ppk: Option<Vec<u8>>,
    ) -> State {
        let Some(first) = self.first.take() else {
            debug_assert!(false, "IKE_AUTH ends without a first request");
            return self.refuse(stem, ctx, NotifyType::INVALID_SYNTAX.into());
        };
        let has_pools = !stem.channel.connection().pools.is_empty();
        if !has_pools && !has_config(first.first, &first.octets) {
            // Nearly all peers: there is nothing to decode again.
            return self.finish_auth(stem, ctx, first, (auth, ppk, None));
        }
        let (asked, first_contact) = match decode_inner_payloads(first.first, &first.octets) {
            Ok(payloads) => {
                let contact = Payloads(&payloads).notify(NotifyType::INITIAL_CONTACT).is_some();
                (attributes(&payloads, CfgType::REQUEST).unwrap_or_default(), contact)
            }
            // It was decoded once already.
            Err(error) => return self.refuse(stem, ctx, error.into()),
        };
        let wanted = addresses(&asked);
        let unconfigured = match (wanted.is_empty(), has_pools) {
            (true, false) => None,
            // RFC 7296 §3.10.1: the request was expected and did not come.
            (true, true) => Some(NotifyType::FAILED_CP_REQUIRED),
            (false, false) => {
                let why = "the peer wants an address, and the connection has no `pools`";
                self.say_why(stem.channel, ctx, why);
                Some(NotifyType::INTERNAL_ADDRESS_FAILURE)
            }
            (false, true) => {
                let former = self.rounds.resumes();
                let own = former.is_some_and(|former| {
                    let lent = ctx.registry.lent(former);
                    wanted.iter().all(|address| lent.contains(address))
                });
                let request = LeaseRequest {
                    ike: stem.channel.link().id(),
                    connection: stem.channel.connection().name.clone(),
                    pools: stem.channel.connection().pools.clone(),
                    identity: self.rounds.lease_identity(),
                    granted: self.rounds.granted(),
                    path: stem.channel.route().path(),
                    addresses: wanted,
                    sole: match stem.channel.connection().unique {
                        Unique::Replace => true,
                        Unique::No | Unique::Keep => first_contact,
                        Unique::Never => false,
                    },
                    own,
                    resumed: former.is_some(),
                    asked,
                };
                let ticket = ctx.ask(Question::Lease(request.clone()));
                let asked = AwaitLease { ticket, waiting: self, first, auth, ppk, request };
                return State::AwaitLease(Box::new(asked));
            }
        };
        self.finish_auth(stem, ctx, first, (auth, ppk, unconfigured))
    }

    fn say_why(&self, channel: &Channel, ctx: &mut Context<'_>, why: &str) {
        let remote_id = self.rounds.remote_id().cloned();
        ctx.io.event(Event::ChildRefused {
            ike: channel.link().id(),
            remote_id,
            why: why.to_owned(),
        });
    }
}

impl AwaitLease {
    pub(crate) fn on_answer(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { waiting, first, mut auth, ppk, request, .. } = *self;
        let lease = match answer {
            Answer::Leased(_, lease) if !lease.addresses.is_empty() => lease,
            Answer::Failed(why) => {
                waiting.say_why(stem.channel, ctx, &why);
                Lease::default()
            }
            _ => Lease::default(),
        };
        if lease.addresses.is_empty() {
            let failure = Some(NotifyType::INTERNAL_ADDRESS_FAILURE);
            return waiting.finish_auth(stem, ctx, first, (auth, ppk, failure));
        }
        let assignment = Arc::new(request.assignment(lease));
        auth.config = Some(OwnedConfig::reply(&assignment));
        stem.peer.assign(Assigned::of(assignment));
        waiting.finish_auth(stem, ctx, first, (auth, ppk, None))
    }
}

/// The virtual IPs of an offer in IKE_AUTH, before they are known: any address of each family.
pub(crate) fn any_of(vips: &[IpAddr]) -> [Vec<IpAddr>; 2] {
    let any = |v4: bool| -> IpAddr { if v4 { [0; 4].into() } else { [0_u16; 8].into() } };
    let mut families: Vec<_> = vips.iter().map(|vip| any(vip.is_ipv4())).collect();
    families.dedup();
    families.sort_unstable();
    families.dedup();
    [families, Vec::new()]
}

/// The virtual IPs of an initiator's request: those that it had, otherwise the configured ones.
pub(crate) fn wanted(connection: &ConnectionConfig, former: &[IpAddr]) -> Vec<IpAddr> {
    match (connection.vips.as_slice(), former) {
        ([], _) => Vec::new(),
        (configured, []) => configured.to_vec(),
        (_, former) => former.to_vec(),
    }
}

/// The selectors of one end of `config`, with `virtual_ips` for `dynamic`, or this path's address if there are
/// none. An unspecified address stands for all addresses of its family.
pub(crate) fn resolve(
    config: &ChildConfig,
    path: Path,
    local: bool,
    virtual_ips: &[IpAddr],
) -> Vec<TrafficSelector> {
    let (specs, end) = match local {
        true => (&config.local_ts, path.local),
        false => (&config.remote_ts, path.remote),
    };
    let end = [end.ip().to_canonical()];
    let hosts = if virtual_ips.is_empty() { &end[..] } else { virtual_ips };
    let resolved = specs.iter().flat_map(|spec| {
        let hosts = match spec {
            TsSpec::Fixed(_) => &hosts[..1],
            TsSpec::Dynamic { .. } => hosts,
        };
        hosts.iter().map(move |host| {
            match (spec, host.is_unspecified() && !virtual_ips.is_empty()) {
                (TsSpec::Dynamic { .. }, true) => {
                    let all = match host {
                        IpAddr::V4(_) => TrafficSelector::any_v4(),
                        IpAddr::V6(_) => TrafficSelector::any_v6(),
                    };
                    TrafficSelector { start: all.start, end: all.end, ..spec.resolve(*host) }
                }
                _ => spec.resolve(*host),
            }
        })
    });
    resolved.collect()
}
