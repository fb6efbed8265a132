//! Quick crash detection (RFC 6290): hosts that lose their IKE SAs, and peers that find out.

mod attacks;
mod coming;
mod rekeys;
mod shards;
mod unknown_spi;

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{Action, QcdConfig, TcpUse, TicketKey};
use ike_proto::crypto::Secret;
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType, ProtocolId};
use ike_proto::wire::{Flags, Header, Message, encode_message};
use ike_proto::{Event, Failure, IkeState, Transport};
use ike_tests::network::Packet;
use ike_tests::plane::Plane;
use ike_tests::{A, B, Pair, Setup, cheap};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Secrets of so many generations, of the host with this number; the newest is the `first`.
fn secrets(host: u8, first: u8, generations: u8) -> QcdConfig {
    let secret = |n| Secret::new(vec![host ^ n; 32]);
    let secrets = (0..generations).map(|n| secret((first - n) * 16)).collect::<Vec<_>>();
    QcdConfig { secrets: Arc::from(secrets), quiet: Duration::ZERO }
}

/// Two ends that make tokens, ask after each other every ten seconds and begin anew when the other is gone.
fn setup(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.settings.qcd = secrets(1, 4, 1);
    setup.b.settings.qcd = secrets(2, 4, 1);
    setup.both(|side| {
        side.connection.dpd_delay = 10 * SECOND;
        side.net().dpd_action = Action::Start;
    });
    setup
}

fn established(setup: Setup) -> Pair {
    let mut pair = setup.build();
    pair.establish();
    pair
}

/// All that a host knew is gone, its kernel's SAs as well.
fn crash(pair: &mut Pair, host: usize) {
    pair.restart(host, cheap::provider());
    pair.hosts[host].plane = Plane::new();
}

/// The tokens in an unprotected message.
fn tokens(packet: &Packet) -> Vec<Vec<u8>> {
    let Ok(message) = Message::decode(&packet.octets) else { return Vec::new() };
    let token = |payload: &Payload<'_>| match payload {
        Payload::Notify(Notify { kind: NotifyType::QUICK_CRASH_DETECTION, data, .. }) => {
            Some(data.to_vec())
        }
        _ => None,
    };
    message.payloads.iter().filter_map(token).collect()
}

/// What `host` has sent with tokens in it.
fn given(pair: &Pair, host: usize) -> Vec<Packet> {
    let all = pair.net.trace.iter().filter(|packet| packet.from == Some(host));
    all.filter(|packet| !tokens(packet).is_empty()).cloned().collect()
}

/// The header of a request to a responder.
fn request(spi_i: u64, spi_r: u64) -> Header {
    Header {
        spi_i,
        spi_r,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 1000,
        length: 0,
    }
}

/// A message with this header and an SK payload of nothing in particular.
fn sealed(header: &Header) -> Vec<u8> {
    let mut octets = encode_message(header, &[]);
    octets[16] = 46;
    octets.extend([0, 0, 0, 44]);
    octets.extend([0x77; 40]);
    octets[24..28].copy_from_slice(&72_u32.to_be_bytes());
    octets
}

/// How often `host` has found that its peer has lost an SA.
fn found(pair: &Pair, host: usize) -> usize {
    pair.hosts[host].ike_downs().iter().filter(|(_, why)| *why == Failure::LostByPeer).count()
}

/// Runs until `host` has found that its peer has lost their SA; how long after it last asked.
#[track_caller]
fn find(pair: &mut Pair, host: usize) -> Duration {
    let there = pair.run_until(MINUTE, |w| {
        w.hosts[host].ike_downs().iter().any(|(_, why)| *why == Failure::LostByPeer)
    });
    assert!(there, "{}", pair.story());
    let asked = |p: &&Packet| p.from == Some(host) && p.is(ExchangeType::INFORMATIONAL, false);
    let asked = pair.net.trace.iter().rev().find(asked).expect("it asked").sent;
    pair.now() - asked
}

#[test]
fn a_crash_is_found_within_a_round_trip() {
    for (crashed, other) in [(B, A), (A, B)] {
        let mut pair = established(setup(1));
        let ike = pair.ike_id(other);
        crash(&mut pair, crashed);
        let took = find(&mut pair, other);
        assert_eq!(took, Duration::from_millis(20), "the way there and back");
        pair.run_for(SECOND);
        assert_ne!(pair.ike_id(other), ike);
        assert_eq!(pair.hosts[crashed].children_up().len(), 1, "{}", pair.story());
        pair.assert_agreement();
        let told = pair.hosts[crashed].events(|event| match event {
            Event::TokenGiven { path } => Some(*path),
            _ => None,
        });
        assert_eq!(told.len(), 1);
        assert_eq!(pair.hosts[other].child_downs()[0].1, Failure::LostByPeer);
    }
}

/// RFC 6290 §7: one finds out by a token, and goes on by a ticket.
#[test]
fn who_learns_by_a_token_resumes_by_a_ticket() {
    let mut setup = setup(19);
    setup.both(|side| side.connection.session_resumption = true);
    let key = TicketKey { id: [1; 8], secret: Secret::new(vec![1; 32]) };
    setup.b.settings.resumption.keys = [Arc::new(key)].into();
    setup.b.net().dpd_action = Action::None;
    let mut pair = established(setup);
    crash(&mut pair, B);
    assert!(find(&mut pair, A) < SECOND);
    let up = pair.run_until(MINUTE, |w| !w.hosts[A].ikes_in(IkeState::Established).is_empty());
    assert!(up, "{}", pair.story());
    assert!(pair.a().ikes_in(IkeState::Established)[0].resumed, "{}", pair.story());
}

/// What is in the answer, and where its header comes from.
#[test]
fn the_answer_is_that_of_the_rfc() {
    let mut pair = established(setup(2));
    crash(&mut pair, B);
    find(&mut pair, A);
    let answer = given(&pair, B).remove(0);
    let asked = pair
        .net
        .trace
        .iter()
        .rev()
        .find(|p| p.from == Some(A) && p.is(ExchangeType::INFORMATIONAL, false));
    let (asked, header) = (asked.unwrap().header().unwrap(), answer.header().unwrap());
    assert_eq!((header.spi_i, header.spi_r), (asked.spi_i, asked.spi_r));
    assert_eq!((header.message_id, header.exchange), (asked.message_id, asked.exchange));
    assert!(header.flags.response && !header.flags.initiator);
    let message = Message::decode(&answer.octets).unwrap();
    let kinds = message.payloads.iter().map(|payload| match payload {
        Payload::Notify(notify) => (notify.kind, notify.protocol, notify.data.len()),
        other => panic!("{other:?}"),
    });
    let kinds = kinds.collect::<Vec<_>>();
    let unknown = (NotifyType::INVALID_IKE_SPI, ProtocolId::NONE, 0);
    assert_eq!(kinds, [unknown, (NotifyType::QUICK_CRASH_DETECTION, ProtocolId::IKE, 16)]);
}

/// Who is not told waits for its own ladder: the maker has no secret, or gives no tokens to this peer, or the
/// peer takes none.
#[test]
fn without_a_token_it_takes_as_long_as_ever() {
    for case in 0..3 {
        let mut setup = setup(3);
        match case {
            0 => setup.b.settings.qcd = QcdConfig::default(),
            1 => setup.b.connection.qcd = false,
            _ => setup.a.connection.qcd = false,
        }
        let mut pair = established(setup);
        crash(&mut pair, B);
        pair.run_for(MINUTE);
        assert_eq!(found(&pair, A), 0);
        assert_eq!(pair.a().children_up().len(), 1, "case {case}\n{}", pair.story());
        assert_eq!(given(&pair, B).is_empty(), case == 0, "they cost nothing");
        pair.run_for(4 * MINUTE);
        let why = pair.a().ike_downs();
        assert!(why.iter().any(|(_, why)| *why == Failure::Timeout), "{}", pair.story());
    }
}

/// The secret has changed since: four generations are good.
#[test]
fn tokens_of_earlier_secrets() {
    for (now, good) in [(4, true), (5, true), (7, true), (8, false)] {
        let mut pair = established(setup(4));
        let mut config = pair.b().endpoint.config().clone();
        config.qcd = secrets(2, now, now);
        pair.reload(B, config);
        pair.settle();
        crash(&mut pair, B);
        pair.run_for(20 * SECOND);
        assert_eq!(found(&pair, A), usize::from(good), "{now}: {}", pair.story());
        assert_eq!(tokens(&given(&pair, B)[0]).len(), 4, "never more");
    }
}

/// As long as this end brings up by itself what an earlier run left, the peers' SAs stay.
#[test]
fn quiet_at_first() {
    let mut setup = setup(5);
    setup.b.settings.qcd.quiet = 15 * SECOND;
    let mut pair = established(setup);
    // The token that A has is from before.
    pair.run_for(MINUTE);
    crash(&mut pair, B);
    pair.wake(B);
    let begun = pair.now();
    let there = pair.run_until(MINUTE, |w| {
        w.hosts[A].ike_downs().iter().any(|(_, why)| *why == Failure::LostByPeer)
    });
    assert!(there, "{}", pair.story());
    let took = pair.now() - begun;
    assert!((15 * SECOND..40 * SECOND).contains(&took), "{took:?}");
}

/// What there is besides with the same host is asked after at once.
#[test]
fn the_other_sas_with_the_same_host() {
    let mut setup = setup(6);
    setup.both(|side| {
        let mut other = side.connection.clone();
        other.name = "other".to_owned();
        other.dpd_delay = 10 * MINUTE;
        let mut child = side.children[0].clone();
        child.name = "more".to_owned();
        other.children = vec![Arc::new(child)];
        side.more.push(other);
        // One is enough to find out by.
        side.net().dpd_action = Action::None;
        side.connection.unique = ike_proto::config::Unique::Never;
        side.more[0].unique = ike_proto::config::Unique::Never;
    });
    let mut pair = setup.build();
    pair.establish();
    let (connection, child) = ("other".to_owned(), Some("more".to_owned()));
    let (local, remote, packet) = (pair.address(A), pair.address(B), None);
    let command = ike_proto::Command::Initiate { connection, child, local, remote, packet };
    let request = pair.command(A, command);
    pair.run_for(SECOND);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.a().ikes().len(), 2);
    crash(&mut pair, B);
    pair.run_for(15 * SECOND);
    assert_eq!(found(&pair, A), 2, "{}", pair.story());
}

/// An attempt that has not come far takes the hint as ever: no token is worth anything to it.
#[test]
fn in_mid_handshake() {
    let mut pair = setup(7).build();
    let request = pair.initiate(A, Some("net"));
    let auth = |p: &Packet| p.is(ExchangeType::IKE_AUTH, false);
    assert!(pair.run_until(MINUTE, |w| w.net.trace.iter().any(auth)));
    crash(&mut pair, B);
    assert!(pair.run_until(MINUTE, |w| w.hosts[A].done(request).is_some()));
    assert!(pair.now() < 2 * SECOND, "{}", pair.story());
    pair.settle();
    assert_eq!((pair.a().done(request), found(&pair, A)), (Some(Ok(())), 0));
    pair.assert_agreement();
}

/// Over TCP the client opens a new connection first; what comes back by it is taken as well.
#[test]
fn over_tcp() {
    let mut setup = setup(8);
    setup.a.connection.enable_tcp = TcpUse::Yes;
    setup.b.settings.accepts_tcp = true;
    let mut pair = established(setup);
    assert_eq!(pair.a().ike().path.transport, Transport::Tcp);
    crash(&mut pair, B);
    pair.run_for(15 * SECOND);
    assert_eq!((found(&pair, A), given(&pair, B).len()), (1, 1), "{}", pair.story());
    assert_eq!(pair.b().children_up().len(), 1, "{}", pair.story());
}
