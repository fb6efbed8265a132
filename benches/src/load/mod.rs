//! `ike-bench load`: as many handshakes as a responder makes, this project's or another.
//!
//! Each handshake has an engine of its own at this end ([`initiator`]); a few threads ([`worker`]) drive
//! them over a few sockets each. [`run`] has the order of things, [`report`] and [`plot`] what is told.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;

use crate::hosts::{self, PORT, bundle::Bundle};
use crate::links::rules::Rules;
use process::Process;
use run::{Plan, Row};
use worker::Limits;

pub mod floor;
pub mod initiator;
pub mod phase;
pub mod plot;
pub mod process;
pub mod progress;
pub mod report;
pub mod run;
pub mod worker;

/// A load generator: initiates handshakes with any IKEv2 responder and says how many a second it makes, how
/// long they take, and what CPU time and memory that costs it.
///
/// Each handshake makes an IKE SA and a Child SA. The responder needs the certificates and the secret of a
/// bundle: `ike-bench serve --only-bundle` makes one, with ike.toml for `ike-daemon run --data-plane none`
/// and swanctl.conf for strongSwan in its folder `responder`. SAs are made as if many hosts had the same
/// identity (`unique = never`).
#[derive(Debug, Clone, Args)]
pub struct Load {
    /// The responder
    #[arg(long, value_name = "HOST")]
    pub to: String,
    /// Its UDP port; 500 is IKE without the non-ESP marker
    #[arg(long, default_value_t = PORT)]
    pub port: u16,
    /// Folder that `ike-bench serve` made, or its `initiator`
    #[arg(long, value_name = "DIR", default_value = "links.bundle")]
    pub bundle: PathBuf,
    /// Suite, instead of all that the bundle has (may be given several times)
    #[arg(long, value_name = "NAME")]
    pub suite: Vec<String>,
    /// Handshakes at a time, of all threads together
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency: u32,
    /// Handshakes begun a second, whether others have ended or not, up to --concurrency; latency counts from
    /// when one was due. Without it the next begins when one has ended
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Handshakes of each suite [default: 10000, unless --duration says when to end]
    #[arg(long, value_name = "N")]
    pub handshakes: Option<u64>,
    /// Seconds for each suite
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Handshakes of each suite that do not count, at the start
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub warm_up: u64,
    /// Leave the SAs at the responder (the default); this end forgets them
    #[arg(long, conflicts_with = "tear_down")]
    pub keep: bool,
    /// Delete each IKE SA once it is established; that is part of what the responder uses, and not of latency
    #[arg(long)]
    pub tear_down: bool,
    /// Report each N handshakes by themselves: what they cost while SAs become more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub slice: Option<u64>,
    /// The responder's process on this host: its CPU time and memory
    #[arg(long, value_name = "PID")]
    pub responder_pid: Option<u32>,
    /// Measure the responder's public-key operations alone, too, and say what multiple of them it used
    #[arg(long)]
    pub floor: bool,
    /// Threads [default: as many as there are processors for this process]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Sockets of each thread, with a port each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub sockets: u16,
    /// Seconds after which a handshake has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub give_up: f64,
    /// How this end sends again: ours, or as strongSwan does by default
    #[arg(long, value_enum, default_value_t = Rules::Ours)]
    pub rules: Rules,
    /// A further option of this end's `[charon]`, as `fragment_size=1280` (may be given several times)
    #[arg(long, value_name = "KEY=VALUE")]
    pub charon: Vec<String>,
    /// Also write everything here as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the slices here as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also draw here what a handshake of each slice costs the responder
    #[arg(long, value_name = "FILE", requires = "responder_pid")]
    pub svg: Option<PathBuf>,
}

/// Handshakes of a suite unless told otherwise.
const HANDSHAKES: u64 = 10_000;

/// `load`. Ends early, with what there is by then, when it is interrupted.
///
/// # Errors
/// The arguments make no sense, nobody answers, no handshake came about, or a file cannot be written.
pub fn load(args: &Load) -> Result<(), String> {
    ike_daemon::log::init_at("error", Default::default());
    for path in [&args.json, &args.csv, &args.svg].into_iter().flatten() {
        hosts::writable(path)?;
    }
    let plan = plan(args)?;
    let bundle = Bundle::open(&args.bundle, "initiator")?;
    let suites = bundle.suites(&args.suite)?;
    let stop = Arc::new(AtomicBool::new(false));
    heed_signals(Arc::clone(&stop))?;
    let mut rows: Vec<Row> = Vec::new();
    let mut outcome = Ok(());
    for suite in suites {
        let (mut row, ended) = run::run(&plan, &bundle, suite, &stop);
        if args.floor {
            row.floor = Some(floor::floor(suite).map_err(|error| error.to_string())?);
        }
        rows.push(row);
        outcome = ended.map_err(|why| format!("{}: {why}", suite.name));
        if outcome.is_err() || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let measured = rows.iter().any(|row| !row.slices.is_empty());
    if measured {
        print!("{}", report::text(&rows));
    }
    write(&args.json, || report::json(&plan, &rows))?;
    write(&args.csv, || report::csv(&rows))?;
    write(&args.svg, || plot::cost(&rows))?;
    outcome?;
    if rows.iter().all(|row| row.established() == 0) {
        let reasons: Vec<_> = rows.iter().flat_map(|row| row.outcomes.failures.keys()).collect();
        return match reasons.first() {
            None => Err("no handshake came about".to_owned()),
            Some(why) => Err(format!("no handshake came about: {why}")),
        };
    }
    Ok(())
}

fn write(path: &Option<PathBuf>, content: impl FnOnce() -> String) -> Result<(), String> {
    match path {
        None => Ok(()),
        Some(path) => fs::write(path, content()).map_err(|e| format!("{}: {e}", path.display())),
    }
}

fn plan(args: &Load) -> Result<Plan, String> {
    let seconds = |name: &str, value: f64| match Duration::try_from_secs_f64(value) {
        Ok(time) if time > Duration::ZERO && value < 1e7 => Ok(time),
        _ => Err(format!("--{name} wants a number of seconds above 0")),
    };
    if args.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return Err("--rate wants a number of handshakes a second above 0".to_owned());
    }
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let threads = args.threads.map_or(processors, usize::from).min(args.concurrency as usize);
    let duration = args.duration.map(|value| seconds("duration", value)).transpose()?;
    Ok(Plan {
        remote: resolve(&args.to, args.port)?,
        threads,
        sockets: args.sockets.into(),
        limits: Limits {
            concurrency: (args.concurrency as usize).div_ceil(threads),
            give_up: seconds("give-up", args.give_up)?,
            tear_down: args.tear_down,
        },
        warm_up: args.warm_up,
        handshakes: args.handshakes.or_else(|| duration.is_none().then_some(HANDSHAKES)),
        duration,
        slice: args.slice,
        rate: args.rate,
        process: args.responder_pid.map(Process::new).transpose()?,
        charon: hosts::charon(&args.charon),
        rules: args.rules,
    })
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let found = (host, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    // Responders on a name that has both are more often on the older one.
    let all: Vec<SocketAddr> = found.collect();
    let v4 = all.iter().find(|address| address.is_ipv4());
    v4.or_else(|| all.first()).copied().ok_or_else(|| format!("{host}: no address"))
}

/// The first signal ends the run, the second one this process.
fn heed_signals(stop: Arc<AtomicBool>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            hosts::serve::signalled().await;
            stop.store(true, Ordering::Relaxed);
            hosts::serve::signalled().await;
        });
        std::process::exit(130);
    });
    Ok(())
}
