//! Class 3: what a peer writes into notifies and identities reaches no log as it stands.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::{IdMatch, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_proto::wire::payload::{IdData, Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, IdType, NotifyType, PayloadType, ProtocolId};
use ike_proto::wire::{Flags, Header, encode_message};
use ike_proto::{Event, Failure, PeerRefused};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::setup::{identity, side};

/// Shell, terminal and format string tricks, line ends, and characters that turn text around.
const HOSTILE: &[&[u8]] = &[
    b"\";bash -c 'reboot'\n",
    b"x\r\nike=7 IKE SA down",
    b"\x1b[2J\x1b]0;owned\x07",
    b"\0\0hidden",
    b"$(reboot)`reboot`",
    b"%s%s%n",
    "\u{202e}gpj.exe".as_bytes(),
    b"\xff\xfe\x80",
    b"ike=9 remote_id=admin",
];

/// All that a log may get to see of a run: what the crates trace, and every event in every form.
struct Log {
    traced: Arc<Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Log {
    fn new() -> Self {
        let traced = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&traced);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || Shared(Arc::clone(&writer)))
            .finish();
        Self { traced, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Traces what the host has reported, as a driver does, and checks every octet of it.
    #[track_caller]
    fn check(&self, bench: &Bench) {
        let host = bench.host();
        for (_, event) in &host.log {
            tracing::info!(?event, "event");
            match event {
                Event::IkeDown { reason, .. }
                | Event::ChildDown { reason, .. }
                | Event::ChildFailed { reason, .. } => tracing::info!(%reason, "down"),
                Event::Done(_, Err(why)) => tracing::info!(%why, "failed"),
                Event::Unique { local, remote, .. } => tracing::info!(%local, %remote, "unique"),
                Event::PeerRefused(refused) => {
                    let PeerRefused { connection, local_id, remote_id, why, .. } = &**refused;
                    for id in [local_id, remote_id].into_iter().flatten() {
                        tracing::info!(%id, %connection, %why, "refused");
                    }
                }
                _ => {}
            }
        }
        for ike in host.ikes() {
            tracing::info!(?ike, "status");
            if let Some(id) = &ike.remote_id {
                tracing::info!(remote_id = %id, "up");
            }
        }
        for why in &host.dropped {
            tracing::debug!(why = why.text(), "dropped");
        }
        let octets = std::mem::take(&mut *self.traced.lock().expect("not poisoned"));
        let text = String::from_utf8(octets).expect("UTF-8");
        for line in text.lines() {
            assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b)), "{line:?}");
            assert!(line.contains(" INFO ") || line.contains("DEBUG "), "half a line: {line:?}");
            for needle in ["bash -c", "$(", "`", " ike=7", " ike=9 ", " remote_id=admin"] {
                assert!(!line.contains(needle), "{needle:?} in {line:?}");
            }
        }
    }
}

struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes everybody who has the key.
fn hospitable() -> Bench {
    let mut side = side(1, 2);
    side.connection.set_remote_id(IdMatch::Any);
    let secret = Secret::copy_from(PSK);
    side.settings.secrets = vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })];
    Bench::with(side)
}

#[test]
fn class_03_notify_data_before_authentication() {
    let log = Log::new();
    for text in HOSTILE {
        let mut bench = Bench::new();
        for kind in [1, 7, 14, 17, 24, 99, 8192, 16_390, 16_404, 40_000, 65_535] {
            let started = bench.start();
            let notify = Notify::new(NotifyType(kind), text);
            let about_child = Notify { data: text, ..Notify::esp(NotifyType(kind), 0x0a0d_1b5b) };
            let mut payloads = started.payloads();
            payloads.push(Payload::Notify(notify));
            payloads.push(Payload::Notify(about_child));
            payloads.push(Payload::Vendor(text));
            payloads.push(Payload::Unknown { kind: PayloadType(222), body: text });
            bench.give(&started.encode(&payloads));
            // Alone, which is refused.
            bench.give(&started.encode(&payloads[4..]));
        }
        bench.give(text);
        log.check(&bench);
        // As the reason why an attempt fails.
        let (_, request) = bench.initiate();
        let header = Header {
            next_payload: PayloadType::NONE,
            flags: Flags { initiator: false, version: false, response: true },
            ..Header::decode(&request).expect("a request")
        };
        let refusal = [Payload::Notify(Notify::new(NotifyType(99), text))];
        bench.give(&encode_message(&header, &refusal));
        bench.world.run_for(Duration::from_secs(300));
        let failed = bench.host().ike_downs();
        assert!(failed.iter().any(|(_, why)| *why == Failure::Peer(NotifyType(99))), "{failed:?}");
        log.check(&bench);
    }
}

#[test]
fn class_03_identities_of_authenticated_peers() {
    let log = Log::new();
    let mut established = 0;
    for text in HOSTILE {
        for kind in 0..=20 {
            let mut bench = hospitable();
            let mut peer = bench.half_open();
            let id = IdData { kind: IdType(kind), data: text.to_vec() };
            let auth = peer.auth(&id, PSK);
            let payloads = auth_payloads(&id, &auth, 1007, true);
            let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
            assert_eq!(bench.give(&request).len(), 1);
            established += bench.host().ikes().len();
            log.check(&bench);
        }
    }
    assert!(established > HOSTILE.len(), "only {established} identities were accepted");
}

#[test]
fn class_03_notifies_of_authenticated_peers() {
    let log = Log::new();
    for text in HOSTILE {
        for kind in [1, 7, 24, 99, 16_384, 16_404, 65_535] {
            let mut bench = Bench::new();
            let mut peer = bench.established(1007);
            let protocols = [ProtocolId(0), ProtocolId::IKE, ProtocolId::ESP, ProtocolId(250)];
            for protocol in protocols {
                let notify = Notify { protocol, ..Notify::new(NotifyType(kind), text) };
                let payloads = [
                    Payload::Notify(notify),
                    Payload::Vendor(text),
                    Payload::Unknown { kind: PayloadType(222), body: text },
                ];
                let request = peer.next_request(ExchangeType::INFORMATIONAL, &payloads);
                bench.give(&request);
            }
            log.check(&bench);

            // In answer to IKE_AUTH, with and without a proof of who says so.
            for proven in [false, true] {
                let mut bench = Bench::new();
                let (_, mut peer, _) = bench.answering();
                let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
                let mut payloads = auth_payloads(&id, &auth, 1007, false);
                payloads.truncate(if proven { 2 } else { 0 });
                payloads.push(Payload::Notify(Notify::new(NotifyType(kind), text)));
                let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
                bench.give(&response);
                bench.world.run_for(Duration::from_secs(300));
                log.check(&bench);
            }
        }
    }
}
