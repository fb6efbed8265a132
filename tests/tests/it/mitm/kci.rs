//! The attack that downgrade prevention is made against
//! (draft-ietf-ipsecme-ikev2-downgrade-prevention §4): key-compromise impersonation.
//!
//! The attacker has the initiator's signing key and breaks the classical key exchange as it goes by. It
//! takes the hybrid proposal out of the request, reads and signs IKE_AUTH again in the initiator's name,
//! and has two ends that believe they talk to each other and are read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::DowngradePrevention;
use ike_proto::crypto::SignatureScheme;
use ike_proto::keys::{SignedOctets, Transcript};
use ike_proto::wire::payload::{Auth, Id, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, decode_payloads, encode_message, encode_payloads};
use ike_tests::credentials::{Authority, credential, key};
use ike_tests::network::{Fate, Packet};
use ike_tests::wiretap::Wiretap;
use ike_tests::{A, Pair, Setup, cheap};
use pq_kem::sign::KeyType;

use crate::mitm::stage::{Outcome, run};

const SCHEME: SignatureScheme = SignatureScheme::EcdsaP256Sha256;
const STRONG: &str = "aes256gcm16-prfsha256-x25519-ke1_ecp256";
const WEAK: &str = "aes256gcm16-prfsha256-x25519";

/// Which of the two messages the attacker takes the announcement out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Strips {
    request: bool,
    response: bool,
}

/// A pair that signs, with a hybrid proposal and a classical one.
fn signing(prevention: DowngradePrevention) -> Pair {
    let ca = Authority::root("root", KeyType::Scheme(SCHEME), 0);
    let mut setup = Setup::new(1);
    setup.a.show(credential(&ca, KeyType::Scheme(SCHEME), 1));
    setup.b.show(credential(&ca, KeyType::Scheme(SCHEME), 2));
    setup.both(|side| {
        side.want("pubkey", &ca);
        side.ike_proposals(&[STRONG, WEAK]);
        side.connection.downgrade_prevention = prevention;
        side.settings.retransmission.tries = Some(2);
        side.settings.retransmission.timeout = Some(Duration::from_secs(1));
    });
    setup.build()
}

/// What the attacker has seen and made of it.
#[derive(Default)]
struct Attacker {
    /// The request as the responder got it, and the response as it was sent.
    request: Vec<u8>,
    response: Vec<u8>,
    tap: Option<Wiretap>,
    signed: u32,
}

/// `octets` without the first proposal if `weaken`, and without the announcement if `strip`.
fn without(octets: &[u8], weaken: bool, strip: bool) -> Vec<u8> {
    let message = Message::decode(octets).unwrap();
    let mut payloads = message.payloads.clone();
    for payload in &mut payloads {
        if let Payload::Sa(sa) = payload
            && weaken
        {
            sa.proposals.remove(0);
        }
    }
    let announcement = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH;
    payloads.retain(|payload| {
        !strip || !matches!(payload, Payload::Notify(notify) if notify.kind == announcement)
    });
    encode_message(&message.header, &payloads)
}

impl Attacker {
    fn handle(&mut self, packet: &mut Packet, strips: Strips, full: bool) {
        if packet.is(ExchangeType::IKE_SA_INIT, false) {
            self.request = without(&packet.octets, true, strips.request);
            packet.octets = self.request.clone().into();
        } else if packet.is(ExchangeType::IKE_SA_INIT, true) {
            self.response = packet.octets.to_vec();
            self.tap = Wiretap::new(cheap::provider(), &self.request, &self.response);
            if strips.response {
                packet.octets = without(&packet.octets, false, true).into();
            }
        } else if packet.is(ExchangeType::IKE_AUTH, false)
            && let Some(sealed) = self.sign_again(&packet.octets, full)
        {
            packet.octets = sealed.into();
            self.signed += 1;
        }
    }

    /// The IKE_AUTH request of the initiator, signed over the request that the responder got.
    fn sign_again(&self, sealed: &[u8], full: bool) -> Option<Vec<u8>> {
        let tap = self.tap.as_ref()?;
        let opened = tap.open(sealed)?;
        let mut payloads = decode_payloads(opened.first, &opened.octets, 0).ok()?;
        let id: Id<'_> = payloads.iter().find_map(|payload| match payload {
            Payload::IdI(id) => Some(*id),
            _ => None,
        })?;
        let transcript = if full {
            Transcript::Full { own: &self.request, peer: &self.response }
        } else {
            Transcript::RealMessage(&self.request)
        };
        let octets = SignedOctets::new(tap.prf, &tap.keys.pi, transcript, &tap.nr, id, None);
        let signature = key(KeyType::Scheme(SCHEME), 1).sign(&SCHEME, octets.as_bytes()).ok()?;
        let auth = payloads.iter_mut().find_map(|payload| match payload {
            Payload::Auth(auth) => Some(auth),
            _ => None,
        })?;
        // Length and AlgorithmIdentifier stay (RFC 7427 §3).
        let front = auth.data.get(..=usize::from(*auth.data.first()?))?;
        let data = [front, &signature].concat();
        *auth = Auth { method: auth.method, data: &data };
        let mut inner = Vec::new();
        let first = encode_payloads(&payloads, &mut inner);
        Some(tap.reseal(sealed, first, &inner))
    }
}

/// The attack on a pair. Says what came of it, and how often the attacker signed for the initiator.
fn attack(prevention: DowngradePrevention, strips: Strips) -> (Pair, Outcome, u32) {
    let mut pair = signing(prevention);
    let attacker = Arc::new(Mutex::new(Attacker::default()));
    let on_path = Arc::clone(&attacker);
    // The responder covers both messages if it has seen the announcement.
    let full = prevention != DowngradePrevention::No && !strips.request;
    let outcome = run(&mut pair, move |packet: &mut Packet| {
        on_path.lock().unwrap().handle(packet, strips, full);
        Fate::Pass
    });
    let signed = attacker.lock().unwrap().signed;
    (pair, outcome, signed)
}

#[test]
fn rfc_7296_alone_is_downgraded() {
    let nothing = Strips { request: false, response: false };
    let (pair, outcome, signed) = attack(DowngradePrevention::No, nothing);
    assert_eq!(signed, 1);
    assert_eq!(outcome.established, [1, 1], "{}", pair.story());
    for host in &pair.hosts {
        let chosen = host.ike().algorithms.unwrap();
        assert_eq!(chosen.additional().count(), 0, "both ends would have done better");
    }
    // Without the attacker they do.
    let mut pair = signing(DowngradePrevention::No);
    pair.establish();
    assert_eq!(pair.hosts[A].ike().algorithms.unwrap().additional().count(), 1);
}

#[test]
fn downgrade_prevention_saves_the_initiator_whatever_is_stripped() {
    for strips in [(false, false), (true, false), (false, true), (true, true)] {
        let strips = Strips { request: strips.0, response: strips.1 };
        for prevention in [DowngradePrevention::Yes, DowngradePrevention::Require] {
            let (pair, outcome, signed) = attack(prevention, strips);
            let what = format!("{strips:?} {prevention:?}: {outcome:?}\n{}", pair.story());
            // The responder cannot tell the attacker from the initiator, whose key it has; its AUTH
            // tells the initiator what it was asked.
            assert_eq!(outcome.established[A], 0, "{what}");
            assert_eq!(outcome.left, [0, 0], "{what}");
            let refused_at_once =
                prevention == DowngradePrevention::Require && (strips.request || strips.response);
            assert_eq!(signed == 0, refused_at_once, "{what}");
        }
    }
}
