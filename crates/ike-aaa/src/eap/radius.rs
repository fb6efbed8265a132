//! EAP by a RADIUS server (RFC 3579): the peer's EAP packets go to the server, and the server's packets to the peer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::eap::radius::{Code, Request, Response, Unfit, attribute};
use ::eap::{Code as EapCode, EapType, Packet};
use ike_config::{RadiusServer, Way};
use ike_proto::crypto::Secret;
use ike_proto::{Authorization, EapAnswer, EapState, EapSuccess, Path};

use super::Turn;
use super::conversation::{Held, Setup, described, random};
use crate::radius::grants::Grants;
use crate::radius::{Purpose, RadiusClient, Unanswered};

/// Why nobody is asked.
pub(super) const NONE: &str = "no RADIUS server is configured";

/// Begins a conversation by the peer's packet, or by none. The peer may turn out to be of other connections, whose rounds
/// are named as well.
pub(super) fn begin(
    client: Arc<RadiusClient>,
    setup: &Setup<'_>,
    (path, others): (Path, Vec<(String, String)>),
    packet: Option<Vec<u8>>,
) -> Turn {
    let session = Session::new(client, setup, path, others);
    Turn::There(Box::pin(Box::new(session).turn(packet)))
}

/// A conversation with a server.
pub(super) struct Session {
    client: Arc<RadiusClient>,
    /// Which server; conversations do not change it once it has answered.
    server: Option<usize>,
    connection: String,
    path: Path,
    /// What the peer calls itself in EAP; empty until it has.
    identity: Vec<u8>,
    known: Option<Vec<u8>>,
    /// What the server wants to see again.
    state: Vec<Vec<u8>>,
    alone: bool,
    /// The method that the server asked for last.
    method: Option<EapType>,
    /// The connections that the peer may turn out to be, and the groups of which it must be in one, if there are any.
    candidates: Vec<(String, Vec<String>)>,
}

impl Session {
    /// With other connections that the peer may turn out to be, and their rounds.
    fn new(
        client: Arc<RadiusClient>,
        setup: &Setup<'_>,
        path: Path,
        others: Vec<(String, String)>,
    ) -> Self {
        let own = (setup.connection.clone(), setup.round.groups.clone());
        let others = others.into_iter().filter_map(|other| {
            let round = setup.book.rounds.get(&other)?;
            // It would have been asked the same.
            let same = round.way == Way::Radius && round.eap_id == setup.round.eap_id;
            same.then(|| (other.0, round.groups.clone()))
        });
        let candidates = std::iter::once(own).chain(others).collect();
        Self {
            client,
            server: None,
            connection: setup.connection.clone(),
            path,
            identity: Vec::new(),
            known: setup.known_identity(),
            state: Vec::new(),
            alone: setup.alone,
            method: None,
            candidates,
        }
    }

    /// What comes of the peer's packet, or of none at the beginning.
    pub(super) async fn turn(mut self: Box<Self>, packet: Option<Vec<u8>>) -> EapAnswer {
        let mut packet = match (packet, self.known.take()) {
            (None, None) => {
                let request = Packet::request(0, EapType::IDENTITY, &[]).encode();
                return EapAnswer::Send(request, EapState::new(Held::Radius(self)));
            }
            // The server hears it as if it had been asked.
            (None, Some(known)) => Packet::response(0, EapType::IDENTITY, &known).encode(),
            (Some(packet), _) => packet,
        };
        let fail = |why: &str| EapAnswer::Failure { packet: None, why: why.to_owned() };
        let body = match Packet::parse(&packet) {
            Ok(Packet { code: EapCode::Response, body: Some(body), .. }) => body,
            _ => return fail("EAP packet out of place"),
        };
        match body {
            (EapType::IDENTITY, identity) if self.identity.is_empty() => {
                if identity.is_empty() || identity.len() > MAX_IDENTITY {
                    return fail("no identity, or one that is too long");
                }
                self.identity = identity.to_vec();
            }
            _ if !self.identity.is_empty() => {}
            _ => return fail("EAP packet out of place"),
        }
        // What stands behind the packet is no part of it.
        let length = 5 + body.1.len();
        packet.truncate(length);
        match self.ask(&packet).await {
            Ok(outcome) => self.outcome(outcome),
            Err(why) => fail(&why),
        }
    }

    fn outcome(mut self: Box<Self>, answer: Outcome) -> EapAnswer {
        match (answer.code, answer.eap) {
            (Code::Challenge, Some(packet)) => {
                if let Ok(Packet { body: Some((kind, _)), .. }) = Packet::parse(&packet)
                    && kind != EapType::IDENTITY
                    && kind != EapType::NOTIFICATION
                {
                    self.method = Some(kind);
                }
                self.state = answer.state;
                EapAnswer::Send(packet, EapState::new(Held::Radius(self)))
            }
            (Code::Accept, packet) => {
                let safe = self.method.is_some_and(EapType::is_safe_alone);
                if self.alone && !safe {
                    let why = "the method may not stand alone (RFC 5998)".to_owned();
                    return EapAnswer::Failure { packet: None, why };
                }
                // Both ends of such a method have a key. A server that keeps it back leaves open whether the peer of
                // this conversation is the one that it has let in.
                if answer.msk.is_none()
                    && let Some(method) = self.method.filter(|method| method.makes_key())
                {
                    let who = described(Some(method), &self.identity);
                    let why = format!(
                        "the RADIUS server accepts {who} without the key of the method: configure the server to send \
                         MS-MPPE-Send-Key and MS-MPPE-Recv-Key"
                    );
                    return EapAnswer::Failure { packet: None, why };
                }
                let mut candidates = self.candidates.iter();
                let fitting = candidates.position(|(_, groups)| answer.grants.fit(groups));
                let Some(fitting) = fitting else {
                    let who = described(self.method, &self.identity);
                    let why = format!("{who} is in none of the `groups` of {}", self.wanted_by());
                    return EapAnswer::Failure { packet: None, why };
                };
                let connection = (fitting > 0).then(|| self.candidates.swap_remove(fitting).0);
                // What the peer called itself before is proven by a password alone; in the tunnel of another
                // method it may have been anybody.
                let bound = self.method.is_some_and(|method| BINDING.contains(&method));
                let identity = answer.user.or_else(|| bound.then(|| self.identity.clone()));
                let method = match &identity {
                    Some(identity) => described(self.method, identity),
                    None => format!("{}, unproven", described(self.method, &self.identity)),
                };
                let packet = packet.filter(|packet| packet.first() == Some(&3));
                EapAnswer::Success(EapSuccess {
                    packet: Some(packet.unwrap_or_else(|| vec![3, 0, 0, 4])),
                    msk: answer.msk,
                    method,
                    identity,
                    password: None,
                    authorization: Some(Box::new(Authorization {
                        connection,
                        lifetime: answer.grants.lifetime,
                        granted: answer.grants.kept,
                    })),
                    certificate: None,
                })
            }
            (Code::Reject, packet) => {
                let packet = packet.filter(|packet| packet.first() == Some(&4));
                let who = described(self.method, &self.identity);
                let why = match answer.said {
                    Some(said) => format!("the RADIUS server refuses {who}: {said}"),
                    None => format!("the RADIUS server refuses {who}"),
                };
                EapAnswer::Failure { packet: Some(packet.unwrap_or_else(|| vec![4, 0, 0, 4])), why }
            }
            _ => EapAnswer::Failure {
                packet: None,
                why: "the RADIUS server challenges without EAP".to_owned(),
            },
        }
    }

    /// The connections that were asked for.
    fn wanted_by(&self) -> String {
        let names: Vec<_> = self.candidates.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }

    /// Asks the server of this conversation, or at its beginning one after the other.
    async fn ask(&mut self, packet: &[u8]) -> Result<Outcome, String> {
        let client = Arc::clone(&self.client);
        let count = client.options.servers.len();
        let first = client.current.load(Ordering::Relaxed);
        let candidates: Vec<usize> = match self.server {
            Some(server) => vec![server],
            None => (0..count).map(|n| (first + n) % count.max(1)).collect(),
        };
        let mut last = "no RADIUS server is configured".to_owned();
        for index in candidates {
            let Some(server) = client.options.servers.get(index) else { continue };
            match self.exchange(server, packet).await {
                Ok(outcome) => {
                    self.server = Some(index);
                    if client.current.swap(index, Ordering::Relaxed) != index {
                        tracing::info!(server = %server.name, "RADIUS server in use");
                    }
                    return Ok(outcome);
                }
                Err(why @ Unanswered::Busy) => return Err(why.to_string()),
                Err(why) => {
                    if client.may_warn() {
                        tracing::warn!(server = %server.name, %why, "RADIUS server does not answer");
                    }
                    last = format!("RADIUS server {}: {why}", server.name);
                }
            }
        }
        Err(last)
    }

    fn request(&self, server: &RadiusServer, packet: &[u8]) -> Option<(u8, Vec<u8>, [u8; 16])> {
        let mut authenticator = [0; 16];
        random()(&mut authenticator);
        let identifier = self.client.identifier.fetch_add(1, Ordering::Relaxed);
        let mut request = Request::new(identifier, authenticator);
        let user = [self.client.options.id_prefix.as_bytes(), &self.identity].concat();
        request.add(attribute::USER_NAME, &user);
        request.add(attribute::NAS_IDENTIFIER, server.nas_identifier.as_bytes());
        // Virtual, Framed.
        request.add(attribute::NAS_PORT_TYPE, &5_u32.to_be_bytes());
        request.add(attribute::SERVICE_TYPE, &2_u32.to_be_bytes());
        request.add(attribute::NAS_PORT_ID, self.connection.as_bytes());
        match self.path.local.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => request.add(attribute::NAS_IP_ADDRESS, &ip.octets()),
            std::net::IpAddr::V6(ip) => request.add(attribute::NAS_IPV6_ADDRESS, &ip.octets()),
        }
        let station =
            |address: SocketAddr| format!("{}[{}]", address.ip().to_canonical(), address.port());
        request.add(attribute::CALLED_STATION_ID, station(self.path.local).as_bytes());
        request.add(attribute::CALLING_STATION_ID, station(self.path.remote).as_bytes());
        for state in &self.state {
            request.add(attribute::STATE, state);
        }
        request.add(attribute::EAP_MESSAGE, packet);
        let (datagram, authenticator) = request.finish(server.secret.expose())?;
        Some((identifier, datagram, authenticator))
    }

    async fn exchange(&self, server: &RadiusServer, packet: &[u8]) -> Result<Outcome, Unanswered> {
        let (identifier, datagram, authenticator) = self
            .request(server, packet)
            .ok_or(Unanswered::Server("the EAP packet is too long for RADIUS"))?;
        let secret = server.secret.expose();
        let mut unfit = None;
        let judge =
            |answer: &[u8]| match Response::parse(answer, identifier, &authenticator, secret) {
                Ok(response) => {
                    let mut outcome = Outcome::of(&response, &authenticator, secret);
                    if outcome.code == Code::Accept {
                        outcome.grants = Grants::of(&response, self.client.options.groups);
                    }
                    Some(outcome)
                }
                Err(why) => {
                    unfit = Some(why);
                    None
                }
            };
        let asked = self.client.exchange(Purpose::Login, server.address, &datagram, judge).await;
        asked.map_err(|why| match unfit {
            Some(Unfit::Authenticator) => {
                Unanswered::Server("answers are signed by another secret")
            }
            Some(Unfit::MessageAuthenticator) => {
                Unanswered::Server("answers have no Message-Authenticator, or a wrong one")
            }
            Some(Unfit::Other) | None => why,
        })
    }
}

/// A server's answer.
struct Outcome {
    code: Code,
    eap: Option<Vec<u8>>,
    state: Vec<Vec<u8>>,
    msk: Option<Secret>,
    /// User-Name: what the peer is called from now on.
    user: Option<Vec<u8>>,
    /// Reply-Message, safe in a log line.
    said: Option<String>,
    grants: Grants,
}

impl Outcome {
    fn of(response: &Response<'_>, authenticator: &[u8; 16], secret: &[u8]) -> Self {
        let msk = response.msk(authenticator, secret);
        let said = response
            .values(attribute::REPLY_MESSAGE)
            .next()
            .map(|text| String::from_utf8_lossy(text).escape_debug().to_string());
        Self {
            code: response.code,
            eap: response.eap(),
            state: response.values(attribute::STATE).map(<[u8]>::to_vec).collect(),
            msk: msk.map(|msk| Secret::copy_from(msk.expose())),
            user: response.values(attribute::USER_NAME).next().map(<[u8]>::to_vec),
            said,
            grants: Grants::default(),
        }
    }
}

/// The methods whose password is that of the identity which was told before.
const BINDING: [EapType; 3] = [EapType::MD5, EapType::MSCHAPV2, EapType::GTC];
/// Octets of an identity that User-Name has room for.
const MAX_IDENTITY: usize = 253;

#[cfg(test)]
mod tests;
