//! `demo`: two daemons in this process do the main job over loopback sockets, and tell about it.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esp::io::MemoryHost;
use ike_control::OperatorError;
use ike_control::views::IkeSa;
use ike_proto::crypto::CryptoProvider;
use ike_tokio::{Crypto, Listen, Message, Plane, Sockets, Target};
use tokio::sync::mpsc;

use crate::config::{self, Config, Ports};
use crate::daemon::{Daemon, Parts, open, os_crypto};

mod report;
mod suite;
mod traffic;

pub use report::{Account, Exchange, Line, Step, Total};
pub use suite::Suite;
pub use traffic::{Throughput, Traffic};

use suite::Folders;

/// No step may take longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets that may wait between a plane and its device.
const QUEUE: usize = 512;
/// How long traffic runs in each direction when throughput is measured.
const MEASURE: Duration = Duration::from_secs(1);

/// The two daemons and the hosts behind them.
struct Stage {
    left: Daemon,
    right: Daemon,
    left_host: MemoryHost,
    right_host: MemoryHost,
    messages: mpsc::UnboundedReceiver<Message>,
    /// When the first message was seen; times are told from here.
    began: Option<Instant>,
}

/// Runs the demonstration with these algorithms. The account says what worked; it ends at the first step that did not.
pub async fn run(suite: Suite, crypto: &Arc<CryptoProvider>) -> Account {
    let mut account = Account { suite: suite.name(), ..Account::default() };
    if let Err(why) = play(&mut account, suite, crypto).await {
        account.failed = Some(why);
    }
    account.ok = account.failed.is_none();
    account
}

async fn play(
    account: &mut Account,
    suite: Suite,
    crypto: &Arc<CryptoProvider>,
) -> Result<(), String> {
    let mut stage = Stage::set(suite, crypto).await?;
    account.left = format!("127.0.0.1:{}", stage.left.ports().nat_t);
    account.right = format!("127.0.0.1:{}", stage.right.ports().nat_t);
    let net = Target::named("net");
    let site = Target::named("site");

    let up = stage.left.operator().clone();
    let time = timed(up.up(&net)).await?;
    let (ike, peer) = stage.settled().await?;
    as_wanted(suite, &ike)?;
    account.handshake_ms = ike.setup_time_ms;
    account.ike_sa = Some(ike);
    account.peer_ike_sa = Some(peer);
    account.step(stage.heard("Handshake: IKE SA and first Child SA", time));

    let start = Instant::now();
    let traffic = traffic::ping(&mut stage.left_host, &mut stage.right_host, 100).await?;
    account.traffic = Some(traffic);
    account.step(stage.heard("ESP both ways, 100 packets each", start.elapsed()));

    let start = Instant::now();
    account.throughput = vec![
        traffic::measure("left to right", &mut stage.left_host, &mut stage.right_host, MEASURE)
            .await?,
        traffic::measure("right to left", &mut stage.right_host, &mut stage.left_host, MEASURE)
            .await?,
    ];
    account.step(stage.heard("Throughput of ESP through both planes", start.elapsed()));

    let time = timed(async { up.rekey(&net).await.map(drop) }).await?;
    let before = account.child_spi();
    let (ike, _) = stage.settled().await?;
    traffic::ping(&mut stage.left_host, &mut stage.right_host, 10).await?;
    account.rekeyed_child = ike.child_sas.into_iter().next();
    if account.rekeyed_child.as_ref().map(|child| child.spi_in.clone()) == before {
        return Err("the Child SA kept its SPI when it was rekeyed".to_owned());
    }
    account.step(stage.heard("Child SA rekeyed, then 10 packets each way", time));

    let time = timed(async { up.rekey(&site).await.map(drop) }).await?;
    let (ike, _) = stage.settled().await?;
    as_wanted(suite, &ike)?;
    traffic::ping(&mut stage.left_host, &mut stage.right_host, 10).await?;
    if account.ike_sa.as_ref().is_some_and(|old| old.initiator_spi == ike.initiator_spi) {
        return Err("the IKE SA kept its SPIs when it was rekeyed".to_owned());
    }
    account.rekeyed_ike_sa = Some(ike);
    account.step(stage.heard("IKE SA rekeyed, then 10 packets each way", time));

    let time = timed(async { up.down(&site).await.map(drop) }).await?;
    stage.empty().await?;
    account.step(stage.heard("Deleted at both ends", time));
    Ok(())
}

impl Stage {
    async fn set(suite: Suite, crypto: &Arc<CryptoProvider>) -> Result<Self, String> {
        let listen = Listen {
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            lenient: false,
            esp: true,
            kernel: false,
            mark: None,
            tcp: None,
            tcp_remote: Vec::new(),
            shards: 1,
        };
        let any = Ports { ike: 0, nat_t: 0 };
        let crypto = os_crypto(CryptoProvider::clone(crypto));
        let mut hosts = Vec::new();
        let mut plane = |sockets: &Sockets| {
            let (plane, host, _) = Plane::memory(sockets, &crypto, QUEUE)?;
            hosts.push(host);
            Ok(plane)
        };
        let (left, left_plane) = open(&listen, any, &mut plane).map_err(|e| e.to_string())?;
        let (right, right_plane) = open(&listen, any, &mut plane).map_err(|e| e.to_string())?;
        let (Some(right_host), Some(left_host)) = (hosts.pop(), hosts.pop()) else {
            return Err("no device".to_owned());
        };
        let (tap, messages) = mpsc::unbounded_channel();
        let folders = Folders::make(suite, ["left", "right"])?;
        let ppk = secret();
        let configure = |us, them, port| configuration(suite, &folders, us, them, port, &ppk);
        let left_config = configure("left", "right", right.ports().nat_t)?;
        let right_config = configure("right", "left", left.ports().nat_t)?;
        Ok(Self {
            right: start(right_config, right, right_plane, crypto.clone(), None).await,
            left: start(left_config, left, left_plane, crypto, Some(tap)).await,
            left_host,
            right_host,
            messages,
            began: None,
        })
    }

    /// A step that has worked, with the messages it took.
    fn heard(&mut self, what: &str, time: Duration) -> Step {
        let mut lines = Vec::new();
        while let Ok(message) = self.messages.try_recv() {
            let began = *self.began.get_or_insert(message.at);
            lines.push(Line::new(&message, began));
        }
        Step::new(what, time, lines)
    }

    /// Waits until both ends have one IKE SA with one child, and know the same SPIs.
    async fn settled(&self) -> Result<(IkeSa, IkeSa), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (left, right) = (list(&self.left).await?, list(&self.right).await?);
            if let ([ours], [theirs]) = (left.as_slice(), right.as_slice())
                && agree(ours, theirs)
            {
                return Ok((ours.clone(), theirs.clone()));
            }
            if Instant::now() > deadline {
                return Err("the two ends do not agree on their SAs".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until neither end has an SA.
    async fn empty(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !(list(&self.left).await?.is_empty() && list(&self.right).await?.is_empty()) {
            if Instant::now() > deadline {
                return Err("an SA is left after the delete".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

/// Checks that the IKE SA has what `suite` promises.
fn as_wanted(suite: Suite, ike: &IkeSa) -> Result<(), String> {
    let exchanges = 1 + ike.algorithms.ke.len();
    if exchanges != suite.key_exchanges() {
        return Err(format!("{exchanges} key exchanges, not {}", suite.key_exchanges()));
    }
    if ike.ppk != suite.has_ppk() {
        return Err("the PPK was not used".to_owned());
    }
    if !ike.downgrade_prevention {
        return Err("downgrade prevention was not used".to_owned());
    }
    Ok(())
}

/// True if both ends describe the same SAs.
fn agree(ours: &IkeSa, theirs: &IkeSa) -> bool {
    let ([our_child], [their_child]) = (ours.child_sas.as_slice(), theirs.child_sas.as_slice())
    else {
        return false;
    };
    let spis = |sa: &IkeSa| (sa.initiator_spi.clone(), sa.responder_spi.clone());
    spis(ours) == spis(theirs)
        && ours.state == "ESTABLISHED"
        && theirs.state == "ESTABLISHED"
        && our_child.state == "INSTALLED"
        && their_child.state == "INSTALLED"
        && our_child.spi_in == their_child.spi_out
        && our_child.spi_out == their_child.spi_in
        && our_child.algorithms.encr_alg == their_child.algorithms.encr_alg
}

async fn start(
    config: Config,
    sockets: Sockets,
    plane: Plane,
    crypto: Crypto,
    tap: Option<mpsc::UnboundedSender<Message>>,
) -> Daemon {
    Daemon::start(Parts { config, sockets, plane, crypto, tap }).await
}

async fn list(daemon: &Daemon) -> Result<Vec<IkeSa>, String> {
    let views = daemon.operator().list().await.map_err(|error| error.to_string())?;
    Ok(views.iter().map(IkeSa::new).collect())
}

async fn timed(work: impl Future<Output = Result<(), OperatorError>>) -> Result<Duration, String> {
    let start = Instant::now();
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(())) => Ok(start.elapsed()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no outcome within {} s", PATIENCE.as_secs())),
    }
}

/// A key for this run alone.
fn secret() -> String {
    use ike_proto::crypto::SecureRandom;
    let mut octets = [0; 32];
    pq_kem::os_random().fill(&mut octets);
    octets.iter().fold(String::from("0x"), |text, octet| format!("{text}{octet:02x}"))
}

fn configuration(
    suite: Suite,
    folders: &Folders,
    us: &str,
    them: &str,
    port: u16,
    ppk: &str,
) -> Result<Config, String> {
    let subnets = BTreeMap::from([("left", "10.1.0.0/16"), ("right", "10.2.0.0/16")]);
    let methods = suite.methods();
    let (uses_ppk, ppk) = if suite.has_ppk() {
        let uses = "ppk_id = 'demo'
        ppk_required = true
        ppk_exchange = 'intermediate'
        ppk_rekey = 'require'";
        (uses, format!("[secrets.ppk]\nid = 'demo'\nsecret = '{ppk}'"))
    } else {
        ("", String::new())
    };
    let text = format!(
        "[charon]
        port = 0
        port_nat_t = 0
        follow_redirects = false
        [connections.site]
        mobike = false
        local_addrs = '127.0.0.1'
        remote_addrs = '127.0.0.1'
        remote_port = {port}
        proposals = 'aes256gcm16-prfsha384-{methods}'
        downgrade_prevention = 'require'
        {uses_ppk}
        [connections.site.local]
        auth = 'pubkey'
        certs = 'demo.der'
        id = '{us}.example.org'
        [connections.site.remote]
        auth = 'pubkey'
        id = '{them}.example.org'
        [connections.site.children.net]
        local_ts = '{local}'
        remote_ts = '{remote}'
        esp_proposals = 'aes256gcm16-{methods}-esn'
        {ppk}
        ",
        local = subnets.get(us).unwrap_or(&"dynamic"),
        remote = subnets.get(them).unwrap_or(&"dynamic"),
    );
    config::parse(&text, &folders.of(us)).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        lines.join("; ")
    })
}
