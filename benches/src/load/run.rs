//! A run: warm-up and slices of one suite, and what each took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ike_daemon::config::Ports;
use ike_proto::config::{ConnectionConfig, EndpointConfig};
use nix::time::{ClockId, clock_gettime};

use super::initiator::Template;
use super::phase::{Outcomes, Phase};
use super::process::{Process, Usage};
use super::progress::Progress;
use super::worker::{Limits, Sockets, Worker};
use crate::hosts::bundle::{Bundle, Settings};
use crate::hosts::suite::Suite;
use crate::links::rules::Rules;

/// How a run is made, whatever the suite.
#[derive(Debug)]
pub struct Plan {
    /// The responder.
    pub remote: SocketAddr,
    /// Threads, each with sockets of its own.
    pub threads: usize,
    /// Sockets of each.
    pub sockets: usize,
    /// For each thread.
    pub limits: Limits,
    /// Handshakes before those that count.
    pub warm_up: u64,
    /// Handshakes that count; none means until the time is up.
    pub handshakes: Option<u64>,
    /// Time for those.
    pub duration: Option<Duration>,
    /// Handshakes of a slice.
    pub slice: Option<u64>,
    /// Handshakes a second.
    pub rate: Option<f64>,
    /// The responder's process.
    pub process: Option<Process>,
    /// Lines for this end's `[charon]`.
    pub charon: String,
    /// How this end sends again.
    pub rules: Rules,
}

/// A part of a run.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    /// SAs that this run had established before it.
    pub before: u64,
    /// Handshakes that came about in it.
    pub established: u64,
    /// Handshakes that did not.
    pub failed: u64,
    /// How long it took.
    pub wall: Duration,
    /// What the responder used for it.
    pub used: Option<Usage>,
    /// What this process used for it.
    pub own: Duration,
}

/// What came of a suite.
#[derive(Debug, Default)]
pub struct Row {
    /// Suite.
    pub suite: &'static str,
    /// Slices; one if none were asked for.
    pub slices: Vec<Slice>,
    /// Of all of them.
    pub outcomes: Outcomes,
    /// The responder's memory before the warm-up and at the end.
    pub rss: Option<(u64, u64)>,
    /// Established in the warm-up.
    pub warmed: u64,
    /// SAs are left at the responder.
    pub kept: bool,
    /// What the responder's public-key operations take alone.
    pub floor: Option<Duration>,
}

impl Row {
    /// Of all slices: wall time.
    pub fn wall(&self) -> Duration {
        self.slices.iter().map(|slice| slice.wall).sum()
    }

    /// This process' CPU time.
    pub fn own(&self) -> Duration {
        self.slices.iter().map(|slice| slice.own).sum()
    }

    /// Handshakes that came about.
    pub fn established(&self) -> u64 {
        self.slices.iter().map(|slice| slice.established).sum()
    }

    /// The responder's CPU time, and the kernel's part of it.
    pub fn cpu(&self) -> Option<(Duration, Duration)> {
        let used: Option<Vec<Usage>> = self.slices.iter().map(|slice| slice.used).collect();
        let used = used.filter(|used| !used.is_empty())?;
        Some((used.iter().map(|u| u.cpu).sum(), used.iter().map(|u| u.system).sum()))
    }
}

/// No datagram after so long: there is nobody.
const SILENCE: Duration = Duration::from_secs(5);
/// So many that failed, and none that came about: it is no matter of load.
const HOPELESS: u64 = 200;

/// Makes the handshakes of `suite`. What was measured is in the row also if it ends by an error.
pub fn run(
    plan: &Plan,
    bundle: &Bundle,
    suite: &'static Suite,
    stop: &AtomicBool,
) -> (Row, Result<(), String>) {
    let kept = !plan.limits.tear_down;
    let mut row = Row { suite: suite.name, kept, ..Row::default() };
    let outcome = measure(plan, bundle, suite, stop, &mut row);
    (row, outcome)
}

fn measure(
    plan: &Plan,
    bundle: &Bundle,
    suite: &'static Suite,
    stop: &AtomicBool,
    row: &mut Row,
) -> Result<(), String> {
    let mut teams = Vec::new();
    for _ in 0..plan.threads {
        let sockets = Sockets::open(plan.remote, plan.sockets)
            .map_err(|error| format!("{}: {error}", plan.remote))?;
        let templates = templates(plan, bundle, suite, &sockets)?;
        teams.push((sockets, templates));
    }
    let usage = || plan.process.map(|process| process.usage()).transpose();
    let begin = usage()?;
    let end = plan.duration;
    if plan.warm_up > 0 {
        let phase = Phase::new(Some(plan.warm_up), None, plan.rate);
        let progress = Progress::new(format!("{}, warming up", suite.name), Some(plan.warm_up));
        let (outcomes, _) = phased(&phase, plan, &teams, stop, &progress)?;
        row.warmed = outcomes.latencies.len() as u64;
        if outcomes.latencies.is_empty() {
            row.outcomes = outcomes;
            return Ok(());
        }
    }
    let progress = Progress::new(suite.name.to_owned(), plan.handshakes);
    let (mut left, mut time) = (plan.handshakes, end);
    while left != Some(0) && time != Some(Duration::ZERO) && !stop.load(Ordering::Relaxed) {
        let count = plan.slice.into_iter().chain(left).min();
        let phase = Phase::new(count, time, plan.rate);
        let (before, own) = (usage()?, own_cpu());
        let (outcomes, wall) = phased(&phase, plan, &teams, stop, &progress)?;
        let (after, own) = (usage()?, own_cpu().saturating_sub(own));
        let used = before.zip(after).map(|(before, after)| Usage {
            cpu: after.cpu.saturating_sub(before.cpu),
            system: after.system.saturating_sub(before.system),
            rss: after.rss,
        });
        row.slices.push(Slice {
            before: row.warmed + row.established(),
            established: outcomes.latencies.len() as u64,
            failed: outcomes.failed(),
            wall,
            used,
            own,
        });
        row.outcomes.add(outcomes);
        row.rss = begin.zip(after).map(|(begin, after)| (begin.rss, after.rss));
        left = left.zip(count).map(|(left, count)| left.saturating_sub(count));
        time = time.map(|time| time.saturating_sub(wall));
    }
    progress.end();
    Ok(())
}

type Team = (Sockets, Vec<Vec<Template>>);

/// Runs one phase to its end, and says how long it took.
fn phased(
    phase: &Phase,
    plan: &Plan,
    teams: &[Team],
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<(Outcomes, Duration), String> {
    let mut all = Outcomes::default();
    let mut end = phase.begin();
    let mut failure = None;
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        for (sockets, templates) in teams {
            let tell = tell.clone();
            scope.spawn(move || {
                let worker = Worker::new(sockets, templates, plan.limits, phase);
                let outcomes = worker.map_err(|e| e.to_string()).and_then(Worker::run);
                // Who listens is in this function.
                let _ = tell.send((outcomes, Instant::now()));
            });
        }
        drop(tell);
        loop {
            match told.recv_timeout(Duration::from_millis(50)) {
                Ok((Ok(outcomes), at)) => {
                    all.add(outcomes);
                    end = end.max(at);
                }
                Ok((Err(why), _)) => {
                    failure.get_or_insert(why);
                    phase.stop();
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            progress.tell(phase);
            if stop.load(Ordering::Relaxed) {
                phase.stop();
            }
            if let Some(why) = hopeless(phase, plan.remote) {
                failure.get_or_insert(why);
                phase.stop();
            }
        }
        progress.passed(phase);
    });
    match failure {
        None => Ok((all, end.saturating_duration_since(phase.begin()))),
        Some(why) => {
            let mut why = why;
            for (reason, count) in &all.failures {
                why.push_str(&format!("\n  {count} x {reason}"));
            }
            Err(why)
        }
    }
}

fn hopeless(phase: &Phase, remote: SocketAddr) -> Option<String> {
    let answers = phase.answers.load(Ordering::Relaxed);
    if answers == 0 && !phase.stopped() && phase.begin().elapsed() > SILENCE {
        let marker = if remote.port() == 500 { "without" } else { "with" };
        return Some(format!(
            "no answer from {remote} (UDP, IKE {marker} the non-ESP marker) in {} s",
            SILENCE.as_secs()
        ));
    }
    let (established, failed) =
        (phase.established.load(Ordering::Relaxed), phase.failed.load(Ordering::Relaxed));
    (established == 0 && failed >= HOPELESS && !phase.stopped())
        .then(|| format!("{remote} answers, and {failed} handshakes failed and none came about:"))
}

/// For each socket one template for each initiator of the bundle, since the engine knows its own ports.
fn templates(
    plan: &Plan,
    bundle: &Bundle,
    suite: &'static Suite,
    sockets: &Sockets,
) -> Result<Vec<Vec<Template>>, String> {
    let settings = Settings {
        peer: Some(plan.remote.ip().to_string()),
        peer_port: plan.remote.port(),
        port: 0,
        rules: plan.rules,
        charon: plan.charon.clone(),
    };
    let config = bundle.config(&[suite], &settings)?;
    let answerer = Arc::new(config.answerer.clone());
    let crypto = Arc::new(pq_kem::provider());
    let templates = |local: SocketAddr| {
        let ports = Ports { ike: local.port(), nat_t: local.port() };
        let all = config.configuration().unresolved(ports);
        let template = |connection: &Arc<ConnectionConfig>| Template {
            config: EndpointConfig { connections: vec![Arc::clone(connection)], ..all.clone() },
            connection: connection.name.clone(),
            answerer: Arc::clone(&answerer),
            crypto: Arc::clone(&crypto),
            ends: (local.ip(), plan.remote.ip()),
        };
        all.connections.iter().map(template).collect()
    };
    let local = sockets.local().map_err(|error| error.to_string())?;
    Ok(local.into_iter().map(templates).collect())
}

/// CPU time of this process.
fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
