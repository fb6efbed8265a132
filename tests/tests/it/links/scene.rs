//! Setups and what is read off a trace.

use std::time::Duration;

use ike_proto::TransmitKind;
use ike_proto::config::{AuthConfig, Retransmission};
use ike_proto::wire::registry::ExchangeType;
use ike_tests::cheap::{Signer, post_quantum};
use ike_tests::credentials::Authority;
use ike_tests::link::LinkModel;
use ike_tests::network::Packet;
use ike_tests::{A, B, Pair, Setup};
use pq_kem::sign::KeyType;

pub const MS: Duration = Duration::from_millis(1);

/// What the ends agree upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// X25519, pre-shared key: two exchanges of one datagram each way.
    Psk,
    /// X25519 with ML-KEM-768, and ML-DSA-87.
    MlDsa,
    /// X25519 with ML-KEM-1024, and ML-DSA-87.
    MlDsa1024,
    /// X25519 with FrodoKEM-976, and ML-DSA-87.
    Frodo,
}

impl Suite {
    fn proposal(self) -> &'static str {
        match self {
            Self::Psk => "aes256gcm16-prfsha384-x25519",
            Self::MlDsa => "aes256gcm16-prfsha384-x25519-ke1_mlkem768",
            Self::MlDsa1024 => "aes256gcm16-prfsha384-x25519-ke1_mlkem1024",
            Self::Frodo => "aes256gcm16-prfsha384-x25519-ke1_frodoa3",
        }
    }

    /// Round trips that the exchanges take.
    pub fn round_trips(self) -> u32 {
        if self == Self::Psk { 2 } else { 3 }
    }
}

/// Two ends over a link; `change` may change them.
pub fn pair(seed: u64, suite: Suite, model: LinkModel, change: impl Fn(&mut Setup)) -> Pair {
    let mut setup = Setup::new(seed);
    setup.both(|side| {
        side.crypto = post_quantum();
        side.ike_proposals(&[suite.proposal()]);
    });
    if suite != Suite::Psk {
        let ca = Authority::root(
            "links",
            KeyType::Scheme(ike_proto::crypto::SignatureScheme::MlDsa87),
            1,
        );
        for (side, host) in [(&mut setup.a, 1), (&mut setup.b, 2)] {
            let key = KeyType::Scheme(ike_proto::crypto::SignatureScheme::MlDsa87);
            side.show_in(
                "local",
                AuthConfig::pubkey(),
                ike_tests::credentials::credential(&ca, key, host),
            );
            side.want("pubkey", &ca);
        }
    }
    change(&mut setup);
    let mut pair = setup.build();
    if suite != Suite::Psk {
        // A certificate of ML-DSA-87 by ML-DSA-87, and a signature.
        for host in [A, B] {
            pair.hosts[host].signer = Some(Signer { certificate: 7500, signature: 4627 });
        }
    }
    pair.net.join(A, B, model);
    pair
}

/// Sets the same rules for both ends.
pub fn rules(setup: &mut Setup, rules: Retransmission) {
    setup.both(|side| side.settings.retransmission = rules);
}

/// Brings up "net" from A. How long it took; `None` if it did not come up in ten minutes.
pub fn establish(pair: &mut Pair) -> Option<Duration> {
    let (start, request) = (pair.now(), pair.initiate(A, Some("net")));
    let up = pair.run_until(Duration::from_secs(600), |w| w.hosts[A].done(request).is_some());
    (up && pair.hosts[A].done(request) == Some(Ok(()))).then(|| pair.now() - start)
}

/// What was sent more than once, but for IKE_SA_INIT.
pub fn resent(pair: &Pair) -> Vec<&Packet> {
    let again = |packet: &&Packet| {
        packet.kind == TransmitKind::Retransmission
            && packet.header().is_some_and(|header| header.exchange != ExchangeType::IKE_SA_INIT)
    };
    pair.net.trace.iter().filter(again).collect()
}

/// How long the link takes to send everything that was sent, less what went both ways at once.
pub fn serialization(pair: &Pair, model: &LinkModel) -> Duration {
    pair.net.trace.iter().map(|packet| model.serialization(packet.ip_octets())).sum()
}

/// Octets of IP packets that both ends sent.
pub fn octets(pair: &Pair) -> usize {
    pair.net.trace.iter().map(Packet::ip_octets).sum()
}

/// Neither end acknowledges fragments.
pub fn silent(setup: &mut Setup) {
    setup.both(|side| side.settings.fragment_ack = None);
}
