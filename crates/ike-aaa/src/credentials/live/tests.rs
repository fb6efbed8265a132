use ::pki::RevokedCertificate;
use ike_proto::PeerCertificate;

use super::index::*;
use super::*;

impl Live {
    /// True if all SAs are to be judged.
    pub(in crate::credentials) fn takes_all(&self) -> bool {
        std::mem::take(&mut self.known().all)
    }
}

impl Credentials {
    /// A peer of `connection` with these paths is up.
    pub(in crate::credentials) fn has_up(&self, ike: u64, connection: &str, path: &[u8]) {
        let certificates = [certificate(path, false)].into();
        self.0.live.known().add(IkeSaId(ike), connection, certificates).tell(&self.present());
    }

    /// The SAs with revoked certificates, and how many were looked at for that.
    pub(in crate::credentials) async fn looked_at(&self) -> (Vec<IkeSaId>, usize) {
        self.0.live.known().all = true;
        let suspects = self.suspects().await;
        let verdicts = self.judge_live().await.into_iter().map(|verdict| verdict.ike);
        (verdicts.collect(), suspects.len())
    }

    /// Has lists fetched that are due.
    pub(in crate::credentials) async fn renew_now(&self) {
        self.renew_lists().await;
    }
}

fn certificate(path: &[u8], unchecked: bool) -> Arc<PeerCertificate> {
    Arc::new(PeerCertificate { subject: "CN=peer".into(), path: path.into(), unchecked })
}

/// A path of one certificate: the peer's key, 20 octets of its kind, and the serial number 7.
fn path(kind: u8) -> Vec<u8> {
    [&[0; 9][..], &[kind; 20], &[1, 7]].concat()
}

/// Fault: in `Known::forget`, leave the kinds; in `Known::moved`, judge only what ends.
#[test]
fn the_index_has_what_is_up_and_nothing_else() {
    let mut known = Known::default();
    let both = [path(1), path(2)[9..].to_vec()].concat();
    for ike in 1..=3 {
        known.add(IkeSaId(ike), "a", [certificate(&both, ike == 3)].into());
    }
    known.add(IkeSaId(4), "b", [certificate(&path(2), false)].into());
    let counts: Vec<_> = ["a", "b"].map(|name| known.connections[name]).into();
    assert_eq!((counts, known.kinds.len(), known.unchecked), (vec![3, 1], 3, 1));
    assert_eq!(known.take().0.len(), 4);
    assert_eq!(known.take(), (vec![], false), "they are judged once");
    // A rekey keeps it. A verdict may have come too late for the new SA, so that each is judged again.
    assert!(known.set(IkeSaId(1), State::Ending));
    assert!(!known.set(IkeSaId(1), State::Ending));
    known.moved(IkeSaId(1), IkeSaId(11));
    known.moved(IkeSaId(2), IkeSaId(12));
    assert_eq!(known.take(), (vec![IkeSaId(11), IkeSaId(12)], false));
    known.all = true;
    assert_eq!(known.take(), (vec![], true));
    let certificates = |most| {
        let mut all = Vec::new();
        loop {
            match known.certificates_after(all.last().copied(), most) {
                some if some.is_empty() => return all,
                some => all.extend(some),
            }
        }
    };
    assert_eq!(certificates(1), certificates(9), "in pieces of any size");
    assert_eq!(certificates(1).len(), 2);
    assert_eq!(known.connections_by_kind().values().map(Vec::len).sum::<usize>(), 3);
    for ike in [11, 12, 3, 4, 4, 99] {
        known.remove(IkeSaId(ike));
    }
    assert!(known.sas.is_empty() && known.kinds.is_empty() && known.connections.is_empty());
    assert!(known.of_certificate.is_empty());
    assert_eq!(known.unchecked, 0);
}

/// Fault: in `Known::moved`, leave `of_certificate` as it was; in `Known::forget`, leave `asks`; in `set_ask`, do
/// not ask whether an SA depends on the certificate.
#[test]
fn responders_are_asked_about_certificates_of_live_sas_alone() {
    let mut known = Known::default();
    let now = SystemTime::now();
    let record = |kind: u8| Record::of_path(&path(kind))[0];
    for (ike, kind) in [(1, 1), (2, 1), (3, 2)] {
        known.add(IkeSaId(ike), "a", [certificate(&path(kind), false)].into());
    }
    let mut unasked = known.ripe(now, 9);
    unasked.sort();
    assert_eq!(unasked, [record(1), record(2)], "each certificate once");
    assert!(known.ripe(now, 9).is_empty());
    let ask = |at: SystemTime| Some(Ask { at, pause: Duration::ZERO });
    known.set_ask(&record(1), ask(now));
    known.set_ask(&record(2), ask(now + AGAIN));
    assert_eq!((known.ripe(now, 9), known.next_ask(now)), (vec![record(1)], Some(now)));
    known.moved(IkeSaId(1), IkeSaId(11));
    assert!(known.sas_of(&record(1)).eq([2, 11].map(IkeSaId)));
    known.remove(IkeSaId(2));
    assert!(known.has(&record(1)));
    known.remove(IkeSaId(11));
    assert_eq!((known.ripe(now, 9), known.next_ask(now)), (vec![], Some(now + AGAIN)));
    known.set_ask(&record(1), ask(now));
    assert!(known.ripe(now, 9).is_empty(), "its SAs ended while a responder was asked");
    // Something else may be known about responders.
    known.set_ask(&record(2), None);
    known.look_for_responders();
    assert_eq!(known.ripe(now, 9), [record(2)]);
}

fn revoked(by: usize) -> RevokedCertificate {
    let (serial, issuer) = ("07".to_owned(), "CN=ca".to_owned());
    RevokedCertificate { serial, issuer, by: format!("list {by}") }
}

fn verdict(n: usize, by: usize) -> Verdict {
    let (ike, connection) = (IkeSaId(n as u64), Arc::from("a"));
    Verdict { ike, connection, subject: "".into(), revoked: revoked(by) }
}

fn due(spread: Duration) -> ListsDue {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    ListsDue::new(at, spread)
}

/// Fault: in `Group::is_suspicious`, take half for more than half.
#[test]
fn more_than_ten_and_more_than_half_of_a_connection_are_suspicious() {
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
    let due = due(Duration::from_secs(300));
    let kind = RecordedKind::of_path(&path(1))[0];
    let times: Vec<_> = (0..20).map(|_| Live::default().at(kind, &due)).collect();
    assert!(times.iter().all(|at| (due.at..due.at + due.spread).contains(at)));
    assert!(times.iter().any(|at| *at != times[0]), "hosts differ");
    let live = Live::default();
    assert_eq!(live.at(kind, &due), live.at(kind, &due), "one host does not");
    let long = self::due(Duration::from_secs(1 << 30));
    assert!(live.at(kind, &long) <= long.at + LONGEST_SPREAD);
}

/// An SA that is rekeyed while it waits for its end, or that comes up meanwhile, waits in the line of its list. The
/// lines of other lists are others.
///
/// Fault: in `Known::brake`, ask for no line.
#[test]
fn a_rekey_does_not_pass_the_line() {
    let mut known = Known::default();
    let group = |verdicts| Group { verdicts, of: 12 };
    let mut first = group((0..12).map(|n| verdict(n, 1)).collect());
    let line = match known.brake(&mut first, true) {
        Brake::New(line) => line,
        other => panic!("{other:?}"),
    };
    assert!(first.verdicts.is_empty());
    let mut alone = group(vec![verdict(20, 1)]);
    assert_eq!(known.brake(&mut alone, false), Brake::Line);
    assert!(alone.verdicts.is_empty());
    let mut other = group(vec![verdict(21, 2)]);
    assert_eq!(known.brake(&mut other, false), Brake::None);
    assert_eq!(other.verdicts.len(), 1);
    let ends: Vec<_> = std::iter::from_fn(|| known.next_of(&line)).map(|one| one.ike.0).collect();
    assert_eq!(ends, (0..12).chain([20]).collect::<Vec<_>>());
    let mut after = group(vec![verdict(22, 1)]);
    assert_eq!(known.brake(&mut after, false), Brake::None, "the line has ended");
}

/// Fault: in `Known::calm` or `Known::calm_others`, do nothing.
#[test]
fn there_is_another_warning_if_a_list_that_was_lifted_comes_again() {
    let mut known = Known::default();
    known.add(IkeSaId(1), "a", [certificate(&path(1), false)].into());
    assert!(known.set(IkeSaId(1), State::Warned));
    assert!(!known.set(IkeSaId(1), State::Warned));
    known.calm(&[IkeSaId(1), IkeSaId(2)]);
    assert!(known.set(IkeSaId(1), State::Warned));
    known.calm_others(&[IkeSaId(1)]);
    assert!(!known.set(IkeSaId(1), State::Warned));
    known.calm_others(&[IkeSaId(2)]);
    assert!(known.set(IkeSaId(1), State::Warned));
    known.set(IkeSaId(1), State::Ending);
    known.calm(&[IkeSaId(1)]);
    assert!(!known.set(IkeSaId(1), State::Ending), "it ends all the same");
}

/// Fault: in `Live::pause`, take `AGAIN` whatever was before.
#[test]
fn a_url_that_does_not_help_is_left_alone_for_longer_and_longer() {
    let (live, url) = (Live::default(), "http://ca/ca.crl");
    let (mut now, mut lengths) = (Instant::now(), Vec::new());
    for _ in 0..9 {
        live.pause(url, false, now);
        let from = now;
        while !live.is_free(url, now) {
            now += AGAIN;
        }
        lengths.push((now - from).as_secs());
    }
    assert_eq!(lengths, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
    assert!(live.is_free("http://ca/other.crl", now));
    live.pause(url, true, now);
    assert!(live.is_free(url, now + AGAIN));
    live.pause(url, false, now);
    live.flushed();
    assert!(live.is_free(url, now), "a flush asks again");
}
