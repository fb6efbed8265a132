//! A session, and the reports to servers about it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::eap::accounting::{AccountingRequest, Status, attribute, is_answer};
use ::eap::radius::attribute as common;
use ike_proto::dataplane::SaId;
use ike_proto::{Failure, IkeSaId, IkeStatus};
use tokio::time::Instant;

use ike_config::AccountingConfig;

use super::lock;
use crate::radius::{Purpose, RadiusClient, Unanswered};

/// Acct-Terminate-Cause (RFC 2866 §5.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    UserRequest = 1,
    LostService = 3,
    IdleTimeout = 4,
    SessionTimeout = 5,
    AdminReset = 6,
    NasError = 9,
    NasReboot = 11,
}

impl Cause {
    pub(super) fn of(reason: &Failure) -> Self {
        match reason {
            Failure::Timeout | Failure::LostByPeer => Self::LostService,
            Failure::Inactive => Self::IdleTimeout,
            Failure::Expired => Self::SessionTimeout,
            Failure::Terminated => Self::AdminReset,
            Failure::DataPlane(_) | Failure::Crypto => Self::NasError,
            _ => Self::UserRequest,
        }
    }
}

/// What went through the SAs of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Octets that came in, and that left.
    pub(super) octets: [u64; 2],
    pub(super) packets: [u64; 2],
}

/// A session.
pub(crate) struct Account {
    /// The IKE SA that it is by now.
    pub(super) ike: AtomicU64,
    pub(super) id: String,
    pub(super) radius: Arc<RadiusClient>,
    /// How servers are told of it; nothing if they are not.
    pub(super) options: Option<AccountingConfig>,
    /// What every request says of it.
    pub(super) attributes: Vec<(u8, Vec<u8>)>,
    pub(super) begun: Instant,
    pub(super) totals: Mutex<Totals>,
    /// Its ESP SAs that are [`Tracked`](super::Tracked); that map is locked before this.
    pub(super) sas: Mutex<HashSet<SaId>>,
    /// A server has asked for its end.
    pub(super) ending: AtomicBool,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Heard,
    /// No server answers.
    Unheard,
    /// Servers are left that could not be asked, by no fault of theirs.
    NotSent,
}

/// How often a request is tried that this machine cannot send.
const TRIES: usize = 6;
const BETWEEN_TRIES: Duration = Duration::from_secs(10);

impl Account {
    /// The IKE SA that it is by now.
    pub(super) fn ike(&self) -> IkeSaId {
        IkeSaId(self.ike.load(Ordering::Relaxed))
    }

    /// True if it is this that an attribute names.
    pub(super) fn has(&self, (kind, value): (u8, &[u8])) -> bool {
        match kind {
            attribute::SESSION_ID => self.id.as_bytes() == value,
            _ => self.attributes.iter().any(|(own, known)| *own == kind && known == value),
        }
    }

    /// Has a server take a request; for a while also again, as long as it is this machine that fails.
    pub(super) async fn tell(&self, status: Status, cause: Option<Cause>) -> Told {
        for _ in 1..TRIES {
            match self.tell_once(status, cause).await {
                Told::NotSent => tokio::time::sleep(BETWEEN_TRIES).await,
                told => return told,
            }
        }
        self.tell_once(status, cause).await
    }

    /// Has a server take a request, the one that answers.
    async fn tell_once(&self, status: Status, cause: Option<Cause>) -> Told {
        let config = &self.radius;
        let count = config.options.servers.len();
        let first = config.current.load(Ordering::Relaxed);
        let (mut told, mut last) = (Told::Unheard, String::new());
        for server in (0..count).filter_map(|n| config.options.servers.get((first + n) % count)) {
            let identifier = config.identifier.fetch_add(1, Ordering::Relaxed);
            let mut request = AccountingRequest::new(identifier);
            self.fill(&mut request, status, cause);
            request.add(common::NAS_IDENTIFIER, server.nas_identifier.as_bytes());
            let secret = server.secret.expose();
            let Some((datagram, authenticator)) = request.finish(secret) else { continue };
            let judge =
                |answer: &[u8]| is_answer(answer, identifier, &authenticator, secret).then_some(());
            let asked = config.exchange(Purpose::Account, server.accounting, &datagram, judge);
            match asked.await {
                Ok(()) => return Told::Heard,
                Err(why) => {
                    if matches!(why, Unanswered::Here(_)) {
                        told = Told::NotSent;
                    }
                    last = format!("{}: {why}", server.name);
                }
            }
        }
        if config.may_warn() {
            tracing::warn!(session = %self.id, ?status, why = %last, "no RADIUS server takes accounting");
        }
        told
    }

    fn fill(&self, request: &mut AccountingRequest, status: Status, cause: Option<Cause>) {
        let mut number = |kind: u8, value: u64| {
            request.add(kind, &(value as u32).to_be_bytes());
        };
        number(attribute::STATUS_TYPE, status as u64);
        if status != Status::Start {
            let Totals { octets: [octets_in, octets_out], packets } = *lock(&self.totals);
            let [packets_in, packets_out] = packets;
            for (kind, value) in [
                (attribute::INPUT_OCTETS, octets_in),
                (attribute::INPUT_GIGAWORDS, octets_in >> 32),
                (attribute::INPUT_PACKETS, packets_in),
                (attribute::OUTPUT_OCTETS, octets_out),
                (attribute::OUTPUT_GIGAWORDS, octets_out >> 32),
                (attribute::OUTPUT_PACKETS, packets_out),
                (attribute::SESSION_TIME, self.begun.elapsed().as_secs()),
            ] {
                // What is more is in the gigawords.
                number(kind, value);
            }
        }
        if let Some(cause) = cause {
            number(attribute::TERMINATE_CAUSE, cause as u64);
        }
        request.add(attribute::SESSION_ID, self.id.as_bytes());
        self.attributes.iter().for_each(|(kind, value)| request.add(*kind, value));
    }
}

/// What does not change in a session.
pub(super) fn attributes(status: &IkeStatus, addresses: &[IpAddr]) -> Vec<(u8, Vec<u8>)> {
    let (local, remote) = (status.path.local, status.path.remote);
    let station = |address: std::net::SocketAddr| {
        format!("{}[{}]", address.ip().to_canonical(), address.port()).into_bytes()
    };
    let mut eap = status.remote_auth.iter().filter_map(|auth| auth.eap.as_ref()?.id.as_ref());
    let user = match (eap.next_back(), &status.remote_id) {
        (Some(eap), _) => eap.data.clone(),
        (None, id) => id.as_ref().map(ToString::to_string).unwrap_or_default().into_bytes(),
    };
    let mut all = vec![
        // Virtual, Framed.
        (common::NAS_PORT_TYPE, 5_u32.to_be_bytes().to_vec()),
        (common::SERVICE_TYPE, 2_u32.to_be_bytes().to_vec()),
        (common::NAS_PORT, (status.id.0 as u32).to_be_bytes().to_vec()),
        (common::NAS_PORT_ID, status.connection.clone().into_bytes()),
        match local.ip().to_canonical() {
            IpAddr::V4(ip) => (common::NAS_IP_ADDRESS, ip.octets().to_vec()),
            IpAddr::V6(ip) => (common::NAS_IPV6_ADDRESS, ip.octets().to_vec()),
        },
        (common::CALLED_STATION_ID, station(local)),
        (common::CALLING_STATION_ID, station(remote)),
        (common::USER_NAME, user),
    ];
    all.extend(addresses.iter().map(|address| match address {
        IpAddr::V4(ip) => (common::FRAMED_IP_ADDRESS, ip.octets().to_vec()),
        IpAddr::V6(ip) => (common::FRAMED_IPV6_ADDRESS, ip.octets().to_vec()),
    }));
    all
}
