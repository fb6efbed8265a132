//! A client that was told to go in IKE_AUTH, and stays.

use ike_proto::wire::decode_payloads;
use ike_proto::wire::payload::{Config, ConfigAttribute, Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{CfgAttribute, CfgType, KeMethodId, NotifyType, ProtocolId};
use ike_proto::{Answer, Event, Lease, LeaseRequest};
use ike_tests::bench::{Bench, PSK, auth_payloads, net};
use ike_tests::handmade::{ESP, Handmade, IKE, notifies, proposal};
use ike_tests::setup::{identity, side};

use super::*;

fn told(bench: &mut Bench, peer: &mut Handmade, payloads: &[Payload<'_>]) -> Vec<NotifyType> {
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, payloads);
    let sent = bench.give(&request);
    notifies(&peer.open(&sent[0]).expect("an answer"))
}

#[test]
fn who_stays_has_nothing_to_stay_for() {
    let mut side = side(1, 2);
    side.settings.redirect = RedirectPolicy { in_auth: true, ..to(&[3]) };
    side.connection.pools = vec!["pool".to_owned()];
    let mut bench = Bench::with(side);
    bench.world.hosts[0].leaser = Some(Box::new(|request: &LeaseRequest| {
        let addresses = vec![[10, 9, 0, 1].into()];
        Answer::Leased(request.clone(), Lease { addresses, attributes: Vec::new() })
    }));
    let mut started = bench.start();
    let mut payloads = started.payloads();
    payloads.push(Payload::Notify(Notify::new(NotifyType::REDIRECT_SUPPORTED, &[])));
    started.request = started.encode(&payloads);
    let sent = bench.give(&started.request);
    let mut peer = started.finish(&sent[0]).expect("an SA in the response");

    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, true);
    let attributes = vec![ConfigAttribute { kind: CfgAttribute::INTERNAL_IP4_ADDRESS, value: &[] }];
    payloads.push(Payload::Config(Config { kind: CfgType::REQUEST, attributes }));
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let sent = bench.give(&request);
    let opened = peer.open(&sent[0]).expect("an answer");
    assert_eq!(notifies(&opened), [NotifyType::REDIRECT]);
    let answer = decode_payloads(opened.first, &opened.octets, 0).expect("payloads");
    let given = |payload: &Payload<'_>| matches!(payload, Payload::Config(_) | Payload::Sa(_));
    assert!(!answer.iter().any(given), "{answer:?}");
    let back = |event: &Event| match event {
        Event::Unassigned(assignment) => Some(assignment.addresses.clone()),
        _ => None,
    };
    let address: std::net::IpAddr = [10, 9, 0, 1].into();
    assert_eq!(bench.host().events(back), [[address]]);
    assert_eq!(bench.host().ike().assignment, None);

    let none = [NotifyType::NO_ADDITIONAL_SAS];
    let child = [
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(2000))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![net(2)]),
        Payload::TsR(vec![net(1)]),
    ];
    assert_eq!(told(&mut bench, &mut peer, &child), none);
    let rekey = [
        Payload::Sa(proposal(ProtocolId::IKE, IKE, Spi::Ike(9))),
        Payload::Nonce(&[7; 32]),
        Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &[9; 32] }),
    ];
    assert_eq!(told(&mut bench, &mut peer, &rekey), none);
    assert!(bench.host().children_up().is_empty());
    bench.world.run_for(31 * SECOND);
    assert!(bench.host().ikes_in(IkeState::Established).is_empty(), "its time is over");
}
