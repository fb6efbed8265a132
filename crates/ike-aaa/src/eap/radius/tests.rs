use std::net::UdpSocket as StdSocket;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use ike_config::RadiusOptions;

use super::*;

fn server(name: &str, socket: &StdSocket) -> RadiusServer {
    RadiusServer {
        name: name.to_owned(),
        address: socket.local_addr().expect("an address"),
        accounting: socket.local_addr().expect("an address"),
        secret: Secret::copy_from(b"shared"),
        nas_identifier: "gw".to_owned(),
    }
}

fn session(servers: Vec<RadiusServer>) -> Session {
    let options = RadiusOptions {
        servers,
        retransmit_tries: 1,
        retransmit_timeout: Duration::from_millis(60),
        retransmit_base: 1.0,
        id_prefix: "vpn-".to_owned(),
        ..RadiusOptions::default()
    };
    let client = RadiusClient { identifier: AtomicU8::new(7), ..RadiusClient::new(options) };
    let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
    Session {
        client: Arc::new(client),
        server: None,
        connection: "site".to_owned(),
        path: Path { local: at(4500), remote: at(4501), transport: ike_proto::Transport::UdpEncap },
        identity: Vec::new(),
        known: Some(b"carol".to_vec()),
        state: Vec::new(),
        alone: false,
        method: None,
        candidates: vec![("site".to_owned(), Vec::new())],
    }
}

fn received(socket: &StdSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).expect("a socket");
    let mut buffer = [0; 4096];
    let mut all = Vec::new();
    while let Ok(len) = socket.recv(&mut buffer) {
        all.push(buffer[..len].to_vec());
    }
    all
}

#[tokio::test]
async fn every_server_is_asked_and_no_forged_answer_is_believed() {
    let bind = || StdSocket::bind("127.0.0.1:0").expect("a socket");
    let (forger, silent) = (bind(), bind());
    let servers = vec![server("forger", &forger), server("silent", &silent)];
    let answers = std::thread::spawn(move || {
        // Access-Accept to the right request, made without the secret.
        let mut buffer = [0; 4096];
        let mut requests = Vec::new();
        for _ in 0..2 {
            let (len, from) = forger.recv_from(&mut buffer).expect("a request");
            requests.push(buffer[..len].to_vec());
            let mut accept = vec![2, buffer[1], 0, 20];
            accept.extend([0; 16]);
            forger.send_to(&accept, from).expect("sent");
        }
        requests
    });
    let outcome = Box::new(session(servers)).turn(None).await;
    let EapAnswer::Failure { packet: None, why } = outcome else { panic!("{outcome:?}") };
    assert_eq!(why, "RADIUS server silent: no answer");
    let requests = answers.join().expect("no panic");
    assert_eq!(requests[0], requests[1], "the same request is sent again");
    let again = received(&silent);
    assert_eq!(again.len(), 2);
    for request in requests.iter().chain(&again) {
        assert!(request.windows(11).any(|part| part == b"\x01\x0bvpn-carol"));
        assert_eq!(request[20..22], [80, 18], "Message-Authenticator comes first");
    }
}

#[test]
fn without_user_name_the_outer_identity_counts_only_where_the_method_binds_it() {
    let accepted = |method: Option<EapType>, user: Option<&[u8]>| {
        let mut session = session(Vec::new());
        (session.method, session.identity) = (method, b"anonymous".to_vec());
        let outcome = Outcome {
            code: Code::Accept,
            eap: None,
            state: Vec::new(),
            msk: Some(Secret::new(vec![7; 64])),
            user: user.map(<[u8]>::to_vec),
            said: None,
            grants: Grants::default(),
        };
        let answer = Box::new(session).outcome(outcome);
        let EapAnswer::Success(success) = answer else { panic!("{answer:?}") };
        (success.identity, success.method)
    };
    for method in [EapType::MD5, EapType::MSCHAPV2, EapType::GTC] {
        assert_eq!(accepted(Some(method), None).0.as_deref(), Some(&b"anonymous"[..]));
    }
    for method in [Some(EapType::TLS), Some(EapType::TTLS), Some(EapType(25)), None] {
        let (identity, method_said) = accepted(method, None);
        assert_eq!(identity, None, "{method:?}");
        assert!(method_said.ends_with("unproven"), "{method_said}");
        assert_eq!(accepted(method, Some(b"carol")).0.as_deref(), Some(&b"carol"[..]));
    }
}

/// A server that accepts a peer has the key of its conversation, if the method makes one: without it anybody could
/// stand in for that peer.
///
/// Fault: in `Session::outcome`, leave out the case of `makes_key`.
#[test]
fn a_server_that_keeps_the_key_back_is_not_believed() {
    let accepted = |method: EapType, msk: Option<Secret>| {
        let mut session = session(Vec::new());
        session.method = Some(method);
        let outcome = Outcome {
            code: Code::Accept,
            eap: None,
            state: Vec::new(),
            msk,
            user: Some(b"carol".to_vec()),
            said: None,
            grants: Grants::default(),
        };
        match Box::new(session).outcome(outcome) {
            EapAnswer::Success(_) => Ok(()),
            EapAnswer::Failure { why, .. } => Err(why),
            other => panic!("{other:?}"),
        }
    };
    let key = || Some(Secret::new(vec![7; 64]));
    for method in [EapType::TLS, EapType::TTLS, EapType::MSCHAPV2, EapType(25), EapType(18)] {
        assert_eq!(accepted(method, key()), Ok(()));
        let why = accepted(method, None).expect_err("no key");
        assert!(why.contains("MS-MPPE-Send-Key"), "{why}");
    }
    for method in [EapType::MD5, EapType::GTC] {
        assert_eq!(accepted(method, None), Ok(()), "{method:?} has none");
    }
}

#[test]
fn the_first_connection_whose_groups_fit_is_taken() {
    let accepted = |groups: &[&str], candidates: &[(&str, &[&str])]| {
        let mut session = session(Vec::new());
        let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        session.candidates =
            candidates.iter().map(|(name, wanted)| (name.to_string(), texts(wanted))).collect();
        let outcome = Outcome {
            code: Code::Accept,
            eap: None,
            state: Vec::new(),
            msk: None,
            user: Some(b"carol".to_vec()),
            said: None,
            grants: Grants {
                groups: groups.iter().map(|group| group.as_bytes().to_vec()).collect(),
                ..Grants::default()
            },
        };
        match Box::new(session).outcome(outcome) {
            EapAnswer::Success(success) => {
                Ok(success.authorization.expect("what is granted").connection)
            }
            EapAnswer::Failure { packet, why } => Err((packet, why)),
            other => panic!("{other:?}"),
        }
    };
    let two: [(&str, &[&str]); 2] = [("site", &["research", "Sales"]), ("other", &["board"])];
    assert_eq!(accepted(&["sales"], &two), Ok(None));
    assert_eq!(accepted(&["x", "board"], &two), Ok(Some("other".to_owned())));
    assert_eq!(accepted(&["board", "research"], &two), Ok(None));
    assert_eq!(accepted(&[], &[two[0], ("rest", &[])]), Ok(Some("rest".to_owned())));
    let (packet, why) = accepted(&["x"], &two).expect_err("no group");
    assert_eq!(packet, None);
    assert!(why.ends_with("is in none of the `groups` of site, other"), "{why}");
}

#[tokio::test]
async fn the_peer_is_asked_who_it_is_unless_that_is_known() {
    let mut session = session(Vec::new());
    session.known = None;
    let EapAnswer::Send(request, state) = Box::new(session).turn(None).await else { panic!() };
    assert_eq!(request, [1, 0, 0, 5, 1]);
    let Some(Held::Radius(session)) = state.take().map(|held| *held) else { panic!() };
    drop(session);
    let request = [1, 0, 0, 6, 1, b'c'];
    for answer in [&[2, 0, 0, 5, 1][..], &[1, 2], &[2, 0, 0, 6, 26, 1], &request] {
        let mut session = self::session(Vec::new());
        session.known = None;
        let outcome = Box::new(session).turn(Some(answer.to_vec())).await;
        assert!(matches!(outcome, EapAnswer::Failure { packet: None, .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn responses_alone_go_to_the_server_and_nothing_behind_them() {
    let socket = StdSocket::bind("127.0.0.1:0").expect("a socket");
    let new = || {
        let mut session = session(vec![server("silent", &socket)]);
        (session.known, session.identity) = (None, b"carol".to_vec());
        Box::new(session)
    };
    for code in [1, 3, 4] {
        let outcome = new().turn(Some(vec![code, 9, 0, 6, 26, 7])).await;
        let EapAnswer::Failure { why, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(why, "EAP packet out of place");
    }
    assert!(received(&socket).is_empty());
    new().turn(Some(vec![2, 9, 0, 6, 26, 7, 0xaa, 0xbb])).await;
    let requests = received(&socket);
    assert!(requests[0].ends_with(&[79, 8, 2, 9, 0, 6, 26, 7]), "{requests:?}");
}

#[tokio::test]
async fn the_log_has_a_dead_server_once_in_a_while() {
    let session = session(Vec::new());
    let told = (0..1000).filter(|_| session.client.may_warn()).count();
    assert_eq!(told, 1);
}
