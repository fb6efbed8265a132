//! The first copy of a message changed, the genuine ones let through: an attempt that the genuine peer
//! could still complete is completed.

use std::time::Duration;

use ike_proto::config::DowngradePrevention;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::{Fate, Packet};
use ike_tests::{A, B};

use crate::mitm::change;
use crate::mitm::stage::{SCENES, Scene, genuine, run, set};

#[test]
fn the_genuine_message_still_makes_an_sa() {
    for scene in SCENES {
        for response in [false, true] {
            let genuine = &genuine(scene, DowngradePrevention::Yes)[usize::from(response)];
            let mut changes = change::structural(genuine);
            changes.extend(change::bits(genuine).into_iter().step_by(7));
            for change in changes {
                let mut pair = set(scene, DowngradePrevention::Yes);
                let octets = change.octets.clone();
                let mut done = false;
                run(&mut pair, move |packet| {
                    if !done && packet.is(ExchangeType::IKE_SA_INIT, response) {
                        done = true;
                        packet.octets = octets.clone().into();
                    }
                    Fate::Pass
                });
                let what = format!("{scene:?}, response {response}: {}", change.name);
                assert_eq!(pair.a().ikes().len(), 1, "{what}\n{}", pair.story());
                assert_eq!(pair.b().ikes().len(), 1, "{what}\n{}", pair.story());
                // An attempt that was given two responses with one SPI numbers the messages of each from
                // 1, under keys of their own: nothing that can be told from outside.
                pair.audit.complaints.retain(|_| !response);
                pair.assert_agreement();
                for host in &pair.hosts {
                    let ike = host.ike();
                    assert!(ike.full_transcript, "{what}");
                    let ppk = !matches!(scene, Scene::Classical | Scene::Mixed | Scene::Hybrid);
                    assert_eq!(ike.ppk.is_some(), ppk, "{what}");
                    let hybrid = matches!(scene, Scene::Mixed | Scene::Hybrid | Scene::HybridPpk);
                    let chosen = ike.algorithms.unwrap();
                    assert_eq!(chosen.additional().next().is_some(), hybrid, "{what}");
                }
            }
        }
    }
}

/// A changed copy of the response overtakes the genuine one, which arrives as well.
#[test]
fn a_changed_copy_that_arrives_first_only_delays() {
    for scene in SCENES {
        let response = &genuine(scene, DowngradePrevention::Yes)[1];
        for change in change::structural(response) {
            let mut pair = set(scene, DowngradePrevention::Yes);
            pair.net.manual = true;
            let request = pair.initiate(A, Some("net"));
            pair.deliver_to(B);
            let original = pair.net.mailbox.first().unwrap().clone();
            pair.inject(Packet { octets: change.octets.clone().into(), from: None, ..original });
            pair.deliver_all();
            pair.net.manual = false;
            pair.run_for(Duration::from_secs(60));
            let what = format!("{scene:?}: {}\n{}", change.name, pair.story());
            assert_eq!(pair.a().done(request), Some(Ok(())), "{what}");
            // As above: two responses with one SPI.
            pair.audit.complaints.clear();
            pair.assert_agreement();
            assert!(pair.a().ike().full_transcript && pair.b().ike().full_transcript, "{what}");
        }
    }
}
