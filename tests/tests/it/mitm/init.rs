//! IKE_SA_INIT: every copy of a message changed in the same way.

use ike_proto::config::DowngradePrevention;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Fate;

use crate::mitm::change::{self, Change};
use crate::mitm::stage::{NOTHING, Outcome, SCENES, Scene, genuine, run, set};

/// Runs `change` to every IKE_SA_INIT message of one direction.
pub fn changed(
    scene: Scene,
    prevention: DowngradePrevention,
    genuine: &[u8],
    change: &Change,
    response: bool,
) -> Outcome {
    let mut pair = set(scene, prevention);
    let (genuine, octets) = (genuine.to_vec(), change.octets.clone());
    run(&mut pair, move |packet| {
        if packet.is(ExchangeType::IKE_SA_INIT, response) {
            if *packet.octets == genuine[..] {
                packet.octets = octets.clone().into();
            } else {
                // Another one, because the first did not do: there is nothing genuine to be had.
                return Fate::Drop;
            }
        }
        Fate::Pass
    })
}

#[test]
fn no_change_gets_an_sa_established_at_either_end() {
    let mut tried = 0;
    for scene in SCENES {
        for response in [false, true] {
            let messages = genuine(scene, DowngradePrevention::Yes);
            let genuine = &messages[usize::from(response)];
            for change in change::all(genuine) {
                let got = changed(scene, DowngradePrevention::Yes, genuine, &change, response);
                assert_eq!(got, NOTHING, "{scene:?}, response {response}: {}", change.name);
                tried += 1;
            }
        }
    }
    assert!(tried > 20_000, "{tried}");
}

/// A notify that is stripped from both messages at once: both ends believe that the other lacks it.
#[test]
fn what_is_stripped_from_both_messages_is_missed() {
    use ike_proto::wire::payload::Payload;
    use ike_proto::wire::{Message, encode_message};

    for scene in SCENES {
        let [request, _] = genuine(scene, DowngradePrevention::Yes);
        let message = Message::decode(&request).unwrap();
        let kinds: Vec<_> = message
            .payloads
            .iter()
            .filter_map(|payload| match payload {
                Payload::Notify(notify) => Some(notify.kind),
                _ => None,
            })
            .collect();
        assert!(kinds.len() >= 3, "{kinds:?}");
        for kind in kinds {
            let mut pair = set(scene, DowngradePrevention::Yes);
            let got = run(&mut pair, move |packet| {
                if packet.is(ExchangeType::IKE_SA_INIT, false)
                    || packet.is(ExchangeType::IKE_SA_INIT, true)
                {
                    let message = Message::decode(&packet.octets).unwrap();
                    let mut payloads = message.payloads.clone();
                    payloads.retain(|p| !matches!(p, Payload::Notify(n) if n.kind == kind));
                    packet.octets = encode_message(&message.header, &payloads).into();
                }
                Fate::Pass
            });
            assert_eq!(got, NOTHING, "{scene:?} without {kind}");
        }
    }
}
