//! Class 7: INVALID_KE_PAYLOAD that asks for a key exchange method this end never offered. It would be a downgrade to
//! whatever the peer, or for IKE_SA_INIT anybody, likes.

use std::time::Duration;

use ike_proto::Command;
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, PayloadType};
use ike_proto::wire::{Flags, Header, Message, decode_payloads, encode_message};
use ike_tests::bench::Bench;
use ike_tests::handmade::Handmade;
use ike_tests::setup::side;

const SPI: u32 = 0x1000;

/// An endpoint that offers these methods, for the IKE SA and its children. It can do more than it offers.
fn offering(methods: &str) -> Bench {
    let mut side = side(1, 2);
    side.ike_proposals(&[&format!("aes256gcm16-prfsha256-{methods}")]);
    side.esp_proposals(&[&format!("aes256gcm16-{methods}")]);
    Bench::with(side)
}

/// Every method that the endpoint can do, and some that it cannot.
fn methods() -> Vec<KeMethodId> {
    let crypto = ike_tests::cheap::provider();
    let able = crypto.ke.iter().map(|method| method.id());
    able.chain([0, 1, 2, 5, 35, 1024, 65535].map(KeMethodId)).collect()
}

/// The method of the key exchange in `payloads`.
fn method_in(payloads: &[Payload<'_>]) -> Option<KeMethodId> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Ke(ke) => Some(ke.method),
        _ => None,
    })
}

/// The same of a request that is sealed for `peer`.
fn method_of(peer: &Handmade, request: &[u8]) -> Option<KeMethodId> {
    let opened = peer.open(request).expect("sealed for the peer");
    method_in(&decode_payloads(opened.first, &opened.octets, 0).expect("payloads"))
}

/// Fault: in `Attempt::on_init_response` (endpoint/attempt.rs), let `offered` be true.
#[test]
fn class_07_ike_sa_init_is_not_begun_again_with_a_method_never_offered() {
    for method in methods() {
        for (offered, known) in [("x25519", false), ("x25519-ecp256", true)] {
            let mut bench = offering(offered);
            let (_, request) = bench.initiate();
            let header = Header {
                next_payload: PayloadType::NONE,
                flags: Flags { initiator: false, version: false, response: true },
                ..Header::decode(&request).expect("a request")
            };
            let data = method.0.to_be_bytes();
            let refusal = Payload::Notify(Notify::new(NotifyType::INVALID_KE_PAYLOAD, &data));
            let sent = bench.give(&encode_message(&header, &[refusal]));
            let follows = known && method == KeMethodId::ECP_256;
            assert_eq!(sent.len(), usize::from(follows), "{method:?} of {offered}");
            for request in sent {
                let message = Message::decode(&request).expect("a request");
                assert_eq!(method_in(&message.payloads), Some(method));
            }
        }
    }
}

/// Fault: in `RequestedChild::other_method` and `Established::on_rekey_ike_error`
/// (exchange/rekey_ike.rs), leave out `usable_methods`.
#[test]
fn class_07_no_rekey_is_begun_again_with_a_method_never_offered() {
    type Rekey = fn(&Bench) -> Command;
    let commands: [(&str, Rekey); 2] = [
        ("the IKE SA", |bench| Command::RekeyIke(bench.host().ike().id)),
        ("a child", |bench| Command::RekeyChild(bench.host().child().id)),
    ];
    for (what, command) in commands {
        for method in methods() {
            for (offered, known) in [("x25519", false), ("x25519-ecp256", true)] {
                let mut bench = offering(offered);
                let mut peer = bench.answered(SPI);
                let command = command(&bench);
                bench.world.command(0, command);
                let sent = bench.sent();
                assert_eq!(method_of(&peer, &sent[0]), Some(KeMethodId::CURVE_25519));
                let data = method.0.to_be_bytes();
                let refusal = [Payload::Notify(Notify::new(NotifyType::INVALID_KE_PAYLOAD, &data))];
                let response = peer.seal(ExchangeType::CREATE_CHILD_SA, 2, true, &refusal);
                let mut sent = bench.give(&response);
                bench.world.run_for(Duration::from_secs(1));
                sent.extend(bench.sent());
                let asked: Vec<_> = sent.iter().filter_map(|sent| method_of(&peer, sent)).collect();
                let wanted = (known && method == KeMethodId::ECP_256).then_some(method);
                assert!(asked.iter().all(|asked| Some(*asked) == wanted), "{what}: {asked:?}");
                assert_eq!(asked.is_empty(), wanted.is_none(), "{what}: {method:?} of {offered}");
            }
        }
    }
}
