//! The announcements of what an end can verify and wants to receive: SIGNATURE_HASH_ALGORITHMS (RFC 7427 §4),
//! SUPPORTED_AUTH_METHODS (RFC 9593), MULTIPLE_AUTH_SUPPORTED (RFC 4739), CERTREQ payloads and
//! HTTP_CERT_LOOKUP_SUPPORTED (RFC 7296 §3.7).

use crate::config::auth::{AuthConfig, CertRequest, SchemeConstraints};
use crate::config::{ConnectionConfig, EndpointConfig, RemoteAuth};
use crate::crypto::{CryptoProvider, SchemeRegister, SignatureScheme};
use crate::exchange::Payloads;
use crate::ike_sa::notify;
use crate::wire::payload::Payload;
use crate::wire::registry::{AuthMethod, CertEncoding, HashId, NotifyType};

/// The peer's announcements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Announcements {
    /// Hashes that it accepts in signatures by method 14; `None` if it knows only the older methods.
    pub(crate) hashes: Option<Vec<HashId>>,
    /// The methods that it accepts, the best first; empty if it announces none.
    pub(crate) methods: Vec<AuthMethodAnnouncement>,
    /// Its CERTREQ payloads.
    pub(crate) requests: Vec<CertRequest>,
    /// It fetches certificates by hash and URL.
    pub(crate) http_cert_lookup: bool,
    /// It supports several rounds.
    pub(crate) multiple_auth: bool,
    /// It announces its methods in IKE_INTERMEDIATE, because there are many.
    pub(crate) deferred: bool,
}

/// One announcement of SUPPORTED_AUTH_METHODS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthMethodAnnouncement {
    pub(crate) method: AuthMethod,
    /// The number of a CA in the CERTREQ payloads of the same message, from 1; 0 for any.
    pub(crate) cert_link: u8,
    /// The scheme of method 14.
    pub(crate) scheme: Option<SignatureScheme>,
}

impl Announcements {
    /// Reads the hashes of an IKE_SA_INIT request, which has no other announcement. Its sender is unknown, and
    /// little of it is kept.
    pub(crate) fn read_hashes(&mut self, config: &EndpointConfig, payloads: &Payloads<'_, '_>) {
        if config.signature_authentication
            && let Some(hashes) = payloads.notify(NotifyType::SIGNATURE_HASH_ALGORITHMS)
        {
            let (ids, _) = hashes.data.as_chunks();
            let ids = ids.iter().take(MAX_HASHES).map(|id| HashId(u16::from_be_bytes(*id)));
            self.hashes = Some(ids.collect());
        }
    }

    /// Reads the announcements of an IKE_SA_INIT response or of the first IKE_AUTH request.
    pub(crate) fn read(&mut self, known: &SchemeRegister, payloads: &Payloads<'_, '_>) {
        self.multiple_auth |= payloads.notify(NotifyType::MULTIPLE_AUTH_SUPPORTED).is_some();
        let lookup = NotifyType::HTTP_CERT_LOOKUP_SUPPORTED;
        self.http_cert_lookup |= payloads.notify(lookup).is_some();
        let requests = payloads.0.iter().filter_map(|payload| match payload {
            Payload::CertReq(request) => Some(CertRequest::from(*request)),
            _ => None,
        });
        self.requests.extend(requests.take(MAX_CERTREQS));
        //= https://www.rfc-editor.org/rfc/rfc9593#section-3.1
        //# In this case, the
        //# responder includes a SUPPORTED_AUTH_METHODS notification containing
        //# no data in the IKE_SA_INIT response.
        let list = payloads.notify(NotifyType::SUPPORTED_AUTH_METHODS);
        self.deferred = list.is_some_and(|list| list.data.is_empty());
        self.read_methods(known, payloads);
    }

    /// Reads the methods in an IKE_INTERMEDIATE response, or in any other message.
    pub(crate) fn read_methods(&mut self, known: &SchemeRegister, payloads: &Payloads<'_, '_>) {
        for list in payloads.notifies() {
            if list.kind == NotifyType::SUPPORTED_AUTH_METHODS {
                let room = MAX_METHODS.saturating_sub(self.methods.len());
                self.methods.extend(AuthMethodAnnouncement::list(known, list.data).take(room));
            }
        }
    }

    /// The hash of the CA that a Cert Link names; `None` if it names none.
    //= https://www.rfc-editor.org/rfc/rfc9593#section-3.2.2
    //# If multiple CERTREQ payloads were
    //# sent, the CAs from all of them are treated as a single list for the
    //# purpose of the linking.
    pub(crate) fn authority(&self, cert_link: u8) -> Option<[u8; 20]> {
        let index = usize::from(cert_link).checked_sub(1)?;
        //= https://www.rfc-editor.org/rfc/rfc7296#section-3.7
        //# The contents of the Certification Authority field are defined only
        //# for X.509 certificates, which are types 4, 12, and 13.
        let x509 = |request: &&CertRequest| {
            matches!(
                request.encoding,
                CertEncoding::X509_SIGNATURE
                    | CertEncoding::HASH_AND_URL_X509
                    | CertEncoding::HASH_AND_URL_BUNDLE
            )
        };
        let hashes = self.requests.iter().filter(x509).flat_map(|r| r.authorities.as_chunks().0);
        hashes.copied().nth(index)
    }
}

impl AuthMethodAnnouncement {
    /// Reads a list. Malformed or unknown entries are skipped.
    //= https://www.rfc-editor.org/rfc/rfc9593#section-3.2
    //# Implementations MUST ignore
    //# announcements whose semantics they don't understand.
    fn list(known: &SchemeRegister, mut data: &[u8]) -> impl Iterator<Item = Self> {
        let blobs = std::iter::from_fn(move || {
            let len = usize::from(*data.first()?);
            let (blob, rest) = data.split_at_checked(len).filter(|_| len >= 2)?;
            data = rest;
            Some(blob)
        });
        blobs.filter_map(|blob| Self::read(known, blob))
    }

    fn read(known: &SchemeRegister, blob: &[u8]) -> Option<Self> {
        let (method, cert_link, scheme) = match *blob {
            [_, method] => (AuthMethod(method), 0, None),
            [_, method, link] => (AuthMethod(method), link, None),
            [_, method, link, ref algorithm @ ..] => {
                let scheme = known.from_algorithm_identifier(algorithm)?;
                (AuthMethod(method), link, Some(scheme))
            }
            _ => return None,
        };
        let whole = match method {
            AuthMethod::PSK | AuthMethod::NULL => blob.len() == 2,
            AuthMethod::DIGITAL_SIGNATURE => scheme.is_some(),
            _ => blob.len() == 3,
        };
        whole.then_some(Self { method, cert_link, scheme })
    }

    /// True if both are the same octets.
    fn says_as(&self, other: &Self) -> bool {
        let same_scheme = match (&self.scheme, &other.scheme) {
            (Some(one), Some(other)) => one.has_identifier_of(other),
            (one, other) => one == other,
        };
        self.method == other.method && self.cert_link == other.cert_link && same_scheme
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let algorithm = self.scheme.as_ref().map(SignatureScheme::algorithm_identifier);
        let link = match self.method {
            AuthMethod::PSK | AuthMethod::NULL => &[][..],
            _ => &[self.cert_link],
        };
        let rest = [link, algorithm.unwrap_or_default()].concat();
        // `SchemeRegister::add` takes no identifier of over 252 octets.
        let Ok(len) = u8::try_from(rest.len() + 2) else {
            return debug_assert!(false, "an algorithm identifier of over 252 octets");
        };
        out.extend([len, self.method.0]);
        out.extend(rest);
    }
}

/// The announcements of this end for one connection, or for several possible ones.
#[derive(Debug, Default)]
pub(crate) struct OwnAnnouncements {
    /// Notification Data of SIGNATURE_HASH_ALGORITHMS.
    hashes: Option<Vec<u8>>,
    /// Notification Data of SUPPORTED_AUTH_METHODS.
    methods: Option<Vec<u8>>,
    requests: Vec<CertRequest>,
    /// This end fetches certificates by hash and URL.
    http_cert_lookup: bool,
    multiple_auth: bool,
    /// The methods are announced in IKE_INTERMEDIATE.
    deferred: bool,
}

impl OwnAnnouncements {
    pub(crate) fn new<'a>(
        config: &EndpointConfig,
        crypto: &CryptoProvider,
        connections: impl IntoIterator<Item = &'a ConnectionConfig> + Clone,
    ) -> Self {
        let mut own = Self::default();
        let mut signs = false;
        let mut constraints: Vec<&SchemeConstraints> = Vec::new();
        for connection in connections.clone() {
            signs |= super::signs(connection);
            own.multiple_auth |= connection.local.len() > 1 || connection.remote.len() > 1;
            for round in &connection.remote {
                if let AuthConfig::Pubkey(pubkey) = &round.auth {
                    constraints.push(&pubkey.ike);
                    own.want(round);
                }
            }
        }
        let wanted = |one: &CertRequest| one.encoding == CertEncoding::X509_SIGNATURE;
        own.http_cert_lookup = config.hash_and_url && own.requests.iter().any(wanted);
        let asks = signs || !constraints.is_empty();
        if !(config.signature_authentication && asks) {
            return own;
        }
        let mut schemes = crypto.signature_schemes();
        schemes.retain(|scheme| match constraints.as_slice() {
            [] => !scheme.must_be_named(),
            constraints => constraints.iter().any(|asked| asked.allows(scheme)),
        });
        schemes.retain(|scheme| *scheme != SignatureScheme::RsaPkcs1Sha1);
        own.hashes = Some(hash_list(&schemes));
        // Without restrictions the methods say no more than the hashes.
        let choosy = constraints.iter().any(|asked| !asked.schemes.is_empty());
        // An empty list would mean that the methods come later (RFC 9593 §3.1).
        if choosy && !schemes.is_empty() {
            own.methods = Some(method_list(connections, &schemes));
        }
        own
    }

    fn want(&mut self, round: &RemoteAuth) {
        for request in &round.certreqs {
            match self.requests.iter_mut().find(|known| known.encoding == request.encoding) {
                None => self.requests.push(request.clone()),
                Some(known) => {
                    for hash in request.authorities.as_chunks::<20>().0 {
                        if !known.authorities.as_chunks().0.contains(hash) {
                            known.authorities.extend(hash);
                        }
                    }
                }
            }
        }
    }

    /// The payload of the IKE_SA_INIT request.
    pub(crate) fn hash_payload(&self) -> Option<Payload<'_>> {
        let hashes = self.hashes.as_deref()?;
        Some(notify(NotifyType::SIGNATURE_HASH_ALGORITHMS, hashes))
    }

    /// Postpones the methods until IKE_INTERMEDIATE (RFC 9593 §3.1). False if there are none.
    pub(crate) fn defer(&mut self) -> bool {
        self.deferred = self.methods.is_some();
        self.deferred
    }

    /// The postponed methods. None of them is linked to a CA, so CERTREQ is not needed again.
    pub(crate) fn methods_payload(&self) -> Option<Payload<'_>> {
        let methods = self.methods.as_deref()?;
        Some(notify(NotifyType::SUPPORTED_AUTH_METHODS, methods))
    }

    /// The announcements of IKE_SA_INIT responses and, except the hashes, of the first IKE_AUTH request. `room` is
    /// the most octets of CA hashes.
    pub(crate) fn payloads(&self, room: usize) -> Vec<Payload<'_>> {
        let mut payloads = Vec::new();
        //= https://www.rfc-editor.org/rfc/rfc7296#section-3.7
        //# The HTTP_CERT_LOOKUP_SUPPORTED notification MAY be included in any
        //# message that can include a CERTREQ payload
        if self.http_cert_lookup {
            payloads.push(notify(NotifyType::HTTP_CERT_LOOKUP_SUPPORTED, &[]));
        }
        for request in &self.requests {
            let mut body = request.as_req();
            // Whole hashes. Without some of them the peer has less information for its choice.
            let fits = body.authorities.len().min(room / 20 * 20);
            body.authorities = body.authorities.get(..fits).unwrap_or_default();
            payloads.push(Payload::CertReq(body));
        }
        if self.deferred {
            payloads.push(notify(NotifyType::SUPPORTED_AUTH_METHODS, &[]));
        } else {
            payloads.extend(self.methods_payload());
        }
        if self.multiple_auth {
            payloads.push(notify(NotifyType::MULTIPLE_AUTH_SUPPORTED, &[]));
        }
        payloads
    }
}

fn hash_list(schemes: &[SignatureScheme]) -> Vec<u8> {
    let mut hashes: Vec<HashId> = Vec::new();
    for scheme in schemes {
        if !hashes.contains(&scheme.hash()) {
            hashes.push(scheme.hash());
        }
    }
    hashes.iter().flat_map(|hash| hash.0.to_be_bytes()).collect()
}

fn method_list<'a>(
    connections: impl IntoIterator<Item = &'a ConnectionConfig>,
    schemes: &[SignatureScheme],
) -> Vec<u8> {
    let mut methods = Vec::new();
    for round in connections.into_iter().flat_map(|connection| &connection.remote) {
        let plain = match round.auth {
            AuthConfig::Psk => AuthMethod::PSK,
            AuthConfig::Null => AuthMethod::NULL,
            // It has no number (RFC 9593 §3.2).
            AuthConfig::Eap => continue,
            AuthConfig::Pubkey(_) => {
                let signature = |scheme: &SignatureScheme| AuthMethodAnnouncement {
                    method: AuthMethod::DIGITAL_SIGNATURE,
                    cert_link: 0,
                    scheme: Some(scheme.clone()),
                };
                methods.extend(schemes.iter().map(signature));
                continue;
            }
        };
        methods.push(AuthMethodAnnouncement { method: plain, cert_link: 0, scheme: None });
    }
    let mut seen: Vec<AuthMethodAnnouncement> = Vec::new();
    let mut data = Vec::new();
    for method in methods {
        if !seen.iter().any(|known| known.says_as(&method)) {
            method.encode(&mut data);
            seen.push(method);
        }
    }
    data
}

/// Most hashes that are examined.
const MAX_HASHES: usize = 32;
/// Most CERTREQ payloads that are examined.
const MAX_CERTREQS: usize = 16;
/// Most announced methods that are kept.
const MAX_METHODS: usize = 128;
/// Octets of CA hashes in an IKE_SA_INIT response, which cannot be fragmented.
pub(crate) const INIT_ROOM: usize = 640;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_of_every_length_are_read_and_the_rest_is_passed_over() {
        let ed25519 = SignatureScheme::Ed25519.algorithm_identifier();
        let mut data = vec![2, 2, 3, 9, 1, 2, 99, 3, 13, 0, 2, 14];
        data.extend([3 + ed25519.len() as u8, 14, 2]);
        data.extend(ed25519);
        data.extend([7, 14, 0, 0x30, 2, 5, 0]);
        let known = SchemeRegister::built_in();
        let list = |data: &[u8]| AuthMethodAnnouncement::list(&known, data).collect::<Vec<_>>();
        let read = list(&data);
        let expected =
            |method, cert_link, scheme| AuthMethodAnnouncement { method, cert_link, scheme };
        assert_eq!(
            read,
            [
                expected(AuthMethod::PSK, 0, None),
                expected(AuthMethod::ECDSA_256, 1, None),
                expected(AuthMethod::DIGITAL_SIGNATURE, 2, Some(SignatureScheme::Ed25519)),
            ]
        );
        // Lengths that lie end the list; nothing goes round in circles (bug class 17).
        for bad in [&[0, 2][..], &[1, 2], &[9, 14, 0], &[2]] {
            assert_eq!(list(bad), []);
        }
    }

    /// A notify of 64 kB is 32,000 announcements of PSK. Fault: collect them before the list is cut.
    #[test]
    fn a_long_list_costs_no_memory() {
        let list = [2, 2].repeat(32_000);
        let payloads = [notify(NotifyType::SUPPORTED_AUTH_METHODS, &list)];
        let mut announced = Announcements::default();
        for _ in 0..3 {
            announced.read_methods(&SchemeRegister::built_in(), &Payloads(&payloads));
        }
        assert_eq!(announced.methods.len(), MAX_METHODS);
        assert!(announced.methods.capacity() <= 2 * MAX_METHODS);
    }

    #[test]
    fn what_is_sent_is_read_again() {
        for scheme in
            SignatureScheme::BUILT_IN.iter().filter(|s| **s != SignatureScheme::RsaPkcs1Sha1)
        {
            let method = AuthMethod::DIGITAL_SIGNATURE;
            let sent =
                AuthMethodAnnouncement { method, cert_link: 3, scheme: Some(scheme.clone()) };
            let mut data = Vec::new();
            sent.encode(&mut data);
            let known = SchemeRegister::built_in();
            assert!(AuthMethodAnnouncement::list(&known, &data).eq([sent]));
        }
    }

    #[test]
    fn a_cert_link_counts_the_hashes_of_all_requests() {
        let request = |n: u8| CertRequest {
            encoding: CertEncoding::X509_SIGNATURE,
            authorities: [[n; 20], [n + 1; 20]].concat(),
        };
        let raw = CertRequest { encoding: CertEncoding::RAW_PUBLIC_KEY, authorities: Vec::new() };
        let hash_and_url = CertRequest { encoding: CertEncoding::HASH_AND_URL_X509, ..request(3) };
        let requests = vec![request(1), raw, hash_and_url];
        let all = Announcements { requests, ..Announcements::default() };
        assert_eq!(all.authority(0), None);
        assert_eq!(all.authority(3), Some([3; 20]));
        assert_eq!(all.authority(4), Some([4; 20]));
        assert_eq!(all.authority(5), None);
    }
}
