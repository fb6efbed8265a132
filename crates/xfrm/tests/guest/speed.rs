//! Ten thousand SAs with their policies, installed and removed, against `ip -batch` doing the same.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::support::{gcm, ip, kernel};
use ipsec_types::dataplane::Mode;
use xfrm::kernel::{Change, Kernel};
use xfrm::netlink::Socket;
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId, Template};
use xfrm::selector::{Prefix, Selector};
use xfrm::state::{Direction, Replay, State, StateId};

/// As many as the environment says, or ten thousand.
fn count() -> u32 {
    std::env::var("IKE_MANY_STATES").map_or(10_000, |count| count.parse().unwrap())
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "what is measured is real time")]
    Instant::now()
}

fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = now();
    let result = work();
    (result, start.elapsed())
}

fn peer(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xc612_0000 + n)
}

fn inner(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a80_0000 + n)
}

const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn state(n: u32) -> State {
    let id = StateId::new(0x1_0000 + n, peer(n).into());
    State {
        reqid: n + 1,
        direction: Some(Direction::Out),
        replay: Replay::default(),
        ..State::new(id, OURS.into(), Mode::Tunnel, gcm(256))
    }
}

fn policy(n: u32) -> Policy {
    let host = |address: Ipv4Addr| Prefix::host(IpAddr::V4(address));
    let ours = Prefix::new(Ipv4Addr::new(10, 0, 0, 0).into(), 16);
    let id = PolicyId::new(Selector::between(ours, host(inner(n))), PolicyDirection::Out);
    let template = Template::new(OURS.into(), peer(n).into(), n + 1, Mode::Tunnel);
    Policy::new(id, 375_423, Action::Allow(vec![template]))
}

/// The same for `ip`: a file to install and one to remove.
fn batches(count: u32) -> (String, String) {
    let (mut add, mut delete) = (String::new(), String::new());
    let key: String = (1..=36).fold("0x".into(), |hex, n: u8| format!("{hex}{n:02x}"));
    for n in 0..count {
        let (peer, inner, spi, reqid) = (peer(n), inner(n), 0x1_0000 + n, n + 1);
        writeln!(
            add,
            "xfrm state add src {OURS} dst {peer} proto esp spi {spi:#x} reqid {reqid} mode tunnel \
             dir out aead rfc4106(gcm(aes)) {key} 128\n\
             xfrm policy update src 10.0.0.0/16 dst {inner}/32 dir out priority 375423 \
             tmpl src {OURS} dst {peer} proto esp reqid {reqid} mode tunnel"
        )
        .unwrap();
        writeln!(
            delete,
            "xfrm policy delete src 10.0.0.0/16 dst {inner}/32 dir out\n\
             xfrm state delete src {OURS} dst {peer} proto esp spi {spi:#x}"
        )
        .unwrap();
    }
    (add, delete)
}

/// One request after the other, as a daemon makes them.
fn one_by_one(kernel: &mut Kernel<Socket>, count: u32) -> Duration {
    let (filled, elapsed) = timed(|| {
        for n in 0..count {
            kernel.add_state(&state(n)).unwrap();
            kernel.set_policy(&policy(n)).unwrap();
        }
        let (filled, reading) = timed(|| kernel.states().unwrap().len());
        for n in 0..count {
            assert!(kernel.delete_policy(&policy(n).id).unwrap());
            assert!(kernel.delete_state(&state(n).id).unwrap());
        }
        (filled, reading)
    });
    assert_eq!(filled.0, count as usize);
    elapsed - filled.1
}

/// In batches, as at a start with `keep` or for many tunnels at once.
fn together(kernel: &mut Kernel<Socket>, count: u32) -> Duration {
    let ((), elapsed) = timed(|| {
        let groups = (0..count).step_by(500).map(|from| from..(from + 500).min(count));
        for group in groups.clone() {
            let made: Vec<_> = group.map(|n| (state(n), policy(n))).collect();
            let changes =
                made.iter().flat_map(|(s, p)| [Change::AddState(s), Change::SetPolicy(p)]);
            assert!(kernel.apply(changes).iter().all(|result| *result == Ok(true)));
        }
        assert_eq!(kernel.counts().unwrap().states, count);
        for group in groups {
            let made: Vec<_> = group.map(|n| (state(n).id, policy(n).id)).collect();
            let changes =
                made.iter().flat_map(|(s, p)| [Change::DeletePolicy(p), Change::DeleteState(s)]);
            assert!(kernel.apply(changes).iter().all(|result| *result == Ok(true)));
        }
    });
    elapsed
}

/// A field of /proc/self/status, in KiB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn many_states_as_fast_as_ip_batch() {
    let mut kernel = kernel();
    let count = count();
    let (add, delete) = batches(count);
    let folder = std::env::temp_dir().join(format!("xfrm-speed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (add_file, delete_file) = (folder.join("add"), folder.join("delete"));
    std::fs::write(&add_file, add).unwrap();
    std::fs::write(&delete_file, delete).unwrap();
    let before = memory("VmHWM");

    // Warm up: modules, slabs, the hash tables that grow with the first round and stay.
    one_by_one(&mut kernel, count.min(1000));
    let mut rounds = Vec::new();
    for round in 0..3 {
        rounds.push([one_by_one(&mut kernel, count), together(&mut kernel, count)]);
        println!("round {round}: {:?}", rounds.last());
    }
    let grown = memory("VmHWM") - before;
    // Once, for it takes longer than all of ours.
    let ((), by_ip) = timed(|| {
        ip(&format!("-batch {}", add_file.display()));
        assert_eq!(kernel.counts().unwrap().states, count);
        ip(&format!("-batch {}", delete_file.display()));
    });
    assert_eq!(kernel.counts().unwrap().states, 0);
    std::fs::remove_dir_all(&folder).unwrap();

    let per_sa = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count);
    let each = |which: usize| {
        let mut times: Vec<_> = rounds.iter().map(|round| per_sa(round[which])).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let ratio = |which| each(which) / per_sa(by_ip);
    println!(
        "{count} SAs with a policy each, installed and removed, per SA (median of {}): \
         one by one {:.1} us, in batches {:.1} us, ip -batch {:.1} us; ratios {:.2} and {:.2}; \
         memory grew by {grown} KiB to {} KiB",
        rounds.len(),
        each(0),
        each(1),
        per_sa(by_ip),
        ratio(0),
        ratio(1),
        memory("VmHWM"),
    );
    assert!(ratio(0) <= 1.5 && ratio(1) <= 1.5, "slower than 1.5 times ip -batch");
    // A list of all states is the most this process holds: well under a KiB for each.
    assert!(grown < u64::from(count) + 4096, "{grown} KiB for {count} states");
}
