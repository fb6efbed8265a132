//! The arguments of `ike-bench links`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use ike_tests::link::{Clock, Jitter, LinkModel, Loss};

use super::published::pq_ipsec;
use super::rules::Rules;
use super::run::{Plan, Row, run, seed};
use super::scenario::{ALL, BOTH, Scenario, named};
use super::sim::Simulated;
use super::suite::Suite;
use super::{Case, plot, report};
use crate::hosts::{self, ToArgs};

/// How long an IKE SA takes over bad links, and how many octets.
///
/// Without a scenario, one link is measured: that of --loss, --rtt, --rate and --gilbert. Two engines
/// make each handshake on a simulated network, in virtual time: the same seed gives the same figures on
/// every machine. strongSwan's rules stand beside ours.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    ike-bench links --list\n  \
    ike-bench links loss --csv loss.csv --svg loss.svg\n  \
    ike-bench links --loss 5 --rtt 10 --suite mlkem1024-mldsa87\n  \
    ike-bench links --gilbert 0.004,0.081 --clock time --rtt 66 --rules ours\n  \
    ike-bench links pq-ipsec\n  \
    ike-bench serve                          on one host, and on another\n  \
    ike-bench links --to HOST --bundle initiator --runs 1000\n  \
    ike-bench links --real -- -l loss5-10    in the kernel lab, beside strongSwan")]
#[command(allow_negative_numbers = true)]
pub struct Links {
    /// Scenarios, each a table; --list tells which there are.
    pub scenario: Vec<String>,
    /// Says which scenarios and suites there are, and ends.
    #[arg(long)]
    pub list: bool,
    /// What is negotiated; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub suite: Vec<String>,
    /// How both ends retransmit: ours, strongswan, or INITIATOR/RESPONDER; may be given several times.
    #[arg(long, value_name = "RULES")]
    pub rules: Vec<String>,
    /// Independent loss in percent, in each direction; 0 unless given.
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["gilbert", "to", "from", "real"])]
    pub loss: Option<f64>,
    /// Round-trip time in milliseconds, 10 unless given; of a real link, to tell times in it.
    #[arg(long, value_name = "MS")]
    pub rtt: Option<f64>,
    /// Largest deviation of the time under way, in milliseconds in each direction.
    #[arg(long, value_name = "MS", conflicts_with_all = ["to", "from", "real"])]
    pub jitter: Option<f64>,
    /// Bits per second, IP and UDP headers counted.
    #[arg(long, value_name = "BITS", conflicts_with_all = ["to", "from", "real"])]
    pub rate: Option<u64>,
    /// Loss in bursts: probabilities of a step from good to bad and back.
    #[arg(long, value_name = "P,R", conflicts_with_all = ["to", "from", "real"])]
    pub gilbert: Option<String>,
    /// What makes the steps of --gilbert and of the scenario measuredswan: each packet, or time.
    #[arg(long, value_enum, conflicts_with_all = ["to", "from", "real"])]
    pub clock: Option<ClockKind>,
    /// With --clock time: milliseconds from step to step.
    #[arg(long, value_name = "MS", default_value_t = 10.0, conflicts_with_all = ["to", "from", "real"])]
    pub slot: f64,
    /// Computing of either end for each message, in milliseconds.
    #[arg(long, value_name = "MS", conflicts_with_all = ["to", "from", "real"])]
    pub processing: Option<f64>,
    /// Handshakes of each row; a scenario has a number of its own.
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub runs: Option<usize>,
    /// Everything random depends on it.
    #[arg(long, default_value_t = 1, conflicts_with_all = ["to", "from", "real"])]
    pub seed: u64,
    /// Hours of virtual time after which a handshake has failed.
    #[arg(long, value_name = "HOURS", default_value_t = 24.0, conflicts_with_all = ["to", "from", "real"])]
    pub limit: f64,
    /// The real public-key cryptography in the place of stand-ins of the same lengths; slower.
    #[arg(long, conflicts_with_all = ["to", "from", "real"])]
    pub real_crypto: bool,
    /// Prints every datagram of this handshake of each row, counted from 0, and measures nothing.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["to", "from", "real"])]
    pub story: Option<usize>,
    /// Also write the table here as CSV; of several scenarios each into NAME-SCENARIO.csv.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write every handshake here as CSV.
    #[arg(long, value_name = "FILE")]
    pub handshakes: Option<PathBuf>,
    /// Also write distributions here as a picture.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Links that are not simulated.
    #[command(flatten)]
    pub hosts: ToArgs,
}

/// What makes the steps of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClockKind {
    /// Each datagram, as with netem.
    Packet,
    /// Time.
    Time,
}

/// Does what the arguments say.
///
/// # Errors
/// What is wrong with the arguments, or with a file to be written.
pub fn links(args: &Links) -> Result<(), String> {
    if args.list {
        print!("{}", list());
        return Ok(());
    }
    if args.hosts.wanted() {
        return hosts::links(args);
    }
    if !(args.limit > 0.0 && args.limit <= 1e6) {
        return Err(format!("--limit {:?}: not a number of hours above 0", args.limit));
    }
    let limit = Duration::from_secs_f64(args.limit * 3600.0);
    let backend = Simulated::new(args.real_crypto, limit);
    let suites = suites(&args.suite)?;
    let rules = args.rules.iter().map(|text| parse_rules(text)).collect::<Result<Vec<_>, _>>()?;
    if args.scenario.is_empty() {
        let cases = own_link(args, &suites, &rules)?;
        writable(args, None)?;
        return measure(args, &backend, None, cases);
    }
    let link = args.loss.is_some() || args.rtt.is_some() || args.rate.is_some();
    if link || args.jitter.is_some() || args.gilbert.is_some() {
        return Err("a scenario has links of its own: give either it or a link".to_owned());
    }
    // What is wrong with the last is told before the first takes its minutes.
    let mut tables = Vec::new();
    for name in &args.scenario {
        let scenario = named(name).ok_or_else(|| {
            let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
            format!("no scenario {name}; there are {}", names.join(", "))
        })?;
        let mut cases = scenario.rows(&suites, &rules);
        adjust(args, &mut cases)?;
        if cases.is_empty() {
            return Err(format!("{name}: no rows: it has none of these suites"));
        }
        writable(args, Some(scenario))?;
        tables.push((scenario, cases));
    }
    tables
        .into_iter()
        .try_for_each(|(scenario, cases)| measure(args, &backend, Some(scenario), cases))
}

fn measure(
    args: &Links,
    backend: &Simulated,
    scenario: Option<&Scenario>,
    cases: Vec<Case>,
) -> Result<(), String> {
    use super::Backend;
    if let Some(run) = args.story {
        for case in &cases {
            println!("{} {} {}", case.label, case.suite.name, case.rules_name());
            print!("{}", backend.story(case, seed(args.seed, case, run))?);
        }
        return Ok(());
    }
    let runs = args.runs.unwrap_or(scenario.map_or(1000, |scenario| scenario.runs));
    let plan = Plan { runs, seed: args.seed };
    let name = table_name(scenario);
    let about = scenario.map_or("a link by itself", |scenario| scenario.about);
    println!(
        "{name}: {about}\n{}; {runs} handshakes of each row, seed {}\n",
        backend.name(),
        args.seed
    );
    let rows = run(backend, cases, plan)?;
    let published = name == "pq-ipsec";
    if published {
        print!("{}", report::checks(&rows, &defects(&rows), args.seed));
    } else {
        print!("{}", report::text(&rows));
    }
    println!();
    let path = |path: &Path| output(args, path, scenario);
    if let Some(file) = &args.csv {
        write(&path(file), &report::csv(&rows))?;
    }
    if let Some(file) = &args.handshakes {
        write(&path(file), &report::handshakes_csv(&rows))?;
    }
    if let Some(file) = &args.svg {
        let svg = if published {
            plot::shares(&rows, args.seed)
        } else {
            plot::distributions(&rows, &format!("{name}: {about}"))
        };
        write(&path(file), &svg)?;
    }
    Ok(())
}

/// Why rows of the study of 137,490 handshakes do not count.
pub fn defects(rows: &[Row]) -> Vec<Option<&'static str>> {
    let lines = pq_ipsec();
    let defect = |row: &Row| {
        let line = lines.iter().find(|line| {
            row.case.suite.name == format!("{}/{}", line.cert, line.ke)
                && row.case.label == format!("{} ms {} %", line.ping, line.loss)
        });
        line.and_then(|line| line.defect())
    };
    rows.iter().map(defect).collect()
}

fn own_link(args: &Links, suites: &[Suite], rules: &[[Rules; 2]]) -> Result<Vec<Case>, String> {
    let clock = clock(args, ClockKind::Packet)?;
    let loss = match (&args.gilbert, args.loss) {
        (Some(text), _) => {
            let (p, r) = text
                .split_once(',')
                .and_then(|(p, r)| Some((p.trim().parse().ok()?, r.trim().parse().ok()?)))
                .filter(|(p, r): &(f64, f64)| (0.0..=1.0).contains(p) && *r > 0.0 && *r <= 1.0)
                .ok_or_else(|| format!("--gilbert {text}: two probabilities, as 0.004,0.081"))?;
            Loss::Gilbert { p, r, clock }
        }
        (None, Some(percent)) if (0.0..100.0).contains(&percent) => Loss::Random(percent / 100.0),
        (None, Some(percent)) => return Err(format!("--loss {percent}: not from 0 to below 100")),
        (None, None) => Loss::None,
    };
    if args.rate == Some(0) {
        return Err("--rate 0: nothing would ever arrive".to_owned());
    }
    let jitter = match args.jitter {
        Some(_) => Jitter::Uniform(milliseconds("--jitter", args.jitter, 0.0)?),
        None => Jitter::None,
    };
    let rtt = milliseconds("--rtt", args.rtt, 10.0)?;
    let link = LinkModel { rate: args.rate, jitter, loss, ..LinkModel::rtt(rtt) };
    let usual = [Suite::classical(), Suite::mlkem768()];
    let suites = if suites.is_empty() { &usual } else { suites };
    let rules = if rules.is_empty() { BOTH } else { rules };
    let each = suites.iter().flat_map(|suite| rules.iter().map(move |rules| (suite, *rules)));
    let label = match loss {
        Loss::Gilbert { p, r, .. } => format!("P {p} R {r}"),
        loss => format!("{} %", loss.rate() * 100.0),
    };
    let case = |(suite, rules): (&Suite, [Rules; 2])| Case {
        rules,
        ..Case::new(label.clone(), suite.clone(), Rules::Ours, link)
    };
    let mut cases: Vec<Case> = each.map(case).collect();
    adjust(args, &mut cases)?;
    Ok(cases)
}

/// Changes rows as the arguments say.
fn adjust(args: &Links, cases: &mut Vec<Case>) -> Result<(), String> {
    if let Some(kind) = args.clock {
        // Of a scenario with both, the rows with this one.
        let wanted = |case: &Case| match case.links[0].loss {
            Loss::Gilbert { clock: Clock::Packet, .. } => kind == ClockKind::Packet,
            Loss::Gilbert { clock: Clock::Time(_), .. } => kind == ClockKind::Time,
            _ => true,
        };
        cases.retain(wanted);
    }
    let slot = milliseconds("--slot", Some(args.slot), 10.0)?;
    if args.clock.is_some() && args.scenario.is_empty() && args.gilbert.is_none() {
        return Err("--clock is for --gilbert: other loss has no steps".to_owned());
    }
    if slot.is_zero() {
        return Err("--slot 0: time would not pass".to_owned());
    }
    for case in cases {
        for link in &mut case.links {
            if let Loss::Gilbert { clock: Clock::Time(length), .. } = &mut link.loss {
                *length = slot;
            }
        }
        if args.processing.is_some() {
            case.processing = milliseconds("--processing", args.processing, 0.0)?;
        }
    }
    Ok(())
}

fn clock(args: &Links, usual: ClockKind) -> Result<Clock, String> {
    Ok(match args.clock.unwrap_or(usual) {
        ClockKind::Packet => Clock::Packet,
        ClockKind::Time => Clock::Time(milliseconds("--slot", Some(args.slot), 10.0)?),
    })
}

fn suites(names: &[String]) -> Result<Vec<Suite>, String> {
    let suite = |name: &String| {
        Suite::named(name).ok_or_else(|| {
            let names: Vec<_> = Suite::all().into_iter().map(|suite| suite.name).collect();
            let published = "CERT/KE by the names of the scenario pq-ipsec";
            format!("no suite {name}; there are {}, and {published}", names.join(", "))
        })
    };
    names.iter().map(suite).collect()
}

fn parse_rules(text: &str) -> Result<[Rules; 2], String> {
    let one = |end: &str| {
        Rules::from_str(end, true)
            .map_err(|_| format!("--rules {text}: ours, strongswan, or both as ours/strongswan"))
    };
    match text.split_once('/') {
        Some((initiator, responder)) => Ok([one(initiator)?, one(responder)?]),
        None => one(text).map(|rules| [rules; 2]),
    }
}

/// Milliseconds of an hour: more than any link takes.
const HOUR: f64 = 3_600_000.0;

fn milliseconds(name: &str, given: Option<f64>, usual: f64) -> Result<Duration, String> {
    let value = given.unwrap_or(usual);
    if (0.0..=HOUR).contains(&value) {
        return Ok(Duration::from_secs_f64(value / 1000.0));
    }
    Err(format!("{name} {value:?}: not from 0 to {HOUR} milliseconds"))
}

/// Scenarios and suites.
fn list() -> String {
    use std::fmt::Write as _;
    let mut out = String::from("Scenarios:\n");
    for scenario in ALL {
        let _ = writeln!(out, "  {:<14} {}", scenario.name, scenario.about);
    }
    out.push_str("\nSuites:\n");
    for suite in Suite::all() {
        let _ = writeln!(out, "  {:<24} {}", suite.name, suite.about);
    }
    out.push_str(
        "  CERT/KE                  by the names of the study in pq-ipsec, as dilithium5/ke1_kyber5-x25519\n",
    );
    out.push_str("\nRules:\n  ours, strongswan, or those of the initiator and the responder: ours/strongswan\n");
    out
}

/// The name of a scenario's table, or of that of a link by itself.
fn table_name(scenario: Option<&Scenario>) -> &'static str {
    scenario.map_or("link", |scenario| scenario.name)
}

/// Where what goes to `path` goes for this scenario.
fn output(args: &Links, path: &Path, scenario: Option<&Scenario>) -> PathBuf {
    match args.scenario.len() {
        0 | 1 => path.to_owned(),
        _ => with_name(path, table_name(scenario)),
    }
}

/// Makes the files that will be written, as long as nothing has been spent on what is in them.
fn writable(args: &Links, scenario: Option<&Scenario>) -> Result<(), String> {
    if args.story.is_some() {
        return Ok(());
    }
    let files = [&args.csv, &args.handshakes, &args.svg].into_iter().flatten();
    files.map(|file| output(args, file, scenario)).try_for_each(|file| hosts::writable(&file))
}

fn with_name(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or(String::new(), |e| format!(".{}", e.to_string_lossy()));
    path.with_file_name(format!("{stem}-{name}{extension}"))
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    std::fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}
