//! `[connections.<name>]` with its `local` and `remote` sections.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{
    AddressSpec, ChildConfig, Childless, ConnectionConfig, DowngradePrevention, EspInUdp,
    Fragmentation, PpkConfig, PpkExchange, PpkRekey, SendCert, ShuntConfig, Unique,
};

use super::charon::set;
use super::child::{self, Child};
use super::{ocsp, packets, remote_access, round, tcp, values};
use crate::diagnostic::{Place, Report};
use crate::host::Host;
use crate::settings::{Connection, HOST, HostSpec, Hosts, Ports};
use crate::tree::{Section, Text, Unsupported, join};
use crate::units;

/// Options of swanctl.conf(5) that do nothing here yet.
const UNSUPPORTED: &[Unsupported] = &[
    ("aggressive", Some("no")),
    ("mediated_by", None),
    ("mediation", Some("no")),
    ("mediation_peer", None),
    ("version", Some("2")),
];

/// Options of swanctl.conf(5) that IKEv2 has no use for.
const IKEV1: &[&str] = &["dpd_timeout", "pull"];

/// A connection as the file has it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) connection: Connection,
    /// Children that are policies alone.
    pub(crate) shunts: Vec<ShuntConfig>,
    /// False if they are all it is there for.
    pub(crate) negotiated: bool,
}

/// `dscp`.
fn dscp(text: &str) -> Option<u8> {
    let binary = (1..=6).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0' | b'1'));
    binary.then(|| u8::from_str_radix(text, 2).ok()).flatten()
}

/// `encap`.
fn encap(text: &str) -> Option<EspInUdp> {
    match units::switch(text) {
        Some(true) => Some(EspInUdp::Yes),
        Some(false) => Some(EspInUdp::No),
        None => (text.trim() == "auto").then_some(EspInUdp::Auto),
    }
}

/// Reads one connection.
pub(crate) fn read(
    name: Text<'_>,
    mut s: Section<'_>,
    ports: Ports,
    host: &dyn Host,
    report: &mut Report,
) -> Found {
    let mut c = ConnectionConfig::new(name.text);
    let own = report.has_own_defaults(s.offset);
    check_name(name, report);
    let hosts = Hosts {
        local: addresses(&mut s, "local_addrs", report),
        remote: addresses(&mut s, "remote_addrs", report),
    };
    c.local_port = ports.ike;
    set(&mut c.remote_port, s.number("remote_port", 1, u16::MAX, report));
    if let Some(port) = s.number("local_port", 0, u16::MAX, report) {
        // As in strongSwan, what goes to another port than 500 comes from the NAT-T port.
        let ours = if c.remote_port == 500 { ports.ike } else { ports.nat_t };
        if port != ours {
            let message = format!("`{}` cannot be {port}", join(&s.path, "local_port"));
            let expected = format!("{ours}, the port in [charon] for this `remote_port`");
            report.expected(s.place("local_port"), message, expected);
        }
    }
    set(
        &mut c.proposals,
        values::proposals(&mut s, "proposals", values::Protocol::Ike, host, report),
    );
    set(&mut c.encap, s.parsed("encap", "auto, yes or no", report, encap));
    set(&mut c.dscp, s.parsed("dscp", "up to six binary digits, as in \"101110\"", report, dscp));
    tcp::read(&mut s, &mut c, report);
    remote_access::connection(&mut s, &mut c, report);
    set(&mut c.mobike, s.switch("mobike", report));
    set(&mut c.qcd, s.switch("qcd", report));
    if own {
        // Tunnels that somebody wants come back: docs/lifecycle.md.
        (c.dpd_delay, c.keyingtries) = (Duration::from_secs(30), 0);
    }
    set(&mut c.dpd_delay, s.duration("dpd_delay", report));
    options(&mut s, &mut c, report);
    let send_certreq = s.switch("send_certreq", report).unwrap_or(true);
    let ocsp = ocsp::read(&mut s, report);
    // charon leaves IKE SAs alone.
    let revocation_live = s.switch("revocation_live", report).unwrap_or(own);
    times(&mut s, &mut c, report);
    set(&mut c.if_id_in, packets::if_id(&mut s, "if_id_in", report));
    set(&mut c.if_id_out, packets::if_id(&mut s, "if_id_out", report));
    let (children, shunts, alone) = children(&mut s, name.text, own, host, report);
    c.children = children;
    // A connection of nothing but policies has nobody to authenticate.
    let negotiated = !alone || !s.rounds("local").is_empty() || !s.rounds("remote").is_empty();
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    if negotiated {
        local = round::local(&mut s, host, report);
        remote = round::remote(&mut s, host, report);
    }
    c.local = local.iter().map(|round| round.auth.clone()).collect();
    c.remote = remote.iter().map(|round| round.auth.clone()).collect();
    s.for_ikev1(IKEV1, report);
    if let Some(value) = s.value_if("version", "0") {
        let either = format!("`{}`: the daemon has IKEv2 alone", join(&s.path, "version"));
        report.warn(Some(Place::of(value)), either);
    }
    s.finish(UNSUPPORTED, report);
    let connection =
        Connection { config: c, hosts, local, remote, send_certreq, ocsp, revocation_live };
    Found { connection, shunts, negotiated }
}

/// The children that are negotiated, and those that are policies alone; true if there are only such.
fn children(
    s: &mut Section<'_>,
    connection: &str,
    own: bool,
    host: &dyn Host,
    report: &mut Report,
) -> (Vec<Arc<ChildConfig>>, Vec<ShuntConfig>, bool) {
    let (mut negotiated, mut shunts, mut alone) = (Vec::new(), Vec::new(), false);
    if let Some(mut children) = s.section("children", report) {
        for (name, section) in children.subsections(report) {
            check_name(name, report);
            match child::read(connection, name.text, own, host, section, report) {
                Child::Negotiated(child) => negotiated.push(Arc::new(*child)),
                Child::Shunt(shunt) => {
                    alone = true;
                    shunts.extend(shunt.map(|shunt| *shunt));
                }
            }
        }
        children.finish(&[], report);
    }
    let alone = alone && negotiated.is_empty();
    (negotiated, shunts, alone)
}

/// A name appears in logs and on command lines: no white space, nothing unprintable.
pub(crate) fn check_name(name: Text<'_>, report: &mut Report) {
    let fits =
        (1..=128).contains(&name.text.len()) && name.text.chars().all(|c| c.is_ascii_graphic());
    if !fits {
        let message = format!("{:?} cannot be a name", name.text);
        report.expected(name.offset, message, "1 to 128 printable ASCII characters without spaces");
    }
}

fn addresses(s: &mut Section<'_>, key: &'static str, report: &mut Report) -> Vec<HostSpec> {
    let any = || vec![HostSpec::Address(AddressSpec::Any(None))];
    let Some(items) = s.list(key, HOST, report) else { return any() };
    let mut specs = Vec::new();
    for item in items {
        match HostSpec::parse(item.text) {
            Some(spec) => specs.push(spec),
            None => {
                let message = format!("`{}` cannot be {:?}", join(&s.path, key), item.text);
                report.expected(item.offset, message, HOST);
            }
        }
    }
    if specs.is_empty() { any() } else { specs }
}

fn options(s: &mut Section<'_>, c: &mut ConnectionConfig, report: &mut Report) {
    let fragmentation = [
        ("yes", Fragmentation::Yes),
        ("accept", Fragmentation::Accept),
        ("force", Fragmentation::Force),
        ("no", Fragmentation::No),
        ("true", Fragmentation::Yes),
        ("false", Fragmentation::No),
    ];
    set(&mut c.fragmentation, s.choice("fragmentation", &fragmentation, report));
    let childless = [
        ("allow", Childless::Allow),
        ("prefer", Childless::Prefer),
        ("force", Childless::Force),
        ("never", Childless::Never),
    ];
    set(&mut c.childless, s.choice("childless", &childless, report));
    let unique = [
        ("no", Unique::No),
        ("never", Unique::Never),
        ("keep", Unique::Keep),
        ("replace", Unique::Replace),
        ("false", Unique::No),
    ];
    set(&mut c.unique, s.choice("unique", &unique, report));
    let send_cert = [
        ("ifasked", SendCert::IfAsked),
        ("always", SendCert::Always),
        ("never", SendCert::Never),
        ("true", SendCert::Always),
        ("false", SendCert::Never),
        ("yes", SendCert::Always),
        ("no", SendCert::Never),
    ];
    set(&mut c.send_cert, s.choice("send_cert", &send_cert, report));
    let downgrade_prevention = [
        ("yes", DowngradePrevention::Yes),
        ("no", DowngradePrevention::No),
        ("require", DowngradePrevention::Require),
        ("true", DowngradePrevention::Yes),
        ("false", DowngradePrevention::No),
    ];
    let given = s.choice("downgrade_prevention", &downgrade_prevention, report);
    set(&mut c.downgrade_prevention, given);
    set(&mut c.session_resumption, s.switch("session_resumption", report));
    ppk(s, &mut c.ppk, report);
    set(&mut c.keyingtries, s.number("keyingtries", 0, u32::MAX, report));
}

/// What a connection does with post-quantum preshared keys.
fn ppk(s: &mut Section<'_>, ppk: &mut PpkConfig, report: &mut Report) {
    ppk.ids = values::ppk_ids(s, report);
    set(&mut ppk.required, s.switch("ppk_required", report));
    let exchange = [
        ("any", PpkExchange::Any),
        ("auth", PpkExchange::Auth),
        ("intermediate", PpkExchange::Intermediate),
    ];
    set(&mut ppk.exchange, s.choice("ppk_exchange", &exchange, report));
    let rekey = [
        ("no", PpkRekey::No),
        ("yes", PpkRekey::Yes),
        ("require", PpkRekey::Require),
        ("false", PpkRekey::No),
        ("true", PpkRekey::Yes),
    ];
    set(&mut ppk.rekey, s.choice("ppk_rekey", &rekey, report));
    let wants = ppk.required || ppk.rekey != PpkRekey::No;
    if wants && ppk.ids.is_empty() {
        s.missing("ppk_id", values::PPK_ID, report);
    }
}

/// The times of an IKE SA, which default to each other.
fn times(s: &mut Section<'_>, c: &mut ConnectionConfig, report: &mut Report) {
    let rekey = s.duration("rekey_time", report);
    c.reauth_time = s.duration("reauth_time", report).unwrap_or_default();
    c.rekey_time = match rekey {
        Some(time) => time,
        None if c.reauth_time.is_zero() => c.rekey_time,
        None => Duration::ZERO,
    };
    let longest = c.rekey_time.max(c.reauth_time);
    c.over_time = s.duration("over_time", report).unwrap_or(longest / 10);
    let rand = s.duration("rand_time", report);
    c.rand_time = rand.unwrap_or(c.over_time);
    let shortest = [c.rekey_time, c.reauth_time].into_iter().filter(|time| !time.is_zero()).min();
    if let Some(shortest) = shortest
        && c.rand_time >= shortest
    {
        if rand.is_some() {
            let message =
                format!("`{}` leaves no time before the rekeying", join(&s.path, "rand_time"));
            report.expected(
                s.place("rand_time"),
                message,
                format!("less than {} s", shortest.as_secs_f64()),
            );
        }
        c.rand_time = shortest / 2;
    }
}
