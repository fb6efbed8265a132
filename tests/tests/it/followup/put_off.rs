//! The peer's chains put off what this end wants of the same SA; but not for ever.

use std::time::Duration;

use ike_proto::wire::registry::NotifyType;
use ike_proto::{Command, Failure, IkeState};

use crate::followup::stage::{
    CREATE_CHILD_SA, For, INFORMATIONAL, bench, delete, deletes_ike, follow, is,
};
use crate::followup::stage::{opened, refuse, request};

/// A peer that begins one exchange after the other and ends none: neither does an answer of its own say
/// that it puts this end off, nor does this end ask.
#[test]
fn chains_without_end_put_a_rekey_off_for_minutes_and_not_for_ever() {
    let mut bench = bench();
    let mut peer = bench.established(1007);
    opened(&mut bench, &mut peer, For::Child(2000));
    let ike = bench.host().ike().id;
    bench.world.command(0, Command::RekeyIke(ike));
    let mut ended = None;
    for minute_part in 1..60 {
        bench.world.run_for(Duration::from_secs(10));
        let sent = bench.sent();
        assert!(!sent.iter().any(|sent| is(sent, Some(CREATE_CHILD_SA), false)), "{minute_part}");
        if sent.iter().any(|sent| is(sent, Some(INFORMATIONAL), false)) {
            let (id, delete) = request(&peer, &sent, INFORMATIONAL);
            assert!(deletes_ike(&delete));
            let response = peer.seal(INFORMATIONAL, id, true, &[]);
            bench.give(&response);
            ended = Some(minute_part);
            break;
        }
        opened(&mut bench, &mut peer, For::Child(2000 + minute_part));
    }
    let ended = ended.expect("a Delete");
    assert!((30..=36).contains(&ended), "after {ended} times ten seconds");
    let reason = Failure::Peer(NotifyType::TEMPORARY_FAILURE);
    assert_eq!(bench.host().ike_downs(), [(ike, reason)]);
    bench.assert_nothing_leaked();
}

/// A rekey that was put off until the peer had made one itself is over: long after that, one that is put off
/// for the first time begins to count anew.
#[test]
fn what_is_not_wanted_any_more_is_not_put_off() {
    let mut bench = bench();
    let mut peer = bench.established(1007);
    for spi in 2001..2004 {
        let old = if spi == 2001 { 1007 } else { spi - 1 };
        let link = opened(&mut bench, &mut peer, For::Rekey(spi, old));
        let child = bench.host().child().id;
        bench.world.command(0, Command::RekeyChild(child));
        assert!(bench.sent().is_empty(), "it waits");
        assert_eq!(follow(&mut bench, &mut peer, &link), []);
        delete(&mut bench, &mut peer, old);
        bench.world.run_for(Duration::from_secs(400));
        assert!(bench.sent().is_empty());
        assert_eq!(bench.host().child().outbound.spi, spi);
    }
    assert_eq!(bench.host().ikes_in(IkeState::Established).len(), 1);
    // The clock of what is wanted still runs on.
    let link = opened(&mut bench, &mut peer, For::Child(3001));
    bench.world.command(0, Command::RekeyIke(bench.host().ike().id));
    assert_eq!(follow(&mut bench, &mut peer, &link), []);
    bench.world.run_for(Duration::from_secs(60));
    let sent = bench.sent();
    let (id, _) = request(&peer, &sent, CREATE_CHILD_SA);
    refuse(&mut bench, &mut peer, CREATE_CHILD_SA, id, NotifyType::NO_ADDITIONAL_SAS);
    assert_eq!(bench.host().ikes_in(IkeState::Established).len(), 1);
}
