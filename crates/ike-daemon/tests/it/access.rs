//! What a reload takes from peers whose IKE SAs are up, by the files of this end.

use std::fs;

use ike_control::views::IkeSa;
use ike_daemon::config::{self, Config};

use crate::certificates::{Sides, net};
use crate::common::{Pair, list, until};
use crate::pki::done;

const KIND: &str = "ed25519";

fn read(sides: &Sides, side: &str, port: u16, remote: &str) -> Config {
    let text = sides.text(side, port, remote);
    config::parse(&text, &sides.folder(side)).unwrap_or_else(|m| panic!("{text}\n{m:#?}"))
}

/// A pair that is up. The right one has these options for the left one.
async fn up(sides: &Sides, remote: &str) -> Pair {
    let pair = Pair::configured(|side, port| {
        read(sides, side, port, if side == "right" { remote } else { "" })
    })
    .await;
    pair.left.operator().up(&net()).await.expect("it comes up");
    until(&pair.right, "responder", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
    pair
}

/// The right one reads its files again, with these options for the left one.
async fn reload(pair: &Pair, sides: &Sides, remote: &str) -> Vec<String> {
    let config = read(sides, "right", pair.left.ports().nat_t, remote);
    pair.right.reload(config).await.expect("a reload")
}

fn spis(sas: &[IkeSa]) -> Vec<String> {
    sas.iter().map(|sa| sa.initiator_spi.clone()).collect()
}

/// An IKE SA ends with the key of its peer in `pubkeys` or `certs`, or with the certificate there. It stays if another key for
/// the same identity is there, and if a CA is removed that a key in `certs` does not need.
///
/// Faults, each by itself: in `TrustedPeer::shown`, keep nothing of raw keys; in `Judged::trust`, do not ask `needs_no_ca`.
#[tokio::test]
async fn an_ike_sa_ends_with_the_key_of_its_peer_in_pubkeys_or_certs() {
    let sides = Sides::new("access-pins", KIND, "");
    let right = sides.folder("right");
    fs::create_dir_all(right.join("pubkey")).expect("a folder");
    done(&sides.0, "--pub --in left/private/own.key --out right/pubkey/left.pub");
    done(&sides.0, "--pub --in right/private/own.key --out right/pubkey/other.pub");
    fs::copy(sides.folder("left").join("x509/own.pem"), right.join("x509/left.pem"))
        .expect("a copy");
    for (remote, removes_ca, kept, removed) in [
        ("pubkeys = 'left.pub'", false, "pubkeys = 'other.pub'", ""),
        (
            "pubkeys = 'left.pub'",
            true,
            "pubkeys = ['other.pub', 'left.pub']",
            "certs = \"own.pem\"",
        ),
        ("certs = 'left.pem'", true, "certs = ['left.pem', 'own.pem']", "certs = \"own.pem\""),
    ] {
        let pair = up(&sides, remote).await;
        let before = list(&pair.right).await;
        let (ca, aside) = (right.join("x509ca/ca.pem"), right.join("ca.pem"));
        if removes_ca {
            fs::rename(&ca, &aside).expect("a CA");
        }
        reload(&pair, &sides, kept).await;
        assert_eq!(spis(&list(&pair.right).await), spis(&before), "{remote}");
        let said = reload(&pair, &sides, removed).await;
        assert!(list(&pair.right).await.is_empty(), "{remote}");
        let why = "the key that authenticated its peer was removed from `certs` or `pubkeys`";
        assert!(said.iter().any(|line| line.contains(why)), "{:?}", said);
        until(&pair.left, "nothing", <[_]>::is_empty).await;
        if removes_ca {
            fs::rename(&aside, &ca).expect("a CA");
        }
    }
}
