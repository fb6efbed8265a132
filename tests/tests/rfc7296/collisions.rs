//! §2.25: what a peer that says "not now" is believed.

use std::time::Duration;

use ike_proto::wire::payload::{Delete, Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, decode_payloads};
use ike_proto::{Command, Failure};
use ike_tests::bench::Bench;
use ike_tests::handmade::Handmade;

/// Answers every CREATE_CHILD_SA request of the endpoint for so many seconds. Returns how many came, and
/// the first request that is another.
fn put_off(bench: &mut Bench, peer: &mut Handmade, seconds: u64) -> (u32, Option<Vec<u8>>) {
    let later = [Payload::Notify(Notify::new(NotifyType::TEMPORARY_FAILURE, &[]))];
    let mut asked = 0;
    for _ in 0..seconds {
        let mut requests = bench.sent();
        while let Some(request) = requests.pop() {
            let header = Message::decode(&request).unwrap().header;
            if header.exchange != ExchangeType::CREATE_CHILD_SA {
                return (asked, Some(request));
            }
            asked += 1;
            requests = bench.give(&peer.seal(header.exchange, header.message_id, true, &later));
        }
        bench.world.run_for(Duration::from_secs(1));
    }
    (asked, None)
}

#[test]
fn s2_25_temporary_failure_for_minutes_ends_the_ike_sa() {
    let commands: [fn(&Bench) -> Command; 2] = [
        |bench| Command::RekeyIke(bench.host().ike().id),
        |bench| Command::RekeyChild(bench.host().child().id),
    ];
    for command in commands {
        let mut bench = Bench::new();
        let mut peer = bench.established(1007);
        let command = command(&bench);
        bench.world.command(0, command);
        let (asked, other) = put_off(&mut bench, &mut peer, 240);
        assert_eq!(other, None, "not yet");
        assert!((10..=150).contains(&asked), "again, but not at once: {asked}");
        let (_, other) = put_off(&mut bench, &mut peer, 120);
        let opened = peer.open(&other.expect("a Delete")).unwrap();
        let payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap();
        assert_eq!(payloads, [Payload::Delete(Delete::ike())]);
        let id = bench.host().ikes()[0].id;
        // The last request of the endpoint is the Delete.
        for message_id in 0..200 {
            bench.give(&peer.seal(ExchangeType::INFORMATIONAL, message_id, true, &[]));
        }
        let reason = Failure::Peer(NotifyType::TEMPORARY_FAILURE);
        assert_eq!(bench.host().ike_downs(), [(id, reason)]);
        bench.assert_nothing_leaked();
    }
}

/// One answer in between, and the minutes begin anew.
#[test]
fn s2_25_temporary_failure_now_and_then_ends_nothing() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let refused = [Payload::Notify(Notify::new(NotifyType::NO_ADDITIONAL_SAS, &[]))];
    for _ in 0..4 {
        let child = bench.host().child().id;
        bench.world.command(0, Command::RekeyChild(child));
        let (_, other) = put_off(&mut bench, &mut peer, 200);
        assert_eq!(other, None);
        bench.world.run_for(Duration::from_secs(60));
        for request in bench.sent() {
            let header = Message::decode(&request).unwrap().header;
            bench.give(&peer.seal(header.exchange, header.message_id, true, &refused));
        }
    }
    bench.host().ike();
}

/// The peer puts off what it then makes needless itself, and does so again hours later.
#[test]
fn s2_25_temporary_failure_hours_apart_ends_nothing() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let child = bench.host().child().id;
    bench.world.command(0, Command::RekeyChild(child));
    assert_eq!(put_off(&mut bench, &mut peer, 2), (1, None));
    let delete = [Payload::Delete(Delete::esp(vec![1007]))];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &delete);
    bench.give(&request);
    assert_eq!(put_off(&mut bench, &mut peer, 1200), (0, None), "there is nothing to rekey");
    let ike = bench.host().ike().id;
    bench.world.command(0, Command::RekeyIke(ike));
    assert_eq!(put_off(&mut bench, &mut peer, 2), (1, None), "it is not over for that");
    assert_eq!(bench.host().ike().id, ike);
}
