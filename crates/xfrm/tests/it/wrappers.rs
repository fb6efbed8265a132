//! The data planes that record, trace and fail.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherSuite, Secret};
use ipsec_types::dataplane::{
    Command, DataPlane, DataPlaneError, Direction, EncapPorts, Encapsulation, Event, Limits, Mode,
    PolicyAction, PolicyId, PolicySpec, Reply, SaId, SaSpec, Usage,
};
use xfrm::{CommandKind, Fault, Faulty, Recording, Summary, Tracer};

const KEY: u8 = 0xd7;

fn id(spi: u32) -> SaId {
    SaId { spi, dst: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)) }
}

fn sa(spi: u32, key: u8) -> Command {
    let encap = Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4501 }));
    Command::InstallSa(Box::new(SaSpec {
        id: id(spi),
        src: IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
        direction: Direction::Out,
        mode: Mode::Tunnel,
        policy: PolicyId(1),
        suite: CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: IntegId::NONE },
        encr_key: Secret::new(vec![key; 20]),
        integ_key: Secret::new(Vec::new()),
        esn: true,
        replay_window: 32,
        encap,
        local_ts: Vec::new(),
        remote_ts: Vec::new(),
        limits: Limits::default(),
        lifetime: Duration::ZERO,
        cpu: None,
        processing: Arc::default(),
    }))
}

fn policy(id: u64, action: PolicyAction) -> Command {
    Command::InstallPolicy(Box::new(PolicySpec {
        id: PolicyId(id),
        child: "net".into(),
        owner: "site [peer]".into(),
        local_ts: Vec::new(),
        remote_ts: Vec::new(),
        action,
        priority: 0,
        processing: Arc::default(),
        outer: None,
        standby: false,
    }))
}

#[test]
fn a_recording_knows_what_is_installed() {
    let mut plane = Recording::new();
    assert!(plane.is_empty());
    assert_eq!(plane.apply(sa(1, KEY)), Ok(Reply::Done));
    plane.apply(sa(2, KEY)).unwrap();
    plane.apply(policy(1, PolicyAction::Trap)).unwrap();
    plane.apply(Command::RemoveSa(id(1))).unwrap();
    plane.apply(Command::RemoveSa(id(1))).unwrap();
    assert!(!plane.has_sa(id(1)));
    assert_eq!(plane.sas().map(|(id, _)| id).collect::<Vec<_>>(), [id(2)]);
    assert!(plane.sa(id(2)).is_some_and(|sa| sa.esn && sa.direction == Direction::Out));
    assert_eq!(plane.policy(PolicyId(1)).map(|p| &p.action), Some(&PolicyAction::Trap));
    assert_eq!(plane.commands().len(), 5);
    assert!(matches!(plane.commands()[3], Summary::RemoveSa(gone) if gone == id(1)));

    plane.apply(Command::RemovePolicy(PolicyId(1))).unwrap();
    plane.apply(Command::Flush).unwrap();
    assert!(plane.is_empty());
    plane.forget();
    assert!(plane.commands().is_empty());
}

#[test]
fn usage_is_what_the_test_says_and_survives_a_repeated_install() {
    let mut plane = Recording::new();
    let usage =
        Usage { bytes: 9, packets: 1, idle: Some(Duration::from_secs(4)), ..Usage::default() };
    assert!(!plane.set_usage(id(1), usage));
    assert!(plane.apply(Command::QueryUsage(id(1))).is_err());
    plane.apply(sa(1, KEY)).unwrap();
    assert!(plane.set_usage(id(1), usage));
    plane.apply(sa(1, KEY)).unwrap();
    assert_eq!(plane.apply(Command::QueryUsage(id(1))), Ok(Reply::Usage(id(1), usage)));
    plane.apply(sa(1, 0)).unwrap();
    let fresh = Usage::default();
    assert_eq!(plane.apply(Command::QueryUsage(id(1))), Ok(Reply::Usage(id(1), fresh)));
}

#[test]
fn events_come_back_in_order() {
    let mut plane = Tracer::new(Faulty::new(Recording::new()));
    let (a, b) = (Event::SoftExpire(id(1)), Event::FirstPacket(id(2)));
    plane.inner_mut().inner_mut().raise(a);
    plane.inner_mut().inner_mut().raise(b);
    assert_eq!((plane.poll_event(), plane.poll_event()), (Some(a), Some(b)));
    assert_eq!(plane.poll_event(), None);
    assert!(plane.capabilities().plain_esp);
}

#[test]
fn faults_hit_what_they_were_aimed_at() {
    let mut plane = Faulty::new(Recording::new());
    plane.fail(Fault::Nth(2));
    assert!(plane.apply(sa(1, KEY)).is_ok());
    assert!(plane.apply(sa(2, KEY)).is_err());
    assert!(plane.apply(sa(2, KEY)).is_ok(), "once");

    plane.fail(Fault::Every(CommandKind::RemoveSa));
    for _ in 0..2 {
        assert!(plane.apply(Command::RemoveSa(id(1))).is_err());
        assert!(plane.apply(policy(1, PolicyAction::Pass)).is_ok());
    }
    assert!(plane.inner().has_sa(id(1)), "a failed command changes nothing");
    plane.heal();
    assert!(plane.apply(Command::RemoveSa(id(1))).is_ok());

    plane.fail(Fault::NthOf(CommandKind::InstallPolicy, 2));
    assert!(plane.apply(policy(2, PolicyAction::Pass)).is_ok());
    assert!(plane.apply(sa(3, KEY)).is_ok());
    assert!(plane.apply(policy(3, PolicyAction::Pass)).is_err());

    plane.fail(Fault::All);
    assert!(plane.apply(Command::Flush).is_err());
    assert_eq!(plane.failed(), 5);
}

/// The kernel did it and its answer got lost.
#[test]
fn a_lost_answer() {
    let mut plane = Faulty::new(Recording::new());
    plane.fail(Fault::LostAnswer(1));
    assert_eq!(plane.apply(sa(1, KEY)), Err(DataPlaneError("injected fault".into())));
    assert!(plane.inner().has_sa(id(1)));
    assert!(plane.apply(sa(1, KEY)).is_ok());
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic under the lock").write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Neither the log nor anything the recording can print has a key in it, in hex or in decimal.
#[test]
fn keys_are_not_printed() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let mut plane = Tracer::new(Faulty::new(Recording::new()));
    tracing::subscriber::with_default(subscriber, || {
        plane.apply(sa(0xab, KEY)).unwrap();
        plane.apply(policy(1, PolicyAction::Drop)).unwrap();
        plane.apply(Command::QueryUsage(id(0xab))).unwrap();
        plane.inner_mut().fail(Fault::All);
        plane.apply(sa(2, KEY)).unwrap_err();
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let wanted = "install Out Tunnel SA 000000ab to 192.0.2.1 for policy 1: AES_GCM_16-128, UDP 4500 to 4501";
    assert!(text.contains(wanted), "{text}");
    assert!(text.contains("WARN") && text.contains("injected fault"), "{text}");
    assert_eq!(text.lines().count(), 4, "one line per command: {text}");
    let printed = format!("{text}{plane:?}");
    for form in [[KEY; 4].map(|b| format!("{b:02x}")).concat(), format!("{KEY}, {KEY}")] {
        assert!(!printed.contains(&form), "{form} in {printed}");
    }
}
