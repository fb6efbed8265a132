//! Counters for Prometheus, which run all the time. The driver's thread only adds to them.
//!
//! `esp.rs` sums the counters of ESP SAs, which the exporter reads as often as that costs little. `process.rs` reads
//! what the process itself takes.

mod esp;
mod hooks;
mod plane;
mod process;
mod questions;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus::proto::MetricFamily;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};

pub use plane::Metered;
pub use questions::Counted;

/// What stands in `connection` for all connections beyond the bound.
pub const OTHERS: &str = "_other";

/// Seconds of handshakes and rekeys: a LAN's millisecond to a bad link's minute.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 165.0,
];

/// Each level of log lines, and how many lines of it were dropped.
pub type DroppedLines = [(&'static str, u64); 5];

/// The counters of a daemon. Clones count together.
#[derive(Debug, Clone)]
pub struct Meters(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    process: process::Process,
    put_back: OnceLock<fn() -> u64>,
    lacks_second_line: OnceLock<fn() -> bool>,
    dropped_lines: OnceLock<fn() -> DroppedLines>,
    labels: Labels,
    esp: esp::Esp,
    messages_sent: IntCounter,
    messages_received: IntCounter,
    retransmissions: IntCounter,
    fragments_sent: IntCounter,
    fragments_received: IntCounter,
    fragment_acks: IntCounter,
    cookies: IntCounter,
    send_errors: IntCounter,
    dropped: IntCounterVec,
    decrypt_failures: IntCounter,
    handshakes: IntCounterVec,
    handshake_failures: IntCounterVec,
    handshake_seconds: HistogramVec,
    ike_downs: IntCounterVec,
    resumptions: IntCounterVec,
    tickets_refused: IntCounterVec,
    init_refused: IntCounter,
    tokens_given: IntCounter,
    peers_refused: IntCounter,
    child_failures: IntCounterVec,
    rekeys: IntCounterVec,
    rekey_seconds: HistogramVec,
    plane_errors: IntCounterVec,
    questions: IntCounterVec,
    questions_waiting: IntGauge,
    log_suppressed: IntCounter,
    scrapes: IntCounter,
}

impl Meters {
    /// Counters at zero, which name at most `connections` connections; those beyond are counted together as
    /// [`OTHERS`].
    pub fn new(connections: usize) -> Self {
        let make = Make(Registry::new());
        let labels = Labels { most: connections, known: Mutex::default() };
        let esp = esp::Esp::new(
            make.counters(
                "ike_esp_bytes_total",
                "Octets of inner packets",
                &["connection", "direction"],
            ),
            make.counters("ike_esp_packets_total", "Inner packets", &["connection", "direction"]),
        );
        let seconds = |name, help, label: &str| make.seconds(name, help, label);
        let inner = Inner {
            process: process::Process::new(),
            put_back: OnceLock::new(),
            lacks_second_line: OnceLock::new(),
            dropped_lines: OnceLock::new(),
            labels,
            esp,
            messages_sent: make
                .counter("ike_datagrams_sent_total", "IKE datagrams sent, with retransmissions"),
            messages_received: make
                .counter("ike_datagrams_received_total", "IKE datagrams received"),
            retransmissions: make.counter("ike_retransmissions_total", "IKE datagrams sent again"),
            fragments_sent: make
                .counter("ike_fragments_sent_total", "Fragments of IKE messages sent (RFC 7383)"),
            fragments_received: make.counter(
                "ike_fragments_received_total",
                "Fragments of IKE messages received (RFC 7383)",
            ),
            fragment_acks: make
                .counter("ike_fragment_acks_sent_total", "Fragment acknowledgements sent"),
            cookies: make.counter("ike_cookies_sent_total", "Cookies demanded (RFC 7296 2.6)"),
            send_errors: make.counter("ike_send_errors_total", "Runs of datagrams not sent"),
            dropped: make.counters(
                "ike_messages_dropped_total",
                "IKE messages dropped, by reason",
                &["reason"],
            ),
            decrypt_failures: make.counter(
                "ike_decrypt_failures_total",
                "IKE messages whose integrity check failed (among the dropped ones)",
            ),
            handshakes: make.counters(
                "ike_handshakes_total",
                "IKE SAs established, by this end's role",
                &["role"],
            ),
            handshake_failures: make.counters(
                "ike_handshake_failures_total",
                "IKE SAs, or attempts at one, that were not established, by reason",
                &["reason"],
            ),
            handshake_seconds: seconds(
                "ike_handshake_seconds",
                "From the first message to an IKE SA established",
                "role",
            ),
            ike_downs: make.counters(
                "ike_sas_ended_total",
                "Established IKE SAs that have ended, by reason",
                &["reason"],
            ),
            resumptions: make.counters(
                "ike_resumptions_total",
                "IKE SAs resumed by a ticket (among the handshakes), by this end's role",
                &["role"],
            ),
            tickets_refused: make.counters(
                "ike_tickets_refused_total",
                "Tickets that were not taken, by this end's role; of a flood only some are counted here",
                &["role"],
            ),
            init_refused: make.counter(
                "ike_init_refused_total",
                "IKE_SA_INIT requests refused; of a flood only some are counted here",
            ),
            tokens_given: make.counter(
                "ike_qcd_tokens_given_total",
                "Peers told by token that their IKE SA is gone (RFC 6290)",
            ),
            peers_refused: make.counter("ike_peers_refused_total", "Peers that were not believed"),
            child_failures: make.counters(
                "ike_child_failures_total",
                "Child SAs that could not be made or rekeyed, by reason",
                &["reason"],
            ),
            rekeys: make.counters("ike_rekeys_total", "SAs rekeyed, by kind", &["kind"]),
            rekey_seconds: seconds(
                "ike_rekey_seconds",
                "From the first message of a rekey to the new SA",
                "kind",
            ),
            plane_errors: make.counters(
                "ike_data_plane_errors_total",
                "Commands that the data plane refused",
                &["command"],
            ),
            questions: make.counters(
                "ike_questions_total",
                "Signatures, judgements and slow key exchanges asked for",
                &["kind"],
            ),
            questions_waiting: make.gauge(
                "ike_questions_waiting",
                "Questions that wait for an answer or are being answered, beside the engine",
            ),
            log_suppressed: make.counter(
                "ike_log_lines_suppressed_total",
                "Log lines left out because strangers caused too many",
            ),
            scrapes: make.counter("ike_scrapes_total", "Scrapes of these metrics"),
            registry: make.0.clone(),
        };
        for role in ["initiator", "responder"] {
            inner.handshakes.with_label_values(&[role]);
            inner.resumptions.with_label_values(&[role]);
            inner.tickets_refused.with_label_values(&[role]);
            inner.handshake_seconds.with_label_values(&[role]);
        }
        for kind in ["ike", "child"] {
            inner.rekeys.with_label_values(&[kind]);
            inner.rekey_seconds.with_label_values(&[kind]);
        }
        Self(Arc::new(inner))
    }
}

impl Meters {
    /// Counts a scrape.
    pub(crate) fn scraped(&self) {
        self.0.scrapes.inc();
    }

    /// The name of `connection` in a label: [`OTHERS`] beyond the bound.
    pub(crate) fn label<'a>(&self, connection: &'a str) -> &'a str {
        self.0.labels.of(connection)
    }

    /// The counters of ESP SAs.
    pub(crate) fn esp(&self) -> &esp::Esp {
        &self.0.esp
    }

    /// Has `count` asked how often something of the program was put back on the host. Only the first call matters.
    pub fn count_put_back(&self, count: fn() -> u64) {
        _ = self.0.put_back.set(count);
    }

    /// Has `lacks` asked whether there is no second line behind the data plane. Only the first call matters.
    pub fn show_second_line(&self, lacks: fn() -> bool) {
        _ = self.0.lacks_second_line.set(lacks);
    }

    /// Has `count` give the number of dropped log lines for each level. Only the first call matters.
    pub fn count_dropped_lines(&self, count: fn() -> DroppedLines) {
        _ = self.0.dropped_lines.set(count);
    }

    /// The values of all counters, and what this process takes.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        let process = Make::default();
        if let Some(count) = self.0.put_back.get() {
            let help = "Routing rules, routes and the like that other programs took away, and that were put back";
            process.counter("ike_host_put_back_total", help).inc_by(count());
        }
        if let Some(lacks) = self.0.lacks_second_line.get() {
            let help = "1 while packets may leave in clear if another program changes the data plane: nf_tables has no second line";
            process.gauge("ike_second_line_missing", help).set(lacks().into());
        }
        if let Some(count) = self.0.dropped_lines.get() {
            let help = "Log lines dropped because nobody read standard error";
            let lines = process.counters("ike_log_lines_dropped_total", help, &["level"]);
            for (level, dropped) in count() {
                lines.with_label_values(&[level]).inc_by(dropped);
            }
        }
        self.0.process.measure(&process);
        let mut families = self.0.registry.gather();
        families.extend(process.gather());
        families
    }
}

/// The values of `connection`, which must not become ever more.
#[derive(Debug)]
struct Labels {
    most: usize,
    known: Mutex<HashSet<String>>,
}

impl Labels {
    /// What `connection` is called in a label.
    fn of<'a>(&self, connection: &'a str) -> &'a str {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(connection) {
            return connection;
        }
        if known.len() < self.most {
            known.insert(connection.to_owned());
            return connection;
        }
        OTHERS
    }
}

/// Makes metrics that a registry has. Names are constants of this program and differ.
#[derive(Default)]
pub(crate) struct Make(Registry);

impl Make {
    /// The values of all metrics made.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.0.gather()
    }

    pub(crate) fn register<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> C {
        let made = made.expect("a valid name");
        self.0.register(Box::new(made.clone())).expect("a name of its own");
        made
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::new(name, help))
    }

    pub(crate) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub(crate) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::new(name, help))
    }

    pub(crate) fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::IntGaugeVec {
        self.register(prometheus::IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn seconds(&self, name: &str, help: &str, label: &str) -> HistogramVec {
        let opts = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        self.register(HistogramVec::new(opts, &[label]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_beyond_the_bound_are_counted_together() {
        let labels = Labels { most: 2, known: Mutex::default() };
        let named: Vec<_> = ["a", "b", "c", "a", "d"].map(|name| labels.of(name)).into();
        assert_eq!(named, ["a", "b", OTHERS, "a", OTHERS]);
    }

    /// Fault: in `Meters::gather`, leave the gauge out, or let it be 0 always.
    #[test]
    fn a_missing_second_line_is_a_gauge() {
        let gauge = |meters: &Meters| {
            let all = meters.gather();
            let family = all.iter().find(|family| family.name() == "ike_second_line_missing")?;
            Some(family.get_metric()[0].get_gauge().get_value())
        };
        let meters = Meters::new(1);
        assert_eq!(gauge(&meters), None, "nobody says so");
        meters.show_second_line(|| true);
        assert_eq!(gauge(&meters), Some(1.0));
        let meters = Meters::new(1);
        meters.show_second_line(|| false);
        assert_eq!(gauge(&meters), Some(0.0));
    }
}
