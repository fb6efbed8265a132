//! Listings for clients besides SAs and connections: certificates, policies, authorities, algorithms, counters.

use std::collections::BTreeSet;
use std::io;

use ike_proto::crypto::CipherSuite;
use ike_proto::dataplane::{Mode, PolicyAction, TrafficSelector};
use ike_proto::wire::registry::{EncrId, IntegId};
use ike_tokio::PolicyView;
use vici::Section;

use super::commands::{refused, success};
use super::list::key;
use super::refusal::Refusal;
use super::session::{LIST_AUTHORITY, LIST_CERT, LIST_POLICY, Session};
use crate::error::OperatorError;
use crate::program::{About, CertificateKind, Program};

/// Answers the command `name`; `None` if it is none of these. The error ends the connection.
pub(super) async fn answer(
    session: &Session,
    name: &str,
    asked: &Section,
) -> io::Result<Option<Section>> {
    let answer = match name {
        "list-certs" => list_certs(session, asked).await?,
        "list-policies" => list_policies(session, asked).await?,
        "list-authorities" => list_authorities(session, asked).await?,
        "get-algorithms" => algorithms(session.operator.program()),
        "get-counters" => counters(session, asked),
        "reset-counters" => reset_counters(session, asked),
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// Octets of a value.
const LONGEST: usize = 65_535;

async fn list_certs(session: &Session, asked: &Section) -> io::Result<Section> {
    let kind = asked.str("type").unwrap_or("ANY").to_ascii_uppercase();
    let flag = asked.str("flag").unwrap_or("ANY").to_ascii_uppercase();
    let (kind, flag) = match kind.as_str() {
        // The names of swanctl's folders.
        "X509CA" => ("X509".to_owned(), "CA".to_owned()),
        "X509CRL" => ("X509_CRL".to_owned(), flag),
        _ => (kind, flag),
    };
    let is = |wanted: &str, one: &str| wanted == "ANY" || wanted == one;
    let subject = asked.str("subject");
    let of = |text: &str| subject.is_none_or(|subject| subject == text);
    for certificate in session.operator.program().certificates() {
        let (type_, role) = match certificate.kind {
            CertificateKind::EndEntity => ("X509", Some("NONE")),
            CertificateKind::Ca => ("X509", Some("CA")),
            CertificateKind::Crl => ("X509_CRL", None),
        };
        if !is(&kind, type_)
            || !role.is_none_or(|role| is(&flag, role))
            || !of(&certificate.subject)
        {
            continue;
        }
        let mut section = Section::new().text("type", type_);
        if let Some(role) = role {
            section = section.text("flag", role);
        }
        if certificate.has_private_key {
            section = section.text("has_privkey", "yes");
        }
        let der = certificate.der;
        if der.len() > LONGEST {
            tracing::warn!(octets = der.len(), "too long for a VICI client, and left out");
            continue;
        }
        session.outlet.event(LIST_CERT, section.text("data", der)).await?;
    }
    Ok(Section::new())
}

async fn list_policies(session: &Session, asked: &Section) -> io::Result<Section> {
    let wants = |what: &str| asked.str(what) == Some("yes");
    let policies = match session.operator.handle().policies().await {
        Ok(policies) => policies,
        Err(why) => return Ok(refused(OperatorError::from(why))),
    };
    for policy in policies {
        let (ike, child, mode, local, remote) = match policy {
            PolicyView::Trap(trap) if wants("trap") => {
                let mode = match trap.child.mode {
                    Mode::Transport => "transport",
                    Mode::Tunnel => "tunnel",
                    Mode::Beet => "beet",
                    Mode::Iptfs => "iptfs",
                };
                let (local, remote) = (texts(&trap.local_ts), texts(&trap.remote_ts));
                (trap.connection, trap.child.name.clone(), mode, local, remote)
            }
            PolicyView::Shunt(spec) => {
                let mode = match spec.action {
                    PolicyAction::Pass => "pass",
                    _ => "drop",
                };
                if !wants(mode) {
                    continue;
                }
                let (local, remote) = (texts(&spec.local_ts), texts(&spec.remote_ts));
                (spec.owner, spec.child, mode, local, remote)
            }
            PolicyView::Trap(_) => continue,
        };
        let other = |name: &str, is: &str| asked.str(name).is_some_and(|wanted| wanted != is);
        if other("child", &child) || other("ike", &ike) {
            continue;
        }
        let name = key(&format!("{ike}/{child}"));
        let described = Section::new()
            .text("child", child)
            .text("ike", ike)
            .text("mode", mode)
            .list("local-ts", local)
            .list("remote-ts", remote);
        session.outlet.event(LIST_POLICY, Section::new().section(name, described)).await?;
    }
    Ok(Section::new())
}

fn texts(selectors: &[TrafficSelector]) -> Vec<String> {
    selectors.iter().map(ToString::to_string).collect()
}

async fn list_authorities(session: &Session, asked: &Section) -> io::Result<Section> {
    for authority in session.operator.program().authorities() {
        let name = &authority.name;
        if asked.str("name").is_some_and(|wanted| wanted != name) {
            continue;
        }
        let described = Section::new()
            .text("cacert", authority.subject)
            .list("crl_uris", &authority.crl_uris)
            .list("ocsp_uris", &authority.ocsp_uris);
        let described = match &authority.cert_uri_base {
            Some(base) => described.text("cert_uri_base", base),
            None => described,
        };
        let section = Section::new().section(key(name), described);
        session.outlet.event(LIST_AUTHORITY, section).await?;
    }
    Ok(Section::new())
}

/// What the cryptography behind the engine has, by asking it for every number there may be.
fn algorithms(program: &dyn Program) -> Section {
    let About { backend, .. } = program.about();
    let provided = |names| provided(names, backend);
    let Some(provider) = program.provider() else {
        let all = ["encryption", "integrity", "aead", "prf", "ke"].into_iter();
        return all.fold(Section::new(), |all, name| all.section(name, Section::new()));
    };
    let (mut encryption, mut integrity, mut aead) = (Vec::new(), Vec::new(), Vec::new());
    for encr in (1..=64).map(EncrId) {
        for integ in (0..=32).map(IntegId) {
            let has = |key_bits| {
                let suite = CipherSuite { encr, key_bits, integ };
                provider.ciphers.lengths(suite).is_some()
            };
            if ![0, 128, 192, 256].into_iter().any(has) {
                continue;
            }
            let place = if integ == IntegId::NONE { &mut aead } else { &mut encryption };
            place.push(encr.to_string());
            if integ != IntegId::NONE {
                integrity.push(integ.to_string());
            }
        }
    }
    Section::new()
        .section("encryption", provided(encryption))
        .section("integrity", provided(integrity))
        .section("aead", provided(aead))
        .section("prf", provided(provider.prf.iter().map(|prf| prf.id().to_string()).collect()))
        .section("ke", provided(provider.ke.iter().map(|ke| ke.id().to_string()).collect()))
}

fn provided(mut names: Vec<String>, backend: &str) -> Section {
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.clone()));
    names.into_iter().fold(Section::new(), |all, name| all.text(key(&name), backend))
}

/// Those of the daemon, of the connection that is named, or of `all` connections.
fn counters(session: &Session, asked: &Section) -> Section {
    let counters = session.operator.handle().counters();
    let shown = |values: &mut dyn Iterator<Item = (&'static str, u64)>| {
        values.fold(Section::new(), |all, (name, value)| all.text(name, value.to_string()))
    };
    let list = match (asked.str("all") == Some("yes"), asked.str("name")) {
        (true, _) => {
            counters.by_connection().iter().fold(Section::new(), |list, (name, values)| {
                list.section(key(name), shown(&mut values.iter()))
            })
        }
        (false, None) => Section::new().section("", shown(&mut counters.all())),
        (false, Some(name)) => match counters.of(name) {
            Some(values) => Section::new().section(key(name), shown(&mut values.iter())),
            None => return refused(Refusal::NoCounters(name.to_owned())),
        },
    };
    Section::new().section("counters", list).text("success", "yes")
}

/// As strongSwan has it, it is no mistake to reset what has counted nothing.
fn reset_counters(session: &Session, asked: &Section) -> Section {
    let counters = session.operator.handle().counters();
    match (asked.str("all") == Some("yes"), asked.str("name")) {
        (true, _) => counters.reset_connections(),
        (false, None) => counters.reset(),
        (false, Some(name)) => _ = counters.reset_connection(name),
    }
    success()
}
