//! A peer made by hand: it holds the keys of an IKE SA with an endpoint under test, and can send it
//! anything, sealed as the RFC says.
//!
//! It shares key derivation and codecs with the engine and none of its states or rules.

use std::sync::Arc;

use ike_proto::config::ProposalConfig;
use ike_proto::config::proposal::{SelectOptions, Selected, select};
use ike_proto::crypto::{
    CipherKey, CipherLengths, CryptoProvider, Frame, PendingKe, Prf, Secret, SecureRandom,
};
use ike_proto::keys::{
    AuthKeys, Epoch, IkeKeys, Nonces, Opened, Outgoing, Seed, SignedOctets, Spis, Transcript,
    psk_auth,
};
use ike_proto::wire::payload::{Auth, IdData, Ke, Notify, Payload, Sa, Spi};
use ike_proto::wire::registry::{
    AuthMethod, ExchangeType, KeMethodId, NotifyType, PayloadType, ProtocolId,
};
use ike_proto::wire::{Flags, HEADER_LEN, Header, Message, decode_payloads, encode_message};

use crate::random::Seeded;

/// What a hand-made peer proposes for IKE.
pub const IKE: &str = "aes256gcm16-prfsha256-x25519";
/// What a hand-made peer proposes for ESP.
pub const ESP: &str = "aes256gcm16";
/// A key exchange of its own for a child.
pub const ESP_PFS: &str = "aes256gcm16-x25519";

/// The first or only proposal of an SA payload, from keywords.
///
/// # Panics
///
/// If `keywords` is no proposal.
pub fn proposal(protocol: ProtocolId, keywords: &str, spi: Spi) -> Sa {
    let config = ProposalConfig::parse(protocol, keywords).expect("keywords of a proposal");
    Sa { proposals: vec![config.to_wire(1, spi)] }
}

/// An IKE_SA_INIT request on its way; [`finish`](Self::finish) takes the response.
pub struct Started {
    /// The request.
    pub request: Vec<u8>,
    /// Its SPI.
    pub spi_i: u64,
    /// Its nonce.
    pub ni: Vec<u8>,
    ke: Arc<dyn PendingKe>,
    crypto: Arc<CryptoProvider>,
    rng: Seeded,
}

impl Started {
    /// A good request, with fragmentation announced and no NAT detection.
    ///
    /// # Panics
    ///
    /// If the crypto backend fails.
    pub fn new(crypto: Arc<CryptoProvider>, seed: u64) -> Self {
        let mut rng = Seeded::new(seed);
        let spi_i = rng.number().max(1);
        let mut ni = vec![0; 32];
        rng.fill(&mut ni);
        let method = crypto.ke(KeMethodId::CURVE_25519).expect("X25519");
        let ke = method.initiate(&mut rng).expect("a key pair");
        let mut started = Self { request: Vec::new(), spi_i, ni, ke, crypto, rng };
        started.request = started.encode(&started.payloads());
        started
    }

    /// The payloads of the request: SA, KE, Ni, N(IKEV2_FRAGMENTATION_SUPPORTED).
    pub fn payloads(&self) -> Vec<Payload<'_>> {
        vec![
            Payload::Sa(proposal(ProtocolId::IKE, IKE, Spi::None)),
            Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: self.ke.public() }),
            Payload::Nonce(&self.ni),
            Payload::Notify(Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[])),
        ]
    }

    /// A request of these payloads. The one in [`request`](Self::request) stays what it is.
    pub fn encode(&self, payloads: &[Payload<'_>]) -> Vec<u8> {
        encode_message(&init_header(self.spi_i, 0, false), payloads)
    }

    /// The SA that `response` makes; `None` if it holds no SA, KE and Nr.
    ///
    /// # Panics
    ///
    /// If the response chooses what was not proposed.
    pub fn finish(&self, response: &[u8]) -> Option<Handmade> {
        let message = Message::decode(response).ok()?;
        let (mut public, mut nr) = (None, None);
        for payload in &message.payloads {
            match payload {
                Payload::Ke(ke) => public = Some(ke.data),
                Payload::Nonce(nonce) => nr = Some(nonce.to_vec()),
                _ => {}
            }
        }
        let (public, nr) = (public?, nr?);
        let shared = self.ke.complete(public).expect("a public value");
        let spis = (self.spi_i, message.header.spi_r);
        let transcript = (self.request.clone(), response.to_vec());
        let nonces = (self.ni.clone(), nr);
        let rng = self.rng.clone();
        Some(Handmade::new(&self.crypto, true, spis, transcript, nonces, &shared, rng))
    }
}

/// One end of an IKE SA, without a will of its own.
pub struct Handmade {
    /// True if it sent IKE_SA_INIT.
    pub initiator: bool,
    /// Initiator's SPI.
    pub spi_i: u64,
    /// Responder's SPI.
    pub spi_r: u64,
    /// IKE_SA_INIT request.
    pub request: Vec<u8>,
    /// IKE_SA_INIT response.
    pub response: Vec<u8>,
    /// Initiator's nonce.
    pub ni: Vec<u8>,
    /// Responder's nonce.
    pub nr: Vec<u8>,
    /// Message ID of its next request.
    pub next_id: u32,
    keys: IkeKeys,
    epoch: Epoch,
    outbound: Box<dyn CipherKey>,
    prf: &'static dyn Prf,
    rng: Seeded,
}

impl Handmade {
    /// Answers the IKE_SA_INIT request of an endpoint; the answer is in `response`. `None` if the
    /// request does not propose X25519 and what goes with it.
    ///
    /// # Panics
    ///
    /// If the crypto backend fails.
    pub fn answer(crypto: &CryptoProvider, request: &[u8], seed: u64) -> Option<Self> {
        let mut rng = Seeded::new(seed);
        let message = Message::decode(request).ok()?;
        let (mut sa, mut ke, mut ni) = (None, None, None);
        for payload in &message.payloads {
            match payload {
                Payload::Sa(offered) => sa = Some(offered),
                Payload::Ke(theirs) if theirs.method == KeMethodId::CURVE_25519 => {
                    ke = Some(theirs.data);
                }
                Payload::Nonce(nonce) => ni = Some(nonce.to_vec()),
                _ => {}
            }
        }
        let (sa, ke, ni) = (sa?, ke?, ni?);
        let chosen = chosen(sa)?;
        let method = crypto.ke(KeMethodId::CURVE_25519).expect("X25519");
        let (public, shared) = method.respond(ke, &mut rng).expect("a public value");
        let mut nr = vec![0; 32];
        rng.fill(&mut nr);
        let spis = (message.header.spi_i, rng.number().max(1));
        let payloads = [
            Payload::Sa(Sa { proposals: vec![chosen.to_wire(Spi::None)] }),
            Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &public }),
            Payload::Nonce(&nr),
            Payload::Notify(Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[])),
        ];
        let response = encode_message(&init_header(spis.0, spis.1, true), &payloads);
        let transcript = (request.to_vec(), response);
        Some(Self::new(crypto, false, spis, transcript, (ni, nr), &shared, rng))
    }

    fn new(
        crypto: &CryptoProvider,
        initiator: bool,
        (spi_i, spi_r): (u64, u64),
        (request, response): (Vec<u8>, Vec<u8>),
        (ni, nr): (Vec<u8>, Vec<u8>),
        shared: &Secret,
        rng: Seeded,
    ) -> Self {
        let chosen = chosen(&proposal(ProtocolId::IKE, IKE, Spi::None)).expect("own proposal");
        let prf = crypto.prf(chosen.prf).expect("PRF of the proposal");
        let lengths = lengths(crypto, &chosen);
        let (nonces, spis) = (Nonces { i: &ni, r: &nr }, Spis::new(spi_i, spi_r));
        let keys = IkeKeys::initial(prf, &[shared], &Seed::new(nonces, spis), &lengths);
        let epoch = Epoch::new(crypto.ciphers, chosen.suite, &keys, initiator).expect("keys");
        let key = if initiator { &keys.ei } else { &keys.er };
        let outbound = crypto.ciphers.key(chosen.suite, key.expose(), &[]).expect("a key");
        let next_id = u32::from(initiator);
        Self {
            initiator,
            spi_i,
            spi_r,
            request,
            response,
            ni,
            nr,
            next_id,
            keys,
            epoch,
            outbound,
            prf,
            rng,
        }
    }

    /// What its AUTH payload covers.
    pub fn octets(&self, id: &IdData) -> SignedOctets {
        let (message, nonce, key) = if self.initiator {
            (&self.request, &self.nr, &self.keys.pi)
        } else {
            (&self.response, &self.ni, &self.keys.pr)
        };
        let message = Transcript::RealMessage(message);
        SignedOctets::new(self.prf, key, message, nonce, id.as_id(), None)
    }

    /// Authentication Data for `id` and `psk`.
    pub fn auth(&self, id: &IdData, psk: &[u8]) -> Vec<u8> {
        psk_auth(self.prf, &Secret::copy_from(psk), &self.octets(id)).expose().to_vec()
    }

    /// Authentication Data of nobody in particular (RFC 7619 §2.1).
    pub fn null_auth(&self, id: &IdData) -> Vec<u8> {
        let key = if self.initiator { &self.keys.pi } else { &self.keys.pr };
        psk_auth(self.prf, key, &self.octets(id)).expose().to_vec()
    }

    /// Authentication Data of an initiator after IKE_INTERMEDIATE exchanges, of which AUTH covers `int_auth`.
    pub fn auth_after(&self, id: &IdData, psk: &[u8], int_auth: Option<&[u8]>) -> Vec<u8> {
        let message = Transcript::RealMessage(&self.request);
        let octets =
            SignedOctets::new(self.prf, &self.keys.pi, message, &self.nr, id.as_id(), int_auth);
        psk_auth(self.prf, &Secret::copy_from(psk), &octets).expose().to_vec()
    }

    /// PRF under SK_pi.
    pub fn by_pi(&self, octets: &[u8]) -> Vec<u8> {
        self.prf.prf(self.keys.pi.expose(), &[octets]).expose().to_vec()
    }

    /// PRF under SK_pr.
    pub fn by_pr(&self, octets: &[u8]) -> Vec<u8> {
        self.prf.prf(self.keys.pr.expose(), &[octets]).expose().to_vec()
    }

    /// The keys of the IKE SA that there are, each with its name.
    pub fn secrets(&self) -> Vec<(&'static str, &[u8])> {
        let IkeKeys { d, ei, er, ai, ar, pi, pr, .. } = &self.keys;
        let all = [
            ("SK_d", d),
            ("SK_ai", ai),
            ("SK_ar", ar),
            ("SK_ei", ei),
            ("SK_er", er),
            ("SK_pi", pi),
            ("SK_pr", pr),
        ];
        let there = all.into_iter().filter(|(_, key)| !key.is_empty());
        there.map(|(name, key)| (name, key.expose())).collect()
    }

    /// SK_d.
    pub fn sk_d(&self) -> &[u8] {
        self.keys.d.expose()
    }

    /// Mixes `ppk` in, as IKE_AUTH does (RFC 8784 §3).
    pub fn mix(&mut self, ppk: &[u8]) {
        let keys = &mut self.keys;
        let ppk = Secret::copy_from(ppk);
        let mixed = AuthKeys::mixed(self.prf, &ppk, [&keys.d, &keys.pi, &keys.pr]);
        (keys.d, keys.pi, keys.pr) = (mixed.d, mixed.pi, mixed.pr);
    }

    /// The AUTH payload around `data`.
    pub fn auth_payload(data: &[u8]) -> Payload<'_> {
        Payload::Auth(Auth { method: AuthMethod::PSK, data })
    }

    /// Seals its next request.
    pub fn next_request(&mut self, exchange: ExchangeType, payloads: &[Payload<'_>]) -> Vec<u8> {
        let id = self.next_id;
        self.next_id += 1;
        self.seal(exchange, id, false, payloads)
    }

    /// Seals one message into one datagram.
    ///
    /// # Panics
    ///
    /// If the payloads do not fit one.
    pub fn seal(
        &mut self,
        exchange: ExchangeType,
        message_id: u32,
        response: bool,
        payloads: &[Payload<'_>],
    ) -> Vec<u8> {
        let mut sealed = self.seal_in(exchange, message_id, response, payloads, None);
        assert_eq!(sealed.len(), 1);
        sealed.remove(0)
    }

    /// Seals one message into fragments, each in a message of up to `max_datagram` octets; `None`
    /// makes one Encrypted payload.
    ///
    /// # Panics
    ///
    /// If `max_datagram` leaves no room.
    pub fn seal_in(
        &mut self,
        exchange: ExchangeType,
        message_id: u32,
        response: bool,
        payloads: &[Payload<'_>],
        max_datagram: Option<usize>,
    ) -> Vec<Vec<u8>> {
        let outgoing = Outgoing {
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            exchange,
            flags: Flags { initiator: self.initiator, version: false, response },
            message_id,
            payloads,
            max_datagram,
            force_fragment: max_datagram.is_some(),
        };
        self.epoch.seal(&outgoing, &mut self.rng).expect("room for the payloads")
    }

    /// Seals `content` as one fragment with whatever numbers, which [`seal_in`](Self::seal_in) would
    /// not give it.
    ///
    /// # Panics
    ///
    /// If the backend fails.
    pub fn seal_fragment(
        &mut self,
        exchange: ExchangeType,
        message_id: u32,
        response: bool,
        fragment: &LooseFragment<'_>,
    ) -> Vec<u8> {
        // Lengths of AES-GCM in the Encrypted payload.
        const IV: usize = 8;
        const ICV: usize = 16;
        let body = IV + fragment.content.len() + 1 + ICV;
        let header = Header {
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            next_payload: PayloadType::SKF,
            minor_version: 0,
            exchange,
            flags: Flags { initiator: self.initiator, version: false, response },
            message_id,
            length: u32::try_from(HEADER_LEN + 8 + body).expect("a length"),
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram);
        datagram.extend([fragment.first.0, 0]);
        datagram.extend(u16::try_from(8 + body).expect("a length").to_be_bytes());
        datagram.extend(fragment.number.to_be_bytes());
        datagram.extend(fragment.total.to_be_bytes());
        // Counts where the IVs of the other messages do not.
        let iv = (1 << 63 | self.rng.number()).to_be_bytes();
        let mut data = [fragment.content, &[0]].concat();
        let mut icv = [0; ICV];
        let frame = Frame { iv: &iv, aad: &datagram, trailer: &[] };
        self.outbound.seal(frame, &mut data, &mut icv).expect("sealed");
        [&datagram[..], &iv, &data, &icv].concat()
    }

    /// Opens a datagram of the endpoint; `None` if it is not sealed for this peer in one piece.
    pub fn open(&self, datagram: &[u8]) -> Option<Opened> {
        let message = Message::decode(datagram).ok()?;
        match message.payloads.last() {
            Some(Payload::Sk(sk)) => self.epoch.open(datagram, sk).ok(),
            _ => None,
        }
    }
}

/// One fragment, consistent with others or not.
#[derive(Debug, Clone, Copy)]
pub struct LooseFragment<'a> {
    /// Next Payload.
    pub first: PayloadType,
    /// Fragment Number.
    pub number: u16,
    /// Total Fragments.
    pub total: u16,
    /// Its piece of the inner payloads.
    pub content: &'a [u8],
}

/// Error and status notifies of an opened message, in order.
pub fn notifies(opened: &Opened) -> Vec<NotifyType> {
    let payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap_or_default();
    let kinds = payloads.iter().filter_map(|payload| match payload {
        Payload::Notify(notify) => Some(notify.kind),
        _ => None,
    });
    kinds.collect()
}

/// SPIs that Delete payloads of an opened message name, in order.
pub fn deleted(opened: &Opened) -> Vec<u32> {
    let payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap_or_default();
    let spis = payloads.iter().flat_map(|payload| match payload {
        Payload::Delete(delete) => delete.spis.clone(),
        _ => Vec::new(),
    });
    spis.collect()
}

fn chosen(offered: &Sa) -> Option<Selected> {
    let ours = ProposalConfig::parse(ProtocolId::IKE, IKE).ok()?;
    select(&[ours], offered, SelectOptions::default())
}

fn lengths(crypto: &CryptoProvider, chosen: &Selected) -> CipherLengths {
    crypto.ciphers.lengths(chosen.suite).expect("suite of the proposal")
}

fn init_header(spi_i: u64, spi_r: u64, response: bool) -> Header {
    Header {
        spi_i,
        spi_r,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags { initiator: !response, version: false, response },
        message_id: 0,
        length: 0,
    }
}
