//! The table of `kem` and `sign`: on standard output, and as CSV.

use std::fmt::Write as _;

use crate::counter::{NAME, Rates};
use crate::sample::Spread;

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Algorithm.
    pub algorithm: String,
    /// Backend.
    pub backend: &'static str,
    /// Operation: `keygen`, `encaps`, `decaps`, `sign` or `verify`.
    pub operation: &'static str,
    /// Ticks.
    pub spread: Spread,
}

/// The table as text. Times are those of one core and one call, the random octets it draws and the
/// memory it takes included.
pub fn text(rows: &[Row], rates: &Rates) -> String {
    let mut out = format!(
        "{NAME} at {:.4} GHz; core at an estimated {:.2} GHz; reading the counter: {} ticks, not \
         subtracted\n",
        rates.ticks / 1e9,
        rates.core / 1e9,
        rates.overhead
    );
    let _ = writeln!(
        out,
        "{:<28} {:<12} {:<7} {:>7} | {:>34} | {:>34} | {:>34}",
        "", "", "", "", "ns", NAME, "core cycles (estimated)"
    );
    let three = format!("{:>10} {:>10} {:>12}", "min", "median", "max");
    let _ = writeln!(
        out,
        "{:<28} {:<12} {:<7} {:>7} | {three} | {three} | {three}",
        "algorithm", "backend", "", "runs"
    );
    for Row { algorithm, backend, operation, spread } in rows {
        let _ = write!(out, "{algorithm:<28} {backend:<12} {operation:<7} {:>7}", spread.runs);
        for [min, median, max] in columns(spread, rates) {
            let _ = write!(out, " | {min:>10.0} {median:>10.0} {max:>12.0}");
        }
        out.push('\n');
    }
    out
}

/// The table as CSV with a heading.
pub fn csv(rows: &[Row], rates: &Rates) -> String {
    let mut out = String::from(
        "algorithm,backend,operation,runs,ns_min,ns_median,ns_max,ticks_min,ticks_median,ticks_max,\
         cycles_min,cycles_median,cycles_max\n",
    );
    for Row { algorithm, backend, operation, spread } in rows {
        let _ = write!(out, "{algorithm},{backend},{operation},{}", spread.runs);
        for value in columns(spread, rates).into_iter().flatten() {
            let _ = write!(out, ",{value:.0}");
        }
        out.push('\n');
    }
    out
}

/// Minimum, median and maximum in nanoseconds, ticks and estimated cycles.
fn columns(spread: &Spread, rates: &Rates) -> [[f64; 3]; 3] {
    let ticks = [spread.min, spread.median, spread.max];
    [
        ticks.map(|ticks| rates.nanoseconds(ticks)),
        ticks.map(|ticks| ticks as f64),
        ticks.map(|ticks| rates.cycles(ticks)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_units_of_one_measurement() {
        let rates = Rates { ticks: 2e9, core: 3e9, overhead: 30 };
        let rows = [Row {
            algorithm: "ML_KEM_768".into(),
            backend: "aws-lc-rs",
            operation: "decaps",
            spread: Spread { runs: 100_000, min: 2000, median: 4000, max: 6000 },
        }];
        let csv = csv(&rows, &rates);
        let line =
            "ML_KEM_768,aws-lc-rs,decaps,100000,1000,2000,3000,2000,4000,6000,3000,6000,9000";
        assert_eq!(csv.lines().nth(1), Some(line));
        assert_eq!(csv.lines().count(), 2);
        let text = text(&rows, &rates);
        let words: Vec<_> = text.lines().last().unwrap_or_default().split_whitespace().collect();
        assert_eq!(words[4..8], ["|", "1000", "2000", "3000"]);
    }
}
