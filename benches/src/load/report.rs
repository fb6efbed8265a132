//! What a run showed, as text, CSV and JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::run::{Plan, Row, Slice};
use crate::hosts::table::quantile;

/// The quantiles of latency that are told.
const QUANTILES: [(&str, f64); 4] = [("median", 0.5), ("p95", 0.95), ("p99", 0.99), ("worst", 1.0)];

/// The table, and below it what went wrong.
pub fn text(rows: &[Row]) -> String {
    let mut out = format!(
        "{:<20} {:>11} {:>7} {:>8} | {:>8} {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} | {:>6}\n",
        "suite",
        "established",
        "failed",
        "per s",
        "median",
        "p95",
        "p99",
        "worst",
        "CPU us",
        "user us",
        "KiB/SA",
        "own us"
    );
    let _ = writeln!(
        out,
        "{:<20} {:>11} {:>7} {:>8} | {:>35} | {:>26} |",
        "", "", "", "", "latency in ms      ", "of the responder    "
    );
    for row in rows {
        let latencies = sorted(row);
        let established = row.established();
        let _ = write!(
            out,
            "{:<20} {:>11} {:>7} {:>8.0} |",
            row.suite,
            established,
            row.outcomes.failed(),
            rate(established, row.wall()),
        );
        for (_, part) in QUANTILES {
            let _ = write!(out, " {:>8}", number(quantile(&latencies, part) * 1e3, 2));
        }
        let each = |time: Duration| micros(time, established);
        let (cpu, user) = row.cpu().map_or((f64::NAN, f64::NAN), |(cpu, system)| {
            (each(cpu), each(cpu.saturating_sub(system)))
        });
        let _ = writeln!(
            out,
            " | {:>8} {:>8} {:>8} | {:>6}",
            number(cpu, 1),
            number(user, 1),
            number(kib_per_sa(row), 2),
            number(each(row.own()), 1),
        );
    }
    for row in rows {
        if let (Some(floor), Some((cpu, _))) = (row.floor, row.cpu()) {
            let (floor, cpu) = (micros(floor, 1), micros(cpu, row.established()));
            let _ = writeln!(
                out,
                "{}: {floor:.1} us of public-key operations; the responder used {:.2} times as much",
                row.suite,
                cpu / floor
            );
        }
        let outcomes = &row.outcomes;
        for (why, count) in &outcomes.failures {
            let _ = writeln!(out, "{}: {count} failed: {why}", row.suite);
        }
        for (count, what) in [
            (outcomes.unfinished, "not finished when it was stopped"),
            (outcomes.retransmissions, "datagrams sent again"),
            (outcomes.undeleted, "deletes not confirmed"),
        ] {
            if count > 0 {
                let _ = writeln!(out, "{}: {count} {what}", row.suite);
            }
        }
    }
    out
}

/// A line for each slice, with a heading.
pub fn csv(rows: &[Row]) -> String {
    let mut out =
        "suite,established_before,established,failed,seconds,cpu_us,system_us,rss_kib,own_us\n"
            .to_owned();
    for row in rows {
        for slice in &row.slices {
            let cell =
                |value: f64| if value.is_finite() { format!("{value:.2}") } else { String::new() };
            let [cpu, system, rss] = used(slice);
            let _ = writeln!(
                out,
                "{},{},{},{},{:.4},{},{},{},{}",
                row.suite,
                slice.before,
                slice.established,
                slice.failed,
                slice.wall.as_secs_f64(),
                cell(cpu),
                cell(system),
                cell(rss),
                cell(micros(slice.own, slice.established)),
            );
        }
    }
    out
}

/// Microseconds of CPU for each handshake, the kernel's part of it, and KiB of memory; NaN where that is not
/// known.
pub fn used(slice: &Slice) -> [f64; 3] {
    slice.used.map_or([f64::NAN; 3], |used| {
        let each = |time: Duration| micros(time, slice.established);
        [each(used.cpu), each(used.system), used.rss as f64 / 1024.0]
    })
}

/// Everything.
pub fn json(plan: &Plan, rows: &[Row]) -> String {
    let suites: Vec<Value> = rows.iter().map(suite).collect();
    let whole = json!({
        "responder": plan.remote.to_string(),
        "concurrency": plan.limits.concurrency * plan.threads,
        "rate": plan.rate,
        "threads": plan.threads,
        "tear_down": plan.limits.tear_down,
        "suites": suites,
    });
    format!("{whole:#}\n")
}

fn suite(row: &Row) -> Value {
    let latencies = sorted(row);
    let latency: serde_json::Map<String, Value> = QUANTILES
        .iter()
        .map(|(name, part)| ((*name).to_owned(), json!(finite(quantile(&latencies, *part) * 1e3))))
        .collect();
    let established = row.established();
    let each = |time: Duration| finite(micros(time, established));
    let slice = |slice: &Slice| {
        let [cpu, system, rss] = used(slice).map(finite);
        json!({
            "established_before": slice.before,
            "established": slice.established,
            "failed": slice.failed,
            "seconds": slice.wall.as_secs_f64(),
            "cpu_us": cpu,
            "system_us": system,
            "rss_kib": rss,
        })
    };
    json!({
        "suite": row.suite,
        "established": established,
        "failed": row.outcomes.failed(),
        "failures": row.outcomes.failures,
        "unfinished": row.outcomes.unfinished,
        "retransmissions": row.outcomes.retransmissions,
        "undeleted": row.outcomes.undeleted,
        "seconds": row.wall().as_secs_f64(),
        "per_second": finite(rate(established, row.wall())),
        "latency_ms": latency,
        "cpu_us": row.cpu().map(|(cpu, _)| each(cpu)),
        "system_us": row.cpu().map(|(_, system)| each(system)),
        "own_us": each(row.own()),
        "floor_us": row.floor.map(|floor| finite(micros(floor, 1))),
        "rss_kib": row.rss.map(|(_, after)| after / 1024),
        "kib_per_sa": finite(kib_per_sa(row)),
        "slices": row.slices.iter().map(slice).collect::<Vec<_>>(),
    })
}

fn sorted(row: &Row) -> Vec<f64> {
    let mut latencies = row.outcomes.latencies.clone();
    latencies.sort_by(f64::total_cmp);
    latencies
}

/// What the responder's memory grew by, for each SA that it keeps. What it had freed before may hide some.
fn kib_per_sa(row: &Row) -> f64 {
    let made = row.warmed + row.established();
    match row.rss {
        Some((before, after)) if row.kept && made > 0 => {
            after.saturating_sub(before) as f64 / 1024.0 / made as f64
        }
        _ => f64::NAN,
    }
}

fn micros(time: Duration, count: u64) -> f64 {
    if count == 0 { f64::NAN } else { time.as_secs_f64() * 1e6 / count as f64 }
}

fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { f64::NAN } else { count as f64 / time.as_secs_f64() }
}

fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { "-".to_owned() }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::phase::Outcomes;
    use crate::load::process::Usage;

    fn row() -> Row {
        let ms = Duration::from_millis;
        let used = |cpu, system, rss| Some(Usage { cpu: ms(cpu), system: ms(system), rss });
        let slice = |before, used| Slice {
            before,
            established: 100,
            failed: 1,
            wall: ms(500),
            used,
            own: ms(20),
        };
        Row {
            suite: "psk",
            slices: vec![slice(50, used(30, 10, 2 << 20)), slice(150, used(10, 0, 3 << 20))],
            outcomes: Outcomes {
                latencies: vec![0.002; 200],
                failures: [("why".to_owned(), 2)].into(),
                ..Outcomes::default()
            },
            rss: Some((1 << 20, 3 << 20)),
            warmed: 50,
            kept: true,
            floor: Some(Duration::from_micros(100)),
        }
    }

    #[test]
    fn figures() {
        let rows = [row()];
        let text = text(&rows);
        let line: Vec<&str> = text.lines().nth(2).unwrap_or_default().split_whitespace().collect();
        let expected = "psk 200 2 200 | 2.00 2.00 2.00 2.00 | 200.0 150.0 8.19 | 200.0";
        assert_eq!(line, expected.split(' ').collect::<Vec<_>>());
        assert!(text.contains("psk: 2 failed: why"), "{text}");
        assert!(
            text.contains("100.0 us of public-key operations; the responder used 2.00"),
            "{text}"
        );
        let csv = csv(&rows);
        assert_eq!(csv.lines().nth(2), Some("psk,150,100,1,0.5000,100.00,0.00,3072.00,200.00"));
    }

    #[test]
    fn nothing_known_is_no_number() {
        let rows = [Row { suite: "psk", slices: vec![Slice::default()], ..Row::default() }];
        assert!(text(&rows).contains(" - "));
        assert_eq!(csv(&rows).lines().nth(1), Some("psk,0,0,0,0.0000,,,,"));
        let value = suite(&rows[0]);
        assert!(value["cpu_us"].is_null() && value["per_second"].is_null(), "{value}");
    }
}
