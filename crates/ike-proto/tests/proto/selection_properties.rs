//! Properties of narrowing and of selection, over generated values.

use std::net::IpAddr;

use ike_proto::child::selectors::narrow;
use ike_proto::config::ProposalConfig;
use ike_proto::config::proposal::{SelectOptions, accept, select};
use ike_proto::wire::payload::{Proposal, Sa, Spi, TrafficSelector, Transform};
use ike_proto::wire::registry::{KeMethodId, ProtocolId, TransformType};
use proptest::collection::vec;
use proptest::prelude::*;

fn address() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[a, b]| (a.min(b).into(), a.max(b).into())),
        any::<[[u8; 16]; 2]>().prop_map(|[a, b]| (a.min(b).into(), a.max(b).into())),
        (any::<[u8; 4]>(), 0_u8..=32).prop_map(|(a, len)| {
            let ts = TrafficSelector::from_cidr(a.into(), len).unwrap();
            (ts.start, ts.end)
        }),
        (any::<[u8; 16]>(), 0_u8..=128).prop_map(|(a, len)| {
            let ts = TrafficSelector::from_cidr(a.into(), len).unwrap();
            (ts.start, ts.end)
        }),
    ]
}

fn selector() -> impl Strategy<Value = TrafficSelector> {
    let ports = prop_oneof![
        Just((0, u16::MAX)),
        Just((u16::MAX, 0)),
        any::<[u16; 2]>().prop_map(|[a, b]| (a.min(b), a.max(b))),
    ];
    let protocol = prop_oneof![Just(0), Just(1), Just(6), Just(17), Just(58), any::<u8>()];
    (protocol, ports, address()).prop_map(|(protocol, (start_port, end_port), (start, end))| {
        TrafficSelector { protocol, start_port, end_port, start, end }
    })
}

proptest! {
    #[test]
    fn narrowing_stays_within_both_and_loses_nothing(
        ours in vec(selector(), 0..6),
        theirs in vec(selector(), 0..6),
    ) {
        let narrowed = narrow(&ours, &theirs);
        for ts in &narrowed {
            prop_assert!(ours.iter().any(|o| o.contains(ts)));
            prop_assert!(theirs.iter().any(|t| t.contains(ts)));
            let holders = narrowed.iter().filter(|other| other.contains(ts)).count();
            prop_assert_eq!(holders, 1, "{:?} lies within another", ts);
        }
        for common in ours.iter().flat_map(|o| theirs.iter().filter_map(|t| o.intersect(t))) {
            prop_assert!(narrowed.iter().any(|ts| ts.contains(&common)));
        }
        if let Some(first) = theirs.first().filter(|f| ours.iter().any(|o| o.contains(f))) {
            prop_assert!(narrowed[0].contains(first));
        }
    }

    /// Whatever a peer offers, what is selected answers one of its proposals with what it offered.
    #[test]
    fn selection_is_out_of_the_offer(
        mut proposals in vec(plausible_proposal(), 1..5),
        first in 0_u8..252,
        ignore_ke: bool,
    ) {
        // By its number, the proposal that was selected is found again below.
        for (proposal, number) in proposals.iter_mut().zip(first..) {
            proposal.number = number;
        }
        let offer = Sa { proposals };
        let ours = [
            ProposalConfig::parse(ProtocolId::IKE, "aes256gcm16-prfsha256-x25519-ecp256-ke1_mlkem768"),
            ProposalConfig::parse(ProtocolId::IKE, "aes256-sha256-x25519-ecp256"),
            ProposalConfig::parse(ProtocolId::ESP, "aes256gcm16-x25519-none-ke1_x25519-ke1_none-esn"),
        ]
        .map(Result::unwrap);
        let options = SelectOptions { intermediate: true, ignore_ke, ..SelectOptions::default() };
        let Some(selected) = select(&ours, &offer, options) else { return Ok(()) };
        let chosen = offer.proposals.iter().find(|p| {
            p.number == selected.number && selected.transforms.iter().all(|t| p.transforms.contains(t))
        });
        let chosen = chosen.unwrap();
        for kind in chosen.transforms.iter().map(|t| t.kind) {
            let count = selected.transforms.iter().filter(|t| t.kind == kind).count();
            prop_assert_eq!(count, usize::from(!(ignore_ke && kind.is_ke())));
        }
        let answer = Sa { proposals: vec![selected.to_wire(selected.spi)] };
        if !ignore_ke {
            let accepted = accept(std::slice::from_ref(chosen), &answer);
            prop_assert_eq!(accepted, Ok(selected));
        }
    }
}

/// Proposals made of the right transforms, too many, too few or out of place.
fn plausible_proposal() -> impl Strategy<Value = Proposal> {
    let mut pool = [
        "aes256gcm16-aes128gcm16-prfsha256-prfsha384-x25519-ecp256-ke1_mlkem768-ke1_x25519-ke1_none",
        "aes256-aes128-sha256-sha384-x25519-modp2048",
    ]
    .map(|text| ProposalConfig::parse(ProtocolId::IKE, text).unwrap().transforms)
    .concat();
    pool.extend([Transform::esn(true), Transform::esn(false), Transform::ke(KeMethodId::NONE)]);
    pool.push(Transform::new(TransformType::INTEG, 0));
    let spi = prop_oneof![Just((ProtocolId::IKE, Spi::None)), Just((ProtocolId::ESP, Spi::Esp(7)))];
    let count = pool.len();
    (spi, prop::sample::subsequence(pool, 0..=count).prop_shuffle())
        .prop_map(|((protocol, spi), transforms)| Proposal { number: 0, protocol, spi, transforms })
}
