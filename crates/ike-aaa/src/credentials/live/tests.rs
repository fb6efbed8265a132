use super::*;

fn certificate(path: &[u8], unchecked: bool) -> Arc<PeerCertificate> {
    Arc::new(PeerCertificate { subject: "CN=peer".into(), path: path.into(), unchecked })
}

/// A path of one certificate: the anchor, 20 octets of its kind, and the serial number 7.
fn path(kind: u8) -> Vec<u8> {
    [&[0; 8][..], &[kind; 20], &[1, 7]].concat()
}

/// Fault: in `Known::forget`, leave the kinds; in `Known::moved`, judge only what ends.
#[test]
fn the_index_has_what_is_up_and_nothing_else() {
    let mut known = Known::default();
    let both = [path(1), path(2)[8..].to_vec()].concat();
    for ike in 1..=3 {
        known.add(IkeSaId(ike), "a", [certificate(&both, ike == 3)].into());
    }
    known.add(IkeSaId(4), "b", [certificate(&path(1), false)].into());
    let counts: Vec<_> = ["a", "b"].map(|name| known.connections[name]).into();
    assert_eq!((counts, known.kinds.len(), known.unchecked), (vec![3, 1], 3, 1));
    assert_eq!(known.take().len(), 4);
    assert!(known.take().is_empty(), "they are judged once");
    // A rekey keeps it. A verdict may have come too late for the new SA, so that each is judged again.
    assert!(known.set(IkeSaId(1), State::Ending));
    assert!(!known.set(IkeSaId(1), State::Ending));
    known.moved(IkeSaId(1), IkeSaId(11));
    known.moved(IkeSaId(2), IkeSaId(12));
    let fresh: Vec<_> = known.take().into_iter().map(|(ike, ..)| ike).collect();
    assert_eq!(fresh, [IkeSaId(11), IkeSaId(12)]);
    known.all = true;
    assert_eq!(known.take().len(), 4);
    for ike in [11, 12, 3, 4, 4, 99] {
        known.remove(IkeSaId(ike));
    }
    assert!(known.sas.is_empty() && known.kinds.is_empty() && known.connections.is_empty());
    assert_eq!(known.unchecked, 0);
}

/// Fault: in `Group::is_suspicious`, take half for more than half.
#[test]
fn more_than_ten_and_more_than_half_of_a_connection_are_suspicious() {
    let revoked = |n: usize| RevokedCertificate {
        serial: "07".to_owned(),
        issuer: "CN=ca".to_owned(),
        by: format!("list {n}"),
    };
    let verdict = |n: usize, by: usize| Verdict {
        ike: IkeSaId(n as u64),
        connection: Arc::from("a"),
        subject: "".into(),
        revoked: revoked(by),
    };
    for (ends, of, suspicious) in
        [(10, 10, false), (11, 11, true), (11, 21, true), (11, 22, false), (500, 1000, false)]
    {
        let verdicts = (0..ends).map(|n| verdict(n, 1)).collect();
        assert_eq!(Group { verdicts, of }.is_suspicious(), suspicious, "{ends} of {of}");
    }
    // Each list is judged by itself.
    let mut known = Known::default();
    for n in 0..12 {
        known.add(IkeSaId(n), "a", [certificate(&path(1), false)].into());
    }
    let mut groups = known.grouped((0..12).map(|n| verdict(n, n % 2)).collect());
    groups.retain(|group| group.of == 12 && group.verdicts.len() == 6);
    assert_eq!(groups.len(), 2);
}

/// The octets of the index for each SA, beside the certificate's text and path, which it shares with the engine. A name
/// of a connection is there once for all of its SAs.
///
/// Fault: in `Sa`, keep the name of the connection as a `String`.
#[test]
fn an_sa_takes_few_octets_of_the_index() {
    let entry = size_of::<(IkeSaId, Sa)>();
    let pointer = size_of::<Arc<PeerCertificate>>();
    assert_eq!((entry, pointer), (48, 8));
}

/// Fault: in `Live::at`, leave the spread out.
#[test]
fn fetches_are_spread_after_the_next_update() {
    let due = (SystemTime::UNIX_EPOCH, Duration::from_secs(300));
    let kind = RecordedKind::of_path(&path(1))[0];
    let times: Vec<_> = (0..20).map(|_| Live::default().at(kind, due)).collect();
    assert!(times.iter().all(|at| (due.0..due.0 + due.1).contains(at)));
    assert!(times.iter().any(|at| *at != times[0]), "hosts differ");
    let live = Live::default();
    assert_eq!(live.at(kind, due), live.at(kind, due), "one host does not");
    let long = (due.0, Duration::from_secs(1 << 30));
    assert!(live.at(kind, long) <= due.0 + LONGEST_SPREAD);
}
