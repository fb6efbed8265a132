//! What RFC 7296 alone leaves open, and downgrade prevention closes.

use ike_proto::config::DowngradePrevention;

use crate::mitm::change;
use crate::mitm::init::changed;
use crate::mitm::stage::{NOTHING, SCENES, Scene, genuine};

/// Without downgrade prevention the responder does not learn from AUTH that its response was changed.
/// It establishes the SA on its own, until the initiator's complaint closes it; the initiator never
/// does. With it neither ever has one.
#[test]
fn a_changed_response_fools_the_responder_of_rfc_7296_for_a_moment() {
    let mut fooled = 0;
    for scene in SCENES {
        let [request, response] = genuine(scene, DowngradePrevention::No);
        for change in change::structural(&request) {
            let got = changed(scene, DowngradePrevention::No, &request, &change, false);
            assert_eq!(got, NOTHING, "{scene:?}: {} in the request", change.name);
        }
        for change in change::structural(&response) {
            let got = changed(scene, DowngradePrevention::No, &response, &change, true);
            assert_eq!(got.established[0], 0, "{scene:?}: {} in the response", change.name);
            assert_eq!(got.left, [0, 0], "{scene:?}: {} in the response", change.name);
            fooled += got.established[1];
        }
    }
    assert!(fooled > 50, "{fooled}");
    // The same changes with downgrade prevention fool nobody.
    let [_, response] = genuine(Scene::Mixed, DowngradePrevention::Yes);
    for change in change::structural(&response) {
        let got = changed(Scene::Mixed, DowngradePrevention::Yes, &response, &change, true);
        assert_eq!(got, NOTHING, "{}", change.name);
    }
}
