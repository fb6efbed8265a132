//! IKE_INTERMEDIATE: somebody who holds SK_e and SK_a changes what is inside, and seals it again.

use std::sync::{Arc, Mutex};

use ike_proto::config::DowngradePrevention;
use ike_proto::wire::registry::{ExchangeType, PayloadType};
use ike_tests::cheap;
use ike_tests::network::{Fate, Packet};
use ike_tests::wiretap::Wiretap;

use crate::mitm::stage::{NOTHING, Outcome, Scene, run, set};

const SCENES: [Scene; 3] = [Scene::Mixed, Scene::Hybrid, Scene::HybridPpk];

/// What is done to the content of one message.
#[derive(Debug, Clone, Copy)]
enum Tamper {
    /// Nothing: it is only sealed again.
    Nothing,
    /// One bit of the octet is turned over; the first octet of all is the type of the first payload.
    Bit(usize, u8),
    /// Octets from there on are cut off.
    Cut(usize),
    /// A payload that nobody knows, not critical, is put in front.
    Stranger,
}

/// Breaks the key exchanges of the pair as they go by, and tampers with every copy of one message of
/// IKE_INTERMEDIATE. The inner length of that message is left in `seen`.
fn attack(
    scene: Scene,
    prevention: DowngradePrevention,
    response: bool,
    tamper: Tamper,
    seen: &Arc<Mutex<usize>>,
) -> Outcome {
    let mut pair = set(scene, prevention);
    let (mut request, mut tap) = (Vec::new(), None);
    let seen = Arc::clone(seen);
    run(&mut pair, move |packet: &mut Packet| {
        if packet.is(ExchangeType::IKE_SA_INIT, false) {
            request = packet.octets.to_vec();
        } else if packet.is(ExchangeType::IKE_SA_INIT, true) {
            tap = Wiretap::new(cheap::provider(), &request, &packet.octets);
        } else if packet.is(ExchangeType::IKE_INTERMEDIATE, response)
            && let Some(tap) = &tap
        {
            let opened = tap.open(&packet.octets).expect("the keys are known");
            *seen.lock().unwrap() = opened.octets.len() + 1;
            let mut inner = [&[opened.first.0], &opened.octets[..]].concat();
            match tamper {
                Tamper::Nothing => {}
                Tamper::Bit(octet, bit) => inner[octet] ^= 1 << bit,
                Tamper::Cut(at) => inner.truncate(at),
                Tamper::Stranger => {
                    let first = inner[0];
                    inner.splice(..1, [200, first, 0, 0, 8, 1, 2, 3, 4]);
                }
            }
            let (first, inner) = inner.split_first().unwrap();
            packet.octets = tap.reseal(&packet.octets, PayloadType(*first), inner).into();
        }
        Fate::Pass
    })
}

#[test]
fn the_attack_itself_works() {
    let seen = Arc::default();
    for scene in SCENES {
        for response in [false, true] {
            let got = attack(scene, DowngradePrevention::Yes, response, Tamper::Nothing, &seen);
            assert_eq!(got.established, [1, 1], "sealed again and not changed");
        }
    }
}

#[test]
fn no_change_inside_gets_an_sa_established_at_either_end() {
    let mut tried = 0;
    for scene in SCENES {
        for prevention in [DowngradePrevention::Yes, DowngradePrevention::No] {
            for response in [false, true] {
                let seen = Arc::default();
                attack(scene, prevention, response, Tamper::Nothing, &seen);
                let len = *seen.lock().unwrap();
                assert!(len > 64, "{len}");
                let bits = (0..len).flat_map(|at| (0..8).map(move |bit| Tamper::Bit(at, bit)));
                let cuts = (1..len).map(Tamper::Cut);
                for tamper in bits.chain(cuts).chain([Tamper::Stranger]) {
                    let got = attack(scene, prevention, response, tamper, &seen);
                    assert_eq!(got, NOTHING, "{scene:?} {prevention:?} {response} {tamper:?}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 5_000, "{tried}");
}
