//! One scrape: the counters as they stand, and the states of SAs as they are found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ike_proto::config::Action;
use ike_tokio::{CHILD_STATES, Counts, IKE_STATES, Values};
use prometheus::{Encoder, TextEncoder};

use crate::metrics::{Make, Meters};
use crate::operator::Operator;
use crate::program::{About, Configuration, RevocationCounts};

/// SAs whose counters are asked for at a time.
const SAMPLED: usize = 512;

/// The text of a scrape (Prometheus' text format 0.0.4). The error says that the daemon is on its way out.
pub async fn scrape(operator: &Operator, meters: &Meters) -> Result<String, String> {
    let begun = Instant::now();
    meters.scraped();
    sample(operator, meters).await?;
    let (tally, shards) =
        operator.handle().census().await.map_err(|stopped| stopped.to_string())?;
    let looked_up = Make::default();
    let config = operator.config();
    build_info(&looked_up, operator.program().about());
    sas(&looked_up, meters, &config, &tally.0);
    let shard_gauges = [
        looked_up.gauges(
            "ike_half_open",
            "IKE SAs that strangers have begun and that are not authenticated",
            &["shard"],
        ),
        looked_up.gauges(
            "ike_reassembly_bytes",
            "Octets of incomplete fragmented messages",
            &["shard"],
        ),
    ];
    for (index, shard) in shards.iter().enumerate() {
        let label = index.to_string();
        for (gauge, value) in shard_gauges.iter().zip([shard.half_open, shard.reassembly]) {
            gauge.with_label_values(&[&label]).set(int(value));
        }
    }
    looked_up.gauge("ike_shards", "Engines that share the work").set(int(shards.len()));
    let offloaded = looked_up.gauges(
        "ike_offloaded_sas",
        "ESP SAs that a network device handles, when they were looked at last",
        &["kind", "direction"],
    );
    for (kind, direction, count) in meters.esp().offloaded() {
        offloaded.with_label_values(&[kind, direction]).set(count);
    }
    messages(&looked_up, meters, &operator.handle().counters().by_connection());
    revocation(&looked_up, operator.program().revocation());
    let took = prometheus::Gauge::new("ike_scrape_seconds", "How long this scrape has taken");
    looked_up.register(took).set(begun.elapsed().as_secs_f64());
    let mut families = meters.gather();
    families.extend(looked_up.gather());
    let mut text = Vec::new();
    TextEncoder::new().encode(&families, &mut text).map_err(|error| error.to_string())?;
    String::from_utf8(text).map_err(|error| error.to_string())
}

/// Looks at the counters of ESP, unless that was done lately.
async fn sample(operator: &Operator, meters: &Meters) -> Result<(), String> {
    let esp = meters.esp();
    let begun = Instant::now();
    let Some(ids) = esp.due(begun) else { return Ok(()) };
    for few in ids.chunks(SAMPLED) {
        let counted = operator.handle().usage(few.to_vec()).await;
        for (id, usage) in few.iter().zip(counted.map_err(|stopped| stopped.to_string())?) {
            esp.sample(*id, usage);
        }
    }
    esp.sampled(Instant::now(), begun.elapsed());
    Ok(())
}

fn build_info(make: &Make, about: About) {
    let labels = ["version", "arch", "profile"];
    let info = make.gauges("ike_build_info", "The program, by its labels", &labels);
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let values = [about.version, std::env::consts::ARCH, profile];
    info.with_label_values(&values).set(1);
}

/// What is configured of a connection, and what of it is up.
#[derive(Default)]
struct Row {
    counts: Counts,
    configured: usize,
    to_start: usize,
    down: usize,
}

fn sas(make: &Make, meters: &Meters, config: &Configuration, tally: &BTreeMap<String, Counts>) {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    // What is configured has its name first, in the order of the file.
    for connection in &config.endpoint.connections {
        let row = rows.entry(meters.label(&connection.name)).or_default();
        let up = tally.get(&connection.name).map(|counts| &counts.up);
        row.configured += connection.children.len();
        let started = connection.children.iter().filter(|c| c.start_action == Action::Start);
        for child in started {
            row.to_start += 1;
            row.down += usize::from(!up.is_some_and(|up| up.contains(&child.name)));
        }
    }
    for (connection, counts) in tally {
        // Strangers that are not known to be of a connection yet.
        let label = if connection.is_empty() { "" } else { meters.label(connection) };
        let row = rows.entry(label).or_default();
        for (sum, more) in row.counts.ike.iter_mut().zip(counts.ike) {
            *sum += more;
        }
        for (sum, more) in row.counts.children.iter_mut().zip(counts.children) {
            *sum += more;
        }
    }
    let labels = ["connection", "state"];
    let ike = make.gauges("ike_sas", "IKE SAs by connection and state", &labels);
    let children = make.gauges("ike_child_sas", "Child SAs by connection and state", &labels);
    let gauges = |name, help| make.gauges(name, help, &["connection"]);
    let configured = gauges("ike_configured_children", "Children in the configuration");
    let to_start = gauges(
        "ike_configured_children_to_start",
        "Children that are to be up all the time: start_action = start",
    );
    let down = gauges("ike_configured_children_down", "Those of them that are not up");
    for (connection, row) in &rows {
        for (state, count) in IKE_STATES.iter().zip(row.counts.ike) {
            // Established is told where it is zero, too, for alerts.
            if count > 0 || *state == "established" {
                ike.with_label_values(&[connection, state]).set(count.into());
            }
        }
        for (state, count) in CHILD_STATES.iter().zip(row.counts.children) {
            if count > 0 || *state == "installed" {
                children.with_label_values(&[connection, state]).set(count.into());
            }
        }
        if !connection.is_empty() {
            configured.with_label_values(&[connection]).set(int(row.configured));
            to_start.with_label_values(&[connection]).set(int(row.to_start));
            down.with_label_values(&[connection]).set(int(row.down));
        }
    }
}

/// What VICI's counters have of each connection; a client that resets them resets these.
fn messages(make: &Make, meters: &Meters, counted: &[(String, Arc<Values>)]) {
    let of = |name, help, label: &str| make.counters(name, help, &["connection", label]);
    let messages = of(
        "ike_connection_messages_total",
        "IKE messages, without retransmissions, of peers that are known",
        "direction",
    );
    let rekeys = of("ike_connection_rekeys_total", "SAs rekeyed, by connection and kind", "kind");
    for (name, values) in counted {
        let label = meters.label(name);
        for (direction, sum) in ["in", "out"].into_iter().zip(values.messages()) {
            messages.with_label_values(&[label, direction]).inc_by(sum);
        }
        for (kind, sum) in ["ike", "child"].into_iter().zip(values.rekeys()) {
            rekeys.with_label_values(&[label, kind]).inc_by(sum);
        }
    }
}

/// What could not be learned about the revocation of certificates.
fn revocation(make: &Make, counts: RevocationCounts) {
    let unchecked = make.counters(
        "ike_peers_unchecked_total",
        "Peers accepted while no URL answered whether a certificate is revoked",
        &[],
    );
    unchecked.with_label_values::<&str>(&[]).inc_by(counts.unchecked);
    let unusable = make.counters(
        "ike_revocation_unusable_total",
        "Revocation lists and OCSP responses that were fetched and called no certificate good",
        &[],
    );
    unusable.with_label_values::<&str>(&[]).inc_by(counts.unusable);
    let ended = make.counters(
        "ike_sas_revoked_total",
        "IKE SAs that were ended because a certificate of their peer was revoked",
        &[],
    );
    ended.with_label_values::<&str>(&[]).inc_by(counts.ended);
    let up = make.gauge(
        "ike_sas_unchecked",
        "IKE SAs up whose peer was accepted although no URL told whether a certificate is revoked",
    );
    up.set(int(counts.unchecked_sas));
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
