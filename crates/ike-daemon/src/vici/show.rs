//! Listings for clients besides SAs and connections: certificates, policies, authorities, algorithms, counters.

use std::collections::BTreeSet;
use std::io;

use ike_proto::crypto::CipherSuite;
use ike_proto::dataplane::{Mode, PolicyAction, TrafficSelector};
use ike_proto::wire::registry::{EncrId, IntegId};
use ike_tokio::PolicyView;
use vici::Section;

use super::commands::result;
use super::list::key;
use super::session::{LIST_AUTHORITY, LIST_CERT, LIST_POLICY, Session};

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
        "get-algorithms" => algorithms(),
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
    let answerer = session.operator.answerer();
    let trust = answerer.trust();
    let mut found = Vec::new();
    if is(&kind, "X509") && is(&flag, "NONE") {
        for (certificate, key) in &session.operator.config().certificates {
            if of(&certificate.subject_text()) {
                let section = Section::new().text("type", "X509").text("flag", "NONE");
                let section = if *key { section.text("has_privkey", "yes") } else { section };
                found.push((section, certificate.der().to_vec()));
            }
        }
    }
    if is(&kind, "X509") && is(&flag, "CA") {
        let cas = trust.cas().iter().chain(trust.intermediates());
        for ca in cas.filter(|ca| of(&ca.subject_text())) {
            let section = Section::new().text("type", "X509").text("flag", "CA");
            found.push((section, ca.der().to_vec()));
        }
    }
    if is(&kind, "X509_CRL") {
        for crl in trust.revocation.crls().filter(|crl| of(&crl.issuer_text())) {
            found.push((Section::new().text("type", "X509_CRL"), crl.der().to_vec()));
        }
    }
    for (section, der) in found {
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
        Err(why) => return Ok(result(Err(why.to_string()))),
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
    for (name, authority) in &session.operator.config().authorities {
        if asked.str("name").is_some_and(|wanted| wanted != name) {
            continue;
        }
        let described = Section::new()
            .text("cacert", authority.ca.subject_text())
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
fn algorithms() -> Section {
    let provider = pq_kem::provider();
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

fn provided(mut names: Vec<String>) -> Section {
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.clone()));
    names.into_iter().fold(Section::new(), |all, name| all.text(key(&name), "pq-kem"))
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
            None => return result(Err(format!("no counters found for connection {name:?}"))),
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
    result(Ok(()))
}
