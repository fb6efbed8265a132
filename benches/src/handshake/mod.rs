//! `ike-bench handshake`: two engines in one process, beside the library calls they must make.

mod ends;
mod floor;
pub mod recorder;
mod suite;

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::RangedU64ValueParser;

pub use ends::{Ends, Spent};
pub use floor::{Floor, Kind};
pub use suite::{SUITES, Suite};

use crate::counter::{Rates, ticks};
use crate::sample::Spread;

/// Handshakes of two engines in one process, both ends together, beside the calls of cryptographic
/// libraries that they must make on the same input, taken by turns.
#[derive(Debug, Args)]
pub struct HandshakeArgs {
    /// Handshakes of each suite.
    #[arg(long, default_value_t = 2000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    runs: usize,
    /// Seconds after which a slow suite stops with fewer.
    #[arg(long, default_value_t = 4.0)]
    limit: f64,
    /// Only suites whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Handshakes alone, for a profiler.
    #[arg(long)]
    alone: bool,
    /// Also write the table here as CSV.
    #[arg(long)]
    csv: Option<PathBuf>,
}

/// The two sides of the comparison, in ticks.
struct Row {
    name: &'static str,
    handshake: Spread,
    floor: Spread,
    /// By kind: calls, and ticks of them alone.
    parts: [(usize, Spread); 3],
    repeated: usize,
    datagrams: usize,
}

/// All kinds of calls.
pub const KINDS: [Kind; 3] = [Kind::PublicKey, Kind::Prf, Kind::Aead];

/// Prints the table.
///
/// # Errors
/// A handshake that fails, a file that cannot be written.
pub fn handshake(args: &HandshakeArgs) -> Result<(), String> {
    let limit = Duration::try_from_secs_f64(args.limit)
        .map_err(|error| format!("--limit {:?}: {error}", args.limit))?;
    let mut chosen = SUITES.iter().filter(|suite| suite.name.contains(&args.only)).peekable();
    if chosen.peek().is_none() {
        let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
        return Err(format!("--only {}: no such suite; there are {}", args.only, names.join(", ")));
    }
    if args.alone {
        return chosen.try_for_each(|suite| alone(suite, args.runs));
    }
    let rates = Rates::measure();
    let mut rows = Vec::new();
    for suite in chosen {
        eprintln!("{}", suite.name);
        rows.push(measure(suite, args.runs, limit)?);
    }
    print!("{}", text(&rows, &rates));
    match &args.csv {
        Some(path) => std::fs::write(path, csv(&rows, &rates))
            .map_err(|error| format!("{}: {error}", path.display())),
        None => Ok(()),
    }
}

/// Two ends of `suite` with the backends of a daemon.
///
/// # Errors
/// A handshake that fails.
pub fn ends(suite: &Suite) -> Result<Ends, String> {
    let crypto = Arc::new(pq_kem::provider());
    let mut ends = Ends::new(suite.sides(), &crypto, || Box::new(pq_kem::os_random()));
    once(&mut ends)?;
    Ok(ends)
}

/// A handshake, then its end and enough time to forget it, of which nothing counts; the ticks.
///
/// # Errors
/// Why it failed.
pub fn once(ends: &mut Ends) -> Result<u64, String> {
    let before = ticks();
    ends.handshake()?;
    let taken = ticks() - before;
    ends.delete()?;
    ends.pass(FORGOTTEN);
    Ok(taken)
}

/// [`once`], exchange by exchange.
///
/// # Errors
/// Why it failed.
pub fn by_exchange(ends: &mut Ends) -> Result<Spent, String> {
    let spent = ends.handshake_by_exchange()?;
    ends.delete()?;
    ends.pass(FORGOTTEN);
    Ok(spent)
}

/// The library calls of one handshake.
///
/// # Errors
/// A handshake that fails.
pub fn floor(suite: &Suite) -> Result<Floor, String> {
    recorded(suite).map(|(floor, _)| floor)
}

/// The same, and how many datagrams there were.
fn recorded(suite: &Suite) -> Result<(Floor, usize), String> {
    let crypto = Arc::new(recorder::provider(pq_kem::provider()));
    let mut ends = Ends::new(suite.sides(), &crypto, || Box::new(pq_kem::os_random()));
    let (result, calls) = recorder::record(|| ends.handshake());
    result.map_err(|why| format!("{}: {why}", suite.name))?;
    Ok((Floor::of(&calls)?, ends.sent))
}

fn alone(suite: &Suite, runs: usize) -> Result<(), String> {
    let mut ends = ends(suite)?;
    (0..runs).try_for_each(|_| once(&mut ends).map(drop))
}

fn measure(suite: &Suite, runs: usize, limit: Duration) -> Result<Row, String> {
    let (mut floor, datagrams) = recorded(suite)?;
    let mut ends = ends(suite)?;
    let [mut handshakes, mut floors] = [Vec::new(), Vec::new()];
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    let begun = Instant::now();
    for run in 0..runs {
        handshakes.push(once(&mut ends)?);
        let before = ticks();
        floor.run(&KINDS)?;
        floors.push(ticks() - before);
        if run % 4 == 0 {
            for (kind, samples) in KINDS.iter().zip(&mut parts) {
                let before = ticks();
                floor.run(&[*kind])?;
                samples.push(ticks() - before);
            }
        }
        if run >= MIN_RUNS && begun.elapsed() > limit {
            break;
        }
    }
    let [a, b, c] = parts;
    Ok(Row {
        name: suite.name,
        handshake: Spread::of(handshakes),
        floor: Spread::of(floors),
        parts: [(0, a), (1, b), (2, c)]
            .map(|(at, samples)| (floor.calls(KINDS[at]), Spread::of(samples))),
        repeated: floor.repeated,
        datagrams,
    })
}

impl Row {
    fn ratio(&self) -> f64 {
        self.handshake.median as f64 / self.floor.median.max(1) as f64
    }

    fn least_ratio(&self) -> f64 {
        self.handshake.min as f64 / self.floor.min.max(1) as f64
    }
}

fn text(rows: &[Row], rates: &Rates) -> String {
    let mut out = String::from(
        "Medians in microseconds, both ends together. floor: the library calls that must be made, each once; \
         of them public key, PRF and hash, AEAD (and how many calls).\n\n",
    );
    let _ = writeln!(
        out,
        "{:<18} {:>6} {:>10} {:>9} {:>9} {:>6} {:>7} {:>15} {:>13} {:>13} {:>6}",
        "suite",
        "runs",
        "handshake",
        "floor",
        "rest",
        "ratio",
        "of min",
        "public key",
        "PRF",
        "AEAD",
        "twice"
    );
    for row in rows {
        let us = |ticks: u64| rates.nanoseconds(ticks) / 1000.0;
        let parts = row.parts.map(|(calls, spread)| format!("{:.1} ({calls})", us(spread.median)));
        let [public, prf, aead] = &parts;
        let _ = writeln!(
            out,
            "{:<18} {:>6} {:>10.1} {:>9.1} {:>9.1} {:>6.2} {:>7.2} {public:>15} {prf:>13} {aead:>13} {:>6}",
            row.name,
            row.handshake.runs,
            us(row.handshake.median),
            us(row.floor.median),
            us(row.handshake.median) - us(row.floor.median),
            row.ratio(),
            row.least_ratio(),
            row.repeated,
        );
    }
    out
}

fn csv(rows: &[Row], rates: &Rates) -> String {
    let mut out = String::from(
        "suite,runs,handshake_us,floor_us,ratio,handshake_min_us,floor_min_us,public_key_us,prf_us,aead_us,\
         datagrams\n",
    );
    for row in rows {
        let us = |ticks: u64| rates.nanoseconds(ticks) / 1000.0;
        let [public, prf, aead] = row.parts.map(|(_, spread)| us(spread.median));
        let _ = writeln!(
            out,
            "{},{},{:.2},{:.2},{:.3},{:.2},{:.2},{public:.2},{prf:.2},{aead:.2},{}",
            row.name,
            row.handshake.runs,
            us(row.handshake.median),
            us(row.floor.median),
            row.ratio(),
            us(row.handshake.min),
            us(row.floor.min),
            row.datagrams,
        );
    }
    out
}

/// Longer than anything of an IKE SA that was deleted is kept.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Runs that even a slow suite gets.
const MIN_RUNS: usize = 20;
