//! `tfc_padding` and ESP_TFC_PADDING_NOT_SUPPORTED (RFC 7296 §1.3.1).

use std::time::Duration;

use ike_proto::dataplane::{Mode, TfcPadding};
use ike_tests::setup::Side;
use ike_tests::{A, B, Pair, Setup};

fn wants(side: &mut Side, mode: Mode) {
    let net = side.net();
    net.mode = mode;
    std::sync::Arc::make_mut(&mut net.processing).tfc_padding = TfcPadding::Mtu;
}

fn modes(seed: u64, a: Mode, b: Mode) -> Pair {
    let mut setup = Setup::new(seed);
    wants(&mut setup.a, a);
    wants(&mut setup.b, b);
    let mut pair = setup.build();
    pair.establish();
    pair
}

#[track_caller]
fn assert_padding(pair: &Pair, a: TfcPadding, b: TfcPadding) {
    let of = |host: &ike_tests::Host| host.child().processing.tfc_padding;
    assert_eq!((of(pair.a()), of(pair.b())), (a, b), "{}", pair.story());
}

#[test]
fn both_ends_pad_as_configured_and_go_on_after_rekeys() {
    let mut pair = modes(1, Mode::Tunnel, Mode::Tunnel);
    assert_padding(&pair, TfcPadding::Mtu, TfcPadding::Mtu);
    for end in [A, B] {
        let request = pair.rekey_child(end);
        pair.run_for(Duration::from_secs(20));
        assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
        assert_padding(&pair, TfcPadding::Mtu, TfcPadding::Mtu);
    }
}

#[test]
fn in_transport_mode_nobody_pads() {
    let pair = modes(2, Mode::Transport, Mode::Transport);
    assert_eq!(pair.a().child().mode, Mode::Transport);
    assert_padding(&pair, TfcPadding::None, TfcPadding::None);
}

/// A asks for transport mode and so takes no padding, whatever becomes of it. B has said nothing.
#[test]
fn who_takes_none_gets_none_and_may_pad() {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-1.3.1
    //= type=test
    //# If this notification is
    //# included in only one of the messages, TFC padding can still be sent
    //# in the other direction.
    let mut pair = modes(3, Mode::Transport, Mode::Tunnel);
    assert_eq!(pair.a().child().mode, Mode::Tunnel);
    assert_padding(&pair, TfcPadding::Mtu, TfcPadding::None);
    // It is said anew each time: B asks for tunnel mode, and A says nothing about it.
    let request = pair.rekey_child(B);
    pair.run_for(Duration::from_secs(20));
    assert_eq!(pair.hosts[B].done(request), Some(Ok(())), "{}", pair.story());
    assert_padding(&pair, TfcPadding::Mtu, TfcPadding::Mtu);
}
