//! `[charon]`: settings of the whole daemon, named as in strongswan.conf(5).

use std::time::Duration;

use ike_proto::config::{EndpointConfig, FragmentAckTypes, FrodoNumbers, Retransmission};
use ike_proto::dataplane::Iptfs;

use super::redirect;
use crate::diagnostic::Report;
use crate::host::Host;
use crate::settings::{PlaneOptions, Ports, RouteOptions, Settings};
use crate::tree::{Section, Text, Unsupported};
use crate::units;

/// `shards = auto` and `tun_queues = auto`: one for each processor this process may use, up to so many. Beyond, what all shards have
/// in common would show.
const MOST_AUTO: usize = 16;
/// Octets of `reassembly_memory`, at the least: a message of the largest size for each kind of peers.
const LEAST_MEMORY: u32 = 1 << 20;
/// Shards at the most: their index is an octet of SPIs, and memory is divided among them.
const MOST_SHARDS: u8 = 64;
/// Queues at the most, of 256 that the kernel takes.
const MOST_QUEUES: u8 = 64;

/// Options of strongswan.conf(5) that change what happens on the wire and do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[
    ("accept_private_algs", Some("no")),
    ("close_ike_on_child_failure", Some("no")),
    ("delete_rekeyed", Some("no")),
    ("dos_protection", Some("yes")),
    ("fragment_size_v4", None),
    ("fragment_size_v6", None),
    ("group", None),
    ("ikesa_limit", Some("0")),
    ("inactivity_close_ike", Some("no")),
    ("init_limit_job_load", Some("0")),
    ("initiator_only", Some("no")),
    ("interfaces_ignore", None),
    ("interfaces_use", None),
    ("keep_alive_dpd_margin", Some("0")),
    ("make_before_break", Some("yes")),
    ("multiple_authentication", Some("yes")),
    ("prefer_configured_proposals", Some("yes")),
    ("replay_window", None),
    ("reuse_ikesa", Some("yes")),
    ("send_vendor_id", Some("no")),
    ("spi_max", None),
    ("spi_min", None),
    ("threads", None),
    ("user", None),
];

/// Reads the section into `all`, but for the subsections that have files of their own; and `[charon.iptfs]`.
pub(crate) fn read(
    mut s: Section<'_>,
    host: &dyn Host,
    all: &mut Settings,
    report: &mut Report,
) -> Iptfs {
    let mut iptfs = Iptfs::default();
    let Settings { endpoint, plane, tcp, .. } = all;
    let mut ports = Ports::default();
    set(&mut tcp.listen, s.switch("listen_tcp", report));
    set(&mut tcp.port, s.number("tcp_port", 0, u16::MAX, report));
    if s.has("tcp_port") && !tcp.listen {
        let message = "`charon.tcp_port` without `listen_tcp`";
        report.expected(s.place("tcp_port"), message, "`listen_tcp = true` beside it");
    }
    // `threads` of strongSwan is how many jobs of any SA run at a time, which is neither.
    set(&mut all.shards, read_workers("shards", MOST_SHARDS, &mut s, host, report));
    set(&mut plane.tun_queues, read_workers("tun_queues", MOST_QUEUES, &mut s, host, report));
    set(&mut all.credentials.cert_cache, s.switch("cert_cache", report));
    set(&mut all.credentials.signer_timeout, signer_timeout(&mut s, report));
    if let Some(section) = s.section("iptfs", report) {
        iptfs = read_iptfs(section, report);
    }
    set(&mut plane.overlap, s.switch("overlapip", report));
    set(&mut plane.icmp_too_big, s.switch("icmp_too_big", report));
    read_routes(&mut s, plane, report);
    set(&mut ports.ike, s.number("port", 0, u16::MAX, report));
    set(&mut ports.nat_t, s.number("port_nat_t", 0, u16::MAX, report));
    if ports.ike == ports.nat_t && ports.ike != 0 {
        let message = format!("`charon.port_nat_t` is the same as `charon.port`, {}", ports.ike);
        report.expected(s.place("port_nat_t"), message, "two ports that differ");
    }
    set(&mut endpoint.cookie_threshold, s.number("cookie_threshold", 0, u32::MAX, report));
    set(&mut endpoint.cookie_threshold_ip, s.number("cookie_threshold_ip", 0, u32::MAX, report));
    set(&mut endpoint.block_threshold, s.number("block_threshold", 0, u32::MAX, report));
    set(&mut endpoint.init_limit_half_open, s.number("init_limit_half_open", 0, u32::MAX, report));
    set(&mut endpoint.half_open_timeout, s.duration("half_open_timeout", report));
    if let Some(size) = fragment_size(&mut s, report) {
        endpoint.fragment_size = Some(size);
    }
    set(
        &mut endpoint.max_packet,
        s.number("max_packet", 1280, 65_535, report).map(|n: u32| n as usize),
    );
    let memory = s.number("reassembly_memory", LEAST_MEMORY, u32::MAX, report);
    set(&mut endpoint.reassembly_memory, memory.map(|n: u32| n as usize));
    let signatures = s.switch("signature_authentication", report);
    set(&mut endpoint.signature_authentication, signatures);
    set(&mut endpoint.follow_redirects, s.switch("follow_redirects", report));
    set(&mut endpoint.send_invalid_spi, s.switch("send_invalid_spi", report));
    if let Some(section) = s.section("redirect", report) {
        endpoint.redirect = redirect::read(section, report);
    }
    set(&mut endpoint.prefer_best_path, s.switch("prefer_best_path", report));
    set(&mut endpoint.return_routability, s.switch("return_routability", report));
    set(&mut endpoint.keep_alive, s.duration("keep_alive", report));
    set(&mut endpoint.retry_initiate_interval, s.duration("retry_initiate_interval", report));
    set(&mut endpoint.delete_rekeyed_delay, s.duration("delete_rekeyed_delay", report));
    endpoint.retransmission = read_retransmission(&mut s, report);
    endpoint.fragment_ack = read_fragment_ack(&mut s, report);
    separate_transports_type(&mut s, endpoint, report);
    frodokem_types(&mut s, endpoint, report);
    s.finish(UNSUPPORTED, report);
    all.ports = ports;
    iptfs
}

fn signer_timeout(s: &mut Section<'_>, report: &mut Report) -> Option<Duration> {
    let limit = s.duration("signer_timeout", report)?;
    if limit < Duration::from_secs(1) {
        let message = "`charon.signer_timeout` is too short";
        report.expected(s.place("signer_timeout"), message, "1 s or more");
        return None;
    }
    Some(limit)
}

/// How many of something that works in parallel: a number, or one for each processor.
fn read_workers(
    key: &'static str,
    most: u8,
    s: &mut Section<'_>,
    host: &dyn Host,
    report: &mut Report,
) -> Option<u8> {
    let what = format!("\"auto\" or a whole number from 1 to {most}");
    s.parsed(key, &what, report, |text| match text {
        "auto" => u8::try_from(host.processors().min(MOST_AUTO)).ok(),
        number => number.parse().ok().filter(|count| (1..=most).contains(count)),
    })
}

/// `retransmit_…`. A file with one of timeout, base and tries gets strongSwan's timers, with its defaults for
/// the others; a file without them gets timers that follow the path.
fn read_retransmission(s: &mut Section<'_>, report: &mut Report) -> Retransmission {
    let what = format!("{}, longer than 0", units::DURATION);
    let timeout = s.parsed("retransmit_timeout", &what, report, |text| {
        units::duration(text).filter(|time| *time > Duration::ZERO)
    });
    let base = s.parsed("retransmit_base", "a number from 1.0 to 10.0", report, |text| {
        text.parse::<f64>().ok().filter(|base| (1.0..=10.0).contains(base))
    });
    let tries = s.number("retransmit_tries", 0, 100, report);
    let ladder = timeout.is_some() || base.is_some() || tries.is_some();
    let mut all = if ladder { Retransmission::strongswan() } else { Retransmission::adaptive() };
    set(&mut all.timeout, timeout.map(Some));
    set(&mut all.base, base);
    set(&mut all.tries, tries.map(Some));
    set(&mut all.limit, s.duration("retransmit_limit", report));
    set(&mut all.jitter, s.number("retransmit_jitter", 0, 100, report));
    all
}

/// `fragment_ack` and `fragment_ack_types`. The numbers are checked also where they are not used.
fn read_fragment_ack(s: &mut Section<'_>, report: &mut Report) -> Option<FragmentAckTypes> {
    let wanted = s.switch("fragment_ack", report).unwrap_or(true);
    let what = "three different notify message types from 40960 to 65535: [supported, req, res]";
    let (key, place) = ("fragment_ack_types", s.place("fragment_ack_types"));
    let mut types = FragmentAckTypes::default();
    if let Some(texts) = s.list(key, what, report) {
        let number = |text: &Text<'_>| text.text.parse::<u16>().ok().filter(|n| *n >= PRIVATE_USE);
        let numbers: Vec<_> = texts.iter().filter_map(number).collect();
        match numbers.as_slice() {
            &[supported, request, response]
                if texts.len() == 3
                    && supported != request
                    && request != response
                    && response != supported =>
            {
                types = FragmentAckTypes { supported, request, response };
            }
            _ => {
                let given: Vec<_> = texts.iter().map(|text| text.text).collect();
                let message = format!("`charon.{key}` cannot be {given:?}");
                report.expected(place, message, what);
            }
        }
    }
    wanted.then_some(types)
}

/// The first status notify message type for private use (RFC 7296 §6).
const PRIVATE_USE: u16 = 40_960;

/// `separate_transports_type`: of the private range (RFC 7296 §3.10.1), and nobody else's.
fn separate_transports_type(
    s: &mut Section<'_>,
    endpoint: &mut EndpointConfig,
    report: &mut Report,
) {
    const KEY: &str = "separate_transports_type";
    set(&mut endpoint.separate_transports, s.number(KEY, 40_960, u16::MAX, report));
    let others = endpoint
        .fragment_ack
        .map(|FragmentAckTypes { supported, request, response }| [supported, request, response]);
    if others.is_some_and(|others| others.contains(&endpoint.separate_transports)) {
        let number = endpoint.separate_transports;
        let message = format!("`charon.{KEY}` is {number}, which a fragment acknowledgment has");
        report.expected(s.place(KEY), message, "a number of its own");
    }
}

/// `frodokem_type` and `efrodokem_type`: six numbers each of the private range, none of both.
fn frodokem_types(s: &mut Section<'_>, endpoint: &mut EndpointConfig, report: &mut Report) {
    const KEY: &str = "efrodokem_type";
    let (least, most) = FrodoNumbers::RANGE;
    let numbers = &mut endpoint.frodokem;
    set(&mut numbers.salted, s.number("frodokem_type", least, most, report));
    set(&mut numbers.unsalted, s.number(KEY, least, most, report));
    if !numbers.are_apart() {
        let FrodoNumbers { salted, unsalted } = *numbers;
        let message = format!("`charon.{KEY}` is {unsalted}, and `frodokem_type` is {salted}");
        report.expected(s.place(KEY), message, "six numbers of its own");
    }
}

/// `[charon.iptfs]`: AGGFRAG payloads of all children (RFC 9347).
fn read_iptfs(mut s: Section<'_>, report: &mut Report) -> Iptfs {
    let mut iptfs = Iptfs::default();
    set(&mut iptfs.accept_fragments, s.switch("accept_fragments", report));
    set(&mut iptfs.dont_frag, s.switch("dont_frag", report));
    let micros = |time: u32| Duration::from_micros(time.into());
    set(&mut iptfs.drop_time, s.number("drop_time", 0, u32::MAX, report).map(micros));
    set(&mut iptfs.init_delay, s.number("init_delay", 0, u32::MAX, report).map(micros));
    set(&mut iptfs.max_queue_size, s.number("max_queue_size", 0, u32::MAX, report));
    set(&mut iptfs.packet_size, s.number("packet_size", 0, 65_535, report));
    set(&mut iptfs.reorder_window, s.number("reorder_window", 0, u16::MAX, report));
    s.finish(&[], report);
    iptfs
}

fn read_routes(s: &mut Section<'_>, plane: &mut PlaneOptions, report: &mut Report) {
    set(&mut plane.install_routes, s.switch("install_routes", report));
    let RouteOptions { table, priority, mark } = &mut plane.routes;
    // The kernel's own tables, default, main and local, are not ours to fill.
    let place = s.place("routing_table");
    set(table, s.number("routing_table", 1, u32::MAX, report));
    if (253..=255).contains(table) {
        let message = format!("`charon.routing_table` is the system's own table {table}");
        report.expected(place, message, "a table that no other program uses");
    }
    set(priority, s.number("routing_table_prio", 1, 32_765, report));
    set(mark, s.number("fwmark", 1, u32::MAX, report));
}

/// 0, or room for the headers and some octets of a fragment.
fn fragment_size(s: &mut Section<'_>, report: &mut Report) -> Option<u16> {
    s.parsed("fragment_size", "0 or a whole number from 256 to 65535", report, |text| {
        text.parse::<u16>().ok().filter(|size| *size == 0 || *size >= 256)
    })
}

/// Replaces `place` if there is a value.
pub(crate) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
