//! The content of the tunnel of EAP-TTLS version 0 (RFC 5281): attribute-value pairs that carry EAP. The server
//! also accepts PAP.

use subtle::ConstantTimeEq;

use crate::authenticator::{Authenticator, AuthenticatorConfig};
use crate::conversation::{Conversation, Step};
use crate::packet::{EapType, MAX_PACKET, Packet};
use crate::peer::{Peer, PeerConfig};

const USER_NAME: u32 = 1;
const USER_PASSWORD: u32 = 2;
const EAP_MESSAGE: u32 = 79;

const VENDOR: u8 = 0x80;
const MANDATORY: u8 = 0x40;

/// An attribute-value pair (RFC 5281 §10.1), mandatory, padded to four octets.
fn avp(code: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len() + 8).unwrap_or(u32::MAX) & 0x00ff_ffff;
    let mut octets = Vec::with_capacity(data.len() + 12);
    octets.extend(code.to_be_bytes());
    octets.extend((u32::from(MANDATORY) << 24 | len).to_be_bytes());
    octets.extend(data);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// What a message says that is understood here.
#[derive(Default)]
struct Avps {
    eap: Vec<u8>,
    user: Option<Vec<u8>>,
    password: Option<zeroize::Zeroizing<Vec<u8>>>,
}

impl Avps {
    fn parse(mut octets: &[u8]) -> Result<Self, String> {
        const MALFORMED: &str = "malformed attributes in the tunnel";
        let mut found = Self::default();
        while !octets.is_empty() {
            let (&[a, b, c, d, flags, high, mid, low], _) =
                octets.split_first_chunk().ok_or(MALFORMED)?;
            let len = usize::try_from(u32::from_be_bytes([0, high, mid, low])).unwrap_or(0);
            let header = if flags & VENDOR != 0 { 12 } else { 8 };
            let data = octets.get(header..len).ok_or(MALFORMED)?;
            octets = octets.get(len.next_multiple_of(4)..).unwrap_or_default();
            match (flags & VENDOR != 0, u32::from_be_bytes([a, b, c, d])) {
                (false, EAP_MESSAGE) => found.eap.extend(data),
                (false, USER_NAME) => found.user = Some(data.to_vec()),
                (false, USER_PASSWORD) => found.password = Some(data.to_vec().into()),
                _ if flags & MANDATORY == 0 => {}
                // What is mandatory and not understood ends it (RFC 5281 §10.1).
                (_, code) => {
                    return Err(format!("attribute {code} in the tunnel is not supported"));
                }
            }
            if found.eap.len() > MAX_PACKET {
                return Err(MALFORMED.to_owned());
            }
        }
        Ok(found)
    }
}

/// The peer's end of the tunnel.
pub(crate) struct TtlsPeer {
    inner: Peer,
    identity: Vec<u8>,
    begun: bool,
    answered: bool,
}

impl TtlsPeer {
    pub(crate) fn new(config: PeerConfig) -> Self {
        let identity = config.identity.clone();
        Self { inner: Peer::new(config), identity, begun: false, answered: false }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// The first word: who this is, before it is asked (RFC 5281 §11.2.1).
    pub(crate) fn begin(&mut self) -> Vec<u8> {
        self.begun = true;
        avp(EAP_MESSAGE, &Packet::response(0, EapType::IDENTITY, &self.identity).encode())
    }

    pub(crate) fn process(&mut self, said: &[u8]) -> Result<Vec<u8>, String> {
        self.begun = true;
        let avps = Avps::parse(said)?;
        if avps.eap.is_empty() {
            return Err("no EAP in the tunnel".to_owned());
        }
        match self.inner.handle(Some(&avps.eap)) {
            Step::Send(packet) => {
                self.answered = true;
                Ok(avp(EAP_MESSAGE, &packet))
            }
            Step::Success(_) => Ok(Vec::new()),
            Step::Failure(_, why) => Err(why),
        }
    }

    /// The end is the outer EAP-Success; the tunnel has authenticated the server.
    pub(crate) fn is_done(&self) -> bool {
        self.answered
    }
}

/// The server's end of the tunnel.
pub(crate) struct TtlsServer {
    config: AuthenticatorConfig,
    /// Who must prove itself, if the peer was not asked who it is.
    wanted: Option<Vec<u8>>,
    inner: Option<Authenticator>,
    proven: Option<Vec<u8>>,
}

impl TtlsServer {
    pub(crate) fn new(config: AuthenticatorConfig, wanted: Option<Vec<u8>>) -> Self {
        Self { config, wanted, inner: None, proven: None }
    }

    /// The identity that was proven in the tunnel.
    pub(crate) fn proven(&self) -> Option<Vec<u8>> {
        self.proven.clone()
    }

    pub(crate) fn process(&mut self, said: &[u8]) -> Result<Vec<u8>, String> {
        let avps = Avps::parse(said)?;
        if avps.eap.is_empty() {
            return self.pap(&avps);
        }
        let inner = match &mut self.inner {
            Some(inner) => inner,
            None => {
                // It tells its identity unasked; what identifier it takes for that is its own choice.
                let identifier = avps.eap.get(1).copied().unwrap_or_default();
                let new = Authenticator::after_identity(self.config.clone(), identifier);
                self.inner.insert(new)
            }
        };
        match inner.handle(Some(&avps.eap)) {
            Step::Send(packet) => Ok(avp(EAP_MESSAGE, &packet)),
            Step::Success(success) => self.prove(success.identity),
            Step::Failure(_, why) => Err(why),
        }
    }

    /// The method in the tunnel is content with `identity`.
    fn prove(&mut self, identity: Vec<u8>) -> Result<Vec<u8>, String> {
        let canonical = |name: &[u8]| self.config.secrets.canonical(name);
        let identity = canonical(&identity);
        // Who is known by one name must not prove another.
        if self.wanted.as_ref().is_some_and(|wanted| canonical(wanted) != identity) {
            return Err("another name in the tunnel than the EAP identity".to_owned());
        }
        self.proven = Some(identity);
        Ok(Vec::new())
    }

    /// A password in clear (RFC 5281 §11.2.5), padded with zeros.
    fn pap(&mut self, avps: &Avps) -> Result<Vec<u8>, String> {
        let (Some(user), Some(given)) = (&avps.user, &avps.password) else {
            return Err("neither EAP nor PAP in the tunnel".to_owned());
        };
        let given: &[u8] = given;
        let end = given.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        match self.config.secrets.password(user) {
            Some(password) if bool::from(password.ct_eq(&given[..end])) => self.prove(user.clone()),
            Some(_) => Err("wrong password".to_owned()),
            None => Err("no EAP secret".to_owned()),
        }
    }
}
