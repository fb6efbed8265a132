//! `ike-bench soak`: memory that stays flat, over rekeys in virtual time and under messages that are
//! refused.

pub mod shapes;

use std::time::Duration;

use clap::Args;

use crate::memory::config::Times;
use crate::memory::ends::Ends;
use crate::memory::suite::{self, Suite};
use ike_tests::heap;
use shapes::{Attacker, SHAPES, Shape};

/// Memory over hours of rekeys, and under messages that are refused. Fails if it grows.
#[derive(Debug, Args)]
pub struct SoakArgs {
    /// Messages of each shape.
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// SAs that are rekeyed.
    #[arg(long, default_value_t = 200)]
    sas: usize,
    /// Hours, in virtual time, in which a child is rekeyed every five minutes, an IKE SA every ten and a
    /// peer asked for a sign of life every thirty seconds.
    #[arg(long, default_value_t = 10)]
    hours: u32,
    /// Only shapes whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
}

/// What a gateway held, and the process.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Octets on the heap of the gateway.
    pub gateway: i64,
    /// The same of its clients.
    pub clients: i64,
    /// Octets of the process in memory.
    pub resident: u64,
}

/// Readings at the start and after each tenth; the last one in peace.
pub type Readings = Vec<Reading>;

/// Octets that heaps may differ by from the first tenth on: tables of different fill.
pub const SLACK: i64 = 96 << 10;
/// The same of resident memory: the allocator's own.
pub const RESIDENT_SLACK: u64 = 16 << 20;

const TIMES: Times = Times {
    ike: Duration::from_secs(600),
    child: Duration::from_secs(300),
    dpd: Duration::from_secs(30),
};

/// Runs all of it.
///
/// # Errors
///
/// If an SA is lost, or memory grows.
pub fn soak(args: &SoakArgs) -> Result<(), String> {
    let suite = suite::named("psk-x25519")?;
    if !SHAPES.iter().any(|shape| shape.name.contains(&args.only)) {
        let names: Vec<_> = SHAPES.iter().map(|shape| shape.name).collect();
        return Err(format!("--only {}: no such shape; there are {}", args.only, names.join(", ")));
    }
    if args.hours > 0 && args.sas > 0 {
        let (readings, rekeys) = lives(suite, args.sas, Duration::from_secs(3600) * args.hours)?;
        let [ike, child] = rekeys;
        let what =
            format!("{} SAs, {} h: {ike} IKE rekeys, {child} of children", args.sas, args.hours);
        report(&what, &readings);
        check(&what, &readings)?;
    }
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&args.only)) {
        let readings = attack(suite, *shape, args.messages)?;
        report(&format!("{} x {}", args.messages, shape.name), &readings);
        check(shape.name, &readings)?;
    }
    Ok(())
}

/// Lets `sas` SAs live for `time`. What both ends hold at the start and after each tenth, and how often
/// IKE SAs and children were rekeyed.
///
/// # Errors
///
/// If one of them is lost.
pub fn lives(suite: Suite, sas: usize, time: Duration) -> Result<(Readings, [u64; 2]), String> {
    if !heap::begin() {
        return Err("this program does not count its memory".to_owned());
    }
    let mut ends = Ends::new(suite, Some(TIMES), |_| {});
    ends.initiate(sas);
    ends.run();
    let mut readings = vec![reading(&ends)?];
    for _ in 0..10 {
        ends.pass(time / 10);
        readings.push(reading(&ends)?);
    }
    ends.check()?;
    // An SA that the other end has rekeyed lives on for a moment.
    let left = ends.gateway.endpoint().ike_sas().len();
    if left < sas || left > sas * 2 {
        return Err(format!("{left} IKE SAs are left of {sas}"));
    }
    let rekeys = [ends.gateway.ike_rekeys, ends.gateway.up[1].saturating_sub(sas as u64)];
    Ok((readings, rekeys))
}

/// Sends `messages` of one shape to a gateway with a few clients, a thousand a second in virtual time.
///
/// # Errors
///
/// If a client's SA is lost by it.
pub fn attack(suite: Suite, shape: Shape, messages: u64) -> Result<Readings, String> {
    if !heap::begin() {
        return Err("this program does not count its memory".to_owned());
    }
    let mut ends = Ends::new(suite, None, |config| {
        let usual = ike_proto::config::EndpointConfig::default();
        config.cookie_threshold = if shape.cookies { 1 } else { usual.cookie_threshold };
        config.cookie_threshold_ip = usual.cookie_threshold_ip;
        config.block_threshold = usual.block_threshold;
    });
    if !shape.cookies {
        ends.tap = Some(Vec::new());
    }
    ends.initiate(CLIENTS);
    ends.run();
    ends.check()?;
    let mut attacker = Attacker::new(ends.tap.take().unwrap_or_default());
    let mut readings = vec![reading(&ends)?];
    for _ in 0..10 {
        for sent in 0..messages / 10 {
            let (path, octets) = (shape.make)(&mut attacker);
            ends.give(path, &octets);
            if sent % 100 == 0 {
                ends.pass(Duration::from_millis(100));
            }
        }
        readings.push(reading(&ends)?);
    }
    // Half-open SAs and last answers are gone by then, and no SA is to be rekeyed yet.
    ends.pass(Duration::from_secs(600));
    readings.push(reading(&ends)?);
    let up = ends.gateway.endpoint().ike_sas();
    let up = up.iter().filter(|ike| ike.established.is_some()).count();
    if up != CLIENTS {
        return Err(format!("{}: {up} IKE SAs are left of {CLIENTS}", shape.name));
    }
    Ok(readings)
}

/// SAs of others beside an attack.
const CLIENTS: usize = 20;

fn reading(ends: &Ends) -> Result<Reading, String> {
    let (gateway, clients) = (ends.gateway.held.octets, ends.held_by_clients().octets);
    Ok(Reading { gateway, clients, resident: heap::resident()? })
}

/// True growth: the last reading against the first tenth.
///
/// # Errors
///
/// If it is more than the slack.
pub fn check(what: &str, readings: &[Reading]) -> Result<(), String> {
    let (Some(first), Some(last)) = (readings.get(1), readings.last()) else { return Ok(()) };
    for (name, grown, slack) in [
        ("the gateway's heap", last.gateway - first.gateway, SLACK),
        ("the clients' heap", last.clients - first.clients, SLACK),
        (
            "resident memory",
            i64::try_from(last.resident.saturating_sub(first.resident)).unwrap_or(i64::MAX),
            i64::try_from(RESIDENT_SLACK).unwrap_or(i64::MAX),
        ),
    ] {
        if grown > slack {
            return Err(format!("{what}: {name} grew by {grown} octets after the first tenth"));
        }
    }
    Ok(())
}

fn report(what: &str, readings: &[Reading]) {
    let line = |name: &str, of: &dyn Fn(&Reading) -> i64| {
        let values: Vec<_> = readings.iter().map(|r| format!("{:7}", of(r) / 1024)).collect();
        println!("  {name:9} {}", values.join(""));
    };
    println!("{what}: KiB at the start, after each tenth, and at rest");
    line("gateway", &|reading| reading.gateway);
    line("clients", &|reading| reading.clients);
    line("resident", &|reading| i64::try_from(reading.resident).unwrap_or(i64::MAX));
}
