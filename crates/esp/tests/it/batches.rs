//! Packets that are sealed and opened together, and that each of them fares as it does alone.
#![expect(clippy::unwrap_used, reason = "test code")]

use esp::{Buffer, DropReason, Fate};
use ipsec_types::dataplane::{Command, DataPlane, Event, Limits, PolicyAction, PolicyId};

use crate::common::{Pair, Tunnel, arrival, events, fragments, ts};

/// Seals `packets` in one batch: what became of each, and the ESP packets.
fn seal(pair: &mut Pair, packets: &[Vec<u8>]) -> (Vec<Result<usize, DropReason>>, Vec<Vec<u8>>) {
    let packets: Vec<&[u8]> = packets.iter().map(AsRef::as_ref).collect();
    let (mut out, mut fates, mut heard) = (Buffer::new(), Vec::new(), Vec::new());
    pair.sender.handle_batch(pair.now, &packets, &mut out, |packet, fate| {
        heard.push(packet.as_ptr());
        fates.push(match fate {
            Fate::Send(sealed) => Ok(sealed.len),
            Fate::Drop(reason) => Err(reason),
            other => panic!("{other:?}"),
        });
    });
    let given: Vec<_> = packets.iter().map(|packet| packet.as_ptr()).collect();
    assert_eq!(heard, given, "each is heard of, in order");
    let mut rest = &*out;
    let sealed = fates.iter().flatten().map(|len| {
        let (packet, others) = rest.split_at(*len);
        rest = others;
        packet.to_vec()
    });
    let sealed = sealed.collect();
    assert!(rest.is_empty());
    (fates, sealed)
}

/// Opens `packets` in one batch: what became of each, and what was in them.
fn open(pair: &mut Pair, packets: &[Vec<u8>]) -> (Vec<Result<usize, DropReason>>, Vec<Vec<u8>>) {
    let outer = pair.seal(&Tunnel::v4().packet(0)).map(|(outgoing, _)| arrival(&outgoing)).unwrap();
    let packets: Vec<&[u8]> = packets.iter().map(AsRef::as_ref).collect();
    let mut out: Vec<_> = packets.iter().map(|_| Buffer::from(&[0xee; 3][..])).collect();
    let mut results = Vec::new();
    let receiver = &mut pair.receiver;
    let count =
        receiver.handle_batch(pair.now, &outer, &packets, &mut out, |that| results.push(that));
    assert_eq!(results.len(), packets.len());
    assert!(out.iter().all(|buffer| buffer.starts_with(&[0xee; 3])));
    assert!(out[count..].iter().all(|buffer| buffer.len() == 3), "the others are as they were");
    let lens: Vec<_> = out[..count].iter().map(|buffer| buffer.len() - 3).collect();
    assert_eq!(lens, results.iter().flatten().copied().collect::<Vec<_>>());
    (results, out[..count].iter().map(|buffer| buffer[3..].to_vec()).collect())
}

#[test]
fn many_packets_of_many_lengths() {
    for esn in [false, true] {
        let mut pair = Tunnel { esn, window: 256, ..Tunnel::v4() }.connect();
        // More than a run, and lengths that need every padding.
        let packets: Vec<_> = (0..100).map(|n| Tunnel::v4().packet(n * 13)).collect();
        let (fates, sealed) = seal(&mut pair, &packets);
        assert!(fates.iter().all(Result::is_ok));
        let numbers: Vec<_> = sealed.iter().map(|esp| esp[7]).collect();
        assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
        assert_eq!(open(&mut pair, &sealed).1, packets);
        assert_eq!(pair.left.stats().sealed(), 101);
        assert_eq!(pair.right.stats().opened(), 100);
        assert_eq!(events(&mut pair.right), [Event::FirstPacket(Tunnel::v4().id())]);
        assert!(open(&mut pair, &sealed).0.iter().all(|that| *that == Err(DropReason::Replay)));
    }
}

#[test]
fn what_is_not_sealed_leaves_no_gap() {
    let mut pair = Tunnel { window: 256, ..Tunnel::v4() }.connect();
    let mut policy = Tunnel::v4().policy();
    (policy.id, policy.remote_ts) = (PolicyId(2), vec![ts("10.9.0.0/16")]);
    policy.action = PolicyAction::Drop;
    pair.left.apply(Command::InstallPolicy(Box::new(policy))).unwrap();
    let good = Tunnel::v4().packet(50);
    let mut elsewhere = good.clone();
    elsewhere[17] = 9;
    let mut nowhere = good.clone();
    nowhere[17] = 8;
    let packets = [&good, &elsewhere, &good, &nowhere, &vec![0x45; 7], &good].map(Clone::clone);
    let (fates, sealed) = seal(&mut pair, &packets);
    let reasons: Vec<_> = fates.iter().map(|fate| fate.err()).collect();
    let (drop, none) = (Some(DropReason::PolicyDrop), Some(DropReason::NoPolicy));
    assert_eq!(reasons, [None, drop, None, none, Some(DropReason::Malformed), None]);
    assert_eq!(sealed.iter().map(|esp| esp[7]).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(open(&mut pair, &sealed).1, vec![good; 3]);
    for reason in reasons.into_iter().flatten() {
        assert_eq!(pair.left.stats().dropped(reason), 1);
    }
}

/// Copies in one run pass the first check together; one of them passes the second.
#[test]
fn copies_and_forgeries_between() {
    let mut pair = Tunnel { window: 256, ..Tunnel::v4() }.connect();
    let packets: Vec<_> = (0..5).map(|n| Tunnel::v4().packet(100 + n)).collect();
    let (_, sealed) = seal(&mut pair, &packets);
    let mut forged = sealed[3].clone();
    forged[30] ^= 1;
    let mut strange = sealed[3].clone();
    strange[0] ^= 1;
    let arrived: Vec<_> = [
        &sealed[1],
        &sealed[0],
        &sealed[1],
        &forged,
        &strange,
        &sealed[0],
        &sealed[3],
        &vec![1; 5],
    ]
    .map(Clone::clone)
    .to_vec();
    let (results, opened) = open(&mut pair, &arrived);
    let reasons: Vec<_> = results.iter().map(|that| that.err()).collect();
    let expected = [
        None,
        None,
        Some(DropReason::Replay),
        Some(DropReason::Integrity),
        Some(DropReason::UnknownSpi),
        Some(DropReason::Replay),
        None,
        Some(DropReason::Truncated),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(opened, [&packets[1], &packets[0], &packets[3]].map(Clone::clone));
    assert_eq!(pair.right.stats().dropped(DropReason::Replay), 2);
    // A copy before the others in its run: what follows takes its place.
    let arrived = [&sealed[4], &sealed[4], &sealed[2]].map(Clone::clone);
    assert_eq!(open(&mut pair, &arrived).1, [&packets[4], &packets[2]].map(Clone::clone));
}

/// A limit is met to the packet, also in the middle of a batch.
#[test]
fn limits_in_a_batch() {
    let limits = Limits { soft_packets: 10, hard_packets: 20, ..Limits::default() };
    let mut pair = Tunnel { limits, window: 256, ..Tunnel::v4() }.connect();
    let packets = vec![Tunnel::v4().packet(10); 40];
    let (fates, _) = seal(&mut pair, &packets);
    let sent = fates.iter().take_while(|fate| fate.is_ok()).count();
    assert_eq!(sent, 20);
    assert!(fates[20..].iter().all(|fate| *fate == Err(DropReason::SaExpired)));
    let id = Tunnel::v4().id();
    assert_eq!(events(&mut pair.left), [Event::SoftExpire(id), Event::HardExpire(id)]);

    // The same where it is far when the batch begins: with room for what other threads may send.
    for hard in [4_096 + 200, 4_096 + 33, 8_300] {
        let limits = Limits { hard_packets: hard, ..Limits::default() };
        let mut pair = Tunnel { limits, ..Tunnel::v4() }.connect();
        let packets = vec![Tunnel::v4().packet(0); 9_000];
        let (fates, _) = seal(&mut pair, &packets);
        assert_eq!(fates.iter().flatten().count() as u64, hard);
        assert_eq!(events(&mut pair.left), [Event::HardExpire(id)]);
    }
    let bytes = Tunnel::v4().packet(0).len() as u64;
    let limits = Limits { hard_bytes: bytes * 5, ..Limits::default() };
    let mut pair = Tunnel { limits, ..Tunnel::v4() }.connect();
    let (fates, _) = seal(&mut pair, &vec![Tunnel::v4().packet(0); 9]);
    assert_eq!(fates.iter().flatten().count(), 5);
}

/// Fragments for transport mode wait within a batch as they do outside of one.
#[test]
fn fragments_in_a_batch() {
    let tunnel = Tunnel::v4().transport();
    let mut pair = tunnel.connect();
    let whole = tunnel.packet(3000);
    let pieces = fragments(&whole, 1000);
    let mut fates = Vec::new();
    let mut out = Buffer::new();
    let small = tunnel.packet(5);
    let batch: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).chain([&*small]).collect::<Vec<_>>();
    pair.sender.handle_batch(pair.now, &batch, &mut out, |_, fate| {
        fates.push(matches!(fate, Fate::Send(_)));
        assert!(matches!(fate, Fate::Send(_) | Fate::Held));
    });
    let held = pieces.len() - 1;
    assert_eq!(fates.iter().filter(|sent| !**sent).count(), held);
    assert_eq!(fates[held..], [true, true], "the last piece, and the packet behind it");
}
