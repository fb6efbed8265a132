use super::*;
use crate::accounting::known;
use crate::radius::fake;
use ike_config::{RadiusOptions, RadiusServer};
use ike_proto::crypto::Secret;

const SECRET: &[u8] = b"dynamic";

fn radius(demanded: bool) -> RadiusClient {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    RadiusClient::new(RadiusOptions {
        servers: vec![RadiusServer {
            name: "test".to_owned(),
            address: nowhere,
            accounting: nowhere,
            secret: Secret::copy_from(b"shared"),
            nas_identifier: "gw".to_owned(),
        }],
        dae: Some(DaeConfig {
            listen: nowhere,
            secret: Secret::copy_from(SECRET),
            clients: vec![[192, 0, 2, 10].into()],
            demanded,
            stamped: false,
        }),
        ..RadiusOptions::default()
    })
}

/// A request as a server makes it; `mac` says whether with Message-Authenticator.
fn request(code: u8, attributes: &[(u8, &[u8])], mac: bool) -> Vec<u8> {
    let mut octets = vec![code, 9, 0, 0];
    octets.extend([0; 16]);
    if mac {
        octets.extend([80, 18]);
        octets.extend([0; 16]);
    }
    for (kind, value) in attributes {
        octets.extend([*kind, value.len() as u8 + 2]);
        octets.extend(*value);
    }
    fake::sign(&mut octets, SECRET);
    octets
}

/// Sessions of carol, with two devices, and dave.
fn sessions() -> Accounting {
    let (sessions, _) = Accounting::new();
    known::add(&sessions, 1, "7-1", &[(1, b"carol"), (8, &[10, 9, 0, 1]), (5, &[0, 0, 0, 1])]);
    known::add(&sessions, 2, "7-2", &[(1, b"carol"), (8, &[10, 9, 0, 2]), (5, &[0, 0, 0, 2])]);
    known::add(&sessions, 3, "7-3", &[(1, b"dave"), (8, &[10, 9, 0, 3]), (4, &[192, 0, 2, 1])]);
    sessions
}

/// Code and Error-Cause of the answer.
async fn asked(
    sessions: &Accounting,
    octets: &[u8],
    answered: &mut Answered,
) -> Option<(u8, Option<u32>)> {
    let from = SocketAddr::from(([192, 0, 2, 10], 1645));
    let answer = answer(octets, from, &radius(true), sessions, answered).await?;
    let cause = ::eap::radius::all(&answer[20..]).find(|(kind, _)| *kind == attribute::ERROR_CAUSE);
    let cause = cause.map(|(_, value)| u32::from_be_bytes(value.try_into().expect("four octets")));
    Some((answer[0], cause))
}

async fn once(sessions: &Accounting, octets: &[u8]) -> Option<(u8, Option<u32>)> {
    asked(sessions, octets, &mut Answered::default()).await
}

#[tokio::test]
async fn sessions_that_have_all_that_is_named_are_meant() {
    for (attributes, wanted) in [
        (&[(1, &b"carol"[..])][..], &["7-1", "7-2"][..]),
        (&[(1, b"carol"), (8, &[10, 9, 0, 2])], &["7-2"]),
        (&[(44, b"7-3")], &["7-3"]),
        (&[(5, &[0, 0, 0, 1])], &["7-1"]),
        (&[(32, b"gw"), (4, &[192, 0, 2, 1]), (44, b"7-1")], &["7-1"]),
        (&[(4, &[127, 0, 0, 1]), (44, b"7-1")], &["7-1"]),
        (&[(44, b"7-1"), (25, b"x"), (49, &[0, 0, 0, 6]), (18, b"bye"), (33, b"p")], &["7-1"]),
    ] {
        let sessions = sessions();
        assert_eq!(once(&sessions, &request(40, attributes, true)).await, Some((41, None)));
        assert_eq!(known::ending(&sessions), wanted, "{attributes:?}");
    }
}

#[tokio::test]
async fn what_is_not_understood_or_not_there_is_refused_and_changes_nothing() {
    let sessions = sessions();
    for (code, attributes, cause) in [
        (40, &[(1, &b"nobody"[..])][..], 503),
        (40, &[(1, b"carol"), (8, &[10, 9, 0, 3])], 503),
        (40, &[(44, b"7-1"), (44, b"7-2")], 503),
        (40, &[], 402),
        (40, &[(32, b"gw")], 402),
        (40, &[(61, &[0, 0, 0, 5])], 402),
        (40, &[(44, b"7-1"), (32, b"another")], 403),
        (40, &[(44, b"7-1"), (4, &[192, 0, 2, 77])], 403),
        (40, &[(44, b"7-1"), (4, &[192, 0, 2])], 407),
        (40, &[(44, b"7-1"), (200, b"?")], 401),
        (40, &[(44, b"7-1"), (26, &[0, 0, 1, 55, 1, 3, 0])], 401),
        (40, &[(44, b"7-1"), (27, &[0, 0, 0, 9])], 401),
        (40, &[(44, b"7-1"), (55, &[0; 3])], 407),
        (43, &[(44, b"7-1")], 402),
        (43, &[(27, &[0, 0, 0, 9])], 402),
        (43, &[(44, b"7-1"), (27, &[0, 0, 9])], 407),
        (43, &[(44, b"7-1"), (27, &[0, 0, 0, 9]), (27, &[0, 0, 0, 9])], 404),
        (43, &[(44, b"7-1"), (27, &[0, 0, 0, 9]), (25, b"x")], 401),
        (43, &[(44, b"7-1"), (27, &[0, 0, 0, 9]), (6, &[0, 0, 0, 17]), (24, b"s")], 405),
        (43, &[(44, b"7-9"), (27, &[0, 0, 0, 9])], 503),
        (43, &[(44, b"7-9"), (27, &[0, 0, 0, 9]), (24, b"s")], 503),
        (40, &[(44, b"7-1"), (24, b"s")], 401),
    ] {
        let answer = once(&sessions, &request(code, attributes, true)).await;
        assert_eq!(answer, Some((code + 2, Some(cause))), "{code} {attributes:?}");
    }
    assert!(known::ending(&sessions).is_empty());
}

#[tokio::test]
async fn what_is_not_signed_or_not_of_this_time_gets_no_answer() {
    let sessions = sessions();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as u32;
    let stamped = |by: i64| {
        let stamp = (i64::from(now) + by) as u32;
        request(40, &[(44, b"7-1"), (55, &stamp.to_be_bytes())], true)
    };
    let good = request(40, &[(44, b"7-1")], true);
    let mut forged = good.clone();
    forged[10] ^= 1;
    let without = request(40, &[(44, b"7-1")], false);
    for bad in [&forged, &without, &stamped(-3600), &stamped(3600), &good[..19].to_vec()] {
        assert_eq!(once(&sessions, bad).await, None);
    }
    assert!(known::ending(&sessions).is_empty());
    // It may be done without, where the operator says so.
    let from = SocketAddr::from(([192, 0, 2, 10], 1645));
    let lenient = radius(false);
    let mut answered = Answered::default();
    assert!(answer(&without, from, &lenient, &sessions, &mut answered).await.is_some());
    assert_eq!(known::ending(&sessions), ["7-1"]);
    // Or with a time stamp alone.
    let mut strict = radius(true);
    strict.options.dae.as_mut().expect("it is there").stamped = true;
    for (octets, wanted) in [(&good, false), (&stamped(0), true)] {
        let sessions = self::sessions();
        let taken = answer(octets, from, &strict, &sessions, &mut Answered::default()).await;
        assert_eq!((taken.is_some(), !known::ending(&sessions).is_empty()), (wanted, wanted));
    }
    // Without the section nobody is answered.
    let off = RadiusClient::new(RadiusOptions { dae: None, ..radius(true).options });
    assert!(answer(&good, from, &off, &sessions, &mut answered).await.is_none());
    assert_eq!(once(&self::sessions(), &stamped(-60)).await, Some((41, None)));
}

#[tokio::test]
async fn a_request_that_comes_again_has_the_same_answer_and_is_not_carried_out_again() {
    let first = sessions();
    let mut answered = Answered::default();
    let octets = request(40, &[(1, b"carol")], true);
    assert_eq!(asked(&first, &octets, &mut answered).await, Some((41, None)));
    let second = sessions();
    assert_eq!(asked(&second, &octets, &mut answered).await, Some((41, None)));
    assert!(known::ending(&second).is_empty());
    let other = request(40, &[(1, b"dave")], true);
    assert_eq!(asked(&second, &other, &mut answered).await, Some((41, None)));
    assert_eq!(known::ending(&second), ["7-3"]);
}

/// What was taken is known for as long as its time stamp is good, however many come after it.
#[tokio::test]
async fn a_request_is_not_forgotten_for_others() {
    let mut answered = Answered::default();
    let octets = request(40, &[(1, b"carol")], true);
    assert_eq!(asked(&sessions(), &octets, &mut answered).await, Some((41, None)));
    let authenticator = |n: usize| (n as u128).to_be_bytes();
    (1..REMEMBERED).for_each(|n| answered.remember(authenticator(n), Vec::new(), WINDOW));
    let later = sessions();
    assert_eq!(asked(&later, &request(40, &[(1, b"dave")], true), &mut answered).await, None);
    assert_eq!(asked(&later, &octets, &mut answered).await, Some((41, None)));
    assert!(known::ending(&later).is_empty());
    // What is over makes room.
    answered.remember(authenticator(1), Vec::new(), Duration::ZERO);
    let dave = request(40, &[(1, b"dave")], true);
    assert_eq!(asked(&later, &dave, &mut answered).await, Some((41, None)));
    assert_eq!(known::ending(&later), ["7-3"]);
}

/// The secret is not all: requests come from servers, or from clients that the configuration names.
///
/// Fault: in `is_known`, answer true.
#[tokio::test]
async fn a_request_from_elsewhere_gets_no_answer_and_changes_nothing() {
    let (sessions, config) = (sessions(), radius(true));
    let octets = request(40, &[(44, b"7-2")], true);
    let from = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), 3799);
    for ip in ["192.0.2.11", "::1", "2001:db8::1"] {
        let mut answered = Answered::default();
        let answer = answer(&octets, from(ip), &config, &sessions, &mut answered).await;
        assert_eq!(answer, None, "{ip}");
    }
    assert!(known::ending(&sessions).is_empty());
    for ip in ["192.0.2.10", "127.0.0.1", "::ffff:127.0.0.1"] {
        let mut answered = Answered::default();
        let answer = answer(&octets, from(ip), &config, &sessions, &mut answered).await;
        assert!(answer.is_some(), "{ip}");
    }
}

#[tokio::test]
async fn the_socket_answers_servers() {
    let socket = DaeSocket::bind(([127, 0, 0, 1], 0).into()).expect("a socket");
    let at = socket.address().expect("an address");
    let taken = DaeSocket::bind(at).expect_err("it is taken").to_string();
    assert!(taken.contains("eap-radius.dae at 127.0.0.1:"), "{taken}");
    let config = Arc::new(radius(true));
    let sessions = sessions();
    let task = tokio::spawn(socket.serve(move || Some(Arc::clone(&config)), sessions.clone()));
    let server = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    server.send_to(b"nonsense", at).await.expect("sent");
    server.send_to(&request(40, &[(44, b"7-2")], true), at).await.expect("sent");
    let mut buffer = [0; 4096];
    let (len, from) = server.recv_from(&mut buffer).await.expect("an answer");
    assert_eq!((buffer[0], buffer[1], from), (41, 9, at));
    assert!(len >= 38);
    assert_eq!(known::ending(&sessions), ["7-2"]);
    task.abort();
}
