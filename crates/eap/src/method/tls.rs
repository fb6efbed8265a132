//! EAP-TLS (RFC 5216; with TLS 1.3 RFC 9190) and the transport of EAP-TTLS (RFC 5281).
//!
//! ```text
//! Flags (1): L M S R R V V V | [TLS Message Length (4)] | TLS Data
//! ```

use std::sync::Arc;

use rustls::{ClientConnection, Connection, ProtocolVersion, ServerConfig, ServerConnection};
use zeroize::Zeroizing;

use super::ttls::{TtlsPeer, TtlsServer};
use super::{PeerMethod, PeerStep, ServerMethod, ServerStep};
use crate::conversation::Msk;
use crate::packet::EapType;
use crate::peer::TlsClient;

/// Octets of TLS data in a packet, unless configured otherwise: strongSwan's default.
pub const FRAGMENT_SIZE: usize = 1024;
/// Packets of a conversation, unless configured otherwise: strongSwan's default.
pub const MAX_MESSAGES: u32 = 32;
/// Octets of TLS data in one go that a peer collects. A chain of certificates fits in many times.
const MAX_FLIGHT: usize = 64 * 1024;
/// The same on an authenticator, where it is a stranger who sends them: a client's chain, and room.
pub(crate) const MAX_STRANGERS_FLIGHT: usize = 16 * 1024;

/// What the TLS methods are limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsLimits {
    /// `fragment_size`: octets of TLS data in a packet.
    pub fragment_size: usize,
    /// `max_message_count`: packets taken; 0 is no limit but the conversation's.
    pub max_messages: u32,
}

impl Default for TlsLimits {
    fn default() -> Self {
        Self { fragment_size: FRAGMENT_SIZE, max_messages: MAX_MESSAGES }
    }
}

const LENGTH: u8 = 0x80;
const MORE: u8 = 0x40;
const START: u8 = 0x20;
const VERSION: u8 = 0x07;

/// What a packet brings.
#[derive(Debug, PartialEq, Eq)]
enum Arrived {
    /// The whole of the other end's data; empty is also an acknowledgement.
    Whole(Vec<u8>),
    /// A fragment, to be acknowledged.
    Fragment,
    /// An acknowledgement of ours: the next fragment may go.
    Acknowledged,
}

/// Data of both directions, cut into packets.
struct Fragments {
    limits: TlsLimits,
    max_flight: usize,
    packets: u32,
    incoming: Vec<u8>,
    announced: Option<usize>,
    outgoing: Vec<u8>,
    sent: usize,
}

impl Fragments {
    fn new(limits: TlsLimits, max_flight: usize) -> Self {
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        Self { limits, max_flight, packets: 0, incoming, announced: None, outgoing, sent: 0 }
    }

    fn take(&mut self, data: &[u8]) -> Result<(u8, Arrived), &'static str> {
        const MALFORMED: &str = "malformed EAP-TLS packet";
        self.packets += 1;
        if self.limits.max_messages != 0 && self.packets > self.limits.max_messages {
            return Err("more EAP-TLS packets than max_message_count");
        }
        let (&flags, mut rest) = data.split_first().ok_or(MALFORMED)?;
        if flags & VERSION != 0 {
            return Err("another version of the method");
        }
        let mut announced = None;
        if flags & LENGTH != 0 {
            let (len, after) = rest.split_first_chunk().ok_or(MALFORMED)?;
            announced = Some(usize::try_from(u32::from_be_bytes(*len)).map_err(|_| MALFORMED)?);
            rest = after;
        }
        if self.sent < self.outgoing.len() {
            let plain = rest.is_empty() && flags & (MORE | START) == 0;
            return if plain { Ok((flags, Arrived::Acknowledged)) } else { Err(MALFORMED) };
        }
        if self.incoming.is_empty() {
            self.announced = announced;
        } else if announced.is_some_and(|again| Some(again) != self.announced) {
            return Err("the length of the TLS message changes");
        }
        let limit = self.announced.unwrap_or(self.max_flight).min(self.max_flight);
        if self.announced.is_some_and(|announced| announced > self.max_flight)
            || self.incoming.len() + rest.len() > limit
        {
            return Err("too long a TLS message");
        }
        if flags & MORE != 0 && rest.is_empty() {
            return Err(MALFORMED);
        }
        self.incoming.extend(rest);
        if flags & MORE != 0 {
            return Ok((flags, Arrived::Fragment));
        }
        if self.announced.take().is_some_and(|announced| announced != self.incoming.len()) {
            return Err("the length of the TLS message is wrong");
        }
        Ok((flags, Arrived::Whole(std::mem::take(&mut self.incoming))))
    }

    /// Puts data in line; nothing is left of what was there before.
    fn put(&mut self, data: Vec<u8>) {
        (self.outgoing, self.sent) = (data, 0);
    }

    /// The next packet's Type-Data.
    fn next(&mut self) -> Vec<u8> {
        let rest = &self.outgoing[self.sent..];
        let size = self.limits.fragment_size.max(1);
        let part = rest.get(..size).unwrap_or(rest);
        let more = part.len() < rest.len();
        let first = self.sent == 0 && more;
        let mut packet = vec![if more { MORE } else { 0 } | if first { LENGTH } else { 0 }];
        if first {
            let len = u32::try_from(self.outgoing.len()).unwrap_or(u32::MAX);
            packet.extend(len.to_be_bytes());
        }
        packet.extend(part);
        self.sent += part.len();
        if self.sent == self.outgoing.len() {
            self.put(Vec::new());
        }
        packet
    }
}

/// A TLS connection that reads and writes octets.
struct Tls(Connection);

impl Tls {
    /// Takes what came and gives what is to be sent. With an error there may be an alert to send.
    fn exchange(&mut self, mut data: &[u8]) -> (Vec<u8>, Result<(), String>) {
        let mut outcome = Ok(());
        while !data.is_empty() && outcome.is_ok() {
            outcome = match self.0.read_tls(&mut data) {
                Ok(0) => Err("TLS data after the end".to_owned()),
                Ok(_) => match self.0.process_new_packets() {
                    Ok(_) => Ok(()),
                    Err(error) => Err(format!("TLS: {error}")),
                },
                Err(error) => Err(format!("TLS: {error}")),
            };
        }
        (self.flush(), outcome)
    }

    fn flush(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.0.wants_write() {
            match self.0.write_tls(&mut out) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        out
    }

    /// What came through the tunnel.
    fn read(&mut self) -> Zeroizing<Vec<u8>> {
        use std::io::Read;
        let mut data = Zeroizing::new(Vec::new());
        let mut buffer = Zeroizing::new([0; 4096]);
        // At the end of what is there it says that it would block.
        while let Ok(count @ 1..) = self.0.reader().read(&mut *buffer) {
            data.extend(&buffer[..count]);
        }
        data
    }

    fn write(&mut self, data: &[u8]) -> Result<(), String> {
        use std::io::Write;
        self.0.writer().write_all(data).map_err(|error| format!("TLS: {error}"))
    }

    fn is_done(&self) -> bool {
        !self.0.is_handshaking()
    }

    fn is_tls13(&self) -> bool {
        self.0.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// The MSK (RFC 5216 §2.3, RFC 5281 §8, RFC 9190 §2.3, RFC 9427 §2.1).
    fn msk(&self, kind: EapType) -> Result<Msk, String> {
        let (label, context): (&[u8], Option<&[u8]>) = match (self.is_tls13(), kind) {
            (true, _) => (b"EXPORTER_EAP_TLS_Key_Material", Some(&[kind.0])),
            (false, EapType::TTLS) => (b"ttls keying material", None),
            (false, _) => (b"client EAP encryption", None),
        };
        let material = self.0.export_keying_material(Zeroizing::new([0; 128]), label, context);
        let material = material.map_err(|error| format!("TLS: {error}"))?;
        Ok(Msk::new(material[..64].to_vec()))
    }
}

pub(crate) struct TlsPeer {
    kind: EapType,
    setup: TlsClient,
    fragments: Fragments,
    tls: Option<Tls>,
    inner: Option<TtlsPeer>,
    /// The server's word that there are no more messages of the handshake.
    committed: bool,
    /// What went wrong, while the alert is on its way.
    broken: Option<String>,
}

impl TlsPeer {
    pub(crate) fn new(kind: EapType, setup: TlsClient, inner: Option<TtlsPeer>) -> Self {
        let fragments = Fragments::new(setup.limits, MAX_FLIGHT);
        Self { kind, setup, fragments, tls: None, inner, committed: false, broken: None }
    }

    fn start(&mut self) -> Result<Vec<u8>, String> {
        if self.tls.is_some() {
            return Err("EAP-TLS starts twice".to_owned());
        }
        let (config, name) = (Arc::clone(&self.setup.config), self.setup.name.clone());
        let client =
            ClientConnection::new(config, name).map_err(|error| format!("TLS: {error}"))?;
        let mut tls = Tls(Connection::Client(client));
        let hello = tls.flush();
        self.tls = Some(tls);
        Ok(hello)
    }

    /// Takes the server's data; what to answer.
    fn advance(&mut self, data: &[u8]) -> Result<Vec<u8>, String> {
        let Some(tls) = &mut self.tls else { return Err("EAP-TLS without a start".to_owned()) };
        let was_done = tls.is_done();
        let (mut out, outcome) = tls.exchange(data);
        if let Err(why) = outcome {
            // The alert goes before the end (RFC 5216 §2.1.3).
            self.broken = Some(why);
            return Ok(out);
        }
        let said = tls.read();
        match &mut self.inner {
            None if said.is_empty() => {}
            // The server's word that the handshake is over: one octet, 0 (RFC 9190 §2.1.1).
            None if tls.is_tls13() && tls.is_done() && *said == [0] && !self.committed => {
                self.committed = true;
            }
            None => return Err("application data in EAP-TLS".to_owned()),
            Some(inner) => {
                // The tunnel's first word is the peer's, in a message after its Finished or with it.
                let begins = tls.is_done()
                    && !inner.has_begun()
                    && (was_done || tls.is_tls13() || !data.is_empty());
                let answer = match (&said[..], begins) {
                    ([], true) => inner.begin(),
                    ([], false) => Vec::new(),
                    // RFC 9427 §3.1: the commitment of servers that piggyback nothing.
                    ([0], true) if tls.is_tls13() => inner.begin(),
                    (said, _) => inner.process(said)?,
                };
                if !answer.is_empty() {
                    tls.write(&answer)?;
                    out.extend(tls.flush());
                }
            }
        }
        Ok(out)
    }
}

impl PeerMethod for TlsPeer {
    fn kind(&self) -> EapType {
        self.kind
    }

    fn process(&mut self, _identifier: u8, data: &[u8]) -> PeerStep {
        let (flags, arrived) = match self.fragments.take(data) {
            Ok(taken) => taken,
            Err(why) => return PeerStep::Fail(why.to_owned()),
        };
        if let (Some(why), Arrived::Whole(_)) = (&self.broken, &arrived) {
            return PeerStep::Fail(why.clone());
        }
        let out = match arrived {
            Arrived::Acknowledged => return PeerStep::Respond(self.fragments.next()),
            Arrived::Fragment => return PeerStep::Respond(vec![0]),
            Arrived::Whole(data) if flags & START != 0 => {
                if data.is_empty() {
                    self.start()
                } else {
                    Err("data with EAP-TLS start".to_owned())
                }
            }
            Arrived::Whole(data) => self.advance(&data),
        };
        match out {
            Ok(out) => {
                self.fragments.put(out);
                PeerStep::Respond(self.fragments.next())
            }
            Err(why) => PeerStep::Fail(why),
        }
    }

    fn finish(&mut self) -> Option<Option<Msk>> {
        let tls = self.tls.as_ref().filter(|tls| tls.is_done() && self.broken.is_none())?;
        let through = match &self.inner {
            // With TLS 1.3 the commitment protects the end (RFC 9190 §2.5).
            None => self.committed || !tls.is_tls13(),
            Some(inner) => inner.is_done(),
        };
        through.then(|| tls.msk(self.kind).ok()).flatten().map(Some)
    }

    fn complaint(&self) -> Option<String> {
        self.broken.clone()
    }
}

pub(crate) struct TlsServerMethod {
    kind: EapType,
    fragments: Fragments,
    tls: Tls,
    inner: Option<TtlsServer>,
    begun: bool,
    /// The last of the handshake was sent, or the commitment.
    closing: bool,
    broken: Option<String>,
    /// The tunnel's verdict.
    proven: Option<Vec<u8>>,
}

impl TlsServerMethod {
    pub(crate) fn new(
        kind: EapType,
        config: Arc<ServerConfig>,
        limits: TlsLimits,
        inner: Option<TtlsServer>,
    ) -> Result<Self, String> {
        let server = ServerConnection::new(config).map_err(|error| format!("TLS: {error}"))?;
        let fragments = Fragments::new(limits, MAX_STRANGERS_FLIGHT);
        let tls = Tls(Connection::Server(server));
        let (begun, closing, broken, proven) = (false, false, None, None);
        Ok(Self { kind, fragments, tls, inner, begun, closing, broken, proven })
    }

    fn advance(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if self.closing && data.is_empty() {
            return Ok(None);
        }
        let was_done = self.tls.is_done();
        let (mut out, outcome) = self.tls.exchange(data);
        if let Err(why) = outcome {
            if out.is_empty() {
                return Err(why);
            }
            self.broken = Some(why);
            return Ok(Some(out));
        }
        let said = self.tls.read();
        let Some(inner) = &mut self.inner else {
            if !said.is_empty() || was_done {
                return Err("application data in EAP-TLS".to_owned());
            }
            if self.tls.is_done() {
                if self.tls.is_tls13() {
                    self.tls.write(&[0])?;
                    out.extend(self.tls.flush());
                }
                self.closing = true;
            } else if out.is_empty() {
                return Err("the TLS handshake does not go on".to_owned());
            }
            return Ok(Some(out));
        };
        if !said.is_empty() {
            let answer = inner.process(&said)?;
            if inner.proven().is_some() {
                self.proven = inner.proven();
                return Ok(None);
            }
            self.tls.write(&answer)?;
            out.extend(self.tls.flush());
        } else if was_done || (data.is_empty() && out.is_empty()) {
            return Err("nothing comes through the tunnel".to_owned());
        } else if self.tls.is_done() && out.is_empty() {
            // TLS 1.3: the peer's Finished came alone; an empty request lets it begin.
            return Ok(Some(Vec::new()));
        }
        Ok(Some(out))
    }
}

impl ServerMethod for TlsServerMethod {
    fn kind(&self) -> EapType {
        self.kind
    }

    fn start(&mut self, _identifier: u8) -> Vec<u8> {
        vec![START]
    }

    fn process(&mut self, _identifier: u8, data: &[u8]) -> ServerStep {
        self.begun = true;
        let arrived = match self.fragments.take(data) {
            Ok((flags, arrived)) if flags & START == 0 => arrived,
            Ok(_) => return ServerStep::Fail("EAP-TLS start from the peer".to_owned()),
            Err(why) => return ServerStep::Fail(why.to_owned()),
        };
        if let (Some(why), Arrived::Whole(_)) = (&self.broken, &arrived) {
            return ServerStep::Fail(why.clone());
        }
        match arrived {
            Arrived::Acknowledged => ServerStep::Request(self.fragments.next()),
            Arrived::Fragment => ServerStep::Request(vec![0]),
            Arrived::Whole(data) => match self.advance(&data) {
                Ok(Some(out)) => {
                    self.fragments.put(out);
                    ServerStep::Request(self.fragments.next())
                }
                Ok(None) => match self.tls.msk(self.kind) {
                    Ok(msk) => ServerStep::Success(Some(msk)),
                    Err(why) => ServerStep::Fail(why),
                },
                Err(why) => ServerStep::Fail(why),
            },
        }
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn identity(&self) -> Option<Vec<u8>> {
        self.proven.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(size: usize) -> (Fragments, Fragments) {
        let limits = TlsLimits { fragment_size: size, max_messages: 0 };
        (Fragments::new(limits, MAX_FLIGHT), Fragments::new(limits, MAX_FLIGHT))
    }

    #[test]
    fn what_is_cut_is_put_together() {
        for len in [0, 1, 9, 10, 11, 20, 95] {
            let (mut from, mut to) = ends(10);
            let data: Vec<u8> = (0..len).collect();
            from.put(data.clone());
            loop {
                match to.take(&from.next()).unwrap().1 {
                    Arrived::Fragment => {
                        assert_eq!(from.take(&[0]), Ok((0, Arrived::Acknowledged)));
                    }
                    Arrived::Whole(whole) => break assert_eq!(whole, data),
                    Arrived::Acknowledged => panic!("nothing was sent"),
                }
            }
        }
    }

    #[test]
    fn lengths_that_lie_and_floods_end_it() {
        let take = |packets: &[&[u8]]| {
            let mut to = ends(10).0;
            packets.iter().try_for_each(|packet| to.take(packet).map(|_| ()))
        };
        assert!(take(&[&[LENGTH, 0, 0, 0, 2, 1, 2]]).is_ok());
        assert!(take(&[&[LENGTH, 0, 0, 0, 3, 1, 2]]).is_err());
        assert!(take(&[&[LENGTH, 0, 0, 0, 1, 1, 2]]).is_err());
        assert!(take(&[&[LENGTH | MORE, 0xff, 0, 0, 0, 1]]).is_err());
        assert!(take(&[&[LENGTH | MORE, 0, 0, 0, 9, 1], &[LENGTH, 0, 0, 0, 8, 1]]).is_err());
        assert!(take(&[&[]]).is_err());
        assert!(take(&[&[LENGTH, 0, 0]]).is_err());
        assert!(take(&[&[MORE]]).is_err(), "an empty fragment brings nothing");
        assert!(take(&[&[1, 1]]).is_err(), "version 1");
        let mut packet = vec![0; 1001];
        packet[0] = MORE;
        let many: Vec<&[u8]> = (0..70).map(|_| &packet[..]).collect();
        assert!(take(&many).is_err(), "without a length there is a limit, too");
        let limits = TlsLimits { fragment_size: 10, max_messages: 2 };
        let mut few = Fragments::new(limits, MAX_FLIGHT);
        assert!(few.take(&[0]).is_ok() && few.take(&[0]).is_ok() && few.take(&[0]).is_err());
    }

    #[test]
    fn strangers_send_less() {
        let limits = TlsLimits { fragment_size: 10, max_messages: 0 };
        let take = |max_flight, octets: usize| {
            let mut to = Fragments::new(limits, max_flight);
            let mut packet = vec![0; 1 + 1024];
            packet[0] = MORE;
            (0..octets / 1024).try_for_each(|_| to.take(&packet).map(|_| ()))
        };
        assert!(take(MAX_STRANGERS_FLIGHT, 16 * 1024).is_ok());
        assert!(take(MAX_STRANGERS_FLIGHT, 17 * 1024).is_err());
        assert!(take(MAX_FLIGHT, 64 * 1024).is_ok());
        // Nor does what is only announced take room.
        let mut to = Fragments::new(limits, MAX_STRANGERS_FLIGHT);
        assert!(to.take(&[LENGTH | MORE, 0, 0, 0x40, 1, 1]).is_err());
    }
}
