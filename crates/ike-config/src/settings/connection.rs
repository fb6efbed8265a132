//! Connections and their authentication rounds.

use std::time::Duration;

use ike_proto::config::{ConnectionConfig, IdMatch, LocalAuth, RemoteAuth};

use super::eap::{EapId, Way};
use super::hosts::Hosts;
use crate::diagnostic::Place;

/// `[connections.<conn>]`. The files that its rounds name are not loaded.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The engine's part, with identities as they are configured. The second pass takes missing ones from
    /// certificates, and adds what peers are asked for.
    pub config: ConnectionConfig,
    /// The ends, with names that are not resolved.
    pub hosts: Hosts,
    /// `local<suffix>`, in their order.
    pub local: Vec<LocalRound>,
    /// `remote<suffix>`, in their order.
    pub remote: Vec<RemoteRound>,
    /// `send_certreq`.
    pub send_certreq: bool,
    /// `ocsp` and `ocsp_max_age`.
    pub ocsp: OcspOptions,
    /// `revocation_live`: a revoked certificate ends an IKE SA that is up. If not, there is a warning.
    pub revocation_live: bool,
}

/// A round that authenticates this end.
#[derive(Debug, Clone)]
pub struct LocalRound {
    /// Its name, authentication and identity.
    pub auth: LocalAuth,
    /// False if `auth` was wrong; [`Self::auth`] then has the default.
    pub is_auth_known: bool,
    /// False if `id` was wrong.
    pub is_id_known: bool,
    /// Options of EAP, if `auth` is EAP.
    pub eap: Option<EapRound>,
    /// `certs`, `cert<suffix>` and `pubkeys`.
    pub files: NamedFiles,
    /// `cert_bundle`, and where it stands.
    pub cert_bundle: Option<Place>,
    /// The full name of the section, for messages.
    pub path: String,
    /// Where `id` stands, or else the section.
    pub place: Place,
}

/// A round that authenticates the peer.
#[derive(Debug, Clone)]
pub struct RemoteRound {
    /// Its name, authentication and identity. The second pass adds the terms of EAP.
    pub auth: RemoteAuth,
    /// Options of EAP, if `auth` is EAP.
    pub eap: Option<EapRound>,
    /// `groups`.
    pub groups: Vec<String>,
    /// Where `groups` stands.
    pub groups_place: Place,
    /// True if a key or certificate of the peer is judged.
    pub judges: bool,
    /// `revocation`.
    pub revocation: Revocation,
    /// `ike_usage`.
    pub ike_usage: bool,
    /// `ca_id`.
    pub ca_id: Option<IdMatch>,
    /// `cert_policy`: object identifiers in dotted form.
    pub cert_policies: Vec<String>,
    /// `certs`, `cacerts` and their like, and `pubkeys`.
    pub files: NamedFiles,
    /// The full name of the section, for messages.
    pub path: String,
    /// Where `id` stands, or else the section.
    pub place: Place,
}

/// Options of EAP in a round.
#[derive(Debug, Clone)]
pub struct EapRound {
    /// The method, or the way to one.
    pub way: Way,
    /// `eap_id`.
    pub eap_id: Option<EapId>,
    /// `aaa_id`.
    pub aaa_id: Option<EapId>,
    /// Where `auth` stands.
    pub place: Place,
}

impl EapRound {
    /// The way to authenticate the peer, if this end's own round by EAP has `own`. `None` if nothing says it.
    pub fn way_of_peer(&self, own: Option<&Self>) -> Option<Way> {
        match self.way {
            Way::Any => own.map(|own| own.way),
            way => Some(way),
        }
    }

    /// True if the method needs a certificate of the end that is authenticated.
    pub fn needs_certificate(&self) -> bool {
        self.way == Way::One(super::EapMethod::Tls)
    }
}

/// `revocation`: what is done if the state of a certificate is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Revocation {
    /// `relaxed`: the certificate is accepted.
    #[default]
    Relaxed,
    /// `ifuri`: it is refused if it names a URL of revocation information.
    IfUri,
    /// `strict`: it is refused.
    Strict,
}

/// `ocsp` and `ocsp_max_age`: OCSP responses in CERT payloads (RFC 4806).
#[derive(Debug, Clone, Copy)]
pub struct OcspOptions {
    /// A peer that asks gets responses.
    pub replies: bool,
    /// Peers are asked for responses.
    pub requests: bool,
    /// `ocsp_max_age`; zero is no limit.
    pub max_age: Duration,
}

/// The files that a round names.
#[derive(Debug, Clone, Default)]
pub struct NamedFiles {
    /// End-entity certificates.
    pub certs: Vec<NamedFile>,
    /// CA certificates.
    pub cacerts: Vec<NamedFile>,
    /// Public keys.
    pub pubkeys: Vec<NamedFile>,
    /// True if a section names no file; that is reported.
    pub is_wrong: bool,
}

impl NamedFiles {
    /// True if neither an end-entity certificate nor a public key is named.
    pub fn is_empty(&self) -> bool {
        self.certs.is_empty() && self.pubkeys.is_empty()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &NamedFile> {
        self.certs.iter().chain(&self.cacerts).chain(&self.pubkeys)
    }
}

/// A file that an option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The name, as it stands there.
    pub name: String,
    /// The full name of the option, for messages.
    pub option: String,
    /// Where the name stands.
    pub place: Place,
}
