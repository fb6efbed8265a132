//! A tunnel with fixed keys over a real TUN device: for trying the data plane without IKE. Both ends
//! run it, with their arguments the other way round; needs root. The keys are no secret.
//!
//! ```text
//! manual_keying <local> <remote> <local_ts> <remote_ts> [transport] [plain] [cbc|chacha] [queues=N]
//!     [pass=<local_ts>,<remote_ts>]
//! ```

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use esp::io::{
    ClearSockets, Config, DEFAULT_MARK, Device, EncapSocket, GuardOptions, PlainEsp, RouteOptions,
    TunOptions, UserspacePlane, set_mark,
};
use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherProvider, CipherSuite, Secret};
use ipsec_types::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Limits, Mode, PolicyAction, PolicyId,
    PolicySpec, SaId, SaSpec, TrafficSelector,
};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

struct Args {
    local: IpAddr,
    remote: IpAddr,
    local_ts: TrafficSelector,
    remote_ts: TrafficSelector,
    mode: Mode,
    encap: Option<Encapsulation>,
    suite: CipherSuite,
    queues: usize,
    pass: Option<(TrafficSelector, TrafficSelector)>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = parse()?;
    let socket = UdpSocket::bind(SocketAddr::new(args.local, 4500)).await?;
    set_mark(&socket, DEFAULT_MARK)?;
    let (ike, _keep) = mpsc::channel(1);
    let config = Config {
        ciphers: &pq_kem::sym::Ciphers,
        rng: || Box::new(pq_kem::os_random()),
        encap: vec![Arc::new(EncapSocket::new(socket)?)],
        ike,
        plain: vec![Arc::new(PlainEsp::open(args.local.is_ipv4(), Some(DEFAULT_MARK))?)],
        streams: None,
        clear: Some(ClearSockets::open(DEFAULT_MARK)?),
        routes: Some(RouteOptions::default()),
        guard: Some(GuardOptions { ports: vec![500, 4500], ..GuardOptions::default() }),
    };
    let device = Device::tun(&TunOptions { queues: args.queues, ..TunOptions::default() })?;
    let mut plane = UserspacePlane::start(config, device)?;
    install(&mut plane, &args)?;
    println!("up: {} = {}", args.local_ts, args.remote_ts);

    let ready = plane.event_ready();
    let done = tokio::signal::ctrl_c();
    tokio::pin!(done);
    loop {
        tokio::select! {
            () = ready.notified() => while let Some(event) = plane.poll_event() {
                println!("{event:?}");
            },
            _ = &mut done => break,
        }
    }
    let stats = plane.plane().stats();
    println!("sealed {} opened {} passed {}", stats.sealed(), stats.opened(), stats.passed());
    for (reason, count) in stats.drops() {
        println!("dropped {count}: {reason}");
    }
    plane.shutdown().await;
    Ok(())
}

/// The SA towards an address has the SPI 0x1000 and its last octet.
fn install(plane: &mut UserspacePlane, args: &Args) -> Result<(), Box<dyn Error>> {
    let spi = |dst: IpAddr| match dst {
        IpAddr::V4(a) => 0x1000 | u32::from(a.octets()[3]),
        IpAddr::V6(a) => 0x1000 | u32::from(a.octets()[15]),
    };
    let outbound = SaId { spi: spi(args.remote), dst: args.remote };
    let inbound = SaId { spi: spi(args.local), dst: args.local };
    let lengths = pq_kem::sym::Ciphers.lengths(args.suite).ok_or("no such suite")?;
    for (id, src, direction) in
        [(inbound, args.remote, Direction::In), (outbound, args.local, Direction::Out)]
    {
        let octet = id.spi as u8;
        plane.apply(Command::InstallSa(Box::new(SaSpec {
            id,
            src,
            direction,
            mode: args.mode,
            policy: PolicyId(1),
            suite: args.suite,
            encr_key: Secret::new(vec![octet; lengths.encr_key]),
            integ_key: Secret::new(vec![octet; lengths.integ_key]),
            esn: true,
            replay_window: 1024,
            encap: args.encap,
            local_ts: vec![args.local_ts],
            remote_ts: vec![args.remote_ts],
            limits: Limits::default(),
            lifetime: std::time::Duration::ZERO,
            cpu: None,
            processing: Arc::default(),
        })))?;
    }
    plane.apply(Command::InstallPolicy(Box::new(PolicySpec {
        id: PolicyId(1),
        child: "manual".into(),
        owner: "site [peer]".into(),
        local_ts: vec![args.local_ts],
        remote_ts: vec![args.remote_ts],
        action: PolicyAction::Protect {
            mode: args.mode,
            local: args.local,
            remote: args.remote,
            outbound: Some(outbound),
        },
        priority: 0,
        processing: Arc::default(),
        outer: None,
        standby: false,
    })))?;
    if let Some((local, remote)) = args.pass {
        plane.apply(Command::InstallPolicy(Box::new(PolicySpec {
            id: PolicyId(2),
            child: "clear".into(),
            owner: "site [peer]".into(),
            local_ts: vec![local],
            remote_ts: vec![remote],
            action: PolicyAction::Pass,
            priority: 0,
            processing: Arc::default(),
            outer: None,
            standby: false,
        })))?;
    }
    Ok(())
}

fn parse() -> Result<Args, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut next = |what| words.next().ok_or(what);
    let local = next("no local address")?.parse()?;
    let remote = next("no remote address")?.parse()?;
    let local_ts = next("no local selector")?.parse()?;
    let remote_ts = next("no remote selector")?.parse()?;
    let gcm = CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: IntegId::NONE };
    let encap = Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4500 }));
    let mode = Mode::Tunnel;
    let mut args =
        Args { local, remote, local_ts, remote_ts, mode, encap, suite: gcm, queues: 1, pass: None };
    for word in words {
        match word.split_once('=').unwrap_or((&word, "")) {
            ("transport", _) => args.mode = Mode::Transport,
            ("plain", _) => args.encap = None,
            ("cbc", _) => {
                args.suite.encr = EncrId::AES_CBC;
                args.suite.integ = IntegId::HMAC_SHA2_256_128;
            }
            ("chacha", _) => {
                args.suite.encr = EncrId::CHACHA20_POLY1305;
                args.suite.key_bits = 0;
            }
            ("queues", n) => args.queues = n.parse()?,
            ("pass", pair) => {
                let (local, remote) = pair.split_once(',').ok_or("pass=LOCAL,REMOTE")?;
                args.pass = Some((local.parse()?, remote.parse()?));
            }
            _ => return Err(format!("unknown word {word}").into()),
        }
    }
    Ok(args)
}
