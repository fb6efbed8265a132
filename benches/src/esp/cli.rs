//! The arguments and tables of `ike-bench esp`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::measure::{Row, measure};
use super::{SIZES, SUITES, cores};
use crate::counter::{NAME, Rates};

/// Userspace ESP, seal and open, beside the bare cipher.
///
/// Packets go the way they go in the daemon, all but the system calls. ESP and the bare AEAD of aws-lc-rs
/// (the backend's own cipher where that has none) run in turns in batches; a figure is the median of the
/// batches, for one packet. Run it on one core: taskset -c 1.
#[derive(Debug, Args)]
pub struct Esp {
    /// Only suites whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Lengths of the IP packets.
    #[arg(long, value_delimiter = ',', default_values_t = SIZES)]
    size: Vec<usize>,
    /// Seconds for each suite and size.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Fails if bare / ESP of seal + open is below this anywhere.
    #[arg(long, value_name = "RATIO")]
    min: Option<f64>,
    /// Instead of the table: packets per second over so many threads that share one SA.
    #[arg(long, value_delimiter = ',', value_name = "THREADS")]
    cores: Vec<usize>,
    /// Also write the table here as CSV.
    #[arg(long)]
    csv: Option<PathBuf>,
}

/// Runs `ike-bench esp`.
pub fn esp(args: &Esp) -> Result<(), String> {
    let time = Duration::try_from_secs_f64(args.seconds)
        .map_err(|error| format!("--seconds {:?}: {error}", args.seconds))?;
    if args.cores.contains(&0) {
        return Err("--cores 0: there would be no threads".to_owned());
    }
    if let Some(size) = args.size.iter().find(|size| !(20..=65_000).contains(*size)) {
        return Err(format!("no IP packet of {size} octets: 20 to 65000"));
    }
    let suites: Vec<_> = SUITES.into_iter().filter(|s| s.name.contains(&args.only)).collect();
    if suites.is_empty() {
        return Err(format!("no suite has {:?} in its name", args.only));
    }
    if !args.cores.is_empty() {
        return cores::cores(&suites, &args.size, &args.cores, time);
    }
    let rates = Rates::measure();
    print!("{}", heading(&rates));
    let mut rows = Vec::new();
    for suite in suites {
        for &size in &args.size {
            let row = measure(suite, size, time, rates.overhead)?;
            print!("{}", line(&row, &rates));
            rows.push(row);
        }
    }
    if let Some(path) = &args.csv {
        std::fs::write(path, csv(&rows, &rates))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let below = |row: &&Row| args.min.is_some_and(|min| row.ratio() < min);
    match rows.iter().find(below) {
        Some(row) => Err(format!("{} at {} octets: {:.3}", row.suite, row.size, row.ratio())),
        None => Ok(()),
    }
}

fn heading(rates: &Rates) -> String {
    let three = format!("{:>7} {:>7} {:>7}", "seal", "open", "bare");
    format!(
        "{NAME} at {:.4} GHz; core at an estimated {:.2} GHz. bare: the cipher alone, seal + open\n\
         {:<17} {:>5} | {:^23} | {:^23} | {:>7} {:>7} | bare/ESP\n\
         {:<17} {:>5} | {three} | {three} | {:>7} {:>7} |\n",
        rates.ticks / 1e9,
        rates.core / 1e9,
        "",
        "",
        "ns per packet",
        format!("{NAME} per octet"),
        "added",
        "Gbit/s",
        "suite",
        "size",
        "ns",
        "s + o",
    )
}

fn line(row: &Row, rates: &Rates) -> String {
    let Row { suite, size, esp, bare, .. } = row;
    let ns = |ticks: f64| ticks * 1e9 / rates.ticks;
    let octet = |ticks: f64| ticks / *size as f64;
    let mut out = format!("{suite:<17} {size:>5}");
    let [seal, open, both] = [esp.seal, esp.open, bare.sum()].map(ns);
    let _ = write!(out, " | {seal:>7.1} {open:>7.1} {both:>7.1}");
    let [seal, open, both] = [esp.seal, esp.open, bare.sum()].map(octet);
    let _ = write!(out, " | {seal:>7.3} {open:>7.3} {both:>7.3}");
    let added = ns(esp.sum() - bare.sum());
    let rate = *size as f64 * 8.0 / ns(esp.sum());
    let _ = writeln!(out, " | {added:>7.1} {rate:>7.2} | {:>8.3}", row.ratio());
    out
}

fn csv(rows: &[Row], rates: &Rates) -> String {
    let mut out = String::from(
        "suite,size,batches,ns_seal,ns_open,ns_bare_seal,ns_bare_open,ticks_seal,ticks_open,\
         ticks_bare_seal,ticks_bare_open,ratio\n",
    );
    for row in rows {
        let Row { suite, size, runs, esp, bare } = row;
        let ticks = [esp.seal, esp.open, bare.seal, bare.open];
        let _ = write!(out, "{suite},{size},{runs}");
        for ns in ticks.map(|ticks| ticks * 1e9 / rates.ticks) {
            let _ = write!(out, ",{ns:.1}");
        }
        for ticks in ticks {
            let _ = write!(out, ",{ticks:.1}");
        }
        let _ = writeln!(out, ",{:.3}", row.ratio());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::measure::Ticks;
    use super::*;

    #[test]
    fn lines_have_both_units() {
        let rates = Rates { ticks: 2e9, core: 3e9, overhead: 0 };
        let (esp, bare) = (Ticks { seal: 600.0, open: 400.0 }, Ticks { seal: 500.0, open: 300.0 });
        let row = Row { suite: "aes256gcm16", size: 1000, runs: 7, esp, bare };
        let line = line(&row, &rates);
        let words: Vec<_> = line.split_whitespace().filter(|word| *word != "|").collect();
        let expected = "aes256gcm16 1000 300.0 200.0 400.0 0.600 0.400 0.800 100.0 16.00 0.800";
        assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
        let csv = csv(&[row], &rates);
        let expected = "aes256gcm16,1000,7,300.0,200.0,250.0,150.0,600.0,400.0,500.0,300.0,0.800";
        assert_eq!(csv.lines().nth(1), Some(expected));
    }
}
