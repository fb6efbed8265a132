//! `ike-bench links --to HOST`: handshakes with a responder over real sockets, one after the other.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use ike_daemon::config::Ports;
use ike_daemon::daemon::{Daemon, Parts, open, os_crypto};
use ike_tokio::Target;
use ike_tokio::{Listen, Message, Plane};
use tokio::sync::mpsc;

use super::ToArgs;
use super::bundle::{Bundle, Settings};
use super::counts::Counts;
use super::handshake::Handshake;
use super::suite::Suite;
use super::tally::{Sent, Tally};
use crate::links::rules::Rules;

/// How long the delete at the end of a handshake may take before the next one begins.
const FAREWELL: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The responder.
    pub host: &'a str,
    /// How to reach it, and the like.
    pub args: &'a ToArgs,
    /// Suites; none means all.
    pub suites: &'a [String],
    /// Handshakes of each.
    pub runs: usize,
    /// How to send again.
    pub rules: Rules,
    /// Lines for `[charon]`.
    pub charon: String,
}

/// Runs them, and tells each to `tell` when it is over.
pub async fn run(
    wanted: &Wanted<'_>,
    mut tell: impl FnMut(&Handshake) -> Result<(), String>,
) -> Result<Vec<Handshake>, String> {
    let (args, runs) = (wanted.args, wanted.runs);
    let bundle = Bundle::open(&args.bundle, "initiator")?;
    let suites = bundle.suites(wanted.suites)?;
    let mut all = Vec::new();
    for suite in suites {
        let mut initiator = Initiator::start(wanted, &bundle, suite).await?;
        for run in 1..=runs {
            let handshake = initiator.handshake(args).await?;
            tell(&handshake)?;
            show(suite, run, runs, &handshake);
            all.push(handshake);
            tokio::time::sleep(Duration::from_millis(args.pause)).await;
        }
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
    Ok(all)
}

/// Progress, on one line of a terminal.
fn show(suite: &Suite, run: usize, runs: usize, last: &Handshake) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let time = last.setup.map_or("given up".to_owned(), |s| format!("{:.1} ms", s * 1e3));
    eprint!("\r{:<20} {run}/{runs}  {time:>12} ", suite.name);
    let _ = std::io::stderr().flush();
}

/// An initiator of one suite.
struct Initiator {
    suite: &'static Suite,
    pair: String,
    daemon: Daemon,
    messages: mpsc::UnboundedReceiver<Message>,
    tally: Tally,
    counts: Counts,
}

impl Initiator {
    async fn start(
        wanted: &Wanted<'_>,
        bundle: &Bundle,
        suite: &'static Suite,
    ) -> Result<Self, String> {
        let (host, args) = (wanted.host, wanted.args);
        let settings = Settings {
            peer: Some(host.to_owned()),
            peer_port: args.port,
            port: 0,
            rules: wanted.rules,
            charon: wanted.charon.clone(),
        };
        let config = bundle.config(&[suite], &settings)?;
        let any = Ports { ike: args.local_port, nat_t: 0 };
        let (sockets, plane) =
            open(&Listen::default(), any, |_| Ok(Plane::none())).map_err(|e| e.to_string())?;
        let (tap, messages) = mpsc::unbounded_channel();
        let crypto = os_crypto(pq_kem::provider());
        let daemon = Daemon::start(Parts { config, sockets, plane, crypto, tap: Some(tap) }).await;
        let counts = Counts::open(host, args).await?;
        // Host names are resolved in the background at first.
        daemon.operator().refresh().await.map_err(|error| error.to_string())?;
        let usual = match wanted.rules {
            Rules::Ours => "ours-ours",
            Rules::Strongswan => "strongswan-rules-ours",
        };
        let pair = args.pair.as_deref().unwrap_or(usual).to_owned();
        Ok(Self { suite, pair, daemon, messages, tally: Tally::default(), counts })
    }

    async fn handshake(&mut self, args: &ToArgs) -> Result<Handshake, String> {
        self.listen();
        self.tally.clear();
        let name = Some(self.suite.name.to_owned());
        let child =
            Target { ike: name.clone(), child: Some("net".to_owned()), ..Target::default() };
        let ike = Target { ike: name, ..Target::default() };
        let limit = Duration::from_secs_f64(args.give_up);
        self.counts.begin().map_err(|error| error.to_string())?;
        let begin = Instant::now();
        let mut attempts = 0;
        let mut why = String::new();
        let setup = loop {
            let left = limit.saturating_sub(begin.elapsed());
            attempts += 1;
            match tokio::time::timeout(left, self.daemon.operator().up(&child)).await {
                Ok(Ok(())) => break Some(begin.elapsed()),
                // An attempt that failed is followed by another one until the time is up. A peer that
                // refuses does so at once: then it is no matter of links.
                Ok(Err(error)) => {
                    if begin.elapsed() < Duration::from_millis(100) {
                        return Err(format!("{}: {error}", self.suite.name));
                    }
                    why = error.to_string();
                }
                Err(_) => break None,
            }
        };
        if setup.is_none() && !why.is_empty() {
            eprintln!("{}: {why}", self.suite.name);
        }
        let counted = self.counts.end().map_err(|error| error.to_string())?;
        self.listen();
        let spis = self.tally.spis();
        let mut initiator = Sent::default();
        spis.iter().for_each(|spi| initiator += self.tally.of(*spi));
        // What is not confirmed goes on being deleted while the next handshake runs; it is not counted.
        let _ = tokio::time::timeout(FAREWELL, self.daemon.operator().down(&ike)).await;
        let asked = self.counts.ask(&spis).await.map_err(|error| error.to_string())?;
        Ok(Handshake {
            link: args.link.clone(),
            pair: self.pair.clone(),
            suite: self.suite.name.to_owned(),
            setup: setup.map(|time| time.as_secs_f64()),
            attempts,
            initiator,
            responder: counted.or(asked),
        })
    }

    fn listen(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.tally.note(&message);
        }
    }
}
