//! Tables on standard output, and CSV.

use std::fmt::Write as _;

use super::check::{Check, check};
use super::outcome::Spread;
use super::published::Figures;
use super::run::Row;

/// What the columns are, for below a table.
pub const LEGEND: &str = "\
setup: from the first datagram until the initiator has the SA, all attempts counted; those that came about
/RTT: the median in round-trip times   x ideal: the median over round trips and time on the link without loss
> timer: share that lost a first timer or more   resent: share in which a datagram was sent again
octets: of IKE messages, sent by both ends, lost or not; IP: with IP and UDP headers
x clean: 95th percentile of these octets over the handshake on which nothing is lost; excess: the difference
ok: share that came about   60 s: within a minute";

/// The table as text.
pub fn text(rows: &[Row]) -> String {
    let wide = |pick: fn(&Row) -> usize| rows.iter().map(pick).max().unwrap_or(0).max(6);
    let labels = wide(|row| row.case.label.chars().count());
    let suites = wide(|row| row.case.suite.name.chars().count());
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<labels$} {:<suites$} {:<10} | {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7} | {:>7} {:>7} | {:>6} \
         {:>6} | {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} | {:>6} {:>6}",
        "link",
        "suite",
        "rules",
        "median",
        "mean",
        "p95",
        "p99",
        "worst",
        "/RTT",
        "x ideal",
        "> timer",
        "resent",
        "dgrams",
        "p95",
        "octets",
        "p95",
        "worst",
        "IP p95",
        "x clean",
        "excess",
        "ok",
        "60 s",
    );
    for row in rows {
        let Row { case, summary, lossless, .. } = row;
        let rtt = case.rtt().as_secs_f64();
        let rtts = if rtt > 0.0 { format!("{:.1}", summary.time.median / rtt) } else { "-".into() };
        let ideal = case.ideal(lossless.ip_octets).as_secs_f64();
        let ideal =
            if ideal > 0.0 { format!("{:.2}", summary.time.median / ideal) } else { "-".into() };
        let clean = lossless.all_ike_octets().max(1) as f64;
        let Spread { median, mean, p95, p99, worst } = summary.time;
        let time = |value| if summary.success > 0.0 { seconds(value) } else { "never".to_owned() };
        let _ = writeln!(
            out,
            "{:<labels$} {:<suites$} {:<10} | {:>8} {:>8} {:>8} {:>8} {:>8} {rtts:>6} {ideal:>7} | \
             {:>7} {:>7} | {:>6.1} {:>6.0} | {:>7} {:>7} {:>7} {:>7} {:>7.2} {:>7} | {:>6} {:>6}",
            case.label,
            case.suite.name,
            case.rules_name(),
            time(median),
            time(mean),
            time(p95),
            time(p99),
            time(worst),
            percent(summary.stalled),
            percent(summary.resent),
            summary.datagrams.mean,
            summary.datagrams.p95,
            octets(summary.ike_octets.median),
            octets(summary.ike_octets.p95),
            octets(summary.ike_octets.worst),
            octets(summary.ip_octets.p95),
            summary.ike_octets.p95 / clean,
            octets((summary.ike_octets.p95 - clean).max(0.0)),
            percent(summary.success),
            percent(summary.prompt),
        );
        if let Some(figures) = &case.published {
            let _ = writeln!(out, "{:labels$} published: {}", "", published(figures));
        }
    }
    let _ = writeln!(out, "\n{LEGEND}");
    out
}

/// Published figures in words.
fn published(figures: &Figures) -> String {
    let mut words = Vec::new();
    let mut time = |name: &str, value: Option<f64>| {
        words.extend(value.map(|value| format!("{name} {}", seconds(value))));
    };
    time("median", figures.median);
    time("mean", figures.mean);
    time("p95", figures.p95);
    time("worst", figures.worst);
    words.extend(figures.stalled.map(|share| format!("over 4 s {}", percent(share))));
    words.extend(figures.octets_p95.map(|value| format!("octets p95 {}", octets(value))));
    words.extend(figures.octets_worst.map(|value| format!("octets worst {}", octets(value))));
    words.extend(figures.n.map(|n| format!("of {n}")));
    words.join(", ")
}

/// The test of every row with published mean, percentile and share, and how many cells pass it. A row
/// with a reason in `defects`, which goes with `rows`, is shown and not counted.
pub fn checks(rows: &[Row], defects: &[Option<&str>], seed: u64) -> String {
    let mut out = format!(
        "{:<46} {:<13} {:>5} | {:>7} {:>7} {:>17} {:>6} | {:>7} {:>7} {:>17} | {:>7} {:>7} {:>15} {:>6}\n",
        "suite",
        "link",
        "n",
        "mean",
        "theirs",
        "95 % of samples",
        "z",
        "p95",
        "theirs",
        "95 % of samples",
        "share",
        "theirs",
        "95 % of samples",
        "z",
    );
    let (mut inside, mut cells, mut whole, mut counted) = ([0; 3], 0, 0, 0);
    let mut defective = 0;
    for (index, row) in rows.iter().enumerate() {
        let Some((n, check)) = row_check(row, seed) else { continue };
        let Check { mean, p95, stalled } = &check;
        let range = |cell: &super::check::Cell, digits: usize| {
            let [low, high] = cell.interval;
            let mark = if cell.inside() { ' ' } else { '!' };
            format!("{low:.digits$}..{high:.digits$}{mark}")
        };
        let _ = write!(
            out,
            "{:<46} {:<13} {n:>5} | {:>7.3} {:>7.3} {:>17} {:>6.1} | {:>7.3} {:>7.3} {:>17} | {:>7.3} {:>7.3} \
             {:>15} {:>6.1}",
            row.case.suite.name,
            row.case.label,
            mean.ours,
            mean.theirs,
            range(mean, 3),
            mean.z,
            p95.ours,
            p95.theirs,
            range(p95, 3),
            stalled.ours,
            stalled.theirs,
            range(stalled, 3),
            stalled.z,
        );
        match defects.get(index).copied().flatten() {
            Some(why) => {
                defective += 1;
                let _ = writeln!(out, "  not counted: {why}");
            }
            None => {
                out.push('\n');
                let passed = check.cells().map(|cell| cell.inside());
                for (count, passed) in inside.iter_mut().zip(passed) {
                    *count += usize::from(passed);
                    cells += 1;
                }
                counted += 1;
                whole += usize::from(passed == [true; 3]);
            }
        }
    }
    if counted > 0 {
        let all: usize = inside.iter().sum();
        let part = |count: usize, of: usize| 100.0 * count as f64 / of as f64;
        let _ = writeln!(
            out,
            "\ninside: {all} of {cells} cells ({:.1} %; 95 % are to be expected): means {} ({:.1} %), 95th \
             percentiles {} ({:.1} %), shares {} ({:.1} %) of {counted}; all three in {whole} rows; \
             {defective} rows with defects not counted",
            part(all, cells),
            inside[0],
            part(inside[0], counted),
            inside[1],
            part(inside[1], counted),
            inside[2],
            part(inside[2], counted),
        );
    }
    out
}

/// The test of one row, if enough was published of it.
pub fn row_check(row: &Row, seed: u64) -> Option<(usize, Check)> {
    let figures = row.case.published?;
    let theirs = [figures.mean?, figures.p95?, figures.stalled?];
    let n = figures.n?;
    let times: Vec<f64> = row.outcomes.iter().map(|outcome| outcome.time.as_secs_f64()).collect();
    Some((n, check(&times, n, theirs, seed)))
}

/// The table as CSV, times in seconds.
pub fn csv(rows: &[Row]) -> String {
    let mut out = String::from(
        "link,suite,initiator_rules,responder_rules,rtt_s,rate_bps,loss,runs,established,within_60s,\
         median_s,mean_s,p95_s,p99_s,worst_s,ideal_s,over_timer,resent,attempts_mean,\
         datagrams_clean,datagrams_mean,datagrams_p95,datagrams_worst,\
         ike_octets_clean,ike_octets_median,ike_octets_mean,ike_octets_p95,ike_octets_p99,ike_octets_worst,\
         ip_octets_clean,ip_octets_median,ip_octets_p95,ip_octets_worst,\
         published_n,published_median_s,published_mean_s,published_p95_s,published_worst_s,\
         published_over_4s,published_octets_p95,published_octets_worst\n",
    );
    for Row { case, summary, lossless, .. } in rows {
        let [there, back] = case.links;
        let rate = there.rate.map_or(String::new(), |rate| rate.to_string());
        let _ = write!(
            out,
            "{},{},{},{},{},{rate},{},{},{},{}",
            case.label,
            case.suite.name,
            case.rules[0].name(),
            case.rules[1].name(),
            case.rtt().as_secs_f64(),
            (there.loss.rate() + back.loss.rate()) / 2.0,
            summary.runs,
            summary.success,
            summary.prompt,
        );
        let Spread { median, mean, p95, p99, worst } = summary.time;
        let ideal = case.ideal(lossless.ip_octets).as_secs_f64();
        let _ = write!(out, ",{median},{mean},{p95},{p99},{worst},{ideal}");
        let _ = write!(out, ",{},{},{}", summary.stalled, summary.resent, summary.attempts);
        let Spread { mean, p95, worst, .. } = summary.datagrams;
        let _ = write!(out, ",{},{mean},{p95},{worst}", lossless.all_datagrams());
        let Spread { median, mean, p95, p99, worst } = summary.ike_octets;
        let clean = lossless.all_ike_octets();
        let _ = write!(out, ",{clean},{median},{mean},{p95},{p99},{worst}");
        let Spread { median, p95, worst, .. } = summary.ip_octets;
        let _ = write!(out, ",{},{median},{p95},{worst}", lossless.all_ip_octets());
        let theirs = case.published.unwrap_or_default();
        let cell = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let _ = write!(out, ",{}", theirs.n.map_or(String::new(), |n| n.to_string()));
        for value in [
            theirs.median,
            theirs.mean,
            theirs.p95,
            theirs.worst,
            theirs.stalled,
            theirs.octets_p95,
            theirs.octets_worst,
        ] {
            let _ = write!(out, ",{}", cell(value));
        }
        out.push('\n');
    }
    out
}

/// Every handshake as CSV.
pub fn handshakes_csv(rows: &[Row]) -> String {
    let mut out = String::from(
        "link,suite,initiator_rules,responder_rules,run,established,seconds,attempts,\
         initiator_datagrams,responder_datagrams,initiator_ike_octets,responder_ike_octets,\
         initiator_ip_octets,responder_ip_octets\n",
    );
    for Row { case, outcomes, .. } in rows {
        for (run, outcome) in outcomes.iter().enumerate() {
            let _ = write!(
                out,
                "{},{},{},{},{run},{},{},{}",
                case.label,
                case.suite.name,
                case.rules[0].name(),
                case.rules[1].name(),
                outcome.established,
                outcome.time.as_secs_f64(),
                outcome.attempts,
            );
            for [initiator, responder] in [outcome.datagrams, outcome.ike_octets, outcome.ip_octets]
            {
                let _ = write!(out, ",{initiator},{responder}");
            }
            out.push('\n');
        }
    }
    out
}

/// A time in seconds as text.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.0995 => format!("{:.1} ms", s * 1000.0),
        s if s < 0.9995 => format!("{:.0} ms", s * 1000.0),
        s if s < 99.95 => format!("{s:.2} s"),
        s if s < 99_995.0 => format!("{s:.0} s"),
        s => format!("{:.0} h", s / 3600.0),
    }
}

/// A number of octets as text.
pub fn octets(octets: f64) -> String {
    match octets {
        o if o < 9_999.5 => format!("{o:.0}"),
        o if o < 999_500.0 => format!("{:.1}k", o / 1e3),
        o => format!("{:.2}M", o / 1e6),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::outcome::{Outcome, Summary};
    use crate::links::{Case, rules::Rules, suite::Suite};
    use ike_tests::link::LinkModel;
    use std::time::Duration;

    fn row() -> Row {
        let link = LinkModel::rtt(Duration::from_millis(10));
        let mut case = Case::new("5 %", Suite::classical(), Rules::Strongswan, link);
        case.published = Some(Figures {
            n: Some(3),
            mean: Some(1.348),
            p95: Some(3.623),
            stalled: Some(1.0 / 3.0),
            ..Figures::default()
        });
        let quick = Outcome {
            established: true,
            time: Duration::from_millis(20),
            datagrams: [2, 2],
            ike_octets: [1000, 1000],
            ip_octets: [1064, 1064],
            attempts: 1,
        };
        let slow = Outcome {
            time: Duration::from_millis(4020),
            ike_octets: [2000, 1000],
            datagrams: [3, 2],
            ..quick
        };
        let outcomes = vec![quick, quick, slow];
        let summary = Summary::of(&outcomes, &quick, Duration::from_secs(4));
        Row { case, outcomes, lossless: quick, summary }
    }

    #[test]
    fn a_row_has_a_field_under_each_heading() {
        for csv in [csv(&[row()]), handshakes_csv(&[row()])] {
            let fields: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
            assert!(fields.len() > 1 && fields.iter().all(|n| *n == fields[0]), "{csv}");
        }
    }

    #[test]
    fn the_table_says_what_came_of_it() {
        let text = text(&[row()]);
        let line = text.lines().nth(1).unwrap();
        for word in ["5 %", "classical", "strongswan", "20.0 ms", "4.02 s", "33.3 %", "100.0 %"] {
            assert!(line.contains(word), "{word}: {line}");
        }
        assert!(
            text.contains("published: mean 1.35 s, p95 3.62 s, over 4 s 33.3 %, of 3"),
            "{text}"
        );
    }

    #[test]
    fn defective_rows_are_shown_and_not_counted() {
        let rows = [row(), row()];
        let text = checks(&rows, &[None, Some("out of order")], 1);
        assert!(text.contains("not counted: out of order"), "{text}");
        assert!(text.contains("of 3 cells"), "{text}");
    }

    #[test]
    fn figures_have_units() {
        assert_eq!(
            [0.0123, 0.25, 5.512, 320.0].map(seconds),
            ["12.3 ms", "250 ms", "5.51 s", "320 s"]
        );
        assert_eq!([999.0, 25_600.0, 1.3e6].map(octets), ["999", "25.6k", "1.30M"]);
    }
}
