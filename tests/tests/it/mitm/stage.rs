//! The two ends, and what came of an attempt.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::Event;
use ike_proto::config::{
    DowngradePrevention, PostQuantumKey, PpkConfig, PpkExchange, PpkId, PpkMatch, PpkRekey,
};
use ike_proto::crypto::Secret;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::{Fate, Packet};
use ike_tests::setup::Side;
use ike_tests::{A, B, Pair, Setup};

/// Long enough for a few retransmissions and second opinions; the ladder is short here.
const WHILE: Duration = Duration::from_secs(40);

/// What the two ends want of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// One classical proposal.
    Classical,
    /// A hybrid proposal, and a classical one for others: what a downgrade would make use of.
    Mixed,
    /// A hybrid proposal alone.
    Hybrid,
    /// A PPK that may be taken, in IKE_AUTH.
    PpkOptional,
    /// A PPK that must be taken, wherever.
    PpkRequired,
    /// A PPK that must be taken, in IKE_AUTH.
    PpkRequiredInAuth,
    /// A hybrid proposal, and a PPK that may be taken in IKE_INTERMEDIATE.
    HybridPpk,
}

pub const SCENES: [Scene; 7] = [
    Scene::Classical,
    Scene::Mixed,
    Scene::Hybrid,
    Scene::PpkOptional,
    Scene::PpkRequired,
    Scene::PpkRequiredInAuth,
    Scene::HybridPpk,
];

/// Two ends for `scene`.
pub fn set(scene: Scene, prevention: DowngradePrevention) -> Pair {
    let mut setup = Setup::new(1);
    setup.both(|side| {
        side.connection.downgrade_prevention = prevention;
        side.settings.retransmission.tries = Some(2);
        side.settings.retransmission.timeout = Some(Duration::from_secs(1));
        dress(side, scene);
    });
    setup.build()
}

fn dress(side: &mut Side, scene: Scene) {
    const CLASSICAL: &str = "aes256gcm16-prfsha256-x25519";
    const HYBRID: &str = "aes256gcm16-prfsha256-x25519-ke1_ecp256";
    side.ike_proposals(match scene {
        Scene::Mixed => &[HYBRID, CLASSICAL],
        Scene::Hybrid | Scene::HybridPpk => &[HYBRID],
        Scene::Classical | Scene::PpkOptional | Scene::PpkRequired | Scene::PpkRequiredInAuth => {
            &[CLASSICAL]
        }
    });
    let (required, exchange) = match scene {
        Scene::PpkOptional => (false, PpkExchange::Auth),
        Scene::PpkRequired => (true, PpkExchange::Any),
        Scene::PpkRequiredInAuth => (true, PpkExchange::Auth),
        Scene::HybridPpk => (false, PpkExchange::Any),
        Scene::Classical | Scene::Mixed | Scene::Hybrid => return,
    };
    let id = PpkId::new(&b"x"[..]);
    let secret = Secret::copy_from(b"what only the two ends know");
    side.settings.ppks = vec![Arc::new(PostQuantumKey { ids: vec![id.clone()], secret })];
    let ids = vec![PpkMatch::Exact(id)];
    side.connection.ppk = PpkConfig { ids, required, exchange, rekey: PpkRekey::No };
}

/// The genuine IKE_SA_INIT request and response of this pair: every run begins with the same octets.
pub fn genuine(scene: Scene, prevention: DowngradePrevention) -> [Vec<u8>; 2] {
    let mut pair = set(scene, prevention);
    pair.initiate(A, Some("net"));
    pair.run_for(WHILE);
    pair.assert_agreement();
    [false, true].map(|response| {
        let found = pair.net.trace.iter().find(|p| p.is(ExchangeType::IKE_SA_INIT, response));
        found.unwrap().octets.to_vec()
    })
}

/// How often each end established an IKE SA, and how many each has in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub established: [usize; 2],
    pub left: [usize; 2],
}

pub const NOTHING: Outcome = Outcome { established: [0, 0], left: [0, 0] };

/// Lets A initiate with `tap` on the path.
pub fn run(pair: &mut Pair, tap: impl FnMut(&mut Packet) -> Fate + Send + 'static) -> Outcome {
    pair.net.tap(tap);
    pair.initiate(A, Some("net"));
    pair.run_for(WHILE);
    outcome(pair)
}

fn outcome(pair: &Pair) -> Outcome {
    let ups = |host: usize| {
        pair.hosts[host].events(|event| matches!(event, Event::IkeUp(_)).then_some(())).len()
    };
    let left = |host: usize| {
        pair.hosts[host].ikes().iter().filter(|ike| ike.established.is_some()).count()
    };
    Outcome { established: [ups(A), ups(B)], left: [left(A), left(B)] }
}
