//! Pairs whose messages have fragments, and fragments that get lost.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::TransmitKind;
use ike_proto::config::{AuthConfig, CertRequest, LocalAuth, RemoteAuth};
use ike_proto::wire::registry::{CertEncoding, ExchangeType};
use ike_proto::wire::{Message, Payload};
use ike_tests::cheap::{self, Signer};
use ike_tests::network::{Fate, Packet};
use ike_tests::{A, Pair, Setup};

pub const INTERMEDIATE: ExchangeType = ExchangeType::IKE_INTERMEDIATE;
pub const AUTH: ExchangeType = ExchangeType::IKE_AUTH;
pub const CREATE_CHILD_SA: ExchangeType = ExchangeType::CREATE_CHILD_SA;
pub const FOLLOWUP: ExchangeType = ExchangeType::IKE_FOLLOWUP_KE;

/// Two ends with large messages in every exchange but IKE_SA_INIT: FrodoKEM-976 in IKE_INTERMEDIATE and
/// IKE_FOLLOWUP_KE, ML-KEM-1024 in CREATE_CHILD_SA, and in IKE_AUTH certificates and signatures as long
/// as those of ML-DSA-87.
pub fn large(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(|side| {
        side.crypto = cheap::post_quantum();
        side.ike_proposals(&["aes256gcm16-prfsha384-x25519-ke1_frodoa3"]);
        side.esp_proposals(&["aes256gcm16-mlkem1024-ke1_frodoa3"]);
        let pubkey = AuthConfig::pubkey;
        let id = side.connection.local_id().cloned();
        side.connection.local = vec![LocalAuth { id, ..LocalAuth::new("local", pubkey()) }];
        let id = side.connection.remote_id().clone();
        let authorities = vec![0x5a; 20];
        let certreqs = vec![CertRequest { encoding: CertEncoding::X509_SIGNATURE, authorities }];
        side.connection.remote =
            vec![RemoteAuth { id, certreqs, ..RemoteAuth::new("remote", pubkey()) }];
    });
    setup
}

/// As built by [`large`].
pub fn build(setup: Setup) -> Pair {
    let mut pair = setup.build();
    for host in &mut pair.hosts {
        host.signer = Some(Signer { certificate: 7000, signature: 4627 });
    }
    pair
}

/// A message of one end: exchange, response, fragments.
pub fn fragment(packet: &Packet) -> Option<(ExchangeType, bool, u16, u16)> {
    let message = Message::decode(&packet.octets).ok()?;
    match message.payloads.last() {
        Some(Payload::Skf(skf)) => {
            let header = message.header;
            Some((header.exchange, header.flags.response, skf.number, skf.total))
        }
        _ => None,
    }
}

/// True for an acknowledgement, as its sender says.
pub fn is_ack(packet: &Packet) -> bool {
    packet.kind == TransmitKind::FragmentAck
}

/// Loses the first sending of these fragments of one message: the first message of that exchange and
/// direction.
pub fn lose(pair: &mut Pair, exchange: ExchangeType, response: bool, numbers: &[u16]) {
    let mut numbers: HashSet<u16> = numbers.iter().copied().collect();
    pair.net.tap(move |packet| match fragment(packet) {
        Some((its, direction, number, _))
            if (its, direction) == (exchange, response) && numbers.remove(&number) =>
        {
            Fate::Drop
        }
        _ => Fate::Pass,
    });
}

/// What was sent of a run, after IKE_SA_INIT.
#[derive(Default, Clone)]
pub struct Sent {
    /// Fragments sent for the first time.
    pub first: usize,
    /// Fragments sent again, of which message and which.
    pub again: Vec<(ExchangeType, bool, u16)>,
    /// Acknowledgements, with their lengths.
    pub acks: Vec<usize>,
    seen: HashSet<(u32, ExchangeType, bool, bool, u16, u16)>,
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} fragments, again {:?}, acks {:?}", self.first, self.again, self.acks)
    }
}

/// Counts what is sent from now on.
pub fn count(pair: &mut Pair) -> Arc<Mutex<Sent>> {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let shared = Arc::clone(&sent);
    pair.net.tap(move |packet| {
        let mut sent = shared.lock().unwrap();
        if is_ack(packet) {
            sent.acks.push(packet.octets.len());
        } else if let Some((exchange, response, number, total)) = fragment(packet) {
            let header = packet.header().unwrap();
            let id = header.message_id;
            let initiator = header.flags.initiator;
            if sent.seen.insert((id, exchange, response, initiator, number, total)) {
                sent.first += 1;
            } else {
                sent.again.push((exchange, response, number));
            }
        }
        Fate::Pass
    });
    sent
}

/// Fragments of the messages of a run without losses.
pub fn fragments(pair: &Pair, exchange: ExchangeType, response: bool) -> u16 {
    let its = |packet: &Packet| {
        fragment(packet)
            .filter(|(its, direction, ..)| (*its, *direction) == (exchange, response))
            .map(|(_, _, _, total)| total)
    };
    pair.net.trace.iter().find_map(its).unwrap_or(1)
}

/// Brings "net" up from A. How long it took.
#[track_caller]
pub fn come_up(pair: &mut Pair) -> Duration {
    let before = pair.now();
    let request = pair.initiate(A, Some("net"));
    pair.run_until(Duration::from_secs(100), |world| world.hosts[A].done(request).is_some());
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    let took = pair.now() - before;
    pair.settle();
    pair.assert_agreement();
    took
}
