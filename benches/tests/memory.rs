//! What an SA holds on the heap stays within its limits, and what is refused leaves nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use ike_bench::memory::ends::Ends;
use ike_bench::memory::stages;
use ike_bench::memory::suite::named;
use ike_bench::soak::{self, shapes::SHAPES};
use ike_proto::config::EndpointConfig;
use ike_tests::guard::Bases;
use ike_tests::heap::Counting;

#[global_allocator]
static HEAP: Counting = Counting;

/// Tables at their usual fill: they double at 1,792 entries.
const SAS: usize = 1500;

/// Suites of the guard: with little and with much to keep.
const GUARDED: [&str; 2] = ["psk-x25519", "ecdsa-mlkem768"];

/// Octets of one SA with one child, by stage and end. Those of a half-open one without its IKE_SA_INIT messages.
fn octets(suite: &str) -> Vec<(String, u64)> {
    let measured = stages::measure(named(suite).unwrap(), SAS, false).unwrap();
    let mut figures = Vec::new();
    let mut add = |what: &str, octets: f64| {
        // No limit is met by rounding.
        figures.push((format!("{suite}/{what}"), octets.ceil() as u64));
    };
    let half_open = measured.stage(stages::HALF_OPEN).unwrap().responder.octets;
    add("half-open/responder", half_open - measured.init);
    for (stage, name) in [
        (stages::IDLE, "idle"),
        (stages::CHILD_IDLE, "child-rekeyed"),
        (stages::IKE_IDLE, "ike-rekeyed"),
    ] {
        let stage = measured.stage(stage).unwrap();
        add(&format!("{name}/responder"), stage.responder.octets);
        add(&format!("{name}/initiator"), stage.initiator.octets);
    }
    figures
}

/// Fault: give `Core` a field of 200 octets; in docs/performance.md, change a figure of memory, or make it bold.
#[test]
fn an_sa_takes_no_more_memory_than_the_guard_allows_and_the_document_says() {
    // Counts are of one thread.
    let threads = GUARDED.map(|suite| std::thread::spawn(move || octets(suite)));
    let figures = threads.into_iter().flat_map(|thread| thread.join().unwrap());
    let figures: Vec<_> = figures.collect();
    let bases: Bases = include_str!("../memory.txt").parse().unwrap();
    let report = bases.compare(&figures);
    assert!(report.is_good(), "benches/memory.txt\n{report}");
    println!("{report}");
    let octets = |what: &str| {
        GUARDED.map(|suite| {
            let name = format!("{suite}/{what}");
            (figures.iter().find(|(of, _)| *of == name).unwrap().1, bases.limit(&name).unwrap())
        })
    };
    let [idle, initiator] = ["idle/responder", "idle/initiator"].map(octets);
    let (goal, limit) = (idle[0].1, grouped(initiator[0].1));
    let [psk, certificates, psk_initiator, certificates_initiator] =
        [idle[0], idle[1], initiator[0], initiator[1]].map(|(now, _)| written(now, goal));
    documents(&format!(
        "{} | {psk} PSK, {certificates} certificates; as initiator {psk_initiator} and \
         {certificates_initiator}, whose limit is {limit}",
        grouped(goal)
    ));
    let half_open = octets("half-open/responder");
    let [psk, certificates] = half_open.map(|(now, limit)| written(now, limit));
    documents(&format!("{} | {psk} and {certificates} |", grouped(half_open[0].1)));
}

/// docs/performance.md has this.
#[track_caller]
fn documents(cells: &str) {
    let summary = include_str!("../../docs/performance.md");
    assert!(summary.contains(&format!(" | {cells}")), "docs/performance.md does not say: {cells}");
}

/// A figure as the document has it: bold if it misses its goal.
fn written(figure: u64, goal: u64) -> String {
    if figure > goal { format!("**{}**", grouped(figure)) } else { grouped(figure) }
}

/// A number with commas.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    }
}

/// Fault: in `memory::config`, leave `init_limit_half_open` as it is by default.
#[test]
fn more_sas_are_measured_than_a_gateway_lets_be_half_open_by_default() {
    let count = EndpointConfig::default().init_limit_half_open as usize + 1;
    let mut ends = Ends::new(named("psk-x25519").unwrap(), None, |_| {});
    ends.initiate(count);
    ends.round();
    assert_eq!(ends.gateway.endpoint().half_open(), count);
}

#[test]
fn rekeys_leave_nothing() {
    let suite = named("psk-x25519").unwrap();
    let (readings, [ike, child]) = soak::lives(suite, 10, Duration::from_secs(4 * 3600)).unwrap();
    assert!(ike > 100 && child > 200, "{ike} and {child} rekeys");
    soak::check("rekeys", &readings).unwrap();
}

#[test]
fn what_is_refused_leaves_nothing() {
    let suite = named("psk-x25519").unwrap();
    for shape in SHAPES {
        let readings = soak::attack(suite, *shape, 1000).unwrap();
        soak::check(shape.name, &readings).unwrap();
        let (first, last) = (readings[0].gateway, readings.last().unwrap().gateway);
        assert!(last - first < 16 << 10, "{}: {first} octets became {last}", shape.name);
    }
}
