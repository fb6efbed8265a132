//! Metrics as Prometheus gets them, and the dashboard that shows them.

mod promql;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ike_control::exporter::MetricsSocket;
use ike_daemon::config::MetricsListen;
use ike_daemon::daemon::Daemon;
use ike_tokio::Target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use promql::Query;
use text::Scrape;

use crate::common::{Carrier, Pair, packet, until};

const METRICS: &str = "metrics = { listen = '127.0.0.1:0', connections = 10 }";

/// Serves the metrics of `daemon`.
async fn serve(daemon: &mut Daemon) -> std::net::SocketAddr {
    let any = MetricsListen::Tcp(([127, 0, 0, 1], 0).into());
    let socket = MetricsSocket::bind(&any).expect("a socket");
    let address = socket.address().expect("an address");
    daemon.serve_metrics(socket);
    address
}

/// What the server answers to a request.
async fn http(address: std::net::SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = format!("{request} HTTP/1.1\r\nHost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (header, body) = answer.split_once("\r\n\r\n").expect("a header");
    (header.to_owned(), body.to_owned())
}

async fn scrape(address: std::net::SocketAddr) -> Scrape {
    // What was asked a moment ago is not made anew.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let (header, body) = http(address, "GET /metrics").await;
    assert!(header.starts_with("HTTP/1.1 200"), "{header}");
    assert!(header.contains("text/plain; version=0.0.4"), "{header}");
    Scrape::parse(&body).expect("Prometheus' text format")
}

/// The value of a sample with these labels.
fn value(scrape: &Scrape, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &&text::Sample| {
        sample.name == name
            && labels
                .iter()
                .all(|(key, value)| sample.labels.get(*key).is_some_and(|has| has == value))
    };
    let found: Vec<_> = scrape.samples.iter().filter(has).collect();
    let [sample] = found.as_slice() else { panic!("{name} {labels:?}: {found:#?}") };
    sample.value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_tells_what_has_happened_and_the_dashboard_asks_for_nothing_else() {
    let mut pair = Pair::start(Carrier::Memory, METRICS, "start_action = 'none'").await;
    let address = serve(&mut pair.left).await;
    let before = scrape(address).await;
    let site = ("connection", "site");
    let established = [site, ("state", "established")];
    assert_eq!(value(&before, "ike_sas", &established), 0.0);
    assert_eq!(value(&before, "ike_configured_children", &[site]), 1.0);

    pair.left.operator().up(&Target::named("net")).await.expect("up");
    until(&pair.left, "one child", |sas| sas.len() == 1 && sas[0].child_sas.len() == 1).await;
    let (left, mut right) = pair.hosts.take().expect("hosts");
    let sent = packet([10, 1, 0, 1], [10, 2, 0, 1], &[7; 100]);
    for _ in 0..5 {
        assert!(left.send(sent.clone()).await);
        let got = tokio::time::timeout(Duration::from_secs(5), right.recv()).await;
        assert!(got.expect("in time").is_some());
    }
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let up = scrape(address).await;
    assert_eq!(value(&up, "ike_sas", &established), 1.0);
    assert_eq!(value(&up, "ike_child_sas", &[site, ("state", "installed")]), 1.0);
    assert_eq!(value(&up, "ike_handshakes_total", &[("role", "initiator")]), 1.0);
    assert_eq!(value(&up, "ike_handshake_seconds_count", &[("role", "initiator")]), 1.0);
    assert_eq!(value(&up, "ike_datagrams_sent_total", &[]), 2.0);
    assert_eq!(value(&up, "ike_datagrams_received_total", &[]), 2.0);
    assert_eq!(value(&up, "ike_esp_packets_total", &[site, ("direction", "out")]), 5.0);

    // The counters of an SA that is rekeyed away are not lost.
    pair.left.operator().rekey(&Target::named("net")).await.expect("rekeyed");
    pair.left.operator().down(&Target::named("net")).await.expect("down");
    let down = scrape(address).await;
    assert_eq!(value(&down, "ike_rekeys_total", &[("kind", "child")]), 1.0);
    assert_eq!(value(&down, "ike_rekey_seconds_count", &[("kind", "child")]), 1.0);
    assert_eq!(value(&down, "ike_esp_packets_total", &[site, ("direction", "out")]), 5.0);
    assert_eq!(value(&down, "ike_child_sas", &[site, ("state", "installed")]), 0.0);
    // IKE_SA_INIT, IKE_AUTH, the rekey, its delete, the last delete.
    assert_eq!(value(&down, "ike_connection_messages_total", &[site, ("direction", "out")]), 5.0);
    assert_eq!(value(&down, "ike_connection_messages_total", &[site, ("direction", "in")]), 5.0);
    assert_eq!(value(&down, "ike_connection_rekeys_total", &[site, ("kind", "child")]), 1.0);

    dashboard(&down);
    alerts(&down);

    let (header, _) = http(address, "GET /").await;
    assert!(header.starts_with("HTTP/1.1 404"), "{header}");
    let (header, _) = http(address, "POST /metrics").await;
    assert!(header.starts_with("HTTP/1.1 405"), "{header}");
    let (header, _) = http(address, &format!("GET /{}", "x".repeat(100_000))).await;
    assert!(header.starts_with("HTTP/1.1 4"), "{header}");
}

/// Metrics that appear with what they count: what goes wrong, or a device that offloads.
const OCCASIONAL: [(&str, &[&str]); 6] = [
    ("ike_handshake_failures_total", &["reason"]),
    ("ike_child_failures_total", &["reason"]),
    ("ike_messages_dropped_total", &["reason"]),
    ("ike_data_plane_errors_total", &["command"]),
    ("ike_sas_ended_total", &["reason"]),
    ("ike_questions_total", &["kind"]),
];

/// The metrics of a scrape, each with its labels.
fn known(scrape: &Scrape) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in &scrape.samples {
        let labels = known.entry(&sample.name).or_default();
        labels.extend(sample.labels.keys().map(String::as_str));
    }
    for (name, labels) in OCCASIONAL {
        known.entry(name).or_default().extend(labels);
    }
    // Prometheus adds these.
    known.values_mut().for_each(|labels| labels.extend(["job", "instance"]));
    known
}

/// A query is PromQL, and about metrics and labels that there are.
fn can_be_answered<'a>(text: &'a str, known: &BTreeMap<&str, BTreeSet<&str>>) -> Query<'a> {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(!query.selectors.is_empty(), "{text}");
    let mut any: BTreeSet<&str> = BTreeSet::new();
    for selector in &query.selectors {
        let name = selector.name;
        let labels = known.get(name).unwrap_or_else(|| panic!("{text}: no metric {name}"));
        for (label, operator, value) in &selector.conditions {
            assert!(labels.contains(label.as_str()), "{text}: {name} has no {label}");
            assert!(*operator != "=" || !value.is_empty(), "{text}");
        }
        any.extend(labels);
    }
    for label in &query.labels {
        assert!(any.contains(label), "{text}: no metric of it has the label {label}");
    }
    query
}

/// Every query of the dashboard can be answered, and those of its panels are about the chosen job. So are the queries
/// by which Grafana fills the dashboard's variables.
///
/// Fault: in `dist/grafana/ike-daemon.json`, misspell `ike_half_open`, or `by (role)`, or drop a parenthesis.
fn dashboard(scrape: &Scrape) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/dist/grafana/ike-daemon.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let known = known(scrape);
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<&str> =
        targets.map(|target| target["expr"].as_str().expect("a query")).collect();
    assert!(queries.len() >= 20, "{}", queries.len());
    for text in queries {
        for selector in can_be_answered(text, &known).selectors {
            assert!(!selector.conditions.is_empty(), "{text}: any {}", selector.name);
        }
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let filled: Vec<_> = variables.iter().filter(|variable| variable["type"] == "query").collect();
    assert_eq!(filled.len(), 3, "job, instance and connection");
    for variable in filled {
        let text = variable["query"].as_str().expect("a query");
        let inside = text.strip_prefix("label_values(").and_then(|text| text.strip_suffix(')'));
        let (query, label) = inside.and_then(|text| text.rsplit_once(", ")).expect(text);
        let selectors = can_be_answered(query, &known).selectors;
        let [selector] = selectors.as_slice() else { panic!("{text}: {selectors:?}") };
        assert!(known[selector.name].contains(label), "{text}: no label {label}");
    }
}

/// The rules that docs/service.md recommends can be answered.
///
/// Fault: in docs/service.md, misspell `ike_configured_children`, or drop a quotation mark of a rule.
fn alerts(scrape: &Scrape) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/service.md");
    let text = std::fs::read_to_string(page).expect("the page");
    let rules = text.lines().filter_map(|line| line.trim_start().strip_prefix("expr: "));
    let known = known(scrape);
    let queries: Vec<_> = rules.map(|rule| can_be_answered(rule, &known)).collect();
    assert!(queries.len() >= 3, "{queries:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_counted_by_reason() {
    let mut pair = Pair::start_with(Carrier::None, METRICS, "", None, "somebody.else").await;
    let address = serve(&mut pair.right).await;
    pair.right.shutdown(Duration::from_secs(1)).await;
    let left = serve(&mut pair.left).await;
    assert!(TcpStream::connect(address).await.is_err(), "the socket is gone with its daemon");
    // Nobody answers any more.
    let begun = Instant::now();
    assert!(pair.left.operator().up(&Target::named("net")).await.is_err());
    let failed = scrape(left).await;
    assert_eq!(value(&failed, "ike_handshake_failures_total", &[("reason", "timeout")]), 1.0);
    assert!(value(&failed, "ike_retransmissions_total", &[]) >= 1.0, "{:?}", begun.elapsed());
}

/// Clients that ask half a question, or do not take the answer, keep nobody out.
///
/// Fault: in `Places::try_take`, answer `Err(None)` when all places are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_keep_no_scrape_out() {
    let mut pair = Pair::start(Carrier::Memory, METRICS, "start_action = 'none'").await;
    let address = serve(&mut pair.left).await;
    let mut silent = Vec::new();
    for n in 0..40 {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let request = if n % 2 == 0 { "GET /metr" } else { "GET /metrics HTTP/1.1\r\nHost: x\r\n" };
        stream.write_all(request.as_bytes()).await.expect("sent");
        silent.push(stream);
    }
    let begun = Instant::now();
    let (header, _) = http(address, "GET /metrics").await;
    assert!(header.starts_with("HTTP/1.1 200"), "{header}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}
