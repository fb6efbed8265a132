//! Somebody on the path who can break [`cheap`](crate::cheap) key exchanges: holds the keys of an IKE SA
//! that it did not make, opens its messages, and seals others in their place.

use std::sync::Arc;

use ike_proto::config::proposal::{Selected, accept};
use ike_proto::crypto::{CipherKey, CipherLengths, CryptoProvider, Frame, Prf, Secret};
use ike_proto::keys::{Epoch, IkeKeys, Nonces, Opened, Outgoing, Seed, Spis};
use ike_proto::wire::payload::{Payload, Sa};
use ike_proto::wire::registry::{ExchangeType, PayloadType};
use ike_proto::wire::{Flags, HEADER_LEN, Message, decode_payloads};

use crate::random::Seeded;

/// Octets of the generic payload header.
const GENERIC: usize = 4;

/// The keys of one IKE SA, as far as its key exchanges were seen.
pub struct Wiretap {
    /// What IKE_SA_INIT agreed on.
    pub selected: Selected,
    /// The keys in force.
    pub keys: IkeKeys,
    /// Its PRF.
    pub prf: &'static dyn Prf,
    /// Initiator's nonce.
    pub ni: Vec<u8>,
    /// Responder's nonce.
    pub nr: Vec<u8>,
    /// Initiator's and responder's SPI.
    pub spis: (u64, u64),
    crypto: Arc<CryptoProvider>,
    lengths: CipherLengths,
    from_initiator: Epoch,
    from_responder: Epoch,
    /// Public value of the additional key exchange that waits for its response.
    pending: Option<Vec<u8>>,
}

impl Wiretap {
    /// Breaks the key exchange of an IKE_SA_INIT. `None` if the two messages do not make one.
    pub fn new(crypto: Arc<CryptoProvider>, request: &[u8], response: &[u8]) -> Option<Self> {
        let (asked, answered) = (Message::decode(request).ok()?, Message::decode(response).ok()?);
        let (offered, chosen) = (sa(&asked.payloads)?, sa(&answered.payloads)?);
        let selected = accept(&offered.proposals, chosen).ok()?;
        let shared = broken(public(&asked.payloads)?, public(&answered.payloads)?);
        let (ni, nr) = (nonce(&asked.payloads)?.to_vec(), nonce(&answered.payloads)?.to_vec());
        let spis = (answered.header.spi_i, answered.header.spi_r);
        let prf = crypto.prf(selected.prf)?;
        let lengths = crypto.ciphers.lengths(selected.suite)?;
        let (nonces, both) = (Nonces { i: &ni, r: &nr }, Spis::new(spis.0, spis.1));
        let seed = Seed::new(nonces, both);
        let keys = IkeKeys::initial(prf, &[&shared], &seed, &lengths);
        let [from_initiator, from_responder] = epochs(&crypto, &selected, &keys)?;
        Some(Self {
            selected,
            keys,
            prf,
            ni,
            nr,
            spis,
            crypto,
            lengths,
            from_initiator,
            from_responder,
            pending: None,
        })
    }

    /// Opens a message of either end, if it is in one piece and under the keys in force.
    pub fn open(&self, datagram: &[u8]) -> Option<Opened> {
        let message = Message::decode(datagram).ok()?;
        let Some(Payload::Sk(sk)) = message.payloads.last() else { return None };
        let initiator = message.header.flags.initiator;
        let epoch = if initiator { &self.from_initiator } else { &self.from_responder };
        epoch.open(datagram, sk).ok()
    }

    /// Follows an IKE_INTERMEDIATE: after the response to a key exchange the next keys are in force.
    pub fn follow(&mut self, opened: &Opened, response: bool) {
        let payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap_or_default();
        let Some(public) = public(&payloads) else { return };
        if !response {
            self.pending = Some(public.to_vec());
        } else if let Some(ours) = self.pending.take() {
            let shared = broken(&ours, public);
            let (i, r) = self.spis;
            let nonces = Nonces { i: &self.ni, r: &self.nr };
            let seed = Seed::new(nonces, Spis::new(i, r));
            let keys = IkeKeys::next(self.prf, &self.keys.d, &shared, &seed, &self.lengths);
            if let Some([i, r]) = epochs(&self.crypto, &self.selected, &keys) {
                (self.keys, self.from_initiator, self.from_responder) = (keys, i, r);
            }
        }
    }

    /// `datagram` with `inner`, a chain that begins with a payload of type `first`, in the place of its
    /// content; IV, header and Message ID stay.
    ///
    /// # Panics
    ///
    /// If `datagram` is not one that [`open`](Self::open) opens.
    pub fn reseal(&self, datagram: &[u8], first: PayloadType, inner: &[u8]) -> Vec<u8> {
        let message = Message::decode(datagram).expect("a message");
        let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!("no SK payload") };
        let CipherLengths { iv, icv, .. } = self.lengths;
        let key = self.key(message.header.flags.initiator);
        let mut out = datagram[..sk.offset].to_vec();
        // One octet of Pad Length: the suites of these tests need no alignment.
        let body = iv + inner.len() + 1 + icv;
        let len = u32::try_from(sk.offset + body).expect("a length");
        out[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
        let at = sk.offset - GENERIC;
        out[at] = first.0;
        let len = u16::try_from(GENERIC + body).expect("a length");
        out[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
        let iv = &sk.body[..iv];
        let mut data = [inner, &[0]].concat();
        let mut tag = vec![0; icv];
        key.seal(Frame { iv, aad: &out, trailer: &[] }, &mut data, &mut tag).expect("sealed");
        [&out[..], iv, &data, &tag].concat()
    }

    /// A message of one of the ends, as if it had sent it.
    ///
    /// # Panics
    ///
    /// If the backend fails.
    pub fn seal(
        &self,
        exchange: ExchangeType,
        message_id: u32,
        from_initiator: bool,
        payloads: &[Payload<'_>],
    ) -> Vec<u8> {
        let (suite, keys) = (self.selected.suite, &self.keys);
        let mut epoch =
            Epoch::new(self.crypto.ciphers, suite, keys, from_initiator).expect("an epoch");
        let outgoing = Outgoing {
            spi_i: self.spis.0,
            spi_r: self.spis.1,
            exchange,
            flags: Flags { initiator: from_initiator, version: false, response: false },
            message_id,
            payloads,
            max_datagram: None,
            force_fragment: false,
        };
        epoch.seal(&outgoing, &mut Seeded::new(message_id.into())).expect("sealed").remove(0)
    }

    fn key(&self, initiator: bool) -> Box<dyn CipherKey> {
        let (encr, integ) =
            if initiator { (&self.keys.ei, &self.keys.ai) } else { (&self.keys.er, &self.keys.ar) };
        let key = self.crypto.ciphers.key(self.selected.suite, encr.expose(), integ.expose());
        key.expect("a key")
    }
}

/// The shared secret of a cheap key exchange.
fn broken(ours: &[u8], theirs: &[u8]) -> Secret {
    Secret::new(ours.iter().zip(theirs).map(|(a, b)| a ^ b).collect())
}

fn epochs(crypto: &CryptoProvider, selected: &Selected, keys: &IkeKeys) -> Option<[Epoch; 2]> {
    // What an end opens is what the other has sent.
    let opener =
        |of_initiator: bool| Epoch::new(crypto.ciphers, selected.suite, keys, !of_initiator).ok();
    Some([opener(true)?, opener(false)?])
}

fn sa<'b>(payloads: &'b [Payload<'_>]) -> Option<&'b Sa> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Sa(sa) => Some(sa),
        _ => None,
    })
}

fn public<'a>(payloads: &[Payload<'a>]) -> Option<&'a [u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Ke(ke) => Some(ke.data),
        _ => None,
    })
}

fn nonce<'a>(payloads: &[Payload<'a>]) -> Option<&'a [u8]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(*nonce),
        _ => None,
    })
}
