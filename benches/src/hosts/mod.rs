//! Handshakes between two hosts, or two programs, over real sockets: `ike-bench serve` on one,
//! `ike-bench links --to` on the other.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::links::cli::Links;
use crate::links::plot;
use crate::links::rules::Rules;
use handshake::Handshake;

pub mod bundle;
pub mod counts;
pub mod handshake;
pub mod serve;
pub mod suite;
pub mod table;
pub mod tally;
pub mod to;

/// Where a responder is unless told otherwise: no port that needs root.
pub const PORT: u16 = 4500;
/// TCP port of a responder's counts.
pub const COUNTS_PORT: u16 = 14500;

/// Lines for `[charon]`: what measurements need, and `options` as on the command line.
pub fn charon(options: &[String]) -> String {
    let mut lines = String::new();
    // Any number of peers may come from one host here.
    lines.push_str("cookie_threshold = 0\ncookie_threshold_ip = 0\nblock_threshold = 0\n");
    for option in options {
        let (key, value) = option.split_once('=').unwrap_or((option, "yes"));
        let plain = value.parse::<f64>().is_ok() || ["true", "false"].contains(&value.trim());
        let quote = if plain { "" } else { "'" };
        let _ = writeln!(lines, "{} = {quote}{}{quote}", key.trim(), value.trim());
    }
    lines
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Folder with keys and certificates of both ends; made if it is not there. Its `initiator` is what the
    /// other host needs
    #[arg(long, value_name = "DIR", default_value = "links.bundle")]
    pub bundle: PathBuf,
    /// Make the bundle and nothing else
    #[arg(long)]
    pub only_bundle: bool,
    /// Suite to serve, instead of all (may be given several times)
    #[arg(long, value_name = "NAME")]
    pub suite: Vec<String>,
    /// Initiators in the bundle that is made, each with an identity and a certificate of its own, for `load`
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub initiators: u32,
    /// UDP port of IKE with the non-ESP marker
    #[arg(long, default_value_t = PORT)]
    pub port: u16,
    /// UDP port of IKE without it; 0 lets the system choose
    #[arg(long, default_value_t = 0)]
    pub ike_port: u16,
    /// TCP port that tells the initiator what was sent
    #[arg(long, default_value_t = COUNTS_PORT)]
    pub counts_port: u16,
    /// How this end sends again: ours, or as strongSwan does by default
    #[arg(long, value_enum, default_value_t = Rules::Ours)]
    pub rules: Rules,
    /// A further option of [charon], as `fragment_size=1280` (may be given several times)
    #[arg(long, value_name = "KEY=VALUE")]
    pub charon: Vec<String>,
}

/// Arguments of `links` for links that are not simulated.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Real links")]
pub struct ToArgs {
    /// Handshakes over real sockets, with `ike-bench serve` (or another responder) on this host
    #[arg(long, value_name = "HOST")]
    pub to: Option<String>,
    /// The table of handshakes that --handshakes wrote with --to (may be given several times)
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    pub from: Vec<PathBuf>,
    /// In the kernel lab, with netem, beside strongSwan: runs tests/lab/links.sh with what follows `--`
    #[arg(long, conflicts_with_all = ["to", "from"])]
    pub real: bool,
    /// The repository, for --real
    #[arg(long, value_name = "DIR", requires = "real", default_value = ".")]
    pub repository: PathBuf,
    /// Folder that `ike-bench serve` made, or its `initiator`
    #[arg(long, value_name = "DIR", requires = "to", default_value = "links.bundle")]
    pub bundle: PathBuf,
    /// The responder's UDP port; 500 is IKE without the non-ESP marker
    #[arg(long, default_value_t = PORT, requires = "to")]
    pub port: u16,
    /// Own UDP port where that is 500; 0 lets the system choose
    #[arg(long, default_value_t = 0, requires = "to")]
    pub local_port: u16,
    /// The responder's TCP port that tells what it sent; 0 if it is no `ike-bench serve`
    #[arg(long, default_value_t = COUNTS_PORT, requires = "to")]
    pub counts_port: u16,
    /// Another address of the responder's for these counts, on a better path
    #[arg(long, value_name = "HOST", requires = "to")]
    pub counts_host: Option<String>,
    /// A process in the responder's network namespace on this host, whose counters tell what was sent
    #[arg(long, value_name = "PID", requires = "to")]
    pub counts_pid: Option<u32>,
    /// Seconds after which a handshake is given up
    #[arg(long, value_name = "SECONDS", requires = "to", default_value_t = 165.0)]
    pub give_up: f64,
    /// Milliseconds between two handshakes
    #[arg(long, value_name = "MS", requires = "to", default_value_t = 0)]
    pub pause: u64,
    /// What the table calls the link
    #[arg(long, value_name = "NAME", requires = "to", default_value = "-")]
    pub link: String,
    /// What the table calls the two ends [default: ours-ours; strongswan-rules-ours with --rules strongswan]
    #[arg(long, value_name = "NAMES", requires = "to")]
    pub pair: Option<String>,
    /// A further option of [charon], as `fragment_size=1280` (may be given several times)
    #[arg(long, value_name = "KEY=VALUE", requires = "to")]
    pub charon: Vec<String>,
    /// Options of tests/lab/links.sh
    #[arg(last = true, requires = "real")]
    pub lab: Vec<String>,
}

impl ToArgs {
    /// True if no simulation is wanted.
    pub fn wanted(&self) -> bool {
        self.to.is_some() || !self.from.is_empty() || self.real
    }
}

/// `serve`.
pub fn serve(args: &ServeArgs) -> Result<(), String> {
    ike_daemon::log::init_at("warn", Default::default());
    runtime()?.block_on(serve::run(args, serve::signalled()))
}

/// `links` with links that are not simulated.
pub fn links(args: &Links) -> Result<(), String> {
    if !args.scenario.is_empty() {
        return Err("scenarios are simulated; a real link is what it is".to_owned());
    }
    for path in [&args.csv, &args.svg].into_iter().flatten() {
        writable(path)?;
    }
    let all = match &args.hosts.to {
        _ if args.hosts.real => return in_the_lab(&args.hosts),
        Some(host) => {
            let all = measure(host, args)?;
            if all.iter().all(|handshake| handshake.setup.is_none()) {
                eprintln!(
                    "no handshake came about: is the responder's UDP port {}, and open on the way?",
                    args.hosts.port
                );
            }
            all
        }
        None => read(&args.hosts.from)?,
    };
    print!("{}", table::text(&all, args.rtt));
    if let Some(path) = &args.csv {
        write(path, &table::csv(&all))?;
    }
    match &args.svg {
        Some(path) => write(
            path,
            &plot::distributions(&table::rows(&all, args.rtt), "handshakes over real links"),
        ),
        None => Ok(()),
    }
}

fn measure(host: &str, args: &Links) -> Result<Vec<Handshake>, String> {
    ike_daemon::log::init_at("error", Default::default());
    let ToArgs { give_up, link, pair, .. } = &args.hosts;
    if [Some(link), pair.as_ref()].into_iter().flatten().any(|name| name.contains([',', '\n'])) {
        return Err("--link and --pair are columns of a CSV: no commas".to_owned());
    }
    if !give_up.is_finite() || *give_up <= 0.0 || *give_up > 1e6 {
        return Err("--give-up wants a number of seconds above 0".to_owned());
    }
    let rules = match args.rules.as_slice() {
        [] => Rules::Ours,
        [one] => {
            Rules::from_str(one, true).map_err(|_| format!("--rules {one}: ours or strongswan"))?
        }
        _ => return Err("--to measures with one kind of --rules".to_owned()),
    };
    let wanted = to::Wanted {
        host,
        args: &args.hosts,
        suites: &args.suite,
        runs: args.runs.unwrap_or(100),
        rules,
        charon: charon(&args.hosts.charon),
    };
    let mut file = match &args.handshakes {
        None => None,
        Some(path) => {
            let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
            let mut file = fs::File::create(path).map_err(wrong)?;
            writeln!(file, "{}", handshake::HEADING).map_err(wrong)?;
            Some((path, file))
        }
    };
    runtime()?.block_on(to::run(&wanted, |handshake| match &mut file {
        None => Ok(()),
        Some((path, file)) => {
            writeln!(file, "{}", handshake.csv()).map_err(|e| format!("{}: {e}", path.display()))
        }
    }))
}

fn in_the_lab(args: &ToArgs) -> Result<(), String> {
    let script = args.repository.join("tests/lab/links.sh");
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = std::process::Command::new(&script)
        .args(&args.lab)
        .env("IKE_BENCH", own)
        .status()
        .map_err(|error| format!("{}: {error} (--repository?)", script.display()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", script.display())) }
}

/// Makes a file if it is not there.
///
/// # Errors
/// It cannot be written.
pub fn writable(path: &Path) -> Result<(), String> {
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}

/// Handshakes that `--handshakes` wrote.
fn read(files: &[PathBuf]) -> Result<Vec<Handshake>, String> {
    let mut all = Vec::new();
    for path in files {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|e| wrong(&e))?;
        all.extend(handshake::parse(&text).map_err(|e| wrong(&e))?);
    }
    Ok(all)
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}
