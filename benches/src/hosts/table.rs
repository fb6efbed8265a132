//! What many handshakes come to.

use std::fmt::Write as _;
use std::time::Duration;

use ike_tests::link::LinkModel;

use super::handshake::Handshake;
use super::tally::Sent;
use crate::links::outcome::{Outcome, Summary};
use crate::links::rules::Rules;
use crate::links::suite::Suite;
use crate::links::{Case, Row};

/// Those of one link, pair and suite.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// Link.
    pub link: &'a str,
    /// Pair.
    pub pair: &'a str,
    /// Suite.
    pub suite: &'a str,
    /// How many.
    pub count: usize,
    /// Setup times of those that were established, in seconds, in order.
    pub setup: Vec<f64>,
    /// Octets by both ends, in order, of the same.
    pub octets: Vec<f64>,
    /// Datagrams by both ends, in order, of the same.
    pub datagrams: Vec<f64>,
    /// How many sent something again, or began anew.
    pub again: usize,
    /// True if the responder's counts are in it.
    pub both: bool,
}

/// Groups in the order in which they begin.
pub fn groups(all: &[Handshake]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for one in all {
        let of = |group: &&mut Group<'_>| {
            (group.link, group.pair, group.suite) == (&one.link, &one.pair, &one.suite)
        };
        let group = match groups.iter_mut().find(of) {
            Some(group) => group,
            None => {
                groups.push(Group {
                    link: &one.link,
                    pair: &one.pair,
                    suite: &one.suite,
                    count: 0,
                    setup: Vec::new(),
                    octets: Vec::new(),
                    datagrams: Vec::new(),
                    again: 0,
                    both: true,
                });
                let Some(group) = groups.last_mut() else { continue };
                group
            }
        };
        group.count += 1;
        group.again += usize::from(one.attempts > 1 || one.sum().again > 0);
        group.both &= one.responder.is_some();
        if let Some(setup) = one.setup {
            group.setup.push(setup);
            group.octets.push(one.sum().octets as f64);
            group.datagrams.push(one.sum().datagrams as f64);
        }
    }
    for group in &mut groups {
        for values in [&mut group.setup, &mut group.octets, &mut group.datagrams] {
            values.sort_by(f64::total_cmp);
        }
    }
    groups
}

/// The value below which a share of the `sorted` values lies, by the nearest rank; not a number if there
/// are none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The columns after the names.
fn columns(group: &Group<'_>) -> [(&'static str, f64); 12] {
    let Group { setup, octets, datagrams, .. } = group;
    let share = |n: usize| 100.0 * n as f64 / group.count as f64;
    [
        ("n", group.count as f64),
        ("ok_percent", share(setup.len())),
        ("again_percent", share(group.again)),
        ("median_ms", 1e3 * quantile(setup, 0.5)),
        ("mean_ms", 1e3 * mean(setup)),
        ("p95_ms", 1e3 * quantile(setup, 0.95)),
        ("p99_ms", 1e3 * quantile(setup, 0.99)),
        ("worst_ms", 1e3 * quantile(setup, 1.0)),
        ("octets_median", quantile(octets, 0.5)),
        ("octets_p95", quantile(octets, 0.95)),
        ("datagrams_median", quantile(datagrams, 0.5)),
        ("datagrams_p95", quantile(datagrams, 0.95)),
    ]
}

/// The table as text. Octets and datagrams are those of both ends, or with a star the initiator's.
pub fn text(all: &[Handshake], rtt: Option<f64>) -> String {
    let mut out = format!(
        "{:<18} {:<23} {:<18} {:>5} {:>6} {:>7} | {:>9} {:>9} {:>9} {:>9} {:>9} | {:>8} {:>8} | {:>5} {:>5}",
        "link",
        "initiator-responder",
        "suite",
        "n",
        "ok %",
        "again %",
        "median",
        "mean",
        "p95",
        "p99",
        "worst",
        "octets",
        "p95",
        "dgram",
        "p95"
    );
    let in_rtts = if rtt.is_some() { " | median, p95 in RTTs" } else { "" };
    let _ = writeln!(out, "{in_rtts}\n{:>96}", "setup time in ms");
    for group in groups(all) {
        let values = columns(&group).map(|(_, value)| value);
        let [n, ok, again, median, mean, p95, p99, worst, octets, octets95, datagrams, datagrams95] =
            values;
        let star = if group.both { "" } else { "*" };
        let _ = write!(
            out,
            "{:<18} {:<23} {:<18} {n:>5} {ok:>6.1} {again:>7.1} | {median:>9.1} {mean:>9.1} {p95:>9.1} \
             {p99:>9.1} {worst:>9.1} | {:>8} {:>8} | {:>5} {:>5}",
            group.link,
            group.pair,
            group.suite,
            format!("{octets}{star}"),
            format!("{octets95}{star}"),
            format!("{datagrams}{star}"),
            format!("{datagrams95}{star}"),
        );
        if let Some(rtt) = rtt.filter(|rtt| *rtt > 0.0) {
            let _ = write!(out, " | {:>6.2} {:>6.2}", median / rtt, p95 / rtt);
        }
        out.push('\n');
    }
    out
}

/// The table as CSV with a heading.
pub fn csv(all: &[Handshake]) -> String {
    let mut out = String::new();
    for group in groups(all) {
        let columns = columns(&group);
        if out.is_empty() {
            let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
            let _ = writeln!(out, "link,pair,suite,both_ends,{}", names.join(","));
        }
        let _ = write!(out, "{},{},{},{}", group.link, group.pair, group.suite, group.both);
        for (_, value) in columns {
            let _ = if value.is_finite() { write!(out, ",{value:.3}") } else { write!(out, ",") };
        }
        out.push('\n');
    }
    out
}

/// The same for the plots of the simulation, by pair and suite.
pub fn rows(all: &[Handshake], rtt: Option<f64>) -> Vec<Row> {
    let milliseconds = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    let link = LinkModel::rtt(milliseconds(rtt.unwrap_or_default()));
    let row = |group: Group<'_>| {
        let of = |one: &&Handshake| {
            (group.link, group.pair, group.suite) == (&one.link, &one.pair, &one.suite)
        };
        let outcomes: Vec<Outcome> = all.iter().filter(of).map(outcome).collect();
        let lossless = outcomes
            .iter()
            .filter(|outcome| outcome.established)
            .min_by_key(|outcome| (outcome.all_datagrams(), outcome.time))
            .copied()
            .unwrap_or_default();
        let known = group.suite;
        let suite = Suite { name: known.to_owned(), about: String::new(), ..Suite::psk() };
        let rules = group.pair.split('-').map(|end| match end {
            "strongswan" => Rules::Strongswan,
            _ => Rules::Ours,
        });
        let rules: Vec<Rules> = rules.collect();
        let rules = <[Rules; 2]>::try_from(rules).unwrap_or([Rules::Ours; 2]);
        let label = format!("{} {}", group.link, group.pair);
        let case = Case { rules, ..Case::new(label, suite, Rules::Ours, link) };
        let summary = Summary::of(&outcomes, &lossless, rules[0].first_timer());
        Row { case, outcomes, lossless, summary }
    };
    groups(all).into_iter().map(row).collect()
}

fn outcome(one: &Handshake) -> Outcome {
    let responder = one.responder.unwrap_or_default();
    let both = |of: fn(&Sent) -> u64| [of(&one.initiator), of(&responder)];
    Outcome {
        established: one.setup.is_some(),
        time: Duration::try_from_secs_f64(one.setup.unwrap_or_default()).unwrap_or_default(),
        datagrams: both(|sent| sent.datagrams),
        ike_octets: both(|sent| sent.octets),
        ip_octets: both(|sent| sent.octets + 28 * sent.datagrams),
        attempts: one.attempts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 0.95), 95.0);
        assert_eq!(quantile(&values, 1.0), 100.0);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn what_was_given_up_counts() {
        let sent = Sent { datagrams: 4, octets: 1000, again: 0 };
        let one = |setup, again| Handshake {
            link: "l".into(),
            pair: "p".into(),
            suite: "s".into(),
            setup,
            attempts: 1,
            initiator: Sent { again, ..sent },
            responder: Some(sent),
        };
        let all = [one(Some(0.010), 0), one(Some(0.030), 1), one(None, 2)];
        let csv = csv(&all);
        let line = csv.lines().nth(1).unwrap_or_default();
        assert_eq!(
            line,
            "l,p,s,true,3.000,66.667,66.667,10.000,20.000,30.000,30.000,30.000,2000.000,2000.000,8.000,8.000"
        );
        assert_eq!(text(&all, Some(10.0)).lines().count(), 3);
    }
}
